"""The parts of observational memory against what the real system was recorded to do (file 10a)."""

from __future__ import annotations

import json
import re
from datetime import datetime
from pathlib import Path

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from langchain_mastra_memory.errors import ConfigurationError
from langchain_mastra_memory.observation.formatting import Shown, previous_tail, transcript
from langchain_mastra_memory.observation.log import Hints, LogRow
from langchain_mastra_memory.observation.options import Observation, ObservationalMemory, Reflection
from langchain_mastra_memory.observation.parsing import for_context, is_degenerate, parse_answer
from langchain_mastra_memory.observation.prompts import SEPARATOR, observer_input
from langchain_mastra_memory.observation.render import group_text

FILE = Path(__file__).parents[2] / "data" / "golden" / "10a_observational_memory_parts.json"
CASES = {case["id"]: case for case in json.loads(FILE.read_text("utf-8"))}

DELIBERATE = {
    "om-parse-inline-tags": "tags on one line lose nothing",
    "om-optimize-indent": "nesting is kept",
    "om-optimize-code": "brackets of code are kept",
    "om-config-message-zero": "the error names message_tokens, which is what is wrong",
    "om-config-false": "a feature that is off has no options",
    "om-config-disabled": "a feature is turned off with False; there is no second switch",
}
"""Where we differ on purpose, and why; what we do instead is asserted all the same."""

OURS = {
    "om-parse-inline-tags": {"observations": "* a", "current_task": "Do X", "suggested_response": "Y"},
    "om-optimize-indent": "* a\n  * b\n    * c",
    "om-optimize-code": '* uses arr[0] and map["k"]',
}


def of(op):
    return [case for case in CASES.values() if case["input"].get("op") == op and "text" in case["input"]]


def ids(cases):
    return [case["id"] for case in cases]


def words(text):
    return max(1, len(text) // 4) if text else 0


PARSE = of("parse_observer_output")


@pytest.mark.parametrize("case", PARSE, ids=ids(PARSE))
def test_answers_are_read(case):
    answer = parse_answer(case["input"]["text"])
    found = {"observations": answer.observations}
    for name in ("current_task", "suggested_response", "thread_title"):
        if getattr(answer, name) is not None:
            found[name] = getattr(answer, name)
    assert found == OURS.get(case["id"], case["expected"])


GENERATED = {
    "om-degenerate-short": "<observations>\n" + "* same line again and again\n" * 60 + "</observations>",
    "om-degenerate-loop": "* the user likes tea. " * 200,
    "om-degenerate-lines": "<observations>\n" + "* the user likes green tea a lot\n" * 100 + "</observations>",
    "om-degenerate-varied": "<observations>\n"
    + "".join(f"* fact number {i} about topic {i * 7}\n" for i in range(200))
    + "</observations>",
    "om-degenerate-half": "".join(f"* distinct observation line number {i} xx\n" for i in range(50))
    + "* the very same observation line here\n" * 60,
    "om-degenerate-short-lines": "".join(
        f"* ok\n* distinct observation line number {i} with words {i * 3}\n" for i in range(200)
    ),
    "om-degenerate-few-lines": ("* " + "z123456789" * 15 + "\n") * 19,
}


@pytest.mark.parametrize("case", list(GENERATED))
def test_answers_that_repeat_themselves_are_not_used(case):
    expected = CASES[case]["expected"]
    assert is_degenerate(GENERATED[case]) == expected["degenerate"]
    assert (parse_answer(GENERATED[case]).observations == "") == expected["observations_empty"]


OPTIMIZE = [c for c in CASES.values() if c["input"].get("op") == "optimize_observations_for_context"]


@pytest.mark.parametrize("case", OPTIMIZE, ids=ids(OPTIMIZE))
def test_observations_are_tidied_for_the_agent(case):
    assert for_context(case["input"]["text"]) == OURS.get(case["id"], case["expected"])


def shown(message):
    """A recorded message as LangChain messages; a result inside an assistant message is a tool message of its own."""
    at = datetime.fromisoformat(message["created_at"])
    parts = message.get("parts") or [{"type": "text", "text": message["text"]}]
    blocks, calls, results = [], [], []
    for part in parts:
        if part["type"] == "text":
            blocks.append({"type": "text", "text": part["text"]})
        elif part["type"] == "reasoning":
            blocks.append({"type": "reasoning", "reasoning": part["reasoning"]})
        elif part["type"] == "file":
            kind = "image" if part["mimeType"].startswith("image/") else "file"
            block = {"type": kind, "url": part["data"], "mime_type": part["mimeType"]}
            blocks.append(block | ({"filename": part["filename"]} if "filename" in part else {}))
        elif part["type"] == "tool_call":
            calls.append({"name": part["name"], "args": part["args"], "id": part["call_id"]})
        elif part["type"] == "tool_result":
            results.append(part)
    found = []
    if message["role"] == "user":
        found.append(Shown(message=HumanMessage(blocks), at=at))
    elif blocks or calls:
        found.append(Shown(message=AIMessage(blocks or "", tool_calls=calls), at=at))
    found += [
        Shown(message=ToolMessage(r["result"], tool_call_id=r["call_id"], name=r["name"]), at=at) for r in results
    ]
    return found


FORMAT = [c for c in CASES.values() if c["input"].get("op") == "format_messages_for_observer"]
FORMAT_OURS = {
    "om-format-tool-long-result": "Jan 1 2025:\nTool Result search (9:05 AM): w0 w1 w2 w3 w4 w5 w6 w7 w8 w9 w10 w11 \n"
    "... [truncated ~48 tokens]",
}
DELIBERATE["om-format-tool-long-result"] = (
    "a LangChain result is a message of its own: the call stands where it was made"
)


@pytest.mark.parametrize("case", FORMAT, ids=ids(FORMAT))
def test_messages_are_shown_to_the_observer(case):
    options = case["input"].get("options", {})
    made = transcript(
        [part for message in case["input"]["messages"] for part in shown(message)],
        count=lambda text: len(text.split()),
        max_part=options.get("maxPartLength"),
        max_result_tokens=options.get("maxToolResultTokens", 1000),
    )
    assert made.text == FORMAT_OURS.get(case["id"], case["expected"])


BUILD = [c for c in CASES.values() if c["input"].get("op") == "build_observer_prompt"]


@pytest.mark.parametrize("case", BUILD, ids=ids(BUILD))
def test_the_observer_is_given_history_previous_notes_metadata_and_task(case):
    options = case["input"]["options"]
    text = observer_input(
        "User (9:05 AM): MSG",
        previous=case["input"].get("existing_observations", ""),
        truncated=options.get("wasTruncated", False),
        hints=Hints(
            options.get("priorCurrentTask"), options.get("priorSuggestedResponse"), options.get("priorThreadTitle")
        ),
        title=options.get("includeThreadTitle", False),
    )
    expected = case["expected"]
    assert re.findall(r"^## .*$", text, re.MULTILINE) == expected["headings_in_order"]
    assert ("* 🔴 old" in text) == expected["contains_existing"]
    assert re.findall(r"^- prior .*$", text, re.MULTILINE) == expected["metadata_lines"]
    assert text.count(SEPARATOR) == expected["separators"]


TRUNCATE = [c for c in CASES.values() if c["input"].get("op") == "prepare_observer_context"]


def recorded_size(text):
    """The sizes that the recorded token counter gives these lines: 13 a line, 11 a note."""
    return sum(13 if line.startswith("*") else 11 if line.startswith("[") else 0 for line in text.split("\n"))


@pytest.mark.parametrize("case", TRUNCATE, ids=ids(TRUNCATE))
def test_the_observer_is_shown_the_tail_of_the_log_and_important_lines(case):
    given = case["input"]
    text = given["existing_observations"]
    if "buffered_reflection" in given:  # a waiting reflection stands in place of the lines that it condenses
        rest = "\n".join(text.split("\n")[given["reflected_line_count"] :])
        text = f"{given['buffered_reflection']}\n\n{rest}"
    tail = previous_tail(text, given["previous_observer_tokens"], recorded_size)
    assert {"context": tail.text, "was_truncated": tail.truncated} == case["expected"]


NAMES = {
    "messageTokens": "message_tokens",
    "bufferTokens": "buffer_tokens",
    "bufferActivation": "buffer_activation",
    "blockAfter": "block_after",
    "previousObserverTokens": "previous_observer_tokens",
    "observationTokens": "observation_tokens",
}
CONFIG = [c for c in CASES.values() if c["input"].get("op") == "resolve_om_config"]


def options_of(given):
    if given is True:
        return ObservationalMemory()
    return ObservationalMemory(
        scope=given.get("scope", "thread"),
        share_token_budget=given.get("shareTokenBudget", False),
        observation=Observation(**{NAMES[k]: v for k, v in given.get("observation", {}).items()}),
        reflection=Reflection(**{NAMES[k]: v for k, v in given.get("reflection", {}).items()}),
    )


@pytest.mark.parametrize("case", CONFIG, ids=ids(CONFIG))
def test_options_are_resolved_and_refused_as_documented(case):
    given, expected = case["input"]["observational_memory"], case["expected"]
    if case["id"] in ("om-config-false", "om-config-disabled"):
        assert expected == {"engine": None}
        return
    if expected.get("error"):
        with pytest.raises(ConfigurationError) as caught:
            options_of(given)
        if case["id"] not in DELIBERATE:
            name = re.search(
                r"(?:observation|reflection)\.(\w+)|(shareTokenBudget)|(bufferTokens)", expected["message"]
            )
            snake = re.sub(r"([A-Z])", r"_\1", next(g for g in name.groups() if g)).lower()
            assert snake in str(caught.value)
        else:
            assert "message_tokens" in str(caught.value)
        return
    limits, options = options_of(given).limits(), options_of(given)
    observation, reflection = expected["observation"], expected["reflection"]
    messages = observation["message_tokens"]
    if isinstance(messages, dict):
        assert (limits.threshold(limits.observation_tokens), limits.threshold(0)) == (messages["min"], messages["max"])
    else:
        assert limits.message_tokens == messages
    assert limits.buffer_tokens == observation["buffer_tokens"]
    if observation["block_after"] is not None:
        assert limits.block_after == observation["block_after"]
        assert limits.reflect_block == reflection["block_after"]
        assert limits.reflect_from == reflection["observation_tokens"] * reflection["buffer_activation"]
    else:
        assert limits.reflect_from is None
    assert limits.observation_tokens == reflection["observation_tokens"]
    assert options.observation.previous_observer_tokens == observation["previous_observer_tokens"]
    assert options.observation.max_tokens_per_batch == observation["max_tokens_per_batch"]
    assert options.observation.thread_title == observation["thread_title"]
    assert options.scope == expected["scope"]


GROUPS = [c["id"] for c in CASES.values() if c["id"].startswith("om-group-")]
DELIBERATE |= dict.fromkeys(
    GROUPS, "ranges are data of a row and written when it is rendered, never stored in its text"
)


def test_a_group_shows_its_range_and_a_row_stores_none():
    row = LogRow(id="g1", covers=(), text="* a\n* b")
    assert group_text(row, ("m1", "m5")) == "## Group `g1`\n_range: `m1:m5`_\n\n* a\n* b"
    assert group_text(row, None) == "## Group `g1`\n\n* a\n* b"
    assert "m1" not in row.text


def test_every_recorded_case_is_driven():
    driven = {c["id"] for group in (PARSE, OPTIMIZE, FORMAT, BUILD, TRUNCATE, CONFIG) for c in group}
    assert set(CASES) - driven - set(GENERATED) == set(GROUPS)
    assert set(DELIBERATE) <= set(CASES)
