"""What a conformance case works with: one store, reached through `run` or through `arun`."""

from __future__ import annotations

import asyncio
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from langchain_mastra_memory.shown import shown
from langchain_mastra_memory.store.base import MemoryStore, Operation

T = TypeVar("T")
E = TypeVar("E", bound=BaseException)


class Session:
    """Runs the operations of one case, each through `run` or each through `arun`.

    Cases share a store: they take their ids from `new` and look at nothing else.

    Attributes:
        store: The store under test.
        is_async: Whether operations go through `arun`.
    """

    def __init__(self, store: MemoryStore, *, is_async: bool) -> None:
        self.store = store
        self.is_async = is_async

    async def run(self, operation: Operation[T]) -> T:
        """Run one operation."""
        return await self.store.arun(operation) if self.is_async else self.store.run(operation)

    async def together(self, *operations: Operation[T]) -> list[T | BaseException]:
        """Run operations at the same time, from threads or tasks; a failure is returned in its place."""
        if self.is_async:
            return await asyncio.gather(*map(self.store.arun, operations), return_exceptions=True)
        with ThreadPoolExecutor(min(len(operations), 16)) as pool:
            futures = [pool.submit(self.store.run, operation) for operation in operations]
            return [future.exception() or future.result() for future in futures]

    async def refused(self, error: type[E], operation: Operation[Any]) -> E:
        """Run an operation that must raise `error`, and return what it raised."""
        try:
            result = await self.run(operation)
        except error as caught:
            refusal = caught
        else:
            raise AssertionError(
                f"{type(operation).__name__} must raise {error.__name__}, not return {shown(result, 200)}"
            )
        assert str(refusal), f"{error.__name__} without a message"
        return refusal

    @staticmethod
    def new(prefix: str = "id") -> str:
        """Return an id that no other case uses."""
        return f"{prefix}-{uuid.uuid4()}"
