"""The methods of `Memory` that search old messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from langchain_mastra_memory.base import MemoryBase
from langchain_mastra_memory.checks import check_function
from langchain_mastra_memory.errors import (
    ConfigurationError,
    InvalidQueryError,
    MissingResourceError,
)
from langchain_mastra_memory.forking import new_lock
from langchain_mastra_memory.ids import optional_id
from langchain_mastra_memory.io import IO, both
from langchain_mastra_memory.recall.options import Mode, as_range, checked_range
from langchain_mastra_memory.types import Page, StoredMessage

if TYPE_CHECKING:
    from langchain_mastra_memory.history.query import RecallQuery
    from langchain_mastra_memory.recall.engine import RecallEngine
    from langchain_mastra_memory.recall.retriever import SemanticRecallRetriever
    from langchain_mastra_memory.store.operations.index import ScopeOf

_MAKING: Final = new_lock()


class RecallMethods(MemoryBase):
    """Search in old messages, by meaning and by words."""

    _engine: RecallEngine | None = None

    @property
    def recall_engine(self) -> RecallEngine:
        """The search behind `recall(query=...)`, the retriever and the middleware.

        Raises:
            ConfigurationError: Semantic recall is off.
        """
        engine = self._engine
        if engine is None:
            options = self.options.semantic_recall
            if options is None:
                raise ConfigurationError("semantic recall is off: make the memory with semantic_recall=True")
            from langchain_mastra_memory.recall.engine import RecallEngine  # noqa: PLC0415 - numpy, when used

            with _MAKING:
                engine = self._engine = self._engine or RecallEngine(self, options)
        return engine

    def retriever(
        self,
        *,
        thread_id: str | None = None,
        resource_id: str | None = None,
        k: int | None = None,
        filter: Mapping[str, Any] | None = None,  # noqa: A002 - LangChain's name
        mode: Mode | None = None,
        message_range: int | tuple[int, int] | None = None,
    ) -> SemanticRecallRetriever:
        """Return a LangChain retriever over the messages of a resource, or of one thread.

        Args:
            thread_id: The thread; needed when the options say `scope="thread"`. By default the run's.
            resource_id: The owner, whose threads are searched. By default the run's.
            k: How many documents; by default `top_k` of the options.
            filter: Which threads and messages may be found; by default the options'.
            mode: `hybrid`, `vector` or `lexical`; by default the options'.
            message_range: How many neighbours are shown, or (before, after); by default the options'.

        Raises:
            ConfigurationError: Semantic recall is off, or an option makes no sense.
            InvalidFilterError: The filter cannot be honoured.

        Example:
            >>> from langchain_mastra_memory import Memory
            >>> memory = Memory(semantic_recall=True)
            >>> saved = memory.save_messages([("user", "My cat is called Mia")], thread_id="t1", resource_id="u1")
            >>> [found.page_content for found in memory.retriever(resource_id="u1").invoke("the cat's name")]
            ['My cat is called Mia']
        """
        from langchain_mastra_memory.recall.retriever import SemanticRecallRetriever  # noqa: PLC0415 - knows Memory

        self.recall_engine  # noqa: B018 - raises when recall is off
        ids = {"thread_id": optional_id(thread_id, "thread_id"), "resource_id": optional_id(resource_id)}
        return SemanticRecallRetriever(memory=self, k=k, filter=filter, mode=mode, message_range=message_range, **ids)

    @both
    async def reindex(self, io: IO, *, progress: Callable[[int, int], object] | None = None) -> int:
        """Make the whole index anew: every term blob, and every vector with the present embedding model.

        After another embedding model was set, after semantic recall was turned on over messages that were saved
        without it, or after an outage. Searches go on meanwhile; with another model only by words. It can be broken
        off and called again.

        Args:
            progress: Called with (messages done, messages in all) after each batch.

        Returns:
            How many messages were indexed.

        Raises:
            ConfigurationError: Semantic recall is off, or the memory is read-only.
            Exception: The embedding model or the outside index failed; what was done stays.
        """
        check_function("progress", progress)
        engine = self.recall_engine
        if self.options.read_only:
            raise ConfigurationError("a read-only memory cannot reindex")
        return await engine.reindex(io, progress)

    areindex = reindex.twin

    def _index_soon(self, io: IO) -> None:
        """Have what was just saved embedded, and what was removed forgotten, behind the caller's back."""
        if self.options.semantic_recall is not None and not self.options.read_only and self.recall_engine.has_vectors:
            self.recall_engine.feeder.soon(is_async=io.is_async)

    def _close_recall(self) -> None:
        """Release the outside index; what is in memory goes with the memory."""
        if self._engine is not None:
            self._engine.close()

    async def _recall_query(self, io: IO, query: RecallQuery) -> Page[StoredMessage]:
        """Answer `recall(query=...)`: the hits with their scores among their neighbours, in order."""
        from langchain_mastra_memory.recall.filters import parse_filter  # noqa: PLC0415 - when used
        from langchain_mastra_memory.recall.results import Search, in_order  # noqa: PLC0415

        engine = self.recall_engine
        options = engine.options
        scope = self._search_scope(query.thread_id, query.resource_id, checkpoint_id=query.checkpoint_id)
        hits = await engine.search(
            io,
            Search(
                text=query.text,
                scope=scope,
                top_k=query.top_k if query.top_k is not None else options.top_k,
                around=options.around if query.message_range is None else _around(query.message_range),
                mode=engine.mode(None),
                filter=parse_filter(options.filter if query.filter is None else query.filter),
                threshold=options.threshold,
                start=query.start,
                end=query.end,
                metadata=query.metadata,
                wait=options.deadline,
                writes=not self.options.read_only,
            ),
        )
        found = in_order(hits)
        return Page(items=tuple(found), total=len(found))

    def _search_scope(
        self,
        thread_id: str | None,
        resource_id: str | None,
        *,
        position: tuple[int, int] | None = None,
        checkpoint_id: str | None = None,
    ) -> ScopeOf:
        """Return what a search may see.

        Raises:
            MissingResourceError: All threads are searched, and no resource is named.
            InvalidQueryError: One thread is searched, and none is named.
        """
        from langchain_mastra_memory.store.operations.index import ScopeOf  # noqa: PLC0415 - when used

        if self.recall_engine.options.scope == "thread":
            if thread_id is None:
                raise InvalidQueryError('SemanticRecall(scope="thread") searches one thread: pass thread_id')
            return ScopeOf(thread_id=thread_id, resource_id=resource_id, position=position, checkpoint_id=checkpoint_id)
        if resource_id is None:
            raise MissingResourceError(
                "semantic recall searches the threads of a resource: pass resource_id (in a run: in its context or in "
                'configurable["resource_id"]), or search one thread with SemanticRecall(scope="thread")'
            )
        return ScopeOf(resource_id=resource_id, present=thread_id, position=position, checkpoint_id=checkpoint_id)


def _around(message_range: object) -> tuple[int, int]:
    try:
        return as_range(checked_range(message_range))
    except ValueError as error:
        raise InvalidQueryError(str(error)) from None
