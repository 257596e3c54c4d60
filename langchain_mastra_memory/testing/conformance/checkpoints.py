"""Conformance: checkpoints of real graphs, and the archive that follows them.

The cases run LangGraph on a `ThreadSaver` over the store and read with a new saver, which knows nothing but the store.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, RemoveMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple, empty_checkpoint
from langgraph.graph import END, START, MessagesState, StateGraph

from langchain_mastra_memory.errors import InvalidIdError, ThreadNotFoundError
from langchain_mastra_memory.store.base import Group
from langchain_mastra_memory.store.operations.checkpoints import Address, GetCheckpoint, PutCheckpoint, Stale
from langchain_mastra_memory.store.operations.messages import DeleteMessages, ListMessages
from langchain_mastra_memory.store.operations.threads import CreateThread, DeleteThread, GetThread, ListBranches
from langchain_mastra_memory.testing.conformance.registry import case, probe
from langchain_mastra_memory.testing.conformance.session import Session
from langchain_mastra_memory.testing.conformance.threads import make, say, texts_of
from langchain_mastra_memory.threads.entries import Entry, Skeleton
from langchain_mastra_memory.threads.saver import ThreadSaver

ARCHIVED: Final[tuple[Group, ...]] = ("threads", "messages")


@probe("checkpoints")
async def reading_the_checkpoints_of_an_unknown_thread(s: Session) -> None:
    """Gives none."""
    read = await s.run(GetCheckpoint(address=Address(s.new("nothing"))))
    assert read.checkpoints == ()


class Chat:
    """A conversation of a graph that answers every message, over the store of a case."""

    def __init__(self, s: Session, thread_id: str | None = None, **configurable: Any) -> None:
        self.s = s
        self.saver = ThreadSaver(s.store)
        self.thread_id = thread_id or s.new("thread")
        self.config: RunnableConfig = {"configurable": {"thread_id": self.thread_id, **configurable}}
        graph = StateGraph(MessagesState)
        graph.add_node("answer", _answer)
        graph.add_edge(START, "answer")
        graph.add_edge("answer", END)
        self.graph = graph.compile(checkpointer=self.saver)

    async def say(self, text: str, *, config: RunnableConfig | None = None, **metadata: Any) -> list[str]:
        """Run one turn and return the texts of the state."""
        run: RunnableConfig = {**(config or self.config), "metadata": metadata}
        message: MessagesState = {"messages": [HumanMessage(text, id=self.s.new("message"))]}
        state = await self.graph.ainvoke(message, run) if self.s.is_async else self.graph.invoke(message, run)
        return [str(found.text) for found in state["messages"]]

    async def put_state(self, values: Mapping[str, Any]) -> None:
        """Change the state by hand."""
        if self.s.is_async:
            await self.graph.aupdate_state(self.config, dict(values))
        else:
            self.graph.update_state(self.config, dict(values))

    async def newest(self, config: RunnableConfig | None = None) -> CheckpointTuple | None:
        """Read a checkpoint with a saver that knows nothing but the store."""
        saver = ThreadSaver(self.s.store)
        return (
            await saver.aget_tuple(config or self.config) if self.s.is_async else saver.get_tuple(config or self.config)
        )

    async def state(self, config: RunnableConfig | None = None) -> list[str]:
        """Return the texts of a checkpoint's messages."""
        found = await self.newest(config)
        values = found.checkpoint["channel_values"] if found else {}
        return [str(message.text) for message in values.get("messages", [])]

    async def history(self, **more: Any) -> list[CheckpointTuple]:
        """Return the checkpoints, newest first."""
        saver = ThreadSaver(self.s.store)
        if self.s.is_async:
            return [found async for found in saver.alist(self.config, **more)]
        return list(saver.list(self.config, **more))

    async def after(self, text: str) -> RunnableConfig:
        """Return the config of the checkpoint at the end of the turn that `text` was answered in."""
        for found in await self.history():
            messages: list[BaseMessage] = found.checkpoint["channel_values"].get("messages", [])
            if messages and str(messages[-1].text) == f"re: {text}" and found.metadata.get("source") == "loop":
                return found.config
        raise AssertionError(f"no checkpoint after {text!r}")


def _answer(state: MessagesState) -> dict[str, Any]:
    return {"messages": [AIMessage(f"re: {state['messages'][-1].text}")]}


def turns(*texts: str) -> list[str]:
    """Return a conversation's texts."""
    return [part for text in texts for part in (text, f"re: {text}")]


@case("checkpoints", needs=ARCHIVED)
async def a_conversation_goes_on_where_another_saver_left_it(s: Session) -> None:
    chat = Chat(s)
    assert await chat.say("one") == turns("one")
    other = Chat(s, chat.thread_id)
    assert await other.say("two") == turns("one", "two")
    assert await chat.say("three") == turns("one", "two", "three")
    assert await chat.state() == turns("one", "two", "three")


@case("checkpoints", needs=ARCHIVED)
async def the_archive_has_each_message_of_the_conversation_once_and_in_order(s: Session) -> None:
    chat = Chat(s)
    for text in ("one", "two", "three"):
        await chat.say(text)
    assert await texts_of(s, chat.thread_id) == turns("one", "two", "three")
    found = await chat.newest()
    assert found is not None
    page = await s.run(ListMessages(thread_ids=(chat.thread_id,), per_page=False))
    assert [stored.message for stored in page] == found.checkpoint["channel_values"]["messages"]
    assert not any(stored.outside for stored in page)


@case("checkpoints", needs=ARCHIVED)
async def a_fork_knows_nothing_of_what_came_later_and_the_other_line_comes_back(s: Session) -> None:
    chat = Chat(s)
    for text in ("one", "two"):
        await chat.say(text)
    first, second = await chat.after("one"), await chat.after("two")
    assert await chat.say("fork", config=first) == turns("one", "fork")
    assert await texts_of(s, chat.thread_id) == turns("one", "fork")
    assert len(await branches(s, chat)) == 2
    assert await chat.say("back", config=second) == turns("one", "two", "back")
    assert await texts_of(s, chat.thread_id) == turns("one", "two", "back")
    checkpoint_id = second["configurable"]["checkpoint_id"]
    then = await s.run(ListMessages(thread_ids=(chat.thread_id,), per_page=False, checkpoint_id=checkpoint_id))
    assert [str(stored.message.text) for stored in then] == turns("one", "two")


async def branches(s: Session, chat: Chat) -> list[int]:
    """Return the lines of a conversation."""
    return [line.branch for line in await s.run(ListBranches(thread_id=chat.thread_id))]


@case("checkpoints", needs=ARCHIVED)
async def a_message_trimmed_from_the_state_stays_in_the_archive(s: Session) -> None:
    chat = Chat(s)
    await chat.say("one")
    found = await chat.newest()
    assert found is not None
    oldest = found.checkpoint["channel_values"]["messages"][0]
    await chat.put_state({"messages": [RemoveMessage(id=oldest.id)]})
    assert await chat.state() == ["re: one"]
    await chat.say("two")
    assert await texts_of(s, chat.thread_id) == turns("one", "two")


@case("checkpoints", needs=ARCHIVED)
async def a_message_deleted_from_the_archive_is_not_brought_back_by_the_state(s: Session) -> None:
    chat = Chat(s)
    await chat.say("secret")
    page = await s.run(ListMessages(thread_ids=(chat.thread_id,), per_page=False))
    await s.run(DeleteMessages(thread_id=chat.thread_id, message_ids=(page[0].id,)))
    await chat.say("two")
    assert await texts_of(s, chat.thread_id) == ["re: secret", *turns("two")]
    for found in await chat.history():
        messages = found.checkpoint["channel_values"].get("messages", [])
        assert "secret" not in [str(message.text) for message in messages]


@case("checkpoints", needs=ARCHIVED)
async def only_the_owner_of_a_thread_reads_and_writes_its_checkpoints(s: Session) -> None:
    owner, thief = s.new("owner"), s.new("thief")
    chat = Chat(s, resource_id=owner)
    await chat.say("one")
    thread = await s.run(GetThread(thread_id=chat.thread_id))
    assert thread is not None
    assert thread.resource_id == owner
    other = Chat(s, chat.thread_id, resource_id=thief)
    for attempt in (other.say("two"), other.newest(), other.history()):
        try:
            await attempt
        except ThreadNotFoundError:
            continue
        raise AssertionError("another resource reached the checkpoints")
    assert await chat.state() == turns("one")


@case("checkpoints", needs=ARCHIVED)
async def a_thread_of_a_bare_checkpointer_is_adopted_by_the_first_that_names_itself(s: Session) -> None:
    chat = Chat(s)
    await chat.say("one")
    first = s.new("first")
    await s.run(CreateThread(thread_id=chat.thread_id, resource_id=first))
    await s.refused(ThreadNotFoundError, ListMessages(thread_ids=(chat.thread_id,), resource_id=s.new("second")))
    assert await Chat(s, chat.thread_id, resource_id=first).say("two") == turns("one", "two")


@case("checkpoints")
async def a_plan_that_counts_on_another_state_of_the_thread_writes_nothing(s: Session) -> None:
    thread_id = s.new("thread")
    skeleton = Skeleton(
        v=1, ts="2026-01-01", versions={"x": 1}, seen={}, updated=None, rest=None, entries={"x": Entry("bytes", b"new")}
    )
    put = PutCheckpoint(
        address=Address(thread_id), known=(1, 1), id="c1", parent=None, skeleton=skeleton, metadata='{"step":-1}'
    )
    refused = await s.run(put)
    assert isinstance(refused, Stale)
    assert (await s.run(GetCheckpoint(address=Address(thread_id)))).checkpoints == ()
    written = await s.run(replace(put, known=refused.state))
    assert not isinstance(written, Stale)
    again = await s.run(replace(put, known=None))
    assert not isinstance(again, Stale)
    read = await s.run(GetCheckpoint(address=Address(thread_id)))
    [stored] = read.checkpoints
    assert (stored.id, stored.parent, stored.metadata, stored.skeleton) == ("c1", None, '{"step":-1}', skeleton)


@case("checkpoints")
async def of_two_writes_of_one_index_the_first_stays_and_of_special_ones_the_last(s: Session) -> None:
    chat = Chat(s)
    saver, checkpoint = chat.saver, empty_checkpoint()
    start: RunnableConfig = {"configurable": {**chat.config["configurable"], "checkpoint_ns": ""}}
    if s.is_async:
        config = await saver.aput(start, checkpoint, {}, {})
    else:
        config = saver.put(start, checkpoint, {}, {})
    for value in ("first", "second"):
        for channel in ("data", "__error__"):
            if s.is_async:
                await saver.aput_writes(config, [(channel, value)], "task")
            else:
                saver.put_writes(config, [(channel, value)], "task")
    found = await chat.newest()
    assert found is not None
    assert sorted(found.pending_writes or []) == [("task", "__error__", "second"), ("task", "data", "first")]


@case("checkpoints")
async def namespaces_do_not_mix(s: Session) -> None:
    chat = Chat(s)
    for ns in ("", "child", "child|deeper", "child:1"):
        config: RunnableConfig = {"configurable": {"thread_id": chat.thread_id, "checkpoint_ns": ns}}
        checkpoint = empty_checkpoint()
        checkpoint["channel_values"], checkpoint["channel_versions"] = {"where": ns}, {"where": 1}
        if s.is_async:
            await chat.saver.aput(config, checkpoint, {}, {"where": 1})
        else:
            chat.saver.put(config, checkpoint, {}, {"where": 1})
    for ns in ("", "child", "child|deeper", "child:1"):
        found = await chat.newest({"configurable": {"thread_id": chat.thread_id, "checkpoint_ns": ns}})
        assert found is not None
        assert found.checkpoint["channel_values"] == {"where": ns}
    missing: RunnableConfig = {"configurable": {"thread_id": chat.thread_id, "checkpoint_ns": "chil"}}
    assert await chat.newest(missing) is None


@case("checkpoints")
async def checkpoints_are_listed_newest_first_and_can_be_narrowed(s: Session) -> None:
    chat = Chat(s)
    for text in ("one", "two"):
        await chat.say(text, turn=text)
    everything = await chat.history()
    ids = [found.checkpoint["id"] for found in everything]
    assert ids == sorted(ids, reverse=True)
    assert len(ids) == 6
    assert [found.checkpoint["id"] for found in await chat.history(limit=2)] == ids[:2]
    older = await chat.history(before=everything[2].config)
    assert [found.checkpoint["id"] for found in older] == ids[3:]
    one = await chat.history(filter={"turn": "one"})
    assert [found.checkpoint["id"] for found in one] == ids[3:]
    assert await chat.history(filter={"turn": "none"}) == []


@case("checkpoints", needs=ARCHIVED)
async def deleting_a_thread_removes_its_checkpoints_and_no_others(s: Session) -> None:
    chat, other = Chat(s), Chat(s)
    for each in (chat, other):
        await each.say("one")
    gone = await s.run(DeleteThread(thread_id=chat.thread_id))
    assert (gone.threads, gone.messages, gone.checkpoints) == (1, 2, 3)
    assert await chat.newest() is None
    assert await chat.history() == []
    assert await other.state() == turns("one")
    assert await chat.say("anew") == turns("anew")


@case("checkpoints", needs=ARCHIVED)
async def pruning_keeps_the_newest_state_and_the_whole_archive(s: Session) -> None:
    chat = Chat(s)
    for text in ("one", "two"):
        await chat.say(text)
    if s.is_async:
        await chat.saver.aprune([chat.thread_id], strategy="keep_latest")
    else:
        chat.saver.prune([chat.thread_id], strategy="keep_latest")
    assert len(await chat.history()) == 1
    assert await chat.state() == turns("one", "two")
    assert await texts_of(s, chat.thread_id) == turns("one", "two")
    assert await chat.say("three") == turns("one", "two", "three")


@case("checkpoints", needs=ARCHIVED)
async def a_copied_thread_has_state_and_archive_and_lives_on_its_own(s: Session) -> None:
    chat, target = Chat(s), s.new("target")
    await chat.say("one")
    await copy(s, chat, target)
    twin = Chat(s, target)
    assert await twin.say("in the copy") == turns("one", "in the copy")
    assert await chat.say("in the source") == turns("one", "in the source")
    assert await texts_of(s, target) == turns("one", "in the copy")
    try:
        await copy(s, chat, target)
    except InvalidIdError:
        return
    raise AssertionError("a copy went over a thread that has messages")


async def copy(s: Session, chat: Chat, target: str) -> None:
    """Copy a thread with its checkpoints."""
    if s.is_async:
        await chat.saver.acopy_thread(chat.thread_id, target)
    else:
        chat.saver.copy_thread(chat.thread_id, target)


@case("checkpoints", needs=ARCHIVED)
async def deleting_a_run_takes_the_thread_back_to_where_it_stood(s: Session) -> None:
    chat = Chat(s)
    await chat.say("one", run_id="run-" + chat.thread_id)
    await chat.say("two", run_id="second-" + chat.thread_id)
    run_ids = ["second-" + chat.thread_id]
    if s.is_async:
        await chat.saver.adelete_for_runs(run_ids)
    else:
        chat.saver.delete_for_runs(run_ids)
    assert await chat.state() == turns("one")
    assert await texts_of(s, chat.thread_id) == turns("one")


@case("checkpoints", needs=ARCHIVED)
async def many_conversations_at_once_keep_apart(s: Session) -> None:
    chats = [Chat(s) for _ in range(4)]
    for text in ("one", "two"):
        for index, chat in enumerate(chats):
            await chat.say(f"{text} {index}")
    for index, chat in enumerate(chats):
        assert await chat.state() == turns(f"one {index}", f"two {index}")
    [thread] = await make(s)
    await say(s, thread, ["beside"])
    assert await texts_of(s, thread.id) == ["beside"]
