"""Threads: making, finding, listing, changing, removing them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import sqlalchemy as sa

from langchain_mastra_memory.errors import ThreadOwnershipError
from langchain_mastra_memory.store.operations.threads import (
    CreateThread,
    DeleteThread,
    GetThread,
    ListBranches,
    ListThreads,
    SuggestTitle,
    TransferThread,
    UpdateThread,
)
from langchain_mastra_memory.store.sql.cascade import (
    Features,
    on_thread_created,
    on_thread_deleted,
    on_thread_transferred,
    on_thread_updated,
)
from langchain_mastra_memory.store.sql.json_match import has_values
from langchain_mastra_memory.store.sql.lines import all_paths, make_thread
from langchain_mastra_memory.store.sql.locking import COLUMNS, ThreadRow, find_thread, lock_thread, read_thread
from langchain_mastra_memory.store.sql.positions import count_checkpoints, position_at
from langchain_mastra_memory.store.sql.registry import handles
from langchain_mastra_memory.store.sql.schema import messages, threads
from langchain_mastra_memory.store.sql.tx import Tx
from langchain_mastra_memory.store.sql.values import dump_json, load_json
from langchain_mastra_memory.threads.merging import merged
from langchain_mastra_memory.types import Branch, Deleted, Page, Thread

_SET = (
    sa.update(threads)
    .where(threads.c.key == sa.bindparam("thread_key"))
    .values(
        title=sa.bindparam("new_title", type_=sa.Text),
        titled_by=sa.bindparam("new_titled_by", type_=sa.Text),
        metadata=sa.bindparam("new_metadata", type_=sa.Text),
    )
    .returning(*COLUMNS)
)
_TRANSFER = (
    sa.update(threads)
    .where(threads.c.key == sa.bindparam("thread_key"))
    .values(resource_id=sa.bindparam("owner", type_=sa.Text))
    .returning(*COLUMNS)
)
_DELETE = sa.delete(threads).where(threads.c.key == sa.bindparam("thread_key"))
_COUNT_MESSAGES = (
    sa.select(sa.func.count()).select_from(messages).where(messages.c.thread == sa.bindparam("thread_key"))
)
_HEADS = (
    sa.select(messages.c.branch, sa.func.max(messages.c.seq))
    .where(messages.c.thread == sa.bindparam("thread_key"))
    .group_by(messages.c.branch)
)
EVERYTHING: Final = 2**62
"""A limit that never cuts; a bound parameter, so that a statement stays one constant."""


def _listing(*, of_resource: bool, filtered: bool, order_by: str, descending: bool) -> tuple[sa.Select[Any], ...]:
    conditions: list[sa.ColumnElement[bool]] = []
    if of_resource:
        conditions.append(threads.c.resource_id == sa.bindparam("owner"))
    if filtered:
        conditions.append(has_values(threads.c.metadata, "wanted"))
    order = [threads.c[order_by], threads.c.id]
    page = (
        sa.select(*COLUMNS)
        .where(*conditions)
        .order_by(*(column.desc() if descending else column for column in order))
        .limit(sa.bindparam("size", type_=sa.BigInteger))
        .offset(sa.bindparam("skip", type_=sa.BigInteger))
    )
    return page, sa.select(sa.func.count()).select_from(threads).where(*conditions)


_LISTINGS: Final = {
    (of_resource, filtered, order_by, descending): _listing(
        of_resource=of_resource, filtered=filtered, order_by=order_by, descending=descending
    )
    for of_resource in (False, True)
    for filtered in (False, True)
    for order_by in ("created_at", "updated_at")
    for descending in (False, True)
}


@handles(CreateThread)
def create_thread(tx: Tx, op: CreateThread) -> Thread:
    """Make a thread, or return the one that its owner has."""
    titled_by = op.titled_by if is_title(op.title) else None
    made = make_thread(
        tx,
        op.thread_id,
        resource_id=op.resource_id,
        title=op.title,
        titled_by=titled_by,
        metadata=dump_json(op.metadata),
    )
    if made is not None:
        return announce_thread(tx, made, op.metadata, op.features).thread()
    found = lock_thread(tx, op.thread_id, None, touch=False)
    if found.resource_id is None:
        found = lock_thread(tx, op.thread_id, op.resource_id)
    if found.resource_id != op.resource_id:
        raise ThreadOwnershipError(f"thread {op.thread_id[:80]!r} belongs to another resource; choose another id")
    return found.thread()


def announce_thread(tx: Tx, made: ThreadRow, metadata: Mapping[str, Any], features: Features) -> ThreadRow:
    """Let the features see a new thread, and keep what they leave of its metadata."""
    left = dict(metadata)
    on_thread_created.fire(tx, made, left, features)
    return made if left == metadata else _set(tx, made, made.title, made.titled_by, dump_json(left))


@handles(GetThread)
def get_thread(tx: Tx, op: GetThread) -> Thread | None:
    """Return a thread that the resource may see."""
    row = find_thread(tx, op.thread_id)
    if row is None or (op.resource_id is not None and row.resource_id not in (None, op.resource_id)):
        return None
    return row.thread()


@handles(ListThreads)
def list_threads(tx: Tx, op: ListThreads) -> Page[Thread]:
    """Return one page of threads."""
    page, count = _LISTINGS[op.resource_id is not None, bool(op.metadata), op.order_by, op.direction == "desc"]
    params: dict[str, Any] = {}
    if op.resource_id is not None:
        params["owner"] = op.resource_id
    if op.metadata:
        params["wanted"] = dump_json(op.metadata)
    total = int(tx.value(count, params))
    size = EVERYTHING if op.per_page is False else op.per_page
    skip = 0 if op.per_page is False else op.page * op.per_page
    rows = tx.all(page, {**params, "size": size, "skip": skip}) if 0 <= skip < total and size else []
    return Page(
        items=tuple(ThreadRow(*row).thread() for row in rows),
        total=total,
        page=op.page,
        per_page=op.per_page,
        has_more=bool(size) and skip + size < total,
    )


@handles(UpdateThread)
def update_thread(tx: Tx, op: UpdateThread) -> Thread:
    """Change a title, merge metadata; the row is locked before it is read."""
    row = lock_thread(tx, op.thread_id, op.resource_id)
    title, titled_by = row.title, row.titled_by
    if op.set_title:
        title, titled_by = op.title, ("person" if is_title(op.title) else None)
    text = row.metadata
    patch = dict(op.metadata)
    on_thread_updated.fire(tx, row, patch, op.features)
    if patch:
        text = dump_json(merged(load_json(row.metadata), patch))
    return _set(tx, row, title, titled_by, text).thread()


@handles(SuggestTitle)
def suggest_title(tx: Tx, op: SuggestTitle) -> bool:
    """Name a thread that no person has named."""
    row = lock_thread(tx, op.thread_id, op.resource_id, touch=False)
    if row.titled_by == "person" or (not op.replace and is_title(row.title)):
        return False
    if op.made_at is not None and op.made_at != row.thread().created_at:
        return False
    row = lock_thread(tx, op.thread_id, op.resource_id)
    _set(tx, row, op.title, op.titled_by, row.metadata)
    return True


@handles(DeleteThread)
def delete_thread(tx: Tx, op: DeleteThread) -> Deleted:
    """Remove a thread with everything."""
    if op.resource_id is None and find_thread(tx, op.thread_id) is None:
        return Deleted()
    return remove_thread(tx, lock_thread(tx, op.thread_id, op.resource_id, edits=1))


def remove_thread(tx: Tx, row: ThreadRow) -> Deleted:
    """Remove a locked thread, let the features remove what they kept for it, and say how much went."""
    key = {"thread_key": row.key}
    deleted = Deleted(
        threads=1, messages=int(tx.value(_COUNT_MESSAGES, key)), checkpoints=count_checkpoints(tx, row.key)
    )
    on_thread_deleted.fire(tx, row)
    tx.run(_DELETE, key)  # messages, branches and tombstones follow by their foreign keys
    return deleted


@handles(TransferThread)
def transfer_thread(tx: Tx, op: TransferThread) -> Thread:
    """Give a thread to another resource."""
    before = lock_thread(tx, op.thread_id, op.resource_id, touch=False)
    if before.resource_id == op.new_resource_id:
        return before.thread()
    before = lock_thread(tx, op.thread_id, None, edits=1)
    row = tx.first(_TRANSFER, {"thread_key": before.key, "owner": op.new_resource_id})
    assert row is not None  # noqa: S101 - locked above
    after = ThreadRow(*row)
    on_thread_transferred.fire(tx, after, before.resource_id)
    return after.thread()


@handles(ListBranches)
def list_branches(tx: Tx, op: ListBranches) -> list[Branch]:
    """Return the lines of a thread."""
    row = read_thread(tx, op.thread_id, op.resource_id)
    current, _ = position_at(tx, row, op.checkpoint_id)
    heads: dict[int, int] = dict(tx.all(_HEADS, {"thread_key": row.key}))
    listed = []
    for branch, path in sorted(all_paths(tx, row.key, row.next_seq).items()):
        parent, cut = path[-2] if len(path) > 1 else (None, None)
        listed.append(
            Branch(
                thread_id=row.id,
                branch=branch,
                parent=parent,
                cut=cut,
                head=int(heads.get(branch, cut or 0)),
                current=branch == current,
            )
        )
    return listed


def is_title(title: str | None) -> bool:
    """Tell whether a title names a thread: an empty one leaves it to be named automatically."""
    return bool(title and title.strip())


def _set(tx: Tx, row: ThreadRow, title: str | None, titled_by: str | None, metadata: str) -> ThreadRow:
    params = {"thread_key": row.key, "new_title": title, "new_titled_by": titled_by, "new_metadata": metadata}
    changed = tx.first(_SET, params)
    assert changed is not None  # noqa: S101 - the caller holds its lock
    return ThreadRow(*changed)
