"""A deleted message does not come back with what a run writes that still holds it.

Whatever a put or a write brings, in whichever channel and namespace, is asked for by its ids: of a message that was
deleted nothing is stored but an empty body, or an empty place. The tombstones say which those are.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

import sqlalchemy as sa

from langchain_mastra_memory.store.operations.checkpoints import NewBody, PutCheckpoint, PutWrites
from langchain_mastra_memory.store.sql.checkpoints_archive import key_of_thread
from langchain_mastra_memory.store.sql.schema import threads, tombstones
from langchain_mastra_memory.store.sql.tx import any_of
from langchain_mastra_memory.threads.entries import GONE, Entry, empty_entry

_DEAD: Final = sa.select(tombstones.c.id).where(tombstones.c.thread == key_of_thread(), any_of(tombstones.c.id, "ids"))

NONE_DEAD: Final = (
    # A count: PostgreSQL would make a join of `EXISTS`, over whole tables.
    sa.select(sa.func.count())
    .select_from(tombstones)
    .where(tombstones.c.thread == threads.c.key, any_of(tombstones.c.id, "ids"))
    .scalar_subquery()
    == sa.literal(0)
)
"""The condition, on a thread, that no message of the `ids` was deleted from it."""


def brought_ids(op: PutCheckpoint | PutWrites) -> set[str]:
    """Return the ids of the messages that an operation brings: as bodies, and kept in place."""
    entries = op.skeleton.entries.values() if isinstance(op, PutCheckpoint) else [w.entry for w in op.task_writes]
    found = {message_id for entry in entries if entry.holes for message_id in entry.loose_ids()}
    return found.union([body.id for body in op.bodies if body.id is not None])


def find_dead(thread_id: str, ids: Collection[str]) -> tuple[sa.ClauseElement, dict[str, Any]] | None:
    """Return what finds those of some ids whose messages were deleted; None if there are no ids."""
    return (_DEAD, {"thread_id": thread_id, "ids": sorted(ids)}) if ids else None


def without_dead(bodies: Sequence[NewBody], dead: Collection[str]) -> tuple[list[NewBody], frozenset[int]]:
    """Return bodies with those of deleted messages left empty, and which these are."""
    gone = frozenset(index for index, body in enumerate(bodies) if body.id in dead) if dead else frozenset()
    return [b._replace(form=GONE, body=b"", unique=False) if i in gone else b for i, b in enumerate(bodies)], gone


def emptied(entry: Entry, dead: Collection[str]) -> Entry:
    """Return an entry without the deleted messages that were to be kept in place."""
    return empty_entry(entry, lambda part: part.id in dead) if dead and entry.holes else entry
