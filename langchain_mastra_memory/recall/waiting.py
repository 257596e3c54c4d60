"""Wait for something slow no longer than a deadline, sync and async."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import ParamSpec, TypeVar

from langchain_mastra_memory.io import IO

P = ParamSpec("P")
T = TypeVar("T")


async def within(
    io: IO,
    seconds: float,
    sync: Callable[P, T],
    asynchronous: Callable[P, Awaitable[T]],
    /,
    *args: P.args,
    **kwargs: P.kwargs,
) -> T:
    """Call the sync or the async one of a pair, and give up after a while.

    A sync call that is given up goes on in a thread of its own and its result is dropped: Python can't stop it.

    Raises:
        TimeoutError: It took longer.
    """
    if io.is_async:
        return await asyncio.wait_for(asynchronous(*args, **kwargs), seconds)
    future: Future[T] = Future()
    context = contextvars.copy_context()

    def work() -> None:
        try:
            future.set_result(context.run(sync, *args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - raised again by the one who waits
            future.set_exception(error)

    # A daemon: a call that hangs must not keep the interpreter from ending.
    threading.Thread(target=work, name="mastra-call", daemon=True).start()
    return future.result(seconds)


async def wait_for(io: IO, future: Future[None], seconds: float) -> bool:
    """Wait until a future is done; return whether it was in time. The future goes on whatever happens here."""
    if io.is_async:
        done, _ = await asyncio.wait([asyncio.wrap_future(_mirror(future))], timeout=max(seconds, 0.0))
        return bool(done)
    finished = threading.Event()
    future.add_done_callback(lambda _: finished.set())
    return finished.wait(max(seconds, 0.0))


def _mirror(future: Future[None]) -> Future[None]:
    """Return a future of one's own: cancelling it must not cancel the other."""
    own: Future[None] = Future()

    def done(_: Future[None]) -> None:
        if own.set_running_or_notify_cancel():
            own.set_result(None)

    future.add_done_callback(done)
    return own
