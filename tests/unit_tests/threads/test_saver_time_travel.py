"""The archive follows the state: turns, forks, edits, removals, interrupts, in every durability and channel kind."""

import asyncio

import pytest
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.types import Command, interrupt

from tests.unit_tests.threads.graphs import MODES, STATES, Bot, answer

pytestmark = pytest.mark.parametrize(
    ("kind", "mode", "awaits"),
    [(kind, mode, awaits) for kind in STATES for mode in MODES for awaits in (False, True)],
)


@pytest.fixture
def bot(memory_factory, kind, mode, awaits):
    memory = memory_factory("memory://")

    def make(**options):
        return Bot(memory, kind=kind, mode=mode, awaits=awaits, **options)

    return make


async def test_each_message_of_each_turn_is_archived_once_in_order(bot):
    chat = bot()
    for text in ("1", "2", "3", "4"):
        shown = await chat.say(text)
    assert shown == ["1", "a:1:1", "2", "a:2:3", "3", "a:3:5", "4", "a:4:7"]
    assert await chat.shown() == shown
    assert chat.archive() == shown


async def test_a_fork_shows_its_own_line_and_the_abandoned_turns_come_back_with_their_checkpoint(bot):
    chat = bot()
    for text in ("1", "2", "3"):
        await chat.say(text)
    left = await chat.config_after(6)
    old = await chat.config_after(2)
    assert await chat.say("other", old) == ["1", "a:1:1", "other", "a:other:3"]
    assert chat.archive() == ["1", "a:1:1", "other", "a:other:3"]
    assert await chat.say("more") == ["1", "a:1:1", "other", "a:other:3", "more", "a:more:5"]
    assert chat.archive() == ["1", "a:1:1", "other", "a:other:3", "more", "a:more:5"]
    assert chat.archive(left["configurable"]["checkpoint_id"]) == ["1", "a:1:1", "2", "a:2:3", "3", "a:3:5"]
    assert await chat.say("4", left) == ["1", "a:1:1", "2", "a:2:3", "3", "a:3:5", "4", "a:4:7"]
    assert chat.archive() == ["1", "a:1:1", "2", "a:2:3", "3", "a:3:5", "4", "a:4:7"]


async def test_two_lines_can_be_continued_in_turn(bot):
    chat = bot()
    await chat.say("1")
    root = await chat.config_after(2)
    await chat.say("left", root)
    left = (await chat.state()).config
    await chat.say("right", root)
    right = (await chat.state()).config
    for round_ in range(2):
        await chat.say(f"l{round_}", left)
        left = (await chat.state()).config
        assert chat.archive() == await chat.shown()
        await chat.say(f"r{round_}", right)
        right = (await chat.state()).config
        assert chat.archive() == await chat.shown()
    assert [t for t in chat.archive() if not t.startswith("a:")] == ["1", "right", "r0", "r1"]
    assert [t for t in chat.archive(left["configurable"]["checkpoint_id"]) if t[0] != "a"] == ["1", "left", "l0", "l1"]


async def test_running_from_an_old_checkpoint_without_input_moves_the_view_there(bot):
    chat = bot()
    await chat.say("1")
    await chat.say("2")
    old = next(
        (s.config for s in await chat.history() if s.next == ("model",) and len(s.values["messages"]) == 3), None
    )
    if old is None:
        pytest.skip("with durability exit no such checkpoint is kept")
    await chat.run(None, dict(old))
    shown = await chat.shown()
    assert len(shown) == 4
    assert chat.archive() == shown


async def test_an_update_of_an_old_state_with_the_same_id_is_an_override_of_its_own_line(bot):
    chat = bot()
    await chat.say("1")
    await chat.say("2")
    newest = (await chat.state()).config["configurable"]["checkpoint_id"]
    old = await chat.config_after(2)
    first = (await chat.state(old)).values["messages"][0]
    await chat.update(old, {"messages": [HumanMessage("one", id=first.id)]})
    assert await chat.shown() == ["one", "a:1:1"]
    assert chat.archive() == ["one", "a:1:1"]
    assert chat.archive(newest) == ["1", "a:1:1", "2", "a:2:3"]
    await chat.say("3")
    assert chat.archive() == await chat.shown()


async def test_an_edit_in_place_is_seen_from_then_on_and_not_by_a_fork_from_before_it(bot):
    chat = bot()
    await chat.say("1")
    before = (await chat.state()).config
    first = (await chat.state()).values["messages"][0]
    await chat.update(before, {"messages": [HumanMessage("edited", id=first.id)]})
    assert chat.archive() == ["edited", "a:1:1"]
    await chat.say("2")
    assert chat.archive() == ["edited", "a:1:1", "2", "a:2:3"] == await chat.shown()
    await chat.say("fork", before)
    assert chat.archive() == ["1", "a:1:1", "fork", "a:fork:3"] == await chat.shown()


async def test_removing_from_the_state_leaves_the_archive(bot):
    chat = bot()
    await chat.say("1")
    await chat.say("2")
    state = await chat.state()
    gone = [RemoveMessage(id=m.id) for m in state.values["messages"][:2]]
    await chat.update(state.config, {"messages": gone})
    assert await chat.shown() == ["2", "a:2:3"]
    assert chat.archive() == ["1", "a:1:1", "2", "a:2:3"]
    await chat.say("3")
    assert await chat.shown() == ["2", "a:2:3", "3", "a:3:3"]
    assert chat.archive() == ["1", "a:1:1", "2", "a:2:3", "3", "a:3:3"]
    await chat.update((await chat.state()).config, {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES)]})
    assert await chat.shown() == []
    await chat.say("4")
    assert chat.archive() == ["1", "a:1:1", "2", "a:2:3", "3", "a:3:3", "4", "a:4:1"]


async def test_a_trim_within_a_run_keeps_what_it_trims_in_the_archive(bot, kind):
    def trim(state):
        messages = state["messages"]
        if len(messages) <= 3:
            return {}
        return {"messages": [RemoveMessage(id=m.id) for m in messages[:-2]]}

    chat = bot(nodes=(("model", answer), ("trim", trim)))
    for text in ("1", "2", "3"):
        await chat.say(text)
    assert len(await chat.shown()) <= 3
    assert chat.archive()[0] == "1"
    assert len(chat.archive()) == 6


async def test_a_message_added_and_taken_back_within_one_run_leaves_the_archive(bot, mode):
    def guard(state):
        last = state["messages"][-1]
        if "secret" not in state["messages"][-2].text:
            return {}
        return {"messages": [RemoveMessage(id=last.id), AIMessage("blocked")]}

    chat = bot(nodes=(("model", answer), ("guard", guard)))
    await chat.say("hello")
    await chat.say("secret")
    assert await chat.shown() == ["hello", "a:hello:1", "secret", "blocked"]
    assert chat.archive() == ["hello", "a:hello:1", "secret", "blocked"]
    await chat.say("bye")
    assert chat.archive() == await chat.shown()


async def test_a_summary_of_another_middleware_is_kept_apart_and_what_it_replaced_stays(bot):
    def summarize(state):
        messages = state["messages"]
        if len(messages) < 5:
            return {}
        summary = HumanMessage("Summary", additional_kwargs={"lc_source": "summarization"})
        return {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES), summary, *messages[-1:]]}

    chat = bot(nodes=(("summarize", summarize), ("model", answer)))
    for text in ("1", "2", "3"):
        await chat.say(text)
    assert await chat.shown() == ["Summary", "3", "a:3:2"]
    visible = [t for t in chat.archive() if t != "Summary"]
    assert visible == ["1", "a:1:1", "2", "a:2:3", "3", "a:3:2"]
    kinds = {m.message.text: m.kind for m in chat.memory.recall(thread_id="t", per_page=False, hide_signals=False)}
    assert kinds["Summary"] == "summary"
    assert kinds["1"] == "message"


async def test_an_interrupted_run_goes_on_where_it_stopped(bot):
    def ask(state):
        return {"note": interrupt("ok?")}

    chat = bot(nodes=(("ask", ask), ("model", answer)))
    await chat.run({"messages": [HumanMessage("1")]})
    assert (await chat.state()).next == ("ask",)
    assert await chat.run(Command(resume="yes")) == ["1", "a:1:1"]
    assert (await chat.state()).values["note"] == "yes"
    await chat.run({"messages": [HumanMessage("2")]})
    await chat.run(Command(resume="no"))
    assert chat.archive() == ["1", "a:1:1", "2", "a:2:3"] == await chat.shown()


async def test_a_deleted_message_does_not_come_back_and_is_in_no_checkpoint(bot):
    chat = bot()
    await chat.say("keep 1")
    await chat.say("delete me")
    state = (await chat.state()).values["messages"]
    chat.memory.delete_messages([state[2].id], thread_id="t")
    assert chat.archive() == ["keep 1", "a:keep 1:1", "a:delete me:3"]
    assert await chat.shown() == ["keep 1", "a:keep 1:1", "a:delete me:3"]
    for snapshot in await chat.history():
        assert all(m.text != "delete me" for m in snapshot.values.get("messages", []))
    await chat.say("3")
    assert chat.archive() == ["keep 1", "a:keep 1:1", "a:delete me:3", "3", "a:3:4"]
    for saved in chat.saver.list(chat.config()):
        assert "delete me'" not in repr(saved).replace("a:delete me", "")


async def test_a_message_saved_from_outside_joins_the_view_and_forces_no_line(bot):
    chat = bot()
    await chat.say("1")
    chat.memory.save_messages([HumanMessage("from outside", id="out")], thread_id="t")
    await chat.say("2")
    assert chat.archive() == ["1", "a:1:1", "from outside", "2", "a:2:3"]
    assert len(chat.memory.list_branches("t")) == 1


async def test_an_edit_from_outside_is_not_undone_by_the_next_turn_or_a_fork(bot):
    chat = bot()
    await chat.say("1")
    await chat.say("2")
    old = await chat.config_after(2)
    first = (await chat.state()).values["messages"][0]
    chat.memory.update_messages([{"id": first.id, "content": "redacted"}], thread_id="t")
    await chat.say("3")
    assert chat.archive()[0] == "redacted"
    await chat.say("fork", old)
    assert chat.archive()[0] == "redacted"
    assert chat.archive()[2] == "fork"


async def test_two_runs_at_once_on_one_thread_leave_the_view_of_the_newest_checkpoint(bot, awaits):
    if not awaits:
        pytest.skip("two runs at once are awaited together")
    chat = bot()
    await chat.say("1")
    await asyncio.gather(chat.say("left"), chat.say("right"))
    assert chat.archive() == await chat.shown()
    await chat.say("2")
    assert chat.archive() == await chat.shown()


async def test_a_thread_deleted_in_mid_run_holds_only_what_came_afterwards(bot):
    def forget(state):
        chat.memory.delete_thread("t")
        return {}

    chat = bot(nodes=(("model", answer), ("forget", forget), ("again", answer)))
    await chat.say("1")
    state = await chat.shown()
    assert state[-1].startswith("a:1")
    assert set(chat.archive()) <= set(state)
    await chat.say("2")


async def test_a_message_changed_in_place_by_a_node_is_saved_as_it_is(bot, kind):
    if kind == "delta":
        pytest.skip("a DeltaChannel is rebuilt from its writes: what a node does in place is lost there")

    def mutate(state):
        state["messages"][0].content = "mutated"
        return {"messages": []}

    chat = bot(nodes=(("model", answer), ("mutate", mutate)))
    await chat.say("1")
    assert await chat.shown() == ["mutated", "a:1:1"]
    await chat.say("2")
    assert (await chat.shown())[0] == "mutated"
    assert chat.archive() == await chat.shown()


async def test_nodes_may_return_messages_as_dicts(bot):
    def plain(state):
        return {"messages": [{"role": "assistant", "content": f"d{len(state['messages'])}"}]}

    chat = bot(nodes=(("model", plain),))
    await chat.run({"messages": [{"role": "user", "content": "1"}]})
    await chat.run({"messages": [("user", "2")]})
    assert chat.archive() == ["1", "d1", "2", "d3"] == await chat.shown()
