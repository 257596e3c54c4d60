"""Runs: where their state stands in the archive, what they load, how they are saved."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

import sqlalchemy as sa

from langchain_mastra_memory.store.operations.messages import NewMessage
from langchain_mastra_memory.store.operations.runs import (
    History,
    LoadHistory,
    Located,
    ReadRun,
    RunView,
    SaveRun,
    StoreBoundary,
    StoredBoundary,
)
from langchain_mastra_memory.store.sql.cascade import (
    ThreadCopy,
    WrittenRow,
    on_messages_edited,
    on_messages_saved,
    on_thread_cleared,
    on_thread_copied,
)
from langchain_mastra_memory.store.sql.lines import line_after, make_thread, move_thread
from langchain_mastra_memory.store.sql.locking import ThreadRow, find_thread, lock_thread, not_found
from langchain_mastra_memory.store.sql.messages import new_row, rewrite, values_of
from langchain_mastra_memory.store.sql.positions import position_at
from langchain_mastra_memory.store.sql.registry import handles
from langchain_mastra_memory.store.sql.rows import MESSAGE_COLUMNS, message_of, stored_message
from langchain_mastra_memory.store.sql.schema import messages, tombstones
from langchain_mastra_memory.store.sql.tables_boundaries import IS_OUTSIDE, boundaries
from langchain_mastra_memory.store.sql.threads import announce_thread
from langchain_mastra_memory.store.sql.tx import Tx, any_of, insert_row, upsert
from langchain_mastra_memory.store.sql.values import dump_json, load_json
from langchain_mastra_memory.store.sql.view import Path, ViewStatements, in_path, path_of, rows_seen
from langchain_mastra_memory.types import StoredMessage

PROBED: Final = 64
"""How many of the newest ids of a state decide where it stands."""
PAGE: Final = 200
"""Messages read at once where a budget decides how many are needed."""

_of_thread = messages.c.thread == sa.bindparam("thread_key")
_PLACES = sa.select(messages.c.id, messages.c.branch, messages.c.seq).where(_of_thread, any_of(messages.c.id, "ids"))
# By id, on all branches: see `rows_seen`.
_LOCATE = sa.select(
    messages.c.id,
    messages.c.seq,
    messages.c.branch,
    messages.c.kind,
    messages.c.tokens,
    messages.c.revision,
    messages.c.created_at,
    sa.case((messages.c.revision > 1, messages.c.body), else_=None),
).where(_of_thread, any_of(messages.c.id, "ids"))
_BY_ID = sa.select(*MESSAGE_COLUMNS).where(_of_thread, any_of(messages.c.id, "ids"))
_ordinary = messages.c.kind.is_(None)
_OUTSIDE = ViewStatements(
    lambda in_view: (
        sa.select(*MESSAGE_COLUMNS)
        .where(_of_thread, _ordinary, IS_OUTSIDE, in_view)
        .order_by(messages.c.seq.desc())
        .limit(sa.bindparam("size", type_=sa.BigInteger))
    )
)
_RECENT = ViewStatements(
    lambda in_view: (
        sa.select(*MESSAGE_COLUMNS)
        .where(_of_thread, _ordinary, messages.c.seq > sa.bindparam("after", type_=sa.BigInteger), in_view)
        .order_by(messages.c.seq.desc())
        .limit(sa.bindparam("size", type_=sa.BigInteger))
        .offset(sa.bindparam("skip", type_=sa.BigInteger))
    )
)
_BEHIND = sa.select(sa.func.count()).where(
    _of_thread,
    messages.c.branch == sa.bindparam("branch_no", type_=sa.BigInteger),
    messages.c.seq > sa.bindparam("at_seq", type_=sa.BigInteger),
    messages.c.outside == 0,
    _ordinary,
)
_GONE = sa.select(tombstones.c.id).where(
    tombstones.c.thread == sa.bindparam("thread_key"), any_of(tombstones.c.id, "ids")
)
_BOUNDARIES = (
    sa.select(
        boundaries.c.message_id,
        boundaries.c.seq,
        boundaries.c.branch,
        boundaries.c.max_tokens,
        boundaries.c.remove_milli,
    )
    .where(boundaries.c.thread == sa.bindparam("thread_key"))
    .order_by(boundaries.c.seq.desc(), boundaries.c.branch.desc())
)
_BOUNDARY_COLUMNS = ("thread", "branch", "seq", "max_tokens", "remove_milli", "message_id", "created_at")
_PUT_BOUNDARY = upsert(boundaries, _BOUNDARY_COLUMNS[:5], _BOUNDARY_COLUMNS[5:])
_DROP_BOUNDARIES = sa.delete(boundaries).where(boundaries.c.thread == sa.bindparam("thread_key"))
_ROW_AT = sa.select(messages.c.branch).where(_of_thread, messages.c.id == sa.bindparam("message_id")).limit(1)
_INSERT = insert_row(messages, *(column.name for column in messages.c))
EVERYTHING: Final = 2**62


def position_of(tx: Tx, thread: ThreadRow, ids: Sequence[str]) -> tuple[int, int] | None:
    """Return the (branch, head) where a state of these ids stands; None when nothing of it is archived.

    The newest archived id decides. Where its row is on several branches, the branch that sees most of the newest
    ids wins, the highest of equals. What entered outside a run right behind it is in view too.
    """
    newest = [message_id for message_id in ids[-PROBED:] if message_id]
    if not newest:
        return None
    places: dict[str, list[tuple[int, int]]] = {}
    for message_id, branch, seq in tx.all(_PLACES, {"thread_key": thread.key, "ids": newest}):
        places.setdefault(message_id, []).append((int(branch), int(seq)))
    last = next((places[message_id] for message_id in reversed(newest) if message_id in places), None)
    if last is None:
        return None

    def sees(place: tuple[int, int]) -> tuple[int, int]:
        path = path_of(tx, thread.key, *place)
        seen = sum(any(in_path(path, b, s) for b, s in rows) for rows in places.values())
        return seen, place[0]

    branch, head = max(last, key=sees) if len(last) > 1 else last[0]
    if thread.branch == branch and thread.head > head:
        key = {"thread_key": thread.key, "branch_no": branch, "at_seq": head}
        if not tx.value(_BEHIND, key):
            head = thread.head
    return branch, head


def _checked(tx: Tx, thread_id: str, resource_id: str | None) -> ThreadRow | None:
    thread = find_thread(tx, thread_id)
    if thread is not None and resource_id is not None and thread.resource_id not in (None, resource_id):
        raise not_found(thread_id)
    return thread


def _in_view(tx: Tx, thread: ThreadRow, ids: Sequence[str], path: Path) -> list[tuple[Any, ...]]:
    """Return the rows of `MESSAGE_COLUMNS` in view that have these ids."""
    return rows_seen(tx.all(_BY_ID, {"thread_key": thread.key, "ids": list(ids)}), path, seq_at=0, branch_at=1)


@handles(ReadRun)
def read_run(tx: Tx, op: ReadRun) -> RunView:
    """Return what the archive knows of a run's state."""
    thread = _checked(tx, op.thread_id, op.resource_id)
    if thread is None:
        return RunView(exists=False)
    position = position_of(tx, thread, op.ids)
    path = path_of(tx, thread.key, *(position or (thread.branch, thread.head)))
    ids = [message_id for message_id in op.ids if message_id]
    located: dict[str, Located] = {}
    deleted: set[str] = set()
    if ids:
        for row in rows_seen(tx.all(_LOCATE, {"thread_key": thread.key, "ids": ids}), path, seq_at=1, branch_at=2):
            message_id, seq, branch, kind, tokens, revision, created_at, body = row
            edited = None if body is None else message_of(message_id, body)
            located[message_id] = Located(seq, branch, kind, tokens, revision, created_at, edited)
        missing = [message_id for message_id in ids if message_id not in located]
        if missing:
            deleted = {gone for (gone,) in tx.all(_GONE, {"thread_key": thread.key, "ids": missing})}
    outside: list[StoredMessage] = []
    if op.with_outside:
        statement, params = _OUTSIDE(path)
        size = EVERYTHING if op.last is None else op.last
        rows = tx.all(statement, {"thread_key": thread.key, "size": size, **params})
        in_state = set(ids)
        outside = [stored_message(thread, row) for row in reversed(rows) if row[2] not in in_state]
    return RunView(
        exists=True,
        epoch=thread.epoch,
        edits=thread.edits,
        position=position,
        located=located,
        outside=tuple(outside),
        deleted=frozenset(deleted),
        boundaries=_boundaries(tx, thread, path),
    )


def _boundaries(tx: Tx, thread: ThreadRow, path: Path) -> tuple[StoredBoundary, ...]:
    return tuple(
        StoredBoundary(
            message_id=message_id, seq=seq, branch=branch, max_tokens=max_tokens, remove_tokens=remove_milli / 1000
        )
        for message_id, seq, branch, max_tokens, remove_milli in tx.all(_BOUNDARIES, {"thread_key": thread.key})
        if in_path(path, branch, seq)
    )


@handles(LoadHistory)
def load_history(tx: Tx, op: LoadHistory) -> History:
    """Return the newest messages of a thread."""
    thread = _checked(tx, op.thread_id, op.resource_id)
    if thread is None:
        return History(exists=False)
    position = position_at(tx, thread, op.checkpoint_id)
    path = path_of(tx, thread.key, *position)
    known = _boundaries(tx, thread, path)
    after = op.after or 0
    if op.boundary_for is not None:
        fitting = (b.seq for b in known if (b.max_tokens, b.remove_tokens) == op.boundary_for)
        after = max(after, *fitting, 0)
    found = _recent(tx, thread, path, after, op)
    matched: list[StoredMessage] = []
    deleted: set[str] = set()
    if op.ids:
        rows = _in_view(tx, thread, op.ids, path)
        matched = [stored_message(thread, row) for row in rows if row[3] is None]
        there = {row[2] for row in rows}
        missing = [message_id for message_id in op.ids if message_id not in there]
        deleted = {gone for (gone,) in tx.all(_GONE, {"thread_key": thread.key, "ids": missing})} if missing else set()
    return History(
        exists=True,
        position=position,
        messages=tuple(found),
        matched=tuple(matched),
        boundaries=known,
        deleted=frozenset(deleted),
    )


def _recent(tx: Tx, thread: ThreadRow, path: Path, after: int, op: LoadHistory) -> list[StoredMessage]:
    """Read backwards from the newest until there is enough: by count, by tokens, or everything."""
    if op.last == 0:
        return []
    statement, params = _RECENT(path)
    params |= {"thread_key": thread.key, "after": after}
    newest_first: list[tuple[Any, ...]] = []
    total, wanted = 0, EVERYTHING if op.last is None else op.last
    while len(newest_first) < wanted:
        size = wanted if op.tokens is None else min(PAGE, wanted - len(newest_first))
        rows = tx.all(statement, {**params, "size": size, "skip": len(newest_first)})
        newest_first += rows
        total += sum(row[6] for row in rows)
        if len(rows) < size or (op.tokens is not None and total > op.tokens):
            break
    return [stored_message(thread, row) for row in reversed(newest_first)]


@handles(SaveRun)
def save_run(tx: Tx, op: SaveRun) -> list[StoredMessage]:
    """Archive the messages of a run; those whose ids are in view are changed in their place."""
    given: dict[str, NewMessage] = {new.message.id or "": new for new in op.messages}
    thread = _opened(tx, op, len(given))
    before = thread.next_seq - len(given)
    branch, head = thread.branch, min(thread.head, before - 1)
    if op.from_state:
        branch, head = position_of(tx, thread, [*op.after, *given]) or (branch, head)
    ids = list(given)
    known = {row[2]: row for row in _in_view(tx, thread, ids, path_of(tx, thread.key, branch, head))}
    gone = {message_id for (message_id,) in tx.all(_GONE, {"thread_key": thread.key, "ids": ids})}
    appended = [new for message_id, new in given.items() if message_id not in known and message_id not in gone]
    if appended:
        branch = line_after(tx, thread.key, branch, head)
        head = before + len(appended) - 1
    thread = move_thread(tx, thread.key, branch=branch, head=head, next_seq=before + len(appended))
    written = [
        new_row(new, seq, branch, tx.now, outside=op.outside or new.message.id in op.beside)
        for seq, new in enumerate(appended, before)
    ]
    tx.run_many(_INSERT, [values_of(thread, row) for row in written])
    if written:
        on_messages_saved.fire(tx, thread, written, op.features)
    edited: list[WrittenRow] = []
    for message_id, row in known.items():
        if op.keep_known and row[3] is None:
            continue
        new = given[message_id]
        rows = rewrite(tx, thread, row, replace(new, metadata={**load_json(row[5]), **new.metadata}))
        edited += rows if rows[0].revision != row[7] else []
    if edited:
        thread = lock_thread(tx, thread.id, None, edits=1)
        on_messages_edited.fire(tx, thread, edited, op.features)
    now = _in_view(tx, thread, ids, path_of(tx, thread.key, thread.branch, thread.head))
    stored = {row[2]: row for row in now}
    return [stored_message(thread, stored[message_id]) for message_id in given if message_id in stored]


def _opened(tx: Tx, op: SaveRun, count: int) -> ThreadRow:
    """Lock the thread's row and take seqs; a missing thread is made."""
    if find_thread(tx, op.thread_id) is None:
        made = make_thread(
            tx,
            op.thread_id,
            resource_id=op.resource_id,
            title=op.title,
            titled_by="run" if op.title else None,
            metadata=dump_json(dict(op.metadata)),
        )
        if made is not None:
            announce_thread(tx, made, op.metadata, op.features)
    return lock_thread(tx, op.thread_id, op.resource_id, seqs=count, texts=1)


@handles(StoreBoundary)
def store_boundary(tx: Tx, op: StoreBoundary) -> None:
    """Keep how far a trim went, with the message that it went to."""
    if _checked(tx, op.thread_id, op.resource_id) is None:
        return
    thread = lock_thread(tx, op.thread_id, None, touch=False)
    branch = tx.value(_ROW_AT, {"thread_key": thread.key, "message_id": op.message_id})
    if branch is not None:
        _put(tx, thread.key, [(int(branch), op.seq, op.max_tokens, round(op.remove_tokens * 1000), op.message_id)])


def _put(tx: Tx, thread_key: int, rows: Iterable[tuple[int, int, int, int, str]]) -> None:
    tx.run_many(
        _PUT_BOUNDARY,
        [dict(zip(_BOUNDARY_COLUMNS, (thread_key, *row, tx.now), strict=True)) for row in rows],
    )


@on_thread_cleared
def forget_boundaries(tx: Tx, thread: ThreadRow) -> None:
    """Drop the boundaries of a thread that begins anew."""
    tx.run(_DROP_BOUNDARIES, {"thread_key": thread.key})


@on_thread_copied
def copy_boundaries(tx: Tx, copy: ThreadCopy) -> None:
    """Let a whole clone go on with the prefix of its source."""
    if not copy.whole:
        return
    path = path_of(tx, copy.source.key, copy.source.branch, copy.source.head)
    ids = {row.seq: row.id for row in copy.rows}
    _put(
        tx,
        copy.target.key,
        [
            (0, known.seq, known.max_tokens, round(known.remove_tokens * 1000), ids[known.seq])
            for known in _boundaries(tx, copy.source, path)
            if known.seq in ids
        ],
    )
