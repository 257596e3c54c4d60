"""Recorded cases of what the model sees and in which order, on real agents."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from langchain_mastra_memory import (
    Memory,
    MessageHistory,
    Observation,
    ObservationalMemory,
    SemanticRecall,
    WorkingMemory,
)
from langchain_mastra_memory.testing.models import ModelCall, ScriptedChatModel
from langchain_mastra_memory.testing.prompts import check_prompt
from tests.golden import load_cases

CASES = load_cases("08_context_assembly")
DELIBERATE = {
    "ctx-wm-signal": "the new message always comes last, as documented: the signal stands before it",
    "ctx-recall-cross": "another ranking: which of eight one-line messages are found beside the best",
    "ctx-om": "a question is never observed in its own turn: U1 is raw in the second turn",
    "ctx-om-everything": "as ctx-om",
    "ctx-om-recall-same": "as ctx-om; and an observed message that was found again is shown",
}
OBSERVED = (
    "<observations>\nDate: Jan 1, 2025\n* 🔴 (10:00) obs1 fact10 fact11 fact12 fact13 fact14\n</observations>\n"
    "<current-task>\ntask1\n</current-task>\n<suggested-response>\nsugg1\n</suggested-response>"
)


def memory_for(given: dict[str, Any]) -> Memory:
    recorded = given["memory_options"]
    page = recorded.get("workingMemory")
    search = recorded.get("semanticRecall")
    observed = given.get("observational_memory")
    return Memory(
        "memory://",
        semantic_recall=SemanticRecall(
            top_k=search["topK"], message_range=search["messageRange"], scope=search["scope"], mode="lexical"
        )
        if search
        else None,
        observational_memory=ObservationalMemory(
            model=ScriptedChatModel([OBSERVED], repeat_last=True),
            observation=Observation(message_tokens=observed["observation"]["messageTokens"], buffer_tokens=False),
        )
        if observed
        else None,
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
        "cross_thread_recall": "C2 zebra",
        "om_observation_block": "obs1 fact10",
        "om_current_task": "task1",
        "om_suggested_response": "sugg1",
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
    if "system-reminder" in message.text or "continuation" in message.text:
        return role, "continuation_reminder"
    return role, message.text.split(" ")[0]


def assert_same_shape(seen: list[tuple[str, str]], wanted: list[tuple[str, str]], number: int) -> None:
    """Assert that the layers are the recorded ones in the recorded order, and that no question of ours is observed."""

    def layers(parts: list[tuple[str, str]]) -> list[tuple[str, str]]:
        return [part for part in parts if part[0] == "system" or part[1][0] not in "HAU"]

    assert layers(seen) == layers(wanted)
    assert seen[-1] == wanted[-1]
    names = [name for _, name in seen]
    turns = [name for turn in range(1, number) for name in (f"U{turn}", f"A{turn}")]
    assert [name for name in names if name in turns] == turns
    assert len(set(names)) == len(names), "nothing is shown twice"


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
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
        parts = [(part["role"], part["part"]) for part in expected]
        wanted = [part for part in parts if part[1] not in {"om_preamble_and_instructions", "om_open_tag"}]
        if case["id"] == "ctx-wm-signal":
            wanted[-2:] = reversed(wanted[-2:])
        if case["id"] in DELIBERATE and case["id"] != "ctx-wm-signal":
            assert_same_shape(seen, wanted, number)
        else:
            assert seen == wanted
    stored = [message.message.text.split(" ")[0] for message in memory.recall(thread_id="t1", per_page=False)]
    assert stored == [name for name in case["expected"]["stored_after"] if name != "WMDATA"]
    memory.close()
