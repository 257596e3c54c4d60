"""Metadata filters: which threads and messages a search may return. Pure.

A filter is a mapping from keys to values or operators; `{}` allows everything. `thread.key` is the thread's metadata,
`message.key` the message's, a bare key the thread's; dots go into nested objects. Metadata is compared as it is now.

```python
{"project": "a", "message.lang": {"$in": ["en", "de"]}, "$or": [{"priority": {"$gte": 3}}, {"pinned": True}]}
```
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from langchain_mastra_memory.errors import InvalidFilterError
from langchain_mastra_memory.shown import shown

Metadata = Mapping[str, Any]
Test = Callable[[Metadata, Metadata], bool]

_MISSING: Final = object()
_NUMBERS: Final = (int, float)
_DEEPEST: Final = 32
OPERATORS: Final = ("$eq", "$ne", "$gt", "$gte", "$lt", "$lte", "$in", "$nin")


@dataclass(frozen=True, slots=True)
class Filter:
    """A checked filter.

    Attributes:
        test: Tells whether a thread's and a message's metadata match.
        needs_messages: Whether a key of the messages occurs in it.
    """

    test: Test
    needs_messages: bool

    def matches(self, thread: Metadata, message: Metadata) -> bool:
        """Tell whether a message with this metadata, in a thread with that, may be returned."""
        return self.test(thread, message)


def parse_filter(given: Mapping[str, Any] | None) -> Filter | None:
    """Check a filter and return what applies it; None for no filter.

    Args:
        given: Keys with values or operators (`$eq $ne $gt $gte $lt $lte $in $nin`), joined by `$and`, `$or`, `$not`.
            A missing key equals None and nothing else, and is neither unequal to, nor less or greater than, anything.
            Numbers, texts and booleans never equal each other.

    Raises:
        InvalidFilterError: An operator is unknown, an operand has the wrong type, a key is not a text.

    Example:
        >>> rule = parse_filter({"project": {"$in": ["a", "b"]}, "message.lang": "en"})
        >>> rule.matches({"project": "a"}, {"lang": "en"}), rule.matches({"project": "c"}, {"lang": "en"})
        (True, False)
    """
    if given is None or given == {}:
        return None
    needs: list[bool] = []
    return Filter(_all_of(given, needs, 0), any(needs))


def _all_of(given: Any, needs: list[bool], depth: int) -> Test:
    if not isinstance(given, Mapping):
        raise InvalidFilterError(f"a filter must be a mapping of keys to values or operators, not {shown(given, 80)}")
    if depth > _DEEPEST:
        raise InvalidFilterError(f"a filter may be nested {_DEEPEST} deep, this one is deeper")
    tests = [_entry(key, value, needs, depth) for key, value in given.items()]
    return lambda thread, message: all(test(thread, message) for test in tests)


def _entry(key: object, value: Any, needs: list[bool], depth: int) -> Test:
    if not isinstance(key, str) or not key:
        raise InvalidFilterError(f"a filter key must be a text, not {shown(key, 80)}")
    if key in ("$and", "$or"):
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise InvalidFilterError(f"{key} takes a list of filters, not {shown(value, 80)}")
        parts = [_all_of(part, needs, depth + 1) for part in value]
        if key == "$and":
            return lambda thread, message: all(part(thread, message) for part in parts)
        return lambda thread, message: any(part(thread, message) for part in parts)
    if key == "$not":
        inner = _all_of(value, needs, depth + 1)
        return lambda thread, message: not inner(thread, message)
    if key.startswith("$"):
        raise InvalidFilterError(f"unknown filter operator {shown(key, 40)}; known are $and, $or, $not on filters")
    of_message = key.startswith("message.")
    needs.append(of_message)
    path = key.split(".", 1)[1] if key.startswith(("message.", "thread.")) else key
    condition = _condition(key, value)

    def test(thread: Metadata, message: Metadata) -> bool:
        return condition(_look_up(message if of_message else thread, path))

    return test


def _look_up(metadata: Metadata, path: str) -> Any:
    """Return the value at a path; a key that has the dots in it comes first."""
    if path in metadata:
        return metadata[path]
    head, dot, rest = path.partition(".")
    inner = metadata.get(head, _MISSING) if dot else _MISSING
    return _look_up(inner, rest) if isinstance(inner, Mapping) else _MISSING


def _condition(key: str, value: Any) -> Callable[[Any], bool]:
    if not isinstance(value, Mapping):
        _check_operand(key, "$eq", value)
        return lambda found: _equal(found, value)
    unknown = [name for name in value if name not in OPERATORS]
    if unknown:
        raise InvalidFilterError(
            f"unknown filter operator {shown(unknown[0], 40)} for {shown(key, 40)}; known are {', '.join(OPERATORS)}"
        )
    tests = [_operator(key, name, operand) for name, operand in value.items()]
    return lambda found: all(test(found) for test in tests)


def _operator(key: str, name: str, operand: Any) -> Callable[[Any], bool]:
    _check_operand(key, name, operand)
    if name == "$eq":
        return lambda found: _equal(found, operand)
    if name == "$ne":
        return lambda found: found is not _MISSING and not _equal(found, operand)
    if name == "$in":
        return lambda found: any(_equal(found, one) for one in operand)
    if name == "$nin":
        return lambda found: not operand or (found is not _MISSING and not any(_equal(found, one) for one in operand))
    if isinstance(operand, bool) or not isinstance(operand, (*_NUMBERS, str)):
        raise InvalidFilterError(f"{name} of {shown(key, 40)} compares numbers or texts, not {shown(operand, 40)}")
    return lambda found: _ordered(name, found, operand)


def _check_operand(key: str, name: str, operand: Any) -> None:
    if name in ("$in", "$nin"):
        if isinstance(operand, str) or not isinstance(operand, (list, tuple, set, frozenset)):
            raise InvalidFilterError(f"{name} of {shown(key, 40)} takes a list, not {shown(operand, 40)}")
        for one in operand:
            _check_operand(key, "$eq", one)
        return
    if isinstance(operand, float) and not math.isfinite(operand):
        raise InvalidFilterError(f"{name} of {shown(key, 40)} has {operand!r}, which JSON can't hold")
    if operand is not None and not isinstance(operand, (bool, *_NUMBERS, str, list, tuple, dict)):
        raise InvalidFilterError(
            f"{name} of {shown(key, 40)} has {shown(operand, 40)}; metadata is JSON: text, number, bool, null"
        )


def _equal(found: Any, wanted: Any) -> bool:
    if found is _MISSING or found is None:
        return wanted is None
    if isinstance(found, bool) or isinstance(wanted, bool):
        return found is wanted
    if isinstance(found, _NUMBERS) and isinstance(wanted, _NUMBERS):
        return found == wanted
    if isinstance(wanted, tuple):
        wanted = list(wanted)
    return type(found) is type(wanted) and bool(found == wanted)


def _ordered(name: str, found: Any, operand: Any) -> bool:
    if (
        isinstance(found, bool)
        or not isinstance(found, (*_NUMBERS, str))
        or isinstance(found, str) != isinstance(operand, str)
    ):
        return False
    if name == "$gt":
        return bool(found > operand)
    if name == "$gte":
        return bool(found >= operand)
    if name == "$lt":
        return bool(found < operand)
    return bool(found <= operand)
