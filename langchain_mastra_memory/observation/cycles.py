"""One observation and one reflection: read, call the model, commit; what went wrong leaves everything as it was."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

from langchain_core.messages import BaseMessage, HumanMessage

from langchain_mastra_memory.ids import new_id
from langchain_mastra_memory.observation import transitions
from langchain_mastra_memory.observation.calls import Reply, merged_usage
from langchain_mastra_memory.observation.engine import Cause, Engine, LocalRow
from langchain_mastra_memory.observation.events import emit
from langchain_mastra_memory.observation.formatting import Shown
from langchain_mastra_memory.observation.log import LogRow, LogState, MessageFact, Span, digest, log_tokens
from langchain_mastra_memory.observation.markers import KIND, in_place
from langchain_mastra_memory.observation.observer import (
    Observer,
    ObserverResult,
    ThreadInput,
    ThreadOutput,
    UnusableError,
)
from langchain_mastra_memory.observation.planning import batches, tokens
from langchain_mastra_memory.observation.reflector import Reflector
from langchain_mastra_memory.observation.render import latest_extracted, latest_hints, log_text, obscured
from langchain_mastra_memory.observation.transitions import Observed, Reflected, Refused, Target
from langchain_mastra_memory.store.operations.log import LogView

if TYPE_CHECKING:
    from langchain_mastra_memory.io import IO

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TITLE_LENGTH = 120
"""Characters of a title; longer ones are cut at a word."""


@dataclass(kw_only=True)
class Outcome:
    """What a cycle came to.

    Attributes:
        rows: The rows that were committed.
        dropped: Why results were dropped, one word each.
        error: Why the last call failed.
        usage: Tokens of all calls.
    """

    rows: list[LogRow] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    error: Exception | None = None
    usage: dict[str, int] = field(default_factory=dict)

    def add(self, replies: Sequence[Reply]) -> None:
        """Add the cost of calls."""
        self.usage = merged_usage([self.usage, *(reply.usage for reply in replies)])


Ranges = Mapping[int, Sequence[MessageFact]]


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


def names_of(engine: Engine, view: LogView) -> dict[int, str] | None:
    """Return the words for the threads of a shared log, or None for a thread's own."""
    if engine.options.scope == "thread":
        return None
    return {key: obscured(thread.id) for key, thread in view.threads.items()}


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
    hints = latest_hints(view.state, options.observation.continuation_hints, options.reflection.continuation_hints)
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
        try:
            await _observe_batch(
                engine,
                io,
                cause,
                view,
                batch=batch,
                outcome=outcome,
                target=target,
                in_loop=in_loop,
                unsaved=unsaved or {},
            )
        except Exception as error:  # noqa: BLE001 - whatever a model, a hook or a parser raises: nothing was changed
            outcome.error = error
        view = await engine.view_or_new(io, cause.address)
        if outcome.error is not None or outcome.dropped:
            break
    return outcome, view


async def _observe_batch(
    engine: Engine,
    io: IO,
    cause: Cause,
    view: LogView,
    *,
    batch: Ranges,
    outcome: Outcome,
    target: Target,
    in_loop: bool,
    unsaved: Mapping[str, BaseMessage],
) -> None:
    cycle, started = new_id(), time.perf_counter()
    kind: Literal["buffering", "observation"] = "buffering" if target == "buffered" else "observation"
    size = sum(tokens(facts) for facts in batch.values())
    observer = Observer(
        memory=engine.memory,
        options=engine.options,
        hooks=engine.transforms(cause),
        trigger=cause.trigger,
        thread_id=cause.address.thread_id,
        resource_id=view.resource_id,
        model=cause.model,
        previous=previous_text(engine, view),
    )
    common: dict[str, Any] = {"cycle_id": cycle, "operation_type": "observation", **cause.ids}
    amount = "tokens_to_buffer" if kind == "buffering" else "tokens_to_observe"
    emit(
        cause.writer,
        "buffering_start" if kind == "buffering" else "observation_start",
        **common,
        **{amount: size},
        thread_ids=[view.threads[key].id for key in batch],
        started_at=engine.memory.clock().isoformat(),
    )
    replies: Sequence[Reply] = ()
    try:
        await engine.lifecycle(io, cause, "on_observation_start", observer.context())
        result = await observer.run(io, _inputs(engine, view, batch, unsaved))
        replies = result.replies
        rows, check = _rows(engine, view, batch, result, target=target, in_loop=in_loop)
        if rows and all(fact.seq is not None for facts in batch.values() for fact in facts):
            reason = await _commit_observed(engine, io, cause, view, check)
        else:
            reason = None
            _keep_local(engine, cause, batch, rows)
    except Exception as error:
        replies = error.replies if isinstance(error, UnusableError) else replies
        outcome.add(replies)
        await _observe_failed(
            engine,
            io,
            cause,
            error,
            replies=replies,
            observer=observer,
            common=common,
            kind=kind,
            size=size,
            started=started,
        )
        raise
    outcome.add(replies)
    engine.succeeded(cause.address, "observation")
    await engine.record(
        io, engine.owned(cause.address, view), "observation", "committed" if reason is None else "dropped", replies
    )
    if reason is None:
        outcome.rows += rows
    else:
        outcome.dropped.append(reason)
    done = {
        "tokens_buffered" if kind == "buffering" else "tokens_observed": size,
        "buffered_tokens" if kind == "buffering" else "observation_tokens": sum(row.tokens for row in rows),
    }
    said = next(iter(result.threads.values()), ThreadOutput())
    emit(
        cause.writer,
        "buffering_end" if kind == "buffering" else "observation_end",
        **common,
        **done,
        observations="\n\n".join(row.text for row in rows),
        current_task=said.hints.current_task,
        suggested_response=said.hints.suggested_response,
        extracted_values=_values(said) or None,
        extraction_failures=list(said.failures) or None,
        dropped=reason,
        duration_ms=round((time.perf_counter() - started) * 1000),
        completed_at=engine.memory.clock().isoformat(),
    )
    usage = merged_usage([reply.usage for reply in replies])
    metadata = replies[-1].metadata if replies else {}
    await engine.lifecycle(io, cause, "on_observation_end", observer.context(usage=usage, response_metadata=metadata))


def _values(said: ThreadOutput) -> dict[str, Any]:
    hints = {
        "current-task": said.hints.current_task,
        "suggested-response": said.hints.suggested_response,
        "thread-title": said.hints.thread_title,
    }
    return {**{k: v for k, v in hints.items() if v is not None}, **said.extracted}


async def _observe_failed(
    engine: Engine,
    io: IO,
    cause: Cause,
    error: Exception,
    *,
    replies: Sequence[Reply],
    observer: Observer | Reflector,
    common: Mapping[str, Any],
    kind: str,
    size: int,
    started: float,
) -> None:
    phase = str(common["operation_type"])
    engine.failed(cause.address, phase)
    outcome = error.reason if isinstance(error, UnusableError) else "failed"
    await engine.record(io, cause.address, phase, outcome, replies)
    emit(
        cause.writer,
        "buffering_failed" if kind == "buffering" else "observation_failed",
        **common,
        tokens_attempted=size,
        error=f"{type(error).__name__}: {error}",
        duration_ms=round((time.perf_counter() - started) * 1000),
        failed_at=engine.memory.clock().isoformat(),
    )
    name = "on_observation_end" if phase == "observation" else "on_reflection_end"
    try:
        usage = merged_usage([reply.usage for reply in replies])
        await engine.lifecycle(io, cause, name, observer.context(usage=usage, error=error))
    except Exception as late:  # noqa: BLE001 - the first error is the one that counts
        engine.memory.background.report(f"hook {name}", late, **cause.ids)


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


async def _commit_observed(
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


def mirrored(engine: Engine, row: LogRow) -> list[tuple[tuple[str, ...], Any]]:
    """Return what of a row is kept below `om` in the thread's metadata."""
    changes: list[tuple[tuple[str, ...], Any]] = []
    if row.hinted:
        changes.append((("current_task",), row.hints.current_task))
        changes.append((("suggested_response",), row.hints.suggested_response))
    if row.hints.thread_title:
        changes.append((("thread_title",), row.hints.thread_title))
    options = engine.options
    changes += [
        (extractor.path, row.extracted[extractor.slug])
        for extractor in (*options.observation.extract, *options.reflection.extract)
        if extractor.path is not None and extractor.slug in row.extracted
    ]
    return changes


def clean_title(title: str | None) -> str:
    """Return a title on one line, cut at a word."""
    line = " ".join((title or "").split())
    return line if len(line) <= TITLE_LENGTH else line[:TITLE_LENGTH].rsplit(" ", 1)[0]


def terms_of(engine: Engine, rows: Sequence[LogRow]) -> dict[str, bytes]:
    """Return the packed terms of rows, when the recall tool can search."""
    retrieval = engine.options.retrieval
    if retrieval is None or not retrieval.vector:
        return {}
    from langchain_mastra_memory.observation.search import packed_terms  # noqa: PLC0415 - numpy, when on

    return {row.id: packed_terms(row.text) for row in rows if row.text}


async def reflect(
    engine: Engine,
    io: IO,
    cause: Cause,
    view: LogView,
    *,
    target: Literal["log", "pending"] = "log",
    wish: str = "",
) -> tuple[Outcome, LogView]:
    """Condense the log as it is now; a candidate that is not smaller changes nothing."""
    outcome = Outcome()
    state = view.state
    inputs = state.log
    size = log_tokens(state)
    cycle, started = new_id(), time.perf_counter()
    kind = "buffering" if target == "pending" else "observation"
    reflector = Reflector(
        memory=engine.memory,
        options=engine.options,
        hooks=engine.transforms(cause),
        trigger=cause.trigger,
        thread_id=cause.address.thread_id,
        resource_id=view.resource_id,
        model=cause.model,
        previous=latest_extracted(inputs),
    )
    common: dict[str, Any] = {"cycle_id": cycle, "operation_type": "reflection", **cause.ids}
    emit(
        cause.writer,
        "buffering_start" if kind == "buffering" else "observation_start",
        **common,
        **{"tokens_to_buffer" if kind == "buffering" else "tokens_to_observe": size},
        started_at=engine.memory.clock().isoformat(),
    )
    replies: Sequence[Reply] = ()
    try:
        await engine.lifecycle(io, cause, "on_reflection_start", reflector.context())
        made = await reflector.run(io, log_text(state, names=names_of(engine, view)), size, wish=wish)
        replies = made.replies
        row = transitions.reflection_of(
            inputs,
            LogRow(
                id=secrets.token_hex(8),
                covers=(),
                text=made.text,
                tokens=made.tokens,
                hints=made.hints,
                hinted=made.hinted,
                extracted={**latest_extracted(inputs), **made.extracted},
                model=made.model,
            ),
        )
        result = Reflected(epoch=state.head.epoch, row=row, size=size, target=target)
        verdict = await _commit_reflected(engine, io, cause, view, result)
    except Exception as error:  # noqa: BLE001 - whatever a model, a hook or a parser raises: nothing was changed
        replies = error.replies if isinstance(error, UnusableError) else replies
        outcome.add(replies)
        outcome.error = error
        await _observe_failed(
            engine,
            io,
            cause,
            error,
            replies=replies,
            observer=reflector,
            common=common,
            kind=kind,
            size=size,
            started=started,
        )
        return outcome, await engine.view(io, cause.address)
    outcome.add(replies)
    engine.succeeded(cause.address, "reflection")
    reason = verdict.reason if isinstance(verdict, Refused) else None
    if reason is None:
        outcome.rows.append(row)
    else:
        outcome.dropped.append(reason)
    await engine.record(
        io,
        engine.owned(cause.address, view),
        "reflection",
        {None: "committed", "size": "refused"}.get(reason, "dropped"),
        replies,
        refused=size if reason == "size" else None,
        reflected=reason is None,
    )
    emit(
        cause.writer,
        "buffering_end" if kind == "buffering" else "observation_end",
        **common,
        **{
            "tokens_buffered" if kind == "buffering" else "tokens_observed": size,
            "buffered_tokens" if kind == "buffering" else "observation_tokens": made.tokens,
        },
        observations=made.text,
        current_task=made.hints.current_task,
        suggested_response=made.hints.suggested_response,
        extracted_values=dict(made.extracted) or None,
        extraction_failures=list(made.failures) or None,
        dropped=reason,
        duration_ms=round((time.perf_counter() - started) * 1000),
        completed_at=engine.memory.clock().isoformat(),
    )
    usage = merged_usage([reply.usage for reply in replies])
    metadata = replies[-1].metadata if replies else {}
    await engine.lifecycle(io, cause, "on_reflection_end", reflector.context(usage=usage, response_metadata=metadata))
    return outcome, await engine.view(io, cause.address)


async def _commit_reflected(engine: Engine, io: IO, cause: Cause, view: LogView, result: Reflected) -> Refused | None:
    verdict, _ = await engine.commit(
        io,
        cause.address,
        lambda seen: transitions.commit_reflected(seen.state, result),
        rows=lambda seen: [transitions.as_committed(seen.state, result.row)],
        mirror={view.current: mirrored(engine, result.row)} if view.current else {},
    )
    if isinstance(verdict, Refused):
        return verdict
    return Refused("position") if verdict is None else None


def generation_of(state: LogState) -> int:
    """Return how often the log was condensed."""
    return max((row.generation for row in state.log), default=0)
