"""Plan how values are written: what is known already becomes ranges of numbers, what is new becomes bodies.

Pure but for what it reads in a thread's `Knowledge`; the plan is plain data for one operation of the store.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from langchain_core.messages import BaseMessage
from langgraph.checkpoint.serde.base import SerializerProtocol

from langchain_mastra_memory.store.operations.checkpoints import NewBody
from langchain_mastra_memory.threads.bodies import CODEC, BodyWriter, is_order, space_of, take_apart
from langchain_mastra_memory.threads.entries import GONE, Entry, Fresh, Hole, Loose, Part, Parts, Range, join_ranges
from langchain_mastra_memory.threads.knowledge import Item, Knowledge, KnownList, Stored, item_of
from langchain_mastra_memory.threads.snapshots import Snapshot

INLINE: Final = 256
"""Bytes of a value up to which it stands in the checkpoint's row, and is written again with each checkpoint."""
INLINE_ONCE: Final = 16_384
"""The same for channels that are empty again in the next checkpoint."""
FEW: Final = 4
"""So many messages of a write, or inside a value, are kept in place if they are small: that costs fewer statements than
it saves bytes. More are the history that a client sends again."""
SMALL: Final = 1_024
"""Bytes of a small message."""
FOREIGN_RUN: Final = 8
"""A list points into another space where at least so many of its messages stand in a row there; fewer are copied, so
that a list that grows stays one range."""

Token = Item | Loose
Equals = Mapping[str, Sequence[tuple[str, int, BaseMessage]]]
"""Stored messages with their places, by id."""


@dataclass(slots=True)
class Planned:
    """A list of a channel on its way.

    Attributes:
        messages: Its messages; None if some have no place: orders to remove others.
        taken: A snapshot of each.
        parts: Its parts.
        prefix: How many of its first messages are the whole list that was known before.
        before: The parts of that list.
    """

    messages: list[BaseMessage] | None
    taken: list[Snapshot]
    parts: Parts
    prefix: int = 0
    before: Parts | None = None


@dataclass(slots=True)
class Planner:
    """Collects what a write brings.

    Attributes:
        known: What is known of the thread.
        ns: The namespace.
        serde: Writes everything that is not a message.
        writer: Writes messages.
        bodies: The new bodies.
        fresh: The item of each new body.
        values: Values too large for a row.
        look_up: Returns stored messages that the unknown objects of a list may be equal to.
        equals: What it returned last.
        lists: Lists of channels that were planned, by channel.
    """

    known: Knowledge
    ns: str
    serde: SerializerProtocol
    writer: BodyWriter
    look_up: Callable[[Sequence[BaseMessage]], Equals] | None = None
    equals: Equals = field(default_factory=dict)
    bodies: list[NewBody] = field(default_factory=list)
    fresh: list[Item] = field(default_factory=list)
    values: list[bytes] = field(default_factory=list)
    lists: dict[str, Planned] = field(default_factory=dict)
    _mine: dict[int, int] = field(default_factory=dict)
    _expected: dict[str, int] = field(default_factory=dict)

    def channel(self, name: str, value: Any) -> Entry:
        """Plan the value of a channel of a checkpoint."""
        apart = take_apart(value)
        if apart.form is not None and not apart.taken[0].single:
            messages = apart.taken[0].messages
            planned = self._list(space_of(self.ns, name, ()), name, messages)
            self.lists[name] = planned
            return Entry(apart.form, None, (Hole((), False, planned.parts),))
        once = name.startswith(("__", "branch:"))
        return self._entry(name, value, INLINE_ONCE if once else INLINE)

    def write(self, channel: str, value: Any) -> Entry:
        """Plan the value of a task's write."""
        return self._entry(channel, value, None)

    def _entry(self, name: str, value: Any, inline: int | None) -> Entry:
        apart = take_apart(value)
        holes = tuple(
            Hole(t.path, t.single, self._place(space_of(self.ns, name, t.path), self._tokens(t.messages, loose=True)))
            for t in apart.taken
        )
        if apart.form is not None:
            return Entry(apart.form, None, holes)
        form, body = self.serde.dumps_typed(apart.rest)
        if inline is None or len(body) <= inline:
            return Entry(form, body, holes)
        self.values.append(body)
        return Entry(form, -len(self.values), holes)

    def _list(self, space: str, name: str, messages: Sequence[BaseMessage]) -> Planned:
        before = self.known.lists.get((self.ns, name))
        if before is None or not before.begins(messages):
            if self.look_up is not None:
                self.equals = self.look_up(messages)
            tokens = self._tokens(messages, loose=False)
            taken = [token.taken for token in tokens if type(token) is Item]
            whole = list(messages) if len(taken) == len(messages) else None
            return Planned(whole, taken, self._place(space, tokens))
        prefix = len(before.messages)
        tail = self._tokens(messages[prefix:], loose=False)
        parts = join_ranges((*before.parts, *self._place(space, tail, before.parts)))
        taken = before.taken + [token.taken for token in tail if type(token) is Item]
        whole = list(messages) if len(taken) == len(messages) else None
        return Planned(whole, taken, parts, prefix, before.parts)

    def _tokens(self, messages: Sequence[BaseMessage], *, loose: bool) -> list[Token]:
        """Return each message with the places that are known of it."""
        tokens: list[Token] = []
        for message in messages:
            if is_order(message) or (loose and not message.id):
                tokens.append(Loose(*self.writer.dump(message)))
                continue
            if loose and len(messages) <= FEW:
                form, body = self.writer.dump(message)
                if len(body) <= SMALL:
                    tokens.append(Loose(form, body, message.id))
                    continue
            item = item_of(message)
            item.places = self.places(message)
            tokens.append(item)
        return tokens

    def places(self, message: BaseMessage) -> dict[str, int]:
        """Return where a message is stored already, by space: the object itself, or one that is equal to it."""
        found = self.known.find(message) or {}
        equal = {space: n for space, n, other in self.equals.get(message.id or "", ()) if other == message}
        return {**found, **equal}

    def _place(self, space: str, tokens: Sequence[Token], before: Sequence[Part] = ()) -> Parts:
        """Choose where each message is pointed to: in long stretches, in the list's own space where that is equal."""
        parts: list[Part] = []
        last = before[-1] if before else None
        at = (last.space, last.last) if type(last) is Range else None
        for index, token in enumerate(tokens):
            if isinstance(token, Loose):
                parts.append(token)
                at = None
                continue
            place = self._choose(space, tokens, index, at)
            if place is None:
                parts.append(Fresh(self._body(space, token)))
                at = None
            else:
                parts.append(Range(place[0], place[1], place[1]))
                at = place
        return join_ranges(parts)

    def _choose(
        self, space: str, tokens: Sequence[Token], index: int, at: tuple[str, int] | None
    ) -> tuple[str, int] | None:
        token = tokens[index]
        places = token.places if type(token) is Item else {}
        if at is not None and places.get(at[0]) == at[1] + 1:
            return at[0], at[1] + 1
        own = places.get(space)
        if own is not None and len(places) == 1:
            return space, own
        best = None if own is None else (space, own)
        length = 0 if own is None else _stretch(tokens, index, space, own)
        for other, n in places.items():
            if other != space:
                found = _stretch(tokens, index, other, n)
                if found >= FOREIGN_RUN and found > length:
                    best, length = (other, n), found
        return best

    def _body(self, space: str, item: Item) -> int:
        """Bring a message's body, once in a plan; return its place among the new bodies."""
        place = self._mine.get(id(item.message))
        if place is not None and self.bodies[place].space == space:
            return place
        form, body = self.writer.dump(item.message)
        expected = self._expected[space] = self._expected.get(space, self.known.last(space)) + 1
        self.bodies.append(NewBody(space, item.message.id or None, form, body, self.writer.unique, expected))
        self.fresh.append(item)
        self._mine[id(item.message)] = len(self.bodies) - 1
        return len(self.bodies) - 1

    def encoded(self, message: BaseMessage) -> bytes | None:
        """Return the bytes of a message in the codec, if the plan brings them."""
        place = self._mine.get(id(message))
        return self.bodies[place].body if place is not None and self.bodies[place].form == CODEC else None


def _stretch(tokens: Sequence[Token], index: int, space: str, n: int) -> int:
    """Return how many messages from `index` on stand in a row in a space."""
    length = 0
    for token in tokens[index:]:
        if type(token) is not Item or token.places.get(space) != n + length:
            break
        length += 1
    return length


def learn_numbers(planner: Planner, numbers: Sequence[tuple[str, int]], gone: frozenset[int] = frozenset()) -> None:
    """Remember the numbers that the database gave to a plan's bodies, and those that it left empty."""
    found: dict[str, dict[int, Stored]] = {}
    for index, (item, new, (space, n)) in enumerate(zip(planner.fresh, planner.bodies, numbers, strict=True)):
        item.places[space] = n
        found.setdefault(space, {})[n] = (GONE, b"") if index in gone else (new.form, new.body)
    planner.known.add_bodies(found)
    planner.known.add_items(planner.fresh)


def known_list(planned: Planned, parts: Parts) -> KnownList | None:
    """Return a planned list as it is remembered once it is written."""
    return None if planned.messages is None else KnownList(planned.messages, planned.taken, parts)
