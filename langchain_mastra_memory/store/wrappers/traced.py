"""A store that tells how long each operation took and how it ended."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from langchain_mastra_memory.store.base import MemoryStore, Operation
from langchain_mastra_memory.store.wrappers.base import Inner, StoreWrapper

T = TypeVar("T")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Trace:
    """One operation that has ended.

    Attributes:
        operation: What was run. It holds the user's data: log its type, not its value.
        seconds: How long the caller waited.
        error: What it raised; None when it succeeded.
    """

    operation: Operation[Any]
    seconds: float
    error: BaseException | None = None

    def __str__(self) -> str:
        """Return one line without any of the user's data."""
        end = "ok" if self.error is None else type(self.error).__name__
        return f"{self.operation.group}.{type(self.operation).__name__} {self.seconds * 1000:.1f} ms {end}"


def log_trace(trace: Trace) -> None:
    """Log a trace at DEBUG, or at WARNING when the operation failed."""
    logger.log(logging.DEBUG if trace.error is None else logging.WARNING, "%s", trace)


class TracedStore(StoreWrapper):
    """Calls back after each operation; by default it logs one line without the user's data.

    Args:
        store: The store to wrap.
        callback: Called with a `Trace`, in the thread or the task of the caller. What it raises reaches the caller.

    Example:
        >>> from langchain_mastra_memory.store.operations.threads import GetThread
        >>> from langchain_mastra_memory import SQLMemoryStore
        >>> seen = []
        >>> with TracedStore(SQLMemoryStore("memory://"), lambda trace: seen.append(type(trace.operation))) as store:
        ...     store.run(GetThread(thread_id="t1"))
        >>> seen
        [<class 'langchain_mastra_memory.store.operations.threads.GetThread'>]
    """

    def __init__(self, store: MemoryStore, callback: Callable[[Trace], None] = log_trace) -> None:
        super().__init__(store)
        self._callback = callback

    async def around(self, operation: Operation[T], inner: Inner) -> T:
        """Time the operation."""
        start = time.perf_counter()
        try:
            result: T = await inner(operation)
        except BaseException as error:
            self._callback(Trace(operation, time.perf_counter() - start, error))
            raise
        self._callback(Trace(operation, time.perf_counter() - start))
        return result
