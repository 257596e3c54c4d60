"""The transitions of the observation log: state and facts in, a new head or "nothing to do" out.

Nothing here reads a clock, a database or a random number, so that the same facts give the same head wherever they are
judged: by the process that plans a call, again when its result is committed, and in the tests. The conditions of a
commit are functions of their own at the end of the module.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from langchain_mastra_memory.observation.log import (
    START,
    Digest,
    Head,
    LogRow,
    LogState,
    MessageFact,
    Path,
    Span,
    between,
    digest,
    made_from,
    union,
)
from langchain_mastra_memory.observation.units import is_legal_end

Target = Literal["log", "buffered"]
Refusal = Literal["epoch", "position", "digest", "end", "prefix", "pending", "size", "gone"]
"""Why a result was dropped: the epoch changed, its place was taken, its messages changed, its end is no end any more,
the rows that it condenses are no longer the first of the log, another reflection waits, it is not smaller than what
it replaces, or a row that it is about is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """The result of an observer call, with what the model was given.

    Attributes:
        epoch: The epoch of the log when the call was planned.
        rows: One row per thread, each with one span.
        digests: The (id, revision, branch) list of each row's range.
        target: Whether the rows go into the log or into the buffer.
        in_loop: Whether a range may end inside the running turn.
        ends: Whether ends are judged: not where a range keeps the place that it has.
    """

    epoch: str
    rows: tuple[LogRow, ...]
    digests: tuple[Digest, ...]
    target: Target = "log"
    in_loop: bool = False
    ends: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Reflected:
    """The result of a reflector call.

    Attributes:
        epoch: The epoch of the log when the call was planned.
        row: The reflection; its inputs were the first rows of the log.
        size: The tokens of those rows as the model saw them.
        target: Whether it replaces them now or waits.
    """

    epoch: str
    row: LogRow
    size: int
    target: Literal["log", "pending"] = "log"


@dataclass(frozen=True, slots=True)
class Refused:
    """A result that may not be committed; nothing changes and the model is not called again.

    Attributes:
        reason: Which condition failed.
    """

    reason: Refusal


Messages = Mapping[int, Sequence[MessageFact]]
"""Per thread, its messages in view behind what the log and the buffer cover (or more)."""


def commit_observed(state: LogState, result: Observed) -> Head | Refused:
    """Return the head with an observer's rows, judged by epoch and position: conditions (a) and (b).

    Digest and end, (c) and (d), are judged by `check_messages` in the transaction that writes the head.
    """
    if not same_epoch(state, result.epoch):
        return Refused("epoch")
    ids = tuple(row.id for row in result.rows)
    for row in result.rows:
        if not joins(state, row.covers[0]):
            return Refused("position")
    head = state.head
    if result.target == "buffered":
        return _next(state, buffered=(*head.buffered, *ids))
    return _next(state, log=(*head.log, *head.buffered, *ids), buffered=())


def check_messages(result: Observed, messages: Messages) -> Refused | None:
    """Return why the messages of a result are not those that its model was given, or None: (c) and (d)."""
    for row, given in zip(result.rows, result.digests, strict=True):
        span = row.covers[0]
        behind = [m for m in messages.get(span.thread, ()) if m.seq is not None and m.seq > span.after]
        if not same_messages(given, between(behind, span.after, span.upto)):
            return Refused("digest")
        if result.ends and not ends_legally(behind, span, in_loop=result.in_loop):
            return Refused("end")
    return None


def commit_reflected(state: LogState, result: Reflected) -> Head | Refused:
    """Return the head with a reflection in place of its inputs, or with the reflection waiting."""
    if not same_epoch(state, result.epoch):
        return Refused("epoch")
    if not is_prefix(state, result.row):
        return Refused("prefix")
    if not result.row.text or result.row.tokens >= result.size:
        return Refused("size")
    if result.target == "pending":
        if state.pending is not None and is_prefix(state, state.pending):
            return Refused("pending")
        return _next(state, pending=result.row.id)
    return _replaced(state, result.row)


def activate(state: LogState, count: int) -> Head | None:
    """Return the head with the first `count` buffered rows in the log."""
    ids = state.head.buffered[:count]
    if not ids:
        return None
    return _next(state, log=(*state.head.log, *ids), buffered=state.head.buffered[count:])


def activate_reflection(state: LogState) -> Head | None:
    """Return the head with the waiting reflection in place of its inputs; dropped if they are not there any more."""
    if state.pending is None:
        return None
    if not is_prefix(state, state.pending):
        return _next(state, pending=None)
    return _replaced(state, state.pending)


def settle(state: LogState) -> LogState:
    """Return the state as it is on the present paths: what a fork, a switch back or an edit leaves of it.

    Rows that are not visible fall back to their inputs, the list is cut at the first gap of each thread, stale rows
    leave the buffer with those behind them, and every other visible row that joins becomes buffered again, so that
    work that was paid for is kept. A state that is sound already comes back unchanged.
    """
    log = _joined((row for i in state.head.log for row in _visible(state, i)), {})
    reach = _reaches(log)
    waiting = []
    for i in state.head.buffered:
        row = state.rows.get(i)
        if row is None or row.stale or not _shown(state, row):
            break
        waiting.append(row)
    buffered = _joined(waiting, reach)
    buffered += _rejoining(state, {row.id for row in log} | {row.id for row in buffered}, _reaches(buffered, reach))
    pending = state.rows.get(state.head.pending) if state.head.pending else None
    ids = tuple(row.id for row in log)
    keep = pending is not None and ids[: len(pending.inputs)] == pending.inputs and not pending.stale
    head = replace(
        state.head,
        log=ids,
        buffered=tuple(row.id for row in buffered),
        pending=pending.id if pending is not None and keep else None,
    )
    return replace(state, head=head)


def head_for(heads: Iterable[Head], path: Path, epoch: str) -> Head:
    """Return the head that holds at a position: the newest of its line, or of an ancestor's, written by then.

    Args:
        heads: Heads of the log, of any line.
        path: The view of the thread.
        epoch: The present epoch of the log.
    """
    for line, last in reversed(path.steps):
        written = [head for head in heads if head.line == line and head.at <= last]
        if written:
            return replace(max(written, key=lambda head: head.version), line=path.branch)
    return Head(epoch=epoch, version=0, line=path.branch, at=path.head)


def touched(rows: Iterable[LogRow], spans: Iterable[tuple[int, int]]) -> set[str]:
    """Return the ids of all rows, in view or not, that were made from one of these messages.

    Args:
        rows: Every row of the log.
        spans: `(thread, seq)` of each message that was edited or deleted.
    """
    places = list(spans)
    return {
        row.id
        for row in rows
        if any(s.thread == thread and s.after < seq <= s.upto for s in row.covers for thread, seq in places)
    }


def edited(state: LogState, stale: Collection[str]) -> Head | None:
    """Return the head after messages changed: stale rows leave the buffer with those behind them.

    A covered message stays covered: its row keeps its place in the log and is only marked.
    """
    if not stale:
        return None
    buffered = state.head.buffered
    first = next((n for n, i in enumerate(buffered) if i in stale), len(buffered))
    pending = None if state.head.pending in stale else state.head.pending
    return _next(state, buffered=buffered[:first], pending=pending)


def without_thread(state: LogState, thread: int, epoch: str) -> tuple[Head, set[str]]:
    """Return the head of a new epoch without a thread, and the ids of the rows that go.

    Its rows go, and every reflection made from any of them; the inputs of the others return, in their order.
    """
    own = {row.id for row in state.rows.values() if not row.is_reflection and row.covers[0].thread == thread}
    gone = own | {i for i, row in state.rows.items() if row.is_reflection and own & made_from(state.rows, [i])}
    log = tuple(row.id for i in state.head.log for row in _surviving(state.rows, i, gone))
    buffered = tuple(i for i in state.head.buffered if i not in gone)
    pending = None if state.head.pending in gone else state.head.pending
    head = replace(state.head, epoch=epoch, version=state.head.version + 1, log=log, buffered=buffered, pending=pending)
    return head, gone


def copied(rows: Sequence[LogRow], ids: Mapping[str, str], *, source: int, thread: int, branch: int) -> list[LogRow]:
    """Return rows as they are in a clone that keeps the seq numbers: only ids, thread and branch change."""
    return [
        replace(
            row,
            id=ids[row.id],
            inputs=tuple(ids[i] for i in row.inputs),
            covers=tuple(
                Span(thread, branch, span.after, span.upto) if span.thread == source else span for span in row.covers
            ),
        )
        for row in rows
    ]


def base_rows(state: LogState, thread: int) -> list[LogRow]:
    """Return the observations of one thread that the log stands for, without reflections, oldest first."""
    found: list[LogRow] = []

    def visit(row_id: str) -> None:
        row = state.rows[row_id]
        if row.is_reflection:
            for source in row.inputs:
                visit(source)
        elif row.covers[0].thread == thread:
            found.append(row)

    for row_id in state.head.log:
        visit(row_id)
    return found


def appended(state: LogState, rows: Sequence[LogRow]) -> Head | None:
    """Return the head with another thread's rows at the end of the log: a clone or a transfer in resource scope."""
    return _next(state, log=(*state.head.log, *(row.id for row in rows))) if rows else None


def reobserved(state: LogState, row: LogRow, replaces: str) -> Head | Refused:
    """Return the head with a row in place of a stale one of the same range; reflections made from it open up."""
    old = state.rows.get(replaces)
    if old is None:
        return Refused("gone")
    log: list[str] = []
    for i in state.head.log:
        opened = replaces == i or replaces in made_from(state.rows, [i])
        log += [row.id if j == replaces else j for j in (_opened(state.rows, i, replaces) if opened else [i])]
    if row.id not in log:
        return Refused("gone")
    pending = state.pending
    keep = pending is not None and replaces not in made_from(state.rows, [pending.id])
    return _next(state, log=tuple(log), pending=pending.id if pending is not None and keep else None)


# The conditions of a commit, one function each: tests break them one by one and must notice.


def same_epoch(state: LogState, epoch: str) -> bool:
    """(a) The log was not cleared, deleted or made anew since the call was planned."""
    return state.head.epoch == epoch


def joins(state: LogState, span: Span) -> bool:
    """(b) The range starts where the log and the buffer of its thread end now."""
    return state.buffered_to(span.thread) == span.after


def same_messages(given: Digest, messages: Iterable[MessageFact]) -> bool:
    """(c) The range holds now what the model was given, revision by revision."""
    return digest(messages) == given


def ends_legally(behind: Sequence[MessageFact], span: Span, *, in_loop: bool) -> bool:
    """(d) The last message of the range still ends a unit outside the running turn."""
    return is_legal_end(behind, span.upto, in_loop=in_loop)


def same_version(read: tuple[str, int], newest: tuple[str, int]) -> bool:
    """(e) The newest head is the (epoch, version) that was read; a version means nothing in another epoch."""
    return read == newest


def same_lines(read: Mapping[int, Path], now: Mapping[int, Path]) -> bool:
    """(e) No thread of the log has moved to another line since the head was read; growing on its line is no move."""
    return all(
        key in now and now[key].branch == path.branch and now[key].steps[:-1] == path.steps[:-1]
        for key, path in read.items()
    )


def as_committed(state: LogState, row: LogRow) -> LogRow:
    """Return a reflection marked stale if one of its inputs is stale by now."""
    return replace(row, stale=any(state.rows[i].stale for i in row.inputs if i in state.rows))


def is_prefix(state: LogState, row: LogRow) -> bool:
    """Tell whether a reflection's inputs are the first rows of the log."""
    return bool(row.inputs) and state.head.log[: len(row.inputs)] == row.inputs


def reflection_of(rows: Sequence[LogRow], row: LogRow) -> LogRow:
    """Return a reflection row with the inputs and the spans of the rows that it condenses."""
    return replace(
        row,
        inputs=tuple(source.id for source in rows),
        covers=union(rows),
        message_tokens=sum(source.message_tokens for source in rows),
        messages=sum(source.messages for source in rows),
        first_at=next((r.first_at for r in rows if r.first_at is not None), None),
        last_at=next((r.last_at for r in reversed(rows) if r.last_at is not None), None),
        stale=any(source.stale for source in rows),
        generation=1 + max((source.generation for source in rows), default=0),
    )


def _next(
    state: LogState,
    *,
    log: tuple[str, ...] | None = None,
    buffered: tuple[str, ...] | None = None,
    pending: str | Literal[False] | None = False,
) -> Head:
    head = state.head
    path = next(iter(state.paths.values())) if len(state.paths) == 1 else None
    return replace(
        head,
        version=head.version + 1,
        at=max(head.at, path.head) if path is not None else head.at,
        log=head.log if log is None else log,
        buffered=head.buffered if buffered is None else buffered,
        pending=head.pending if pending is False else pending,
    )


def _replaced(state: LogState, row: LogRow) -> Head:
    return _next(state, log=(row.id, *state.head.log[len(row.inputs) :]), pending=None)


def _shown(state: LogState, row: LogRow) -> bool:
    """A row is visible exactly where its last message is, in every thread that it covers."""
    return all(
        span.thread in state.paths and state.paths[span.thread].shows(span.branch, span.upto) for span in row.covers
    )


def _visible(state: LogState, row_id: str) -> list[LogRow]:
    row = state.rows.get(row_id)
    if row is None:
        return []
    if _shown(state, row):
        return [row]
    return [found for source in row.inputs for found in _visible(state, source)]


def _surviving(rows: Mapping[str, LogRow], row_id: str, gone: set[str]) -> list[LogRow]:
    row = rows.get(row_id)
    if row is None:
        return []
    if row_id not in gone:
        return [row]
    return [found for source in row.inputs for found in _surviving(rows, source, gone)]


def _opened(rows: Mapping[str, LogRow], row_id: str, target: str) -> list[str]:
    if row_id == target or target not in made_from(rows, [row_id]):
        return [row_id]
    return [found for source in rows[row_id].inputs for found in _opened(rows, source, target)]


def _reaches(rows: Iterable[LogRow], base: Mapping[int, int] | None = None) -> dict[int, int]:
    reach = dict(base or {})
    for row in rows:
        for span in row.covers:
            reach[span.thread] = max(reach.get(span.thread, START), span.upto)
    return reach


def _joined(rows: Iterable[LogRow], base: Mapping[int, int]) -> list[LogRow]:
    """Keep rows while each starts where its threads' last one ended; a gap ends a thread, not the others."""
    reach, kept = dict(base), []
    broken: set[int] = set()
    for row in rows:
        threads = {span.thread for span in row.covers}
        if threads & broken or any(span.after != reach.get(span.thread, START) for span in row.covers):
            broken |= threads
            continue
        kept.append(row)
        reach.update({span.thread: span.upto for span in row.covers})
    return kept


def _rejoining(state: LogState, named: set[str], reach: Mapping[int, int]) -> list[LogRow]:
    """Find the visible observations that continue each thread, made on this line of it and named by no list."""
    reach, found = dict(reach), []
    used = named | made_from(state.rows, named)
    candidates = sorted(
        (
            row
            for row in state.rows.values()
            if not row.is_reflection and not row.stale and row.id not in used and _shown(state, row)
        ),
        key=lambda row: (row.covers[0].thread, row.covers[0].after, -row.covers[0].upto, row.created_at, row.id),
    )
    for row in candidates:
        span = row.covers[0]
        if span.after == reach.get(span.thread, START):
            found.append(row)
            reach[span.thread] = span.upto
    return found
