"""Read hits and their neighbours, whole tool pairs, and check once more whose they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from langchain_mastra_memory.io import IO
from langchain_mastra_memory.recall.choosing import Chosen
from langchain_mastra_memory.recall.ranking import View
from langchain_mastra_memory.recall.results import Hit, Search, incomplete
from langchain_mastra_memory.store.operations.index import ReadPlaces
from langchain_mastra_memory.types import StoredMessage

_GROW: Final = 4  # by so many messages a stretch grows when a tool pair is cut
_GROWTHS: Final = 8


async def fetch(io: IO, search: Search, chosen: Chosen) -> list[Hit]:
    """Read the hits and their neighbours, whole tool pairs, and check whose they are."""
    view = chosen.view
    before, after = search.around
    spans = {hit: _span(view, hit, before, after) for hit in chosen.hits}
    stored: dict[int, StoredMessage] = {}
    asked: set[int] = set()
    for _ in range(_GROWTHS):
        places = sorted({place for low, high in spans.values() for place in range(low, high + 1)} - asked)
        asked |= set(places)
        if places:
            by_place = dict(zip(view.places(places), places, strict=True))
            rows = await io.run(ReadPlaces(scope=search.scope, places=tuple(by_place)))
            stored |= {by_place[place]: message for place, message in rows.items()}
        grown = {}
        for hit, (low, high) in spans.items():
            needs = incomplete([stored[p] for p in range(low, high + 1) if p in stored])
            wider = _span(view, hit, hit - low + _GROW * needs[0], high - hit + _GROW * needs[1])
            if wider != (low, high):
                grown[hit] = wider
        if not grown:
            break
        spans |= grown
    hits = []
    for hit in chosen.hits:
        message = stored.get(hit)
        if message is None or message.id in search.exclude:
            continue
        low, high = _trimmed(spans[hit], hit, before, after, stored)
        hits.append(
            Hit(
                message=replace(message, score=float(chosen.ranked.own[hit])),
                before=tuple(stored[p] for p in range(low, hit) if p in stored),
                after=tuple(stored[p] for p in range(hit + 1, high + 1) if p in stored),
                words=float(chosen.ranked.lex[hit]),
                meaning=float(chosen.ranked.vec[hit]),
            )
        )
    return hits[: search.top_k]


def _span(view: View, hit: int, before: int, after: int) -> tuple[int, int]:
    """Return the first and last position of a hit's stretch, within its thread."""
    low, high = max(hit - before, 0), min(hit + after, len(view) - 1)
    while view.thread[low] != view.thread[hit]:
        low += 1
    while view.thread[high] != view.thread[hit]:
        high -= 1
    return low, high


def _trimmed(
    span: tuple[int, int], hit: int, before: int, after: int, stored: Mapping[int, StoredMessage]
) -> tuple[int, int]:
    """Return the shortest stretch that has whole tool pairs: growing goes in steps, and may go too far."""
    low, high = max(span[0], hit - before), min(span[1], hit + after)
    while True:
        needs = incomplete([stored[p] for p in range(low, high + 1) if p in stored])
        grown = low - (needs[0] and low > span[0]), high + (needs[1] and high < span[1])
        if grown == (low, high):
            return low, high
        low, high = grown
