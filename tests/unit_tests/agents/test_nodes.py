"""`load_node` and `save_node` in raw graphs give what the middleware gives."""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode, tools_condition
from pydantic import BaseModel
from typing_extensions import TypedDict

from langchain_mastra_memory import (
    ConfigurationError,
    Memory,
    MemoryContext,
    MessageHistory,
    RunOptions,
    ThreadTitles,
)
from langchain_mastra_memory.testing.models import ScriptedChatModel, tool_call
from langchain_mastra_memory.testing.prompts import check_prompt
from tests.unit_tests.agents.savers import SAVERS, saver_of


class State(MessagesState):
    llm_input_messages: list[AnyMessage]


@tool
def lookup(city: str) -> str:
    """Look a city up."""
    return f"facts about {city}"


def graph_of(memory: Memory, model: ScriptedChatModel, saver: Any = None, **load: Any) -> Any:
    bound = model.bind_tools([lookup])

    def call(state: State) -> dict[str, Any]:
        return {"messages": [bound.invoke(state["llm_input_messages"])]}

    builder = StateGraph(State, context_schema=MemoryContext)
    builder.add_node("load", memory.load_node(**load))
    builder.add_node("model", call)
    builder.add_node("tools", ToolNode([lookup]))
    builder.add_node("save", memory.save_node())
    builder.add_edge(START, "load")
    builder.add_edge("load", "model")
    builder.add_conditional_edges("model", tools_condition, {"tools": "tools", "__end__": "save"})
    builder.add_edge("tools", "load")
    return builder.compile(checkpointer=saver)


CONFIG = {"configurable": {"thread_id": "t", "resource_id": "r"}}


def script() -> ScriptedChatModel:
    return ScriptedChatModel(["A1", tool_call("lookup", {"city": "Rome"}), "A2", "A3"])


def archive(memory: Memory) -> list[str]:
    return [stored.message.text or stored.role for stored in memory.recall(thread_id="t", per_page=False)]


def prompts(model: ScriptedChatModel) -> list[list[str]]:
    for call in model.calls:
        check_prompt(call.messages)
    return [[message.text or message.type for message in call.messages] for call in model.calls]


@pytest.mark.parametrize("saver", SAVERS)
def test_a_raw_graph_sees_and_saves_what_an_agent_does(memory: Memory, invoke: Any, saver: str) -> None:
    raw, agents = script(), script()
    graph = graph_of(memory, raw, saver_of(memory, saver), system="SYSTEM")
    with Memory("memory://") as other:
        agent = create_agent(agents, [lookup], middleware=[other.middleware()], system_prompt="SYSTEM")
        for turn in ("U1", "U2", "U3"):
            invoke(graph, {"messages": [("user", turn)]}, CONFIG)
            agent.invoke({"messages": [("user", turn)]}, CONFIG)
        assert archive(memory) == archive(other)
    assert prompts(raw) == prompts(agents)


@pytest.mark.parametrize("saver", SAVERS)
def test_the_window_applies_and_the_state_stays_whole(memory_factory: Any, invoke: Any, saver: str) -> None:
    memory = memory_factory("memory://", message_history=MessageHistory(last_messages=1))
    model = ScriptedChatModel(["A1", "A2", "A3"])
    graph = graph_of(memory, model, saver_of(memory, saver))
    for turn in ("U1", "U2", "U3"):
        state = invoke(graph, {"messages": [("user", turn)]}, CONFIG)
    assert prompts(model)[-1] == [".", "A2", "U3"]
    assert len(state["messages"]) == (2 if saver == "none" else 6)


def test_keys_are_the_users_choice(memory: Memory, invoke: Any) -> None:
    class Own(TypedDict):
        chat: Annotated[list[AnyMessage], add_messages]
        prompt: list[AnyMessage]

    model = ScriptedChatModel(["A1", "A2"])
    builder = StateGraph(Own)
    builder.add_node("load", memory.load_node(input_key="chat", output_key="prompt"))
    builder.add_node("model", lambda state: {"chat": [model.invoke(state["prompt"])]})
    builder.add_node("save", memory.save_node(input_key="chat"))
    builder.add_edge(START, "load").add_edge("load", "model").add_edge("model", "save")
    for turn in ("U1", "U2"):
        invoke(builder.compile(), {"chat": [("user", turn)]}, CONFIG)
    assert prompts(model)[-1] == ["U1", "A1", "U2"]
    assert archive(memory) == ["U1", "A1", "U2", "A2"]


def test_a_channel_without_a_message_reducer_works(memory: Memory, invoke: Any) -> None:
    class Plain(TypedDict):
        messages: Annotated[list[AnyMessage], operator.add]
        llm_input_messages: list[AnyMessage]

    model = ScriptedChatModel([AIMessage("A1"), AIMessage("A2")])
    builder = StateGraph(Plain)
    builder.add_node("load", memory.load_node())
    builder.add_node("model", lambda state: {"messages": [model.invoke(state["llm_input_messages"])]})
    builder.add_node("save", memory.save_node())
    builder.add_edge(START, "load").add_edge("load", "model").add_edge("model", "save")
    for turn in ("U1", "U2"):
        invoke(builder.compile(), {"messages": [HumanMessage(turn)]}, CONFIG)
    assert archive(memory) == ["U1", "A1", "U2", "A2"]


def test_switches_come_from_the_context_too(memory: Memory, invoke: Any) -> None:
    model = ScriptedChatModel(["A1", "A2", "A3"])
    graph = graph_of(memory, model)
    where = {"configurable": {"thread_id": "t"}}
    invoke(graph, {"messages": [("user", "U1")]}, where, context=MemoryContext(resource_id="r"))
    reading = MemoryContext(resource_id="r", memory=RunOptions(read_only=True, system="BRIEFLY"))
    invoke(graph, {"messages": [("user", "U2")]}, where, context=reading)
    off = MemoryContext(resource_id="r", memory={"off": True})
    invoke(graph, {"messages": [("user", "U3")]}, where, context=off)
    assert prompts(model)[1:] == [["BRIEFLY", "U1", "A1", "U2"], ["U3"]]
    assert archive(memory) == ["U1", "A1"]


def test_a_raw_graph_names_its_threads() -> None:
    with Memory("memory://", titles=ThreadTitles(model=ScriptedChatModel(["A title"], repeat_last=True))) as memory:
        graph = graph_of(memory, ScriptedChatModel(["A1"]), memory.checkpointer)
        graph.invoke({"messages": [("user", "U1")]}, CONFIG)
        assert memory.settled() == []
        thread = memory.get_thread("t")
        assert thread is not None
        assert thread.title == "A title"


class PydanticState(BaseModel):
    messages: Annotated[list[AnyMessage], add_messages]
    llm_input_messages: list[AnyMessage] = []


@dataclass
class DataclassState:
    messages: Annotated[list[AnyMessage], add_messages] = field(default_factory=list)
    llm_input_messages: list[AnyMessage] = field(default_factory=list)


@dataclass(slots=True)
class SlottedState:
    messages: Annotated[list[AnyMessage], add_messages]
    llm_input_messages: list[AnyMessage]


@pytest.mark.parametrize("saver", SAVERS)
@pytest.mark.parametrize("schema", [PydanticState, DataclassState, SlottedState])
def test_the_state_may_be_a_pydantic_model_or_a_dataclass(
    memory: Memory, invoke: Any, schema: type, saver: str
) -> None:
    model = ScriptedChatModel(["one", "two"])
    builder = StateGraph(schema)
    builder.add_node("load", memory.load_node(system="Be kind."))
    builder.add_node("model", lambda state: {"messages": [model.invoke(state.llm_input_messages)]})
    builder.add_node("save", memory.save_node())
    builder.add_edge(START, "load").add_edge("load", "model").add_edge("model", "save")
    graph = builder.compile(checkpointer=saver_of(memory, saver))
    for text in ("a", "b"):
        invoke(graph, {"messages": [HumanMessage(text)], "llm_input_messages": []}, CONFIG)
    assert [message.text for message in model.last_call.messages] == ["Be kind.", "a", "one", "b"]
    assert archive(memory) == ["a", "one", "b", "two"]


@pytest.mark.parametrize("node", ["load_node", "save_node"])
def test_a_key_that_the_state_does_not_have_is_named(memory: Memory, invoke: Any, node: str) -> None:
    graph = StateGraph(State).add_node("node", getattr(memory, node)(input_key="mesages")).add_edge(START, "node")
    with pytest.raises(ConfigurationError, match="'mesages': set input_key"):
        invoke(graph.compile(), {"messages": [HumanMessage("a")]}, CONFIG)


def client_graph(memory: Memory, model: ScriptedChatModel, saver: Any) -> Any:
    """Return a graph whose tools are the client's: a run ends with a call, and the next one begins with its result."""
    builder = StateGraph(State)
    builder.add_node("load", memory.load_node())
    builder.add_node("model", lambda state: {"messages": [model.invoke(state["llm_input_messages"])]})
    builder.add_node("save", memory.save_node())
    builder.add_edge(START, "load").add_edge("load", "model").add_edge("model", "save")
    return builder.compile(checkpointer=saver)


def texts_of(model: ScriptedChatModel) -> list[str]:
    check_prompt(model.last_call.messages)
    return [message.text or message.type for message in model.last_call.messages]


@pytest.mark.parametrize("saver", SAVERS)
@pytest.mark.parametrize("options", [{"last_messages": 1}, {"last_messages": 4}, {"max_tokens": 60}])
def test_the_question_stays_while_the_client_answers_its_calls(
    memory_factory: Any, invoke: Any, saver: str, options: dict[str, Any]
) -> None:
    memory = memory_factory("memory://", message_history=MessageHistory(**options))
    calls = [tool_call("look", {"n": number}, id=f"c{number}") for number in range(6)]
    model = ScriptedChatModel(["A0", *calls, "A1"])
    graph = client_graph(memory, model, saver_of(memory, saver))
    for text in ("U0", "U1"):
        invoke(graph, {"messages": [("user", text)]}, CONFIG)
    said = ["U1"]
    for number in range(6):
        result = ToolMessage(f"R{number}", tool_call_id=f"c{number}")
        invoke(graph, {"messages": [result]}, CONFIG)
        said += ["ai", f"R{number}"]
        assert texts_of(model)[-len(said) :] == said


@pytest.mark.parametrize("steps", [1, 3])
def test_a_history_without_ids_that_ends_with_a_result_adds_the_result_alone(
    memory: Memory, invoke: Any, steps: int
) -> None:
    calls = [tool_call("look", {"n": number}, id=f"c{number}") for number in range(steps)]
    model = ScriptedChatModel(["A0", *calls, "A1"])
    graph = client_graph(memory, model, None)
    sent: list[AnyMessage] = [HumanMessage("U0"), AIMessage("A0"), HumanMessage("U1")]
    invoke(graph, {"messages": sent[:1]}, CONFIG)
    invoke(graph, {"messages": copies(sent)}, CONFIG)
    for number in range(steps):
        sent += [calls[number], ToolMessage(f"R{number}", tool_call_id=f"c{number}")]
        invoke(graph, {"messages": copies(sent)}, CONFIG)
        assert texts_of(model) == [message.text or message.type for message in sent]
    found = [row.message.text or row.role for row in memory.recall(thread_id="t", resource_id="r", per_page=False)]
    assert found == [message.text or message.type for message in [*sent, AIMessage("A1")]]


def copies(messages: list[AnyMessage]) -> list[AnyMessage]:
    """Return the messages as a client sends them that keeps no ids."""
    return [message.model_copy(update={"id": None}) for message in messages]
