"""What happens between runs and in the middle of one: other processes, people, guards, crashes, deletions."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, SummarizationMiddleware, hook_config
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.types import Command, interrupt

from langchain_mastra_memory import Memory, MessageHistory
from langchain_mastra_memory.testing.models import ScriptedChatModel, tool_call
from langchain_mastra_memory.testing.prompts import check_prompt
from tests.unit_tests.agents.savers import saver_of

CONFIG: dict[str, Any] = {"configurable": {"thread_id": "t", "resource_id": "r"}}
BOTH = pytest.mark.parametrize("saver", ["memory", "ours"])


def ask(text: str, **fields: Any) -> dict[str, Any]:
    return {"messages": [HumanMessage(text, **fields)]}


def archive(memory: Memory) -> list[str]:
    return [row.message.text or row.role for row in memory.recall(thread_id="t", resource_id="r", per_page=False)]


def shown(model: ScriptedChatModel) -> list[str]:
    check_prompt(model.last_call.messages)
    return [message.text or message.type for message in model.last_call.messages]


class Guard(AgentMiddleware):
    """Ends a run whose question has a bad word."""

    @hook_config(can_jump_to=["end"])
    def before_agent(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        if "bad" not in state["messages"][-1].text:
            return None
        return {"jump_to": "end", "messages": [AIMessage("blocked")]}


@tool
def waits(city: str) -> str:
    """Ask a person."""
    return f"{city}: {interrupt('go on?')}"


@tool(return_direct=True)
def final(city: str) -> str:
    """Ask a person for the last word."""
    return f"{city}: {interrupt('go on?')}"


@BOTH
def test_a_run_that_another_process_ends_with_a_direct_result_is_saved(memory: Memory, saver: str) -> None:
    checkpointer = saver_of(memory, saver)
    model = ScriptedChatModel([tool_call("final", {"city": "Rome"})])
    first, second = (
        create_agent(model, [final], middleware=[memory.middleware()], checkpointer=checkpointer) for _ in range(2)
    )
    first.invoke(ask("U1"), CONFIG)
    second.invoke(Command(resume="yes"), CONFIG)
    assert archive(memory) == ["U1", "ai", "Rome: yes"]


@BOTH
def test_refused_turns_take_no_places_of_the_window(saver: str) -> None:
    with Memory("memory://", message_history=MessageHistory(last_messages=4)) as memory:
        model = ScriptedChatModel(["A1", "A2", "A3"])
        agent = create_agent(model, middleware=[memory.middleware(), Guard()], checkpointer=saver_of(memory, saver))
        for text in ("U1", "U2", "bad 1", "bad 2", "bad 3"):
            agent.invoke(ask(text), CONFIG)
        state = agent.get_state(CONFIG).values
        previews = [
            memory.preview([("user", "U3")], thread_id="t", resource_id="r", **more) for more in ({}, {"state": state})
        ]
        agent.invoke(ask("U3"), CONFIG)
        assert shown(model) == ["U1", "A1", "U2", "A2", "U3"]
        assert [[message.text for message in preview.messages] for preview in previews] == [shown(model)] * 2
        assert {gone.reason for gone in previews[1].left_out} == {"refused"}


@BOTH
def test_what_a_crash_left_is_saved_though_the_run_after_it_was_refused(memory: Memory, saver: str) -> None:
    model = ScriptedChatModel(["A0", ConnectionError("down"), "A2", "A3"])
    agent = create_agent(model, middleware=[memory.middleware(), Guard()], checkpointer=saver_of(memory, saver))
    agent.invoke(ask("U0"), CONFIG)
    with pytest.raises(ConnectionError):
        agent.invoke(ask("U1"), CONFIG)
    for text in ("bad", "U2", "U3"):
        agent.invoke(ask(text), CONFIG)
    assert shown(model) == ["U0", "A0", "U1", "U2", "A2", "U3"]
    assert archive(memory) == [*shown(model), "A3"]


@BOTH
@pytest.mark.parametrize("refused", [False, True])
def test_an_answer_that_a_person_put_into_the_state_stays_whatever_it_says(
    memory: Memory, saver: str, *, refused: bool
) -> None:
    model = ScriptedChatModel(["OK", "A1", "A2"])
    agent = create_agent(model, middleware=[memory.middleware(), Guard()], checkpointer=saver_of(memory, saver))
    agent.invoke(ask("U0"), CONFIG)
    agent.update_state(CONFIG, {"messages": [AIMessage("OK")]})
    for text in ("bad", "U1") if refused else ("U1",):
        agent.invoke(ask(text), CONFIG)
    assert shown(model) == ["U0", "OK", "OK", "U1"]
    assert archive(memory) == ["U0", "OK", "OK", "U1", "A1"]


@BOTH
def test_a_question_whose_answer_was_removed_is_not_refused_with_the_next_run(memory: Memory, saver: str) -> None:
    model = ScriptedChatModel([AIMessage("A1", id="a1"), "A2"])
    agent = create_agent(model, middleware=[memory.middleware(), Guard()], checkpointer=saver_of(memory, saver))
    agent.invoke(ask("U1"), CONFIG)
    memory.delete_messages(["a1"], thread_id="t")
    if saver == "memory":
        agent.update_state(CONFIG, {"messages": [RemoveMessage(id="a1")]})
    for text in ("bad", "U2"):
        agent.invoke(ask(text), CONFIG)
    assert shown(model) == ["U1", "U2"]
    assert archive(memory) == ["U1", "U2", "A2"]


@BOTH
def test_what_is_deleted_while_a_run_waits_is_not_shown_when_it_goes_on(memory: Memory, saver: str) -> None:
    model = ScriptedChatModel(["A0", tool_call("waits", {"city": "Rome"}), "A1"])
    agent = create_agent(model, [waits], middleware=[memory.middleware()], checkpointer=saver_of(memory, saver))
    agent.invoke(ask("U0", id="u0"), CONFIG)
    imported = memory.save_messages([("user", "a secret"), ("ai", "noted")], thread_id="t", resource_id="r")
    agent.invoke(ask("U1"), CONFIG)
    assert shown(model) == ["U0", "A0", "a secret", "noted", "U1"]
    memory.delete_messages(["u0", imported[0].id], thread_id="t")
    agent.invoke(Command(resume="yes"), CONFIG)
    assert shown(model) == [".", "A0", "noted", "U1", "ai", "Rome: yes"]


@BOTH
def test_a_summary_of_another_middleware_is_kept_as_one_and_hidden(memory: Memory, saver: str) -> None:
    summarizer = SummarizationMiddleware(
        ScriptedChatModel(["SUMMARY"], repeat_last=True), trigger=("messages", 5), keep=("messages", 2)
    )
    model = ScriptedChatModel(lambda messages: f"answer to {messages[-1].text}")
    agent = create_agent(model, middleware=[memory.middleware(), summarizer], checkpointer=saver_of(memory, saver))
    for number in range(8):
        agent.invoke(ask(f"U{number}"), CONFIG)
    rows = memory.recall(thread_id="t", resource_id="r", per_page=False, hide_signals=False)
    kinds = [row.kind for row in rows if "SUMMARY" in row.message.text]
    assert kinds
    assert set(kinds) == {"summary"}
    assert len(rows) - len(kinds) == 16 == len(archive(memory))


@pytest.mark.parametrize("saver", ["none", "memory", "ours"])
def test_a_question_that_is_sent_again_is_answered_anew(memory: Memory, saver: str) -> None:
    @tool
    def lookup(city: str) -> str:
        """Look a city up."""
        return f"facts about {city}"

    model = ScriptedChatModel(["A1", "A2", tool_call("lookup", {"city": "Rome"}), "A2 again", "A3"])
    agent = create_agent(model, [lookup], middleware=[memory.middleware()], checkpointer=saver_of(memory, saver))
    for number in (1, 2, 2):
        agent.invoke(ask(f"U{number}", id=f"u{number}"), CONFIG)
    for call, seen in zip(model.calls[2:], (["U2"], ["U2", "ai", "facts about Rome"]), strict=True):
        check_prompt(call.messages)
        assert [message.text or message.type for message in call.messages] == ["U1", "A1", *seen]
    agent.invoke(ask("U3", id="u3"), CONFIG)
    assert shown(model) == ["U1", "A1", "U2", "A2", "ai", "facts about Rome", "A2 again", "U3"]
    assert archive(memory) == [*shown(model), "A3"]


@pytest.mark.parametrize("options", [{}, {"last_messages": 3}, {"max_tokens": 120}])
@pytest.mark.parametrize("answers", [2, 40])
def test_a_history_without_ids_is_recognised_however_long_it_is_and_whatever_the_window(
    options: dict[str, Any], answers: int
) -> None:
    @tool
    def lookup(city: str) -> str:
        """Look a city up."""
        return f"facts about {city}"

    def answer(messages: Any) -> Any:
        if isinstance(messages[-1], ToolMessage):
            return f"it is {messages[-1].text}"
        return tool_call("lookup", {"city": messages[-1].text}, id=f"call {messages[-1].text}")

    with Memory("memory://", message_history=MessageHistory(**options)) as memory:
        model = ScriptedChatModel(answer)
        agent = create_agent(model, [lookup], middleware=[memory.middleware()])
        said: list[tuple[str, str]] = [("assistant", "What can I do for you?")]
        for number in range(answers):
            said.append(("user", f"U{number}"))
            if number in (0, 1, answers - 1):
                state = agent.invoke({"messages": said}, CONFIG)
            else:
                state = agent.invoke({"messages": said[-1:]}, CONFIG)
            said.append(("assistant", state["messages"][-1].text))
            check_prompt(model.last_call.messages)
        texts = archive(memory)
        assert len(texts) == 1 + 4 * answers
        assert len(set(texts)) == 2 + 3 * answers  # each text once, but for "ai", which each call is
