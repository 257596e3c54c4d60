"""Work behind the user's back: titles, embeddings, observations. Waited for, never lost without a word.

A pipeline runs as a task of the running event loop when its memory is used asynchronously, and on a bounded executor of
its own otherwise (never on the store's threads, or the two would wait for each other).
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for_futures
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol

from langchain_mastra_memory.forking import watch
from langchain_mastra_memory.io import IO, drive
from langchain_mastra_memory.types import BackgroundFailure

logger = logging.getLogger(__name__)

WORKERS: Final = 4
"""Pipelines that run at once for sync callers; more wait their turn."""
KEPT: Final = 1000
"""Failures that are kept for `settled()`; older ones were logged."""


class _Owner(Protocol):
    def io(self, *, is_async: bool) -> IO: ...
    def clock(self) -> datetime: ...


@dataclass(frozen=True, slots=True, eq=False)
class _Work:
    """A pipeline under way: `done` is resolved when it has ended, whichever way it runs."""

    phase: str
    done: Future[None]
    loop: asyncio.AbstractEventLoop | None

    def waits_for_this_thread(self) -> bool:
        """Tell whether blocking this thread would keep the work from ending."""
        if self.loop is None or self.loop.is_closed():
            return False
        try:
            return asyncio.get_running_loop() is self.loop
        except RuntimeError:
            return not self.loop.is_running()

    def is_lost(self) -> bool:
        """Tell whether its loop was closed under it: it will never end."""
        return self.loop is not None and self.loop.is_closed() and not self.done.done()


class Background:
    """Starts pipelines, waits for them, and keeps what failed."""

    def __init__(self, owner: _Owner) -> None:
        self._owner = owner
        self._lock = threading.Lock()
        self._work: set[_Work] = set()
        self._tasks: set[asyncio.Task[None]] = set()  # a loop holds its tasks weakly
        self._failures: list[BackgroundFailure] = []
        self._failing: set[tuple[str, str]] = set()
        self._executor: ThreadPoolExecutor | None = None
        self._closed = False
        watch(self)

    @property
    def executor(self) -> ThreadPoolExecutor:
        """The bounded executor of pipelines; not the store's."""
        with self._lock:
            if self._closed:
                raise RuntimeError("the memory was closed: it takes no more background work")
            if self._executor is None:
                self._executor = ThreadPoolExecutor(WORKERS, thread_name_prefix="mastra-pipeline")
            return self._executor

    def start(
        self,
        phase: str,
        body: Callable[[IO], Coroutine[Any, Any, Any]],
        *,
        is_async: bool,
        thread_id: str | None = None,
        resource_id: str | None = None,
    ) -> None:
        """Start a pipeline and return at once.

        Args:
            phase: What is being done, for failures and logs: `title`, `embed`, `observe`, ...
            body: The pipeline over an `IO`.
            is_async: Whether to run it as a task of the running loop.
            thread_id: The thread that it is about.
            resource_id: The resource that it is about.
        """
        loop = asyncio.get_running_loop() if is_async else None
        work = _Work(phase, Future(), loop)
        with self._lock:
            self._work = {w for w in self._work if not w.is_lost()}
            self._work.add(work)

        def end() -> None:
            with self._lock:
                self._work.discard(work)
            work.done.set_result(None)

        def fail(error: BaseException) -> None:
            self.report(phase, error, thread_id=thread_id, resource_id=resource_id)

        if loop is not None:

            async def as_task() -> None:
                try:
                    await body(self._owner.io(is_async=True))
                    self.succeeded(phase)
                except Exception as error:  # noqa: BLE001 - reported
                    fail(error)
                except asyncio.CancelledError:
                    fail(asyncio.CancelledError("it was cancelled, or its event loop ended, before it was done"))
                    raise

            def ended(task: asyncio.Task[None]) -> None:
                self._tasks.discard(task)
                end()

            task = loop.create_task(as_task(), name=f"mastra-{phase}")
            self._tasks.add(task)
            task.add_done_callback(ended)
            return

        def as_job() -> None:
            try:
                drive(body(self._owner.io(is_async=False)))
                self.succeeded(phase)
            except Exception as error:  # noqa: BLE001 - reported
                fail(error)
            finally:
                end()

        try:
            self.executor.submit(contextvars.copy_context().run, as_job)
        except RuntimeError as error:  # the interpreter is going down, or the memory was closed
            fail(error)
            end()

    def report(
        self, phase: str, error: BaseException, *, thread_id: str | None = None, resource_id: str | None = None
    ) -> None:
        """Keep a failure for `settled()`, and log it; at DEBUG if the phase has failed so since it last succeeded.

        A model that is down fails in every turn of every thread: that is one thing to tell.
        """
        kind = (phase, type(error).__name__)
        with self._lock:
            is_new = kind not in self._failing
            self._failing.add(kind)
        # A provider's text may hold a key: it is in what `settled()` returns, and in logs at DEBUG only.
        level = logging.WARNING if is_new else logging.DEBUG
        logger.log(
            level, "memory: %s failed for thread %r: %s (not said again before it succeeds)", phase, thread_id, kind[1]
        )
        logger.debug("memory: %s failed for thread %r", phase, thread_id, exc_info=error)
        failure = BackgroundFailure(
            phase=phase, error=error, thread_id=thread_id, resource_id=resource_id, at=self._owner.clock()
        )
        with self._lock:
            self._failures.append(failure)
            del self._failures[:-KEPT]

    def succeeded(self, phase: str) -> None:
        """Have the next failure of a phase logged again; what `start` runs says it by itself."""
        if self._failing:
            with self._lock:
                self._failing = {kind for kind in self._failing if kind[0] != phase}

    def _pending(self) -> list[_Work]:
        with self._lock:
            self._work = {w for w in self._work if not w.is_lost()}
            return list(self._work)

    def _taken(self) -> list[BackgroundFailure]:
        with self._lock:
            taken, self._failures = self._failures, []
            return taken

    def settled(self, timeout: float | None = None) -> list[BackgroundFailure]:
        """Wait until nothing is under way, and return what has failed since the last call.

        Args:
            timeout: Seconds to wait at most; None waits as long as it takes.

        Raises:
            RuntimeError: Work runs as tasks of this thread's event loop, which waiting here would block: await
                `asettled()`.
            TimeoutError: Work is still under way; it goes on.
        """
        while pending := self._pending():
            blocked = [work for work in pending if work.waits_for_this_thread()]
            if blocked:
                phases = ", ".join(sorted({work.phase for work in blocked}))
                raise RuntimeError(
                    f"{len(blocked)} background tasks ({phases}) run on an event loop that waiting here would block: "
                    "use `await memory.asettled()`"
                )
            if wait_for_futures([work.done for work in pending], timeout).not_done:
                raise TimeoutError(_still(self._pending(), timeout))
        return self._taken()

    async def asettled(self, timeout: float | None = None) -> list[BackgroundFailure]:  # noqa: ASYNC109 - as in sync
        """Wait like `settled`, without blocking the event loop."""
        while pending := self._pending():
            futures = [asyncio.wrap_future(work.done) for work in pending]
            _, late = await asyncio.wait(futures, timeout=timeout)
            if late:
                raise TimeoutError(_still(self._pending(), timeout))
        return self._taken()

    def shutdown(self) -> None:
        """Take no more work and end the executor's threads."""
        with self._lock:
            executor, self._executor, self._closed = self._executor, None, True
        if executor is not None:
            executor.shutdown(wait=True)

    def forget_parent(self) -> None:
        """Forget the parent's threads and connections: neither are for two processes to use."""
        self._lock, self._executor = threading.Lock(), None
        self._work, self._tasks = set(), set()


def _still(pending: list[_Work], timeout: float | None) -> str:
    phases = ", ".join(sorted({work.phase for work in pending})) or "work"
    return f"background work ({phases}) did not end within {timeout} s; it goes on"
