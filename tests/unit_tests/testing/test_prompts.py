"""The strict validator and the prefix checker: each rule refuses what it is there for."""

from __future__ import annotations

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from langchain_mastra_memory.testing.prompts import check_extends, check_prompt, prompt_faults, shared_prefix


def call(*ids: str | None, name: str = "look", **more: object) -> AIMessage:
    calls = [{"name": name, "args": {}, "id": found, "type": "tool_call"} for found in ids]
    return AIMessage("", tool_calls=calls, **more)


def result(call_id: str) -> ToolMessage:
    return ToolMessage("found", tool_call_id=call_id)


ASKED = HumanMessage("q")
VALID: list[BaseMessage] = [
    SystemMessage("rules"),
    ASKED,
    call("a", "b"),
    result("a"),
    result("b"),
    AIMessage([{"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": "done"}]),
    HumanMessage([{"type": "image", "url": "https://example.org/cat.png"}]),
]


def test_a_valid_prompt_has_no_faults() -> None:
    check_prompt(VALID)
    check_prompt([ASKED, AIMessage("go on with")], prefill=True)
    check_prompt([ASKED, AIMessage([{"type": "reasoning", "reasoning": "hm"}]), AIMessage("done"), ASKED])


@pytest.mark.parametrize(
    ("prompt", "fault"),
    [
        ([], "no conversation"),
        ([SystemMessage("rules")], "no conversation"),
        ([AIMessage("hi"), ASKED], "begins with ai"),
        ([ASKED, SystemMessage("late"), ASKED], "stands behind"),
        ([ASKED, AIMessage("done")], "last message is ai"),
        ([ASKED, AIMessage(" "), ASKED], "is empty"),
        ([HumanMessage([])], "is empty"),
        ([SystemMessage(""), ASKED], "is empty"),
        ([HumanMessage([{"type": "text", "text": ""}, {"type": "text", "text": "x"}])], "empty text block"),
        ([ASKED, AIMessage([{"type": "reasoning", "reasoning": "x"}]), ASKED], "reasoning and nothing"),
        ([ASKED, call("a"), ASKED], "not answered right behind"),
        ([ASKED, call("a")], "is not answered"),
        ([ASKED, call("a"), ASKED, result("a")], "which the message before it does not call"),
        ([ASKED, result("a")], "which the message before it does not call"),
        ([ASKED, call("a"), result("a"), result("a")], "which the message before it does not call"),
        ([ASKED, call("a"), result("a"), call("a"), result("a")], "uses the call id 'a' again"),
        ([ASKED, call(None), result("a")], "without an id"),
        ([ASKED, call("a", name=""), result("a")], "without a name"),
        ([ASKED, call("a").model_copy(update={"content": [{"type": "tool_use", "id": "z"}]}), result("a")], "'z'"),
        ([HumanMessage("q", id="1"), AIMessage("a", id="1"), ASKED], "stands 2 times"),
        (
            [
                ASKED,
                AIMessage(
                    "x",
                    invalid_tool_calls=[
                        {"name": "l", "args": "{", "id": "b", "error": "", "type": "invalid_tool_call"}
                    ],
                ),
                ASKED,
            ],
            "cannot be read",
        ),
    ],
)
def test_each_rule_refuses_what_a_strict_provider_would(prompt: list[BaseMessage], fault: str) -> None:
    assert any(fault in found for found in prompt_faults(prompt))
    with pytest.raises(AssertionError, match="a strict provider would refuse"):
        check_prompt(prompt)


def test_a_prompt_that_goes_on_extends_the_one_before() -> None:
    first = [HumanMessage("hello", id="1")]
    later = [HumanMessage("hello", id="another id"), AIMessage("hi"), HumanMessage("bye")]
    check_extends(first, later)
    same, possible, whole = shared_prefix(first, later)
    assert same == possible < whole


@pytest.mark.parametrize(
    "changed", [[HumanMessage("Hello", id="1"), AIMessage("hi", id="2")], [AIMessage("hi", id="2")], []]
)
def test_a_prompt_that_changed_its_beginning_is_found_with_the_message(changed: list[BaseMessage]) -> None:
    before = [HumanMessage("hello", id="1"), AIMessage("hi", id="2")]
    with pytest.raises(AssertionError, match="changed at message 0"):
        check_extends(before, changed)
    if changed:
        same, possible, _ = shared_prefix(before, changed)
        assert same < possible
