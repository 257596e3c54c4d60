"""The store protocol: a store runs operations, and an operation is one unit of work as plain data.

An operation is planned by the pure core, run by a store, and never seen half done: one operation is one
transaction. That keeps the protocol small (`run` and `arun`), makes a wrapper one method long, and lets a test check a
plan without a database.
"""

from __future__ import annotations

from types import TracebackType
from typing import ClassVar, Generic, Literal, Protocol, Self, TypeVar, runtime_checkable

T = TypeVar("T")

Group = Literal["threads", "messages", "resources", "pages", "log", "checkpoints", "index"]
"""What an operation is about. A store declares the groups that it can do as its capabilities."""


class Operation(Generic[T]):
    """One unit of work, one transaction; its type parameter is what it returns.

    Subclasses are frozen dataclasses in `langchain_mastra_memory.store.operations`. Running one twice in a row must
    be safe where its docstring says so; a store may run it again by itself only when nothing of it was committed.

    Attributes:
        group: What it is about.
        writes: Whether it may change anything. A read sees one moment of the database.
    """

    __slots__ = ()
    group: ClassVar[Group]
    writes: ClassVar[bool] = True


@runtime_checkable
class MemoryStore(Protocol):
    """Where memory is kept. The operations are listed in `langchain_mastra_memory.store.operations`.

    A store is safe to use from any thread, from any event loop, and beside other processes on the same database.
    `run` and `arun` do the same work; `arun` never blocks the event loop. What an error of `errors.StoreError` reports
    was not written. An `arun` that was cancelled may still commit.
    """

    @property
    def capabilities(self) -> frozenset[Group]:
        """The groups of operations that this store can run."""
        ...

    def run(self, operation: Operation[T]) -> T:
        """Run one unit of work and return its result.

        Raises:
            StoreError: The database refused; nothing of the operation was written.
            MastraMemoryError: The operation's own errors, such as `ThreadNotFoundError`.
        """
        ...

    async def arun(self, operation: Operation[T]) -> T:
        """Run one unit of work without blocking the event loop."""
        ...

    def close(self) -> None:
        """Wait for the writes under way and release the database; closing twice is safe."""
        ...

    async def aclose(self) -> None:
        """Close without blocking the event loop."""
        ...


class Unpicklable:
    """Says why a live object cannot be pickled, and what to do; a shallow copy shares everything, and can be made."""

    def __copy__(self) -> Self:
        copied = object.__new__(type(self))
        copied.__dict__.update(self.__dict__)
        return copied

    def __getstate__(self) -> object:
        name = type(self).__name__
        raise TypeError(
            f"cannot pickle a {name} (nor deepcopy it): it has locks, threads and an open database. Make it in the "
            f"process that uses it: send the database's URL there, and call {name}(...) where the work begins"
        )


class ContextManaged:
    """Gives a store or a memory `with` and `async with`: leaving closes it."""

    def close(self) -> None:
        """Release what is held."""
        raise NotImplementedError

    async def aclose(self) -> None:
        """Release what is held, without blocking the event loop."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
