"""A thread that is deleted while one of its own runs goes on: the run goes on, what was deleted stays deleted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph

from langchain_mastra_memory.memory import Memory
from langchain_mastra_memory.store.sql.engine import SQLMemoryStore
from langchain_mastra_memory.testing.models import ScriptedChatModel
from langchain_mastra_memory.threads.putting import Putting
from tests.unit_tests.threads.graphs import MODES

CONFIG: Any = {"configurable": {"thread_id": "t", "resource_id": "ann"}}


def by_memory(memory: Memory) -> object:
    return memory.delete_thread("t")


def by_saver(memory: Memory) -> object:
    return memory.checkpointer.delete_thread("t")


def by_somebody_else(memory: Memory) -> object:
    return Memory(memory.store).delete_thread("t")


def graph(memory: Memory, during: Callable[[], object], steps: int = 3) -> Any:
    """Return a graph that says one thing in each step, and does something in the middle one of a question to delete."""

    def say(state: MessagesState, step: int) -> dict[str, Any]:
        question = next(m for m in reversed(state["messages"]) if m.type == "human")
        if question.text == "delete" and step == steps // 2:
            during()
        return {"messages": [AIMessage(f"{question.text} {step}")]}

    builder = StateGraph(MessagesState)
    for step in range(steps):
        builder.add_node(f"n{step}", lambda state, step=step: say(state, step))
        builder.add_edge(START if step == 0 else f"n{step - 1}", f"n{step}")
    builder.add_edge(f"n{steps - 1}", END)
    return builder.compile(checkpointer=memory.checkpointer)


def archive(memory: Memory) -> list[str]:
    return [m.message.text for m in memory.recall(thread_id="t", per_page=False)]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("delete", [by_memory, by_saver, by_somebody_else], ids=lambda delete: delete.__name__)
def test_only_the_run_itself_is_archived_again(store_url: str, mode: Any, delete: Callable[[Memory], object]) -> None:
    with SQLMemoryStore(store_url) as store:
        memory = Memory(store)
        bot = graph(memory, lambda: delete(memory))
        for text in ("secret", "delete", "later"):
            bot.invoke({"messages": [("user", text)]}, CONFIG, durability=mode)
        run = ["delete", "delete 0", "delete 1", "delete 2"]
        assert archive(memory) == [*run, "later", "later 0", "later 1", "later 2"]
        assert len(memory.list_branches("t")) == 1
        state = bot.get_state(CONFIG).values["messages"]  # as with every checkpointer: the run has it in its hands
        assert [m.text for m in state][:2] == ["secret", "secret 0"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("delete", [by_memory, by_saver], ids=lambda delete: delete.__name__)
def test_what_was_before_a_run_stays_deleted_if_its_thread_goes_as_it_begins(
    store_url: str, mode: Any, delete: Callable[[Memory], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Putting._plan
    left = []

    def plan_and_lose_the_thread(*arguments: Any) -> Any:
        planned = plan(*arguments)
        if left:
            delete(left.pop())
        return planned

    monkeypatch.setattr(Putting, "_plan", plan_and_lose_the_thread)
    with SQLMemoryStore(store_url) as store:
        memory = Memory(store)
        bot = graph(memory, lambda: None)
        bot.invoke({"messages": [("user", "secret")]}, CONFIG, durability=mode)
        left.append(memory)
        bot.invoke({"messages": [("user", "later")]}, CONFIG, durability=mode)
        assert archive(memory) == ["later", "later 0", "later 1", "later 2"]


def test_the_first_run_of_a_thread_is_archived_whole() -> None:
    with Memory() as memory:
        bot = graph(memory, lambda: memory.delete_thread("t"))
        bot.invoke({"messages": [("user", "delete")]}, CONFIG)
        assert archive(memory) == ["delete", "delete 0", "delete 1", "delete 2"]


def test_a_long_run_does_not_bring_back_what_was_before_it() -> None:
    with Memory() as memory:
        bot = graph(memory, lambda: memory.delete_thread("t"), steps=60)
        for text in ("secret", "delete"):
            bot.invoke({"messages": [("user", text)]}, {**CONFIG, "recursion_limit": 100}, durability="sync")
        found = archive(memory)
        assert not [text for text in found if text.startswith("secret")]
        assert found[-30:] == [f"delete {step}" for step in range(30, 60)]


def test_a_new_conversation_under_the_id_of_a_deleted_one_is_archived_whole() -> None:
    with Memory() as memory:
        bot = graph(memory, lambda: None)
        question = HumanMessage("hi", id="q")
        bot.invoke({"messages": [question]}, CONFIG)
        memory.delete_thread("t")
        bot.invoke({"messages": [question]}, CONFIG)
        assert archive(memory) == ["hi", "hi 0", "hi 1", "hi 2"]


def test_checkpoints_of_another_saver_are_archived_though_their_parents_are_not_here() -> None:
    old = InMemorySaver()
    with Memory() as memory, Memory() as elsewhere:
        bot = graph(elsewhere, lambda: None)
        bot.checkpointer = old
        bot.invoke({"messages": [("user", "hi")]}, CONFIG)
        newest = next(iter(old.list(CONFIG)))
        versions = newest.checkpoint["channel_versions"]
        memory.checkpointer.put(newest.parent_config, newest.checkpoint, newest.metadata, versions)
        assert archive(memory) == ["hi", "hi 0", "hi 1", "hi 2"]


@pytest.mark.parametrize("saver", ["ours", "another", None])
def test_an_agent_that_deletes_its_own_thread_keeps_the_turn_in_which_it_did(saver: str | None) -> None:
    with Memory() as memory:

        @tool
        def forget_me() -> str:
            """Delete this conversation."""
            memory.delete_thread("t", resource_id="ann")
            return "done"

        def answer(messages: Any) -> AIMessage:
            if isinstance(messages[-1], ToolMessage):
                return AIMessage("It is gone.")
            if messages[-1].text == "delete":
                return AIMessage("", tool_calls=[{"name": "forget_me", "args": {}, "id": "c1"}])
            return AIMessage("ok")

        checkpointer: Any = {"ours": memory.checkpointer, "another": InMemorySaver(), None: None}[saver]
        model = ScriptedChatModel(answer)
        agent = create_agent(model, [forget_me], middleware=[memory.middleware()], checkpointer=checkpointer)
        for text in ("secret", "delete"):
            agent.invoke({"messages": [("user", text)]}, CONFIG)
        assert archive(memory) == ["delete", "", "done", "It is gone."]
