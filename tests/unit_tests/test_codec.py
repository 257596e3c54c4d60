"""The codec keeps every LangChain message as it is."""

import dataclasses
import datetime as dt
import decimal
import enum
import sys
import types
import uuid
from collections import deque
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    ChatMessageChunk,
    FunctionMessage,
    FunctionMessageChunk,
    HumanMessage,
    HumanMessageChunk,
    RemoveMessage,
    SystemMessage,
    SystemMessageChunk,
    ToolMessage,
    ToolMessageChunk,
)
from pydantic import BaseModel, Field, PrivateAttr

from langchain_mastra_memory import codec
from langchain_mastra_memory.codec import dump_message, dump_plain_message, dump_value, load_message, load_value


class Stamped(HumanMessage):
    """A message class of an application."""

    channel: str = "web"
    labels: list[str] = Field(default_factory=lambda: ["new"])
    _seen: int = PrivateAttr(default=0)


class Point(BaseModel):
    x: int
    y: int = 2


@dataclasses.dataclass
class Row:
    name: str
    cells: list[int]


class Colour(enum.Enum):
    RED = "red"


BLOCKS: list[str | dict[str, Any]] = [
    "plain",
    {"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}},
    {"type": "image", "base64": "aGk=", "mime_type": "image/png"},
    {"type": "image_url", "image_url": {"url": "https://example.com/x.png"}},
    {"type": "file", "file_id": "f1"},
    {"type": "audio", "url": "https://example.com/a.mp3"},
    {"type": "reasoning", "reasoning": "because", "extras": {"signature": "s=="}},
    {"type": "tool_use", "id": "c1", "name": "look", "input": {"q": 1}},
    {"type": "non_standard", "value": {"any": [1, None, 2.5, True]}},
]

MESSAGES: list[BaseMessage] = [
    HumanMessage("hi", id="1"),
    HumanMessage("no id"),
    HumanMessage(BLOCKS, id="1", name="Ann"),
    HumanMessage("", id=""),
    SystemMessage("be good", id="s", additional_kwargs={"__openai_role__": "developer"}),
    AIMessage(
        "",
        id="a",
        name="bot",
        tool_calls=[{"name": "look", "args": {"q": [1, {"n": None}]}, "id": "c1", "type": "tool_call"}],
        invalid_tool_calls=[
            {"name": "x", "args": "{", "id": None, "error": "no json", "type": "invalid_tool_call"},
        ],
        usage_metadata={
            "input_tokens": 1,
            "output_tokens": 2,
            "total_tokens": 3,
            "input_token_details": {"cache_read": 1},
        },
        response_metadata={"model_name": "m", "logprobs": [-0.5, float("-inf")], "finish_reason": "stop"},
        additional_kwargs={"reasoning_content": "hm", "parsed": None},
    ),
    AIMessage(BLOCKS, id="a2"),
    ToolMessage("ok", tool_call_id="c1", id="t", name="look", status="error", artifact={"rows": [(1, "a")]}),
    ToolMessage(["a", {"type": "text", "text": "b"}], tool_call_id="c1", artifact=False),
    ChatMessage("c", role="critic", id="ch"),
    FunctionMessage("f", name="fn", id="fu"),
    RemoveMessage(id="gone"),
    HumanMessageChunk("h", id="hc"),
    AIMessageChunk(
        "x",
        id="ac",
        tool_call_chunks=[{"name": "look", "args": '{"q":1}', "id": "c9", "index": 0, "type": "tool_call_chunk"}],
        chunk_position="last",
    ),
    SystemMessageChunk("s"),
    ToolMessageChunk("t", tool_call_id="c"),
    ChatMessageChunk("c", role="r"),
    FunctionMessageChunk("f", name="n"),
    Stamped("mine", id="st", channel="phone", labels=[]),
    Stamped("mine"),
    HumanMessage("extra", id="e", example=True, nested={"a": (1, 2)}),
    BaseMessage("bare", type="odd"),
]


def assert_exact(message: BaseMessage) -> BaseMessage:
    back = load_message(dump_message(message))
    assert type(back) is type(message)
    assert back == message
    assert repr(back) == repr(message)
    assert back.__dict__ == message.__dict__
    assert list(back.__dict__) == list(message.__dict__)
    assert (back.__pydantic_extra__ or {}) == (message.__pydantic_extra__ or {})
    assert back.model_dump() == message.model_dump()
    return back


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: type(m).__name__)
def test_a_message_comes_back_equal_in_every_part(message):
    assert_exact(message)


@pytest.mark.parametrize(
    "value",
    [
        "a\0b",
        "\ud83d alone",
        {"\ud83d": "\udc00"},
        (1, (2, [3, (4,)])),
        b"\x00\xff",
        2**64,
        -(2**200),
        float("inf"),
        {1: "a", "1": "b"},
        {(1, 2): {"x": ()}},
        {None: 1, True: 2, 1.5: 3, b"k": 4},
        {("a", "\ud83d"), ("b",)},
        frozenset({1, 2}),
        deque([1, (2,)]),
        dt.datetime(2026, 1, 2, 3, 4, 5, 6),  # noqa: DTZ001
        dt.datetime(2026, 1, 2, tzinfo=dt.UTC),
        dt.datetime(2026, 1, 2, tzinfo=dt.timezone(dt.timedelta(hours=-5, minutes=-30))),
        dt.datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Paris")),
        dt.date(2026, 1, 2),
        dt.time(1, 2, 3),
        dt.timedelta(days=1, microseconds=3),
        decimal.Decimal("1.10"),
        uuid.UUID(int=5),
        {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", "HumanMessage"], "kwargs": {}},
        {"lc": 2, "type": "constructor", "id": ["os", "system"], "args": ["true"]},
        [HumanMessage("inside", id="i"), {"deep": AIMessage("x")}],
        Document("page", metadata={"a": 1}, id="d"),
        {"empty": [{}, [], "", None, 0, False]},
    ],
    ids=lambda v: type(v).__name__,
)
def test_any_value_survives_in_any_open_place(value):
    for message in (
        HumanMessage("x", id="1", additional_kwargs={"v": value}),
        AIMessage("x", response_metadata={"v": [value]}),
        ToolMessage("x", tool_call_id="c", artifact=value),
        HumanMessage([{"type": "non_standard", "value": value}]),
    ):
        assert_exact(message)
    back = load_value(dump_value({"v": value}))["v"]
    assert back == value
    assert type(back) is type(value)
    if isinstance(value, dt.datetime):
        assert (back.tzinfo, back.fold) == (value.tzinfo, value.fold)


def test_objects_of_an_application_survive_as_artifacts():
    for value in (Point(x=1), Row("r", [1, 2]), Colour.RED, [Point(x=3), Colour.RED]):
        assert_exact(ToolMessage("x", tool_call_id="c", artifact=value))


def test_private_attributes_of_a_subclass_survive():
    message = Stamped("x")
    message._seen = 4
    assert assert_exact(message)._seen == 4


def test_texts_with_nul_and_lone_surrogates_survive_everywhere():
    bad = "a\0b \ud83d \U0001f600 \udfff"
    assert_exact(HumanMessage(bad, id=bad, name=bad))
    assert_exact(HumanMessage([{"type": "text", "text": bad, bad: bad}]))
    assert_exact(ToolMessage(bad, tool_call_id=bad))


def test_five_megabytes_survive_and_stay_five_megabytes():
    message = HumanMessage("ü" * 2_500_000, id="big")
    assert_exact(message)
    assert len(dump_message(message)) < 5_000_100


def test_a_plain_message_costs_its_text_and_a_few_bytes():
    assert len(dump_message(HumanMessage("x" * 500, id="i" * 36))) <= 500 + 36 + 8
    assert len(dump_message(AIMessage("x" * 500, id="i" * 36))) <= 500 + 36 + 8


def test_what_is_loaded_shares_nothing():
    body = dump_message(AIMessage("x", additional_kwargs={"a": [1]}))
    one, two = load_message(body), load_message(body)
    one.additional_kwargs["a"].append(2)
    one.tool_calls.append({"name": "n", "args": {}, "id": "c"})
    assert two == AIMessage("x", additional_kwargs={"a": [1]})


def test_a_class_that_is_gone_comes_back_as_its_base_with_its_data(monkeypatch, caplog):
    module = types.ModuleType("an_application")
    gone = type("Gone", (Stamped,), {"__module__": "an_application"})
    module.Gone = gone
    monkeypatch.setitem(sys.modules, "an_application", module)
    body = dump_message(gone("kept", id="g", channel="phone"))
    assert type(load_message(body)) is gone
    codec._find_class.cache_clear()
    monkeypatch.delitem(sys.modules, "an_application")
    back = load_message(body)
    assert type(back) is HumanMessage
    assert (back.content, back.id, back.channel) == ("kept", "g", "phone")
    assert "an_application.Gone" in caplog.text


def test_a_name_that_is_no_message_class_is_never_used(caplog):
    hostile = codec._pack([["os", "system"], "true", "x", [], None, None, 1], codec._default)
    assert type(load_message(hostile)) is HumanMessage
    assert "os.system" in caplog.text


def test_a_value_that_cannot_be_stored_is_an_error_and_never_none():
    with pytest.raises(TypeError, match="can't be stored"):
        dump_message(ToolMessage("x", tool_call_id="c", artifact=lambda: 1))
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(TypeError, match=r"can't be stored|too deeply"):
        dump_message(ToolMessage("x", tool_call_id="c", artifact=deep))


def test_bytes_that_are_no_message_are_refused():
    for body in (b"", b"\xff", b"hello", dump_value([99, "x", "y"])):
        with pytest.raises(ValueError, match="not the body"):
            load_message(body)


def test_a_plain_body_exists_only_where_nobody_elses_code_is_needed_to_load_it():
    for message in MESSAGES:
        body = dump_plain_message(message)
        assert (body is None) == (type(message) is Stamped)
        assert body is None or load_message(body) == message
    assert dump_plain_message(ToolMessage("x", tool_call_id="c", artifact=Point(x=1))) is None
    assert dump_plain_message(ToolMessage("x", tool_call_id="c", artifact=[Stamped("y")])) is None
    odd = HumanMessage("\ud83d", additional_kwargs={"k": {1: (Point(x=1),)}})
    assert dump_plain_message(odd) is None


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=()))
    | st.binary()
    | st.datetimes(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(st.characters(exclude_categories=())) | st.integers(), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(text=st.text(st.characters(exclude_categories=())), kwargs=st.dictionaries(st.text(), values, max_size=3))
def test_random_data_comes_back_exactly(text, kwargs):
    message = AIMessage(text, id=text, additional_kwargs=kwargs, response_metadata=kwargs)
    back = load_message(dump_message(message))
    assert back == message
    assert repr(back) == repr(message)
