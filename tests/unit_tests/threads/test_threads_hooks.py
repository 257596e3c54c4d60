"""What features see of a change of messages and threads, in the transaction that makes it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from langchain_mastra_memory.store.sql import cascade

HOOKS = {name: hook for name, hook in vars(cascade).items() if isinstance(hook, cascade.Hook)}


@pytest.fixture
def heard() -> Iterator[list[tuple[Any, ...]]]:
    """Return what the hooks were called with, as it happens."""
    calls: list[tuple[Any, ...]] = []
    for name, hook in HOOKS.items():

        def listen(_tx: Any, *arguments: Any, _name: str = name) -> None:
            calls.append((_name, *arguments))

        hook(listen)
    yield calls
    for hook in HOOKS.values():  # take away what this module put in, and nothing else
        for name in [name for name, joined in hook._joined.items() if joined.__module__ == __name__]:
            del hook._joined[name]


def human(message_id: str, text: str | None = None) -> dict[str, Any]:
    return {"role": "user", "content": text or message_id, "id": message_id}


def names(calls: list[tuple[Any, ...]]) -> list[str]:
    return [call[0] for call in calls]


def test_saving_tells_of_new_rows_and_of_changed_ones(memory: Any, heard: list[tuple[Any, ...]]) -> None:
    memory.save_messages([human("a"), human("b")], thread_id="t", resource_id="r")
    assert names(heard) == ["on_thread_created", "on_messages_saved"]
    _, thread, rows, features = heard[1]
    assert (thread.id, thread.head, features) == ("t", 2, memory.options.features)
    assert [(row.seq, row.branch, row.id, row.message.content, row.outside) for row in rows] == [
        (1, 0, "a", "a", True),
        (2, 0, "b", "b", True),
    ]
    heard.clear()
    memory.save_messages([human("a", "new"), human("b"), human("c")], thread_id="t")
    assert names(heard) == ["on_messages_saved", "on_messages_edited"]
    assert [row.id for row in heard[0][2]] == ["c"]
    assert [(row.id, row.message.content, row.revision, row.overrides) for row in heard[1][2]] == [
        ("a", "new", 2, None)
    ]
    heard.clear()
    memory.save_messages([human("a", "new"), human("b")], thread_id="t")
    assert heard == []


def test_an_edit_on_a_branch_tells_who_sees_what(memory: Any, stand: Any, heard: list[tuple[Any, ...]]) -> None:
    memory.save_messages([human("a"), human("b")], thread_id="t", resource_id="r")
    stand("t", 0, 1)
    memory.save_messages([human("f")], thread_id="t")
    heard.clear()
    memory.update_messages([{"id": "a", "content": "fork"}], thread_id="t")
    (_, _, rows, _), *_ = heard
    assert [(row.seq, row.branch, row.message.content, row.overrides) for row in rows] == [(1, 1, "fork", 0)]
    stand("t", 0, 2)
    memory.delete_messages(["f"], thread_id="t")
    stand("t", 1, 3)
    memory.save_messages([human("g")], thread_id="t")
    stand("t", 0, 2)
    heard.clear()
    memory.update_messages([{"id": "b", "content": "first"}], thread_id="t")
    (_, _, rows, _), *_ = heard
    assert [(row.branch, row.message.content) for row in rows] == [(0, "first")]  # branch 1 left before it


def test_the_old_message_is_told_again_for_each_line_that_keeps_it(
    memory: Any, stand: Any, heard: list[tuple[Any, ...]]
) -> None:
    memory.save_messages([human("a"), human("b")], thread_id="t", resource_id="r")
    stand("t", 0, 1)
    memory.save_messages([human("f")], thread_id="t")
    stand("t", 0, 2)
    heard.clear()
    memory.update_messages([{"id": "a", "content": "first"}], thread_id="t")
    (_, _, rows, _), *_ = heard
    assert [(row.seq, row.branch, row.message.content, row.overrides) for row in rows] == [
        (1, 0, "first", None),
        (1, 1, "a", 0),
    ]


def test_removing_clearing_and_deleting_tell_before_the_rows_are_gone(
    memory: Any, heard: list[tuple[Any, ...]]
) -> None:
    memory.save_messages([human("a"), human("b"), human("c")], thread_id="t", resource_id="r")
    epoch = heard[1][1].epoch
    heard.clear()
    memory.delete_messages(["b", "a", "never"], thread_id="t")
    assert [(row.seq, row.branch, row.id) for row in sorted(heard[0][2], key=lambda row: row.seq)] == [
        (1, 0, "a"),
        (2, 0, "b"),
    ]
    memory.delete_messages(["a"], thread_id="t")
    memory.clear_thread("t")
    memory.delete_thread("t")
    memory.delete_resource("r")
    assert names(heard) == ["on_messages_deleted", "on_thread_cleared", "on_thread_deleted", "on_resource_deleted"]
    assert heard[1][1].epoch != epoch


def test_copying_and_transferring_tell_from_where_to_where(memory: Any, heard: list[tuple[Any, ...]]) -> None:
    memory.save_messages([human("a"), human("b")], thread_id="t", resource_id="r")
    heard.clear()
    clone = memory.clone_thread("t", new_thread_id="c")
    part = memory.copy_thread("t", new_thread_id="d", message_limit=1)
    memory.transfer_thread("c", "r2")
    memory.transfer_thread("c", "r2")
    made, copied = "on_thread_created", "on_thread_copied"
    assert names(heard) == [made, copied, made, copied, "on_thread_transferred"]
    whole, partial = heard[1][1], heard[3][1]
    assert (whole.source.id, whole.target.id, whole.whole, partial.whole) == ("t", "c", True, False)
    assert [(row.seq, row.source_branch, row.source_id, row.id) for row in whole.rows] == [
        (1, 0, "a", clone.message_id_map["a"]),
        (2, 0, "b", clone.message_id_map["b"]),
    ]
    assert [row.id for row in partial.rows] == [part.message_id_map["b"]]
    assert (heard[4][1].resource_id, heard[4][2]) == ("r2", "r")


def test_what_a_feature_takes_out_of_the_metadata_is_not_kept(memory: Any, heard: list[tuple[Any, ...]]) -> None:
    @cascade.on_thread_created
    def take_made(_tx: Any, _thread: Any, metadata: Any, _features: Any) -> None:
        metadata.pop("page", None)

    @cascade.on_thread_updated
    def take_updated(_tx: Any, _thread: Any, patch: Any, _features: Any) -> None:
        patch.pop("page", None)

    made = memory.create_thread("r", thread_id="t", metadata={"page": "x", "k": 1})
    assert made.metadata == memory.get_thread("t").metadata == {"k": 1}
    assert memory.update_thread("t", metadata={"page": "y", "j": 2}).metadata == {"k": 1, "j": 2}
    assert names(heard) == ["on_thread_created", "on_thread_updated"]


@pytest.mark.parametrize("name", ["on_messages_saved", "on_messages_edited", "on_messages_deleted", "on_thread_copied"])
def test_a_feature_that_fails_undoes_the_whole_change(memory: Any, heard: list[tuple[Any, ...]], name: str) -> None:
    memory.save_messages([human("a")], thread_id="t", resource_id="r")
    before = (memory.get_thread("t"), memory.recall(thread_id="t").items)

    def fail(*_: Any) -> None:
        raise RuntimeError("feature")

    HOOKS[name](fail)
    calls = {
        "on_messages_saved": lambda: memory.save_messages([human("b")], thread_id="t"),
        "on_messages_edited": lambda: memory.save_messages([human("a", "new")], thread_id="t"),
        "on_messages_deleted": lambda: memory.delete_messages(["a"], thread_id="t"),
        "on_thread_copied": lambda: memory.copy_thread("t", new_thread_id="c"),
    }
    with pytest.raises(RuntimeError, match="feature"):
        calls[name]()
    assert (memory.get_thread("t"), memory.recall(thread_id="t").items) == before
    assert memory.get_thread("c") is None
