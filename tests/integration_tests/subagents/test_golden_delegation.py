"""What the real Mastra did when an agent delegated, on our API."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, AnyMessage, ToolMessage

from langchain_mastra_memory import Memory, MemoryMiddleware, MessageHistory, ThreadOwnershipError, WorkingMemory
from langchain_mastra_memory.testing.models import ScriptedChatModel, tool_call

CASES = {
    case["id"]: case
    for case in json.loads((Path(__file__).parents[2] / "data/golden/11_subagent_delegation.json").read_text())
}
DELIBERATE = {
    "sub-llm-thread-only": "a resource of the application that spells a worker's id is refused, not shared",
}
OLD = {"sub-context", "sub-filter"}
"""Cases whose parent thread has a history of two messages."""


def worker_reply(case: dict[str, Any]) -> Any:
    answers = iter(range(1, 100))
    writes = (
        "working_memory" in str(case["expected"]["sub_prompts"]) and case["expected"]["sub_resource_working_memory"]
    )

    def reply(messages: list[AnyMessage]) -> Any:
        number = next(answers)
        if writes and number == 1:
            return tool_call("update_working_memory", {"memory": writes}, id="w1")
        return f"SUB ANSWER {number}"

    return reply


def run(case: dict[str, Any], memory: Memory) -> tuple[ScriptedChatModel, ScriptedChatModel]:
    given = case["input"]
    key, thread, resource = given["sub_agent"]["key"], given["thread"], given["resource"]
    if case["id"] in OLD:
        memory.save_messages([("user", "OLD USER"), ("ai", "OLD ANSWER")], thread_id=thread, resource_id=resource)
    if given["extra_tool_input"].get("resourceId"):
        memory.save_messages([("user", "VICTIM SECRET")], thread_id="victim-thread", resource_id="victim")
    elif given["extra_tool_input"].get("threadId"):
        memory.save_messages([("user", "EARLIER SUB")], thread_id="sub-old", resource_id=f"{resource}-{key}")
    model = ScriptedChatModel(worker_reply(case))
    agent = create_agent(model, system_prompt="SUBINSTR", middleware=[MemoryMiddleware()])
    chosen = {"message_filter": lambda **_: []} if "messageFilter" in given.get("delegation_options", ()) else {}
    worker = memory.subagent(agent, name=key, description="The worker.", **chosen).as_tool()
    prompts = iter(range(1, 100))

    def parent_reply(messages: list[AnyMessage]) -> Any:
        number = next(prompts)
        if isinstance(messages[-1], ToolMessage):
            return "MAIN DONE"
        calls = [
            {
                "name": worker.name,
                "args": {"prompt": f"DELEGATION PROMPT {number}", **given["extra_tool_input"]},
                "id": f"c{number}-{n}",
                "type": "tool_call",
            }
            for n in range(given["delegations_per_turn"])
        ]
        return AIMessage("", tool_calls=calls)

    top = ScriptedChatModel(parent_reply)
    parent = create_agent(top, [worker], system_prompt="PARENTINSTR", middleware=[memory.middleware()])
    for text in given["turns"]:
        parent.invoke({"messages": [("user", text)]}, {"configurable": {"thread_id": thread, "resource_id": resource}})
    return model, top


def memory_for(case: dict[str, Any], url: str) -> Memory:
    options = case["input"]["parent"]["memory_options"]
    template = options.get("workingMemory", {}).get("template")
    return Memory(
        url,
        message_history=MessageHistory(last_messages=options.get("lastMessages", 10)),
        working_memory=WorkingMemory(template=template) if template else None,
    )


@pytest.mark.parametrize(
    "case", [case for name, case in CASES.items() if name not in DELIBERATE], ids=lambda c: c["id"]
)
def test_a_delegation_leaves_what_the_real_one_left(case, sqlite_url):
    key, thread, resource = case["input"]["sub_agent"]["key"], case["input"]["thread"], case["input"]["resource"]
    expected = case["expected"]
    with memory_for(case, sqlite_url) as memory:
        model, top = run(case, memory)
        derived = f"{resource}-{key}"
        ours = [
            [
                ("user" if stored.role == "human" else "assistant", stored.message.text)
                for stored in memory.recall(thread_id=listed.id, per_page=False)
                if stored.message.text and stored.role != "tool"
            ]
            for listed in memory.list_threads(derived, direction="asc")
        ]
        theirs = [
            [(role, texts[-1]) for role, _, texts in recorded["messages"]]
            for recorded in expected["threads_in_parent_store"]
            if recorded["resource_id"] == derived
        ]
        assert ours == theirs
        assert all(listed.metadata["parent"]["thread_id"] == thread for listed in memory.list_threads(derived))

        # The parent's system text and pages stay with it (fault 59); everything else reaches the worker as recorded.
        shown = [
            [
                ("user" if m.type == "human" else "assistant", m.text)
                for m in call.conversation
                if m.text and m.type != "tool"
            ]
            for call in model.calls
        ]
        recorded_prompts = [
            [(role, text) for role, text in prompt if role in ("user", "assistant") and not text.startswith("[")]
            for prompt in expected["sub_prompts"]
        ]
        assert shown == recorded_prompts
        assert all("PARENTINSTR" not in call.system and "SUBINSTR" in call.system for call in model.calls)

        wanted = expected["sub_resource_working_memory"]
        if case["input"]["parent"]["memory_options"].get("workingMemory"):
            assert memory.get_working_memory(resource_id=derived) == wanted
            assert memory.get_working_memory(resource_id=resource) == expected["parent_resource_working_memory"]
        assert [m.text for m in top.last_call.messages if isinstance(m, ToolMessage)][-1].startswith("SUB ANSWER")
        for recorded in expected["threads_in_parent_store"]:
            if recorded["resource_id"] == "victim":
                victim = memory.recall(thread_id="victim-thread", per_page=False)
                assert [stored.message.text for stored in victim] == ["VICTIM SECRET"]


def test_a_worker_never_takes_over_a_resource_of_the_application(sqlite_url):
    case = CASES["sub-llm-thread-only"]
    with memory_for(case, sqlite_url) as memory, pytest.raises(ThreadOwnershipError, match="owns threads"):
        run(case, memory)


def test_threads_of_workers_get_no_titles(sqlite_url):
    assert set(DELIBERATE) <= set(CASES)
    from langchain_mastra_memory import ThreadTitles

    titles = ThreadTitles(model=ScriptedChatModel(lambda _messages: "A title"))
    with Memory(sqlite_url, titles=titles) as memory:
        case = CASES["sub-title"]
        run(case, memory)
        assert memory.settled() == []
        assert memory.get_thread("t1").title == "A title"
        assert [thread.title for thread in memory.list_threads("r1-helper")] == [None]
