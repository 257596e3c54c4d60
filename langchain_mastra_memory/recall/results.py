"""What a search is asked for and what it finds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from langchain_core.messages import AIMessage, ToolMessage

from langchain_mastra_memory.history.units import call_ids
from langchain_mastra_memory.recall.filters import Filter
from langchain_mastra_memory.recall.options import Mode
from langchain_mastra_memory.store.operations.index import ScopeOf
from langchain_mastra_memory.types import StoredMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """A search, checked.

    Attributes:
        text: What to look for.
        scope: Where.
        top_k: How many hits.
        around: How many messages are shown before and after each.
        mode: Which halves count.
        filter: Which threads and messages may be found.
        threshold: The least score.
        start: Microseconds, inclusive.
        end: Microseconds, inclusive.
        metadata: Values that a message's metadata must have exactly.
        exclude: Ids of messages that are no hits.
        wait: Seconds for everything that is slow: the query's embedding, embedding what was just saved.
        writes: Whether what was just saved may be embedded for this search.
    """

    text: str
    scope: ScopeOf
    top_k: int
    around: tuple[int, int] = (0, 0)
    mode: Mode = "hybrid"
    filter: Filter | None = None
    threshold: float | None = None
    start: int | None = None
    end: int | None = None
    metadata: Mapping[str, Any] | None = None
    exclude: frozenset[str] = field(default_factory=frozenset)
    wait: float = 2.0
    writes: bool = True

    @property
    def needs_details(self) -> bool:
        """Whether rows of messages must be read to know which may be found."""
        of_messages = self.filter is not None and self.filter.needs_messages
        return of_messages or bool(self.metadata) or self.start is not None or self.end is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A message that was found, and its neighbours.

    Attributes:
        message: The message, with its score.
        before: The messages before it, oldest first.
        after: The messages after it.
        words: How well its words answer, 0 to 1.
        meaning: How well its meaning answers, 0 to 1.
    """

    message: StoredMessage
    before: tuple[StoredMessage, ...] = ()
    after: tuple[StoredMessage, ...] = ()
    words: float = 0.0
    meaning: float = 0.0

    @property
    def messages(self) -> tuple[StoredMessage, ...]:
        """The hit among its neighbours, oldest first."""
        return (*self.before, self.message, *self.after)

    @property
    def found_by(self) -> Literal["words", "meaning", "both", "neighbours"]:
        """Which half of the index found it."""
        if self.words > 0 and self.meaning > 0:
            return "both"
        if self.words > 0:
            return "words"
        return "meaning" if self.meaning > 0 else "neighbours"


def incomplete(messages: Sequence[StoredMessage]) -> tuple[bool, bool]:
    """Tell whether tool calls of a stretch of messages have their results before, or behind it.

    Returns:
        `(before, after)`: whether the stretch must grow at that end to have whole pairs.
    """
    open_calls: set[str] = set()
    needs_before = False
    for stored in messages:
        message = stored.message
        if isinstance(message, AIMessage):
            open_calls |= set(call_ids(message))
        elif isinstance(message, ToolMessage):
            if message.tool_call_id in open_calls:
                open_calls.discard(message.tool_call_id)
            else:
                needs_before = True
    return needs_before, bool(open_calls)


def in_order(hits: Sequence[Hit]) -> list[StoredMessage]:
    """Return the messages of hits, each once: threads by their oldest message shown, each in its order."""
    found: dict[tuple[str, int, int], StoredMessage] = {}
    for hit in hits:
        for stored in hit.messages:
            place = (stored.thread_id, stored.seq, stored.branch)
            if place not in found or stored.score is not None:
                found[place] = stored
    first: dict[str, tuple[Any, ...]] = {}
    for stored in found.values():
        began = (stored.created_at, stored.thread_id)
        first[stored.thread_id] = min(first.get(stored.thread_id, began), began)
    return sorted(found.values(), key=lambda stored: (first[stored.thread_id], stored.seq))
