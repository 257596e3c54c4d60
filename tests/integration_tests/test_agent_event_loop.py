"""An agent with every feature on never blocks the event loop that it runs on, as `langgraph dev` checks."""

from __future__ import annotations

from typing import Any

import pytest
from blockbuster import blockbuster_ctx
from langchain.agents import create_agent
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.messages import HumanMessage

from langchain_mastra_memory.memory import Memory
from langchain_mastra_memory.testing.models import ScriptedChatModel

CONFIG: dict[str, Any] = {"configurable": {"thread_id": "t", "resource_id": "r"}}


@pytest.mark.parametrize("features", ["history", "everything"])
async def test_an_agent_with_memory_never_blocks_its_event_loop(store_url: str, features: str) -> None:
    options: dict[str, Any] = {}
    if features == "everything":
        options = {
            "working_memory": True,
            "semantic_recall": True,
            "embeddings": DeterministicFakeEmbedding(size=16),
            "titles": True,
            "observational_memory": True,
        }
    model = ScriptedChatModel(lambda messages: f"answer {len(messages)}")
    with blockbuster_ctx():
        memory = Memory(store_url, model=model, **options)
        agent = create_agent(model, middleware=[memory.middleware()], checkpointer=memory.checkpointer)
        for number in range(3):
            state = await agent.ainvoke({"messages": [HumanMessage(f"question {number}")]}, CONFIG)
        assert len(state["messages"]) == 6
        preview = await memory.apreview([HumanMessage("next")], thread_id="t", resource_id="r")
        assert preview.messages
        recalled = await memory.arecall(thread_id="t", resource_id="r")
        assert len(recalled) == 6
        await memory.aclone_thread("t", new_thread_id="clone")
        await memory.adelete_thread("clone")
        assert await memory.asettled(timeout=30) == []
        await memory.aclose()
