"""What happens before a model call: the activation rule put to work on a run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from langchain_core.messages import BaseMessage

from langchain_mastra_memory.context.layers import Item
from langchain_mastra_memory.context.provider import RunFacts
from langchain_mastra_memory.errors import ThreadNotFoundError
from langchain_mastra_memory.observation import cycles, transitions
from langchain_mastra_memory.observation.engine import Cause, Engine, LocalRow
from langchain_mastra_memory.observation.events import emit
from langchain_mastra_memory.observation.idle import changed_provider, idle_limit
from langchain_mastra_memory.observation.log import LogRow, LogState, MessageFact, Span, between, digest, log_tokens
from langchain_mastra_memory.observation.planning import (
    Limits,
    Tail,
    choose,
    plan_messages,
    plan_reflection,
    should_buffer,
    tail,
    tokens,
)
from langchain_mastra_memory.observation.transitions import Observed, Refused
from langchain_mastra_memory.store.operations.log import LogView, answer_of, calls_of
from langchain_mastra_memory.tokens import ready

if TYPE_CHECKING:
    from langchain_mastra_memory.io import IO

ARCHIVE_TRIES: Final = 100
ARCHIVE_PAUSE: Final = 0.02
"""Seconds between looks at whether a turn is archived; 2 seconds in all."""


@dataclass(frozen=True, kw_only=True)
class Turn:
    """A model call as observational memory sees it.

    Attributes:
        view: The log and the raw messages; empty for a thread that is not there yet.
        local: Rows about the running turn that is not archived yet.
        covered: Ids of the run's messages that are covered.
    """

    view: LogView
    local: tuple[LocalRow, ...] = ()
    covered: frozenset[str] = frozenset()

    @property
    def state(self) -> LogState:
        """The log, with the local rows at its end."""
        if not self.local:
            return self.view.state
        rows = [local.row for local in self.local]
        state = self.view.state.with_rows(rows)
        return replace(state, head=replace(state.head, log=(*state.head.log, *(row.id for row in rows))))


@dataclass(frozen=True, kw_only=True)
class _Seen:
    """The messages of a run, put together from the archive and the state."""

    view: LogView
    local: tuple[LocalRow, ...]
    facts: tuple[MessageFact, ...]
    unsaved: Mapping[str, BaseMessage]
    covered: frozenset[str]

    @cached_property
    def tail(self) -> Tail:
        """The run's messages, split where a range may end."""
        key, state = self.view.current, self.view.state
        return tail(self.facts, state.cursor(key), state.buffered_to(key))

    def shows(self, view: LogView, local: Sequence[LocalRow]) -> bool:
        """Tell whether it was made of this view and these rows."""
        return view is self.view and list(local) == list(self.local)


def own_items(items: Sequence[Item]) -> list[Item]:
    """Return the items at the end of the state that were not archived when the turn began."""
    found: list[Item] = []
    for index in range(len(items) - 1, -1, -1):
        if items[index].seq is not None:
            break
        found.append(items[index])
    return found[::-1]


def fact_of(engine: Engine, item: Item) -> MessageFact:
    """Return what planning needs to know of a message that is not archived."""
    message = item.message
    size = item.tokens if item.tokens is not None else engine.memory.token_counter.count_message(message)
    return MessageFact(
        id=item.id,
        role=message.type,
        calls=calls_of(message),
        answers=answer_of(message),
        tokens=round(size),
    )


def cause_of(engine: Engine, run: RunFacts, *, trigger: Any = "turn-sync") -> Cause:
    """Return who observes in a run."""
    own = tuple(item.id for item in own_items(run.items) if item.id)
    position = None if run.position is None else (run.position.branch, run.position.head)
    return Cause(
        address=engine.address(run.thread_id, run.resource_id, position=position, ids=own),
        trigger=trigger,
        model=run.model,
        writer=run.writer,
        read_only=run.read_only or run.preview,
    )


def _see(engine: Engine, view: LogView, run: RunFacts, local: Sequence[LocalRow]) -> _Seen:
    """Put the raw messages of the archive and those of the running turn together.

    The archive hides a turn until it is complete, so the turn's own messages come from the state.
    """
    thread, cursor = view.threads[view.current], view.state.cursor(view.current)
    raw = [message.fact for message in thread.raw]
    held = {fact.id for row in local for fact in row.facts}
    known = {fact.id for fact in raw}
    own: list[Item] = []
    for index in range(len(run.items) - 1, -1, -1):
        item = run.items[index]
        seq = item.seq if item.seq is not None else view.located.get(item.id)
        if item.id in known or (seq is not None and seq <= cursor):
            break
        if item.id:
            own.append(item)
        if item.message.type == "human":  # what stands before the question and is not archived never will be
            break
    own.reverse()
    facts = [fact for fact in (*raw, *(fact_of(engine, item) for item in own)) if fact.id not in held]
    # Archived since the turn began, and in the log already: a raw graph archives its turn step by step.
    late = {item.id for item in own_items(run.items) if view.located.get(item.id, cursor + 1) <= cursor}
    return _Seen(
        view=view,
        local=tuple(local),
        facts=tuple(facts),
        unsaved={item.id: item.message for item in own},
        covered=frozenset(held | late),
    )


def _other_tails(engine: Engine, view: LogView) -> dict[int, Tail]:
    if engine.options.scope == "thread":
        return {}
    return {
        key: tail([m.fact for m in thread.raw], view.state.cursor(key), view.state.buffered_to(key))
        for key, thread in view.threads.items()
        if key != view.current
    }


async def before_call(engine: Engine, io: IO, run: RunFacts) -> Turn:
    """Activate, observe and reflect as the rule says, start background work, and return what is to be shown."""
    await ready(engine.memory.token_counter, io)
    cause = cause_of(engine, run)
    view = await engine.view_or_new(io, cause.address)
    question = (run.question.id if run.question is not None else None) or ""
    engine.note_question(run.thread_id, question)
    asked, local = engine.local_rows(run.thread_id)
    if cause.read_only:
        local = local if asked == question else []
        seen = _see(engine, view, run, local)
        return Turn(view=view, local=tuple(local), covered=seen.covered)
    if local and view.state.movable:
        view = await _archive_local(engine, io, cause, view, run=run, local=local)
    if asked != question:  # an earlier turn's: archived now, or never
        engine.drop_local(run.thread_id)
    _, local = engine.local_rows(run.thread_id)
    view, seen = await _messages(engine, io, cause, view, run=run, local=local)
    _, local = engine.local_rows(run.thread_id)
    view = await _reflection(engine, io, cause, view, run)
    if not seen.shows(view, local):
        seen = _see(engine, view, run, local)
    here = seen.tail
    if run.streams:
        _status(engine, cause, view, here, _other_tails(engine, view))
    if view.state.movable and should_buffer(engine.options.limits(), here):
        _start(engine, io, replace(cause, trigger="async-buffer"), "observation", upto=here.closed[-1].seq)
    return Turn(view=view, local=tuple(local), covered=seen.covered)


async def _messages(
    engine: Engine, io: IO, cause: Cause, view: LogView, *, run: RunFacts, local: Sequence[LocalRow]
) -> tuple[LogView, _Seen]:
    """Rules 1 and 2. When what was buffered does not bring the messages below the threshold, the rest is observed.

    Returns:
        The view by then, and the messages as they were looked at last.
    """
    limits = engine.options.limits()
    idle, provider = _early(engine, run, view)
    seen = _see(engine, view, run, local)
    for attempt in range(2):
        if not seen.shows(view, local):
            seen = _see(engine, view, run, local)
        here, others = seen.tail, _other_tails(engine, view)
        pending = here.pending + sum(other.pending for other in others.values())
        closed = (*here.closed, *(fact for other in others.values() for fact in other.closed))
        whole = Tail(pending=pending, closed=closed, loop=here.loop)
        size = log_tokens(view.state) + sum(row.row.tokens for row in local)
        buffered = [row.message_tokens for row in view.state.buffered] if attempt == 0 else []
        step = plan_messages(limits, whole, buffered, size, idle=idle, provider_change=provider)
        if step.activate and view.state.movable:
            view = await activate(engine, io, cause, view, count=step.activate, trigger=step.trigger)
            if step.trigger != "threshold":
                break
            continue
        if step.observe is None or not view.state.movable or not engine.may_try(cause.address, "observation"):
            break
        ranges = {key: other.closed for key, other in others.items() if other.closed and step.observe == "closed"}
        own = here.loop if step.observe == "loop" else here.closed
        if own:
            ranges[view.current] = own
        ranges = {key: ranges[key] for key in sorted(ranges, key=lambda k: k != view.current)}
        outcome, view = await cycles.observe(
            engine, io, cause, view, ranges, in_loop=step.observe == "loop", unsaved=seen.unsaved
        )
        _report(engine, cause, "observe", outcome.error)
        break
    return view, seen


def _report(engine: Engine, cause: Cause, phase: str, error: Exception | None) -> None:
    background = engine.memory.background
    if error is None:
        background.succeeded(phase)
    else:
        background.report(phase, error, **cause.ids)


async def activate(engine: Engine, io: IO, cause: Cause, view: LogView, *, count: int, trigger: str) -> LogView:
    """Move buffered rows into the log."""
    wanted = [row.id for row in view.state.buffered[:count]]

    def judge(seen: LogView) -> Any:
        ready_now = list(seen.state.head.buffered)
        still = next((n for n, i in enumerate(wanted) if n >= len(ready_now) or ready_now[n] != i), len(wanted))
        return transitions.activate(seen.state, still)

    before = view.state.head.buffered
    verdict, _ = await engine.commit(io, cause.address, judge, view=view)
    view = await engine.view(io, cause.address)
    if verdict is not None and not isinstance(verdict, Refused):
        rows = [view.state.rows[i] for i in before if i in verdict.log and i in view.state.rows]
        emit(
            cause.writer,
            "activation",
            operation_type="observation",
            chunks_activated=len(rows),
            tokens_activated=sum(row.message_tokens for row in rows),
            observation_tokens=sum(row.tokens for row in rows),
            messages_activated=sum(row.messages for row in rows),
            observations="\n\n".join(row.text for row in rows),
            triggered_by=trigger,
            activated_at=engine.memory.clock().isoformat(),
            generation_count=cycles.generation_of(view.state),
            **cause.ids,
        )
    return view


async def _reflection(engine: Engine, io: IO, cause: Cause, view: LogView, run: RunFacts) -> LogView:
    """Rule 3."""
    limits = engine.options.limits()
    state = view.state
    waits = state.pending is not None and transitions.is_prefix(state, state.pending)
    step = plan_reflection(
        limits,
        log_tokens(state),
        rows=len(state.log),
        pending=waits,
        refused_at=view.refused,
        early=waits and _reflects_early(engine, run, view),
    )
    if step is None or not state.movable:
        return view
    if step == "activate":
        return await activate_reflection(engine, io, cause, view)
    if not engine.may_try(cause.address, "reflection"):
        return view
    if step == "block":
        outcome, view = await cycles.reflect(engine, io, cause, view)
        _report(engine, cause, "reflect", outcome.error)
        return view
    _start(engine, io, replace(cause, trigger="async-buffer"), "reflection")
    return view


async def activate_reflection(engine: Engine, io: IO, cause: Cause, view: LogView) -> LogView:
    """Put the waiting reflection in place of what it condenses."""
    row = view.state.pending
    verdict, _ = await engine.commit(
        io, cause.address, lambda seen: transitions.activate_reflection(seen.state), view=view
    )
    view = await engine.view(io, cause.address)
    if row is not None and verdict is not None and not isinstance(verdict, Refused) and row.id in verdict.log:
        emit(
            cause.writer,
            "activation",
            operation_type="reflection",
            chunks_activated=1,
            tokens_activated=sum(view.state.rows[i].tokens for i in row.inputs if i in view.state.rows),
            observation_tokens=row.tokens,
            observations=row.text,
            activated_at=engine.memory.clock().isoformat(),
            generation_count=cycles.generation_of(view.state),
            **cause.ids,
        )
    return view


# background work


def _start(engine: Engine, io: IO, cause: Cause, phase: str, *, until: str = "", upto: int | None = None) -> None:
    """Start a phase in the background, once at a time.

    Args:
        engine: The engine.
        io: What drives the caller.
        cause: Why.
        phase: `observation` or `reflection`.
        until: A message that must be archived first.
        upto: The last seq to observe; None: all that is closed by then.
    """
    if not engine.may_try(cause.address, phase) or not engine.begin(cause.address, phase):
        return

    async def body(inner: IO) -> None:
        try:
            await _archived(engine, inner, cause, until)
            await (
                _buffer(engine, inner, cause, upto)
                if phase == "observation"
                else _buffer_reflection(engine, inner, cause)
            )
        finally:
            engine.end(cause.address, phase)

    # The conversation goes on meanwhile: the background looks at where the thread stands then.
    cause = replace(cause, address=replace(cause.address, position=None, ids=()))
    name = "observe" if phase == "observation" else "reflect"
    engine.memory.background.start(name, body, is_async=io.is_async, **cause.ids)


async def _archived(engine: Engine, io: IO, cause: Cause, message_id: str) -> None:
    """Wait until a turn that has just ended is archived: with a checkpointer that is a moment after its last hook."""
    for _ in range(ARCHIVE_TRIES if message_id else 0):
        view = await engine.view(io, cause.address)
        if any(raw.id == message_id for raw in view.threads[view.current].raw):
            return
        await io.call(time.sleep, _sleep, ARCHIVE_PAUSE)


async def _sleep(seconds: float) -> None:
    await asyncio.sleep(seconds)


async def _buffer(engine: Engine, io: IO, cause: Cause, upto: int | None = None) -> None:
    await ready(engine.memory.token_counter, io)
    view = await engine.opened(io, cause.address, await engine.view(io, cause.address))
    key = view.current
    if not view.state.movable:
        return
    found = tail([m.fact for m in view.threads[key].raw], view.state.cursor(key), view.state.buffered_to(key))
    closed = [fact for fact in found.closed if upto is None or (fact.seq is not None and fact.seq <= upto)]
    if not closed:
        return
    if not await engine.claim(io, cause.address, view, "observation", engine.options.observation.timeout):
        return
    try:
        outcome, _ = await cycles.observe(engine, io, cause, view, {key: closed}, target="buffered")
    finally:
        await engine.release(io, cause.address, view, "observation")
    if outcome.error is not None:
        raise outcome.error


async def _buffer_reflection(engine: Engine, io: IO, cause: Cause) -> None:
    await ready(engine.memory.token_counter, io)
    view = await engine.view(io, cause.address)
    if not view.state.movable or not view.state.log or view.state.pending is not None:
        return
    if not await engine.claim(io, cause.address, view, "reflection", engine.options.reflection.timeout):
        return
    try:
        outcome, _ = await cycles.reflect(engine, io, cause, view, target="pending")
    finally:
        await engine.release(io, cause.address, view, "reflection")
    if outcome.error is not None:
        raise outcome.error


# the running turn's own rows


async def _archive_local(
    engine: Engine, io: IO, cause: Cause, view: LogView, *, run: RunFacts, local: Sequence[LocalRow]
) -> LogView:
    """Turn local rows into rows of the log when their messages are archived by now."""
    for held in local:
        key = view.current
        after = view.state.buffered_to(key)
        behind = [m.fact for m in view.threads[key].raw if m.seq > after]
        found = behind[: len(held.facts)]
        if [fact.id for fact in found] != [fact.id for fact in held.facts]:
            break
        last = found[-1]
        if last.seq is None:
            break
        row = replace(held.row, covers=(Span(key, last.branch, after, last.seq),))
        view = await engine.opened(io, cause.address, view)
        given = digest(between(behind, after, last.seq))
        check = Observed(epoch=view.state.head.epoch, rows=(row,), digests=(given,), in_loop=True)
        verdict, _ = await engine.commit(
            io,
            cause.address,
            lambda seen, c=check: transitions.commit_observed(seen.state, c),  # type: ignore[misc]  # bound per row
            rows=lambda _seen, r=row: [r],  # type: ignore[misc]  # bound per row
            check=check,
            terms=cycles.terms_of(engine, [row]),
            mirror={key: cycles.mirrored(engine, row)},
        )
        if verdict is None or isinstance(verdict, Refused):
            break
        engine.drop_local(run.thread_id, 1)
        view = await engine.view(io, cause.address)
    return view


async def after_run(engine: Engine, io: IO, run: RunFacts) -> None:
    """Keep what the running turn's rows say, now that it is archived, and buffer when the agent goes idle."""
    await ready(engine.memory.token_counter, io)
    cause = cause_of(engine, run)
    if cause.read_only:
        return
    _, local = engine.local_rows(run.thread_id)
    if local:
        try:
            view = await engine.view(io, cause.address)
        except ThreadNotFoundError:
            return
        if view.state.movable:  # with a checkpointer the turn is archived later: then the next turn does it
            await _archive_local(engine, io, cause, view, run=run, local=local)
    if engine.options.observation.buffer_on_idle and engine.options.scope == "thread":
        last = run.items[-1].id if run.items else ""
        _start(engine, io, replace(cause, trigger="async-buffer"), "observation", until=last)


# when something is early


def _early(engine: Engine, run: RunFacts, view: LogView) -> tuple[bool, bool]:
    options, observation = engine.options, engine.options.observation
    own = observation.activate_after_idle
    after = options.activate_after_idle if own is None else own
    on_change = observation.activate_on_provider_change
    wanted = options.activate_on_provider_change if on_change is None else on_change
    return _idle(after, run, view), bool(wanted) and changed_provider(_last_answer(view), run.model)


def _reflects_early(engine: Engine, run: RunFacts, view: LogView) -> bool:
    reflection = engine.options.reflection
    changed = bool(reflection.activate_on_provider_change) and changed_provider(_last_answer(view), run.model)
    return _idle(reflection.activate_after_idle, run, view) or changed


def _idle(after: Any, run: RunFacts, view: LogView) -> bool:
    limit = idle_limit(after, run.model)
    if limit is None:
        return False
    answers = [m.created_at for m in view.threads[view.current].raw if m.role == "ai" and m.kind is None]
    last = answers[-1] if answers else next((r.last_at for r in reversed(view.state.log) if r.last_at), None)
    return last is not None and run.now.timestamp() - last / 1_000_000 >= limit


def _last_answer(view: LogView) -> BaseMessage | None:
    raw = view.threads[view.current].raw
    return next((m.message for m in reversed(raw) if m.role == "ai" and m.kind is None), None)


def _status(engine: Engine, cause: Cause, view: LogView, here: Tail, others: Mapping[int, Tail]) -> None:
    limits: Limits = engine.options.limits()
    state = view.state
    size = log_tokens(state)
    pending = here.pending + sum(other.pending for other in others.values())
    rows: list[LogRow] = state.buffered
    sizes = [row.message_tokens for row in rows]
    waiting = state.pending
    emit(
        cause.writer,
        "status",
        message_tokens=pending,
        message_threshold=limits.threshold(size),
        observation_tokens=size,
        observation_threshold=limits.observation_tokens,
        buffered_chunks=len(rows),
        buffered_message_tokens=sum(sizes),
        buffered_observation_tokens=sum(row.tokens for row in rows),
        projected_removal=sum(sizes[: choose(sizes, pending, limits)]) if sizes else 0,
        buffered_status="running"
        if engine.is_running(cause.address, "observation")
        else "complete"
        if rows
        else "idle",
        reflection_status=(
            "complete" if waiting else "running" if engine.is_running(cause.address, "reflection") else "idle"
        ),
        reflection_input_tokens=sum(state.rows[i].tokens for i in waiting.inputs if i in state.rows) if waiting else 0,
        reflection_tokens=waiting.tokens if waiting else 0,
        generation=cycles.generation_of(state),
        **cause.ids,
    )


__all__ = ["Turn", "activate", "activate_reflection", "after_run", "before_call", "own_items", "tokens"]
