"""Writing checkpoints and what tasks wrote: one transaction each, few statements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
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
from langchain_mastra_memory.store.sql.checkpoints_append import append
from langchain_mastra_memory.store.sql.checkpoints_archive import (
    Archive,
    KnownRow,
    Position,
    archive_messages,
    key_of_thread,
    known_rows,
)
from langchain_mastra_memory.store.sql.checkpoints_dead import (
    NONE_DEAD,
    brought_ids,
    emptied,
    find_dead,
    without_dead,
)
from langchain_mastra_memory.store.sql.lines import make_thread
from langchain_mastra_memory.store.sql.locking import COLUMNS, ThreadRow, not_found
from langchain_mastra_memory.store.sql.positions import ROOT
from langchain_mastra_memory.store.sql.registry import handles, in_every_turn, tries_alone
from langchain_mastra_memory.store.sql.schema import threads
from langchain_mastra_memory.store.sql.tables_checkpoints import bodies, checkpoints, values, writes
from langchain_mastra_memory.store.sql.threads import announce_thread
from langchain_mastra_memory.store.sql.tx import DialectName, Tx, any_of, insert_row, upsert
from langchain_mastra_memory.store.sql.values import dump_json
from langchain_mastra_memory.threads.entries import (
    Skeleton,
    Write,
    dump_skeleton,
    dump_writes,
    load_writes,
    merge_writes,
    settle_entry,
    settle_skeleton,
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
_PLACE = sa.select(checkpoints.c.branch, checkpoints.c.head, checkpoints.c.base).where(
    checkpoints.c.thread == sa.bindparam("thread_key"),
    checkpoints.c.ns == sa.literal(ROOT),
    checkpoints.c.id == sa.bindparam("checkpoint_id"),
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
_KEYS = ("thread", "ns", "id")
_REST = ("parent", "body", "metadata", "run", "hidden", "branch", "head", "base", "created_at")
_PUT = upsert(checkpoints, _KEYS, _REST)


def _thread_in(*conditions: sa.ColumnElement[bool]) -> tuple[sa.ColumnElement[bool], ...]:
    """Return the conditions for a write to count: the thread, its owner if one is named, and what is planned on."""
    owner = sa.or_(sa.bindparam("owner", type_=sa.Text).is_(None), threads.c.resource_id == sa.bindparam("owner"))
    return (threads.c.id == sa.bindparam("thread_id"), owner, *conditions)


_planned = (threads.c.epoch == sa.bindparam("epoch"), threads.c.edits == sa.bindparam("edits"), NONE_DEAD)


def _put_at_once(thread: sa.Select[Any]) -> sa.Insert:
    """Return an insert of a checkpoint that does nothing unless the thread is as it was planned for."""
    insert = postgresql.insert(checkpoints).from_select(["thread", "ns", "id", *_REST], thread)
    return insert.on_conflict_do_update(
        index_elements=list(_KEYS), set_={name: insert.excluded[name] for name in _REST}
    )


_new = [sa.bindparam(name, type_=checkpoints.c[name].type) for name in ("ns", "id", *_REST)]
_at_start = (threads.c.branch == sa.bindparam("branch"), threads.c.head == sa.bindparam("head"))
# The shared lock keeps whoever would remove bodies waiting.
_PUT_NESTED = _put_at_once(sa.select(threads.c.key, *_new).where(*_thread_in(*_planned)).with_for_update(read=True))
_PUT_ROOT = _put_at_once(sa.select(threads.c.key, *_new).where(*_thread_in(*_planned, *_at_start)))
# A new version of the thread's row, though nothing in it changes: a step that waits for it is to look again, since
# the newest checkpoint is another one now.
_touched = (
    sa.update(threads)
    .where(*_thread_in(*_planned, *_at_start))
    .values(head=threads.c.head)
    .returning(threads.c.key)
    .cte("touched")
)
_PUT_ROOT_BESIDE_OTHERS = _put_at_once(sa.select(_touched.c.key, *_new))


def _put_root(dialect: DialectName) -> sa.Insert:
    return _PUT_ROOT if dialect == "sqlite" else _PUT_ROOT_BESIDE_OTHERS


_SAME_IDS = sa.select(bodies.c.space, bodies.c.n, bodies.c.id, bodies.c.form, bodies.c.body).where(
    bodies.c.thread == sa.bindparam("thread_key"), any_of(bodies.c.id, "ids")
)
_LAST_NUMBERS = (
    sa.select(bodies.c.space, sa.func.max(bodies.c.n))
    .where(bodies.c.thread == key_of_thread(), any_of(bodies.c.space, "spaces"))
    .group_by(bodies.c.space)
)
_LAST_NUMBER = sa.select(sa.bindparam("space", type_=sa.Text), sa.func.max(bodies.c.n)).where(
    bodies.c.thread == key_of_thread(), bodies.c.space == sa.bindparam("space")
)
_ADD_BODY = insert_row(bodies, "thread", "space", "n", "id", "form", "body")
_LAST_VALUE = sa.select(sa.func.max(values.c.n)).where(values.c.thread == sa.bindparam("thread_key"))
_ADD_VALUE = insert_row(values, "thread", "n", "body")
_task = [sa.bindparam(n, type_=writes.c[n].type) for n in ("ns", "checkpoint", "task_id", "task_path", "body")]
_ADD_AT_ONCE = (
    postgresql.insert(writes)
    .from_select(
        ["thread", "ns", "checkpoint", "task_id", "task_path", "body"],
        sa.select(threads.c.key, *_task).where(*_thread_in(NONE_DEAD)),
    )
    .on_conflict_do_nothing(index_elements=["thread", "ns", "checkpoint", "task_id"])
)
_ADD_WRITES = _add_missing(writes, ("thread", "ns", "checkpoint", "task_id"), ("task_path", "body"))
_at_task = (
    writes.c.thread == sa.bindparam("thread"),
    writes.c.ns == sa.bindparam("ns"),
    writes.c.checkpoint == sa.bindparam("checkpoint"),
    writes.c.task_id == sa.bindparam("task_id"),
)
_TASK_WRITES = sa.select(writes.c.body).where(*_at_task)
_CHANGE_WRITES = sa.update(writes).where(*_at_task).values(body=sa.bindparam("new_body", type_=sa.LargeBinary))

FEW: Final = 4
"""So many bodies are taken for new without looking."""
FOREIGN_RUN: Final = 8
"""A list may point into another space where at least so many of its messages stand in a row there; fewer are copied,
so that a list that grows stays one range."""


def stored_ns(ns: str) -> str:
    """Return a namespace as it is stored: never empty."""
    return f"/{ns}"


def own_thread(
    tx: Tx, rows: Sequence[tuple[Any, ...]], address: Address, new_thread: NewThread, features: Features
) -> tuple[ThreadRow, bool]:
    """Return the locked row of a thread, making the thread if there was none; tell whether it was made.

    Raises:
        ThreadNotFoundError: It is the root namespace, and another resource owns the thread.
    """
    row = rows[0] if rows else None
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


def _last_numbers(thread_id: str, new: Sequence[NewBody]) -> tuple[sa.ClauseElement, dict[str, Any]] | None:
    """Return what finds the last number of each space that is written to."""
    spaces = list({body.space for body in new})
    if not spaces:
        return None
    if len(spaces) == 1:
        return _LAST_NUMBER, {"thread_id": thread_id, "space": spaces[0]}
    return _LAST_NUMBERS, {"thread_id": thread_id, "spaces": spaces}


def _number_bodies(
    tx: Tx, thread_key: int, new: Sequence[NewBody], last: dict[str, int]
) -> tuple[list[tuple[str, int]], list[dict[str, Any]]]:
    """Give each body its place: a new number behind the last of its space, or that of an equal one of the same id.

    Equal ones are looked for only where many come at once, such as a history that a client sends again: what a step
    brings is new, and a body that is there twice costs its bytes and nothing else.

    Returns:
        Space and number of each, and the rows that are to be inserted.
    """
    same: dict[tuple[str, str, bytes], dict[str, int]] = {}
    if len(new) > FEW:
        ids = list({body.id for body in new if body.id is not None and body.unique})
        for space, n, message_id, form, body in tx.all(_SAME_IDS, {"thread_key": thread_key, "ids": ids}):
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
    return numbers, added


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


def _number_values(tx: Tx, thread_key: int, new: Iterable[bytes]) -> list[int]:
    new = list(new)
    if not new:
        return []
    last = int(tx.value(_LAST_VALUE, {"thread_key": thread_key}) or 0)
    numbers = [last + 1 + index for index in range(len(new))]
    rows = [{"thread": thread_key, "n": n, "body": b} for n, b in zip(numbers, new, strict=True)]
    tx.run_all([(_ADD_VALUE, row) for row in rows])
    return numbers


def _start(tx: Tx, thread: ThreadRow, given: Place | None) -> Position:
    """Return where a root checkpoint starts: where its parent stands; the first one, where the thread stands."""
    if given is not None:
        return Position(given.branch, given.head)
    if tx.first(_HAS_ROOT, {"thread_key": thread.key}) is None:
        return Position(thread.branch, thread.head)
    return Position(0, 0)


def put_alone(tx: Tx, op: PutCheckpoint) -> Put | None:
    """Write a checkpoint that brings nothing else, in one statement, if the thread stands where its parent stands."""
    if op.known is None or not _brings_nothing(op):
        return None
    root = not op.address.ns
    start = op.start if root else None
    base = None
    if start is not None:
        base = min(start.head if op.base is None else op.base, start.head)
    params = {
        "thread_id": op.address.thread_id,
        "owner": op.address.resource_id if root else None,
        "epoch": op.known[0],
        "edits": op.known[1],
        "ids": sorted(brought_ids(op)),
        "ns": stored_ns(op.address.ns),
        "id": op.id,
        "parent": op.parent,
        "body": dump_skeleton(op.skeleton),
        "metadata": op.metadata,
        "run": op.run,
        "hidden": 0,
        "branch": start and start.branch,
        "head": start and start.head,
        "base": base,
        "created_at": tx.now,
    }
    if not tx.run(_put_root(tx.dialect) if root else _PUT_NESTED, params):
        return None
    return Put(op.known, (), (), None if start is None or base is None else Place(start.branch, start.head, base))


def _brings_nothing(op: PutCheckpoint) -> bool:
    """Tell whether a checkpoint is a row and nothing else, if the thread is as it was planned for."""
    if op.known is None or op.bodies or op.values:
        return False
    return bool(op.address.ns) or (op.start is not None and not _is_archiving(op.archive))


def _points_nowhere(op: PutWrites) -> bool:
    """Tell whether what a task did stands in its own row."""
    return op.known is not None and not op.bodies and not any(w.entry.has_ranges() for w in op.task_writes)


def _is_archiving(plan: ArchivePlan | None) -> bool:
    return plan is not None and bool(plan.messages or plan.removed or plan.accepted or plan.demote)


@dataclass(frozen=True, slots=True)
class _Found:
    """What a put looks up first.

    Attributes:
        thread: The locked row.
        made: Whether it was made now.
        known: The rows of the plan's ids.
        dead: Which of the messages that it brings were deleted.
        last: The last number of each space that it writes to.
    """

    thread: ThreadRow
    made: bool
    known: list[KnownRow]
    dead: frozenset[str]
    last: dict[str, int]


def _look_up(tx: Tx, op: PutCheckpoint | PutWrites, plan: ArchivePlan | None, *, begin: bool = False) -> _Found:
    """Lock the thread's row, making it if it is missing, and look up what a put needs; in one trip where it is there.

    Each question sees what is committed when it is asked, and the row is locked by then.
    """
    thread_id = op.address.thread_id
    archived = {message.id for message in plan.messages} if plan is not None else set()
    questions = [
        known_rows(thread_id, plan),
        find_dead(thread_id, brought_ids(op) - archived),
        _last_numbers(thread_id, op.bodies),
    ]
    lock = (_LOCK, {"thread_id": thread_id})
    rows, *answers = tx.all_of([lock, *(question for question in questions if question is not None)], begin=begin)
    thread, made = own_thread(tx, rows, op.address, op.new_thread, op.features)
    if not rows:  # nobody could have locked it: ask again
        answers = tx.all_of([question for question in questions if question is not None])
    left = iter(answers)
    known, graves, numbers = ([] if question is None else next(left) for question in questions)
    rows_there = [KnownRow._make(row) for row in known]
    dead = frozenset([*(row.id for row in rows_there if row.seq < 0), *(message_id for (message_id,) in graves)])
    last = {space: n for space, n in numbers if n is not None}
    return _Found(thread, made, rows_there, dead, last)


in_every_turn(lambda dialect: (_put_root(dialect), _ADD_AT_ONCE))


@tries_alone(PutCheckpoint, single=_brings_nothing)
def put_outside(tx: Tx, op: PutCheckpoint) -> Put | Stale | Need | None:
    """Write a checkpoint in one statement; on a server also in a transaction that begins with the look-up."""
    at_once = put_alone(tx, op)
    if tx.dialect == "sqlite" or at_once is not None:
        return at_once
    at_once = None if tx.overtaken else append(tx, op, begin=True)
    return _put(tx, op, begin=True) if at_once is None else at_once


@handles(PutCheckpoint)
def put_checkpoint(tx: Tx, op: PutCheckpoint) -> Put | Stale | Need:
    """Write a checkpoint; see `PutCheckpoint`."""
    at_once = None if tx.overtaken else put_alone(tx, op) or append(tx, op)
    return _put(tx, op) if at_once is None else at_once


def _put(tx: Tx, op: PutCheckpoint, *, begin: bool = False) -> Put | Stale | Need:
    root = not op.address.ns
    found = _look_up(tx, op, op.archive if root else None, begin=begin)
    thread, made = found.thread, found.made
    if op.known is not None and op.known != state_of(thread):
        return Stale(None if made else state_of(thread))
    outcome: Archive | None = None
    place: Place | None = None
    if root:
        start = Position(thread.branch, thread.head) if made else _start(tx, thread, op.start)
        base = start.head if op.base is None else op.base
        plan = op.archive or ArchivePlan()
        if tuple(start) != (thread.branch, thread.head):
            again = tx.first(_PLACE, {"thread_key": thread.key, "checkpoint_id": op.id})
            if again is not None:  # the same checkpoint once more: what it brings is there
                start, base, plan = Position(again[0], again[1]), again[2], ArchivePlan()
        archived = archive_messages(tx, thread, start, base, plan, found.known)
        if isinstance(archived, Need):
            return archived
        outcome = archived
        place = Place(outcome.branch, outcome.head, min(base, outcome.head))
    new, gone = without_dead(op.bodies, found.dead)
    numbers, added = _number_bodies(tx, thread.key, new, found.last)
    stored = _number_values(tx, thread.key, op.values)
    last: list[tuple[sa.ClauseElement, dict[str, Any]]] = [] if outcome is None else outcome.statements()
    last += [(_ADD_BODY, row) for row in added]
    last.append(
        (
            _PUT,
            {
                "thread": thread.key,
                "ns": stored_ns(op.address.ns),
                "id": op.id,
                "parent": op.parent,
                "body": dump_skeleton(_without_dead(settle_skeleton(op.skeleton, numbers, stored), found.dead)),
                "metadata": op.metadata,
                "run": op.run,
                "hidden": 0,
                "branch": place and place.branch,
                "head": place and place.head,
                "base": place and place.base,
                "created_at": tx.now,
            },
        )
    )
    edits = thread.edits
    if place is not None and outcome is not None:
        edits = outcome.edits
        # Beside others always: a step that waits for the row is to see that there is a newer checkpoint.
        moved = outcome.changed or (place.branch, place.head) != (thread.branch, thread.head)
        if moved or tx.dialect == "postgresql":
            settled = {
                "thread_key": thread.key,
                "new_id": op.id,
                "new_branch": place.branch,
                "new_head": place.head,
                "new_next_seq": outcome.next_seq,
                "new_texts": outcome.texts,
                "new_edits": outcome.edits,
                "new_updated_at": max(tx.now, thread.updated_at) if outcome.changed else thread.updated_at,
            }
            last.append((_SETTLE, settled))
    tx.run_all(last)
    if outcome is not None:
        outcome.tell(tx, thread, op.features)
    return Put((thread.epoch, edits), tuple(numbers), tuple(stored), place, gone)


def _without_dead(skeleton: Skeleton, dead: frozenset[str]) -> Skeleton:
    """Return a checkpoint without the deleted messages that were to be kept in place."""
    if not dead:
        return skeleton
    return skeleton._replace(entries={name: emptied(entry, dead) for name, entry in skeleton.entries.items()})


@tries_alone(PutWrites, single=_points_nowhere)
def put_writes_alone(tx: Tx, op: PutWrites) -> Put | None:
    """Write what a task did in one statement, if the thread is there, and it brings no bodies and is the first call."""
    if op.known is None or not _points_nowhere(op):
        return None
    params = {
        "thread_id": op.address.thread_id,
        "owner": op.address.resource_id if not op.address.ns else None,
        "ids": sorted(brought_ids(op)),
        "ns": stored_ns(op.address.ns),
        "checkpoint": op.checkpoint,
        "task_id": op.task_id,
        "task_path": op.task_path,
        "body": dump_writes(merge_writes((), op.task_writes)),
    }
    return Put(op.known, ()) if tx.run(_ADD_AT_ONCE, params) else None


@handles(PutWrites)
def put_writes(tx: Tx, op: PutWrites) -> Put | Stale:
    """Write what a task did; see `PutWrites`."""
    alone = put_writes_alone(tx, op) if tx.dialect == "sqlite" else None
    if alone is not None:
        return alone
    found = _look_up(tx, op, None)
    thread = found.thread
    if op.known is not None and op.known != state_of(thread):
        return Stale(None if found.made else state_of(thread))
    bodies_left, gone = without_dead(op.bodies, found.dead)
    numbers, added = _number_bodies(tx, thread.key, bodies_left, found.last)
    tx.run_all([(_ADD_BODY, row) for row in added])
    new = [Write(w.index, w.channel, emptied(settle_entry(w.entry, numbers), found.dead)) for w in op.task_writes]
    key = {
        "thread": thread.key,
        "ns": stored_ns(op.address.ns),
        "checkpoint": op.checkpoint,
        "task_id": op.task_id,
    }
    if tx.run(_ADD_WRITES, {**key, "task_path": op.task_path, "body": dump_writes(merge_writes((), new))}) == 0:
        there = load_writes(tx.value(_TASK_WRITES, key))
        tx.run(_CHANGE_WRITES, {**key, "new_body": dump_writes(merge_writes(there, new))})
    return Put(state_of(thread), tuple(numbers), gone=gone)
