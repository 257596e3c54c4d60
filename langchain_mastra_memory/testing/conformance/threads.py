"""Conformance: making, finding, changing, removing and copying threads."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from langchain_core.messages import AIMessage, HumanMessage

from langchain_mastra_memory.errors import InvalidIdError, ThreadNotFoundError, ThreadOwnershipError
from langchain_mastra_memory.store.operations.messages import ListMessages, NewMessage, SaveMessages
from langchain_mastra_memory.store.operations.threads import (
    CopyThread,
    CreateThread,
    DeleteThread,
    GetCloneHistory,
    GetThread,
    ListBranches,
    ListClones,
    ListThreads,
    SuggestTitle,
    TransferThread,
    UpdateThread,
)
from langchain_mastra_memory.testing.conformance.registry import case, probe
from langchain_mastra_memory.testing.conformance.session import Session
from langchain_mastra_memory.types import Thread

ODD_IDS = (
    "a%b_c",
    "A%B_C",
    "user1",
    "user10",
    "user 1",
    "r/1",
    "r:1",
    "'; DROP TABLE x --",
    "日本語",
    "\ud800x",
    "é",
    "é",
)


@probe("threads")
async def listing_the_threads_of_an_unknown_resource(s: Session) -> None:
    """Gives an empty page."""
    page = await s.run(ListThreads(resource_id=s.new("nobody")))
    assert (page.items, page.total, page.has_more) == ((), 0, False)


async def make(s: Session, count: int = 1, *, owner: str | None = None) -> list[Thread]:
    """Make threads of one owner."""
    owner = owner or s.new("resource")
    return [await s.run(CreateThread(thread_id=s.new("thread"), resource_id=owner)) for _ in range(count)]


async def say(s: Session, thread: Thread, texts: Sequence[str]) -> list[str]:
    """Save human messages in a thread and return their ids."""
    ids = [s.new("message") for _ in texts]
    messages = [HumanMessage(text, id=message_id) for message_id, text in zip(ids, texts, strict=True)]
    await s.run(SaveMessages(thread_id=thread.id, messages=tuple(NewMessage(message=m, tokens=3) for m in messages)))
    return ids


async def texts_of(s: Session, thread_id: str) -> list[str]:
    """Return the texts of a thread, oldest first."""
    page = await s.run(ListMessages(thread_ids=(thread_id,), per_page=False))
    return [stored.message.text for stored in page]


@case("threads")
async def a_created_thread_is_found_as_it_was_made(s: Session) -> None:
    thread_id, owner = s.new("thread"), s.new("resource")
    metadata = {"team": "x", "n": 1, "deep": {"list": [1, 2.5, None, True]}, "quote\"'": "日本\0\ud800"}
    made = await s.run(CreateThread(thread_id=thread_id, resource_id=owner, title="A title\0", metadata=metadata))
    assert (made.id, made.resource_id, made.title, made.metadata) == (thread_id, owner, "A title\0", metadata)
    assert made.created_at.utcoffset() is not None
    assert not made.created_at.utcoffset()
    assert await s.run(GetThread(thread_id=thread_id)) == made
    assert await s.run(GetThread(thread_id=thread_id, resource_id=owner)) == made


@case("threads")
async def creating_a_thread_again_returns_it_unchanged(s: Session) -> None:
    thread_id, owner = s.new("thread"), s.new("resource")
    first = await s.run(CreateThread(thread_id=thread_id, resource_id=owner, title="one", metadata={"a": 1}))
    again = await s.run(CreateThread(thread_id=thread_id, resource_id=owner, title="two", metadata={"b": 2}))
    assert again == first


@case("threads")
async def creating_a_thread_of_another_owner_is_refused_and_changes_nothing(s: Session) -> None:
    [thread] = await make(s)
    error = await s.refused(ThreadOwnershipError, CreateThread(thread_id=thread.id, resource_id=s.new("thief")))
    assert str(thread.resource_id) not in str(error)
    assert await s.run(GetThread(thread_id=thread.id)) == thread


@case("threads")
async def a_foreign_thread_looks_like_a_missing_one(s: Session) -> None:
    [thread] = await make(s)
    thief, nothing = s.new("thief"), s.new("thread")
    assert await s.run(GetThread(thread_id=thread.id, resource_id=thief)) is None
    assert await s.run(GetThread(thread_id=nothing, resource_id=thief)) is None
    foreign = await s.refused(
        ThreadNotFoundError, UpdateThread(thread_id=thread.id, resource_id=thief, metadata={"a": 1})
    )
    missing = await s.refused(
        ThreadNotFoundError, UpdateThread(thread_id=nothing, resource_id=thief, metadata={"a": 1})
    )
    assert str(foreign).replace(thread.id, "") == str(missing).replace(nothing, "")
    assert type(foreign) is type(missing)


@case("threads")
async def every_operation_that_names_a_wrong_owner_is_refused_and_changes_nothing(s: Session) -> None:
    [thread] = await make(s)
    thief = s.new("thief")
    for operation in (
        UpdateThread(thread_id=thread.id, resource_id=thief, set_title=True, title="mine"),
        SuggestTitle(thread_id=thread.id, resource_id=thief, title="mine"),
        DeleteThread(thread_id=thread.id, resource_id=thief),
        TransferThread(thread_id=thread.id, new_resource_id=thief, resource_id=thief),
        CopyThread(source_thread_id=thread.id, source_resource_id=thief, new_thread_id=s.new("thread")),
        GetCloneHistory(thread_id=thread.id, resource_id=thief),
        ListBranches(thread_id=thread.id, resource_id=thief),
    ):
        await s.refused(ThreadNotFoundError, operation)
    assert await s.run(GetThread(thread_id=thread.id)) == thread
    assert (await s.run(ListThreads(resource_id=thief))).total == 0


@case("threads")
async def ids_are_compared_exactly_and_never_as_patterns(s: Session) -> None:
    prefix = s.new("odd")
    for name in ODD_IDS:
        await s.run(CreateThread(thread_id=f"{prefix}-t-{name}", resource_id=f"{prefix}-r-{name}"))
    for name in ODD_IDS:
        page = await s.run(ListThreads(resource_id=f"{prefix}-r-{name}"))
        assert [thread.id for thread in page] == [f"{prefix}-t-{name}"]
        assert await s.run(GetThread(thread_id=f"{prefix}-t-{name}", resource_id=f"{prefix}-r-{name}")) is not None
    assert (await s.run(ListThreads(resource_id=f"{prefix}-r-"))).total == 0
    assert (await s.run(ListThreads(resource_id=f"{prefix}-r-%"))).total == 0


@case("threads")
async def an_id_of_512_characters_works(s: Session) -> None:
    thread_id = s.new("long").ljust(512, "長")
    made = await s.run(CreateThread(thread_id=thread_id, resource_id=thread_id))
    assert await s.run(GetThread(thread_id=thread_id, resource_id=thread_id)) == made


@case("threads")
async def pages_count_from_zero_and_know_their_total_and_whether_more_follow(s: Session) -> None:
    threads = await make(s, 5)
    owner = threads[0].resource_id
    everything = [t.id for t in await s.run(ListThreads(resource_id=owner, per_page=False))]
    assert sorted(everything) == sorted(t.id for t in threads)
    seen: list[str] = []
    for number, (size, more) in enumerate([(2, True), (2, True), (1, False), (0, False)]):
        page = await s.run(ListThreads(resource_id=owner, page=number, per_page=2))
        assert (len(page), page.has_more, page.total, page.page, page.per_page) == (size, more, 5, number, 2)
        seen += [thread.id for thread in page]
    assert seen == everything
    whole = await s.run(ListThreads(resource_id=owner, per_page=5))
    assert (len(whole), whole.has_more) == (5, False)
    far = await s.run(ListThreads(resource_id=owner, page=10**30, per_page=10**30))
    assert (len(far), far.total, far.has_more) == (0, 5, False)


@case("threads")
async def the_order_is_total_in_both_directions(s: Session) -> None:
    threads = await make(s, 4)
    owner = threads[0].resource_id
    for order_by in ("created_at", "updated_at"):
        down = [t.id for t in await s.run(ListThreads(resource_id=owner, order_by=order_by, direction="desc"))]
        up = [t.id for t in await s.run(ListThreads(resource_id=owner, order_by=order_by, direction="asc"))]
        assert up == down[::-1]
        by_time = sorted(threads, key=lambda t: (t.created_at, t.id))
        assert up == [t.id for t in by_time]


@case("threads")
async def a_change_moves_updated_at_but_never_back_and_never_created_at(s: Session) -> None:
    first, second = await make(s, 2)
    changed = await s.run(UpdateThread(thread_id=first.id, metadata={"k": 1}))
    assert changed.created_at == first.created_at
    assert changed.updated_at >= first.updated_at
    newest = await s.run(ListThreads(resource_id=first.resource_id, order_by="updated_at", direction="desc"))
    assert newest[0].updated_at >= newest[1].updated_at
    assert {t.id for t in newest} == {first.id, second.id}


@case("threads")
async def a_metadata_filter_is_strict_about_types_and_nulls_and_joins_with_and(s: Session) -> None:
    owner = s.new("resource")
    values = {"one": 1, "text": "1", "yes": True, "none": None, "other": "x"}
    for name, value in values.items():
        await s.run(CreateThread(thread_id=s.new(name), resource_id=owner, metadata={"v": value, "all": "same"}))
    await s.run(CreateThread(thread_id=s.new("missing"), resource_id=owner, metadata={"all": "same"}))
    for name, value in values.items():
        page = await s.run(ListThreads(resource_id=owner, metadata={"v": value}))
        assert [t.id.split("-")[0] for t in page] == [name], (name, [t.id for t in page])
        both = await s.run(ListThreads(resource_id=owner, metadata={"v": value, "all": "same"}))
        assert both.total == 1
        neither = await s.run(ListThreads(resource_id=owner, metadata={"v": value, "all": "other"}))
        assert neither.total == 0
    assert (await s.run(ListThreads(resource_id=owner, metadata={"all": "same"}))).total == 6
    assert (await s.run(ListThreads(resource_id=owner, metadata={"v": "') OR 1=1 --"}))).total == 0


@case("threads")
async def an_update_merges_metadata_and_none_removes_a_key(s: Session) -> None:
    [thread] = await make(s)
    await s.run(UpdateThread(thread_id=thread.id, metadata={"a": 1, "b": {"x": 1, "y": 2}, "c": 3}))
    changed = await s.run(UpdateThread(thread_id=thread.id, metadata={"b": {"x": 5}, "c": None, "never": None}))
    assert changed.metadata == {"a": 1, "b": {"x": 5}}
    assert await s.run(GetThread(thread_id=thread.id)) == changed


@case("threads")
async def parallel_updates_of_different_keys_all_survive(s: Session) -> None:
    [thread] = await make(s)
    updates = [UpdateThread(thread_id=thread.id, metadata={f"k{i}": i}) for i in range(12)]
    outcomes = await s.together(*updates)
    assert [o for o in outcomes if isinstance(o, BaseException)] == []
    found = await s.run(GetThread(thread_id=thread.id))
    assert found is not None
    assert found.metadata == {f"k{i}": i for i in range(12)}


@case("threads")
async def a_thread_created_by_many_at_once_is_created_once(s: Session) -> None:
    thread_id, owner = s.new("thread"), s.new("resource")
    outcomes = await s.together(
        *(CreateThread(thread_id=thread_id, resource_id=owner, metadata={"by": i}) for i in range(8))
    )
    assert all(outcome == outcomes[0] for outcome in outcomes), outcomes
    assert isinstance(outcomes[0], Thread)


@case("threads")
async def a_title_of_a_person_is_never_overwritten_by_a_suggestion(s: Session) -> None:
    [named, unnamed] = await make(s, 2)
    await s.run(UpdateThread(thread_id=named.id, set_title=True, title="by a person"))
    assert not await s.run(SuggestTitle(thread_id=named.id, title="by a model"))
    assert await s.run(SuggestTitle(thread_id=unnamed.id, title="by a model"))
    assert not await s.run(SuggestTitle(thread_id=unnamed.id, title="by another", replace=False))
    assert await s.run(SuggestTitle(thread_id=unnamed.id, title="by another", replace=True))
    titles = [await s.run(GetThread(thread_id=t.id)) for t in (named, unnamed)]
    assert [t.title for t in titles if t] == ["by a person", "by another"]


@case("threads")
async def a_title_is_not_given_to_a_thread_that_was_made_anew(s: Session) -> None:
    [thread] = await make(s)
    later = thread.created_at + timedelta(seconds=1)
    assert not await s.run(SuggestTitle(thread_id=thread.id, title="of another", made_at=later))
    assert await s.run(SuggestTitle(thread_id=thread.id, title="by a model", made_at=thread.created_at))


@case("threads")
async def a_title_taken_away_may_be_suggested_anew(s: Session) -> None:
    [thread] = await make(s)
    await s.run(UpdateThread(thread_id=thread.id, set_title=True, title="by a person"))
    cleared = await s.run(UpdateThread(thread_id=thread.id, set_title=True, title=None))
    assert cleared.title is None
    assert await s.run(SuggestTitle(thread_id=thread.id, title="by a model"))


@case("threads", needs=("messages",))
async def deleting_a_thread_says_how_much_went_and_may_be_repeated(s: Session) -> None:
    thread, other = await make(s, 2)
    await say(s, thread, ["a", "b"])
    await say(s, other, ["c"])
    gone = await s.run(DeleteThread(thread_id=thread.id, resource_id=thread.resource_id))
    assert (gone.threads, gone.messages) == (1, 2)
    assert await s.run(GetThread(thread_id=thread.id)) is None
    again = await s.run(DeleteThread(thread_id=thread.id))
    assert (again.threads, again.messages) == (0, 0)
    await s.refused(ThreadNotFoundError, DeleteThread(thread_id=thread.id, resource_id=thread.resource_id))
    assert await texts_of(s, other.id) == ["c"]


@case("threads", needs=("messages",))
async def a_thread_made_again_under_a_deleted_id_is_empty(s: Session) -> None:
    [thread] = await make(s)
    await say(s, thread, ["secret"])
    await s.run(DeleteThread(thread_id=thread.id))
    await s.run(CreateThread(thread_id=thread.id, resource_id=s.new("somebody else")))
    assert await texts_of(s, thread.id) == []


@case("threads", needs=("messages",))
async def a_transferred_thread_belongs_to_its_new_owner_only(s: Session) -> None:
    [thread] = await make(s)
    await say(s, thread, ["hello"])
    new = s.new("heir")
    moved = await s.run(TransferThread(thread_id=thread.id, new_resource_id=new, resource_id=thread.resource_id))
    assert (moved.id, moved.resource_id) == (thread.id, new)
    assert await s.run(GetThread(thread_id=thread.id, resource_id=thread.resource_id)) is None
    assert (await s.run(ListThreads(resource_id=thread.resource_id))).total == 0
    assert [t.id for t in await s.run(ListThreads(resource_id=new))] == [thread.id]
    assert await texts_of(s, thread.id) == ["hello"]
    again = await s.run(TransferThread(thread_id=thread.id, new_resource_id=new))
    assert again.resource_id == new


@case("threads", needs=("messages",))
async def a_copy_has_the_messages_in_order_under_new_ids_and_lives_on_its_own(s: Session) -> None:
    [source] = await make(s)
    ids = await say(s, source, ["one", "two", "three"])
    copy = await s.run(CopyThread(source_thread_id=source.id, new_thread_id=s.new("copy"), with_messages=True))
    assert [stored.message.text for stored in copy.messages] == ["one", "two", "three"]
    assert set(copy.message_id_map) == set(ids)
    assert not set(copy.message_id_map.values()) & set(ids)
    assert [stored.message.id for stored in copy.messages] == [copy.message_id_map[i] for i in ids]
    assert copy.thread.resource_id == source.resource_id
    await say(s, copy.thread, ["only in the copy"])
    await say(s, source, ["only in the source"])
    assert await texts_of(s, source.id) == ["one", "two", "three", "only in the source"]
    assert await texts_of(s, copy.thread.id) == ["one", "two", "three", "only in the copy"]
    await s.run(DeleteThread(thread_id=source.id))
    assert await texts_of(s, copy.thread.id) == ["one", "two", "three", "only in the copy"]


@case("threads", needs=("messages",))
async def a_copy_can_be_narrowed_to_the_newest_or_to_chosen_messages(s: Session) -> None:
    [source] = await make(s)
    ids = await say(s, source, ["one", "two", "three", "four"])
    newest = await s.run(CopyThread(source_thread_id=source.id, new_thread_id=s.new("copy"), message_limit=2))
    assert await texts_of(s, newest.thread.id) == ["three", "four"]
    chosen = await s.run(
        CopyThread(
            source_thread_id=source.id,
            new_thread_id=s.new("copy"),
            message_ids=(ids[2], ids[0], s.new("nothing")),
        )
    )
    assert await texts_of(s, chosen.thread.id) == ["one", "three"]
    none = await s.run(CopyThread(source_thread_id=source.id, new_thread_id=s.new("copy"), message_ids=()))
    assert await texts_of(s, none.thread.id) == []


@case("threads", needs=("messages",))
async def a_copy_onto_an_existing_thread_is_refused_whoever_owns_it(s: Session) -> None:
    source, taken = await make(s, 2)
    await say(s, taken, ["mine"])
    await s.refused(InvalidIdError, CopyThread(source_thread_id=source.id, new_thread_id=taken.id))
    assert await texts_of(s, taken.id) == ["mine"]


@case("threads")
async def clones_are_found_from_both_ends(s: Session) -> None:
    [source] = await make(s)
    child = (await s.run(CopyThread(source_thread_id=source.id, new_thread_id=s.new("child")))).thread
    grandchild = (await s.run(CopyThread(source_thread_id=child.id, new_thread_id=s.new("grandchild")))).thread
    assert [t.id for t in await s.run(ListClones(source_thread_id=source.id))] == [child.id]
    history = await s.run(GetCloneHistory(thread_id=grandchild.id))
    assert [t.id for t in history] == [source.id, child.id, grandchild.id]
    await s.refused(ThreadNotFoundError, ListClones(source_thread_id=source.id, resource_id=s.new("thief")))
    owned = await s.run(ListClones(source_thread_id=source.id, resource_id=source.resource_id))
    assert [t.id for t in owned] == [child.id]
    await s.run(DeleteThread(thread_id=source.id))
    assert [t.id for t in await s.run(GetCloneHistory(thread_id=grandchild.id))] == [child.id, grandchild.id]
    assert [t.id for t in await s.run(ListClones(source_thread_id=source.id))] == [child.id]


@case("threads", needs=("messages",))
async def a_new_thread_has_one_line_on_which_it_stands(s: Session) -> None:
    [thread] = await make(s)
    await say(s, thread, ["a", "b"])
    [line] = await s.run(ListBranches(thread_id=thread.id))
    assert (line.branch, line.parent, line.cut, line.current) == (0, None, None, True)
    listed = await s.run(ListMessages(thread_ids=(thread.id,), per_page=False))
    assert line.head == listed[-1].seq


@case("threads")
async def an_error_in_one_of_many_parallel_operations_harms_no_other(s: Session) -> None:
    [thread] = await make(s)
    thief = s.new("thief")
    updates = [
        UpdateThread(thread_id=thread.id, resource_id=thief if i % 3 == 0 else None, metadata={f"k{i}": i})
        for i in range(12)
    ]
    outcomes = await s.together(*updates)
    for i, outcome in enumerate(outcomes):
        assert isinstance(outcome, ThreadNotFoundError if i % 3 == 0 else Thread), (i, outcome)
    found = await s.run(GetThread(thread_id=thread.id))
    assert found is not None
    assert sorted(found.metadata) == sorted(f"k{i}" for i in range(12) if i % 3)


@case("threads", needs=("messages",))
async def the_store_keeps_no_reference_to_what_it_was_given(s: Session) -> None:
    metadata = {"list": [1]}
    message = AIMessage("before", id=s.new("message"))
    thread = await s.run(CreateThread(thread_id=s.new("thread"), resource_id=s.new("resource"), metadata=metadata))
    await s.run(SaveMessages(thread_id=thread.id, messages=(NewMessage(message=message, tokens=1),)))
    metadata["list"].append(2)
    message.content = "after"
    found = await s.run(GetThread(thread_id=thread.id))
    assert found is not None
    assert found.metadata == {"list": [1]}
    assert await texts_of(s, thread.id) == ["before"]
