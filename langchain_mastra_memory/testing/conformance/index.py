"""Conformance: the index of semantic recall, which follows the messages in their own transactions."""

from __future__ import annotations

from typing import Final

from langchain_core.messages import HumanMessage

from langchain_mastra_memory.errors import EmbeddingModelMismatchError, ThreadNotFoundError
from langchain_mastra_memory.store.base import Group
from langchain_mastra_memory.store.operations.index import (
    ClaimPending,
    CountPending,
    Embedded,
    Pending,
    ReadPlaces,
    ReadScope,
    ScopeOf,
    ScopeRead,
    Seen,
    WriteVectors,
)
from langchain_mastra_memory.store.operations.messages import (
    DeleteMessages,
    EditMessages,
    ListMessages,
    MessageEdit,
    NewMessage,
    SaveMessages,
)
from langchain_mastra_memory.store.operations.threads import DeleteThread
from langchain_mastra_memory.testing.conformance.registry import case, probe
from langchain_mastra_memory.testing.conformance.session import Session
from langchain_mastra_memory.testing.conformance.threads import make
from langchain_mastra_memory.types import Thread

NEEDS: Final[tuple[Group, ...]] = ("threads", "messages")
LEXICAL: Final = frozenset({"recall"})
VECTORS: Final = frozenset({"recall", "recall.vectors"})


@probe("index")
async def counting_what_is_still_to_be_embedded(s: Session) -> None:
    """Gives a number."""
    assert await s.run(CountPending()) >= 0


async def remember(s: Session, thread: Thread, *texts: str, features: frozenset[str] = LEXICAL) -> list[str]:
    """Save messages that can be found and return their ids."""
    ids = [s.new("message") for _ in texts]
    messages = tuple(
        NewMessage(message=HumanMessage(text, id=message_id), tokens=3)
        for message_id, text in zip(ids, texts, strict=True)
    )
    await s.run(SaveMessages(thread_id=thread.id, messages=messages, features=features))
    return ids


def scope_of(thread: Thread) -> ScopeOf:
    """Return the scope of a thread's owner."""
    return ScopeOf(resource_id=thread.resource_id)


def seen(read: ScopeRead) -> dict[int, Seen]:
    """Return what a cache knows after a read."""
    return {
        state.key: Seen(
            texts=state.texts,
            edits=state.edits,
            seq=max((seq for _, thread, seq, _, _ in read.texts if thread == state.key), default=-1),
            vector=max((key for key, thread, _, _ in read.vectors if thread == state.key), default=0),
        )
        for state in read.threads
    }


async def found_texts(s: Session, thread: Thread, read: ScopeRead) -> list[str]:
    """Return the texts of the messages of a read."""
    places = tuple((key, seq, branch) for _, key, seq, branch, _ in read.texts)
    stored = await s.run(ReadPlaces(scope=scope_of(thread), places=places))
    return [str(stored[place].message.text) for place in places]


@case("index", needs=NEEDS)
async def saved_messages_are_indexed_in_the_same_transaction_where_recall_is_on(s: Session) -> None:
    [thread] = await make(s)
    await remember(s, thread, "tea in Lisbon", "rain")
    await remember(s, thread, "not to be found", features=frozenset())
    read = await s.run(ReadScope(scope=scope_of(thread)))
    assert await found_texts(s, thread, read) == ["tea in Lisbon", "rain"]
    assert all(blob for *_, blob in read.texts)


@case("index", needs=NEEDS)
async def a_scope_has_the_threads_of_its_owner_and_no_others(s: Session) -> None:
    one, two = await make(s, 2)
    [foreign] = await make(s, owner=f"{one.resource_id}0")
    for thread in (one, two, foreign):
        await remember(s, thread, f"of {thread.id}")
    read = await s.run(ReadScope(scope=scope_of(one)))
    assert {state.id for state in read.threads} == {one.id, two.id}
    assert sorted(await found_texts(s, one, read)) == sorted([f"of {one.id}", f"of {two.id}"])
    alone = await s.run(ReadScope(scope=ScopeOf(resource_id=one.resource_id, thread_id=one.id)))
    assert [state.id for state in alone.threads] == [one.id]
    await s.refused(ThreadNotFoundError, ReadScope(scope=ScopeOf(resource_id=s.new("thief"), thread_id=one.id)))


@case("index", needs=NEEDS)
async def a_cache_is_told_what_is_new_and_nothing_else(s: Session) -> None:
    one, two = await make(s, 2)
    await remember(s, one, "old")
    await remember(s, two, "quiet")
    before = await s.run(ReadScope(scope=scope_of(one)))
    nothing = await s.run(ReadScope(scope=scope_of(one), known=seen(before)))
    assert (nothing.texts, nothing.dropped) == ((), frozenset())
    await remember(s, one, "new")
    after = await s.run(ReadScope(scope=scope_of(one), known=seen(before)))
    assert await found_texts(s, one, after) == ["new"]
    assert after.dropped == frozenset()


@case("index", needs=NEEDS)
async def a_cache_drops_what_was_edited_deleted_or_is_gone(s: Session) -> None:
    one, two = await make(s, 2)
    a, b = await remember(s, one, "a", "b")
    await remember(s, two, "c")
    before = await s.run(ReadScope(scope=scope_of(one)))
    [stored, _] = await s.run(ListMessages(thread_ids=(one.id,), per_page=False))
    edit = MessageEdit(message=HumanMessage("A", id=a), tokens=1, metadata={}, seq=stored.seq, revision=stored.revision)
    await s.run(EditMessages(thread_id=one.id, edits=(edit,), features=LEXICAL))
    await s.run(DeleteMessages(thread_id=one.id, message_ids=(b,)))
    await s.run(DeleteThread(thread_id=two.id))
    after = await s.run(ReadScope(scope=scope_of(one), known=seen(before)))
    assert after.dropped == {state.key for state in before.threads}
    assert await found_texts(s, one, after) == ["A"]


@case("index", needs=NEEDS)
async def places_of_other_owners_and_of_nothing_are_passed_over(s: Session) -> None:
    [thread] = await make(s)
    [foreign] = await make(s)
    for each in (thread, foreign):
        await remember(s, each, f"of {each.id}")
    reads = [await s.run(ReadScope(scope=scope_of(each))) for each in (thread, foreign)]
    places = tuple((key, seq, branch) for read in reads for _, key, seq, branch, _ in read.texts)
    stored = await s.run(ReadPlaces(scope=scope_of(thread), places=(*places, (places[0][0], 10**6, 0), (10**9, 0, 0))))
    assert {place: str(message.message.text) for place, message in stored.items()} == {places[0]: f"of {thread.id}"}


async def pending_of(s: Session, thread: Thread) -> list[Pending]:
    """Claim what a thread has to be embedded."""
    return await s.run(ClaimPending(thread_id=thread.id))


async def model_of(s: Session, thread: Thread) -> tuple[str, int]:
    """Return the model of the store's vectors, which cases share, or one to begin with."""
    read = await s.run(ReadScope(scope=scope_of(thread), with_vectors=True))
    return read.models[0] if read.models else ("conformance", 4)


@case("index", needs=NEEDS)
async def messages_wait_to_be_embedded_until_their_vectors_are_there(s: Session) -> None:
    [thread] = await make(s)
    await remember(s, thread, "one", "two", features=VECTORS)
    waiting = await pending_of(s, thread)
    assert [str(pending.message.text) for pending in waiting] == ["one", "two"]
    model, dimension = await model_of(s, thread)
    rows = tuple(
        Embedded(text=p.text, thread=p.thread, revision=p.revision, chunks=1, vectors=(bytes([7] * dimension),))
        for p in waiting
    )
    assert await s.run(WriteVectors(model=model, dimension=dimension, rows=rows)) == 2
    left = await pending_of(s, thread)
    assert left == []
    read = await s.run(ReadScope(scope=scope_of(thread), with_vectors=True))
    assert [vector[:dimension] for *_, vector in read.vectors] == [bytes([7] * dimension)] * 2


@case("index", needs=NEEDS)
async def a_vector_of_a_message_that_was_edited_meanwhile_is_not_kept(s: Session) -> None:
    [thread] = await make(s)
    [a] = await remember(s, thread, "before", features=VECTORS)
    [waiting] = await pending_of(s, thread)
    [stored] = await s.run(ListMessages(thread_ids=(thread.id,), per_page=False))
    changed = HumanMessage("after", id=a)
    edit = MessageEdit(message=changed, tokens=1, metadata={}, seq=stored.seq, revision=stored.revision)
    await s.run(EditMessages(thread_id=thread.id, edits=(edit,), features=VECTORS))
    model, dimension = await model_of(s, thread)
    row = Embedded(
        text=waiting.text, thread=waiting.thread, revision=waiting.revision, chunks=1, vectors=(bytes(dimension),)
    )
    assert await s.run(WriteVectors(model=model, dimension=dimension, rows=(row,))) == 0
    [again] = await pending_of(s, thread)
    assert str(again.message.text) == "after"


@case("index", needs=NEEDS)
async def vectors_of_another_model_are_refused(s: Session) -> None:
    [thread] = await make(s)
    await remember(s, thread, "one", "two", features=VECTORS)
    first, second = await pending_of(s, thread)
    model, dimension = await model_of(s, thread)

    def vectors(pending: Pending, name: str) -> WriteVectors:
        row = Embedded(
            text=pending.text, thread=pending.thread, revision=pending.revision, chunks=1, vectors=(bytes(dimension),)
        )
        return WriteVectors(model=name, dimension=dimension, rows=(row,))

    assert await s.run(vectors(first, model)) == 1
    await s.refused(EmbeddingModelMismatchError, vectors(second, f"not {model}"))
