"""`langgraph dev`, the real server from PyPI: a graph without a checkpointer, and our checkpointer from its factory.

The server raises when something blocks its event loop, so each run is also the proof that nothing does.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from langgraph.pregel.remote import RemoteGraph
from langgraph_sdk import get_client

from langchain_mastra_memory.memory import Memory

AGENT = """
from contextlib import asynccontextmanager
from langchain.agents import create_agent
from langchain_mastra_memory.memory import Memory
from langchain_mastra_memory.testing.models import ScriptedChatModel

memory = Memory({url!r}, working_memory=True)


def reply(messages):
    return "I see " + " | ".join(m.text for m in messages if m.type == "human")


graph = create_agent(ScriptedChatModel(reply), middleware=[memory.middleware()])


@asynccontextmanager
async def make_checkpointer():
    yield memory.checkpointer
"""


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def server(folder: Path, url: str, config: dict[str, object]) -> Iterator[str]:
    """Run the server until the caller has done; yield its address."""
    (folder / "agent.py").write_text(AGENT.format(url=url))
    (folder / "langgraph.json").write_text(
        json.dumps({"dependencies": ["."], "graphs": {"agent": "./agent.py:graph"}, **config})
    )
    port = _free_port()
    command = [sys.executable, "-m", "langgraph_cli", "dev", "--no-browser", "--no-reload", "--port", str(port)]
    environment = {**os.environ, "LANGSMITH_TRACING": "false", "LANGGRAPH_CLI_NO_ANALYTICS": "1"}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT, env=environment)
        try:
            address = f"http://127.0.0.1:{port}"
            deadline = time.monotonic() + 90
            while not _answers(f"{address}/ok"):
                log_text = (folder / "log").read_text(errors="replace")
                assert process.poll() is None, f"the server ended:\n{log_text}"
                assert time.monotonic() < deadline, f"the server does not answer:\n{log_text}"
                time.sleep(0.1)  # waits for the server, however long it takes
            yield address
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


async def _talk(address: str, texts: list[str]) -> tuple[str, list[str]]:
    """Return the thread's id and the last run's messages."""
    result: dict[str, list[dict[str, str]]] = {}
    async with get_client(url=address) as client:
        thread = await client.threads.create()
        for text in texts:
            result = await client.runs.wait(
                thread["thread_id"],
                "agent",
                input={"messages": [{"role": "user", "content": text}]},
                config={"configurable": {"resource_id": "user-1"}},
            )
            assert "messages" in result, result
    return thread["thread_id"], [message["content"] for message in result["messages"]]


@pytest.mark.slow
@pytest.mark.parametrize("checkpointer", [False, True])
async def test_the_server_runs_a_graph_with_memory_and_nothing_blocks_it(tmp_path, sqlite_url, checkpointer):
    config: dict[str, object] = {"checkpointer": {"path": "./agent.py:make_checkpointer"}} if checkpointer else {}
    with server(tmp_path, sqlite_url, config) as address:
        thread_id, said = await _talk(address, ["one", "two"])
        async with get_client(url=address) as client:
            result = await RemoteGraph("agent", client=client).ainvoke(
                {"messages": [{"role": "user", "content": "three"}]},
                {"configurable": {"thread_id": thread_id, "resource_id": "user-1"}},
            )
        assert [message["content"] for message in result["messages"]][-2:] == ["three", "I see one | two | three"]
    assert said == ["one", "I see one", "two", "I see one | two"]
    with Memory(sqlite_url) as memory:
        (thread,) = memory.list_threads("user-1")
        assert thread.id == thread_id
        archived = memory.recall(thread_id=thread_id, resource_id="user-1", per_page=False)
        assert [stored.message.text for stored in archived] == [*said, "three", "I see one | two | three"]
