"""Processors shape the prompt and never the archive; `before_save` shapes the archive and never the prompt."""

from __future__ import annotations

import asyncio
import functools
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

from langchain_mastra_memory import Memory, MessageHistory
from langchain_mastra_memory.context.layers import Item, Layers
from langchain_mastra_memory.errors import ConfigurationError, ProcessorError
from langchain_mastra_memory.history.processors import cap_tool_results, drop_tool_calls, keep_roles, strip_reasoning
from langchain_mastra_memory.testing.models import ScriptedChatModel, tool_call
from langchain_mastra_memory.testing.prompts import check_prompt

CONFIG = {"configurable": {"thread_id": "t", "resource_id": "r"}}


def call(*ids: str, name: str = "search", text: str = "", **more: Any) -> AIMessage:
    calls = [{"name": name, "args": {}, "id": found, "type": "tool_call"} for found in ids]
    return AIMessage(text, tool_calls=calls, **more)


def result(call_id: str, text: str = "found") -> ToolMessage:
    return ToolMessage(text, tool_call_id=call_id)


def shaped(processor: Any, *messages: BaseMessage, turn: int | None = None) -> list[str]:
    items = tuple(
        Item(message=message, origin="turn" if turn is not None and at >= turn else "history")
        for at, message in enumerate(messages)
    )
    made = processor(Layers(conversation=items))
    return [item.message.text or item.message.type for item in made.conversation]


def test_calls_of_a_tool_go_with_their_results_but_for_the_newest() -> None:
    talk = [HumanMessage("q"), call("a"), result("a", "1"), call("b"), result("b", "2"), AIMessage("x")]
    assert shaped(drop_tool_calls("search"), *talk) == ["q", "x"]
    assert shaped(drop_tool_calls("search", keep_last=1), *talk) == ["q", "ai", "2", "x"]
    assert shaped(drop_tool_calls("other"), *talk) == ["q", "ai", "1", "ai", "2", "x"]
    assert shaped(drop_tool_calls(), *talk) == ["q", "x"]


def test_what_was_said_along_with_a_dropped_call_stays() -> None:
    content = [{"type": "text", "text": "let me see"}, {"type": "tool_use", "id": "a", "name": "search", "input": {}}]
    spoken = call("a").model_copy(update={"content": content})
    made = drop_tool_calls("search")(Layers(conversation=(Item(message=spoken),)))
    (item,) = made.conversation
    assert item.message.content == content[:1]
    assert spoken.content == content


def test_the_running_turn_keeps_its_calls() -> None:
    talk = [HumanMessage("q"), call("a"), result("a")]
    assert shaped(drop_tool_calls(), *talk, turn=0) == ["q", "ai", "found"]


def test_a_long_tool_result_keeps_its_beginning_and_end() -> None:
    (made,) = shaped(cap_tool_results(30), result("a", "A" * 50 + "Z" * 50))
    assert made == "A" * 20 + "\n[... 70 characters left out ...]\n" + "Z" * 10
    assert shaped(cap_tool_results(100), result("a", "A" * 100)) == ["A" * 100]
    assert shaped(cap_tool_results(3), HumanMessage("a long question")) == ["a long question"]


def test_reasoning_goes_with_the_ids_that_tie_it_to_its_message() -> None:
    thought = {"type": "reasoning", "id": "rs_1", "summary": []}
    said = {"type": "text", "text": "yes", "id": "msg_1"}
    answer = AIMessage([thought, said], additional_kwargs={"reasoning_content": "hm"})
    only = AIMessage([thought])
    made = strip_reasoning(Layers(conversation=tuple(Item(message=message) for message in (answer, only))))
    (item,) = made.conversation
    assert item.message.content == [{"type": "text", "text": "yes"}]
    assert item.message.additional_kwargs == {}
    turn = Layers(conversation=(Item(message=answer, origin="turn"),))
    assert strip_reasoning(turn) == turn


def test_only_some_roles_are_kept_and_the_running_turn_stays_whole() -> None:
    talk = [HumanMessage("q"), call("a"), result("a"), AIMessage("x"), HumanMessage("now"), call("b"), result("b")]
    assert shaped(keep_roles("user"), *talk, turn=4) == ["q", "now", "ai", "found"]


@pytest.mark.parametrize(
    "make",
    [lambda: keep_roles("robot"), keep_roles, lambda: cap_tool_results(0), lambda: drop_tool_calls(keep_last=-1)],
)
def test_ready_processors_check_what_they_are_given(make: Any) -> None:
    with pytest.raises(ConfigurationError):
        make()


@tool
def search(q: str) -> str:
    """Search."""
    return "x" * 500


def test_processors_shape_the_prompt_and_never_the_archive() -> None:
    history = MessageHistory(processors=[cap_tool_results(20), drop_tool_calls("other")])
    with Memory("memory://", message_history=history) as memory:
        model = ScriptedChatModel([tool_call("search", {"q": "a"}), "A1", "A2"])
        agent = create_agent(model, [search], middleware=[memory.middleware()])
        for turn in ("U1", "U2"):
            agent.invoke({"messages": [("user", turn)]}, CONFIG)
        for sent in model.calls[1:]:
            check_prompt(sent.messages)
            (shown,) = [message for message in sent.messages if message.type == "tool"]
            assert len(shown.text) < 80
        assert memory.recall(thread_id="t", per_page=False)[2].message.text == "x" * 500


@pytest.mark.parametrize("broken", [lambda layers: 1 / 0, lambda layers: None])
def test_a_processor_that_fails_stops_the_run_with_its_name(broken: Any) -> None:
    broken.__qualname__ = "my_processor"
    model = ScriptedChatModel(["never"])
    with Memory("memory://", message_history=MessageHistory(processors=[broken])) as memory:
        agent = create_agent(model, middleware=[memory.middleware()])
        with pytest.raises(ProcessorError, match="my_processor"):
            agent.invoke({"messages": [("user", "U1")]}, CONFIG)
    assert model.calls == ()


def redact(message: BaseMessage) -> BaseMessage | None:
    if "drop" in message.text:
        return None
    return message.model_copy(update={"content": message.text.replace("1234", "****")})


async def redact_async(message: BaseMessage) -> BaseMessage | None:
    await asyncio.sleep(0)
    return redact(message)


@pytest.mark.parametrize("saver", ["none", "memory", "ours"])
@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("function", [redact, redact_async])
async def test_what_is_archived_was_shaped_before(saver: str, durability: str, function: Any) -> None:
    memory = Memory("memory://", message_history=MessageHistory(before_save=[function]))
    checkpointer = {"none": None, "memory": InMemorySaver(), "ours": memory.checkpointer}[saver]
    model = ScriptedChatModel(["your PIN 1234", "drop this", "A3"])
    agent = create_agent(model, middleware=[memory.middleware()], checkpointer=checkpointer)
    modes = {} if checkpointer is None else {"durability": durability}
    for turn in ("my PIN is 1234", "U2"):
        state = await agent.ainvoke({"messages": [("user", turn)]}, CONFIG, **modes)
    assert state["messages"][-1].text == "drop this", "the run sees what was said"
    assert [stored.message.text for stored in await memory.arecall(thread_id="t")] == [
        "my PIN is ****",
        "your PIN ****",
        "U2",
    ]
    await memory.aclose()


def test_a_function_that_fails_before_saving_stops_the_run_with_its_name_and_saves_nothing() -> None:
    def my_redaction(message: BaseMessage) -> BaseMessage:
        raise ZeroDivisionError

    with Memory("memory://", message_history=MessageHistory(before_save=[my_redaction])) as memory:
        agent = create_agent(ScriptedChatModel(["A1"]), middleware=[memory.middleware()])
        with pytest.raises(ProcessorError, match="my_redaction"):
            agent.invoke({"messages": [("user", "U1")]}, CONFIG)
        assert memory.get_thread("t") is None


class NodeState(MessagesState):
    llm_input_messages: list[BaseMessage]


@pytest.mark.parametrize("first", ["load", "save", "observe"])
@pytest.mark.parametrize("saver", ["none", "memory", "ours"])
def test_a_graph_of_nodes_archives_nothing_that_was_not_shaped(saver: str, first: str) -> None:
    memory = Memory("memory://", message_history=MessageHistory(before_save=[redact]), observational_memory=True)
    nodes = {"load": memory.load_node(), "save": memory.save_node(), "observe": memory.observation_node()}
    builder = StateGraph(NodeState)
    for name in dict.fromkeys((first, "save")):
        builder.add_node(name, nodes[name])
    builder.add_edge(START, first)
    if first != "save":
        builder.add_edge(first, "save")
    checkpointer = {"none": None, "memory": InMemorySaver(), "ours": memory.checkpointer}[saver]
    graph = builder.compile(checkpointer=checkpointer)
    given: Any = {"messages": [("user", "my PIN is 1234"), ("assistant", "1234, noted")]}
    if saver == "ours":
        with pytest.raises(ConfigurationError, match="before_save"):
            graph.invoke(given, CONFIG)
    else:
        graph.invoke(given, CONFIG)
        assert [stored.message.text for stored in memory.recall(thread_id="t")] == ["my PIN is ****", "****, noted"]
    memory.close()


class RedactAsync:
    """What an object with an async `__call__` is."""

    async def __call__(self, message: BaseMessage) -> BaseMessage | None:
        return await redact_async(message)


@pytest.mark.parametrize("function", [redact_async, RedactAsync(), functools.partial(redact_async)])
def test_an_async_function_in_a_sync_run_says_what_to_do(function: Any) -> None:
    with Memory("memory://", message_history=MessageHistory(before_save=[function])) as memory:
        agent = create_agent(ScriptedChatModel(["A1"]), middleware=[memory.middleware()])
        with pytest.raises(ProcessorError, match=r"(redact_async|RedactAsync|partial).*ainvoke"):
            agent.invoke({"messages": [("user", "U1")]}, CONFIG)


@pytest.mark.parametrize(
    "options",
    [{"processors": ["x"]}, {"processors": [redact_async]}, {"before_save": [3]}, {"history": "both"}, {"windw": 3}],
)
def test_options_are_checked_where_they_are_made(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        MessageHistory(**options)
