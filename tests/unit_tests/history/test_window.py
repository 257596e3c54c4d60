"""The window: counts, budgets, boundaries; whole units only."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langchain_mastra_memory.context.layers import Item
from langchain_mastra_memory.history.units import turn_start
from langchain_mastra_memory.history.window import Boundary, Limits, Shape, Window, choose
from tests.unit_tests.history.conversations import conversations


def items(*messages: BaseMessage, tokens: float = 10) -> list[Item]:
    return [
        Item(message=message.model_copy(update={"id": f"m{at}"}), seq=at, tokens=tokens)
        for at, message in enumerate(messages)
    ]


def talk(turns: int) -> list[BaseMessage]:
    return [kind(f"{kind.__name__} {turn}") for turn in range(turns) for kind in (HumanMessage, AIMessage)]


def window(found: list[Item], limits: Limits, shape: Shape | None = None, turn: int | None = None) -> Window:
    start = turn_start([item.message for item in found]) if turn is None else turn
    return choose(found, turn=start, limits=limits, weigh=lambda item: item.tokens or 0, shape=shape)


def ids(made: Window) -> list[str]:
    return [item.id for item in made.items]


def test_the_count_is_of_remembered_messages_and_the_running_turn_does_not_count() -> None:
    found = items(
        *talk(3), HumanMessage("now"), AIMessage("", tool_calls=[_call("a")]), ToolMessage("r", tool_call_id="a")
    )
    made = window(found, Limits(last_messages=2))
    assert ids(made) == ["m4", "m5", "m6", "m7", "m8"]
    assert made.turn == 2
    assert {gone.reason for gone in made.left_out} == {"count"}


def test_a_unit_that_the_count_would_cut_goes_as_a_whole() -> None:
    calls = AIMessage("", tool_calls=[_call("a"), _call("b")])
    results = [ToolMessage("r", tool_call_id=call) for call in ("a", "b")]
    found = items(HumanMessage("q"), calls, *results, AIMessage("done"), HumanMessage("now"))
    assert ids(window(found, Limits(last_messages=4))) == ["m1", "m2", "m3", "m4", "m5"]
    assert ids(window(found, Limits(last_messages=3))) == ["m4", "m5"]


def test_no_count_and_no_budget_keeps_everything() -> None:
    assert len(window(items(*talk(30), HumanMessage("now")), Limits(last_messages=None)).items) == 61


def test_history_that_is_off_leaves_the_running_turn() -> None:
    found = items(*talk(3), HumanMessage("now"))
    assert ids(window(found, Limits(last_messages=0))) == ["m6"]
    assert ids(window(found, Limits(last_messages=None, max_tokens=0))) == ["m6"]


def test_over_the_budget_the_oldest_units_go_until_there_is_room_for_several_turns() -> None:
    found = items(*talk(5), HumanMessage("now"))  # 110 tokens and 24
    made = window(found, Limits(last_messages=None, max_tokens=120, remove_tokens=30))
    assert ids(made) == ["m5", "m6", "m7", "m8", "m9", "m10"]
    assert made.boundary == Boundary(message_id="m4", seq=4, max_tokens=120, remove_tokens=30)
    assert made.tokens == 84


def test_under_the_budget_nothing_goes() -> None:
    made = window(items(*talk(5), HumanMessage("now")), Limits(last_messages=None, max_tokens=134))
    assert len(made.items) == 11
    assert made.boundary is None


def test_the_whole_prompt_counts_and_not_only_the_conversation() -> None:
    found = items(*talk(5), HumanMessage("now"))
    made = window(found, Limits(last_messages=None, max_tokens=134), Shape(fixed_tokens=1))
    assert ids(made)[0] == "m1"


def test_a_stored_boundary_keeps_the_same_prefix_until_the_budget_is_over_again() -> None:
    found = items(*talk(6), HumanMessage("now"))
    limits = Limits(last_messages=None, max_tokens=200, remove_tokens=50)
    shape = Shape(boundary=Boundary(message_id="m3", seq=3, max_tokens=200, remove_tokens=50))
    made = window(found, limits, shape)
    assert ids(made)[0] == "m4"
    assert made.boundary is None
    assert {gone.reason for gone in made.left_out} == {"boundary"}


def test_a_boundary_of_another_budget_is_not_used() -> None:
    found = items(*talk(3), HumanMessage("now"))
    shape = Shape(boundary=Boundary(message_id="m3", seq=3, max_tokens=999, remove_tokens=50))
    assert len(window(found, Limits(last_messages=None, max_tokens=200, remove_tokens=50), shape).items) == 7


def test_a_boundary_never_takes_what_was_kept_when_it_was_made() -> None:
    call = AIMessage("", tool_calls=[_call("late")])
    found = items(
        call, HumanMessage("q"), AIMessage("meanwhile"), ToolMessage("r", tool_call_id="late"), HumanMessage("now")
    )
    limits = Limits(last_messages=None, max_tokens=60, remove_tokens=0)
    made = window(found, limits)
    assert ids(made) == ["m1", "m2", "m4"]
    again = window(found, Limits(last_messages=None, max_tokens=60, remove_tokens=0), Shape(boundary=made.boundary))
    assert ids(again) == ids(made)


def test_protected_content_stays_when_it_alone_is_over_the_budget() -> None:
    found = items(*talk(2), HumanMessage("a very long question"), tokens=1000)
    made = window(found, Limits(last_messages=None, max_tokens=100, remove_tokens=25))
    assert ids(made) == ["m4"]


def test_a_call_of_the_history_whose_result_comes_with_the_turn_is_protected() -> None:
    call = AIMessage("", tool_calls=[_call("client")])
    found = items(HumanMessage("q"), call, ToolMessage("r", tool_call_id="client"), HumanMessage("go on"))
    assert ids(window(found, Limits(last_messages=0), turn=2)) == ["m1", "m2", "m3"]


def test_what_observations_cover_is_out_and_what_is_pinned_stays() -> None:
    found = items(*talk(3), HumanMessage("now"))
    made = window(found, Limits(last_messages=None), Shape(covered_upto=3, pinned=frozenset({"m2"})))
    assert ids(made) == ["m2", "m4", "m5", "m6"]


def test_a_unit_is_covered_only_as_a_whole() -> None:
    call = AIMessage("", tool_calls=[_call("a")])
    found = items(HumanMessage("q"), call, ToolMessage("r", tool_call_id="a"), AIMessage("done"), HumanMessage("now"))
    assert ids(window(found, Limits(last_messages=None), Shape(covered_upto=1))) == ["m1", "m2", "m3", "m4"]


def test_closed_units_of_the_running_turn_go_when_they_are_covered_by_id() -> None:
    call = AIMessage("", tool_calls=[_call("a")])
    found = items(HumanMessage("now"), call, ToolMessage("r", tool_call_id="a"), AIMessage("", tool_calls=[_call("b")]))
    made = window(found, Limits(last_messages=None), Shape(covered_ids=frozenset({"m1", "m2"})))
    assert ids(made) == ["m0", "m3"]


def _call(call_id: str) -> dict[str, object]:
    return {"name": "look", "args": {}, "id": call_id, "type": "tool_call"}


@given(
    conversations(),
    st.one_of(st.none(), st.integers(0, 12)),
    st.one_of(st.none(), st.integers(0, 300)),
    st.floats(0, 1),
    st.one_of(st.none(), st.integers(0, 14)),
)
def test_windows_are_bounded_keep_units_whole_and_keep_the_question(
    messages: list[BaseMessage], last: int | None, budget: int | None, share: float, covered: int | None
) -> None:
    from langchain_mastra_memory.history.units import cut

    found = items(*messages)
    start = turn_start(messages)
    limits = Limits(last_messages=last, max_tokens=budget, remove_tokens=share * (budget or 0))
    made = window(found, limits, Shape(covered_upto=covered))
    kept = {item.id for item in made.items}
    units = cut(messages)
    assert all(len({f"m{place}" in kept for place in unit.places}) == 1 for unit in units)
    assert f"m{start}" in kept
    assert {gone.id for gone in made.left_out} == {item.id for item in found} - kept
    protected = {place for unit in units if unit.last >= start for place in unit.places}
    remembered = [item for item in made.items if int(item.id[1:]) not in protected]
    if last is not None:
        assert len(remembered) <= last
    if budget is not None:
        assert made.tokens <= budget or not remembered
    if made.boundary is not None:
        again = window(found, limits, Shape(covered_upto=covered, boundary=made.boundary))
        assert ids(again) == ids(made)
        assert again.boundary is None
