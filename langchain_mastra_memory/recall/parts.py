"""What recall is made of beside its options, checked when the memory is made: the embedding model, the index."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langchain_mastra_memory.errors import ConfigurationError
from langchain_mastra_memory.shown import shown

if TYPE_CHECKING:
    from langchain_core.embeddings import Embeddings
    from langchain_core.vectorstores import VectorStore

    from langchain_mastra_memory.recall.options import SemanticRecall
    from langchain_mastra_memory.recall.vector_index import VectorIndex


def check_parts(
    options: SemanticRecall | None, embeddings: Embeddings | str | None, vector_store: VectorStore | str | None
) -> VectorIndex | None:
    """Check that the parts fit each other; nothing is connected or loaded yet.

    Returns:
        The outside index that was asked for; None: vectors live in the store.

    Raises:
        ConfigurationError: One of them cannot be used, or not together.
    """
    if options is None:
        if embeddings is not None or vector_store is not None:
            raise ConfigurationError("embeddings and vector_store belong to semantic_recall, which is off: turn it on")
        return None
    if embeddings is not None:
        check_embeddings(embeddings)
    outside = None if vector_store is None else _outside(vector_store)
    if embeddings is None and outside is not None and not outside.embeds:
        raise ConfigurationError("this vector_store needs Memory(embeddings=...): it keeps vectors, it makes none")
    if options.index is not None and outside is not None:
        raise ConfigurationError("SemanticRecall(index=HNSW()) is for vectors in the store; leave out vector_store")
    if options.mode == "vector" and embeddings is None and outside is None:
        raise ConfigurationError('SemanticRecall(mode="vector") needs Memory(embeddings=...)')
    return outside


def check_embeddings(given: object) -> None:
    """Refuse what names no embedding model and is none.

    Raises:
        ConfigurationError: It is neither an `Embeddings`, `"local"`, nor `provider:model`.
    """
    from langchain_core.embeddings import Embeddings  # noqa: PLC0415 - not before somebody embeds

    if isinstance(given, Embeddings):
        return
    provider, _, name = given.partition(":") if isinstance(given, str) else ("", "", "")
    if given != "local" and not (provider and name):
        raise ConfigurationError(
            f'embeddings must be a LangChain Embeddings, "provider:model" or "local", not {shown(given, 80)}'
        )


def _outside(given: VectorStore | VectorIndex | str) -> VectorIndex:
    from langchain_core.vectorstores import VectorStore  # noqa: PLC0415 - not before somebody brings one

    from langchain_mastra_memory.recall.vector_index import LangChainVectorIndex, VectorIndex  # noqa: PLC0415 - same

    if isinstance(given, VectorIndex):
        return given
    if isinstance(given, VectorStore):
        return LangChainVectorIndex(given)
    if isinstance(given, str) and given.startswith("chroma:"):
        from langchain_mastra_memory.recall.chroma import ChromaVectorIndex  # noqa: PLC0415 - not before it is used

        return ChromaVectorIndex(given)
    raise ConfigurationError(
        'vector_store must be "chroma:///path", "chroma://host:8000", a LangChain VectorStore or a VectorIndex, not '
        f"{shown(given, 80)}"
    )
