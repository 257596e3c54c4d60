"""Observing, reflecting and reading by hand: the bodies of the methods of `Memory`."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from langchain_mastra_memory.errors import MastraMemoryError, ObservationError, ThreadNotFoundError
from langchain_mastra_memory.models import ModelSpec
from langchain_mastra_memory.observation import observing, reflecting, transitions
from langchain_mastra_memory.observation.activation import activate
from langchain_mastra_memory.observation.cycle import generation_of, names_of, terms_of
from langchain_mastra_memory.observation.engine import Cause, Engine
from langchain_mastra_memory.observation.extractors import Extractor
from langchain_mastra_memory.observation.formatting import Shown
from langchain_mastra_memory.observation.log import LogRow, LogState, Span, between, digest, log_tokens, made_from
from langchain_mastra_memory.observation.observer import Observer, ThreadInput, moment
from langchain_mastra_memory.observation.planning import tail
from langchain_mastra_memory.observation.render import latest_extracted, latest_hints, log_text
from langchain_mastra_memory.observation.results import ObservationGroup, Observations, ObserveResult, ReflectResult
from langchain_mastra_memory.observation.summarize import Summary, summarize
from langchain_mastra_memory.observation.transitions import Observed, Refused
from langchain_mastra_memory.store.operations.log import ListGroups, LogAddress, LogView, RangeMessages, RawMessage
from langchain_mastra_memory.store.operations.messages import Hidden, ListMessages
from langchain_mastra_memory.store.sql.values import from_micros
from langchain_mastra_memory.tokens import ready

if TYPE_CHECKING:
    from langchain_mastra_memory.base import MemoryBase
    from langchain_mastra_memory.io import IO

PAGE = 200


async def observe(engine: Engine, io: IO, cause: Cause) -> ObserveResult:
    """Activate what is buffered, and observe what is closed."""
    await ready(engine.memory.token_counter, io)
    view = await engine.view(io, cause.address)
    before = set(view.state.head.log)
    if not view.state.movable:
        raise ObservationError("the thread stands inside a branch: send its next message first, then observe")
    if view.state.buffered:
        view = await activate(engine, io, cause, view, count=len(view.state.buffered), trigger="manual")
    ranges = {}
    for key, thread in view.threads.items():
        found = tail([m.fact for m in thread.raw], view.state.cursor(key), view.state.buffered_to(key))
        if found.closed:
            ranges[key] = found.closed
    outcome, view = await observing.observe(engine, io, cause, view, ranges)
    _raise(outcome.error)
    new = tuple(i for i in view.state.head.log if i not in before)
    return ObserveResult(
        observed=bool(new),
        groups=new,
        observations=await observations(engine, io, cause.address),
        dropped=tuple(outcome.dropped),
        usage=outcome.usage,
    )


async def reflect(engine: Engine, io: IO, cause: Cause, wish: str) -> ReflectResult:
    """Condense the log, whatever its size."""
    await ready(engine.memory.token_counter, io)
    view = await engine.view(io, cause.address)
    size = log_tokens(view.state)
    if not view.state.movable:
        raise ObservationError("the thread stands inside a branch: send its next message first, then reflect")
    if not size:
        now = await observations(engine, io, cause.address)
        return ReflectResult(reflected=False, tokens_before=0, tokens_after=0, observations=now, reason="empty")
    outcome, view = await reflecting.reflect(engine, io, cause, view, wish=wish)
    _raise(outcome.error)
    return ReflectResult(
        reflected=bool(outcome.rows),
        tokens_before=size,
        tokens_after=log_tokens(view.state),
        observations=await observations(engine, io, cause.address),
        reason=outcome.dropped[0] if outcome.dropped else None,
        usage=outcome.usage,
    )


def _raise(error: Exception | None) -> None:
    if error is None:
        return
    if isinstance(error, MastraMemoryError):
        raise error
    raise ObservationError(f"{type(error).__name__}: {error}") from error


async def observations(engine: Engine, io: IO, address: LogAddress) -> Observations:
    """Return the log at an address."""
    view = await engine.view(io, address)
    state = view.state
    options = engine.options
    groups = await io.run(
        ListGroups(
            scope=options.scope,
            thread_id=view.threads[view.current].id if options.scope == "thread" else None,
            resource_id=view.resource_id,
            with_empty=True,
        )
    )
    edges = {group.row.id: (group.first_id, group.last_id) for group in groups}
    hints = latest_hints(state, options.observation.hints, options.reflection.hints)
    pending = sum(m.fact.tokens for thread in view.threads.values() for m in thread.raw)
    last = [edges[row.id][1] for row in state.log if row.id in edges]
    return Observations(
        text=log_text(state, names=names_of(engine, view), current=view.current),
        tokens=log_tokens(state),
        groups=tuple(_group(view, row, edges) for row in state.log),
        buffered=tuple(_group(view, row, edges) for row in state.buffered),
        pending_reflection=_group(view, state.pending, edges) if state.pending is not None else None,
        current_task=hints.current_task,
        suggested_response=hints.suggested_response,
        extracted=latest_extracted(state.log),
        pending_tokens=pending,
        generation=generation_of(state),
        cursor=last[-1] if last else _last_covered(state, edges),
        version=state.head.version,
    )


def _last_covered(state: LogState, edges: dict[str, tuple[str | None, str | None]]) -> str | None:
    for row in reversed(state.log):
        for source in reversed(row.inputs):
            if source in edges:
                return edges[source][1]
    return None


def _group(view: LogView, row: LogRow, edges: dict[str, tuple[str | None, str | None]]) -> ObservationGroup:
    sources = [i for i in (row.id, *_in_order(view.state, row)) if i in edges]
    return ObservationGroup(
        id=row.id,
        kind="reflection" if row.is_reflection else "observation",
        text=row.text,
        tokens=row.tokens,
        thread_ids=tuple(view.threads[s.thread].id for s in row.covers if s.thread in view.threads),
        first_message_id=edges[sources[0]][0] if sources else None,
        last_message_id=edges[sources[-1]][1] if sources else None,
        messages=row.messages,
        message_tokens=row.message_tokens,
        stale=row.stale,
        created_at=from_micros(row.created_at),
    )


def _in_order(state: LogState, row: LogRow) -> list[str]:
    found: list[str] = []
    for source in row.inputs:
        found.append(source)
        if source in state.rows:
            found += _in_order(state, state.rows[source])
    return found


async def reobserve(engine: Engine, io: IO, cause: Cause) -> ObserveResult:
    """Observe the ranges of stale rows anew, each in its place."""
    await ready(engine.memory.token_counter, io)
    new: list[str] = []
    dropped: list[str] = []
    while True:
        view = await engine.view(io, replace(cause.address, whole=True))
        stale = _stale_row(view.state)
        if stale is None or dropped:
            break
        span = stale.covers[0]
        here = replace(engine.owned(cause.address, view), thread_id=view.threads[span.thread].id)
        raw = await io.run(RangeMessages(address=here, span=span))
        row, check = await _observed_again(engine, io, cause, view, stale=stale, raw=raw)
        verdict, _ = await engine.commit(
            io,
            replace(cause.address, whole=True),
            lambda seen, r=row, old=stale.id: transitions.reobserved(seen.state.with_rows([r]), r, old),  # type: ignore[misc]  # bound per row
            rows=lambda _seen, r=row: [r],  # type: ignore[misc]  # bound per row
            check=check,
            terms=terms_of(engine, [row]),
        )
        if isinstance(verdict, Refused) or verdict is None:
            dropped.append(verdict.reason if isinstance(verdict, Refused) else "position")
        else:
            new.append(row.id)
    return ObserveResult(
        observed=bool(new),
        groups=tuple(new),
        observations=await observations(engine, io, cause.address),
        dropped=tuple(dropped),
    )


def _stale_row(state: LogState) -> LogRow | None:
    named = [*state.head.log, *made_from(state.rows, state.head.log)]
    rows = [state.rows[i] for i in named if i in state.rows]
    return next((row for row in rows if row.stale and not row.is_reflection), None)


async def _observed_again(
    engine: Engine, io: IO, cause: Cause, view: LogView, *, stale: LogRow, raw: Sequence[RawMessage]
) -> tuple[LogRow, Observed]:
    span = stale.covers[0]
    facts = between([m.fact for m in raw], span.after, span.upto)
    thread = view.threads[span.thread]
    shown = [Shown(message=m.message, at=moment(m.created_at)) for m in raw if m.kind is None]
    text, hints, extracted, model = "", stale.hints, dict(stale.extracted), stale.model
    if shown:
        observer = replace(Observer.of(engine, cause, view), thread_id=thread.id)
        result = await observer.run(io, [ThreadInput(thread_id=thread.id, messages=shown)])
        await engine.record(io, engine.owned(cause.address, view), "observation", "committed", result.replies)
        said = result.threads[thread.id]
        text, hints, extracted, model = said.observations, said.hints, dict(said.extracted), result.model
    count = engine.memory.token_counter.count_text
    row = replace(
        stale,
        id=secrets.token_hex(8),
        covers=(Span(span.thread, span.branch, span.after, span.upto),),
        text=text,
        tokens=count(text) if text else 0,
        hints=hints,
        extracted=extracted,
        model=model,
        stale=False,
        created_at=0,
    )
    check = Observed(epoch=view.state.head.epoch, rows=(row,), digests=(digest(facts),), ends=False)
    return row, check


async def summarize_thread(
    memory: MemoryBase,
    io: IO,
    thread_id: str,
    resource_id: str | None,
    *,
    model: ModelSpec | None,
    last_messages: int | None,
    max_input_tokens: int,
    instructions: str,
    extract: Sequence[Extractor],
) -> Summary:
    """Load a thread from its end, as far as it counts, and summarize it."""
    counter = await ready(memory.token_counter, io)
    shown: list[Shown] = []
    size, page = 0, 0
    while True:
        try:
            found = await io.run(
                ListMessages(
                    thread_ids=(thread_id,),
                    resource_id=resource_id,
                    page=page,
                    per_page=PAGE,
                    direction="desc",
                    hidden=Hidden(every_signal=True),
                )
            )
        except ThreadNotFoundError:
            if resource_id is None:
                break
            raise
        full = False
        for stored in found:
            size += stored.tokens or counter.count_message(stored.message)
            full = bool(shown) and size > max_input_tokens
            if full or (last_messages is not None and len(shown) >= last_messages):
                full = True
                break
            shown.append(Shown(message=stored.message, at=stored.created_at))
        if full or not found.has_more:
            break
        page += 1
    options = memory.options.observational_memory
    own = options.model if options is not None and not hasattr(options.model, "resolve") else None
    return await summarize(
        io,
        shown[::-1],
        model=model or memory.options.model or own,
        counter=counter,
        instructions=instructions,
        extract=extract,
        memory=memory,
        thread_id=thread_id,
        resource_id=resource_id,
    )
