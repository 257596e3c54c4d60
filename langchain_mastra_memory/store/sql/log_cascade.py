"""What the observation log does when messages and threads change, in the same transaction."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import replace

import sqlalchemy as sa

from langchain_mastra_memory.ids import new_id
from langchain_mastra_memory.observation import transitions
from langchain_mastra_memory.observation.log import Head, LogRow, LogState, Path, made_from
from langchain_mastra_memory.store.sql.cascade import (
    Features,
    RemovedRow,
    ThreadCopy,
    WrittenRow,
    on_messages_deleted,
    on_messages_edited,
    on_resource_deleted,
    on_thread_cleared,
    on_thread_copied,
    on_thread_deleted,
    on_thread_transferred,
)
from langchain_mastra_memory.store.sql.locking import ThreadRow
from langchain_mastra_memory.store.sql.log import ensure_log, threads_of
from langchain_mastra_memory.store.sql.log_rows import (
    LogRecord,
    find_log,
    line_path,
    load_all,
    load_state,
    resource_scope,
    thread_scope,
    write_head,
    write_rows,
)
from langchain_mastra_memory.store.sql.tables_log import log_heads, log_rows, log_spans, logs
from langchain_mastra_memory.store.sql.tx import Tx, any_of
from langchain_mastra_memory.store.sql.view import path_of

_TOUCHED = (
    sa.select(log_spans.c.row_id)
    .join(log_rows, log_rows.c.id == log_spans.c.row_id)
    .where(
        log_rows.c.log == sa.bindparam("log_key"),
        log_spans.c.thread == sa.bindparam("thread_key"),
        log_spans.c.after_seq < sa.bindparam("last", type_=sa.BigInteger),
        log_spans.c.upto >= sa.bindparam("first", type_=sa.BigInteger),
    )
)
_MARK = sa.update(log_rows).where(any_of(log_rows.c.id, "ids")).values(stale=1)
_DROP_ROWS = sa.delete(log_rows).where(any_of(log_rows.c.id, "ids"))
_DROP_ALL_ROWS = sa.delete(log_rows).where(log_rows.c.log == sa.bindparam("log_key"))
_DROP_HEADS = sa.delete(log_heads).where(log_heads.c.log == sa.bindparam("log_key"))
_DROP_LOG = sa.delete(logs).where(logs.c.key == sa.bindparam("log_key"))
_BUMP = sa.update(logs).where(logs.c.key == sa.bindparam("log_key")).values(version=logs.c.version + 1)
_RENEW = (
    sa.update(logs)
    .where(logs.c.key == sa.bindparam("log_key"))
    .values(epoch=sa.bindparam("new_epoch"), version=0, refused=None)
)


def new_row_id() -> str:
    """Return the random id of a row: 16 characters, since models read and repeat it."""
    return secrets.token_hex(8)


@on_messages_edited
def mark_edited(tx: Tx, thread: ThreadRow, rows: Sequence[WrittenRow], features: Features) -> None:
    """Mark what was made from messages that changed."""
    del features
    _changed(tx, thread, [row.seq for row in rows])


@on_messages_deleted
def mark_deleted(tx: Tx, thread: ThreadRow, rows: Sequence[RemovedRow]) -> None:
    """Mark what was made from messages that go."""
    _changed(tx, thread, [row.seq for row in rows])


def _changed(tx: Tx, thread: ThreadRow, seqs: Sequence[int]) -> None:
    for log in _logs_of(tx, thread):
        _mark(tx, thread, log, seqs)


def _mark(tx: Tx, thread: ThreadRow, log: LogRecord, seqs: Sequence[int]) -> None:
    around = {"log_key": log.key, "thread_key": thread.key, "first": min(seqs), "last": max(seqs)}
    near = [row_id for (row_id,) in tx.all(_TOUCHED, around)]
    if not near:
        return
    rows = load_all(tx, log)
    stale = transitions.touched((rows[i] for i in near), [(thread.key, seq) for seq in seqs])
    if not stale:
        return
    state = _state(tx, log, thread)
    tx.run(_MARK, {"ids": sorted(stale)})
    head = transitions.edited(state, stale)
    if head is None:
        return
    if state.movable:
        write_head(tx, log, head)
    else:  # no head may be written here, but whoever read the newest one must notice
        tx.run(_BUMP, {"log_key": log.key})


@on_thread_cleared
def clear_log(tx: Tx, thread: ThreadRow) -> None:
    """Forget what was observed of a thread whose messages go."""
    own = find_log(tx, thread_scope(thread.key), lock=True)
    if own is not None:
        tx.run(_DROP_ALL_ROWS, {"log_key": own.key})
        tx.run(_DROP_HEADS, {"log_key": own.key})
        tx.run(_RENEW, {"log_key": own.key, "new_epoch": new_id()})
    if thread.resource_id is not None:
        _leave(tx, thread, thread.resource_id)


@on_thread_deleted
def delete_log(tx: Tx, thread: ThreadRow) -> None:
    """Remove a thread's log, and its part of its resource's log."""
    own = find_log(tx, thread_scope(thread.key), lock=True)
    if own is not None:
        tx.run(_DROP_LOG, {"log_key": own.key})
    if thread.resource_id is not None:
        _leave(tx, thread, thread.resource_id)


@on_thread_transferred
def transfer_log(tx: Tx, thread: ThreadRow, old_resource_id: str | None) -> None:
    """Take what was observed of a thread along to its new owner's log; its own log needs nothing."""
    if old_resource_id is None or thread.resource_id is None:
        return
    old = find_log(tx, resource_scope(old_resource_id), lock=True)
    if old is None:
        return
    state = _resource_state(tx, old, old_resource_id, thread)
    rows = transitions.base_rows(state, thread.key)
    _leave(tx, thread, old_resource_id)
    if rows:
        renamed = [replace(row, id=new_row_id(), origin=None) for row in rows]
        _append(tx, thread.resource_id, renamed)


@on_thread_copied
def copy_log(tx: Tx, copy: ThreadCopy) -> None:
    """Give a whole copy the observations of its source; a filtered one starts with none."""
    if not copy.whole:
        return
    own = find_log(tx, thread_scope(copy.source.key))
    if own is not None:
        _copy_thread_log(tx, own, copy)
    source, target = copy.source.resource_id, copy.target.resource_id
    if source is None or target is None:
        return
    shared = find_log(tx, resource_scope(source), lock=True)
    if shared is None:
        return
    state = _resource_state(tx, shared, source, copy.source)
    rows = transitions.base_rows(state, copy.source.key)
    if rows:
        copies = _copies(rows, copy)
        if source == target:
            copies = [replace(new, origin=old.id) for old, new in zip(rows, copies, strict=True)]
        _append(tx, target, copies)


def _copy_thread_log(tx: Tx, own: LogRecord, copy: ThreadCopy) -> None:
    path = Path(copy.source.key, path_of(tx, copy.source.key, copy.source.branch, copy.source.head))
    state = load_state(tx, own, {copy.source.key: path}, path, movable=True)
    named = [*state.head.log, *state.head.buffered, *([state.head.pending] if state.head.pending else [])]
    if not named:
        return
    known = load_all(tx, own)
    needed = list(dict.fromkeys([*named, *made_from(known, named)]))
    rows = [known[i] for i in needed if i in known]
    ids = {row.id: new_row_id() for row in rows}
    ensure_log(tx, thread_scope(copy.target.key), thread=copy.target.key)
    log = find_log(tx, thread_scope(copy.target.key), lock=True)
    if log is None:
        return
    copies = transitions.copied(
        [replace(row, inputs=tuple(i for i in row.inputs if i in ids)) for row in rows],
        ids,
        source=copy.source.key,
        thread=copy.target.key,
        branch=0,
    )
    write_rows(tx, log.key, copies, {})
    head = Head(
        epoch=log.epoch,
        version=log.version + 1,
        at=copy.target.head,
        log=tuple(ids[i] for i in state.head.log),
        buffered=tuple(ids[i] for i in state.head.buffered),
        pending=ids[state.head.pending] if state.head.pending else None,
    )
    write_head(tx, log, head)


def _copies(rows: Sequence[LogRow], copy: ThreadCopy) -> list[LogRow]:
    ids = {row.id: new_row_id() for row in rows}
    return transitions.copied(rows, ids, source=copy.source.key, thread=copy.target.key, branch=0)


def _append(tx: Tx, resource_id: str, rows: Sequence[LogRow]) -> None:
    scope = resource_scope(resource_id)
    ensure_log(tx, scope, resource_id=resource_id)
    log = find_log(tx, scope, lock=True)
    if log is None:
        return
    state = _resource_state(tx, log, resource_id, None)
    head = transitions.appended(state, rows)
    if head is not None:
        write_rows(tx, log.key, rows, {})
        write_head(tx, log, head)


@on_resource_deleted
def delete_resource_log(tx: Tx, resource_id: str) -> None:
    """Remove a resource's log."""
    log = find_log(tx, resource_scope(resource_id), lock=True)
    if log is not None:
        tx.run(_DROP_LOG, {"log_key": log.key})


def _leave(tx: Tx, thread: ThreadRow, resource_id: str) -> None:
    log = find_log(tx, resource_scope(resource_id), lock=True)
    if log is None:
        return
    state = _resource_state(tx, log, resource_id, thread)
    head, gone = transitions.without_thread(replace(state, rows=load_all(tx, log)), thread.key, new_id())
    write_head(tx, log, head)
    if gone:
        tx.run(_DROP_ROWS, {"ids": sorted(gone)})


def _logs_of(tx: Tx, thread: ThreadRow) -> Iterable[LogRecord]:
    scopes = [thread_scope(thread.key)]
    if thread.resource_id is not None:
        scopes.append(resource_scope(thread.resource_id))
    for scope in scopes:
        log = find_log(tx, scope, lock=True)
        if log is not None:
            yield log


def _state(tx: Tx, log: LogRecord, thread: ThreadRow) -> LogState:
    if log.scope.startswith("t:"):
        path, movable = line_path(tx, thread, None)
        return load_state(tx, log, {thread.key: path}, path, movable=movable)
    return _resource_state(tx, log, thread.resource_id or "", thread)


def _resource_state(tx: Tx, log: LogRecord, resource_id: str, thread: ThreadRow | None) -> LogState:
    rows = {row.key: row for row in threads_of(tx, resource_id)}
    if thread is not None:
        rows[thread.key] = thread
    paths = {key: Path(key, path_of(tx, key, row.branch, row.head)) for key, row in rows.items()}
    return load_state(tx, log, paths, None, movable=True, whole=True)
