"""Many runs on one thread at once, through savers that know nothing of each other: each keeps its own line."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import END, START, MessagesState, StateGraph

from langchain_mastra_memory.store.operations.messages import ListMessages, NewMessage, SaveMessages
from langchain_mastra_memory.store.operations.threads import CreateThread, GetThread, UpdateThread
from langchain_mastra_memory.store.sql.engine import SQLMemoryStore
from langchain_mastra_memory.threads.saver import ThreadSaver

CONFIG: dict[str, Any] = {"configurable": {"thread_id": "t", "resource_id": "r"}}


def chat(store: SQLMemoryStore) -> Any:
    graph = StateGraph(MessagesState)
    graph.add_node("answer", lambda state: {"messages": [AIMessage(f"re: {state['messages'][-1].text}")]})
    graph.add_edge(START, "answer")
    graph.add_edge("answer", END)
    return graph.compile(checkpointer=ThreadSaver(store))


def assert_every_line_whole(store: SQLMemoryStore, said: set[str]) -> None:
    """Check that each answered question is on a line whose archive is what its checkpoint says."""
    found: set[str] = set()
    for checkpoint in ThreadSaver(store).list(CONFIG):
        messages = checkpoint.checkpoint["channel_values"].get("messages", [])
        if not messages or not str(messages[-1].text).startswith("re: "):
            continue
        state = [str(message.text) for message in messages]
        found.add(state[-1].removeprefix("re: "))
        checkpoint_id = checkpoint.config["configurable"]["checkpoint_id"]
        page = store.run(ListMessages(thread_ids=("t",), per_page=False, checkpoint_id=checkpoint_id))
        assert [str(stored.message.text) for stored in page] == state
    assert said <= found


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_runs_on_one_thread_at_once_lose_nothing_and_mix_nothing(store_url: str, asynchronous: bool) -> None:
    with SQLMemoryStore(store_url) as store:
        chat(store).invoke({"messages": [HumanMessage("first")]}, CONFIG)
        questions = {f"question {i}" for i in range(12)}

        def ask(question: str) -> None:
            chat(store).invoke({"messages": [HumanMessage(question)]}, CONFIG)

        async def ask_all() -> None:
            asked = [chat(store).ainvoke({"messages": [HumanMessage(q)]}, CONFIG) for q in questions]
            await asyncio.gather(*asked)

        if asynchronous:
            asyncio.run(ask_all())
        else:
            with ThreadPoolExecutor(6) as pool:
                list(pool.map(ask, questions))
        assert_every_line_whole(store, {"first", *questions})
        state = chat(store).get_state(CONFIG).values["messages"]
        archive = store.run(ListMessages(thread_ids=("t",), per_page=False))
        assert [stored.message for stored in archive] == state


def test_runs_saves_and_changes_of_one_thread_at_once_all_stay(store_url: str) -> None:
    with SQLMemoryStore(store_url) as store:
        store.run(CreateThread(thread_id="t", resource_id="r"))

        def work(i: int) -> None:
            if i % 3 == 0:
                chat(store).invoke({"messages": [HumanMessage(f"question {i}")]}, CONFIG)
            elif i % 3 == 1:
                message = NewMessage(message=HumanMessage(f"note {i}", id=f"note {i}"), tokens=1)
                store.run(SaveMessages(thread_id="t", messages=(message,)))
            else:
                store.run(UpdateThread(thread_id="t", metadata={f"k{i}": i}))

        with ThreadPoolExecutor(6) as pool:
            list(pool.map(work, range(24)))
        thread = store.run(GetThread(thread_id="t"))
        assert thread is not None
        assert sorted(thread.metadata) == sorted(f"k{i}" for i in range(2, 24, 3))
        state = {str(m.text) for m in chat(store).get_state(CONFIG).values["messages"]}
        archive = {str(stored.message.text) for stored in store.run(ListMessages(thread_ids=("t",), per_page=False))}
        assert state <= archive


async def test_two_stores_of_one_process_over_one_file_do_not_lock_each_other_out(sqlite_url: str) -> None:
    with SQLMemoryStore(sqlite_url) as one, SQLMemoryStore(sqlite_url) as two:
        one.run(CreateThread(thread_id="t", resource_id="r"))

        def change(i: int) -> Any:
            return UpdateThread(thread_id="t", metadata={f"k{i}": i})

        jobs = [asyncio.to_thread((one, two)[i % 2].run, change(i)) for i in range(25)]
        jobs += [(one, two)[i % 2].arun(change(i)) for i in range(25, 50)]
        await asyncio.gather(*jobs)
        thread = two.run(GetThread(thread_id="t"))
        assert thread is not None
        assert len(thread.metadata) == 50
