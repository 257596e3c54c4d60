"""Repair: a prompt that strict providers take, whatever the history looks like."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from langchain_core.messages import AIMessage, BaseMessage, ChatMessage, HumanMessage, SystemMessage, ToolMessage

from langchain_mastra_memory.context.layers import Item
from langchain_mastra_memory.history.repair import FILLER, repair
from langchain_mastra_memory.testing.prompts import check_prompt
from tests.unit_tests.history.conversations import conversations


def repaired(*messages: BaseMessage) -> list[BaseMessage]:
    made = [item.message for item in repair([Item(message=message) for message in messages]).items]
    check_prompt(made)
    return made


def call(*ids: str, text: str = "", **more: object) -> AIMessage:
    calls = [{"name": "look", "args": {}, "id": name, "type": "tool_call"} for name in ids]
    return AIMessage(text, tool_calls=calls, **more)


def result(call_id: str, text: object = "found") -> ToolMessage:
    return ToolMessage(text, tool_call_id=call_id)


def texts(messages: list[BaseMessage]) -> list[str]:
    return [message.text or message.type for message in messages]


ASKED = HumanMessage("q")


def test_a_valid_conversation_stays_as_it_is_object_by_object() -> None:
    given_messages = [ASKED, call("a", "b"), result("a"), result("b"), AIMessage("done"), HumanMessage("next")]
    assert all(now is was for now, was in zip(repaired(*given_messages), given_messages, strict=True))


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_result_without_a_call_is_left_out_wherever_it_stands(place: int) -> None:
    conversation: list[BaseMessage] = [HumanMessage("a"), AIMessage("b"), HumanMessage("c")]
    conversation.insert(place, result("lost"))
    assert texts(repaired(*conversation)) == ["a", "b", "c"]


def test_a_call_that_was_never_answered_is_left_out_and_its_text_stays() -> None:
    assert texts(repaired(ASKED, call("dead"), HumanMessage("hello?"))) == ["q", "hello?"]
    said = repaired(ASKED, call("dead", text="let me see"), HumanMessage("hello?"))
    assert texts(said) == ["q", "let me see", "hello?"]
    assert not said[1].tool_calls


def test_of_parallel_calls_the_answered_ones_stay() -> None:
    made = repaired(ASKED, call("a", "dead", "b"), result("b"), result("a"), HumanMessage("next"))
    assert [c["id"] for c in made[1].tool_calls] == ["a", "b"]
    assert [message.tool_call_id for message in made[2:4]] == ["a", "b"]


def test_results_stand_right_behind_their_call_even_if_somebody_spoke_between() -> None:
    made = repaired(ASKED, call("a"), HumanMessage("still there?"), result("a"))
    assert [message.type for message in made] == ["human", "ai", "tool", "human"]


def test_call_ids_that_a_model_uses_again_are_told_apart() -> None:
    made = repaired(
        ASKED, call("a"), result("a", "one"), AIMessage("x"), HumanMessage("r"), call("a"), result("a", "two")
    )
    assert [message.tool_call_id for message in made if message.type == "tool"] == ["a", "a_2"]
    assert [message.text for message in made if message.type == "tool"] == ["one", "two"]


@pytest.mark.parametrize(
    "content", ["", " \n", [], [{"type": "text", "text": ""}], [{"type": "reasoning", "reasoning": "x"}]]
)
def test_an_empty_answer_is_left_out(content: object) -> None:
    assert texts(repaired(ASKED, AIMessage(content), HumanMessage("next"))) == ["q", "next"]


def test_empty_text_blocks_are_taken_out_of_a_message_that_has_more() -> None:
    blocks = [{"type": "text", "text": ""}, {"type": "tool_use", "id": "a", "name": "look", "input": {}}]
    made = repaired(ASKED, call("a", text="").model_copy(update={"content": blocks}), result("a"))
    assert made[1].content == blocks[1:]
    image = {"type": "image", "url": "https://example.org/cat.png"}
    shown = repaired(HumanMessage([{"type": "text", "text": " "}, image]))
    assert shown[0].content == [image]


def test_calls_that_could_not_be_read_are_left_out_with_everything_that_repeats_them() -> None:
    broken = AIMessage(
        "trying",
        invalid_tool_calls=[{"name": "look", "args": "{", "id": "bad", "error": "", "type": "invalid_tool_call"}],
        additional_kwargs={"tool_calls": [{"id": "bad"}]},
    )
    made = repaired(ASKED, broken, HumanMessage("next"))
    assert made[1].text == "trying"
    assert made[1].invalid_tool_calls == []
    assert "tool_calls" not in made[1].additional_kwargs


def test_reasoning_stays_with_its_call_and_goes_with_it() -> None:
    thought = {"type": "reasoning", "id": "rs_1", "summary": []}
    use = {"type": "function_call", "call_id": "a", "name": "look", "arguments": "{}", "id": "fc_1"}
    whole = call("a").model_copy(update={"content": [thought, use]})
    assert repaired(ASKED, whole, result("a"))[1].content == [thought, use]
    assert texts(repaired(ASKED, whole, HumanMessage("next"))) == ["q", "next"]


def test_reasoning_behind_the_last_text_is_left_out() -> None:
    said = [{"type": "text", "text": "said"}, {"type": "reasoning", "reasoning": "and thought"}]
    assert repaired(ASKED, AIMessage(said), HumanMessage("next"))[1].content == said[:1]


def test_the_last_human_message_always_stays_even_when_it_is_empty() -> None:
    assert [message.content for message in repaired(HumanMessage(""))] == [FILLER]
    assert texts(repaired(HumanMessage(""), AIMessage("x"), HumanMessage("y"))) == [FILLER, "x", "y"]


def test_a_conversation_that_begins_with_an_answer_gets_a_human_message_first() -> None:
    assert texts(repaired(AIMessage("welcome"), ASKED)) == [FILLER, "welcome", "q"]


def test_system_messages_in_the_middle_are_taken_out_for_the_system_text() -> None:
    made = repair([Item(message=message) for message in (ASKED, SystemMessage("be brief"), AIMessage("ok"), ASKED)])
    assert [message.text for message in made.system] == ["be brief"]
    assert [item.message.type for item in made.items] == ["human", "ai", "human"]


def test_a_message_that_stands_twice_is_shown_once_with_its_last_content() -> None:
    made = repaired(HumanMessage("q", id="1"), AIMessage("old", id="2"), AIMessage("new", id="2"), HumanMessage("r"))
    assert texts(made) == ["q", "new", "r"]


def test_what_is_left_out_is_named() -> None:
    made = repair([Item(message=result("lost").model_copy(update={"id": "x"})), Item(message=ASKED)])
    assert [(gone.id, gone.reason, gone.role) for gone in made.left_out] == [("x", "repaired", "tool")]


@given(conversations())
def test_any_disorder_becomes_a_prompt_that_strict_providers_take(messages: list[BaseMessage]) -> None:
    before = copy.deepcopy(messages)
    made = repair([Item(message=message) for message in messages])
    check_prompt([item.message for item in made.items])
    assert any(item.message.text == "the question" for item in made.items)
    assert messages == before, "the given messages were changed"


@given(conversations())
def test_repairing_twice_changes_nothing_more(messages: list[BaseMessage]) -> None:
    once = repair([Item(message=message) for message in messages]).items
    assert [item.message for item in repair(once).items] == [item.message for item in once]


@pytest.mark.parametrize("broken", [{"name": ""}, {"id": None}, {"id": ""}])
def test_a_call_without_a_name_or_an_id_is_left_out_with_its_result(broken: dict[str, object]) -> None:
    caller = call("a", "b")
    caller.tool_calls[0].update(broken)
    answered = result(str(broken.get("id", "a") or ""))
    made = repaired(ASKED, caller, answered, result("b"), HumanMessage("next"))
    assert [c["id"] for c in made[1].tool_calls] == ["b"]
    assert texts(made) == ["q", "ai", "found", "next"]


def test_chat_messages_of_usual_roles_become_messages_of_those_roles() -> None:
    made = repaired(
        ChatMessage("s", role="developer"),
        ChatMessage("q", role="user", id="m1"),
        ChatMessage("a", role="assistant"),
        ASKED,
    )
    assert [(message.type, message.text) for message in made] == [("human", "q"), ("ai", "a"), ("human", "q")]
    assert made[0].id == "m1"
    assert repaired(ChatMessage("only", role="user"))[-1].type == "human"
