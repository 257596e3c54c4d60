"""Temporal gap markers: a line before a message that comes some time after the last one."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import datetime
from typing import Final

from langchain_core.messages import BaseMessage, HumanMessage

GAP_SECONDS: Final = 600
"""The pause from which on a marker is made: 10 minutes."""
KIND: Final = "system-reminder"
BEFORE: Final = "mastra_before"
"""Key of a marker's `additional_kwargs`: the id of the message that it announces."""

_NAMESPACE: Final = uuid.UUID("2f0b1a52-7c37-5b0a-9a52-0f6f6d3f8a41")
_UNITS: Final = (("week", 604_800), ("day", 86_400), ("hour", 3_600), ("minute", 60))


def gap_text(seconds: float) -> str:
    """Return a pause in words: its largest unit and the next smaller one.

    Example:
        >>> gap_text(5400), gap_text(88_200), gap_text(691_200)
        ('1 hour 30 minutes later', '1 day later', '1 week 1 day later')
    """
    whole = int(seconds)
    for place, (unit, size) in enumerate(_UNITS):
        count, rest = divmod(whole, size)
        if not count:
            continue
        words = [_counted(count, unit)]
        if place + 1 < len(_UNITS):
            smaller, smaller_size = _UNITS[place + 1]
            if more := rest // smaller_size:
                words.append(_counted(more, smaller))
        return " ".join(words) + " later"
    return "less than a minute later"


def _counted(count: int, unit: str) -> str:
    return f"{count} {unit}" + ("s" if count != 1 else "")


def marker(last: datetime, now: datetime, before: str) -> HumanMessage | None:
    """Return the marker for a message, or None if it comes soon enough.

    Args:
        last: When the message before it was said, aware.
        now: When it is said, aware.
        before: Its id.
    """
    gap = (now - last).total_seconds()
    if gap < GAP_SECONDS:
        return None
    words = gap_text(gap)
    at = f"{now.month}/{now.day}/{now.year}, {now.strftime('%-I:%M %p')} {now.tzname() or 'UTC'}"
    text = (
        f'<system-reminder type="temporal-gap" gap_text="{words}" gap_ms="{round(gap * 1000)}" '
        f'timestamp="{at}" precedes_message_id="{_attribute(before)}">{words} — {at}</system-reminder>'
    )
    return HumanMessage(
        text, id=str(uuid.uuid5(_NAMESPACE, before)), additional_kwargs={BEFORE: before, "gap": f"{words} — {at}"}
    )


def _attribute(value: str) -> str:
    return "".join(c for c in value if c.isalnum() or c in "-_.:")[:120]


def announced(message: BaseMessage) -> str | None:
    """Return the id of the message that a marker announces, or None for another message."""
    before = message.additional_kwargs.get(BEFORE)
    return before if isinstance(before, str) else None


def in_place(markers: Iterable[BaseMessage], ids: Iterable[str]) -> dict[str, BaseMessage]:
    """Return the markers by the ids that they announce, of those that are there."""
    known = set(ids)
    return {before: m for m in markers if (before := announced(m)) is not None and before in known}
