"""Rank the messages of a scope: BM25 over messages and threads, cosines, neighbours, and their fusion.

Pure functions over arrays. All of them work on a `View`: the messages that are visible, in the order thread by
thread, seq by seq. The statistics (frequencies, lengths, the median cosine) are those of the view, so another owner's
messages never influence a score.

    lex   = BM25 over its upper bound for the query                                   0 to 1
    vec   = (cosine - median cosine) / (1 - median), at least 0, the best chunk       0 to 1
    own   = 0.7 lex + 0.3 vec                                                         the score that users see
    order = own + 120 / (120 + length) (0.375 own of +-1 + 0.125 own of +-2) + 0.4 lex of the thread as a document

Measured on LoCoMo turns and BEAM messages; `benchmarks/recall.py` repeats the measurement. The share of the neighbours
must shrink with a message's own length: fixed shares cost 8 points of recall@5 on long messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from langchain_mastra_memory.recall.options import Mode, Weights

Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Small = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]

DIGITS = 6
"""Scores are rounded, so that the last bits of a sum decide nothing."""


@dataclass(frozen=True, eq=False)
class View:
    """The visible messages of a scope, in order.

    Attributes:
        rows: Where each stands in the index, shape (n,).
        keys: The key of each thread, shape (threads,).
        seq: Its seq.
        branch: Its branch.
        thread: The number of its thread in this view, from 0, never falling.
        length: Its length in terms.
        age: Larger for a message saved later; breaks ties.
        weights: The formula's numbers.
    """

    rows: Ints
    keys: Ints
    seq: Small
    branch: Small
    thread: Ints
    length: Doubles
    age: Ints
    weights: Weights = field(default_factory=Weights)

    def __len__(self) -> int:
        return len(self.rows)

    def places(self, positions: Sequence[int] | None = None) -> list[tuple[int, int, int]]:
        """Return `(thread key, seq, branch)` of positions; of all of them by default."""
        at = slice(None) if positions is None else np.asarray(positions, dtype=np.int64)
        columns = (self.keys[self.thread[at]].tolist(), self.seq[at].tolist(), self.branch[at].tolist())
        return list(zip(*columns, strict=True))

    @cached_property
    def threads(self) -> int:
        """How many threads there are."""
        return int(self.thread[-1]) + 1 if len(self) else 0

    @cached_property
    def thread_length(self) -> Doubles:
        """The length of each thread as one document."""
        return np.bincount(self.thread, weights=self.length, minlength=self.threads).astype(np.float64)

    @cached_property
    def norm(self) -> Doubles:
        """BM25's k1 (1 - b + b length / average) of each message."""
        return _norm(self.length, self.weights.k1, self.weights.b)

    @cached_property
    def thread_norm(self) -> Doubles:
        """The same of each thread."""
        return _norm(self.thread_length, self.weights.k1, self.weights.thread_b)

    @cached_property
    def share(self) -> Doubles:
        """How much of its neighbours' score a message takes."""
        return self.weights.half_length / (self.weights.half_length + self.length)

    @cached_property
    def together(self) -> tuple[Mask, Mask]:
        """Whether message i and message i+1 (and i+2) are of one thread."""
        return self.thread[:-1] == self.thread[1:], self.thread[:-2] == self.thread[2:]


def _norm(length: Doubles, k1: float, b: float) -> Doubles:
    average = float(length.mean()) if length.size else 1.0
    return k1 * (1.0 - b + b * (length / (average or 1.0)))


@dataclass(frozen=True, slots=True)
class Match:
    """Where a term of the query occurs.

    Attributes:
        places: Positions in the view, each once.
        counts: How often, at most 15.
    """

    places: Ints
    counts: Doubles


def idf(documents: int, containing: int) -> float:
    """Return how much a term tells: log(1 + (N - n + 0.5) / (n + 0.5)), never negative."""
    return float(np.log1p((documents - containing + 0.5) / (containing + 0.5)))


def lexical(view: View, matches: Sequence[Match]) -> tuple[Doubles, Doubles]:
    """Return BM25 over its upper bound, for messages and for threads.

    Args:
        view: The visible messages.
        matches: One for each distinct term of the query, those that occur nowhere too: they raise the bound.

    Returns:
        `(messages, threads)`, shapes (n,) and (threads,), 0 to 1.
    """
    k1, threads = view.weights.k1, np.zeros(view.threads)
    factors = [idf(len(view), len(match.places)) * (k1 + 1.0) for match in matches]
    bound, thread_bound = sum(factors), 0.0
    for match in matches:
        if len(match.places):
            in_thread = _in_threads(view, match)
            factor = idf(view.threads, int(np.count_nonzero(in_thread))) * (k1 + 1.0)
            threads += factor * in_thread / (in_thread + view.thread_norm)
        else:
            factor = idf(view.threads, 0) * (k1 + 1.0)
        thread_bound += factor
    if not bound:
        return np.zeros(len(view)), threads
    # All terms in one go: for a short list of messages the calls cost more than the numbers. In place, since for a long
    # one it is the memory that costs: factor * count / (count + norm).
    places = np.concatenate([match.places for match in matches])
    counts = np.concatenate([match.counts for match in matches])
    scores = np.repeat(factors, [len(match.places) for match in matches])
    scores *= counts
    counts += view.norm[places]
    scores /= counts
    messages = np.bincount(places, weights=scores, minlength=len(view))
    return messages / bound, threads / thread_bound


def _in_threads(view: View, match: Match) -> Doubles:
    """Return how often a term occurs in each thread."""
    if view.threads == 1:
        return np.full(1, match.counts.sum())
    return np.bincount(view.thread[match.places], weights=match.counts, minlength=view.threads).astype(np.float64)


def above_median(cosines: Doubles) -> Doubles:
    """Return how far each cosine is above the scope's median, 0 to 1; NaN (no vector) gives 0.

    Cosines as they are would depend on the embedder: some give 0.75 to 1 for everything.
    """
    known = ~np.isnan(cosines)
    if not known.any():
        return np.zeros_like(cosines)
    median = float(np.median(cosines[known]))
    if median >= 1.0:
        return np.where(known, 1.0, 0.0)
    found: Doubles = np.clip((np.where(known, cosines, median) - median) / (1.0 - median), 0.0, 1.0)
    return found


@dataclass(frozen=True, slots=True)
class Ranked:
    """Every message of a view with its scores, shapes (n,).

    Attributes:
        own: The message's own score, 0 to 1, rounded.
        order: What the list is ordered by, rounded.
        lex: Its lexical half, 0 to 1.
        vec: Its vector half, 0 to 1.
        found: Whether it may be a hit at all: a word of the query is in it or beside it, or it has a vector.
    """

    own: Doubles
    order: Doubles
    lex: Doubles
    vec: Doubles
    found: Mask


def rank(view: View, matches: Sequence[Match], cosines: Doubles | None, mode: Mode = "hybrid") -> Ranked:
    """Score every message of a view.

    Args:
        view: The visible messages.
        matches: One for each distinct term of the query.
        cosines: One for each message of the view, the best of its chunks, NaN without a vector; None without vectors.
        mode: Which halves count. Without any vector, hybrid is lexical.

    Returns:
        The scores; ties are left to `best`.
    """
    weights, size = view.weights, len(view)
    known = np.zeros(size, dtype=np.bool_) if cosines is None else ~np.isnan(cosines)
    vec = np.zeros(size) if cosines is None or mode == "lexical" else above_median(cosines)
    lex, thread_lex = lexical(view, matches) if mode != "vector" else (np.zeros(size), np.zeros(view.threads))
    if mode == "vector":
        own = vec
    elif mode == "lexical" or not known.any():
        own = lex
    else:
        own = weights.lexical * lex + (1.0 - weights.lexical) * vec
    beside = neighbours(view, own)
    order = own + view.share * beside
    if view.threads > 1:  # one thread: the same for all
        order = order + weights.thread * thread_lex[view.thread]
    found = (own > 0) | (beside > 0)
    if mode != "lexical":
        found = found | known
    found = found & (view.length > 0)  # without a word it can only stand beside a hit
    return Ranked(np.round(own, DIGITS), np.round(order, DIGITS), lex, vec, found)


def neighbours(view: View, own: Doubles) -> Doubles:
    """Return near * (own of +-1) + far * (own of +-2), within the thread."""
    beside = np.zeros(len(view))
    for distance, share, together in zip((1, 2), (view.weights.near, view.weights.far), view.together, strict=True):
        if len(view) > distance and share:
            beside[:-distance] += share * own[distance:] * together
            beside[distance:] += share * own[:-distance] * together
    return beside


def best(
    view: View, ranked: Ranked, count: int, *, allowed: Mask | None = None, threshold: float | None = None
) -> Ints:
    """Return the positions of the best messages, best first, ties to the newer.

    Args:
        view: The visible messages.
        ranked: Their scores.
        count: How many, at least; fewer only when there are fewer.
        allowed: Which of the view may be returned; None means all.
        threshold: The least own score; None means any.

    Returns:
        Positions in the view.
    """
    keep = ranked.found if allowed is None else ranked.found & allowed
    if threshold is not None:
        keep = keep & (ranked.own >= threshold)
    places = np.flatnonzero(keep)
    if len(places) > count:
        order = ranked.order[places]
        edge = np.partition(order, len(order) - count)[len(order) - count]
        places = places[order >= edge]
    return places[np.lexsort((-view.age[places], -ranked.order[places]))]


def pick(view: View, ordered: Ints, count: int, before: int, after: int) -> list[int]:
    """Return the first `count` of an ordered list, where a hit already shown beside a better one takes no place.

    Args:
        view: The visible messages.
        ordered: Positions, best first.
        count: How many hits.
        before: How many messages are shown before a hit.
        after: And after it.

    Returns:
        Positions of the hits, best first.
    """
    hits: list[int] = []
    for place in ordered.tolist():
        if len(hits) == count:
            break
        shown = any(
            -before <= place - hit <= after and view.thread[place] == view.thread[hit] for hit in hits if place != hit
        )
        if not shown:
            hits.append(place)
    return hits
