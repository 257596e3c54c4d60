"""What a run leaves behind: which of its messages are archived, after `before_save`, and how its record is closed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from langchain_core.messages import BaseMessage, RemoveMessage

from langchain_mastra_memory.agents.call import Call
from langchain_mastra_memory.agents.core import PROBED, Turns
from langchain_mastra_memory.agents.identity import Identity
from langchain_mastra_memory.agents.record import RunRecord
from langchain_mastra_memory.base import MemoryBase
from langchain_mastra_memory.context.provider import Outcome
from langchain_mastra_memory.errors import ConfigurationError
from langchain_mastra_memory.history.before_save import Archived, before_saving
from langchain_mastra_memory.history.incoming import metadata_of_run
from langchain_mastra_memory.io import IO
from langchain_mastra_memory.store.base import MemoryStore
from langchain_mastra_memory.store.operations.messages import NewMessage
from langchain_mastra_memory.store.operations.runs import SaveRun
from langchain_mastra_memory.store.sql.engine import SQLMemoryStore
from langchain_mastra_memory.store.wrappers.base import StoreWrapper
from langchain_mastra_memory.threads.runs import dump_replacement, kind_of, leading_summaries
from langchain_mastra_memory.tokens import ready
from langchain_mastra_memory.types import StoredMessage

PRIVATE: Final = frozenset({"memory://", "sqlite://", "sqlite:///:memory:"})
"""URLs that give each store a database of its own."""


def archives(identity: Identity, memory: MemoryBase) -> bool:
    """Return whether the run's own checkpointer archives into the memory's store.

    It may be of another `Memory` over the same database, made alike: a LangGraph server loads the file of the graph and
    that of the checkpointer apart, so that one line makes two.

    Raises:
        ConfigurationError: It archives into the same database, but not what this memory needs there.
    """
    if not identity.root or identity.agent is not None:
        return False
    store = getattr(identity.checkpointer, "store", None)
    if store is memory.store:
        return True
    if not isinstance(store, MemoryStore):
        return False
    (theirs, their_wrappers), (ours, wrappers) = _unwrapped(store), _unwrapped(memory.store)
    database = _database_of(ours)
    if database is None or _database_of(theirs) != database:
        return False
    if their_wrappers != wrappers or _habits(getattr(identity.checkpointer, "memory", None)) != _habits(memory):
        raise ConfigurationError(
            f"the checkpointer and the middleware (or node) of this run belong to two memories over {database} that "
            "are not made alike: make one Memory, and use its memory.checkpointer with its memory.middleware()"
        )
    return True


def _unwrapped(store: MemoryStore) -> tuple[MemoryStore, list[type[StoreWrapper]]]:
    """Return the store below its wrappers, and their kinds from the outside in."""
    wrappers = []
    while isinstance(store, StoreWrapper):
        wrappers.append(type(store))
        store = store.inner
    return store, wrappers


def _database_of(store: MemoryStore) -> str | None:
    """Return the database of a store; None for one that only this store has, or that is not known."""
    where = store.where if isinstance(store, SQLMemoryStore) else None
    return None if where is None or where in PRIVATE else where


def _habits(memory: MemoryBase | None) -> tuple[object, ...]:
    """Return what decides how a memory's checkpointer archives; without a memory, no feature is on."""
    if memory is None:
        return frozenset(), False, False
    history = memory.options.message_history
    off = history is not None and history.limits().off
    return memory.options.features, memory.options.read_only, off


def check_shaping(identity: Identity, memory: MemoryBase) -> None:
    """Refuse a graph of nodes whose checkpointer would archive what `before_save` has not seen.

    The middleware's record in the state tells the checkpointer what to archive; a graph of nodes has none.

    Raises:
        ConfigurationError: There are `before_save` functions, and the run's checkpointer is the memory's own.
    """
    options = memory.options.message_history
    if options is not None and options.before_save and archives(identity, memory):
        raise ConfigurationError(
            "before_save has no part in what memory.checkpointer archives of a graph of nodes: build the agent with "
            "memory.middleware(), compile the graph with another checkpointer, or put a RedactingStore under the memory"
        )


def keeps_nothing(identity: Identity, turns: Turns) -> bool:
    """Return whether nothing of a run enters the archive: memory is off, read-only, or has no history."""
    options = turns.history
    off = options is None or options.limits(identity.options).off
    return off or identity.options.off or turns.read_only(identity)


async def finish(io: IO, turns: Turns, call: Call, record: RunRecord, *, complete: bool) -> RunRecord:
    """Save a run that is complete, let the features do what follows, and return how its record is closed.

    Args:
        io: What to do it with.
        turns: The turns of the memory.
        call: The run at its end.
        record: Its record.
        complete: Whether it ended with an answer that counts.

    Raises:
        ProcessorError: A `before_save` function raised; nothing was saved.
    """
    identity = call.identity
    end = call.messages[-1].id if call.messages else None
    if keeps_nothing(identity, turns):
        closing: RunRecord = {"status": "off", "end": end}
        saved: tuple[BaseMessage, ...] = ()
    elif not complete:
        refused = [*record.get("refused", ()), *_since_input(call, record)]
        closing, saved = {"status": "refused", "end": end, "refused": refused}, ()
    else:
        repeated = await turns.repeated(io, call)
        run = of_run(call, record, repeated)
        archived = await before_saving(io, run, turns.history)
        closing = {"status": "complete", "end": end, "ids": list(archived.ids)}
        if repeated and call.from_state:
            closing["refused"] = [*record.get("refused", ()), *sorted(repeated)]
        saved = archived.messages
        if record.get("saver"):
            closing["replaced"] = {key: dump_replacement(made) for key, made in archived.replaced.items()}
        else:
            await save(io, turns, call, archived, before=before_run(call, run))
    if not identity.options.off:
        facts = await turns.facts(io, call)
        outcome = Outcome(status="complete" if complete else "refused", saved=saved)
        for provider in turns.providers(identity):
            await provider.finish(io, facts, outcome)
    turns.forget(identity.thread_id, call.turn)
    return closing


def _since_input(call: Call, record: RunRecord) -> list[str]:
    """Return the ids of what came in with the run and after it."""
    inputs = set(record.get("inputs", ()))
    place = next((at for at, message in enumerate(call.messages) if message.id in inputs), len(call.messages))
    return [message.id for message in call.messages[place:] if message.id]


def of_run(call: Call, record: RunRecord, repeated: frozenset[str] = frozenset()) -> tuple[BaseMessage, ...]:
    """Return the messages of the state that belong to the run and to what came before it unsaved.

    A summary that another middleware made in this run stands before what it left.

    Args:
        call: The run at its end.
        record: Its record.
        repeated: Ids of what the caller sent again though it is known.
    """
    messages = call.messages
    since = record.get("since")
    left = repeated | set(record.get("refused", ()))
    summaries: list[BaseMessage] = []
    if since is not None:
        place = next((at for at in range(len(messages) - 1, -1, -1) if messages[at].id == since), None)
        if place is not None:
            known = record.get("summaries", ())
            summaries = [summary for summary in leading_summaries(messages[: place + 1]) if summary.id not in known]
            messages = messages[place + 1 :]
    return tuple(
        message
        for message in (*summaries, *messages)
        if message.id and message.id not in left and not isinstance(message, RemoveMessage)
    )


def before_run(call: Call, run: Sequence[BaseMessage]) -> list[str]:
    """Return the ids of the newest messages of the state before a run: they say where it stood."""
    own = {message.id for message in run}
    found: list[str] = []
    for message in reversed(call.messages):
        if message.id and message.id not in own:
            found.append(message.id)
            if len(found) == PROBED:
                break
    return found[::-1]


async def save(
    io: IO,
    turns: Turns,
    call: Call,
    archived: Archived,
    *,
    before: Sequence[str],
    beside: frozenset[str] = frozenset(),
) -> list[StoredMessage]:
    """Archive a run's messages in one transaction; the thread is made if it is missing.

    Args:
        io: What to do it with.
        turns: The turns of the memory.
        call: The run at its end.
        archived: What to save.
        before: The ids of the state's messages before the run.
        beside: Ids of messages that are not in the state.
    """
    if not archived.messages:
        return []
    memory = turns.memory
    counter = await ready(memory.token_counter, io)
    options = call.identity.options
    return await io.run(
        SaveRun(
            thread_id=call.identity.thread_id,
            resource_id=call.identity.resource_id,
            messages=tuple(
                NewMessage(
                    message=message,
                    tokens=counter.count_message(message),
                    kind=kind_of(message),
                    metadata=metadata_of_run(message),
                )
                for message in archived.messages
            ),
            after=tuple(before),
            from_state=call.from_state,
            keep_known=not call.from_state,
            beside=beside,
            outside=_beside_checkpoints(call.identity, memory),
            title=options.thread_title,
            metadata=options.thread_metadata or {},
            features=memory.options.features,
        )
    )


def _beside_checkpoints(identity: Identity, memory: MemoryBase) -> bool:
    """Return whether a saver of this store keeps the thread, but another graph's state of it: ours runs inside."""
    return identity.delegation is None and getattr(identity.checkpointer, "store", None) is memory.store
