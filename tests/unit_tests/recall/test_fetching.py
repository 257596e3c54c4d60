"""Hits are read with their neighbours: the shortest stretch with whole tool pairs, in few reads."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langchain_mastra_memory.memory import Memory
from langchain_mastra_memory.recall.options import SemanticRecall
from langchain_mastra_memory.recall.results import incomplete
from langchain_mastra_memory.store.operations.index import ReadPlaces

Make = Callable[..., Memory]


def conversation(seed: int) -> list[BaseMessage]:
    """Return turns with one, several or no tool calls, each message with a word of its own."""
    chance = random.Random(seed)
    messages: list[BaseMessage] = []
    for turn in range(12):
        messages.append(HumanMessage(f"question q{turn}x"))
        calls = [f"c{turn}-{n}" for n in range(chance.choice([0, 1, 1, 3, 7]))]
        if calls:
            asked = [{"name": "look", "args": {}, "id": call} for call in calls]
            messages.append(AIMessage(f"looking l{turn}x", tool_calls=asked))
            messages += [ToolMessage(f"result r{call}".replace("-", "x"), tool_call_id=call) for call in calls]
        messages.append(AIMessage(f"answer a{turn}x"))
    return [message.model_copy(update={"id": f"m{n}"}) for n, message in enumerate(messages)]


def shortest(messages: list[BaseMessage], hit: int, around: tuple[int, int]) -> list[str]:
    """Return the ids of the stretch, grown one by one over everything."""

    class Stored:
        def __init__(self, message: BaseMessage) -> None:
            self.message = message

    low, high = max(hit - around[0], 0), min(hit + around[1], len(messages) - 1)
    while True:
        needs = incomplete([Stored(m) for m in messages[low : high + 1]])  # type: ignore[misc]  # only the message
        grown = low - (needs[0] and low > 0), high + (needs[1] and high < len(messages) - 1)
        if grown == (low, high):
            return [message.id or "" for message in messages[low : high + 1]]
        low, high = grown


@pytest.mark.parametrize("around", [(0, 0), (1, 1), (3, 0)])
@pytest.mark.parametrize("seed", range(3))
def test_a_hit_comes_with_the_shortest_stretch_that_has_whole_tool_pairs(
    memory_factory: Make, seed: int, around: tuple[int, int]
) -> None:
    memory = memory_factory("memory://", semantic_recall=SemanticRecall(mode="lexical"))
    messages = conversation(seed)
    memory.save_messages(messages, thread_id="t", resource_id="r")
    for place, message in enumerate(messages):
        found = memory.recall(
            thread_id="t", resource_id="r", query=message.text.split()[1], top_k=1, message_range=around
        )
        assert [stored.id for stored in found] == shortest(messages, place, around)


def test_a_search_among_tool_calls_reads_twice_at_most_and_the_next_one_once(
    memory_factory: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = memory_factory("memory://", semantic_recall=SemanticRecall(mode="lexical"))
    messages: list[BaseMessage] = []
    for turn in range(40):
        call: Any = {"name": "look", "args": {}, "id": f"c{turn}"}
        messages += [
            HumanMessage("the same question"),
            AIMessage("", tool_calls=[call]),
            ToolMessage("found", tool_call_id=f"c{turn}"),
            AIMessage("the same answer"),
        ]
    memory.save_messages(messages, thread_id="t", resource_id="r")
    run, reads = memory.store.run, []

    def counted(operation: Any) -> Any:
        reads.append(operation)
        return run(operation)

    monkeypatch.setattr(memory.store, "run", counted)
    found = memory.recall(thread_id="t", resource_id="r", query="same question", top_k=4, message_range=1)
    assert len(found) > 12
    assert sum(isinstance(operation, ReadPlaces) for operation in reads) <= 2
    reads.clear()
    again = memory.recall(thread_id="t", resource_id="r", query="same question", top_k=4, message_range=1)
    assert [stored.id for stored in again] == [stored.id for stored in found]
    assert sum(isinstance(operation, ReadPlaces) for operation in reads) == 1
