"""Brings vectors up to date behind the saves, and lets an outside index forget what was removed.

What is to be done stands in the store: messages whose vectors are missing, and an outbox of what an outside index must
forget. Both were written in the transaction of the message, so a crash, an outage or a deadline loses nothing: the next
write, the next search and `reindex()` go on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from langchain_mastra_memory.forking import new_lock, watch
from langchain_mastra_memory.io import IO
from langchain_mastra_memory.recall.chunking import chunks
from langchain_mastra_memory.recall.embeddings import Vector
from langchain_mastra_memory.recall.text import embedded_text, indexed_text
from langchain_mastra_memory.recall.vector_index import Entry
from langchain_mastra_memory.recall.vectors import quantize
from langchain_mastra_memory.store.operations.index import (
    ClaimPending,
    ClearOutbox,
    Embedded,
    Pending,
    PrepareHNSW,
    ReadOutbox,
    WriteVectors,
)

if TYPE_CHECKING:
    from langchain_mastra_memory.recall.engine import RecallEngine

Progress = Callable[[int], None]

FIRST_REST: Final = 1.0  # seconds until a message that could not be embedded is tried again, then twice as long
LONGEST_REST: Final = 600.0


@dataclass(slots=True)
class _Rest:
    until: float
    seconds: float


class Feeder:
    """Embeds what is pending; one pass at a time in a process."""

    def __init__(self, engine: RecallEngine) -> None:
        self._engine = engine
        self._lock = new_lock()
        self._running: Future[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._again = False
        self._resting: dict[int, _Rest] = {}
        self._hnsw: set[int] = set()
        watch(self)

    def forget_parent(self) -> None:
        """Forget the pass that was under way in the process that this one was forked from."""
        self._running, self._loop, self._again = None, None, False

    def soon(self, *, is_async: bool) -> Future[None]:
        """Start a pass in the background, or have the one under way look again; return when it will have ended."""
        loop = asyncio.get_running_loop() if is_async else None
        with self._lock:
            running = self._running
            if running is not None and not running.done() and not (self._loop is not None and self._loop.is_closed()):
                self._again = True
                return running
            self._running = running = Future()
            self._loop, self._again = loop, False

        async def body(io: IO) -> None:
            try:
                while True:
                    await self.run(io)
                    with self._lock:
                        if not self._again:
                            running.set_result(None)
                            return
                        self._again = False
            finally:
                if not running.done():
                    running.set_result(None)

        self._engine.memory.background.start("embed", body, is_async=is_async)
        return running

    def waits_for_this_thread(self) -> bool:
        """Tell whether the pass under way is a task of this thread's loop: waiting here would keep it from ending."""
        if self._loop is None:
            return False
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return not self._loop.is_running()

    async def run(self, io: IO, *, progress: Progress | None = None, stubborn: bool = False) -> None:
        """Embed everything that is pending, oldest first, then empty the outbox.

        Args:
            io: How to work.
            progress: Called with the number of messages done after each batch.
            stubborn: Whether messages that failed a moment ago are tried too.

        Raises:
            Exception: The error of the embedding model or the outside index; what could be done was done.
        """
        engine = self._engine
        failure: Exception | None = None
        after = 0
        while True:
            pending = await io.run(
                ClaimPending(
                    after=after,
                    limit=engine.options.embed_batch,
                    outside=engine.outside is not None,
                    chunks=engine.options.max_chunks,
                )
            )
            if not pending:
                break
            after = pending[-1].text
            now = time.monotonic()
            tried = [one for one in pending if stubborn or not self._rests(one.text, now)]
            done, error = await self._batch(io, tried)
            failure = failure or error
            if progress is not None:
                progress(done)
            if error is not None and not done:
                break  # the model is down, or the index: more of the same would fail too
        await self._forget(io)
        if failure is not None:
            raise failure

    def _rests(self, text: int, now: float) -> bool:
        rest = self._resting.get(text)
        return rest is not None and rest.until > now

    async def _batch(self, io: IO, pending: Sequence[Pending]) -> tuple[int, Exception | None]:
        """Embed one batch and keep its vectors; return how many messages were done, and an error."""
        if not pending:
            return 0, None
        engine = self._engine
        cut = [self._chunks(one) for one in pending]
        flat = [chunk for some in cut for chunk in some]
        vectors: list[Vector | Exception] = [[] for _ in flat]
        if engine.outside is None or not engine.outside.embeds:
            vectors = await engine.embedder.documents(io, flat) if flat else []
        good: list[tuple[Pending, list[str], list[Vector]]] = []
        failure: Exception | None = None
        at = 0
        for one, some in zip(pending, cut, strict=True):
            mine = vectors[at : at + len(some)]
            at += len(some)
            errors = [vector for vector in mine if isinstance(vector, Exception)]
            if errors:
                failure = errors[0]
                self._rest(one.text)
            else:
                good.append((one, some, [vector for vector in mine if not isinstance(vector, Exception)]))
        await self._keep(io, good)
        for one, _, _ in good:
            self._resting.pop(one.text, None)
        return len(good), failure

    def _rest(self, text: int) -> None:
        before = self._resting.get(text)
        seconds = FIRST_REST if before is None else min(before.seconds * 2, LONGEST_REST)
        self._resting[text] = _Rest(time.monotonic() + seconds, seconds)
        if len(self._resting) > 10_000:  # the oldest ones are merely tried sooner
            self._resting.pop(next(iter(self._resting)))

    def _chunks(self, one: Pending) -> list[str]:
        options = self._engine.options
        text = embedded_text(*indexed_text(one.message, tools=options.tools))
        return chunks(text, options.chunk_characters, options.chunk_overlap, options.max_chunks)

    async def _keep(self, io: IO, good: Sequence[tuple[Pending, list[str], list[Vector]]]) -> None:
        engine = self._engine
        if engine.outside is not None:
            entries = [
                Entry(entry_id(one.point or 0, n), one.thread, text, tuple(vectors[n]))
                for one, some, vectors in good
                for n, text in enumerate(some)
            ]
            if entries:
                await io.call(engine.outside.upsert, engine.outside.aupsert, entries)
        by_length: dict[int, list[Embedded]] = {}
        for one, some, vectors in good:
            here = tuple(quantize(vector) for vector in vectors) if engine.outside is None else ()
            row = Embedded(one.text, one.thread, one.revision, len(some), here, one.point)
            by_length.setdefault(len(vectors[0]) if vectors else 0, []).append(row)
        known = max(by_length, default=0)
        empty = by_length.pop(0, []) if known else []
        for dimension, rows in by_length.items():
            hnsw = engine.options.index is not None and engine.outside is None and dimension > 0
            if hnsw:
                await self.prepare_hnsw(io, dimension)
            await io.run(WriteVectors(model=engine.model, dimension=dimension, rows=(*rows, *empty), hnsw=hnsw))
            empty = []

    async def prepare_hnsw(self, io: IO, dimension: int) -> None:
        """Make the HNSW table, once in a process."""
        options = self._engine.options.index
        if options is not None and dimension not in self._hnsw:
            await io.run(PrepareHNSW(dimension=dimension, m=options.m, ef_construction=options.ef_construction))
            self._hnsw.add(dimension)

    async def _forget(self, io: IO) -> None:
        """Let the outside index forget what is due."""
        outside = self._engine.outside
        if outside is None:
            return
        while due := await io.run(ReadOutbox()):
            ids = [entry_id(point, n) for point, count in due for n in range(count)]
            await io.call(outside.delete, outside.adelete, ids)
            await io.run(ClearOutbox(points=tuple(point for point, _ in due)))


def entry_id(point: int, chunk: int) -> str:
    """Return the name of a chunk in an outside index."""
    return f"{point:016x}-{chunk}"


def point_of(entry: str) -> int | None:
    """Return the point of a name, or None for a name that is not ours."""
    head, dash, _ = entry.rpartition("-")
    try:
        return int(head, 16) if dash else None
    except ValueError:
        return None
