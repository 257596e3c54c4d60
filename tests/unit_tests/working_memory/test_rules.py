"""What an update does to a page."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from langchain_mastra_memory.errors import ConfigurationError, WorkingMemoryError
from langchain_mastra_memory.working_memory.options import DEFAULT_TEMPLATE, WorkingMemory
from langchain_mastra_memory.working_memory.prompt import page_layer
from langchain_mastra_memory.working_memory.rules import decide, misfit, value_of


class Profile(BaseModel):
    name: str
    nick: str | None = None
    age: int | None = None


REQUIRED = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "nick": {"type": ["string", "null"]}},
    "required": ["name", "nick"],
}
TEXT = WorkingMemory(template="# User\n- Name:\n- City:")
OBJECT = WorkingMemory(schema=Profile)


def test_a_text_replaces_the_page():
    assert decide(TEXT, "# User\n- Name: Ann", "# User\n- Name: Bob").text == "# User\n- Name: Bob"


@given(text=st.text(min_size=1).filter(lambda t: t.strip() and t.strip()[0] != "{"))
def test_a_text_is_kept_letter_by_letter(text):
    assert decide(TEXT, None, text).text == text


def test_the_empty_template_does_not_wipe_a_page_when_an_agent_sends_it():
    for wiped in ("# User\n- Name:\n- City:", "#  User - Name:\n\n- City: "):
        with pytest.raises(WorkingMemoryError, match="empty template"):
            decide(TEXT, "# User\n- Name: Ann", wiped, by_agent=True)
    assert decide(TEXT, "A", "# User\n- Name:\n- City:").text.startswith("# User")
    assert decide(TEXT, None, "# User\n- Name:\n- City:", by_agent=True).text.startswith("# User")
    again = decide(TEXT, "# User\n- Name:\n- City:", "# User\n- Name:\n- City:", by_agent=True)
    assert again.text.startswith("# User")


def test_a_partial_update_needs_only_its_own_fields():
    options = WorkingMemory(schema=REQUIRED)
    first = decide(options, None, {"name": "Ann", "nick": "A"}).text
    assert json.loads(decide(options, first, {"nick": "B"}).text) == {"name": "Ann", "nick": "B"}


def test_null_deletes_a_field():
    page = decide(OBJECT, None, {"name": "Ann", "age": 3}).text
    assert decide(OBJECT, page, {"age": None}).text == '{"name":"Ann"}'


@pytest.mark.parametrize("options", [OBJECT, WorkingMemory(schema=REQUIRED)], ids=["pydantic", "json-schema"])
def test_null_on_a_required_field_is_refused_with_the_reason(options):
    page = '{"name":"Ann","nick":"A"}'
    with pytest.raises(WorkingMemoryError, match="name") as caught:
        decide(options, page, {"name": None})
    assert "required field cannot be deleted" in str(caught.value)


def test_the_merged_page_is_what_is_validated():
    with pytest.raises(WorkingMemoryError, match="name"):
        decide(OBJECT, None, {"age": 3})
    with pytest.raises(WorkingMemoryError, match="age"):
        decide(OBJECT, '{"name":"Ann"}', {"age": "old"})


def test_a_replacement_keeps_nothing_and_no_nulls():
    assert (
        decide(OBJECT, '{"name":"Ann","age":3}', {"name": "Bob", "nick": None}, replace=True).text == '{"name":"Bob"}'
    )


@pytest.mark.parametrize("current", ['{"name":"Ann"}', "[1,2]", "free text"])
def test_an_empty_update_changes_nothing_whatever_the_page_is(current):
    for update in ({}, None, "{}"):
        assert decide(OBJECT, current, update).text == current


@pytest.mark.parametrize("current", ["free text", "[1, 2]", '{"broken": '])
def test_a_page_that_is_no_object_is_started_anew_and_the_writer_is_told(current):
    decision = decide(OBJECT, current, {"name": "Ann"})
    assert decision.text == '{"name":"Ann"}'
    assert "anew" in decision.notes[0]


def test_a_page_of_an_older_schema_is_repaired_by_the_next_valid_update():
    stale = '{"name":"Ann","age":"very old","nick":"A"}'
    assert "age" in (misfit(OBJECT, stale) or "")
    assert value_of(OBJECT, stale) == {"name": "Ann", "age": "very old", "nick": "A"}
    decision = decide(OBJECT, stale, {"nick": "B"})
    assert json.loads(decision.text) == {"name": "Ann", "nick": "B"}
    assert "age" in decision.notes[0]
    assert misfit(OBJECT, decision.text) is None


def test_a_stale_page_that_lacks_a_required_field_takes_it_from_the_update():
    assert decide(OBJECT, '{"age":3}', {"name": "Ann"}).text == '{"age":3,"name":"Ann"}'


@pytest.mark.parametrize("options", [TEXT, OBJECT], ids=["text", "object"])
def test_a_page_over_the_limit_is_refused_with_both_numbers(options):
    limited = options.model_copy(update={"max_chars": 50})
    update = "x" * 51 if options.mode == "template" else {"name": "x" * 51}
    with pytest.raises(WorkingMemoryError, match=r"at most 50 .*shorten"):
        decide(limited, None, update)


def test_a_screen_of_the_application_refuses_with_its_own_reason():
    def no_cards(page):
        if "4111" in str(page):
            raise ValueError("no card numbers, please")

    for options, update in (
        (WorkingMemory(screen=no_cards), "card 4111"),
        (WorkingMemory(screen=no_cards, schema=Profile), {"name": "4111"}),
    ):
        with pytest.raises(WorkingMemoryError, match="no card numbers, please"):
            decide(options, None, update)
    assert decide(WorkingMemory(screen=no_cards), None, "no card").text == "no card"


def test_an_object_shaped_like_a_serialised_class_stays_plain_data():
    shaped = {"lc": 1, "type": "constructor", "id": ["langchain_core", "messages", "HumanMessage"], "kwargs": {}}
    options = WorkingMemory(schema={"type": "object"})
    assert value_of(options, decide(options, None, shaped).text) == shaped


def test_optional_sections_survive_an_update_of_another_one():
    options = WorkingMemory(schema={"type": "object", "properties": {"profile": {"type": "object"}}})
    page = decide(options, None, {"profile": {"nick": "A"}}).text
    assert json.loads(decide(options, page, {"contacts": ["one"]}).text) == {
        "profile": {"nick": "A"},
        "contacts": ["one"],
    }


def test_a_template_and_a_schema_together_are_refused():
    with pytest.raises(ConfigurationError, match="not both"):
        WorkingMemory(template="x", schema=Profile)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"scope": "user"}, "scope.*user"),
        ({"max_chars": 0}, "max_chars.*1"),
        ({"template": "  "}, "template"),
        ({"unknown": 1}, "unknown"),
        ({"schema": [1]}, "schema"),
    ],
)
def test_a_wrong_option_names_itself_and_its_value(options, says):
    with pytest.raises(ConfigurationError, match=says):
        WorkingMemory(**options)


def test_a_template_loses_the_white_space_around_it_and_there_is_a_default():
    assert WorkingMemory(template="\n  # X \n- a:\n\n").page_template == "# X \n- a:"
    assert WorkingMemory().page_template == DEFAULT_TEMPLATE
    assert DEFAULT_TEMPLATE.count("# ") == 1


def test_what_the_observer_manages_the_agent_does_not_unless_said():
    assert WorkingMemory().settled(observer_manages=False).has_tool
    managed = WorkingMemory().settled(observer_manages=True)
    assert (managed.has_tool, managed.use_state_signals) == (False, True)
    own = WorkingMemory(agent_managed=True, use_state_signals=False).settled(observer_manages=True)
    assert (own.has_tool, own.use_state_signals) == (True, False)


def test_a_page_of_blanks_behind_a_bracket_is_neutralised_in_linear_time():
    def seconds(length: int) -> float:
        page = "<" + " " * length
        started = time.perf_counter()
        page_layer(TEXT, page, can_change=True)
        return time.perf_counter() - started

    seconds(1000)
    assert seconds(1_000_000) < 5  # it was the square: minutes for 20 000 blanks
