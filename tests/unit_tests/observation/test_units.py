"""Where a range may end."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from langchain_mastra_memory.observation.log import MessageFact
from langchain_mastra_memory.observation.units import closed_ends, is_legal_end, loop_ends, running_from, units


def conversation(text):
    """`h` human, `a` answer, `c1`/`c12` calls, `t1` result, `s` signal, `y` system."""
    found = []
    for seq, word in enumerate(text.split()):
        role = {"h": "human", "a": "ai", "c": "ai", "t": "tool", "s": "human", "y": "system"}[word[0]]
        found.append(
            MessageFact(
                id=f"m{seq}",
                seq=seq,
                role=role,
                hidden=word[0] == "s",
                calls=tuple(word[1:]) if word[0] == "c" else (),
                answers=word[1:] if word[0] == "t" else None,
            )
        )
    return found


def ends(text):
    return closed_ends(conversation(text))


def test_a_range_ends_behind_every_closed_message_before_the_running_turn():
    assert ends("h a h a") == [1, 2, 3, 4]
    assert ends("h a h") == [1, 2]


def test_a_call_and_all_its_results_stay_together():
    assert ends("h c12 t1 t2 a") == [1, 4, 5]
    assert ends("h c12 t1 t2") == []


def test_an_open_call_ends_the_search():
    assert ends("h c1") == []
    assert ends("h c12 t1") == []


def test_a_call_that_a_crash_left_open_is_given_up_once_the_conversation_goes_on():
    assert ends("h c1 h a") == [1, 2, 3, 4]
    assert ends("h c12 t1 h a h") == [1, 3, 4, 5]


def test_a_late_result_keeps_what_stands_between_with_it():
    assert ends("h c1 h t1 a") == [1, 4, 5]


def test_a_call_id_that_is_used_again_does_not_swallow_what_is_between():
    assert ends("h c1 t1 a h c1 t1 a") == [1, 3, 4, 5, 7, 8]


def test_a_marker_stays_with_the_question_that_it_announces():
    messages = conversation("h a s h")
    assert running_from(messages) == 2
    assert closed_ends(messages) == [1, 2]


def test_a_turn_is_running_until_an_answer_without_calls():
    assert running_from(conversation("h a")) == 2
    assert running_from(conversation("h a y")) == 3
    assert running_from(conversation("h c1 t1")) == 0


def test_without_a_question_in_sight_everything_belongs_to_the_running_turn():
    assert ends("c1 t1 c2 t2") == []
    assert loop_ends(conversation("c1 t1 c2 t2")) == [2]


def test_a_tool_loop_may_be_observed_up_to_the_unit_before_the_newest():
    messages = conversation("h a h c1 t1 c2 t2 c3 t3")
    assert loop_ends(messages) == [5, 7]
    assert is_legal_end(messages, 4, in_loop=True)
    assert not is_legal_end(messages, 4)
    assert not is_legal_end(messages, 8, in_loop=True)
    assert loop_ends(conversation("h c1 t1 a")) == []


@given(st.lists(st.sampled_from(["h", "a", "c1", "c2", "c12", "t1", "t2", "s", "y"]), max_size=14))
def test_units_cover_everything_in_order_and_never_part_a_call_from_its_first_answer(words):
    messages = conversation(" ".join(words)) if words else []
    found = units(messages)
    assert [i for unit in found for i in range(unit.start, unit.end)] == list(range(len(messages)))
    for unit in found:
        for index in range(unit.start, unit.end):
            for call in messages[index].calls:
                later = messages[index + 1 :]
                answer = next((n for n, m in enumerate(later) if m.answers == call or call in m.calls), None)
                if answer is not None and later[answer].answers == call:
                    assert index + 1 + answer < unit.end


@given(st.lists(st.sampled_from(["h", "a", "c1", "c2", "c12", "t1", "t2", "s"]), max_size=14))
def test_legal_ends_never_reach_the_running_question(words):
    messages = conversation(" ".join(words)) if words else []
    limit = running_from(messages)
    assert all(end <= limit for end in closed_ends(messages))
