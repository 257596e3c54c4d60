"""Locks that are not to be had, and deadlocks: waited for, then reported; nothing is half written."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from langchain_mastra_memory.errors import StoreLockedError
from langchain_mastra_memory.store.operations.threads import CreateThread, GetThread, ListThreads, UpdateThread
from langchain_mastra_memory.store.sql.engine import SQLMemoryStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "m.db"
    with SQLMemoryStore(f"sqlite:///{path}") as store:
        store.run(CreateThread(thread_id="t", resource_id="r"))
    return path


async def test_a_write_lock_held_beyond_the_timeout_is_reported_and_reads_go_on(path: Path) -> None:
    other = sqlite3.connect(path, isolation_level=None)
    with SQLMemoryStore(f"sqlite:///{path}", busy_timeout=0.1) as store:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreLockedError, match="try again"):
            store.run(UpdateThread(thread_id="t", metadata={"a": 1}))
        burst = [store.arun(UpdateThread(thread_id="t", metadata={f"k{i}": i})) for i in range(30)]
        outcomes = await asyncio.gather(*burst, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {StoreLockedError}
        assert store.run(GetThread(thread_id="t")) is not None
        assert await store.arun(GetThread(thread_id="t")) is not None
        other.execute("ROLLBACK")
        changed = store.run(UpdateThread(thread_id="t", metadata={"now": True}))
        assert changed.metadata == {"now": True}
    other.close()


def test_a_write_waits_for_a_lock_that_is_released_in_time(path: Path) -> None:
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    with SQLMemoryStore(f"sqlite:///{path}", busy_timeout=30) as store, ThreadPoolExecutor(1) as pool:
        store.run(GetThread(thread_id="t"))
        other.execute("BEGIN IMMEDIATE")
        other.execute("UPDATE mastra_threads SET title = 'by the other'")
        waiting = threading.Event()
        store._backend()._queue._cursor().connection.set_trace_callback(lambda _sql: waiting.set())
        update = pool.submit(store.run, UpdateThread(thread_id="t", metadata={"a": 1}))
        assert waiting.wait(30)
        other.execute("COMMIT")
        changed = update.result(30)
        assert (changed.title, changed.metadata) == ("by the other", {"a": 1})
    other.close()


def test_readers_see_committed_data_only_and_are_not_held_up_by_a_writer(path: Path) -> None:
    with SQLMemoryStore(f"sqlite:///{path}") as store:
        inside, leave = threading.Event(), threading.Event()

        def slow(cursor: sqlite3.Cursor) -> None:
            cursor.execute("UPDATE mastra_threads SET title = 'uncommitted'")
            inside.set()
            assert leave.wait(30)

        store.run(GetThread(thread_id="t"))
        queue = store._backend()._queue
        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(queue.run, slow)
            assert inside.wait(30)
            seen = store.run(GetThread(thread_id="t"))
            assert seen is not None
            assert seen.title is None
            leave.set()
            writing.result(30)
        seen = store.run(GetThread(thread_id="t"))
        assert seen is not None
        assert seen.title == "uncommitted"


def test_a_read_that_would_write_is_an_error_not_a_lost_write(store_url: str) -> None:
    from langchain_mastra_memory.errors import StoreReadOnlyError
    from tests.integration_tests.toys import WritesThroughRead

    with SQLMemoryStore(store_url) as store:
        store.run(CreateThread(thread_id="t", resource_id="r"))
        with pytest.raises(StoreReadOnlyError):
            store.run(WritesThroughRead())
        assert store.run(ListThreads(resource_id="r")).total == 1


def test_a_row_lock_held_beyond_the_timeout_is_reported_on_postgresql_too(postgres_url: str) -> None:
    import psycopg

    with SQLMemoryStore(postgres_url, busy_timeout=0.2) as store, psycopg.connect(postgres_url) as other:
        store.run(CreateThread(thread_id="t", resource_id="r"))
        other.execute("UPDATE mastra_threads SET title = 'held' WHERE id = 't'")
        with pytest.raises(StoreLockedError):
            store.run(UpdateThread(thread_id="t", metadata={"a": 1}))
        other.rollback()
        assert store.run(UpdateThread(thread_id="t", metadata={"a": 1})).metadata == {"a": 1}


def test_a_deadlock_on_postgresql_is_broken_and_both_units_are_done(postgres_url: str) -> None:
    from tests.integration_tests.toys import LocksBoth

    with SQLMemoryStore(postgres_url) as store, ThreadPoolExecutor(2) as pool:
        for thread_id in ("a", "b"):
            store.run(CreateThread(thread_id=thread_id, resource_id="r"))
        LocksBoth.meeting = threading.Barrier(2)
        units = [
            pool.submit(store.run, LocksBoth(first="a", second="b")),
            pool.submit(store.run, LocksBoth(first="b", second="a")),
        ]
        assert sorted(unit.result(30) for unit in units) == ["ab", "ba"]
        titles = {t.id: t.title for t in store.run(ListThreads(resource_id="r"))}
        assert set(titles.values()) in ({"ab"}, {"ba"})


def test_more_callers_than_connections_wait_for_each_other(postgres_url: str) -> None:
    with SQLMemoryStore(postgres_url, pool_size=2) as store, ThreadPoolExecutor(16) as pool:
        made = list(pool.map(lambda i: store.run(CreateThread(thread_id=f"t{i}", resource_id="r")).id, range(64)))
        assert len(set(made)) == 64


def test_a_pool_that_is_used_up_says_so_and_recovers(postgres_url: str) -> None:
    from tests.integration_tests.toys import Waits

    with SQLMemoryStore(postgres_url, pool_size=1, pool_timeout=0.1) as store, ThreadPoolExecutor(1) as pool:
        store.run(GetThread(thread_id="t"))
        Waits.inside, Waits.leave = threading.Event(), threading.Event()
        long = pool.submit(store.run, Waits())
        assert Waits.inside.wait(30)
        with pytest.raises(StoreLockedError, match="no free connection"):
            store.run(GetThread(thread_id="t"))
        Waits.leave.set()
        long.result(30)
        assert store.run(GetThread(thread_id="t")) is None
