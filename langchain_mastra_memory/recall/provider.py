"""Recall's part in a run: what is found for the new user message, within a budget of tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from langchain_core.messages import AIMessage

from langchain_mastra_memory.context.layers import Contribution, Layer
from langchain_mastra_memory.context.provider import FeatureProvider, Outcome, RunFacts
from langchain_mastra_memory.context.tags import DATA_NOTE, message_line, wrapped
from langchain_mastra_memory.errors import ThreadNotFoundError
from langchain_mastra_memory.io import IO
from langchain_mastra_memory.recall.filters import parse_filter
from langchain_mastra_memory.recall.results import Hit, Search, in_order, incomplete
from langchain_mastra_memory.recall.retriever import speaker_of
from langchain_mastra_memory.recall.text import indexed_text
from langchain_mastra_memory.types import StoredMessage

if TYPE_CHECKING:
    from langchain_mastra_memory.recall.methods import RecallMethods

_OVERHEAD: Final = 12  # tokens of a message's tag and date
_LEAST: Final = 40  # tokens below which a cut message says nothing
_CHARACTERS: Final = 3  # of a token, at least, in almost every language
_GUIDE: Final = (
    "The recalled-messages block holds messages of earlier conversations with this user that may be about the same "
    f"thing, each with its speaker and date. {DATA_NOTE}"
)


class RecallProvider(FeatureProvider):
    """Searches for the new user message once per turn, and has the turn indexed afterwards.

    Args:
        memory: A memory with semantic recall on.
    """

    name = "semantic_recall"

    def __init__(self, memory: RecallMethods) -> None:
        self._memory = memory

    async def begin(self, io: IO, run: RunFacts) -> Contribution:
        """Return what was found: messages of this thread, and text of other threads."""
        question = run.question
        if run.options.semantic_recall is False or question is None:
            return Contribution()
        text = indexed_text(question)[1]
        if not text.strip():
            return Contribution()
        engine = self._memory.recall_engine
        options = engine.options
        position = None if run.position is None else (run.position.branch, run.position.head)
        hits: list[Hit] = []
        try:
            hits = await engine.search(
                io,
                Search(
                    text=text,
                    scope=self._memory._search_scope(run.thread_id, run.resource_id, position=position),  # noqa: SLF001 - one feature
                    top_k=options.top_k,
                    around=options.around,
                    mode=engine.mode(None),
                    filter=parse_filter(options.filter),
                    threshold=options.threshold,
                    exclude=_running(run),
                    wait=options.deadline,
                    writes=not (run.read_only or run.preview),
                ),
            )
        except ThreadNotFoundError:  # thread scope, first turn: there is nothing yet
            return Contribution()
        kept = within_budget(hits, options.max_tokens, run.thread_id)
        same = tuple(stored for stored in kept if stored.thread_id == run.thread_id)
        other = [stored for stored in kept if stored.thread_id != run.thread_id]
        # In the cached layout the system text must not depend on what a turn has found.
        guided = bool(other) or self._memory.options.layout == "cached"
        layer = Layer(name="recalled", text=as_text(other) if other else "", guide=_GUIDE) if guided else None
        return Contribution(recalled_same=same, recalled_other=layer)

    async def finish(self, io: IO, run: RunFacts, outcome: Outcome) -> None:
        """Have the turn's messages embedded in the background."""
        if outcome.status == "complete" and not run.read_only:
            self._memory._index_soon(io)  # noqa: SLF001 - one feature


def _running(run: RunFacts) -> frozenset[str]:
    """Return the ids of the question and of what stands behind it."""
    found: list[str] = []
    for item in reversed(run.items):
        found.append(item.id)
        if item.message.type == "human":
            break
    return frozenset(found) - {""}


@dataclass(slots=True)
class _Budget:
    left: float

    def take(self, messages: Sequence[StoredMessage]) -> bool:
        cost = sum(size(stored) for stored in messages)
        if cost > self.left:
            return False
        self.left -= cost
        return True


def size(stored: StoredMessage) -> float:
    """Return what a recalled message costs, in tokens."""
    return (stored.tokens or len(indexed_text(stored.message)[1]) / _CHARACTERS) + _OVERHEAD


def within_budget(hits: Iterable[Hit], tokens: float, thread_id: str) -> list[StoredMessage]:
    """Return the messages to show, in order, each once: the best hits first, whole tool pairs, at most so many tokens.

    A hit whose neighbours don't fit comes alone, one that is too long itself is cut; the rest is left out.

    Args:
        hits: Best first.
        tokens: The budget.
        thread_id: The run's thread; its messages join the conversation and keep their form.
    """
    budget = _Budget(tokens)
    kept: list[Hit] = []
    shown: set[tuple[str, int, int]] = set()
    for hit in hits:
        for candidate in (hit, replace(hit, before=(), after=())):
            new = [m for m in candidate.messages if (m.thread_id, m.seq, m.branch) not in shown]
            if any(incomplete(candidate.messages)) and candidate.message.thread_id == thread_id:
                continue
            if budget.take(new):
                break
        else:
            short = _cut(hit.message, budget.left)
            if short is None:
                continue
            budget.left = 0.0
            candidate = replace(hit, message=short, before=(), after=())
        kept.append(candidate)
        shown |= {(m.thread_id, m.seq, m.branch) for m in candidate.messages}
    return in_order(kept)


def _cut(stored: StoredMessage, tokens: float) -> StoredMessage | None:
    """Return a message of plain text cut to a budget; None when it can't be cut, or nothing much would be left."""
    message = stored.message
    calls = isinstance(message, AIMessage) and bool(message.tool_calls)
    room = int((tokens - _OVERHEAD) * _CHARACTERS)
    if calls or stored.role not in ("human", "ai") or not isinstance(message.content, str) or room < _LEAST:
        return None
    return replace(stored, message=message.model_copy(update={"content": f"{message.content[:room]} [...]"}))


def as_text(messages: Sequence[StoredMessage]) -> str:
    """Return messages of other threads as tagged text: grouped by thread, dated, with speakers."""
    threads: dict[str, list[StoredMessage]] = {}
    for stored in messages:
        threads.setdefault(stored.thread_id, []).append(stored)
    blocks = [
        wrapped(
            "thread",
            "\n".join(message_line(m.message, at=m.created_at, speaker=speaker_of(m)) for m in group),
            {"date": group[0].created_at.strftime("%Y-%m-%d")},
        )
        for group in threads.values()
    ]
    return wrapped("recalled-messages", "\n".join(blocks), {"from": "other conversations"})
