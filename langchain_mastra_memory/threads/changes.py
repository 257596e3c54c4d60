"""What a checkpoint's list of messages changed against its parent's: pure, from what is known of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard, cast

from langchain_core.messages import BaseMessage
from langgraph.checkpoint.base import ChannelVersions, Checkpoint

from langchain_mastra_memory.threads.archiving import CHANNEL, is_archived, retractable, retractable_of_writes
from langchain_mastra_memory.threads.bodies import BodyWriter, only_messages
from langchain_mastra_memory.threads.entries import GONE, Entry, numbers_of
from langchain_mastra_memory.threads.knowledge import Knowledge, KnownCheckpoint, Stored
from langchain_mastra_memory.threads.planning import Planned, Planner
from langchain_mastra_memory.threads.runs import RunReport
from langchain_mastra_memory.threads.snapshots import Mold


def messages_of(checkpoint: Checkpoint) -> list[BaseMessage]:
    """Return the list of the archived channel, out of a DeltaChannel's snapshot too; empty if there is none."""
    value = checkpoint["channel_values"].get(CHANNEL)
    found = value if isinstance(value, list) else getattr(value, "value", None)
    if only_messages(found):
        return cast("list[BaseMessage]", found)
    return [m for m in found if isinstance(m, BaseMessage)] if isinstance(found, list) else []


def ids_of(
    planner: Planner, parent: KnownCheckpoint | None, checkpoint: Checkpoint, entries: Mapping[str, Entry]
) -> tuple[tuple[str | None, ...] | None, frozenset[str | None]]:
    """Return the ids of the list in order (None without a list), and those of them that are system messages."""
    if CHANNEL not in entries:
        return None, frozenset()
    planned = planner.lists.get(CHANNEL)
    if planned is None and parent is not None:  # it has not moved
        return parent.ids, parent.systems
    messages = messages_of(checkpoint)
    if planned is not None and parent is not None and parent.ids is not None and _follows(planned, parent):
        tail = messages[planned.prefix :]
        systems = [m.id for m in tail if m.type == "system"]
        return parent.ids + tuple(m.id for m in tail), parent.systems.union(systems) if systems else parent.systems
    return tuple(m.id for m in messages), frozenset(m.id for m in messages if m.type == "system")


def news(  # noqa: PLR0917 - one call
    planner: Planner,
    parent: KnownCheckpoint | None,
    checkpoint: Checkpoint,
    new_versions: ChannelVersions,
    entries: Mapping[str, Entry],
    written: list[BaseMessage] | None,
    *,
    orphan: bool,
) -> tuple[list[tuple[BaseMessage, bool]], tuple[str, ...]]:
    """Return what this checkpoint's list brings against its parent's.

    An orphan is a checkpoint whose parent is stored no more: it brings the whole list, moved or not.

    Returns:
        The new and changed messages, each with whether this step has surely changed it; and the ids that the step took
        out and that may be retracted.
    """
    if CHANNEL not in new_versions and not orphan:
        return [], ()
    if CHANNEL not in entries and written is not None:
        return _last_of_each([(m, True) for m in written if is_archived(m)]), retractable_of_writes(written)
    messages = messages_of(checkpoint)
    if parent is not None and parent.is_delta:
        # The parent's list is not at hand: what its tasks wrote has surely changed, the rest is known by id.
        changed = {m.id for m in written or ()}
        new = [(m, m.id in changed) for m in messages if is_archived(m)]
        return _last_of_each(new), retractable_of_writes(written or ())
    planned = planner.lists.get(CHANNEL)
    if planned is None:  # empty, or with other things among the messages
        new = [(m, False) for m in messages if is_archived(m)]
    else:
        new = [(m, True) for m in _beyond(planner, planned, parent, messages)]
    new = _last_of_each(new)
    if parent is None or parent.ids is None or (planned is not None and _follows(planned, parent)):
        return new, ()
    before = [(i, i in parent.systems) for i in parent.ids if i]
    return new, retractable(before, [m.id for m in messages if m.id], [m for m, _ in new])


def _last_of_each(new: Sequence[tuple[BaseMessage, bool]]) -> list[tuple[BaseMessage, bool]]:
    """Return the last message of each id, in the place of the first.

    A list may hold an id twice: most reducers, unlike `add_messages`, do not look at ids. The archive has a row for
    each.
    """
    return list({message.id: (message, surely) for message, surely in new}.values())


def _beyond(
    planner: Planner, planned: Planned, parent: KnownCheckpoint | None, messages: Sequence[BaseMessage]
) -> list[BaseMessage]:
    """Return the messages whose bodies are not in the parent's list."""
    before = parent.entries.get(CHANNEL) if parent is not None else None
    if parent is None or before is None:
        return [m for m in messages if is_archived(m)]
    if _follows(planned, parent):
        return [m for m in messages[planned.prefix :] if is_archived(m)]
    numbers = set(numbers_of(before.holes[0].parts if before.holes else ()))
    return [
        message
        for message in messages
        if is_archived(message) and not any(place in numbers for place in planner.places(message).items())
    ]


def _follows(planned: Planned, parent: KnownCheckpoint) -> bool:
    """Tell whether a list begins with the whole list of the parent, as it was."""
    entry = parent.entries.get(CHANNEL)
    return entry is not None and bool(entry.holes) and planned.before == entry.holes[0].parts


def equal_in_parent(
    known: Knowledge, writer: BodyWriter, ns: str, parent: KnownCheckpoint | None, messages: Sequence[BaseMessage]
) -> dict[str, list[tuple[str, int, BaseMessage]]]:
    """Return the parent's messages that have the ids of messages whose objects are not known in it, with their places.

    That is how a list is matched that came from elsewhere: by id, and then by what is decoded, under any serializer.
    A node's copies of what it was given are known from its write, under numbers of their own.
    """
    if parent is None or parent.ids is None or ns:
        return {}
    entry = parent.entries[CHANNEL]
    numbers = numbers_of(entry.holes[0].parts if entry.holes else ())
    stored = [(space, n, body) for space, n in numbers if _is_there(body := known.bodies.get(space, {}).get(n))]
    places = set(numbers)
    unknown = {message.id for message in messages if places.isdisjoint((known.find(message) or {}).items())}
    found: dict[str, list[tuple[str, int, BaseMessage]]] = {}
    # One that was deleted is not among the ids of a list that was read since: then each body says whose it is.
    ids = parent.ids if len(stored) == len(parent.ids) else None
    for index, (space, n, body) in enumerate(stored):
        if ids is not None and (ids[index] is None or ids[index] not in unknown):
            continue
        message = body.make() if isinstance(body, Mold) else writer.load(*body)
        if message.id and message.id in unknown:
            found.setdefault(message.id, []).append((space, n, message))
    return found


def _is_there(body: Stored | None) -> TypeGuard[Stored]:
    """Tell whether a body is known and was not emptied, as it is when its message is deleted."""
    return body is not None and (isinstance(body, Mold) or body[0] != GONE)


def base_of(parent: KnownCheckpoint | None, metadata: Mapping[str, Any], report: RunReport) -> int | None:
    """Return the head when the run of this checkpoint began: a step goes on, an input or a gap in steps begins anew.

    With `durability="exit"` only the last step is written, so that the one before is of an earlier run.
    """
    if parent is None or parent.place is None:
        return None
    step, source = metadata.get("step"), metadata.get("source")
    goes_on = source == "loop" and parent.step is not None and step == parent.step + 1
    goes_on = goes_on or (source in ("update", "fork") and report.status == "open")
    return parent.place.base if goes_on else parent.place.head
