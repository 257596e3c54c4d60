"""SQLite: a file (WAL, many readers, one write queue) or memory (one connection, one seat)."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import sqlalchemy as sa
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.pool import QueuePool

from langchain_mastra_memory.errors import (
    StoreClosedError,
    StoreCorruptError,
    StoreLockedError,
    StoreUnavailableError,
)
from langchain_mastra_memory.store.base import Operation
from langchain_mastra_memory.store.sql.door import Door
from langchain_mastra_memory.store.sql.failures import map_sqlite
from langchain_mastra_memory.store.sql.migrate import check_version, migrate, migrations
from langchain_mastra_memory.store.sql.registry import ALONE, SINGLE, handler_of
from langchain_mastra_memory.store.sql.spares import Spares
from langchain_mastra_memory.store.sql.tx import Statements, Tx
from langchain_mastra_memory.store.sql.urls import shown_url
from langchain_mastra_memory.store.sql.writer import WriteQueue

if TYPE_CHECKING:
    from sqlalchemy.engine import URL
    from sqlalchemy.pool import PoolProxiedConnection

T = TypeVar("T")

READERS = 4
"""Threads that read for async callers; sync callers read in their own thread."""


class SQLiteBackend:
    """Runs operations on one SQLite database."""

    def __init__(self, url: URL, *, clock: Callable[[], int], busy_timeout: float, options: dict[str, Any]) -> None:
        self.where = shown_url(url)
        self._clock = clock
        self._timeout = busy_timeout
        self._in_memory = url.database in (None, "", ":memory:")
        arguments: dict[str, Any] = {"check_same_thread": False, "isolation_level": None, "cached_statements": 512}
        arguments |= {"timeout": busy_timeout, **options.pop("connect_args", {})}
        settings: dict[str, Any] = {"pool_size": 8, "max_overflow": 56, **options}
        if self._in_memory:
            settings = {"pool_size": 1, "max_overflow": 0}
        self._engine = sa.create_engine(url, connect_args=arguments, **{"poolclass": QueuePool, **settings})
        self._spares = Spares(settings)
        if not self._in_memory:
            self._check_file(url)
        sa.event.listen(self._engine, "connect", self._prepare_connection)
        self._statements = Statements(self._engine.dialect)
        self._statements.compile_first("sqlite")
        self._queue = WriteQueue(self._open_connection)
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="mastra-write")
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="mastra-read")
        self._door = Door()
        try:
            self._migrate()
        except BaseException:
            self.close()
            raise

    def _check_file(self, url: URL) -> None:
        """Refuse a file that is not ours before anything of it is touched.

        Raises:
            StoreUnavailableError: The folder is missing.
            StoreCorruptError: The file is no SQLite database, or one of another application.
            SchemaVersionError: A newer version of the package wrote it.
        """
        if url.query.get("uri"):
            return
        path = Path(url.database or "")
        if not path.parent.is_dir():
            raise StoreUnavailableError(
                f"the folder of {self.where} does not exist: make {path.parent.absolute()} first"
            )
        if not path.exists() or path.stat().st_size == 0:
            return
        try:
            connection = sqlite3.connect(path, timeout=self._timeout, isolation_level=None)
            try:
                connection.execute("PRAGMA query_only=1")
                tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type='table'")}
                ours = "mastra_schema" in tables
                version = connection.execute("SELECT max(version) FROM mastra_schema").fetchone()[0] if ours else 0
            finally:
                connection.close()
        except sqlite3.Error as error:
            raise map_sqlite(error, self.where) from error
        if tables and not ours:
            raise StoreCorruptError(
                f"{self.where} is a database of another application (tables {', '.join(sorted(tables))[:80]}); "
                "give the memory a file of its own. It was left untouched."
            )
        check_version(version or 0, self.where)

    def _prepare_connection(self, connection: sqlite3.Connection, _record: object) -> None:
        connection.execute(f"PRAGMA busy_timeout={int(self._timeout * 1000)}")
        connection.execute("PRAGMA foreign_keys=ON")
        if not self._in_memory and connection.execute("PRAGMA journal_mode").fetchone() != ("wal",):
            connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")

        if not self._in_memory:
            connection.execute("PRAGMA query_only=ON")  # a read that writes would lose it without a word

    def _open_connection(self) -> sqlite3.Connection:
        connection = self._engine.raw_connection()
        driver = _driver(connection)
        connection.detach()
        driver.execute("PRAGMA query_only=OFF")
        return driver

    def _migrate(self) -> None:
        if not self._in_memory and self._is_current():
            return
        try:
            self._queue.run(lambda cursor: migrate(self._tx(cursor), self.where))
        except sqlite3.Error as error:
            raise map_sqlite(error, self.where) from error

    def _is_current(self) -> bool:
        """Tell whether nothing is to be migrated, without taking the write lock."""
        try:
            version = self._read(lambda cursor: cursor.execute("SELECT max(version) FROM mastra_schema").fetchone()[0])
        except sqlite3.OperationalError as error:
            if "no such table" in str(error):
                return False
            raise map_sqlite(error, self.where) from error
        except sqlite3.Error as error:
            raise map_sqlite(error, self.where) from error
        return bool(version == len(migrations()))

    def _tx(self, cursor: sqlite3.Cursor) -> Tx:
        return Tx(cursor, self._statements, "sqlite", self._clock())

    def _work(
        self, operation: Operation[T], handler: Callable[[Tx, Any], Any] | None = None
    ) -> Callable[[sqlite3.Cursor], Any]:
        handler = handler or handler_of(operation)

        def work(cursor: sqlite3.Cursor) -> Any:
            # A cursor of its own: the caller's holds the transaction, and a result left open would hold the commit.
            own = cursor.connection.cursor()
            try:
                result = handler(self._tx(own), operation)
            finally:
                own.close()
            return result

        return self._guarded(work) if self._in_memory and not operation.writes else work

    @staticmethod
    def _guarded(work: Callable[[sqlite3.Cursor], T]) -> Callable[[sqlite3.Cursor], T]:
        """Return a read for the writer's connection, the only one that there is in memory: it must not write."""

        def guarded(cursor: sqlite3.Cursor) -> T:
            cursor.execute("PRAGMA query_only=ON")
            try:
                return work(cursor)
            finally:
                cursor.execute("PRAGMA query_only=OFF")

        return guarded

    def _read(self, work: Callable[[sqlite3.Cursor], T]) -> T:
        """Run a read that sees one moment of the database."""
        connection = self._checkout()
        try:
            driver = _driver(connection)
            cursor = driver.cursor()
            cursor.execute("BEGIN")
            try:
                result = work(cursor)
            finally:
                driver.rollback()
        except BaseException:
            connection.close()
            raise
        self._spares.give(connection)
        return result

    def _checkout(self) -> PoolProxiedConnection:
        try:
            return self._spares.take() or self._engine.raw_connection()
        except PoolTimeoutError as error:
            raise StoreLockedError(f"{StoreLockedError.__doc__} [{self.where}: no free connection]") from error

    def run(self, operation: Operation[T]) -> T:
        """Run an operation in the calling thread."""
        with self._door:
            return self._run(operation)

    def _run(self, operation: Operation[T]) -> T:
        kind = type(operation)
        tried = ALONE.get(kind)
        queued = operation.writes or self._in_memory
        try:
            if tried is not None and SINGLE[kind](operation):
                # Reads too: the writer's connection has the newest pages in its cache, others read them again.
                alone: Callable[[sqlite3.Cursor], T | None] = self._work(operation, tried)
                result = self._queue.run_alone(alone)
                if result is not None:
                    return result
            work: Callable[[sqlite3.Cursor], T] = self._work(operation)
            return self._queue.run(work) if queued else self._read(work)
        except sqlite3.Error as error:
            raise map_sqlite(error, self.where) from error

    def submit(self, operation: Operation[T]) -> Future[T]:
        """Run an operation elsewhere; never blocks."""
        if self._door.closed:
            raise StoreClosedError
        try:
            if not operation.writes and not self._in_memory:
                return self._readers.submit(self._run, operation)
            job = self._queue.submit(self._work(operation))
            try:
                self._writer.submit(self._queue.settle, job)
            except RuntimeError:
                job.future.cancel()
                raise
        except RuntimeError as error:  # closed in this moment
            raise StoreClosedError from error
        return job.future

    def map_error(self, error: Exception) -> Exception:
        """Return the package's error for what a future of `submit` raised."""
        return map_sqlite(error, self.where) if isinstance(error, sqlite3.Error) else error

    def close(self) -> None:
        """Commit what waits and close every connection."""
        self._door.close()
        self._writer.shutdown(wait=True)
        self._readers.shutdown(wait=True)
        self._queue.close()
        self._spares.close()
        self._engine.dispose()


def _driver(connection: PoolProxiedConnection) -> sqlite3.Connection:
    return cast("sqlite3.Connection", connection.driver_connection)
