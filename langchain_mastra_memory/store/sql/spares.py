"""Connections at hand: checking one out of SQLAlchemy's pool, and in again, costs as much as a small statement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from sqlalchemy.pool import PoolProxiedConnection

MOST: Final = 4
"""Connections kept at hand."""
_CHECKED: Final = frozenset({"poolclass", "pool", "pool_pre_ping", "pool_recycle", "pool_reset_on_return"})
"""Options that ask the pool to do something each time: then it gets each connection back."""


class Spares:
    """Connections that were just used, newest last; they stay checked out of the pool.

    Args:
        options: The options of the engine. Never so many are kept that somebody waits at the pool for one that nobody
            uses and nobody brings back.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        size = int(options.get("pool_size", 5)) + max(0, int(options.get("max_overflow", 10)))
        self._most = 0 if _CHECKED & options.keys() else min(MOST, size // 2)
        self._kept: list[PoolProxiedConnection] = []

    def take(self) -> PoolProxiedConnection | None:
        """Return the one that was used last, or None."""
        try:
            return self._kept.pop()
        except IndexError:
            return None

    def give(self, connection: PoolProxiedConnection) -> None:
        """Keep a connection with nothing under way, or give it back to the pool."""
        if len(self._kept) < self._most:
            self._kept.append(connection)
        else:
            connection.close()

    def close(self) -> None:
        """Give all of them back."""
        while (connection := self.take()) is not None:
            connection.close()
