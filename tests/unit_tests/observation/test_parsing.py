"""Answers in whatever shape they come: what is said is read, what is not is not made up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_mastra_memory.observation.formatting import matches, parts_of, previous_tail
from langchain_mastra_memory.observation.parsing import for_context, parse_answer, parse_threads


@pytest.mark.parametrize(
    "text",
    [
        "<observations>\n* a\n* b\n</observations>",
        "<observations>* a\n* b</observations>",
        "Sure!\n<observations>\n* a\n* b",
        "Here: <observations>* a\n* b</observations> Bye.",
        "```xml\n<observations>\n* a\n* b\n</observations>\n```",
        "```\n* a\n* b\n```",
        "<observations>\n* a\n</observations>\n<observations>\n* b\n</observations>",
        "<OBSERVATIONS >\r\n* a\r\n* b\r\n</OBSERVATIONS >",
        "<observations>\n* a\n* b\n<current-task>\nx\n</current-task>",
        "* a\n* b\n<current-task>\n* not an observation\n</current-task>",
    ],
)
def test_observations_are_read_out_of_any_shape(text):
    assert parse_answer(text).observations == "* a\n* b"


@pytest.mark.parametrize("bullet", ["-", "*", "•", "+", "–", "▪", "◦", "1.", "12)"])
def test_a_list_without_tags_may_have_any_bullet(bullet):
    assert parse_answer(f"Well,\n{bullet} first\nplain").observations == f"{bullet} first"


@pytest.mark.parametrize(
    "text", ["", "None.", "<observations>\nNo new observations.\n</observations>", "I cannot.", "<observations/>"]
)
def test_what_has_nothing_to_say_is_empty(text):
    answer = parse_answer(text)
    assert (answer.observations, answer.problem) == ("", "empty")


def test_values_of_extractors_are_read_beside_the_notes():
    answer = parse_answer(
        "<observations>\n* a\n</observations>\n<mood>happy</mood>\n<größe>\nXL\n</größe>", ["mood", "größe"]
    )
    assert answer.extracted == {"mood": "happy", "größe": "XL"}
    assert parse_answer("<observations>\n* a\n</observations>", ["mood"]).extracted == {}


@pytest.mark.parametrize(
    "text",
    [
        '<thread id="a">\n<observations>\n* one\n</observations>\n<current-task>go</current-task>\n</thread>\n<thread id="b">\n* two\n</thread>',
        "<observations>\n<thread id=\"a\">\n* one\n<current-task>go</current-task>\n</thread>\n<thread id='b'>\n* two\n</thread>\n</observations>",
        '<thread id="a">\n* one\n<current-task>\ngo\n</current-task>\n<thread id="b">\n* two',
    ],
)
def test_answers_about_several_threads_are_told_apart(text):
    found = parse_threads(text)
    assert {i: answer.observations for i, answer in found.items()} == {"a": "* one", "b": "* two"}
    assert found["a"].current_task == "go"


@given(st.text(max_size=300))
def test_no_answer_makes_reading_fail(text):
    parse_answer(text, ["mood"])
    parse_threads(text)
    for_context(text)


@given(st.text(min_size=1, max_size=400), st.integers(1, 20))
def test_parts_of_a_text_join_to_it(text, most):
    found = parts_of(text, most, lambda part: len(part.split()))
    assert "".join(found) == text


@given(st.lists(st.sampled_from(["* 🔴 a", "* b", "* c d"]), min_size=1, max_size=15), st.integers(0, 40))
def test_the_tail_of_the_log_fits_its_budget_or_is_one_note(lines, budget):
    def count(text):
        return len(text.split())

    tail = previous_tail("\n".join(lines), budget, count)
    kept = [line for line in tail.text.split("\n") if line.startswith("*")]
    assert not kept or count(tail.text) <= budget
    assert tail.truncated == (kept != lines)


def test_code_nesting_links_and_checkboxes_survive_tidying():
    text = "* 🟡 [tag] see [x](http://u)\n  * `a[0]` and b[1]\n  * [ ] open\n  * [x] done"
    assert for_context(text) == "* see [x](http://u)\n  * `a[0]` and b[1]\n  * [ ] open\n  * [x] done"


def test_mime_types_match_whatever_the_case():
    assert matches("image/PNG", ["IMAGE/*"])
    assert matches("application/pdf", ["*"])
    assert not matches("application/pdf", ["image/*"])
