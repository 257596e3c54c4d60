"""The store beside event loops: it blocks none, belongs to none, and closes without losing what it accepted."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from blockbuster import BlockBuster, blockbuster_ctx

from langchain_mastra_memory.errors import ConfigurationError, StoreClosedError
from langchain_mastra_memory.store.operations.threads import CreateThread, GetThread, ListThreads, UpdateThread
from langchain_mastra_memory.store.sql.engine import SQLMemoryStore
from langchain_mastra_memory.store.wrappers import TracedStore
from tests.integration_tests.toys import Fails, Title, Waits


@pytest.fixture
def nothing_blocks() -> Iterator[BlockBuster]:
    with blockbuster_ctx() as buster:
        yield buster


def until(condition: Callable[[], bool]) -> None:
    """Return when a condition holds."""
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


async def test_opening_writing_reading_and_closing_never_block_the_event_loop(
    store_url: str, nothing_blocks: BlockBuster
) -> None:
    async with TracedStore(SQLMemoryStore(store_url)) as store:
        assert "threads" in store.capabilities
        await asyncio.gather(*(store.arun(CreateThread(thread_id=f"t{i}", resource_id="r")) for i in range(70)))
        await asyncio.gather(*(store.arun(UpdateThread(thread_id="t0", metadata={f"k{i}": i})) for i in range(70)))
        found = await asyncio.gather(*(store.arun(GetThread(thread_id="t0")) for _ in range(20)))
        assert {len(thread.metadata) for thread in found if thread} == {70}
        with pytest.raises(LookupError):
            await store.arun(Fails(thread_id="t0"))


async def test_the_test_above_would_notice_a_call_that_blocks(sqlite_url: str, nothing_blocks: BlockBuster) -> None:
    from blockbuster import BlockingError

    store = SQLMemoryStore(sqlite_url)
    with pytest.raises(BlockingError):
        store.run(GetThread(thread_id="t"))
    await store.aclose()


async def test_sync_calls_work_where_an_event_loop_runs(store_url: str) -> None:
    with SQLMemoryStore(store_url) as store:
        await asyncio.gather(*(store.arun(CreateThread(thread_id=f"t{i}", resource_id="r")) for i in range(10)))
        assert store.run(UpdateThread(thread_id="t0", metadata={"k": 1})).metadata == {"k": 1}
        assert store.run(ListThreads(resource_id="r")).total == 10


def test_a_store_outlives_event_loops_and_serves_several_at_once(store_url: str) -> None:
    with SQLMemoryStore(store_url) as store:

        async def burst(name: str) -> None:
            await asyncio.gather(
                *(store.arun(CreateThread(thread_id=f"{name}-{i}", resource_id="r")) for i in range(20))
            )

        asyncio.run(burst("first"))
        asyncio.run(burst("second"))
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda n: asyncio.run(burst(f"loop{n}")), range(4)))
        assert store.run(ListThreads(resource_id="r", per_page=False)).total == 120


async def test_a_cancelled_await_leaves_the_store_usable_and_its_unit_whole(store_url: str) -> None:
    async with SQLMemoryStore(store_url) as store:
        await store.arun(CreateThread(thread_id="t", resource_id="r"))
        Waits.inside, Waits.leave = threading.Event(), threading.Event()
        busy = asyncio.create_task(store.arun(Waits()))
        await asyncio.to_thread(Waits.inside.wait, 30)
        updates = [asyncio.create_task(store.arun(Title(thread_id="t", title=str(i)))) for i in range(20)]
        await asyncio.sleep(0)
        for task in (busy, *updates):
            task.cancel()
        Waits.leave.set()
        outcomes = await asyncio.gather(busy, *updates, return_exceptions=True)
        assert all(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes)
        assert await store.arun(Title(thread_id="t", title="after")) == "after"
    # What was begun may still be committed, whole, before or after.
    if store_url != "memory://":
        with SQLMemoryStore(store_url) as store:
            found = store.run(GetThread(thread_id="t"))
            assert found is not None
            assert found.title in {"after", *map(str, range(20))}


@pytest.mark.parametrize("mixed", [False, True], ids=["async", "sync and async"])
async def test_one_failing_job_of_a_burst_harms_no_other(store_url: str, mixed: bool) -> None:
    async with SQLMemoryStore(store_url) as store:
        for name in ("good", "bad"):
            await store.arun(CreateThread(thread_id=name, resource_id="r", title="before"))
        jobs = []
        for i in range(60):
            operation = Fails(thread_id="bad") if i % 4 == 0 else UpdateThread(thread_id="good", metadata={f"k{i}": i})
            sync = mixed and i % 2
            jobs.append(asyncio.to_thread(store.run, operation) if sync else store.arun(operation))
        outcomes = await asyncio.gather(*jobs, return_exceptions=True)
        assert [i for i, outcome in enumerate(outcomes) if isinstance(outcome, LookupError)] == list(range(0, 60, 4))
        assert sum(isinstance(outcome, BaseException) for outcome in outcomes) == 15
        good, bad = [await store.arun(GetThread(thread_id=name)) for name in ("good", "bad")]
        assert good is not None
        assert bad is not None
        assert sorted(good.metadata) == sorted(f"k{i}" for i in range(60) if i % 4)
        assert bad.title == "before"


async def test_closing_waits_for_what_was_accepted_and_refuses_the_rest(store_url: str) -> None:
    store = SQLMemoryStore(store_url)
    await store.arun(CreateThread(thread_id="t", resource_id="r"))
    Waits.inside, Waits.leave = threading.Event(), threading.Event()
    busy = asyncio.create_task(store.arun(Waits()))
    await asyncio.to_thread(Waits.inside.wait, 30)
    accepted = [asyncio.create_task(store.arun(Title(thread_id="t", title=str(i)))) for i in range(10)]
    await asyncio.sleep(0)
    closing = asyncio.create_task(store.aclose())
    await asyncio.to_thread(until, lambda: store._closed)
    with pytest.raises(StoreClosedError, match="closed"):
        await store.arun(GetThread(thread_id="t"))
    assert not closing.done()
    Waits.leave.set()
    await closing
    assert await asyncio.gather(busy, *accepted) == [None, *map(str, range(10))]
    for _ in range(2):
        with pytest.raises(StoreClosedError, match="closed"):
            store.run(GetThread(thread_id="t"))
        with pytest.raises(StoreClosedError, match="closed"):
            await store.arun(GetThread(thread_id="t"))
        await store.aclose()


def test_closing_waits_for_callers_in_other_threads(store_url: str) -> None:
    store = SQLMemoryStore(store_url)
    store.run(GetThread(thread_id="t"))
    Waits.inside, Waits.leave = threading.Event(), threading.Event()
    with ThreadPoolExecutor(2) as pool:
        busy = pool.submit(store.run, Waits())
        assert Waits.inside.wait(30)
        closing = pool.submit(store.close)
        until(lambda: store._closed)
        assert not closing.done()
        Waits.leave.set()
        assert busy.result(30) is None
        closing.result(30)


def test_a_store_that_was_never_used_closes() -> None:
    store = SQLMemoryStore("sqlite:////nowhere/at/all.db")
    store.close()
    store.close()
    with pytest.raises(StoreClosedError, match="closed"):
        store.run(GetThread(thread_id="t"))


def test_no_thread_and_no_connection_outlives_a_closed_store(store_url: str) -> None:
    before = set(threading.enumerate())

    async def use() -> None:
        async with SQLMemoryStore(store_url) as store:
            await store.arun(CreateThread(thread_id="t", resource_id="r"))
            await store.arun(GetThread(thread_id="t"))

    asyncio.run(use())
    left = [thread for thread in set(threading.enumerate()) - before if thread.name.startswith("mastra")]
    for thread in left:
        thread.join(5)
    assert not any(thread.is_alive() for thread in left)


@pytest.mark.parametrize("url", ["mysql://x", "", "memory.db", "postgresql", "sqlite", "sqlite:memory.db"])
def test_a_url_that_cannot_work_is_refused_with_what_would(url: str) -> None:
    with pytest.raises(ConfigurationError, match="memory://"):
        SQLMemoryStore(url)


def test_an_operation_without_a_handler_is_refused_by_name(store_url: str) -> None:
    from dataclasses import dataclass
    from typing import ClassVar

    from langchain_mastra_memory.store.base import Group, Operation

    @dataclass(frozen=True)
    class Unknown(Operation[None]):
        group: ClassVar[Group] = "threads"

    with SQLMemoryStore(store_url) as store, pytest.raises(ConfigurationError, match="Unknown"):
        store.run(Unknown())
