"""The record of a run, kept in the state by a middleware, decides what of the run counts."""

from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, message_to_dict
from langgraph.graph import END, START, StateGraph, add_messages
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

from langchain_mastra_memory.store.sql import cascade
from langchain_mastra_memory.threads.runs import RunReport, dump_replacement, load_replacement, report_of
from tests.unit_tests.threads.graphs import MODES


def merge(left, right):
    return {**(left or {}), **(right or {})}


class State(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], add_messages]
    memory_run: Annotated[dict[str, Any], merge]


def record(status, **more):
    return {"memory_run": {"MastraMemory": {"status": status, "saver": True, **more}}}


CONFIG = {"configurable": {"thread_id": "t"}}


class Agent:
    """A graph with a record: it opens the run, answers, and closes it with a verdict."""

    def __init__(self, memory, mode, verdict="complete", **closing):
        self.memory, self.mode, self.during = memory, mode, []

        def model(state):
            self.during.append(self.visible())
            if verdict == "crash":
                raise RuntimeError("no model")
            return {"messages": [AIMessage(f"a{len(state['messages'])}", id=f"a{len(state['messages'])}")]}

        def close(state):
            ids = [m.id for m in state["messages"]] if verdict == "complete" else []
            return record(verdict, **{"ids": ids, **{k: v(state) for k, v in closing.items()}})

        builder = StateGraph(State)
        builder.add_node("open", lambda state: record("open"))
        builder.add_node("model", model)
        builder.add_node("close", close)
        builder.add_edge(START, "open")
        builder.add_edge("open", "model")
        builder.add_edge("model", "close")
        builder.add_edge("close", END)
        self.graph = builder.compile(checkpointer=memory.checkpointer)

    def say(self, text, message_id):
        self.graph.invoke({"messages": [HumanMessage(text, id=message_id)]}, CONFIG, durability=self.mode)

    def visible(self):
        if self.memory.get_thread("t") is None:
            return []
        return [m.message.text for m in self.memory.recall(thread_id="t", per_page=False)]


@pytest.fixture(params=MODES)
def mode(request):
    return request.param


def test_a_complete_run_becomes_visible_at_its_end(memory_factory, mode):
    agent = Agent(memory_factory("memory://"), mode)
    agent.say("1", "h1")
    agent.say("2", "h2")
    assert agent.visible() == ["1", "a1", "2", "a3"]
    assert agent.during in ([[], ["1", "a1"]], [["1"], ["1", "a1"]])


def test_a_refused_run_is_kept_with_the_checkpoint_and_shown_nowhere(memory_factory, mode):
    memory = memory_factory("memory://")
    Agent(memory, mode).say("1", "h1")
    Agent(memory, mode, "refused").say("bad", "h2")
    good = Agent(memory, mode, ids=lambda state: [m.id for m in state["messages"] if m.id not in ("h2", "a3")])
    assert good.visible() == ["1", "a1"]
    assert len(good.graph.get_state(CONFIG).values["messages"]) == 4
    good.say("3", "h3")
    assert good.visible() == ["1", "a1", "3", "a5"]


def test_a_run_that_an_exception_ended_saves_nothing_visible(memory_factory, mode):
    memory = memory_factory("memory://")
    Agent(memory, mode).say("1", "h1")
    with pytest.raises(RuntimeError, match="no model"):
        Agent(memory, mode, "crash").say("lost", "h2")
    assert Agent(memory, mode).visible() == ["1", "a1"]


def test_a_run_that_was_interrupted_counts_whole_when_it_is_complete(memory_factory, mode):
    memory = memory_factory("memory://")
    builder = StateGraph(State)
    builder.add_node("open", lambda state: record("open"))
    builder.add_node("first", lambda state: {"messages": [AIMessage("before", id="b")]})
    builder.add_node("ask", lambda state: {"messages": [AIMessage(interrupt("?"), id="c")]})
    builder.add_node("last", lambda state: {"messages": [AIMessage("after", id="d")]})
    builder.add_node("close", lambda state: record("complete", ids=[m.id for m in state["messages"]]))
    for left, right in zip(
        (START, "open", "first", "ask", "last", "close"), ("open", "first", "ask", "last", "close", END), strict=True
    ):
        builder.add_edge(left, right)
    graph = builder.compile(checkpointer=memory.checkpointer)

    def visible():
        return [m.message.text for m in memory.recall(thread_id="t", per_page=False)]

    graph.invoke({"messages": [HumanMessage("1", id="a")]}, CONFIG, durability=mode)
    assert visible() == []
    graph.invoke(Command(resume="answer"), CONFIG, durability=mode)
    assert visible() == ["1", "before", "answer", "after"]


def test_only_the_named_messages_count_and_replacements_are_archived(memory_factory, mode):
    memory = memory_factory("memory://")
    redacted = HumanMessage("my PIN is ****", id="h1")
    agent = Agent(
        memory,
        mode,
        ids=lambda state: ["h1"],
        replaced=lambda state: {"h1": message_to_dict(redacted)},
    )
    agent.say("my PIN is 4711", "h1")
    assert agent.visible() == ["my PIN is ****"]
    assert agent.graph.get_state(CONFIG).values["messages"][0].text == "my PIN is 4711"


def test_features_see_the_messages_of_a_run_when_it_counts_and_not_before(memory_factory, mode):
    memory = memory_factory("memory://")
    seen: list[str] = []

    def watch(tx, thread, rows, features):
        seen.extend(f"{row.message.text}:{row.kind}" for row in rows)

    cascade.on_messages_saved(watch)
    try:
        Agent(memory, mode, "refused").say("bad", "h0")
        refused = list(seen)
        seen.clear()
        Agent(memory, mode).say("1", "h1")
    finally:
        cascade.on_messages_saved._joined.pop(f"{watch.__module__}.{watch.__qualname__}")
    assert refused in ([], ["bad:None"])
    assert seen[-2:] in (["1:None", "a3:None"], ["1:None", "a1:None"])


def test_a_record_that_was_closed_before_belongs_to_the_run_before():
    closed = {"m": {"status": "complete", "saver": True, "ids": ["a"]}}
    assert report_of(None, moved=False, source="loop") == RunReport()
    assert report_of({"m": {"status": "open", "saver": False}}, moved=True, source="loop") == RunReport()
    assert report_of({"m": {"status": "open", "saver": True}}, moved=True, source="loop").status == "open"
    assert report_of(closed, moved=True, source="loop") == RunReport("complete", ("a",), {})
    assert report_of(closed, moved=False, source="loop").status == "open"
    assert report_of(closed, moved=False, source="update").status == "final"
    assert report_of({"m": {"status": "refused", "saver": True}}, moved=True, source="loop").status == "refused"
    off = {"status": "off", "saver": True}
    assert report_of({"m": off}, moved=False, source="loop").status == "off"
    assert report_of({"m": off}, moved=True, source="input").status == "off"
    assert report_of({"m": off}, moved=False, source="input").status == "open"
    assert report_of({"m": {**off, "end": "a"}}, moved=True, source="loop").status == "off"
    assert report_of({"m": {**off, "end": "a"}}, moved=False, source="input").status == "open"
    assert report_of({"m": {**off, "end": "a"}}, moved=False, source="update").status == "final"


def test_a_replacement_survives_the_record():
    message = HumanMessage("x", id="1", additional_kwargs={"t": (1, 2)})
    from langchain_mastra_memory.codec import load_message

    assert load_message(load_replacement(dump_replacement(message))) == message
    assert load_message(load_replacement(message_to_dict(HumanMessage("y", id="2")))) == HumanMessage("y", id="2")
    assert load_replacement(dump_replacement(None)) is None


@pytest.mark.parametrize("switch", [{"off": True}, {"read_only": True}, {"last_messages": False}, {"last_messages": 0}])
def test_a_run_with_memory_off_is_checkpointed_and_not_archived(memory_factory, switch):
    memory = memory_factory("memory://")
    builder = StateGraph(State)
    builder.add_node("n", lambda state: {"messages": [AIMessage("a")]})
    builder.add_edge(START, "n")
    builder.add_edge("n", END)
    graph = builder.compile(checkpointer=memory.checkpointer)
    graph.invoke({"messages": [HumanMessage("1")]}, {"configurable": {"thread_id": "t", "memory": switch}})
    assert len(graph.get_state(CONFIG).values["messages"]) == 2
    assert len(memory.recall(thread_id="t", per_page=False)) == 0
    graph.invoke({"messages": [HumanMessage("2")]}, CONFIG)
    assert [m.message.text for m in memory.recall(thread_id="t", per_page=False)] == ["2", "a"]
