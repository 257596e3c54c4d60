"""Background work: waited for, never lost without a word, whichever way its memory is used."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from langchain_mastra_memory.background import Background


class Owner:
    def io(self, *, is_async: bool) -> Any:
        return None

    def clock(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def background() -> Iterator[Background]:
    background = Background(Owner())
    yield background
    background.shutdown()


async def does_nothing(_io: Any) -> None: ...


async def fails(_io: Any) -> None:
    raise LookupError("its own error")


def test_a_failure_is_logged_once_kept_and_given_back_once(
    background: Background, caplog: pytest.LogCaptureFixture
) -> None:
    background.start("title", fails, is_async=False, thread_id="t", resource_id="r")
    background.start("embed", does_nothing, is_async=False)
    [failure] = background.settled(timeout=30)
    assert (failure.phase, failure.thread_id, failure.resource_id) == ("title", "t", "r")
    assert isinstance(failure.error, LookupError)
    assert background.settled() == []
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) == 1


def test_a_failure_that_goes_on_is_logged_once_until_the_phase_succeeds(
    background: Background, caplog: pytest.LogCaptureFixture
) -> None:
    def warnings() -> list[str]:
        background.settled(timeout=30)
        found = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
        caplog.clear()
        return found

    caplog.set_level(logging.DEBUG)
    for number in range(5):
        background.start("title", fails, is_async=False, thread_id=f"t{number}")
    assert len(warnings()) == 1
    background.start("embed", does_nothing, is_async=False)
    background.start("title", fails, is_async=False)
    assert warnings() == []
    background.report("title", ValueError("another"))
    assert len(warnings()) == 1
    background.start("title", does_nothing, is_async=False)
    assert warnings() == []
    background.start("title", fails, is_async=False)
    assert len(warnings()) == 1


async def test_a_failure_of_tasks_that_goes_on_is_logged_once_and_kept_each_time(
    background: Background, caplog: pytest.LogCaptureFixture
) -> None:
    for body in (fails, fails, does_nothing, fails):
        background.start("title", body, is_async=True)
        await background.asettled(timeout=30)
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) == 2
    for _ in range(3):
        background.start("title", fails, is_async=True)
    assert len(await background.asettled(timeout=30)) == 3


def test_settling_waits_no_longer_than_it_is_told(background: Background) -> None:
    leave = threading.Event()

    async def waits(_io: Any) -> None:
        leave.wait(30)

    background.start("observe", waits, is_async=False)
    with pytest.raises(TimeoutError, match="observe"):
        background.settled(timeout=0.01)
    leave.set()
    assert background.settled(timeout=30) == []


async def test_settling_on_the_loop_that_runs_the_work_is_refused_only_while_there_is_work(
    background: Background,
) -> None:
    leave = asyncio.Event()

    async def waits(_io: Any) -> None:
        await leave.wait()

    background.start("observe", waits, is_async=True)
    with pytest.raises(RuntimeError, match="asettled"):
        background.settled()
    leave.set()
    assert await background.asettled(timeout=30) == []
    assert background.settled() == []


def test_work_that_is_cancelled_with_its_event_loop_is_reported(background: Background) -> None:
    async def waits(_io: Any) -> None:
        await asyncio.Event().wait()

    async def leaves() -> None:
        background.start("reflect", waits, is_async=True, thread_id="t")
        await asyncio.sleep(0)

    asyncio.run(leaves())
    [failure] = background.settled(timeout=30)
    assert failure.phase == "reflect"
    assert isinstance(failure.error, asyncio.CancelledError)


def test_work_that_comes_after_the_end_is_reported_and_starts_no_thread(background: Background) -> None:
    background.shutdown()
    background.start("title", does_nothing, is_async=False)
    [failure] = background.settled()
    assert "closed" in str(failure.error)
    assert background._executor is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_does_not_wait_for_its_parents_work_and_does_its_own(background: Background) -> None:
    leave = threading.Event()

    async def waits(_io: Any) -> None:
        leave.wait(30)

    background.start("observe", does_nothing, is_async=False)
    background.settled()
    background.start("observe", waits, is_async=False)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            background.settled(timeout=30)
            background.start("title", fails, is_async=False)
            if [failure.phase for failure in background.settled(timeout=30)] == ["title"]:
                code = 0
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    leave.set()
    assert background.settled(timeout=30) == []
