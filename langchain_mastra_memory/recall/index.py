"""The index of one scope in memory: terms, lengths, places and vectors of its messages, as arrays.

A scope is a thread or all threads of a resource. The index is made of rows that the store gives, grows by new rows,
and drops and reloads a thread whose messages were edited. Nothing derived is stored: which rows are visible on a
thread's branch is a mask, and the statistics of the ranking are those of the visible rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from operator import le
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from langchain_mastra_memory.recall.options import Weights
from langchain_mastra_memory.recall.ranking import Doubles, Ints, Match, Small, View
from langchain_mastra_memory.recall.terms import COUNT_MASK, HASH_MASK
from langchain_mastra_memory.recall.vectors import Floats, QueryVector, scales_of, unpack
from langchain_mastra_memory.store.operations.index import TextEntry, VectorEntry

_MERGE_SHARE: Final = 8  # the tail is merged when it is more than an eighth of the index
_BLOCKS: Final = 16
_VIEW_BYTES: Final = 66  # of a message in a view with what is computed from it
_FEW: Final = 100  # rows of a save that are looked at one by one
_DEAD_SHARE: Final = 3  # dropped rows are swept when they are more than a third


class TextRow(NamedTuple):
    """A message's entry, as the store gives it; a term blob is `Tokenizer.document`'s."""

    id: int
    thread: int
    seq: int
    branch: int
    terms: bytes


class VectorRow(NamedTuple):
    """A chunk's vector, as the store gives it; `text` is the id of the message's entry."""

    id: int
    thread: int
    text: int
    v: bytes


Path = tuple[tuple[int, int], ...]
"""What is visible of a thread: `((branch, last seq seen), ...)`, its own branch and the ancestors."""


@dataclass(slots=True)
class _Postings:
    """Terms with their counts, sorted, and the row of each."""

    terms: npt.NDArray[np.uint32] = field(default_factory=lambda: np.empty(0, dtype=np.uint32))
    rows: npt.NDArray[np.int32] = field(default_factory=lambda: np.empty(0, dtype=np.int32))

    @classmethod
    def of(cls, terms: npt.NDArray[np.uint32], rows: npt.NDArray[np.int32]) -> _Postings:
        # One array of both sorts several times faster than an index of one and two gathers.
        both = terms.astype(np.uint64) << np.uint64(32) | rows.astype(np.uint64)
        both.sort()
        return cls((both >> np.uint64(32)).astype(np.uint32), (both & np.uint64(0xFFFFFFFF)).astype(np.int32))

    def find(self, terms: npt.NDArray[np.uint32]) -> list[tuple[npt.NDArray[np.int32], npt.NDArray[np.uint32]]]:
        """Return for each term the rows that have it, and how often."""
        lows = np.searchsorted(self.terms, terms, side="left").tolist()
        highs = np.searchsorted(self.terms, terms | np.uint32(COUNT_MASK), side="right").tolist()
        return [
            (self.rows[low:high], self.terms[low:high] & np.uint32(COUNT_MASK))
            for low, high in zip(lows, highs, strict=True)
        ]

    @property
    def nbytes(self) -> int:
        return self.terms.nbytes + self.rows.nbytes


def split_blobs(blobs: Sequence[bytes]) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the terms of many blobs in one array, how many each has, and their lengths in terms."""
    flat = np.frombuffer(b"".join(blobs), dtype="<u4").astype(np.uint32, copy=False)
    sizes = np.fromiter((len(blob) // 4 for blob in blobs), dtype=np.int64, count=len(blobs))
    starts = np.cumsum(sizes) - sizes
    lengths = flat[starts].astype(np.int64)
    keep = np.ones(len(flat), dtype=np.bool_)
    keep[starts] = False
    return flat[keep], sizes - 1, lengths


class ScopeIndex:
    """The index of one scope. Not safe to change from two threads at once; its owner locks it.

    Args:
        weights: The formula's numbers.
    """

    def __init__(self, weights: Weights | None = None) -> None:
        self.weights = weights or Weights()
        self._ids: Ints = np.empty(0, dtype=np.int64)
        # Threads are numbered as they come: small numbers fit into a sort key, and take half the memory of keys.
        self._numbers: dict[int, int] = {}
        self._keys: Ints = np.empty(0, dtype=np.int64)
        self._number: Small = np.empty(0, dtype=np.int32)
        self._seq: Small = np.empty(0, dtype=np.int32)
        self._branch: Small = np.empty(0, dtype=np.int32)
        self._length: Small = np.empty(0, dtype=np.int32)
        self._alive: npt.NDArray[np.bool_] = np.empty(0, dtype=np.bool_)
        # Whether all live rows came by thread, seq and branch, as those of one thread do; False: not known.
        self._is_sorted, self._last = True, (-1, -1, -1)
        self._base = _Postings()
        self._tail = _Postings()
        self._matrix: list[Floats] = []
        self._scales: Doubles = np.empty(0)
        self._vector_row: Small = np.empty(0, dtype=np.int32)
        self._paths: dict[int, Path] = {}
        self._view: View | None = None

    def __len__(self) -> int:
        return int(self._alive.sum())

    @property
    def nbytes(self) -> int:
        """The memory that it takes, in bytes."""
        arrays = (self._ids, self._number, self._seq, self._branch, self._length, self._scales, self._vector_row)
        view = 0 if self._view is None else _VIEW_BYTES * len(self._view)
        postings = self._base.nbytes + self._tail.nbytes
        return sum(a.nbytes for a in arrays) + postings + sum(m.nbytes for m in self._matrix) + view

    @property
    def threads(self) -> frozenset[int]:
        """The keys of the threads that it holds."""
        return frozenset(self._paths)

    def place(self, thread: int, path: Path) -> None:
        """Set where a thread stands."""
        if self._paths.get(thread) != path:
            self._paths[thread] = path
            self._view = None

    def add(self, rows: Sequence[TextEntry], *, only: Sequence[int] | None = None) -> None:
        """Add messages.

        Args:
            rows: The messages; none of them is there.
            only: Keep only these terms: for a scope that is too large to keep, read for one query.
        """
        if not rows:
            return
        start = len(self._ids)
        ids, thread, seq, branch, blobs = zip(*rows, strict=True)
        terms, sizes, lengths = split_blobs(blobs)
        owners = np.repeat(np.arange(start, start + len(rows), dtype=np.int32), sizes)
        if only is not None:
            wanted = np.isin(terms & np.uint32(HASH_MASK), np.asarray(only, dtype=np.uint32))
            terms, owners = terms[wanted], owners[wanted]
        self._ids = np.append(self._ids, np.array(ids, dtype=np.int64))
        self._seq = np.append(self._seq, np.array(seq, dtype=np.int32))
        self._branch = np.append(self._branch, np.array(branch, dtype=np.int32))
        for key in dict.fromkeys(thread):
            self._numbers.setdefault(key, len(self._numbers))
        if len(self._numbers) != len(self._keys):
            self._keys = np.fromiter(self._numbers, np.int64, len(self._numbers))
        numbers = np.fromiter(map(self._numbers.__getitem__, thread), np.int32, len(rows))
        keys = list(zip(numbers[:_FEW].tolist(), seq, branch, strict=False))
        self._is_sorted = self._is_sorted and len(rows) <= _FEW and all(map(le, [self._last, *keys], keys))
        self._last = int(numbers[-1]), seq[-1], branch[-1]
        self._number = np.append(self._number, numbers)
        self._length = np.append(self._length, lengths.astype(np.int32))
        self._alive = np.append(self._alive, np.ones(len(rows), dtype=np.bool_))
        tail = np.append(self._tail.terms, terms), np.append(self._tail.rows, owners)
        if len(tail[0]) * _MERGE_SHARE > len(self._base.terms):
            merged = np.append(self._base.terms, tail[0]), np.append(self._base.rows, tail[1])
            self._base, self._tail = _Postings.of(*merged), _Postings()
        else:
            self._tail = _Postings.of(*tail)
        self._view = None

    def add_vectors(self, rows: Sequence[VectorEntry]) -> None:
        """Add vectors of messages that are there; others are left out."""
        if not rows:
            return
        where = self._rows_of(np.fromiter((row[2] for row in rows), np.int64, len(rows)))
        keep = np.flatnonzero(where >= 0)
        if not len(keep):
            return
        dimension = len(rows[0][3])
        if self._matrix and self._matrix[0].shape[1] != dimension:
            self.drop_vectors()
        block = unpack([rows[i][3] for i in keep.tolist()], dimension)
        self._matrix.append(block)
        self._scales = np.append(self._scales, scales_of(block))
        self._vector_row = np.append(self._vector_row, where[keep].astype(np.int32))
        if len(self._matrix) > _BLOCKS:  # a save adds a small block; many of them cost a product each
            first, *small = self._matrix
            added = np.concatenate(small)
            merge = len(added) * _MERGE_SHARE > len(first)
            self._matrix = [np.concatenate((first, added))] if merge else [first, added]

    def drop_vectors(self) -> None:
        """Forget the vectors."""
        self._matrix, self._scales = [], np.empty(0)
        self._vector_row = np.empty(0, dtype=np.int32)

    def drop_thread(self, thread: int) -> None:
        """Forget a thread and everything of it."""
        self._paths.pop(thread, None)
        self._alive &= self._number != self._numbers.get(thread, -1)
        self._view = None
        if (len(self._alive) - len(self)) * _DEAD_SHARE > len(self._alive):
            self._sweep()

    def _sweep(self) -> None:
        """Drop the dead rows from the arrays."""
        new = np.cumsum(self._alive) - 1
        for name in ("_ids", "_number", "_seq", "_branch", "_length"):
            setattr(self, name, getattr(self, name)[self._alive])
        for name in ("_base", "_tail"):
            postings: _Postings = getattr(self, name)
            keep = self._alive[postings.rows]
            setattr(self, name, _Postings(postings.terms[keep], new[postings.rows[keep]].astype(np.int32)))
        if self._matrix:
            keep = self._alive[self._vector_row]
            self._matrix = [np.concatenate(self._matrix)[keep]]
            self._scales = self._scales[keep]
            self._vector_row = new[self._vector_row[keep]].astype(np.int32)
        self._alive = np.ones(len(self._ids), dtype=np.bool_)

    def _rows_of(self, ids: Ints) -> Ints:
        """Return the live row of each id, -1 for an id that is not there."""
        live = np.flatnonzero(self._alive)  # a thread that was reloaded has its ids twice, dead and alive
        if not len(live):
            return np.full(len(ids), -1, dtype=np.int64)
        live = live[np.argsort(self._ids[live], kind="stable")]
        found = live[np.minimum(np.searchsorted(self._ids[live], ids), len(live) - 1)]
        return np.where(self._ids[found] == ids, found, -1)

    def view(self, paths: Mapping[int, Path] | None = None, threads: Iterable[int] | None = None) -> View:
        """Return the visible messages.

        Args:
            paths: Other positions than the present ones, by thread key (a fork, an old checkpoint).
            threads: Only these threads; None means all.
        """
        if paths is None and threads is None:
            if self._view is None:
                self._view = self._make_view(self._paths)
            return self._view
        wanted = self._paths | dict(paths or {})
        if threads is not None:
            chosen = set(threads)
            wanted = {key: path for key, path in wanted.items() if key in chosen}
        return self._make_view(wanted)

    def _make_view(self, paths: Mapping[int, Path]) -> View:
        rows = self._in_order(np.flatnonzero(self._alive))
        thread, seq, branch = self._number[rows], self._seq[rows], self._branch[rows]
        edges = np.flatnonzero(np.diff(thread)) + 1
        visible = np.zeros(len(rows), dtype=np.bool_)
        for start, end in pairwise([0, *edges.tolist(), len(rows)]):
            if start < end and (path := paths.get(int(self._keys[thread[start]]))):
                visible[start:end] = _visible(seq[start:end], branch[start:end], path)
        if not visible.all():
            rows, thread, seq, branch = rows[visible], thread[visible], seq[visible], branch[visible]
        number = np.zeros(len(rows), dtype=np.int64)
        if len(edges):
            np.cumsum(np.diff(thread) != 0, out=number[1:])
        first = np.flatnonzero(np.diff(number, prepend=-1)) if len(edges) else np.arange(min(len(rows), 1))
        return View(
            rows=rows,
            keys=self._keys[thread[first]],
            seq=seq,
            branch=branch,
            thread=number,
            length=self._length[rows].astype(np.float64),
            age=self._ids[rows],
            weights=self.weights,
        )

    def _in_order(self, rows: Ints) -> Ints:
        """Return rows by thread, seq and branch."""
        if self._is_sorted:  # a thread that only grew
            return rows
        number, seq, branch = (column[rows].astype(np.int64) for column in (self._number, self._seq, self._branch))
        if len(rows) and (number.max() >= 1 << 20 or seq.max() >= 1 << 31 or branch.max() >= 1 << 12):
            return rows[np.lexsort((branch, seq, number))]
        key = number << 43 | seq << 12 | branch
        self._is_sorted = bool((key[:-1] <= key[1:]).all())
        return rows if self._is_sorted else rows[np.argsort(key)]

    def matches(self, view: View, terms: Sequence[int]) -> list[Match]:
        """Return where each term of a query occurs in a view."""
        is_whole = len(view) == len(self._ids)
        places: Ints | None = None  # where each row stands in the view
        if not (is_whole and self._is_sorted):  # else where it stands in the index
            places = np.full(len(self._ids), -1, dtype=np.int64)
            places[view.rows] = np.arange(len(view))
        hashes = np.asarray(terms, dtype=np.int64).astype(np.uint32) & np.uint32(HASH_MASK)
        found = []
        for base, tail in zip(self._base.find(hashes), self._tail.find(hashes), strict=True):
            rows, counts = (np.append(base[0], tail[0]), np.append(base[1], tail[1])) if len(tail[0]) else base
            at = rows.astype(np.int64) if places is None else places[rows]
            if not is_whole:
                seen = at >= 0
                at, counts = at[seen], counts[seen]
            found.append(Match(at, counts.astype(np.float64)))
        return found

    def cosines(self, view: View, query: QueryVector) -> Doubles | None:
        """Return the best cosine of each message of a view, NaN without a vector; None when no message has one."""
        if not self._matrix:
            return None
        chunks = np.concatenate([query.cosines(block, scales) for block, scales in self._blocks()])
        by_row = np.full(len(self._ids), -np.inf)
        np.maximum.at(by_row, self._vector_row, chunks)
        by_row[np.isneginf(by_row)] = np.nan
        found = by_row[view.rows]
        return None if np.isnan(found).all() else found

    def _blocks(self) -> Iterable[tuple[Floats, Doubles]]:
        start = 0
        for block in self._matrix:
            yield block, self._scales[start : start + len(block)]
            start += len(block)

    @property
    def dimension(self) -> int | None:
        """The length of its vectors; None when it has none."""
        return self._matrix[0].shape[1] if self._matrix else None

    def candidates(self, view: View, found: Mapping[int, float], *, complete: bool) -> Doubles | None:
        """Return cosines of a view from the candidates of an outside index, NaN for a message without any.

        Args:
            view: The visible messages.
            found: Text id to cosine. Ids that are not in the view are left out: deleted, foreign or another branch's.
            complete: Whether these are all that there are. Otherwise the others count with the last one's cosine.
        """
        if not found or not len(view):
            return None
        cosines = np.full(len(view), np.nan if complete else min(found.values()))
        order = np.argsort(view.age, kind="stable")
        ids = np.fromiter(found, np.int64, len(found))
        places = order[np.minimum(np.searchsorted(view.age, ids, sorter=order), len(view) - 1)]
        known = view.age[places] == ids
        cosines[places[known]] = np.fromiter(found.values(), np.float64, len(found))[known]
        return None if np.isnan(cosines).all() else cosines


def _visible(seq: Small, branch: Small, path: Path) -> npt.NDArray[np.bool_]:
    """Return which rows of a thread, sorted by (seq, branch), a path sees."""
    seen = np.zeros(len(seq), dtype=np.bool_)
    for number, cut in path:
        seen |= (branch == number) & (seq <= cut)
    if (seq[1:] == seq[:-1]).any():
        # The highest branch wins a seq: of equal neighbours among the seen rows, the last.
        kept = np.flatnonzero(seen)
        last = np.ones(len(kept), dtype=np.bool_)
        last[:-1] = seq[kept][1:] != seq[kept][:-1]
        seen = np.zeros(len(seq), dtype=np.bool_)
        seen[kept[last]] = True
    return seen
