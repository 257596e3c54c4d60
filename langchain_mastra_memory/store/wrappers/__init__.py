"""Stores around a store: each adds one thing and passes everything else on."""

from __future__ import annotations

from langchain_mastra_memory.store.wrappers.base import StoreWrapper
from langchain_mastra_memory.store.wrappers.encrypted import EncryptedStore
from langchain_mastra_memory.store.wrappers.read_only import ReadOnlyStore
from langchain_mastra_memory.store.wrappers.redacting import RedactingStore
from langchain_mastra_memory.store.wrappers.traced import Trace, TracedStore

__all__ = ["EncryptedStore", "ReadOnlyStore", "RedactingStore", "StoreWrapper", "Trace", "TracedStore"]
