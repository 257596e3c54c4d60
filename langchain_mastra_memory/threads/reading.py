"""Rebuild what LangGraph wants from what the store read: values, writes, tuples."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Final, cast

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    PendingWrite,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from langchain_mastra_memory.collecting import collecting_later
from langchain_mastra_memory.store.operations.checkpoints import Read, StoredCheckpoint
from langchain_mastra_memory.threads.bodies import CODEC, BodyWriter, put_together
from langchain_mastra_memory.threads.entries import (
    GONE,
    LIST,
    MESSAGE,
    SNAPSHOT,
    Entry,
    Hole,
    Loose,
    Part,
    Parts,
    Range,
    join_ranges,
)
from langchain_mastra_memory.threads.knowledge import KnownCheckpoint, KnownList, Stored
from langchain_mastra_memory.threads.snapshots import Mold, Snapshot, snapshot

MANY: Final = 256
"""Messages of one list that are read without the garbage collector."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A list as it was read.

    Attributes:
        messages: Its messages; deleted ones are not among them.
        taken: A snapshot of each, if all have places.
        parts: Where their bodies are, deleted ones left out; None if some have no place.
    """

    messages: list[BaseMessage]
    taken: list[Snapshot]
    parts: Parts | None


def _there(part: Range, found: Sequence[object]) -> Parts:
    """Return what is left of a range: the numbers whose bodies were found."""
    left = (part.first + index for index, item in enumerate(found) if item is not None)
    return join_ranges([Range(part.space, n, n) for n in left])


class Reader:
    """Rebuilds values from one read; every value has message objects of its own.

    Args:
        serde: What wrote the values.
        writer: What wrote the messages.
        bodies: Bodies that were known before, by space and number.
        read: What the store read now.

    Attributes:
        molds: Bodies that were decoded in a way to be used again, by space and number.
    """

    def __init__(
        self, serde: SerializerProtocol, writer: BodyWriter, bodies: Mapping[str, Mapping[int, Stored]], read: Read
    ) -> None:
        self._serde = serde
        self._writer = writer
        self._known = bodies
        self._read = read
        self.molds: dict[str, dict[int, Mold]] = {}

    def messages(self, hole: Hole) -> Loaded:
        """Return the messages of a hole."""
        messages: list[BaseMessage] = []
        taken: list[Snapshot] = []
        parts: list[Part] = []
        placed = True
        for part in hole.parts:
            if type(part) is Range:
                read, known = self._read.bodies.get(part.space, {}), self._known.get(part.space, {})
                found: list[Any] = list(map(known.get, range(part.first, part.last + 1)))
                with collecting_later() if len(found) > MANY else nullcontext():
                    for index, stored in enumerate(found):
                        if type(stored) is not Mold:
                            n = part.first + index
                            found[index] = self._decoded(part.space, n, stored or read.get(n))
                    kept = [item for item in found if item is not None]
                    messages += [item.make() if type(item) is Mold else item for item in kept]
                    taken += [item.taken if type(item) is Mold else snapshot(item) for item in kept]
                parts += [part] if len(kept) == len(found) else _there(part, found)
            elif isinstance(part, Loose):
                placed = False
                if part.form != GONE:
                    messages.append(self._writer.load(part.form, part.body))
        return Loaded(messages, taken, tuple(parts) if placed else None)

    def _decoded(self, space: str, n: int, stored: tuple[str, bytes] | None) -> Mold | BaseMessage | None:
        """Return a body as a mold, or as a message where there can be none; None if it is gone."""
        if stored is None or stored[0] == GONE:
            return None
        message: BaseMessage = self._writer.load(*stored)
        mold = Mold.of(message) if stored[0] == CODEC else None
        if mold is None:
            return message
        self.molds.setdefault(space, {})[n] = mold
        return mold

    def value(self, entry: Entry) -> tuple[Any, Loaded | None]:
        """Return the value of an entry, and its messages if it is a list of them."""
        if entry.form in (LIST, SNAPSHOT, MESSAGE):
            loaded = self.messages(entry.holes[0])
            single = entry.form == MESSAGE
            value = put_together(entry.form, None, [((), single, list(loaded.messages))])
            return value, None if single else loaded
        payload = self._read.values[entry.payload] if type(entry.payload) is int else entry.payload
        rest = self._serde.loads_typed((entry.form, cast("bytes", payload)))
        filled = [(hole.path, hole.single, self.messages(hole).messages) for hole in entry.holes]
        return put_together(entry.form, rest, filled), None

    def pending(self, checkpoint: StoredCheckpoint, channels: Sequence[str] | None = None) -> list[PendingWrite]:
        """Return what the tasks of a checkpoint wrote, in the order in which LangGraph applies it."""
        return [
            (task.task_id, write.channel, self.value(write.entry)[0])
            for task in checkpoint.tasks
            for write in task.writes
            if write.entry.form != GONE and (channels is None or write.channel in channels)
        ]

    def checkpoint(self, stored: StoredCheckpoint) -> tuple[Checkpoint, dict[str, Loaded]]:
        """Return the checkpoint itself, and the messages of each channel that is a list of them."""
        skeleton = stored.skeleton
        values: dict[str, Any] = {}
        lists: dict[str, Loaded] = {}
        for name, entry in skeleton.entries.items():
            if entry.form == GONE:
                continue
            values[name], loaded = self.value(entry)
            if loaded is not None:
                lists[name] = loaded
        rest = self._serde.loads_typed(skeleton.rest) if skeleton.rest else {}
        checkpoint = {
            "v": skeleton.v,
            "ts": skeleton.ts,
            "id": stored.id,
            "channel_values": values,
            "channel_versions": dict(skeleton.versions),
            "versions_seen": {node: dict(seen) for node, seen in skeleton.seen.items()},
            "updated_channels": None if skeleton.updated is None else list(skeleton.updated),
            **rest,
        }
        return cast("Checkpoint", checkpoint), lists

    def metadata(self, stored: StoredCheckpoint) -> CheckpointMetadata:
        """Return the metadata as it was given."""
        if stored.skeleton.metadata is not None:
            return cast("CheckpointMetadata", self._serde.loads_typed(stored.skeleton.metadata))
        return cast("CheckpointMetadata", json.loads(stored.metadata, strict=False))


def config_of(thread_id: Any, ns: str, checkpoint_id: str) -> RunnableConfig:
    """Return the config that names a checkpoint."""
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": ns, "checkpoint_id": checkpoint_id}}


def tuple_of(reader: Reader, stored: StoredCheckpoint, thread_id: Any) -> tuple[CheckpointTuple, dict[str, Loaded]]:
    """Return a checkpoint as LangGraph wants it, and the messages of its lists."""
    checkpoint, lists = reader.checkpoint(stored)
    parent = None if stored.parent is None else config_of(thread_id, stored.ns, stored.parent)
    result = CheckpointTuple(
        config_of(thread_id, stored.ns, stored.id),
        checkpoint,
        reader.metadata(stored),
        parent,
        reader.pending(stored),
    )
    return result, lists


def known_checkpoint(
    stored: StoredCheckpoint, metadata: Mapping[str, Any], messages: Sequence[BaseMessage] | None
) -> KnownCheckpoint:
    """Return what the next put needs to know of a checkpoint that was read."""
    skeleton = stored.skeleton
    return KnownCheckpoint(
        versions=skeleton.versions,
        entries=skeleton.entries,
        place=stored.place,
        step=metadata.get("step"),
        source=metadata.get("source"),
        ids=None if messages is None else tuple([m.id for m in messages]),
        systems=frozenset([m.id for m in messages or () if m.type == "system"]),
        is_delta="messages" in skeleton.versions and "messages" not in skeleton.entries,
    )


def known_lists(lists: Mapping[str, Loaded]) -> dict[str, KnownList]:
    """Return the lists of a checkpoint that was read, as they are remembered: those whose messages all have places."""
    return {
        name: KnownList(loaded.messages, loaded.taken, loaded.parts)
        for name, loaded in lists.items()
        if loaded.parts is not None
    }


def delta_history(
    reader: Reader, ancestors: Sequence[StoredCheckpoint], channels: Sequence[str]
) -> dict[str, DeltaChannelHistory]:
    """Return what each channel was made from: the writes of its ancestors back to a stored value, and that value."""
    result: dict[str, DeltaChannelHistory] = {}
    for channel in channels:
        newest_first: list[PendingWrite] = []
        entry: DeltaChannelHistory = {"writes": []}
        for stored in ancestors:
            newest_first += reversed(reader.pending(stored, (channel,)))
            value = stored.skeleton.entries.get(channel)
            if value is not None and value.form != GONE:
                entry["seed"] = reader.value(value)[0]
                break
        entry["writes"] = newest_first[::-1]
        result[channel] = entry
    return result
