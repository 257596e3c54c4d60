"""The public names of the package, each imported when it is first used: `import langchain_mastra_memory` is cheap."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from langchain_mastra_memory._version import __version__

# A new name goes to three places: here for type checkers, into `__all__` for readers, into `_PLACES` for Python.
if TYPE_CHECKING:
    from langchain_mastra_memory.agents.middleware import (
        MemoryMiddleware,
    )
    from langchain_mastra_memory.agents.run_options import (
        MemoryContext,
        RunOptions,
    )
    from langchain_mastra_memory.agents.speakers import (
        Speaker,
        as_user_turn,
    )
    from langchain_mastra_memory.context.preview import (
        Preview,
    )
    from langchain_mastra_memory.errors import (
        ConfigurationError,
        EmbeddingModelMismatchError,
        InvalidFilterError,
        InvalidIdError,
        InvalidQueryError,
        MastraMemoryError,
        MessageNotFoundError,
        MissingResourceError,
        ObservationError,
        ProcessorError,
        SchemaVersionError,
        StoreClosedError,
        StoreCorruptError,
        StoreError,
        StoreFullError,
        StoreLockedError,
        StoreReadOnlyError,
        StoreUnavailableError,
        ThreadNotFoundError,
        ThreadOwnershipError,
        WorkingMemoryError,
    )
    from langchain_mastra_memory.history.options import (
        MessageHistory,
    )
    from langchain_mastra_memory.ids import (
        derive_resource_id,
    )
    from langchain_mastra_memory.memory import (
        Memory,
    )
    from langchain_mastra_memory.observation.extractors import (
        Extractor,
    )
    from langchain_mastra_memory.observation.hooks import (
        ObservationHooks,
        redact_tool_results,
    )
    from langchain_mastra_memory.observation.node import (
        ObservationNode,
    )
    from langchain_mastra_memory.observation.options import (
        ModelByInputTokens,
        Observation,
        ObservationalMemory,
        Reflection,
    )
    from langchain_mastra_memory.observation.summarize import (
        asummarize_conversation,
        summarize_conversation,
    )
    from langchain_mastra_memory.recall.options import (
        HNSW,
        SemanticRecall,
    )
    from langchain_mastra_memory.recall.retriever import (
        SemanticRecallRetriever,
    )
    from langchain_mastra_memory.store.base import (
        MemoryStore,
    )
    from langchain_mastra_memory.store.sql.engine import (
        SQLMemoryStore,
    )
    from langchain_mastra_memory.threads.saver import (
        ThreadSaver,
    )
    from langchain_mastra_memory.threads.titles import (
        ThreadTitles,
    )
    from langchain_mastra_memory.types import (
        BackgroundFailure,
        Branch,
        ClonedThread,
        Page,
        StoredMessage,
        Thread,
    )
    from langchain_mastra_memory.working_memory.channel import (
        WorkingMemoryState,
    )
    from langchain_mastra_memory.working_memory.options import (
        WorkingMemory,
    )

__all__ = [
    "BackgroundFailure",
    "Branch",
    "ClonedThread",
    "ConfigurationError",
    "EmbeddingModelMismatchError",
    "Extractor",
    "HNSW",
    "InvalidFilterError",
    "InvalidIdError",
    "InvalidQueryError",
    "MastraMemoryError",
    "Memory",
    "MemoryContext",
    "MemoryMiddleware",
    "MemoryStore",
    "MessageHistory",
    "MessageNotFoundError",
    "MissingResourceError",
    "ModelByInputTokens",
    "Observation",
    "ObservationError",
    "ObservationHooks",
    "ObservationNode",
    "ObservationalMemory",
    "Page",
    "Preview",
    "ProcessorError",
    "Reflection",
    "RunOptions",
    "SQLMemoryStore",
    "SchemaVersionError",
    "SemanticRecall",
    "SemanticRecallRetriever",
    "Speaker",
    "StoreClosedError",
    "StoreCorruptError",
    "StoreError",
    "StoreFullError",
    "StoreLockedError",
    "StoreReadOnlyError",
    "StoreUnavailableError",
    "StoredMessage",
    "Thread",
    "ThreadNotFoundError",
    "ThreadOwnershipError",
    "ThreadSaver",
    "ThreadTitles",
    "WorkingMemory",
    "WorkingMemoryError",
    "WorkingMemoryState",
    "__version__",
    "as_user_turn",
    "asummarize_conversation",
    "derive_resource_id",
    "redact_tool_results",
    "summarize_conversation",
]

_PLACES: Final = {
    "BackgroundFailure": "types",
    "Branch": "types",
    "ClonedThread": "types",
    "ConfigurationError": "errors",
    "EmbeddingModelMismatchError": "errors",
    "Extractor": "observation.extractors",
    "HNSW": "recall.options",
    "InvalidFilterError": "errors",
    "InvalidIdError": "errors",
    "InvalidQueryError": "errors",
    "MastraMemoryError": "errors",
    "Memory": "memory",
    "MemoryContext": "agents.run_options",
    "MemoryMiddleware": "agents.middleware",
    "MemoryStore": "store.base",
    "MessageHistory": "history.options",
    "MessageNotFoundError": "errors",
    "MissingResourceError": "errors",
    "ModelByInputTokens": "observation.options",
    "Observation": "observation.options",
    "ObservationError": "errors",
    "ObservationHooks": "observation.hooks",
    "ObservationNode": "observation.node",
    "ObservationalMemory": "observation.options",
    "Page": "types",
    "Preview": "context.preview",
    "ProcessorError": "errors",
    "Reflection": "observation.options",
    "RunOptions": "agents.run_options",
    "SQLMemoryStore": "store.sql.engine",
    "SchemaVersionError": "errors",
    "SemanticRecall": "recall.options",
    "SemanticRecallRetriever": "recall.retriever",
    "Speaker": "agents.speakers",
    "StoreClosedError": "errors",
    "StoreCorruptError": "errors",
    "StoreError": "errors",
    "StoreFullError": "errors",
    "StoreLockedError": "errors",
    "StoreReadOnlyError": "errors",
    "StoreUnavailableError": "errors",
    "StoredMessage": "types",
    "Thread": "types",
    "ThreadNotFoundError": "errors",
    "ThreadOwnershipError": "errors",
    "ThreadSaver": "threads.saver",
    "ThreadTitles": "threads.titles",
    "WorkingMemory": "working_memory.options",
    "WorkingMemoryError": "errors",
    "WorkingMemoryState": "working_memory.channel",
    "as_user_turn": "agents.speakers",
    "asummarize_conversation": "observation.summarize",
    "derive_resource_id": "ids",
    "redact_tool_results": "observation.hooks",
    "summarize_conversation": "observation.summarize",
}


def __getattr__(name: str) -> Any:
    """Import a public name from where it lives."""
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{place}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names, imported or not."""
    return sorted({*globals(), *__all__})
