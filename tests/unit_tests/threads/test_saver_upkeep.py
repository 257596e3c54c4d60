"""Pruning, copying, removing runs and deleted messages, with channels that are rebuilt from their writes."""

from typing import get_type_hints
from uuid import uuid4

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.channels import DeltaChannel

from langchain_mastra_memory.errors import ConfigurationError, InvalidIdError, ThreadNotFoundError
from langchain_mastra_memory.threads.putting import Putting
from langchain_mastra_memory.threads.saver import ThreadSaver
from tests.unit_tests.threads.graphs import STATES, Bot, answer, texts

KINDS = pytest.mark.parametrize("kind", list(STATES))


@pytest.fixture
def make(memory_factory, store_url):
    memory = memory_factory(store_url)
    return lambda **options: Bot(memory, **options)


def checkpoints(chat, ns=""):
    return list(chat.saver.list({"configurable": {"thread_id": chat.thread_id, "checkpoint_ns": ns}}))


@KINDS
async def test_pruning_keeps_the_newest_state_and_the_whole_archive(make, kind):
    chat = make(kind=kind)
    for text in ("1", "2", "3", "4", "5"):
        shown = await chat.say(text)
    before = len(checkpoints(chat))
    chat.saver.prune(["t", "missing"])
    kept = checkpoints(chat)
    assert len(kept) == 1 if kind == "add_messages" else len(kept) < before
    assert kept[0].checkpoint["id"] == max(c.checkpoint["id"] for c in kept)
    assert await chat.shown() == shown == chat.archive()
    ids = {c.checkpoint["id"] for c in kept}
    assert all(c.parent_config is None or c.parent_config["configurable"]["checkpoint_id"] in ids for c in kept)
    fresh = Bot(chat.memory, kind=kind, saver=ThreadSaver(chat.memory))
    assert (await fresh.say("6"))[:10] == shown
    assert chat.archive() == await chat.shown()


@KINDS
async def test_pruning_everything_leaves_an_archive_that_the_next_run_continues(make, kind):
    chat = make(kind=kind)
    await chat.say("1")
    chat.saver.prune(["t"], strategy="delete")
    assert checkpoints(chat) == []
    assert chat.archive() == ["1", "a:1:1"]
    await chat.say("2")
    assert chat.archive() == ["1", "a:1:1", "2", "a:2:1"]
    with pytest.raises(ConfigurationError, match="strategy"):
        chat.saver.prune(["t"], strategy="keep_some")


@pytest.mark.parametrize("mode", ["sync", "async"])
async def test_the_memory_prunes_a_thread_of_its_owner_and_keeps_what_is_remembered(make, mode):
    async def prune(thread_id, **options):
        memory = chat.memory
        return memory.prune(thread_id, **options) if mode == "sync" else await memory.aprune(thread_id, **options)

    chat = make()
    chat.memory.create_thread("r", thread_id="t")
    for text in ("1", "2", "3"):
        shown = await chat.say(text)
    before = len(checkpoints(chat))
    assert await prune("missing") == 0
    for thread_id, owner in (("t", "somebody else"), ("missing", "r")):
        with pytest.raises(ThreadNotFoundError, match="for this resource"):
            await prune(thread_id, resource_id=owner)
    with pytest.raises(ConfigurationError, match="strategy"):
        await prune("t", strategy="keep_some")
    assert len(checkpoints(chat)) == before
    assert await prune("t") == before - 1
    assert await chat.shown() == shown == chat.archive()
    assert await prune("t", strategy="delete") == 1
    assert checkpoints(chat) == []
    assert chat.archive() == shown


@pytest.mark.parametrize("is_read", [False, True], ids=["pruned", "pruned and read by another run"])
async def test_a_fork_whose_checkpoint_is_pruned_as_it_begins_keeps_everything(make, monkeypatch, is_read):
    """The other process prunes, the other run of this one learns of it, both after the fork has looked at its parent."""
    chat = make()
    for text in ("1", "2", "3"):
        await chat.run({"messages": [HumanMessage(text)], "note": text * 30_000})
    fork = await chat.config_after(4)
    look_at_parent = Putting._parent
    looks = []

    async def pruned_then(self, *args):
        parent = await look_at_parent(self, *args)
        if not looks:
            looks.append(parent)
            ThreadSaver(chat.memory).prune(["t"])
            if is_read:
                chat.saver.get_tuple(chat.config())
        return parent

    monkeypatch.setattr(Putting, "_parent", pruned_then)
    shown = await chat.say("again", fork)
    assert shown == ["1", "a:1:1", "2", "a:2:3", "again", "a:again:5"]
    fresh = Bot(chat.memory, saver=ThreadSaver(chat.memory))
    state = await fresh.state()
    assert state.values["note"] == "2" * 30_000
    assert await fresh.shown() == shown == fresh.archive()


async def test_pruning_removes_the_bodies_that_nothing_points_to(make):
    from tests.unit_tests.threads.test_saver import bodies_of

    chat = make()
    for text in ("1", "2", "3"):
        await chat.say(text)
    state = await chat.state()
    await chat.update(state.config, {"messages": [HumanMessage("edited", id=state.values["messages"][0].id)]})
    assert len(bodies_of(chat.saver)) == 7
    chat.saver.prune(["t"])
    assert len(bodies_of(chat.saver)) == 6
    assert (await chat.shown())[0] == "edited"


@KINDS
async def test_a_copy_is_whole_and_goes_on_by_itself(make, kind):
    chat = make(kind=kind)
    await chat.say("1")
    old = await chat.config_after(2)
    await chat.say("2")
    await chat.say("fork", old)
    chat.saver.copy_thread("t", "copy")
    copy = Bot(chat.memory, kind=kind, thread_id="copy")
    assert await copy.shown() == ["1", "a:1:1", "fork", "a:fork:3"] == copy.archive()
    assert len(await copy.history()) == len(await chat.history())
    await copy.say("only here")
    assert "only here" not in chat.archive()
    assert await chat.shown() == ["1", "a:1:1", "fork", "a:fork:3"]
    back = await copy.config_after(4)
    newest = [s for s in await copy.history() if len(s.values["messages"]) == 4 and not s.next]
    assert {tuple(texts(s.values["messages"]))[2] for s in newest} == {"2", "fork"}
    assert copy.archive(back["configurable"]["checkpoint_id"])[2] == "fork"
    with pytest.raises(InvalidIdError, match="has messages or checkpoints"):
        chat.saver.copy_thread("t", "copy")


@KINDS
async def test_removing_a_run_moves_the_thread_back_and_keeps_what_is_left(make, kind):
    chat = make(kind=kind)
    runs = [str(uuid4()) for _ in range(3)]
    for text, run_id in zip("123", runs, strict=True):
        await chat.say(text, {**chat.config(), "metadata": {"run_id": run_id}})
    chat.saver.delete_for_runs([runs[2]])
    assert await chat.shown() == ["1", "a:1:1", "2", "a:2:3"] == chat.archive()
    await chat.say("again")
    assert chat.archive() == ["1", "a:1:1", "2", "a:2:3", "again", "a:again:5"] == await chat.shown()


async def test_removing_a_run_in_the_middle_does_not_empty_later_states(make):
    chat = make(kind="delta")
    runs = [str(uuid4()) for _ in range(2)]
    for text, run_id in zip("12", runs, strict=True):
        shown = await chat.say(text, {**chat.config(), "metadata": {"run_id": run_id}})
    chat.saver.delete_for_runs([runs[0]])
    assert all(c.metadata.get("run_id") != runs[0] for c in checkpoints(chat))
    assert await chat.shown() == shown


@KINDS
@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_the_history_of_a_delta_channel_is_its_seed_and_the_writes_since(memory_factory, kind, durability):
    memory = memory_factory("memory://")
    chat = Bot(memory, kind=kind, mode=durability)
    for text in ("1", "2", "3"):
        await chat.say(text)
    newest = chat.config((await chat.state()).config["configurable"]["checkpoint_id"])
    newest["configurable"]["checkpoint_ns"] = ""
    ours = chat.saver.get_delta_channel_history(config=newest, channels=["messages", "nothing"])
    base = super(ThreadSaver, chat.saver).get_delta_channel_history(config=newest, channels=["messages", "nothing"])
    assert ours == base
    assert await chat.saver.aget_delta_channel_history(config=newest, channels=["messages", "nothing"]) == ours
    assert chat.saver.get_delta_channel_history(config=newest, channels=[]) == {}
    assert ours["nothing"] == {"writes": []}


async def test_a_delta_history_leaves_out_the_targets_own_writes_and_follows_parents_only(make):
    chat = make(kind="delta")
    await chat.say("1")
    old = await chat.config_after(2)
    await chat.say("2")
    await chat.say("fork", old)
    assert await chat.shown() == ["1", "a:1:1", "fork", "a:fork:3"]
    for snapshot in await chat.history():
        again = (await chat.state(snapshot.config)).values.get("messages", [])
        assert texts(again) == texts(snapshot.values.get("messages", []))


async def test_a_graph_may_change_to_a_delta_channel_and_back(make):
    plain, delta = make(kind="add_messages"), make(kind="delta")
    await plain.say("1")
    await delta.say("2")
    await delta.say("3")
    assert await delta.shown() == ["1", "a:1:1", "2", "a:2:3", "3", "a:3:5"] == delta.archive()
    await plain.say("4")
    assert len(await plain.shown()) == 8
    assert plain.archive() == await plain.shown()


@KINDS
@pytest.mark.parametrize("kept", ["ids", "no ids", "dicts", "tuples"])
async def test_a_deleted_message_is_nowhere_in_the_database_file(memory_factory, tmp_path, kind, kept):
    path = tmp_path / "m.db"
    memory = memory_factory(f"sqlite:///{path}")

    def reply(state):
        return {"messages": [AIMessage(f"reply {len(state['messages'])}", id=str(uuid4()) if kept == "ids" else None)]}

    chat = Bot(memory, kind=kind, nodes=(("model", reply),))
    question = {
        "ids": HumanMessage("my PIN is 4711", id="q"),
        "no ids": HumanMessage("my PIN is 4711"),
        "dicts": {"role": "user", "content": "my PIN is 4711"},
        "tuples": ("user", "my PIN is 4711"),
    }[kept]
    await chat.run({"messages": [question]})
    await chat.say("next")
    first = (await chat.state()).values["messages"][0]
    memory.delete_messages([first.id], thread_id="t")
    assert "my PIN is 4711" not in await chat.shown()
    for saved in chat.saver.list(None):
        assert "PIN is" not in repr(saved)
    from langchain_mastra_memory.store.sql import tables_checkpoints as tables
    from tests.unit_tests.threads.test_saver import rows

    for table in (tables.checkpoints, tables.bodies, tables.values, tables.writes):
        assert all(
            b"PIN is" not in value for row in rows(chat.saver, table) for value in row if isinstance(value, bytes)
        )
    await chat.say("after")
    assert chat.archive() == await chat.shown()


@KINDS
async def test_a_message_deleted_in_mid_run_is_in_no_later_state(make, kind):
    def delete(state):
        chat.memory.delete_messages([state["messages"][-2].id], thread_id="t")
        return {}

    chat = make(kind=kind, nodes=(("model", answer), ("delete", delete), ("again", answer)))
    await chat.say("1")
    if kind == "add_messages":
        assert "1" not in await chat.shown()
    assert "1" not in chat.archive()
    fresh = Bot(chat.memory, kind=kind, saver=ThreadSaver(chat.memory))
    assert "1" not in await fresh.shown()


@KINDS
async def test_a_cleared_thread_begins_anew_in_state_and_archive(make, kind):
    chat = make(kind=kind)
    await chat.say("1")
    await chat.say("2")
    chat.memory.clear_thread("t")
    assert chat.archive() == []
    assert await chat.shown() == []
    assert await chat.say("3") == ["3", "a:3:1"]
    assert chat.archive() == ["3", "a:3:1"]


async def test_deleting_a_thread_removes_every_checkpoint_and_says_how_many(make):
    chat = make()
    await chat.say("1")
    count = len(checkpoints(chat))
    deleted = chat.memory.delete_thread("t")
    assert (deleted.threads, deleted.messages, deleted.checkpoints) == (1, 2, count)
    assert checkpoints(chat) == []
    assert await chat.say("1") == ["1", "a:1:1"]
    chat.saver.delete_thread("t")
    chat.saver.delete_thread("t")
    assert chat.memory.get_thread("t") is None


def test_the_delta_state_of_these_tests_is_one():
    hints = get_type_hints(STATES["delta"], include_extras=True)
    assert isinstance(hints["messages"].__metadata__[0], DeltaChannel)
    assert answer({"messages": [HumanMessage("x")]})["messages"][0].text == "a:x:1"
