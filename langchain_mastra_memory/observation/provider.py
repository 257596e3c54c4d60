"""Observational memory's part in a run: what is covered, what is shown instead, and the work behind it."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Container, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from langchain_core.messages import HumanMessage

from langchain_mastra_memory.context.layers import Contribution, Layer, Signal
from langchain_mastra_memory.context.provider import FeatureProvider, Outcome, RunFacts
from langchain_mastra_memory.context.tags import message_line, wrapped
from langchain_mastra_memory.errors import ConfigurationError, ThreadNotFoundError
from langchain_mastra_memory.observation import markers
from langchain_mastra_memory.observation.cycle import names_of
from langchain_mastra_memory.observation.engine import UNMADE, Engine
from langchain_mastra_memory.observation.events import emit
from langchain_mastra_memory.observation.log import LogState, Span
from langchain_mastra_memory.observation.render import Edges, context_layers, continuation_layer, latest_hints, obscured
from langchain_mastra_memory.observation.seen import own_items
from langchain_mastra_memory.observation.turn import Turn, after_run, before_call, cause_of
from langchain_mastra_memory.store.operations.log import ListGroups, LogView
from langchain_mastra_memory.store.operations.messages import NewMessage, SaveMessages
from langchain_mastra_memory.tokens import ready

if TYPE_CHECKING:
    from langchain_core.tools import BaseTool

    from langchain_mastra_memory.base import MemoryBase
    from langchain_mastra_memory.io import IO

logger = logging.getLogger(__name__)

REMEMBERED: Final = 512
RENDERED: Final = 64
"""Threads whose rendered observations are kept: they are as long as the log, which is up to a few 100 KB."""

Ids = dict[tuple[int, int], str | None]
"""Message ids by `(thread key, seq)` of where a range starts or ends."""


def engine_of(memory: MemoryBase) -> Engine:
    """Return the engine of a memory: one for its life, since it holds claims, back-off and running turns.

    Raises:
        ConfigurationError: Observational memory is off.
    """
    options = memory.options.observational_memory
    if options is None:
        raise ConfigurationError("observational memory is off: turn it on with Memory(observational_memory=True)")
    engine = memory.__dict__.get("_observation_engine")
    if not isinstance(engine, Engine):
        engine = memory.__dict__.setdefault("_observation_engine", Engine(memory, options))
    made: Engine = engine
    return made


class ObservationProvider(FeatureProvider):
    """Takes observed messages out of the prompt and puts the observations in."""

    name = "observation"

    def __init__(self, memory: MemoryBase) -> None:
        self.memory = memory
        self.engine = engine_of(memory)
        self.options = self.engine.options
        self._has_warned = False
        self._pending: OrderedDict[tuple[str, str], HumanMessage] = OrderedDict()
        self._ranges: OrderedDict[str, tuple[object, Ids, Ids]] = OrderedDict()
        self._rendered: OrderedDict[str, tuple[object, tuple[Layer, ...]]] = OrderedDict()
        tools: list[BaseTool] = []
        if self.options.recall_tool is not None:
            from langchain_mastra_memory.observation.recall_tool import recall_tool  # noqa: PLC0415 - when on

            tools.append(recall_tool(memory, self.options))
        self.tools = tuple(tools)

    async def begin(self, io: IO, run: RunFacts) -> Contribution:
        """Make the marker of a gap: it stays the same through the turn."""
        if not self.options.temporal_markers:
            return Contribution(uncapped=True)
        marker = await self._marker(io, run)
        if marker is None or run.question is None or run.question.id is None:
            return Contribution(uncapped=True)
        if run.checkpointed and not run.read_only and not run.preview:
            # Before the turn's next checkpoint: that one moves the position of the thread past it.
            self._pending.pop((run.thread_id, run.turn), None)
            await self._save_marker(io, run, marker)
        return Contribution(uncapped=True, signals=(Signal(message=_shown_marker(marker), before=run.question.id),))

    async def each_call(self, io: IO, run: RunFacts, begun: Contribution) -> Contribution:
        """Observe what is due and return what is shown in place of what was observed."""
        turn = await before_call(self.engine, io, run)
        return replace(await self.shown(io, run, turn), signals=(*self._old_markers(turn, begun), *begun.signals))

    async def finish(self, io: IO, run: RunFacts, outcome: Outcome) -> None:
        """Save the marker, keep what was observed of the running turn, buffer when the agent goes idle."""
        marker = self._pending.pop((run.thread_id, run.turn), None)
        if outcome.status != "complete" or run.read_only or run.preview:
            return
        if marker is not None:
            await self._save_marker(io, run, marker)
        await after_run(self.engine, io, run)

    async def shown(self, io: IO, run: RunFacts, turn: Turn) -> Contribution:
        """Return the layers of a turn and what they stand for."""
        view, state = turn.view, turn.state
        layers = await self._layers(io, view, state)
        cursor = view.state.cursor(view.current)
        covers = cursor >= 0 or bool(turn.covered)
        question = run.question.id if run.question is not None else None
        has_notes = any(layer.text for layer in layers)
        return Contribution(
            observations=_with_guides(layers),
            continuation=continuation_layer() if covers and has_notes else None,
            covered_upto=cursor if cursor >= 0 else None,
            covered_ids=turn.covered,
            pinned=frozenset({question}) if question else frozenset(),
            uncapped=True,
            shown=partial(self._say_left_out, run, turn),
        )

    def _say_left_out(
        self, run: RunFacts, turn: Turn, shown: Container[str], conversation: Container[str] | None
    ) -> None:
        """Say that the history's count or budget has left messages out that no observation stands for.

        That happens while the observer is down, and where the limits are tighter than `message_tokens`.
        """
        left = [
            message
            for message in turn.view.threads[turn.view.current].raw
            if message.kind is None
            and message.id not in shown
            and message.id not in turn.covered
            and (conversation is None or message.id in conversation)
        ]
        if not left:
            return
        failing = self.engine.is_failing(cause_of(self.engine, run).address, "observation")
        emit(
            run.writer,
            "left_out",
            thread_id=run.thread_id,
            messages=len(left),
            tokens=sum(message.tokens for message in left),
            first_message_id=left[0].id,
            last_message_id=left[-1].id,
            observer_failing=failing,
        )
        if not self._has_warned and not failing:  # that the observer fails is in the log already
            self._has_warned = True
            logger.warning(
                "the limits of the message history leave out messages that are not observed yet (%d in thread %r): "
                "raise max_tokens or last_messages, or lower message_tokens of the observations",
                len(left),
                run.thread_id,
            )

    async def _layers(self, io: IO, view: LogView, state: LogState) -> tuple[Layer, ...]:
        """Return the layers of a log; what was rendered of the same version of it is not rendered again."""
        options = self.options
        names = names_of(self.engine, view)
        others = self._others(view) if names is not None else ""
        place = view.threads[view.current].id if view.current in view.threads else ""
        # Whatever changes a row moves the version of its log; rows of the running turn are named in the head alone.
        key = (state.head.epoch, state.head.version, state.head.log, names, others)
        known = self._rendered.get(place)
        if known is not None and known[0] == key:
            return known[1]
        hints = latest_hints(state, options.observation.hints, options.reflection.hints)
        layers = context_layers(
            state,
            hints,
            retrieval=options.recall_tool,
            names=names,
            current=view.current,
            edges=await self._edges(io, view, state) if options.recall_tool is not None else None,
            others=others,
        )
        self._rendered[place] = key, layers
        while len(self._rendered) > RENDERED:
            self._rendered.popitem(last=False)
        return layers

    async def _edges(self, io: IO, view: LogView, state: LogState) -> Edges | None:
        if view.current == UNMADE or not any(row.text for row in state.log):
            return None
        # A deleted message moves the version of the log, so the ids of its ranges hold as long as the version does.
        key = (state.head.epoch, state.head.version, view.state.head.log)
        place = view.threads[view.current].id
        known = self._ranges.get(place)
        if known is None or known[0] != key:
            groups = await io.run(
                ListGroups(
                    scope=self.options.scope,
                    thread_id=place if self.options.scope == "thread" else None,
                    resource_id=view.resource_id,
                )
            )
            spans = [(group.row.covers[0], group.first_id, group.last_id) for group in groups]
            known = self._ranges[place] = (
                key,
                {(span.thread, span.after): first for span, first, _ in spans},
                {(span.thread, span.upto): last for span, _, last in spans},
            )
            while len(self._ranges) > REMEMBERED:
                self._ranges.popitem(last=False)
        _, by_start, by_end = known

        def edges(span: Span) -> tuple[str, str] | None:
            first, last = by_start.get((span.thread, span.after)), by_end.get((span.thread, span.upto))
            return (first, last) if first is not None and last is not None else None

        return edges

    def _others(self, view: LogView) -> str:
        """Return the raw messages of the other threads, each in a block of its own with an obscured id."""
        blocks = []
        for key, thread in view.threads.items():
            lines = [message_line(m.message) for m in thread.raw if m.kind is None]
            if key != view.current and lines:
                blocks.append(wrapped("thread", "\n".join(lines), {"id": obscured(thread.id)}))
        if not blocks:
            return ""
        return wrapped("other-threads", "\n".join(blocks))

    async def _marker(self, io: IO, run: RunFacts) -> HumanMessage | None:
        question = run.question
        if question is None or not question.id:
            return None
        cause = cause_of(self.engine, run)
        try:
            view = await self.engine.view(io, cause.address)
        except ThreadNotFoundError:
            return None
        own = {item.id for item in own_items(run.items)} | {question.id}
        thread = view.threads[view.current]
        earlier = [m.created_at for m in thread.raw if m.kind is None and m.id not in own]
        last = earlier[-1] if earlier else next((r.last_at for r in reversed(view.state.log) if r.last_at), None)
        if last is None or any(
            markers.announced(m.message) == question.id for m in thread.raw if m.kind == markers.KIND
        ):
            return None
        from langchain_mastra_memory.observation.observer import moment  # noqa: PLC0415 - beside its use

        at = moment(last)
        made = markers.marker(at, run.now, question.id) if at is not None else None
        if made is not None and not run.preview:
            self._pending[run.thread_id, run.turn] = made
            while len(self._pending) > REMEMBERED:
                self._pending.popitem(last=False)
            emit(
                run.writer,
                "temporal_gap",
                thread_id=run.thread_id,
                gap_text=markers.gap_text((run.now - at).total_seconds()) if at is not None else None,
                precedes_message_id=question.id,
            )
        return made

    def _old_markers(self, turn: Turn, begun: Contribution) -> Sequence[Signal]:
        if not self.options.temporal_markers:
            return ()
        new = {signal.before for signal in begun.signals}
        return [
            Signal(message=_shown_marker(raw.message), before=before)
            for raw in turn.view.threads[turn.view.current].raw
            if raw.kind == markers.KIND and (before := markers.announced(raw.message)) and before not in new
        ]

    async def _save_marker(self, io: IO, run: RunFacts, marker: HumanMessage) -> None:
        counter = await ready(self.memory.token_counter, io)
        new = NewMessage(
            message=marker,
            tokens=counter.count_message(marker),
            kind=markers.KIND,
            metadata={"signal": {"type": markers.KIND}, "before": markers.announced(marker)},
        )
        await io.run(
            SaveMessages(
                thread_id=run.thread_id,
                resource_id=run.resource_id,
                messages=(new,),
                features=self.memory.options.features,
            )
        )


def _shown_marker(message: object) -> HumanMessage:
    """Return a marker without what only the archive needs."""
    if not isinstance(message, HumanMessage):
        raise TypeError(f"a marker is a human message, not {type(message).__name__}")
    return HumanMessage(message.text, id=message.id)


def _with_guides(layers: Sequence[Layer]) -> tuple[Layer, ...]:
    return tuple(layer for layer in layers if layer.text or layer.guide)
