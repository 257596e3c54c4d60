"""PostgreSQL through psycopg 3: a pool of connections, one transaction for each unit of work."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar, cast

import psycopg
import sqlalchemy as sa
from psycopg import IsolationLevel
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from langchain_mastra_memory.errors import StoreClosedError, StoreError, StoreLockedError
from langchain_mastra_memory.store.base import Operation
from langchain_mastra_memory.store.sql.door import Door
from langchain_mastra_memory.store.sql.failures import RETRIED, map_postgresql
from langchain_mastra_memory.store.sql.migrate import check_version, migrate, migrations
from langchain_mastra_memory.store.sql.registry import ALONE, handler_of
from langchain_mastra_memory.store.sql.spares import Spares
from langchain_mastra_memory.store.sql.tx import Statements, Tx
from langchain_mastra_memory.store.sql.urls import shown_url

if TYPE_CHECKING:
    from sqlalchemy.engine import URL
    from sqlalchemy.pool import ConnectionPoolEntry, PoolProxiedConnection

T = TypeVar("T")

CONNECT_SECONDS = 10
"""How long an answer of the server is waited for, unless `connect_args` says otherwise."""

TRIES = 5
"""How often a unit is run when the connection was lost or a deadlock was broken before its commit."""

OVERTAKEN = frozenset({"23505", "23503"})
"""A key that a statement found free was taken while it waited for the thread, or the thread that it found is gone.

The next try locks the thread first.
"""

PAUSE = 0.02
"""Seconds before the victim of a deadlock tries again, more each time: the other one is to get what it waited for."""


class PostgreSQLBackend:
    """Runs operations on one PostgreSQL database."""

    def __init__(
        self,
        url: URL,
        *,
        clock: Callable[[], int],
        busy_timeout: float,
        prepared_statements: bool,
        options: dict[str, Any],
    ) -> None:
        self.where = shown_url(url)
        self._clock = clock
        # Nearly all statements are the same few: their first run on a connection prepares them.
        arguments = {"connect_timeout": CONNECT_SECONDS, "prepare_threshold": 0, **options.pop("connect_args", {})}
        if not prepared_statements:
            arguments["prepare_threshold"] = None
        self._lock_timeout = sa.text(f"SET LOCAL lock_timeout = {int(busy_timeout * 1000)}")
        # Behind a pooler a setting of the session would be somebody else's: there it is set in each transaction.
        self._set_each_time = not prepared_statements
        # The connection that was used last is the one whose statements are prepared.
        settings: dict[str, Any] = {"pool_size": 10, "max_overflow": 0, "pool_use_lifo": True, **options}
        self._engine = sa.create_engine(url, connect_args=arguments, **settings)
        self._spares = Spares(settings)
        self._generation = 0
        sa.event.listen(self._engine, "connect", self._note_generation)
        if prepared_statements:
            sa.event.listen(self._engine, "connect", _setter(f"SET lock_timeout = {int(busy_timeout * 1000)}"))
        # Numbered parameters are what the server takes: the driver need not look for named ones in the text.
        numbered = PGDialect_psycopg(paramstyle="numeric_dollar")  # type: ignore[no-untyped-call]
        self._statements = Statements(numbered, inline=self._engine.dialect)
        self._statements.compile_first("postgresql")
        self._executor = ThreadPoolExecutor(int(settings["pool_size"]), thread_name_prefix="mastra-store")
        self._door = Door()
        try:
            if not self._unit(self._is_current, writes=False):
                self._unit(lambda tx: migrate(tx, self.where), writes=True)
        except BaseException:
            self.close()
            raise

    def _is_current(self, tx: Tx) -> bool:
        if tx.value(sa.text("SELECT to_regclass('mastra_schema')::text"), keep=False) is None:
            return False
        version = int(tx.value(sa.text("SELECT max(version) FROM mastra_schema"), keep=False) or 0)
        check_version(version, self.where)
        return version == len(migrations())

    def _unit(self, work: Callable[[Tx], T], *, writes: bool, alone: bool = False) -> T:
        """Run one transaction, again if it was undone by no fault of its own before the commit was asked for."""
        overtaken = False
        for remaining in reversed(range(TRIES)):
            committing = False
            try:
                pooled = self._checkout()
            except PoolTimeoutError as error:
                raise StoreLockedError(f"{StoreLockedError.__doc__} [{self.where}: no free connection]") from error
            except DBAPIError as error:
                raise self.map_error(error.orig if isinstance(error.orig, Exception) else error) from error
            except psycopg.Error as error:
                raise map_postgresql(error, self.where) from error
            connection = cast("psycopg.Connection[Any]", pooled.driver_connection)
            try:
                _prepare(connection, alone=alone, writes=writes)
                with psycopg.RawCursor(connection) as cursor:
                    tx = Tx(cursor, self._statements, "postgresql", self._clock(), overtaken=overtaken)
                    if writes and self._set_each_time:
                        tx.run(self._lock_timeout)
                    result = work(tx)
                committing = True
                connection.commit()
            except psycopg.Error as error:
                lost = self._undo(pooled, connection, error)
                unsure = lost and writes and (committing or alone)
                if remaining and lost and (alone or not unsure):  # one that is alone may be sent twice
                    continue
                if remaining and error.sqlstate in OVERTAKEN and not overtaken:
                    overtaken = True
                    continue
                if remaining and error.sqlstate in RETRIED:
                    overtaken = True
                    time.sleep(random.uniform(0.5, 1.5) * PAUSE * (TRIES - remaining))
                    continue
                mapped = map_postgresql(error, self.where)
                if unsure:
                    mapped = type(mapped)(f"{mapped} The commit was under way: it may or may not have been written.")
                raise mapped from error
            except BaseException as error:
                self._undo(pooled, connection, error)
                raise
            self._spares.give(pooled)
            return result
        raise AssertionError("the last try returns or raises")

    def _undo(self, pooled: PoolProxiedConnection, connection: psycopg.Connection[Any], error: BaseException) -> bool:
        """Roll back and give the connection back; return whether it was lost."""
        with suppress(psycopg.Error):
            connection.rollback()
        lost = connection.closed or connection.broken
        if lost:
            if pooled.info.get("generation") == self._generation:
                self._generation += 1  # its sisters are as dead
            pooled.invalidate(error)
        pooled.close()
        return lost

    def _checkout(self) -> PoolProxiedConnection:
        """Return a connection that was made after the last one was lost; older ones are closed as they are met."""
        while True:
            pooled = self._spares.take() or self._engine.raw_connection()
            if pooled.info.get("generation") == self._generation:
                return pooled
            pooled.invalidate()
            pooled.close()

    def _note_generation(self, _connection: object, record: ConnectionPoolEntry) -> None:
        record.info["generation"] = self._generation

    def run(self, operation: Operation[T]) -> T:
        """Run an operation in the calling thread."""
        with self._door:
            return self._run(operation)

    def _run(self, operation: Operation[T]) -> T:
        handler = handler_of(operation)
        tried = ALONE.get(type(operation))
        if tried is not None and not (self._set_each_time and operation.writes):
            result: T | None = self._unit(lambda tx: tried(tx, operation), writes=operation.writes, alone=True)
            if result is not None:
                return result
        return self._unit(lambda tx: handler(tx, operation), writes=operation.writes)

    def submit(self, operation: Operation[T]) -> Future[T]:
        """Run an operation elsewhere; never blocks."""
        if self._door.closed:
            raise StoreClosedError
        try:
            return self._executor.submit(self._run, operation)
        except RuntimeError as error:  # closed in this moment
            raise StoreClosedError from error

    def map_error(self, error: Exception) -> Exception:
        """Return the package's error for one of the driver's."""
        if isinstance(error, psycopg.Error):
            return map_postgresql(error, self.where)
        if isinstance(error, DBAPIError):
            return StoreError(f"{StoreError.__doc__} [{self.where}: {error}]")
        return error

    def close(self) -> None:
        """Wait for the units under way and close every connection."""
        self._door.close()
        self._executor.shutdown(wait=True)
        self._spares.close()
        self._engine.dispose()


def _prepare(connection: psycopg.Connection[Any], *, alone: bool, writes: bool) -> None:
    """Set how the next transaction is to be; asking is cheaper than setting what is set."""
    # A read sees one moment of the database, however many statements it takes.
    level = IsolationLevel.READ_COMMITTED if writes else IsolationLevel.REPEATABLE_READ
    if connection.autocommit is not alone:
        connection.autocommit = alone
    if connection.read_only is not (not writes):
        connection.read_only = not writes
    if connection.isolation_level is not level:
        connection.isolation_level = level


def _setter(statement: str) -> Callable[[psycopg.Connection[Any], object], None]:
    def on_connect(connection: psycopg.Connection[Any], _record: object) -> None:
        try:
            with connection.transaction():
                connection.execute(statement)
        except BaseException:  # nobody else has it yet: not every SQLAlchemy 2.1 closes it
            connection.close()
            raise

    return on_connect
