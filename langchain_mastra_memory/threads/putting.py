"""Writing checkpoints and writes: plan against what is known, write once, remember; if others were faster, again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_serializable_checkpoint_metadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from langchain_mastra_memory.codec import dump_message, load_message
from langchain_mastra_memory.errors import StoreLockedError
from langchain_mastra_memory.ids import checked_id, optional_id
from langchain_mastra_memory.io import IO
from langchain_mastra_memory.store.operations.checkpoints import (
    Address,
    ArchivePlan,
    FindBodies,
    GetCheckpoint,
    Need,
    NewThread,
    Put,
    PutCheckpoint,
    PutWrites,
    Read,
    Stale,
    State,
)
from langchain_mastra_memory.store.sql.values import dump_json
from langchain_mastra_memory.threads.archiving import (
    CHANNEL,
    CountTokens,
    archived,
    messages_in,
)
from langchain_mastra_memory.threads.bodies import BodyWriter
from langchain_mastra_memory.threads.changes import base_of, equal_in_parent, ids_of, messages_of, news
from langchain_mastra_memory.threads.entries import (
    GONE,
    Entry,
    Skeleton,
    Write,
    settle_entry,
)
from langchain_mastra_memory.threads.knowledge import Knowledge, KnownCheckpoint, Stored, Threads
from langchain_mastra_memory.threads.planning import FEW, Planner, known_list, learn_numbers
from langchain_mastra_memory.threads.reading import Reader, known_checkpoint, known_lists, tuple_of
from langchain_mastra_memory.threads.runs import NO_REPORT, RUN_CHANNEL, report_of
from langchain_mastra_memory.threads.snapshots import holds
from langchain_mastra_memory.tokens import estimator, ready

if TYPE_CHECKING:
    from langchain_mastra_memory.agents.run_options import RunOptions
    from langchain_mastra_memory.base import MemoryBase

ATTEMPTS: Final = 200
"""Plans made for one write before giving up. Each time somebody else has changed the thread in between, so that a burst
of runs on one thread gets on: with n of them, one is overtaken at most n times for each of their changes."""
FORGOTTEN: Final = -1
"""The age of a parent that another run of this process forgot as soon as it was read."""
_KEYS: Final = frozenset(
    {"v", "ts", "id", "channel_values", "channel_versions", "versions_seen", "updated_channels", "pending_sends"}
)


def address_of(config: RunnableConfig) -> Address:
    """Return where a config points to.

    Raises:
        InvalidIdError: The thread or the resource has no valid id.
    """
    configurable = config["configurable"]
    ns: str = configurable.get("checkpoint_ns") or ""
    return Address(
        thread_id=checked_id(configurable["thread_id"]),
        ns=ns,
        resource_id=None if ns else optional_id(configurable.get("resource_id")),
    )


def learn(  # noqa: PLR0917 - one call, in this order
    known: Knowledge,
    serde: SerializerProtocol,
    writer: BodyWriter,
    read: Read,
    bodies: Mapping[str, Mapping[int, Stored]],
    thread_id: Any,
) -> CheckpointTuple:
    """Return a checkpoint that was read, and remember it."""
    stored = read.checkpoints[0]
    reader = Reader(serde, writer, bodies, read)
    found, lists = tuple_of(reader, stored, thread_id)
    with known.lock:
        known.is_at(read.state)
        if known.bodies is not bodies:  # another run of this process forgot them while this was read
            known.add_bodies(bodies)
        known.add_bodies(read.bodies)
        known.add_bodies(reader.molds)
        kept = known_lists(lists)
        for channel, whole in kept.items():
            known.add_list(stored.ns, channel, whole)
        messages = lists[CHANNEL].messages if not stored.ns and CHANNEL in lists else None
        known.add_checkpoint(stored.ns, stored.id, known_checkpoint(stored, found.metadata, messages))
    return found


@dataclass(slots=True)
class _Step:
    """One attempt to write a checkpoint."""

    state: State | None
    planner: Planner
    operation: PutCheckpoint
    ids: tuple[str | None, ...] | None
    systems: frozenset[str | None]


class Putting:
    """Writes for one saver.

    Args:
        serde: Writes values.
        writer: Writes messages.
        threads: What is known of each thread.
        memory: Says which features are on and what counts tokens; None for a bare store: none, and the process's own.
    """

    def __init__(
        self,
        serde: SerializerProtocol,
        writer: BodyWriter,
        threads: Threads,
        memory: MemoryBase | None,
    ) -> None:
        self.serde = serde
        self._writer = writer
        self._threads = threads
        self._memory = memory
        self._count: CountTokens | None = None
        self._features = memory.options.features if memory is not None else frozenset()

    # A checkpoint

    async def checkpoint(
        self,
        io: IO,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Write a checkpoint; see `ThreadSaver.put`."""
        configurable = config["configurable"]
        address = address_of(config)
        known = self._threads[address.thread_id]
        parent_id: str | None = configurable.get("checkpoint_id")
        merged = get_serializable_checkpoint_metadata(config, metadata)
        options = _run_options(configurable)
        count = self._count or await self._counter(io)
        own: Mapping[str, bytes] | None = None
        for _ in range(ATTEMPTS):
            parent, age = await self._parent(io, known, address, parent_id)
            written = await self._written(io, address, parent_id, parent, checkpoint, new_versions)
            equals = {} if self._writer.unique else await self._equals(io, known, address, checkpoint)
            step = self._plan(
                known,
                address,
                parent_id,
                parent,
                checkpoint,
                merged,
                new_versions,
                written,
                options,
                count,
                own,
                equals,
            )
            if known.age != age:  # another run of this process found the thread changed, while this plan was made
                continue
            result = await io.run(step.operation)
            if isinstance(result, Need):
                own = {m.id: dump_message(m) for m in messages_of(checkpoint) if m.id in result.ids}
            elif isinstance(result, Stale):
                with known.lock:
                    known.is_at(result.state)
            else:
                _remember(known, age, address.ns, checkpoint, merged, step, result)
                return {
                    "configurable": {
                        "thread_id": configurable["thread_id"],
                        "checkpoint_ns": address.ns,
                        "checkpoint_id": checkpoint["id"],
                    }
                }
        raise StoreLockedError(f"thread {address.thread_id[:80]!r} was changed by others {ATTEMPTS} times in a row")

    async def _counter(self, io: IO) -> CountTokens:
        counter = estimator() if self._memory is None else self._memory.token_counter
        self._count = (await ready(counter, io)).count_message
        return self._count

    async def _parent(
        self, io: IO, known: Knowledge, address: Address, parent_id: str | None
    ) -> tuple[KnownCheckpoint | None, int]:
        """Return what is known of the parent, reading it if nothing is; and the age of what is known."""
        if parent_id is None:
            return None, known.age
        key = (address.ns, parent_id)
        with known.lock:
            parent, age = known.checkpoints.get(key), known.age
        if parent is not None:
            return parent, age
        read = await io.run(GetCheckpoint(address=address, id=parent_id))
        if read.checkpoints:
            learn(known, self.serde, self._writer, read, {}, address.thread_id)
        else:
            with known.lock:
                known.is_at(read.state)
        with known.lock:
            parent, age = known.checkpoints.get(key), known.age
        return parent, age if parent is not None or not read.checkpoints else FORGOTTEN

    async def _written(  # noqa: PLR0917 - one call
        self,
        io: IO,
        address: Address,
        parent_id: str | None,
        parent: KnownCheckpoint | None,
        checkpoint: Checkpoint,
        new_versions: ChannelVersions,
    ) -> list[BaseMessage] | None:
        """Return the messages that the parent's tasks wrote, where they say what is new: with a DeltaChannel."""
        moved = not address.ns and parent_id is not None and CHANNEL in new_versions
        if not moved or (CHANNEL in checkpoint["channel_values"] and not (parent is not None and parent.is_delta)):
            return None
        read = await io.run(GetCheckpoint(address=address, id=parent_id))
        reader = Reader(self.serde, self._writer, {}, read)
        return [
            message
            for stored in read.checkpoints
            for _, _, value in reader.pending(stored, (CHANNEL,))
            for message in messages_in(value)
        ]

    async def _equals(
        self, io: IO, known: Knowledge, address: Address, checkpoint: Checkpoint
    ) -> dict[str, list[tuple[str, int, BaseMessage]]]:
        """Return stored messages that new ones may be equal to, where bytes do not tell: under encryption."""
        unknown: set[str] = set()
        for value in checkpoint["channel_values"].values():
            items = value if isinstance(value, list) else getattr(value, "value", None)
            for message in items if isinstance(items, list) else ():
                if isinstance(message, BaseMessage) and message.id and known.find(message) is None:
                    unknown.add(message.id)
        if len(unknown) <= FEW:
            return {}
        state, found = await io.run(FindBodies(thread_id=address.thread_id, ids=tuple(unknown)))
        if state != known.state:
            return {}
        equals: dict[str, list[tuple[str, int, BaseMessage]]] = {}
        for space, n, message_id, form, body in found:
            if form != GONE:
                equals.setdefault(message_id, []).append((space, n, self._writer.load(form, body)))
        return equals

    def _plan(  # noqa: PLR0917 - one call, in the order of `checkpoint`
        self,
        known: Knowledge,
        address: Address,
        parent_id: str | None,
        parent: KnownCheckpoint | None,
        checkpoint: Checkpoint,
        metadata: Mapping[str, Any],
        new_versions: ChannelVersions,
        written: list[BaseMessage] | None,
        options: RunOptions | None,
        count: CountTokens,
        own: Mapping[str, bytes] | None,
        equals: Mapping[str, Sequence[tuple[str, int, BaseMessage]]],
    ) -> _Step:
        state = known.state
        planner = Planner(
            known,
            address.ns,
            self.serde,
            self._writer,
            lambda messages: {**equals, **equal_in_parent(known, self._writer, address.ns, parent, messages)},
        )
        entries = _plan_entries(planner, parent, checkpoint, new_versions)
        root = not address.ns
        report = NO_REPORT
        archive = None
        ids: tuple[str | None, ...] | None = None
        systems: frozenset[str | None] = frozenset()
        if root:
            values = checkpoint["channel_values"]
            moved = RUN_CHANNEL in new_versions
            source = metadata.get("source", "loop")
            takes_in = source == "loop" and parent is not None and parent.source == "input"
            report = report_of(values.get(RUN_CHANNEL), moved=moved, source="input" if takes_in else source)
            ids, systems = ids_of(planner, parent, checkpoint, entries)
            if report.status == "off":
                if moved and report.inputs:
                    archive = ArchivePlan(removed=report.inputs, run="refused")
            elif not self._is_off(options):
                orphan = parent_id if parent is None else None
                new, removed = news(
                    planner, parent, checkpoint, new_versions, entries, written, orphan=orphan is not None
                )
                if orphan is not None:  # the thread may have been deleted, or pruned, while its run went on
                    deleted = known.deleted_before(orphan, metadata)
                    before = known.held_before(CHANNEL)
                    new = [
                        (message, surely and not (message.id in before and holds(before[message.id], message)))
                        for message, surely in new
                        if message.id not in deleted
                    ]
                archive = ArchivePlan(
                    messages=tuple([archived(m, count, surely=s, body=planner.encoded(m)) for m, s in new]),
                    removed=removed,
                    run=report.status,
                    accepted=report.ids,
                    replaced={
                        message_id: None if body is None else archived(load_message(body), count)
                        for message_id, body in report.replaced.items()
                    },
                    demote=report.status == "open" and moved,
                    own=own,
                )
        text, odd = _metadata(metadata, self.serde)
        run_id = metadata.get("run_id")
        rest = {key: value for key, value in checkpoint.items() if key not in _KEYS}
        if checkpoint.get("pending_sends"):
            rest["pending_sends"] = cast("dict[str, Any]", checkpoint)["pending_sends"]
        operation = PutCheckpoint(
            address=address,
            new_thread=_new_thread(options),
            known=state,
            id=checkpoint["id"],
            parent=parent_id,
            skeleton=Skeleton(
                v=checkpoint["v"],
                ts=checkpoint["ts"],
                versions=checkpoint["channel_versions"],
                seen=checkpoint["versions_seen"],
                updated=checkpoint.get("updated_channels"),
                rest=self.serde.dumps_typed(rest) if rest else None,
                entries=entries,
                metadata=odd,
            ),
            metadata=text,
            run=run_id if isinstance(run_id, str) and run_id else None,
            bodies=tuple(planner.bodies),
            values=tuple(planner.values),
            start=parent.place if parent is not None else None,
            base=base_of(parent, metadata, report) if root else None,
            archive=archive,
            features=self._features,
        )
        return _Step(state, planner, operation, ids, systems)

    def _is_off(self, options: RunOptions | None) -> bool:
        """Tell whether nothing of this run enters the archive."""
        memory = self._memory
        read_only = memory is not None and memory.options.read_only
        history = memory.options.message_history if memory is not None else None
        if options is not None and (options.off or options.read_only):
            return True
        if history is None:
            last = options.last_messages if options is not None and options.given("last_messages") else None
            return read_only or (last is not None and not last)
        return read_only or history.limits(options).off

    # Writes

    async def writes(
        self, io: IO, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
    ) -> None:
        """Write what a task wrote; see `ThreadSaver.put_writes`."""
        address = address_of(config)
        known = self._threads[address.thread_id]
        options = _run_options(config["configurable"])
        for _ in range(ATTEMPTS):
            age = known.age
            state = known.state
            planner = Planner(known, address.ns, self.serde, self._writer)
            planned = tuple(
                Write(WRITES_IDX_MAP.get(channel, index), channel, planner.write(channel, value))
                for index, (channel, value) in enumerate(writes)
            )
            if known.age != age:
                continue
            result = await io.run(
                PutWrites(
                    address=address,
                    new_thread=_new_thread(options),
                    known=state,
                    checkpoint=config["configurable"]["checkpoint_id"],
                    task_id=task_id,
                    task_path=task_path,
                    task_writes=planned,
                    bodies=tuple(planner.bodies),
                    features=self._features,
                )
            )
            with known.lock:
                if isinstance(result, Stale):
                    known.is_at(result.state)
                    continue
                if known.state in (state, result.state):
                    known.state = result.state
                    learn_numbers(planner, result.numbers, result.gone)
            return
        raise StoreLockedError(f"thread {address.thread_id[:80]!r} was changed by others {ATTEMPTS} times in a row")


def _plan_entries(
    planner: Planner, parent: KnownCheckpoint | None, checkpoint: Checkpoint, new_versions: ChannelVersions
) -> dict[str, Entry]:
    """Plan the value of each channel: what has not moved is where the parent has it."""
    values = checkpoint["channel_values"]
    entries: dict[str, Entry] = {}
    for name, version in checkpoint["channel_versions"].items():
        if name not in new_versions and parent is not None and parent.versions.get(name) == version:
            entry = parent.entries.get(name)
            if entry is not None:
                entries[name] = entry
        elif name in values:
            entries[name] = planner.channel(name, values[name])
    return entries


def _remember(  # noqa: PLR0917 - one call
    known: Knowledge,
    age: int,
    ns: str,
    checkpoint: Checkpoint,
    metadata: Mapping[str, Any],
    step: _Step,
    result: Put,
) -> None:
    """Remember a checkpoint that was written, unless the thread has moved on otherwise, or was forgotten meanwhile.

    It points to bodies of its parent: if they were forgotten, the next put would take them for new.
    """
    planner = step.planner
    skeleton = step.operation.skeleton
    entries = {name: settle_entry(entry, result.numbers, result.stored) for name, entry in skeleton.entries.items()}
    written = KnownCheckpoint(
        versions=dict(checkpoint["channel_versions"]),
        entries=entries,
        place=result.place,
        step=metadata.get("step"),
        source=metadata.get("source"),
        ids=step.ids,
        systems=step.systems,
        is_delta=CHANNEL in checkpoint["channel_versions"] and CHANNEL not in entries,
    )
    with known.lock:
        if known.state not in (step.state, result.state):
            known.add_lost(ns, checkpoint["id"], written)
            return
        if known.age != age:
            return
        known.state = result.state
        learn_numbers(planner, result.numbers, result.gone)
        for channel, planned in planner.lists.items():
            whole = known_list(planned, entries[channel].holes[0].parts)
            if whole is not None:
                known.add_list(ns, channel, whole)
        known.add_checkpoint(ns, checkpoint["id"], written)


def _run_options(configurable: Mapping[str, Any]) -> RunOptions | None:
    given = configurable.get("memory")
    if given is None:
        return None
    from langchain_mastra_memory.agents.run_options import run_options  # noqa: PLC0415 - pydantic models of a run

    return run_options(given)


def _new_thread(options: RunOptions | None) -> NewThread:
    if options is None:
        return _UNNAMED
    return NewThread(options.thread_title, options.thread_metadata or {})


_UNNAMED: Final = NewThread()


def _metadata(metadata: Mapping[str, Any], serde: SerializerProtocol) -> tuple[str, tuple[str, bytes] | None]:
    """Return the JSON text of a checkpoint's metadata, and the whole of it where JSON would lose something."""
    plain = {key: value for key, value in metadata.items() if _is_json(value)}
    odd = None if len(plain) == len(metadata) else serde.dumps_typed(dict(metadata))
    return dump_json(plain), odd


def _is_json(value: Any) -> bool:
    kind = type(value)
    if kind is str or value is None or kind is int or kind is bool:
        return True
    if kind is float:
        return bool(value == value and value not in (float("inf"), float("-inf")))  # noqa: PLR0124 - NaN
    if kind is dict:
        return all(type(key) is str and _is_json(item) for key, item in value.items())
    return kind in (list, tuple) and all(_is_json(item) for item in value)
