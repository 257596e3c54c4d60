"""Search in observation groups for the recall tool: the terms and the formula of semantic recall, over the groups."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from langchain_mastra_memory.recall.index import ScopeIndex, TextRow
from langchain_mastra_memory.recall.ranking import best, rank
from langchain_mastra_memory.recall.terms import Tokenizer
from langchain_mastra_memory.store.operations.log import FoundGroup


@cache
def _tokenizer() -> Tokenizer:
    return Tokenizer()


def packed_terms(text: str) -> bytes:
    """Return the packed terms of a group."""
    return _tokenizer().document(text)


def search_groups(groups: Sequence[FoundGroup], query: str, limit: int) -> list[tuple[FoundGroup, float]]:
    """Return the groups that answer a query best, with scores from 0 to 1, best first."""
    if not groups:
        return []
    index = ScopeIndex()
    rows = [
        TextRow(n + 1, group.row.covers[0].thread, n + 1, 0, group.terms or packed_terms(group.row.text))
        for n, group in enumerate(groups)
    ]
    index.add(rows)
    for thread in {row.thread for row in rows}:
        index.place(thread, ((0, len(rows)),))
    view = index.view()
    ranked = rank(view, index.matches(view, _tokenizer().query(query)), None, "lexical")
    places = [int(place) for place in best(view, ranked, limit)][:limit]
    return [(groups[int(view.seq[place]) - 1], float(ranked.own[place])) for place in places if ranked.own[place] > 0]
