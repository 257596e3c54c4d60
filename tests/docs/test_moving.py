"""The recipe of docs/graphs.md for the threads of another checkpointer, on a thread that is hard to move."""

from __future__ import annotations

from typing import Any

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

from langchain_mastra_memory import Memory
from tests.docs.examples import ROOT, fences

CONFIG = {"configurable": {"thread_id": "t", "resource_id": "r"}}


class State(MessagesState):
    one: str
    two: str


def moved(old: Any, memory: Memory) -> None:
    (recipe,) = (fence.code for fence in fences(ROOT / "docs/graphs.md") if "def move(" in fence.code)
    namespace: dict[str, Any] = {"memory": memory}
    exec(recipe.partition("old = InMemorySaver()")[0], namespace)
    namespace["move"](old, "t", "r")


def test_a_moved_thread_keeps_its_forks_its_pending_interrupt_and_what_was_done_beside_it():
    ran = []

    def done(state: State) -> dict[str, Any]:
        ran.append("done")
        return {"one": "1", "two": "2", "messages": [("ai", "done")]}

    def asking(state: State) -> dict[str, Any]:
        return {"messages": [("ai", interrupt("sure?"))]}

    builder = StateGraph(State).add_node("done", done).add_node("asking", asking)
    builder.add_edge(START, "done").add_edge(START, "asking")
    old = InMemorySaver()
    graph = builder.compile(checkpointer=old)
    before = {"configurable": {"thread_id": "t"}}
    graph.invoke({"messages": [("user", "first")]}, before)
    graph.invoke(Command(resume="yes"), before)
    first = graph.get_state(before)
    graph.invoke({"messages": [("user", "left")]}, before)
    graph.invoke(Command(resume="yes"), before)
    graph.invoke({"messages": [("user", "fork")]}, first.config)
    with Memory("memory://") as memory:
        moved(old, memory)
        after = builder.compile(checkpointer=memory.checkpointer)
        assert after.get_state(CONFIG).next == ("asking",)
        assert [branch.current for branch in memory.list_branches("t")] == [False, True]
        ran.clear()
        state = after.invoke(Command(resume="yes"), CONFIG)
        assert (state["one"], state["two"], ran) == ("1", "2", [])
        texts = ["first", "yes", "done", "fork", "yes", "done"]  # LangGraph applies writes by the names of nodes
        assert [message.text for message in state["messages"]] == texts
        assert [stored.message.text for stored in memory.recall(thread_id="t", resource_id="r")] == texts
