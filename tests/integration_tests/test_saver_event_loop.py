"""The checkpointer beside event loops: it blocks none, belongs to none, and shares a thread with other processes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest
from blockbuster import blockbuster_ctx
from langchain_core.messages import HumanMessage

from langchain_mastra_memory.memory import Memory
from tests.unit_tests.threads.graphs import STATES, Bot

TURN = """
import sys
from langchain_core.messages import HumanMessage
from langchain_mastra_memory.memory import Memory
from tests.unit_tests.threads.graphs import Bot
import asyncio

async def main(url, name):
    with Memory(url) as memory:
        chat = Bot(memory, thread_id=name)
        for turn in range(5):
            await chat.say(f"{name} {turn}")

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("kind", list(STATES))
async def test_an_async_run_never_blocks_the_event_loop(store_url: str, kind: str) -> None:
    memory = Memory(store_url)
    chat = Bot(memory, kind=kind, awaits=True, mode="async")
    with blockbuster_ctx():
        for turn in range(3):
            await chat.say(str(turn))
        assert len(await chat.history()) > 3
        await chat.saver.aprune(["t"])
        await chat.saver.acopy_thread("t", "copy")
        await chat.saver.adelete_for_runs(["nobody"])
        await chat.saver.adelete_thread("copy")
        await memory.aclose()


def test_one_saver_serves_several_event_loops_and_plain_threads_at_once(memory_factory) -> None:
    memory = memory_factory()

    def sync(name: str) -> None:
        asyncio.run(Bot(memory, thread_id=name, awaits=False).say("1"))

    def awaited(name: str) -> None:
        asyncio.run(Bot(memory, thread_id=name, awaits=True, mode="async").say("1"))

    runs = [threading.Thread(target=run, args=(f"{run.__name__}{n}",)) for n in range(4) for run in (sync, awaited)]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    for run in ("sync", "awaited"):
        for n in range(4):
            page = memory.recall(thread_id=f"{run}{n}", per_page=False)
            assert [item.message.text for item in page] == ["1", "a:1:1"]


def test_processes_share_a_file_each_with_a_conversation_of_its_own(sqlite_url: str) -> None:
    workers = [subprocess.Popen([sys.executable, "-c", TURN, sqlite_url, f"t{n}"]) for n in range(3)]
    assert [worker.wait(120) for worker in workers] == [0, 0, 0]
    with Memory(sqlite_url) as memory:
        for n in range(3):
            page = memory.recall(thread_id=f"t{n}", per_page=False)
            assert [m.message.text for m in page if m.role == "human"] == [f"t{n} {turn}" for turn in range(5)]


async def test_processes_may_take_turns_on_one_thread(sqlite_url: str) -> None:
    memories = [Memory(sqlite_url) for _ in range(2)]
    bots = [Bot(memory, awaits=True) for memory in memories]
    for turn in range(6):
        await bots[turn % 2].say(str(turn))
    assert await bots[0].shown() == await bots[1].shown() == bots[0].archive() == bots[1].archive()
    assert [t for t in bots[0].archive() if not t.startswith("a:")] == [str(turn) for turn in range(6)]
    state = await bots[0].state()
    await bots[0].run({"messages": [HumanMessage("edited", id=state.values["messages"][0].id)]})
    assert (await bots[1].shown())[0] == "edited"
    for memory in memories:
        await memory.aclose()
