"""The operations of a run, on every engine: where a state stands, what is loaded, how it is saved."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from langchain_mastra_memory import Memory, SQLMemoryStore
from langchain_mastra_memory.errors import ThreadNotFoundError
from langchain_mastra_memory.store.operations.messages import NewMessage
from langchain_mastra_memory.store.operations.runs import LoadHistory, ReadRun, SaveRun, StoreBoundary


@pytest.fixture
def memory(store_url: str) -> Iterator[Memory]:
    with Memory(SQLMemoryStore(store_url)) as made:
        yield made
        made.store.close()


def new(*ids: str, tokens: int = 10) -> tuple[NewMessage, ...]:
    kinds: list[type[BaseMessage]] = [HumanMessage, AIMessage]
    return tuple(
        NewMessage(message=kinds[at % 2](f"text of {name}", id=name), tokens=tokens) for at, name in enumerate(ids)
    )


def save(memory: Memory, *ids: str, **more: Any) -> list[str]:
    saved = memory.store.run(SaveRun(**{"thread_id": "t", "resource_id": "r", "messages": new(*ids), **more}))
    return [stored.id for stored in saved]


def load(memory: Memory, **more: Any) -> list[str]:
    return [stored.id for stored in memory.store.run(LoadHistory(thread_id="t", **more)).messages]


def test_saving_a_run_makes_the_thread_and_saving_it_again_adds_nothing(memory: Memory) -> None:
    for _ in range(2):
        assert save(memory, "a", "b", title="A title", metadata={"k": 1}) == ["a", "b"]
    thread = memory.get_thread("t", resource_id="r")
    assert thread is not None
    assert (thread.title, thread.metadata) == ("A title", {"k": 1})
    assert load(memory) == ["a", "b"]
    assert [stored.seq for stored in memory.recall(thread_id="t")] == [1, 2]


def test_a_thread_may_be_made_without_an_owner_and_is_adopted_by_the_first_one_that_names_it(memory: Memory) -> None:
    save(memory, "a", resource_id=None)
    save(memory, "b", resource_id="r")
    with pytest.raises(ThreadNotFoundError):
        save(memory, "c", resource_id="eve")
    for read in (ReadRun(thread_id="t", resource_id="eve", ids=("a",)), LoadHistory(thread_id="t", resource_id="eve")):
        with pytest.raises(ThreadNotFoundError):
            memory.store.run(read)
    assert load(memory, resource_id="r") == ["a", "b"]


def test_a_known_message_is_kept_or_changed_in_its_place(memory: Memory) -> None:
    save(memory, "a", "b")
    changed = (NewMessage(message=HumanMessage("other", id="a"), tokens=1), *new("x", "c")[1:])
    save(memory, messages=changed, keep_known=True)
    assert next(iter(memory.recall(thread_id="t"))).message.text == "text of a"
    save(memory, messages=changed)
    assert [stored.message.text for stored in memory.recall(thread_id="t")] == ["other", "text of b", "text of c"]


def test_a_deleted_message_is_not_archived_again(memory: Memory) -> None:
    save(memory, "a", "b")
    memory.delete_messages(["a"], thread_id="t")
    save(memory, "a", "b", "c")
    assert load(memory) == ["b", "c"]
    view = memory.store.run(ReadRun(thread_id="t", ids=("a", "b", "c")))
    assert view.deleted == {"a"}
    assert set(view.located) == {"b", "c"}


def test_a_state_stands_where_its_newest_known_message_is(memory: Memory) -> None:
    save(memory, "a", "b", "c", "d")
    view = memory.store.run(ReadRun(thread_id="t", ids=("a", "b", "unknown")))
    assert view.position == (0, 2)
    assert memory.store.run(ReadRun(thread_id="t", ids=("unknown",))).position is None
    assert not memory.store.run(ReadRun(thread_id="missing", ids=("a",))).exists


def test_a_run_from_an_earlier_state_opens_a_line_of_its_own(memory: Memory) -> None:
    save(memory, "a", "b", "c", "d")
    save(memory, "e", from_state=True, after=("a", "b"))
    assert load(memory) == ["a", "b", "e"]
    on_the_fork = memory.store.run(ReadRun(thread_id="t", ids=("a", "b", "e")))
    on_the_first = memory.store.run(ReadRun(thread_id="t", ids=("a", "b", "c", "d")))
    assert (on_the_fork.position, on_the_first.position) == ((1, 5), (0, 4))
    assert len(memory.list_branches("t")) == 2


def test_what_entered_outside_is_loaded_beside_the_state(memory: Memory) -> None:
    memory.save_messages(
        [HumanMessage("imported", id=f"i{number}") for number in range(3)], thread_id="t", resource_id="r"
    )
    save(memory, "a", from_state=True)
    view = memory.store.run(ReadRun(thread_id="t", ids=("a",)))
    assert [stored.id for stored in view.outside] == ["i0", "i1", "i2"]
    capped = memory.store.run(ReadRun(thread_id="t", ids=("a",), last=2))
    assert [stored.id for stored in capped.outside] == ["i1", "i2"]


def test_an_edited_message_comes_with_its_new_body(memory: Memory) -> None:
    save(memory, "a", "b")
    memory.update_messages([{"id": "a", "content": "edited"}], thread_id="t")
    located = memory.store.run(ReadRun(thread_id="t", ids=("a", "b"))).located
    assert located["a"].edited is not None
    assert located["a"].edited.text == "edited"
    assert located["b"].edited is None


def test_history_is_read_backwards_until_there_is_enough(memory: Memory) -> None:
    ids = [f"m{number:04}" for number in range(450)]
    save(memory, *ids)
    assert load(memory, last=3) == ids[-3:]
    assert load(memory, last=0) == []
    assert load(memory, after=448) == ids[-2:]
    assert load(memory) == ids
    enough = load(memory, tokens=1_500)
    assert enough == ids[-len(enough) :]
    assert 150 <= len(enough) <= 400
    found = memory.store.run(LoadHistory(thread_id="t", last=1, ids=("m0001", "nothing")))
    assert [stored.id for stored in found.matched] == ["m0001"]


def test_a_boundary_is_kept_for_its_budget_and_follows_its_line(memory: Memory) -> None:
    save(memory, *(f"m{number}" for number in range(1, 9)))
    boundary = StoreBoundary(thread_id="t", message_id="m4", seq=4, max_tokens=250, remove_tokens=62.5)
    for _ in range(2):
        memory.store.run(boundary)
    assert load(memory, boundary_for=(250, 62.5)) == ["m5", "m6", "m7", "m8"]
    assert len(load(memory, boundary_for=(251, 62.5))) == 8
    save(memory, "fork", from_state=True, after=("m1", "m2"))
    assert load(memory, boundary_for=(250, 62.5)) == ["m1", "m2", "fork"], "the fork does not see it"
    assert memory.store.run(ReadRun(thread_id="t", ids=("m5", "m6"))).boundaries[0].message_id == "m4"
    memory.store.run(StoreBoundary(thread_id="t", message_id="gone", seq=9, max_tokens=1, remove_tokens=0))
    memory.store.run(StoreBoundary(thread_id="missing", message_id="a", seq=1, max_tokens=1, remove_tokens=0))
    with pytest.raises(ThreadNotFoundError):
        memory.store.run(
            StoreBoundary(thread_id="t", resource_id="eve", message_id="m4", seq=4, max_tokens=1, remove_tokens=0)
        )


def test_a_whole_clone_goes_on_with_the_boundary_and_a_cleared_thread_forgets_it(memory: Memory) -> None:
    save(memory, *(f"m{number}" for number in range(1, 9)))
    memory.store.run(StoreBoundary(thread_id="t", message_id="m4", seq=4, max_tokens=250, remove_tokens=0))
    whole = memory.clone_thread("t", new_thread_id="whole")
    memory.clone_thread("t", new_thread_id="part", message_limit=6)
    (kept,) = memory.store.run(LoadHistory(thread_id="whole")).boundaries
    assert (kept.seq, kept.message_id) == (4, whole.message_id_map["m4"])
    assert memory.store.run(LoadHistory(thread_id="part")).boundaries == ()
    memory.clear_thread("t")
    assert memory.store.run(LoadHistory(thread_id="t")).boundaries == ()
