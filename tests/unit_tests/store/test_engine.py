"""The SQL engine: transactions, the write queue, migrations, values."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from langchain_mastra_memory.errors import ConfigurationError, InvalidQueryError, StoreClosedError, StoreError
from langchain_mastra_memory.store.base import MemoryStore, Operation
from langchain_mastra_memory.store.sql.engine import SQLMemoryStore
from langchain_mastra_memory.store.sql.migrate import migrations
from langchain_mastra_memory.store.sql.registry import HANDLERS, handles
from langchain_mastra_memory.store.sql.schema import metadata, resources
from langchain_mastra_memory.store.sql.tx import Statements, Tx, any_of, insert_row, upsert
from langchain_mastra_memory.store.sql.values import (
    decode_text,
    dump_json,
    encode_text,
    from_micros,
    load_json,
    to_micros,
)

_INSERT = insert_row(resources, "id", "metadata", "version", "created_at", "updated_at")
_UPSERT = upsert(resources, ["id"], ["metadata", "version", "created_at", "updated_at"])
_KEEP = upsert(resources, ["id", "metadata", "version", "created_at", "updated_at"][:1], [])
_ALL = sa.select(resources.c.id, resources.c.metadata).order_by(resources.c.id)
_SOME = sa.select(resources.c.id).where(any_of(resources.c.id, "ids")).order_by(resources.c.id)
_VERSIONS = sa.select(resources.c.id).where(any_of(resources.c.version, "versions"))


def _row(name: str, text: str = "{}", version: int = 1) -> dict[str, Any]:
    return {"id": name, "metadata": text, "version": version, "created_at": 0, "updated_at": 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Put(Operation[int]):
    group = "resources"
    name: str
    text: str = "{}"
    fail: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Work(Operation[Any]):
    """Runs any function of the transaction: what a handler could do."""

    group = "resources"
    work: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Look(Operation[Any]):
    group = "resources"
    writes = False
    work: Any


@pytest.fixture(autouse=True, scope="module")
def _handlers() -> Iterator[None]:
    @handles(Put)
    def put(tx: Tx, op: Put) -> int:
        changed = tx.run(_INSERT, _row(op.name, op.text))
        if op.fail:
            raise ValueError(op.name)
        return changed

    for kind in (Work, Look):
        handles(kind)(lambda tx, op: op.work(tx))
    yield
    for kind in (Put, Work, Look):
        del HANDLERS[kind]


@pytest.fixture
def store(store_url: str) -> Iterator[SQLMemoryStore]:
    with SQLMemoryStore(store_url) as opened:
        yield opened


def _names(store: SQLMemoryStore) -> list[str]:
    return [name for name, _ in store.run(Look(work=lambda tx: tx.all(_ALL)))]


def test_it_is_a_memory_store_with_every_group_of_the_foundation(store):
    assert isinstance(store, MemoryStore)
    assert store.capabilities >= {"resources"}


def test_a_unit_that_raises_leaves_nothing_behind(store):
    with pytest.raises(ValueError, match="b"):
        store.run(Put(name="b", fail=True))
    store.run(Put(name="a"))
    assert _names(store) == ["a"]


@pytest.mark.parametrize("text", ["", "a\0b", "\ud83d alone", "\uffff", "\uffff0041", "天气 🌤", "\\u0000", "'\";--%_"])
async def test_any_text_survives(store, text):
    store.run(Put(name=f"n{text}".replace("\0", ""), text=text))
    await store.arun(Put(name="other", text=text))
    assert [value for _, value in store.run(Look(work=lambda tx: tx.all(_ALL)))] == [text, text]


@given(st.text(alphabet=st.characters(codec=None, exclude_categories=()), max_size=40))
def test_encoded_text_fits_every_engine_and_decodes_to_itself(text):
    encoded = encode_text(text)
    assert "\0" not in encoded
    encoded.encode()
    assert decode_text(encoded) == text


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(), children, max_size=3),
        max_leaves=8,
    ),
    st.text(),
)
def test_json_survives_its_text_even_with_nul_in_it(value, key):
    data = {key: value, "nul": "\0", "literal": "\\u0000"}
    assert load_json(decode_text(encode_text(dump_json(data)))) == data


def test_json_text_of_metadata_with_nul_is_readable_as_jsonb(postgres_url):
    with SQLMemoryStore(postgres_url) as store:
        store.run(Put(name="a", text=dump_json({"k": "x\0y", "n": 1, "esc": "\\u0000 \\\\u0000"})))
        query = sa.text("SELECT CAST(metadata AS jsonb) ->> 'n' FROM mastra_resources")
        assert store.run(Look(work=lambda tx: tx.value(query))) == "1"


@pytest.mark.parametrize("value", [{1, 2}, float("nan"), {"a": object()}])
def test_metadata_that_is_not_json_is_refused(value):
    with pytest.raises(InvalidQueryError, match="JSON"):
        dump_json(value)


@given(st.datetimes(timezones=st.just(UTC), min_value=datetime(1900, 1, 1), max_value=datetime(2200, 1, 1)))  # noqa: DTZ001 - hypothesis wants naive bounds
def test_times_survive_to_the_microsecond(moment):
    assert from_micros(to_micros(moment)) == moment
    assert to_micros(moment.replace(tzinfo=None)) == to_micros(moment)
    assert from_micros(to_micros(moment + timedelta(microseconds=1))) - moment == timedelta(microseconds=1)


def test_a_list_parameter_takes_any_length_and_any_characters(store):
    names = [f"id{n}" for n in range(40_000)] + ["50%", "a_b", "it's", "日本", '"q"', "\ud800"]
    for name in ("id7", "50%", "it's", '"q"', "\ud800"):
        store.run(Put(name=name))
    found = store.run(Look(work=lambda tx: [name for (name,) in tx.all(_SOME, {"ids": names})]))
    assert sorted(found) == sorted(["id7", "50%", "it's", '"q"', "\ud800"])
    assert store.run(Look(work=lambda tx: tx.all(_SOME, {"ids": []}))) == []
    assert len(store.run(Look(work=lambda tx: tx.all(_VERSIONS, {"versions": [1, 2]})))) == 5


def test_an_upsert_overwrites_or_keeps(store):
    store.run(Work(work=lambda tx: tx.run(_UPSERT, _row("a", "1"))))
    store.run(Work(work=lambda tx: tx.run(_UPSERT, _row("a", "2"))))
    assert store.run(Look(work=lambda tx: tx.all(_ALL))) == [("a", "2")]


def test_a_savepoint_undoes_only_what_was_done_inside(store):
    def work(tx: Tx) -> None:
        tx.run(_INSERT, _row("outer"))
        with pytest.raises(KeyError), tx.savepoint():  # noqa: PT012 - what happens inside is the point
            tx.run(_INSERT, _row("inner"))
            with tx.savepoint():
                tx.run(_INSERT, _row("innermost"))
            raise KeyError
        with tx.savepoint():
            tx.run(_INSERT, _row("kept"))

    store.run(Work(work=work))
    assert _names(store) == ["kept", "outer"]


def test_a_read_sees_one_moment_of_the_database(store_url):
    if store_url == "memory://":
        pytest.skip("one connection: a read and a write never overlap")
    with SQLMemoryStore(store_url) as store, SQLMemoryStore(store_url) as other:
        store.run(Put(name="a"))

        def look(tx: Tx) -> tuple[int, int]:
            before = len(tx.all(_ALL))
            other.run(Put(name="b"))
            return before, len(tx.all(_ALL))

        assert store.run(Look(work=look)) == (1, 1)
        assert _names(store) == ["a", "b"]


async def test_a_burst_of_writes_is_committed_whole_and_one_failing_job_harms_no_other(store):
    jobs = [store.arun(Put(name=f"n{n:03}", fail=n % 7 == 0)) for n in range(200)]
    results = await asyncio.gather(*jobs, return_exceptions=True)
    assert [isinstance(result, ValueError) for result in results] == [n % 7 == 0 for n in range(200)]
    assert _names(store) == [f"n{n:03}" for n in range(200) if n % 7]


def test_a_job_that_breaks_a_rule_of_the_database_harms_no_other(store):
    async def burst() -> list[Any]:
        jobs = [store.arun(Put(name=name)) for name in ("a", "b", "a", "c")]
        return await asyncio.gather(*jobs, return_exceptions=True)

    results = asyncio.run(burst())
    assert sum(isinstance(result, StoreError) for result in results) == 1
    assert _names(store) == ["a", "b", "c"]


def test_threads_and_tasks_write_at_once_without_losing_anything(store):
    async def tasks(name: str) -> None:
        await asyncio.gather(*(store.arun(Put(name=f"{name}-{n}")) for n in range(40)))

    with ThreadPoolExecutor(8) as pool:
        jobs = [pool.submit(lambda t=t: [store.run(Put(name=f"t{t}-{n}")) for n in range(40)]) for t in range(6)]
        jobs += [pool.submit(asyncio.run, tasks(f"loop{n}")) for n in range(2)]
        for job in jobs:
            job.result()
    assert len(_names(store)) == 8 * 40


def test_a_job_cancelled_before_its_turn_is_not_run(sqlite_url):
    """The writer is held by another job while one is cancelled."""
    started, release = threading.Event(), threading.Event()

    def hold(_tx: Tx) -> None:
        started.set()
        release.wait(10)

    async def main() -> None:
        store = SQLMemoryStore(sqlite_url)
        store.run(Put(name="first"))
        holding = asyncio.create_task(store.arun(Work(work=hold)))
        await asyncio.to_thread(started.wait, 10)
        waiting = asyncio.create_task(store.arun(Put(name="cancelled")))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        release.set()
        await holding
        assert _names(store) == ["first"]
        await store.aclose()

    asyncio.run(main())


def test_an_interrupt_in_the_writer_reaches_its_caller_and_the_queue_goes_on(store):
    def interrupt(_tx: Tx) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.run(Work(work=interrupt))
    store.run(Put(name="after"))
    assert _names(store) == ["after"]


def _foreign_keys(connection: sa.Connection, table: str) -> list[Any]:
    """Return a table's foreign keys; SQLAlchemy overlooks SQLite's ON DELETE of a column's own REFERENCES."""
    if connection.dialect.name == "sqlite":
        rows = connection.execute(sa.text(f"PRAGMA foreign_key_list({table})"))
        return sorted((row[3], row[2], row[4], row[6]) for row in rows)
    keys = sa.inspect(connection).get_foreign_keys(table)
    return sorted(
        (f["constrained_columns"], f["referred_table"], f["referred_columns"], str(f["options"])) for f in keys
    )


def test_the_schema_is_what_the_migrations_make(store_url):
    """What `metadata` declares and what the migrations build are the same database, column by column."""
    url = "sqlite://" if store_url == "memory://" else store_url.replace("postgresql://", "postgresql+psycopg://")
    engine = sa.create_engine(url)

    def shape(connection: sa.Connection) -> dict[str, Any]:
        inspector = sa.inspect(connection)
        return {
            table: (
                [
                    (c["name"], str(c["type"]).partition(" COLLATE")[0], c["nullable"], c.get("identity") is not None)
                    for c in inspector.get_columns(table)
                ],
                inspector.get_pk_constraint(table)["constrained_columns"],
                sorted((i["name"] or "", i["unique"], tuple(i["column_names"])) for i in inspector.get_indexes(table)),
                sorted(tuple(u["column_names"]) for u in inspector.get_unique_constraints(table)),
                _foreign_keys(connection, table),
            )
            for table in sorted(inspector.get_table_names())
        }

    from langchain_mastra_memory.store.sql.engine import _load_handlers
    from langchain_mastra_memory.store.sql.migrate import migrate

    _load_handlers()
    name = "postgresql" if "postgresql" in url else "sqlite"
    with engine.connect() as connection, connection.begin() as transaction:
        metadata.create_all(connection)
        declared = shape(connection)
        transaction.rollback()
    with engine.connect() as connection, connection.begin():
        metadata.drop_all(connection)
        cursor = connection.connection.driver_connection.cursor()
        migrate(Tx(cursor, Statements(engine.dialect), name, 0), url)
        assert shape(connection) == declared
    engine.dispose()


def test_migrations_are_numbered_without_gaps():
    assert [number for number, _, _ in migrations()] == list(range(1, len(migrations()) + 1))


@pytest.mark.parametrize("url", ["", "mysql://x/y", "redis://localhost", "memory.db", "/tmp/x.db", "sqlite"])
def test_a_url_of_another_kind_is_refused_with_the_kinds_that_work(url):
    with pytest.raises(ConfigurationError, match="memory://"):
        SQLMemoryStore(url)


@pytest.mark.parametrize("path", ["memory.db", "/var/memory.db", Path("memory.db")])
def test_a_path_is_refused_with_the_url_of_the_file(path):
    with pytest.raises(ConfigurationError, match=f"sqlite:///{path}"):
        SQLMemoryStore(path)


@pytest.mark.parametrize("url", ["user:s3cret@host/db", "user:s3cret@host"])
def test_what_may_hold_a_password_gets_no_hint(url):
    with pytest.raises(ConfigurationError, match=r"database$"):
        SQLMemoryStore(url)


def test_a_password_never_shows(postgres_url):
    store = SQLMemoryStore("postgresql://user:s3cret@127.0.0.1:1/db")
    assert "s3cret" not in repr(store)
    with pytest.raises(StoreError) as caught:
        store.run(Look(work=lambda tx: 1))
    assert "s3cret" not in str(caught.value) + repr(caught.value)


@pytest.mark.parametrize("name", ["password", "sslpassword", "passfile", "PASSWORD"])
def test_a_password_among_the_parameters_never_shows(name):
    store = SQLMemoryStore(f"postgresql://user@127.0.0.1:1/db?{name}=s3cret&application_name=mine")
    assert "s3cret" not in repr(store)
    assert "application_name=mine" in repr(store)
    with pytest.raises(StoreError) as caught:
        store.run(Look(work=lambda tx: 1))
    assert "s3cret" not in str(caught.value) + repr(caught.value)


@pytest.mark.parametrize("url", ["postgresql://user:p@s3cret@host/db", "postgresql://user:s3cret@host:port/db"])
def test_a_url_that_cannot_be_read_is_refused_without_what_it_was(url):
    store = SQLMemoryStore(url)
    assert repr(store) == "SQLMemoryStore('postgresql://...')"
    with pytest.raises(ConfigurationError, match="percent-encoded") as caught:
        store.run(Look(work=lambda tx: 1))
    assert "s3cret" not in str(caught.value) + str(caught.value.__cause__) + str(caught.value.__context__)


async def test_a_closed_store_says_so(store_url):
    store = SQLMemoryStore(store_url)
    store.run(Put(name="a"))
    store.close()
    store.close()
    with pytest.raises(StoreClosedError):
        store.run(Put(name="b"))
    with pytest.raises(StoreClosedError):
        await store.arun(Put(name="b"))
    async with SQLMemoryStore(store_url) as never_opened:
        assert repr(never_opened)


def test_what_waits_when_the_store_is_closed_is_written(sqlite_url):
    async def main() -> None:
        store = SQLMemoryStore(sqlite_url)
        store.run(Put(name="opened"))  # from here on a task that has started has its job in the queue
        tasks = [asyncio.create_task(store.arun(Put(name=f"n{n}"))) for n in range(50)]
        await tasks[0]
        await store.aclose()
        await asyncio.gather(*tasks)

    asyncio.run(main())
    with SQLMemoryStore(sqlite_url) as store:
        assert len(_names(store)) == 51
