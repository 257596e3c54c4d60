"""The rules that every place for vectors must keep: a suite of pytest tests to inherit.

A subclass says how a memory over its index is made; the tests then save, change and remove messages through it and look
at what is found and at what is left.

Example:
    ```python
    class TestMyIndex(VectorIndexTests):
        def new_memory(self, store, embeddings):
            return Memory(store, semantic_recall=SemanticRecall(mode="vector", message_range=0),
                          embeddings=embeddings, vector_store=MyIndex())

        def entries(self, memory):
            return memory.recall_engine.outside.count()
    ```
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from langchain_core.messages import HumanMessage

from langchain_mastra_memory.store.base import MemoryStore
from langchain_mastra_memory.store.sql.engine import SQLMemoryStore
from langchain_mastra_memory.testing.embeddings import WordEmbeddings

if TYPE_CHECKING:
    from langchain_mastra_memory.memory import Memory


class VectorIndexTests(ABC):
    """Tests for a place where vectors are kept: the store itself, or an outside index."""

    @abstractmethod
    def new_memory(self, store: MemoryStore, embeddings: WordEmbeddings) -> Memory:
        """Return a memory that searches by meaning in the index under test, without neighbours."""

    @abstractmethod
    def entries(self, memory: Memory) -> int:
        """Return how many entries the index has."""

    @pytest.fixture
    def index_store(self, tmp_path: Path) -> Iterator[MemoryStore]:
        """Return an empty store."""
        with SQLMemoryStore(f"sqlite:///{tmp_path / 'index.db'}") as store:
            yield store

    @pytest.fixture
    def embeddings(self) -> WordEmbeddings:
        """Return the embedding model."""
        return WordEmbeddings()

    @pytest.fixture
    def index_memory(self, index_store: MemoryStore, embeddings: WordEmbeddings) -> Iterator[Memory]:
        """Return a memory over the index under test."""
        memory = self.new_memory(index_store, embeddings)
        yield memory
        memory.close()

    @staticmethod
    def say(memory: Memory, thread: str, texts: Sequence[str], resource: str = "r1") -> None:
        """Save messages whose ids are the beginnings of their texts, and wait until they are embedded."""
        messages = [HumanMessage(text, id=text[:100]) for text in texts]
        memory.save_messages(messages, thread_id=thread, resource_id=resource)
        assert memory.settled() == []

    @staticmethod
    def found(memory: Memory, query: str, resource: str = "r1", k: int = 5) -> list[str]:
        """Return what has something of the query, best first."""
        documents = memory.retriever(resource_id=resource, k=k).invoke(query)
        return [document.metadata["content"] for document in documents if document.metadata["score"] > 0]

    def test_the_nearest_messages_are_found_best_first(self, index_memory: Memory) -> None:
        """Search by meaning over all threads of a resource."""
        self.say(index_memory, "t1", ["zebra lion tiger", "monkey", "rocket moon", "planet"])
        self.say(index_memory, "t2", ["zebra lion", "bread"])
        assert self.found(index_memory, "zebra lion tiger") == ["zebra lion tiger", "zebra lion"]
        assert self.found(index_memory, "violin") == []

    def test_owners_never_meet(self, index_memory: Memory) -> None:
        """Search for one resource finds nothing of another."""
        for resource in ("r1", "R1", "r1%", "r10"):
            self.say(index_memory, f"t-{resource}", [f"zebra {resource}", "monkey", "planet"], resource)
        for resource in ("r1", "R1", "r1%", "r10"):
            assert self.found(index_memory, "zebra", resource) == [f"zebra {resource}"]

    def test_saving_twice_adds_no_entry(self, index_memory: Memory) -> None:
        """Write an entry once for each message."""
        for _ in range(3):
            self.say(index_memory, "t1", ["zebra", "monkey", "planet"])
        assert self.entries(index_memory) == 3

    def test_a_changed_message_is_found_by_what_it_says_now(self, index_memory: Memory) -> None:
        """Replace the entry of a message that was edited."""
        self.say(index_memory, "t1", ["zebra", "monkey", "planet"])
        index_memory.update_messages([{"id": "zebra", "content": "violin"}], thread_id="t1")
        assert index_memory.settled() == []
        assert self.found(index_memory, "zebra") == []
        assert self.found(index_memory, "violin") == ["violin"]
        assert self.entries(index_memory) == 3

    def test_what_is_removed_leaves_no_entry_and_takes_no_place(self, index_memory: Memory) -> None:
        """Forget messages, threads and resources."""
        self.say(index_memory, "t1", ["zebra lion", "zebra", "monkey", "planet"])
        self.say(index_memory, "t2", ["zebra tiger"])
        self.say(index_memory, "t3", ["zebra foreign", "bread", "rocket"], "r2")
        index_memory.delete_messages(["zebra lion"], thread_id="t1")
        assert index_memory.settled() == []
        assert "zebra lion" not in self.found(index_memory, "zebra lion")
        assert self.entries(index_memory) == 7
        index_memory.delete_thread("t2")
        index_memory.clear_thread("t1")
        assert index_memory.settled() == []
        assert self.found(index_memory, "zebra") == []
        assert self.entries(index_memory) == 3
        index_memory.delete_resource("r2")
        assert index_memory.settled() == []
        assert self.entries(index_memory) == 0

    def test_removing_nothing_removes_nothing(self, index_memory: Memory) -> None:
        """Take an empty list of ids for what it is."""
        self.say(index_memory, "t1", ["zebra", "monkey", "planet"])
        index_memory.delete_messages([], thread_id="t1")
        assert index_memory.settled() == []
        assert self.entries(index_memory) == 3

    def test_clones_and_transfers_are_found_for_the_right_owner(self, index_memory: Memory) -> None:
        """Follow a thread to its copy and to its new owner."""
        self.say(index_memory, "t1", ["zebra", "monkey", "planet"])
        index_memory.clone_thread("t1", new_thread_id="c", resource_id="r2")
        assert index_memory.settled() == []
        assert self.found(index_memory, "zebra", "r2") == ["zebra"]
        assert self.entries(index_memory) == 6
        index_memory.transfer_thread("c", "r3")
        assert self.found(index_memory, "zebra", "r2") == []
        assert self.found(index_memory, "zebra", "r3") == ["zebra"]

    def test_a_message_of_many_chunks_counts_once(self, index_memory: Memory) -> None:
        """Return a message once, however many of its chunks are near."""
        self.say(index_memory, "t1", ["zebra " * 2_000, "zebra monkey", "planet", "rocket"])
        assert len(self.found(index_memory, "zebra")) == 2

    def test_thousands_of_messages_are_written_and_removed(self, index_memory: Memory) -> None:
        """Split batches below the limits of the backend, on the way in and on the way out."""
        self.say(index_memory, "t1", [f"zebra{n}" for n in range(1_500)])
        assert self.entries(index_memory) == 1_500
        assert "zebra777" in self.found(index_memory, "zebra777", k=20)
        index_memory.delete_thread("t1")
        assert index_memory.settled() == []
        assert self.entries(index_memory) == 0

    def test_async_does_the_same(self, index_memory: Memory) -> None:
        """Write, search and forget on an event loop."""

        async def work() -> None:
            messages = [HumanMessage(text, id=text) for text in ("zebra", "monkey", "planet")]
            await index_memory.asave_messages(messages, thread_id="t1", resource_id="r1")
            assert await index_memory.asettled() == []
            documents = await index_memory.retriever(resource_id="r1", k=1).ainvoke("zebra")
            assert [document.metadata["content"] for document in documents] == ["zebra"]
            await index_memory.adelete_thread("t1")
            assert await index_memory.asettled() == []

        asyncio.run(work())
        assert self.entries(index_memory) == 0

    def test_reindex_makes_it_anew(self, index_memory: Memory, embeddings: WordEmbeddings) -> None:
        """Replace every entry, and leave none of the old ones."""
        self.say(index_memory, "t1", ["zebra", "monkey", "planet"])
        embeddings.asked.clear()
        assert index_memory.reindex() == 3
        assert self.entries(index_memory) == 3
        assert self.found(index_memory, "zebra") == ["zebra"]
