"""Several processes on one database: no update is lost, and seqs follow the order of commits."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import Any

import pytest

STEPS = 15


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def shared_url(request: pytest.FixtureRequest) -> str:
    """Return the URL of a database that processes can share."""
    url: str = request.getfixturevalue("sqlite_url" if request.param == "sqlite" else "postgres_url")
    return url


def start(url: str, name: str, code: str) -> subprocess.Popen[str]:
    """Start a process with a memory on the database; it waits for a line on its input."""
    script = f"""
import sys
from langchain_mastra_memory.memory import Memory

with Memory({url!r}) as memory:
    memory.get_thread("t")
    print("ready", flush=True)
    sys.stdin.readline()
    name, steps = {name!r}, {STEPS}
{textwrap.indent(textwrap.dedent(code), "    ")}
"""
    return subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def go(processes: list[subprocess.Popen[str]], meanwhile: Any = None) -> None:
    """Let processes begin together, and wait until each has ended well."""
    for process in processes:
        assert process.stdout.readline() == "ready\n", process.stderr.read()
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    while any(process.poll() is None for process in processes):
        if meanwhile is None:
            break
        meanwhile()
    for process in processes:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors


def test_parallel_metadata_updates_of_two_processes_all_count(memory_factory: Any, shared_url: str) -> None:
    memory = memory_factory(shared_url)
    memory.create_thread("r", thread_id="t", metadata={"old": 1})
    code = """
    for step in range(steps):
        memory.update_thread("t", metadata={f"{name}-{step}": step}, resource_id="r")
    """
    go([start(shared_url, name, code) for name in ("a", "b")])
    expected = {f"{name}-{step}": step for name in "ab" for step in range(STEPS)}
    assert memory.get_thread("t").metadata == {"old": 1, **expected}


def test_seqs_of_two_processes_follow_the_order_of_commits(memory_factory: Any, shared_url: str) -> None:
    memory = memory_factory(shared_url)
    memory.create_thread("r", thread_id="t")
    code = """
    for step in range(steps):
        memory.save_messages([("user", f"{name} {step} 0"), ("ai", f"{name} {step} 1")], thread_id="t")
    """
    seen: list[int] = []

    def look() -> None:
        seqs = [row.seq for row in memory.recall(thread_id="t", per_page=False)]
        assert seqs == list(range(1, len(seqs) + 1))  # nothing appears later below what was there
        seen.append(len(seqs))

    go([start(shared_url, name, code) for name in ("a", "b")], meanwhile=look)
    rows = memory.recall(thread_id="t", per_page=False)
    said = [str(row.message.content).split() for row in rows]
    assert [row.seq for row in rows] == list(range(1, 4 * STEPS + 1))
    assert seen == sorted(seen)
    for name in "ab":
        assert [int(step) for who, step, _ in said if who == name] == [n for n in range(STEPS) for _ in (0, 1)]
    assert all(one[:2] == other[:2] for one, other in zip(said[::2], said[1::2], strict=True))


def test_two_processes_that_make_one_thread_make_it_once(memory_factory: Any, shared_url: str) -> None:
    memory = memory_factory(shared_url)
    memory.get_thread("t")
    code = """
    for step in range(steps):
        memory.save_messages([{"role": "user", "content": "x", "id": f"m{step}"}], thread_id=f"t{step}", resource_id="r")
    """
    go([start(shared_url, name, code) for name in ("a", "b")])
    assert memory.list_threads("r").total == STEPS
    assert [row.id for row in memory.recall(resource_id="r", per_page=False, direction="asc")].count("m3") == 1
