"""Rows and heads of the observation log: from the tables to plain data and back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import sqlalchemy as sa

from langchain_mastra_memory.observation import transitions
from langchain_mastra_memory.observation.log import START, Head, Hints, LogRow, LogState, Path, Span
from langchain_mastra_memory.store.operations.log import LogAddress, LogThread, LogView, RawMessage
from langchain_mastra_memory.store.sql.locking import ThreadRow
from langchain_mastra_memory.store.sql.schema import messages
from langchain_mastra_memory.store.sql.tables_log import log_heads, log_rows, log_spans, logs
from langchain_mastra_memory.store.sql.tx import Tx, any_of, insert_row
from langchain_mastra_memory.store.sql.values import dump_json, load_json
from langchain_mastra_memory.store.sql.view import ViewStatements, path_of

_ROW_NAMES: Final = (
    "id", "inputs", "text", "tokens", "message_tokens", "messages", "hints", "extracted", "first_at", "last_at",
    "model", "origin", "stale", "created_at",
)  # fmt: skip
_ROW: Final = tuple(log_rows.c[name] for name in _ROW_NAMES)
_IN_LOG = log_rows.c.log == sa.bindparam("log_key")

_ROWS = sa.select(*_ROW).where(_IN_LOG, any_of(log_rows.c.id, "ids"))
_ALL_ROWS = sa.select(*_ROW).where(_IN_LOG)
_REJOINING = (
    sa.select(*_ROW)
    .join(log_spans, log_spans.c.row_id == log_rows.c.id)
    .where(
        _IN_LOG,
        log_rows.c.inputs == "[]",
        any_of(log_spans.c.thread, "threads"),
        log_spans.c.upto > sa.bindparam("reach", type_=sa.BigInteger),
    )
)
_SPANS = (
    sa.select(log_spans.c.row_id, log_spans.c.thread, log_spans.c.branch, log_spans.c.after_seq, log_spans.c.upto)
    .where(any_of(log_spans.c.row_id, "ids"))
    .order_by(log_spans.c.row_id, log_spans.c.thread)
)
_LOG = sa.select(logs.c.key, logs.c.scope, logs.c.epoch, logs.c.version, logs.c.refused).where(
    logs.c.scope == sa.bindparam("wanted")
)
_LOCK_LOG = _LOG.with_for_update()
_HEAD = (
    sa.select(log_heads.c.version, log_heads.c.line, log_heads.c.at_seq, log_heads.c.names)
    .where(
        log_heads.c.log == sa.bindparam("log_key"),
        log_heads.c.line == sa.bindparam("line_no"),
        log_heads.c.at_seq <= sa.bindparam("last"),
    )
    .order_by(log_heads.c.version.desc())
    .limit(1)
)
_NEWEST = (
    sa.select(log_heads.c.version, log_heads.c.line, log_heads.c.at_seq, log_heads.c.names)
    .where(log_heads.c.log == sa.bindparam("log_key"))
    .order_by(log_heads.c.version.desc())
    .limit(1)
)
_INSERT_ROW = insert_row(log_rows, "log", *_ROW_NAMES, "terms")
_INSERT_SPAN = insert_row(log_spans, "row_id", "thread", "branch", "after_seq", "upto")
_INSERT_HEAD = insert_row(log_heads, "log", "version", "line", "at_seq", "names", "created_at")
_SET_VERSION = (
    sa.update(logs)
    .where(logs.c.key == sa.bindparam("log_key"))
    .values(version=sa.bindparam("new_version", type_=sa.BigInteger), epoch=sa.bindparam("new_epoch"))
)
_DROP_OLDER = sa.delete(log_heads).where(
    log_heads.c.log == sa.bindparam("log_key"), log_heads.c.version < sa.bindparam("newest")
)
_RAW = ViewStatements(
    lambda in_view: (
        sa.select(
            messages.c.id,
            messages.c.seq,
            messages.c.branch,
            messages.c.kind,
            messages.c.role,
            messages.c.tokens,
            messages.c.revision,
            messages.c.created_at,
            messages.c.body,
        )
        .where(
            messages.c.thread == sa.bindparam("thread_key"),
            messages.c.seq > sa.bindparam("behind", type_=sa.BigInteger),
            sa.or_(messages.c.kind.is_(None), messages.c.kind != "refused"),
            in_view,
        )
        .order_by(messages.c.seq)
    )
)
_END = sa.select(sa.func.max(messages.c.seq)).where(
    messages.c.thread == sa.bindparam("thread_key"), messages.c.branch == sa.bindparam("branch_no")
)
_SPOKEN_BEHIND = (
    sa.select(messages.c.seq)
    .where(
        messages.c.thread == sa.bindparam("thread_key"),
        messages.c.branch == sa.bindparam("branch_no"),
        messages.c.seq > sa.bindparam("behind", type_=sa.BigInteger),
        messages.c.kind.is_(None),
        messages.c.outside == 0,
    )
    .limit(1)
)


@dataclass(frozen=True, slots=True)
class LogRecord:
    """A row of `mastra_logs`."""

    key: int
    scope: str
    epoch: str
    version: int
    refused: int | None


def scope_of(address: LogAddress, thread: ThreadRow | None) -> str:
    """Return the name of a log: that of a thread, by its key, or that of a resource, by its id."""
    if address.scope == "thread":
        if thread is None:
            raise ValueError("a log of thread scope needs a thread")
        return thread_scope(thread.key)
    owner = thread.resource_id if thread is not None and thread.resource_id is not None else address.resource_id
    if owner is None:
        raise ValueError("a log of resource scope needs a resource")
    return resource_scope(owner)


def thread_scope(key: int) -> str:
    """Return the name of a thread's log."""
    return f"t:{key}"


def resource_scope(resource_id: str) -> str:
    """Return the name of a resource's log."""
    return f"r:{resource_id}"


def find_log(tx: Tx, scope: str, *, lock: bool = False) -> LogRecord | None:
    """Return a log's record, or None; with `lock`, nobody else writes a head until the transaction ends."""
    row = tx.first(_LOCK_LOG if lock else _LOG, {"wanted": scope})
    return None if row is None else LogRecord(*row)


def line_path(tx: Tx, thread: ThreadRow, position: tuple[int, int] | None, *, exact: bool = False) -> tuple[Path, bool]:
    """Return the view of a position, and whether it is the end of its branch, so that a head may be written.

    A position that was found by the messages of a state ends before rows that no state has (markers, imports); they
    belong to its view.
    """
    branch, head = position or (thread.branch, thread.head)
    end = tx.value(_END, {"thread_key": thread.key, "branch_no": branch})
    if end is not None and head < end and not exact:
        behind = {"thread_key": thread.key, "branch_no": branch, "behind": head}
        if tx.first(_SPOKEN_BEHIND, behind) is None:
            head = int(end)
    return Path(thread.key, path_of(tx, thread.key, branch, head)), end is None or head >= end


def load_raw(tx: Tx, path: Path, behind: int) -> tuple[RawMessage, ...]:
    """Return the messages of a view with `seq > behind`, oldest first, refused ones excepted."""
    statement, params = _RAW(path.steps)
    return tuple(
        RawMessage(
            id=i, seq=seq, branch=branch, kind=kind, role=role, tokens=size, revision=revision, created_at=at, body=body
        )
        for i, seq, branch, kind, role, size, revision, at, body in tx.all(
            statement, {"thread_key": path.thread, "behind": behind, **params}
        )
    )


def raw_since(tx: Tx, thread: ThreadRow, path: Path, behind: int, known: LogThread | None) -> tuple[RawMessage, ...]:
    """Return what `load_raw` returns, but read only what is not known.

    A change of a message moves a counter of its thread, and so does a refused one that becomes an ordinary one: while
    epoch and counters are the same, only what stands behind the known view can be new.
    """
    if known is None or path.thread != known.path.thread or known.counters is None:
        return load_raw(tx, path, behind) if path.head > behind else ()
    if known.counters == counters_of(thread) and path.continues(known.path) and known.behind <= behind:
        kept = tuple(message for message in known.raw if message.seq > behind)
        return (*kept, *load_raw(tx, path, max(known.path.head, behind))) if path.head > known.path.head else kept
    # The same row: what was decoded of it need not be decoded again.
    rows = {(message.seq, message.branch): message for message in known.raw}
    found = load_raw(tx, path, behind) if path.head > behind else ()
    return tuple(old if (old := rows.get((new.seq, new.branch))) == new else new for new in found)


def counters_of(thread: ThreadRow) -> tuple[int, int, int]:
    """Return what moves when a message of a thread changes."""
    return thread.epoch, thread.texts, thread.edits


def load_state(
    tx: Tx, log: LogRecord | None, paths: Mapping[int, Path], line: Path | None, *, movable: bool, whole: bool = False
) -> LogState:
    """Return the settled state of a log.

    Args:
        tx: A transaction.
        log: Its record; None for a log that was never written.
        paths: The views of its threads.
        line: In thread scope, the view whose line counts; None in resource scope.
        movable: Whether a head may be written at these positions.
        whole: Whether every row is loaded.
    """
    head, rows = load_rows(tx, log, paths, line, whole=whole)
    return transitions.settle(LogState(head=head, rows=rows, paths=paths, movable=movable))


def load_rows(
    tx: Tx,
    log: LogRecord | None,
    paths: Mapping[int, Path],
    line: Path | None,
    known: LogView | None = None,
    *,
    whole: bool = False,
) -> tuple[Head, Mapping[str, LogRow]]:
    """Return the head of a log as it was written, with the rows that settling it needs.

    Args:
        tx: A transaction.
        log: Its record; None for a log that was never written.
        paths: The views of its threads.
        line: In thread scope, the view whose line counts; None in resource scope.
        known: A view that was read before. Whatever writes, marks or removes a row moves the version of its log, so
            its rows hold while the head is the same and no path has left what it showed.
        whole: Whether every row is loaded.
    """
    if log is None:
        return Head(epoch="", version=0, line=line.branch if line else 0, at=line.head if line else 0), {}
    head = _load_head(tx, log, line)
    if known is not None and not whole and head == known.loaded and _continue(paths, known.state.paths):
        return head, known.state.rows
    named = [*head.log, *head.buffered, *([head.pending] if head.pending else [])]
    rows = _load(tx, tx.all(_ROWS, {"log_key": log.key, "ids": named})) if named else {}
    shown = all(
        span.thread in paths and paths[span.thread].shows(span.branch, span.upto)
        for row in rows.values()
        for span in row.covers
    )
    if whole or not shown or len(rows) < len(named) or any(row.origin for row in rows.values()):
        return head, load_all(tx, log)
    reach: dict[int, int] = {}
    for row in rows.values():
        for span in row.covers:
            reach[span.thread] = max(reach.get(span.thread, START), span.upto)
    lowest = min((reach.get(thread, START) for thread in paths), default=START)
    more = tx.all(_REJOINING, {"log_key": log.key, "threads": list(paths), "reach": lowest}) if paths else []
    return head, rows | _load(tx, [row for row in more if row[0] not in rows])


def _continue(paths: Mapping[int, Path], known: Mapping[int, Path]) -> bool:
    """Tell whether these are the known paths, perhaps with more at their ends."""
    return paths.keys() == known.keys() and all(path.continues(known[key]) for key, path in paths.items())


def load_all(tx: Tx, log: LogRecord) -> dict[str, LogRow]:
    """Return every row of a log."""
    return _load(tx, tx.all(_ALL_ROWS, {"log_key": log.key}))


def _load_head(tx: Tx, log: LogRecord, line: Path | None) -> Head:
    found: list[Head] = []
    if line is None:
        row = tx.first(_NEWEST, {"log_key": log.key})
        found = [_head(log, row)] if row else []
        head = found[0] if found else Head(epoch=log.epoch, version=0)
    else:
        for branch, last in reversed(line.steps):
            row = tx.first(_HEAD, {"log_key": log.key, "line_no": branch, "last": last})
            if row is not None:
                found = [_head(log, row)]
                break
        head = transitions.head_for(found, line, log.epoch)
    return replace(head, epoch=log.epoch, version=log.version)


def _head(log: LogRecord, row: Sequence[Any]) -> Head:
    version, line, at, names = row
    named = json.loads(names)
    return Head(
        epoch=log.epoch,
        version=version,
        line=line,
        at=at,
        log=tuple(named["log"]),
        buffered=tuple(named["buffered"]),
        pending=named["pending"],
    )


def _load(tx: Tx, found: Sequence[Sequence[Any]]) -> dict[str, LogRow]:
    if not found:
        return {}
    spans: dict[str, list[Span]] = {}
    for row_id, thread, branch, after, upto in tx.all(_SPANS, {"ids": [row[0] for row in found]}):
        spans.setdefault(row_id, []).append(Span(thread, branch, after, upto))
    rows = {}
    for (
        row_id,
        inputs,
        text,
        tokens,
        message_tokens,
        count,
        hints,
        extracted,
        first,
        last,
        model,
        origin,
        stale,
        at,
    ) in found:
        said = load_json(hints)
        rows[row_id] = LogRow(
            id=row_id,
            covers=tuple(spans.get(row_id, ())),
            inputs=tuple(json.loads(inputs)),
            text=text,
            tokens=tokens,
            message_tokens=message_tokens,
            messages=count,
            hints=Hints(said.get("task"), said.get("response"), said.get("title")),
            hinted=bool(said.get("asked")),
            extracted=load_json(extracted),
            first_at=first,
            last_at=last,
            created_at=at,
            model=model,
            origin=origin,
            stale=bool(stale),
            generation=int(said.get("generation") or 0),
        )
    return rows


def write_rows(tx: Tx, log_key: int, rows: Iterable[LogRow], terms: Mapping[str, bytes]) -> None:
    """Insert rows with their spans."""
    rows = list(rows)
    tx.run_many(
        _INSERT_ROW,
        [
            {
                "log": log_key,
                "id": row.id,
                "inputs": dump_json(list(row.inputs)),
                "text": row.text,
                "tokens": row.tokens,
                "message_tokens": row.message_tokens,
                "messages": row.messages,
                "hints": dump_json(
                    {
                        "task": row.hints.current_task,
                        "response": row.hints.suggested_response,
                        "title": row.hints.thread_title,
                        "asked": row.hinted,
                        "generation": row.generation,
                    }
                ),
                "extracted": dump_json(dict(row.extracted)),
                "first_at": row.first_at,
                "last_at": row.last_at,
                "model": row.model,
                "origin": row.origin,
                "stale": int(row.stale),
                "created_at": row.created_at or tx.now,
                "terms": terms.get(row.id),
            }
            for row in rows
        ],
    )
    tx.run_many(
        _INSERT_SPAN,
        [
            {"row_id": row.id, "thread": s.thread, "branch": s.branch, "after_seq": s.after, "upto": s.upto}
            for row in rows
            for s in row.covers
        ],
    )


def write_head(tx: Tx, log: LogRecord, head: Head) -> None:
    """Insert a head and make it the newest; the log's record is locked by the caller."""
    names = {"log": list(head.log), "buffered": list(head.buffered), "pending": head.pending}
    tx.run(
        _INSERT_HEAD,
        {
            "log": log.key,
            "version": head.version,
            "line": head.line,
            "at_seq": head.at,
            "names": dump_json(names),
            "created_at": tx.now,
        },
    )
    tx.run(_SET_VERSION, {"log_key": log.key, "new_version": head.version, "new_epoch": head.epoch})
    if log.scope.startswith("r:"):
        tx.run(_DROP_OLDER, {"log_key": log.key, "newest": head.version})
