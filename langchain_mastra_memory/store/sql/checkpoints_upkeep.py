"""Removing and copying checkpoints: by run, all but the newest, with a whole thread."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import sqlalchemy as sa

from langchain_mastra_memory.errors import InvalidIdError
from langchain_mastra_memory.store.operations.checkpoints import (
    Address,
    CopyCheckpoints,
    DeleteRuns,
    PruneCheckpoints,
    StoredCheckpoint,
)
from langchain_mastra_memory.store.sql.cascade import CopiedRow, ThreadCopy, on_thread_copied
from langchain_mastra_memory.store.sql.checkpoints_read import ancestors
from langchain_mastra_memory.store.sql.lines import make_thread, move_thread
from langchain_mastra_memory.store.sql.locking import ThreadRow, find_thread, lock_thread
from langchain_mastra_memory.store.sql.positions import ROOT
from langchain_mastra_memory.store.sql.registry import handles
from langchain_mastra_memory.store.sql.schema import branches, messages, threads, tombstones
from langchain_mastra_memory.store.sql.tables_checkpoints import bodies, checkpoints, values, writes
from langchain_mastra_memory.store.sql.tx import Tx, any_of
from langchain_mastra_memory.store.sql.values import load_json
from langchain_mastra_memory.store.sql.view import ViewStatements, path_of
from langchain_mastra_memory.threads.entries import Entry, covering, load_skeleton, load_writes

_TABLES: Final = (checkpoints, writes, values, bodies)
_of_thread = checkpoints.c.thread == sa.bindparam("thread_key")
_THREADS_OF_RUNS = (
    sa.select(threads.c.id)
    .join(checkpoints, checkpoints.c.thread == threads.c.key)
    .where(any_of(checkpoints.c.run, "runs"), checkpoints.c.hidden == sa.literal(0))
    .distinct()
    .order_by(threads.c.id)
)
_OF_RUNS = sa.select(checkpoints.c.ns, checkpoints.c.id).where(
    _of_thread, any_of(checkpoints.c.run, "runs"), checkpoints.c.hidden == sa.literal(0)
)
_SHOWN = (
    sa.select(checkpoints.c.ns, checkpoints.c.id, checkpoints.c.parent, checkpoints.c.metadata, checkpoints.c.body)
    .where(_of_thread, checkpoints.c.hidden == sa.literal(0))
    .order_by(checkpoints.c.ns, checkpoints.c.id.desc())
)
_EVERY_KEY = sa.select(checkpoints.c.ns, checkpoints.c.id).where(_of_thread)
_at = (_of_thread, checkpoints.c.ns == sa.bindparam("at_ns"), any_of(checkpoints.c.id, "ids"))
_DROP = sa.delete(checkpoints).where(*_at)
_HIDE = sa.update(checkpoints).where(*_at).values(hidden=sa.literal(1), run=sa.null())
_DETACH = (
    sa.update(checkpoints)
    .where(_of_thread, checkpoints.c.ns == sa.bindparam("at_ns"), any_of(checkpoints.c.parent, "ids"))
    .values(parent=sa.null())
)
_DROP_WRITES = sa.delete(writes).where(
    writes.c.thread == sa.bindparam("thread_key"),
    writes.c.ns == sa.bindparam("at_ns"),
    any_of(writes.c.checkpoint, "ids"),
)
_NEWEST = (
    sa.select(checkpoints.c.branch, checkpoints.c.head)
    .where(_of_thread, checkpoints.c.ns == sa.literal(ROOT), checkpoints.c.hidden == sa.literal(0))
    .order_by(checkpoints.c.id.desc())
    .limit(1)
)
_ALL_BODIES = sa.select(checkpoints.c.body).where(_of_thread)
_ALL_WRITES = sa.select(writes.c.body).where(writes.c.thread == sa.bindparam("thread_key"))
_NUMBERS = sa.select(bodies.c.space, bodies.c.n).where(bodies.c.thread == sa.bindparam("thread_key"))
_DROP_BODIES = sa.delete(bodies).where(
    bodies.c.thread == sa.bindparam("thread_key"), bodies.c.space == sa.bindparam("at_space"), any_of(bodies.c.n, "ns")
)
_VALUE_NUMBERS = sa.select(values.c.n).where(values.c.thread == sa.bindparam("thread_key"))
_DROP_VALUES = sa.delete(values).where(values.c.thread == sa.bindparam("thread_key"), any_of(values.c.n, "ns"))
_DROP_ALL = {table.name: sa.delete(table).where(table.c.thread == sa.bindparam("thread_key")) for table in _TABLES}
_COUNT = sa.select(sa.func.count()).select_from(checkpoints).where(_of_thread)

Key = tuple[str, str]
"""Stored namespace and id of a checkpoint."""


def delete_thread_checkpoints(tx: Tx, thread_key: int) -> int:
    """Remove every checkpoint of a thread with all that belongs to it; return how many there were."""
    count = int(tx.value(_COUNT, {"thread_key": thread_key}))
    for table in _TABLES:
        tx.run(_DROP_ALL[table.name], {"thread_key": thread_key})
    return count


def _delta_channels(metadata: str, entries: Iterable[str]) -> set[str]:
    """Return the channels of a checkpoint that are rebuilt from its ancestors."""
    counted = load_json(metadata).get("counters_since_delta_snapshot") or {}
    return set(counted) - set(entries)


def _needed(tx: Tx, thread: ThreadRow, ns: str, kept: Iterable[StoredCheckpoint]) -> set[str]:
    """Return the ids of the ancestors that DeltaChannels of some checkpoints are rebuilt from."""
    needed: set[str] = set()
    for checkpoint in kept:
        remaining = _delta_channels(checkpoint.metadata, checkpoint.skeleton.entries)
        if not remaining or checkpoint.parent is None or checkpoint.parent in needed:
            continue
        for ancestor in ancestors(tx, thread.key, Address(thread.id, ns[1:]), checkpoint.parent):
            needed.add(ancestor.id)
            remaining -= set(ancestor.skeleton.entries)
            if not remaining:
                break
    return needed


def _shown(tx: Tx, thread: ThreadRow) -> dict[str, list[StoredCheckpoint]]:
    """Return a thread's checkpoints by stored namespace, newest first."""
    found: dict[str, list[StoredCheckpoint]] = {}
    for ns, checkpoint_id, parent, metadata, body in tx.all(_SHOWN, {"thread_key": thread.key}):
        stored = StoredCheckpoint(thread.id, ns[1:], checkpoint_id, parent, load_skeleton(body), metadata, None)
        found.setdefault(ns, []).append(stored)
    return found


def _remove(tx: Tx, thread: ThreadRow, keys: Iterable[Key], *, writes_too: bool = True) -> None:
    by_ns: dict[str, list[str]] = {}
    for ns, checkpoint_id in keys:
        by_ns.setdefault(ns, []).append(checkpoint_id)
    for ns, ids in by_ns.items():
        params = {"thread_key": thread.key, "at_ns": ns, "ids": ids}
        tx.run(_DROP, params)
        if writes_too:
            tx.run(_DROP_WRITES, params)


def _collect_garbage(tx: Tx, thread_key: int) -> None:
    """Remove bodies and values that no checkpoint and no write of a thread points to."""
    key = {"thread_key": thread_key}
    entries: list[Entry] = []
    for (body,) in tx.all(_ALL_BODIES, key):
        entries += load_skeleton(body).entries.values()
    for (body,) in tx.all(_ALL_WRITES, key):
        entries += (write.entry for write in load_writes(body))
    used = covering(part for entry in entries for part in entry.ranges())
    unused: dict[str, list[int]] = {}
    for space, n in tx.all(_NUMBERS, key):
        if not any(first <= n <= last for first, last in used.get(space, ())):
            unused.setdefault(space, []).append(n)
    for space, numbers in unused.items():
        tx.run(_DROP_BODIES, {**key, "at_space": space, "ns": numbers})
    held = {entry.payload for entry in entries if type(entry.payload) is int}
    loose = [n for (n,) in tx.all(_VALUE_NUMBERS, key) if n not in held]
    if loose:
        tx.run(_DROP_VALUES, {**key, "ns": loose})


def _stand_at_newest(tx: Tx, thread: ThreadRow) -> None:
    """Let a thread stand where its newest root checkpoint stands; without one it stays where it is."""
    row = tx.first(_NEWEST, {"thread_key": thread.key})
    if row is not None and row[0] is not None and (row[0], row[1]) != (thread.branch, thread.head):
        move_thread(tx, thread.key, branch=row[0], head=row[1], next_seq=thread.next_seq)


@handles(DeleteRuns)
def delete_runs(tx: Tx, op: DeleteRuns) -> int:
    """Remove the checkpoints of some runs; see `DeleteRuns`."""
    runs = list(op.run_ids)
    count = 0
    for (thread_id,) in tx.all(_THREADS_OF_RUNS, {"runs": runs}):
        thread = lock_thread(tx, thread_id, None, edits=1, touch=False)
        doomed = {(ns, i) for ns, i in tx.all(_OF_RUNS, {"thread_key": thread.key, "runs": runs})}
        count += len(doomed)
        shown = _shown(tx, thread)
        hidden: set[Key] = set()
        for ns, found in shown.items():
            kept = [c for c in found if (ns, c.id) not in doomed]
            if len(kept) < len(found):
                hidden |= {(ns, i) for i in _needed(tx, thread, ns, kept)} & doomed
        for ns, checkpoint_id in hidden:
            tx.run(_HIDE, {"thread_key": thread.key, "at_ns": ns, "ids": [checkpoint_id]})
        _remove(tx, thread, doomed - hidden)
        _collect_garbage(tx, thread.key)
        _stand_at_newest(tx, thread)
    return count


@handles(PruneCheckpoints)
def prune_checkpoints(tx: Tx, op: PruneCheckpoints) -> int:
    """Remove checkpoints of a thread; see `PruneCheckpoints`."""
    if find_thread(tx, op.thread_id) is None:
        return 0
    thread = lock_thread(tx, op.thread_id, None, edits=1, touch=False)
    if not op.keep_latest:
        return delete_thread_checkpoints(tx, thread.key)
    shown = _shown(tx, thread)
    kept: set[Key] = set()
    roots = shown.get(ROOT, [])[:1]
    for ns, found in shown.items():
        newest = found[0]
        if ns != ROOT and ":" in ns and not _belongs_to(newest, roots):
            continue
        kept.add((ns, newest.id))
        kept |= {(ns, i) for i in _needed(tx, thread, ns, [newest])}
    every = {(ns, i) for ns, i in tx.all(_EVERY_KEY, {"thread_key": thread.key})}
    removed = every - kept
    _remove(tx, thread, removed)
    by_ns: dict[str, list[str]] = {}
    for ns, checkpoint_id in removed:
        by_ns.setdefault(ns, []).append(checkpoint_id)
    for ns, ids in by_ns.items():
        tx.run(_DETACH, {"thread_key": thread.key, "at_ns": ns, "ids": ids})
    _collect_garbage(tx, thread.key)
    return len(removed)


def _belongs_to(checkpoint: StoredCheckpoint, roots: list[StoredCheckpoint]) -> bool:
    """Tell whether a call's checkpoint was made under one of these; one that does not say is kept."""
    parent = (load_json(checkpoint.metadata).get("parents") or {}).get("")
    return parent is None or any(root.id == parent for root in roots)


# Copying


def _copy(table: sa.Table) -> sa.Insert:
    columns = [
        sa.bindparam("target_key", type_=sa.BigInteger) if column.name == "thread" else column for column in table.c
    ]
    source = sa.select(*columns).where(table.c.thread == sa.bindparam("source_key"))
    return sa.insert(table).from_select([column.name for column in table.c], source)


_COPIES: Final = tuple(_copy(table) for table in (branches, messages, tombstones))
_COPY_CHECKPOINTS: Final = tuple(_copy(table) for table in _TABLES)
_ANY_MESSAGE = sa.select(sa.literal(1)).where(messages.c.thread == sa.bindparam("thread_key")).limit(1)
_ANY_CHECKPOINT = sa.select(sa.literal(1)).where(_of_thread).limit(1)
_DROP_TOMBSTONES = sa.delete(tombstones).where(tombstones.c.thread == sa.bindparam("thread_key"))
_IN_VIEW = ViewStatements(
    lambda in_view: (
        sa.select(messages.c.seq, messages.c.branch, messages.c.id)
        .where(messages.c.thread == sa.bindparam("source_key"), in_view)
        .order_by(messages.c.seq)
    )
)


def copy_thread_checkpoints(tx: Tx, source_key: int, target_key: int) -> None:
    """Copy every checkpoint of a thread to another one, which has none, inside the database.

    The positions of the copies are those of the source: the target must have the source's messages and lines.
    """
    for statement in _COPY_CHECKPOINTS:
        tx.run(statement, {"source_key": source_key, "target_key": target_key})


@handles(CopyCheckpoints)
def copy_checkpoints(tx: Tx, op: CopyCheckpoints) -> bool:
    """Copy a thread with its checkpoints; see `CopyCheckpoints`."""
    if find_thread(tx, op.source_thread_id) is None:
        return False
    source = lock_thread(tx, op.source_thread_id, None, touch=False)
    target = make_thread(
        tx,
        op.target_thread_id,
        resource_id=source.resource_id,
        title=source.title,
        titled_by=source.titled_by,
        metadata=source.metadata,
    )
    if target is None:
        target = lock_thread(tx, op.target_thread_id, source.resource_id)
        key = {"thread_key": target.key}
        if tx.first(_ANY_MESSAGE, key) is not None or tx.first(_ANY_CHECKPOINT, key) is not None:
            raise InvalidIdError(f"thread {op.target_thread_id[:80]!r} has messages or checkpoints; copy to another id")
        tx.run(_DROP_TOMBSTONES, key)
    both = {"source_key": source.key, "target_key": target.key}
    for statement in _COPIES:
        tx.run(statement, both)
    copy_thread_checkpoints(tx, source.key, target.key)
    target = move_thread(tx, target.key, branch=source.branch, head=source.head, next_seq=source.next_seq)
    in_view, params = _IN_VIEW(path_of(tx, source.key, source.branch, source.head))
    rows = [CopiedRow(seq, branch, i, i) for seq, branch, i in tx.all(in_view, {**both, **params})]
    # Features follow copies on the first line only; on a copy that stands on another line they begin anew.
    whole = source.branch == 0
    on_thread_copied.fire(
        tx, ThreadCopy(source=source, target=replace(target), whole=whole, rows=rows, features=op.features)
    )
    return True
