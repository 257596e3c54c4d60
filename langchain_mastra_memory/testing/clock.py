"""A clock that stands still until it is moved."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Final

from langchain_mastra_memory.errors import ConfigurationError

START: Final = datetime(2026, 1, 1, 12, tzinfo=UTC)
"""Where a clock starts when nothing is said: a Thursday at noon."""


class FrozenClock:
    """A clock for tests: called, it returns its time, which moves only when told. Safe to share between threads.

    Args:
        start: The first time, aware; kept in UTC.
        tick: How much the clock moves by itself after each reading; nothing by default.

    Raises:
        ConfigurationError: `start` has no time zone.

    Example:
        >>> clock = FrozenClock()
        >>> clock().isoformat()
        '2026-01-01T12:00:00+00:00'
        >>> clock.advance(hours=2).isoformat()
        '2026-01-01T14:00:00+00:00'
    """

    def __init__(self, start: datetime = START, *, tick: timedelta = timedelta()) -> None:
        self._now = _in_utc(start)
        self._tick = tick
        self._lock = threading.Lock()

    def __call__(self) -> datetime:
        """Return the time, aware UTC."""
        with self._lock:
            now = self._now
            self._now += self._tick
            return now

    def advance(
        self, by: timedelta | None = None, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0
    ) -> datetime:
        """Move the clock (backwards with a negative length, as real clocks do too) and return its new time."""
        step = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds) + (by or timedelta())
        with self._lock:
            self._now += step
            return self._now

    def set(self, at: datetime) -> None:
        """Put the clock to a time.

        Raises:
            ConfigurationError: `at` has no time zone.
        """
        with self._lock:
            self._now = _in_utc(at)


def _in_utc(at: datetime) -> datetime:
    if at.tzinfo is None:
        raise ConfigurationError(f"a clock needs an aware time, and {at!r} has no time zone")
    return at.astimezone(UTC)
