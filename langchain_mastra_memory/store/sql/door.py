"""Who is inside a backend: closing waits until everybody has left, and nobody comes in afterwards."""

from __future__ import annotations

import threading

from langchain_mastra_memory.errors import StoreClosedError


class Door:
    """A context manager around each piece of work; `close` waits for those under way.

    Attributes:
        closed: Whether nobody may come in any more.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._left = threading.Condition(self._lock)
        self._inside = 0
        self.closed = False

    def __enter__(self) -> None:
        with self._lock:
            if self.closed:
                raise StoreClosedError
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self.closed and not self._inside:
                self._left.notify_all()

    def close(self) -> None:
        """Let nobody in any more, and return when the last one has left."""
        with self._lock:
            self.closed = True
            self._left.wait_for(lambda: not self._inside)
