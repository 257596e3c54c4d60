"""What lives in one process says so when it is to be sent to another; copies that LangGraph makes go on working."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from langchain.agents import create_agent
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from langchain_mastra_memory.agents.middleware import MemoryMiddleware
from langchain_mastra_memory.memory import Memory
from langchain_mastra_memory.store.sql.engine import SQLMemoryStore
from langchain_mastra_memory.testing.models import ScriptedChatModel
from langchain_mastra_memory.threads.saver import ThreadSaver

LIVE: dict[str, Callable[[], Any]] = {
    "Memory": Memory,
    "SQLMemoryStore": SQLMemoryStore,
    "ThreadSaver": lambda: Memory().checkpointer,
}


@pytest.mark.parametrize("transfer", [pickle.dumps, copy.deepcopy], ids=["pickle", "deepcopy"])
@pytest.mark.parametrize("name", LIVE)
def test_pickling_says_what_to_do(name: str, transfer: Callable[[Any], object]) -> None:
    with pytest.raises(TypeError, match=rf"cannot pickle a {name} .*the process that uses it"):
        transfer(LIVE[name]())


@pytest.mark.parametrize("transfer", [pickle.dumps, copy.deepcopy], ids=["pickle", "deepcopy"])
def test_an_agent_and_its_middleware_say_it_too(transfer: Callable[[Any], object]) -> None:
    memory = Memory()
    with pytest.raises(TypeError, match=r"cannot pickle a Memory .*the process that uses it"):
        transfer(MemoryMiddleware(memory))


@pytest.mark.parametrize("name", LIVE)
def test_a_shallow_copy_shares_what_the_object_has(name: str) -> None:
    live = LIVE[name]()
    copied = copy.copy(live)
    assert type(copied) is type(live)
    assert copied is not live
    assert vars(copied) == vars(live)


def test_the_copy_that_langgraph_makes_of_a_saver_writes_and_reads() -> None:
    with Memory() as memory:
        strict = ThreadSaver(memory, serde=JsonPlusSerializer(allowed_msgpack_modules=None))
        saver = strict.with_allowlist([("some.module", "SomeType")])
        assert saver is not strict
        assert isinstance(saver, ThreadSaver)
        config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        at = saver.put(config, empty_checkpoint(), {"source": "input", "step": -1, "parents": {}}, {})
        assert memory.checkpointer.get_tuple(at) is not None
        agent = create_agent(ScriptedChatModel(["hi"]), [], middleware=[memory.middleware()], checkpointer=saver)
        agent.invoke({"messages": [("user", "hello")]}, config)
        assert [m.message.text for m in memory.recall(thread_id="t")] == ["hello", "hi"]
