"""PostgreSQL that is down, goes away, comes back, or sits behind a pooler: errors are ours, and nothing is lost."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import psycopg
import pytest

from langchain_mastra_memory.errors import StoreError, StoreLockedError, StoreUnavailableError
from langchain_mastra_memory.store.operations.threads import CreateThread, GetThread, ListThreads, UpdateThread
from langchain_mastra_memory.store.sql.engine import SQLMemoryStore
from tests.integration_tests.proxies import gate, transaction_pooler
from tests.integration_tests.toys import Fails, Title, Waits


async def test_a_server_that_is_down_at_the_start_is_said_and_used_as_soon_as_it_is_up(postgres_url: str) -> None:
    with gate(postgres_url) as server, SQLMemoryStore(server.url) as store:
        server.refuse()
        for _ in range(2):
            with pytest.raises(StoreUnavailableError, match="cannot be reached"):
                store.run(GetThread(thread_id="t"))
            with pytest.raises(StoreUnavailableError, match="cannot be reached"):
                await store.arun(GetThread(thread_id="t"))
        server.listen()
        assert store.run(CreateThread(thread_id="t", resource_id="r")).id == "t"


async def test_a_server_that_goes_down_in_mid_run_loses_nothing_and_is_used_again(postgres_url: str) -> None:
    with gate(postgres_url) as server, SQLMemoryStore(server.url) as store:
        store.run(CreateThread(thread_id="before", resource_id="r"))
        server.refuse()
        with pytest.raises(StoreUnavailableError):
            store.run(CreateThread(thread_id="during", resource_id="r"))
        with pytest.raises(StoreUnavailableError):
            await store.arun(CreateThread(thread_id="during", resource_id="r"))
        server.listen()
        store.run(CreateThread(thread_id="after", resource_id="r"))
        assert {t.id for t in store.run(ListThreads(resource_id="r"))} == {"before", "after"}


async def test_dropped_connections_are_made_anew_without_an_error(postgres_url: str) -> None:
    with gate(postgres_url) as server, SQLMemoryStore(server.url) as store:
        await asyncio.gather(*(store.arun(CreateThread(thread_id=f"t{i}", resource_id="r")) for i in range(20)))
        assert server.cut() > 2
        assert store.run(ListThreads(resource_id="r")).total == 20
        server.cut()
        await store.arun(UpdateThread(thread_id="t0", metadata={"k": 1}))
        server.cut()
        outcomes = await asyncio.gather(
            *(store.arun(UpdateThread(thread_id="t1", metadata={f"k{i}": i})) for i in range(20))
        )
        assert len(outcomes) == 20
        found = store.run(GetThread(thread_id="t1"))
        assert found is not None
        assert len(found.metadata) == 20


def test_a_connection_in_use_while_another_is_found_dead_is_closed_as_well(postgres_url: str) -> None:
    import gc

    with (
        SQLMemoryStore(postgres_url) as store,
        psycopg.connect(postgres_url, autocommit=True) as admin,
        ThreadPoolExecutor(1) as pool,
    ):
        store.run(CreateThread(thread_id="t", resource_id="r"))
        Waits.inside, Waits.leave = threading.Event(), threading.Event()
        busy = pool.submit(store.run, Waits())
        assert Waits.inside.wait(30)
        store.run(GetThread(thread_id="t"))  # on a second connection
        ended = admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
            "AND pid <> pg_backend_pid() AND backend_type = 'client backend' ORDER BY backend_start DESC LIMIT 1"
        ).fetchall()
        assert ended == [(True,)]
        assert store.run(GetThread(thread_id="t")) is not None
        Waits.leave.set()
        busy.result(30)
        del busy
        gc.collect()  # a warning about a connection that nobody closed would fail the test
        assert store.run(GetThread(thread_id="t")) is not None
    gc.collect()


def test_a_connection_that_cannot_be_set_up_is_closed(postgres_url: str) -> None:
    from langchain_mastra_memory.store.sql.postgresql import _setter

    connection = psycopg.connect(postgres_url)
    with pytest.raises(psycopg.errors.UndefinedObject):
        _setter("SET no_such_setting = 1")(connection, None)
    assert connection.closed


def test_every_connection_is_closed_whenever_it_is_lost(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[psycopg.Connection[Any]] = []
    connect = psycopg.connect

    def noted(*args: Any, **kwargs: Any) -> Any:
        made.append(connect(*args, **kwargs))
        return made[-1]

    monkeypatch.setattr(psycopg, "connect", noted)
    with gate(postgres_url) as server:
        for moment in (b"lock_timeout", b"pg_catalog.version", b"to_regclass", b"mastra_threads", b"COMMIT"):
            with SQLMemoryStore(server.url) as store:
                server.swallow_reply_to = moment
                for number in range(3):
                    with suppress(StoreUnavailableError):
                        store.run(CreateThread(thread_id=f"t{number}", resource_id="r"))
                    server.cut()
            assert made
            assert [connection for connection in made if not connection.closed] == []


def test_a_session_that_the_server_ends_is_replaced(postgres_url: str) -> None:
    with SQLMemoryStore(postgres_url) as store, psycopg.connect(postgres_url, autocommit=True) as admin:
        store.run(CreateThread(thread_id="t", resource_id="r"))
        ended = admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
        ).fetchall()
        assert ended
        assert store.run(UpdateThread(thread_id="t", metadata={"k": 1})).metadata == {"k": 1}


def test_a_unit_whose_connection_breaks_before_the_commit_is_run_again_from_its_start(postgres_url: str) -> None:
    with gate(postgres_url) as server, SQLMemoryStore(server.url) as store, ThreadPoolExecutor(1) as pool:
        store.run(CreateThread(thread_id="t", resource_id="r"))
        Waits.inside, Waits.leave = threading.Event(), threading.Event()
        unit = pool.submit(store.run, Waits())
        assert Waits.inside.wait(30)
        server.cut()
        Waits.leave.set()
        unit.result(30)
        Title.begun.clear()
        server.swallow_reply_to = b"mastra_threads"
        assert store.run(Title(thread_id="t", title="new")) == "new"
        assert server.swallowed.is_set()
        assert Title.begun == ["new", "new"]
        found = store.run(GetThread(thread_id="t"))
        assert found is not None
        assert found.title == "new"


def test_a_commit_whose_answer_is_lost_is_not_repeated_and_said_to_be_in_doubt(postgres_url: str) -> None:
    with gate(postgres_url) as server, SQLMemoryStore(server.url) as store:
        store.run(CreateThread(thread_id="t", resource_id="r"))
        Title.begun.clear()
        server.swallow_reply_to = b"COMMIT\0"  # with the end of the text: the isolation level is called COMMITTED
        with pytest.raises(StoreUnavailableError, match="may or may not have been written"):
            store.run(Title(thread_id="t", title="in doubt"))
        assert server.swallowed.is_set()
        assert Title.begun == ["in doubt"]
        found = store.run(GetThread(thread_id="t"))
        assert found is not None
        assert found.title == "in doubt"


def test_failing_units_leak_no_connection(postgres_url: str) -> None:
    with SQLMemoryStore(postgres_url, pool_size=2, pool_timeout=2) as store:
        store.run(CreateThread(thread_id="t", resource_id="r", title="kept"))
        for _ in range(10):
            with pytest.raises(LookupError, match="its own error"):
                store.run(Fails(thread_id="t"))
        found = store.run(GetThread(thread_id="t"))
        assert found is not None
        assert found.title == "kept"
        with psycopg.connect(postgres_url) as look:
            sessions = look.execute(
                "SELECT state FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
            ).fetchall()
        assert len(sessions) <= 2
        assert {state for (state,) in sessions} == {"idle"}


def test_a_statement_timeout_is_reported_as_a_lock_that_was_not_had(postgres_url: str) -> None:
    options = {"options": "-c statement_timeout=200"}
    with SQLMemoryStore(postgres_url, connect_args=options) as store, psycopg.connect(postgres_url) as other:
        store.run(CreateThread(thread_id="t", resource_id="r"))
        other.execute("SELECT 1 FROM mastra_threads WHERE id = 't' FOR UPDATE")
        with pytest.raises(StoreLockedError):
            store.run(UpdateThread(thread_id="t", metadata={"a": 1}))
        other.rollback()


def test_pool_options_are_passed_through(postgres_url: str) -> None:
    with SQLMemoryStore(postgres_url, pool_size=3, connect_args={"application_name": "the agent"}) as store:
        store.run(GetThread(thread_id="t"))
        with psycopg.connect(postgres_url) as look:
            names = look.execute(
                "SELECT application_name FROM pg_stat_activity WHERE datname = current_database() "
                "AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
            ).fetchall()
        assert names == [("the agent",)]


async def test_a_pooler_in_transaction_mode_works_with_prepared_statements_off(postgres_url: str) -> None:
    with transaction_pooler(postgres_url) as pooler, SQLMemoryStore(pooler.url, prepared_statements=False) as store:
        for i in range(10):
            store.run(CreateThread(thread_id=f"t{i}", resource_id="r"))
        await asyncio.gather(*(store.arun(UpdateThread(thread_id="t0", metadata={f"k{i}": i})) for i in range(20)))
        found = store.run(GetThread(thread_id="t0"))
        assert found is not None
        assert len(found.metadata) == 20
        assert store.run(ListThreads(resource_id="r")).total == 10
        assert pooler.transactions > 30


def test_behind_the_pooler_a_lock_is_waited_for_no_longer_than_elsewhere(postgres_url: str) -> None:
    with (
        transaction_pooler(postgres_url) as pooler,
        SQLMemoryStore(pooler.url, prepared_statements=False, busy_timeout=0.2) as store,
        psycopg.connect(postgres_url) as other,
    ):
        store.run(CreateThread(thread_id="t", resource_id="r"))
        other.execute("UPDATE mastra_threads SET title = 'held'")
        with pytest.raises(StoreLockedError):
            store.run(UpdateThread(thread_id="t", metadata={"a": 1}))
        other.rollback()


def test_the_pooler_of_these_tests_does_break_prepared_statements(postgres_url: str) -> None:
    """Otherwise the two tests above would prove nothing."""

    def burst(store: SQLMemoryStore) -> None:
        for i in range(40):
            store.run(CreateThread(thread_id=f"t{i}", resource_id="r"))

    with transaction_pooler(postgres_url) as pooler, SQLMemoryStore(pooler.url) as store, pytest.raises(StoreError):
        burst(store)


def test_a_password_never_shows_in_an_error() -> None:
    with SQLMemoryStore("postgresql://user:secret%40word@127.0.0.1:1/db") as store:
        with pytest.raises(StoreUnavailableError) as caught:
            store.run(GetThread(thread_id="t"))
        assert "secret" not in str(caught.value)
        assert "secret" not in repr(store)
