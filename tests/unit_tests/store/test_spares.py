"""Connections at hand are never more than the pool can do without, and go back where the pool is to look at each."""

from __future__ import annotations

import pytest
from langchain_core.messages import HumanMessage

from langchain_mastra_memory.memory import Memory
from langchain_mastra_memory.store.sql.engine import SQLMemoryStore
from langchain_mastra_memory.store.sql.spares import MOST, Spares


class Connection:
    def __init__(self) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({"pool_size": 8, "max_overflow": 56}, MOST),
        ({"pool_size": 2, "max_overflow": 0}, 1),
        ({"pool_size": 1, "max_overflow": 0}, 0),
        ({"pool_size": 5, "max_overflow": -1}, 2),
        ({"pool_size": 10, "max_overflow": 0, "pool_pre_ping": True}, 0),
        ({"pool_size": 10, "max_overflow": 0, "pool_recycle": 60}, 0),
    ],
)
def test_so_many_are_kept_that_nobody_waits_for_one_that_nobody_uses(options, kept):
    spares = Spares(options)
    given = [Connection() for _ in range(10)]
    for connection in given:
        spares.give(connection)  # type: ignore[arg-type]
    assert [c.closed for c in given] == [False] * kept + [True] * (10 - kept)
    assert spares.take() is (given[kept - 1] if kept else None)
    spares.close()
    assert all(c.closed for c in given[: max(0, kept - 1)])
    assert spares.take() is None


def test_a_pool_of_one_that_pings_works_too(postgres_url):
    with SQLMemoryStore(postgres_url, pool_pre_ping=True, pool_size=1) as store:
        memory = Memory(store)
        for n in range(3):
            memory.save_messages([HumanMessage(str(n))], thread_id="t", resource_id="ann")
        assert [found.message.content for found in memory.recall(thread_id="t")] == ["0", "1", "2"]
