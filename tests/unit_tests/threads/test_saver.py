"""What LangGraph relies on in a checkpointer and the published suite does not ask."""

import asyncio
import gc
import operator
import threading
from dataclasses import dataclass
from typing import Annotated, Any
from uuid import uuid4

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Send
from typing_extensions import TypedDict

from langchain_mastra_memory.errors import ConfigurationError, InvalidIdError, ThreadNotFoundError
from langchain_mastra_memory.memory import Memory
from langchain_mastra_memory.store.operations.messages import ListMessages
from langchain_mastra_memory.store.sql.engine import SQLMemoryStore
from langchain_mastra_memory.threads.reading import MANY
from langchain_mastra_memory.threads.saver import ThreadSaver
from langchain_mastra_memory.threads.versions import next_version
from langchain_mastra_memory.tokens import TokenCounter, estimator
from tests.unit_tests.threads.graphs import Bot, answer


@pytest.fixture
def store(store_url):
    with SQLMemoryStore(store_url) as store:
        yield store


@pytest.fixture
def saver(store):
    return ThreadSaver(store)


def config(thread_id="t", ns="", checkpoint_id=None, **more):
    at = {} if checkpoint_id is None else {"checkpoint_id": checkpoint_id}
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": ns, **at, **more}}


def checkpoint(values=None, versions=None):
    values = values or {}
    versions = versions or dict.fromkeys(values, 1)
    return {**empty_checkpoint(), "id": str(uuid6()), "channel_values": values, "channel_versions": versions}


def put(saver, values=None, *, at=None, new=None, versions=None, metadata=None):
    made = checkpoint(values, versions)
    moved = made["channel_versions"] if new is None else {name: made["channel_versions"][name] for name in new}
    return saver.put(at or config(), made, metadata or {"source": "loop", "step": 1, "parents": {}}, moved)


def values_of(saver, at):
    return saver.get_tuple(at).checkpoint["channel_values"]


# Writes


def test_writes_come_back_in_the_order_of_path_then_task_then_index(saver):
    at = put(saver)
    saver.put_writes(at, [("a", 1), ("b", 2)], "task-9", "~p1")
    saver.put_writes(at, [("a", 3)], "task-1", "~p2")
    saver.put_writes(at, [("a", 4)], "task-5", "~p1")
    saver.put_writes(at, [("a", 5)], "task-7")
    assert saver.get_tuple(at).pending_writes == [
        ("task-7", "a", 5),
        ("task-5", "a", 4),
        ("task-9", "a", 1),
        ("task-9", "b", 2),
        ("task-1", "a", 3),
    ]


def test_of_two_writes_of_one_index_the_first_stays_and_of_special_ones_the_last(saver):
    at = put(saver)
    saver.put_writes(at, [("a", "first"), ("b", "first")], "task")
    saver.put_writes(at, [("a", "second"), ("b", "second"), ("c", "new")], "task")
    saver.put_writes(at, [("__interrupt__", "one")], "task")
    saver.put_writes(at, [("__interrupt__", "two"), ("__error__", "e")], "task")
    assert saver.get_tuple(at).pending_writes == [
        ("task", "__interrupt__", "two"),
        ("task", "__error__", "e"),
        ("task", "a", "first"),
        ("task", "b", "first"),
        ("task", "c", "new"),
    ]


def test_writes_may_come_before_their_checkpoint(saver):
    made = checkpoint({"a": 1})
    saver.put_writes(config(checkpoint_id=made["id"]), [("a", 2)], "task")
    assert saver.get_tuple(config()) is None
    saver.put(config(), made, {"source": "loop", "step": 0, "parents": {}}, {"a": 1})
    assert saver.get_tuple(config()).pending_writes == [("task", "a", 2)]


# Values


def test_a_channel_that_was_emptied_stays_empty_and_others_are_kept(saver):
    first = put(saver, {"a": 1, "b": "x" * 5_000}, versions={"a": 1, "b": 1})
    made = checkpoint({"b": "x" * 5_000}, {"a": 2, "b": 1})
    second = saver.put(first, made, {"source": "loop", "step": 2, "parents": {}}, {"a": 2})
    assert values_of(saver, second) == {"b": "x" * 5_000}
    assert values_of(saver, first) == {"a": 1, "b": "x" * 5_000}


def test_a_large_value_that_does_not_move_is_stored_once(saver, store_url):
    large = "".join(str(uuid4()) for _ in range(500))
    at = put(saver, {"doc": large, "n": 0}, versions={"doc": 1, "n": 1})
    for n in range(2, 30):
        made = checkpoint({"doc": large, "n": n}, {"doc": 1, "n": n})
        at = saver.put(at, made, {"source": "loop", "step": n, "parents": {}}, {"n": n})
    assert values_of(saver, at) == {"doc": large, "n": 29}
    from langchain_mastra_memory.store.sql.tables_checkpoints import values

    assert len(rows(saver, values)) == 1


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"\x00\xff",
        {"messages": [HumanMessage("x", id="1")], "other": "ok"},
        {"messages": [], "n": {1, 2}},
        [HumanMessage("no id")],
        [HumanMessage("a", id="1"), "not a message"],
        HumanMessage("alone", id="9"),
        Send("node", {"messages": [HumanMessage("s", id="s1")] * 6, "k": 1}),
        [Send("n", {"messages": [AIMessage("q", id=f"m{i}") for i in range(9)]}), Send("n", 3)],
        {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", "HumanMessage"], "kwargs": {}},
    ],
    ids=lambda v: type(v).__name__,
)
def test_any_value_comes_back_in_channels_and_writes(value):
    saver = ThreadSaver(SQLMemoryStore("memory://"))
    at = put(saver, {"c": value, "messages": value} if isinstance(value, list) else {"c": value})
    saver.put_writes(at, [("c", value), ("messages", value)], "task")
    for reader in (saver, ThreadSaver(saver.store)):
        found = reader.get_tuple(at)
        assert found.checkpoint["channel_values"]["c"] == value
        assert [w[2] for w in found.pending_writes] == [value, value]
    saver.store.close()


def test_odd_metadata_and_texts_survive(saver):
    metadata = {"source": "loop", "step": 1, "parents": {}, "odd": (1, b"x"), "nan": float("inf"), "t": "é\ud83d"}
    at = put(saver, metadata=metadata)
    found = saver.get_tuple(at).metadata
    assert found["odd"] in ((1, b"x"), [1, b"x"])
    assert found["nan"] == float("inf")
    assert found["source"] == "loop"


def test_what_is_read_is_never_shared_between_two_readers(saver):
    at = put(saver, {"messages": [HumanMessage("a", id="1")]})
    one, two = values_of(saver, at), values_of(saver, at)
    one["messages"][0].content = "changed"
    one["messages"].append(AIMessage("b"))
    assert two["messages"] == [HumanMessage("a", id="1")] == values_of(saver, at)["messages"]


def test_versions_grow_differ_between_forks_and_go_on_in_foreign_styles(saver):
    version = None
    seen = []
    for _ in range(12):
        version = saver.get_next_version(version, None)
        seen.append(version)
    assert seen == sorted(seen)
    assert next_version(seen[0]) != next_version(seen[0])
    foreign = "00000000000000000000000000000009.0.8253"
    assert foreign < next_version(foreign) < next_version(next_version(foreign))
    assert next_version(foreign).startswith("00000000000000000000000000000010.")
    assert next_version(41) == 42


# Messages are stored once


def rows(saver, table):
    import sqlalchemy as sa

    from langchain_mastra_memory.store.base import Operation
    from langchain_mastra_memory.store.sql.registry import HANDLERS, handles

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Look(Operation[list[Any]]):
        group = "checkpoints"
        writes = False

    handles(Look)(lambda tx, op: tx.all(sa.select(table), keep=False))
    try:
        return saver.store.run(Look())
    finally:
        del HANDLERS[Look]


def bodies_of(saver):
    from langchain_mastra_memory.store.sql.tables_checkpoints import bodies

    return rows(saver, bodies)


async def test_each_message_has_one_body_however_often_it_is_saved(memory_factory):
    chat = Bot(memory_factory("memory://"))
    for turn in range(30):
        await chat.say(str(turn))
    assert len(bodies_of(chat.saver)) == 60
    newest = chat.saver.get_tuple(chat.config()).checkpoint["channel_values"]["messages"]
    assert len(newest) == 60


async def test_a_new_process_for_each_turn_stores_nothing_twice(sqlite_url):
    for turn in range(8):
        with SQLMemoryStore(sqlite_url) as store:
            builder = StateGraph(MessagesState)
            builder.add_node("model", answer)
            builder.add_edge(START, "model")
            builder.add_edge("model", END)
            graph = builder.compile(checkpointer=ThreadSaver(store))
            graph.invoke({"messages": [HumanMessage(str(turn))]}, config())
            assert len(bodies_of(graph.checkpointer)) == 2 * (turn + 1)


async def test_a_saver_that_has_read_nothing_finds_what_is_stored(saver):
    messages = [HumanMessage(str(i), id=f"m{i}") for i in range(20)]
    at = put(saver, {"messages": messages})
    again = [HumanMessage(str(i), id=f"m{i}") for i in range(21)]
    made = checkpoint({"messages": again}, {"messages": 2})
    ThreadSaver(saver.store).put(at, made, {"source": "loop", "step": 2, "parents": {}}, {"messages": 2})
    assert len(bodies_of(saver)) == 21
    assert values_of(saver, config())["messages"] == again


@pytest.mark.parametrize("awaits", [False, True])
async def test_encryption_hides_messages_stores_them_once_and_survives_a_new_process(
    memory_factory, sqlite_url, awaits
):
    key = b"0123456789abcdef"
    memory = memory_factory(sqlite_url)
    for _ in range(3):
        saver = ThreadSaver(memory, serde=EncryptedSerializer.from_pycryptodome_aes(key=key))
        chat = Bot(memory, saver=saver, awaits=awaits, mode="async")
        for text in ("top secret", "more"):
            await chat.say(text)
    assert len(await chat.shown()) == 12
    bodies = bodies_of(saver)
    assert len(bodies) <= 24
    assert all(b"secret" not in bytes(row[-1]) for row in bodies)
    assert chat.archive() == await chat.shown()


async def test_equal_messages_are_found_under_encryption_by_id_and_content(store):
    saver = ThreadSaver(store, serde=EncryptedSerializer.from_pycryptodome_aes(key=b"0123456789abcdef"))
    at = put(saver, {"messages": [HumanMessage("a", id="1"), AIMessage("b", id="2")]})
    fresh = ThreadSaver(store, serde=EncryptedSerializer.from_pycryptodome_aes(key=b"0123456789abcdef"))
    again = [HumanMessage("a", id="1"), AIMessage("B", id="2")]
    made = checkpoint({"messages": again}, {"messages": 2})
    fresh.put(at, made, {"source": "loop", "step": 2, "parents": {}}, {"messages": 2})
    assert len(bodies_of(saver)) == 3
    assert values_of(saver, config())["messages"] == again


async def test_a_client_that_sends_its_history_again_each_turn_costs_what_is_new(memory_factory):
    def reply(state):
        return {"messages": [AIMessage("r" * 400, id=f"a{len(state['messages'])}")]}

    chat = Bot(memory_factory("memory://"), nodes=(("model", reply),))
    sent: list[Any] = []
    sizes = []
    from langchain_mastra_memory.store.sql.tables_checkpoints import checkpoints, writes

    for turn in range(40):
        sent.append(HumanMessage("h" * 400, id=f"h{turn}"))
        await chat.run({"messages": list(sent)})
        sent = list((await chat.state()).values["messages"])
        used = [
            len(bytes(value))
            for t in (checkpoints, writes)
            for row in rows(chat.saver, t)
            for value in row
            if isinstance(value, bytes)
        ]
        sizes.append(sum(used))
    assert len(bodies_of(chat.saver)) == 80
    assert sizes[39] - sizes[29] < 1.5 * (sizes[29] - sizes[19])


def test_messages_without_ids_in_a_growing_list_are_stored_once(store):
    class Log(TypedDict):
        log: Annotated[list[Any], operator.add]

    builder = StateGraph(Log)
    builder.add_node("n", lambda state: {"log": [AIMessage(f"{len(state['log'])}")]})
    builder.add_edge(START, "n")
    builder.add_edge("n", END)
    saver = ThreadSaver(store)
    graph = builder.compile(checkpointer=saver)
    for _ in range(10):
        graph.invoke({"log": [HumanMessage("q")]}, config())
    assert len(graph.get_state(config()).values["log"]) == 20
    assert len(bodies_of(saver)) == 20


def test_what_is_remembered_is_bounded(store):
    saver = ThreadSaver(store)
    for number in range(200):
        put(saver, {"messages": [HumanMessage("x", id="1")]}, at=config(f"t{number}"))
    for _ in range(50):
        saver.with_allowlist([("a", f"B{uuid4()}")])
    threads = saver._memories.of(saver.serde)
    assert len(threads) <= 64


def test_a_saver_without_a_memory_archives_messages_with_an_estimate_of_their_tokens(store):
    put(ThreadSaver(store), {"messages": [HumanMessage("How far is the moon?", id="h")]})
    (found,) = Memory(store).recall(thread_id="t")
    assert found.tokens == estimator().count_message(found.message) > 5


def test_a_saver_of_a_memory_archives_messages_with_the_tokens_that_it_counts(memory_factory):
    memory = memory_factory("memory://", token_counter=TokenCounter(count=len, name="letters"))
    put(memory.checkpointer, {"messages": [HumanMessage("How far is the moon?", id="h")]})
    (found,) = memory.recall(thread_id="t")
    assert found.tokens == memory.token_counter.count_message(found.message) > 20


@pytest.mark.parametrize("extra", [[], ["no message"]], ids=["messages only", "other things among them"])
def test_a_list_that_holds_an_id_twice_comes_back_so_and_is_archived_once(saver, extra):
    """Most reducers, unlike `add_messages`, do not look at ids: `operator.add` keeps what a node returns again."""
    begun = [HumanMessage("one", id="h"), HumanMessage("one more", id="h"), *extra]
    first = put(saver, {"messages": begun})
    later = [*begun, AIMessage("two", id="a"), AIMessage("two again", id="a")]
    second = put(saver, {"messages": later}, at=first, versions={"messages": 2})
    assert values_of(saver, first)["messages"] == begun
    assert values_of(saver, second)["messages"] == later
    page = saver.store.run(ListMessages(thread_ids=("t",), per_page=False))
    assert [(stored.id, stored.message.text) for stored in page] == [("h", "one more"), ("a", "two again")]


def test_the_same_checkpoint_written_twice_is_archived_once(memory_factory):
    memory = memory_factory("memory://")
    saver = memory.checkpointer
    first = put(saver, {"messages": [HumanMessage("1", id="h")]})
    made = checkpoint({"messages": [HumanMessage("1", id="h"), AIMessage("2", id="a")]}, {"messages": 2})
    for writer in (saver, saver, ThreadSaver(memory)):
        at = writer.put(first, made, {"source": "loop", "step": 2, "parents": {}}, {"messages": 2})
    assert [m.id for m in memory.recall(thread_id="t", per_page=False)] == ["h", "a"]
    assert len(memory.list_branches("t")) == 1
    assert len(values_of(saver, at)["messages"]) == 2


# Owners


def test_a_foreign_thread_looks_like_a_missing_one_to_read_and_to_write(saver):
    at = put(saver, {"a": 1}, at=config(resource_id="ann"))
    assert saver.get_tuple(config(resource_id="ann")).checkpoint["channel_values"] == {"a": 1}
    for attempt in (
        lambda: saver.get_tuple(config(resource_id="bob")),
        lambda: saver.get_tuple(config(checkpoint_id=at["configurable"]["checkpoint_id"], resource_id="bob")),
        lambda: put(saver, {"a": 2}, at=config(resource_id="bob")),
        lambda: saver.put_writes({"configurable": {**at["configurable"], "resource_id": "bob"}}, [("a", 3)], "t"),
        lambda: list(saver.list(config(resource_id="bob"))),
    ):
        with pytest.raises(ThreadNotFoundError, match="there is no thread 't' for this resource"):
            attempt()
    assert values_of(saver, config()) == {"a": 1}


def test_a_thread_without_an_owner_is_adopted_once(saver):
    put(saver, {"a": 1})
    put(saver, {"a": 2}, at=config(resource_id="ann"))
    with pytest.raises(ThreadNotFoundError):
        put(saver, {"a": 3}, at=config(resource_id="bob"))
    assert saver.get_tuple(config()) is not None


def test_a_worker_in_a_namespace_may_carry_its_derived_resource(saver):
    put(saver, {"a": 1}, at=config(resource_id="ann"))
    put(saver, {"a": 1}, at=config(ns="worker:1", resource_id="ann-worker"))
    assert saver.get_tuple(config(ns="worker:1", resource_id="ann-worker")) is not None


def test_ids_that_are_none_of_ours_are_refused_and_numbers_are_taken_as_texts(saver):
    for bad in ("", None, "x" * 513, "a\0b"):
        with pytest.raises(InvalidIdError):
            saver.get_tuple(config(bad))
    put(saver, {"a": 1}, at=config(7))
    assert values_of(saver, config("7")) == {"a": 1}
    odd = "t' OR 1=1 -- %_/é\U0001f600"
    put(saver, {"a": 2}, at=config(odd))
    assert values_of(saver, config(odd)) == {"a": 2}
    with pytest.raises(ConfigurationError):
        ThreadSaver(object())


def test_a_new_thread_takes_its_title_and_metadata_from_the_run(memory_factory):
    memory = memory_factory("memory://")
    named = {"thread_title": "Trip", "thread_metadata": {"topic": "travel"}}
    put(memory.checkpointer, {"a": 1}, at=config(resource_id="ann", memory=named))
    put(memory.checkpointer, {"a": 2}, at=config(resource_id="ann", memory={"thread_title": "Other"}))
    thread = memory.get_thread("t", resource_id="ann")
    assert (thread.title, thread.metadata) == ("Trip", {"topic": "travel"})
    assert "memory" not in memory.checkpointer.get_tuple(config()).metadata


# Listing


def test_a_filter_is_matched_exactly_whatever_its_keys_and_values_are(saver):
    hostile = ["a') OR 1=1 --", 'k"ey', "$.x", "a.b", "[0]", "é", "%", ""]
    for key in hostile:
        put(saver, metadata={"source": "loop", "step": 1, "parents": {}, key: "yes"})
    put(saver, metadata={"source": "loop", "step": 2, "parents": {}, "n": 1, "f": 1.5, "b": True, "l": [1, {"x": 2}]})
    for key in hostile:
        assert len(list(saver.list(config(), filter={key: "yes"}))) == 1
        assert list(saver.list(config(), filter={key: "no"})) == []
    for exact in ({"n": 1}, {"f": 1.5}, {"b": True}, {"l": [1, {"x": 2}]}, {"step": 2, "n": 1}):
        assert len(list(saver.list(config(), filter=exact))) == 1
    for none in ({"n": 2}, {"n": "1"}, {"b": "True"}, {"l": [1]}, {"missing": 1}, {"n": 1, "step": 1}):
        assert list(saver.list(config(), filter=none)) == []
    assert len(list(saver.list(config(), filter={"n": None}))) == len(hostile)


def test_the_root_namespace_all_namespaces_and_all_threads_are_told_apart(saver):
    for thread_id in ("t", "u"):
        for ns in ("", "child:1", "child:2"):
            put(saver, at=config(thread_id, ns))
    assert len(list(saver.list(config()))) == 1
    assert len(list(saver.list({"configurable": {"thread_id": "t"}}))) == 3
    assert len(list(saver.list(None))) == 6
    assert len(list(saver.list(None, limit=4))) == 4
    ids = [c.checkpoint["id"] for c in saver.list(None)]
    assert ids == sorted(ids, reverse=True)


def test_a_long_listing_is_read_in_pages_and_holds_nothing_open(saver):
    at = None
    for step in range(75):
        at = put(saver, {"n": step}, at=at, metadata={"source": "loop", "step": step, "parents": {}})
    steps = []
    for found in saver.list(config()):
        steps.append(found.metadata["step"])
        put(saver, {"n": -1}, at=config("other"))
        assert saver.get_tuple(found.config) is not None
    assert steps == list(reversed(range(75)))
    assert [c.metadata["step"] for c in saver.list(config(), limit=40)] == list(reversed(range(35, 75)))
    assert list(saver.list(config(), limit=0)) == []
    before = at
    assert [c.metadata["step"] for c in saver.list(config(), before=before, limit=2)] == [73, 72]


# Async, threads, processes


async def test_sync_methods_work_on_a_running_loop_and_async_ones_beside_them(saver):
    at = put(saver, {"a": 1})
    assert (await saver.aget_tuple(at)).checkpoint["channel_values"] == {"a": 1}
    await asyncio.gather(*(saver.aput_writes(at, [("a", n)], f"t{n:02}") for n in range(20)))
    assert [w[2] for w in saver.get_tuple(at).pending_writes] == list(range(20))
    assert [c.checkpoint["id"] async for c in saver.alist(config())] == [at["configurable"]["checkpoint_id"]]


def test_many_threads_of_one_process_write_one_conversation_each(saver):
    def work(number):
        at = config(f"t{number}")
        for step in range(5):
            messages = [HumanMessage(str(i), id=f"m{i}") for i in range(step + 1)]
            made = checkpoint({"messages": messages}, {"messages": step + 1})
            at = saver.put(at, made, {"source": "loop", "step": step, "parents": {}}, {"messages": step + 1})

    workers = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for number in range(8):
        assert len(values_of(saver, config(f"t{number}"))["messages"]) == 5


def test_two_savers_on_one_thread_see_each_others_work(saver):
    other = ThreadSaver(saver.store)
    at = put(saver, {"messages": [HumanMessage("a", id="1")]})
    for step in range(2, 12):
        writer, reader = (saver, other) if step % 2 else (other, saver)
        found = writer.get_tuple(at).checkpoint["channel_values"]["messages"]
        found.append(AIMessage(str(step), id=f"m{step}"))
        made = checkpoint({"messages": found}, {"messages": step})
        at = writer.put(at, made, {"source": "loop", "step": step, "parents": {}}, {"messages": step})
        assert values_of(reader, at)["messages"] == found
    assert len(bodies_of(saver)) == 11


# Serializers


@dataclass
class Custom:
    x: int


def test_strict_msgpack_is_honoured_and_messages_are_not_touched_by_it(store):
    strict = ThreadSaver(store, serde=JsonPlusSerializer(allowed_msgpack_modules=None))
    at = put(strict, {"c": Custom(1), "messages": [HumanMessage("hi", id="1")]})
    values = values_of(strict, at)
    assert values["c"] == {"x": 1}
    assert values["messages"] == [HumanMessage("hi", id="1")]
    allowed = strict.with_allowlist([(Custom.__module__, "Custom")])
    assert values_of(allowed, at)["c"] == Custom(1)
    assert values_of(strict, at)["c"] == {"x": 1}


def test_a_message_with_an_applications_object_goes_through_the_serializer(store):
    strict = ThreadSaver(store, serde=JsonPlusSerializer(allowed_msgpack_modules=None))
    at = put(strict, {"messages": [ToolMessage("x", tool_call_id="c", id="1", artifact=Custom(2))]})
    assert values_of(strict, at)["messages"][0].artifact == {"x": 2}


# Subgraphs and agents


@pytest.mark.parametrize("checkpointer", [None, True])
async def test_a_subgraph_keeps_its_own_namespace_and_only_the_root_is_archived(memory_factory, checkpointer):
    memory = memory_factory("memory://")
    inner = StateGraph(MessagesState)
    inner.add_node("think", lambda state: {"messages": [AIMessage(f"inner {len(state['messages'])}", id=str(uuid4()))]})
    inner.add_edge(START, "think")
    inner.add_edge("think", END)
    worker = inner.compile(checkpointer=checkpointer)

    def call(state):
        result = worker.invoke({"messages": [HumanMessage("task", id=str(uuid4()))]})
        return {"messages": [AIMessage(f"out:{len(result['messages'])}")]}

    chat = Bot(memory, nodes=(("worker", call),))
    first = await chat.say("1")
    second = await chat.say("2")
    assert first[-1] == "out:2"
    assert second[-1] == ("out:4" if checkpointer else "out:2")
    assert chat.archive() == second
    spaces = {c.config["configurable"]["checkpoint_ns"] for c in chat.saver.list({"configurable": {"thread_id": "t"}})}
    assert "" in spaces
    assert len(spaces) > 1


async def test_a_long_conversation_through_a_subgraph_grows_with_what_is_new(memory_factory):
    memory = memory_factory("memory://")
    inner = StateGraph(MessagesState)
    inner.add_node("a", lambda state: {"messages": [AIMessage("thinking", id=str(uuid4()))]})
    inner.add_node("b", lambda state: {"messages": [AIMessage("x" * 200, id=str(uuid4()))]})
    inner.add_edge(START, "a")
    inner.add_edge("a", "b")
    inner.add_edge("b", END)
    chat = Bot(memory, nodes=(("worker", inner.compile()),))
    from langchain_mastra_memory.store.sql.tables_checkpoints import bodies, checkpoints, writes

    sizes = []
    for turn in range(40):
        await chat.say(f"question {turn}")
        sizes.append(
            sum(
                len(v)
                for t in (bodies, checkpoints, writes)
                for row in rows(chat.saver, t)
                for v in row
                if isinstance(v, bytes)
            )
        )
    assert chat.archive() == await chat.shown()
    assert sizes[39] - sizes[29] < 1.6 * (sizes[19] - sizes[9])


async def test_an_agent_with_tools_is_archived_whole(memory_factory):
    from langchain.agents import create_agent
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
    from langchain_core.tools import tool

    @tool
    def add(a: int, b: int) -> str:
        """Add."""
        return str(a + b)

    class Fake(GenericFakeChatModel):
        def bind_tools(self, tools, **kwargs):
            return self

    call = {"name": "add", "args": {"a": 1, "b": 2}, "id": "c1", "type": "tool_call"}
    model = Fake(messages=iter([AIMessage("", tool_calls=[call]), AIMessage("3")]))
    memory = memory_factory("memory://")
    agent = create_agent(model, [add], system_prompt="s", checkpointer=memory.checkpointer)
    await agent.ainvoke({"messages": [HumanMessage("1+2?")]}, config(resource_id="ann"))
    page = memory.recall(thread_id="t", resource_id="ann", per_page=False)
    assert [m.role for m in page] == ["human", "ai", "tool", "ai"]
    assert page[1].message.tool_calls == [call]
    assert memory.list_threads("ann")[0].id == "t"


def test_system_messages_do_not_hide_that_a_list_was_trimmed():
    from langchain_mastra_memory.threads.archiving import retractable

    before = [("s", True), ("1", False), ("2", False), ("3", False)]
    assert retractable(before, ["s", "3"], []) == ()
    assert retractable(before, ["s", "1", "2"], []) == ("3",)
    assert retractable(before, ["s", "1", "3"], []) == ("2",)
    assert retractable(before, [], []) == ("s", "1", "2", "3")
    summary = SystemMessage("S", id="x", additional_kwargs={"lc_source": "summarization"})
    assert retractable(before, ["x", "3"], [summary]) == ()


def test_message_ids_with_lone_surrogates_survive(store):
    def node(state):
        return {"messages": [AIMessage("re", id="a\ud800")]}

    builder = StateGraph(MessagesState).add_node(node).add_edge(START, "node")
    graph = builder.compile(checkpointer=ThreadSaver(store))
    graph.invoke({"messages": [HumanMessage("q", id="h\ud800")]}, config())
    again = builder.compile(checkpointer=ThreadSaver(store)).get_state(config())
    assert [message.id for message in again.values["messages"]] == ["h\ud800", "a\ud800"]


@pytest.mark.parametrize("enabled", [True, False])
def test_reading_a_long_list_leaves_the_garbage_collector_as_it_was(saver, enabled):
    at = put(saver, {"messages": [HumanMessage(str(n), id=f"m{n}") for n in range(MANY + 10)]})
    gc.enable() if enabled else gc.disable()
    try:
        assert len(values_of(saver, at)["messages"]) == MANY + 10
        assert gc.isenabled() is enabled
    finally:
        gc.enable()
