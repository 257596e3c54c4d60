"""A cache that forgets what was used longest ago, by bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from langchain_mastra_memory.forking import new_lock, watch

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class LRU(Generic[K, V]):
    """Keeps values up to a number of bytes. Safe to use from any thread.

    Args:
        limit: Bytes in all. A value that is larger alone is not kept.
        size: Returns the bytes of a value.

    Example:
        >>> cache = LRU(10, len)
        >>> for name in ("abcd", "efgh"):
        ...     cache.put(name, name)
        >>> cache.get("abcd"), cache.put("ijkl", "ijkl"), cache.get("efgh")
        ('abcd', None, None)
    """

    def __init__(self, limit: float, size: Callable[[V], int]) -> None:
        self.limit = limit
        self._size = size
        self._lock = new_lock()
        self._values: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._bytes = 0
        watch(self)

    def forget_parent(self) -> None:
        """Begin anew in a forked process: a value may have been growing at that moment."""
        self.clear()

    def __len__(self) -> int:
        return len(self._values)

    @property
    def nbytes(self) -> int:
        """The bytes that are kept."""
        return self._bytes

    def get(self, key: K) -> V | None:
        """Return a value and note its use; None when it is not there."""
        with self._lock:
            found = self._values.get(key)
            if found is None:
                return None
            self._values.move_to_end(key)
            return found[0]

    def put(self, key: K, value: V) -> None:
        """Keep a value, measured now, and forget what no longer fits; a value that grew is put again."""
        size = self._size(value)
        with self._lock:
            old = self._values.pop(key, None)
            self._bytes -= old[1] if old is not None else 0
            if size > self.limit:
                return
            self._values[key] = (value, size)
            self._bytes += size
            while self._bytes > self.limit:
                _, (_, gone) = self._values.popitem(last=False)
                self._bytes -= gone

    def drop(self, key: K) -> None:
        """Forget a value."""
        with self._lock:
            old = self._values.pop(key, None)
            self._bytes -= old[1] if old is not None else 0

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._values.clear()
            self._bytes = 0
