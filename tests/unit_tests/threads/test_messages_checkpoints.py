"""Threads and messages beside a real graph: checkpoints, forks, what was in view at an older turn."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES

from langchain_mastra_memory import ThreadSaver
from langchain_mastra_memory.errors import ThreadNotFoundError
from langchain_mastra_memory.store.sql.tables_checkpoints import bodies, checkpoints, writes

CONFIG = {"configurable": {"thread_id": "t", "resource_id": "r"}}


@pytest.fixture
def graph(memory: Any) -> Any:
    """Return a graph that answers `re: ...`, over the memory's checkpointer."""

    def answer(state: MessagesState) -> Any:
        last = state["messages"][-1]
        return {"messages": [AIMessage(f"re: {last.content}", id=f"{last.id}-re")]}

    builder = StateGraph(MessagesState)
    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    return builder.compile(checkpointer=memory.checkpointer)


def say(graph: Any, text: str, config: Any = CONFIG) -> str:
    """Say something and return the checkpoint after the answer."""
    graph.invoke({"messages": [HumanMessage(text, id=text)]}, config)
    return str(graph.get_state(CONFIG).config["configurable"]["checkpoint_id"])


def at(checkpoint_id: str) -> dict[str, Any]:
    return {"configurable": {**CONFIG["configurable"], "checkpoint_id": checkpoint_id}}


def ids(rows: Any) -> list[str]:
    return [row.id for row in rows]


def test_what_was_in_view_at_a_checkpoint_is_recalled_and_cloned(memory: Any, graph: Any) -> None:
    first = say(graph, "a")
    second = say(graph, "b")
    forked = say(graph, "c", at(first))
    views = {
        first: ["a", "a-re"],
        second: ["a", "a-re", "b", "b-re"],
        forked: ["a", "a-re", "c", "c-re"],
        None: ["a", "a-re", "c", "c-re"],
    }
    for checkpoint_id, expected in views.items():
        found = memory.recall(thread_id="t", resource_id="r", checkpoint_id=checkpoint_id)
        assert (ids(found), found.total) == (expected, len(expected))
        clone = memory.clone_thread("t", checkpoint_id=checkpoint_id)
        assert list(clone.message_id_map) == expected
        assert memory.get_clone_metadata(clone.thread).last_message_id == expected[-1]
    assert [(b.branch, b.cut, b.current) for b in memory.list_branches("t")] == [(0, None, False), (1, 2, True)]
    assert [b.current for b in memory.list_branches("t", checkpoint_id=second)] == [True, False]
    for call in (memory.list_branches, memory.clone_thread):
        with pytest.raises(ThreadNotFoundError, match="checkpoint"):
            call("t", checkpoint_id="nope")
    with pytest.raises(ThreadNotFoundError, match="checkpoint"):
        memory.recall(thread_id="t", checkpoint_id="nope")


def test_a_message_saved_from_outside_stands_behind_the_turn_and_the_next_turn_behind_it(
    memory: Any, graph: Any
) -> None:
    say(graph, "a")
    memory.save_messages([("user", "by the way")], thread_id="t")
    say(graph, "b")
    found = memory.recall(thread_id="t")
    assert [row.message.content for row in found] == ["a", "re: a", "by the way", "b", "re: b"]
    assert [row.outside for row in found] == [False, False, True, False, False]
    assert len(memory.list_branches("t")) == 1


def test_a_deleted_message_does_not_come_back_from_a_checkpoint(memory: Any, graph: Any) -> None:
    first = say(graph, "secret")
    say(graph, "b")
    assert memory.delete_messages(["secret"], thread_id="t", resource_id="r") == 1
    say(graph, "c")
    assert "secret" not in ids(memory.recall(thread_id="t", per_page=False))
    say(graph, "d", at(first))
    assert "secret" not in ids(memory.recall(thread_id="t", per_page=False))
    assert "secret" not in ids(memory.recall(thread_id="t", checkpoint_id=first))


@pytest.mark.parametrize("copies", [False, True], ids=["appends", "copies"])
@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
def test_an_edit_outlives_the_runs_after_a_deletion_and_the_list_is_not_stored_again(
    memory: Any, *, copies: bool, encrypted: bool
) -> None:
    def answer(state: MessagesState) -> Any:
        said = state["messages"]
        new = AIMessage(f"re: {said[-1].content}", id=f"{said[-1].id}-re")
        if not copies or len(said) < 5:
            return {"messages": [new]}
        again = [message.model_copy(deep=True) for message in said]
        return {"messages": [RemoveMessage(REMOVE_ALL_MESSAGES), *again, new]}

    serde = EncryptedSerializer.from_pycryptodome_aes(key=b"0123456789abcdef") if encrypted else None
    builder = StateGraph(MessagesState)
    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    graph = builder.compile(checkpointer=ThreadSaver(memory, serde=serde))
    for text in ("a", "b", "c"):
        say(graph, text)
    memory.update_messages([{"id": "a", "content": "edited"}], thread_id="t")
    memory.delete_messages(["b", "c-re"], thread_id="t")
    before = count(memory, bodies)
    for text in ("d", "e"):
        say(graph, text)
    found = [row.message.content for row in memory.recall(thread_id="t", per_page=False)]
    assert found == ["edited", "re: a", "re: b", "c", "d", "re: d", "e", "re: e"]
    if not copies:
        assert count(memory, bodies) == before + 4


def test_deleting_a_thread_takes_its_checkpoints_and_counts_them(memory: Any, graph: Any) -> None:
    say(graph, "a")
    say(graph, "b")
    other = {"configurable": {"thread_id": "u", "resource_id": "r"}}
    graph.invoke({"messages": [HumanMessage("x", id="x")]}, other)
    history = len(list(graph.get_state_history(CONFIG)))
    deleted = memory.delete_thread("t", resource_id="r")
    assert (deleted.threads, deleted.messages, deleted.checkpoints) == (1, 4, history)
    assert list(graph.get_state_history(CONFIG)) == []
    assert count(memory, checkpoints, writes, bodies) > 0  # the other thread's
    memory.delete_resource("r")
    assert count(memory, checkpoints, writes, bodies) == 0


def test_a_cleared_thread_begins_anew_for_its_graph_too(memory: Any, graph: Any) -> None:
    say(graph, "a")
    say(graph, "b")
    assert memory.clear_thread("t") == 4
    assert memory.recall(thread_id="t").total == 0
    say(graph, "c")
    assert ids(memory.recall(thread_id="t")) == ["c", "c-re"]


def count(memory: Any, *tables: Any) -> int:
    """Return how many rows some tables have."""
    from dataclasses import dataclass
    from typing import ClassVar

    import sqlalchemy as sa

    from langchain_mastra_memory.store.base import Group, Operation
    from langchain_mastra_memory.store.sql.registry import HANDLERS

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Count(Operation[int]):
        group: ClassVar[Group] = "checkpoints"
        writes: ClassVar[bool] = False

    def handler(tx: Any, _op: Any) -> int:
        return sum(tx.value(sa.select(sa.func.count()).select_from(table), keep=False) for table in tables)

    HANDLERS[Count] = handler
    found: int = memory.store.run(Count())
    return found
