"""What a fork leaves behind: in the child only the forking thread is there, and nobody else gives a lock back.

Servers that load the application before they fork (`gunicorn --preload`) make their `Memory` in the parent. A lock that
another thread held at that moment would be held for ever in the child, and work under way would never end.
"""

from __future__ import annotations

import os
import threading
from typing import Final, Protocol
from weakref import WeakSet, WeakValueDictionary


class OfAProcess(Protocol):
    """Something that must forget what belongs to the process that it was made in."""

    def forget_parent(self) -> None:
        """Forget the threads, tasks and connections of the parent: they are not here, or not ours to use."""
        ...


_LOCKS: Final[WeakSet[threading.Lock]] = WeakSet()
_OWNERS: Final[WeakValueDictionary[int, OfAProcess]] = WeakValueDictionary()


def new_lock() -> threading.Lock:
    """Return a lock that nobody holds in a forked process."""
    lock = threading.Lock()
    _LOCKS.add(lock)
    return lock


def watch(owner: OfAProcess) -> None:
    """Have an object forget its parent's work in each process that is forked."""
    _OWNERS[id(owner)] = owner


def _leave_to_parent() -> None:
    for lock in list(_LOCKS):
        if lock.locked():
            lock.release()
    for owner in list(_OWNERS.values()):
        owner.forget_parent()


if hasattr(os, "register_at_fork"):  # not on Windows, which cannot fork
    os.register_at_fork(after_in_child=_leave_to_parent)
