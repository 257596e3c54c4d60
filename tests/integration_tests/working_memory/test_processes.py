"""Several processes on one page: no field is lost, one row for the resource, versions without gaps."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa

from langchain_mastra_memory.memory import Memory
from langchain_mastra_memory.store.operations.pages import ListPages, PageOwner
from langchain_mastra_memory.working_memory.options import WorkingMemory

WRITERS = Path(__file__).with_name("writers.py")
OWNER = PageOwner(scope="resource", resource_id="r")

stores = pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])


def url_of(kind: str, request: pytest.FixtureRequest) -> str:
    return request.getfixturevalue("sqlite_url" if kind == "sqlite" else "postgres_url")


def run_writers(url: str, mode: str, processes: int, count: int) -> None:
    """Let so many processes write so often each, all at once."""
    command = [sys.executable, str(WRITERS), url, mode, str(processes), str(count)]
    subprocess.run(command, check=True, timeout=300)


@stores
def test_two_processes_that_change_different_fields_never_lose_one(kind, request):
    url = url_of(kind, request)
    run_writers(url, "fields", processes=2, count=25)
    with Memory(url, working_memory=WorkingMemory(schema={"type": "object"})) as memory:
        page = memory.get_working_memory(resource_id="r")
        versions = memory.store.run(ListPages(owner=OWNER))
    assert page == {
        **{f"field_{n}": n for n in range(50)},
        "nested": {f"n{n}": n for n in range(50)},
    }
    assert [version.version for version in versions] == list(range(50, 0, -1))


@pytest.mark.slow
@stores
def test_ten_processes_that_make_one_resource_make_one_row_and_lose_no_version(kind, request):
    url = url_of(kind, request)
    run_writers(url, "text", processes=10, count=3)
    with Memory(url, working_memory=True) as memory:
        page = memory.get_working_memory(resource_id="r")
        versions = memory.store.run(ListPages(owner=OWNER))
    assert sorted(version.text for version in versions) == sorted(f"text {n}" for n in range(30))
    assert page == versions[0].text
    engine = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.connect() as connection:
        rows = connection.execute(sa.text("SELECT count(*) FROM mastra_resources WHERE id = 'r'")).scalar()
    engine.dispose()
    assert rows == 1
