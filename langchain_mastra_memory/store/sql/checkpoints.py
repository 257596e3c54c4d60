"""Writing checkpoints and what tasks wrote: one transaction each, few statements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from langchain_mastra_memory.store.operations.checkpoints import (
    Address,
    ArchivePlan,
    Need,
    NewBody,
    NewThread,
    Place,
    Put,
    PutCheckpoint,
    PutWrites,
    Stale,
    State,
)
from langchain_mastra_memory.store.sql.cascade import Features
from langchain_mastra_memory.store.sql.checkpoints_archive import Archive, Position, archive_messages
from langchain_mastra_memory.store.sql.lines import make_thread
from langchain_mastra_memory.store.sql.locking import COLUMNS, ThreadRow, not_found
from langchain_mastra_memory.store.sql.positions import ROOT
from langchain_mastra_memory.store.sql.registry import handles
from langchain_mastra_memory.store.sql.schema import threads
from langchain_mastra_memory.store.sql.tables_checkpoints import bodies, checkpoints, values, writes
from langchain_mastra_memory.store.sql.threads import announce_thread
from langchain_mastra_memory.store.sql.tx import Tx, any_of, insert_row, upsert
from langchain_mastra_memory.store.sql.values import dump_json
from langchain_mastra_memory.threads.entries import (
    Skeleton,
    Write,
    dump_skeleton,
    dump_writes,
    load_writes,
    merge_writes,
    settle_entry,
)

# The lock of a row without rewriting it: SQLite has the write lock already and leaves the clause out.
_LOCK = sa.select(*COLUMNS).where(threads.c.id == sa.bindparam("thread_id")).with_for_update()


def _add_missing(table: sa.Table, keys: Sequence[str], columns: Sequence[str]) -> sa.Insert:
    """Return an insert that leaves a row of the same keys as it is."""
    names = (*keys, *columns)
    insert = postgresql.insert(table).values({name: sa.bindparam(name, type_=table.c[name].type) for name in names})
    return insert.on_conflict_do_nothing(index_elements=list(keys))


_ADOPT = sa.update(threads).where(threads.c.key == sa.bindparam("thread_key")).values(resource_id=sa.bindparam("owner"))
_newest = (
    sa.select(sa.func.max(checkpoints.c.id))
    .where(
        checkpoints.c.thread == sa.bindparam("thread_key"),
        checkpoints.c.ns == ROOT,
        checkpoints.c.hidden == sa.literal(0),
    )
    .scalar_subquery()
)
_HAS_ROOT = (
    sa.select(sa.literal(1))
    .where(checkpoints.c.thread == sa.bindparam("thread_key"), checkpoints.c.ns == ROOT)
    .limit(1)
)
_SETTLE = (
    sa.update(threads)
    .where(threads.c.key == sa.bindparam("thread_key"))
    .values(
        branch=sa.case((_newest <= sa.bindparam("new_id"), sa.bindparam("new_branch")), else_=threads.c.branch),
        head=sa.case((_newest <= sa.bindparam("new_id"), sa.bindparam("new_head")), else_=threads.c.head),
        next_seq=sa.bindparam("new_next_seq"),
        texts=sa.bindparam("new_texts"),
        edits=sa.bindparam("new_edits"),
        updated_at=sa.bindparam("new_updated_at"),
    )
)
_PUT = upsert(
    checkpoints,
    ("thread", "ns", "id"),
    ("parent", "body", "metadata", "run", "hidden", "branch", "head", "base", "created_at"),
)


def _same_ids(ids: sa.ColumnElement[bool], spaces: sa.ColumnElement[bool]) -> sa.CompoundSelect[Any]:
    """Return the bodies of some message ids, and for each of some spaces a row with its last number and no id."""
    of_thread = bodies.c.thread == sa.bindparam("thread_key")
    return sa.union_all(
        sa.select(bodies.c.space, bodies.c.n, bodies.c.id, bodies.c.form, bodies.c.body).where(of_thread, ids),
        sa.select(
            bodies.c.space,
            sa.func.max(bodies.c.n),
            sa.null().label("id"),
            sa.literal("").label("form"),
            sa.cast(sa.null(), sa.LargeBinary).label("body"),
        )
        .where(of_thread, spaces)
        .group_by(bodies.c.space),
    )


_SAME_IDS = _same_ids(any_of(bodies.c.id, "ids"), any_of(bodies.c.space, "spaces"))
_SAME_ID = _same_ids(bodies.c.id == sa.bindparam("message_id"), bodies.c.space == sa.bindparam("space"))
_ADD_BODY = insert_row(bodies, "thread", "space", "n", "id", "form", "body")
_LAST_VALUE = sa.select(sa.func.max(values.c.n)).where(values.c.thread == sa.bindparam("thread_key"))
_ADD_VALUE = insert_row(values, "thread", "n", "body")
_ADD_WRITES = _add_missing(writes, ("thread", "ns", "checkpoint", "task_id"), ("task_path", "body"))
_at_task = (
    writes.c.thread == sa.bindparam("thread"),
    writes.c.ns == sa.bindparam("ns"),
    writes.c.checkpoint == sa.bindparam("checkpoint"),
    writes.c.task_id == sa.bindparam("task_id"),
)
_TASK_WRITES = sa.select(writes.c.body).where(*_at_task)
_CHANGE_WRITES = sa.update(writes).where(*_at_task).values(body=sa.bindparam("new_body", type_=sa.LargeBinary))

FOREIGN_RUN: Final = 8
"""A list may point into another space where at least so many of its messages stand in a row there; fewer are copied,
so that a list that grows stays one range."""


def stored_ns(ns: str) -> str:
    """Return a namespace as it is stored: never empty."""
    return f"/{ns}"


def lock_for_checkpoint(tx: Tx, address: Address, new_thread: NewThread, features: Features) -> tuple[ThreadRow, bool]:
    """Lock the thread's row, making the thread if it is missing; tell whether it was made.

    Raises:
        ThreadNotFoundError: It is the root namespace, and another resource owns the thread.
    """
    row = tx.first(_LOCK, {"thread_id": address.thread_id})
    if row is None:
        owner = address.resource_id if not address.ns else None
        title = new_thread.title or None
        new = make_thread(
            tx,
            address.thread_id,
            resource_id=owner,
            title=title,
            titled_by="run" if title else None,
            metadata=dump_json(dict(new_thread.metadata)),
        )
        if new is not None:
            return announce_thread(tx, new, new_thread.metadata, features), True
        row = tx.first(_LOCK, {"thread_id": address.thread_id})
        if row is None:
            raise not_found(address.thread_id)
    thread = ThreadRow(*row)
    if address.resource_id is not None and not address.ns and thread.resource_id != address.resource_id:
        if thread.resource_id is not None:
            raise not_found(address.thread_id)
        tx.run(_ADOPT, {"thread_key": thread.key, "owner": address.resource_id})
    return thread, False


def state_of(thread: ThreadRow) -> State:
    """Return what plans count on."""
    return thread.epoch, thread.edits


def _number_bodies(tx: Tx, thread_key: int, new: Sequence[NewBody]) -> list[tuple[str, int]]:
    """Give each body its place: that of an equal one of the same id, or a new number behind the last of its space."""
    if not new:
        return []
    ids = list({body.id for body in new if body.id is not None and body.unique})
    spaces = list({body.space for body in new})
    last: dict[str, int] = {}
    same: dict[tuple[str, str, bytes], dict[str, int]] = {}
    if len(ids) == len(spaces) == 1:
        rows = tx.all(_SAME_ID, {"thread_key": thread_key, "message_id": ids[0], "space": spaces[0]})
    else:
        rows = tx.all(_SAME_IDS, {"thread_key": thread_key, "ids": ids, "spaces": spaces})
    for space, n, message_id, form, body in rows:
        if message_id is None:
            last[space] = max(n, last.get(space, 0))
        else:
            same.setdefault((message_id, form, bytes(body)), {})[space] = n
    found = [same.get((b.id, b.form, b.body), {}) if b.id is not None and b.unique else {} for b in new]
    numbers: list[tuple[str, int]] = []
    added = []
    for index, body in enumerate(new):
        place = _existing_place(body.space, found, index, numbers[-1] if numbers else None)
        if place is None:
            n = last[body.space] = last.get(body.space, 0) + 1
            place = (body.space, n)
            added.append(
                {"thread": thread_key, "space": body.space, "n": n, "id": body.id, "form": body.form, "body": body.body}
            )
            if body.id is not None and body.unique:
                same.setdefault((body.id, body.form, body.body), found[index])[body.space] = n
        numbers.append(place)
    _insert(tx, _ADD_BODY, added)
    return numbers


def _existing_place(
    space: str, found: Sequence[dict[str, int]], index: int, previous: tuple[str, int] | None
) -> tuple[str, int] | None:
    here = found[index]
    if not here:
        return None
    if previous is not None and here.get(previous[0]) == previous[1] + 1:
        return previous[0], previous[1] + 1
    if space in here:
        return space, here[space]
    for other, n in here.items():
        run = 1
        while run < FOREIGN_RUN and index + run < len(found) and found[index + run].get(other) == n + run:
            run += 1
        if run == FOREIGN_RUN:
            return other, n
    return None


def _insert(tx: Tx, statement: sa.Insert, rows: Sequence[dict[str, object]]) -> None:
    if len(rows) == 1:
        tx.run(statement, rows[0])
    elif rows:
        tx.run_many(statement, rows)


def _number_values(tx: Tx, thread_key: int, new: Iterable[bytes]) -> list[int]:
    new = list(new)
    if not new:
        return []
    last = int(tx.value(_LAST_VALUE, {"thread_key": thread_key}) or 0)
    numbers = [last + 1 + index for index in range(len(new))]
    _insert(tx, _ADD_VALUE, [{"thread": thread_key, "n": n, "body": b} for n, b in zip(numbers, new, strict=True)])
    return numbers


def _start(tx: Tx, thread: ThreadRow, given: Place | None) -> Position:
    """Return where a root checkpoint starts: where its parent stands; the first one, where the thread stands."""
    if given is not None:
        return Position(given.branch, given.head)
    if tx.first(_HAS_ROOT, {"thread_key": thread.key}) is None:
        return Position(thread.branch, thread.head)
    return Position(0, 0)


@handles(PutCheckpoint)
def put_checkpoint(tx: Tx, op: PutCheckpoint) -> Put | Stale | Need:
    """Write a checkpoint; see `PutCheckpoint`."""
    thread, made = lock_for_checkpoint(tx, op.address, op.new_thread, op.features)
    if op.known is not None and op.known != state_of(thread):
        return Stale(None if made else state_of(thread))
    root = not op.address.ns
    outcome: Archive | None = None
    place: Place | None = None
    if root:
        start = Position(thread.branch, thread.head) if made else _start(tx, thread, op.start)
        base = start.head if op.base is None else op.base
        archived = archive_messages(tx, thread, start, base, op.archive or ArchivePlan(), op.features)
        if isinstance(archived, Need):
            return archived
        outcome = archived
        place = Place(outcome.branch, outcome.head, min(base, outcome.head))
    numbers = _number_bodies(tx, thread.key, op.bodies)
    stored = _number_values(tx, thread.key, op.values)
    tx.run(
        _PUT,
        {
            "thread": thread.key,
            "ns": stored_ns(op.address.ns),
            "id": op.id,
            "parent": op.parent,
            "body": dump_skeleton(settle_skeleton(op.skeleton, numbers, stored)),
            "metadata": op.metadata,
            "run": op.run,
            "hidden": 0,
            "branch": place and place.branch,
            "head": place and place.head,
            "base": place and place.base,
            "created_at": tx.now,
        },
    )
    edits = thread.edits
    if place is not None and outcome is not None:
        edits = outcome.edits
        if outcome.changed or (place.branch, place.head) != (thread.branch, thread.head):
            tx.run(
                _SETTLE,
                {
                    "thread_key": thread.key,
                    "new_id": op.id,
                    "new_branch": place.branch,
                    "new_head": place.head,
                    "new_next_seq": outcome.next_seq,
                    "new_texts": outcome.texts,
                    "new_edits": outcome.edits,
                    "new_updated_at": max(tx.now, thread.updated_at) if outcome.changed else thread.updated_at,
                },
            )
    return Put((thread.epoch, edits), tuple(numbers), tuple(stored), place)


def settle_skeleton(skeleton: Skeleton, numbers: Sequence[tuple[str, int]], stored: Sequence[int]) -> Skeleton:
    """Return a plan's checkpoint with the numbers that the database gave."""
    return Skeleton(
        v=skeleton.v,
        ts=skeleton.ts,
        versions=skeleton.versions,
        seen=skeleton.seen,
        updated=skeleton.updated,
        rest=skeleton.rest,
        entries={name: settle_entry(entry, numbers, stored) for name, entry in skeleton.entries.items()},
        metadata=skeleton.metadata,
    )


@handles(PutWrites)
def put_writes(tx: Tx, op: PutWrites) -> Put | Stale:
    """Write what a task did; see `PutWrites`."""
    thread, made = lock_for_checkpoint(tx, op.address, op.new_thread, op.features)
    if op.known is not None and op.known != state_of(thread):
        return Stale(None if made else state_of(thread))
    numbers = _number_bodies(tx, thread.key, op.bodies)
    new = [Write(w.index, w.channel, settle_entry(w.entry, numbers)) for w in op.task_writes]
    key = {
        "thread": thread.key,
        "ns": stored_ns(op.address.ns),
        "checkpoint": op.checkpoint,
        "task_id": op.task_id,
    }
    if tx.run(_ADD_WRITES, {**key, "task_path": op.task_path, "body": dump_writes(merge_writes((), new))}) == 0:
        there = load_writes(tx.value(_TASK_WRITES, key))
        tx.run(_CHANGE_WRITES, {**key, "new_body": dump_writes(merge_writes(there, new))})
    return Put(state_of(thread), tuple(numbers))
