"""The published benchmarks' code, with a scripted model in place of a real one."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from benchmarks import locomo_qa, longmemeval
from langchain_mastra_memory.testing import ScriptedChatModel

NOTES = "<observations>\n* User moved to Oslo\n</observations>"

HAYSTACK = {
    "question_id": "q1",
    "question_type": "single-session-user",
    "question": "Where does the user live?",
    "answer": "Oslo",
    "question_date": "2023/06/01 (Thu) 10:00",
    "haystack_dates": ["2023/05/21 (Sun) 09:00", "2023/05/20 (Sat) 02:21"],
    "haystack_sessions": [
        [{"role": "user", "content": "Second."}, {"role": "assistant", "content": "ok"}],
        [{"role": "user", "content": "I moved to Oslo."}, {"role": "assistant", "content": "Nice."}],
    ],
}

CONVERSATION = {
    "conversation": {
        "speaker_a": "Ann",
        "speaker_b": "Bob",
        "session_1_date_time": "1:56 pm on 8 May, 2023",
        "session_1": [
            {"speaker": "Ann", "dia_id": "D1:1", "text": "I moved to Oslo.", "blip_caption": "a fjord"},
            {"speaker": "Bob", "dia_id": "D1:2", "text": "Nice."},
        ],
    },
    "qa": [
        {"question": "Where does Ann live?", "answer": "Oslo", "category": 4},
        {"question": "Is this adversarial?", "adversarial_answer": "x", "category": 5},
    ],
}


def models():
    observer = ScriptedChatModel([NOTES], repeat_last=True)
    return observer, ScriptedChatModel(["In Oslo."], repeat_last=True), ScriptedChatModel(["Yes."], repeat_last=True)


def test_longmemeval_remembers_by_date_asks_with_observations_and_judges():
    observer, model, judge = models()
    score = longmemeval.evaluate(longmemeval.read([HAYSTACK]), model=model, observer=observer, judge=judge)
    assert score.accuracy == 1
    assert "single-session-user" in score.table()
    assert "User moved to Oslo" in model.last_call.system
    assert "June 01, 2023" in model.last_call.conversation[-1].text
    history = observer.calls[0].messages[-1].text
    assert history.index("I moved to Oslo.") < history.index("Second.")
    assert "May 20 2023" in history
    assert "Right answer: Oslo" in judge.last_call.messages[-1].text


def test_locomo_shows_who_speaks_and_leaves_adversarial_questions_out():
    observer, model, judge = models()
    score, overlap = locomo_qa.evaluate([CONVERSATION], model=model, observer=observer, judge=judge)
    assert dict(score.asked) == {"single-hop": 1}
    assert overlap["single-hop"] == pytest.approx(2 / 3)
    history = observer.calls[0].messages[-1].text
    assert "User Ann" in history
    assert "[shares an image: a fjord]" in history
    assert "Assistant Bob" in history


def test_dates_of_both_data_sets_are_read():
    assert longmemeval.moment("2023/05/20 (Sat) 02:21") == datetime(2023, 5, 20, 2, 21, tzinfo=UTC)
    assert longmemeval.moment("2023-05-20") == datetime(2023, 5, 20, tzinfo=UTC)
    assert locomo_qa.moment("1:56 pm on 8 May, 2023") == datetime(2023, 5, 8, 13, 56, tzinfo=UTC)


def test_a_wrong_answer_counts_as_wrong():
    observer, model, _ = models()
    score = longmemeval.evaluate(
        longmemeval.read([HAYSTACK]), model=model, observer=observer, judge=ScriptedChatModel(["No."], repeat_last=True)
    )
    assert score.accuracy == 0
