"""Threads: one owner for life, strict filters, pages that are right at every edge, updates that never get lost."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from langchain_mastra_memory.errors import (
    InvalidFilterError,
    InvalidIdError,
    InvalidQueryError,
    MissingResourceError,
    StoreReadOnlyError,
    ThreadNotFoundError,
    ThreadOwnershipError,
)
from langchain_mastra_memory.store.operations.threads import SuggestTitle
from langchain_mastra_memory.testing.clock import FrozenClock
from langchain_mastra_memory.types import Deleted
from tests.naming import spelled

HOSTILE = [
    "x' OR 1=1 --",
    'a"b',
    "%",
    "_",
    "user1%",
    "*",
    "a/b|c:d",
    "\\",
    "ünïcödé 線",
    "\ud83d",
    " ",
    "\n",
    "$.a",
    "x" * 512,
]


def ids(page: Any) -> list[str]:
    return [thread.id for thread in page]


# --- owners ---


def test_creating_a_thread_again_returns_it_unchanged(memory: Any, clock: FrozenClock) -> None:
    first = memory.create_thread("r1", thread_id="t", title="One", metadata={"a": 1})
    clock.advance(hours=1)
    assert memory.create_thread("r1", thread_id="t", title="Two", metadata={"b": 2}) == first
    assert memory.get_thread("t") == first


def test_a_thread_of_another_resource_is_neither_given_nor_changed(memory: Any) -> None:
    mine = memory.create_thread("r1", thread_id="t", title="Mine")
    with pytest.raises(ThreadOwnershipError, match="belongs to another resource"):
        memory.create_thread("r2", thread_id="t", title="Theirs")
    assert memory.get_thread("t") == mine
    assert memory.get_thread("t", resource_id="r2") is None


CALLS = {
    "update_thread": lambda memory, t, r: memory.update_thread(t, title="X", resource_id=r),
    "delete_thread": lambda memory, t, r: memory.delete_thread(t, resource_id=r),
    "transfer_thread": lambda memory, t, r: memory.transfer_thread(t, "r3", resource_id=r),
    "clear_thread": lambda memory, t, r: memory.clear_thread(t, resource_id=r),
    "clone_thread": lambda memory, t, r: memory.clone_thread(t, source_resource_id=r),
    "copy_thread": lambda memory, t, r: memory.copy_thread(t, source_resource_id=r),
    "is_clone": lambda memory, t, r: memory.is_clone(t, resource_id=r),
    "get_clone_metadata": lambda memory, t, r: memory.get_clone_metadata(t, resource_id=r),
    "get_source_thread": lambda memory, t, r: memory.get_source_thread(t, resource_id=r),
    "get_clone_history": lambda memory, t, r: memory.get_clone_history(t, resource_id=r),
    "list_branches": lambda memory, t, r: memory.list_branches(t, resource_id=r),
    "recall": lambda memory, t, r: memory.recall(thread_id=t, resource_id=r),
    "update_messages": lambda memory, t, r: memory.update_messages(
        [{"id": "m", "content": "X"}], thread_id=t, resource_id=r
    ),
    "delete_messages": lambda memory, t, r: memory.delete_messages(["m"], thread_id=t, resource_id=r),
}


def test_a_foreign_thread_looks_like_a_missing_one(memory: Any) -> None:
    memory.save_messages([{"role": "user", "content": "secret", "id": "m"}], thread_id="t", resource_id="r1")
    before = (memory.get_thread("t"), memory.recall(thread_id="t").items)
    for name, call in CALLS.items():
        with pytest.raises(ThreadNotFoundError) as foreign:
            call(memory, "t", "r2")
        with pytest.raises(ThreadNotFoundError) as missing:
            call(memory, "nope", "r2")
        assert str(foreign.value).replace("'t'", "'nope'") == str(missing.value), name
    assert (memory.get_thread("t"), memory.recall(thread_id="t").items) == before


def test_saving_into_a_foreign_thread_is_refused_as_if_there_were_none_and_a_missing_one_asks_for_an_owner(
    memory: Any,
) -> None:
    memory.create_thread("r1", thread_id="t")
    with pytest.raises(ThreadNotFoundError, match="there is no thread 't' for this resource"):
        memory.save_messages([("user", "Hi")], thread_id="t", resource_id="r2")
    with pytest.raises(ThreadNotFoundError, match=r"there is no thread 'nope': name its owner \(resource_id\)"):
        memory.save_messages([("user", "Hi")], thread_id="nope")
    with pytest.raises(ThreadNotFoundError):
        memory.save_messages([], thread_id="t", resource_id="r2")
    assert memory.recall(thread_id="t").total == 0


def test_ids_are_opaque_and_compared_exactly(memory: Any) -> None:
    for thread_id in HOSTILE:
        memory.create_thread(thread_id, thread_id=thread_id, title=thread_id, metadata={"k": thread_id})
    memory.create_thread("user1", thread_id="user1")
    memory.create_thread("user10", thread_id="user10")
    memory.create_thread("USER1", thread_id="USER1")
    for thread_id in HOSTILE:
        found = memory.get_thread(thread_id, resource_id=thread_id)
        assert (found.id, found.resource_id, found.title, found.metadata) == (
            thread_id,
            thread_id,
            thread_id,
            {"k": thread_id},
        )
        assert ids(memory.list_threads(thread_id)) == [thread_id]
        assert ids(memory.list_threads(thread_id, metadata={"k": thread_id})) == [thread_id]
        assert ids(memory.list_threads("user1")) == ["user1"]
        assert memory.list_threads("user1", metadata={"k": thread_id}).total == 0


def test_integers_and_uuids_are_taken_as_their_strings(memory: Any) -> None:
    key = uuid.uuid4()
    memory.create_thread(7, thread_id=key)
    assert memory.get_thread(str(key), resource_id="7").id == str(key)
    assert ids(memory.list_threads(7)) == [str(key)]


@pytest.mark.parametrize("bad", ["", None, "x" * 513, "a\0b", b"t", 1.5, True, ["t"]])
def test_what_is_no_id_is_refused_and_never_means_everything(quick: Any, bad: Any) -> None:
    quick.create_thread("r1", thread_id="t")
    with pytest.raises(InvalidIdError):
        quick.get_thread(bad)
    with pytest.raises(InvalidIdError):
        quick.create_thread(bad)
    with pytest.raises(InvalidIdError):
        quick.delete_thread(bad)
    with pytest.raises(InvalidIdError):
        quick.transfer_thread("t", bad)
    with pytest.raises(InvalidIdError):
        quick.save_messages([("user", "Hi")], thread_id=bad)
    if bad is not None:
        with pytest.raises(InvalidIdError):
            quick.create_thread("r1", thread_id=bad)
        with pytest.raises(InvalidIdError):
            quick.list_threads(bad)
        with pytest.raises(InvalidIdError):
            quick.get_thread("t", resource_id=bad)
    assert quick.list_threads(all_resources=True).total == 1


def test_a_thread_without_an_owner_is_adopted_once(memory: Any) -> None:
    _make_ownerless(memory, "t")
    assert memory.get_thread("t").resource_id is None
    assert memory.get_thread("t", resource_id="r1").resource_id is None  # reading adopts nothing
    assert memory.create_thread("r1", thread_id="t").resource_id == "r1"
    with pytest.raises(ThreadOwnershipError):
        memory.create_thread("r2", thread_id="t")


@pytest.mark.parametrize("call", ["update_thread", "clear_thread", "save_messages"])
def test_the_first_write_that_names_a_resource_adopts(memory: Any, call: str) -> None:
    _make_ownerless(memory, "t")
    if call == "save_messages":
        memory.save_messages([("user", "Hi")], thread_id="t", resource_id="r1")
    else:
        CALLS[call](memory, "t", "r1")
    assert memory.get_thread("t").resource_id == "r1"
    with pytest.raises(ThreadNotFoundError):
        memory.update_thread("t", title="X", resource_id="r2")


def _make_ownerless(memory: Any, thread_id: str) -> None:
    from dataclasses import dataclass
    from typing import ClassVar

    from langchain_mastra_memory.store.base import Group, Operation
    from langchain_mastra_memory.store.sql.lines import make_thread
    from langchain_mastra_memory.store.sql.registry import HANDLERS

    @dataclass(frozen=True, slots=True, kw_only=True)
    class MakeOwnerless(Operation[None]):
        group: ClassVar[Group] = "checkpoints"
        thread_id: str

    def handler(tx: Any, op: Any) -> None:
        make_thread(tx, op.thread_id)

    HANDLERS[MakeOwnerless] = handler
    memory.store.run(MakeOwnerless(thread_id=thread_id))


# --- listing ---


def test_pages_cover_everything_once(memory: Any, clock: FrozenClock) -> None:
    memory.create_thread("other", thread_id="z")
    for total in range(6):
        for per_page in (1, 2, 5, 100):
            seen: list[str] = []
            page = 0
            while True:
                found = memory.list_threads("r", page=page, per_page=per_page, direction="asc")
                seen += ids(found)
                assert (found.total, found.page, found.per_page) == (total, page, per_page)
                if not found.has_more:
                    break
                page += 1
            assert seen == [f"t{number}" for number in range(total)]
            beyond = memory.list_threads("r", page=page + 1, per_page=per_page)
            assert (ids(beyond), beyond.total, beyond.has_more) == ([], total, False)
        clock.advance(seconds=1)
        memory.create_thread("r", thread_id=f"t{total}")


def test_a_page_of_size_zero_is_empty_and_the_last(memory: Any) -> None:
    memory.create_thread("r", thread_id="t")
    for number in (0, 1, 5):
        found = memory.list_threads("r", page=number, per_page=0)
        assert (ids(found), found.total, found.has_more) == ([], 1, False)


def test_equal_times_are_ordered_by_id_both_ways(memory: Any, clock: FrozenClock) -> None:
    for thread_id in ("b", "a", "B", "c"):
        memory.create_thread("r", thread_id=thread_id)
    clock.advance(hours=-1)  # an older clock changes nothing but the time
    memory.create_thread("r", thread_id="z")
    for order_by in ("created_at", "updated_at"):
        up = ids(memory.list_threads("r", order_by=order_by, direction="asc"))
        assert up == ["z", "B", "a", "b", "c"]
        assert ids(memory.list_threads("r", order_by=order_by)) == up[::-1]


@pytest.mark.parametrize(
    "arguments",
    [
        {"page": -1},
        {"page": 1.0},
        {"page": True},
        {"per_page": -1},
        {"per_page": True},
        {"per_page": None},
        {"page": 2**40},
        {"per_page": 10**30},
        {"per_page": "10"},
        {"page": 1, "per_page": False},
        {"order_by": "title"},
        {"order_by": "id; DROP TABLE mastra_threads"},
        {"direction": "up"},
        {"direction": "DESC"},
    ],
)
def test_pages_and_orders_that_make_no_sense_are_refused(quick: Any, arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidQueryError):
        quick.list_threads("r", **arguments)


def test_everybodys_threads_have_to_be_asked_for_aloud(memory: Any) -> None:
    memory.create_thread("r1", thread_id="a")
    memory.create_thread("r2", thread_id="b")
    with pytest.raises(MissingResourceError, match="all_resources=True"):
        memory.list_threads()
    with pytest.raises(MissingResourceError):
        memory.list_threads(None, all_resources=False)
    with pytest.raises(InvalidQueryError, match="not both"):
        memory.list_threads("r1", all_resources=True)
    with pytest.raises(InvalidQueryError):
        memory.list_threads(all_resources="r1")
    assert sorted(ids(memory.list_threads(all_resources=True))) == ["a", "b"]


VALUES: dict[str, Any] = {
    "true": True,
    "false": False,
    "one": 1,
    "zero": 0,
    "float": 1.5,
    "whole": 2.0,
    "text": "1",
    "word": "true",
    "null": None,
    "nulls": "null",
    "empty": "",
    "big": 2**53 + 1,
    "quote": 'it\'s "quoted" \\ $& %',
    "odd": "NUL \0 and \ud83d and \uffff and \\u0000",
    "list": [1],
    "object": {"a": 1},
}


def test_a_filter_finds_exactly_this_value_and_type(memory: Any) -> None:
    for name, held in VALUES.items():
        memory.create_thread("r", thread_id=name, metadata={"k": held, "other": 1})
    memory.create_thread("r", thread_id="missing")
    numbers = (int, float)
    for value in (v for v in VALUES.values() if not isinstance(v, (list, dict))):
        kinds = numbers if type(value) in numbers else (type(value),)
        same = {name for name, held in VALUES.items() if type(held) in kinds and held == value}
        assert set(ids(memory.list_threads("r", metadata={"k": value}))) == same, value


def test_every_key_of_a_filter_has_to_match(memory: Any) -> None:
    memory.create_thread("r", thread_id="a", metadata={"x": 1, "y": 2})
    memory.create_thread("r", thread_id="b", metadata={"x": 1, "y": 3})
    assert ids(memory.list_threads("r", metadata={"x": 1, "y": 3})) == ["b"]
    assert memory.list_threads("r", metadata={"x": 1, "z": 1}).total == 0
    assert memory.list_threads("r", metadata={}).total == 2


@pytest.mark.parametrize(
    "wanted",
    [
        {"a.b": 1},
        {"a-b": 1},
        {"1a": 1},
        {"": 1},
        {"x' OR 1=1 --": 1},
        {"a') OR 1=1 --": 1},
        {"é": 1},
        {"k" * 129: 1},
        {"__proto__": 1},
        {"constructor": 1},
        {1: 1},
        {"k": [1]},
        {"k": {"$gt": 1}},
        {"k": float("nan")},
        {"k": float("inf")},
        {"k": b"x"},
        "k=1",
        ["k"],
    ],
    ids=spelled,
)
def test_a_filter_that_cannot_be_honoured_is_refused_and_never_widens(quick: Any, wanted: Any) -> None:
    quick.create_thread("r", thread_id="t", metadata={"k": 1})
    with pytest.raises(InvalidFilterError):
        quick.list_threads("r", metadata=wanted)
    with pytest.raises(InvalidFilterError):
        quick.recall(thread_id="t", metadata=wanted)


# --- updating ---


def test_metadata_is_merged_key_by_key_and_none_removes(memory: Any) -> None:
    memory.create_thread("r", thread_id="t", metadata={"a": 1, "n": {"x": 1, "y": 2}, "l": [1, 2], "z": None})
    assert memory.update_thread("t", metadata={"b": 2, "n": {"x": 9}, "l": [3], "a": None}).metadata == {
        "n": {"x": 9},
        "l": [3],
        "z": None,
        "b": 2,
    }
    assert memory.update_thread("t", metadata={"nope": None}).metadata == memory.get_thread("t").metadata
    assert memory.update_thread("t", title="T").metadata == memory.get_thread("t").metadata
    assert memory.get_thread("t").title == "T"


def test_what_is_left_out_of_an_update_stays(memory: Any) -> None:
    memory.create_thread("r", thread_id="t", title="T", metadata={"a": 1})
    assert memory.update_thread("t", metadata={"b": 1}).title == "T"
    assert memory.update_thread("t", metadata=None).metadata == {"a": 1, "b": 1}
    assert memory.update_thread("t", title=None).title is None
    assert memory.update_thread("t", title="").title == ""


@pytest.mark.parametrize(
    "metadata",
    [
        {"k": object()},
        {"k": float("nan")},
        {"k": b"x"},
        {"k": {1: 2}},
        {1: 2},
        {"k": {"deep": [{"er": {1}}]}},
        {"k": 1 + 2j},
        "text",
        [("k", 1)],
    ],
    ids=spelled,
)
def test_metadata_that_json_would_lose_is_refused_early(quick: Any, metadata: Any) -> None:
    quick.create_thread("r", thread_id="t", metadata={"a": 1})
    with pytest.raises(InvalidQueryError):
        quick.update_thread("t", metadata=metadata)
    with pytest.raises(InvalidQueryError):
        quick.create_thread("r", thread_id="new", metadata=metadata)
    assert quick.get_thread("t").metadata == {"a": 1}
    assert quick.get_thread("new") is None


def test_metadata_comes_back_as_plain_data_whatever_it_looks_like(memory: Any) -> None:
    data = {
        "lc": {"lc": 1, "type": "constructor", "id": ["langchain_core", "messages", "HumanMessage"], "kwargs": {}},
        "odd": "NUL \0, lone \ud83d, \uffff, backslash \\u0000, emoji 😀",
        "tuple": (1, 2),
        "nested": {"a": [{"b": None}], "\0key": True},
        "constructor": 1,
        "resource_id": "somebody else",
        "big": 10**40,
    }
    memory.create_thread("r", thread_id="t", metadata=data)
    expected = {**data, "tuple": [1, 2]}
    assert memory.get_thread("t").metadata == expected
    assert memory.get_thread("t").resource_id == "r"
    assert memory.update_thread("t", metadata={"more": 1}).metadata == {**expected, "more": 1}


def test_callers_data_and_stored_data_share_nothing(memory: Any) -> None:
    data = {"list": [1]}
    memory.create_thread("r", thread_id="t", metadata=data)
    data["list"].append(2)
    assert memory.get_thread("t").metadata == {"list": [1]}


def test_parallel_updates_of_different_keys_all_count(memory: Any) -> None:
    memory.create_thread("r", thread_id="t", metadata={"old": 0})
    start = threading.Barrier(8)

    def work(number: int) -> None:
        start.wait()
        for step in range(5):
            memory.update_thread("t", metadata={f"k{number}": step})

    workers = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert memory.get_thread("t").metadata == {"old": 0, **{f"k{number}": 4 for number in range(8)}}


async def test_parallel_async_updates_of_different_keys_all_count(memory: Any) -> None:
    await memory.acreate_thread("r", thread_id="t")
    await asyncio.gather(*(memory.aupdate_thread("t", metadata={f"k{number}": number}) for number in range(40)))
    assert (await memory.aget_thread("t")).metadata == {f"k{number}": number for number in range(40)}


def test_an_update_refreshes_updated_at_and_a_clock_that_goes_back_does_not_turn_it_back(
    memory: Any, clock: FrozenClock
) -> None:
    made = memory.create_thread("r", thread_id="t")
    clock.advance(minutes=5)
    first = memory.update_thread("t", metadata={"a": 1}).updated_at
    assert first == made.updated_at + timedelta(minutes=5)
    clock.advance(minutes=-30)
    assert memory.update_thread("t", metadata={"b": 1}).updated_at == first
    assert memory.get_thread("t").created_at == made.created_at
    assert first.utcoffset() == timedelta(0)


# --- titles ---


def suggest(memory: Any, title: str, **options: Any) -> bool:
    taken: bool = memory.store.run(SuggestTitle(thread_id="t", title=title, **options))
    return taken


@pytest.mark.parametrize("how", ["create", "update"])
def test_a_title_given_by_a_person_is_never_replaced_by_an_automatic_one(memory: Any, how: str) -> None:
    memory.create_thread("r", thread_id="t", title="Mine" if how == "create" else None)
    if how == "update":
        assert suggest(memory, "Automatic")
        memory.update_thread("t", title="Mine")
    before = memory.get_thread("t")
    assert not suggest(memory, "Automatic")
    assert not suggest(memory, "Of a run", titled_by="run")
    assert memory.get_thread("t") == before


@pytest.mark.parametrize("untitled", [None, "", "  "])
def test_a_thread_without_a_real_title_may_be_named_automatically(memory: Any, untitled: str | None) -> None:
    memory.create_thread("r", thread_id="t", title=untitled, metadata={"a": 1})
    before = memory.get_thread("t")
    assert suggest(memory, "Automatic")
    after = memory.get_thread("t")
    assert (after.title, after.metadata, after.created_at) == ("Automatic", {"a": 1}, before.created_at)
    assert not suggest(memory, "Again", replace=False)
    assert suggest(memory, "Again")
    memory.update_thread("t", title=None)
    assert suggest(memory, "Once more", replace=False)


@pytest.mark.parametrize("title", [5, ["x"], b"x"])
def test_a_title_is_text(quick: Any, title: Any) -> None:
    with pytest.raises(InvalidQueryError):
        quick.create_thread("r", title=title)


# --- deleting and transferring ---


def test_deleting_a_thread_says_how_much_went_and_leaves_the_others(memory: Any) -> None:
    memory.save_messages([("user", "1"), ("ai", "2"), ("user", "3")], thread_id="t", resource_id="r")
    memory.save_messages([("user", "keep")], thread_id="u", resource_id="r")
    assert memory.delete_thread("t") == Deleted(threads=1, messages=3, checkpoints=0)
    assert memory.get_thread("t") is None
    assert memory.recall(thread_id="t", per_page=False).items == ()
    assert memory.recall(thread_id="u").total == 1
    assert memory.delete_thread("t") == Deleted()
    assert memory.delete_thread("never") == Deleted()


def test_a_deleted_id_begins_anew(memory: Any) -> None:
    memory.save_messages([{"role": "user", "content": "old", "id": "m"}], thread_id="t", resource_id="r1")
    memory.delete_thread("t")
    saved = memory.save_messages([{"role": "user", "content": "new", "id": "m"}], thread_id="t", resource_id="r2")
    assert [(row.seq, row.message.content) for row in memory.recall(thread_id="t")] == [(1, "new")]
    assert saved[0].resource_id == "r2"


def test_a_transferred_thread_is_its_new_owners_with_everything_in_it(memory: Any, clock: FrozenClock) -> None:
    memory.create_thread("r1", thread_id="t", title="T", metadata={"a": 1})
    memory.save_messages([("user", "Hi")], thread_id="t")
    before = memory.get_thread("t")
    clock.advance(hours=1)
    moved = memory.transfer_thread("t", "r2", resource_id="r1")
    assert (moved.resource_id, moved.title, moved.metadata) == ("r2", "T", {"a": 1})
    assert (moved.created_at, moved.updated_at) == (before.created_at, clock())
    assert memory.list_threads("r1").total == 0
    assert memory.recall(resource_id="r1").total == 0
    assert [row.resource_id for row in memory.recall(thread_id="t", resource_id="r2")] == ["r2"]
    clock.advance(hours=1)
    assert memory.transfer_thread("t", new_resource_id="r2") == moved


async def test_every_method_has_an_async_twin_that_does_the_same(memory: Any) -> None:
    made = await memory.acreate_thread("r", thread_id="t", title="T")
    assert await memory.aget_thread("t") == made == memory.get_thread("t")
    assert ids(await memory.alist_threads("r")) == ["t"]
    assert (await memory.aupdate_thread("t", metadata={"a": 1})).metadata == {"a": 1}
    assert (await memory.atransfer_thread("t", "r2")).resource_id == "r2"
    assert len(await memory.alist_branches("t")) == 1
    copy = await memory.acopy_thread("t", new_thread_id="c")
    assert await memory.ais_clone(copy.thread)
    assert (await memory.aget_clone_metadata("c")).source_thread_id == "t"
    assert (await memory.aget_source_thread("c")).id == "t"
    assert ids(await memory.alist_clones("t")) == ["c"]
    assert ids(await memory.aget_clone_history("c")) == ["t", "c"]
    assert (await memory.adelete_thread("t")).threads == 1
    with pytest.raises(ThreadNotFoundError):
        await memory.aupdate_thread("t", title="X")


def test_a_read_only_memory_shows_everything_and_changes_nothing(
    memory: Any, memory_factory: Callable[..., Any]
) -> None:
    memory.save_messages([("user", "Hi")], thread_id="t", resource_id="r")
    data = memory.export_resource("r")
    reader = memory_factory(memory.store, read_only=True)
    before = (reader.get_thread("t"), reader.recall(thread_id="t").items)
    assert before == (memory.get_thread("t"), memory.recall(thread_id="t").items)
    writes = [
        lambda: reader.create_thread("r"),
        lambda: reader.update_thread("t", title="X"),
        lambda: reader.delete_thread("t"),
        lambda: reader.transfer_thread("t", "r2"),
        lambda: reader.clone_thread("t"),
        lambda: reader.copy_thread("t"),
        lambda: reader.save_messages([("user", "more")], thread_id="t"),
        lambda: reader.update_messages([{"id": before[1][0].id, "content": "X"}], thread_id="t"),
        lambda: reader.delete_messages([before[1][0].id], thread_id="t"),
        lambda: reader.clear_thread("t"),
        lambda: reader.import_resource(data, resource_id="r3"),
        lambda: reader.delete_resource("r"),
    ]
    for write in writes:
        with pytest.raises(StoreReadOnlyError):
            write()
    assert (reader.get_thread("t"), reader.recall(thread_id="t").items) == before
    assert reader.list_threads(all_resources=True).total == 1
