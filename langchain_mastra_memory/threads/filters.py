"""What a listing may be asked for, as plain data: metadata filters, pages, orders, dates. Nothing here does I/O."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final, Literal, get_args

from langchain_mastra_memory.errors import InvalidFilterError, InvalidQueryError
from langchain_mastra_memory.shown import shown

MAX_KEY_LENGTH: Final = 128
MAX_COUNT: Final = 2**31 - 1
"""The largest page, page size and number of messages that can be asked for."""
_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Mastra refuses these for JavaScript's sake; a filter that works there works here and the other way round.
_RESERVED: Final = frozenset({"__proto__", "constructor", "prototype"})
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

Bounds = Literal["[]", "[)", "(]", "()"]
Moment = datetime | date | str
"""A time: a `datetime`, a `date` (its midnight), or an ISO 8601 string; UTC where it names no zone."""
Scalar = str | int | float | bool | None


def check_filter(metadata: Mapping[str, Any] | None) -> dict[str, Scalar] | None:
    """Return a metadata filter, checked: every key must have exactly this value.

    Types are strict: `True` is not `1`, `"1"` is not `1`, and `None` is an explicit null, not a missing key.

    Args:
        metadata: Keys of 1 to 128 ASCII letters, digits and underscores, not starting with a digit, with a string,
            a finite number, a boolean or None. Empty or None means no filter.

    Returns:
        A copy, or None if there is nothing to filter by.

    Raises:
        InvalidFilterError: A key or a value is not one of these.

    Example:
        >>> check_filter({"team": "x", "priority": 2})
        {'team': 'x', 'priority': 2}
    """
    if metadata is None:
        return None
    if not isinstance(metadata, Mapping):
        raise InvalidFilterError(f"a metadata filter is a mapping of keys to values, not {shown(metadata, 80)}")
    for key, value in metadata.items():
        if not isinstance(key, str) or not _KEY.fullmatch(key) or key in _RESERVED:
            raise InvalidFilterError(
                f"metadata key {shown(key, 80)} can't be filtered by: use letters, digits and underscores, "
                "not starting with a digit"
            )
        if len(key) > MAX_KEY_LENGTH:
            raise InvalidFilterError(
                f"metadata key {key[:40]!r}... has {len(key)} characters; at most {MAX_KEY_LENGTH} can be filtered by"
            )
        if not (value is None or isinstance(value, (str, bool, int, float))) or (
            isinstance(value, float) and not math.isfinite(value)
        ):
            raise InvalidFilterError(
                f"metadata filter {key!r} must be a string, a finite number, a boolean or None, not {shown(value, 80)}"
            )
    return dict(metadata) or None


def check_page(page: object) -> int:
    """Return a page number.

    Raises:
        InvalidQueryError: It is not an integer from 0 to `MAX_COUNT`.
    """
    return check_count(page, "page")


def check_per_page(per_page: object, page: int) -> int | Literal[False]:
    """Return a page size; False means everything.

    Raises:
        InvalidQueryError: It is neither an integer from 0 nor False, or a later page of everything is asked for.
    """
    if per_page is False:
        if page:
            raise InvalidQueryError(f"page must be 0 when per_page is False (everything), not {page}")
        return False
    return check_count(per_page, "per_page (False for everything)")


def check_count(value: object, what: str) -> int:
    """Return a number of messages.

    Raises:
        InvalidQueryError: It is not an integer from 0 to `MAX_COUNT`.
    """
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_COUNT:
        raise InvalidQueryError(f"{what} must be an integer from 0 to {MAX_COUNT}, not {shown(value, 40)}")
    return value


def check_word(value: object, words: object, what: str) -> Any:
    """Return one of the words of a `Literal`.

    Raises:
        InvalidQueryError: It is another.
    """
    allowed = get_args(words)
    if value not in allowed:
        raise InvalidQueryError(f"{what} must be one of {', '.join(map(repr, allowed))}, not {shown(value, 40)}")
    return value


def to_moment(value: object, what: str) -> datetime:
    """Return an aware UTC time.

    Args:
        value: A `datetime` (a naive one is taken as UTC), a `date` (its midnight, UTC), or an ISO 8601 string.
        what: The name of the argument, for the message.

    Raises:
        InvalidQueryError: It is none of these.
    """
    moment: datetime | None = None
    if isinstance(value, datetime):
        moment = value
    elif isinstance(value, date):
        moment = datetime(value.year, value.month, value.day, tzinfo=UTC)
    elif isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            moment = None
    if moment is None:
        raise InvalidQueryError(f"{what} must be a datetime, a date or an ISO 8601 string, not {shown(value, 40)}")
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def to_micros(moment: datetime) -> int:
    """Return microseconds since 1970 UTC."""
    return (moment - _EPOCH) // timedelta(microseconds=1)


def to_range(start: object, end: object, bounds: object) -> tuple[int | None, int | None]:
    """Return a range of times as inclusive microseconds.

    Args:
        start: When it begins; None means always.
        end: When it ends; None means never.
        bounds: A bracket for each end: `[` or `]` includes it, `(` or `)` leaves it out.

    Raises:
        InvalidQueryError: A time or the bounds can't be understood, or the range ends before it begins.
    """
    check_word(bounds, Bounds, "bounds")
    spelled = str(bounds)
    first = None if start is None else to_micros(to_moment(start, "start"))
    last = None if end is None else to_micros(to_moment(end, "end"))
    if first is not None and last is not None and first > last:
        raise InvalidQueryError(f"start {shown(start, 60)} is after end {shown(end, 60)}")
    if first is not None and spelled[0] == "(":
        first += 1
    if last is not None and spelled[1] == ")":
        last -= 1
    return first, last


def check_metadata(metadata: object, what: str = "metadata") -> dict[str, Any]:
    """Return metadata as JSON data of its own: a deep copy, checked.

    Args:
        metadata: A mapping with string keys, of None, booleans, numbers, strings, lists and mappings of these. Tuples
            are taken as lists. None means empty.
        what: The name of the argument, for the message.

    Raises:
        InvalidQueryError: It is not JSON data: JSON would lose or change it.

    Example:
        >>> check_metadata({"tags": ("a", "b")})
        {'tags': ['a', 'b']}
    """
    if metadata is None:
        return {}
    if not isinstance(metadata, Mapping):
        raise InvalidQueryError(f"{what} must be a mapping, not {shown(metadata, 80)}")
    return {_json_key(key, what): _json(value, f"{what}[{shown(key, 40)}]", 1) for key, value in metadata.items()}


def _json_key(key: object, where: str) -> str:
    if not isinstance(key, str):
        raise InvalidQueryError(f"{where} has the key {shown(key, 80)}; keys must be strings")
    return str.__str__(key)  # an enum's own text, not its name


def _json(value: object, where: str, depth: int) -> Any:
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidQueryError(f"{where} is {value!r}; JSON has only finite numbers")
        return float(value)
    if depth > 100:
        raise InvalidQueryError(f"{where[:80]}... is nested more than 100 deep")
    if isinstance(value, Mapping):
        return {_json_key(k, where): _json(v, f"{where}[{shown(k, 40)}]", depth + 1) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json(v, f"{where}[{i}]", depth + 1) for i, v in enumerate(value)]
    raise InvalidQueryError(f"{where} is a {type(value).__name__}, which is not JSON data: {shown(value, 60)}")


def check_title(title: object) -> str | None:
    """Return a title.

    Raises:
        InvalidQueryError: It is neither a string nor None.
    """
    if title is None or isinstance(title, str):
        return title
    raise InvalidQueryError(f"title must be a string or None, not {shown(title, 60)}")
