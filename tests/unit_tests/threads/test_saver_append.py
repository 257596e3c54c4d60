"""The short way of a put, new messages at the end of the line, writes what the general way would write."""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, RemoveMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.graph import END, START, MessagesState, StateGraph

from langchain_mastra_memory.memory import Memory
from langchain_mastra_memory.store.sql import checkpoints
from langchain_mastra_memory.store.sql.engine import SQLMemoryStore
from langchain_mastra_memory.store.sql.schema import metadata
from langchain_mastra_memory.testing import FrozenClock
from langchain_mastra_memory.threads.saver import ThreadSaver

CONFIG = {"configurable": {"thread_id": "t", "resource_id": "ann"}}
TABLES = ("mastra_threads", "mastra_messages", "mastra_branches", "mastra_bodies", "mastra_tombstones", "mastra_texts")
RANDOM = {"epoch", "key", "thread", "n"}
"""Writes of a task are stored beside the checkpoint, by another thread: the numbers of bodies may change places."""
NEW = {"configurable": {**CONFIG["configurable"], "checkpoint_ns": ""}}


def begin(saver: ThreadSaver) -> Any:
    made = checkpoint_of([HumanMessage("one", id="m1")])
    return saver.put(NEW, made, {"source": "loop", "step": 1, "parents": {}}, made["channel_versions"])


def step(saver: ThreadSaver, parent: Any) -> Any:
    held = saver.get_tuple(parent)
    assert held is not None
    messages = held.checkpoint["channel_values"]["messages"]
    made = checkpoint_of([*messages, AIMessage("two", id="m2")], version=2)
    return saver.put(parent, made, {"source": "loop", "step": 2, "parents": {}}, made["channel_versions"])


def checkpoint_of(messages: list[BaseMessage], version: int = 1) -> Any:
    versions = {"messages": version}
    return {**empty_checkpoint(), "channel_values": {"messages": messages}, "channel_versions": versions}


def read_thread_key(url: str) -> int:
    with psycopg.connect(url) as connection:
        return connection.execute("SELECT key FROM mastra_threads").fetchone()[0]


def wait_for_a_lock(url: str, waiting: int = 1) -> None:
    """Return when so many statements of this database wait for a lock."""
    waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    with psycopg.connect(url, autocommit=True) as connection:
        deadline = time.monotonic() + 30
        while connection.execute(waits).fetchone()[0] < waiting:
            assert time.monotonic() < deadline


def turns(saver: ThreadSaver) -> None:
    """Run a conversation with a bit of everything, a fork among it, with ids that are the same each time."""
    ids = (f"m{n}" for n in itertools.count())
    answers: list[list[BaseMessage]] = [
        [AIMessage("one", id="a1")],
        [
            AIMessage("", id="a2", tool_calls=[{"name": "f", "args": {}, "id": "c1"}]),
            ToolMessage("sunny", tool_call_id="c1", id="t1"),
            AIMessage("It is sunny", id="a3"),
        ],
        [SystemMessage("be kind", id="s1"), AIMessage("three", id="a4")],
        [RemoveMessage("a1"), AIMessage("four", id="a5")],
        [AIMessage("four again", id="a5")],
        [AIMessage(f"many {n}", id=f"n{n}") for n in range(7)],
        [AIMessage("after the fork", id="a6")],
    ]
    queue = iter(answers)
    builder = StateGraph(MessagesState)
    builder.add_node("model", lambda _: {"messages": next(queue)})
    builder.add_edge(START, "model")
    builder.add_edge("model", END)
    graph = builder.compile(checkpointer=saver)
    positions = []
    for _ in answers[:-1]:
        graph.invoke({"messages": [HumanMessage("question", id=next(ids))]}, CONFIG)
        positions.append(graph.get_state(CONFIG).config)
    graph.invoke({"messages": [HumanMessage("again", id=next(ids))]}, positions[1])


def rows(store: SQLMemoryStore, url: str) -> dict[str, list[dict[str, Any]]]:
    """Return what stands in the tables, without what is random."""
    store.close()
    engine = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    found = {}
    with engine.connect() as connection:
        for name in TABLES:
            table = metadata.tables[name]
            kept = [c for c in table.c if c.name not in RANDOM]
            result = connection.execute(sa.select(*kept)).mappings()
            found[name] = sorted((dict(row) for row in result), key=repr)
    engine.dispose()
    return found


@pytest.fixture(params=["sqlite", "postgresql"])
def urls(request: pytest.FixtureRequest) -> Iterator[str]:
    return request.getfixturevalue("sqlite_url" if request.param == "sqlite" else "postgres_url")


@pytest.mark.parametrize("recall", [False, True])
def test_both_ways_write_the_same_rows(urls, tmp_path, monkeypatch, recall):
    def run(url: str) -> dict[str, list[dict[str, Any]]]:
        store = SQLMemoryStore(url, clock=FrozenClock())
        memory = Memory(store, semantic_recall=recall)
        turns(memory.checkpointer)
        memory.settled()
        return rows(store, url)

    counted: list[bool] = []
    short = checkpoints.append

    def counting(*args: Any, **kwargs: Any) -> Any:
        found = short(*args, **kwargs)
        counted.append(found is not None)
        return found

    monkeypatch.setattr(checkpoints, "append", counting)
    fast = run(urls)
    assert counted.count(True) > 8, "the short way is hardly ever taken"
    assert False in counted
    monkeypatch.setattr(checkpoints, "append", lambda *_args, **_kwargs: None)
    slow = run(f"sqlite:///{tmp_path / uuid.uuid4().hex}.db")
    assert len(fast["mastra_messages"]) == 22
    if urls.startswith("sqlite"):
        assert fast == slow
    else:
        assert {name: len(found) for name, found in fast.items()} == {name: len(found) for name, found in slow.items()}
        plain = [{k: bytes(v) if k == "body" else v for k, v in row.items()} for row in fast["mastra_messages"]]
        assert sorted(plain, key=repr) == slow["mastra_messages"]


@pytest.mark.parametrize("prepared", [True, False])
def test_two_writers_of_one_space_get_different_numbers(postgres_url, prepared):
    """The number that a step expects is taken by another transaction, which it did not see when it began."""
    with SQLMemoryStore(postgres_url, prepared_statements=prepared) as store, SQLMemoryStore(postgres_url) as other:
        saver, rival = ThreadSaver(store), ThreadSaver(other)
        made = begin(saver)
        thread = read_thread_key(postgres_url)
        with psycopg.connect(postgres_url) as connection:
            connection.execute("SELECT * FROM mastra_threads WHERE key = %s FOR UPDATE", (thread,))
            with ThreadPoolExecutor(1) as pool:
                waiting = pool.submit(step, saver, made)
                wait_for_a_lock(postgres_url)
                connection.execute(
                    "INSERT INTO mastra_bodies (thread, space, n, id, form, body) VALUES (%s, 'messages', 2, 'x', 'lc', '')",
                    (thread,),
                )
                connection.commit()
                waiting.result(30)
        found = rival.get_tuple(CONFIG)
        assert found is not None
        assert [m.id for m in found.checkpoint["channel_values"]["messages"]] == ["m1", "m2"]


@pytest.mark.parametrize("prepared", [True, False])
@pytest.mark.parametrize("recall", [False, True])
@pytest.mark.parametrize("large", [False, True], ids=["alone", "with a value"])
def test_a_step_that_waited_leaves_the_thread_at_a_newer_checkpoint(postgres_url, *, prepared, recall, large):
    """A rival's newer checkpoint, which brings no message, commits while a step waits for the thread's row."""
    with SQLMemoryStore(postgres_url, prepared_statements=prepared) as store, SQLMemoryStore(postgres_url) as other:
        saver, rival = ThreadSaver(Memory(store, semantic_recall=recall)), ThreadSaver(other)
        made = begin(saver)
        held, theirs = saver.get_tuple(made), rival.get_tuple(made)
        assert held is not None
        assert theirs is not None
        older = checkpoint_of([*held.checkpoint["channel_values"]["messages"], AIMessage("two", id="m2")], version=2)
        newer = {**theirs.checkpoint, "id": "ffffffff" + older["id"][8:]}
        moved = {}
        if large:
            moved = {"big": 1}
            newer["channel_values"] = {**newer["channel_values"], "big": "x" * 1000}
            newer["channel_versions"] = {**newer["channel_versions"], "big": 1}
        step_2 = {"source": "loop", "step": 2, "parents": {}}
        with psycopg.connect(postgres_url) as connection, ThreadPoolExecutor(2) as pool:
            # The rival gets the thread's row, and waits for a place to write to.
            if large:
                connection.execute("LOCK TABLE mastra_values IN SHARE MODE")
            else:
                connection.execute(
                    "INSERT INTO mastra_checkpoints (thread, ns, id, body, metadata, hidden, created_at) "
                    "VALUES (%s, '/', %s, '', '{}', 1, 0)",
                    (read_thread_key(postgres_url), newer["id"]),
                )
            first = pool.submit(rival.put, made, newer, step_2, moved)
            wait_for_a_lock(postgres_url)
            second = pool.submit(saver.put, made, older, step_2, older["channel_versions"])
            wait_for_a_lock(postgres_url, waiting=2)
            connection.rollback()
            first.result(30)
            second.result(30)
        latest = rival.get_tuple(CONFIG)
        assert latest is not None
        assert latest.checkpoint["id"] == newer["id"]
        with Memory(postgres_url) as memory:
            assert [row.id for row in memory.recall(thread_id="t", per_page=False)] == ["m1"]
