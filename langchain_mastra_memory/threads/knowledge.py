"""What a saver remembers of the threads that it works with, so that a turn costs what is new.

Everything here may be lost at any time. It holds for one serializer and one state of the thread row, and a write that
counts on it says so: the store refuses it when the thread has moved on otherwise.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Final

from langchain_core.messages import BaseMessage

from langchain_mastra_memory.store.operations.checkpoints import Place, State
from langchain_mastra_memory.threads.entries import Entry, Parts

THREADS: Final = 64
"""Threads remembered at once."""
BYTES: Final = 64 * 2**20
"""Bytes of message bodies remembered at once, over all threads."""
CHECKPOINTS: Final = 16
"""Checkpoints remembered of a thread."""
SERIALIZERS: Final = 8
"""Serializers that something is remembered for: `with_allowlist` makes a new one for each graph."""
_ATOMS: Final = frozenset({str, int, float, bool, type(None), bytes})


def snapshot(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy that shares nothing which can change."""
    copied = dict(values)
    for name, value in values.items():
        kind = type(value)
        if kind not in _ATOMS:
            copied[name] = kind() if not value and kind in (dict, list) else deepcopy(value)
    return copied


@dataclass(slots=True)
class Item:
    """A message object and where its body is.

    Attributes:
        message: The object itself; holding it keeps its `id()` from being used again.
        values: A snapshot of its fields: nodes do change messages in place.
        extra: A snapshot of its extra fields.
        places: The number of its body by space.
    """

    message: BaseMessage
    values: dict[str, Any]
    extra: dict[str, Any] | None
    places: dict[str, int]

    def holds(self, message: BaseMessage) -> bool:
        """Tell whether this is that object, and it is as it was."""
        return (
            self.message is message
            and message.__dict__ == self.values
            and (message.__pydantic_extra__ or None) == self.extra
        )


def item_of(message: BaseMessage, places: dict[str, int]) -> Item:
    """Remember a message as it is now."""
    extra = message.__pydantic_extra__
    return Item(message, snapshot(message.__dict__), deepcopy(extra) if extra else None, places)


@dataclass(frozen=True, slots=True)
class KnownCheckpoint:
    """What the next put needs to know of its parent.

    Attributes:
        versions: The version of each channel.
        entries: Where the value of each channel is.
        place: Where it stands in the archive; None outside the root namespace.
        step: The step in its metadata.
        ids: For each message of its list the id and whether it is a system message, in order; None without a list.
        is_delta: Whether the channel `messages` has a version and no value: it is rebuilt from writes.
    """

    versions: Mapping[str, Any]
    entries: Mapping[str, Entry]
    place: Place | None
    step: int | None
    ids: tuple[tuple[str | None, bool], ...] | None
    is_delta: bool


@dataclass(slots=True)
class KnownList:
    """The list of a channel as it was last read or written: its items in order, and their parts."""

    items: list[Item]
    parts: Parts


@dataclass(slots=True)
class Knowledge:
    """What is remembered of one thread.

    Attributes:
        state: What it holds for; None before the first operation.
        items: Messages by the `id()` of the object.
        lists: Lists by namespace and channel.
        checkpoints: The last checkpoints by namespace and id.
        bodies: Form and bytes by space and number.
        size: Bytes in `bodies`.
        lock: Held while several of these change together.
    """

    state: State | None = None
    items: dict[int, Item] = field(default_factory=dict)
    lists: dict[tuple[str, str], KnownList] = field(default_factory=dict)
    checkpoints: OrderedDict[tuple[str, str], KnownCheckpoint] = field(default_factory=OrderedDict)
    bodies: dict[str, dict[int, tuple[str, bytes]]] = field(default_factory=dict)
    size: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def forget(self) -> None:
        """Forget everything but the bytes' budget."""
        self.state, self.size = None, 0
        self.items, self.lists, self.bodies = {}, {}, {}
        self.checkpoints = OrderedDict()

    def is_at(self, state: State | None) -> bool:
        """Tell whether it holds for this state; if not, it is forgotten and begins anew for it."""
        if self.state == state:
            return True
        self.forget()
        self.state = state
        return False

    def have(self) -> dict[str, tuple[int, int]]:
        """Return the first and last number of the bodies in each space that has all in between."""
        return {
            space: (low, high)
            for space, known in self.bodies.items()
            if known and (high := max(known)) - (low := min(known)) + 1 == len(known)
        }

    def add_bodies(self, bodies: Mapping[str, Mapping[int, tuple[str, bytes]]]) -> None:
        """Remember bodies."""
        for space, found in bodies.items():
            known = self.bodies.setdefault(space, {})
            for n, body in found.items():
                if n not in known:
                    known[n] = body
                    self.size += len(body[1]) + 100

    def add_checkpoint(self, ns: str, checkpoint_id: str, known: KnownCheckpoint) -> None:
        """Remember a checkpoint, and let the oldest go."""
        self.checkpoints[ns, checkpoint_id] = known
        self.checkpoints.move_to_end((ns, checkpoint_id))
        while len(self.checkpoints) > CHECKPOINTS:
            self.checkpoints.popitem(last=False)

    def add_list(self, ns: str, channel: str, known: KnownList) -> None:
        """Remember a list and its messages; let go of messages that are in no list any more."""
        self.lists.pop((ns, channel), None)
        self.lists[ns, channel] = known
        while len(self.lists) > CHECKPOINTS:
            self.lists.pop(next(iter(self.lists)))
        self.add_items(known.items)

    def add_items(self, items: Iterable[Item]) -> None:
        """Remember messages."""
        for item in items:
            self.items[id(item.message)] = item
        live = sum(len(known.items) for known in list(self.lists.values()))
        if len(self.items) > 2 * live + 512:
            self.items = {id(item.message): item for known in list(self.lists.values()) for item in known.items}

    def find(self, message: BaseMessage) -> Item | None:
        """Return the item of a message that is as it was."""
        item = self.items.get(id(message))
        return item if item is not None and item.holds(message) else None


class Threads:
    """What is remembered of all threads under one serializer; the least used goes first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads: OrderedDict[str, Knowledge] = OrderedDict()

    def __getitem__(self, thread_id: str) -> Knowledge:
        with self._lock:
            known = self._threads.get(thread_id)
            if known is None:
                known = self._threads[thread_id] = Knowledge()
            else:
                self._threads.move_to_end(thread_id)
            while len(self._threads) > THREADS or (
                len(self._threads) > 1 and sum(k.size for k in self._threads.values()) > BYTES
            ):
                self._threads.popitem(last=False)
            return known

    def forget(self, thread_ids: Sequence[str]) -> None:
        """Forget some threads."""
        with self._lock:
            for thread_id in thread_ids:
                self._threads.pop(thread_id, None)

    def __len__(self) -> int:
        return len(self._threads)


class Memories:
    """What a saver and its copies remember: by serializer, since what is remembered is decoded."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_serializer: OrderedDict[int, tuple[object, Threads]] = OrderedDict()

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

    def forget(self, thread_ids: Sequence[str]) -> None:
        """Forget some threads under every serializer."""
        with self._lock:
            every = [threads for _, threads in self._by_serializer.values()]
        for threads in every:
            threads.forget(thread_ids)
