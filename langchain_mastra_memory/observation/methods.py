"""The methods of `Memory` that observe, reflect and summarize."""

from __future__ import annotations

from langchain_mastra_memory.base import MemoryBase


class ObservationMethods(MemoryBase):
    """Observing, reflecting and summarizing."""
