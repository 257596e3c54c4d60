"""Semantic recall beside the recorded behaviour of Mastra: file 09, with what we do otherwise on purpose.

The recorded memory has vectors only, so ours searches by meaning (`mode="vector"`) with the recorded embedding rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from langchain_mastra_memory.history.options import MessageHistory
from langchain_mastra_memory.memory import Memory
from langchain_mastra_memory.recall.options import SemanticRecall
from langchain_mastra_memory.testing.clock import FrozenClock
from langchain_mastra_memory.testing.embeddings import WordEmbeddings
from langchain_mastra_memory.testing.models import ScriptedChatModel
from tests.golden import ERROR, NOW, Difference, Session, load_cases

CASES = {case["id"]: case for case in load_cases("09_semantic_recall")}
SEARCHES = sorted(name for name, case in CASES.items() if "agent_turns" not in case["input"])
TURNS = sorted(name for name, case in CASES.items() if "agent_turns" in case["input"])

ALL_OF_T1 = [f"m{n}" for n in range(1, 11)]
DELIBERATE: dict[str, Difference] = {
    "sr-scope-default-object": Difference(
        "a message beside a good hit rises: o3 stands between two hits", {6: ["m9", "o2", "o3"]}
    ),
    "sr-delete-thread": Difference(
        "of messages with nothing in common, a hit's neighbour comes", {7: ["m3", "m9", "m10"]}
    ),
    "sr-with-history": Difference(
        "a search returns what it found, not the newest messages with it; pages don't go with a query",
        {6: ["m1"], 7: ["m10"], 8: ERROR, 9: ERROR},
    ),
    "sr-disabled": Difference("a query that nothing can answer is an error, not ignored", {6: ERROR, 7: ERROR}),
    "sr-filter-bad": Difference("any text is a key of metadata; this one is in no thread's", {10: []}),
    "sr-filter-metadata-change": Difference(
        "filters see metadata as it is now",
        {7: ALL_OF_T1, 8: [], 10: [*ALL_OF_T1, "m11"], 12: [*ALL_OF_T1, "m11"], 13: []},
    ),
    "sr-duplicates-save": Difference("saving twice adds no second vector (fault 13)", {8: ["m3", "m9"]}),
    "sr-clone-filter": Difference(
        "clones and transferred threads are found by their metadata (fault 12)", {7: 10, 10: ["o1", "o2", "o3", "o4"]}
    ),
    "sr-multi-text": Difference(
        "tool calls and results can be found, as documented, and a call never comes without its result",
        {2: ["p1", "p1-result"], 3: ["p3", "p3-result"], 4: ["p3", "p3-result"]},
    ),
    "sr-agent-filter-ignored": Difference("the filter counts in a run too (fault 16)"),
    "sr-agent-cross-and-same": Difference('"lion" is beside a hit and rises above m3'),
    "sr-agent-turn-metadata": Difference("what a run saved is found by the thread's metadata (fault 12)"),
}


def recall_options(recorded: Any) -> SemanticRecall | None:
    """Return our options for recorded ones."""
    if recorded is False:
        return None
    names = {"topK": "top_k", "messageRange": "message_range"}
    given = {} if recorded is True else {names.get(key, key): value for key, value in recorded.items()}
    return SemanticRecall(mode="vector", **given)


class RecallSession(Session):
    """Operations of file 09; a recall with options of its own is one of another memory over the same store."""

    def recall(self, *, memory_options: Mapping[str, Any] | None = None, full: bool = False, **query: Any) -> Any:
        del full
        if memory_options is None:
            return [row.id for row in self.memory.recall(**query)]
        recorded = dict(memory_options["semanticRecall"])
        rule = recorded.pop("filter", None)
        other = Memory(
            self.memory.store,
            embeddings=WordEmbeddings(),
            semantic_recall=recall_options(recorded),
            message_history=self.memory.options.message_history,
        )
        with other:
            return [row.id for row in other.recall(**query, filter=rule)]

    def save_messages(self, messages: list[dict[str, Any]]) -> Any:
        if not any("parts" in message for message in messages):
            return super().save_messages(messages)
        for message in messages:
            given = parts_of(message) if "parts" in message else [AIMessage(message["text"], id=message["id"])]
            self.memory.save_messages(given, thread_id=message["thread_id"], resource_id=message["resource_id"])
        return {"message_ids": [message["id"] for message in messages]}


def parts_of(message: Mapping[str, Any]) -> list[Any]:
    """Return a recorded message of several parts as LangChain has it: a call, and its result."""
    texts = [part["text"] for part in message["parts"] if part["type"] == "text"]
    tool = next(part for part in message["parts"] if part["type"] == "tool_result")
    call = {"id": tool["call_id"], "name": tool["name"], "args": tool["args"]}
    content = [{"type": "text", "text": text} for text in texts]
    return [
        AIMessage(content, id=message["id"], tool_calls=[call]),
        ToolMessage(tool["result"], tool_call_id=tool["call_id"], id=f"{message['id']}-result"),
    ]


def new_memory(case: Mapping[str, Any], clock: FrozenClock, url: str = "memory://") -> Memory:
    options = case["input"]["memory_options"]
    recall = recall_options(options["semanticRecall"])
    return Memory(
        url,
        clock=clock,
        message_history=MessageHistory(last_messages=options["lastMessages"]),
        semantic_recall=recall,
        embeddings=None if recall is None else WordEmbeddings(),
    )


@pytest.mark.parametrize("name", SEARCHES)
def test_a_recorded_search_gives_the_same_or_what_we_do_on_purpose(name: str, store_url: str) -> None:
    case, clock = CASES[name], FrozenClock(NOW)
    difference = DELIBERATE.get(name)
    ours = dict(difference.ours) if difference else {}
    with new_memory(case, clock, store_url) as memory:
        session = RecallSession(memory, clock)
        for place, (op, recorded) in enumerate(zip(case["input"]["ops"], case["expected"]["results"], strict=True)):
            given = session.run(op)
            if op["op"] != "recall":
                assert given != ERROR, f"{name}[{place}]"
                continue
            result = recorded["result"]
            expected = ours.pop(place) if place in ours else ERROR if result.get("error") else result["ids"]
            if expected and expected != ERROR and (isinstance(expected, int) or str(expected[0]).startswith("<gen:")):
                assert len(given) == (expected if isinstance(expected, int) else len(expected)), f"{name}[{place}]"
            else:
                assert given == expected, f"{name}[{place}]"
        assert memory.settled() == []
    assert not ours, f"{name} has no operation {sorted(ours)}"


TEXTS = {"m1": "apple banana", "m2": "cherry", "m3": "zebra lion tiger", "m4": "monkey", "m5": "rocket moon",
         "m6": "planet", "m7": "guitar piano", "m8": "violin", "m9": "zebra lion", "m10": "bread"}  # fmt: skip
OURS_IN_A_RUN: dict[str, tuple[list[str], list[str]]] = {
    "sr-agent-filter-ignored": (ALL_OF_T1, []),
    "sr-agent-cross-and-same": (["m9", "m10"], ["zebra giraffe", "lion"]),
}


def prompt_of(case: Mapping[str, Any], recorded: list[dict[str, Any]]) -> tuple[list[str], list[str]]:
    """Return the ids of remembered messages, and the texts of other threads, of a recorded prompt."""
    ids = [part["part"] for part in recorded if part["part"] in TEXTS]
    cross = [entry["text"] for part in recorded for entry in part.get("structure", {}).get("entries", ())]
    return ids, cross


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in TURNS
        if name.startswith(("sr-agent-same", "sr-agent-cross", "sr-agent-filter", "sr-agent-threshold"))
    ],
)
def test_a_recorded_turn_shows_the_model_the_same_or_what_we_show_on_purpose(name: str) -> None:
    case, clock = CASES[name], FrozenClock(NOW)
    with new_memory(case, clock) as memory:
        session = RecallSession(memory, clock)
        for op in case["input"]["ops"]:
            assert session.run(op) != ERROR
        model = ScriptedChatModel([case["input"]["model_reply"]])
        agent = create_agent(model, middleware=[memory.middleware()], system_prompt="INSTR")
        ids = {"thread_id": case["input"]["thread"], "resource_id": case["input"]["resource"]}
        agent.invoke({"messages": [HumanMessage(case["input"]["agent_turns"][0])]}, {"configurable": ids})
        prompt = model.calls[0].messages
        known = {text: name for name, text in TEXTS.items()}
        shown = [known[m.text] for m in prompt if m.type in ("human", "ai") and m.text in known and m is not prompt[-1]]
        system = "\n".join(m.text for m in prompt if m.type == "system")
        expected, cross = OURS_IN_A_RUN.get(name) or prompt_of(case, case["expected"]["prompts"][0])
        assert shown == expected
        lines = [
            text
            for text in ("ocean wave", "zebra giraffe", "lion", "coral zebra reef shell")
            if f"\n{text}\n" in system
        ]
        assert lines == cross


def test_a_turn_embeds_its_question_and_its_answer_once() -> None:
    case, clock = CASES["sr-agent-embeds-turn"], FrozenClock(NOW)
    with new_memory(case, clock) as memory:
        RecallSession(memory, clock).run(case["input"]["ops"][0])
        replies = [case["input"]["model_reply"].replace("<n>", str(n)) for n in (1, 2)]
        agent = create_agent(ScriptedChatModel(replies), middleware=[memory.middleware()])
        for turn in case["input"]["agent_turns"]:
            agent.invoke({"messages": [HumanMessage(turn)]}, {"configurable": {"thread_id": "t1", "resource_id": "r1"}})
        assert memory.settled() == []
        embeddings = memory.options.embeddings
        assert isinstance(embeddings, WordEmbeddings)
        assert sorted(embeddings.asked) == sorted(case["expected"]["embedded_texts"])


def test_what_a_run_saved_is_found_by_the_metadata_of_its_thread() -> None:
    case = CASES["sr-agent-turn-metadata"]["input"]
    with Memory(
        semantic_recall=SemanticRecall(mode="vector", top_k=5, message_range=0), embeddings=WordEmbeddings()
    ) as memory:
        memory.create_thread("r1", thread_id="t1", metadata=case["thread_metadata"])
        agent = create_agent(ScriptedChatModel([case["model_reply"]]), middleware=[memory.middleware()])
        config = {"configurable": {"thread_id": "t1", "resource_id": "r1"}}
        agent.invoke({"messages": [HumanMessage(case["agent_turns"][0])]}, config)
        found = [
            [row.message.text for row in memory.recall(resource_id="r1", query=one["query"], filter=one.get("filter"))]
            for one in case["then_recall"]
        ]
        both = [case["agent_turns"][0], case["model_reply"]]
        assert found == [both, both, []]  # a bare key is the thread's: no thread has a "role"


def test_every_difference_names_a_case() -> None:
    assert set(DELIBERATE) <= set(CASES)
