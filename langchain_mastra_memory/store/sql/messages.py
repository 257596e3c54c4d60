"""Messages: saving, finding, changing, removing them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, cast

import sqlalchemy as sa
from langchain_core.messages import BaseMessage

from langchain_mastra_memory.codec import dump_message
from langchain_mastra_memory.errors import InvalidQueryError, MessageNotFoundError, ThreadNotFoundError
from langchain_mastra_memory.shown import shown
from langchain_mastra_memory.store.operations.messages import (
    ClearThread,
    DeleteMessages,
    EditMessages,
    FindMessages,
    NewMessage,
    SaveMessages,
)
from langchain_mastra_memory.store.sql.bulk import BulkInsert
from langchain_mastra_memory.store.sql.cascade import (
    RemovedRow,
    WrittenRow,
    on_messages_deleted,
    on_messages_edited,
    on_messages_saved,
    on_thread_cleared,
)
from langchain_mastra_memory.store.sql.lines import Content, change_message, line_after, make_thread, move_thread
from langchain_mastra_memory.store.sql.locking import (
    COLUMNS,
    ThreadRow,
    find_thread,
    lock_thread,
    new_epoch,
    not_found,
    read_thread,
)
from langchain_mastra_memory.store.sql.registry import handles
from langchain_mastra_memory.store.sql.rows import MESSAGE_COLUMNS, message_of, stored_message
from langchain_mastra_memory.store.sql.schema import branches, messages, threads, tombstones
from langchain_mastra_memory.store.sql.threads import announce_thread
from langchain_mastra_memory.store.sql.tx import Tx, any_of, upsert
from langchain_mastra_memory.store.sql.values import dump_json, from_micros, load_json
from langchain_mastra_memory.store.sql.view import path_of, rows_seen
from langchain_mastra_memory.types import MessageKind, StoredMessage

_of_thread = messages.c.thread == sa.bindparam("thread_key")

# Takes seqs, and moves the head along if it stands at the end: that is all there is to do for most saves.
_TAKE = (
    sa.update(threads)
    .where(threads.c.id == sa.bindparam("thread_id"))
    .values(
        head=sa.case(
            (threads.c.head == threads.c.next_seq - 1, threads.c.head + sa.bindparam("seqs", type_=sa.BigInteger)),
            else_=threads.c.head,
        ),
        next_seq=threads.c.next_seq + sa.bindparam("seqs", type_=sa.BigInteger),
        texts=threads.c.texts + 1,
        updated_at=sa.case(
            (threads.c.updated_at < sa.bindparam("now"), sa.bindparam("now")), else_=threads.c.updated_at
        ),
    )
    .returning(*COLUMNS)
)
_INSERT = BulkInsert(messages, *(column.name for column in messages.c))
_BY_ID = sa.select(*MESSAGE_COLUMNS).where(_of_thread, any_of(messages.c.id, "ids"))  # see `rows_seen`
_ROWS_OF_IDS = sa.select(messages.c.seq, messages.c.branch, messages.c.id).where(
    _of_thread, any_of(messages.c.id, "ids")
)
_DELETE_IDS = sa.delete(messages).where(_of_thread, any_of(messages.c.id, "ids"))
_DELETE_ALL = sa.delete(messages).where(_of_thread)
_DELETE_BRANCHES = sa.delete(branches).where(branches.c.thread == sa.bindparam("thread_key"))
_DISTINCT_IDS = sa.select(messages.c.id).where(_of_thread).distinct()
_ELSEWHERE = (
    sa.select(messages.c.id)
    .where(messages.c.thread != sa.bindparam("thread_key"), any_of(messages.c.id, "ids"))
    .order_by(messages.c.id)
    .limit(1)
)
_TOMBSTONES = sa.select(tombstones.c.id).where(
    tombstones.c.thread == sa.bindparam("thread_key"), any_of(tombstones.c.id, "ids")
)


def _known(messages_id: sa.ColumnElement[bool], tombstones_id: sa.ColumnElement[bool]) -> sa.CompoundSelect[Any]:
    live: sa.Select[Any] = sa.select(sa.literal_column("1")).where(_of_thread, messages_id)
    dead: sa.Select[Any] = sa.select(sa.literal_column("1")).where(
        tombstones.c.thread == sa.bindparam("thread_key"), tombstones_id
    )
    return sa.union_all(live, dead).limit(1)


_KNOWN = _known(any_of(messages.c.id, "ids"), any_of(tombstones.c.id, "ids"))
_KNOWN_ONE = _known(messages.c.id == sa.bindparam("one"), tombstones.c.id == sa.bindparam("one"))
_BURY = upsert(tombstones, ["thread", "id"], ["created_at"])
_UNEARTH = sa.delete(tombstones).where(
    tombstones.c.thread == sa.bindparam("thread_key"), any_of(tombstones.c.id, "ids")
)
_NEW_EPOCH = (
    sa.update(threads)
    .where(threads.c.key == sa.bindparam("thread_key"))
    .values(epoch=sa.bindparam("new_epoch", type_=sa.BigInteger), branch=0, head=threads.c.next_seq - 1)
    .returning(*COLUMNS)
)


@handles(SaveMessages)
def save_messages(tx: Tx, op: SaveMessages) -> list[StoredMessage]:
    """Append messages; those whose ids are in view are changed in their place."""
    given: dict[str, NewMessage] = {}
    for new in op.messages:
        given[new.message.id or ""] = new  # the last of an id counts, where the first stood
    if not given:
        found = find_thread(tx, op.thread_id)
        if op.resource_id is not None and found is not None and found.resource_id not in (None, op.resource_id):
            raise not_found(op.thread_id)
        return []
    thread = _take(tx, op, len(given))
    known: dict[str, tuple[Any, ...]] = {}
    ids = [message_id for message_id, new in given.items() if not new.fresh]
    if ids and _any_known(tx, thread, ids):
        head = thread.head - len(given) if thread.head == thread.next_seq - 1 else thread.head
        known = _in_view(tx, thread, ids, head)
        tx.run(_UNEARTH, {"thread_key": thread.key, "ids": ids})
    appended = [new for message_id, new in given.items() if message_id not in known]
    thread = _settle(tx, thread, len(given), len(appended))
    first = thread.next_seq - len(appended)
    written = [new_row(new, seq, thread.branch, tx.now, outside=op.outside) for seq, new in enumerate(appended, first)]
    _INSERT(
        tx,
        [values_of(thread, row) for row in written],
    )
    if written:
        on_messages_saved.fire(tx, thread, written, op.features)
    now = {row.id: row for row in written}
    edited: list[WrittenRow] = []
    for message_id, row in known.items():
        rows = rewrite(tx, thread, row, given[message_id])
        now[message_id] = rows[0]
        if rows[0].revision != row[7]:
            edited += rows
    if edited:
        thread = lock_thread(tx, thread.id, None, edits=1)
        on_messages_edited.fire(tx, thread, edited, op.features)
    return [_as_stored(thread, now[message_id]) for message_id in given]


def _any_known(tx: Tx, thread: ThreadRow, ids: list[str]) -> bool:
    """Tell whether one of these ids was ever a message of this thread: most saves bring new ones only."""
    if len(ids) == 1:
        return tx.value(_KNOWN_ONE, {"thread_key": thread.key, "one": ids[0]}) is not None
    return tx.value(_KNOWN, {"thread_key": thread.key, "ids": ids}) is not None


def _take(tx: Tx, op: SaveMessages, count: int) -> ThreadRow:
    """Lock the thread's row and take seqs; make the thread if a resource is named."""
    params = {"thread_id": op.thread_id, "seqs": count, "now": tx.now}
    row = tx.first(_TAKE, params)
    if row is None:
        if op.resource_id is None:
            raise ThreadNotFoundError(
                f"there is no thread {op.thread_id[:80]!r}: name its owner (resource_id) and it is made"
            )
        made = make_thread(tx, op.thread_id, resource_id=op.resource_id)
        if made is not None:
            announce_thread(tx, made, {}, op.features)
        row = tx.first(_TAKE, params)
        if row is None:
            raise not_found(op.thread_id)
    thread = ThreadRow(*row)
    if op.resource_id is None or thread.resource_id == op.resource_id:
        return thread
    return lock_thread(tx, op.thread_id, op.resource_id)  # refuses, or adopts


def _settle(tx: Tx, thread: ThreadRow, taken: int, used: int) -> ThreadRow:
    """Give back the seqs that were taken for nothing, and leave the thread at its last message."""
    at_end = thread.head == thread.next_seq - 1
    if at_end and taken == used:
        return thread
    before = thread.next_seq - taken
    head = thread.head - taken if at_end else thread.head
    branch = thread.branch
    if used:
        branch = branch if at_end else line_after(tx, thread.key, branch, head)
        head = before + used - 1
    return move_thread(tx, thread.key, branch=branch, head=head, next_seq=before + used)


def values_of(thread: ThreadRow, row: WrittenRow) -> dict[str, Any]:
    """Return the columns of a message row that is new."""
    return {
        "thread": thread.key,
        "seq": row.seq,
        "branch": row.branch,
        "id": row.id,
        "role": row.role,
        "kind": row.kind,
        "body": body_of(row.message),
        "metadata": dump_json(row.metadata) if row.metadata else None,
        "tokens": row.tokens,
        "revision": 1,
        "outside": int(row.outside),
        "created_at": row.created_at,
    }


def new_row(new: NewMessage, seq: int, branch: int, now: int, *, outside: bool) -> WrittenRow:
    """Return the row of a message that is saved for the first time."""
    return WrittenRow(
        seq=seq,
        branch=branch,
        id=new.message.id or "",
        role=new.message.type,
        kind=new.kind,
        message=new.message,
        metadata=new.metadata,
        tokens=new.tokens,
        revision=1,
        created_at=now if new.created_at is None else new.created_at,
        outside=outside,
    )


def body_of(message: BaseMessage) -> bytes:
    """Return the body of a message to save.

    Raises:
        InvalidQueryError: It holds a value that can't be stored.
    """
    try:
        return dump_message(message)
    except TypeError as error:
        raise InvalidQueryError(f"message {shown(message.id, 80)} can't be saved: {error}") from error


def _read(row: tuple[Any, ...], message: BaseMessage | None = None) -> WrittenRow:
    """Return a row of `MESSAGE_COLUMNS` as hooks see it; `message` is given if the caller has it."""
    seq, branch, message_id, kind, body, metadata, tokens, revision, outside, created_at = row
    message = message_of(message_id, body) if message is None else message
    return WrittenRow(
        seq=seq,
        branch=branch,
        id=message_id,
        role=message.type,
        kind=kind,
        message=message,
        metadata=load_json(metadata),
        tokens=tokens,
        revision=revision,
        created_at=created_at,
        outside=bool(outside),
    )


def rewrite(tx: Tx, thread: ThreadRow, row: tuple[Any, ...], new: NewMessage) -> list[WrittenRow]:
    """Change a message for the line on which the thread stands, unless it is the same.

    Args:
        tx: A write transaction.
        thread: The locked thread.
        row: The row of `MESSAGE_COLUMNS` that the line sees now.
        new: What it is to see. The time and the place stay as they are.

    Returns:
        The row that the line sees now, and after it the rows that were written for other lines; the first one has the
        old revision if nothing was changed.
    """
    metadata = dump_json(new.metadata) if new.metadata else None
    body = body_of(new.message)
    old = message_of(row[2], row[4]) if row[4] != body else None
    if row[3] == new.kind and row[5] == metadata and (old is None or dump_message(old) == body):
        return [_read(row, new.message)]
    revision = row[7] + 1
    content = Content(new.message.type, new.kind, body, metadata, new.tokens, revision)
    kept = change_message(tx, thread, thread.branch, (row[0], row[1]), content)
    before = _read(row)
    after = replace(
        before,
        branch=thread.branch,
        role=new.message.type,
        kind=new.kind,
        message=new.message,
        metadata=new.metadata,
        tokens=new.tokens,
        revision=revision,
        overrides=None if row[1] == thread.branch else row[1],
    )
    return [after, *(replace(before, branch=branch, overrides=row[1]) for branch in kept)]


def _as_stored(thread: ThreadRow, row: WrittenRow) -> StoredMessage:
    return StoredMessage(
        id=row.id,
        thread_id=thread.id,
        resource_id=thread.resource_id,
        seq=row.seq,
        message=row.message,
        created_at=from_micros(row.created_at),
        metadata=row.metadata,
        kind=cast("MessageKind", row.kind or "message"),
        tokens=row.tokens,
        branch=row.branch,
        revision=row.revision,
        outside=row.outside,
    )


@handles(FindMessages)
def find_messages(tx: Tx, op: FindMessages) -> list[StoredMessage]:
    """Return messages in view by their ids."""
    thread = read_thread(tx, op.thread_id, op.resource_id)
    found = _in_view(tx, thread, op.message_ids)
    missing = [message_id for message_id in op.message_ids if message_id not in found]
    _refuse_strangers(tx, thread, missing, strict=op.resource_id is not None)
    return [stored_message(thread, found[message_id]) for message_id in op.message_ids if message_id in found]


def _in_view(tx: Tx, thread: ThreadRow, ids: Sequence[str], head: int | None = None) -> dict[str, tuple[Any, ...]]:
    rows = tx.all(_BY_ID, {"thread_key": thread.key, "ids": list(ids)})
    path = path_of(tx, thread.key, thread.branch, thread.head if head is None else head)
    return {row[2]: row for row in rows_seen(rows, path, seq_at=0, branch_at=1)}


def _refuse_strangers(tx: Tx, thread: ThreadRow, ids: Iterable[str], *, strict: bool) -> None:
    """Refuse ids of other threads' messages; strictly, every id that was never one of this thread's.

    Where a resource is named, an id of nothing and an id of somebody else's message must look the same.
    """
    ids = list(ids)
    if not ids:
        return
    key = {"thread_key": thread.key, "ids": ids}
    here = {message_id for _, _, message_id in tx.all(_ROWS_OF_IDS, key)}
    here |= {message_id for (message_id,) in tx.all(_TOMBSTONES, key)}
    strangers = [message_id for message_id in ids if message_id not in here]
    if strangers and not strict:
        elsewhere = tx.value(_ELSEWHERE, {"thread_key": thread.key, "ids": strangers})
        strangers = [] if elsewhere is None else [elsewhere]
    if strangers:
        raise MessageNotFoundError(f"there is no message {strangers[0][:80]!r} in thread {thread.id[:80]!r}")


@handles(EditMessages)
def edit_messages(tx: Tx, op: EditMessages) -> list[StoredMessage] | None:
    """Change messages that are still as they were read."""
    thread = lock_thread(tx, op.thread_id, op.resource_id, edits=1)
    found = _in_view(tx, thread, [edit.message.id or "" for edit in op.edits])
    results: list[WrittenRow] = []
    edited: list[WrittenRow] = []
    for edit in op.edits:
        row = found.get(edit.message.id or "")
        if row is None or (row[0], row[7]) != (edit.seq, edit.revision):
            return None
    for edit in op.edits:
        row = found[edit.message.id or ""]
        new = NewMessage(message=edit.message, tokens=edit.tokens, kind=row[3], metadata=edit.metadata)
        rows = rewrite(tx, thread, row, new)
        results.append(rows[0])
        if rows[0].revision != row[7]:
            edited += rows
    if edited:
        on_messages_edited.fire(tx, thread, edited, op.features)
    return [_as_stored(thread, row) for row in results]


@handles(DeleteMessages)
def delete_messages(tx: Tx, op: DeleteMessages) -> int:
    """Remove messages from every line, and keep them from coming back."""
    thread = lock_thread(tx, op.thread_id, op.resource_id, edits=1)
    _refuse_strangers(tx, thread, op.message_ids, strict=op.resource_id is not None)
    key = {"thread_key": thread.key, "ids": list(op.message_ids)}
    rows = [RemovedRow(*row) for row in tx.all(_ROWS_OF_IDS, key)]
    if not rows:
        return 0
    on_messages_deleted.fire(tx, thread, rows)
    tx.run(_DELETE_IDS, key)
    ids = sorted({row.id for row in rows})
    _bury(tx, thread, ids)
    return len(ids)


def _bury(tx: Tx, thread: ThreadRow, ids: Iterable[str]) -> None:
    tx.run_many(_BURY, [{"thread": thread.key, "id": message_id, "created_at": tx.now} for message_id in ids])


@handles(ClearThread)
def clear_thread(tx: Tx, op: ClearThread) -> int:
    """Remove every message; the thread begins anew on its first line."""
    thread = lock_thread(tx, op.thread_id, op.resource_id, edits=1)
    key = {"thread_key": thread.key}
    ids = [message_id for (message_id,) in tx.all(_DISTINCT_IDS, key)]
    row = tx.first(_NEW_EPOCH, {**key, "new_epoch": new_epoch()})
    assert row is not None  # noqa: S101 - locked above
    on_thread_cleared.fire(tx, ThreadRow(*row))
    tx.run(_DELETE_ALL, key)
    tx.run(_DELETE_BRANCHES, key)
    _bury(tx, thread, ids)
    return len(ids)
