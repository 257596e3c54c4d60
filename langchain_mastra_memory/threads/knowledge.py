"""What a saver remembers of the threads that it works with, so that a turn costs what is new.

Everything here may be lost at any time. It holds for one serializer and one state of the thread row, and a write that
counts on it says so: the store refuses it when the thread has moved on otherwise.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from operator import is_
from typing import Any, Final, NamedTuple, TypeAlias

from langchain_core.messages import BaseMessage

from langchain_mastra_memory.forking import new_lock, watch
from langchain_mastra_memory.store.operations.checkpoints import Place, State
from langchain_mastra_memory.threads.entries import Entry, Parts, Range
from langchain_mastra_memory.threads.snapshots import Mold, Snapshot, all_hold, holds, snapshot

THREADS: Final = 64
"""Threads remembered at once."""
BYTES: Final = 64 * 2**20
"""Bytes of messages remembered at once, over all threads."""
MESSAGE: Final = 1_200
"""Bytes that a decoded message takes besides its text."""
CHECKPOINTS: Final = 16
"""Checkpoints remembered of a thread."""
ITEMS: Final = 256
"""Messages remembered of a thread that are in no list, such as those of writes."""
SERIALIZERS: Final = 8
"""Serializers that something is remembered for: `with_allowlist` makes a new one for each graph."""
Stored: TypeAlias = tuple[str, bytes] | Mold
"""A body: its form and bytes, or decoded."""


@dataclass(slots=True)
class Item:
    """A message object and where its body is.

    Attributes:
        message: The object itself; holding it keeps its `id()` from being used again.
        taken: A snapshot of it.
        places: The number of its body by space.
    """

    message: BaseMessage
    taken: Snapshot
    places: dict[str, int]


def item_of(message: BaseMessage) -> Item:
    """Remember a message as it is now, without a place yet."""
    return Item(message, snapshot(message), {})


class KnownCheckpoint(NamedTuple):
    """What the next put needs to know of its parent.

    Attributes:
        versions: The version of each channel.
        entries: Where the value of each channel is.
        place: Where it stands in the archive; None outside the root namespace.
        step: The step in its metadata.
        source: The source in its metadata.
        ids: The ids of the messages in its list, in order; None if it has no list.
        systems: Those of them that are system messages.
        is_delta: Whether the channel `messages` has a version and no value: it is rebuilt from writes.
    """

    versions: Mapping[str, Any]
    entries: Mapping[str, Entry]
    place: Place | None
    step: int | None
    source: str | None
    ids: tuple[str | None, ...] | None
    systems: frozenset[str | None]
    is_delta: bool


@dataclass(slots=True)
class KnownList:
    """The list of a channel as it was last read or written.

    Attributes:
        messages: Its messages: the objects that the graph has.
        taken: A snapshot of each.
        parts: Where their bodies are: ranges only.
    """

    messages: list[BaseMessage]
    taken: list[Snapshot]
    parts: Parts
    _index: dict[int, int] | None = None

    def begins(self, messages: Sequence[BaseMessage]) -> bool:
        """Tell whether other messages begin with these objects, all as they were."""
        if len(messages) < len(self.messages) or not all(map(is_, self.messages, messages)):
            return False
        return all_hold(self.taken, self.messages)

    def place(self, message: BaseMessage) -> tuple[str, int] | None:
        """Return where the body of a message is, if it is one of these and as it was."""
        if self._index is None:
            self._index = dict(zip(map(id, self.messages), count(), strict=False))
        index = self._index.get(id(message))
        if index is None or not holds(self.taken[index], message):
            return None
        for part in self.parts:
            if type(part) is Range:
                length = part.last - part.first + 1
                if index < length:
                    return part.space, part.first + index
                index -= length
        return None


@dataclass(slots=True)
class Knowledge:
    """What is remembered of one thread.

    Attributes:
        state: What it holds for; None before the first operation.
        items: Messages that are in no list yet, by the `id()` of the object.
        lists: Lists by namespace and channel.
        before: The lists of the root namespace as they were before they were forgotten.
        checkpoints: The last checkpoints by namespace and id; the bodies that their values point to are known.
        lost: The last checkpoints before the thread was deleted: a run that is under way goes on from one of them.
        bodies: Bodies by space and number.
        spans: The lowest and the highest number known in each space.
        size: About the bytes in `bodies`.
        age: How often it was forgotten: what was taken out before must not be put together with what is there now.
        lock: Held while several of these change together.
    """

    state: State | None = None
    items: dict[int, Item] = field(default_factory=dict)
    lists: dict[tuple[str, str], KnownList] = field(default_factory=dict)
    before: dict[str, KnownList] = field(default_factory=dict)
    checkpoints: OrderedDict[tuple[str, str], KnownCheckpoint] = field(default_factory=OrderedDict)
    lost: OrderedDict[tuple[str, str], KnownCheckpoint] = field(default_factory=OrderedDict)
    bodies: dict[str, dict[int, Stored]] = field(default_factory=dict)
    spans: dict[str, tuple[int, int]] = field(default_factory=dict)
    size: int = 0
    age: int = 0
    lock: threading.Lock = field(default_factory=new_lock)

    def forget(self) -> None:
        """Forget everything but the bytes' budget."""
        self.age += 1
        self.state, self.size = None, 0
        self.before |= {channel: known for (ns, channel), known in self.lists.items() if not ns}
        self.items, self.lists, self.bodies, self.spans = {}, {}, {}, {}
        self.checkpoints = OrderedDict()

    def is_at(self, state: State | None) -> bool:
        """Tell whether it holds for this state; if not, it is forgotten and begins anew for it."""
        if self.state == state:
            return True
        if self.state is not None and (state is None or state[0] != self.state[0]):
            for (ns, checkpoint_id), known in self.checkpoints.items():
                self.add_lost(ns, checkpoint_id, known)
        self.forget()
        self.state = state
        return False

    def add_lost(self, ns: str, checkpoint_id: str, known: KnownCheckpoint) -> None:
        """Remember a checkpoint of a thread that was deleted; the oldest go."""
        self.lost[ns, checkpoint_id] = known
        while len(self.lost) > CHECKPOINTS:
            self.lost.popitem(last=False)

    def deleted_before(self, checkpoint_id: str, metadata: Mapping[str, Any]) -> frozenset[str | None]:
        """Return the ids of messages that were deleted with the thread while a run went on, but for the run's own.

        Args:
            checkpoint_id: Where the next checkpoint of the run goes on from; it is stored no more.
            metadata: The metadata of that next checkpoint: its parent is of an earlier run if it begins one, and with
                `durability="exit"`.
        """
        lost = [(key[1], known) for key, known in self.lost.items() if not key[0]]
        at = next((index for index, (found, _) in enumerate(lost) if found == checkpoint_id), None)
        if at is None:
            return frozenset()
        if metadata.get("source") != "loop":
            return frozenset(lost[at][1].ids or ())
        step = metadata.get("step")
        while at and lost[at][1].source != "input" and lost[at][1].step == (step or 0) - 1:
            step, at = lost[at][1].step, at - 1
        return frozenset(lost[at][1].ids or ())

    def held_before(self, channel: str) -> dict[str | None, Snapshot]:
        """Return the messages that a list of the root namespace had before it was forgotten, by id, as they were."""
        known = self.before.get(channel)
        return {} if known is None else {m.id: taken for m, taken in zip(known.messages, known.taken, strict=True)}

    def have(self) -> dict[str, tuple[int, int]]:
        """Return the first and last number of the bodies in each space that has all in between."""
        return {
            space: (low, high) for space, (low, high) in self.spans.items() if high - low + 1 == len(self.bodies[space])
        }

    def last(self, space: str) -> int:
        """Return the highest number known in a space; 0 if none is."""
        return self.spans[space][1] if space in self.spans else 0

    def add_bodies(self, bodies: Mapping[str, Mapping[int, Stored]]) -> None:
        """Remember bodies; a decoded one takes the place of its bytes."""
        for space, found in bodies.items():
            if not found:
                continue
            known = self.bodies.setdefault(space, {})
            low, high = min(found), max(found)
            if space in self.spans:
                low, high = min(low, self.spans[space][0]), max(high, self.spans[space][1])
            self.spans[space] = (low, high)
            for n, body in found.items():
                if n not in known:
                    known[n] = body
                    self.size += MESSAGE + (0 if isinstance(body, Mold) else 2 * len(body[1]))
                elif isinstance(body, Mold):
                    known[n] = body

    def add_checkpoint(self, ns: str, checkpoint_id: str, known: KnownCheckpoint) -> None:
        """Remember a checkpoint, and let the oldest go."""
        self.checkpoints[ns, checkpoint_id] = known
        self.checkpoints.move_to_end((ns, checkpoint_id))
        while len(self.checkpoints) > CHECKPOINTS:
            self.checkpoints.popitem(last=False)

    def add_list(self, ns: str, channel: str, known: KnownList) -> None:
        """Remember a list; the list of the same channel before it goes."""
        self.lists.pop((ns, channel), None)
        self.lists[ns, channel] = known
        while len(self.lists) > CHECKPOINTS:
            self.lists.pop(next(iter(self.lists)))

    def add_items(self, items: Iterable[Item]) -> None:
        """Remember messages that were written; the oldest go."""
        for item in items:
            self.items[id(item.message)] = item
        while len(self.items) > ITEMS:
            self.items.pop(next(iter(self.items)), None)

    def find(self, message: BaseMessage) -> dict[str, int] | None:
        """Return the number of a message's body by space, if the object is known and as it was."""
        item = self.items.get(id(message))
        places = item.places if item is not None and item.message is message and holds(item.taken, message) else {}
        for known in tuple(self.lists.values()):
            place = known.place(message)
            if place is not None:
                places = {**places, place[0]: place[1]}
        return places or None


class Threads:
    """What is remembered of all threads under one serializer; the least used goes first."""

    def __init__(self) -> None:
        self._lock = new_lock()
        self._threads: OrderedDict[str, Knowledge] = OrderedDict()
        self._looks = 0

    def __getitem__(self, thread_id: str) -> Knowledge:
        with self._lock:
            known = self._threads.get(thread_id)
            if known is None:
                known = self._threads[thread_id] = Knowledge()
                if len(self._threads) > THREADS:
                    self._threads.popitem(last=False)
            else:
                self._threads.move_to_end(thread_id)
            self._looks += 1
            if self._looks % THREADS == 0:
                self._shed()
            return known

    def _shed(self) -> None:
        """Let the least used go until the rest is small enough."""
        size = sum(known.size for known in self._threads.values())
        while size > BYTES and len(self._threads) > 1:
            size -= self._threads.popitem(last=False)[1].size

    def clear(self) -> None:
        """Forget every thread."""
        with self._lock:
            self._threads.clear()

    def deleted(self, thread_id: str) -> None:
        """Forget a thread that is no more, but for what a run that is under way must know."""
        with self._lock:
            known = self._threads.get(thread_id)
        if known is not None:
            with known.lock:
                known.is_at(None)

    def __len__(self) -> int:
        return len(self._threads)


class Memories:
    """What a saver and its copies remember: by serializer, since what is remembered is decoded."""

    def __init__(self) -> None:
        self._lock = new_lock()
        self._by_serializer: OrderedDict[int, tuple[object, Threads]] = OrderedDict()
        watch(self)

    def forget_parent(self) -> None:
        """Begin anew in a forked process: what is remembered of a thread may have been changing at that moment."""
        for _, threads in self._by_serializer.values():
            threads.clear()

    def of(self, serde: object) -> Threads:
        """Return what is remembered for a serializer."""
        with self._lock:
            found = self._by_serializer.get(id(serde))
            if found is None:
                found = self._by_serializer[id(serde)] = (serde, Threads())
                while len(self._by_serializer) > SERIALIZERS:
                    self._by_serializer.popitem(last=False)
            else:
                self._by_serializer.move_to_end(id(serde))
            return found[1]

    def deleted(self, thread_id: str) -> None:
        """Forget a thread that is no more under every serializer."""
        with self._lock:
            every = [threads for _, threads in self._by_serializer.values()]
        for threads in every:
            threads.deleted(thread_id)
