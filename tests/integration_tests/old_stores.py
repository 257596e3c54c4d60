"""Database files as earlier versions wrote them: how one is made, and what must be found in it for ever.

`python -m tests.integration_tests.old_stores` adds `tests/data/stores/NNNN.db`, where NNNN is the newest migration. A file
that is there already is not touched: once a version is released, its files stay as they are.
"""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.messages.tool import tool_call
from langgraph.graph import END, START, MessagesState, StateGraph

from langchain_mastra_memory.memory import Memory
from langchain_mastra_memory.store.sql.migrate import migrations
from langchain_mastra_memory.testing.models import ScriptedChatModel

FOLDER = Path(__file__).parents[1] / "data" / "stores"
WHEN = datetime(2026, 11, 30, 12, tzinfo=UTC)
CONFIG: dict[str, Any] = {"configurable": {"thread_id": "chat", "resource_id": "ada"}}
MESSAGES = (
    HumanMessage("My cat is called Oscar. NUL \0 surrogate \ud800", id="q1"),
    AIMessage("", id="a1", tool_calls=[tool_call(name="note", args={"name": "Oscar"}, id="c1")]),
    ToolMessage("noted", id="r1", tool_call_id="c1", artifact={"ok": True}),
    AIMessage([{"type": "text", "text": "Nice name!"}], id="a2"),
)


def open_memory(url: str) -> Memory:
    """Open a memory with the features that the files were written with."""
    return Memory(
        url,
        model=ScriptedChatModel(lambda _messages: "* The user has a cat called Oscar"),
        working_memory=True,
        semantic_recall=True,
        embeddings=DeterministicFakeEmbedding(size=16),
        observational_memory=True,
        clock=lambda: WHEN,
    )


def graph_of(memory: Memory) -> Any:
    """Return a graph that answers, with the memory's checkpointer."""
    graph = StateGraph(MessagesState)
    graph.add_node("answer", lambda state: {"messages": [AIMessage(f"re: {state['messages'][-1].text}")]})
    graph.add_edge(START, "answer")
    graph.add_edge("answer", END)
    return graph.compile(checkpointer=memory.checkpointer)


def fill(url: str) -> None:
    """Write what a file has."""
    with open_memory(url) as memory:
        memory.create_thread("ada", thread_id="trip", title="Lisbon", metadata={"team": "x", "n": 1})
        memory.save_messages(MESSAGES, thread_id="trip", resource_id="ada")
        memory.delete_messages(["r1"], thread_id="trip")
        memory.update_working_memory("# Ada\n- likes tea", resource_id="ada")
        memory.update_working_memory("# Ada\n- likes tea\n- has a cat", resource_id="ada")
        memory.create_thread("bob", thread_id="other", title="Bob's")
        chat = graph_of(memory)
        for text in ("one", "two"):
            chat.invoke({"messages": [HumanMessage(text)]}, CONFIG)
        fork = next(
            found.config
            for found in chat.get_state_history(CONFIG)
            if [str(m.text) for m in found.values.get("messages", [])] == ["one", "re: one"]
        )
        chat.invoke({"messages": [HumanMessage("fork")]}, fork)
        memory.clone_thread("trip", new_thread_id="clone")
        memory.settled()


def check(url: str) -> None:
    """Check that everything is there and can be gone on with."""
    with open_memory(url) as memory:
        trip = memory.get_thread("trip", resource_id="ada")
        assert trip is not None
        assert (trip.title, trip.metadata, trip.created_at) == ("Lisbon", {"team": "x", "n": 1}, WHEN)
        found = memory.recall(thread_id="trip", resource_id="ada", per_page=False)
        assert [stored.message for stored in found] == [MESSAGES[0], MESSAGES[1], MESSAGES[3]]
        assert memory.get_thread("trip", resource_id="bob") is None
        assert [thread.id for thread in memory.list_threads("bob")] == ["other"]
        assert memory.get_working_memory(resource_id="ada") == "# Ada\n- likes tea\n- has a cat"
        assert memory.get_source_thread("clone") == trip
        hits = memory.recall(resource_id="ada", query="the cat Oscar", top_k=2)
        assert "q1" in [stored.id for stored in hits]
        assert len(memory.list_branches("chat")) == 2
        chat = graph_of(memory)
        state = chat.invoke({"messages": [HumanMessage("three")]}, CONFIG)
        assert [str(m.text) for m in state["messages"]] == ["one", "re: one", "fork", "re: fork", "three", "re: three"]
        archive = memory.recall(thread_id="chat", resource_id="ada", per_page=False)
        assert [stored.message for stored in archive] == state["messages"]
        memory.save_messages([HumanMessage("later", id="later")], thread_id="trip", resource_id="ada")
        assert memory.recall(thread_id="trip", per_page=False)[-1].id == "later"


def main() -> None:
    """Write the file of this version, unless it is there."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / f"{len(migrations()):04}.db"
    if path.exists():
        print(f"{path.name} is there already")  # noqa: T201
        return
    fill(f"sqlite:///{path}")
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode=DELETE")
    connection.execute("VACUUM")
    connection.close()
    print(f"wrote {path.name}, {path.stat().st_size} bytes")  # noqa: T201


if __name__ == "__main__":
    main()
