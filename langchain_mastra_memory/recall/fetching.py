"""Read hits and their neighbours, whole tool pairs, and check once more whose they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from langchain_mastra_memory.io import IO
from langchain_mastra_memory.recall.choosing import Chosen
from langchain_mastra_memory.recall.ranking import View
from langchain_mastra_memory.recall.results import Hit, Search, incomplete
from langchain_mastra_memory.recall.scopes import Scope
from langchain_mastra_memory.store.operations.index import ReadPlaces
from langchain_mastra_memory.types import StoredMessage

_GROW: Final = 4  # by so many messages what is read of a stretch grows where a tool pair is cut
_MOST: Final = 32  # messages that a stretch grows at each end


async def fetch(io: IO, search: Search, chosen: Chosen, scope: Scope) -> list[Hit]:
    """Read the hits and their neighbours, whole tool pairs, and check whose they are.

    Args:
        io: What to read with.
        search: The search.
        chosen: Its hits.
        scope: The scope that they are of; it keeps how far stretches had to grow, so that the next are read at once.
    """
    view = chosen.view
    before, after = search.around
    stretches = {hit: _Stretch(view, hit, before, after, scope.growth) for hit in chosen.hits}
    stored: dict[int, StoredMessage] = {}
    asked: set[int] = set()
    while places := sorted({place for stretch in stretches.values() for place in stretch.wanted} - asked):
        asked.update(places)
        by_place = dict(zip(view.places(places), places, strict=True))
        rows = await io.run(ReadPlaces(scope=search.scope, places=tuple(by_place)))
        stored |= {by_place[place]: message for place, message in rows.items()}
        for stretch in stretches.values():
            stretch.grow(stored)
    grown = max((stretch.growth for stretch in stretches.values()), default=0)
    scope.growth = min(max(scope.growth, grown), _GROW)
    hits = []
    for hit, stretch in stretches.items():
        message = stored.get(hit)
        if message is None or message.id in search.exclude:
            continue
        hits.append(
            Hit(
                message=replace(message, score=float(chosen.ranked.own[hit])),
                before=tuple(stored[p] for p in range(stretch.low, hit) if p in stored),
                after=tuple(stored[p] for p in range(hit + 1, stretch.high + 1) if p in stored),
                words=float(chosen.ranked.lex[hit]),
                meaning=float(chosen.ranked.vec[hit]),
            )
        )
    return hits[: search.top_k]


class _Stretch:
    """A hit with its neighbours: the shortest stretch of its thread that has whole tool pairs.

    Attributes:
        low: The position of its first message.
        high: And of its last.
        wanted: The positions to read.
    """

    def __init__(self, view: View, hit: int, before: int, after: int, margin: int) -> None:
        self._first, self._last = _within(view, hit, before + _MOST, after + _MOST)
        self.low, self.high = max(hit - before, self._first), min(hit + after, self._last)
        self._small = (self.low, self.high)
        self.wanted = range(max(self.low - margin, self._first), min(self.high + margin, self._last) + 1)

    @property
    def growth(self) -> int:
        """By how many messages it has grown, at the end where it has grown most."""
        return max(self._small[0] - self.low, self.high - self._small[1])

    def grow(self, stored: Mapping[int, StoredMessage]) -> None:
        """Grow over what was read until it is whole, or want more where that is not enough."""
        while True:
            needs = incomplete([stored[p] for p in range(self.low, self.high + 1) if p in stored])
            low = self.low - (needs[0] and self.low > self._first)
            high = self.high + (needs[1] and self.high < self._last)
            if (low, high) == (self.low, self.high):
                return
            if low < self.wanted.start or high >= self.wanted.stop:
                first, last = self.wanted.start, self.wanted.stop - 1
                first = max(first - _GROW, self._first) if low < first else first
                last = min(last + _GROW, self._last) if high > last else last
                self.wanted = range(first, last + 1)
                return
            self.low, self.high = low, high


def _within(view: View, hit: int, before: int, after: int) -> tuple[int, int]:
    """Return the first and last position of a stretch around a hit, within its thread."""
    low, high = max(hit - before, 0), min(hit + after, len(view) - 1)
    while view.thread[low] != view.thread[hit]:
        low += 1
    while view.thread[high] != view.thread[hit]:
        high -= 1
    return low, high
