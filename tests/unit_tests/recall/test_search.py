"""Searching: what is found, in which order, for whom, on every engine, sync and async."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

from langchain_mastra_memory.errors import (
    ConfigurationError,
    InvalidFilterError,
    InvalidQueryError,
    MissingResourceError,
    ThreadNotFoundError,
)
from langchain_mastra_memory.memory import Memory
from langchain_mastra_memory.recall.options import HNSW, SemanticRecall, Weights
from langchain_mastra_memory.testing.clock import FrozenClock
from langchain_mastra_memory.testing.embeddings import WordEmbeddings

Make = Callable[..., Memory]


@pytest.fixture
def make(memory_factory: Make, store_url: str) -> Make:
    """Return a function that makes a memory with recall, on each engine in turn."""

    def made(store: Any = store_url, **options: Any) -> Memory:
        recall = {key: options.pop(key) for key in list(options) if key in SemanticRecall.model_fields}
        options.setdefault("embeddings", WordEmbeddings())
        return memory_factory(store, semantic_recall=SemanticRecall(**{"message_range": 0, **recall}), **options)

    return made


def say(memory: Memory, thread: str, *texts: str, resource: str = "r1") -> None:
    messages = [(HumanMessage if n % 2 == 0 else AIMessage)(text, id=text) for n, text in enumerate(texts)]
    memory.save_messages(messages, thread_id=thread, resource_id=resource)


def ids(page: Any) -> list[str]:
    return [row.id for row in page]


def best(memory: Memory, query: str, resource: str = "r1", **options: Any) -> list[str]:
    """Return the texts of the hits, best first."""
    found = memory.retriever(resource_id=resource, **options).invoke(query)
    return [document.metadata["content"] for document in found]


# --- what is found ---


def test_a_search_finds_by_words_and_by_meaning_in_every_thread_of_the_owner(make: Make) -> None:
    memory = make(top_k=2)
    say(memory, "t1", "zebras in the zoo", "monkey business")
    say(memory, "t2", "a zebra crossing", "rocket launch")
    assert set(best(memory, "zebra")) == {"zebras in the zoo", "a zebra crossing"}


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("天气", "今天北京的天气很好"),
        ("茶", "我喜欢喝茶"),
        ("東京タワー", "昨日は東京タワーへ行きました"),
        ("ภาษาไทย", "ฉันเรียนภาษาไทยทุกวัน"),
        ("한국어", "저는 한국어를 배웁니다"),
        ("🦓", "look 🦓!"),
        ("ERR-4042", "it broke with ERR-4042 today"),
        ("getUserName", "please call getUserName() twice"),
    ],
)
def test_every_script_is_found_by_words(make: Make, query: str, text: str) -> None:
    memory = make(embeddings=None)
    say(memory, "t1", "something else", text, "one more thing", "nothing at all")
    assert best(memory, query)[0] == text


def test_a_message_is_found_by_its_date(make: Make) -> None:
    clock = FrozenClock(datetime(2023, 5, 8, 12, tzinfo=UTC))
    memory = make(embeddings=None, clock=clock)
    say(memory, "t1", "we met the doctor")
    clock.set(datetime(2024, 1, 2, tzinfo=UTC))
    say(memory, "t1", "we met the lawyer")
    assert best(memory, "whom did we meet on 8 May 2023?")[0] == "we met the doctor"


def test_a_message_is_found_by_its_speaker(make: Make) -> None:
    memory = make(embeddings=None, top_k=1)
    messages = [HumanMessage("likes tea", id="a", name="Ana"), HumanMessage("likes tea", id="b", name="Bo")]
    memory.save_messages(messages, thread_id="t1", resource_id="r1")
    assert ids(memory.recall(resource_id="r1", query="what does Ana like? tea?")) == ["a"]


def test_text_of_several_blocks_is_found_and_images_are_skipped(make: Make) -> None:
    memory = make()
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,zebrazebra"}}
    content = [{"type": "text", "text": "look at"}, image, {"type": "text", "text": "the lion"}]
    memory.save_messages([HumanMessage(content, id="m")], thread_id="t1", resource_id="r1")
    assert ids(memory.recall(resource_id="r1", query="lion")) == ["m"]
    assert memory.settled() == []
    embeddings = memory.options.embeddings
    assert isinstance(embeddings, WordEmbeddings)
    assert embeddings.asked == ["look at\nthe lion"]


def test_instructions_signals_and_empty_messages_are_never_found(make: Make) -> None:
    memory = make(embeddings=None)
    memory.save_messages(
        [SystemMessage("zebra rules", id="s"), HumanMessage("", id="e"), HumanMessage("zebra", id="m")],
        thread_id="t1",
        resource_id="r1",
    )
    assert best(memory, "zebra rules") == ["zebra"]


def test_calls_and_results_of_tools_are_found_unless_switched_off(make: Make) -> None:
    call = {"id": "c1", "name": "weather", "args": {"city": "Quito"}}
    messages = [
        HumanMessage("how is it there?", id="q"),
        AIMessage("", id="call", tool_calls=[call]),
        ToolMessage("volcanic ash " + "x" * 5000 + " zebra", tool_call_id="c1", id="result"),
        AIMessage("dusty", id="answer"),
    ]
    memory = make(embeddings=None, top_k=1)
    memory.save_messages(messages, thread_id="t1", resource_id="r1")
    assert ids(memory.recall(resource_id="r1", query="Quito")) == ["call", "result"]
    assert ids(memory.recall(resource_id="r1", query="volcanic")) == ["call", "result"]
    assert "result" not in ids(memory.recall(resource_id="r1", query="zebra"))  # behind the first 1000 characters
    without = make(embeddings=None, tools=False)
    without.save_messages(messages, thread_id="t2", resource_id="r2")
    assert ids(without.recall(resource_id="r2", query="Quito volcanic")) == []


def test_a_hit_of_one_call_brings_every_result_of_parallel_calls(make: Make) -> None:
    calls = [{"id": f"c{n}", "name": "look", "args": {"n": n}} for n in range(6)]
    results = [ToolMessage(f"found number{n}", tool_call_id=f"c{n}", id=f"result{n}") for n in range(6)]
    memory = make(embeddings=None, top_k=1)
    call = AIMessage("", id="call", tool_calls=calls)
    memory.save_messages(
        [HumanMessage("go", id="q"), call, *results, AIMessage("done", id="a")], thread_id="t", resource_id="r1"
    )
    assert ids(memory.recall(resource_id="r1", query="number4")) == ["call", *(f"result{n}" for n in range(6))]


def test_neighbours_are_shown_in_order_and_only_hits_have_a_score(make: Make) -> None:
    memory = make(top_k=1, message_range=(2, 1))
    say(memory, "t1", "one", "two", "three", "zebra", "five", "six")
    page = memory.recall(resource_id="r1", query="zebra")
    assert ids(page) == ["two", "three", "zebra", "five"]
    assert [row.score is not None for row in page] == [False, False, True, False]
    assert page.total == 4


def test_a_hit_beside_a_better_one_takes_no_place(make: Make) -> None:
    memory = make(top_k=2, message_range=1, embeddings=None)
    say(memory, "t1", "zebra zebra", "zebra", "x", "x", "x", "x", "one zebra")
    assert ids(memory.recall(resource_id="r1", query="zebra"))[-1] == "one zebra"


def test_at_most_the_hits_and_their_neighbours_are_read(make: Make) -> None:
    memory = make(top_k=2, message_range=1)
    say(memory, "t1", *(f"message number {n}" for n in range(500)))
    assert len(memory.recall(resource_id="r1", query="number 17")) <= 6


def test_a_threshold_drops_what_answers_badly(make: Make) -> None:
    say(memory := make(threshold=0.2, top_k=10), "t1", "zebra lion tiger", "monkey", "rocket", "planet")
    assert best(memory, "zebra lion tiger") == ["zebra lion tiger"]
    assert best(memory, "guitar") == []


def test_scores_are_from_nothing_to_one_in_each_mode(make: Make) -> None:
    memory = make(top_k=10)
    say(memory, "t1", "zebra lion", "zebra", "monkey", "rocket")
    for mode in ("hybrid", "vector", "lexical"):
        found = memory.retriever(resource_id="r1", mode=mode).invoke("zebra lion")
        scores = [document.metadata["score"] for document in found]
        assert found[0].metadata["content"] == "zebra lion"
        assert all(0 <= score <= 1 for score in scores)


def test_a_document_says_which_half_found_it(make: Make) -> None:
    memory = make(top_k=3)
    say(memory, "t1", "zebras", "zebra", "monkey", "rocket", "planet", "moon")
    found = {d.metadata["content"]: d.metadata["found_by"] for d in memory.retriever(resource_id="r1").invoke("zebra")}
    assert found["zebra"] == "both"
    assert found["zebras"] == "words"


@pytest.mark.parametrize(
    "query", ["", "   ", "the of and", "!?", "\0", "\ud800", '" OR 1=1 --', "a*", "NEAR(", "%", "$where"]
)
def test_any_query_is_plain_text(make: Make, query: str) -> None:
    memory = make(top_k=3)
    say(memory, "t1", "zebra", "lion")
    memory.recall(resource_id="r1", query=query)
    memory.retriever(resource_id="r1").invoke(query)


def test_messages_with_odd_characters_are_saved_and_found(make: Make) -> None:
    memory = make()
    texts = ["nul\0zebra", "lone \ud800 surrogate lion"]
    memory.save_messages([("user", text) for text in texts], thread_id="t1", resource_id="r1")
    assert best(memory, "lion", k=1) == ["lone \ud800 surrogate lion"]
    assert best(memory, "surrogate", k=1) == ["lone \ud800 surrogate lion"]


def test_dates_and_metadata_narrow_a_search(make: Make) -> None:
    clock = FrozenClock(datetime(2025, 1, 1, tzinfo=UTC))
    memory = make(clock=clock, top_k=10)
    for n in range(4):
        kwargs = {"metadata": {"n": n, "half": n // 2}}
        memory.save_messages(
            [HumanMessage("zebra", id=f"m{n}", additional_kwargs=kwargs)], thread_id="t", resource_id="r1"
        )
        clock.set(clock() + timedelta(days=1))
    search = {"resource_id": "r1", "query": "zebra"}
    assert ids(memory.recall(**search, start="2025-01-02", end=datetime(2025, 1, 3, tzinfo=UTC))) == ["m1", "m2"]
    assert ids(memory.recall(**search, metadata={"half": 1})) == ["m2", "m3"]
    assert ids(memory.recall(**search, filter={"message.n": {"$gte": 2}}, metadata={"n": 3})) == ["m3"]
    assert ids(memory.recall(**search, filter={"message.n": {"$in": [0, 3]}})) == ["m0", "m3"]
    assert ids(memory.recall(**search, filter={"$or": [{"message.n": 1}, {"project": "x"}]})) == ["m1"]


def test_a_filter_sees_the_metadata_of_threads_as_it_is_now(make: Make) -> None:
    memory = make(top_k=10)
    memory.create_thread("r1", thread_id="t1", metadata={"project": "a"})
    memory.create_thread("r1", thread_id="t2", metadata={"project": "b"})
    say(memory, "t1", "zebra one")
    say(memory, "t2", "zebra two")
    rule = {"project": {"$eq": "a"}}
    assert best(memory, "zebra", filter=rule) == ["zebra one"]
    memory.update_thread("t2", metadata={"project": "a"})
    memory.update_thread("t1", metadata={"project": "z"})
    assert best(memory, "zebra", filter=rule) == ["zebra two"]


def test_the_filter_of_the_options_counts_unless_a_call_has_its_own(make: Make) -> None:
    memory = make(filter={"project": "a"})
    memory.create_thread("r1", thread_id="t1", metadata={"project": "a"})
    say(memory, "t1", "zebra one")
    say(memory, "t2", "zebra two")
    assert best(memory, "zebra") == ["zebra one"]
    assert set(best(memory, "zebra", filter={})) == {"zebra one", "zebra two"}


# --- for whom ---


ODD = ["a", "A", "a%", "a_", "a'b", 'a"b', "a b", "ab", "a\\", "a/b", "a:b", "ä", "💡", "a--", "a;b"]


def test_ids_that_look_alike_never_meet(make: Make) -> None:
    memory = make(top_k=100)
    for name in ODD:
        say(memory, f"thread of {name}", f"zebra of {name}", resource=name)
    for name in ODD:
        assert best(memory, "zebra of", resource=name) == [f"zebra of {name}"]
    assert best(memory, "zebra of", resource="%") == []


def test_a_search_in_one_thread_finds_nothing_of_the_owners_others(make: Make) -> None:
    memory = make(scope="thread", top_k=10)
    say(memory, "t1", "zebra one")
    say(memory, "t2", "zebra two")
    found = memory.retriever(thread_id="t1", resource_id="r1").invoke("zebra")
    assert [document.metadata["content"] for document in found] == ["zebra one"]


def test_a_foreign_thread_is_like_a_missing_one(make: Make) -> None:
    memory = make(scope="thread")
    say(memory, "t1", "zebra", resource="other")
    errors = []
    for thread in ("t1", "nowhere"):
        with pytest.raises(ThreadNotFoundError) as caught:
            memory.recall(thread_id=thread, resource_id="r1", query="zebra")
        errors.append(str(caught.value).replace(thread, "<id>"))
    assert errors[0] == errors[1]


def test_a_foreign_thread_beside_ones_own_resource_finds_nothing_of_it(make: Make) -> None:
    memory = make()
    say(memory, "t1", "zebra secret", resource="other")
    say(memory, "t2", "zebra mine")
    assert ids(memory.recall(thread_id="t1", resource_id="r1", query="zebra")) == ["zebra mine"]
    assert ids(memory.recall(thread_id="t1", resource_id="r1", query="zebra", filter={"thread.id": "t1"})) == []


def test_a_search_without_an_owner_is_refused(make: Make) -> None:
    memory = make()
    with pytest.raises(MissingResourceError, match="resource_id"):
        memory.recall(thread_id="t1", query="zebra")
    with pytest.raises(MissingResourceError):
        memory.retriever().invoke("zebra")
    with pytest.raises(InvalidQueryError, match="thread_id"):
        make(scope="thread").recall(resource_id="r1", query="zebra")


def test_other_owners_never_influence_a_score(make: Make) -> None:
    memory = make(embeddings=None)
    say(memory, "t1", "zebra lion", "monkey")
    before = memory.recall(resource_id="r1", query="zebra")[0].score
    say(memory, "t2", *(f"zebra {n}" for n in range(50)), resource="r2")
    assert memory.recall(resource_id="r1", query="zebra")[0].score == before


# --- the same everywhere ---


def fill(memory: Memory) -> None:
    chance = random.Random(5)
    words = [f"word{n}" for n in range(60)]
    for thread in range(6):
        texts = [
            HumanMessage(" ".join(chance.choices(words, k=chance.randint(1, 25))), id=f"{thread}-{n}")
            for n in range(40)
        ]
        memory.save_messages(texts, thread_id=f"t{thread}", resource_id="r1")
    memory.delete_messages(["2-3", "2-4"], thread_id="t2")
    memory.update_messages([{"id": "3-5", "content": "word1 word2 word3"}], thread_id="t3")


@pytest.mark.postgres
def test_every_engine_gives_the_same_lists(memory_factory: Make, sqlite_url: str, postgres_url: str) -> None:
    lists = []
    for url in ("memory://", sqlite_url, postgres_url):
        memory = memory_factory(url, semantic_recall=SemanticRecall(top_k=10), embeddings=WordEmbeddings())
        fill(memory)
        lists.append(
            [
                [(row.id, row.score) for row in memory.recall(resource_id="r1", query=f"word{n} word{n + 7} word3")]
                for n in range(20)
            ]
        )
    assert lists[0] == lists[1] == lists[2]


async def test_sync_and_async_give_the_same_lists(make: Make) -> None:
    memory = make(top_k=10)
    await asyncio.to_thread(fill, memory)
    awaited = await memory.arecall(resource_id="r1", query="word3 word9")
    documents = await memory.retriever(resource_id="r1").ainvoke("word3 word9")
    sync = await asyncio.to_thread(memory.recall, resource_id="r1", query="word3 word9")
    assert [(row.id, row.score) for row in awaited] == [(row.id, row.score) for row in sync]
    assert {document.metadata["message_id"] for document in documents} == {row.id for row in sync}


def test_a_scope_over_the_cache_gives_the_same_lists(make: Make) -> None:
    memory = make(top_k=10)
    fill(memory)
    assert memory.settled() == []
    small = make(memory.store, top_k=10, cache_mb=0.05, embeddings=memory.options.embeddings)
    for mode in ("hybrid", "lexical", "vector"):
        for query in ("word3 word9", "word1"):
            assert best(small, query, mode=mode) == best(memory, query, mode=mode)
    assert small.recall_engine.scopes.nbytes == 0
    assert memory.recall_engine.scopes.nbytes > 50_000


def test_the_cache_forgets_scopes_that_were_not_used(make: Make) -> None:
    memory = make(embeddings=None, cache_mb=0.05)
    for n in range(30):
        say(memory, f"t{n}", *(f"zebra {n} {i}" for i in range(40)), resource=f"r{n}")
        assert best(memory, "zebra", resource=f"r{n}")
    assert 0 < memory.recall_engine.scopes.nbytes <= 50_000


def test_both_kinds_of_search_share_one_cached_index(make: Make) -> None:
    memory = make(top_k=10)
    fill(memory)
    by_words = best(memory, "word3 word9", mode="lexical")
    best(memory, "word3 word9")
    size = memory.recall_engine.scopes.nbytes
    say(memory, "t0", "word3 word9 word9")
    assert best(memory, "word3 word9", mode="lexical")[:10] == ["word3 word9 word9", *by_words][:10]
    assert best(memory, "word3 word9")[0] == "word3 word9 word9"
    assert memory.recall_engine.scopes.nbytes < size * 1.5


def test_many_searches_at_once_agree(make: Make) -> None:
    memory = make(top_k=10)
    fill(memory)
    alone = best(memory, "word3 word9")

    async def together() -> list[Any]:
        retriever = memory.retriever(resource_id="r1")
        return await asyncio.gather(*(retriever.ainvoke("word3 word9") for _ in range(20)))

    for found in asyncio.run(together()):
        assert [document.metadata["content"] for document in found] == alone


def test_weights_are_options(make: Make) -> None:
    say(memory := make(embeddings=None), "t1", "zebra", "beside it", "far", "away")
    assert best(memory, "zebra") == ["zebra", "beside it", "far"]
    assert best(make(memory.store, embeddings=None, weights=Weights(near=0, far=0)), "zebra") == ["zebra"]


# --- options and errors ---


def test_without_embeddings_it_is_lexical_and_says_so_once(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="langchain_mastra_memory"):
        memory = make(embeddings=None)
        for _ in range(3):
            say(memory, "t1", "zebra")
            best(memory, "zebra")
    assert [record.message for record in caplog.records if "lexical" in record.message] == [
        "semantic recall has no embeddings: it searches by words (lexical mode)"
    ]
    with pytest.raises(ConfigurationError, match="embeddings"):
        best(memory, "zebra", mode="vector")


def test_a_lexical_memory_never_embeds(make: Make) -> None:
    embeddings = WordEmbeddings()
    memory = make(mode="lexical", embeddings=embeddings)
    say(memory, "t1", "zebra")
    assert best(memory, "zebra") == ["zebra"]
    assert memory.settled() == []
    assert (embeddings.asked, embeddings.queries) == ([], [])


def test_recall_that_is_off_cannot_search(memory_factory: Make) -> None:
    memory = memory_factory()
    with pytest.raises(ConfigurationError, match="semantic_recall"):
        memory.recall(resource_id="r1", query="zebra")
    with pytest.raises(ConfigurationError, match="semantic_recall"):
        memory.retriever(resource_id="r1")


@pytest.mark.parametrize(
    "options",
    [
        {"top_k": 0}, {"message_range": -1}, {"message_range": (1, 2, 3)}, {"message_range": True}, {"mode": "magic"},
        {"scope": "world"}, {"threshold": 2}, {"filter": {"a": {"$foo": 1}}}, {"chunk_overlap": 1500},
        {"deadline": 0}, {"candidates": 10}, {"unknown": 1}, {"index": {"m": 40, "ef_construction": 10}},
    ],
)  # fmt: skip
def test_options_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        SemanticRecall(**options)


def test_a_message_range_may_be_given_in_three_ways() -> None:
    assert SemanticRecall(message_range=2).around == (2, 2)
    assert SemanticRecall(message_range=(1, 0)).around == (1, 0)
    assert SemanticRecall(message_range={"before": 3}).around == (3, 0)


def test_arguments_of_a_search_that_make_no_sense_are_refused(make: Make) -> None:
    memory = make()
    say(memory, "t1", "zebra")
    with pytest.raises(InvalidQueryError):
        memory.recall(resource_id="r1", query="zebra", message_range=-1)
    with pytest.raises(InvalidQueryError):
        memory.recall(resource_id="r1", query="zebra", top_k=-1)
    with pytest.raises(InvalidFilterError):
        memory.recall(resource_id="r1", query="zebra", filter={"a": {"$foo": 1}})
    with pytest.raises(InvalidQueryError, match="pages"):
        memory.retriever(resource_id="r1").invoke("zebra", pages=3)
    with pytest.raises(ConfigurationError, match="cannot be made"):
        best(make(embeddings="nobody:nothing"), "zebra")


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"embeddings": 3}, "embeddings must be"),
        ({"embeddings": "lokal"}, "lokal"),
        ({"embeddings": "openai:"}, "openai:"),
        ({"vector_store": 3}, "vector_store must be"),
        ({"vector_store": "pinecone://x"}, "pinecone"),
        ({"vector_store": "chroma:", "embeddings": "local"}, "chroma"),
        ({"vector_store": "chroma:///vectors"}, "makes none"),
        ({"semantic_recall": SemanticRecall(mode="vector")}, "needs Memory"),
        (
            {"vector_store": "chroma:///v", "embeddings": "local", "semantic_recall": SemanticRecall(index=HNSW())},
            "leave out vector_store",
        ),
    ],
)
def test_parts_that_do_not_fit_are_refused_when_the_memory_is_made(given: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        Memory("memory://", **{"semantic_recall": True, **given})
