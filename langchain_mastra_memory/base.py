"""What the parts of `Memory` share: each feature adds its methods as a mixin over `MemoryBase`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Literal, TypeVar

from langchain_mastra_memory.background import Background
from langchain_mastra_memory.errors import StoreReadOnlyError
from langchain_mastra_memory.io import IO, AsyncIO, SyncIO
from langchain_mastra_memory.store.base import MemoryStore, Operation

if TYPE_CHECKING:
    from langchain_core.embeddings import Embeddings

    from langchain_mastra_memory.context.provider import FeatureProvider
    from langchain_mastra_memory.history.options import MessageHistory
    from langchain_mastra_memory.history.query import RecallQuery
    from langchain_mastra_memory.models import ModelSpec
    from langchain_mastra_memory.observation.options import ObservationalMemory
    from langchain_mastra_memory.recall.options import SemanticRecall
    from langchain_mastra_memory.recall.vector_index import VectorIndex
    from langchain_mastra_memory.threads.titles import ThreadTitles
    from langchain_mastra_memory.tokens import TokenCounter
    from langchain_mastra_memory.types import Page, StoredMessage
    from langchain_mastra_memory.working_memory.options import WorkingMemory

T = TypeVar("T")
Layout = Literal["documented", "cached"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryOptions:
    """How a memory was made; a feature that is off is None.

    Attributes:
        message_history: The window of messages.
        working_memory: The page about the user or the task.
        semantic_recall: Search in old messages.
        observational_memory: Condensing long conversations.
        titles: Naming threads.
        model: The default model of background work.
        embeddings: The embedding model of recall.
        vector_index: Where vectors are kept; None is in the store itself.
        layout: The order of the layers in the prompt.
        read_only: Whether nothing is ever written.
    """

    message_history: MessageHistory | None = None
    working_memory: WorkingMemory | None = None
    semantic_recall: SemanticRecall | None = None
    observational_memory: ObservationalMemory | None = None
    titles: ThreadTitles | None = None
    model: ModelSpec | None = None
    embeddings: Embeddings | str | None = None
    vector_index: VectorIndex | None = None
    layout: Layout = "documented"
    read_only: bool = False

    @property
    def features(self) -> frozenset[str]:
        """The names of the features that are on and keep rows of their own for messages."""
        on = {
            "working_memory": self.working_memory,
            "recall": self.semantic_recall,
            "observation": self.observational_memory,
        }
        names = {name for name, options in on.items() if options is not None}
        if self.working_memory is not None:
            names.add(f"working_memory:{self.working_memory.scope}")
        if self.semantic_recall is not None:
            has_model = self.embeddings is not None or self.vector_index is not None
            names |= self.semantic_recall.features(with_model=has_model)
        return frozenset(names)


class MemoryBase:
    """The wiring that every mixin can use.

    Attributes:
        store: Where everything is kept.
        options: How the memory was made.
        clock: Gives the present time, aware UTC.
        background: Runs and keeps track of work behind the user's back.
    """

    store: MemoryStore
    options: MemoryOptions
    clock: Callable[[], datetime]
    background: Background

    @property
    def token_counter(self) -> TokenCounter:
        """What counts tokens, and by which encoding; see `TokenCounter.name`."""
        raise NotImplementedError

    @property
    def providers(self) -> Sequence[FeatureProvider]:
        """The parts that the features which are on take in a run."""
        raise NotImplementedError

    async def _recall_query(self, io: IO, query: RecallQuery) -> Page[StoredMessage]:
        """Answer `recall(query=...)`; the part that searches overrides it."""
        raise NotImplementedError

    async def _write(self, io: IO, operation: Operation[T], *, indexed: bool = True) -> T:
        """Run an operation that writes, and bring the search up to date behind it.

        Args:
            io: What drives the body.
            operation: What to run.
            indexed: Whether it may change what a search finds.

        Raises:
            StoreReadOnlyError: The memory was made with `read_only=True`.
        """
        if self.options.read_only:
            raise StoreReadOnlyError("this memory was made with read_only=True and changes nothing")
        result = await io.run(operation)
        if indexed:
            self._index_soon(io)
        return result

    def _index_soon(self, io: IO) -> None:
        """Bring the search up to date behind a write; the part that searches overrides it."""

    def _close_recall(self) -> None:
        """Release what the search holds; the part that searches overrides it."""

    def io(self, *, is_async: bool) -> IO:
        """Return what drives a body: at once, or awaiting."""
        if is_async:
            return AsyncIO(self.store, lambda: self.background.executor)
        return SyncIO(self.store)
