"""Which remembered messages a prompt has: a count, a budget in tokens, a stored boundary. Pure.

Units go whole (`history/units.py`). Protected are the running turn (the last human message and what follows it), a
unit with a message in it, and what is pinned. The rules, in order:

1. what observations cover is out (`covered`);
2. what the stored boundary took out stays out (`boundary`), so that the next prompts keep the same prefix;
3. of the rest the newest `last_messages` stay (`count`); a unit that is cut by the count goes;
4. when the whole prompt has more than `max_tokens`, the oldest units go until it has at most
   `max_tokens - remove_tokens` (`budget`), and the newest that went is the new boundary.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from typing import Final

from langchain_mastra_memory.context.layers import Item, LeftOut, Reason
from langchain_mastra_memory.history.repair import left_out
from langchain_mastra_memory.history.units import Unit, cut, joined
from langchain_mastra_memory.tokens import PER_CONVERSATION, PER_MESSAGE

FILLER_TOKENS: Final = 2 + PER_MESSAGE
"""The "." of `repair`: its role, its text, its framing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much history a prompt may have.

    Attributes:
        last_messages: The newest remembered messages, at most this many; None: no cap; 0: none.
        max_tokens: The budget of the whole prompt in tokens; None: no budget.
        remove_tokens: How far below the budget a trim goes, in tokens.
    """

    last_messages: int | None = 10
    max_tokens: int | None = None
    remove_tokens: float = 0.0

    @property
    def off(self) -> bool:
        """Whether history is neither shown nor archived."""
        return self.last_messages == 0 or self.max_tokens == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundary:
    """How far a trim went: units that stand at or before it are not shown.

    Attributes:
        message_id: The first message of the newest unit that went.
        seq: Its place in the archive; None when it was not archived yet.
        max_tokens: The budget that it was made for. Another budget recomputes.
        remove_tokens: The removal that it was made for.
    """

    message_id: str
    seq: int | None
    max_tokens: int
    remove_tokens: float

    def fits(self, limits: Limits) -> bool:
        """Return whether it was made for these limits."""
        return self.max_tokens == limits.max_tokens and self.remove_tokens == limits.remove_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What stays of a conversation.

    Attributes:
        items: The messages that stay, in order, the running turn included.
        turn: The place in `items` where the running turn begins.
        left_out: What went, and why.
        boundary: The boundary to store; None when this trim made no new one.
        tokens: The whole prompt, `fixed_tokens` included.
    """

    items: tuple[Item, ...]
    turn: int
    left_out: tuple[LeftOut, ...] = ()
    boundary: Boundary | None = None
    tokens: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What else decides what stays.

    Attributes:
        fixed_tokens: What is in the prompt beside the conversation: system text, tools' schemas, injected layers.
        boundary: The stored boundary, or None.
        covered_upto: Archived messages with `seq <=` this are in the observations.
        covered_ids: Messages in the observations by id.
        pinned: Ids that stay whatever covers them, counts or budgets.
    """

    fixed_tokens: float = 0.0
    boundary: Boundary | None = None
    covered_upto: int | None = None
    covered_ids: Container[str] = frozenset()
    pinned: Container[str] = frozenset()


@dataclass(slots=True)
class _Choice:
    items: Sequence[Item]
    turn: int
    units: list[Unit]
    out: list[tuple[Unit, Reason]] = field(default_factory=list)

    def drop(self, units: Sequence[Unit], reason: Reason) -> None:
        gone = {unit.first for unit in units}
        self.out += [(unit, reason) for unit in units]
        self.units = [unit for unit in self.units if unit.first not in gone]


def choose(
    items: Sequence[Item], *, turn: int, limits: Limits, weigh: Callable[[Item], float], shape: Shape | None = None
) -> Window:
    """Return what stays of a conversation.

    Args:
        items: The whole conversation, oldest first.
        turn: The place where the running turn begins; everything from there on is protected.
        limits: The count and the budget.
        weigh: The tokens of an item. Called only when there is a budget.
        shape: What else is in the prompt, and what is out or in anyway.

    Returns:
        The window. With a budget `tokens` is the whole prompt's size, otherwise 0.
    """
    shape = shape or Shape()
    choice = _Choice(items, turn, cut([item.message for item in items]))
    protected = {
        unit.first
        for unit in choice.units
        if unit.last >= turn or any(items[place].id in shape.pinned for place in unit.places)
    }
    covered = [unit for unit in choice.units if _covered(unit, items, shape, turn, protected)]
    choice.drop(covered, "covered")
    if limits.off:
        choice.drop(_history(choice, protected), "count")
    if shape.boundary is not None and shape.boundary.fits(limits):
        choice.drop(_behind(choice, shape.boundary, protected), "boundary")
    if limits.last_messages:
        choice.drop(_over_count(choice, limits.last_messages, protected), "count")
    boundary, tokens = None, 0.0
    if limits.max_tokens:
        boundary, tokens = _trim(choice, limits, weigh, shape, protected)
    kept = joined(choice.units)
    return Window(
        items=tuple(items[place] for place in kept),
        turn=sum(place < turn for place in kept),
        left_out=tuple(
            left_out(items[place].message, reason)
            for unit, reason in sorted(choice.out, key=lambda pair: pair[0].first)
            for place in unit.places
        ),
        boundary=boundary,
        tokens=tokens,
    )


def _covered(unit: Unit, items: Sequence[Item], shape: Shape, turn: int, protected: set[int]) -> bool:
    """Return whether the observations have the whole unit. Of the running turn only what is named by id goes."""
    places = [items[place] for place in unit.places]
    if any(item.id in shape.pinned for item in places):
        return False
    if all(item.id in shape.covered_ids for item in places):
        return True
    if unit.first in protected or unit.last >= turn or shape.covered_upto is None:
        return False
    upto = shape.covered_upto
    return all(item.seq is not None and item.seq <= upto for item in places)


def _history(choice: _Choice, protected: set[int]) -> list[Unit]:
    return [unit for unit in choice.units if unit.first not in protected]


def _behind(choice: _Choice, boundary: Boundary, protected: set[int]) -> list[Unit]:
    place = next((at for at, item in enumerate(choice.items) if item.id == boundary.message_id), None)
    upto = boundary.seq
    return [
        unit
        for unit in _history(choice, protected)
        if (place is not None and unit.first <= place)
        or (upto is not None and (seq := choice.items[unit.first].seq) is not None and seq <= upto)
    ]


def _over_count(choice: _Choice, last_messages: int, protected: set[int]) -> list[Unit]:
    """Return the units that do not fit whole into the newest `last_messages` remembered messages."""
    history = _history(choice, protected)
    places = joined(history)
    if len(places) <= last_messages:
        return []
    start = places[len(places) - last_messages]
    return [unit for unit in history if unit.first < start]


def _trim(
    choice: _Choice,
    limits: Limits,
    weigh: Callable[[Item], float],
    shape: Shape,
    protected: set[int],
) -> tuple[Boundary | None, float]:
    weights = {place: weigh(choice.items[place]) for unit in choice.units for place in unit.places}
    total = PER_CONVERSATION + shape.fixed_tokens + sum(weights.values())
    units, first, gone = choice.units, 0, list[Unit]()
    limit = limits.max_tokens
    if limit is None or total + _filler(choice, units, first) <= limit:
        return None, total
    goal = limit - limits.remove_tokens
    for unit in _history(choice, protected):
        if total <= goal and total + _filler(choice, units, first) <= limit:
            break
        gone.append(unit)
        total -= sum(weights[place] for place in unit.places)
        while first < len(units) and units[first].first <= unit.first and units[first].first not in protected:
            first += 1
    choice.drop(gone, "budget")
    if not gone:
        return None, total
    newest = choice.items[gone[-1].first]
    made = Boundary(message_id=newest.id, seq=newest.seq, max_tokens=limit, remove_tokens=limits.remove_tokens)
    return made, total


def _filler(choice: _Choice, units: Sequence[Unit], first: int) -> float:
    """Return the tokens of the human message that stands in where a prompt would begin with an answer."""
    begins_well = first >= len(units) or choice.items[units[first].first].message.type == "human"
    return 0.0 if begins_well else FILLER_TOKENS
