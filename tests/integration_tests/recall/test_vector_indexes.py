"""Every place for vectors keeps the same rules: the store, HNSW, Chroma embedded and as a server, LangChain's stores."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from langchain_core.messages import HumanMessage
from langchain_core.vectorstores import InMemoryVectorStore

from langchain_mastra_memory.errors import ConfigurationError
from langchain_mastra_memory.memory import Memory
from langchain_mastra_memory.recall.options import HNSW, SemanticRecall
from langchain_mastra_memory.recall.vector_index import Entry, VectorIndex
from langchain_mastra_memory.store.base import MemoryStore
from langchain_mastra_memory.store.operations.index import (
    CountPending,
    ReadBlock,
    ReadOutbox,
    ReadScope,
    ScopeOf,
    SearchHNSW,
)
from langchain_mastra_memory.store.sql.engine import SQLMemoryStore
from langchain_mastra_memory.testing.embeddings import WordEmbeddings
from langchain_mastra_memory.testing.vector_index import VectorIndexTests

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:chromadb")


def vectors_in(store: MemoryStore) -> int:
    threads = ("r1", "r2", "r3", "R1", "r1%", "r10")
    reads = (store.run(ReadScope(scope=ScopeOf(resource_id=one), with_vectors=True)) for one in threads)
    return sum(len({row[2] for row in read.vectors}) for read in reads)


def outside_of(memory: Memory) -> VectorIndex:
    outside = memory.recall_engine.outside
    assert outside is not None
    return outside


RECALL = SemanticRecall(mode="vector", message_range=0, max_chunks=1)


class TestStore(VectorIndexTests):
    """Vectors in the store itself: the default."""

    def new_memory(self, store: MemoryStore, embeddings: WordEmbeddings) -> Memory:
        return Memory(store, semantic_recall=RECALL, embeddings=embeddings)

    def entries(self, memory: Memory) -> int:
        return vectors_in(memory.store)


class TestLangChainVectorStore(VectorIndexTests):
    """Any LangChain vector store."""

    def new_memory(self, store: MemoryStore, embeddings: WordEmbeddings) -> Memory:
        return Memory(store, semantic_recall=RECALL, vector_store=InMemoryVectorStore(embeddings))

    def entries(self, memory: Memory) -> int:
        return outside_of(memory).count()


class TestChromaEmbedded(VectorIndexTests):
    """Chroma in this process."""

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path / "chroma"

    def new_memory(self, store: MemoryStore, embeddings: WordEmbeddings) -> Memory:
        return Memory(store, semantic_recall=RECALL, embeddings=embeddings, vector_store=f"chroma:///{self.folder}")

    def entries(self, memory: Memory) -> int:
        return outside_of(memory).count()

    def test_a_second_process_is_refused_and_told_what_to_do(
        self, index_memory: Memory, index_store: MemoryStore, embeddings: WordEmbeddings
    ) -> None:
        self.say(index_memory, "t1", ["zebra", "monkey", "planet"])
        script = (
            "from langchain_mastra_memory.recall.chroma import ChromaVectorIndex\n"
            f"ChromaVectorIndex({f'chroma:///{self.folder}'!r}).count()\n"
        )
        other = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
        assert "ConfigurationError" in other.stderr
        assert "chroma run --path" in other.stderr
        assert "leave vector_store out" in other.stderr
        index_memory.close()
        allowed = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False
        )
        assert allowed.returncode == 0, allowed.stderr
        with self.new_memory(index_store, embeddings) as again:
            assert self.found(again, "zebra") == ["zebra"]

    def test_two_memories_of_one_process_share_a_folder(
        self, index_memory: Memory, index_store: MemoryStore, embeddings: WordEmbeddings
    ) -> None:
        self.say(index_memory, "t1", ["zebra", "monkey", "planet"])
        with self.new_memory(index_store, embeddings) as second:
            assert self.found(second, "zebra") == ["zebra"]
        assert self.found(index_memory, "zebra") == ["zebra"]


@pytest.fixture(scope="module")
def chroma_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of a Chroma server that is stopped at the end."""
    folder = tmp_path_factory.mktemp("chroma-server")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = Path(sys.executable).with_name("chroma")
    process = subprocess.Popen(
        [
            str(command if command.exists() else shutil.which("chroma")),
            "run",
            "--path",
            str(folder),
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    end = time.monotonic() + 60
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1):
                break
        except OSError:
            if time.monotonic() > end or process.poll() is not None:
                process.kill()
                raise
            time.sleep(0.1)
    yield f"127.0.0.1:{port}"
    process.terminate()
    process.wait(30)


class TestChromaServer(VectorIndexTests):
    """A Chroma server, for many processes."""

    @pytest.fixture(autouse=True)
    def _address(self, chroma_server: str, request: pytest.FixtureRequest) -> None:
        self.url = f"chroma://{chroma_server}?collection=c{abs(hash(request.node.name)) % 10**9}"

    def new_memory(self, store: MemoryStore, embeddings: WordEmbeddings) -> Memory:
        return Memory(store, semantic_recall=RECALL, embeddings=embeddings, vector_store=self.url)

    def entries(self, memory: Memory) -> int:
        return outside_of(memory).count()


@pytest.mark.postgres
class TestHNSW(VectorIndexTests):
    """pgvector's HNSW, for scopes that don't fit the cache: here none does."""

    @pytest.fixture
    def index_store(self, postgres_url: str) -> Iterator[MemoryStore]:
        with SQLMemoryStore(postgres_url) as store:
            yield store

    def new_memory(self, store: MemoryStore, embeddings: WordEmbeddings) -> Memory:
        options = RECALL.model_copy(update={"index": HNSW(), "cache_mb": 0.0001})
        return Memory(store, semantic_recall=options, embeddings=embeddings)

    def entries(self, memory: Memory) -> int:
        from langchain_mastra_memory.store.sql.index_hnsw import table_name

        store = memory.store
        assert isinstance(store, SQLMemoryStore)
        engine = sa.create_engine(store._url.replace("postgresql://", "postgresql+psycopg://"))  # type: ignore[union-attr]
        try:
            with engine.connect() as connection:
                return int(connection.execute(sa.text(f"SELECT count(*) FROM {table_name(256)}")).scalar_one())
        finally:
            engine.dispose()

    def test_a_scope_over_the_cache_is_searched_without_reading_its_vectors(
        self, index_memory: Memory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.say(index_memory, "t1", ["zebra", "monkey", "planet"])
        ran: list[Any] = []
        run = index_memory.store.run
        monkeypatch.setattr(index_memory.store, "run", lambda operation: ran.append(operation) or run(operation))
        assert self.found(index_memory, "zebra") == ["zebra"]
        assert any(isinstance(operation, SearchHNSW) for operation in ran)
        assert not any(isinstance(operation, ReadBlock) and operation.with_vectors for operation in ran)


def test_hnsw_on_sqlite_is_refused_in_the_background_report(tmp_path: Path) -> None:
    options = SemanticRecall(index=HNSW())
    with Memory(f"sqlite:///{tmp_path / 'm.db'}", semantic_recall=options, embeddings=WordEmbeddings()) as memory:
        memory.save_messages([HumanMessage("zebra")], thread_id="t", resource_id="r")
        failures = memory.settled()
        assert "PostgreSQL" in str(failures[0].error)
        assert memory.recall(resource_id="r", query="zebra")[0].message.text == "zebra"
        memory.settled()


# --- outages and crashes between the two systems ---


class Flaky(VectorIndex):
    """An index in memory that can be down."""

    def __init__(self) -> None:
        self.rows: dict[str, Entry] = {}
        self.down = False
        self.before_upsert: Any = None

    def _check(self) -> None:
        if self.down:
            raise ConnectionError("index is down")

    def upsert(self, entries: Any) -> None:
        self._check()
        if self.before_upsert:
            self.before_upsert()
        self.rows |= {entry.id: entry for entry in entries}

    def delete(self, ids: Any) -> None:
        self._check()
        for one in ids:
            self.rows.pop(one, None)

    def search(self, text: str, vector: Any, threads: Any, limit: int) -> list[tuple[str, float]]:
        self._check()
        near = [
            (row.id, sum(a * b for a, b in zip(row.vector, vector, strict=True)))
            for row in self.rows.values()
            if row.thread in threads
        ]
        return sorted(near, key=lambda pair: -pair[1])[:limit]

    def count(self) -> int:
        return len(self.rows)


class TestAnyIndex(VectorIndexTests):
    """An index of one's own."""

    def new_memory(self, store: MemoryStore, embeddings: WordEmbeddings) -> Memory:
        return Memory(store, semantic_recall=RECALL, embeddings=embeddings, vector_store=Flaky())

    def entries(self, memory: Memory) -> int:
        return outside_of(memory).count()


def say(memory: Memory, *texts: str, thread: str = "t1") -> None:
    memory.save_messages([HumanMessage(text, id=text) for text in texts], thread_id=thread, resource_id="r1")


def test_an_outage_of_the_index_loses_nothing(store_url: str) -> None:
    index = Flaky()
    options = SemanticRecall(message_range=0, top_k=1)
    with Memory(store_url, semantic_recall=options, embeddings=WordEmbeddings(), vector_store=index) as memory:
        say(memory, "planet", "zebra gone")
        assert memory.settled() == []
        index.down = True
        say(memory, "zebra", "monkey")
        memory.delete_messages(["zebra gone"], thread_id="t1")
        assert {str(failure.error) for failure in memory.settled()} == {"index is down"}
        assert memory.recall(resource_id="r1", query="zebra")[0].id == "zebra"  # by words
        assert "index is down" in str(memory.settled()[0].error)
        assert len(index.rows) == 2
        index.down = False
        say(memory, "rocket")
        assert memory.settled() == []
        assert {entry.text for entry in index.rows.values()} == {"planet", "zebra", "monkey", "rocket"}
        assert memory.store.run(CountPending()) == 0
        assert memory.store.run(ReadOutbox()) == []


def test_reindex_catches_up_after_an_outage(store_url: str) -> None:
    index = Flaky()
    with Memory(store_url, semantic_recall=RECALL, embeddings=WordEmbeddings(), vector_store=index) as memory:
        index.down = True
        say(memory, "zebra", "monkey", "planet")
        memory.settled()
        with pytest.raises(ConnectionError):
            memory.reindex()
        index.down = False
        memory.reindex()
        assert len(index.rows) == 3


def test_a_message_deleted_while_it_was_written_outside_leaves_no_entry(store_url: str) -> None:
    index = Flaky()
    with Memory(store_url, semantic_recall=RECALL, embeddings=WordEmbeddings(), vector_store=index) as memory:
        other = Memory(memory.store)
        index.before_upsert = lambda: other.delete_messages(["zebra"], thread_id="t1")
        say(memory, "zebra", "monkey")
        assert memory.settled() == []
        assert {entry.text for entry in index.rows.values()} == {"monkey"}
        assert memory.store.run(ReadOutbox()) == []


def test_a_crash_after_writing_outside_leaves_no_entry_of_a_message_deleted_later(sqlite_url: str) -> None:
    from datetime import UTC, datetime, timedelta

    from langchain_mastra_memory.testing.clock import FrozenClock

    clock = FrozenClock(datetime(2025, 1, 1, tzinfo=UTC))
    index = Flaky()

    class Crash(BaseException):
        pass

    with Memory(
        sqlite_url, semantic_recall=RECALL, embeddings=WordEmbeddings(), vector_store=index, clock=clock
    ) as memory:
        feeder = memory.recall_engine.feeder
        memory.background.start = lambda *_, **__: None  # type: ignore[method-assign]  # by hand, below
        say(memory, "zebra")
        io = memory.io(is_async=False)
        from langchain_mastra_memory.io import drive
        from langchain_mastra_memory.store.operations.index import WriteVectors

        run = memory.store.run

        def crash(operation: Any) -> Any:
            if isinstance(operation, WriteVectors):
                raise Crash
            return run(operation)

        memory.store.run = crash  # type: ignore[method-assign]
        with pytest.raises(Crash):
            drive(feeder.run(io))
        memory.store.run = run  # type: ignore[method-assign]
        assert len(index.rows) == 1  # written outside, unknown here
        memory.delete_messages(["zebra"], thread_id="t1")
        drive(feeder.run(io))
        assert len(index.rows) == 1  # the one who wrote it may still be at it
        clock.set(clock() + timedelta(hours=1))
        drive(feeder.run(io))
        assert index.rows == {}
        assert memory.store.run(ReadOutbox()) == []


@pytest.mark.slow
def test_ten_thousand_entries_go_with_their_thread(sqlite_url: str) -> None:
    index = Flaky()
    with Memory(
        sqlite_url, semantic_recall=RECALL, embeddings=WordEmbeddings(dimension=8), vector_store=index
    ) as memory:
        say(memory, *(f"zebra{n}" for n in range(10_000)))
        assert memory.settled() == []
        assert len(index.rows) == 10_000
        memory.delete_thread("t1")
        assert memory.settled() == []
        assert index.rows == {}


def test_a_hit_that_the_store_does_not_know_is_never_shown(store_url: str) -> None:
    index = Flaky()
    with Memory(store_url, semantic_recall=RECALL, embeddings=WordEmbeddings(), vector_store=index) as memory:
        say(memory, "zebra", "monkey", "planet")
        memory.save_messages([HumanMessage("zebra secret", id="s")], thread_id="t9", resource_id="other")
        assert memory.settled() == []
        index.search = lambda *_: [*((one, 0.99) for one in index.rows), ("junk", 1.0), ("00ff-0", 1.0), ("", 1.0)]  # type: ignore[method-assign]
        found = memory.retriever(resource_id="r1", k=10).invoke("zebra")
        assert {document.metadata["content"] for document in found} == {"zebra", "monkey", "planet"}


def test_going_back_to_vectors_in_the_store_empties_the_outside_index(store_url: str) -> None:
    index = Flaky()
    with Memory(store_url, semantic_recall=RECALL, embeddings=WordEmbeddings(), vector_store=index) as memory:
        say(memory, "zebra", "monkey", "planet")
        assert memory.settled() == []
        with Memory(memory.store, semantic_recall=RECALL, embeddings=WordEmbeddings()) as inside:
            inside.reindex()
            assert VectorIndexTests.found(inside, "zebra") == ["zebra"]
        say(memory, "bread", thread="t2")
        assert memory.settled() == []
        assert {entry.text for entry in index.rows.values()} == {"bread"}


@pytest.mark.parametrize("given", ["chroma://", "chroma:///", "milvus://host", "chroma://h:8000?tenant=x", 5])
def test_a_vector_store_that_cannot_be_is_refused(given: Any) -> None:
    with pytest.raises(ConfigurationError, match="chroma"):
        Memory(semantic_recall=True, embeddings=WordEmbeddings(), vector_store=given)


def test_a_vector_store_without_a_model_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="makes none"):
        Memory(semantic_recall=True, vector_store="chroma:///x")
    with pytest.raises(ConfigurationError, match="HNSW"):
        Memory(semantic_recall=SemanticRecall(index=HNSW()), embeddings=WordEmbeddings(), vector_store=Flaky())


def test_a_chroma_server_that_is_not_there_fails_the_vectors_and_not_the_turn(sqlite_url: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = SemanticRecall(message_range=0)
    with Memory(
        sqlite_url, semantic_recall=options, embeddings=WordEmbeddings(), vector_store=f"chroma://127.0.0.1:{port}"
    ) as memory:
        say(memory, "zebra", "monkey")
        assert [row.id for row in memory.recall(resource_id="r1", query="zebra", top_k=1)] == ["zebra"]
        assert any("chroma run" in str(failure.error) for failure in memory.settled())
