"""One call that observes or reflects, as others see it: its events, its hooks, its record; what it raises is kept."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, cast

from langchain_mastra_memory.ids import new_id
from langchain_mastra_memory.observation.caller import Caller
from langchain_mastra_memory.observation.calls import Reply, merged_usage
from langchain_mastra_memory.observation.engine import Cause, Engine
from langchain_mastra_memory.observation.events import EventPhase, emit
from langchain_mastra_memory.observation.log import LogRow, LogState
from langchain_mastra_memory.observation.observer import UnusableError
from langchain_mastra_memory.observation.render import obscured
from langchain_mastra_memory.store.operations.log import LogView

if TYPE_CHECKING:
    from langchain_mastra_memory.io import IO


@dataclass(kw_only=True)
class Outcome:
    """What a cycle came to.

    Attributes:
        rows: The rows that were committed.
        dropped: Why results were dropped, one word each.
        error: Why the last call failed.
        usage: Tokens of all calls.
    """

    rows: list[LogRow] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    error: Exception | None = None
    usage: dict[str, int] = field(default_factory=dict)

    def add(self, replies: Sequence[Reply]) -> None:
        """Add the cost of calls."""
        self.usage = merged_usage([self.usage, *(reply.usage for reply in replies)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """What a call has made.

    Attributes:
        rows: Its rows.
        dropped: Why nothing of them was committed, or None.
        tokens: The size of what it said.
        said: Fields for the event.
    """

    rows: Sequence[LogRow]
    dropped: str | None
    tokens: int
    said: Mapping[str, Any]


@dataclass(kw_only=True)
class Cycle:
    """One call of the observer or the reflector.

    Attributes:
        engine: The engine.
        io: What drives it.
        cause: Why.
        view: The log that it is made for.
        caller: What makes it.
        buffers: Whether the result waits; else it is shown at once.
        size: Tokens that it is about.
        outcome: Where its rows, its cost and its error are kept.
        replies: What the model has said so far.
    """

    engine: Engine
    io: IO
    cause: Cause
    view: LogView
    caller: Caller
    buffers: bool
    size: int
    outcome: Outcome
    replies: Sequence[Reply] = ()
    _id: str = field(default_factory=new_id)
    _started: float = field(default_factory=time.perf_counter)

    async def run(self, work: Callable[[], Awaitable[Made]], **fields: Any) -> None:
        """Do the work; whatever a model, a hook, a parser or the store raises becomes the outcome's error.

        Args:
            work: Calls the model and commits what it said.
            **fields: More for the event of its start.
        """
        try:
            await self._begin(fields)
            made = await work()
        except Exception as error:  # noqa: BLE001 - nothing was changed
            await self._keeping(self._fail(error), error)
        else:
            await self._keeping(self._end(made))

    async def _keeping(self, last: Awaitable[None], error: Exception | None = None) -> None:
        """Do the last of a call; the first thing that went wrong is the one that counts."""
        try:
            await last
        except Exception as late:  # noqa: BLE001 - it is kept
            error = error or late
        self.outcome.error = error

    async def _begin(self, fields: Mapping[str, Any]) -> None:
        amount = "tokens_to_buffer" if self.buffers else "tokens_to_observe"
        self._emit("start", **{amount: self.size}, **fields, started_at=self._now())
        await self._lifecycle("start")

    async def _fail(self, error: Exception) -> None:
        why = "failed"
        if isinstance(error, UnusableError):
            why, self.replies = error.reason, error.replies
        self.outcome.add(self.replies)
        self.engine.failed(self.cause.address, self.caller.phase)
        await self.engine.record(self.io, self.cause.address, self.caller.phase, why, self.replies)
        self._emit(
            "failed",
            tokens_attempted=self.size,
            error=f"{type(error).__name__}: {error}",
            duration_ms=self._milliseconds(),
            failed_at=self._now(),
        )
        try:
            await self._lifecycle("end", usage=self._usage(), error=error)
        except Exception as late:  # noqa: BLE001 - the first error is the one that counts
            self.engine.memory.background.report(f"hook on_{self.caller.phase}_end", late, **self.cause.ids)

    async def _end(self, made: Made) -> None:
        self.outcome.add(self.replies)
        self.engine.succeeded(self.cause.address, self.caller.phase)
        if made.dropped is None:
            self.outcome.rows += made.rows
        else:
            self.outcome.dropped.append(made.dropped)
        reflects = self.caller.phase == "reflection"
        refused = reflects and made.dropped == "size"
        await self.engine.record(
            self.io,
            self.engine.owned(self.cause.address, self.view),
            self.caller.phase,
            "committed" if made.dropped is None else "refused" if refused else "dropped",
            self.replies,
            refused=self.size if refused else None,
            reflected=reflects and made.dropped is None,
        )
        amounts = {
            "tokens_buffered" if self.buffers else "tokens_observed": self.size,
            "buffered_tokens" if self.buffers else "observation_tokens": made.tokens,
        }
        self._emit(
            "end",
            **amounts,
            **made.said,
            dropped=made.dropped,
            duration_ms=self._milliseconds(),
            completed_at=self._now(),
        )
        metadata = self.replies[-1].metadata if self.replies else {}
        await self._lifecycle("end", usage=self._usage(), response_metadata=metadata)

    def _emit(self, moment: Literal["start", "end", "failed"], **fields: Any) -> None:
        name = cast("EventPhase", f"{'buffering' if self.buffers else 'observation'}_{moment}")
        emit(self.cause.writer, name, cycle_id=self._id, operation_type=self.caller.phase, **self.cause.ids, **fields)

    async def _lifecycle(self, moment: Literal["start", "end"], **more: Any) -> None:
        await self.engine.lifecycle(
            self.io, self.cause, f"on_{self.caller.phase}_{moment}", self.caller.context(**more)
        )

    def _usage(self) -> dict[str, int]:
        return merged_usage([reply.usage for reply in self.replies])

    def _now(self) -> str:
        return self.engine.memory.clock().isoformat()

    def _milliseconds(self) -> int:
        return round((time.perf_counter() - self._started) * 1000)


def names_of(engine: Engine, view: LogView) -> dict[int, str] | None:
    """Return the words for the threads of a shared log, or None for a thread's own."""
    if engine.options.scope == "thread":
        return None
    return {key: obscured(thread.id) for key, thread in view.threads.items()}


def mirrored(engine: Engine, row: LogRow) -> list[tuple[tuple[str, ...], Any]]:
    """Return what of a row is kept below `om` in the thread's metadata."""
    changes: list[tuple[tuple[str, ...], Any]] = []
    if row.hinted:
        changes.append((("current_task",), row.hints.current_task))
        changes.append((("suggested_response",), row.hints.suggested_response))
    if row.hints.thread_title:
        changes.append((("thread_title",), row.hints.thread_title))
    options = engine.options
    changes += [
        (extractor.path, row.extracted[extractor.slug])
        for extractor in (*options.observation.extract, *options.reflection.extract)
        if extractor.path is not None and extractor.slug in row.extracted
    ]
    return changes


def terms_of(engine: Engine, rows: Sequence[LogRow]) -> dict[str, bytes]:
    """Return the packed terms of rows, when the recall tool can search."""
    retrieval = engine.options.recall_tool
    if retrieval is None or not retrieval.vector:
        return {}
    from langchain_mastra_memory.observation.search import packed_terms  # noqa: PLC0415 - numpy, when on

    return {row.id: packed_terms(row.text) for row in rows if row.text}


def generation_of(state: LogState) -> int:
    """Return how often the log was condensed."""
    return max((row.generation for row in state.log), default=0)
