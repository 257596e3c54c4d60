"""A deleted message leaves the checkpoints too: its bodies, and the loose copies in what led to it.

A body is emptied in its place, so that lists that point to it lose one message and nothing moves. Some copies carry no
id yet: the input of a run as the caller wrote it, and what a node wrote before the reducer stamped it. They stand at
the checkpoint before the first one whose list has the message, and go from there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import sqlalchemy as sa

from langchain_mastra_memory.store.sql.cascade import (
    RemovedRow,
    on_messages_deleted,
    on_thread_cleared,
)
from langchain_mastra_memory.store.sql.checkpoints_archive import RetractedRow
from langchain_mastra_memory.store.sql.locking import ThreadRow
from langchain_mastra_memory.store.sql.tables_checkpoints import bodies, checkpoints, values, writes
from langchain_mastra_memory.store.sql.tx import Tx, any_of
from langchain_mastra_memory.threads.archiving import CHANNEL
from langchain_mastra_memory.threads.entries import (
    GONE,
    Entry,
    Loose,
    Part,
    Range,
    dump_skeleton,
    dump_writes,
    empty_entry,
    load_skeleton,
    load_writes,
)

_of_thread = bodies.c.thread == sa.bindparam("thread_key")
_FIND = sa.select(bodies.c.space, bodies.c.n).where(_of_thread, any_of(bodies.c.id, "ids"))
_EMPTY_ALL = sa.update(bodies).where(_of_thread).values(form=sa.literal(GONE), body=sa.literal(b""))
_EMPTY = _EMPTY_ALL.where(any_of(bodies.c.id, "ids"))
_CHECKPOINTS = sa.select(checkpoints.c.ns, checkpoints.c.id, checkpoints.c.parent, checkpoints.c.body).where(
    checkpoints.c.thread == sa.bindparam("thread_key")
)
_WRITES = sa.select(writes.c.ns, writes.c.checkpoint, writes.c.task_id, writes.c.body).where(
    writes.c.thread == sa.bindparam("thread_key")
)
_SET_CHECKPOINT = (
    sa.update(checkpoints)
    .where(
        checkpoints.c.thread == sa.bindparam("thread_key"),
        checkpoints.c.ns == sa.bindparam("at_ns"),
        checkpoints.c.id == sa.bindparam("at_id"),
    )
    .values(body=sa.bindparam("new_body", type_=sa.LargeBinary))
)
_SET_WRITES = (
    sa.update(writes)
    .where(
        writes.c.thread == sa.bindparam("thread_key"),
        writes.c.ns == sa.bindparam("at_ns"),
        writes.c.checkpoint == sa.bindparam("at_id"),
        writes.c.task_id == sa.bindparam("at_task"),
    )
    .values(body=sa.bindparam("new_body", type_=sa.LargeBinary))
)
_DROP_VALUES = sa.delete(values).where(values.c.thread == sa.bindparam("thread_key"), any_of(values.c.n, "numbers"))
_DROP_WRITES = sa.delete(writes).where(writes.c.thread == sa.bindparam("thread_key"))
_RESTART = (
    sa.update(checkpoints)
    .where(checkpoints.c.thread == sa.bindparam("thread_key"), checkpoints.c.branch.is_not(None))
    .values(branch=sa.literal(0), head=sa.literal(0), base=sa.literal(0))
)
START: Final = "__start__"

Place = tuple[str, str]
"""Namespace and checkpoint, as they are stored."""


def scrub_messages(tx: Tx, thread_key: int, ids: Sequence[str]) -> None:
    """Take messages out of every checkpoint of a thread: lists, writes, inputs. The caller bumps `edits`.

    Args:
        tx: A write transaction; the thread's row is locked.
        thread_key: The thread.
        ids: The ids of the messages.
    """
    gone = _Gone({(space, n) for space, n in tx.all(_FIND, {"thread_key": thread_key, "ids": list(ids)})}, set(ids))
    tx.run(_EMPTY, {"thread_key": thread_key, "ids": list(ids)})
    _scrub_loose(tx, thread_key, _led_to(tx, thread_key, gone), gone)


@dataclass(frozen=True, slots=True)
class _Gone:
    """Messages that go.

    Attributes:
        numbers: Space and number of each body.
        ids: Their ids; None stands for every message.
    """

    numbers: set[tuple[str, int]]
    ids: set[str] | None

    def takes(self, part: Part) -> bool:
        """Tell whether a part is one of them, or has one."""
        if isinstance(part, Loose):
            return part.form != GONE and (self.ids is None or part.id in self.ids)
        return isinstance(part, Range) and any(
            (part.space, n) in self.numbers for n in range(part.first, part.last + 1)
        )

    def is_in(self, entries: Iterable[Entry]) -> bool:
        """Tell whether values have one of them."""
        return any(self.takes(part) for entry in entries for hole in entry.holes for part in hole.parts)

    def emptied(self, entry: Entry) -> Entry:
        """Return a value without the ones that were kept in place; those in ranges are empty by themselves."""
        return empty_entry(entry, self.takes)


def _led_to(tx: Tx, thread_key: int, gone: _Gone) -> set[Place]:
    """Return the checkpoints whose step brought one of them: their children have it, or their tasks wrote it."""
    found: set[Place] = set()
    holding: dict[Place, str | None] = {}
    for ns, checkpoint_id, parent, body in tx.all(_CHECKPOINTS, {"thread_key": thread_key}):
        if gone.is_in(load_skeleton(body).entries.values()):
            holding[ns, checkpoint_id] = parent
    for (ns, checkpoint_id), parent in holding.items():
        if parent is not None and (ns, parent) not in holding:
            found.add((ns, parent))
        elif parent is None:
            found.add((ns, checkpoint_id))
    for ns, checkpoint_id, _, body in tx.all(_WRITES, {"thread_key": thread_key}):
        if gone.is_in(write.entry for write in load_writes(body)):
            found.add((ns, checkpoint_id))
    return found


def _scrub_loose(tx: Tx, thread_key: int, places: set[Place], gone: _Gone) -> None:
    """Empty what was kept in place; where a step brought a message, its input and unread copies as well."""
    channels = {space.rpartition("/")[2] for space, _ in gone.numbers} | {CHANNEL}
    numbers: list[int] = []
    for ns, checkpoint_id, _, body in tx.all(_CHECKPOINTS, {"thread_key": thread_key}):
        skeleton = load_skeleton(body)
        entries = {name: gone.emptied(entry) for name, entry in skeleton.entries.items()}
        start = entries.get(START)
        if start is not None and (ns, checkpoint_id) in places:
            entries[START] = Entry(GONE)
            if type(start.payload) is int:
                numbers.append(start.payload)
        if entries != skeleton.entries:
            params = {"thread_key": thread_key, "at_ns": ns, "at_id": checkpoint_id}
            tx.run(_SET_CHECKPOINT, {**params, "new_body": dump_skeleton(skeleton._replace(entries=entries))})
    for ns, checkpoint_id, task_id, body in tx.all(_WRITES, {"thread_key": thread_key}):
        here = (ns, checkpoint_id) in places
        stored = load_writes(body)
        kept = [
            replace(
                w,
                entry=Entry(GONE) if here and w.channel in channels and _is_unread(w.entry) else gone.emptied(w.entry),
            )
            for w in stored
        ]
        if kept != stored:
            params = {"thread_key": thread_key, "at_ns": ns, "at_id": checkpoint_id, "at_task": task_id}
            tx.run(_SET_WRITES, {**params, "new_body": dump_writes(kept)})
    if numbers:
        tx.run(_DROP_VALUES, {"thread_key": thread_key, "numbers": numbers})


def _is_unread(entry: Entry) -> bool:
    """Tell whether a write has messages that nobody can name: without an id, or as dicts and tuples."""
    return not entry.holes or any(isinstance(p, Loose) and p.id is None for hole in entry.holes for p in hole.parts)


@on_messages_deleted
def scrub_deleted(tx: Tx, thread: ThreadRow, rows: Sequence[RemovedRow]) -> None:
    """Follow deleted messages; those that a run took back stay in the checkpoints where they stood."""
    ids = {row.id for row in rows if not isinstance(row, RetractedRow)}
    if ids:
        scrub_messages(tx, thread.key, sorted(ids))


@on_thread_cleared
def scrub_cleared(tx: Tx, thread: ThreadRow) -> None:
    """Follow a cleared thread: no message is left in its checkpoints, and all stand at the beginning."""
    key = {"thread_key": thread.key}
    tx.run(_EMPTY_ALL, key)
    tx.run(_DROP_WRITES, key)
    places: set[Place] = {(ns, checkpoint_id) for ns, checkpoint_id, _, _ in tx.all(_CHECKPOINTS, key)}
    _scrub_loose(tx, thread.key, places, _Gone(set(), None))
    tx.run(_RESTART, key)
