"""The write queue of a SQLite database: one writer at a time, commits in groups.

Whoever finds the writer's seat free sits down and commits what waits, its own job among it; the others find their job
done when they get the seat. So a lonely write costs no hop to another thread, a burst shares its commits, and sync and
async writers of a process never meet in SQLite's busy handler, where one kind would starve the other.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Final, Generic, TypeAlias, TypeVar

T = TypeVar("T")

GROUP: Final = 64
"""How many jobs share a commit at most: it bounds what a failing commit takes with it, and the wait for the seat."""


class Job(Generic[T]):
    """A unit of work that waits for the writer. Its future is done when it is committed, or has failed."""

    __slots__ = ("abandoned", "future", "work")

    def __init__(self, work: Callable[[sqlite3.Cursor], T]) -> None:
        self.work = work
        self.future: Future[T] = Future()
        self.abandoned = False

    def wanted(self) -> bool:
        """Tell whether it is still to be done, and take it away from whoever would cancel it."""
        if self.abandoned or self.future.done():
            return False
        return self.future.running() or self.future.set_running_or_notify_cancel()


Outcome: TypeAlias = tuple[Job[Any], Any, "Exception | None"]


class WriteQueue:
    """Runs jobs on one connection, several in a transaction, each in a savepoint of its own."""

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self._connect = connect
        self._connection: sqlite3.Connection | None = None
        self._jobs: deque[Job[Any]] = deque()
        self._seat = threading.Lock()
        self._seated: int | None = None

    def run(self, work: Callable[[sqlite3.Cursor], T]) -> T:
        """Run a job and wait for its commit."""
        if self._is_free():
            return self._lonely(work, transaction=True)
        job = self.submit(work)
        try:
            self.settle(job)
        except BaseException:
            job.abandoned = True  # interrupted: nobody is to do it behind the caller's back, if it is not done yet
            raise
        return job.future.result()

    def run_alone(self, work: Callable[[sqlite3.Cursor], T | None]) -> T | None:
        """Run a job of one statement, which is a transaction by itself; None if it did nothing, or others wait."""
        return self._lonely(work, transaction=False) if self._is_free() else None

    def _is_free(self) -> bool:
        """Tell whether nobody has the seat or waits for it: a job then is no affair of another thread."""
        return not self._jobs and not self._seat.locked()

    def _lonely(self, work: Callable[[sqlite3.Cursor], T], *, transaction: bool) -> T:
        with self._seat:
            self._seated = threading.get_ident()
            try:
                cursor = self._cursor()
                if not transaction:
                    return work(cursor)
                cursor.execute("BEGIN IMMEDIATE")
                result = work(cursor)
                cursor.execute("COMMIT")
            except BaseException:
                self._rollback()
                raise
            finally:
                self._seated = None
            return result

    def submit(self, work: Callable[[sqlite3.Cursor], T]) -> Job[T]:
        """Queue a job without waiting; somebody must `settle` it. Never blocks."""
        job = Job(work)
        self._jobs.append(job)
        return job

    def settle(self, job: Job[Any]) -> None:
        """Return when a job is done, having done what was waiting if nobody else did.

        Raises:
            RuntimeError: Called from inside a unit of work, which would wait for itself.
        """
        if self._seated == threading.get_ident():
            raise RuntimeError("a unit of work (or a signal handler during one) called the store, which waits for it")
        while not job.future.done():
            with self._seat:
                if not job.future.done():
                    self._commit_group()

    def close(self) -> None:
        """Do what waits and close the connection."""
        with self._seat:
            while self._jobs:
                self._commit_group()
            self._disconnect()

    def _commit_group(self) -> None:
        group: list[Job[Any]] = []
        self._seated = threading.get_ident()
        try:
            self._take(group)
            if len(group) > 1:
                self._together(group)
            # Left undone: the lonely job, or a group whose transaction SQLite undid as a whole.
            for job in group:
                if not job.future.done():
                    self._alone(job)
        except BaseException:  # an interrupt in this thread is no affair of the others: their own threads go on
            self._put_back(group)
            raise
        finally:
            self._seated = None

    def _take(self, group: list[Job[Any]]) -> None:
        while self._jobs and len(group) < GROUP:
            job = self._jobs[0]
            if job.wanted():
                group.append(job)  # before it leaves the queue: an interrupt in between must not lose it
            self._jobs.popleft()

    def _put_back(self, group: list[Job[Any]]) -> None:
        if group and self._jobs and self._jobs[0] is group[-1]:
            group.pop()
        self._jobs.extendleft(job for job in reversed(group) if not job.future.done())

    def _cursor(self) -> sqlite3.Cursor:
        if self._connection is None:
            self._connection = self._connect()
        return self._connection.cursor()

    def _alone(self, job: Job[Any]) -> None:
        outcomes: list[Outcome] = []
        try:
            cursor = self._cursor()
            cursor.execute("BEGIN IMMEDIATE")
            with self._transaction(cursor, outcomes):
                outcomes.append((job, job.work(cursor), None))
        except Exception as error:  # noqa: BLE001 - it belongs to whoever waits for the job
            job.future.set_exception(error)

    def _together(self, group: list[Job[Any]]) -> None:
        """Try a group in one transaction; jobs that are left undone are to be run alone."""
        outcomes: list[Outcome] = []
        try:
            cursor = self._cursor()
            cursor.execute("BEGIN IMMEDIATE")
        except Exception as error:  # noqa: BLE001 - each would meet it alone, and after the same wait for a lock
            _report([(job, None, error) for job in group])
            return
        try:
            with self._transaction(cursor, outcomes):
                for job in group:
                    cursor.execute("SAVEPOINT job")
                    try:
                        outcomes.append((job, job.work(cursor), None))
                    except Exception as error:
                        if not cursor.connection.in_transaction:
                            raise  # SQLite undid everything (disk full, I/O error): one by one, then
                        cursor.execute("ROLLBACK TO job")
                        outcomes.append((job, None, error))
                    cursor.execute("RELEASE job")
        except Exception:  # noqa: BLE001 - the commit failed, or a job took the others with it: each shows alone
            return

    @contextmanager
    def _transaction(self, cursor: sqlite3.Cursor, outcomes: list[Outcome]) -> Iterator[None]:
        """Commit and report the outcomes, or roll back. An interrupt leaves no doubt about which of the two it was."""
        committing = False
        try:
            yield
            committing = True
            cursor.execute("COMMIT")
        except BaseException as error:
            if committing and not cursor.connection.in_transaction and not isinstance(error, sqlite3.Error):
                _report(outcomes)
            else:
                self._rollback()
            raise
        _report(outcomes)

    def _rollback(self) -> None:
        try:
            if self._connection is not None and self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error:  # a connection that cannot even roll back is of no use to the next job
            self._disconnect()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _report(outcomes: Sequence[Outcome]) -> None:
    """Tell each waiter how its job ended, even when an interrupt falls in between."""
    try:
        _tell(outcomes)
    except BaseException:
        _tell(outcomes)
        raise


def _tell(outcomes: Sequence[Outcome]) -> None:
    for job, result, error in outcomes:
        if job.future.done():
            continue
        if error is None:
            job.future.set_result(result)
        else:
            job.future.set_exception(error)
