"""Our own stores and wrappers pass the conformance suite that we ship."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from langchain_mastra_memory.errors import StoreReadOnlyError
from langchain_mastra_memory.store.base import Group, MemoryStore
from langchain_mastra_memory.store.sql.engine import SQLMemoryStore
from langchain_mastra_memory.store.wrappers import (
    EncryptedStore,
    ReadOnlyStore,
    RedactingStore,
    StoreWrapper,
    Trace,
    TracedStore,
)
from langchain_mastra_memory.testing.conformance import MemoryStoreConformance


class TestInMemory(MemoryStoreConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def store(cls) -> Iterator[MemoryStore]:
        with SQLMemoryStore("memory://") as store:
            yield store


class TestSQLite(MemoryStoreConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def store(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MemoryStore]:
        path: Path = tmp_path_factory.mktemp("conformance") / "memory.db"
        with SQLMemoryStore(f"sqlite:///{path}") as store:
            yield store


@pytest.mark.postgres
class TestPostgreSQL(MemoryStoreConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def store(cls) -> Iterator[MemoryStore]:
        import psycopg

        from tests.postgres import PostgresFolder, new_database_name

        server, name = PostgresFolder.current().url(), new_database_name()
        with psycopg.connect(f"{server}/postgres", autocommit=True) as admin:
            admin.execute(f'CREATE DATABASE "{name}"')
            with SQLMemoryStore(f"{server}/{name}") as store:
                yield store
            admin.execute(f'DROP DATABASE "{name}"')


class RefusedFirst(StoreWrapper):
    """Reads through a `ReadOnlyStore`; writes on what it wraps, after the `ReadOnlyStore` has refused."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self._reader = ReadOnlyStore(store)

    def run(self, operation):
        if not operation.writes:
            return self._reader.run(operation)
        with pytest.raises(StoreReadOnlyError, match=type(operation).__name__):
            self._reader.run(operation)
        return super().run(operation)

    async def arun(self, operation):
        if not operation.writes:
            return await self._reader.arun(operation)
        with pytest.raises(StoreReadOnlyError, match=type(operation).__name__):
            await self._reader.arun(operation)
        return await super().arun(operation)


class TestWrapped(MemoryStoreConformance):
    """Wrappers around wrappers: nothing is there to redact, every write is refused first, every operation is seen."""

    @pytest.fixture(scope="class")
    @classmethod
    def store(cls) -> Iterator[MemoryStore]:
        traces: list[Trace] = []
        redacting = RedactingStore(SQLMemoryStore("memory://"), lambda text: text.replace("never there", ""))
        with TracedStore(RefusedFirst(redacting), traces.append) as store:
            yield store
        assert traces
        assert all(str(trace).startswith(f"{trace.operation.group}.") for trace in traces)


class TestEncrypted(MemoryStoreConformance):
    """All but searching works on ciphertext."""

    skip_groups = frozenset({"index"})

    @pytest.fixture(scope="class")
    @classmethod
    def store(cls) -> Iterator[MemoryStore]:
        with EncryptedStore(SQLMemoryStore("memory://"), key=b"0123456789abcdef" * 4) as store:
            yield store


def test_the_suite_covers_every_group_of_the_protocol() -> None:
    from typing import get_args

    from langchain_mastra_memory.testing.conformance import COUNTS

    assert set(COUNTS) == set(get_args(Group))
