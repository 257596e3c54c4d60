"""Conformance: saving, listing, changing and removing messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.messages.tool import invalid_tool_call, tool_call

from langchain_mastra_memory.errors import MessageNotFoundError, ThreadNotFoundError
from langchain_mastra_memory.store.base import Operation
from langchain_mastra_memory.store.operations.messages import (
    ClearThread,
    DeleteMessages,
    EditMessages,
    FindMessages,
    Hidden,
    Include,
    ListMessages,
    MessageEdit,
    NewMessage,
    SaveMessages,
)
from langchain_mastra_memory.store.operations.threads import CreateThread, Direction, GetThread
from langchain_mastra_memory.testing.conformance.registry import case, probe
from langchain_mastra_memory.testing.conformance.session import Session
from langchain_mastra_memory.testing.conformance.threads import make, say, texts_of
from langchain_mastra_memory.types import Page, StoredMessage

EVERY_MESSAGE: tuple[BaseMessage, ...] = (
    HumanMessage("plain"),
    HumanMessage(
        [{"type": "text", "text": "see"}, {"type": "image", "base64": "aGk=", "mime_type": "image/png"}], name="Ann"
    ),
    AIMessage(
        [{"type": "reasoning", "reasoning": "hm", "extras": {"signature": "s"}}, {"type": "text", "text": "hi"}],
        tool_calls=[tool_call(name="look", args={"q": "日本", "n": 1.5, "deep": {"a": [None, True]}}, id="c1")],
        invalid_tool_calls=[invalid_tool_call(name="bad", args="{", id="c2", error="not JSON")],
        usage_metadata={"input_tokens": 3, "output_tokens": 2, "total_tokens": 5},
        response_metadata={"model_name": "m", "logprobs": [0.5]},
        additional_kwargs={"refusal": None, "lc": 1, "type": "constructor"},
    ),
    ToolMessage("done", tool_call_id="c1", artifact={"rows": [1, 2]}, status="error", name="look"),
    SystemMessage("be kind"),
    ChatMessage(content="odd", role="critic"),
    FunctionMessage(content="f", name="fn"),
    AIMessage(""),
    HumanMessage("NUL \0 surrogate \ud800 escape \uffff emoji 👩‍👩‍👧 \\u0000"),
)


@probe("messages")
async def listing_the_messages_of_an_unknown_thread(s: Session) -> None:
    """Gives an empty page."""
    page = await s.run(ListMessages(thread_ids=(s.new("nothing"),)))
    assert (page.items, page.total) == ((), 0)


def new(
    message: BaseMessage,
    *,
    kind: str | None = None,
    metadata: Mapping[str, object] | None = None,
    created_at: int | None = None,
) -> NewMessage:
    """Return a message on its way into the archive, 7 tokens long."""
    return NewMessage(message=message, tokens=7, kind=kind, metadata=metadata or {}, created_at=created_at)


async def listed(s: Session, thread_id: str) -> Page[StoredMessage]:
    """Return everything in view."""
    return await s.run(ListMessages(thread_ids=(thread_id,), per_page=False))


@case("messages", needs=("threads",))
async def every_kind_of_message_comes_back_equal(s: Session) -> None:
    [thread] = await make(s)
    messages = [m.model_copy(update={"id": s.new("message")}, deep=True) for m in EVERY_MESSAGE]
    saved = await s.run(SaveMessages(thread_id=thread.id, messages=tuple(map(new, messages))))
    found = await listed(s, thread.id)
    for given, one, other in zip(messages, saved, found, strict=True):
        for stored in (one, other):
            assert stored.message == given
            assert type(stored.message) is type(given)
            assert stored.message.model_dump() == given.model_dump()
            assert (stored.id, stored.thread_id, stored.tokens, stored.role) == (given.id, thread.id, 7, given.type)


@case("messages", needs=("threads",))
async def messages_get_growing_seqs_in_the_order_of_the_list(s: Session) -> None:
    [thread] = await make(s)
    first = await s.run(
        SaveMessages(thread_id=thread.id, messages=tuple(new(HumanMessage(str(i), id=s.new())) for i in range(3)))
    )
    second = await s.run(SaveMessages(thread_id=thread.id, messages=(new(HumanMessage("3", id=s.new())),)))
    seqs = [stored.seq for stored in (*first, *second)]
    assert seqs == sorted(set(seqs))
    assert await texts_of(s, thread.id) == ["0", "1", "2", "3"]


@case("messages", needs=("threads",))
async def order_follows_the_saves_whatever_the_dates_say(s: Session) -> None:
    [thread] = await make(s)
    for text, created_at in (("later", 2_000_000), ("earlier", 1_000_000), ("same", 1_000_000)):
        await s.run(
            SaveMessages(thread_id=thread.id, messages=(new(HumanMessage(text, id=s.new()), created_at=created_at),))
        )
    page = await listed(s, thread.id)
    assert [stored.message.text for stored in page] == ["later", "earlier", "same"]
    assert [int(stored.created_at.timestamp()) for stored in page] == [2, 1, 1]


@case("messages", needs=("threads",))
async def an_id_saved_again_is_changed_in_its_place(s: Session) -> None:
    [thread] = await make(s)
    a, b = await say(s, thread, ["a", "b"])
    [changed] = await s.run(SaveMessages(thread_id=thread.id, messages=(new(HumanMessage("A", id=a)),)))
    page = await listed(s, thread.id)
    assert [(stored.id, stored.message.text) for stored in page] == [(a, "A"), (b, "b")]
    assert changed == page[0]
    assert changed.revision == 2


@case("messages", needs=("threads",))
async def saving_the_same_messages_again_changes_nothing(s: Session) -> None:
    [thread] = await make(s)
    batch = tuple(new(HumanMessage(text, id=s.new())) for text in ("a", "b"))
    first = await s.run(SaveMessages(thread_id=thread.id, messages=batch))
    await s.run(SaveMessages(thread_id=thread.id, messages=batch))
    assert [(m.id, m.seq, m.message) for m in await listed(s, thread.id)] == [(m.id, m.seq, m.message) for m in first]


@case("messages", needs=("threads",))
async def of_an_id_given_twice_in_one_save_the_last_counts_in_the_place_of_the_first(s: Session) -> None:
    [thread] = await make(s)
    twice, once = s.new(), s.new()
    saved = await s.run(
        SaveMessages(
            thread_id=thread.id,
            messages=(
                new(HumanMessage("first", id=twice)),
                new(HumanMessage("between", id=once)),
                new(HumanMessage("last", id=twice)),
            ),
        )
    )
    assert [stored.message.text for stored in saved] == ["last", "between"]
    assert await texts_of(s, thread.id) == ["last", "between"]


@case("messages", needs=("threads",))
async def a_save_that_names_an_owner_makes_the_thread(s: Session) -> None:
    thread_id, owner = s.new("thread"), s.new("resource")
    messages = (new(HumanMessage("a", id=s.new())),)
    await s.run(SaveMessages(thread_id=thread_id, resource_id=owner, messages=messages))
    thread = await s.run(GetThread(thread_id=thread_id))
    assert thread is not None
    assert thread.resource_id == owner
    nothing = s.new("thread")
    await s.refused(ThreadNotFoundError, SaveMessages(thread_id=nothing, messages=messages))
    assert await s.run(GetThread(thread_id=nothing)) is None


@case("messages", needs=("threads",))
async def every_operation_that_names_a_wrong_owner_is_refused(s: Session) -> None:
    [thread] = await make(s)
    [a] = await say(s, thread, ["a"])
    [stored] = await listed(s, thread.id)
    thief = s.new("thief")
    edit = MessageEdit(message=HumanMessage("x", id=a), tokens=1, metadata={}, seq=stored.seq, revision=stored.revision)
    operations: tuple[Operation[Any], ...] = (
        SaveMessages(thread_id=thread.id, resource_id=thief, messages=(new(HumanMessage("b", id=s.new())),)),
        ListMessages(thread_ids=(thread.id,), resource_id=thief),
        FindMessages(thread_id=thread.id, resource_id=thief, message_ids=(a,)),
        EditMessages(thread_id=thread.id, resource_id=thief, edits=(edit,)),
        DeleteMessages(thread_id=thread.id, resource_id=thief, message_ids=(a,)),
        ClearThread(thread_id=thread.id, resource_id=thief),
    )
    for operation in operations:
        await s.refused(ThreadNotFoundError, operation)
    assert await listed(s, thread.id) == await s.run(
        ListMessages(thread_ids=(thread.id,), resource_id=thread.resource_id, per_page=False)
    )
    assert await texts_of(s, thread.id) == ["a"]


@case("messages", needs=("threads",))
async def a_save_is_all_or_nothing(s: Session) -> None:
    [thread] = await make(s)
    messages = (new(HumanMessage("good", id=s.new())), new(HumanMessage("bad", id=s.new()), metadata={"x": {1, 2}}))
    try:
        await s.run(SaveMessages(thread_id=thread.id, messages=messages))
    except Exception:  # noqa: BLE001 - any error will do: metadata that is no JSON never reaches a store by our facade
        assert await texts_of(s, thread.id) == []
    else:
        raise AssertionError("metadata that is not JSON was saved")
    await say(s, thread, ["next"])
    assert await texts_of(s, thread.id) == ["next"]


@case("messages", needs=("threads",))
async def pages_from_either_end_know_their_total_and_whether_more_follow(s: Session) -> None:
    [thread] = await make(s)
    await say(s, thread, list("abcde"))

    async def page(number: int, direction: Direction | None, per_page: int = 2) -> tuple[str, int, bool]:
        found = await s.run(ListMessages(thread_ids=(thread.id,), page=number, per_page=per_page, direction=direction))
        return "".join(stored.message.text for stored in found), found.total, found.has_more

    assert [await page(n, "asc") for n in range(4)] == [
        ("ab", 5, True),
        ("cd", 5, True),
        ("e", 5, False),
        ("", 5, False),
    ]
    assert [await page(n, "desc") for n in range(3)] == [("ed", 5, True), ("cb", 5, True), ("a", 5, False)]
    assert [await page(n, None) for n in range(3)] == [("de", 5, True), ("bc", 5, True), ("a", 5, False)]
    assert await page(0, "asc", 5) == ("abcde", 5, False)
    assert await page(10**30, "asc", 10**30) == ("", 5, False)


@case("messages", needs=("threads",))
async def date_ranges_include_their_ends(s: Session) -> None:
    [thread] = await make(s)
    for second in (1, 2, 3):
        message = new(HumanMessage(str(second), id=s.new()), created_at=second * 1_000_000)
        await s.run(SaveMessages(thread_id=thread.id, messages=(message,)))
    for start, end, expected in ((2, None, "23"), (None, 2, "12"), (2, 2, "2"), (3, 1, ""), (None, None, "123")):
        found = await s.run(
            ListMessages(
                thread_ids=(thread.id,),
                per_page=False,
                start=None if start is None else start * 1_000_000,
                end=None if end is None else end * 1_000_000,
            )
        )
        assert ("".join(stored.message.text for stored in found), found.total) == (expected, len(expected))


@case("messages", needs=("threads",))
async def metadata_filters_messages_strictly(s: Session) -> None:
    [thread] = await make(s)
    for value in (1, "1", True, None):
        message = new(HumanMessage(repr(value), id=s.new()), metadata={"v": value})
        await s.run(SaveMessages(thread_id=thread.id, messages=(message,)))
    await say(s, thread, ["without"])
    for value in (1, "1", True, None):
        found = await s.run(ListMessages(thread_ids=(thread.id,), per_page=False, metadata={"v": value}))
        assert [stored.message.text for stored in found] == [repr(value)]
        assert found.total == 1
        assert found[0].metadata == {"v": value}


@case("messages", needs=("threads",))
async def included_messages_bring_their_neighbours_without_duplicates(s: Session) -> None:
    [thread] = await make(s)
    ids = await say(s, thread, list("abcdefg"))
    include = (Include(id=ids[2], with_previous=1, with_next=1), Include(id=ids[3], with_previous=1, with_next=1))
    found = await s.run(ListMessages(thread_ids=(thread.id,), per_page=0, include=include))
    assert [stored.message.text for stored in found] == ["b", "c", "d", "e"]
    edge = await s.run(
        ListMessages(thread_ids=(thread.id,), per_page=0, include=(Include(id=ids[0], with_previous=5, with_next=1),))
    )
    assert [stored.message.text for stored in edge] == ["a", "b"]


@case("messages", needs=("threads",))
async def included_messages_are_this_owners_only(s: Session) -> None:
    mine, others = (await make(s))[0], (await make(s))[0]
    await say(s, mine, ["mine"])
    [foreign] = await say(s, others, ["foreign"])
    for include in (Include(id=foreign, with_next=3), Include(id=foreign, thread_id=others.id, with_previous=3)):
        found = await s.run(
            ListMessages(thread_ids=(mine.id,), resource_id=mine.resource_id, per_page=False, include=(include,))
        )
        assert [stored.message.text for stored in found] == ["mine"]


@case("messages", needs=("threads",))
async def the_messages_of_a_resource_are_those_of_all_its_threads_and_no_other(s: Session) -> None:
    owner = s.new("resource")
    one, two = await make(s, 2, owner=owner)
    [foreign] = await make(s, owner=f"{owner}0")
    await say(s, one, ["a1", "a2"])
    await say(s, two, ["b1"])
    await say(s, foreign, ["x"])
    found = await s.run(ListMessages(resource_id=owner, per_page=False))
    assert sorted(stored.message.text for stored in found) == ["a1", "a2", "b1"]
    assert {stored.resource_id for stored in found} == {owner}
    assert [stored.message.text for stored in found if stored.thread_id == one.id] == ["a1", "a2"]
    assert found.total == 3


@case("messages", needs=("threads",))
async def what_is_kept_for_the_archive_only_is_hidden_unless_asked_for(s: Session) -> None:
    [thread] = await make(s)
    kinds = (None, "signal", "summary", "refused")
    await s.run(
        SaveMessages(
            thread_id=thread.id,
            messages=tuple(new(HumanMessage(str(kind), id=s.new()), kind=kind) for kind in kinds),
        )
    )
    assert await texts_of(s, thread.id) == ["None"]
    shown = await s.run(ListMessages(thread_ids=(thread.id,), per_page=False, hidden=Hidden(archive=False)))
    assert [stored.message.text for stored in shown] == ["None", "signal", "summary"]
    assert [stored.kind for stored in shown] == ["message", "signal", "summary"]


@case("messages", needs=("threads",))
async def messages_are_found_by_id_in_the_order_of_the_ids(s: Session) -> None:
    thread, other = await make(s, 2)
    ids = await say(s, thread, list("abc"))
    [elsewhere] = await say(s, other, ["x"])
    found = await s.run(FindMessages(thread_id=thread.id, message_ids=(ids[2], s.new("nothing"), ids[0])))
    assert [stored.message.text for stored in found] == ["c", "a"]
    await s.refused(MessageNotFoundError, FindMessages(thread_id=thread.id, message_ids=(ids[0], elsewhere)))
    assert await s.run(FindMessages(thread_id=thread.id, message_ids=())) == []


@case("messages", needs=("threads",))
async def an_edit_of_what_was_read_is_kept_and_one_of_an_older_reading_is_not(s: Session) -> None:
    [thread] = await make(s)
    [a, _b] = await say(s, thread, ["a", "b"])
    read = (await listed(s, thread.id))[0]
    edit = MessageEdit(
        message=HumanMessage("edited", id=a), tokens=9, metadata={"e": 1}, seq=read.seq, revision=read.revision
    )
    edited = await s.run(EditMessages(thread_id=thread.id, edits=(edit,)))
    assert edited is not None
    found = await listed(s, thread.id)
    assert found[0] == edited[0]
    assert (found[0].message.text, found[0].tokens, found[0].metadata, found[0].seq) == (
        "edited",
        9,
        {"e": 1},
        read.seq,
    )
    late = replace(edit, message=HumanMessage("late", id=a))
    assert await s.run(EditMessages(thread_id=thread.id, edits=(late,))) is None
    assert await texts_of(s, thread.id) == ["edited", "b"]


@case("messages", needs=("threads",))
async def of_many_edits_of_one_reading_exactly_one_wins(s: Session) -> None:
    [thread] = await make(s)
    [a] = await say(s, thread, ["a"])
    read = (await listed(s, thread.id))[0]
    edits = [
        EditMessages(
            thread_id=thread.id,
            edits=(
                MessageEdit(
                    message=HumanMessage(str(i), id=a), tokens=1, metadata={}, seq=read.seq, revision=read.revision
                ),
            ),
        )
        for i in range(8)
    ]
    outcomes = await s.together(*edits)
    winners = [outcome for outcome in outcomes if outcome is not None]
    assert len(winners) == 1, outcomes
    assert not isinstance(winners[0], BaseException)
    assert await texts_of(s, thread.id) == [winners[0][0].message.text]


@case("messages", needs=("threads",))
async def deleted_messages_are_gone_and_the_rest_keeps_its_places(s: Session) -> None:
    [thread] = await make(s)
    ids = await say(s, thread, list("abcd"))
    before = {stored.id: stored.seq for stored in await listed(s, thread.id)}
    assert await s.run(DeleteMessages(thread_id=thread.id, message_ids=(ids[1], ids[2]))) == 2
    assert await s.run(DeleteMessages(thread_id=thread.id, message_ids=(ids[1],))) == 0
    assert await s.run(DeleteMessages(thread_id=thread.id, message_ids=())) == 0
    found = await listed(s, thread.id)
    assert [(stored.id, stored.seq) for stored in found] == [(i, before[i]) for i in (ids[0], ids[3])]
    await say(s, thread, ["e"])
    assert (await listed(s, thread.id))[-1].seq > before[ids[3]]


@case("messages", needs=("threads",))
async def messages_of_another_thread_are_never_deleted(s: Session) -> None:
    mine, others = (await make(s))[0], (await make(s))[0]
    [own] = await say(s, mine, ["own"])
    [foreign] = await say(s, others, ["foreign"])
    await s.refused(MessageNotFoundError, DeleteMessages(thread_id=mine.id, message_ids=(own, foreign)))
    assert await texts_of(s, mine.id) == ["own"]
    assert await texts_of(s, others.id) == ["foreign"]


@case("messages", needs=("threads",))
async def a_cleared_thread_stays_and_begins_anew(s: Session) -> None:
    thread = await s.run(
        CreateThread(thread_id=s.new("thread"), resource_id=s.new("resource"), title="t", metadata={"k": 1})
    )
    await say(s, thread, ["a", "b"])
    assert await s.run(ClearThread(thread_id=thread.id)) == 2
    assert await s.run(ClearThread(thread_id=thread.id)) == 0
    assert await texts_of(s, thread.id) == []
    kept = await s.run(GetThread(thread_id=thread.id))
    assert kept is not None
    assert (kept.title, kept.metadata, kept.created_at) == ("t", {"k": 1}, thread.created_at)
    await say(s, thread, ["c"])
    assert await texts_of(s, thread.id) == ["c"]


@case("messages", needs=("threads",))
async def parallel_saves_lose_and_repeat_nothing_and_share_no_seq(s: Session) -> None:
    [thread] = await make(s)
    saves = [
        SaveMessages(
            thread_id=thread.id,
            messages=tuple(new(HumanMessage(f"{i}.{j}", id=s.new())) for j in range(3)),
        )
        for i in range(12)
    ]
    outcomes = await s.together(*saves)
    assert [o for o in outcomes if isinstance(o, BaseException)] == []
    page = await listed(s, thread.id)
    assert sorted(stored.message.text for stored in page) == sorted(f"{i}.{j}" for i in range(12) for j in range(3))
    assert len({stored.seq for stored in page}) == 36
    texts = [str(stored.message.text) for stored in page]
    for i in range(12):
        start = texts.index(f"{i}.0")
        assert texts[start : start + 3] == [f"{i}.{j}" for j in range(3)]


@case("messages", needs=("threads",))
async def parallel_saves_of_one_new_thread_make_it_once(s: Session) -> None:
    thread_id, owner = s.new("thread"), s.new("resource")
    saves = [
        SaveMessages(thread_id=thread_id, resource_id=owner, messages=(new(HumanMessage(str(i), id=s.new())),))
        for i in range(8)
    ]
    outcomes = await s.together(*saves)
    assert [o for o in outcomes if isinstance(o, BaseException)] == []
    assert sorted(await texts_of(s, thread_id)) == sorted(map(str, range(8)))


@case("messages", needs=("threads",))
async def a_save_of_thousands_and_a_list_of_thousands_of_ids_work(s: Session) -> None:
    [thread] = await make(s)
    ids = [s.new() for _ in range(3000)]
    await s.run(
        SaveMessages(
            thread_id=thread.id,
            messages=tuple(new(HumanMessage(str(i), id=message_id)) for i, message_id in enumerate(ids)),
        )
    )
    page = await listed(s, thread.id)
    assert [stored.id for stored in page] == ids
    found = await s.run(FindMessages(thread_id=thread.id, message_ids=tuple(reversed(ids))))
    assert [stored.id for stored in found] == ids[::-1]
    assert await s.run(DeleteMessages(thread_id=thread.id, message_ids=tuple(ids[1:]))) == 2999
    assert await texts_of(s, thread.id) == ["0"]


@case("messages", needs=("threads",))
async def a_message_of_five_megabytes_comes_back_whole(s: Session) -> None:
    [thread] = await make(s)
    text = "0123456789 日本語 \0" * 300_000
    await say(s, thread, [text])
    assert await texts_of(s, thread.id) == [text]
