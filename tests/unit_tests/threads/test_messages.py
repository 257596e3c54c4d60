"""Messages: saved once in commit order, found by page, date, metadata and id, changed and removed for good."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)

from langchain_mastra_memory.errors import (
    InvalidIdError,
    InvalidQueryError,
    MessageNotFoundError,
    MissingResourceError,
    ThreadNotFoundError,
)
from langchain_mastra_memory.history.options import MessageHistory
from langchain_mastra_memory.testing.clock import FrozenClock
from tests.naming import spelled

AT = datetime(2026, 1, 1, 12, tzinfo=UTC)


def human(message_id: str, text: str | None = None, **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": message_id if text is None else text, "id": message_id, **more}


def ids(rows: Any) -> list[str]:
    return [row.id for row in rows]


def fill(memory: Any, count: int, thread_id: str = "t", resource_id: str = "r", first: int = 1) -> list[str]:
    names = [f"m{number}" for number in range(first, first + count)]
    memory.save_messages([human(name) for name in names], thread_id=thread_id, resource_id=resource_id)
    return names


# --- saving ---

KINDS: list[BaseMessage] = [
    HumanMessage("text", name="ann"),
    HumanMessage(
        [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]
    ),
    AIMessage(
        [{"type": "reasoning", "reasoning": "hm", "extras": {"signature": "s"}}, {"type": "text", "text": "yes"}],
        tool_calls=[{"name": "f", "args": {"a": [1, None]}, "id": "c1", "type": "tool_call"}],
        invalid_tool_calls=[{"name": "g", "args": "{", "id": "c2", "error": "bad", "type": "invalid_tool_call"}],
        usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
        response_metadata={"model_name": "x", "logprobs": None},
    ),
    ToolMessage("result", tool_call_id="c1", artifact={"rows": [1, 2]}, status="error", name="f"),
    SystemMessage("be kind", additional_kwargs={"k": {"deep": [True]}}),
    ChatMessage("custom", role="narrator"),
    FunctionMessage("old", name="f"),
    AIMessageChunk(
        "chunk", tool_call_chunks=[{"name": "f", "args": "{}", "id": "c", "index": 0, "type": "tool_call_chunk"}]
    ),
    HumanMessage("NUL \0, lone \ud83d, \uffff, \\u0000, emoji 😀"),
    HumanMessage(""),
    AIMessage(""),
]


def test_every_message_comes_back_as_it_was(memory: Any) -> None:
    given = [message.model_copy(deep=True) for message in KINDS]
    saved = memory.save_messages(given, thread_id="t", resource_id="r")
    found = memory.recall(thread_id="t", per_page=False)
    assert [row.message for row in found] == given == [row.message for row in saved]
    assert [type(row.message) for row in found] == [type(message) for message in given]
    assert [row.message.model_dump() for row in found] == [message.model_dump() for message in given]
    assert found.items == tuple(saved)


def test_a_message_of_five_megabytes_is_kept_whole(memory: Any) -> None:
    text = "x\u00e9" * 2_500_000
    memory.save_messages([HumanMessage(text, additional_kwargs={"token_estimate": 1})], thread_id="t", resource_id="r")
    assert memory.recall(thread_id="t")[0].message.content == text


def test_ten_thousand_messages_are_saved_in_one_call(memory: Any) -> None:
    saved = memory.save_messages([("user", str(n)) for n in range(10_000)], thread_id="t", resource_id="r")
    assert [row.seq for row in saved] == list(range(1, 10_001))
    found = memory.recall(thread_id="t", per_page=False)
    assert [row.message.content for row in found] == [str(n) for n in range(10_000)]


def test_a_message_without_an_id_gets_one_in_place_and_once(memory: Any) -> None:
    message = HumanMessage("Hi")
    first = memory.save_messages([message], thread_id="t", resource_id="r")
    assert message.id == first[0].id
    again = memory.save_messages([message], thread_id="t")
    assert (again[0].id, again[0].seq, memory.recall(thread_id="t").total) == (message.id, 1, 1)


def test_remove_messages_and_transient_signals_are_never_stored(memory: Any) -> None:
    fill(memory, 2)
    transient = human("s", metadata={"signal": {"type": "notification", "transient": True}})
    assert memory.save_messages([RemoveMessage(id="m1"), transient], thread_id="t") == []
    assert ids(memory.recall(thread_id="t")) == ["m1", "m2"]


def test_an_empty_list_is_fine(memory: Any) -> None:
    assert memory.save_messages([], thread_id="t") == []
    assert memory.get_thread("t") is None


def test_pairs_mappings_and_messages_of_other_stores_are_understood(memory: Any) -> None:
    saved = memory.save_messages(
        [
            ("human", "a"),
            ("ai", "b"),
            {"type": "system", "content": "c"},
            {"role": "tool", "content": "d", "tool_call_id": "x"},
        ],
        thread_id="t",
        resource_id="r",
    )
    assert [row.role for row in saved] == ["human", "ai", "system", "tool"]
    moved = memory.save_messages(memory.recall(thread_id="t", per_page=False), thread_id="u", resource_id="r2")
    assert [(row.id, row.message, row.created_at) for row in moved] == [
        (row.id, row.message, row.created_at) for row in saved
    ]


@pytest.mark.parametrize(
    "messages",
    [
        "text",
        b"text",
        HumanMessage("alone"),
        {"role": "user", "content": "alone"},
        5,
        None,
        ["text"],
        [5],
        [None],
        [{"content": "no role"}],
        [{"role": "user"}],
        [{"role": "nobody", "content": "x"}],
        [("user",)],
        [("user", "a", "b")],
        [{"role": "user", "content": "x", "metadata": {"k": object()}}],
        [{"role": "user", "content": "x", "created_at": "yesterday"}],
        [HumanMessage("x", additional_kwargs={"metadata": {1: 2}})],
    ],
    ids=spelled,
)
def test_what_is_no_list_of_messages_is_refused_and_nothing_is_saved(quick: Any, messages: Any) -> None:
    with pytest.raises(InvalidQueryError):
        quick.save_messages(messages, thread_id="t", resource_id="r")
    if isinstance(messages, list):
        with pytest.raises(InvalidQueryError):
            quick.save_messages([("user", "good"), *messages], thread_id="t", resource_id="r")
    assert quick.get_thread("t") is None


def test_an_id_that_is_none_is_refused(quick: Any) -> None:
    with pytest.raises(InvalidIdError):
        quick.save_messages([HumanMessage("x", id="")], thread_id="t", resource_id="r")


def test_an_id_saved_again_is_changed_in_its_place_and_keeps_its_time(memory: Any, clock: FrozenClock) -> None:
    fill(memory, 3)
    clock.advance(hours=1)
    saved = memory.save_messages([human("m2", "changed"), human("m4")], thread_id="t")
    assert [(row.id, row.seq, row.revision, row.created_at) for row in saved] == [
        ("m2", 2, 2, AT),
        ("m4", 4, 1, AT + timedelta(hours=1)),
    ]
    assert [row.message.content for row in memory.recall(thread_id="t")] == ["m1", "changed", "m3", "m4"]


def test_saving_the_same_again_changes_nothing(memory: Any) -> None:
    first = memory.save_messages([human("a", metadata={"k": 1}), human("b")], thread_id="t", resource_id="r")
    assert memory.save_messages([human("a", metadata={"k": 1}), human("b")], thread_id="t") == first
    assert memory.save_messages([human("b"), human("a", metadata={"k": 1}), human("b")], thread_id="t") == first[::-1]
    assert memory.recall(thread_id="t").items == tuple(first)


def test_of_several_with_one_id_the_last_counts_in_the_place_of_the_first(memory: Any) -> None:
    memory.save_messages([human("a", "1"), human("b"), human("a", "2")], thread_id="t", resource_id="r")
    assert [(row.id, row.seq, row.message.content) for row in memory.recall(thread_id="t")] == [
        ("a", 1, "2"),
        ("b", 2, "b"),
    ]


def test_the_same_id_in_two_threads_is_two_messages(memory: Any) -> None:
    memory.save_messages([human("m", "one")], thread_id="t", resource_id="r")
    memory.save_messages([human("m", "two")], thread_id="u", resource_id="r")
    memory.update_messages([{"id": "m", "content": "three"}], thread_id="u")
    assert memory.recall(thread_id="t")[0].message.content == "one"
    assert memory.delete_messages(["m"], thread_id="u") == 1
    assert memory.recall(thread_id="t").total == 1


def test_metadata_and_time_are_taken_from_the_message(memory: Any) -> None:
    told = datetime(2024, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)
    saved = memory.save_messages(
        [
            human("a", metadata={"k": 1}, created_at=told),
            human("b", created_at="2024-05-06T09:08:09.123456+02:00"),
            HumanMessage("c", id="c", additional_kwargs={"metadata": {"k": 2}, "created_at": told.isoformat()}),
            HumanMessage("d", id="d", additional_kwargs={"metadata": {"created_at": "2024-05-06T07:08:09.123456Z"}}),
            HumanMessage("e", id="e", additional_kwargs={"created_at": told.timestamp()}),
            HumanMessage(
                "f", id="f", additional_kwargs={"created_at": "somebody's own idea", "metadata": "no mapping"}
            ),
        ],
        thread_id="t",
        resource_id="r",
    )
    assert [row.created_at for row in saved] == [told] * 5 + [AT]
    assert [row.metadata.get("k") for row in saved] == [1, None, 2, None, None, None]
    assert memory.recall(thread_id="t").items == tuple(saved)
    assert [row.outside for row in saved] == [True] * 6


def test_the_order_is_that_of_saving_whatever_the_times_say(memory: Any, clock: FrozenClock) -> None:
    memory.save_messages(
        [human("a", created_at="2030-01-01"), human("b", created_at="2020-01-01")], thread_id="t", resource_id="r"
    )
    clock.advance(days=-400)
    memory.save_messages([human("c")], thread_id="t")
    memory.save_messages([human("d", created_at="2030-01-01")], thread_id="t")
    assert ids(memory.recall(thread_id="t")) == ["a", "b", "c", "d"]
    assert ids(memory.recall(resource_id="r", direction="asc", per_page=10)) == ["a", "b", "c", "d"]


def test_parallel_savers_get_seqs_without_gaps_or_repeats(memory: Any) -> None:
    memory.create_thread("r", thread_id="t")
    start = threading.Barrier(6)

    def work(name: str) -> None:
        start.wait()
        for step in range(10):
            memory.save_messages([human(f"{name}-{step}-a"), human(f"{name}-{step}-b")], thread_id="t")

    workers = [threading.Thread(target=work, args=(f"w{number}",)) for number in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    rows = memory.recall(thread_id="t", per_page=False)
    assert [row.seq for row in rows] == list(range(1, 121))
    for number in range(6):
        own = [name for name in ids(rows) if name.startswith(f"w{number}-")]
        assert own == [f"w{number}-{step}-{part}" for step in range(10) for part in "ab"]
    for first, second in zip(rows[::2], rows[1::2], strict=True):
        assert first.id[:-1] == second.id[:-1]  # a call's messages stand together


def test_a_failed_save_leaves_nothing_behind(memory: Any) -> None:
    fill(memory, 1)
    with pytest.raises(InvalidQueryError, match="'b' can't be saved"):
        memory.save_messages([human("a"), HumanMessage("b", id="b", additional_kwargs={"k": object()})], thread_id="t")
    assert ids(memory.recall(thread_id="t")) == ["m1"]
    assert [row.seq for row in memory.save_messages([human("c")], thread_id="t")] == [2]


# --- recalling ---


def test_without_a_page_the_newest_messages_of_the_option_come_oldest_first(memory_factory: Callable[..., Any]) -> None:
    for last, expected in (
        (2, ["m11", "m12"]),
        (10, [f"m{n}" for n in range(3, 13)]),
        (None, [f"m{n}" for n in range(1, 13)]),
    ):
        memory = memory_factory("memory://", message_history=MessageHistory(last_messages=last))
        fill(memory, 12)
        found = memory.recall(thread_id="t")
        assert ids(found) == expected
        assert (found.total, found.has_more) == (12, len(expected) < 12)
        assert ids(memory.recall(thread_id="t", direction="asc")) == expected
        assert ids(memory.recall(thread_id="t", direction="desc")) == expected[::-1]
    for off in (MessageHistory(last_messages=False), MessageHistory(max_tokens=0), False):
        memory = memory_factory("memory://", message_history=off)
        fill(memory, 3)
        assert memory.recall(thread_id="t").items == ()
        assert ids(memory.recall(thread_id="t", per_page=2)) == ["m2", "m3"]


def test_pages_count_from_the_newest_or_from_where_it_is_said(memory: Any) -> None:
    fill(memory, 7)
    pages = {
        None: [["m5", "m6", "m7"], ["m2", "m3", "m4"], ["m1"], []],
        "asc": [["m1", "m2", "m3"], ["m4", "m5", "m6"], ["m7"], []],
        "desc": [["m7", "m6", "m5"], ["m4", "m3", "m2"], ["m1"], []],
    }
    for direction, expected in pages.items():
        for number, names in enumerate(expected):
            found = memory.recall(thread_id="t", page=number, per_page=3, direction=direction)
            assert (ids(found), found.total, found.has_more) == (names, 7, number < 2)


@pytest.mark.parametrize(
    "arguments",
    [
        {"page": -1},
        {"page": 1, "per_page": False},
        {"per_page": -1},
        {"per_page": True},
        {"direction": "DESC"},
        {"bounds": "[["},
        {"start": "yesterday"},
        {"start": 5},
        {"start": "2026-01-02", "end": "2026-01-01"},
        {"per_page": 10**30},
        {"include": [{"id": "m1", "with_next": 10**30}]},
        {"include": "m1"},
        {"include": {"id": "m1"}},
        {"include": [{"id": "m1", "with_previous": -1}]},
        {"include": [{"id": "m1", "withPreviousMessages": 1}]},
        {"include": [{"id": ""}]},
        {"include": [None]},
        {"hide_signals": "state"},
        {"hide_signals": [1]},
        {"hide_signals": None},
        {"top_k": 3},
        {"message_range": 1},
        {"filter": {"k": 1}},
        {"checkpoint_id": ""},
        {"thread_id": []},
        {"thread_id": ["t", ""]},
        {"thread_id": ["t", "u"], "checkpoint_id": "c"},
        {"query": "x", "per_page": 3},
        {"query": "x", "include": ["m1"]},
    ],
    ids=spelled,
)
def test_a_recall_that_makes_no_sense_is_refused(quick: Any, arguments: dict[str, Any]) -> None:
    fill(quick, 1)
    with pytest.raises((InvalidQueryError, InvalidIdError)):
        quick.recall(**{"thread_id": "t", **arguments})


def test_a_recall_without_a_thread_or_a_resource_is_refused(quick: Any) -> None:
    with pytest.raises(MissingResourceError):
        quick.recall()


def test_dates_and_bounds_choose_by_time_to_the_microsecond(memory: Any) -> None:
    tick = timedelta(microseconds=1)
    memory.save_messages(
        [human(name, created_at=AT + step * tick) for step, name in enumerate(["a", "b", "c", "d"])],
        thread_id="t",
        resource_id="r",
    )
    second, third = AT + tick, AT + 2 * tick
    expected = {"[]": ["b", "c"], "(]": ["c"], "[)": ["b"], "()": []}
    for bounds, names in expected.items():
        found = memory.recall(thread_id="t", start=second, end=third, bounds=bounds)
        assert (ids(found), found.total) == (names, len(names))
    assert ids(memory.recall(thread_id="t", start=third)) == ["c", "d"]
    assert ids(memory.recall(thread_id="t", end=second)) == ["a", "b"]
    assert ids(memory.recall(thread_id="t", start=second.replace(tzinfo=None).isoformat(), per_page=1)) == ["d"]
    assert ids(memory.recall(thread_id="t", start=date(2026, 1, 2))) == []
    assert ids(memory.recall(thread_id="t", end=date(2026, 1, 2))) == ["a", "b", "c", "d"]


def test_metadata_filters_page_over_the_matches_only(memory: Any) -> None:
    memory.save_messages(
        [human(f"m{n}", metadata={"odd": bool(n % 2)} if n < 6 else {}) for n in range(9)],
        thread_id="t",
        resource_id="r",
    )
    found = memory.recall(thread_id="t", metadata={"odd": True}, per_page=2)
    assert (ids(found), found.total, found.has_more) == (["m3", "m5"], 3, True)
    assert ids(memory.recall(thread_id="t", metadata={"odd": True}, per_page=2, page=1)) == ["m1"]
    assert memory.recall(thread_id="t", metadata={"odd": None}).total == 0
    assert memory.recall(thread_id="t", metadata={"odd": 1}).total == 0


def test_included_messages_bring_their_neighbours_once_and_in_order(memory: Any) -> None:
    fill(memory, 10)
    include = [{"id": "m6", "with_previous": 2, "with_next": 1}, "m5", {"id": "m5", "with_next": 2}, "nope"]
    assert ids(memory.recall(thread_id="t", per_page=0, include=include)) == ["m4", "m5", "m6", "m7"]
    found = memory.recall(thread_id="t", per_page=2, include=include)
    assert (ids(found), found.total, found.has_more) == (["m4", "m5", "m6", "m7", "m9", "m10"], 10, True)
    assert ids(memory.recall(thread_id="t", per_page=2, include=["m2"], direction="desc")) == ["m10", "m9", "m2"]
    assert not memory.recall(thread_id="t", per_page=9, include=["m1"]).has_more
    assert ids(memory.recall(thread_id="t", start="2030-01-01", include=["m1"])) == ["m1"]


def test_an_include_reaches_this_owners_messages_only(memory: Any) -> None:
    fill(memory, 3, "t", "r1")
    memory.save_messages([human("o1"), human("o2"), human("o3")], thread_id="u", resource_id="r1")
    memory.save_messages([human("x1"), human("x2"), human("m1", "foreign")], thread_id="z", resource_id="r2")
    item = {"id": "o2", "with_previous": 1}
    for scope in ({"resource_id": "r1"}, {}):
        found = memory.recall(
            thread_id="t", per_page=0, include=[item, {"id": "x2", "with_previous": 1}, "m1"], **scope
        )
        assert {(row.thread_id, row.id) for row in found} == {("u", "o1"), ("u", "o2"), ("t", "m1")}
        assert memory.recall(thread_id="t", per_page=0, include=[{"id": "x2", "thread_id": "z"}], **scope).items == ()
        assert memory.recall(thread_id="t", per_page=0, include=[{"id": "m1", "thread_id": "u"}], **scope).items == ()


def test_messages_of_a_resource_are_merged_by_time_each_thread_in_its_order(memory: Any) -> None:
    at = [AT + timedelta(minutes=n) for n in range(6)]
    memory.save_messages(
        [human("a1", created_at=at[0]), human("a2", created_at=at[4]), human("a3", created_at=at[1])],
        thread_id="a",
        resource_id="r",
    )
    memory.save_messages([human("b1", created_at=at[2]), human("b2", created_at=at[4])], thread_id="b", resource_id="r")
    memory.save_messages([human("z1")], thread_id="z", resource_id="other")
    expected = ["a1", "b1", "a2", "a3", "b2"]
    assert ids(memory.recall(resource_id="r", per_page=False)) == expected
    assert ids(memory.recall(thread_id=["b", "a"], per_page=False)) == expected
    assert ids(memory.recall(resource_id="r", per_page=2, page=1, direction="asc")) == ["a2", "a3"]
    found = memory.recall(resource_id="r", per_page=2)
    assert (ids(found), found.total, found.has_more) == (["a3", "b2"], 5, True)
    assert ids(memory.recall(resource_id="r", per_page=2, direction="desc")) == ["b2", "a3"]
    assert memory.recall(resource_id="nobody").items == ()
    with pytest.raises(ThreadNotFoundError):
        memory.recall(thread_id=["a", "z"], resource_id="r")


def test_signals_are_hidden_as_it_is_said(memory: Any) -> None:
    kinds = ["reactive", "system-reminder", "state", "notification"]
    memory.save_messages(
        [human("m"), *(human(kind, metadata={"signal": {"type": kind}}) for kind in kinds)],
        thread_id="t",
        resource_id="r",
    )
    everything = ["m", *kinds]

    def shown(**options: Any) -> list[str]:
        found = memory.recall(thread_id="t", **options)
        assert found.total == 5  # what is hidden keeps its place
        return ids(found)

    assert shown() == ["m", "state", "notification"]
    assert shown(hide_signals=False) == shown(hide_signals=()) == everything
    assert shown(hide_signals=True) == ["m"]
    assert shown(hide_signals=["state"]) == ["m", "reactive", "system-reminder", "notification"]
    assert {row.id: row.kind for row in memory.recall(thread_id="t", hide_signals=False)} == {
        "m": "message",
        "reactive": "reactive",
        "system-reminder": "system-reminder",
        "state": "message",
        "notification": "message",
    }


def test_rows_for_the_archive_only_take_no_place_and_refused_ones_are_never_shown(memory: Any) -> None:
    from langchain_mastra_memory.store.operations.messages import NewMessage, SaveMessages

    fill(memory, 2)
    rows = [
        NewMessage(message=HumanMessage(kind, id=kind), tokens=1, kind=kind)
        for kind in ("signal", "summary", "refused")
    ]
    memory.store.run(SaveMessages(thread_id="t", messages=tuple(rows)))
    fill(memory, 1, first=3)
    found = memory.recall(thread_id="t", per_page=3)
    assert (ids(found), found.total) == (["m1", "m2", "m3"], 3)
    assert ids(memory.recall(thread_id="t", per_page=0, include=[{"id": "m3", "with_previous": 1}])) == ["m2", "m3"]
    assert ids(memory.recall(thread_id="t", hide_signals=False)) == ["m1", "m2", "signal", "summary", "m3"]
    assert ids(memory.clone_thread("t", new_thread_id="c").messages) != []
    assert memory.recall(thread_id="c", hide_signals=False).total == 5


# --- changing ---


def test_content_is_replaced_and_metadata_merged(memory: Any, clock: FrozenClock) -> None:
    memory.save_messages(
        [human("a", metadata={"k": 1, "n": {"x": 1}}), AIMessage("b", id="b", name="bot")],
        thread_id="t",
        resource_id="r",
    )
    clock.advance(hours=1)
    changed = memory.update_messages(
        [
            {"id": "a", "content": "new", "metadata": {"j": 2, "k": None}},
            {"id": "b", "metadata": {"n": 1}},
            {"id": "zzz", "content": "x"},
        ],
        thread_id="t",
        resource_id=None,
    )
    assert [(row.id, row.message.content, row.metadata, row.revision) for row in changed] == [
        ("a", "new", {"n": {"x": 1}, "j": 2}, 2),
        ("b", "b", {"n": 1}, 2),
    ]
    assert (changed[1].message.name, changed[0].created_at, changed[0].seq) == ("bot", AT, 1)
    assert memory.recall(thread_id="t").items == tuple(changed)
    assert memory.get_thread("t").updated_at == clock()


def test_a_message_takes_the_place_of_the_stored_one(memory: Any) -> None:
    fill(memory, 2)
    new = AIMessage("other", id="m1", tool_calls=[{"name": "f", "args": {}, "id": "c"}])
    changed = memory.update_messages([new], thread_id="t")
    assert (changed[0].message, changed[0].role) == (new, "ai")
    assert changed[0].tokens == memory.token_counter.count_message(new) != memory.recall(thread_id="t")[1].tokens
    assert memory.update_messages([], thread_id="t") == []
    assert memory.update_messages([new], thread_id="t") == changed  # nothing to change: no new revision


def test_parallel_changes_of_one_message_all_count(memory: Any) -> None:
    fill(memory, 1)
    start = threading.Barrier(5)

    def work(number: int) -> None:
        start.wait()
        memory.update_messages([{"id": "m1", "metadata": {f"k{number}": number}}], thread_id="t")

    workers = [threading.Thread(target=work, args=(number,)) for number in range(5)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    found = memory.recall(thread_id="t")[0]
    assert (found.metadata, found.revision) == ({f"k{number}": number for number in range(5)}, 6)


@pytest.mark.parametrize(
    "messages",
    [
        "m1",
        {"id": "m1"},
        [{"content": "x"}],
        [{"id": "m1", "role": "ai"}],
        [{"id": "m1", "content": 5}],
        [5],
        [HumanMessage("x")],
    ],
    ids=spelled,
)
def test_an_update_that_makes_no_sense_is_refused(quick: Any, messages: Any) -> None:
    fill(quick, 1)
    with pytest.raises((InvalidQueryError, InvalidIdError)):
        quick.update_messages(messages, thread_id="t")
    assert quick.recall(thread_id="t")[0].revision == 1


# --- removing ---


def test_removed_messages_are_gone_and_counted_once(memory: Any) -> None:
    fill(memory, 5)
    rows = memory.recall(thread_id="t")
    assert memory.delete_messages(["m1", "m1", {"id": "m2"}, rows[2], rows[3].message, "never"], thread_id="t") == 4
    assert ids(memory.recall(thread_id="t")) == ["m5"]
    assert memory.delete_messages(["m1"], thread_id="t") == 0
    assert memory.delete_messages([], thread_id="t") == 0
    assert ids(memory.recall(thread_id="t", per_page=0, include=[{"id": "m5", "with_previous": 9}])) == ["m5"]
    assert [row.seq for row in memory.save_messages([human("m6")], thread_id="t")] == [6]


def test_ids_of_another_thread_are_refused_and_nothing_is_removed(memory: Any) -> None:
    fill(memory, 2, "t", "r1")
    memory.save_messages([human("other")], thread_id="u", resource_id="r1")
    memory.save_messages([human("foreign")], thread_id="z", resource_id="r2")
    for stranger in ("other", "foreign"):
        for scope in ({}, {"resource_id": "r1"}):
            with pytest.raises(MessageNotFoundError):
                memory.delete_messages(["m1", stranger], thread_id="t", **scope)
            with pytest.raises(MessageNotFoundError):
                memory.update_messages([{"id": stranger, "content": "x"}], thread_id="t", **scope)
    assert [memory.recall(thread_id=thread_id).total for thread_id in ("t", "u", "z")] == [2, 1, 1]


def test_where_a_resource_is_named_a_foreign_id_looks_like_an_unknown_one(memory: Any) -> None:
    fill(memory, 1, "t", "r1")
    memory.save_messages([human("foreign")], thread_id="z", resource_id="r2")
    errors = []
    for message_id in ("foreign", "unknown"):
        with pytest.raises(MessageNotFoundError) as caught:
            memory.delete_messages([message_id], thread_id="t", resource_id="r1")
        errors.append(str(caught.value).replace(message_id, "..."))
    assert errors[0] == errors[1]
    memory.delete_messages(["m1"], thread_id="t", resource_id="r1")
    assert memory.delete_messages(["m1"], thread_id="t", resource_id="r1") == 0  # it was this thread's


@pytest.mark.parametrize(
    "message_ids", ["m1", b"m1", None, {"id": "m1"}, 5, [None], [""], [{"foo": 1}], [HumanMessage("x")]], ids=spelled
)
def test_what_is_no_list_of_ids_removes_nothing(quick: Any, message_ids: Any) -> None:
    fill(quick, 1)
    with pytest.raises((InvalidQueryError, InvalidIdError)):
        quick.delete_messages(message_ids, thread_id="t")
    assert quick.recall(thread_id="t").total == 1


def test_a_cleared_thread_is_empty_and_stays(memory: Any) -> None:
    memory.create_thread("r", thread_id="t", title="T", metadata={"a": 1})
    fill(memory, 3)
    assert memory.clear_thread("t", resource_id="r") == 3
    assert memory.clear_thread("t") == 0
    assert memory.recall(thread_id="t").total == 0
    assert (memory.get_thread("t").title, memory.get_thread("t").metadata) == ("T", {"a": 1})
    saved = memory.save_messages([human("m1", "again"), human("m9")], thread_id="t")
    assert saved[0].seq > 3
    assert ids(memory.recall(thread_id="t")) == ["m1", "m9"]


# --- branches ---


def test_a_save_after_an_older_turn_opens_a_branch_that_does_not_know_the_later_ones(
    memory: Any, stand: Callable[..., None]
) -> None:
    fill(memory, 4)
    stand("t", 0, 2)
    assert ids(memory.recall(thread_id="t")) == ["m1", "m2"]
    memory.save_messages([human("f1"), human("f2")], thread_id="t")
    found = memory.recall(thread_id="t")
    assert [(row.id, row.seq, row.branch) for row in found] == [("m1", 1, 0), ("m2", 2, 0), ("f1", 5, 1), ("f2", 6, 1)]
    branches = memory.list_branches("t")
    assert [(b.branch, b.parent, b.cut, b.head, b.current) for b in branches] == [
        (0, None, None, 4, False),
        (1, 0, 2, 6, True),
    ]
    stand("t", 0, 4)
    assert ids(memory.recall(thread_id="t")) == ["m1", "m2", "m3", "m4"]
    memory.save_messages([human("m5")], thread_id="t")
    assert [(row.id, row.branch) for row in memory.recall(thread_id="t")][-1] == ("m5", 0)
    assert len(memory.list_branches("t")) == 2


def test_an_edit_is_for_its_own_line_only(memory: Any, stand: Callable[..., None]) -> None:
    fill(memory, 4)
    stand("t", 0, 2)
    memory.save_messages([human("f1")], thread_id="t")
    memory.update_messages([{"id": "m1", "content": "on the fork"}], thread_id="t")

    def texts() -> list[str]:
        return [row.message.content for row in memory.recall(thread_id="t")]

    assert texts() == ["on the fork", "m2", "f1"]
    stand("t", 0, 4)
    assert texts() == ["m1", "m2", "m3", "m4"]
    memory.save_messages([human("m2", "on the first line")], thread_id="t")
    assert texts() == ["m1", "on the first line", "m3", "m4"]
    stand("t", 1, 5)
    assert texts() == ["on the fork", "m2", "f1"]
    memory.save_messages([human("m1", "on the fork again")], thread_id="t")
    assert texts() == ["on the fork again", "m2", "f1"]


def test_forks_of_forks_see_what_was_there_when_they_left(memory: Any, stand: Callable[..., None]) -> None:
    fill(memory, 3)
    stand("t", 0, 2)
    memory.save_messages([human("a1"), human("a2")], thread_id="t")  # branch 1, seqs 4 and 5
    stand("t", 1, 4)
    memory.save_messages([human("b1")], thread_id="t")  # branch 2, seq 6
    assert ids(memory.recall(thread_id="t")) == ["m1", "m2", "a1", "b1"]
    memory.update_messages([{"id": "m1", "content": "two"}, {"id": "a1", "content": "two"}], thread_id="t")
    views = {(2, 6): ["two", "m2", "two", "b1"], (1, 5): ["m1", "m2", "a1", "a2"], (0, 3): ["m1", "m2", "m3"]}
    for (branch, head), expected in views.items():
        stand("t", branch, head)
        assert [row.message.content for row in memory.recall(thread_id="t")] == expected
    memory.update_messages([{"id": "m2", "content": "zero"}], thread_id="t")  # on the first line; 1 and 2 keep theirs
    for (branch, head), expected in views.items():
        stand("t", branch, head)
        wanted = ["zero" if branch == 0 and text == "m2" else text for text in expected]
        assert [row.message.content for row in memory.recall(thread_id="t")] == wanted
    assert memory.recall(thread_id="t", per_page=False).total == 3


def test_removing_takes_a_message_from_every_branch(memory: Any, stand: Callable[..., None]) -> None:
    fill(memory, 3)
    stand("t", 0, 2)
    memory.save_messages([human("f1"), human("m1", "fork")], thread_id="t")
    assert memory.delete_messages(["m1", "m3"], thread_id="t") == 2
    assert ids(memory.recall(thread_id="t")) == ["m2", "f1"]
    stand("t", 0, 3)
    assert ids(memory.recall(thread_id="t")) == ["m2"]


async def test_every_method_has_an_async_twin_that_does_the_same(memory: Any) -> None:
    saved = await memory.asave_messages([("user", str(n)) for n in range(150)], thread_id="t", resource_id="r")
    assert (await memory.arecall(thread_id="t", per_page=False)).items == tuple(saved)
    changed = await memory.aupdate_messages([{"id": saved[0].id, "content": "new"}], thread_id="t")
    assert changed[0].message.content == "new"
    assert await memory.adelete_messages([saved[0].id], thread_id="t") == 1
    assert await memory.aclear_thread("t") == 149
    with pytest.raises(ThreadNotFoundError):
        await memory.asave_messages([("user", "x")], thread_id="t", resource_id="other")


def test_saving_to_a_missing_thread_without_an_owner_says_what_to_add(memory_factory):
    with pytest.raises(ThreadNotFoundError, match="resource_id"):
        memory_factory("memory://").save_messages([("user", "Hello")], thread_id="new")
