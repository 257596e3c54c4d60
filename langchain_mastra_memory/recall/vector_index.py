"""Vector indexes outside the store: one small protocol, and adapters for Chroma and any LangChain `VectorStore`.

By default vectors live in the store itself: exact, in the transaction of the message, safe for many processes. An
outside index is fed from an outbox, asked for candidates only, and never trusted: each hit is checked against the
store's own rows before it is used.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from langchain_core.vectorstores import VectorStore

from langchain_mastra_memory.errors import ConfigurationError
from langchain_mastra_memory.forking import new_lock

if TYPE_CHECKING:
    from langchain_core.documents import Document


@dataclass(frozen=True, slots=True)
class Entry:
    """A chunk of a message on its way into an outside index.

    Attributes:
        id: Its name: unique for ever, never given to anything else.
        thread: The id of its thread.
        text: What was embedded.
        vector: Its vector; empty for an index that embeds by itself.
    """

    id: str
    thread: str
    text: str
    vector: tuple[float, ...] = ()


class VectorIndex(ABC):
    """An outside index. Implement the four methods; the `a` twins run them in a thread unless overridden.

    `upsert` and `delete` must be safe to repeat. The conformance suite is
    `langchain_mastra_memory.testing.vector_index`.

    Attributes:
        embeds: Whether it embeds texts by itself, and needs no vectors.
    """

    embeds: bool = False

    @abstractmethod
    def upsert(self, entries: Sequence[Entry]) -> None:
        """Write entries; one whose id is there is replaced."""

    @abstractmethod
    def delete(self, ids: Sequence[str]) -> None:
        """Remove entries; ids of nothing are passed over, an empty list is nothing to do."""

    @abstractmethod
    def search(self, text: str, vector: Sequence[float], threads: Sequence[str], limit: int) -> list[tuple[str, float]]:
        """Return `(id, similarity)` of the entries of these threads that are nearest, best first; larger is nearer."""

    @abstractmethod
    def count(self) -> int:
        """Return how many entries there are, of everybody."""

    def close(self) -> None:  # noqa: B027 - most have nothing to release
        """Release what is held."""

    async def aupsert(self, entries: Sequence[Entry]) -> None:
        """Write entries without blocking the event loop."""
        await asyncio.to_thread(self.upsert, entries)

    async def adelete(self, ids: Sequence[str]) -> None:
        """Remove entries without blocking the event loop."""
        await asyncio.to_thread(self.delete, ids)

    async def asearch(
        self, text: str, vector: Sequence[float], threads: Sequence[str], limit: int
    ) -> list[tuple[str, float]]:
        """Search without blocking the event loop."""
        return await asyncio.to_thread(self.search, text, vector, threads, limit)


ThreadFilter = Callable[[Sequence[str]], Any]
"""Returns a vector store's own filter for "metadata['thread'] is one of these"."""


class LangChainVectorIndex(VectorIndex):
    """Any LangChain `VectorStore`, which embeds with its own model.

    Args:
        store: The vector store; nothing else should write to it.
        thread_filter: Makes the store's filter for a list of thread ids. By default `{"thread": id}` for one and
            `{"thread": {"$in": [...]}}` for several, which Chroma, PGVector, Pinecone, FAISS, ... read; a function
            for LangChain's `InMemoryVectorStore`.
    """

    embeds = True

    def __init__(self, store: VectorStore, *, thread_filter: ThreadFilter | None = None) -> None:
        self.store = store
        self._filter = thread_filter or (_by_function if _in_memory(store) else _by_mapping)
        self._lock = new_lock()

    def upsert(self, entries: Sequence[Entry]) -> None:
        """Write entries."""
        if not entries:
            return
        ids, texts, metadatas = _columns(entries)
        with self._lock:  # some stores add a second row for an id that is there
            self._delete(ids)
            self.store.add_texts(texts, metadatas=metadatas, ids=ids)

    def _delete(self, ids: list[str]) -> None:
        try:
            self.store.delete(ids=ids)
        except (KeyError, ValueError):  # stores that refuse ids of nothing: one by one
            for one in ids:
                try:
                    self.store.delete(ids=[one])
                except (KeyError, ValueError):
                    continue

    def delete(self, ids: Sequence[str]) -> None:
        """Remove entries."""
        if ids:
            with self._lock:
                self._delete(list(ids))

    def search(self, text: str, vector: Sequence[float], threads: Sequence[str], limit: int) -> list[tuple[str, float]]:
        """Search with the store's own embedding of the text."""
        del vector
        if not threads:
            return []
        found = self.store.similarity_search_with_score(text, k=limit, filter=self._filter(list(threads)))
        return _similarities(found)

    async def aupsert(self, entries: Sequence[Entry]) -> None:
        """Write entries."""
        if entries:
            ids, texts, metadatas = _columns(entries)
            await self.adelete(ids)
            await self.store.aadd_texts(texts, metadatas=metadatas, ids=ids)

    async def adelete(self, ids: Sequence[str]) -> None:
        """Remove entries."""
        if not ids:
            return
        try:
            await self.store.adelete(ids=list(ids))
        except (KeyError, ValueError):
            for one in ids:
                try:
                    await self.store.adelete(ids=[one])
                except (KeyError, ValueError):
                    continue

    async def asearch(
        self, text: str, vector: Sequence[float], threads: Sequence[str], limit: int
    ) -> list[tuple[str, float]]:
        """Search with the store's own embedding of the text."""
        del vector
        if not threads:
            return []
        found = await self.store.asimilarity_search_with_score(text, k=limit, filter=self._filter(list(threads)))
        return _similarities(found)

    def count(self) -> int:
        """Count the entries, of stores that can tell.

        Raises:
            ConfigurationError: The store can't tell.
        """
        inner = getattr(self.store, "store", None)  # InMemoryVectorStore
        if isinstance(inner, dict):
            return len(inner)
        collection = getattr(self.store, "_collection", None)  # Chroma
        if collection is not None and hasattr(collection, "count"):
            return int(collection.count())
        raise ConfigurationError(f"{type(self.store).__name__} can't tell how many entries it has")


def _columns(entries: Sequence[Entry]) -> tuple[list[str], list[str], list[dict[str, Any]]]:
    metadatas: list[dict[str, Any]] = [{"thread": entry.thread, "point": entry.id} for entry in entries]
    return [entry.id for entry in entries], [entry.text for entry in entries], metadatas


def _in_memory(store: VectorStore) -> bool:
    return any(base.__name__ == "InMemoryVectorStore" for base in type(store).__mro__)


def _by_mapping(threads: Sequence[str]) -> Mapping[str, Any]:
    return {"thread": threads[0]} if len(threads) == 1 else {"thread": {"$in": list(threads)}}


def _by_function(threads: Sequence[str]) -> Callable[[Document], bool]:
    wanted = frozenset(threads)
    return lambda document: document.metadata.get("thread") in wanted


def _similarities(found: Sequence[tuple[Document, float]]) -> list[tuple[str, float]]:
    """Return ids with a similarity, larger is nearer, whichever way the store's scores run.

    Stores return the nearest first, but some give a similarity and some a distance, by the same method.
    """
    pairs = [(document.metadata.get("point") or document.id or "", float(score)) for document, score in found]
    rises = len(pairs) > 1 and pairs[0][1] < pairs[-1][1]
    return [(point, 1.0 - score if rises else score) for point, score in pairs]
