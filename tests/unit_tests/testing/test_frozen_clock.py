from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from langchain_mastra_memory.errors import ConfigurationError
from langchain_mastra_memory.testing import FrozenClock


def test_it_stands_still():
    clock = FrozenClock()
    assert clock() == clock() == datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_it_moves_when_told_also_backwards():
    clock = FrozenClock()
    assert (
        clock.advance(timedelta(days=1), hours=1, minutes=2, seconds=3)
        == clock()
        == datetime(2026, 1, 2, 13, 2, 3, tzinfo=UTC)
    )
    assert clock.advance(days=-2) == datetime(2025, 12, 31, 13, 2, 3, tzinfo=UTC)


def test_it_ticks_after_each_reading_when_asked_to():
    clock = FrozenClock(tick=timedelta(seconds=1))
    assert (clock(), clock()) == (datetime(2026, 1, 1, 12, tzinfo=UTC), datetime(2026, 1, 1, 12, 0, 1, tzinfo=UTC))


def test_times_are_kept_in_utc():
    clock = FrozenClock(datetime(2026, 5, 1, 2, tzinfo=timezone(timedelta(hours=2))))
    assert clock().tzinfo is UTC
    assert clock() == datetime(2026, 5, 1, tzinfo=UTC)
    clock.set(datetime(2027, 5, 1, 2, tzinfo=timezone(timedelta(hours=2))))
    assert (clock(), clock().tzinfo) == (datetime(2027, 5, 1, tzinfo=UTC), UTC)


@pytest.mark.parametrize("use", [FrozenClock, lambda at: FrozenClock().set(at)])
def test_a_time_without_a_zone_is_refused(use):
    with pytest.raises(ConfigurationError, match="no time zone"):
        use(datetime(2026, 1, 1))  # noqa: DTZ001
