"""From turn to turn the prompt begins as before: fully within a tool loop, up to the last question between turns."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool

from langchain_mastra_memory import Memory, MessageHistory, SemanticRecall, WorkingMemory
from langchain_mastra_memory.testing.models import ScriptedChatModel, tool_call
from langchain_mastra_memory.testing.prompts import check_extends, shared_prefix

CONFIG = {"configurable": {"thread_id": "t", "resource_id": "r"}}


@tool
def lookup(city: str) -> str:
    """Look a city up."""
    return f"facts about {city}"


def prompts(layout: Any, *, saver: bool) -> tuple[list[Any], list[int]]:
    """Return every prompt of twelve turns with a changing page and recall, and where each turn begins."""
    answers = [
        reply
        for turn in range(12)
        for reply in (tool_call("lookup", {"city": "Rome"}, id=f"c{turn}"), f"A{turn} about trains")
    ]
    model = ScriptedChatModel(answers)
    with Memory(
        "memory://",
        layout=layout,
        message_history=MessageHistory(last_messages=None),
        working_memory=WorkingMemory(template="# About"),
        semantic_recall=SemanticRecall(mode="lexical"),
    ) as memory:
        said = [HumanMessage("I like night trains"), HumanMessage("My cat is grey")]
        memory.save_messages(said, thread_id="other", resource_id="r")
        agent = create_agent(
            model,
            [lookup],
            middleware=[memory.middleware()],
            checkpointer=memory.checkpointer if saver else None,
            system_prompt="SYSTEM",
        )
        for turn in range(12):
            memory.update_working_memory(f"# About\nturn {turn // 3}", resource_id="r")
            question = f"U{turn}: which trains?" if turn % 2 else f"U{turn}: xyzzy"  # the other half finds nothing
            agent.invoke({"messages": [("user", question)]}, CONFIG)
    found = [call.messages for call in model.calls]
    return found, list(range(0, len(found), 2))


@pytest.mark.parametrize("saver", [True, False])
@pytest.mark.parametrize("layout", ["documented", "cached"])
def test_a_tool_loop_only_appends(layout: Any, saver: bool) -> None:
    found, starts = prompts(layout, saver=saver)
    for start in starts:
        check_extends(found[start], found[start + 1])


@pytest.mark.parametrize("saver", [True, False])
def test_the_cached_layout_keeps_everything_before_the_last_question(saver: bool) -> None:
    found, starts = prompts("cached", saver=saver)
    for before, after in itertools.pairwise(starts):
        last = found[before + 1]
        question = max(at for at, message in enumerate(last) if message.type == "human")
        check_extends(last[:question], found[after])


def test_the_cached_layout_keeps_more_than_the_documented_one() -> None:
    shares = {}
    for layout in ("documented", "cached"):
        found, _ = prompts(layout, saver=False)
        pairs = [shared_prefix(before, after) for before, after in itertools.pairwise(found)]
        shares[layout] = sum(pair[0] for pair in pairs) / sum(pair[1] for pair in pairs)
    assert shares["cached"] > 0.9 > shares["documented"]
