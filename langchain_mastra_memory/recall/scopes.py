"""Cached indexes of scopes: each is checked against the counters of its threads at every query.

A query reads what is new in one transaction and applies it; two at once never apply the same rows twice.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from langchain_mastra_memory.recall.cache import LRU
from langchain_mastra_memory.recall.index import ScopeIndex
from langchain_mastra_memory.recall.options import Weights
from langchain_mastra_memory.store.operations.index import ScopeRead, Seen


@dataclass(slots=True)
class Scope:
    """A scope's index and what it has seen.

    Attributes:
        index: The arrays.
        seen: By thread key: how far the index has come.
        version: Counts changes, so that a read made for an older state is not applied.
        growth: By how many messages stretches around hits had to grow to have whole tool pairs, at most a few.
        lock: Held while the arrays change or are scored.
    """

    index: ScopeIndex
    seen: dict[int, Seen] = field(default_factory=dict)
    version: int = 0
    growth: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def known(self) -> tuple[int, Mapping[int, Seen]]:
        """Return the version and what was seen."""
        with self.lock:
            return self.version, dict(self.seen)

    def apply(self, read: ScopeRead) -> None:
        """Bring the index up to date; the caller holds the lock and read for this version."""
        if read.dropped or read.texts or read.vectors:
            self.version += 1
        for key in read.dropped:
            self.index.drop_thread(key)
            self.seen.pop(key, None)
        self.index.add(read.texts)
        self.index.add_vectors(read.vectors)
        last_seq: dict[int, int] = {}
        for _, thread, seq, _, _ in read.texts:
            if seq > last_seq.get(thread, -1):
                last_seq[thread] = seq
        last_vector: dict[int, int] = {}
        for key, thread, _, _ in read.vectors:
            if key > last_vector.get(thread, -1):
                last_vector[thread] = key
        for state in read.threads:
            before = self.seen.get(state.key)
            self.seen[state.key] = Seen(
                state.texts,
                state.edits,
                last_seq.get(state.key, before.seq if before else -1),
                last_vector.get(state.key, before.vector if before else -1),
            )
            self.index.place(state.key, state.path)


class Scopes:
    """The cached scopes of a memory, by bytes.

    Args:
        limit: Bytes in all.
        weights: The ranking formula's numbers.
    """

    def __init__(self, limit: float, weights: Weights) -> None:
        self.limit = limit
        self._weights = weights
        self._cache: LRU[Hashable, Scope] = LRU(limit, lambda scope: scope.index.nbytes + 200 * len(scope.seen) + 1000)

    def get(self, key: Hashable) -> Scope:
        """Return a scope's index, an empty one if it is not cached."""
        return self._cache.get(key) or Scope(ScopeIndex(self._weights))

    def __contains__(self, key: Hashable) -> bool:
        return self._cache.get(key) is not None

    def keep(self, key: Hashable, scope: Scope) -> None:
        """Keep a scope's index, as large as it is now."""
        self._cache.put(key, scope)

    def clear(self) -> None:
        """Forget every scope."""
        self._cache.clear()

    @property
    def nbytes(self) -> int:
        """The bytes that the cached scopes take."""
        return self._cache.nbytes
