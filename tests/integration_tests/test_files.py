"""Files that cannot be used: each gives its own error, and nothing of them is touched or lost."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from langchain_mastra_memory.errors import (
    SchemaVersionError,
    StoreCorruptError,
    StoreError,
    StoreFullError,
    StoreReadOnlyError,
    StoreUnavailableError,
)
from langchain_mastra_memory.store.operations.threads import CreateThread, GetThread, ListThreads, UpdateThread
from langchain_mastra_memory.store.sql.engine import SQLMemoryStore

LARGE = "x" * 50_000


def url_of(path: Path) -> str:
    return f"sqlite:///{path}"


def make(path: Path, *ids: str) -> None:
    """Make a database with threads."""
    with SQLMemoryStore(url_of(path)) as store:
        for thread_id in ids:
            store.run(CreateThread(thread_id=thread_id, resource_id="r"))


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir() if not file.name.endswith("-shm")}


async def refusal(url: str, error: type[StoreError], *, asynchronous: bool) -> str:
    """Open a store, which must fail, and return what it says."""
    store = SQLMemoryStore(url, busy_timeout=0.1)
    with pytest.raises(error) as caught:
        await store.arun(GetThread(thread_id="t")) if asynchronous else store.run(GetThread(thread_id="t"))
    assert type(caught.value) is error
    store.close()
    return str(caught.value)


both = pytest.mark.parametrize("asynchronous", [False, True], ids=["run", "arun"])


@both
async def test_a_missing_folder_is_named(tmp_path: Path, asynchronous: bool) -> None:
    message = await refusal(url_of(tmp_path / "no" / "m.db"), StoreUnavailableError, asynchronous=asynchronous)
    assert str(tmp_path / "no") in message


@both
async def test_a_folder_instead_of_a_file_is_refused(tmp_path: Path, asynchronous: bool) -> None:
    await refusal(url_of(tmp_path), StoreUnavailableError, asynchronous=asynchronous)
    assert bytes_of(tmp_path) == {}


@both
@pytest.mark.parametrize(
    "content", [b"hello, I am a text file\n", os.urandom(5000), b"SQLite format 3\0" + b"\xff" * 4080]
)
async def test_a_file_that_is_no_database_is_refused_untouched(
    tmp_path: Path, asynchronous: bool, content: bytes
) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    message = await refusal(url_of(path), StoreCorruptError, asynchronous=asynchronous)
    assert "notes.txt" in message
    assert bytes_of(tmp_path) == {"notes.txt": content}


@both
async def test_a_database_of_another_application_is_refused_untouched(tmp_path: Path, asynchronous: bool) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE invoices (id INTEGER)")
    other.close()
    before = bytes_of(tmp_path)
    message = await refusal(url_of(path), StoreCorruptError, asynchronous=asynchronous)
    assert "invoices" in message
    assert bytes_of(tmp_path) == before


@both
async def test_a_newer_database_is_refused_untouched(tmp_path: Path, asynchronous: bool) -> None:
    path = tmp_path / "m.db"
    make(path, "t")
    with sqlite3.connect(path) as newer:
        newer.execute("INSERT INTO mastra_schema (version, applied_at) VALUES (9999, 0)")
    newer.close()
    before = bytes_of(tmp_path)
    message = await refusal(url_of(path), SchemaVersionError, asynchronous=asynchronous)
    assert "9999" in message
    assert "upgrade" in message
    assert bytes_of(tmp_path) == before


def test_a_newer_postgresql_database_is_refused_untouched(postgres_url: str) -> None:
    import psycopg

    with SQLMemoryStore(postgres_url) as store:
        store.run(CreateThread(thread_id="t", resource_id="r"))
    with psycopg.connect(postgres_url) as newer:
        newer.execute("INSERT INTO mastra_schema (version, applied_at) VALUES (9999, 0)")
    with SQLMemoryStore(postgres_url) as store, pytest.raises(SchemaVersionError, match="9999"):
        store.run(CreateThread(thread_id="u", resource_id="r"))
    with psycopg.connect(postgres_url) as look:
        assert look.execute("SELECT id FROM mastra_threads").fetchall() == [("t",)]


def test_damage_in_the_middle_of_a_file_is_reported_when_it_is_met(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    make(path, *(f"thread-{i:04}" for i in range(300)))
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096 * 2)
        file.write(b"\xff" * (size - 4096 * 2))
    with SQLMemoryStore(url_of(path)) as store, pytest.raises(StoreCorruptError):
        store.run(ListThreads(resource_id="r", per_page=False))


@pytest.fixture
def immutable() -> Iterator[object]:
    """Make files that even root cannot write."""
    frozen: list[Path] = []

    def freeze(path: Path) -> None:
        if os.geteuid() != 0:
            path.chmod(0o555 if path.is_dir() else 0o444)
        elif shutil.which("chattr") is None or subprocess.run(["chattr", "+i", path], check=False).returncode:
            pytest.skip("root can write every file here")
        frozen.append(path)

    yield freeze
    for path in frozen:
        if os.geteuid() != 0:
            path.chmod(0o755)
        else:
            subprocess.run(["chattr", "-i", path], check=True)


@both
async def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path, asynchronous: bool, immutable) -> None:
    folder = tmp_path / "frozen"
    folder.mkdir()
    immutable(folder)
    message = await refusal(url_of(folder / "m.db"), StoreUnavailableError, asynchronous=asynchronous)
    assert "permissions" in message


async def test_a_read_only_file_is_read_and_every_write_is_refused(tmp_path: Path, immutable) -> None:
    path = tmp_path / "m.db"
    make(path, "t")
    immutable(path)
    with SQLMemoryStore(url_of(path)) as store:
        assert store.run(GetThread(thread_id="t")) is not None
        for _ in range(2):
            with pytest.raises(StoreReadOnlyError, match="read-only"):
                store.run(CreateThread(thread_id="u", resource_id="r"))
            with pytest.raises(StoreReadOnlyError, match="read-only"):
                await store.arun(CreateThread(thread_id="u", resource_id="r"))
        assert [t.id for t in await store.arun(ListThreads(resource_id="r"))] == ["t"]


def test_a_read_only_postgresql_reads_and_refuses_writes(postgres_url: str) -> None:
    with SQLMemoryStore(postgres_url) as store:
        store.run(CreateThread(thread_id="t", resource_id="r"))
    import psycopg

    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute("CREATE ROLE looker LOGIN")
        admin.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO looker")
    try:
        with SQLMemoryStore(postgres_url.replace("postgres@", "looker@")) as store:
            assert store.run(GetThread(thread_id="t")) is not None
            with pytest.raises(StoreReadOnlyError):
                store.run(CreateThread(thread_id="u", resource_id="r"))
    finally:
        with psycopg.connect(postgres_url, autocommit=True) as admin:
            admin.execute("DROP OWNED BY looker")
            admin.execute("DROP ROLE looker")


def fill(store: SQLMemoryStore) -> list[str]:
    """Write until the space is used up; return what was acknowledged."""
    saved: list[str] = []

    def write_on() -> None:
        for number in range(10_000):
            store.run(CreateThread(thread_id=f"t{number}", resource_id="r", metadata={"x": LARGE}))
            saved.append(f"t{number}")

    with pytest.raises(StoreFullError, match="space"):
        write_on()
    assert len(saved) > 3
    return saved


def assert_intact(path: Path, saved: list[str]) -> None:
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()
    with SQLMemoryStore(url_of(path)) as store:
        assert sorted(t.id for t in store.run(ListThreads(resource_id="r", per_page=False))) == sorted(saved)


def leave_pages(store: SQLMemoryStore, pages: int) -> None:
    """Let the database grow by no more than so many pages."""
    backend = store._backend()
    backend._queue.run(lambda cursor: None)
    connection = backend._queue._connection
    [(size,)] = connection.execute("PRAGMA page_count").fetchall()
    connection.execute(f"PRAGMA max_page_count={size + pages}").fetchall()


async def test_a_full_database_says_so_and_keeps_what_was_saved(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    with SQLMemoryStore(url_of(path)) as store:
        store.run(ListThreads(resource_id="r"))
        leave_pages(store, 200)
        saved = fill(store)
        assert sorted(t.id for t in store.run(ListThreads(resource_id="r", per_page=False))) == sorted(saved)
        with pytest.raises(StoreFullError):
            await store.arun(CreateThread(thread_id="large", resource_id="r", metadata={"x": LARGE}))
        leave_pages(store, 3000)
        await store.arun(CreateThread(thread_id="later", resource_id="r", metadata={"x": LARGE}))
    assert_intact(path, [*saved, "later"])


async def test_of_a_burst_into_a_nearly_full_database_what_fits_is_saved(tmp_path: Path) -> None:
    import asyncio

    path = tmp_path / "m.db"
    with SQLMemoryStore(url_of(path)) as store:
        store.run(CreateThread(thread_id="small", resource_id="r"))
        leave_pages(store, 60)
        burst = [
            store.arun(CreateThread(thread_id=f"t{i}", resource_id="r", metadata={"x": LARGE if i % 2 else "little"}))
            for i in range(40)
        ]
        outcomes = await asyncio.gather(*burst, return_exceptions=True)
        failed = [i for i, outcome in enumerate(outcomes) if isinstance(outcome, BaseException)]
        assert failed
        assert all(isinstance(outcomes[i], StoreFullError) for i in failed), outcomes
        assert any(i not in failed for i in range(failed[0], 40)), "what fits is saved, after a failure too"
    assert_intact(path, ["small", *(f"t{i}" for i in range(40) if i not in failed)])


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of two megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_says_so_keeps_what_was_saved_and_goes_on_when_there_is_space(tiny_disk: Path) -> None:
    ballast = tiny_disk / "ballast"
    ballast.write_bytes(b"x" * 300_000)
    path = tiny_disk / "m.db"
    store = SQLMemoryStore(url_of(path))
    saved = fill(store)
    assert sorted(t.id for t in store.run(ListThreads(resource_id="r", per_page=False))) == sorted(saved)
    ballast.unlink()
    store.run(CreateThread(thread_id="later", resource_id="r"))
    store.run(UpdateThread(thread_id=saved[0], metadata={"x": None}))
    store.close()
    assert_intact(path, [*saved, "later"])


def test_a_limit_of_file_sizes_says_so_keeps_what_was_saved_and_goes_on_when_it_is_lifted(tmp_path: Path) -> None:
    import resource

    path = tmp_path / "m.db"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with SQLMemoryStore(url_of(path)) as store:
        store.run(ListThreads(resource_id="r"))
        resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, hard))
        try:
            saved = fill(store)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        store.run(CreateThread(thread_id="later", resource_id="r", metadata={"x": LARGE}))
    assert_intact(path, [*saved, "later"])


def test_a_disk_that_is_full_from_the_start_says_so(tiny_disk: Path) -> None:
    (tiny_disk / "ballast").write_bytes(b"x" * (2 * 1024 * 1024 - 8192))
    with SQLMemoryStore(url_of(tiny_disk / "m.db")) as store, pytest.raises(StoreFullError):
        store.run(CreateThread(thread_id="t", resource_id="r"))
    (tiny_disk / "ballast").unlink()
    make(tiny_disk / "m.db", "t")
