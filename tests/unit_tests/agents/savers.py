"""The checkpointers that an agent may have."""

from __future__ import annotations

from typing import Any

from langgraph.checkpoint.memory import InMemorySaver

from langchain_mastra_memory import Memory

SAVERS = ["none", "memory", "ours"]


def saver_of(memory: Memory, kind: str) -> Any:
    """Return no checkpointer, LangGraph's own, or the memory's."""
    return {"none": None, "memory": InMemorySaver(), "ours": memory.checkpointer}[kind]
