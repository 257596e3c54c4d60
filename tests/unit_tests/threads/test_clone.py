"""Clones: copied inside the database by the documented rules, with a line back to where they came from."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from langchain_mastra_memory.errors import InvalidIdError, InvalidQueryError, ThreadNotFoundError
from langchain_mastra_memory.store.sql import clones
from langchain_mastra_memory.testing.clock import START, FrozenClock
from langchain_mastra_memory.threads.lineage import source_of
from langchain_mastra_memory.types import Deleted
from tests.naming import spelled


def human(message_id: str, **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": message_id, "id": message_id, **more}


def fill(memory: Any, count: int = 5, thread_id: str = "s") -> None:
    memory.create_thread("r1", thread_id=thread_id, title="Src", metadata={"a": 1, "b": "x"})
    at = [START - timedelta(days=1) + timedelta(minutes=number) for number in range(count)]
    memory.save_messages([human(f"m{n + 1}", created_at=at[n]) for n in range(count)], thread_id=thread_id)


def texts(rows: Any) -> list[str]:
    return [str(row.message.content) for row in rows]


def test_a_clone_has_the_same_messages_under_new_ids(memory: Any, clock: FrozenClock) -> None:
    call = AIMessage("", id="c", tool_calls=[{"name": "f", "args": {"x": "\0\ud83d"}, "id": "call"}])
    memory.save_messages(
        [human("a", metadata={"k": 1}), call, ToolMessage("done", tool_call_id="call", id="d", artifact=[1])],
        thread_id="s",
        resource_id="r1",
    )
    clock.advance(hours=1)
    source = memory.recall(thread_id="s")
    clone = memory.clone_thread("s", new_thread_id="c")
    assert [(row.seq, row.metadata, row.created_at, row.tokens, row.role) for row in clone.messages] == [
        (row.seq, row.metadata, row.created_at, row.tokens, row.role) for row in source
    ]
    for old, new in zip(source, clone.messages, strict=True):
        assert new.message == old.message.model_copy(update={"id": new.id})
        assert clone.message_id_map[old.id] == new.id == new.message.id != old.id
        assert (new.thread_id, new.outside, new.revision) == ("c", True, 1)
    assert memory.recall(thread_id="c").items == clone.messages
    assert memory.recall(thread_id="s").items == source.items
    assert clone.thread.created_at == clone.thread.updated_at == clock()
    assert len(set(clone.message_id_map.values())) == 3


def test_the_clone_and_the_source_go_their_own_ways(memory: Any) -> None:
    fill(memory, 2)
    clone = memory.copy_thread("s", new_thread_id="c")
    copied = clone.message_id_map["m1"]
    memory.update_messages([{"id": copied, "content": "changed"}], thread_id="c")
    memory.save_messages([human("more")], thread_id="c")
    memory.delete_messages(["m2"], thread_id="s")
    assert texts(memory.recall(thread_id="c")) == ["changed", "m2", "more"]
    assert texts(memory.recall(thread_id="s")) == ["m1"]
    rows = memory.recall(thread_id="c")
    assert memory.save_messages([row.message for row in rows], thread_id="c") == list(
        rows
    )  # unchanged: nothing written


def test_metadata_is_merged_over_the_sources_and_says_where_it_came_from(memory: Any, clock: FrozenClock) -> None:
    fill(memory, 3)
    clone = memory.clone_thread("s", metadata={"a": 2, "b": None, "c": 3, "clone": "mine"}, message_ids=["m1"])
    info = {"source_thread_id": "s", "cloned_at": clock().isoformat(), "last_message_id": "m3"}
    assert clone.thread.metadata == {"a": 2, "c": 3, "clone": info}
    found = memory.get_clone_metadata(clone.thread)
    assert (found.source_thread_id, found.cloned_at, found.last_message_id) == ("s", clock(), "m3")
    assert memory.get_thread("s").metadata == {"a": 1, "b": "x"}
    again = memory.clone_thread(clone.thread.id)
    assert again.thread.metadata["clone"]["source_thread_id"] == clone.thread.id


def test_an_empty_thread_can_be_cloned(memory: Any) -> None:
    memory.create_thread("r1", thread_id="s")
    clone = memory.clone_thread("s", new_thread_id="c")
    assert (clone.messages, clone.message_id_map, clone.thread.title) == ((), {}, None)
    assert memory.get_clone_metadata("c").last_message_id is None
    assert [row.seq for row in memory.save_messages([human("x")], thread_id="c")] == [1]


def test_titles_are_given_or_made_of_the_sources(memory: Any) -> None:
    from langchain_mastra_memory.store.operations.threads import SuggestTitle

    fill(memory, 0)
    memory.create_thread("r1", thread_id="untitled")
    memory.create_thread("r1", thread_id="automatic")
    memory.store.run(SuggestTitle(thread_id="automatic", title="Auto"))
    made = {
        "given": memory.clone_thread("s", title="Mine").thread,
        "default": memory.clone_thread("s", title="").thread,
        "none": memory.clone_thread("untitled").thread,
        "auto": memory.clone_thread("automatic").thread,
    }
    assert [thread.title for thread in made.values()] == ["Mine", "Clone of Src", None, "Clone of Auto"]
    renamed = {name: memory.store.run(SuggestTitle(thread_id=thread.id, title="New")) for name, thread in made.items()}
    assert renamed == {"given": False, "default": False, "none": True, "auto": True}


CHOICES: list[tuple[dict[str, Any], list[str]]] = [
    ({}, ["m1", "m2", "m3", "m4", "m5"]),
    ({"message_limit": 2}, ["m4", "m5"]),
    ({"message_limit": 9}, ["m1", "m2", "m3", "m4", "m5"]),
    ({"message_limit": 0}, []),
    ({"message_ids": ["m4", "m2", "m2", "nope"]}, ["m2", "m4"]),
    ({"message_ids": []}, []),
    ({"message_ids": {"m1"}}, ["m1"]),
    (
        {"start": START - timedelta(days=1, minutes=-1), "end": START - timedelta(days=1, minutes=-3)},
        ["m2", "m3", "m4"],
    ),
    ({"start": START}, []),
    ({"end": START - timedelta(days=1, minutes=-2), "message_limit": 1}, ["m3"]),
    ({"message_ids": ["m1", "m2", "m3"], "message_limit": 2}, ["m2", "m3"]),
]


def test_messages_are_chosen_by_time_and_id_first_and_then_by_number(memory: Any) -> None:
    fill(memory)
    for choice, expected in CHOICES:
        clone = memory.clone_thread("s", **choice)
        assert texts(clone.messages) == expected
        assert list(clone.message_id_map) == expected
        assert texts(memory.recall(thread_id=clone.thread.id)) == expected
        saved = memory.save_messages([human("next")], thread_id=clone.thread.id)
        assert texts(memory.recall(thread_id=clone.thread.id)) == [*expected, "next"]
        assert saved[0].branch == 0


@pytest.mark.parametrize(
    "choice",
    [
        {"message_limit": -1},
        {"message_limit": True},
        {"message_limit": 1.5},
        {"message_ids": "m1"},
        {"start": "soon"},
        {"start": START, "end": START - timedelta(days=1)},
        {"title": 5},
        {"metadata": {"k": object()}},
        {"new_thread_id": ""},
        {"resource_id": ""},
        {"checkpoint_id": ""},
    ],
    ids=spelled,
)
def test_a_choice_that_makes_no_sense_is_refused(quick: Any, choice: dict[str, Any]) -> None:
    fill(quick)
    with pytest.raises((InvalidQueryError, InvalidIdError)):
        quick.clone_thread("s", **choice)
    assert quick.list_threads("r1").total == 1


def test_a_taken_id_a_missing_source_and_a_foreign_one_are_refused(memory: Any) -> None:
    fill(memory)
    memory.create_thread("r2", thread_id="foreign", title="F")
    for taken in ("s", "foreign"):
        with pytest.raises(InvalidIdError, match="already"):
            memory.clone_thread("s", new_thread_id=taken)
    with pytest.raises(ThreadNotFoundError):
        memory.clone_thread("nope")
    with pytest.raises(ThreadNotFoundError):
        memory.clone_thread("foreign", source_resource_id="r1")
    assert memory.get_thread("foreign").title == "F"
    assert memory.list_threads(all_resources=True).total == 2
    with pytest.raises(ThreadNotFoundError, match="checkpoint"):
        memory.clone_thread("s", checkpoint_id="nope")


def test_a_clone_for_another_resource_is_that_resources(memory: Any) -> None:
    fill(memory, 2)
    clone = memory.clone_thread("s", resource_id="r2")
    assert {row.resource_id for row in clone.messages} == {"r2"}
    assert memory.recall(thread_id=clone.thread.id, resource_id="r2").total == 2
    assert memory.list_threads("r1").total == 1


def test_only_the_line_on_which_the_thread_stands_is_copied(memory: Any, stand: Callable[..., None]) -> None:
    fill(memory, 4)
    stand("s", 0, 2)
    memory.save_messages([human("f1")], thread_id="s")
    memory.update_messages([{"id": "m1", "content": "fork"}], thread_id="s")
    clone = memory.clone_thread("s", new_thread_id="c")
    assert texts(clone.messages) == ["fork", "m2", "f1"]
    assert [(row.seq, row.branch) for row in clone.messages] == [(1, 0), (2, 0), (5, 0)]
    assert len(memory.list_branches("c")) == 1
    assert [row.seq for row in memory.save_messages([human("x")], thread_id="c")] == [6]
    stand("s", 0, 4)
    assert texts(memory.copy_thread("s", new_thread_id="d").messages) == []
    assert texts(memory.recall(thread_id="d")) == ["m1", "m2", "m3", "m4"]


def test_ten_thousand_messages_are_copied_without_reading_a_body(memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from langchain_mastra_memory.store.sql import rows

    memory.save_messages([("user", f"text {n}") for n in range(10_000)], thread_id="s", resource_id="r1")

    def refuse(body: bytes) -> Any:
        raise AssertionError("a body was read in Python")

    with monkeypatch.context() as patch:
        patch.setattr(rows, "load_message", refuse)
        copy = memory.copy_thread("s", new_thread_id="c")
        with pytest.raises(AssertionError):
            memory.recall(thread_id="c", per_page=1)
    assert len(set(copy.message_id_map.values())) == 10_000
    assert texts(memory.recall(thread_id="c", per_page=3)) == ["text 9997", "text 9998", "text 9999"]


# --- lineage ---


def test_a_line_of_clones_is_followed_back_to_the_original(memory: Any, clock: FrozenClock) -> None:
    memory.create_thread("r1", thread_id="a")
    for source, new in (("a", "b"), ("b", "c"), ("a", "d")):
        clock.advance(minutes=1)
        memory.copy_thread(source, new_thread_id=new)
    assert [memory.is_clone(thread_id) for thread_id in "abcd"] == [False, True, True, True]
    assert memory.is_clone(memory.get_thread("b"))
    assert memory.get_clone_metadata("a") is None
    assert memory.get_source_thread("a") is None
    assert memory.get_source_thread("c").id == "b"
    assert [thread.id for thread in memory.list_clones("a")] == ["b", "d"]
    assert [thread.id for thread in memory.get_clone_history("c")] == ["a", "b", "c"]
    assert [thread.id for thread in memory.get_clone_history("a")] == ["a"]
    memory.delete_thread("b")
    assert memory.get_source_thread("c") is None
    assert memory.is_clone("c")
    assert [thread.id for thread in memory.get_clone_history("c")] == ["c"]
    assert [thread.id for thread in memory.list_clones("b")] == ["c"]
    assert memory.get_clone_history("b") == []
    assert memory.list_clones("never") == []


@pytest.mark.parametrize("source", ["50%_of/it", 'q"uo\\te', "\\", "ünï\ud83d", "s%", "clone"])
def test_the_clones_of_a_thread_are_found_whatever_its_id(memory: Any, source: str) -> None:
    for thread_id in (source, source + "x", "50xyofzit"):
        memory.create_thread("r1", thread_id=thread_id)
        memory.copy_thread(thread_id, new_thread_id=f"copy of {thread_id}")
    for resource_id in (None, "r1"):
        clones = memory.list_clones(source, resource_id=resource_id)
        assert [thread.id for thread in clones] == [f"copy of {source}"]


def test_other_threads_are_not_read_for_the_clones_of_one(memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(memory, 1)
    fill(memory, 1, "other")
    for number in range(20):
        memory.copy_thread("other", new_thread_id=f"o{number}")
    memory.copy_thread("s", new_thread_id="c")
    looked_at = []
    monkeypatch.setattr(clones, "source_of", lambda metadata: looked_at.append(metadata) or source_of(metadata))
    assert [thread.id for thread in memory.list_clones("s")] == ["c"]
    assert len(looked_at) == 1


def test_a_circle_of_clones_is_walked_once(memory: Any) -> None:
    for one, other in (("a", "b"), ("b", "c"), ("c", "a"), ("self", "self")):
        memory.create_thread("r1", thread_id=one, metadata={"clone": {"source_thread_id": other}})
    assert [thread.id for thread in memory.get_clone_history("a")] == ["c", "b", "a"]
    assert [thread.id for thread in memory.get_clone_history("self")] == ["self"]


@pytest.mark.parametrize(
    "clone",
    [None, "x", 5, [], {}, {"source_thread_id": ""}, {"source_thread_id": 5}, {"cloned_at": "2026-01-01"}],
    ids=spelled,
)
def test_metadata_that_only_looks_like_a_clones_is_not_believed(quick: Any, clone: Any) -> None:
    thread = quick.create_thread("r1", metadata={"clone": clone})
    assert not quick.is_clone(thread)
    assert quick.get_clone_metadata(thread.id) is None
    assert [found.id for found in quick.get_clone_history(thread.id)] == [thread.id]


def test_what_mastra_itself_wrote_about_a_clone_is_understood(quick: Any) -> None:
    info = {"sourceThreadId": "s", "clonedAt": "2026-01-01T10:00:00.000Z", "lastMessageId": "m"}
    found = quick.get_clone_metadata(quick.create_thread("r1", metadata={"clone": info}))
    assert (found.source_thread_id, found.last_message_id) == ("s", "m")
    assert found.cloned_at.isoformat() == "2026-01-01T10:00:00+00:00"


def test_the_lineage_ends_at_another_owners_thread_when_a_resource_is_named(memory: Any) -> None:
    fill(memory)
    memory.copy_thread("s", new_thread_id="c", resource_id="r2")
    memory.copy_thread("s", new_thread_id="d")
    assert memory.get_source_thread("c").id == "s"
    assert memory.get_source_thread("c", resource_id="r2") is None
    assert [thread.id for thread in memory.get_clone_history("c", resource_id="r2")] == ["c"]
    assert [thread.id for thread in memory.list_clones("s", resource_id="r1")] == ["d"]
    with pytest.raises(ThreadNotFoundError):
        memory.list_clones("s", resource_id="r2")


# --- a resource as a whole ---


def build_resource(memory: Any, stand: Callable[..., None]) -> None:
    fill(memory, 4)
    stand("s", 0, 2)
    memory.save_messages([human("f1", metadata={"k": "NUL \0 \ud83d"})], thread_id="s")
    memory.update_messages([{"id": "m1", "content": "fork"}], thread_id="s")
    memory.delete_messages(["m2"], thread_id="s")
    memory.save_messages([AIMessage([{"type": "text", "text": "é\0"}], id="x")], thread_id="t", resource_id="r1")
    memory.save_messages([HumanMessage("theirs")], thread_id="z", resource_id="r2")


def test_a_resource_is_taken_out_as_json_and_put_back_as_it_was(
    memory: Any, stand: Callable[..., None], memory_factory: Callable[..., Any], clock: FrozenClock
) -> None:
    build_resource(memory, stand)
    data = json.loads(json.dumps(memory.export_resource("r1")))
    other = memory_factory("memory://", clock=clock)
    clock.advance(days=1)
    assert other.import_resource(data) == 2
    for thread_id in ("s", "t"):
        assert other.get_thread(thread_id) == memory.get_thread(thread_id)
        before, after = memory.recall(thread_id=thread_id), other.recall(thread_id=thread_id)
        assert [(r.id, r.seq, r.branch, r.message, r.metadata, r.created_at, r.revision) for r in before] == [
            (r.id, r.seq, r.branch, r.message, r.metadata, r.created_at, r.revision) for r in after
        ]
        assert other.list_branches(thread_id) == memory.list_branches(thread_id)
    assert other.export_resource("r1")["threads"] == [
        {**thread, "messages": [{**row, "outside": 1} for row in thread["messages"]]} for thread in data["threads"]
    ]
    assert other.list_threads(all_resources=True).total == 2
    assert other.delete_messages(["m2"], thread_id="s", resource_id="r1") == 0  # its tombstone came along


def test_an_import_is_all_or_nothing(memory: Any, stand: Callable[..., None]) -> None:
    build_resource(memory, stand)
    data = memory.export_resource("r1")
    memory.delete_thread("s")
    with pytest.raises(InvalidIdError, match="'t' already"):
        memory.import_resource(data)
    assert memory.get_thread("s") is None
    damaged = json.loads(json.dumps(data))
    damaged["threads"][1]["messages"][0]["body"] = "no base64!"
    memory.delete_thread("t")
    for bad in (
        damaged,
        {**data, "version": 2},
        {**data, "format": "x"},
        {"resource_id": "r1"},
        {**data, "threads": [{}]},
    ):
        with pytest.raises(InvalidQueryError):
            memory.import_resource(bad)
    for bad in ("text", None, [], {}):
        with pytest.raises(InvalidQueryError):
            memory.import_resource(bad)
    assert memory.list_threads("r1").total == 0
    assert memory.import_resource(data, resource_id="r9") == 2
    assert memory.list_threads("r9").total == 2
    assert memory.list_threads("r1").total == 0


def test_a_resource_is_removed_with_everything_in_one_call(memory: Any, stand: Callable[..., None]) -> None:
    build_resource(memory, stand)
    assert memory.delete_resource("r1") == Deleted(threads=2, messages=6, checkpoints=0)
    assert memory.delete_resource("r1") == Deleted()
    assert memory.list_threads("r1").total == 0
    assert memory.export_resource("r1")["threads"] == []
    assert [thread.id for thread in memory.list_threads(all_resources=True)] == ["z"]


async def test_every_method_has_an_async_twin_that_does_the_same(memory: Any) -> None:
    fill(memory, 2)
    clone = await memory.aclone_thread("s")
    assert texts(clone.messages) == ["m1", "m2"]
    data = await memory.aexport_resource("r1")
    assert (await memory.adelete_resource("r1")).threads == 2
    assert await memory.aimport_resource(data) == 2
    assert (await memory.aexport_resource("r1"))["threads"] == data["threads"]
