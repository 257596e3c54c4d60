from __future__ import annotations

from langchain_core.messages import AIMessage, HumanMessage

from langchain_mastra_memory.demo.conversation import ASKED, ASKED_IN_FORK, TOLD, answer, facts

HISTORY = [message for line in TOLD for message in (HumanMessage(line), AIMessage("Noted."))]


def test_the_facts_are_in_what_is_told():
    assert facts(HISTORY) == {
        "name": "Ada",
        "place": "Lisbon",
        "allergy": "peanuts",
        "dog": "Pixel",
        "train": "Friday at 9",
    }


def test_the_scripted_model_knows_nothing_without_its_history():
    assert answer([HumanMessage(ASKED)]) == "I was told too little to write that."
    assert answer([HumanMessage(ASKED_IN_FORK)]) == "Not that you have told me."


def test_the_scripted_model_answers_from_its_history():
    assert "peanuts" in answer([*HISTORY, HumanMessage(ASKED)])
    assert answer([*HISTORY, HumanMessage(ASKED_IN_FORK)]) == "Yes, to peanuts."


def test_a_question_tells_no_fact():
    assert facts([HumanMessage(ASKED_IN_FORK), HumanMessage(ASKED)]) == {}


def test_what_the_agent_said_itself_is_no_fact():
    assert facts([AIMessage(TOLD[1])]) == {}
