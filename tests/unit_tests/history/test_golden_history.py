"""Recorded cases of the message history and of its token budget, on real agents."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langchain_mastra_memory import Memory, MessageHistory
from langchain_mastra_memory.store.operations.runs import LoadHistory
from langchain_mastra_memory.testing.models import ScriptedChatModel
from langchain_mastra_memory.testing.prompts import check_prompt
from langchain_mastra_memory.tokens import TOKEN_ESTIMATE
from tests.golden import load_cases

CASES = load_cases("07_message_history_tokens")
DELIBERATE = {
    "mh-count-accents": "tiktoken counts, not tokenx: 4 tokens",
    "mh-count-cjk": "tiktoken counts, not tokenx: 6 tokens",
    "mh-count-emoji": "tiktoken counts, not tokenx: 3 tokens",
    "mh-count-newline": "tiktoken counts, not tokenx: 5 tokens",
}
OURS = {"mh-count-accents": 4, "mh-count-cjk": 6, "mh-count-emoji": 3, "mh-count-newline": 5}


def options_of(recorded: dict[str, Any]) -> dict[str, Any]:
    """Return our names for recorded options of the history."""
    found: dict[str, Any] = {}
    if "lastMessages" in recorded:
        found["last_messages"] = recorded["lastMessages"]
    budget = recorded.get("messageHistory", {})
    if "maxTokens" in budget:
        found["max_tokens"] = budget["maxTokens"]
    if "atMaxRemoveTokens" in budget:
        found["remove_tokens"] = budget["atMaxRemoveTokens"]
    return found


def stored(entry: dict[str, Any], counts: dict[str, Any]) -> list[BaseMessage]:
    """Return our messages for a recorded one; a recorded assistant message holds calls and results as parts."""
    size = {TOKEN_ESTIMATE: counts.get(entry["id"], 10)}
    if "parts" not in entry:
        kind = HumanMessage if entry["role"] == "user" else AIMessage
        return [kind(entry["text"], id=entry["id"], additional_kwargs=size)]
    text = " ".join(part["text"] for part in entry["parts"] if part["type"] == "text")
    made = [part for part in entry["parts"] if part["type"] != "text"]
    calls = [{"name": part["name"], "args": part["args"], "id": part["call_id"], "type": "tool_call"} for part in made]
    results = [part for part in made if "result" in part]
    size = {TOKEN_ESTIMATE: counts.get(entry["id"], 10) - len(results)}
    return [
        AIMessage(text, id=entry["id"], tool_calls=calls, additional_kwargs=size),
        *(
            ToolMessage(
                part["result"],
                tool_call_id=part["call_id"],
                id=f"{entry['id']}-{at}",
                additional_kwargs={TOKEN_ESTIMATE: 1},
            )
            for at, part in enumerate(results)
        ),
    ]


def label(message: BaseMessage) -> str:
    """Return the recorded label of a message of a prompt."""
    if isinstance(message, ToolMessage):
        return f"tool:[result {message.tool_call_id}"
    word = message.text.split(" ")[0]
    calls = getattr(message, "tool_calls", ())
    if calls:
        return f"assistant:{word} {calls[0]['id']}" if word else f"assistant:[call {calls[0]['id']}"
    return word


RUNS = [case for case in CASES if "history" in case["input"]]


@pytest.mark.parametrize("case", RUNS, ids=[case["id"] for case in RUNS])
def test_recorded_turns_show_and_store_the_same(case: dict[str, Any]) -> None:
    given, counts = case["input"], case["input"]["token_counts"]
    memory = Memory("memory://", message_history=MessageHistory(**options_of(given["memory_options"])))
    for entry in given["history"]:
        memory.save_messages(stored(entry, counts), thread_id="t", resource_id="r")
    before = len(memory.recall(thread_id="t", per_page=False))
    split = any("parts" in entry for entry in given["history"])
    for turn, expected in zip(given["turns"], case["expected"]["turns"], strict=True):
        own = options_of(turn.get("options", {}))
        if "readOnly" in turn.get("options", {}):
            own["read_only"] = turn["options"]["readOnly"]
        if "context" in turn:
            own["context_messages"] = [(part["role"], part["content"]) for part in turn["context"]]
        size = {TOKEN_ESTIMATE: counts.get(turn["reply"].split(" ")[0], 11)}
        model = ScriptedChatModel([AIMessage(turn["reply"], additional_kwargs=size)])
        agent = create_agent(model, middleware=[memory.middleware()], system_prompt=given["instructions"])
        asked = HumanMessage(
            turn["user"], additional_kwargs={TOKEN_ESTIMATE: counts.get(turn["user"].split(" ")[0], 10)}
        )
        agent.invoke({"messages": [asked]}, {"configurable": {"thread_id": "t", "resource_id": "r", "memory": own}})
        check_prompt(model.last_call.messages)
        assert [label(message) for message in model.last_call.conversation] == expected["prompt_messages"]
        boundaries = memory.store.run(LoadHistory(thread_id="t", last=0)).boundaries
        kept = expected["boundary"]
        if kept is None:
            assert not boundaries
        else:
            assert (boundaries[0].max_tokens, boundaries[0].remove_tokens) == (
                kept["max_tokens"],
                kept["at_max_remove_tokens"],
            )
            if kept["message_ids"] != ["<generated>"]:
                assert boundaries[0].message_id == kept["message_ids"][-1]
        total = len(memory.recall(thread_id="t", per_page=False))
        if not split:
            assert total == expected["stored_total"]
        else:
            assert total == before + 2 * expected["turn"]
    memory.close()


INVALID = [case for case in CASES if case["id"].startswith("mh-invalid")]


@pytest.mark.parametrize("case", INVALID, ids=[case["id"] for case in INVALID])
def test_recorded_invalid_options_are_refused_when_they_are_made(case: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"max_tokens|remove_tokens|last_messages"):
        MessageHistory(**options_of(case["input"]["memory_options"]))


COUNTED = [case for case in CASES if case["input"].get("op") == "count_tokens"]


@pytest.mark.parametrize("case", COUNTED, ids=[case["id"] for case in COUNTED])
def test_recorded_texts_are_counted(case: dict[str, Any]) -> None:
    with Memory("memory://") as memory:
        counter = memory.token_counter
        text, expected = case["input"]["text"], case["expected"]
        ours = OURS[case["id"]] if case["id"] in DELIBERATE else expected["string_tokens"]
        assert counter.count_text(text) == ours
        overhead = expected["message_tokens"] - expected["string_tokens"]
        assert counter.count_message(HumanMessage(text)) == ours + overhead
