"""Fixtures that every test can use: databases that are new and empty, and a memory that is closed at the end."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from hypothesis import HealthCheck, settings

from tests.postgres import FOLDER_VARIABLE, PostgresFolder, new_database_name

if TYPE_CHECKING:
    from langchain_mastra_memory.memory import Memory

POSTGRES_FOLDER = pytest.StashKey[PostgresFolder]()

# How long an example takes says how busy the machine is, not whether the code is right.
settings.register_profile("no clock", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("no clock")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let the order be shuffled: tests must not need each other."""
    parser.addoption(
        "--shuffle", metavar="SEED", default=None, help="run the tests in a random order, made of this seed"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Make the folder of the session's PostgreSQL, in the process that outlives the workers."""
    # A developer's own tracing must not see the tests, and tests must not wait for it.
    os.environ["LANGSMITH_TRACING"] = "false"
    os.environ.pop("LANGCHAIN_TRACING_V2", None)
    if not hasattr(config, "workerinput") and FOLDER_VARIABLE not in os.environ:
        config.stash[POSTGRES_FOLDER] = PostgresFolder.create()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop the session's PostgreSQL; nothing of it stays."""
    folder = config.stash.get(POSTGRES_FOLDER, None)
    if folder is not None:
        folder.stop()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what needs PostgreSQL, so that `-m "not postgres"` leaves it out; shuffle when told to."""
    seed = config.getoption("--shuffle")
    if seed is not None:
        # Every worker must come to the same order, so the seed is all that it depends on.
        items.sort(key=lambda item: item.nodeid)
        random.Random(seed).shuffle(items)
    for item in items:
        if "postgres_url" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.postgres)


@pytest.fixture(autouse=True, scope="session")
def _no_network() -> Iterator[None]:
    """Refuse every connection that leaves the machine: no test needs the network, and none may wait for it."""
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: Any) -> None:
        host = str(address[0]) if isinstance(address, tuple) else ""
        if self.family in (socket.AF_INET, socket.AF_INET6) and not host.startswith(("127.", "::1", "localhost")):
            raise OSError(f"a test tried to reach {host}; tests must not need the network")
        connect(self, address)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", guarded)
        yield


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """Return the URL of a SQLite file that does not exist yet."""
    return f"sqlite:///{tmp_path / 'memory.db'}"


@pytest.fixture
def postgres_url() -> Iterator[str]:
    """Return the URL of a new, empty PostgreSQL database; it is dropped after the test."""
    import psycopg

    server = PostgresFolder.current().url()
    name = new_database_name()
    with psycopg.connect(f"{server}/postgres", autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    yield f"{server}/{name}"
    with psycopg.connect(f"{server}/postgres", autocommit=True) as connection:
        connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture(params=["memory", "sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def store_url(request: pytest.FixtureRequest) -> str:
    """Return the URL of a new, empty store: in memory, in a SQLite file, in PostgreSQL."""
    if request.param == "memory":
        return "memory://"
    url: str = request.getfixturevalue("sqlite_url" if request.param == "sqlite" else "postgres_url")
    return url


class MemoryFactory(Protocol):
    """Makes memories; what it made is closed after the test."""

    def __call__(self, url: str | None = None, **options: Any) -> Memory: ...


@pytest.fixture
def memory_factory(sqlite_url: str) -> Iterator[MemoryFactory]:
    """Return a function that makes a `Memory` (by default on this test's SQLite file) and closes it after the test."""
    from langchain_mastra_memory.memory import Memory

    made: list[Memory] = []

    def make(url: str | None = None, **options: Any) -> Memory:
        memory = Memory(url or sqlite_url, **options)
        made.append(memory)
        return memory

    yield make
    for memory in reversed(made):
        memory.close()
