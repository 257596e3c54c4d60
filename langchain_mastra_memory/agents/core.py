"""One run, step by step, whatever calls it: the middleware, the graph nodes or the preview.

`Turns` keeps in the process what a turn has computed, so that a tool loop reads the archive once; it is a cache only:
another process, or one that has forgotten, computes it anew.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage

from langchain_mastra_memory.agents.call import (
    Call,
    Known,
    Marks,
    Ready,
    begins,
    first_shown,
    fitting_boundary,
    input_place,
    marks_of,
    not_shown,
    processed,
    stored_in_order,
    turn_place,
)
from langchain_mastra_memory.agents.identity import Identity
from langchain_mastra_memory.agents.matching import begins_a_history, is_found_whole, resent
from langchain_mastra_memory.base import MemoryBase
from langchain_mastra_memory.context.assembly import arrange, assemble, beside_history
from langchain_mastra_memory.context.items import StateItems
from langchain_mastra_memory.context.layers import Contribution, Item, LeftOut
from langchain_mastra_memory.context.provider import FeatureProvider, Position, RunFacts
from langchain_mastra_memory.forking import new_lock
from langchain_mastra_memory.history.options import MessageHistory
from langchain_mastra_memory.history.repair import left_out
from langchain_mastra_memory.history.units import last_answers, turn_start
from langchain_mastra_memory.history.window import Boundary, Limits, Shape, choose
from langchain_mastra_memory.io import IO
from langchain_mastra_memory.store.operations.runs import (
    History,
    LoadHistory,
    ReadRun,
    RunView,
    StoreBoundary,
    StoredBoundary,
)
from langchain_mastra_memory.threads.titles import TitleProvider
from langchain_mastra_memory.tokens import ready
from langchain_mastra_memory.types import StoredMessage

_TURNS: weakref.WeakKeyDictionary[MemoryBase, Turns] = weakref.WeakKeyDictionary()
REMEMBERED_TURNS: Final = 512
REMEMBERED_THREADS: Final = 64
PROBED: Final = 64
"""How many of the newest messages of a state decide where it stands in the archive."""
FURTHER: Final = 4
"""How many times as many messages are read where those that were read are not enough."""


@dataclass(slots=True)
class _Turn:
    """What a turn has computed so far."""

    now: datetime
    model: BaseChatModel | None = None
    view: RunView | None = None
    edited: Mapping[str, BaseMessage] = field(default_factory=dict)
    stop: int | None = None
    viewed: int = 0
    marks: Marks = ()
    history: History | None = None
    loaded_for: tuple[object, ...] = ()
    known: tuple[StoredMessage, ...] = ()
    begun: dict[str, Contribution] = field(default_factory=dict)


class Turns:
    """The turns of one memory, in this process."""

    def __init__(self, memory: MemoryBase) -> None:
        self.memory = memory
        self._turns: OrderedDict[tuple[str, str], _Turn] = OrderedDict()
        self._known: OrderedDict[str, Known] = OrderedDict()
        self._lock = new_lock()

    def _of(self, thread_id: str, turn: str) -> _Turn:
        with self._lock:
            known = self._turns.get((thread_id, turn))
            if known is None:
                known = self._turns[thread_id, turn] = _Turn(self.memory.clock())
            self._turns.move_to_end((thread_id, turn))
            while len(self._turns) > REMEMBERED_TURNS:
                self._turns.popitem(last=False)
            return known

    def forget(self, thread_id: str, turn: str) -> None:
        """Drop what a turn has computed: it is over."""
        with self._lock:
            self._turns.pop((thread_id, turn), None)

    @property
    def history(self) -> MessageHistory | None:
        """The options of the message history; None when it is off."""
        return self.memory.options.message_history

    def providers(self, identity: Identity) -> list[FeatureProvider]:
        """Return the features that take part in a run."""
        switches = identity.options
        off = {
            name
            for name, on in (
                ("working_memory", switches.working_memory),
                ("recall", switches.semantic_recall),
                ("semantic_recall", switches.semantic_recall),
                ("observation", switches.observational_memory),
                ("observational_memory", switches.observational_memory),
            )
            if on is False
        }
        found = [provider for provider in self.memory.providers if provider.name not in off]
        if switches.titles and self.memory.options.titles is None:
            found.append(TitleProvider(self.memory))
        return found

    def read_only(self, identity: Identity) -> bool:
        """Return whether nothing may be written in this run."""
        return bool(self.memory.options.read_only or identity.options.read_only)

    async def facts(self, io: IO, call: Call) -> RunFacts:
        """Return the run as features see it: the state's messages with what the archive knows of them."""
        turn = self._of(call.identity.thread_id, call.turn)
        turn.model = call.model or turn.model
        items: Sequence[Item]
        position: tuple[int, int] | None = None
        if call.from_state:
            view = await self._view(io, call, turn)
            position = view.position
            items = StateItems(call.messages, view.located, turn.edited)
        else:
            items = tuple(Item(message=message) for message in call.messages)
        return RunFacts(
            thread_id=call.identity.thread_id,
            resource_id=call.identity.resource_id,
            turn=call.turn,
            options=call.identity.options,
            read_only=self.read_only(call.identity),
            checkpointed=call.from_state,
            items=items,
            state=call.state,
            position=None if position is None else Position(branch=position[0], head=position[1]),
            now=turn.now,
            model=turn.model,
            writer=call.writer,
            streams=call.streams,
            agent=call.identity.agent,
            preview=call.preview,
        )

    async def prepare(self, io: IO, call: Call) -> Ready:
        """Return the prompt of a model call.

        Raises:
            ProcessorError: One of the user's processors raised; nothing was sent.
        """
        counter = await ready(self.memory.token_counter, io)
        turn = self._of(call.identity.thread_id, call.turn)
        facts = await self.facts(io, call)
        contribution = await self._contribution(io, call, facts, turn)
        options = self.history
        limits = (
            options.limits(call.identity.options, uncapped=contribution.uncapped)
            if options is not None
            else Limits(last_messages=0)
        )
        items, start, out, boundary = (
            await self._state(io, call, turn, limits=limits, contribution=contribution, facts=facts)
            if call.from_state
            else await self._archive(io, call, turn, limits, contribution)
        )
        context = (*call.identity.context, *call.identity.options.context_messages)
        fixed = 0.0
        if limits.max_tokens:
            frame = arrange(
                instructions=call.system,
                call_system=call.identity.options.system or "",
                contribution=contribution,
                history=(),
                context=context,
                turn=(),
            )
            text, messages = beside_history(frame, self.memory.options.layout)
            fixed = counter.count_system(text) + counter.count_tools(call.tools)
            fixed += sum(map(counter.weigh, messages))
        window = choose(
            items,
            turn=start,
            limits=limits,
            weigh=lambda item: item.tokens if item.tokens is not None else counter.weigh(item.message),
            shape=Shape(
                fixed_tokens=fixed,
                boundary=boundary,
                covered_upto=contribution.covered_upto,
                covered_ids=contribution.covered_ids,
                pinned=contribution.pinned,
            ),
        )
        may_cut = bool(limits.max_tokens or limits.last_messages) and not limits.off and not call.retain_full_input
        if contribution.shown is not None and may_cut and not call.preview:
            state = turn.view.located if call.from_state and turn.view is not None else None
            contribution.shown({item.id for item in window.items}, state)
        if window.boundary is not None and not facts.read_only and not call.preview:
            await self._keep_boundary(io, call, turn, window.boundary)
        layers = arrange(
            instructions=call.system,
            call_system=call.identity.options.system or "",
            contribution=contribution,
            history=window.items[: window.turn],
            context=context,
            turn=window.items[window.turn :],
        )
        shaped = processed(layers, options)
        prompt = assemble(shaped, self.memory.options.layout)
        removed = {item.id for item in shaped.conversation}
        gone = [left_out(item.message, "processor") for item in layers.conversation if item.id not in removed]
        return Ready(
            prompt=prompt,
            layers=shaped,
            left_out=(*out, *window.left_out, *gone, *prompt.left_out),
            hidden_tools=contribution.hidden_tools,
            facts=facts,
            tokens=window.tokens,
        )

    async def repeated(self, io: IO, call: Call) -> frozenset[str]:
        """Return the ids of what the caller sent again though it is known: by content, under new ids."""
        if call.from_state:
            if len(call.inputs) < 2:
                return frozenset()
            start, given = input_place(call), set(call.inputs)
            inputs = [message for message in call.messages[start:] if message.id in given]
            if not begins_a_history(inputs):
                return frozenset()
            again = resent(inputs, [known for known in call.messages[:start] if known.id not in call.refused])
            return frozenset(inputs[at].id or "" for at in again)
        if len(call.messages) < 2:
            return frozenset()
        turn = self._of(call.identity.thread_id, call.turn)
        options = self.history
        limits = options.limits(call.identity.options) if options else Limits(last_messages=0)
        history = turn.history or await self._load(io, call, turn, limits, Contribution())
        known = await self._known_of(io, call, turn, history, call.messages)
        again = resent(call.messages, [stored.message for stored in known])
        return frozenset(call.messages[at].id or "" for at, known in again.items() if known.id != call.messages[at].id)

    async def _contribution(self, io: IO, call: Call, facts: RunFacts, turn: _Turn) -> Contribution:
        on = self.providers(call.identity)
        switched_off = [provider for provider in self.memory.providers if provider not in on]
        hidden = frozenset(tool.name for provider in switched_off for tool in provider.tools)
        parts = [Contribution(hidden_tools=hidden)]
        for provider in on:
            begun = turn.begun.get(provider.name)
            if begun is None:
                begun = turn.begun[provider.name] = await provider.begin(io, facts)
            parts.append(await provider.each_call(io, facts, begun))
        return Contribution.merged(parts)

    def seen(self, thread_id: str, messages: Sequence[BaseMessage]) -> int:
        """Return how many messages at the beginning of a state an earlier run of this process has seen."""
        known = self._known.get(thread_id)
        return known.count if known is not None and begins(messages, known.count, known.marks) else 0

    async def _view(self, io: IO, call: Call, turn: _Turn) -> RunView:
        """Return what the archive knows of the state: only what is new since the last turn.

        It is read once in a turn, and once more where the turn goes on after an interrupt.
        """
        messages, before = call.messages, turn.view
        if before is not None and turn.stop == call.identity.stop and begins(messages, turn.viewed, turn.marks):
            return before
        thread = call.identity.thread_id
        known, prefix = self._known.get(thread), self.seen(thread, messages)
        view = await self._read(io, call, max(0, min(prefix, len(messages) - PROBED)))
        if known is not None and prefix and (view.epoch, view.edits) != (known.epoch, known.edits):
            view, prefix = await self._read(io, call, 0), 0
        if known is None or not prefix:
            known = Known(view.epoch, view.edits, 0, (), {}, set(), {})
        known.located.update(view.located)
        known.deleted |= view.deleted
        for message_id, row in view.located.items():
            if row.edited is not None:
                known.edited[message_id] = row.edited
        outside = tuple(stored for stored in view.outside if stored.id not in known.located)
        view = replace(view, located=known.located, outside=outside, deleted=frozenset(known.deleted))
        if view.exists:
            tail = range(max(0, len(messages) - PROBED), len(messages))
            known.count = next((at for at in tail if (messages[at].id or "") not in known.located), len(messages))
            known.marks = marks_of(messages, known.count)
            with self._lock:
                self._known[thread] = known
                self._known.move_to_end(thread)
                while len(self._known) > REMEMBERED_THREADS:
                    self._known.popitem(last=False)
        if before is not None and (view.epoch, view.edits) != (before.epoch, before.edits):
            turn.begun.clear()  # while it was interrupted; what was found then may be deleted now
        turn.view, turn.edited, turn.stop = view, known.edited, call.identity.stop
        turn.viewed, turn.marks = len(messages), marks_of(messages, len(messages))
        return view

    async def _read(self, io: IO, call: Call, start: int) -> RunView:
        """Read what the archive knows of the state's messages from a place on."""
        options = self.history
        limits = options.limits(call.identity.options) if options else Limits(last_messages=0)
        return await io.run(
            ReadRun(
                thread_id=call.identity.thread_id,
                resource_id=call.identity.resource_id,
                ids=tuple(message.id or "" for message in call.messages[start:]),
                last=limits.last_messages,
                with_outside=not limits.off,
            )
        )

    async def _state(
        self, io: IO, call: Call, turn: _Turn, *, limits: Limits, contribution: Contribution, facts: RunFacts
    ) -> tuple[list[Item], int, list[LeftOut], Boundary | None]:
        """Return the conversation when the state is the history: what entered outside a run joins at its seq."""
        view = await self._view(io, call, turn)
        boundary = fitting_boundary(view.boundaries, limits)
        start = turn_place(call)
        horizon = (
            0
            if call.preview
            else first_shown(
                call,
                start,
                limits=limits,
                contribution=contribution,
                facts=facts,
                boundary=boundary,
                gone=call.refused | view.deleted,
            )
        )
        repeated = await self.repeated(io, call)
        out: list[LeftOut] = []
        items: list[Item] = []
        outside = list(view.outside)
        turn_at: int | None = None
        for place in range(horizon, len(call.messages)):
            if place == start:
                items += [Item.of(stored) for stored in outside]
                outside, turn_at = [], len(items)
            item = facts.items[place]
            while outside and item.seq is not None and outside[0].seq < item.seq:
                items.append(Item.of(outside.pop(0)))
            reason = not_shown(item, call, repeated, view.deleted)
            if reason is None:
                items.append(item)
            else:
                out.append(left_out(item.message, reason))
        items += [Item.of(stored) for stored in outside]
        return items, len(items) if turn_at is None else turn_at, out, boundary

    async def _archive(
        self, io: IO, call: Call, turn: _Turn, limits: Limits, contribution: Contribution
    ) -> tuple[list[Item], int, list[LeftOut], Boundary | None]:
        """Return the conversation when the archive is the history: its window, merged with the run by id."""
        history = await self._load(io, call, turn, limits, contribution)
        given = [message for message in call.messages if message.id not in history.deleted]
        out = [left_out(message, "deleted") for message in call.messages if message.id in history.deleted]
        if call.retain_full_input:
            items = [Item(message=message) for message in given]
            return items, turn_start(given), out, None
        merged = await self._known_of(io, call, turn, history, given)
        stored = {known.id for known in merged}
        again = resent(given, [known.message for known in merged])
        window = {known.id for known in history.messages}
        out += [left_out(given[at], "duplicate") for at in sorted(again) if given[at].id not in stored]
        new = [message for at, message in enumerate(given) if at not in again]
        old = _answered_before(given, again, merged)
        out += [left_out(known.message, "duplicate") for known in merged if known.id in old and known.id in window]
        items = [Item.of(known) for known in merged if known.id in window - old]
        shown = len(items)
        items += [Item(message=message) for message in new]
        return (
            items,
            min(shown, turn_start([item.message for item in items])),
            out,
            fitting_boundary(history.boundaries, limits),
        )

    async def _load(self, io: IO, call: Call, turn: _Turn, limits: Limits, contribution: Contribution) -> History:
        ids = tuple(message.id for message in call.messages if message.id)
        key = (limits, contribution.covered_upto, call.retain_full_input, call.checkpoint_id, ids[:1])
        if turn.history is not None and turn.loaded_for == key:
            return turn.history
        last = limits.last_messages
        sent = len(call.messages)
        if last is not None and not limits.off and sent > 1:
            last = max(last, sent)  # what the client sends again is looked for in at least as much
        off = limits.off or call.retain_full_input
        wanted = LoadHistory(
            thread_id=call.identity.thread_id,
            resource_id=call.identity.resource_id,
            last=0 if off and sent < 2 else (sent if off else last),
            tokens=limits.max_tokens,
            after=contribution.covered_upto,
            ids=ids,
            checkpoint_id=call.checkpoint_id,
            boundary_for=(limits.max_tokens, limits.remove_tokens) if limits.max_tokens else None,
        )
        history = await io.run(wanted)
        if not off and not _asks(call.messages):  # a result: its question stays, however long ago it was asked
            while (
                wanted.last is not None
                and len(history.messages) >= wanted.last
                and not _asks([known.message for known in history.messages])
            ):
                wanted = replace(wanted, last=wanted.last * FURTHER, tokens=None)
                history = await io.run(wanted)
        turn.history, turn.known, turn.loaded_for = history, (), key
        return history

    async def _known_of(
        self, io: IO, call: Call, turn: _Turn, history: History, given: Sequence[BaseMessage]
    ) -> list[StoredMessage]:
        """Return the stored messages among which those are that the caller sends again, in order.

        They are read as far back as a history without ids goes that the caller sends, whatever limits the window has.
        """
        merged = {known.id: known for known in (*turn.known, *stored_in_order(history))}
        size = max(len(history.messages), len(given), PROBED)
        while not turn.known and history.exists:
            known = sorted(merged.values(), key=lambda stored: stored.seq)
            if is_found_whole(given, [stored.message for stored in known]):
                return known
            further = await io.run(
                LoadHistory(
                    thread_id=call.identity.thread_id,
                    resource_id=call.identity.resource_id,
                    last=size,
                    checkpoint_id=call.checkpoint_id,
                )
            )
            merged |= {stored.id: stored for stored in further.messages}
            if len(further.messages) < size:
                turn.known = tuple(merged.values())
            size *= FURTHER
        return sorted(merged.values(), key=lambda stored: stored.seq)

    async def _keep_boundary(self, io: IO, call: Call, turn: _Turn, made: Boundary) -> None:
        if made.seq is None:
            return
        await io.run(
            StoreBoundary(
                thread_id=call.identity.thread_id,
                resource_id=call.identity.resource_id,
                message_id=made.message_id,
                seq=made.seq,
                max_tokens=made.max_tokens,
                remove_tokens=made.remove_tokens,
            )
        )
        kept = StoredBoundary(
            message_id=made.message_id,
            seq=made.seq,
            branch=0,
            max_tokens=made.max_tokens,
            remove_tokens=made.remove_tokens,
        )
        if turn.view is not None:
            turn.view = replace(turn.view, boundaries=(kept, *turn.view.boundaries))
        if turn.history is not None:
            turn.history = replace(turn.history, boundaries=(kept, *turn.history.boundaries))


def _answered_before(
    given: Sequence[BaseMessage], again: Mapping[int, BaseMessage], known: Sequence[StoredMessage]
) -> set[str]:
    """Return the ids of the answers that a conversation ends with, if its last question is sent again by its id."""
    place = turn_start(given)
    answers = {answer.id or "" for answer in last_answers([stored.message for stored in known])}
    question = again.get(place)
    asked = place < len(given) and question is not None and question.id == given[place].id
    return answers if asked and not answers & {message.id for message in given} else set()


def _asks(messages: Sequence[BaseMessage]) -> bool:
    """Return whether there is a human message among some."""
    return any(message.type == "human" for message in messages)


def turns_of(memory: MemoryBase) -> Turns:
    """Return the turns of a memory in this process: its middlewares and nodes share them."""
    found = _TURNS.get(memory)
    return _TURNS.setdefault(memory, Turns(memory)) if found is None else found
