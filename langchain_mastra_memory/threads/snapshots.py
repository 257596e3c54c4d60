"""What a message held at one moment: to tell whether it still does, and to make equal messages again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from operator import attrgetter, eq
from typing import Any, Final, TypeAlias

from langchain_core.messages import BaseMessage

from langchain_mastra_memory.io import let_others_run

Snapshot: TypeAlias = Mapping[str, Any]
"""The fields of a message, and what it holds besides them, by name."""

_ATOMS: Final = frozenset({str, int, float, bool, type(None), bytes})
_EMPTY: Final[dict[type, Any]] = {dict: {}, list: []}
"""Stand for every empty dict and list in snapshots, so that a snapshot is one object: the collector looks at each."""
_SLICE: Final = 500
"""Messages compared at once, before other threads get their turn: the next node of the run is in one of them."""
_BESIDES: Final = "__pydantic_extra__"
_FIELDS: Final = attrgetter("__dict__")
_EXTRA: Final = attrgetter("__pydantic_extra__")
_set_slot: Final = object.__setattr__


def copy_plain(value: Any) -> Any:
    """Return a deep copy; of dicts, lists and what can't change several times faster than `copy.deepcopy`."""
    kind = type(value)
    if kind in _ATOMS:
        return value
    if kind is dict:
        return {key: copy_plain(item) for key, item in value.items()}
    if kind is list:
        return [copy_plain(item) for item in value]
    return deepcopy(value)


def snapshot(message: BaseMessage) -> Snapshot:
    """Return what a message holds, sharing nothing that can change; `holds` compares it."""
    values: dict[str, Any] = message.__dict__.copy()
    for name, value in values.items():
        kind = type(value)
        if kind not in _ATOMS:
            values[name] = _EMPTY[kind] if kind in _EMPTY and not value else copy_plain(value)
    extra = message.__pydantic_extra__
    if extra:
        values[_BESIDES] = deepcopy(extra)
    return values


def holds(taken: Snapshot, message: BaseMessage) -> bool:
    """Tell whether a message still is as it was when the snapshot was taken: nodes do change messages in place."""
    extra = message.__pydantic_extra__
    if extra:
        return {**message.__dict__, _BESIDES: extra} == taken
    return message.__dict__ == taken


def all_hold(taken: Sequence[Snapshot], messages: Sequence[BaseMessage]) -> bool:
    """Tell whether every message is as it was; of a long list, without a call for each."""
    for first in range(0, len(messages), _SLICE):
        if first:
            let_others_run()
        some, before = messages[first : first + _SLICE], taken[first : first + _SLICE]
        if any(map(_EXTRA, some)):
            if not all(map(holds, before, some)):
                return False
        elif not all(map(eq, before, map(_FIELDS, some))):
            return False
    return True


class Mold:
    """A stored message, decoded once: it makes any number of equal messages that share nothing.

    Attributes:
        taken: The snapshot of each message that it makes.
    """

    __slots__ = ("_class", "_empty", "_given", "_nested", "_values", "taken")

    def __init__(self, message: BaseMessage) -> None:
        self._class = type(message)
        self._values = message.__dict__.copy()
        self._given = message.__pydantic_fields_set__.copy()
        self._empty: list[tuple[str, type]] = []
        self._nested: list[tuple[str, Any]] = []
        for name, value in self._values.items():
            kind = type(value)
            if kind not in _ATOMS:
                if kind in _EMPTY and not value:
                    self._values[name] = _EMPTY[kind]
                    self._empty.append((name, kind))
                else:
                    self._values[name] = copy = copy_plain(value)
                    self._nested.append((name, copy))
        self.taken: Snapshot = self._values

    @classmethod
    def of(cls, message: BaseMessage) -> Mold | None:
        """Return the mold of a message that was just read; None if it holds more than its fields."""
        if message.__pydantic_extra__ or message.__pydantic_private__ is not None:
            return None
        return cls(message)

    def make(self) -> BaseMessage:
        """Return a new message."""
        values = self._values.copy()
        for name, kind in self._empty:
            values[name] = kind()
        for name, value in self._nested:
            values[name] = copy_plain(value)
        message = self._class.__new__(self._class)
        _set_slot(message, "__dict__", values)
        _set_slot(message, "__pydantic_fields_set__", self._given.copy())
        _set_slot(message, "__pydantic_extra__", {})
        _set_slot(message, "__pydantic_private__", None)
        return message
