"""Markers, recall tool, extractors and summaries against what the real system was recorded to do (file 13)."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from pydantic import ValidationError

from langchain_mastra_memory.errors import ConfigurationError, ThreadNotFoundError
from langchain_mastra_memory.observation.extractors import Extractor, checked
from langchain_mastra_memory.observation.options import Observation, ObservationalMemory, Retrieval
from langchain_mastra_memory.testing import FrozenClock, ScriptedChatModel
from langchain_mastra_memory.types import StoredMessage
from tests.integration_tests.observation.conftest import COUNTER

FILE = Path(__file__).parents[2] / "data" / "golden" / "13_markers_recall_tool_extractors.json"
CASES = {case["id"]: case for case in json.loads(FILE.read_text("utf-8"))}

DELIBERATE = {
    "rt-default": "a tool result is a message of its own in LangChain, and nothing is read past the answer's budget",
    "rt-page3": "as rt-default: nine messages are on three pages of three",
    "rt-end": "as rt-default",
    "rt-scope-thread": "as rt-default",
    "rt-part": "as rt-default: the result is part 0 of its own message",
    "rt-part-oob": "as rt-default: the next message is the tool's",
    "rt-part-type": "as rt-default; and only messages that are shown are counted",
    "rt-tool-name": "as rt-default; and only messages that are shown are counted",
    "rt-cursor-back": "newer messages do exist behind a page before the cursor",
    "rt-cursor-0": "older messages do exist before the cursor",
    "rt-threads-baddate": "a date that makes no sense is refused instead of finding nothing",
    "rt-search": "scores are those of our formula",
    "ex-key-path-single": "a value is kept anywhere below om",
    "ex-structured-invalid": "our own wording of the same reason",
    "sum-unknown": "an unknown thread that is named with a resource is an error; without one the summary is empty",
    "sum-wrong-resource": "a foreign thread is told apart from a missing one by nobody",
}
DELIBERATE |= {f"tg-{name}": "the marker stands before the message that it announces" for name in (
    "45m", "59m", "14m", "1h", "90m", "5h", "23h", "1d", "36h", "6d", "8d", "20d", "observer"
)}  # fmt: skip
"""Where we differ on purpose, and why; what we do instead is asserted all the same."""

START = datetime(2025, 1, 1, 10, 0, tzinfo=UTC)


def group(prefix):
    return [case for case in CASES.values() if case["id"].startswith(prefix)]


def ids(cases):
    return [case["id"] for case in cases]


# temporal gaps


GAPS = [case for case in group("tg-") if "gap_ms" in case["input"]]


@pytest.mark.parametrize("case", GAPS, ids=ids(GAPS))
def test_a_marker_stands_before_a_message_that_comes_late(case, memory_factory):
    clock = FrozenClock(START)
    memory = memory_factory(
        "memory://",
        observational_memory=ObservationalMemory(model=ScriptedChatModel([]), temporal_markers=True),
        clock=clock,
        token_counter=COUNTER,
    )
    model = ScriptedChatModel(["A1", "A2"])
    agent = create_agent(model, [], middleware=[memory.middleware()], checkpointer=memory.checkpointer)
    memory.save_messages([HumanMessage("H1"), AIMessage("H2")], thread_id="t", resource_id="r")
    clock.advance(timedelta(milliseconds=case["input"]["gap_ms"]))
    config = {"configurable": {"thread_id": "t", "resource_id": "r"}}
    events = list(agent.stream({"messages": [HumanMessage("U1", id="u1")]}, config, stream_mode="custom"))
    shown = [m.text for m in model.last_call.conversation]
    assert case["expected"]["marker"]
    assert [text if not text.startswith("<system-reminder") else "MARKER" for text in shown] == [
        "H1",
        "H2",
        "MARKER",
        "U1",
    ]
    marker = shown[2]
    assert f'gap_text="{case["expected"]["gap_text"]}"' in marker
    assert re.fullmatch(
        r'<system-reminder type="temporal-gap" gap_text="[^"]+" gap_ms="\d+" timestamp="\d+/\d+/\d+, \d+:\d+ [AP]M UTC" '
        r'precedes_message_id="u1">[^<]+ — \d+/\d+/\d+, \d+:\d+ [AP]M UTC</system-reminder>',
        marker,
    )
    assert any(event["phase"] == "temporal_gap" for event in events if event["type"] == "memory.observation")
    assert [m.kind for m in memory.recall(thread_id="t", per_page=False)] == ["message"] * 4
    everything = memory.recall(thread_id="t", per_page=False, hide_signals=False)
    assert [m.kind for m in everything].count("system-reminder") == 1
    agent.invoke({"messages": [HumanMessage("U2", id="u2")]}, config)
    assert [m.text for m in model.last_call.conversation][2:4] == [marker, "U1"]


def test_a_message_that_comes_soon_has_no_marker(memory_factory):
    clock = FrozenClock(START)
    memory = memory_factory(
        "memory://", observational_memory=ObservationalMemory(temporal_markers=True), clock=clock, token_counter=COUNTER
    )
    model = ScriptedChatModel(["A1"], repeat_last=True)
    agent = create_agent(model, [], middleware=[memory.middleware()], checkpointer=memory.checkpointer)
    config = {"configurable": {"thread_id": "t", "resource_id": "r"}}
    agent.invoke({"messages": [HumanMessage("U1")]}, config)
    clock.advance(timedelta(seconds=599))
    agent.invoke({"messages": [HumanMessage("U2")]}, config)
    assert [m.text for m in model.last_call.conversation] == ["U1", "A1", "U2"]


def test_the_observer_sees_the_marker_as_a_signal_before_its_message(memory_factory):
    clock = FrozenClock(START)
    observer = ScriptedChatModel(["<observations>\n* x\n</observations>"], repeat_last=True)
    memory = memory_factory(
        "memory://",
        observational_memory=ObservationalMemory(model=observer, temporal_markers=True),
        clock=clock,
        token_counter=COUNTER,
    )
    agent = create_agent(
        ScriptedChatModel(["A1"], repeat_last=True),
        [],
        middleware=[memory.middleware()],
        checkpointer=memory.checkpointer,
    )
    config = {"configurable": {"thread_id": "t", "resource_id": "r"}}
    agent.invoke({"messages": [HumanMessage("U1")]}, config)
    clock.advance(timedelta(hours=3))
    agent.invoke({"messages": [HumanMessage("U2")]}, config)
    memory.observe(thread_id="t")
    history = observer.last_call.messages[-1].text
    assert re.search(r"Signal: 3 hours later — .*\nUser \(1:00 PM\): U2", history)


# the recall tool


TOOL = [case for case in group("rt-") if case["input"].get("op") == "recall_tool"]
CAMEL = {"threadId": "thread_id", "partType": "part_type", "toolName": "tool_name", "partIndex": "part_index", "charOffset": "char_offset"}  # fmt: skip
KEYS = {"hasNextPage": "has_next_page", "hasPrevPage": "has_prev_page", "tokenOffset": "token_offset", "hasMore": "has_more", "messageId": "message_id", "partIndex": "part_index", "charOffset": "char_offset"}  # fmt: skip
RESULT = json.dumps({"hits": ["a", "b"], "note": "x" * 400}, indent=2)


def stored(id_, message, minute, thread="t1"):
    message.id = id_
    return StoredMessage(
        id=id_, thread_id=thread, resource_id=None, seq=0, message=message, created_at=START + timedelta(minutes=minute)
    )


@pytest.fixture
def recalling(memory_factory):
    def make(retrieval):
        clock = FrozenClock(START)
        memory = memory_factory(
            "memory://",
            observational_memory=ObservationalMemory(retrieval=retrieval),
            clock=clock,
            token_counter=COUNTER,
        )
        memory.create_thread("r1", thread_id="t1", title="First")
        rows = [stored(f"m{n}", (HumanMessage if n % 2 else AIMessage)(f"text {n}"), n) for n in range(1, 7)]
        call = {"name": "search", "args": {"q": "cats"}, "id": "c1"}
        rows.append(stored("m7", AIMessage("before tool", tool_calls=[call]), 7))
        rows.append(stored("m7r", ToolMessage(RESULT, tool_call_id="c1", name="search"), 7))
        rows.append(stored("m8", HumanMessage("last"), 8))
        memory.save_messages(rows, thread_id="t1", resource_id="r1")
        clock.advance(timedelta(minutes=19))
        memory.create_thread("r1", thread_id="t2")
        memory.save_messages([stored("o1", HumanMessage("other thread"), 20, "t2")], thread_id="t2", resource_id="r1")
        memory.create_thread("r2", thread_id="t3", title="Foreign")
        memory.save_messages([stored("x1", HumanMessage("foreign"), 21, "t3")], thread_id="t3", resource_id="r2")
        tool = next(tool for tool in memory.tools() if tool.name == "recall")

        def ask(**given):
            message = tool.invoke(
                {"name": "recall", "args": given, "id": "call", "type": "tool_call"},
                {"configurable": {"thread_id": "t1", "resource_id": "r1"}},
            )
            return {"error": message.content} if message.status == "error" else json.loads(message.content)

        return ask

    return make


LOW = '... [truncated 272 characters] [recall cursor="m7r" part_index=0 for more]'
RECALL_OURS = {
    "rt-page3": {"count": 3, "cursor": "m7", "has_next_page": False},
    "rt-end": {"count": 3, "cursor": "m8", "has_next_page": False, "has_prev_page": True},
    "rt-default": {"count": 9, "cursor": "m1"},
    "rt-scope-thread": {"count": 9, "cursor": "m1"},
    "rt-part": {"text": '[Tool Call: search]\n{\n  "q": "cats"\n}', "message_id": "m7", "type": "tool-call"},
    "rt-part-oob": {
        "text": f"Part index 9 not found in message m7; showing part_index 0 from next message m7r.\n\n[Tool Result: search]\n{RESULT}",
        "message_id": "m7r",
        "role": "tool",
    },
    "rt-part-type": {"count": 1, "cursor": "m7r"},
    "rt-tool-name": {"count": 2, "cursor": "m7"},
    "rt-cursor-back": {"count": 2, "has_next_page": True, "has_prev_page": False},
    "rt-cursor-0": {"count": 2, "has_next_page": True, "has_prev_page": True},
}


@pytest.mark.parametrize("case", TOOL, ids=ids(TOOL))
def test_the_recall_tool_pages_through_this_resources_messages_only(case, recalling):
    ask = recalling(case["input"]["retrieval"])
    given = {CAMEL.get(key, key): value for key, value in case["input"]["input"].items()}
    expected = case["expected"]
    if case["id"] == "rt-search-off":
        with pytest.raises(ValidationError, match="mode"):
            ask(**given)
        return
    found = ask(**given)
    if expected.get("error") or case["id"] == "rt-threads-baddate":
        assert "error" in found
        if case["id"] == "rt-threads-baddate":
            assert "ISO date" in found["error"]
        else:
            assert found["error"].lower().startswith(expected["message"].lower()[:30])
        return
    wanted = {KEYS.get(key, key): value for key, value in expected.items()}
    if case["id"] in DELIBERATE:
        for key, value in RECALL_OURS[case["id"]].items():
            assert found[key] == value, key
        return
    for key in ("messages", "threads", "results"):
        if key in wanted:
            wanted[key] = (
                wanted[key].replace("threadId", "thread_id").replace("individual message IDs", "individual message ids")
            )
            found[key] = re.sub(r"updated: [^|]+ \|", "updated: <now> |", found[key])
    wanted = {key: value for key, value in wanted.items() if key in found}
    assert {key: found[key] for key in wanted} == wanted


def test_low_detail_shortens_and_says_how_to_go_on(recalling):
    found = recalling(True)(cursor="m6", limit=2)
    assert "[p1] [Tool Call: search]" in found["messages"]
    assert LOW in found["messages"]
    whole = recalling(True)(cursor="m7r", part_index=0)
    assert whole["text"] == f"[Tool Result: search]\n{RESULT}"


def test_a_part_that_is_too_large_is_read_in_chunks_that_join(memory_factory):
    memory = memory_factory(
        "memory://", observational_memory=ObservationalMemory(retrieval=True), token_counter=COUNTER
    )
    text = " ".join(f"w{n}" for n in range(5000))
    memory.save_messages([HumanMessage(text, id="m1")], thread_id="t1", resource_id="r1")
    tool = memory.tools()[0]
    config = {"configurable": {"thread_id": "t1", "resource_id": "r1"}}
    chunks, offset = [], 0
    while True:
        found = json.loads(tool.invoke({"cursor": "m1", "part_index": 0, "char_offset": offset}, config))
        chunks.append(found["text"])
        if not found["truncated"]:
            break
        offset = found["next_char_offset"]
    assert len(chunks) > 2
    assert "".join(chunks) == text


async def test_the_recall_tool_is_async_too(recalling, memory_factory):
    memory = memory_factory(
        "memory://", observational_memory=ObservationalMemory(retrieval=True), token_counter=COUNTER
    )
    await memory.asave_messages([HumanMessage("hi", id="m1")], thread_id="t1", resource_id="r1")
    found = json.loads(await memory.tools()[0].ainvoke({}, {"configurable": {"thread_id": "t1", "resource_id": "r1"}}))
    assert found["count"] == 1
    await memory.aclose()


def test_without_retrieval_there_is_no_tool(memory_factory):
    assert memory_factory("memory://", observational_memory=True).tools() == []


@pytest.mark.parametrize(
    ("retrieval", "missing"),
    [
        (Retrieval(scope="thread"), {"thread_id", "before", "after", "query"}),
        (Retrieval(), {"query"}),
        (Retrieval(vector=True), set()),
    ],
)
def test_the_tool_offers_only_what_has_an_effect(memory_factory, retrieval, missing):
    tool = memory_factory("memory://", observational_memory=ObservationalMemory(retrieval=retrieval)).tools()[0]
    names = {
        "mode",
        "cursor",
        "anchor",
        "page",
        "limit",
        "detail",
        "part_type",
        "tool_name",
        "part_index",
        "char_offset",
    }
    assert set(tool.args) == (names | {"thread_id", "before", "after", "query"}) - missing


def talk(memory, turns, model=None):
    agent = create_agent(
        model or ScriptedChatModel(["A " + "beta " * 59], repeat_last=True),
        [],
        middleware=[memory.middleware()],
        checkpointer=memory.checkpointer,
    )
    events = []
    for n in range(turns):
        question = {"messages": [HumanMessage(f"U{n} " + "alpha " * 58)]}
        config = {"configurable": {"thread_id": "t", "resource_id": "r"}}
        events += [
            e for e in agent.stream(question, config, stream_mode="custom") if e.get("type") == "memory.observation"
        ]
    return events


def test_search_finds_observation_groups_with_the_messages_behind_them(memory_factory):
    observer = ScriptedChatModel(
        [f"<observations>\n* 🔴 (10:00) {word} topic\n</observations>" for word in ("zebra", "giraffe", "lion", "ape")]
    )
    memory = memory_factory(
        "memory://",
        observational_memory=ObservationalMemory(
            model=observer, retrieval={"vector": True}, observation=Observation(message_tokens=400, buffer_tokens=False)
        ),
        token_counter=COUNTER,
    )
    talk(memory, 8)
    tool = memory.tools()[0]
    config = {"configurable": {"thread_id": "t", "resource_id": "r"}}
    found = json.loads(tool.invoke({"mode": "search", "query": "the zebra"}, config))
    assert found["count"] == 1
    first, last = (
        memory.get_observations(thread_id="t").groups[0].first_message_id,
        memory.get_observations(thread_id="t").groups[0].last_message_id,
    )
    assert f"raw messages from ID {first} through ID {last}" in found["results"]
    assert "zebra" in found["results"]
    assert json.loads(tool.invoke({"mode": "search", "query": "topic", "limit": 1}, config))["count"] == 1
    refused = tool.invoke({"name": "recall", "args": {"mode": "search"}, "id": "1", "type": "tool_call"}, config)
    assert refused.status == "error"


# extractors


REPLY = "<observations>\nDate: Jan 1, 2025\n* 🔴 (10:00) obs\n</observations>\n\n<current-task>\ntask1\n</current-task>\n\n<suggested-response>\nsugg1\n</suggested-response>"
EXTRACT = [case for case in group("ex-") if "extractors" in case["input"]]
SCHEMAS = {
    "object{name?:string}": {"type": "object", "properties": {"name": {"type": "string"}}},
    "object{name:string}": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
}


@pytest.mark.parametrize("case", EXTRACT, ids=ids(EXTRACT))
def test_values_are_extracted_kept_and_reported(case, memory_factory):
    calls = []

    def hook_of(spec):
        if spec.get("onExtracted") == "throws":

            def raises(_context):
                raise RuntimeError("hook boom")

            return raises
        if spec.get("onExtracted"):
            return lambda _context: "REPLACED"
        if case["expected"]["hook_calls"]:
            return lambda context: calls.append((context.current, context.previous))
        return None

    extractors = [
        Extractor(
            name=spec["name"],
            schema=SCHEMAS.get(spec.get("schema")),
            metadata_path=spec.get("metadataKeyPath"),
            on_extracted=hook_of(spec),
        )
        for spec in case["input"]["extractors"]
    ]
    replies = [reply if not reply.startswith("{") else json.loads(reply) for reply in case["input"]["observer_replies"]]
    memory = memory_factory(
        "memory://",
        observational_memory=ObservationalMemory(
            model=ScriptedChatModel(replies),
            observation=Observation(message_tokens=400, buffer_tokens=False, extract=extractors, retries=0),
        ),
        token_counter=COUNTER,
    )
    expected = case["expected"]
    events = talk(memory, 8 if len(expected["end_events"]) > 1 else 5)
    ends = [event for event in events if event["phase"] == "observation_end"]
    for found, wanted in zip(ends, expected["end_events"], strict=False):
        assert found.get("extracted_values", {}) == wanted["extractedValues"]
        failures = wanted.get("extractionFailures", [])
        assert [f["slug"] for f in found.get("extraction_failures", [])] == [f["slug"] for f in failures]
        if failures and case["id"] not in DELIBERATE:
            assert found["extraction_failures"] == failures
    om = memory.get_thread("t").metadata["om"]
    wanted = expected["thread_om_metadata"]["extracted"]
    if case["id"] == "ex-key-path-single":
        assert om["custom"] == "x"
    assert om.get("extracted", {}) == wanted
    assert om["current_task"] == expected["thread_om_metadata"]["currentTask"]
    assert [extractor.slug for extractor in extractors] == expected["slugs"]
    if expected["hook_calls"]:
        assert [c[0] for c in calls] == [h["current"] for h in expected["hook_calls"]]
        assert [c[1] for c in calls] == [h.get("previous") for h in expected["hook_calls"]]
    asked = [call.system for call in memory.options.observational_memory.model.calls]
    for found, wanted in zip(asked, expected["observer_calls"], strict=False):
        assert all(f"<{slug}>" in found for slug in wanted["mentions"])


SLUGS = [case for case in group("ex-slug-") if case["input"].get("op") == "create_extractors"]


@pytest.mark.parametrize("case", SLUGS, ids=ids(SLUGS))
def test_slugs_that_collide_or_are_reserved_are_refused(case):
    with pytest.raises(ConfigurationError):
        checked([Extractor(name=name) for name in case["input"]["names"]])


# summaries


SUMMARIES = group("sum-")


@pytest.mark.parametrize("case", SUMMARIES, ids=ids(SUMMARIES))
def test_a_thread_is_summarized_and_nothing_is_written(case, memory_factory):
    model = ScriptedChatModel([case["input"]["model_reply"]], repeat_last=True)
    memory = memory_factory("memory://", token_counter=COUNTER)
    texts = [("user", "text 1"), ("assistant", "text 2"), ("user", "text 3"), ("assistant", "text 4"), ("user", "text 5"),
             ("assistant", "text 6"), ("assistant", "before"), ("user", "last")]  # fmt: skip
    rows = [(HumanMessage if who == "user" else AIMessage)(text) for who, text in texts]
    memory.save_messages(rows, thread_id="t1", resource_id="r1")
    given, expected = case["input"]["options"], case["expected"]
    options = {"model": model, "resource_id": given.get("resourceId"), "last_messages": given.get("lastMessages")}
    if "maxInputTokens" in given:
        options["max_input_tokens"] = 8 if given["maxInputTokens"] == 20 else given["maxInputTokens"]
    if expected.get("error"):
        with pytest.raises(ThreadNotFoundError):
            memory.summarize_thread(given["threadId"], **options)
        return
    before = memory.get_thread("t1")
    found = memory.summarize_thread(given["threadId"], **options)
    assert found.summary == expected["summary"]
    assert dict(found.extracted) == expected["extracted"]
    assert len(model.calls) == expected["calls"]
    if expected["calls"]:
        history = model.last_call.messages[-1].text
        labels = re.findall(r"^(User|Assistant)(?: \([^)]*\))?: (.*)$", history, re.MULTILINE)
        assert [f"{who} {text}" for who, text in labels] == expected["history_labels"]
    assert memory.get_thread("t1") == before


def test_every_recorded_case_is_driven():
    driven = {c["id"] for cases in (GAPS, TOOL, EXTRACT, SLUGS, SUMMARIES) for c in cases}
    elsewhere = {"tg-observer", "rt-tool-false", "rt-tool-thread", "rt-search"}
    assert set(CASES) - driven == elsewhere
    assert set(DELIBERATE) <= set(CASES)
