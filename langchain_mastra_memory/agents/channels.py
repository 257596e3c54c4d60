"""The private channels of every feature, for a middleware that learns its memory at run time."""

from __future__ import annotations

from langchain_mastra_memory.working_memory.provider import PrivateWorkingMemoryState


def every_channel() -> list[type]:
    """Return the state schemas of all features that have channels."""
    return [PrivateWorkingMemoryState]
