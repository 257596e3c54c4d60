"""The write queue of a SQLite database: one writer at a time, commits in groups.

Whoever finds the writer's seat free sits down and commits what waits, its own job among it; the others find their job
done when they get the seat. So a lonely write costs no hop to another thread, a burst shares its commits, and sync and
async writers of a process never meet in SQLite's busy handler, where one kind would starve the other.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")

GROUP: Final = 64
"""How many jobs share a commit at most: it bounds what a failing commit takes with it, and the wait for the seat."""


class Job(Generic[T]):
    """A unit of work that waits for the writer. Its future is done when it is committed, or has failed."""

    __slots__ = ("future", "work")

    def __init__(self, work: Callable[[sqlite3.Cursor], T]) -> None:
        self.work = work
        self.future: Future[T] = Future()


class WriteQueue:
    """Runs jobs on one connection, several in a transaction, each in a savepoint of its own."""

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self._connect = connect
        self._connection: sqlite3.Connection | None = None
        self._jobs: deque[Job[Any]] = deque()
        self.seat = threading.Lock()

    def run(self, work: Callable[[sqlite3.Cursor], T]) -> T:
        """Run a job and wait for its commit."""
        job = Job(work)
        self._jobs.append(job)
        self.settle(job)
        return job.future.result()

    def submit(self, work: Callable[[sqlite3.Cursor], T]) -> Job[T]:
        """Queue a job without waiting; somebody must `settle` it. Never blocks."""
        job = Job(work)
        self._jobs.append(job)
        return job

    def settle(self, job: Job[Any]) -> None:
        """Return when a job is done, having done what was waiting if nobody else did."""
        while not job.future.done():
            with self.seat:
                if not job.future.done():
                    self._commit_group()

    def close(self) -> None:
        """Do what waits and close the connection."""
        with self.seat:
            while self._jobs:
                self._commit_group()
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _next_group(self) -> list[Job[Any]]:
        group: list[Job[Any]] = []
        while self._jobs and len(group) < GROUP:
            job = self._jobs.popleft()
            if job.future.set_running_or_notify_cancel():
                group.append(job)
        return group

    def _commit_group(self) -> None:
        group = self._next_group()
        try:
            if len(group) > 1:
                self._together(group)
            # Left undone: the lonely job, or a group whose transaction SQLite undid as a whole.
            for job in group:
                if not job.future.done():
                    self._alone(job)
        except BaseException as stopped:  # a KeyboardInterrupt in this thread must not leave the others waiting
            for job in group:
                if not job.future.done():
                    job.future.set_exception(stopped)
            raise

    def _cursor(self) -> sqlite3.Cursor:
        if self._connection is None:
            self._connection = self._connect()
        return self._connection.cursor()

    def _alone(self, job: Job[Any]) -> None:
        try:
            cursor = self._cursor()
            cursor.execute("BEGIN IMMEDIATE")
            try:
                result = job.work(cursor)
                cursor.execute("COMMIT")
            except BaseException:
                self._rollback(cursor)
                raise
        except Exception as error:  # noqa: BLE001 - it belongs to whoever waits for the job
            job.future.set_exception(error)
        else:
            job.future.set_result(result)

    def _together(self, group: list[Job[Any]]) -> None:
        """Try a group in one transaction; jobs that are left undone are to be run alone."""
        outcomes: list[tuple[Job[Any], Any, Exception | None]] = []
        try:
            cursor = self._cursor()
            cursor.execute("BEGIN IMMEDIATE")
        except Exception:  # noqa: BLE001 - each job meets it again alone, and reports it
            return
        try:
            for job in group:
                cursor.execute("SAVEPOINT job")
                try:
                    outcomes.append((job, job.work(cursor), None))
                except Exception as error:  # noqa: BLE001 - it belongs to whoever waits for the job
                    if not cursor.connection.in_transaction:
                        return  # SQLite undid everything (disk full, I/O error): one by one, then
                    cursor.execute("ROLLBACK TO job")
                    outcomes.append((job, None, error))
                cursor.execute("RELEASE job")
            cursor.execute("COMMIT")
        except sqlite3.Error:
            self._rollback(cursor)
            return
        except BaseException:
            self._rollback(cursor)
            raise
        for job, result, failure in outcomes:
            if failure is None:
                job.future.set_result(result)
            else:
                job.future.set_exception(failure)

    @staticmethod
    def _rollback(cursor: sqlite3.Cursor) -> None:
        if cursor.connection.in_transaction:
            cursor.execute("ROLLBACK")
