"""What every store wrapper shares: one body around each operation, for sync and async."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, TypeVar

from langchain_mastra_memory.io import drive
from langchain_mastra_memory.store.base import ContextManaged, Group, MemoryStore, Operation

T = TypeVar("T")

Inner: TypeAlias = Callable[[Operation[Any]], Awaitable[Any]]
"""Runs an operation on the wrapped store."""


class StoreWrapper(ContextManaged):
    """A store that passes everything to another one; a subclass overrides `around`.

    Wrappers can be put around each other. Closing the outer store closes the inner one.

    Args:
        store: The store to wrap.

    Example:
        A wrapper that counts::

            class CountedStore(StoreWrapper):
                count = 0

                async def around(self, operation, inner):
                    self.count += 1
                    return await inner(operation)
    """

    def __init__(self, store: MemoryStore) -> None:
        self.inner = store

    async def around(self, operation: Operation[T], inner: Inner) -> T:
        """Run one operation: change it, or its result, or refuse it.

        Args:
            operation: What was asked for.
            inner: Runs an operation on the wrapped store. It must be the only thing that is awaited.
        """
        result: T = await inner(operation)
        return result

    @property
    def capabilities(self) -> frozenset[Group]:
        """The groups of operations that the wrapped store can run."""
        return self.inner.capabilities

    def run(self, operation: Operation[T]) -> T:
        """Run one unit of work and return its result."""

        async def inner(changed: Operation[Any]) -> Any:
            return self.inner.run(changed)

        return drive(self.around(operation, inner))

    async def arun(self, operation: Operation[T]) -> T:
        """Run one unit of work without blocking the event loop."""
        return await self.around(operation, self.inner.arun)

    def close(self) -> None:
        """Close the wrapped store."""
        self.inner.close()

    async def aclose(self) -> None:
        """Close the wrapped store without blocking the event loop."""
        await self.inner.aclose()
