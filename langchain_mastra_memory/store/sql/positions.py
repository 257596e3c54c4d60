"""Where a thread stands, or stood at one of its checkpoints."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa

from langchain_mastra_memory.errors import ThreadNotFoundError
from langchain_mastra_memory.store.sql.locking import ThreadRow
from langchain_mastra_memory.store.sql.tables_checkpoints import checkpoints
from langchain_mastra_memory.store.sql.tx import Tx

ROOT: Final = "/"
"""The namespace of a graph itself, as it is stored; those of its subgraphs follow the slash."""

_AT = sa.select(checkpoints.c.branch, checkpoints.c.head).where(
    checkpoints.c.thread == sa.bindparam("thread_key"),
    checkpoints.c.ns == sa.bindparam("root"),
    checkpoints.c.id == sa.bindparam("checkpoint_id"),
    checkpoints.c.hidden == 0,
)
_COUNT = (
    sa.select(sa.func.count())
    .select_from(checkpoints)
    .where(checkpoints.c.thread == sa.bindparam("thread_key"), checkpoints.c.hidden == 0)
)


def position_at(tx: Tx, thread: ThreadRow, checkpoint_id: str | None) -> tuple[int, int]:
    """Return the (branch, head) at a checkpoint of the root namespace; without one, where the thread stands now.

    Raises:
        ThreadNotFoundError: The thread has no such checkpoint.
    """
    if checkpoint_id is None:
        return thread.branch, thread.head
    row = tx.first(_AT, {"thread_key": thread.key, "root": ROOT, "checkpoint_id": checkpoint_id})
    if row is None:
        raise ThreadNotFoundError(
            f"there is no checkpoint {checkpoint_id[:80]!r} of thread {thread.id[:80]!r} for this resource"
        )
    branch, head = row
    return (0, 0) if branch is None or head is None else (int(branch), int(head))


def count_checkpoints(tx: Tx, thread_key: int) -> int:
    """Return how many checkpoints a thread has, in all namespaces."""
    return int(tx.value(_COUNT, {"thread_key": thread_key}))
