"""What an application puts into a message's metadata is kept with it, whichever way the message comes in."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph

from langchain_mastra_memory.history.options import MessageHistory
from langchain_mastra_memory.memory import Memory
from langchain_mastra_memory.store.sql.engine import SQLMemoryStore
from langchain_mastra_memory.testing.models import ScriptedChatModel

CONFIG: Any = {"configurable": {"thread_id": "t", "resource_id": "ann"}}
Way = Callable[[Memory, list[HumanMessage]], object]


def question(metadata: Any = None, text: str = "hi") -> HumanMessage:
    kwargs = {"metadata": {"channel": "mail", "n": 1}} if metadata is None else {"metadata": metadata}
    return HumanMessage(text, id="q", additional_kwargs=kwargs)


def answer() -> AIMessage:
    return AIMessage("hello", id="a", additional_kwargs={"metadata": {"model": "small"}})


def saved(memory: Memory, messages: list[HumanMessage]) -> object:
    return memory.save_messages([*messages, answer()], thread_id="t", resource_id="ann")


def graph(memory: Memory, messages: list[HumanMessage], durability: Any = "sync") -> object:
    builder = StateGraph(MessagesState)
    builder.add_node("model", lambda _: {"messages": [answer()]})
    builder.add_edge(START, "model")
    builder.add_edge("model", END)
    return builder.compile(checkpointer=memory.checkpointer).invoke(
        {"messages": messages}, CONFIG, durability=durability
    )


def graph_at_exit(memory: Memory, messages: list[HumanMessage]) -> object:
    return graph(memory, messages, "exit")


def agent(memory: Memory, messages: list[HumanMessage], checkpointer: Any = None) -> object:
    model = ScriptedChatModel(lambda _: answer())
    made = create_agent(model, [], middleware=[memory.middleware()], checkpointer=checkpointer)
    return made.invoke({"messages": messages}, CONFIG)


def agent_with_saver(memory: Memory, messages: list[HumanMessage]) -> object:
    return agent(memory, messages, memory.checkpointer)


def agent_with_foreign_saver(memory: Memory, messages: list[HumanMessage]) -> object:
    return agent(memory, messages, InMemorySaver())


WAYS = [saved, graph, graph_at_exit, agent, agent_with_saver, agent_with_foreign_saver]
ways = pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)


def of(memory: Memory, message_id: str = "q") -> Any:
    (found,) = (m for m in memory.recall(thread_id="t", per_page=False) if m.id == message_id)
    return found.metadata


@ways
def test_metadata_of_a_message_is_that_of_the_stored_one(store_url: str, way: Way) -> None:
    with Memory(store_url) as memory:
        way(memory, [question()])
        assert of(memory, "q") == {"channel": "mail", "n": 1}
        assert of(memory, "a") == {"model": "small"}
        assert [m.id for m in memory.recall(thread_id="t", metadata={"channel": "mail"})] == ["q"]


@ways
def test_metadata_is_sealed_in_an_encrypted_store_too(tmp_path: Any, way: Way) -> None:
    from langchain_mastra_memory.store.wrappers import EncryptedStore

    path = tmp_path / "m.db"
    store = EncryptedStore(SQLMemoryStore(f"sqlite:///{path}"), os.urandom(64))
    with Memory(store) as memory:
        way(memory, [question()])
        assert of(memory, "q") == {"channel": "mail", "n": 1}
    store.close()
    assert b"mail" not in path.read_bytes()


@pytest.mark.parametrize("way", WAYS[1:], ids=lambda way: way.__name__)
@pytest.mark.parametrize("metadata", ["text", {"k": b"bytes"}, {5: 1}, {"k": float("nan")}])
def test_a_run_does_not_fail_for_metadata_that_is_no_json_data(way: Way, metadata: Any) -> None:
    with Memory() as memory:
        way(memory, [question(metadata)])
        assert of(memory) == {}


@pytest.mark.parametrize("way", [agent, agent_with_saver, agent_with_foreign_saver], ids=lambda way: way.__name__)
def test_metadata_is_that_of_what_before_save_gives_back(way: Way) -> None:
    def redacted(message: Any) -> Any:
        return message.model_copy(update={"additional_kwargs": {"metadata": {"redacted": True}}})

    with Memory(message_history=MessageHistory(before_save=redacted)) as memory:
        way(memory, [question()])
        assert of(memory, "q") == of(memory, "a") == {"redacted": True}


@pytest.mark.parametrize("way", [graph, agent_with_saver, agent_with_foreign_saver], ids=lambda way: way.__name__)
def test_metadata_that_was_set_from_outside_stays_when_a_run_changes_the_message(way: Way) -> None:
    with Memory() as memory:
        way(memory, [question()])
        memory.update_messages([{"id": "q", "metadata": {"starred": True}}], thread_id="t")
        way(memory, [question({"n": 2}, "hi again")])
        assert of(memory) == {"channel": "mail", "n": 2, "starred": True}
