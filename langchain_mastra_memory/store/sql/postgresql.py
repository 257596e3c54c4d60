"""PostgreSQL through psycopg 3: a pool of connections, one transaction for each unit of work."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar, cast

import psycopg
import sqlalchemy as sa
from psycopg import IsolationLevel
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from langchain_mastra_memory.errors import StoreClosedError, StoreError, StoreLockedError
from langchain_mastra_memory.store.base import Operation
from langchain_mastra_memory.store.sql.failures import RETRIED, map_postgresql
from langchain_mastra_memory.store.sql.migrate import check_version, migrate, migrations
from langchain_mastra_memory.store.sql.registry import HANDLERS
from langchain_mastra_memory.store.sql.tx import Statements, Tx

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

T = TypeVar("T")

TRIES = 3
"""How often a unit is run when the connection was lost or a deadlock was broken before its commit."""


class PostgreSQLBackend:
    """Runs operations on one PostgreSQL database."""

    def __init__(
        self, url: URL, *, clock: Callable[[], int], prepared_statements: bool, options: dict[str, Any]
    ) -> None:
        self.where = url.render_as_string(hide_password=True)
        self._clock = clock
        arguments = dict(options.pop("connect_args", {}))
        if not prepared_statements:
            arguments["prepare_threshold"] = None
        settings: dict[str, Any] = {"pool_size": 10, "max_overflow": 0, **options}
        self._engine = sa.create_engine(url, connect_args=arguments, **settings)
        self._statements = Statements(self._engine.dialect)
        self._executor = ThreadPoolExecutor(int(settings["pool_size"]), thread_name_prefix="mastra-store")
        self._closed = False
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

    def _unit(self, work: Callable[[Tx], T], *, writes: bool) -> T:
        """Run one transaction, again if it was undone by no fault of its own before the commit was asked for."""
        for remaining in reversed(range(TRIES)):
            committing = False
            try:
                pooled = self._engine.raw_connection()
            except PoolTimeoutError as error:
                raise StoreLockedError(f"{StoreLockedError.__doc__} [{self.where}: no free connection]") from error
            except DBAPIError as error:
                raise self.map_error(error.orig if isinstance(error.orig, Exception) else error) from error
            except psycopg.Error as error:
                raise map_postgresql(error, self.where) from error
            connection = cast("psycopg.Connection[Any]", pooled.driver_connection)
            try:
                connection.read_only = not writes
                # A read sees one moment of the database, however many statements it takes.
                connection.isolation_level = IsolationLevel.READ_COMMITTED if writes else IsolationLevel.REPEATABLE_READ
                with connection.cursor() as cursor:
                    result = work(Tx(cursor, self._statements, "postgresql", self._clock()))
                committing = True
                connection.commit()
            except psycopg.Error as error:
                lost = connection.closed or connection.broken
                if lost:
                    pooled.invalidate(error)
                    self._engine.dispose()  # its sisters are as dead
                else:
                    connection.rollback()
                if remaining and ((lost and not committing) or error.sqlstate in RETRIED):
                    continue
                raise map_postgresql(error, self.where) from error
            except BaseException:
                if not connection.closed:
                    connection.rollback()
                raise
            else:
                return result
            finally:
                pooled.close()
        raise AssertionError("the last try returns or raises")

    def run(self, operation: Operation[T]) -> T:
        """Run an operation in the calling thread."""
        if self._closed:
            raise StoreClosedError
        handler = HANDLERS[type(operation)]
        return self._unit(lambda tx: cast("T", handler(tx, operation)), writes=operation.writes)

    def submit(self, operation: Operation[T]) -> Future[T]:
        """Run an operation elsewhere; never blocks."""
        if self._closed:
            raise StoreClosedError
        return self._executor.submit(self.run, operation)

    def map_error(self, error: Exception) -> Exception:
        """Return the package's error for one of the driver's."""
        if isinstance(error, psycopg.Error):
            return map_postgresql(error, self.where)
        if isinstance(error, DBAPIError):
            return StoreError(f"{StoreError.__doc__} [{self.where}: {error}]")
        return error

    def close(self) -> None:
        """Wait for the units under way and close every connection."""
        self._closed = True
        self._executor.shutdown(wait=True)
        self._engine.dispose()
