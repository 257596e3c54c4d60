"""Units of work that misbehave in a chosen way, to see what the store makes of them."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import ClassVar

import sqlalchemy as sa

from langchain_mastra_memory.store.base import Group, Operation
from langchain_mastra_memory.store.sql.registry import HANDLERS
from langchain_mastra_memory.store.sql.schema import threads
from langchain_mastra_memory.store.sql.tx import Tx

_TITLE = sa.update(threads).where(threads.c.id == sa.bindparam("thread_id")).values(title=sa.bindparam("new_title"))
_TITLE_OF = sa.select(threads.c.title).where(threads.c.id == sa.bindparam("thread_id"))


@dataclass(frozen=True, slots=True, kw_only=True)
class WritesThroughRead(Operation[None]):
    """Says that it reads, and writes."""

    group: ClassVar[Group] = "threads"
    writes: ClassVar[bool] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LocksBoth(Operation[str]):
    """Locks two threads in a chosen order, having met the other unit in between."""

    group: ClassVar[Group] = "threads"
    meeting: ClassVar[threading.Barrier]
    first: str
    second: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits(Operation[None]):
    """Stays inside its transaction until it is told to leave."""

    group: ClassVar[Group] = "threads"
    inside: ClassVar[threading.Event]
    leave: ClassVar[threading.Event]


@dataclass(frozen=True, slots=True, kw_only=True)
class Title(Operation[str | None]):
    """Sets a title, after telling a test how often it was begun; reads the title back."""

    group: ClassVar[Group] = "threads"
    begun: ClassVar[list[str]] = []
    thread_id: str
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fails(Operation[None]):
    """Writes, then raises."""

    group: ClassVar[Group] = "threads"
    thread_id: str


def _writes_through_read(tx: Tx, op: WritesThroughRead) -> None:
    tx.run(_TITLE, {"thread_id": "t", "new_title": "lost"})


def _locks_both(tx: Tx, op: LocksBoth) -> str:
    name = op.first + op.second
    tx.run(_TITLE, {"thread_id": op.first, "new_title": name})
    try:
        op.meeting.wait(10)
    except threading.BrokenBarrierError:
        pass  # the second try of the one that was chosen as the victim
    finally:
        op.meeting.abort()
    tx.run(_TITLE, {"thread_id": op.second, "new_title": name})
    return name


def _waits(tx: Tx, op: Waits) -> None:
    op.inside.set()
    assert op.leave.wait(30)
    tx.value(_TITLE_OF, {"thread_id": "t"})


def _title(tx: Tx, op: Title) -> str | None:
    op.begun.append(op.title)
    tx.run(_TITLE, {"thread_id": op.thread_id, "new_title": op.title})
    title: str | None = tx.value(_TITLE_OF, {"thread_id": op.thread_id})
    return title


def _fails(tx: Tx, op: Fails) -> None:
    tx.run(_TITLE, {"thread_id": op.thread_id, "new_title": "half done"})
    raise LookupError("its own error")


HANDLERS.setdefault(WritesThroughRead, _writes_through_read)
HANDLERS.setdefault(LocksBoth, _locks_both)
HANDLERS.setdefault(Waits, _waits)
HANDLERS.setdefault(Title, _title)
HANDLERS.setdefault(Fails, _fails)
