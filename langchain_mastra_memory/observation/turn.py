"""What happens before a model call: the activation rule put to work on a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from langchain_core.messages import BaseMessage

from langchain_mastra_memory.context.provider import RunFacts
from langchain_mastra_memory.errors import ThreadNotFoundError
from langchain_mastra_memory.observation import buffering, transitions
from langchain_mastra_memory.observation.activation import activate, activate_reflection
from langchain_mastra_memory.observation.cycle import generation_of, mirrored, terms_of
from langchain_mastra_memory.observation.engine import Cause, Engine, LocalRow
from langchain_mastra_memory.observation.events import emit
from langchain_mastra_memory.observation.idle import changed_provider, idle_limit
from langchain_mastra_memory.observation.log import LogRow, LogState, Span, between, digest, log_tokens
from langchain_mastra_memory.observation.observing import observe
from langchain_mastra_memory.observation.planning import (
    Limits,
    Tail,
    choose,
    plan_messages,
    plan_reflection,
    should_buffer,
)
from langchain_mastra_memory.observation.reflecting import reflect
from langchain_mastra_memory.observation.seen import Seen, other_tails, own_items, see
from langchain_mastra_memory.observation.transitions import Observed, Refused
from langchain_mastra_memory.store.operations.log import LogView
from langchain_mastra_memory.tokens import ready

if TYPE_CHECKING:
    from langchain_mastra_memory.io import IO


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
        seen = see(engine, view, run, local)
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
        seen = see(engine, view, run, local)
    here = seen.tail
    if run.streams:
        _status(engine, cause, view, here, other_tails(engine, view))
    if view.state.movable and should_buffer(engine.options.limits(), here):
        buffering.start(engine, io, cause, "observation", upto=here.closed[-1].seq)
    return Turn(view=view, local=tuple(local), covered=seen.covered)


async def _messages(
    engine: Engine, io: IO, cause: Cause, view: LogView, *, run: RunFacts, local: Sequence[LocalRow]
) -> tuple[LogView, Seen]:
    """Rules 1 and 2. When what was buffered does not bring the messages below the threshold, the rest is observed.

    Returns:
        The view by then, and the messages as they were looked at last.
    """
    limits = engine.options.limits()
    idle, provider = _early(engine, run, view)
    seen = see(engine, view, run, local)
    for attempt in range(2):
        if not seen.shows(view, local):
            seen = see(engine, view, run, local)
        here, others = seen.tail, other_tails(engine, view)
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
        outcome, view = await observe(
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
        outcome, view = await reflect(engine, io, cause, view)
        _report(engine, cause, "reflect", outcome.error)
        return view
    buffering.start(engine, io, cause, "reflection")
    return view


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
            terms=terms_of(engine, [row]),
            mirror={key: mirrored(engine, row)},
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
        buffering.start(engine, io, cause, "observation", until=last)


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
        generation=generation_of(state),
        **cause.ids,
    )
