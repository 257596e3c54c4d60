"""One body for sync and async: code is written as a coroutine over an `IO` and driven either way.

`SyncIO` does its work at once and never suspends, so `drive` runs the coroutine to its end in one step, with no event
loop. `AsyncIO` awaits for real. `both` makes a facade method of such a body; its `twin` is the async method.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import time
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, overload

from langchain_mastra_memory.store.base import MemoryStore, Operation

if TYPE_CHECKING:
    from langchain_core.runnables import Runnable, RunnableConfig

T = TypeVar("T")
In = TypeVar("In")
Out = TypeVar("Out")
P = ParamSpec("P")


class IO(Protocol):
    """What a body may wait for."""

    is_async: bool

    async def run(self, operation: Operation[T]) -> T:
        """Run a unit of work of the store."""
        ...

    async def invoke(self, runnable: Runnable[In, Out], value: In, config: RunnableConfig | None = None) -> Out:
        """Invoke a Runnable (a model, a retriever, a pipeline)."""
        ...

    async def call(
        self, sync: Callable[P, T], asynchronous: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call the sync or the async one of a pair."""
        ...

    async def thread(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function that may block: here when sync, in the pipelines' executor when async."""
        ...


class SyncIO:
    """Does everything at once, in the calling thread."""

    is_async = False

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    async def run(self, operation: Operation[T]) -> T:
        """Run a unit of work here."""
        return self._store.run(operation)

    async def invoke(self, runnable: Runnable[In, Out], value: In, config: RunnableConfig | None = None) -> Out:
        """Invoke the runnable here."""
        return runnable.invoke(value, config)

    async def call(
        self,
        sync: Callable[P, T],
        asynchronous: Callable[P, Awaitable[T]],  # noqa: ARG002 - the other half of the pair
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Call the sync one."""
        return sync(*args, **kwargs)

    async def thread(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call the function here."""
        return function(*args, **kwargs)


class AsyncIO:
    """Awaits everything; nothing blocks the event loop."""

    is_async = True

    def __init__(self, store: MemoryStore, executor: Callable[[], Executor]) -> None:
        self._store = store
        self._executor = executor

    async def run(self, operation: Operation[T]) -> T:
        """Hand a unit of work to the store."""
        return await self._store.arun(operation)

    async def invoke(self, runnable: Runnable[In, Out], value: In, config: RunnableConfig | None = None) -> Out:
        """Await the runnable."""
        return await runnable.ainvoke(value, config)

    async def call(
        self,
        sync: Callable[P, T],  # noqa: ARG002 - the other half of the pair
        asynchronous: Callable[P, Awaitable[T]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Await the async one."""
        return await asynchronous(*args, **kwargs)

    async def thread(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call the function in the pipelines' executor, with this context's variables."""
        work = functools.partial(contextvars.copy_context().run, function, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._executor(), work)


def let_others_run() -> None:
    """Let go of the interpreter for a moment: long work in C keeps every other thread from it."""
    time.sleep(0)


def drive(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine over a `SyncIO` to its end.

    Raises:
        RuntimeError: The coroutine suspended: something in it waits for a real event loop.
    """
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    coroutine.close()
    raise RuntimeError("a body that is driven without an event loop must not wait for one")


class HasIO(Protocol):
    """What owns bodies: it gives them their `IO`."""

    def io(self, *, is_async: bool) -> IO:
        """Return the IO to drive a body with."""
        ...


S = TypeVar("S", bound=HasIO)
Body = Callable[Concatenate[S, IO, P], Coroutine[Any, Any, T]]


class _Face(Generic[S, P, T]):
    """What the two faces of a body share: the signature that callers see, without `io`."""

    def __init__(self, body: Body[S, P, T]) -> None:
        self.body = body
        self.__doc__ = body.__doc__
        self.__name__ = body.__name__

    def __set_name__(self, owner: type, name: str) -> None:
        self.__name__ = name

    def __call__(self, instance: S, /, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Call it as a function of the class, `Memory.recall(memory, ...)`; so `help` knows that it has a signature."""
        return getattr(instance, self.__name__)(*args, **kwargs)

    @functools.cached_property
    def __signature__(self) -> inspect.Signature:
        signature = inspect.signature(self.body)
        own, _, *others = signature.parameters.values()
        return signature.replace(parameters=[own, *others])

    @functools.cached_property
    def _bound_signature(self) -> inspect.Signature:
        return self.__signature__.replace(parameters=list(self.__signature__.parameters.values())[1:])

    def dress(self, function: Callable[..., Any]) -> None:
        """Give a bound function the name, docstring and signature of its body."""
        function.__name__ = self.__name__
        function.__qualname__ = f"{self.body.__qualname__.rpartition('.')[0]}.{self.__name__}"
        function.__doc__ = self.__doc__
        function.__module__ = self.body.__module__
        function.__signature__ = self._bound_signature  # type: ignore[attr-defined]  # functions take attributes


class AsyncTwin(_Face[S, P, T]):
    """The async face of a body."""

    @overload
    def __get__(self, instance: None, owner: type) -> AsyncTwin[S, P, T]: ...
    @overload
    def __get__(self, instance: S, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, instance: S | None, owner: type) -> AsyncTwin[S, P, T] | Callable[P, Coroutine[Any, Any, T]]:
        """Bind to an instance."""
        if instance is None:
            return self
        bound, body = instance, self.body

        async def method(*args: P.args, **kwargs: P.kwargs) -> T:
            return await body(bound, bound.io(is_async=True), *args, **kwargs)

        self.dress(method)
        return method


class both(_Face[S, P, T]):  # noqa: N801 - reads as a decorator
    """Make a sync method of a body `async def method(self, io, ...)`; `.twin` is the async one.

    Example:
        ```python
        class Methods:
            @both
            async def get_thread(self, io: IO, thread_id: str) -> Thread | None: ...

            aget_thread = get_thread.twin
        ```
    """

    def __init__(self, body: Body[S, P, T]) -> None:
        super().__init__(body)
        # An instance attribute, not a property: type checkers would bind a descriptor that a property returns.
        self.twin: AsyncTwin[S, P, T] = AsyncTwin(body)
        """The async face of the same body."""

    @overload
    def __get__(self, instance: None, owner: type) -> both[S, P, T]: ...
    @overload
    def __get__(self, instance: S, owner: type) -> Callable[P, T]: ...
    def __get__(self, instance: S | None, owner: type) -> both[S, P, T] | Callable[P, T]:
        """Bind to an instance."""
        if instance is None:
            return self
        bound, body = instance, self.body

        def method(*args: P.args, **kwargs: P.kwargs) -> T:
            return drive(body(bound, bound.io(is_async=False), *args, **kwargs))

        self.dress(method)
        return method
