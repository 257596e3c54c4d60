"""The search: reads a scope, scores it in memory, fetches the hits.

One search takes three short reads (scope, hits, sometimes neighbours of tool calls) and, with vectors, one embedding.
Scoring runs outside the event loop.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

from langchain_core.embeddings import Embeddings

from langchain_mastra_memory.errors import (
    ConfigurationError,
    EmbeddingModelMismatchError,
    MastraMemoryError,
    ProcessorError,
)
from langchain_mastra_memory.io import IO
from langchain_mastra_memory.recall.choosing import Gathered, choose
from langchain_mastra_memory.recall.embeddings import Embedder, Vector, model_name, resolve_embeddings
from langchain_mastra_memory.recall.feeder import Feeder, point_of
from langchain_mastra_memory.recall.fetching import fetch
from langchain_mastra_memory.recall.index import ScopeIndex
from langchain_mastra_memory.recall.options import Mode, SemanticRecall
from langchain_mastra_memory.recall.results import Hit, Search
from langchain_mastra_memory.recall.scopes import Scope, Scopes
from langchain_mastra_memory.recall.terms import SHARED, TERMS_VERSION
from langchain_mastra_memory.recall.vector_index import LangChainVectorIndex
from langchain_mastra_memory.recall.vectors import QueryVector, scales_of, unpack
from langchain_mastra_memory.recall.waiting import wait_for, within
from langchain_mastra_memory.store.operations.index import (
    CountPending,
    CountTexts,
    FindPoints,
    FinishReindex,
    Place,
    ReadBlock,
    ReadDetails,
    ReadScope,
    ReindexPage,
    ScopeRead,
    SearchHNSW,
)

if TYPE_CHECKING:
    from langchain_mastra_memory.base import MemoryBase

logger = logging.getLogger(__name__)

_WORDS_BYTES: Final = 450  # of a message in a cached scope, without its vector
_PATIENCE: Final = 512  # a search waits for so many messages to be embedded; more are left to the background
_TRIES: Final = 20


class _Deadline:
    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds that are left; a little even when it is over, for what is ready already."""
        return max(self._end - time.monotonic(), 0.001)


class RecallEngine:
    """Semantic recall of one memory: its cached scopes, its embedding model, its outside index.

    Args:
        memory: The memory.
        options: Its recall options.
    """

    def __init__(self, memory: MemoryBase, options: SemanticRecall) -> None:
        self.memory = memory
        self.options = options
        self.scopes = Scopes(options.cache_mb * 1e6, options.weights)
        self.feeder = Feeder(self)
        self.outside = memory.options.vector_index
        self._embeddings = memory.options.embeddings
        self.has_vectors = options.mode != "lexical" and (self._embeddings is not None or self.outside is not None)
        if not self.has_vectors and options.mode != "lexical":
            logger.warning("semantic recall has no embeddings: it searches by words (lexical mode)")

    @cached_property
    def embedder(self) -> Embedder:
        """The embedding model."""
        if self._embeddings is None:
            raise ConfigurationError("semantic recall by meaning needs Memory(embeddings=...)")
        made = resolve_embeddings(self._embeddings)
        return Embedder(made, name=self.options.model_id, batch=self.options.embed_batch)

    @cached_property
    def model(self) -> str:
        """The name under which vectors are kept."""
        if isinstance(self.outside, LangChainVectorIndex):
            own = self.outside.store.embeddings
            fallback = type(self.outside.store).__name__
            return self.options.model_id or (model_name(own) if isinstance(own, Embeddings) else fallback)
        if self.outside is not None and self.outside.embeds:
            return self.options.model_id or type(self.outside).__name__
        return self.embedder.name

    def mode(self, wanted: Mode | None) -> Mode:
        """Return the mode of a search.

        Raises:
            ConfigurationError: It is by meaning alone, and there is no embedding model.
        """
        mode = wanted or self.options.mode
        if mode == "vector" and not self.has_vectors:
            raise ConfigurationError('mode="vector" needs Memory(embeddings=...) and SemanticRecall(mode="hybrid")')
        return mode if self.has_vectors else "lexical"

    def close(self) -> None:
        """Release the outside index."""
        if self.outside is not None:
            self.outside.close()

    async def search(self, io: IO, search: Search) -> list[Hit]:
        """Return hits, best first.

        Raises:
            ThreadNotFoundError: The one thread of the scope is missing, or another resource's.
            EmbeddingModelMismatchError: The store has vectors of another model.
            ProcessorError: The search is by meaning alone, and the embedding model failed.
            ConfigurationError: The index was made by another version of the tokenizer.
        """
        deadline = _Deadline(search.wait)
        by_meaning = search.mode != "lexical" and bool(search.text.strip())
        vector: Vector | None = None
        if by_meaning and not (self.outside is not None and self.outside.embeds):
            try:
                vector = await self.embedder.query(io, search.text, deadline.left)
                if self.outside is None:
                    self.memory.background.succeeded("recall")
            except MastraMemoryError:
                raise
            except Exception as error:  # noqa: BLE001 - any model, any error
                self._degraded(search, error)
                by_meaning = False
        if not by_meaning:
            search = replace(search, mode="lexical")
        gathered = await self._current(io, search, vector, deadline)
        threads = self._threads(search, gathered.read)
        if search.needs_details:
            gathered = replace(gathered, details=await self._details(io, search, threads))
        if search.filter is not None or search.needs_details:
            gathered = replace(gathered, threads=threads)
        if by_meaning:
            gathered = replace(gathered, found=await self._candidates(io, search, gathered, threads, deadline))
        if gathered.read.rows is not None:
            gathered = await self._streamed(io, search, gathered)
        chosen = await io.thread(choose, search, gathered)
        return await fetch(io, search, chosen, gathered.scope)

    async def reindex(self, io: IO, progress: Callable[[int, int], object] | None) -> int:
        """Write every blob anew, then embed everything."""
        total = await io.run(CountTexts())
        after: Place | None = None
        while (after := await io.run(ReindexPage(after=after, features=self.memory.options.features))) is not None:
            pass
        await io.run(FinishReindex())
        self.scopes.clear()
        pending = await io.run(CountPending()) if self.has_vectors else 0
        done = total - pending

        def count(more: int) -> None:
            nonlocal done
            done += more
            if progress is not None:
                progress(min(done, total), total)

        count(0)
        if self.has_vectors:
            await self.feeder.run(io, progress=count, stubborn=True)
        return total

    def _degraded(self, search: Search, error: Exception) -> None:
        """Go on by words alone, or say that it can't be.

        Raises:
            ProcessorError: The search is by meaning alone.
        """
        what = (
            f"the embedding model took longer than {search.wait} s" if isinstance(error, TimeoutError) else str(error)
        )
        if search.mode == "vector":
            raise ProcessorError(f"the query could not be embedded: {what}") from error
        thread = search.scope.thread_id or search.scope.present
        self.memory.background.report("recall", error, thread_id=thread, resource_id=search.scope.resource_id)

    def _key(self, search: Search, *, with_vectors: bool) -> Hashable:
        scope = search.scope
        return (
            ("thread", scope.thread_id, with_vectors) if scope.thread_id else ("all", scope.resource_id, with_vectors)
        )

    async def _current(self, io: IO, search: Search, vector: Vector | None, deadline: _Deadline) -> Gathered:
        """Return the scope's index, current; waits a little for what was just saved."""
        # A search by words uses the index that has vectors too, if there is one, rather than keeping a second.
        with_vectors = self._key(search, with_vectors=True)
        inside = self.outside is None and (vector is not None or with_vectors in self.scopes)
        key = with_vectors if inside else self._key(search, with_vectors=False)
        dimension = len(vector) if vector is not None and inside else 0
        most = int(self.scopes.limit / (_WORDS_BYTES + 4 * dimension))
        waited = not search.writes or search.mode == "lexical"
        for _ in range(_TRIES):
            scope = self.scopes.get(key)
            version, known = scope.known()
            read = await io.run(
                ReadScope(
                    scope=search.scope,
                    known=known,
                    with_vectors=inside,
                    with_pending=not waited,
                    with_metadata=search.filter is not None,
                    with_models=search.mode != "lexical",
                    most=most,
                )
            )
            if read.terms != TERMS_VERSION:
                raise ConfigurationError(
                    f"the text index was made by version {read.terms} of the tokenizer, this is version "
                    f"{TERMS_VERSION}: call reindex()"
                )
            if search.mode != "lexical":
                self._check_model(read, vector)
            if read.pending and not waited:
                waited = True
                if await self._caught_up(io, read.pending, deadline):
                    continue
            if read.rows is not None or await io.thread(self._apply, key, scope, version, read):
                return Gathered(scope=scope, read=replace(read, texts=(), vectors=()), vector=vector)
        raise ProcessorError("the index of this scope changed too often while it was read; search again")

    def _apply(self, key: Hashable, scope: Scope, version: int, read: ScopeRead) -> bool:
        with scope.lock:
            if scope.version != version:
                return False
            scope.apply(read)
        self.scopes.keep(key, scope)
        return True

    def _check_model(self, read: ScopeRead, vector: Vector | None) -> None:
        mine = (self.model, len(vector) if vector is not None else 0)
        others = [model for model in read.models if model != mine]
        if others:
            name, dimension = others[0]
            raise EmbeddingModelMismatchError(
                f"the index has vectors of the model {name[:80]!r} ({dimension} numbers), the query is of "
                f"{mine[0][:80]!r} ({mine[1]}): call reindex() to embed everything anew, or go back to the old model"
            )

    async def _caught_up(self, io: IO, pending: int, deadline: _Deadline) -> bool:
        """Have what was just saved embedded; return whether that ended in time."""
        running = self.feeder.soon(is_async=io.is_async)
        if pending > _PATIENCE or (not io.is_async and self.feeder.waits_for_this_thread()):
            return False
        return await wait_for(io, running, deadline.left)

    def _threads(self, search: Search, read: ScopeRead) -> tuple[int, ...]:
        """Return the keys of the threads whose messages may be found."""
        rule = search.filter
        if rule is None or rule.needs_messages:
            return tuple(state.key for state in read.threads)
        return tuple(state.key for state in read.threads if rule.matches(state.metadata or {}, {}))

    async def _details(self, io: IO, search: Search, threads: tuple[int, ...]) -> Mapping[Place, Mapping[str, object]]:
        rows = await io.run(
            ReadDetails(threads=threads, start=search.start, end=search.end, needs_metadata=bool(search.metadata))
        )
        return {(key, seq, branch): metadata for key, seq, branch, metadata in rows}

    async def _candidates(
        self, io: IO, search: Search, gathered: Gathered, threads: tuple[int, ...], deadline: _Deadline
    ) -> tuple[Mapping[int, float], bool] | None:
        """Ask an outside index, or the HNSW table for a scope over the cache; None: the vectors are here."""
        read, vector = gathered.read, gathered.vector
        limit = self.options.candidates
        hnsw = self.options.index
        if self.outside is not None:
            names = {state.key: state.id for state in read.threads}
            ids = [names[key] for key in threads]
            try:
                found = await within(
                    io, deadline.left, self.outside.search, self.outside.asearch, search.text, vector or (), ids, limit
                )
            except Exception as error:  # noqa: BLE001 - any index, any error
                self._degraded(search, error)
                return {}, True
            self.memory.background.succeeded("recall")
            points: dict[int, float] = {}
            for name, similarity in found:
                point = point_of(name)
                if point is not None:
                    points[point] = max(similarity, points.get(point, -1.0))
            ours = await io.run(FindPoints(points=tuple(points), threads=threads))
            return {text: points[point] for point, text in ours.items()}, len(found) < limit
        if hnsw is not None and read.rows is not None and vector is not None and search.writes:
            await self.feeder.prepare_hnsw(io, len(vector))
            near = await io.run(
                SearchHNSW(threads=threads, vector=tuple(vector), limit=limit, ef_search=max(hnsw.ef_search, limit))
            )
            return dict(near), len(near) < limit
        return None

    async def _streamed(self, io: IO, search: Search, gathered: Gathered) -> Gathered:
        """Read a scope that is too large for the cache block by block, keeping what this query needs."""
        read = gathered.read
        vector = gathered.vector if gathered.found is None else None
        terms = SHARED.query(search.text)
        scope = Scope(ScopeIndex(self.options.weights))
        for state in read.threads:
            scope.index.place(state.key, state.path)
        query = QueryVector.of(vector) if vector is not None else None
        keys = tuple(state.key for state in read.threads)
        cosines: dict[int, float] = {}
        after = 0
        while True:
            texts, vectors = await io.run(ReadBlock(threads=keys, after=after, with_vectors=query is not None))
            if not texts:
                break
            after = texts[-1][0]
            scope.index.add(texts, only=terms)
            rows = [row for row in vectors if query is not None and len(row[3]) == query.dimension]
            if rows and query is not None:
                matrix = unpack([row[3] for row in rows], query.dimension)
                for row, cosine in zip(rows, query.cosines(matrix, scales_of(matrix)).tolist(), strict=True):
                    cosines[row[2]] = max(cosine, cosines.get(row[2], -1.0))
        found = (cosines, True) if query is not None else gathered.found
        return replace(gathered, scope=scope, found=found)
