"""The observation log in SQL: one function for each operation.

Locks are taken in one order everywhere, threads before the log, so that a commit and an edit wait for each other
instead of missing each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import sqlalchemy as sa

from langchain_mastra_memory.errors import MissingResourceError
from langchain_mastra_memory.ids import new_id
from langchain_mastra_memory.observation import transitions
from langchain_mastra_memory.observation.log import START, LogState, Path
from langchain_mastra_memory.observation.transitions import Refused
from langchain_mastra_memory.store.operations.log import (
    CallRecord,
    ClaimLog,
    CommitLog,
    FoundGroup,
    ListCalls,
    ListGroups,
    LogAddress,
    LogThread,
    LogView,
    OpenLog,
    RangeMessages,
    RawMessage,
    ReadLog,
    RecordCalls,
    ReleaseLog,
)
from langchain_mastra_memory.store.sql.locking import COLUMNS, ThreadRow, lock_thread, read_thread
from langchain_mastra_memory.store.sql.log_rows import (
    counters_of,
    find_log,
    line_path,
    load_raw,
    load_rows,
    load_state,
    raw_since,
    resource_scope,
    scope_of,
    thread_scope,
    write_head,
    write_rows,
)
from langchain_mastra_memory.store.sql.positions import position_at
from langchain_mastra_memory.store.sql.registry import handles
from langchain_mastra_memory.store.sql.schema import messages, threads
from langchain_mastra_memory.store.sql.tables_log import log_calls, log_claims, log_rows, logs
from langchain_mastra_memory.store.sql.tx import Tx, any_of, insert_row, upsert
from langchain_mastra_memory.store.sql.values import dump_json, load_json
from langchain_mastra_memory.store.sql.view import ViewStatements, in_path, path_of

_SECOND: Final = 1_000_000

_OF_RESOURCE = sa.select(*COLUMNS).where(threads.c.resource_id == sa.bindparam("owner")).order_by(threads.c.key)
_END = sa.select(sa.func.max(messages.c.seq)).where(
    messages.c.thread == sa.bindparam("thread_key"), messages.c.branch == sa.bindparam("branch_no")
)
_PLACES = sa.select(messages.c.id, messages.c.seq, messages.c.branch).where(
    messages.c.thread == sa.bindparam("thread_key"), any_of(messages.c.id, "ids")
)
_METADATA = sa.select(threads.c.metadata).where(threads.c.key == sa.bindparam("thread_key"))
_SET_METADATA = (
    sa.update(threads)
    .where(threads.c.key == sa.bindparam("thread_key"))
    .values(metadata=sa.bindparam("new_metadata", type_=sa.Text))
)
_SET_TITLE = (
    sa.update(threads)
    .where(
        threads.c.key == sa.bindparam("thread_key"),
        sa.or_(threads.c.titled_by.is_(None), threads.c.titled_by != "person"),
    )
    .values(title=sa.bindparam("new_title", type_=sa.Text), titled_by="model")
)
_CLAIM = sa.select(log_claims.c.owner, log_claims.c.expires_at).where(
    log_claims.c.log == sa.bindparam("log_key"),
    log_claims.c.line == sa.bindparam("line_no"),
    log_claims.c.phase == sa.bindparam("what"),
)
_TAKE = upsert(log_claims, ["log", "line", "phase"], ["owner", "expires_at"])
_RELEASE = sa.delete(log_claims).where(
    log_claims.c.log == sa.bindparam("log_key"),
    log_claims.c.line == sa.bindparam("line_no"),
    log_claims.c.phase == sa.bindparam("what"),
    log_claims.c.owner == sa.bindparam("whose"),
)
_RECORD = insert_row(
    log_calls,
    "log",
    "phase",
    "outcome",
    "model",
    "input_tokens",
    "output_tokens",
    "total_tokens",
    "duration_ms",
    "details",
    "created_at",
)
_REFUSED = (
    sa.update(logs)
    .where(logs.c.key == sa.bindparam("log_key"))
    .values(refused=sa.bindparam("size", type_=sa.BigInteger))
)
_CALLS = (
    sa.select(
        log_calls.c.phase,
        log_calls.c.outcome,
        log_calls.c.model,
        log_calls.c.input_tokens,
        log_calls.c.output_tokens,
        log_calls.c.total_tokens,
        log_calls.c.duration_ms,
        log_calls.c.details,
        log_calls.c.created_at,
        threads.c.id,
    )
    .select_from(log_calls.join(logs, logs.c.key == log_calls.c.log).outerjoin(threads, threads.c.key == logs.c.thread))
    .where(
        sa.or_(
            logs.c.scope == sa.bindparam("scope_name"),
            sa.and_(threads.c.resource_id == sa.bindparam("owner"), sa.bindparam("whole", type_=sa.BigInteger) == 1),
        )
    )
    .order_by(log_calls.c.key)
)
_TERMS = sa.select(log_rows.c.id, log_rows.c.terms).where(any_of(log_rows.c.id, "ids"))


def _edge(order: Any) -> ViewStatements:
    return ViewStatements(
        lambda in_view: (
            sa.select(messages.c.id)
            .where(
                messages.c.thread == sa.bindparam("thread_key"),
                messages.c.seq > sa.bindparam("after_seq", type_=sa.BigInteger),
                messages.c.seq <= sa.bindparam("upto_seq", type_=sa.BigInteger),
                messages.c.kind.is_(None),
                in_view,
            )
            .order_by(order(messages.c.seq))
            .limit(1)
        )
    )


_FIRST, _LAST = _edge(sa.asc), _edge(sa.desc)


def _owner(address: LogAddress, thread: ThreadRow | None) -> str:
    owner = (thread.resource_id if thread is not None else None) or address.resource_id
    if owner is None:
        raise MissingResourceError(
            "observations of resource scope need a resource id: pass it in the run's context or in "
            '`configurable["resource_id"]`'
        )
    return owner


def threads_of(tx: Tx, resource_id: str) -> list[ThreadRow]:
    """Return the threads of a resource."""
    return [ThreadRow(*row) for row in tx.all(_OF_RESOURCE, {"owner": resource_id})]


@handles(ReadLog)
def read_log(tx: Tx, op: ReadLog) -> LogView:
    """Read a log with the raw messages behind it, at one moment of the database."""
    address = op.address
    thread = None if address.thread_id is None else read_thread(tx, address.thread_id, address.resource_id)
    if thread is None and address.scope == "thread":
        raise ValueError("a log of thread scope needs a thread")
    position, exact = address.position, False
    if thread is not None and address.checkpoint_id is not None:
        position, exact = position_at(tx, thread, address.checkpoint_id), True
    located: dict[str, int] = {}
    if thread is not None and address.ids:
        position, located = _newest_of(tx, thread, position, address.ids)
    movable = True
    paths: dict[int, Path] = {}
    rows: dict[int, ThreadRow] = {}
    if thread is not None:
        rows[thread.key] = thread
        paths[thread.key], movable = line_path(tx, thread, position, exact=exact)
    owner = thread.resource_id if thread is not None else address.resource_id
    if address.scope == "resource":
        owner = _owner(address, thread)
        for other in threads_of(tx, owner):
            if other.key not in paths:
                rows[other.key] = other
                paths[other.key] = Path(other.key, path_of(tx, other.key, other.branch, other.head))
    scope = thread_scope(thread.key) if address.scope == "thread" and thread else resource_scope(owner or "")
    log = find_log(tx, scope)
    line = paths[thread.key] if address.scope == "thread" and thread else None
    head, named = load_rows(tx, log, paths, line, op.known, whole=address.whole)
    state = transitions.settle(LogState(head=head, rows=named, paths=paths, movable=movable))
    before = op.known.threads if op.known is not None else {}
    found = {}
    for key, row in rows.items():
        cursor = START if op.covered else state.cursor(key)
        found[key] = LogThread(
            key=key,
            id=row.id,
            title=row.title,
            metadata=load_json(row.metadata),
            path=paths[key],
            raw=raw_since(tx, row, paths[key], cursor, before.get(key)),
            counters=counters_of(row),
            behind=cursor,
        )
    return LogView(
        state=state,
        threads=found,
        current=thread.key if thread is not None else 0,
        resource_id=owner,
        opened=log is not None,
        located=located,
        refused=log.refused if log is not None else None,
        loaded=head,
    )


@handles(RangeMessages)
def range_messages(tx: Tx, op: RangeMessages) -> list[RawMessage]:
    """Read the messages of a span."""
    thread = read_thread(tx, op.address.thread_id or "", op.address.resource_id)
    path, _ = line_path(tx, thread, op.address.position)
    return [raw for raw in load_raw(tx, path, op.span.after) if raw.seq <= op.span.upto]


def _newest_of(
    tx: Tx, thread: ThreadRow, position: tuple[int, int] | None, ids: tuple[str, ...]
) -> tuple[tuple[int, int] | None, dict[str, int]]:
    """Move a position to the newest of a run's own messages that are archived by now, on whichever branch they are."""
    found = [
        (int(seq), int(branch), i) for i, seq, branch in tx.all(_PLACES, {"thread_key": thread.key, "ids": list(ids)})
    ]
    if not found:
        return position, {}
    seq, branch, _ = max(found)
    if position is not None:
        path = path_of(tx, thread.key, branch, seq)
        if not in_path(path, position[0], min(position[1], seq)):
            return position, {}
        if seq <= position[1]:
            seq, branch = position[1], position[0]
    else:
        branch, seq = max((thread.branch, thread.head), (branch, seq))
    path = path_of(tx, thread.key, branch, seq)
    return (branch, seq), {i: at for at, on, i in found if in_path(path, on, at)}


def ensure_log(tx: Tx, scope: str, *, thread: int | None = None, resource_id: str | None = None) -> None:
    """Insert a log's record if it is missing."""
    tx.run(_OPEN_LOG, {
        "scope": scope, "thread": thread, "resource_id": resource_id, "epoch": new_id(), "version": 0,
        "refused": None, "created_at": tx.now,
    })  # fmt: skip


def _open_statement() -> sa.Insert:
    from sqlalchemy.dialects.postgresql import insert  # noqa: PLC0415 - SQLite reads the same SQL

    names = ("scope", "thread", "resource_id", "epoch", "version", "refused", "created_at")
    values = {name: sa.bindparam(name, type_=logs.c[name].type) for name in names}
    return insert(logs).values(values).on_conflict_do_nothing(index_elements=["scope"])


_OPEN_LOG = _open_statement()


@handles(OpenLog)
def open_log(tx: Tx, op: OpenLog) -> str:
    """Make sure that a log is there."""
    address = op.address
    thread = None if address.thread_id is None else lock_thread(tx, address.thread_id, address.resource_id, touch=False)
    if address.scope == "thread" and thread is not None:
        scope = thread_scope(thread.key)
        ensure_log(tx, scope, thread=thread.key)
    else:
        owner = _owner(address, thread)
        scope = resource_scope(owner)
        ensure_log(tx, scope, resource_id=owner)
    log = find_log(tx, scope)
    if log is None:
        raise ValueError(f"the log {scope!r} was not written")
    return log.epoch


@handles(CommitLog)
def commit_log(tx: Tx, op: CommitLog) -> bool | Refused:
    """Write a head under the conditions that only a transaction can judge: (c), (d), (e)."""
    now: dict[int, Path] = {}
    current = None
    if op.address.scope == "thread":
        current = lock_thread(tx, op.address.thread_id or "", op.address.resource_id, touch=False)
        scope = thread_scope(current.key)
        read = op.paths.get(current.key)
        end = tx.value(_END, {"thread_key": current.key, "branch_no": op.head.line})
        last = max(read.head if read else START, START if end is None else int(end))
        now[current.key] = Path(current.key, path_of(tx, current.key, op.head.line, last))
    else:
        owner = op.address.resource_id or ""
        written = {span.thread for row in op.rows if not row.is_reflection for span in row.covers}
        for thread in threads_of(tx, owner):
            row = lock_thread(tx, thread.id, owner, touch=False) if thread.key in written else thread
            now[row.key] = Path(row.key, path_of(tx, row.key, row.branch, row.head))
        scope = resource_scope(owner)
        for key, path in op.paths.items():
            if key in now and now[key].steps[:-1] == path.steps[:-1] and now[key].branch == path.branch:
                continue
            if op.address.position is not None:
                now[key] = path  # the run stands on a line of its own
    log = find_log(tx, scope, lock=True)
    if log is None:
        return Refused("epoch")
    if op.check is not None:
        refused = transitions.check_messages(op.check, _facts(tx, op, now))
        if refused is not None:
            return refused
    if not transitions.same_version(op.read, (log.epoch, log.version)):
        return False
    if not transitions.same_lines(op.paths, now):
        return False
    write_rows(tx, log.key, op.rows, op.terms)
    write_head(tx, log, op.head)
    _mirror(tx, op)
    return True


def _facts(tx: Tx, op: CommitLog, now: Mapping[int, Path]) -> transitions.Messages:
    assert op.check is not None  # noqa: S101 - judged by the caller
    return {
        row.covers[0].thread: [raw.fact for raw in load_raw(tx, now[row.covers[0].thread], row.covers[0].after)]
        for row in op.check.rows
        if row.covers[0].thread in now
    }


def _mirror(tx: Tx, op: CommitLog) -> None:
    for key, changes in op.mirror.items():
        metadata = load_json(tx.value(_METADATA, {"thread_key": key}))
        om = metadata.get("om")
        metadata["om"] = _changed(om if isinstance(om, dict) else {}, changes)
        tx.run(_SET_METADATA, {"thread_key": key, "new_metadata": dump_json(metadata)})
    for key, title in op.titles.items():
        tx.run(_SET_TITLE, {"thread_key": key, "new_title": title})


def _changed(om: dict[str, Any], changes: Any) -> dict[str, Any]:
    for path, value in changes:
        place = om
        for step in path[:-1]:
            inner = place.get(step)
            if not isinstance(inner, dict):
                inner = place[step] = {}
            place = inner
        if value is None:
            place.pop(path[-1], None)
        else:
            place[path[-1]] = value
    return om


@handles(ClaimLog)
def claim_log(tx: Tx, op: ClaimLog) -> bool:
    """Take a claim unless somebody else holds one that has not ended."""
    log = _log_at(tx, op.address, lock=True)
    if log is None:
        return True
    held = tx.first(_CLAIM, {"log_key": log, "line_no": op.line, "what": op.phase})
    if held is not None and held[0] != op.owner and held[1] > tx.now:
        return False
    expires = tx.now + round(op.seconds * _SECOND)
    tx.run(_TAKE, {"log": log, "line": op.line, "phase": op.phase, "owner": op.owner, "expires_at": expires})
    return True


@handles(ReleaseLog)
def release_log(tx: Tx, op: ReleaseLog) -> None:
    """End a claim."""
    log = _log_at(tx, op.address)
    if log is not None:
        tx.run(_RELEASE, {"log_key": log, "line_no": op.line, "what": op.phase, "whose": op.owner})


def _log_at(tx: Tx, address: LogAddress, *, lock: bool = False) -> int | None:
    from langchain_mastra_memory.store.sql.locking import find_thread  # noqa: PLC0415 - only here

    thread = None if address.thread_id is None else find_thread(tx, address.thread_id)
    if address.scope == "thread" and thread is None:
        return None
    log = find_log(tx, scope_of(address, thread), lock=lock)
    return None if log is None else log.key


@handles(RecordCalls)
def record_calls(tx: Tx, op: RecordCalls) -> None:
    """Keep what calls cost."""
    log = _log_at(tx, op.address)
    if log is None:
        return
    tx.run_many(
        _RECORD,
        [
            {
                "log": log,
                "phase": call.phase,
                "outcome": call.outcome,
                "model": call.model,
                "input_tokens": call.input_tokens,
                "output_tokens": call.output_tokens,
                "total_tokens": call.total_tokens,
                "duration_ms": call.duration_ms,
                "details": dump_json(dict(call.details)),
                "created_at": tx.now,
            }
            for call in op.calls
        ],
    )
    if op.refused is not None or op.reflected:
        tx.run(_REFUSED, {"log_key": log, "size": None if op.reflected else op.refused})


@handles(ListCalls)
def list_calls(tx: Tx, op: ListCalls) -> list[CallRecord]:
    """Return what calls cost."""
    if op.thread_id is not None:
        thread = read_thread(tx, op.thread_id, op.resource_id)
        params: dict[str, Any] = {"scope_name": thread_scope(thread.key), "owner": None, "whole": 0}
    else:
        params = {"scope_name": resource_scope(op.resource_id or ""), "owner": op.resource_id, "whole": 1}
    return [
        CallRecord(
            phase=phase,
            outcome=outcome,
            model=model,
            input_tokens=given,
            output_tokens=made,
            total_tokens=total,
            duration_ms=duration,
            details=load_json(details),
            created_at=at,
            thread_id=thread_id,
        )
        for phase, outcome, model, given, made, total, duration, details, at, thread_id in tx.all(_CALLS, params)
    ]


@handles(ListGroups)
def list_groups(tx: Tx, op: ListGroups) -> list[FoundGroup]:
    """Return the observations that the threads in question can see where they stand."""
    if op.thread_id is not None:
        rows = [read_thread(tx, op.thread_id, op.resource_id)]
    else:
        rows = threads_of(tx, op.resource_id or "")
    by_key = {row.key: row for row in rows}
    paths = {row.key: Path(row.key, path_of(tx, row.key, row.branch, row.head)) for row in rows}
    owners = {row.resource_id for row in rows if row.resource_id is not None}
    states = []
    if op.scope == "thread":
        for key, path in paths.items():
            states.append(load_state(tx, find_log(tx, thread_scope(key)), {key: path}, path, movable=True, whole=True))
    else:
        for owner in owners:
            whole = {r.key: Path(r.key, path_of(tx, r.key, r.branch, r.head)) for r in threads_of(tx, owner)}
            states.append(load_state(tx, find_log(tx, resource_scope(owner)), whole, None, movable=True, whole=True))
    groups = {}
    for state in states:
        for key in paths:
            named = [*transitions.base_rows(state, key), *(r for r in state.buffered if r.covers[0].thread == key)]
            groups.update({row.id: row for row in named if row.text or op.with_empty})
    terms = {i: bytes(blob) for i, blob in tx.all(_TERMS, {"ids": list(groups)}) if blob is not None} if groups else {}
    found = []
    for row in groups.values():
        span = row.covers[0]
        thread = by_key[span.thread]
        place = {"thread_key": span.thread, "after_seq": span.after, "upto_seq": span.upto}
        edges = []
        for statements in (_FIRST, _LAST):
            statement, params = statements(paths[span.thread].steps)
            edges.append(tx.value(statement, {**place, **params}))
        found.append(
            FoundGroup(
                row=row,
                terms=terms.get(row.id, b""),
                thread_id=thread.id,
                title=thread.title,
                updated_at=thread.updated_at,
                first_id=edges[0],
                last_id=edges[1],
            )
        )
    return found
