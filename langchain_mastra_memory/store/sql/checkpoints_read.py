"""Reading checkpoints: one, a page of a listing, or the ancestors that a DeltaChannel is rebuilt from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import sqlalchemy as sa

from langchain_mastra_memory.store.operations.checkpoints import (
    Address,
    FindBodies,
    GetCheckpoint,
    GetHistory,
    History,
    ListCheckpoints,
    Place,
    Read,
    State,
    StoredCheckpoint,
    TaskWrites,
)
from langchain_mastra_memory.store.sql.checkpoints import state_of, stored_ns
from langchain_mastra_memory.store.sql.locking import ThreadRow, find_thread, not_found
from langchain_mastra_memory.store.sql.registry import handles, in_every_turn, tries_alone
from langchain_mastra_memory.store.sql.schema import threads
from langchain_mastra_memory.store.sql.tables_checkpoints import bodies, checkpoints, values, writes
from langchain_mastra_memory.store.sql.tx import Tx, any_of
from langchain_mastra_memory.threads.entries import covering, load_skeleton, load_writes, without

SPARSE: Final = 4
"""Bodies are read in one stretch from the first to the last, unless that is over so many times what is wanted."""
CHUNK: Final = 32
"""Ancestors read at once."""

_COLUMNS = (
    checkpoints.c.ns,
    checkpoints.c.id,
    checkpoints.c.parent,
    checkpoints.c.body,
    checkpoints.c.metadata,
    checkpoints.c.branch,
    checkpoints.c.head,
    checkpoints.c.base,
)
_in_ns = (
    checkpoints.c.thread == sa.bindparam("thread_key"),
    checkpoints.c.ns == sa.bindparam("ns"),
)


_named = threads.alias("named")
_key = sa.select(_named.c.key).where(_named.c.id == sa.bindparam("thread_id")).scalar_subquery()
_other = checkpoints.alias("other")
_newest = (
    sa.select(sa.func.max(_other.c.id))
    .where(_other.c.thread == _key, _other.c.ns == sa.bindparam("ns"), _other.c.hidden == sa.literal(0))
    .scalar_subquery()
)


def _at(checkpoint_id: sa.ColumnElement[str]) -> sa.Select[Any]:
    """Return a thread, one of its checkpoints and what its tasks wrote: a row for each task, or one without.

    Every table is asked by a key that does not depend on the others, so that no engine can think of joining whole
    tables, whatever it knows of their sizes.
    """
    of_thread = (checkpoints.c.thread == _key, checkpoints.c.ns == sa.bindparam("ns"))
    of_checkpoint = (
        writes.c.thread == _key,
        writes.c.ns == sa.bindparam("ns"),
        writes.c.checkpoint == checkpoint_id,
    )
    visible = checkpoints.c.hidden == sa.literal(0)
    return (
        sa.select(
            threads.c.key,
            threads.c.resource_id,
            threads.c.epoch,
            threads.c.edits,
            *_COLUMNS,
            writes.c.task_id,
            writes.c.task_path,
            writes.c.body,
        )
        .select_from(threads)
        .outerjoin(checkpoints, sa.and_(*of_thread, checkpoints.c.id == checkpoint_id, visible))
        .outerjoin(writes, sa.and_(*of_checkpoint))
        .where(threads.c.id == sa.bindparam("thread_id"))
        .order_by(writes.c.task_path, writes.c.task_id)
    )


_ONE = _at(sa.bindparam("checkpoint_id", type_=checkpoints.c.id.type))
_NEWEST = _at(_newest)
_WRITES = (
    sa.select(writes.c.task_id, writes.c.task_path, writes.c.body)
    .where(
        writes.c.thread == sa.bindparam("thread_key"),
        writes.c.ns == sa.bindparam("ns"),
        writes.c.checkpoint == sa.bindparam("checkpoint_id"),
    )
    .order_by(writes.c.task_path, writes.c.task_id)
)
_WRITES_OF_MANY = (
    sa.select(writes.c.checkpoint, writes.c.task_id, writes.c.task_path, writes.c.body)
    .where(
        writes.c.thread == sa.bindparam("thread_key"),
        writes.c.ns == sa.bindparam("ns"),
        any_of(writes.c.checkpoint, "ids"),
    )
    .order_by(writes.c.checkpoint, writes.c.task_path, writes.c.task_id)
)
_BODIES = sa.select(bodies.c.n, bodies.c.form, bodies.c.body).where(
    bodies.c.thread == sa.bindparam("thread_key"),
    bodies.c.space == sa.bindparam("space"),
    bodies.c.n >= sa.bindparam("first"),
    bodies.c.n <= sa.bindparam("last"),
)
_VALUES = sa.select(values.c.n, values.c.body).where(
    values.c.thread == sa.bindparam("thread_key"), any_of(values.c.n, "numbers")
)
_BY_IDS = sa.select(bodies.c.space, bodies.c.n, bodies.c.id, bodies.c.form, bodies.c.body).where(
    bodies.c.thread == sa.bindparam("thread_key"), any_of(bodies.c.id, "ids")
)


def thread_of(tx: Tx, thread_id: str, resource_id: str | None) -> ThreadRow | None:
    """Return a thread's row, or None.

    Raises:
        ThreadNotFoundError: `resource_id` is given and another resource owns it.
    """
    thread = find_thread(tx, thread_id)
    if thread is not None and resource_id is not None and thread.resource_id not in (None, resource_id):
        raise not_found(thread_id)
    return thread


def stored_checkpoint(
    thread_id: str, row: Sequence[Any], tasks: Iterable[tuple[str, str, bytes]] = ()
) -> StoredCheckpoint:
    """Return a row of `_COLUMNS` with what its tasks wrote."""
    ns, checkpoint_id, parent, body, metadata, branch, head, base = row
    return StoredCheckpoint(
        thread_id=thread_id,
        ns=ns[1:],
        id=checkpoint_id,
        parent=parent,
        skeleton=load_skeleton(body),
        metadata=metadata,
        place=None if branch is None else Place(branch, head, base),
        tasks=tuple(TaskWrites(task_id, path, tuple(load_writes(data))) for task_id, path, data in tasks),
    )


@dataclass(frozen=True, slots=True)
class _Where:
    """The thread that something is read of: its key inside the database and its state."""

    key: int
    state: State


def _read(
    tx: Tx,
    where: _Where,
    found: Sequence[StoredCheckpoint],
    have: Mapping[str, tuple[int, int]] | None = None,
) -> Read:
    """Return checkpoints with the bodies and values that they need."""
    have = have or {}
    entries = [entry for c in found for entry in c.skeleton.entries.values()]
    entries += [write.entry for c in found for task in c.tasks for write in task.writes]
    wanted = covering(part for entry in entries for part in entry.ranges())
    read: dict[str, dict[int, tuple[str, bytes]]] = {}
    for space, intervals in wanted.items():
        missing = without(intervals, have.get(space))
        if missing:
            read[space] = _read_bodies(tx, where.key, space, missing)
    numbers = [entry.payload for entry in entries if type(entry.payload) is int]
    stored: dict[int, bytes] = {}
    if numbers:
        stored.update((n, body) for n, body in tx.all(_VALUES, {"thread_key": where.key, "numbers": numbers}))
    return Read(where.state, tuple(found), read, stored)


def _read_bodies(
    tx: Tx, thread_key: int, space: str, intervals: Sequence[tuple[int, int]]
) -> dict[int, tuple[str, bytes]]:
    first, last = intervals[0][0], intervals[-1][1]
    count = sum(high - low + 1 for low, high in intervals)
    if last - first < SPARSE * count + CHUNK:
        intervals = [(first, last)]
    found: dict[int, tuple[str, bytes]] = {}
    for low, high in intervals:
        params = {"thread_key": thread_key, "space": space, "first": low, "last": high}
        for n, form, body in tx.all(_BODIES, params):
            found[n] = (form, body)
    return found


def _one(tx: Tx, address: Address, checkpoint_id: str | None) -> tuple[_Where | None, StoredCheckpoint | None]:
    """Return the thread and one of its checkpoints, or the newest; None for what is missing.

    Raises:
        ThreadNotFoundError: It is the root namespace, and another resource owns the thread.
    """
    params = {"thread_id": address.thread_id, "ns": stored_ns(address.ns)}
    if checkpoint_id is None:
        rows = tx.all(_NEWEST, params)
    else:
        rows = tx.all(_ONE, {**params, "checkpoint_id": checkpoint_id})
    if not rows:
        return None, None
    key, owner, epoch, edits, *row = rows[0]
    if not address.ns and address.resource_id is not None and owner not in (None, address.resource_id):
        raise not_found(address.thread_id)
    where = _Where(key, (epoch, edits))
    if row[0] is None:
        return where, None
    tasks = [(task_id, path, body) for *_, task_id, path, body in rows if task_id is not None]
    return where, stored_checkpoint(address.thread_id, row[:-3], tasks)


in_every_turn(lambda _dialect: (_NEWEST, _BODIES))


@tries_alone(GetCheckpoint, single=lambda op: bool(op.have))
def get_alone(tx: Tx, op: GetCheckpoint) -> Read | None:
    """Return a checkpoint in one statement, if the asker has every body and value that it needs."""
    where, found = _one(tx, op.address, op.id)
    if where is None:
        return Read(None)
    if found is None:
        return Read(where.state)
    have = op.have if op.known == where.state else {}
    entries = [*found.skeleton.entries.values(), *(write.entry for task in found.tasks for write in task.writes)]
    wanted = covering(part for entry in entries for part in entry.ranges())
    if any(without(intervals, have.get(space)) for space, intervals in wanted.items()):
        return None
    if any(type(entry.payload) is int for entry in entries):
        return None
    return Read(where.state, (found,))


@handles(GetCheckpoint)
def get_checkpoint(tx: Tx, op: GetCheckpoint) -> Read:
    """Return a checkpoint; see `GetCheckpoint`."""
    where, found = _one(tx, op.address, op.id)
    if where is None:
        return Read(None)
    if found is None:
        return Read(where.state)
    return _read(tx, where, [found], op.have if op.known == where.state else None)


@handles(FindBodies)
def find_bodies(tx: Tx, op: FindBodies) -> tuple[State | None, tuple[tuple[str, int, str, str, bytes], ...]]:
    """Return bodies by message id; see `FindBodies`."""
    thread = find_thread(tx, op.thread_id)
    if thread is None:
        return None, ()
    rows = tx.all(_BY_IDS, {"thread_key": thread.key, "ids": list(op.ids)})
    return state_of(thread), tuple((space, n, i, form, bytes(body)) for space, n, i, form, body in rows)


def _chain() -> sa.Select[Any]:
    """Return the ancestors of a checkpoint, itself first, so many at most."""
    start = (
        sa.select(checkpoints.c.id, checkpoints.c.parent, sa.literal(0).label("depth"))
        .where(*_in_ns, checkpoints.c.id == sa.bindparam("checkpoint_id"))
        .cte("chain", recursive=True)
    )
    older = checkpoints.alias("older")
    chain = start.union_all(
        sa.select(older.c.id, older.c.parent, start.c.depth + 1).where(
            older.c.thread == sa.bindparam("thread_key"),
            older.c.ns == sa.bindparam("ns"),
            older.c.id == start.c.parent,
            start.c.depth < CHUNK,
        )
    )
    return (
        sa.select(*_COLUMNS).join(chain, sa.and_(checkpoints.c.id == chain.c.id)).where(*_in_ns).order_by(chain.c.depth)
    )


_CHAIN = _chain()


def ancestors(tx: Tx, thread_key: int, address: Address, checkpoint_id: str) -> Iterable[StoredCheckpoint]:
    """Yield a checkpoint and its ancestors with their writes, hidden ones too, newest first."""
    key = {"thread_key": thread_key, "ns": stored_ns(address.ns)}
    cursor: str | None = checkpoint_id
    met: set[str] = set()
    while cursor is not None:
        rows = [row for row in tx.all(_CHAIN, {**key, "checkpoint_id": cursor}) if row[1] not in met]
        if not rows:
            return
        met.update(row[1] for row in rows)
        tasks: dict[str, list[tuple[str, str, bytes]]] = {}
        for owner, *task in tx.all(_WRITES_OF_MANY, {**key, "ids": [row[1] for row in rows]}):
            tasks.setdefault(owner, []).append((task[0], task[1], task[2]))
        for row in rows:
            yield stored_checkpoint(address.thread_id, row, tasks.get(row[1], ()))
        cursor = rows[-1][2]


@handles(GetHistory)
def get_history(tx: Tx, op: GetHistory) -> History:
    """Return what some channels were made from; see `GetHistory`."""
    where, target = _one(tx, op.address, op.id)
    if where is None:
        return History(Read(None), None)
    if target is None or target.parent is None:
        return History(Read(where.state), target)
    remaining = set(op.channels)
    found: list[StoredCheckpoint] = []
    for ancestor in ancestors(tx, where.key, op.address, target.parent):
        found.append(_only(ancestor, op.channels))
        remaining -= set(ancestor.skeleton.entries)
        if not remaining:
            break
    return History(_read(tx, where, found), target)


def _only(checkpoint: StoredCheckpoint, channels: Sequence[str]) -> StoredCheckpoint:
    """Leave out the values and writes of other channels: nobody asked for their bodies."""
    entries = {name: entry for name, entry in checkpoint.skeleton.entries.items() if name in channels}
    tasks = tuple(
        TaskWrites(t.task_id, t.task_path, tuple(w for w in t.writes if w.channel in channels))
        for t in checkpoint.tasks
    )
    return replace(checkpoint, skeleton=checkpoint.skeleton._replace(entries=entries), tasks=tasks)


def _filter_clause(index: int, value: str | float | bool | None, dialect: str) -> sa.ColumnElement[bool]:
    """Return "this metadata key is this scalar", key and value bound; None is a missing key as well."""
    key = f"key_{index}"
    wanted: sa.BindParameter[Any] = sa.bindparam(f"value_{index}", type_=sa.types.NullType())
    if dialect == "postgresql":
        field = sa.cast(checkpoints.c.metadata, _Jsonb()).op("->")(sa.bindparam(key, type_=sa.Text))
        if value is None:
            return sa.or_(field.is_(None), field == sa.cast(sa.literal_column("'null'"), _Jsonb()))
        return sa.func.coalesce(field == sa.cast(wanted, _Jsonb()), sa.false())
    each = sa.func.json_each(checkpoints.c.metadata).table_valued("key", "value", "type").alias(f"each_{index}")
    same_key = each.c.key == sa.bindparam(key)
    if value is None:
        return ~sa.exists().where(same_key, each.c.type != sa.literal("null")).select_from(each)
    if isinstance(value, bool):
        return sa.exists().where(same_key, each.c.type == wanted).select_from(each)
    kind = each.c.type == sa.literal("text")
    if not isinstance(value, str):
        kind = sa.or_(each.c.type == sa.literal("integer"), each.c.type == sa.literal("real"))
    return sa.exists().where(same_key, kind, each.c.value == wanted).select_from(each)


class _Jsonb(sa.types.UserDefinedType[Any]):
    """PostgreSQL's jsonb, with text going in and nothing coming out."""

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        """Return the name of the type."""
        return "jsonb"


@handles(ListCheckpoints)
def list_checkpoints(tx: Tx, op: ListCheckpoints) -> list[Read]:
    """Return a page of checkpoints; see `ListCheckpoints`."""
    statement = (
        sa.select(threads.c.id, threads.c.key, *_COLUMNS)
        .join(threads, threads.c.key == checkpoints.c.thread)
        .where(checkpoints.c.hidden == sa.literal(0))
        .order_by(checkpoints.c.id.desc(), checkpoints.c.thread.desc(), checkpoints.c.ns.desc())
        .limit(op.limit)
    )
    params: dict[str, Any] = {}

    def where(condition: sa.ColumnElement[bool], **given: Any) -> None:
        nonlocal statement
        statement = statement.where(condition)
        params.update(given)

    if op.thread_id is not None:
        thread = thread_of(tx, op.thread_id, op.resource_id)
        if thread is None:
            return []
        where(checkpoints.c.thread == sa.bindparam("thread_key"), thread_key=thread.key)
    if op.ns is not None:
        where(checkpoints.c.ns == sa.bindparam("ns"), ns=stored_ns(op.ns))
    if op.id is not None:
        where(checkpoints.c.id == sa.bindparam("checkpoint_id"), checkpoint_id=op.id)
    if op.before is not None:
        where(checkpoints.c.id < sa.bindparam("before"), before=op.before)
    for index, (key, value) in enumerate(op.filters.items()):
        bound: dict[str, Any] = {f"key_{index}": key}
        if value is not None:
            bound[f"value_{index}"] = _filter_value(value, tx.dialect)
        where(_filter_clause(index, value, tx.dialect), **bound)
    if op.after is not None:
        where(
            sa.tuple_(checkpoints.c.id, checkpoints.c.thread, checkpoints.c.ns)
            < sa.tuple_(sa.bindparam("after_id"), sa.bindparam("after_thread"), sa.bindparam("after_ns")),
            after_id=op.after[0],
            after_thread=op.after[1],
            after_ns=op.after[2],
        )
    pages = []
    owners: dict[str, ThreadRow] = {}
    for thread_id, thread_key, *row in tx.all(statement, params, keep=False):
        owner = owners.get(thread_id) or owners.setdefault(thread_id, thread_of(tx, thread_id, None))  # type: ignore[arg-type]  # the join found it
        tasks = tx.all(_WRITES, {"thread_key": thread_key, "ns": row[0], "checkpoint_id": row[1]})
        read = _read(tx, _Where(owner.key, state_of(owner)), [stored_checkpoint(thread_id, row, tasks)])
        pages.append(replace(read, cursor=(row[1], thread_key, row[0])))
    return pages


def _filter_value(value: str | float | bool, dialect: str) -> Any:
    from langchain_mastra_memory.store.sql.values import dump_json  # noqa: PLC0415

    if dialect == "postgresql":
        return dump_json(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return value
