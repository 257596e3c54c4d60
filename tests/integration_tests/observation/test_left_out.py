"""Raw messages that the history's limits leave out of a prompt: never without a word."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from langchain_core.messages import AIMessage

from langchain_mastra_memory.history.options import MessageHistory
from langchain_mastra_memory.testing import ScriptedChatModel
from tests.integration_tests.observation.conftest import HINTS, Says


def down(_messages: Any) -> str:
    raise RuntimeError("the observer is down")


def left_out(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event for event in events if event["phase"] == "left_out"]


TIGHT = MessageHistory(max_tokens=900, remove_tokens=0)


def test_a_conversation_that_no_longer_fits_while_the_observer_is_down_is_said_to_be_cut(talk: Any) -> None:
    chat = talk(ScriptedChatModel(down), message_history=TIGHT)
    said = [left_out(chat.say()) for _ in range(14)]
    first = next(at for at, events in enumerate(said) if events)
    assert not any(said[:first])
    assert first > 4
    stored = list(chat.memory.recall(thread_id="t", per_page=False))
    for turn in range(first, 14):
        (event,) = said[turn]
        assert event["observer_failing"] is True
        assert event["thread_id"] == "t"
        assert event["first_message_id"] == stored[0].id
    (last,) = said[-1]
    gone = stored[: last["messages"]]
    assert last["last_message_id"] == gone[-1].id
    assert last["tokens"] == sum(message.tokens for message in gone)
    assert chat.prompt[0] == stored[last["messages"]].message.text.split()[0]


@pytest.mark.parametrize("history", [None, TIGHT])
def test_nothing_is_said_while_observations_stand_for_what_is_gone(talk: Any, history: MessageHistory | None) -> None:
    chat = talk(ScriptedChatModel(Says(HINTS)), message_history=history or True)
    for _ in range(14):
        assert left_out(chat.say()) == []
    assert chat.memory.get_observations(thread_id="t").text


@pytest.mark.parametrize("history", [MessageHistory(last_messages=2), MessageHistory(max_tokens=300, remove_tokens=0)])
def test_limits_that_are_tighter_than_the_observers_are_said_in_the_log_once(
    talk: Any, history: MessageHistory, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    chat = talk(message_tokens=4000, buffer_tokens=False, message_history=history)
    events = [event for _ in range(6) for event in left_out(chat.say())]
    assert events
    assert not any(event["observer_failing"] for event in events)
    assert len([record for record in caplog.records if "not observed yet" in record.getMessage()]) == 1


def test_a_run_that_asks_for_no_history_and_a_preview_say_nothing(talk: Any) -> None:
    chat = talk(ScriptedChatModel(down), message_history=TIGHT)
    for _ in range(12):
        chat.say()
    off: Any = {"configurable": {"thread_id": "t", "resource_id": "r", "memory": {"last_messages": 0}}}
    assert left_out(chat.say(config=off)) == []
    before = len(chat.events)
    chat.memory.preview(thread_id="t", resource_id="r")
    assert len(chat.events) == before


def test_it_is_said_without_a_checkpointer_too(memory_factory: Any) -> None:
    from langchain.agents import create_agent

    from langchain_mastra_memory.observation.options import Observation, ObservationalMemory
    from tests.integration_tests.observation.conftest import CONFIG, COUNTER

    memory = memory_factory(
        "memory://",
        observational_memory=ObservationalMemory(
            model=ScriptedChatModel(down), observation=Observation(message_tokens=400)
        ),
        message_history=TIGHT,
        token_counter=COUNTER,
    )
    model = ScriptedChatModel(lambda _: AIMessage("beta " * 40))
    agent = create_agent(model, [], middleware=[memory.middleware()])
    events: list[Any] = []
    for _ in range(14):
        events += agent.stream({"messages": [("user", "alpha " * 40)]}, CONFIG, stream_mode="custom")
        memory.settled()
    said = left_out([event for event in events if event["type"] == "memory.observation"])
    stored = list(memory.recall(thread_id="t", per_page=False))
    assert said
    assert said[-1]["first_message_id"] == stored[0].id
    assert said[-1]["messages"] + len(model.last_call.conversation) >= len(stored) - 1
