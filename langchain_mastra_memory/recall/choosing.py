"""Score a scope and choose the hits: everything is read already, nothing waits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from langchain_mastra_memory.recall.ranking import Doubles, Mask, Ranked, View, best, pick, rank
from langchain_mastra_memory.recall.results import Search
from langchain_mastra_memory.recall.scopes import Scope
from langchain_mastra_memory.recall.terms import SHARED
from langchain_mastra_memory.recall.vectors import QueryVector
from langchain_mastra_memory.store.operations.index import Place, ScopeRead


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """What a search has read.

    Attributes:
        scope: The index.
        read: What was read for it.
        vector: The query's vector, when the vectors are in the index.
        found: Candidates of an outside index by text key, and whether they are all that there are.
        threads: The keys of the threads that may be found; None: all, and every message of them.
        details: The messages that may be found, with their metadata; None: all of the threads.
    """

    scope: Scope
    read: ScopeRead
    vector: list[float] | None = None
    found: tuple[Mapping[int, float], bool] | None = None
    threads: tuple[int, ...] | None = None
    details: Mapping[Place, Mapping[str, object]] | None = None


@dataclass(frozen=True, slots=True)
class Chosen:
    """Hits, best first, as positions in the view.

    Attributes:
        view: The visible messages.
        ranked: Their scores.
        hits: The positions.
    """

    view: View
    ranked: Ranked
    hits: list[int]


def choose(search: Search, gathered: Gathered) -> Chosen:
    """Score the scope and choose the hits."""
    read = gathered.read
    with gathered.scope.lock:
        index = gathered.scope.index
        view = index.view(None if read.override is None else dict([read.override]))
        matches = index.matches(view, SHARED.query(search.text)) if search.mode != "vector" else []
        cosines: Doubles | None = None
        if gathered.found is not None:
            cosines = index.candidates(view, gathered.found[0], complete=gathered.found[1])
        elif gathered.vector is not None and search.mode != "lexical":
            cosines = index.cosines(view, QueryVector.of(gathered.vector))
    ranked = rank(view, matches, cosines, search.mode)
    count = search.top_k + len(search.exclude)
    before, after = search.around
    # A hit can take the places of no more than its own neighbours.
    ordered = best(
        view,
        ranked,
        min(len(view), count * (before + after + 1)),
        allowed=_allowed(search, gathered, view),
        threshold=search.threshold,
    )
    return Chosen(view, ranked, pick(view, ordered, count, before, after))


def _allowed(search: Search, gathered: Gathered, view: View) -> Mask | None:
    if gathered.threads is None:
        return None
    allowed: Mask = np.isin(view.keys, np.asarray(gathered.threads, dtype=np.int64))[view.thread]
    if gathered.details is None:
        return allowed
    metadata = {state.key: state.metadata or {} for state in gathered.read.threads}
    rule, values = search.filter, search.metadata
    good = {
        place
        for place, own in gathered.details.items()
        if (rule is None or rule.matches(metadata[place[0]], own)) and (not values or _has(own, values))
    }
    places = view.places()
    return allowed & np.fromiter((place in good for place in places), dtype=np.bool_, count=len(places))


def _has(metadata: Mapping[str, object], wanted: Mapping[str, object]) -> bool:
    missing = object()
    return all(_same(metadata.get(key, missing), value) for key, value in wanted.items())


def _same(found: object, wanted: object) -> bool:
    if isinstance(found, bool) or isinstance(wanted, bool):
        return found is wanted
    return found == wanted
