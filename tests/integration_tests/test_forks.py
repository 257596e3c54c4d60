"""A memory that was made, and used, before a fork (`gunicorn --preload`) works in the child, whatever the parent did."""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage

from langchain_mastra_memory import Observation, ObservationalMemory
from langchain_mastra_memory.forking import new_lock, watch
from langchain_mastra_memory.memory import Memory
from langchain_mastra_memory.observation.provider import engine_of
from langchain_mastra_memory.store.operations.index import CountPending
from langchain_mastra_memory.testing.embeddings import WordEmbeddings
from langchain_mastra_memory.testing.models import ScriptedChatModel

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]
CONFIG: Any = {"configurable": {"thread_id": "t", "resource_id": "r"}}


def in_child(body: Callable[[], bool]) -> bool:
    """Return what a body says in a forked process, False if it does not come to an end."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            signal.alarm(60)
            code = 0 if body() else 1
        finally:
            os._exit(code)
    return os.waitpid(pid, 0)[1] == 0


@contextmanager
def held(locks: list[Any]) -> Iterator[None]:
    """Hold locks in another thread, as a parent's thread might at the moment of the fork."""
    holding, leave = threading.Event(), threading.Event()

    def hold() -> None:
        for lock in locks:
            lock.acquire()
        holding.set()
        leave.wait(120)
        for lock in locks:
            lock.release()

    thread = threading.Thread(target=hold)
    thread.start()
    assert holding.wait(30)
    try:
        yield
    finally:
        leave.set()
        thread.join()


def locks_of_ours() -> list[Any]:
    """Return every lock that an object of the package, or one of its modules, has."""
    kind = type(threading.Lock())
    found: dict[int, Any] = {}
    for owner in gc.get_objects():
        name = getattr(type(owner), "__module__", None)
        ours = isinstance(name, str) and name.startswith("langchain_mastra_memory.")
        if not ours or ".testing." in name:
            continue
        slots = [getattr(owner, slot, None) for slot in getattr(type(owner), "__slots__", ())]
        for value in (*getattr(owner, "__dict__", {}).values(), *slots):
            if isinstance(value, kind) and not value.locked():
                found[id(value)] = value
    return list(found.values())


def agent_of(memory: Memory) -> Any:
    answers = ScriptedChatModel(lambda _: AIMessage("I see"))
    return create_agent(answers, [], middleware=[memory.middleware()], checkpointer=memory.checkpointer)


def test_no_lock_of_the_parents_threads_is_held_in_the_child(sqlite_url: str) -> None:
    observer = ScriptedChatModel(lambda _: "<observations>\n* seen\n</observations>")
    options = ObservationalMemory(model=observer, observation=Observation(message_tokens=40, buffer_tokens=20))
    with Memory(
        sqlite_url, semantic_recall=True, embeddings=WordEmbeddings(), working_memory=True, observational_memory=options
    ) as memory:
        agent = agent_of(memory)

        def turn() -> None:
            agent.invoke({"messages": [("user", "My zebra is called Zoe. " * 10)]}, CONFIG)
            assert memory.settled(timeout=60) == []
            assert memory.recall(resource_id="r", query="zebra")

        def child() -> bool:
            turn()
            return bool(memory.recall(thread_id="t").total == 4)

        turn()
        locks = locks_of_ours()
        assert len(locks) > 10
        with held(locks):
            assert in_child(child)
        turn()


def test_a_pass_that_the_parent_has_under_way_does_not_keep_the_child_from_its_own(sqlite_url: str) -> None:
    embeddings = WordEmbeddings()
    inside, leave = threading.Event(), threading.Event()

    def waits(_: list[str]) -> None:
        inside.set()
        leave.wait(120)

    with Memory(sqlite_url, semantic_recall=True, embeddings=embeddings) as memory:
        embeddings.fail = waits
        memory.save_messages([("user", "a zebra")], thread_id="t", resource_id="r")
        assert inside.wait(30)

        def child() -> bool:
            embeddings.fail = len
            memory.save_messages([("user", "a horse")], thread_id="t", resource_id="r")
            return memory.settled(timeout=60) == [] and memory.store.run(CountPending()) == 0

        try:
            assert in_child(child)
        finally:
            leave.set()
        memory.settled()


def test_an_observation_that_the_parent_has_under_way_does_not_keep_the_child_from_its_own(sqlite_url: str) -> None:
    inside, leave = threading.Event(), threading.Event()
    is_parent = [True]

    def observe(_: Any) -> str:
        inside.set()
        if is_parent[0]:
            leave.wait(120)
        return "<observations>\n* seen\n</observations>"

    options = ObservationalMemory(
        model=ScriptedChatModel(observe), observation=Observation(message_tokens=4000, buffer_tokens=20)
    )
    with Memory(sqlite_url, observational_memory=options) as memory:
        agent = agent_of(memory)
        for _ in range(2):
            agent.invoke({"messages": [("user", "My zebra is called Zoe. " * 10)]}, CONFIG)
        assert inside.wait(30)

        engine = engine_of(memory)
        name, running = engine.owner, set(engine._running)
        assert running

        def child() -> bool:
            is_parent[0] = False
            free = not engine._running and engine.owner != name  # the claim in the store is the parent's
            where: Any = {"configurable": {"thread_id": "t2", "resource_id": "r"}}
            for _ in range(2):
                agent.invoke({"messages": [("user", "My horse is called Hugo. " * 10)]}, where)
                memory.settled(timeout=60)
            return free and bool(memory.get_observations(thread_id="t2").buffered)

        try:
            assert in_child(child)
        finally:
            leave.set()
        memory.settled()


def test_a_lock_that_nobody_holds_and_an_object_that_is_gone_are_left_alone() -> None:
    class Owner:
        forgot = 0

        def forget_parent(self) -> None:
            self.forgot += 1

    lock, owner, gone = new_lock(), Owner(), Owner()
    watch(owner)
    watch(gone)
    del gone
    gc.collect()
    assert in_child(lambda: owner.forgot == 1 and lock.acquire(timeout=1))
    assert owner.forgot == 0
