"""Several processes over one database, killed ones among them."""

from __future__ import annotations

import multiprocessing
import os
import random
import sqlite3
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage

from langchain_mastra_memory.store.operations.messages import ListMessages, NewMessage, SaveMessages
from langchain_mastra_memory.store.operations.threads import CreateThread, GetThread, ListThreads
from langchain_mastra_memory.store.sql.engine import SQLMemoryStore
from langchain_mastra_memory.threads.saver import ThreadSaver
from tests.integration_tests.bursts import THREADS, chat_id, open_and_leave, write_some, write_until_killed

KILLS = 20


@pytest.fixture(scope="module")
def processes() -> ForkServerContext:
    """Processes that need not import everything each time."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.integration_tests.bursts"])
    return context


@contextmanager
def child(
    context: ForkServerContext, target: Callable[..., None], *args: Any
) -> Iterator[tuple[ForkServerProcess, Connection]]:
    """Start a process with one end of a pipe as its last argument; it is gone afterwards."""
    ours, theirs = context.Pipe()
    process = context.Process(target=target, args=(*args, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        yield process, ours
    finally:
        process.kill()
        process.join(30)
        process.close()
        ours.close()


def killed_after(context: ForkServerContext, url: str, seed: int, count: int) -> set[str]:
    """Let a process write, kill it after so many acknowledgements, and return all that it gave."""
    acknowledged: set[str] = set()
    with child(context, write_until_killed, url, seed) as (process, pipe):
        while len(acknowledged) < count:
            acknowledged.add(pipe.recv())
        process.kill()
        process.join(30)
        while pipe.poll():
            try:
                acknowledged.add(pipe.recv())
            except (EOFError, OSError):
                break
    return acknowledged


def assert_whole(url: str, acknowledged: set[str]) -> None:
    """Check that what was acknowledged is there, and that what is there is there as a whole and in its order."""
    with SQLMemoryStore(url) as store:
        found: dict[str, list[tuple[int, int]]] = {}
        keys: set[str] = set()
        for thread_id in THREADS:
            seqs: list[int] = []
            for stored in store.run(ListMessages(thread_ids=(thread_id,), per_page=False)):
                label, index, size = stored.id.split("/")
                assert str(stored.message.text).startswith((f"{label} {index} ", "afterwards"))
                found.setdefault(label, []).append((int(index), int(size)))
                seqs.append(stored.seq)
            assert seqs == sorted(set(seqs))
            thread = store.run(GetThread(thread_id=thread_id))
            keys |= set(thread.metadata if thread else ())
        for label, parts in found.items():
            assert [index for index, _ in parts] == list(range(parts[0][1])), label
        assert_chats_whole(store, {label for label in acknowledged if label.startswith("turn-")})
        assert {label for label in acknowledged if not label.startswith("turn-")} - keys <= set(found)
        text = HumanMessage("afterwards 0 ", id=f"{uuid.uuid4()}/0/1")
        save = SaveMessages(thread_id=THREADS[0], resource_id="r", messages=(NewMessage(message=text, tokens=1),))
        [saved] = store.run(save)
        assert saved.seq == store.run(ListMessages(thread_ids=(THREADS[0],), per_page=False))[-1].seq


def assert_chats_whole(store: SQLMemoryStore, turns: set[str]) -> None:
    """Check that each graph has the turns that it acknowledged, and that its archive is what its checkpoint says."""
    saver = ThreadSaver(store)
    for seed in {int(turn.split("-")[1]) for turn in turns}:
        newest = saver.get_tuple({"configurable": {"thread_id": chat_id(seed), "checkpoint_ns": ""}})
        assert newest is not None
        state = [str(message.text) for message in newest.checkpoint["channel_values"]["messages"]]
        mine = {turn for turn in turns if turn.startswith(f"turn-{seed}-")}
        assert mine <= set(state)
        assert {f"re: {turn}" for turn in mine} <= set(state)
        archive = [str(m.message.text) for m in store.run(ListMessages(thread_ids=(chat_id(seed),), per_page=False))]
        assert archive == state


@pytest.mark.slow
def test_a_killed_process_loses_nothing_that_it_acknowledged_and_leaves_nothing_half_done(
    tmp_path: Path, processes: ForkServerContext
) -> None:
    path = tmp_path / "m.db"
    rng = random.Random(7)
    acknowledged: set[str] = set()
    for seed in range(KILLS):
        if seed % 4 == 0:  # the same file is killed at several times, also with nothing in it
            path = tmp_path / f"{seed}.db"
            acknowledged = set()
        acknowledged |= killed_after(processes, f"sqlite:///{path}", seed, rng.choice([1, 5, 20, 50, 90]))
        connection = sqlite3.connect(path)
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        connection.close()
        assert_whole(f"sqlite:///{path}", acknowledged)


def test_a_process_killed_beside_postgresql_leaves_the_same(postgres_url: str, processes: ForkServerContext) -> None:
    acknowledged: set[str] = set()
    for seed, count in enumerate((1, 30, 90)):
        acknowledged |= killed_after(processes, postgres_url, seed, count)
        assert_whole(postgres_url, acknowledged)


def test_processes_write_into_one_database_at_once_and_nothing_is_lost(
    store_url: str, processes: ForkServerContext
) -> None:
    if store_url == "memory://":
        with SQLMemoryStore(store_url) as one, SQLMemoryStore(store_url) as two:
            one.run(CreateThread(thread_id="t", resource_id="r"))
            assert two.run(GetThread(thread_id="t")) is None
        return
    with (
        child(processes, _write_sixty, store_url, 1) as (_, one),
        child(processes, _write_sixty, store_url, 2) as (_, two),
    ):
        acknowledged = {pipe.recv() for pipe in (one, two) for _ in range(60)}
    assert len(acknowledged) == 120
    assert_whole(store_url, acknowledged)


def _write_sixty(url: str, seed: int, connection: Connection) -> None:
    write_some(url, seed, connection, 60)


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def test_many_processes_that_open_a_new_database_together_migrate_it_once(
    kind: str, request: pytest.FixtureRequest, processes: ForkServerContext
) -> None:
    url: str = request.getfixturevalue("sqlite_url" if kind == "sqlite" else "postgres_url")
    from contextlib import ExitStack

    with ExitStack() as stack:
        pipes = [stack.enter_context(child(processes, open_and_leave, url))[1] for _ in range(8)]
        for pipe in pipes:
            pipe.send("go")
        assert [pipe.recv() for pipe in pipes] == ["ok"] * 8
    with SQLMemoryStore(url) as store:
        assert store.run(ListThreads(resource_id="r")).total == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_opens_the_database_anew_and_leaves_its_parents_connections_alone(store_url: str) -> None:
    with SQLMemoryStore(store_url) as store:
        store.run(CreateThread(thread_id="before", resource_id="r"))
        store.run(GetThread(thread_id="before"))
        in_memory = store_url == "memory://"
        for number in range(3):
            pid = os.fork()
            if pid == 0:
                code = 1
                try:
                    seen = store.run(GetThread(thread_id="before"))
                    if (seen is None) == in_memory:
                        store.run(CreateThread(thread_id=f"child{number}", resource_id="r"))
                        store.close()
                        code = 0
                finally:
                    os._exit(code)
            assert os.waitpid(pid, 0)[1] == 0
            store.run(CreateThread(thread_id=f"parent{number}", resource_id="r"))
        expected = {"before", *(f"parent{n}" for n in range(3))}
        if not in_memory:
            expected |= {f"child{n}" for n in range(3)}
        assert {t.id for t in store.run(ListThreads(resource_id="r"))} == expected


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_process_forked_while_a_write_is_under_way_does_not_wait_for_it(sqlite_url: str) -> None:
    import threading
    from concurrent.futures import ThreadPoolExecutor

    from tests.integration_tests.toys import Waits

    with SQLMemoryStore(sqlite_url, busy_timeout=0.1) as store, ThreadPoolExecutor(1) as pool:
        store.run(CreateThread(thread_id="t", resource_id="r"))
        Waits.inside, Waits.leave = threading.Event(), threading.Event()
        writing = pool.submit(store.run, Waits())
        assert Waits.inside.wait(30)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                if store.run(GetThread(thread_id="t")) is not None:
                    store.close()
                    code = 0
            finally:
                os._exit(code)
        assert os.waitpid(pid, 0)[1] == 0
        Waits.leave.set()
        writing.result(30)
