"""Recorded cases of what the model sees and in which order, on real agents."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from langchain_mastra_memory import Memory, MessageHistory, WorkingMemory
from langchain_mastra_memory.testing.models import ModelCall, ScriptedChatModel
from langchain_mastra_memory.testing.prompts import check_prompt
from tests.golden import load_cases

CASES = load_cases("08_context_assembly")
OTHER_FEATURES = {"semanticRecall"}
DELIBERATE = {
    "ctx-wm-signal": "the new message always comes last, as documented: the signal stands before it",
}


def runs_here(case: dict[str, Any]) -> bool:
    given = case["input"]
    return "observational_memory" not in given and not OTHER_FEATURES & set(given["memory_options"])


HERE = [case for case in CASES if runs_here(case)]


def memory_for(given: dict[str, Any]) -> Memory:
    recorded = given["memory_options"]
    page = recorded.get("workingMemory")
    return Memory(
        "memory://",
        message_history=MessageHistory(last_messages=recorded.get("lastMessages", 10)),
        working_memory=None
        if page is None
        else WorkingMemory(template=page["template"], use_state_signals=page.get("useStateSignals", False)),
    )


def parts_of(call: ModelCall) -> list[tuple[str, str]]:
    """Return the recorded labels of a prompt: our one system message is several there, in the same order."""
    found: list[tuple[int, str]] = []
    marks = {
        "instructions": "INSTR",
        "call_time_system": "CALLSYS",
        "working_memory": "WMDATA",
    }
    for name, mark in marks.items():
        at = call.system.find(mark)
        if at >= 0:
            found.append((at, "call_time_instructions" if "OTHER INSTR" in call.system and mark == "INSTR" else name))
    labels = [("system", name) for _, name in sorted(found)]
    return labels + [label(message) for message in call.conversation]


def label(message: BaseMessage) -> tuple[str, str]:
    role = "user" if message.type == "human" else "assistant"
    if "WMDATA" in message.text:
        return role, "working_memory_state_signal"
    return role, message.text.split(" ")[0]


@pytest.mark.parametrize("case", HERE, ids=[case["id"] for case in HERE])
def test_recorded_prompts_are_the_same_part_by_part(case: dict[str, Any]) -> None:
    given = case["input"]
    memory = memory_for(given)
    for op in given["ops"]:
        if op["op"] == "save_thread":
            memory.create_thread(op["resource_id"], thread_id=op["id"])
        else:
            saved = [
                (HumanMessage if entry["role"] == "user" else AIMessage)(entry["text"], id=entry["id"])
                for entry in op["messages"]
            ]
            thread, owner = op["messages"][0]["thread_id"], op["messages"][0]["resource_id"]
            memory.save_messages(saved, thread_id=thread, resource_id=owner)
    if "working_memory" in given:
        memory.update_working_memory(given["working_memory"], resource_id="r1")
    for number, (call, expected) in enumerate(
        zip(given["agent"]["calls"], case["expected"]["prompts"], strict=True), 1
    ):
        options: dict[str, Any] = {"system": call.get("system")}
        if "context" in call:
            options["context_messages"] = [(part["role"], part["content"]) for part in call["context"]]
        if "memory_options" in call:
            options["read_only"] = call["memory_options"]["readOnly"]
        model = ScriptedChatModel([f"A{number} reply"])
        agent = create_agent(
            model,
            middleware=[memory.middleware()],
            system_prompt=call.get("instructions", given["agent"]["instructions"]),
        )
        asked = call["user"]
        new = [(part["role"], part["content"]) for part in asked] if isinstance(asked, list) else [("user", asked)]
        agent.invoke({"messages": new}, {"configurable": {"thread_id": "t1", "resource_id": "r1", "memory": options}})
        check_prompt(model.last_call.messages)
        seen = parts_of(model.last_call)
        wanted = [(part["role"], part["part"]) for part in expected]
        if case["id"] in DELIBERATE:
            wanted[-2:] = reversed(wanted[-2:])
        assert seen == wanted
    stored = [message.message.text.split(" ")[0] for message in memory.recall(thread_id="t1", per_page=False)]
    assert stored == [name for name in case["expected"]["stored_after"] if name != "WMDATA"]
    memory.close()
