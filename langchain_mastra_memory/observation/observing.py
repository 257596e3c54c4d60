"""Observing: call by call, each result committed by itself; what went wrong leaves everything as it was."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from langchain_core.messages import BaseMessage, HumanMessage

from langchain_mastra_memory.history.before_save import before_saving
from langchain_mastra_memory.observation import transitions
from langchain_mastra_memory.observation.cycle import Cycle, Made, Outcome, mirrored, names_of, terms_of
from langchain_mastra_memory.observation.engine import Cause, Engine, LocalRow
from langchain_mastra_memory.observation.events import emit
from langchain_mastra_memory.observation.formatting import Shown
from langchain_mastra_memory.observation.log import LogRow, MessageFact, Span, digest
from langchain_mastra_memory.observation.markers import KIND, in_place
from langchain_mastra_memory.observation.observer import Observer, ObserverResult, ThreadInput, ThreadOutput
from langchain_mastra_memory.observation.planning import batches, tokens
from langchain_mastra_memory.observation.render import latest_extracted, latest_hints, log_text
from langchain_mastra_memory.observation.transitions import Observed, Refused, Target
from langchain_mastra_memory.store.operations.log import LogView

if TYPE_CHECKING:
    from langchain_mastra_memory.io import IO

Ranges = Mapping[int, Sequence[MessageFact]]
"""What is to be observed of each thread, by the thread's key."""

TITLE_LENGTH: Final = 120
"""Characters of a title; longer ones are cut at a word."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


async def observe(
    engine: Engine,
    io: IO,
    cause: Cause,
    view: LogView,
    ranges: Ranges,
    *,
    target: Target = "log",
    in_loop: bool = False,
    unsaved: Mapping[str, BaseMessage] | None = None,
) -> tuple[Outcome, LogView]:
    """Observe ranges, call by call, each committed by itself; stop at the first that fails or is dropped.

    Returns:
        What came of it, and the newest view.
    """
    outcome = Outcome()
    view = await engine.opened(io, cause.address, view)
    for planned in in_batches(engine, ranges):
        batch = {key: facts for key, facts in planned.items() if key in view.threads}  # one may be deleted meanwhile
        if not batch:
            continue
        observer = Observer.of(engine, cause, view, previous=previous_text(engine, view))
        cycle = Cycle(
            engine=engine,
            io=io,
            cause=cause,
            view=view,
            caller=observer,
            buffers=target == "buffered",
            size=sum(tokens(facts) for facts in batch.values()),
            outcome=outcome,
        )
        work = partial(_observed, cycle, observer, batch, target=target, in_loop=in_loop, unsaved=unsaved or {})
        await cycle.run(work, thread_ids=[view.threads[key].id for key in batch])
        view = await engine.view_or_new(io, cause.address)
        if outcome.error is not None or outcome.dropped:
            break
    return outcome, view


def in_batches(engine: Engine, ranges: Ranges) -> list[dict[int, tuple[MessageFact, ...]]]:
    """Split what is to be observed into calls; each range of a call ends where a unit ends, and none is skipped."""
    options = engine.options
    limit = options.observation.max_tokens_per_batch
    if options.scope == "thread":
        limit = max(limit, options.observation.message_tokens)
    waiting = {key: batches(list(facts), limit) for key, facts in ranges.items() if facts}
    found: list[dict[int, tuple[MessageFact, ...]]] = []
    while waiting:
        batch: dict[int, tuple[MessageFact, ...]] = {}
        size = 0
        for key in list(waiting):
            weight = tokens(waiting[key][0])
            if batch and size + weight > limit:
                continue
            batch[key] = waiting[key].pop(0)
            size += weight
            if not waiting[key]:
                del waiting[key]
        found.append(batch)
    return found


def previous_text(engine: Engine, view: LogView) -> str:
    """Return everything that was observed before, a waiting reflection in place of what it condenses."""
    state = view.state
    pending = state.pending
    if pending is not None:
        head = replace(state.head, log=(pending.id, *state.head.log[len(pending.inputs) :]))
        state = replace(state, head=head)
    whole = replace(state, head=replace(state.head, log=(*state.head.log, *state.head.buffered)))
    return log_text(whole, names=names_of(engine, view))


async def _observed(
    cycle: Cycle,
    observer: Observer,
    batch: Ranges,
    *,
    target: Target,
    in_loop: bool,
    unsaved: Mapping[str, BaseMessage],
) -> Made:
    engine, io, cause, view = cycle.engine, cycle.io, cycle.cause, cycle.view
    running = [unsaved[fact.id] for facts in batch.values() for fact in facts if fact.id in unsaved]
    archived = await before_saving(io, running, engine.memory.options.message_history)  # what saving would keep of them
    running_by_id = {message.id or "": message for message in archived.messages}
    result = await observer.run(io, _inputs(engine, view, batch, running_by_id))
    cycle.replies = result.replies
    rows, check = _rows(engine, view, batch, result, target=target, in_loop=in_loop)
    dropped = None
    if rows and all(fact.seq is not None for facts in batch.values() for fact in facts):
        dropped = await _commit(engine, io, cause, view, check)
    else:
        _keep_local(engine, cause, batch, rows)
    said = next(iter(result.threads.values()), ThreadOutput())
    return Made(
        rows=rows,
        dropped=dropped,
        tokens=sum(row.tokens for row in rows),
        said={
            "observations": "\n\n".join(row.text for row in rows),
            "current_task": said.hints.current_task,
            "suggested_response": said.hints.suggested_response,
            "extracted_values": _values(said) or None,
            "extraction_failures": list(said.failures) or None,
        },
    )


def _shown(view: LogView, key: int, facts: Sequence[MessageFact], unsaved: Mapping[str, BaseMessage]) -> list[Shown]:
    raw = {message.id: message for message in view.threads[key].raw}
    notes = in_place((m.message for m in raw.values() if m.kind == KIND), (fact.id for fact in facts))
    found = []
    for fact in facts:
        if fact.id in notes:  # a marker is archived behind what it announces
            said = notes[fact.id]
            found.append(Shown(message=HumanMessage(str(said.additional_kwargs.get("gap") or said.text)), note=True))
        message = raw.get(fact.id)
        if message is None:
            if fact.id in unsaved:
                found.append(Shown(message=unsaved[fact.id]))
            continue
        if not fact.hidden:
            found.append(Shown(message=message.message, at=_EPOCH + timedelta(microseconds=message.created_at)))
    return found


def _inputs(engine: Engine, view: LogView, batch: Ranges, unsaved: Mapping[str, BaseMessage]) -> list[ThreadInput]:
    options = engine.options
    rows = [*view.state.log, *view.state.buffered]
    hints = latest_hints(view.state, options.observation.hints, options.reflection.hints)
    found = []
    for key, facts in batch.items():
        thread = view.threads[key]
        found.append(
            ThreadInput(
                thread_id=thread.id,
                messages=_shown(view, key, facts, unsaved),
                hints=replace(hints, thread_title=thread.title),
                extracted=latest_extracted(rows),
            )
        )
    return found


def _values(said: ThreadOutput) -> dict[str, Any]:
    hints = {
        "current-task": said.hints.current_task,
        "suggested-response": said.hints.suggested_response,
        "thread-title": said.hints.thread_title,
    }
    return {**{k: v for k, v in hints.items() if v is not None}, **said.extracted}


def _rows(
    engine: Engine, view: LogView, batch: Ranges, result: ObserverResult, *, target: Target, in_loop: bool
) -> tuple[list[LogRow], Observed]:
    count = engine.memory.token_counter.count_text
    rows, digests = [], []
    for key, facts in batch.items():
        thread = view.threads[key]
        said = result.threads.get(thread.id)
        if said is None:
            continue
        times = [m.created_at for m in thread.raw if m.id in {fact.id for fact in facts}]
        last = facts[-1]
        span = Span(key, last.branch, view.state.buffered_to(key), last.seq if last.seq is not None else -1)
        rows.append(
            LogRow(
                id=secrets.token_hex(8),
                covers=(span,),
                text=said.observations,
                tokens=count(said.observations) if said.observations else 0,
                message_tokens=tokens(facts),
                messages=sum(not fact.hidden for fact in facts),
                hints=said.hints,
                hinted=result.hinted,
                extracted=dict(said.extracted),
                first_at=times[0] if times else None,
                last_at=times[-1] if times else None,
                model=result.model,
            )
        )
        digests.append(digest(facts))
    return rows, Observed(
        epoch=view.state.head.epoch, rows=tuple(rows), digests=tuple(digests), target=target, in_loop=in_loop
    )


def _keep_local(engine: Engine, cause: Cause, batch: Ranges, rows: Sequence[LogRow]) -> None:
    facts = next(iter(batch.values()))
    question = next((fact.id for fact in reversed(facts) if fact.role == "human" and not fact.hidden), "")
    held = engine.running_question(cause.address.thread_id or "") or question
    for row in rows:
        engine.add_local(cause.address.thread_id or "", held, LocalRow(row=row, facts=tuple(facts)))


async def _commit(
    engine: Engine,
    io: IO,
    cause: Cause,
    view: LogView,
    check: Observed,
) -> str | None:
    """Commit rows; return why they were dropped, or None."""
    rows = check.rows
    mirror: dict[int, list[tuple[tuple[str, ...], Any]]] = {}
    titles: dict[int, str] = {}
    for row in rows:
        key = row.covers[0].thread
        mirror[key] = mirrored(engine, row)
        title = clean_title(row.hints.thread_title)
        if engine.options.observation.thread_title and title and title != view.threads[key].title:
            titles[key] = title
    verdict, _ = await engine.commit(
        io,
        cause.address,
        lambda seen: transitions.commit_observed(seen.state, check),
        rows=lambda _seen: rows,
        check=check,
        terms=terms_of(engine, rows),
        mirror=mirror,
        titles=titles,
    )
    if isinstance(verdict, Refused):
        return verdict.reason
    if verdict is None:
        return "position"
    for key, title in titles.items():
        old = view.threads[key].title
        emit(cause.writer, "title", thread_id=view.threads[key].id, old_title=old, new_title=title)
    return None


def clean_title(title: str | None) -> str:
    """Return a title on one line, cut at a word."""
    line = " ".join((title or "").split())
    return line if len(line) <= TITLE_LENGTH else line[:TITLE_LENGTH].rsplit(" ", 1)[0]
