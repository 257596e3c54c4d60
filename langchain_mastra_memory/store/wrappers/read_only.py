"""A store that refuses to write."""

from __future__ import annotations

from typing import TypeVar

from langchain_mastra_memory.errors import StoreReadOnlyError
from langchain_mastra_memory.store.base import Operation
from langchain_mastra_memory.store.wrappers.base import Inner, StoreWrapper

T = TypeVar("T")


class ReadOnlyStore(StoreWrapper):
    """Runs operations that only read; any other raises `StoreReadOnlyError` and touches nothing.

    For a second look at the memory of a running agent: dashboards, evaluations, notebooks. The wrapped store still
    opens the database as it always does; to refuse changes of the schema too, give it a database user without the
    right to write.

    Example:
        >>> from langchain_mastra_memory import SQLMemoryStore
        >>> with ReadOnlyStore(SQLMemoryStore("memory://")) as store:
        ...     sorted(store.capabilities) == sorted(store.inner.capabilities)
        True
    """

    async def around(self, operation: Operation[T], inner: Inner) -> T:
        """Pass reads on."""
        if operation.writes:
            raise StoreReadOnlyError(
                f"{type(operation).__name__} would write, and this store is a ReadOnlyStore; use the store it wraps"
            )
        result: T = await inner(operation)
        return result
