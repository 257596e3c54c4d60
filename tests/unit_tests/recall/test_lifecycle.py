"""The index follows the messages: it can neither lose nor leak nor outlive one."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START, MessagesState, StateGraph

from langchain_mastra_memory.errors import (
    ConfigurationError,
    EmbeddingModelMismatchError,
    ProcessorError,
    StoreReadOnlyError,
)
from langchain_mastra_memory.memory import Memory
from langchain_mastra_memory.recall.options import SemanticRecall
from langchain_mastra_memory.store.operations.index import CountPending, ReadScope, ScopeOf
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
    memory.save_messages([HumanMessage(text, id=text) for text in texts], thread_id=thread, resource_id=resource)


def found(memory: Memory, query: str, resource: str = "r1", mode: str = "hybrid") -> list[str]:
    """Return the texts that are found, those without a word or a meaning in common aside."""
    documents = memory.retriever(resource_id=resource, k=50, mode=mode).invoke(query)
    return [d.metadata["content"] for d in documents if d.metadata["score"] > 0]


def kept(memory: Memory, resource: str = "r1") -> tuple[int, int]:
    """Return how many texts and vectors the store has for a resource, once nothing is under way."""
    assert memory.settled() == []
    read = memory.store.run(ReadScope(scope=ScopeOf(resource_id=resource), with_vectors=True))
    return len(read.texts), len(read.vectors)


def test_a_changed_message_is_found_by_what_it_says_now(make: Make) -> None:
    memory = make()
    say(memory, "t1", "zebra", "monkey", "planet")
    assert found(memory, "zebra") == ["zebra"]
    memory.update_messages([{"id": "zebra", "content": "violin"}], thread_id="t1")
    for mode in ("lexical", "vector"):
        assert found(memory, "zebra", mode=mode) == []
        assert found(memory, "violin", mode=mode) == ["violin"]
    memory.save_messages([HumanMessage("guitar", id="zebra")], thread_id="t1")
    assert found(memory, "violin") == []
    assert found(memory, "guitar") == ["guitar"]
    assert kept(memory) == (3, 3)


def test_saving_twice_adds_nothing(make: Make) -> None:
    memory = make()
    for _ in range(3):
        say(memory, "t1", "zebra", "monkey")
    assert kept(memory) == (2, 2)
    embeddings = memory.options.embeddings
    assert isinstance(embeddings, WordEmbeddings)
    assert embeddings.asked == ["zebra", "monkey"]


def test_one_text_is_embedded_once_however_often_it_is_said(make: Make) -> None:
    memory = make()
    for thread in ("t1", "t2"):
        memory.save_messages([("user", "ok"), ("user", "ok")], thread_id=thread, resource_id="r1")
        assert memory.settled() == []
    embeddings = memory.options.embeddings
    assert isinstance(embeddings, WordEmbeddings)
    assert embeddings.asked == ["ok"]
    assert kept(memory) == (4, 4)


def test_a_deleted_message_leaves_nothing_and_takes_no_place(make: Make) -> None:
    memory = make()
    say(memory, "t1", "zebra lion", "zebra", "monkey")
    assert found(memory, "zebra lion")[0] == "zebra lion"
    memory.delete_messages(["zebra lion"], thread_id="t1")
    assert found(memory, "zebra lion") == ["zebra"]
    assert kept(memory) == (2, 2)


@pytest.mark.parametrize("how", ["clear", "thread", "resource"])
def test_what_is_removed_leaves_no_term_and_no_vector(make: Make, how: str) -> None:
    memory = make()
    say(memory, "t1", *(f"zebra {n}" for n in range(50)))
    say(memory, "t2", "zebra stays", resource="r2")
    assert kept(memory) == (50, 50)
    if how == "clear":
        memory.clear_thread("t1")
    elif how == "thread":
        memory.delete_thread("t1")
    else:
        memory.delete_resource("r1")
    assert found(memory, "zebra") == []
    assert kept(memory) == (0, 0)
    assert kept(memory, "r2") == (1, 1)
    if how != "clear":
        say(memory, "t1", "again zebra")
        assert found(memory, "zebra") == ["again zebra"]


def test_a_cached_scope_sees_every_change_of_another_memory(make: Make, store_url: str) -> None:
    reader = make()
    writer = make(reader.store)
    say(writer, "t1", "zebra one", "monkey", "planet")
    assert found(reader, "zebra") == ["zebra one"]
    say(writer, "t1", "zebra two")
    say(writer, "t2", "zebra three")
    assert set(found(reader, "zebra")) == {"zebra one", "zebra two", "zebra three"}
    writer.delete_messages(["zebra one"], thread_id="t1")
    assert set(found(reader, "zebra")) == {"zebra two", "zebra three"}
    writer.transfer_thread("t2", "r2")
    assert found(reader, "zebra") == ["zebra two"]
    assert found(reader, "zebra", "r2") == ["zebra three"]
    writer.update_messages([{"id": "zebra two", "content": "lion"}], thread_id="t1")
    assert found(reader, "zebra") == []
    writer.delete_thread("t1")
    assert found(reader, "lion") == []


def test_clones_and_transfers_carry_the_index_with_the_right_owner(make: Make) -> None:
    memory = make()
    memory.create_thread("r1", thread_id="t1", metadata={"project": "a"})
    say(memory, "t1", "zebra", "monkey")
    assert memory.settled() == []
    embeddings = memory.options.embeddings
    assert isinstance(embeddings, WordEmbeddings)
    before = list(embeddings.asked)
    memory.clone_thread("t1", new_thread_id="c", resource_id="r2")
    memory.copy_thread("t1", new_thread_id="d", resource_id="r3")
    for resource in ("r2", "r3"):
        for mode in ("lexical", "vector"):
            assert found(memory, "zebra", resource, mode) == ["zebra"]
        assert kept(memory, resource) == (2, 2)
    assert embeddings.asked == before
    memory.transfer_thread("c", "r4")
    assert found(memory, "zebra", "r2") == []
    assert found(memory, "zebra", "r4") == ["zebra"]
    memory.delete_thread("t1")
    assert found(memory, "zebra", "r3") == ["zebra"]


def test_a_clone_of_some_messages_has_only_their_terms(make: Make) -> None:
    memory = make()
    say(memory, "t1", "zebra", "monkey", "planet")
    memory.clone_thread("t1", new_thread_id="c", resource_id="r2", message_ids=["monkey"])
    assert found(memory, "zebra", "r2") == []
    assert kept(memory, "r2")[0] == 1


def test_an_import_can_be_searched(make: Make, memory_factory: Make) -> None:
    memory = make()
    say(memory, "t1", "zebra", "monkey")
    other = memory_factory("memory://", semantic_recall=SemanticRecall(message_range=0), embeddings=WordEmbeddings())
    other.import_resource(memory.export_resource("r1"), resource_id="r9")
    assert found(other, "zebra", "r9") == ["zebra"]
    assert kept(other, "r9") == (2, 2)


def test_a_fork_searches_its_own_branch(make: Make) -> None:
    memory = make(scope="thread", embeddings=WordEmbeddings())
    builder = StateGraph(MessagesState)
    builder.add_node("answer", lambda state: {"messages": [AIMessage(f"re {state['messages'][-1].text}")]})
    builder.add_edge(START, "answer")
    graph = builder.compile(checkpointer=memory.checkpointer)
    config: Any = {"configurable": {"thread_id": "t1", "resource_id": "r1"}}
    graph.invoke({"messages": [HumanMessage("monkey")]}, config)
    fork = graph.get_state(config).config
    graph.invoke({"messages": [HumanMessage("zebra")]}, config)
    old = graph.get_state(config).config["configurable"]["checkpoint_id"]

    def texts(**options: Any) -> list[str]:
        page = memory.recall(thread_id="t1", resource_id="r1", query="zebra violin", top_k=20, **options)
        return [row.message.text for row in page if row.score]

    assert texts() == ["zebra", "re zebra"]
    graph.invoke({"messages": [HumanMessage("violin")]}, fork)
    assert texts() == ["violin", "re violin"]
    assert texts(checkpoint_id=old) == ["zebra", "re zebra"]


# --- embedding behind the save ---


def test_when_embedding_fails_the_message_is_saved_and_found_by_words_and_the_next_write_catches_up(make: Make) -> None:
    embeddings = WordEmbeddings()
    memory = make(embeddings=embeddings)
    say(memory, "t1", "before planet")
    assert memory.settled() == []

    def down(_: list[str]) -> None:
        raise ConnectionError("model is down")

    embeddings.fail = down
    say(memory, "t1", "zebra lion")
    failures = memory.settled()
    assert [(failure.phase, str(failure.error)) for failure in failures][:1] == [("embed", "model is down")]
    assert found(memory, "zebra", mode="lexical") == ["zebra lion"]
    assert found(memory, "zebra") == ["zebra lion"]
    with pytest.raises(ProcessorError, match="model is down"):
        found(memory, "zebra", mode="vector")
    memory.settled()
    assert memory.store.run(CountPending()) == 1
    embeddings.fail = lambda _: None
    memory.recall_engine.feeder._resting.clear()  # as if its rest were over
    say(memory, "t1", "monkey")
    assert kept(memory) == (3, 3)
    assert found(memory, "zebra", mode="vector") == ["zebra lion"]


def test_one_message_that_cannot_be_embedded_does_not_keep_the_others_from_it(make: Make) -> None:
    embeddings = WordEmbeddings()

    def picky(texts: list[str]) -> None:
        if any("poison" in text for text in texts):
            raise ValueError("I won't")

    embeddings.fail = picky
    memory = make(embeddings=embeddings)
    say(memory, "t1", "zebra", "poison", "lion", "monkey")
    failures = memory.settled()
    assert [str(failure.error) for failure in failures] == ["I won't"]
    assert memory.store.run(CountPending()) == 1
    assert found(memory, "zebra", mode="vector") == ["zebra"]
    assert found(memory, "poison") == ["poison"]


def test_a_long_message_is_cut_for_the_model_and_saved_whole(make: Make) -> None:
    embeddings = WordEmbeddings()
    memory = make(embeddings=embeddings, chunk_characters=200, chunk_overlap=20, max_chunks=4)
    text = "word " * 2000 + "zebra"
    memory.save_messages(
        [HumanMessage(text, id="long"), HumanMessage("monkey", id="m")], thread_id="t1", resource_id="r1"
    )
    assert memory.settled() == []
    assert max(map(len, embeddings.asked)) <= 200
    assert kept(memory) == (2, 5)
    assert memory.recall(resource_id="r1", query="zebra", top_k=1)[0].message.text == text


def test_a_turn_waits_for_an_embedding_no_longer_than_the_deadline(make: Make) -> None:
    embeddings, over = WordEmbeddings(), threading.Event()
    memory = make(embeddings=embeddings, deadline=0.05)
    say(memory, "t1", "zebra", "monkey")
    assert memory.settled() == []
    embeddings.fail = lambda _: over.wait(20)
    try:
        began = time.monotonic()
        assert found(memory, "the zebra") == ["zebra"]
        with pytest.raises(ProcessorError, match=r"longer than 0\.05"):
            found(memory, "a zebra", mode="vector")
        assert time.monotonic() - began < 5
        failures = memory.settled()
        assert [type(failure.error) for failure in failures] == [TimeoutError]
    finally:
        over.set()


async def test_an_async_turn_waits_no_longer_either(make: Make) -> None:
    embeddings = WordEmbeddings()
    memory = make(embeddings=embeddings, deadline=0.05)
    await memory.asave_messages([HumanMessage("zebra", id="zebra")], thread_id="t1", resource_id="r1")
    assert await memory.asettled() == []
    over = asyncio.Event()

    async def hang(_: str) -> list[float]:
        await over.wait()
        return []

    embeddings.aembed_query = hang  # type: ignore[method-assign]
    page = await asyncio.wait_for(memory.arecall(resource_id="r1", query="the zebra"), 10)
    assert [row.id for row in page] == ["zebra"]
    assert [type(failure.error) for failure in await memory.asettled()] == [TimeoutError]


def test_a_save_never_waits_for_the_model(make: Make) -> None:
    embeddings, go = WordEmbeddings(), threading.Event()
    embeddings.fail = lambda _: go.wait(20)
    memory = make(embeddings=embeddings, deadline=0.05)
    try:
        say(memory, "t1", "zebra")
        assert found(memory, "zebra", mode="lexical") == ["zebra"]
        assert embeddings.asked == []
    finally:
        go.set()
    assert kept(memory) == (1, 1)


async def test_async_saves_are_embedded_as_tasks_and_waited_for(make: Make) -> None:
    memory = make()
    await asyncio.gather(
        *(
            memory.asave_messages([HumanMessage(f"zebra {n}", id=f"m{n}")], thread_id=f"t{n % 3}", resource_id="r1")
            for n in range(12)
        )
    )
    assert await memory.asettled() == []
    assert await memory.store.arun(CountPending()) == 0
    assert len(await memory.arecall(resource_id="r1", query="zebra", top_k=20)) == 12


def test_what_was_just_saved_is_found_by_meaning_at_once(make: Make) -> None:
    memory = make()
    for n in range(10):
        say(memory, "t1", f"zebra{n}", f"other{n}")
        assert found(memory, f"zebra{n}", mode="vector") == [f"zebra{n}"]


def test_a_message_changed_while_it_was_embedded_gets_no_vector_of_the_old_text(make: Make) -> None:
    embeddings = WordEmbeddings()
    memory = make(embeddings=embeddings)
    say(memory, "t1", "planet")
    assert memory.settled() == []
    changed = threading.Event()

    def change(texts: list[str]) -> None:
        if "zebra" in texts and not changed.is_set():
            changed.set()
            other.update_messages([{"id": "zebra", "content": "violin"}], thread_id="t1")
            other.delete_messages(["lion"], thread_id="t1")

    other = make(memory.store, embeddings=None)
    embeddings.fail = change
    say(memory, "t1", "zebra", "lion")
    assert memory.settled() == []
    assert changed.is_set()
    memory.reindex()
    assert found(memory, "zebra", mode="vector") == []
    assert found(memory, "violin", mode="vector") == ["violin"]
    assert kept(memory) == (2, 2)


# --- models and reindex ---


def test_another_model_is_refused_until_reindex(make: Make) -> None:
    memory = make()
    say(memory, "t1", "zebra", "monkey", "planet")
    assert kept(memory) == (3, 3)
    steps: list[tuple[int, int]] = []
    for count, embeddings in enumerate((WordEmbeddings(model="other"), WordEmbeddings(dimension=64)), 4):
        changed = make(memory.store, embeddings=embeddings)
        with pytest.raises(EmbeddingModelMismatchError, match="reindex"):
            found(changed, "zebra")
        assert found(changed, "zebra", mode="lexical") == ["zebra"]
        say(changed, "t1", f"lion {count}")
        failures = changed.settled()
        assert [type(failure.error) for failure in failures] == [EmbeddingModelMismatchError]
        assert changed.reindex(progress=lambda done, total: steps.append((done, total))) == count
        assert steps[-1] == (count, count)
        assert found(changed, "zebra", mode="vector") == ["zebra"]
        memory = changed


def test_reindex_finds_what_was_saved_without_recall(memory_factory: Make, make: Make) -> None:
    with_recall = make()
    without = memory_factory(with_recall.store)
    say(without, "t1", *(f"zebra {n}" for n in range(300)))
    assert found(with_recall, "zebra") == []
    assert with_recall.reindex() == 300
    assert len(found(with_recall, "zebra")) == 50
    assert kept(with_recall) == (300, 300)


async def test_reindex_is_async_too_and_changes_nothing_that_was_right(make: Make) -> None:
    memory = make()
    await memory.asave_messages(
        [HumanMessage("zebra", id="m1"), HumanMessage("lion", id="m2")], thread_id="t", resource_id="r1"
    )
    before = await memory.arecall(resource_id="r1", query="zebra")
    assert await memory.areindex() == 2
    after = await memory.arecall(resource_id="r1", query="zebra")
    assert [(row.id, row.score) for row in before] == [(row.id, row.score) for row in after]


def test_embeddings_that_come_later_are_used_after_reindex(make: Make) -> None:
    memory = make(embeddings=None)
    say(memory, "t1", "zebra", "monkey", "planet")
    later = make(memory.store)
    assert found(later, "zebra") == ["zebra"]
    assert kept(later) == (3, 0)
    later.reindex()
    assert kept(later) == (3, 3)


def test_a_read_only_memory_searches_and_writes_nothing(make: Make) -> None:
    memory = make()
    say(memory, "t1", "zebra", "monkey", "planet")
    assert memory.settled() == []
    embeddings = WordEmbeddings()
    reader = make(memory.store, embeddings=embeddings, read_only=True)
    assert found(reader, "zebra") == ["zebra"]
    assert embeddings.asked == []
    with pytest.raises((ConfigurationError, StoreReadOnlyError)):
        reader.reindex()


def test_an_index_of_another_tokenizer_is_refused_until_reindex(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = make(embeddings=None)
    say(memory, "t1", "zebra")
    for module in ("recall.engine", "store.sql.index_vectors"):
        monkeypatch.setattr(f"langchain_mastra_memory.{module}.TERMS_VERSION", 2)
    with pytest.raises(ConfigurationError, match="reindex"):
        found(memory, "zebra")
    memory.reindex()
    assert found(memory, "zebra") == ["zebra"]


def test_a_hidden_summary_and_a_signal_are_not_in_the_index(make: Make) -> None:
    memory = make(embeddings=None)
    builder = StateGraph(MessagesState)
    summary = HumanMessage("zebra summary", additional_kwargs={"lc_source": "summarization"})
    builder.add_node("answer", lambda _: {"messages": [summary, AIMessage("monkey")]})
    builder.add_edge(START, "answer")
    graph = builder.compile(checkpointer=memory.checkpointer)
    graph.invoke({"messages": [HumanMessage("lion")]}, {"configurable": {"thread_id": "t1", "resource_id": "r1"}})
    assert found(memory, "zebra summary") == []
    assert found(memory, "lion") == ["lion"]
