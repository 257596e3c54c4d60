"""A memory on each engine, and a clock that stands still."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from langchain_mastra_memory.store.base import Group, Operation
from langchain_mastra_memory.testing.clock import FrozenClock


@pytest.fixture
def clock() -> FrozenClock:
    """Return a clock that moves only when told."""
    return FrozenClock()


@pytest.fixture
def memory(memory_factory: Callable[..., Any], store_url: str, clock: FrozenClock) -> Any:
    """Return a memory with the default options, on each engine in turn."""
    return memory_factory(store_url, clock=clock)


@pytest.fixture
def quick(memory_factory: Callable[..., Any], clock: FrozenClock) -> Any:
    """Return a memory that keeps nothing on disk, for what is decided before the store is asked."""
    return memory_factory("memory://", clock=clock)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stand(Operation[None]):
    """Put a thread back to a position, as a checkpoint does when a graph goes on from an older turn."""

    group: ClassVar[Group] = "checkpoints"
    thread_id: str
    branch: int
    head: int


def _stand(tx: Any, op: Stand) -> None:
    from langchain_mastra_memory.store.sql.lines import move_thread
    from langchain_mastra_memory.store.sql.locking import lock_thread

    row = lock_thread(tx, op.thread_id, None, edits=1)
    move_thread(tx, row.key, branch=op.branch, head=op.head, next_seq=row.next_seq)


@pytest.fixture
def stand(memory: Any) -> Callable[..., None]:
    """Return a function that puts a thread of `memory` to a position."""
    from langchain_mastra_memory.store.sql.registry import HANDLERS

    HANDLERS[Stand] = _stand

    def put(thread_id: str, branch: int, head: int) -> None:
        memory.store.run(Stand(thread_id=thread_id, branch=branch, head=head))

    return put
