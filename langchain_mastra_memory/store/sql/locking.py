"""Thread rows: reading one, and taking its lock at the start of a write.

Each transaction that changes a thread updates the thread's row first. That row lock makes seqs follow commit order, and
its counters tell cached indexes what is new.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from langchain_mastra_memory.errors import ThreadNotFoundError
from langchain_mastra_memory.store.sql.schema import threads
from langchain_mastra_memory.store.sql.tx import Tx
from langchain_mastra_memory.store.sql.values import from_micros, load_json
from langchain_mastra_memory.types import Thread


@dataclass(frozen=True, slots=True)
class ThreadRow:
    """A row of `mastra_threads`, in the order of `COLUMNS`."""

    key: int
    id: str
    resource_id: str | None
    title: str | None
    titled_by: str | None
    metadata: str
    next_seq: int
    branch: int
    head: int
    epoch: int
    texts: int
    edits: int
    created_at: int
    updated_at: int

    def thread(self) -> Thread:
        """Return the row as users see it."""
        return Thread(
            id=self.id,
            resource_id=self.resource_id,
            title=self.title,
            metadata=load_json(self.metadata),
            created_at=from_micros(self.created_at),
            updated_at=from_micros(self.updated_at),
        )


COLUMNS: Final = tuple(threads.c[name] for name in ThreadRow.__slots__)

_later = sa.case((threads.c.updated_at < sa.bindparam("now"), sa.bindparam("now")), else_=threads.c.updated_at)
_READ = sa.select(*COLUMNS).where(threads.c.id == sa.bindparam("thread_id"))
_LOCK = (
    sa.update(threads)
    .where(threads.c.id == sa.bindparam("thread_id"))
    .values(
        next_seq=threads.c.next_seq + sa.bindparam("seqs", type_=sa.BigInteger),
        texts=threads.c.texts + sa.bindparam("more_texts", type_=sa.BigInteger),
        edits=threads.c.edits + sa.bindparam("more_edits", type_=sa.BigInteger),
        updated_at=_later,
    )
    .returning(*COLUMNS)
)
_ADOPT = (
    sa.update(threads)
    .where(threads.c.key == sa.bindparam("thread_key"))
    .values(resource_id=sa.bindparam("owner"))
    .returning(*COLUMNS)
)


def new_epoch() -> int:
    """Return a random number of 62 bits: a history under the same id that is not the same history has another."""
    return secrets.randbits(62)


def not_found(thread_id: str) -> ThreadNotFoundError:
    """Return the error for a missing thread and for somebody else's: the same, so that nothing leaks."""
    return ThreadNotFoundError(f"there is no thread {thread_id[:80]!r} for this resource")


def _checked(row: tuple[Any, ...] | None, thread_id: str, resource_id: str | None) -> ThreadRow:
    if row is None:
        raise not_found(thread_id)
    thread = ThreadRow(*row)
    if resource_id is not None and thread.resource_id is not None and thread.resource_id != resource_id:
        raise not_found(thread_id)
    return thread


def find_thread(tx: Tx, thread_id: str) -> ThreadRow | None:
    """Return a thread's row whoever owns it, or None."""
    row = tx.first(_READ, {"thread_id": thread_id})
    return None if row is None else ThreadRow(*row)


def read_thread(tx: Tx, thread_id: str, resource_id: str | None) -> ThreadRow:
    """Return a thread's row.

    A thread that nobody owns yet may be read by anybody who knows its id; the first write that names a resource adopts
    it.

    Raises:
        ThreadNotFoundError: It is missing, or `resource_id` is given and another resource owns it.
    """
    return _checked(tx.first(_READ, {"thread_id": thread_id}), thread_id, resource_id)


def lock_thread(
    tx: Tx,
    thread_id: str,
    resource_id: str | None,
    *,
    seqs: int = 0,
    texts: int = 0,
    edits: int = 0,
    touch: bool = True,
) -> ThreadRow:
    """Take the lock of a thread's row for this transaction, and return the row as it is then.

    Args:
        tx: A write transaction.
        thread_id: The thread.
        resource_id: Checked when given; it adopts a thread that nobody owns.
        seqs: How many seqs to take: they are `row.next_seq - seqs` to `row.next_seq - 1`.
        texts: How much to add to the counter of saves and vector writes.
        edits: How much to add to the counter of every other change of what can be found.
        touch: Whether `updated_at` moves.

    Raises:
        ThreadNotFoundError: It is missing, or `resource_id` is given and another resource owns it.
    """
    params = {
        "thread_id": thread_id,
        "seqs": seqs,
        "more_texts": texts,
        "more_edits": edits,
        "now": tx.now if touch else 0,
    }
    thread = _checked(tx.first(_LOCK, params), thread_id, resource_id)
    if thread.resource_id is None and resource_id is not None:
        adopted = tx.first(_ADOPT, {"thread_key": thread.key, "owner": resource_id})
        thread = _checked(adopted, thread_id, resource_id)
    return thread
