"""Units: what stays together or goes together."""

from __future__ import annotations

from hypothesis import given
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langchain_mastra_memory.history.units import Unit, cut, turn_start
from tests.unit_tests.history.conversations import conversations


def call(*ids: str, text: str = "") -> AIMessage:
    return AIMessage(text, tool_calls=[{"name": "look", "args": {}, "id": name, "type": "tool_call"} for name in ids])


def result(call_id: str) -> ToolMessage:
    return ToolMessage("found", tool_call_id=call_id)


def test_parallel_calls_and_all_their_results_are_one_unit() -> None:
    units = cut([HumanMessage("q"), call("a", "b"), result("b"), result("a"), AIMessage("done")])
    assert units == [Unit((0,)), Unit((1, 2, 3)), Unit((4,))]


def test_a_result_belongs_to_its_call_wherever_it_was_saved() -> None:
    units = cut([call("a"), HumanMessage("are you there?"), AIMessage("yes"), result("a")])
    assert [unit.places for unit in units] == [(0, 3), (1,), (2,)]


def test_a_result_belongs_to_the_nearest_call_before_it_when_ids_are_used_again() -> None:
    units = cut([call("a"), result("a"), HumanMessage("again"), call("a"), result("a")])
    assert [unit.places for unit in units] == [(0, 1), (2,), (3, 4)]


def test_a_call_that_is_made_twice_and_answered_once_leaves_the_first_open() -> None:
    first, second = cut([call("a"), call("a"), result("a")])
    assert (first.places, first.open_calls) == ((0,), frozenset({"a"}))
    assert (second.places, second.open_calls) == ((1, 2), frozenset())


def test_a_result_without_a_call_is_a_unit_of_its_own() -> None:
    assert [unit.places for unit in cut([result("a"), HumanMessage("q")])] == [(0,), (1,)]


def test_reasoning_in_a_message_of_its_own_stays_with_the_message_that_follows() -> None:
    thought = AIMessage([{"type": "reasoning", "reasoning": "hm"}])
    assert [unit.places for unit in cut([HumanMessage("q"), thought, call("a"), result("a")])] == [(0,), (1, 2, 3)]
    assert [unit.places for unit in cut([thought, HumanMessage("q"), AIMessage("x")])] == [(0,), (1,), (2,)]


def test_the_running_turn_begins_at_the_newest_human_message() -> None:
    assert turn_start([HumanMessage("a"), AIMessage("b"), HumanMessage("c"), call("x"), result("x")]) == 2
    assert turn_start([AIMessage("b")]) == 1
    assert turn_start([]) == 0


@given(conversations(asked=False))
def test_every_message_is_in_exactly_one_unit(messages: list[BaseMessage]) -> None:
    units = cut(messages)
    assert sorted(place for unit in units for place in unit.places) == list(range(len(messages)))
    assert [unit.first for unit in units] == sorted(unit.first for unit in units)
