"""`preview`: what the model would be sent, with sizes and reasons, and without any side effect."""

from __future__ import annotations

from typing import Any

import pytest
from IPython.lib.pretty import pretty
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from pydantic import create_model

from langchain_mastra_memory import Memory, MessageHistory, WorkingMemory
from langchain_mastra_memory.errors import ConfigurationError, ThreadNotFoundError
from langchain_mastra_memory.store.operations.runs import LoadHistory
from langchain_mastra_memory.testing.models import ScriptedChatModel


@tool
def lookup(city: str) -> str:
    """Look a city up."""
    return city


def config(thread: str = "t") -> dict[str, Any]:
    return {"configurable": {"thread_id": thread, "resource_id": "r"}}


def sent(model: ScriptedChatModel) -> list[tuple[str, Any]]:
    return [(message.type, message.content) for message in model.last_call.messages]


@pytest.mark.parametrize("layout", ["documented", "cached"])
@pytest.mark.parametrize("saver", ["none", "memory", "ours"])
def test_a_preview_is_what_the_model_is_sent(saver: str, layout: Any) -> None:
    with Memory(
        "memory://",
        message_history=MessageHistory(last_messages=2),
        working_memory=WorkingMemory(template="# About"),
        layout=layout,
    ) as memory:
        checkpointer = {"none": None, "memory": InMemorySaver(), "ours": memory.checkpointer}[saver]
        model = ScriptedChatModel(["A1", "A2", "A3"])
        agent = create_agent(
            model, [lookup], middleware=[memory.middleware()], checkpointer=checkpointer, system_prompt="SYSTEM"
        )
        for turn in ("U1", "U2"):
            agent.invoke({"messages": [("user", turn)]}, config())
        memory.update_working_memory("# About\nAda", resource_id="r")
        preview = memory.preview(
            [("user", "U3")], thread_id="t", resource_id="r", system="SYSTEM", tools=[*memory.tools(), lookup]
        )
        agent.invoke({"messages": [("user", "U3")]}, config())
        assert [(message.type, message.content) for message in preview.messages] == sent(model)
        assert [(gone.reason, gone.text) for gone in preview.left_out] == []
        assert "Ada" in str(preview.layer("working_memory"))


def test_a_preview_of_a_state_takes_the_state_as_the_history() -> None:
    with Memory("memory://") as memory:
        model = ScriptedChatModel(["A1", "A2"])
        agent = create_agent(model, middleware=[memory.middleware()], checkpointer=InMemorySaver())
        agent.invoke({"messages": [("user", "U1")]}, config())
        state = agent.get_state(config()).values
        model_state = create_model("State", messages=(list[AnyMessage], ...))(messages=state["messages"])
        for given in (state, state["messages"], model_state):
            preview = memory.preview([("user", "U2")], thread_id="t", resource_id="r", state=given)
            assert [message.text for message in preview.messages] == ["U1", "A1", "U2"]


def test_everything_that_is_left_out_has_its_reason() -> None:
    call = AIMessage("", id="a", tool_calls=[{"name": "look", "args": {}, "id": "x", "type": "tool_call"}])
    history = MessageHistory(last_messages=4, processors=[lambda layers: layers.without(frozenset({"s"}))])
    with Memory("memory://", message_history=history) as memory:
        memory.save_messages(
            [
                HumanMessage("too old", id="o"),
                AIMessage("shaped away", id="s"),
                HumanMessage("asked", id="h"),
                call,
                AIMessage("", id="e"),
            ],
            thread_id="t",
            resource_id="r",
        )
        state = [stored.message for stored in memory.recall(thread_id="t", per_page=False)]
        preview = memory.preview([("user", "now")], thread_id="t", state=state)
        assert {gone.id: gone.reason for gone in preview.left_out} == {
            "o": "count",
            "s": "processor",
            "a": "repaired",
            "e": "repaired",
        }
        assert [message.text for message in preview.messages] == ["asked", "now"]


def test_a_budget_names_what_it_cost_and_stores_no_boundary() -> None:
    with Memory("memory://", message_history=MessageHistory(max_tokens=60)) as memory:
        talk = [kind(f"m{at}", id=f"m{at}") for at, kind in enumerate([HumanMessage, AIMessage] * 4)]
        memory.save_messages(talk, thread_id="t", resource_id="r")
        preview = memory.preview([("user", "now")], thread_id="t", resource_id="r")
        assert {gone.reason for gone in preview.left_out} == {"budget"}
        assert preview.tokens <= 45
        assert memory.store.run(LoadHistory(thread_id="t", last=0)).boundaries == ()


def test_a_preview_writes_nothing_and_calls_no_model() -> None:
    model = ScriptedChatModel([])
    with Memory("memory://", model=model, titles=True) as memory:
        memory.preview([("user", "U1")], thread_id="t", resource_id="r", model=model)
        memory.settled()
        assert memory.get_thread("t") is None
    assert model.calls == ()


def test_layers_tell_names_sizes_and_places() -> None:
    with Memory("memory://") as memory:
        memory.save_messages([HumanMessage("U1"), AIMessage("A1")], thread_id="t", resource_id="r")
        preview = memory.preview(
            [("user", "U2")],
            thread_id="t",
            system="SYSTEM",
            tools=[lookup],
            options={"system": "BRIEFLY", "context_messages": [("user", "CONTEXT")]},
        )
        assert [(layer.name, layer.where, layer.messages) for layer in preview.layers] == [
            ("instructions", "system", 0),
            ("call_system", "system", 0),
            ("history", "conversation", 2),
            ("context", "conversation", 1),
            ("turn", "conversation", 1),
        ]
        assert all(layer.tokens > 0 for layer in preview.layers)
        assert preview.tool_tokens > 0
        assert preview.system == SystemMessage("SYSTEM\n\nBRIEFLY")
        shown = str(preview)
        for word in ("history", "SYSTEM", "CONTEXT", "(1 message)", "(2 messages)", memory.token_counter.name):
            assert word in shown
        assert pretty(preview) == shown  # what a notebook shows at the end of a cell


def test_a_preview_can_stand_at_a_checkpoint() -> None:
    with Memory("memory://") as memory:
        agent = create_agent(
            ScriptedChatModel(["A1", "A2"]), middleware=[memory.middleware()], checkpointer=memory.checkpointer
        )
        agent.invoke({"messages": [("user", "U1")]}, config())
        then = agent.get_state(config()).config["configurable"]["checkpoint_id"]
        agent.invoke({"messages": [("user", "U2")]}, config())
        preview = memory.preview([("user", "other")], thread_id="t", resource_id="r", checkpoint_id=then)
        assert [message.text for message in preview.messages] == ["U1", "A1", "other"]
        with pytest.raises(ConfigurationError, match="not both"):
            memory.preview(thread_id="t", checkpoint_id=then, state=[])


def test_a_foreign_thread_cannot_be_previewed() -> None:
    with Memory("memory://") as memory:
        memory.save_messages([HumanMessage("U1")], thread_id="t", resource_id="r")
        with pytest.raises(ThreadNotFoundError):
            memory.preview([("user", "U2")], thread_id="t", resource_id="eve")


async def test_the_async_twin_gives_the_same() -> None:
    async with Memory("memory://") as memory:
        await memory.asave_messages(
            [HumanMessage("U1"), ToolMessage("lost", tool_call_id="x")], thread_id="t", resource_id="r"
        )
        preview = await memory.apreview([("user", "U2")], thread_id="t")
        assert [message.text for message in preview.messages] == ["U1", "U2"]
        assert [gone.reason for gone in preview.left_out] == ["repaired"]
