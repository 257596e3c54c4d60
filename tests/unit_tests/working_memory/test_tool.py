"""The tool by which an agent changes its page."""

from __future__ import annotations

import json
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langchain_tests.integration_tests import ToolsIntegrationTests
from langchain_tests.unit_tests import ToolsUnitTests
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from pydantic import BaseModel

from langchain_mastra_memory.errors import MissingResourceError
from langchain_mastra_memory.memory import Memory
from langchain_mastra_memory.observation.options import Observation, ObservationalMemory
from langchain_mastra_memory.store.operations.pages import ListPages, PageOwner
from langchain_mastra_memory.testing.models import ScriptedChatModel
from langchain_mastra_memory.working_memory.channel import WorkingMemoryState, page_write, version_write
from langchain_mastra_memory.working_memory.options import WorkingMemory

CONFIG = {"configurable": {"thread_id": "t", "resource_id": "r"}}


class Job(BaseModel):
    title: str | None = None


class Profile(BaseModel):
    name: str | None = None
    age: int | None = None
    job: Job | None = None


TEXT = WorkingMemory(template="- Name:")
OBJECT = WorkingMemory(schema=Profile)


class OfText:
    @property
    def tool_constructor(self) -> BaseTool:
        return Memory("memory://", working_memory=TEXT).tools()[0]

    @property
    def tool_invoke_params_example(self) -> dict[str, Any]:
        return {"memory": "- Name: Ann"}


class OfObject:
    @property
    def tool_constructor(self) -> BaseTool:
        return Memory("memory://", working_memory=OBJECT).tools()[0]

    @property
    def tool_invoke_params_example(self) -> dict[str, Any]:
        return {"memory": {"name": "Ann"}}


class TestTextUnit(OfText, ToolsUnitTests): ...


class TestTextIntegration(OfText, ToolsIntegrationTests): ...


class TestObjectUnit(OfObject, ToolsUnitTests): ...


class TestObjectIntegration(OfObject, ToolsIntegrationTests): ...


class State(MessagesState, WorkingMemoryState):
    pass


def graph_of(tool: BaseTool, state: Any = State):
    graph = StateGraph(state)
    graph.add_node("tools", ToolNode([tool]))
    graph.add_edge(START, "tools")
    return graph.compile()


def calls(tool: BaseTool, *arguments: Any, message_id: str = "ai-1") -> list[Any]:
    made = [
        {"name": tool.name, "args": {"memory": value}, "id": f"c{number}", "type": "tool_call"}
        for number, value in enumerate(arguments)
    ]
    return [HumanMessage("hi", id="h-1"), AIMessage("", id=message_id, tool_calls=made)]


def answers(result: Any) -> list[ToolMessage]:
    return [message for message in result["messages"] if isinstance(message, ToolMessage)]


def test_the_model_sees_one_argument_with_the_fields_of_the_schema_all_optional(memory_factory):
    tool = memory_factory("memory://", working_memory=OBJECT).tools()[0]
    shown = convert_to_openai_tool(tool)["function"]
    assert shown["name"] == "update_working_memory"
    assert list(shown["parameters"]["properties"]) == ["memory"]
    memory = shown["parameters"]["properties"]["memory"]
    assert list(memory["properties"]) == ["name", "age", "job"]
    assert "required" not in memory
    assert "$ref" not in json.dumps(shown)


def test_the_model_sees_a_text_in_template_mode(memory_factory):
    tool = memory_factory("memory://", working_memory=TEXT).tools()[0]
    assert convert_to_openai_tool(tool)["function"]["parameters"]["properties"]["memory"]["type"] == "string"


def test_outside_a_graph_it_answers_with_text_and_makes_the_thread(memory_factory, store_url):
    memory = memory_factory(store_url, working_memory=OBJECT)
    (tool,) = memory.tools()
    answer = tool.invoke({"memory": {"name": "Ann"}}, CONFIG)
    assert '{"name":"Ann"}' in answer
    assert memory.get_working_memory(resource_id="r") == {"name": "Ann"}
    assert memory.get_thread("t").resource_id == "r"


async def test_it_is_async_by_itself(memory_factory, store_url):
    memory = memory_factory(store_url, working_memory=TEXT)
    (tool,) = memory.tools()
    assert "updated" in await tool.ainvoke({"memory": "- Name: Ann"}, CONFIG)
    assert await memory.aget_working_memory(resource_id="r") == "- Name: Ann"
    result = await graph_of(tool).ainvoke({"messages": calls(tool, "- Name: Bob")}, CONFIG)
    assert result["working_memory"] == "- Name: Bob"
    await memory.aclose()


def test_in_a_graph_it_updates_the_state_too(memory_factory):
    memory = memory_factory(working_memory=OBJECT)
    (tool,) = memory.tools()
    result = graph_of(tool).invoke({"messages": calls(tool, {"name": "Ann"})}, CONFIG)
    assert result["working_memory"] == {"name": "Ann"}
    assert result["working_memory_version"] == 1
    (answer,) = answers(result)
    assert (answer.status, answer.name, answer.tool_call_id) == ("success", "update_working_memory", "c0")


def test_a_graph_without_the_channels_takes_it_too(memory_factory):
    memory = memory_factory(working_memory=OBJECT)
    (tool,) = memory.tools()
    result = graph_of(tool, MessagesState).invoke({"messages": calls(tool, {"name": "Ann"})}, CONFIG)
    assert [answer.status for answer in answers(result)] == ["success"]
    assert memory.get_working_memory(resource_id="r") == {"name": "Ann"}


def test_two_parallel_calls_in_one_step_both_count_with_a_schema(memory_factory, store_url):
    memory = memory_factory(store_url, working_memory=OBJECT)
    (tool,) = memory.tools()
    result = graph_of(tool).invoke(
        {"messages": calls(tool, {"name": "Ann"}, {"age": 3}, {"job": {"title": "x"}})}, CONFIG
    )
    assert result["working_memory"] == {"name": "Ann", "age": 3, "job": {"title": "x"}}
    assert memory.get_working_memory(resource_id="r") == result["working_memory"]


def test_the_second_of_two_parallel_texts_is_refused_and_shown_the_page(memory_factory, store_url):
    memory = memory_factory(store_url, working_memory=TEXT)
    memory.update_working_memory("- Name: old", resource_id="r")
    (tool,) = memory.tools()
    started = {"working_memory": page_write("- Name: old", 1, start=True), "working_memory_version": version_write(1)}
    result = graph_of(tool).invoke({"messages": calls(tool, "- Name: A", "- Name: B"), **started}, CONFIG)
    by_status = {answer.status: answer for answer in answers(result)}
    kept = memory.get_working_memory(resource_id="r")
    assert kept in ("- Name: A", "- Name: B")
    assert kept in by_status["error"].text
    assert set(by_status) == {"error", "success"}
    assert result["working_memory"] == kept
    assert result["working_memory_version"] == 2


def test_after_a_refusal_the_next_whole_text_is_taken(memory_factory):
    memory = memory_factory("memory://", working_memory=TEXT)
    memory.update_working_memory("by somebody else", resource_id="r")
    (tool,) = memory.tools()
    stale = {"working_memory_version": 0}
    first = graph_of(tool).invoke({"messages": calls(tool, "mine"), **stale}, CONFIG)
    assert answers(first)[0].status == "error"
    again = {
        "messages": calls(tool, "both", message_id="ai-2"),
        "working_memory_version": first["working_memory_version"],
    }
    second = graph_of(tool).invoke(again, CONFIG)
    assert answers(second)[0].status == "success"
    assert memory.get_working_memory(resource_id="r") == "both"


@pytest.mark.parametrize(("options", "value"), [(TEXT, "- Name: Ann"), (OBJECT, {"name": "Ann"})])
def test_a_call_that_is_run_again_is_applied_once_and_brings_no_old_value_back(
    memory_factory, store_url, options, value
):
    memory = memory_factory(store_url, working_memory=options)
    (tool,) = memory.tools()
    app = graph_of(tool)
    first = app.invoke({"messages": calls(tool, value)}, CONFIG)
    newer = "- Name: Bob" if options is TEXT else {"name": "Bob"}
    memory.update_working_memory(newer, resource_id="r")
    again = app.invoke({"messages": calls(tool, value)}, CONFIG)
    assert memory.get_working_memory(resource_id="r") == newer
    assert again["working_memory"] == newer
    assert answers(again)[0].id == answers(first)[0].id
    versions = memory.store.run(ListPages(owner=PageOwner(scope="resource", resource_id="r")))
    assert [page.version for page in versions] == [2, 1]


def test_the_same_call_id_in_another_message_is_another_call(memory_factory):
    memory = memory_factory("memory://", working_memory=OBJECT)
    (tool,) = memory.tools()
    for number, message_id in enumerate(("ai-1", "ai-2")):
        graph_of(tool).invoke({"messages": calls(tool, {"age": number}, message_id=message_id)}, CONFIG)
    assert memory.get_working_memory(resource_id="r") == {"age": 1}


@pytest.mark.parametrize(
    ("options", "value", "says"),
    [
        (OBJECT, {"age": "old"}, "age"),
        (OBJECT, '{"age": ', "no valid JSON"),
        (OBJECT, [1], "array"),
        (OBJECT, "", "empty"),
        (TEXT, "  ", "empty"),
        (TEXT, {"name": "x"}, "whole page as a string"),
        (TEXT, "x" * 20_001, "at most 20,000"),
    ],
)
def test_a_refusal_reaches_the_model_with_the_reason_and_changes_nothing(memory_factory, options, value, says):
    memory = memory_factory("memory://", working_memory=options)
    (tool,) = memory.tools()
    result = graph_of(tool).invoke({"messages": calls(tool, value)}, CONFIG)
    (answer,) = answers(result)
    assert answer.status == "error"
    assert says in answer.text
    assert memory.get_working_memory(resource_id="r") is None
    assert says in tool.invoke({"memory": value}, CONFIG)


@pytest.mark.parametrize("value", ['{"name": "Ann"}', {"memory": {"name": "Ann"}}, '```json\n{"name": "Ann"}\n```'])
def test_odd_but_clear_input_is_understood(memory_factory, value):
    memory = memory_factory("memory://", working_memory=OBJECT)
    (tool,) = memory.tools()
    graph_of(tool).invoke({"messages": calls(tool, value)}, CONFIG)
    assert memory.get_working_memory(resource_id="r") == {"name": "Ann"}


def test_a_field_that_no_longer_fits_is_dropped_and_the_model_is_told(memory_factory):
    loose = memory_factory(working_memory=WorkingMemory(schema={"type": "object"}))
    loose.update_working_memory({"age": "very old", "name": "Ann"}, resource_id="r")
    memory = memory_factory(working_memory=OBJECT)
    (tool,) = memory.tools()
    assert memory.get_working_memory(resource_id="r") == {"age": "very old", "name": "Ann"}
    answer = tool.invoke({"memory": {"name": "Bob"}}, CONFIG)
    assert "dropped" in answer
    assert "age" in answer
    assert memory.get_working_memory(resource_id="r") == {"name": "Bob"}


def test_a_run_without_a_resource_is_the_developers_mistake_and_raises(memory_factory):
    (tool,) = memory_factory("memory://", working_memory=TEXT).tools()
    with pytest.raises(MissingResourceError, match="configurable"):
        graph_of(tool).invoke({"messages": calls(tool, "x")}, {"configurable": {"thread_id": "t"}})
    assert "resource_id" in tool.invoke({"memory": "x"})


@pytest.mark.parametrize("switch", [{"read_only": True}, {"off": True}, {"working_memory": False}])
def test_a_forged_call_is_refused_where_the_run_may_change_nothing(memory_factory, switch):
    memory = memory_factory("memory://", working_memory=TEXT)
    (tool,) = memory.tools()
    config = {"configurable": {**CONFIG["configurable"], "memory": switch}}
    result = graph_of(tool).invoke({"messages": calls(tool, "forged")}, config)
    assert answers(result)[0].status == "error"
    assert memory.get_working_memory(resource_id="r") is None


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (WorkingMemory(), ["update_working_memory"]),
        (WorkingMemory(use_state_signals=True), ["set_working_memory"]),
        (WorkingMemory(agent_managed=False), []),
        (WorkingMemory(read_only=True), []),
    ],
)
def test_the_tool_is_there_when_the_agent_may_change_the_page(memory_factory, options, names):
    assert [tool.name for tool in memory_factory("memory://", working_memory=options).tools()] == names


def test_a_page_of_thread_scope_is_written_before_the_first_checkpoint_of_its_thread(memory_factory, store_url):
    memory = memory_factory(store_url, working_memory=WorkingMemory(scope="thread"))
    (tool,) = memory.tools()
    for number, configurable in enumerate(({"thread_id": "a"}, {"thread_id": "b", "resource_id": "r"})):
        result = graph_of(tool).invoke(
            {"messages": calls(tool, "page", message_id=f"ai-{number}")}, {"configurable": configurable}
        )
        assert answers(result)[0].status == "success"
    assert memory.get_thread("b").resource_id == "r"
    assert memory.get_thread("a").resource_id is None


def test_what_the_observer_manages_the_agent_has_no_tool_for(memory_factory):
    observed = ObservationalMemory(model=ScriptedChatModel(["x"]), observation=Observation(manage_working_memory=True))
    memory = memory_factory("memory://", working_memory=True, observational_memory=observed)
    assert "update_working_memory" not in [tool.name for tool in memory.tools()]
    own = memory_factory("memory://", working_memory=WorkingMemory(agent_managed=True), observational_memory=observed)
    assert "set_working_memory" in [tool.name for tool in own.tools()]
