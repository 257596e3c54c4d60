"""How a checkpoint stands in the database, as plain data: no I/O, no serializer, no messages.

A value of a channel is an `Entry`: bytes of the serializer, with holes where messages were taken out. A hole says
where it is and which bodies fill it: ranges of numbers in a space (`1-400` of `messages`), so that a list that only
grows costs a few bytes per checkpoint, however long it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import ormsgpack

from langchain_mastra_memory.codec import dump_value, load_value

GONE: Final = "gone"
"""The form of a body or an entry whose content was deleted."""
LIST: Final = "list"
"""The form of an entry that is one list of messages and nothing else."""
SNAPSHOT: Final = "snapshot"
"""The form of an entry that is a DeltaChannel's snapshot of one list of messages."""
MESSAGE: Final = "message"
"""The form of an entry that is a single message."""


class Range(NamedTuple):
    """Bodies `first` to `last` of a space."""

    space: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Fresh:
    """A body that the plan brings: its place in the plan's bodies."""

    index: int


class Loose(NamedTuple):
    """A message that is kept in place: a small one of a write, one without an id, or an order to remove another.

    Attributes:
        form: How it is written.
        body: The bytes.
        id: Its id; None if it has none, or is an order.
    """

    form: str
    body: bytes
    id: str | None = None


Part: TypeAlias = Range | Fresh | Loose
Parts: TypeAlias = tuple[Part, ...]


class Hole(NamedTuple):
    """Where messages were taken out of a value.

    Attributes:
        path: Keys from the value down to the place; empty for the value itself.
        single: Whether it was one message and not a list.
        parts: What fills it.
    """

    path: tuple[str | int, ...]
    single: bool
    parts: Parts


class Entry(NamedTuple):
    """The value of a channel, or of a write.

    Attributes:
        form: The serializer's name for the bytes, or one of `LIST`, `SNAPSHOT`, `MESSAGE`, `GONE`.
        payload: The bytes, or the number of a row of `mastra_values`, or None where the hole is everything.
        holes: Where messages were taken out.
    """

    form: str
    payload: bytes | int | None = None
    holes: tuple[Hole, ...] = ()

    def ranges(self) -> Iterable[Range]:
        """Yield the ranges of every hole."""
        for hole in self.holes:
            for part in hole.parts:
                if type(part) is Range:
                    yield part

    def loose_ids(self) -> Iterable[str]:
        """Yield the ids of the messages that are kept in place."""
        for hole in self.holes:
            for part in hole.parts:
                if type(part) is Loose and part.id is not None:
                    yield part.id

    def has_ranges(self) -> bool:
        """Tell whether any hole points to bodies."""
        return bool(self.holes) and any(True for _ in self.ranges())


class Skeleton(NamedTuple):
    """A checkpoint without what has columns of its own.

    Attributes:
        v: The format that LangGraph wrote.
        ts: When, as LangGraph wrote it.
        versions: The version of each channel.
        seen: For each node, the versions that it has seen.
        updated: The channels that the step updated, if LangGraph said so.
        rest: Other keys of the checkpoint, as the serializer wrote them (form and bytes); None if there are none.
        entries: Where the value of each channel is; a channel without one is empty.
        metadata: The metadata as the serializer wrote it, where JSON would change it.
    """

    v: int
    ts: str
    versions: Mapping[str, Any]
    seen: Mapping[str, Mapping[str, Any]]
    updated: Sequence[str] | None
    rest: tuple[str, bytes] | None
    entries: Mapping[str, Entry]
    metadata: tuple[str, bytes] | None = None


def _write_part(part: Part) -> list[Any]:
    if type(part) is Range:
        return [part.first, part.last, part.space]
    if type(part) is Loose:
        return [part.form, part.body] if part.id is None else [part.form, part.body, part.id]
    raise TypeError("a plan must be settled before it is written")


def _read_part(data: list[Any]) -> Part:
    return Loose(*data) if type(data[0]) is str else Range(data[2], data[0], data[1])


def _write_entry(entry: Entry) -> list[Any]:
    data: list[Any] = [entry.form, entry.payload]
    if entry.holes:
        data.append([[list(h.path), h.single, [_write_part(p) for p in h.parts]] for h in entry.holes])
    return data


def _read_entry(data: list[Any]) -> Entry:
    if len(data) == 2:
        return Entry(data[0], data[1])
    holes = tuple(Hole(tuple(path), single, tuple(map(_read_part, parts))) for path, single, parts in data[2])
    return Entry(data[0], data[1], holes)


def _pack(data: list[Any]) -> bytes:
    try:
        return ormsgpack.packb(data)
    except ormsgpack.MsgpackEncodeError:  # an id with a lone surrogate
        return dump_value(data)


def dump_skeleton(skeleton: Skeleton) -> bytes:
    """Return the bytes of a checkpoint's row; versions that nodes have seen are references where they can be."""
    versions = list(skeleton.versions.values())
    places = {name: place for place, name in enumerate(skeleton.versions)}
    seen = {}
    for node, channels in skeleton.seen.items():
        flat: list[Any] = []
        for name, version in channels.items():
            place = places.get(name)
            current = place is not None and versions[place] == version and type(versions[place]) is type(version)
            flat += (name if place is None else place, True if current else version)
        seen[node] = flat
    data = [
        skeleton.v,
        skeleton.ts,
        list(skeleton.versions),
        versions,
        seen,
        skeleton.updated,
        {name: _write_entry(entry) for name, entry in skeleton.entries.items()},
    ]
    if skeleton.rest is not None or skeleton.metadata is not None:
        data += (skeleton.rest and list(skeleton.rest), skeleton.metadata and list(skeleton.metadata))
    return _pack(data)


def load_skeleton(body: bytes) -> Skeleton:
    """Return the checkpoint of `dump_skeleton`."""
    data = load_value(body)
    names, versions = data[2], data[3]
    seen = {}
    for node, flat in data[4].items():
        channels = {}
        parts = iter(flat)
        for key, version in zip(parts, parts, strict=True):
            name = names[key] if type(key) is int else key
            channels[name] = versions[key] if version is True else version
        seen[node] = channels
    return Skeleton(
        v=data[0],
        ts=data[1],
        versions=dict(zip(names, versions, strict=True)),
        seen=seen,
        updated=data[5],
        rest=tuple(data[7]) if len(data) > 7 and data[7] else None,
        entries={name: _read_entry(entry) for name, entry in data[6].items()},
        metadata=tuple(data[8]) if len(data) > 7 and data[8] else None,
    )


@dataclass(frozen=True, slots=True)
class Write:
    """One write of a task: its index among the task's writes (below 0 for LangGraph's special ones)."""

    index: int
    channel: str
    entry: Entry


def dump_writes(writes: Iterable[Write]) -> bytes:
    """Return the bytes of a task's writes."""
    return _pack([[w.index, w.channel, _write_entry(w.entry)] for w in writes])


def load_writes(body: bytes) -> list[Write]:
    """Return the writes of `dump_writes`."""
    return [Write(index, channel, _read_entry(entry)) for index, channel, entry in load_value(body)]


def merge_writes(stored: Iterable[Write], new: Iterable[Write]) -> list[Write]:
    """Return a task's writes after another call: of two with one index the first stays, of special ones the last."""
    merged = {write.index: write for write in stored}
    for write in new:
        if write.index < 0 or write.index not in merged:
            merged[write.index] = write
    return [merged[index] for index in sorted(merged)]


def join_ranges(parts: Iterable[Part]) -> Parts:
    """Return the same parts with neighbouring ranges made one."""
    joined: list[Part] = []
    for part in parts:
        last = joined[-1] if joined else None
        if type(part) is Range and type(last) is Range and last.space == part.space and last.last + 1 == part.first:
            joined[-1] = Range(part.space, last.first, part.last)
        else:
            joined.append(part)
    return tuple(joined)


def settle_entry(entry: Entry, numbers: Sequence[tuple[str, int]], stored: Sequence[int] = ()) -> Entry:
    """Return an entry with the numbers that the database gave.

    Args:
        entry: An entry of a plan; a negative payload is the place `-1 - payload` among the plan's values.
        numbers: The space and number of each body of the plan.
        stored: The number of each value of the plan.
    """
    payload = entry.payload
    if type(payload) is int and payload < 0:
        payload = stored[-1 - payload]
    if not entry.holes:
        return entry if payload is entry.payload else entry._replace(payload=payload)
    holes = []
    for hole in entry.holes:
        parts: list[Part] = []
        for part in hole.parts:
            if type(part) is Fresh:
                space, n = numbers[part.index]
                parts.append(Range(space, n, n))
            else:
                parts.append(part)
        holes.append(Hole(hole.path, hole.single, join_ranges(parts)))
    return Entry(entry.form, payload, tuple(holes))


def settle_skeleton(skeleton: Skeleton, numbers: Sequence[tuple[str, int]], stored: Sequence[int]) -> Skeleton:
    """Return a plan's checkpoint with the numbers that the database gave."""
    return skeleton._replace(
        entries={name: settle_entry(entry, numbers, stored) for name, entry in skeleton.entries.items()}
    )


def empty_entry(entry: Entry, is_gone: Callable[[Loose], bool]) -> Entry:
    """Return an entry without some of the messages that are kept in place; the places themselves stay."""
    holes = tuple(
        hole._replace(parts=tuple(_NOTHING if type(p) is Loose and is_gone(p) else p for p in hole.parts))
        for hole in entry.holes
    )
    return entry if holes == entry.holes else entry._replace(holes=holes)


_NOTHING: Final = Loose(GONE, b"")


def numbers_of(parts: Iterable[Part]) -> list[tuple[str, int]]:
    """Return every (space, number) of the ranges among some parts, in order."""
    return [(p.space, n) for p in parts if type(p) is Range for n in range(p.first, p.last + 1)]


def covering(ranges: Iterable[Range]) -> dict[str, list[tuple[int, int]]]:
    """Return the numbers of some ranges by space, as few sorted intervals as possible."""
    by_space: dict[str, list[tuple[int, int]]] = {}
    for part in ranges:
        by_space.setdefault(part.space, []).append((part.first, part.last))
    for space, intervals in by_space.items():
        if len(intervals) == 1:
            continue
        intervals.sort()
        merged = [intervals[0]]
        for first, last in intervals[1:]:
            if first <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
            else:
                merged.append((first, last))
        by_space[space] = merged
    return by_space


def without(intervals: Iterable[tuple[int, int]], have: tuple[int, int] | None) -> list[tuple[int, int]]:
    """Return intervals with what lies in `have` cut out."""
    if have is None:
        return list(intervals)
    low, high = have
    left = []
    for first, last in intervals:
        if first < low:
            left.append((first, min(last, low - 1)))
        if last > high:
            left.append((max(first, high + 1), last))
    return left
