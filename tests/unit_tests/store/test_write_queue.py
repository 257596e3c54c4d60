"""The write queue of SQLite: grouped commits, whatever happens to one of the jobs or to the thread that commits."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from langchain_mastra_memory.store.sql.writer import GROUP, WriteQueue


class Commits(sqlite3.Connection):
    """Counts its commits, and can act as one begins."""

    count = 0
    on_commit: Callable[[], None] | None = None

    def cursor(self, *args, **kwargs):
        return super().cursor(CommitCursor)


class CommitCursor(sqlite3.Cursor):
    def execute(self, sql, *args):
        if sql == "COMMIT":
            connection = self.connection
            assert isinstance(connection, Commits)
            connection.count += 1
            result = super().execute(sql)
            if connection.on_commit is not None:
                connection.on_commit()
            return result
        return super().execute(sql, *args)


class Database:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.opened: list[Commits] = []
        self.queue = WriteQueue(self.connect)
        self.queue.run(lambda cursor: cursor.execute("CREATE TABLE t (n INTEGER PRIMARY KEY) ").fetchall())

    def connect(self) -> Commits:
        connection = sqlite3.connect(
            self.path, factory=Commits, isolation_level=None, check_same_thread=False, timeout=0.05
        )
        connection.execute("PRAGMA journal_mode=WAL")
        self.opened.append(connection)
        return connection

    def insert(self, n: int) -> Callable[[sqlite3.Cursor], int]:
        def work(cursor: sqlite3.Cursor) -> int:
            cursor.execute("INSERT INTO t VALUES (?)", (n,))
            return n

        return work

    def rows(self) -> list[int]:
        with sqlite3.connect(self.path) as other:
            found = [n for (n,) in other.execute("SELECT n FROM t ORDER BY n")]
        other.close()
        return found


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = Database(tmp_path / "t.db")
    yield database
    database.queue.close()


def test_what_waits_is_committed_together_up_to_the_size_of_a_group(database: Database) -> None:
    before = database.opened[0].count
    jobs = [database.queue.submit(database.insert(n)) for n in range(GROUP + 5)]
    database.queue.settle(jobs[-1])
    assert [job.future.result(0) for job in jobs] == list(range(GROUP + 5))
    assert database.opened[0].count - before == 2
    assert database.rows() == list(range(GROUP + 5))


def test_a_failing_job_of_a_group_takes_nothing_with_it_but_its_own_writes(database: Database) -> None:
    def fails(cursor: sqlite3.Cursor) -> None:
        cursor.execute("INSERT INTO t VALUES (100)")
        raise LookupError("its own error")

    jobs = [database.queue.submit(w) for w in (database.insert(1), fails, database.insert(1), database.insert(2))]
    database.queue.settle(jobs[-1])
    assert jobs[0].future.result(0) == 1
    with pytest.raises(LookupError, match="its own error"):
        jobs[1].future.result(0)
    with pytest.raises(sqlite3.IntegrityError):
        jobs[2].future.result(0)
    assert jobs[3].future.result(0) == 2
    assert database.rows() == [1, 2]


def test_a_job_that_undoes_the_whole_transaction_costs_the_others_nothing(database: Database) -> None:
    def aborts(cursor: sqlite3.Cursor) -> None:
        cursor.execute("INSERT OR ROLLBACK INTO t VALUES (1)")

    jobs = [database.queue.submit(w) for w in (database.insert(1), aborts, database.insert(2))]
    database.queue.settle(jobs[-1])
    assert [jobs[0].future.result(0), jobs[2].future.result(0)] == [1, 2]
    with pytest.raises(sqlite3.IntegrityError):
        jobs[1].future.result(0)
    assert database.rows() == [1, 2]


def test_a_lock_that_is_not_to_be_had_is_waited_for_once_per_group_not_once_per_job(database: Database) -> None:
    attempts: list[str] = []
    database.opened[0].set_trace_callback(attempts.append)
    other = sqlite3.connect(database.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    jobs = [database.queue.submit(database.insert(n)) for n in range(10)]
    database.queue.settle(jobs[0])
    for job in jobs:
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            job.future.result(0)
    assert len(attempts) <= 1
    other.execute("ROLLBACK")
    other.close()
    assert database.queue.run(database.insert(1)) == 1


def test_a_cancelled_job_that_has_not_begun_is_never_done(database: Database) -> None:
    cancelled, kept = database.queue.submit(database.insert(1)), database.queue.submit(database.insert(2))
    assert cancelled.future.cancel()
    database.queue.settle(kept)
    database.queue.settle(cancelled)
    assert database.rows() == [2]


def test_an_interrupt_of_the_committing_thread_is_no_affair_of_the_others(database: Database) -> None:
    def interrupted(_cursor: sqlite3.Cursor) -> None:
        raise KeyboardInterrupt

    first, last = database.queue.submit(database.insert(1)), None
    with pytest.raises(KeyboardInterrupt):
        database.queue.run(interrupted)
    last = database.queue.submit(database.insert(2))
    assert not first.future.done()
    database.queue.settle(last)
    assert [first.future.result(0), last.future.result(0)] == [1, 2]
    assert database.rows() == [1, 2]


@pytest.mark.parametrize("size", [1, 3])
def test_an_interrupt_right_after_the_commit_reports_it_and_repeats_nothing(database: Database, size: int) -> None:
    def interrupt() -> None:
        database.opened[0].on_commit = None
        raise KeyboardInterrupt

    jobs = [database.queue.submit(database.insert(n)) for n in range(size)]
    database.opened[0].on_commit = interrupt
    with pytest.raises(KeyboardInterrupt):
        database.queue.settle(jobs[0])
    assert [job.future.result(0) for job in jobs] == list(range(size))
    database.queue.run(database.insert(99))
    assert database.rows() == [*range(size), 99]


def test_an_interrupted_caller_leaves_nothing_behind_that_is_done_later(database: Database) -> None:
    def interrupted(cursor: sqlite3.Cursor) -> None:
        cursor.execute("INSERT INTO t VALUES (7)")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        database.queue.run(interrupted)
    database.queue.run(database.insert(1))
    assert database.rows() == [1]


def test_a_unit_of_work_that_calls_the_store_is_refused_instead_of_waiting_for_itself(database: Database) -> None:
    with pytest.raises(RuntimeError, match="waits for it"):
        database.queue.run(lambda _cursor: database.queue.run(database.insert(1)))
    assert database.queue.run(database.insert(2)) == 2


def test_a_connection_that_cannot_roll_back_is_replaced(database: Database) -> None:
    def breaks(cursor: sqlite3.Cursor) -> None:
        cursor.connection.close()
        raise LookupError("the connection is gone")

    with pytest.raises((LookupError, sqlite3.ProgrammingError)):
        database.queue.run(breaks)
    assert database.queue.run(database.insert(1)) == 1
    assert len(database.opened) == 2


def test_many_threads_lose_and_repeat_nothing(database: Database) -> None:
    start = threading.Barrier(8)

    def burst(worker: int) -> list[int]:
        start.wait()
        return [database.queue.run(database.insert(worker * 1000 + i)) for i in range(50)]

    with ThreadPoolExecutor(8) as pool:
        saved = sorted(n for worker in pool.map(burst, range(8)) for n in worker)
    assert saved == database.rows()
    assert len(saved) == 400


def test_closing_commits_what_waits(database: Database) -> None:
    jobs = [database.queue.submit(database.insert(n)) for n in range(3)]
    database.queue.close()
    assert [job.future.result(0) for job in jobs] == [0, 1, 2]
    assert database.rows() == [0, 1, 2]


def test_a_single_statement_is_written_by_itself(database: Database) -> None:
    before = database.opened[0].count
    assert database.queue.run_alone(database.insert(1)) == 1
    assert database.rows() == [1]
    assert database.opened[0].count == before


def test_a_single_statement_gives_way_to_what_waits(database: Database) -> None:
    job = database.queue.submit(database.insert(1))
    assert database.queue.run_alone(database.insert(2)) is None
    database.queue.settle(job)
    assert database.rows() == [1]


def test_what_a_failing_single_job_began_is_undone(database: Database) -> None:
    def work(cursor: sqlite3.Cursor) -> None:
        cursor.execute("BEGIN IMMEDIATE")
        cursor.execute("INSERT INTO t VALUES (7)")
        raise KeyError("late")

    with pytest.raises(KeyError):
        database.queue.run_alone(work)
    database.queue.run(database.insert(8))
    assert database.rows() == [8]
