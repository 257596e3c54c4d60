"""The methods of `Memory` that search old messages."""

from __future__ import annotations

from langchain_mastra_memory.base import MemoryBase


class RecallMethods(MemoryBase):
    """Search in old messages."""
