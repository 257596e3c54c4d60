"""Conformance: the observation log, whose heads are written under conditions and whose rows are never changed."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from langchain_mastra_memory.errors import ThreadNotFoundError
from langchain_mastra_memory.observation.log import Head, Hints, LogRow, Span
from langchain_mastra_memory.store.base import Group
from langchain_mastra_memory.store.operations.log import (
    CallRecord,
    ClaimLog,
    CommitLog,
    ListCalls,
    LogAddress,
    LogView,
    OpenLog,
    ReadLog,
    RecordCalls,
    ReleaseLog,
)
from langchain_mastra_memory.store.operations.messages import ClearThread, EditMessages, ListMessages, MessageEdit
from langchain_mastra_memory.store.operations.threads import DeleteThread
from langchain_mastra_memory.testing.conformance.registry import case, probe
from langchain_mastra_memory.testing.conformance.session import Session
from langchain_mastra_memory.testing.conformance.threads import make, say
from langchain_mastra_memory.types import Thread

NEEDS: Final[tuple[Group, ...]] = ("threads", "messages")


@probe("log")
async def listing_the_calls_of_an_unknown_resource(s: Session) -> None:
    """Gives none."""
    calls = await s.run(ListCalls(resource_id=s.new("nobody")))
    assert calls == []


def log_of(thread: Thread) -> LogAddress:
    """Return the address of a thread's own log."""
    return LogAddress(scope="thread", thread_id=thread.id, resource_id=thread.resource_id)


async def opened(s: Session, thread: Thread) -> LogView:
    """Open a thread's log and read it."""
    await s.run(OpenLog(address=log_of(thread)))
    return await s.run(ReadLog(address=log_of(thread)))


def row_over(s: Session, view: LogView, upto: int, text: str = "observed", **more: object) -> LogRow:
    """Return a row that covers the thread from the last one on, up to a seq."""
    span = Span(view.current, 0, view.state.buffered_to(view.current), upto)
    return replace(LogRow(id=s.new("row"), covers=(span,), text=text, tokens=5, messages=1), **more)  # type: ignore[arg-type]  # fields of the row


def adding(view: LogView, thread: Thread, *rows: LogRow) -> CommitLog:
    """Return the commit of a head with more rows in its log."""
    head = view.state.head
    after = replace(head, version=head.version + 1, log=(*head.log, *(row.id for row in rows)))
    return CommitLog(
        address=log_of(thread), read=(head.epoch, head.version), paths=view.state.paths, head=after, rows=rows
    )


@case("log", needs=NEEDS)
async def opening_a_log_again_changes_nothing(s: Session) -> None:
    [thread] = await make(s)
    first = await s.run(OpenLog(address=log_of(thread)))
    again = await s.run(OpenLog(address=log_of(thread)))
    assert first == again
    view = await s.run(ReadLog(address=log_of(thread)))
    assert (view.state.head.epoch, view.state.head.log, view.opened) == (first, (), True)
    assert view.resource_id == thread.resource_id


@case("log", needs=NEEDS)
async def a_log_shows_the_raw_messages_behind_it(s: Session) -> None:
    [thread] = await make(s)
    ids = await say(s, thread, ["a", "b", "c"])
    view = await opened(s, thread)
    raw = view.threads[view.current].raw
    assert [message.id for message in raw] == ids
    assert [str(message.message.text) for message in raw] == ["a", "b", "c"]
    written = await s.run(adding(view, thread, row_over(s, view, raw[1].seq)))
    assert written is True
    after = await s.run(ReadLog(address=log_of(thread)))
    assert [message.id for message in after.threads[after.current].raw] == ids[2:]


@case("log", needs=NEEDS)
async def a_row_comes_back_as_it_was_written(s: Session) -> None:
    [thread] = await make(s)
    await say(s, thread, ["a"])
    view = await opened(s, thread)
    row = row_over(
        s,
        view,
        view.threads[view.current].raw[0].seq,
        text="* seen \0 \ud800 日本語",
        hints=Hints(current_task="task", suggested_response="answer", thread_title="title"),
        hinted=True,
        extracted={"facts": ["one", {"deep": None}], "n": 1.5},
        first_at=1,
        last_at=2,
        created_at=3,
        model="m",
    )
    await s.run(adding(view, thread, row))
    after = await s.run(ReadLog(address=log_of(thread)))
    assert after.state.log == [row]


@case("log", needs=NEEDS)
async def a_head_that_was_read_before_the_newest_one_is_refused(s: Session) -> None:
    [thread] = await make(s)
    await say(s, thread, ["a", "b"])
    view = await opened(s, thread)
    seqs = [message.seq for message in view.threads[view.current].raw]
    first = row_over(s, view, seqs[0])
    assert await s.run(adding(view, thread, first)) is True
    assert await s.run(adding(view, thread, row_over(s, view, seqs[1]))) is False
    after = await s.run(ReadLog(address=log_of(thread)))
    assert [row.id for row in after.state.log] == [first.id]


@case("log", needs=NEEDS)
async def of_many_heads_that_follow_one_exactly_one_is_written(s: Session) -> None:
    [thread] = await make(s)
    await say(s, thread, ["a"])
    view = await opened(s, thread)
    seq = view.threads[view.current].raw[0].seq
    commits = [adding(view, thread, row_over(s, view, seq, text=str(i))) for i in range(8)]
    outcomes = await s.together(*commits)
    assert sorted(map(str, outcomes)) == ["False"] * 7 + ["True"]
    after = await s.run(ReadLog(address=log_of(thread)))
    winner = outcomes.index(True)
    assert [row.text for row in after.state.log] == [str(winner)]


@case("log", needs=NEEDS)
async def a_cleared_thread_has_a_new_epoch_and_an_empty_log(s: Session) -> None:
    [thread] = await make(s)
    await say(s, thread, ["a"])
    view = await opened(s, thread)
    commit = adding(view, thread, row_over(s, view, view.threads[view.current].raw[0].seq))
    assert await s.run(commit) is True
    await s.run(ClearThread(thread_id=thread.id))
    late = replace(commit, read=(commit.head.epoch, commit.head.version))
    assert await s.run(replace(late, head=replace(commit.head, version=commit.head.version + 1))) is not True
    after = await opened(s, thread)
    assert after.state.head.epoch != view.state.head.epoch
    assert after.state.log == []


@case("log", needs=NEEDS)
async def a_row_whose_message_was_edited_is_marked_stale(s: Session) -> None:
    [thread] = await make(s)
    [a] = await say(s, thread, ["a"])
    view = await opened(s, thread)
    await s.run(adding(view, thread, row_over(s, view, view.threads[view.current].raw[0].seq)))
    [stored] = await s.run(ListMessages(thread_ids=(thread.id,), per_page=False))
    changed = stored.message.model_copy(update={"content": "A"})
    edit = MessageEdit(message=changed, tokens=1, metadata={}, seq=stored.seq, revision=stored.revision)
    await s.run(EditMessages(thread_id=thread.id, edits=(edit,)))
    after = await s.run(ReadLog(address=log_of(thread)))
    assert [row.stale for row in after.state.log] == [True]
    assert stored.id == a


@case("log", needs=NEEDS)
async def a_log_is_its_owners_and_goes_with_its_thread(s: Session) -> None:
    [thread] = await make(s)
    await say(s, thread, ["a"])
    await opened(s, thread)
    foreign = replace(log_of(thread), resource_id=s.new("thief"))
    for operation in (OpenLog(address=foreign), ReadLog(address=foreign)):
        await s.refused(ThreadNotFoundError, operation)
    await s.run(DeleteThread(thread_id=thread.id))
    await s.refused(ThreadNotFoundError, ReadLog(address=log_of(thread)))


@case("log", needs=NEEDS)
async def a_claim_is_had_by_one_until_it_is_released_or_ends(s: Session) -> None:
    [thread] = await make(s)
    await opened(s, thread)

    def claim(owner: str, seconds: float = 600) -> ClaimLog:
        return ClaimLog(address=log_of(thread), line=0, phase="observation", owner=owner, seconds=seconds)

    assert await s.run(claim("one")) is True
    assert await s.run(claim("two")) is False
    await s.run(ReleaseLog(address=log_of(thread), line=0, phase="observation", owner="two"))
    assert await s.run(claim("two")) is False
    await s.run(ReleaseLog(address=log_of(thread), line=0, phase="observation", owner="one"))
    assert await s.run(claim("two", seconds=0)) is True
    assert await s.run(claim("three")) is True


@case("log", needs=NEEDS)
async def what_calls_cost_is_kept_and_belongs_to_the_owner(s: Session) -> None:
    [thread] = await make(s)
    await opened(s, thread)
    call = CallRecord(
        phase="observation", outcome="committed", model="m", input_tokens=3, output_tokens=2, details={"cached": 1}
    )
    await s.run(RecordCalls(address=log_of(thread), calls=(call,)))
    [found] = await s.run(ListCalls(thread_id=thread.id))
    assert replace(found, created_at=0, thread_id=None) == call
    of_resource = await s.run(ListCalls(resource_id=thread.resource_id))
    assert [c.outcome for c in of_resource] == ["committed"]


@case("log", needs=NEEDS)
async def the_log_of_a_resource_sees_all_its_threads_and_no_other(s: Session) -> None:
    one, two = await make(s, 2)
    [foreign] = await make(s)
    for thread, text in ((one, "a"), (two, "b"), (foreign, "x")):
        await say(s, thread, [text])
    address = LogAddress(scope="resource", thread_id=one.id, resource_id=one.resource_id)
    await s.run(OpenLog(address=address))
    view = await s.run(ReadLog(address=address))
    assert {t.id for t in view.threads.values()} == {one.id, two.id}
    assert sorted(str(m.message.text) for t in view.threads.values() for m in t.raw) == ["a", "b"]
    assert isinstance(view.state.head, Head)
