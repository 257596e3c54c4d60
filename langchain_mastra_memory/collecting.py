"""The garbage collector, put off while many objects are made that stay: it would look at all of them several times."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collecting_later() -> Iterator[None]:
    """Put the collector off until the end of the block, unless it is off already.

    Rows and messages have no cycles, and tens of thousands of them start passes of 0.1 s each.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
