"""One-shot summaries: a conversation in, dense notes and extracted values out; nothing is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage

from langchain_mastra_memory.checks import check_text
from langchain_mastra_memory.history.incoming import as_messages
from langchain_mastra_memory.ids import optional_id
from langchain_mastra_memory.io import AsyncIO, SyncIO, drive
from langchain_mastra_memory.models import ModelSpec, chat_model, checked_model
from langchain_mastra_memory.observation import calls
from langchain_mastra_memory.observation.extraction import Extractions
from langchain_mastra_memory.observation.extractors import Extractor, checked
from langchain_mastra_memory.observation.formatting import Shown, transcript
from langchain_mastra_memory.observation.log import JsonValue
from langchain_mastra_memory.observation.parsing import parse_answer
from langchain_mastra_memory.observation.prompts import summarizer_system
from langchain_mastra_memory.tokens import TokenCounter, default_counter, ready

if TYPE_CHECKING:
    from langchain_mastra_memory.base import MemoryBase
    from langchain_mastra_memory.io import IO

MAX_INPUT_TOKENS: Final = 1_000_000
TIMEOUT: Final = 300.0
RETRIES: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What a conversation came to.

    Attributes:
        summary: Dense notes; empty for an empty conversation, or when the model said nothing usable.
        extracted: Values by extractor slug.
        extraction_failures: Slug and error of each extractor that failed.
        usage: Tokens of all calls.
    """

    summary: str
    extracted: Mapping[str, JsonValue] = field(default_factory=dict)
    extraction_failures: tuple[Mapping[str, str], ...] = ()
    usage: Mapping[str, int] = field(default_factory=dict)


async def summarize(
    io: IO,
    shown: Sequence[Shown],
    *,
    model: ModelSpec | None,
    counter: TokenCounter,
    instructions: str = "",
    extract: Sequence[Extractor] = (),
    memory: MemoryBase | None = None,
    thread_id: str | None = None,
    resource_id: str | None = None,
) -> Summary:
    """Summarize messages with one call, and one more for extractors with a schema."""
    check_text("instructions", instructions)
    checked_model(model)
    extractors = checked(extract)
    if not shown:
        return Summary(summary="")
    default = memory.options.model if memory is not None else None
    chosen = chat_model(model, default, what="summarizing")
    extractions = Extractions(
        memory=memory,
        phase="summary",
        extractors=extractors,
        thread_id=thread_id,
        resource_id=resource_id,
    )
    await ready(counter, io)
    history = transcript(shown, count=counter.count_text)
    session = calls.Session(io=io, model=chosen, attempts=calls.Attempts(RETRIES, TIMEOUT))
    slugs = [slug for slug, _ in extractions.inline]
    chain = calls.pipeline(chosen, lambda text: parse_answer(text, slugs), "mastra.summarize")
    system = summarizer_system(instructions=instructions, extractors=extractions.inline)
    text = f"## Conversation\n\n{history.text}"
    answer = await session.ask(chain, calls.prompt(system, text), "mastra.summarize")
    extractions.said.update(answer.extracted)
    extraction = await extractions.run(session, history.text, answer.observations)
    return Summary(
        summary=answer.observations,
        extracted=dict(extraction.values),
        extraction_failures=extraction.failures,
        usage=calls.merged_usage([reply.usage for reply in session.replies]),
    )


def summarize_conversation(
    messages: Sequence[BaseMessage | Any],
    *,
    model: ModelSpec | BaseChatModel,
    instructions: str = "",
    extract: Sequence[Extractor] = (),
    thread_id: str | None = None,
    resource_id: str | None = None,
) -> Summary:
    r"""Summarize a conversation that you have in hand; nothing is written anywhere.

    Args:
        messages: LangChain messages, or what converts to them. Empty: an empty summary, no call.
        model: A string for `init_chat_model`, a chat model or a Runnable.
        instructions: What the summary is for, appended to the system prompt.
        extract: Values to extract; `on_extracted` is called with each.
        thread_id: For the extractors' context.
        resource_id: For the extractors' context.

    Raises:
        ObservationError: The model failed.
        ConfigurationError: The model cannot be made, or an argument is of the wrong kind.
        InvalidQueryError: `messages` is no list of messages.

    Example:
        >>> from langchain_mastra_memory.testing import ScriptedChatModel
        >>> model = ScriptedChatModel(["<observations>\n* User likes tea\n</observations>"])
        >>> summarize_conversation([("user", "I like tea")], model=model).summary
        '* User likes tea'
    """
    io = SyncIO(_NO_STORE)
    return drive(
        summarize(
            io,
            [Shown(message=message) for message in as_messages(messages)],
            model=model,
            counter=default_counter(),
            instructions=instructions,
            extract=extract,
            thread_id=optional_id(thread_id, "thread_id"),
            resource_id=optional_id(resource_id),
        )
    )


async def asummarize_conversation(
    messages: Sequence[BaseMessage | Any],
    *,
    model: ModelSpec | BaseChatModel,
    instructions: str = "",
    extract: Sequence[Extractor] = (),
    thread_id: str | None = None,
    resource_id: str | None = None,
) -> Summary:
    """Summarize like `summarize_conversation`, without blocking the event loop."""
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - for the tokenizer's files only

    with ThreadPoolExecutor(1) as executor:
        return await summarize(
            AsyncIO(_NO_STORE, lambda: executor),
            [Shown(message=message) for message in as_messages(messages)],
            model=model,
            counter=default_counter(),
            instructions=instructions,
            extract=extract,
            thread_id=optional_id(thread_id, "thread_id"),
            resource_id=optional_id(resource_id),
        )


class _NoStore:
    """Stands where a store would: a summary reads and writes nothing."""

    capabilities: frozenset[Any] = frozenset()

    def run(self, operation: Any) -> Any:
        """Refuse."""
        raise NotImplementedError(f"a summary runs no {type(operation).__name__}")

    async def arun(self, operation: Any) -> Any:
        """Refuse."""
        raise NotImplementedError(f"a summary runs no {type(operation).__name__}")

    def close(self) -> None:
        """Do nothing."""

    async def aclose(self) -> None:
        """Do nothing."""


_NO_STORE = _NoStore()
