"""`SQLMemoryStore`: the store on SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from functools import cache
from importlib import import_module
from pathlib import PurePath
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, get_args

from langchain_mastra_memory.checks import check_function
from langchain_mastra_memory.errors import ConfigurationError, StoreClosedError
from langchain_mastra_memory.forking import watch
from langchain_mastra_memory.shown import shown
from langchain_mastra_memory.store.base import ContextManaged, Group, Operation, Unpicklable

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

T = TypeVar("T")

_BACKENDS: Final = ("sqlite", "postgresql")
_INHERITED: Final[list[Backend]] = []
"""In a forked process: what its parent had open. Kept, since collecting a connection would close it for the parent."""


class Backend(Protocol):
    """What an engine does for the store."""

    where: str

    def run(self, operation: Operation[T]) -> T:
        """Run an operation in the calling thread."""
        ...

    def submit(self, operation: Operation[T]) -> Future[T]:
        """Run an operation elsewhere; never blocks."""
        ...

    def map_error(self, error: Exception) -> Exception:
        """Return the package's error for one of the driver's."""
        ...

    def close(self) -> None:
        """Finish what is under way and close every connection."""
        ...


def utc_now() -> datetime:
    """Return the present time, aware UTC."""
    return datetime.now(UTC)


class SQLMemoryStore(ContextManaged, Unpicklable):
    """A `MemoryStore` on SQLite (default) or PostgreSQL, one schema for both.

    The database is opened, and brought up to date, at the first operation; never on an event loop.

    Args:
        url: `memory://` (nothing on disk), `sqlite:///relative.db`, `sqlite:////absolute.db`,
            `postgresql://user:password@host/database` (extra `postgres`), or an SQLAlchemy URL.
        clock: Gives the present time, aware; for tests.
        busy_timeout: Seconds that a write waits for somebody else's lock.
        prepared_statements: False behind a pooler in transaction mode, such as PgBouncer.
        engine_options: Passed to `sqlalchemy.create_engine`: `pool_size`, `pool_recycle`, `connect_args`, ...

    Raises:
        ConfigurationError: The URL is not one of these.

    Example:
        ```python
        with SQLMemoryStore("sqlite:///memory.db") as store:
            memory = Memory(store)
        ```
    """

    def __init__(
        self,
        url: str | URL = "memory://",
        *,
        clock: Callable[[], datetime] | None = None,
        busy_timeout: float = 10.0,
        prepared_statements: bool = True,
        **engine_options: Any,
    ) -> None:
        if not isinstance(url, str) and not hasattr(url, "drivername"):
            path = f": for a SQLite file write 'sqlite:///{url}'" if isinstance(url, PurePath) else ""
            raise ConfigurationError(f"the store must be a URL or a MemoryStore, not {shown(url, 40)}{path}")
        if isinstance(url, str) and "\0" in url:
            raise ConfigurationError("the store URL has a NUL character")
        drivername, separator, _ = url.partition("://") if isinstance(url, str) else (url.drivername, "://", "")
        scheme = drivername.partition("+")[0]
        if scheme == "postgres":
            scheme = "postgresql"
        if not separator or scheme not in ("memory", *_BACKENDS):
            is_path = isinstance(url, str) and url and not separator and "@" not in url  # a password is not to be shown
            hint = f" (for a SQLite file: sqlite:///{url[:60]})" if is_path else ""
            raise ConfigurationError(
                f"unknown store URL {drivername[:20]!r}: use memory://, sqlite:///path or postgresql://user@host/database"
                f"{hint}"
            )
        is_number = isinstance(busy_timeout, (int, float)) and not isinstance(busy_timeout, bool)
        if not is_number or not 0 <= busy_timeout <= 3600:
            raise ConfigurationError(f"busy_timeout must be 0 to 3600 seconds, not {shown(busy_timeout, 40)}")
        check_function("clock", clock)
        self._url = url
        self._scheme = scheme
        self.clock = clock or utc_now
        self._busy_timeout = busy_timeout
        self._prepared_statements = prepared_statements
        self._options = engine_options
        self._lock = threading.Lock()
        self._opened: Backend | None = None
        self._closed = False
        self._opener: ThreadPoolExecutor | None = None
        watch(self)

    def __repr__(self) -> str:
        return f"SQLMemoryStore({self.where!r})"

    @property
    def where(self) -> str:
        """The database, without its password."""
        if self._scheme == "memory":
            return "memory://"
        from langchain_mastra_memory.store.sql.urls import read_url, shown_url  # noqa: PLC0415 - heavy

        try:
            return shown_url(read_url(self._url))
        except ConfigurationError:
            return f"{self._scheme}://..."

    @property
    def capabilities(self) -> frozenset[Group]:
        """Every group: the conformance suite runs all of them."""
        return frozenset(get_args(Group))

    def _micros(self) -> int:
        if self.clock is utc_now:
            return time.time_ns() // 1000
        from langchain_mastra_memory.store.sql.values import to_micros  # noqa: PLC0415 - heavy neighbours

        return to_micros(self.clock())

    def _backend(self) -> Backend:
        """Return the open database, opening it at first use."""
        backend = self._opened
        if backend is not None:
            return backend
        with self._lock:
            if self._closed:
                raise StoreClosedError
            if self._opened is None:
                self._opened = self._open()
            return self._opened

    def _open(self) -> Backend:
        from langchain_mastra_memory.store.sql.urls import read_url  # noqa: PLC0415 - heavy

        _load_handlers()
        url = read_url("sqlite://" if self._scheme == "memory" else self._url)
        options = dict(self._options)
        if self._scheme != "postgresql":
            from langchain_mastra_memory.store.sql.sqlite import SQLiteBackend  # noqa: PLC0415

            url = url.set(drivername="sqlite")
            return SQLiteBackend(url, clock=self._micros, busy_timeout=self._busy_timeout, options=options)
        try:
            from langchain_mastra_memory.store.sql.postgresql import PostgreSQLBackend  # noqa: PLC0415
        except ImportError as error:
            raise ConfigurationError(
                f"PostgreSQL needs an extra: pip install 'langchain-mastra-memory[postgres]' ({error})"
            ) from error
        return PostgreSQLBackend(
            url.set(drivername="postgresql+psycopg"),
            clock=self._micros,
            busy_timeout=self._busy_timeout,
            prepared_statements=self._prepared_statements,
            options=options,
        )

    def run(self, operation: Operation[T]) -> T:
        """Run one unit of work in this thread; see `MemoryStore.run`."""
        return self._backend().run(operation)

    async def arun(self, operation: Operation[T]) -> T:
        """Run one unit of work on the store's threads; see `MemoryStore.arun`."""
        loop = asyncio.get_running_loop()
        backend = self._opened
        if backend is None:
            if self._closed:
                raise StoreClosedError
            backend = await loop.run_in_executor(self._open_executor(), self._backend)
        try:
            return await asyncio.wrap_future(backend.submit(operation), loop=loop)
        except Exception as error:
            mapped = backend.map_error(error)
            if mapped is error:
                raise
            raise mapped from error

    def _open_executor(self) -> ThreadPoolExecutor:
        if self._opener is None:
            self._opener = ThreadPoolExecutor(1, thread_name_prefix="mastra-open")
        return self._opener

    def close(self) -> None:
        """Wait for the units under way and close the database; closing twice is safe."""
        with self._lock:
            self._closed = True
            backend, self._opened = self._opened, None
            opener, self._opener = self._opener, None
        if backend is not None:
            backend.close()
        if opener is not None:
            opener.shutdown(wait=False)

    async def aclose(self) -> None:
        """Close without blocking the event loop."""
        await asyncio.get_running_loop().run_in_executor(None, self.close)

    def forget_parent(self) -> None:
        """Forget the parent's threads and connections: neither are for two processes to use."""
        if self._opened is not None:
            _INHERITED.append(self._opened)
        self._lock, self._opened, self._opener = threading.Lock(), None, None


@cache
def _load_handlers() -> tuple[type[Operation[Any]], ...]:
    """Import every module that registers handlers, and return the operations that have one."""
    package = import_module("langchain_mastra_memory.store.sql")
    for module in iter_modules(package.__path__):
        if module.name not in ("engine", *_BACKENDS):
            import_module(f"{package.__name__}.{module.name}")
    registry = import_module(f"{package.__name__}.registry")
    return tuple(registry.HANDLERS)
