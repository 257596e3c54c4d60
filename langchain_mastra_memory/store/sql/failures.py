"""The one place where drivers' errors become errors of the package; the driver's error stays the cause."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Final

from langchain_mastra_memory.errors import (
    StoreCorruptError,
    StoreError,
    StoreFullError,
    StoreLockedError,
    StoreReadOnlyError,
    StoreUnavailableError,
)

if TYPE_CHECKING:
    import psycopg

# https://www.sqlite.org/rescode.html, by the name of the primary result code
_SQLITE: Final[dict[str, type[StoreError]]] = {
    "SQLITE_BUSY": StoreLockedError,
    "SQLITE_LOCKED": StoreLockedError,
    "SQLITE_FULL": StoreFullError,
    # Before the general SQLITE_IOERR: a quota or a limit of file sizes, and no room for the -shm file.
    "SQLITE_IOERR_WRITE": StoreFullError,
    "SQLITE_IOERR_SHMSIZE": StoreFullError,
    "SQLITE_READONLY": StoreReadOnlyError,
    "SQLITE_PERM": StoreReadOnlyError,
    "SQLITE_CORRUPT": StoreCorruptError,
    "SQLITE_NOTADB": StoreCorruptError,
    "SQLITE_FORMAT": StoreCorruptError,
    "SQLITE_CANTOPEN": StoreUnavailableError,
    "SQLITE_IOERR": StoreUnavailableError,
    "SQLITE_NOMEM": StoreUnavailableError,
}
# https://www.postgresql.org/docs/current/errcodes-appendix.html, by code, then by class
_POSTGRESQL: Final[dict[str, type[StoreError]]] = {
    "53100": StoreFullError,
    "25006": StoreReadOnlyError,
    "42501": StoreReadOnlyError,
    "55P03": StoreLockedError,
    "57014": StoreLockedError,
    "40001": StoreLockedError,
    "40P01": StoreLockedError,
    "08": StoreUnavailableError,
    "28": StoreUnavailableError,
    "3D": StoreUnavailableError,
    "53": StoreUnavailableError,
    "57": StoreUnavailableError,
    "XX001": StoreCorruptError,
    "XX002": StoreCorruptError,
}
RETRIED: Final = frozenset({"40001", "40P01"})
"""PostgreSQL's serialization failure and deadlock: the transaction was undone and may be run again."""


def map_sqlite(error: sqlite3.Error, where: str) -> StoreError:
    """Return the package's error for one of SQLite's.

    Args:
        error: What the driver raised.
        where: The database, as shown to people.
    """
    name: str = getattr(error, "sqlite_errorname", "") or ""
    for code, kind in _SQLITE.items():
        if name == code or name.startswith(f"{code}_"):
            return kind(f"{kind.__doc__} [{where}: {error}]")
    return StoreError(f"{StoreError.__doc__} [{where}: {error}]")


def map_postgresql(error: psycopg.Error, where: str) -> StoreError:
    """Return the package's error for one of psycopg's."""
    import psycopg  # noqa: PLC0415 - an extra

    code = error.sqlstate or ""
    kind = _POSTGRESQL.get(code) or _POSTGRESQL.get(code[:2])
    if kind is None:
        connection_lost = not code and isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
        kind = StoreUnavailableError if connection_lost else StoreError
    return kind(f"{kind.__doc__} [{where}: {str(error).strip()}]")
