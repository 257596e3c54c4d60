"""The page in a graph of one's own: nodes that return patches, load and save nodes, the tool in a ToolNode."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from pydantic import BaseModel

from langchain_mastra_memory.errors import WorkingMemoryError
from langchain_mastra_memory.store.operations.pages import ListPages, PageOwner
from langchain_mastra_memory.testing.models import ScriptedChatModel, tool_call
from langchain_mastra_memory.working_memory.channel import WorkingMemoryState
from langchain_mastra_memory.working_memory.options import WorkingMemory

CONFIG = {"configurable": {"thread_id": "t", "resource_id": "r"}}
UPDATE = "update_working_memory"


class State(MessagesState, WorkingMemoryState):
    llm_input_messages: list[Any]


class Profile(BaseModel):
    name: str | None = None
    age: int | None = None
    city: str | None = None


OBJECT = WorkingMemory(schema=Profile)
OWNER = PageOwner(scope="resource", resource_id="r", thread_id="t")

savers = pytest.mark.parametrize("saver", ["none", "foreign", "own"])


def chain(memory: Any, saver: str, *nodes: Any):
    graph = StateGraph(State)
    for name, node in nodes:
        graph.add_node(name, node)
    for before, after in itertools.pairwise([START, *(name for name, _ in nodes)]):
        graph.add_edge(before, after)
    kinds = {"none": lambda: None, "foreign": InMemorySaver, "own": lambda: memory.checkpointer}
    return graph.compile(checkpointer=kinds[saver]())


def loop(memory: Any, model: Any, saver: str = "own"):
    """Return the usual loop: load, model, tools, load, ..., save."""
    bound = model.bind_tools(memory.tools())
    graph = StateGraph(State)
    graph.add_node("load", memory.load_node(system="INSTR"))
    graph.add_node("model", lambda state: {"messages": [bound.invoke(state["llm_input_messages"])]})
    graph.add_node("tools", ToolNode(memory.tools()))
    graph.add_node("save", memory.save_node())
    graph.add_edge(START, "load")
    graph.add_edge("load", "model")
    graph.add_conditional_edges(
        "model", lambda s: "tools" if s["messages"][-1].tool_calls else "save", ["tools", "save"]
    )
    graph.add_edge("tools", "load")
    graph.add_edge("save", END)
    kinds = {"none": lambda: None, "foreign": InMemorySaver, "own": lambda: memory.checkpointer}
    return graph.compile(checkpointer=kinds[saver]())


def answer(_: Any) -> dict[str, Any]:
    return {"messages": [AIMessage("ok")]}


def ask(app: Any, text: str = "hi", config: Any = CONFIG) -> Any:
    return app.invoke({"messages": [("user", text)]}, config)


@savers
def test_what_nodes_return_joins_the_page_of_the_store(memory_factory, saver):
    memory = memory_factory(working_memory=OBJECT)
    memory.update_working_memory({"name": "Ann", "age": 3}, resource_id="r")
    app = chain(
        memory,
        saver,
        ("load", memory.load_node()),
        ("learn", lambda _: {"working_memory": {"city": "Oslo"}}),
        ("forget", lambda _: {"working_memory": {"age": None}}),
        ("answer", answer),
        ("save", memory.save_node()),
    )
    result = ask(app)
    assert result["working_memory"] == {"name": "Ann", "city": "Oslo"}
    assert memory.get_working_memory(resource_id="r") == {"name": "Ann", "city": "Oslo"}


@savers
def test_patches_join_what_somebody_else_has_written_meanwhile(memory_factory, saver):
    memory = memory_factory(working_memory=OBJECT)
    memory.update_working_memory({"name": "Ann", "age": 3}, resource_id="r")

    def others(_):
        memory.update_working_memory({"name": "Bob", "city": "Rome"}, resource_id="r")
        return {}

    app = chain(
        memory,
        saver,
        ("load", memory.load_node()),
        ("others", others),
        ("learn", lambda _: {"working_memory": {"age": None}}),
        ("answer", answer),
        ("save", memory.save_node()),
    )
    ask(app)
    assert memory.get_working_memory(resource_id="r") == {"name": "Bob", "city": "Rome"}


async def test_patches_are_saved_on_an_event_loop_too(memory_factory, store_url):
    memory = memory_factory(store_url, working_memory=OBJECT)
    await memory.aupdate_working_memory({"name": "Ann", "age": 3}, resource_id="r")

    async def others(_):
        await memory.aupdate_working_memory({"name": "Bob"}, resource_id="r")
        return {}

    app = chain(
        memory,
        "own",
        ("load", memory.load_node()),
        ("others", others),
        ("learn", lambda _: {"working_memory": {"age": None, "city": "Oslo"}}),
        ("answer", answer),
        ("save", memory.save_node()),
    )
    await app.ainvoke({"messages": [("user", "hi")]}, CONFIG)
    assert await memory.aget_working_memory(resource_id="r") == {"name": "Bob", "city": "Oslo"}
    await memory.aclose()


@pytest.mark.parametrize("saver", ["foreign", "own"])
def test_patches_are_saved_once_by_any_number_of_turns_and_saves(memory_factory, saver):
    memory = memory_factory(working_memory=OBJECT)
    ages = itertools.count(1)
    app = chain(
        memory,
        saver,
        ("load", memory.load_node()),
        ("learn", lambda _: {"working_memory": {"age": next(ages)}}),
        ("answer", answer),
        ("save", memory.save_node()),
        ("save_again", memory.save_node()),
    )
    ask(app)
    memory.update_working_memory({"age": 100}, resource_id="r")
    loaded_only = chain(memory, saver, ("load", memory.load_node()), ("answer", answer))
    loaded_only.checkpointer = app.checkpointer
    assert ask(loaded_only)["working_memory"] == {"age": 100}
    assert [page.writer for page in memory.store.run(ListPages(owner=OWNER))] == ["code", "node"]


@pytest.mark.parametrize("saver", ["foreign", "own"])
def test_what_was_not_saved_before_a_crash_is_saved_by_the_next_turn(memory_factory, saver):
    memory = memory_factory(working_memory=OBJECT)
    crash = iter([True])

    def breaks(_):
        if next(crash, False):
            raise RuntimeError("power cut")
        return {}

    app = chain(
        memory,
        saver,
        ("load", memory.load_node()),
        ("learn", lambda state: {"working_memory": {"name": "Ann"}} if len(state["messages"]) == 1 else {}),
        ("breaks", breaks),
        ("answer", answer),
        ("save", memory.save_node()),
    )
    with pytest.raises(RuntimeError, match="power cut"):
        ask(app)
    assert memory.get_working_memory(resource_id="r") is None
    ask(app, "again")
    assert memory.get_working_memory(resource_id="r") == {"name": "Ann"}


@savers
def test_the_usual_loop_shows_the_page_and_keeps_it_through_the_turn(memory_factory, saver):
    memory = memory_factory(working_memory=OBJECT)
    model = ScriptedChatModel([tool_call(UPDATE, {"memory": {"name": "Ann"}}, id="c"), "ok", "hello"])
    app = loop(memory, model, saver)
    ask(app)
    ask(app, "who am I?")
    pages = [call.system.split("<working_memory_data>\n")[1].split("\n<")[0] for call in model.calls]
    assert pages == ["(nothing is known yet)", "(nothing is known yet)", '{"name":"Ann"}']
    assert memory.get_working_memory(resource_id="r") == {"name": "Ann"}


async def test_the_usual_loop_on_an_event_loop(memory_factory, store_url):
    memory = memory_factory(store_url, working_memory=OBJECT)
    model = ScriptedChatModel([tool_call(UPDATE, {"memory": {"name": "Ann"}}, id="c"), "ok"])
    result = await loop(memory, model).ainvoke({"messages": [("user", "hi")]}, CONFIG)
    assert result["working_memory"] == {"name": "Ann"}
    assert await memory.aget_working_memory(resource_id="r") == {"name": "Ann"}
    await memory.aclose()


@pytest.mark.parametrize("saver", ["foreign", "own"])
def test_in_the_loop_the_second_of_two_texts_is_refused_and_a_later_one_is_taken(memory_factory, saver):
    memory = memory_factory(working_memory=WorkingMemory(template="- Name:"))
    both = AIMessage(
        "",
        tool_calls=[
            {"name": UPDATE, "args": {"memory": text}, "id": text, "type": "tool_call"} for text in ("one", "two")
        ],
    )
    model = ScriptedChatModel([both, tool_call(UPDATE, {"memory": "one and two"}, id="c"), "ok"])
    result = ask(loop(memory, model, saver))
    assert sorted(m.status for m in result["messages"] if m.type == "tool") == ["error", "success", "success"]
    assert memory.get_working_memory(resource_id="r") == "one and two" == result["working_memory"]


@pytest.mark.parametrize("saver", ["foreign", "own"])
def test_a_fork_of_the_loop_has_the_page_of_its_thread_as_it_was(memory_factory, saver):
    memory = memory_factory(working_memory=WorkingMemory(scope="thread", schema=Profile))
    replies = [tool_call(UPDATE, {"memory": {"age": n}}, id="c") for n in (1, 2)]
    model = ScriptedChatModel([replies[0], "ok", replies[1], "ok", "later"])
    app = loop(memory, model, saver)
    ask(app)
    first = app.get_state(CONFIG).config
    ask(app)
    assert app.get_state(CONFIG).values["working_memory"] == {"age": 2}
    result = ask(app, "fork", {"configurable": {**first["configurable"], "resource_id": "r"}})
    assert result["working_memory"] == {"age": 1}
    assert '{"age":1}' in model.last_call.system
    assert memory.get_working_memory(thread_id="t") == {"age": 1}


@savers
def test_in_a_read_only_run_patches_live_until_its_end(memory_factory, saver):
    memory = memory_factory(working_memory=OBJECT)
    memory.update_working_memory({"name": "Ann"}, resource_id="r")
    app = chain(
        memory,
        saver,
        ("load", memory.load_node()),
        ("learn", lambda s: {"working_memory": {"city": "Oslo"}} if len(s["messages"]) == 1 else {}),
        ("answer", answer),
        ("save", memory.save_node()),
    )
    reading = {"configurable": {**CONFIG["configurable"], "memory": {"read_only": True}}}
    assert ask(app, config=reading)["working_memory"] == {"name": "Ann", "city": "Oslo"}
    assert memory.get_working_memory(resource_id="r") == {"name": "Ann"}


def test_a_patch_that_does_not_fit_the_schema_is_the_developers_mistake_and_raises(memory_factory):
    memory = memory_factory(working_memory=OBJECT)
    app = chain(
        memory,
        "none",
        ("load", memory.load_node()),
        ("learn", lambda _: {"working_memory": {"age": "old"}}),
        ("answer", answer),
        ("save", memory.save_node()),
    )
    with pytest.raises(WorkingMemoryError, match="age"):
        ask(app)
    assert memory.get_working_memory(resource_id="r") is None


def test_without_a_load_node_the_page_is_saved_as_it_stands(memory_factory):
    memory = memory_factory(working_memory=OBJECT)
    memory.update_working_memory({"name": "Ann"}, resource_id="r")
    app = chain(
        memory,
        "own",
        ("learn", lambda _: {"working_memory": {"age": 3}}),
        ("answer", answer),
        ("save", memory.save_node()),
    )
    ask(app)
    assert memory.get_working_memory(resource_id="r") == {"name": "Ann", "age": 3}


def test_a_graph_without_the_channels_loads_and_saves_as_well(memory_factory):
    class Plain(MessagesState):
        llm_input_messages: list[Any]

    memory = memory_factory(working_memory=OBJECT)
    memory.update_working_memory({"name": "Ann"}, resource_id="r")
    graph = StateGraph(Plain)
    graph.add_node("load", memory.load_node())
    graph.add_node("answer", answer)
    graph.add_node("save", memory.save_node())
    for before, after in itertools.pairwise([START, "load", "answer", "save"]):
        graph.add_edge(before, after)
    result = ask(graph.compile())
    assert '{"name":"Ann"}' in result["llm_input_messages"][0].text
    assert "working_memory" not in result
