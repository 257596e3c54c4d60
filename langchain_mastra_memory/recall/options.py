"""The options of semantic recall."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from langchain_mastra_memory.checked_options import CheckedOptions
from langchain_mastra_memory.recall.filters import parse_filter
from langchain_mastra_memory.shown import shown

Mode = Literal["hybrid", "vector", "lexical"]
"""Which halves of the index count: words and meaning, meaning alone, words alone."""

Scope = Literal["resource", "thread"]


class Weights(CheckedOptions):
    """The numbers of the ranking formula; the defaults are the measured ones (`benchmarks/recall.py`).

    Attributes:
        lexical: The share of the words in a message's own score; the rest is the vector's. 0 to 1.
        near: The share of each neighbour one place away.
        far: The share of each neighbour two places away.
        half_length: The length in terms at which a message takes half of its neighbours' share.
        thread: The weight of the thread as one document.
        k1: BM25: how soon repeats stop counting.
        b: BM25: how much length counts, for messages. 0 to 1.
        thread_b: The same for threads.
    """

    lexical: float = Field(default=0.7, ge=0, le=1)
    near: float = Field(default=0.375, ge=0, le=1)
    far: float = Field(default=0.125, ge=0, le=1)
    half_length: float = Field(default=120.0, gt=0)
    thread: float = Field(default=0.4, ge=0, le=1)
    k1: float = Field(default=1.2, gt=0, le=10)
    b: float = Field(default=0.9, ge=0, le=1)
    thread_b: float = Field(default=0.75, ge=0, le=1)


class HNSW(CheckedOptions):
    """A pgvector `halfvec` HNSW index beside the int8 rows, for scopes that do not fit the cache. PostgreSQL only.

    Attributes:
        m: Links of a node. 2 to 100.
        ef_construction: How widely a new node looks for its place; at least `2 * m`.
        ef_search: How widely a query looks; at least `SemanticRecall.candidates` is used.
    """

    m: int = Field(default=16, ge=2, le=100)
    ef_construction: int = Field(default=64, ge=4, le=1000)
    ef_search: int = Field(default=200, ge=1, le=1000)

    @model_validator(mode="after")
    def _wide_enough(self) -> HNSW:
        if self.ef_construction < 2 * self.m:
            raise ValueError(f"ef_construction must be at least 2 * m = {2 * self.m}, not {self.ef_construction}")
        return self


class SemanticRecall(CheckedOptions):
    """Search in old messages, by meaning and by words.

    Attributes:
        top_k: How many hits. 1 to 1000.
        message_range: How many messages are shown before and after a hit: a number, or `(before, after)`.
        scope: `resource` searches every thread of the owner, `thread` only the run's own.
        mode: `hybrid`, `vector` or `lexical`. Without embeddings it is lexical.
        filter: Which threads and messages may be found: keys of the metadata with values or operators.
        threshold: The least score of a hit, 0 to 1; None takes the best, however good. In hybrid mode 0.2 keeps nine in
            ten of the right answers and drops most hits of a question about something else.
        max_tokens: How much recalled text a prompt gets, in tokens.
        tools: Whether the text of tool calls and results can be found, the first 1 000 characters of each.
        chunk_characters: The length of a chunk that is embedded, in characters.
        chunk_overlap: How much of a chunk the next one repeats, in characters.
        max_chunks: How many chunks of a message are embedded.
        embed_batch: How many texts an embedding call gets.
        deadline: Seconds that a user's turn waits for an embedding; after it the turn goes on without the vector half.
        model_id: The name under which vectors are kept; by default that of the embedding model.
        cache_mb: Memory for the indexes of the scopes in use, in megabytes.
        candidates: How many an outside vector index returns.
        index: An HNSW index in PostgreSQL.
        weights: The numbers of the ranking formula.

    Example:
        >>> SemanticRecall(top_k=3, message_range=(2, 1), filter={"project": {"$in": ["a", "b"]}}).message_range
        (2, 1)
    """

    top_k: int = Field(default=4, ge=1, le=1000)
    message_range: Annotated[int, Field(ge=0, le=100)] | tuple[int, int] = 1
    scope: Scope = "resource"
    mode: Mode = "hybrid"
    filter: Mapping[str, Any] | None = None
    threshold: float | None = Field(default=None, ge=0, le=1)
    max_tokens: int = Field(default=4_000, ge=1)
    tools: bool = True
    chunk_characters: int = Field(default=2_000, ge=100, le=100_000)
    chunk_overlap: int = Field(default=200, ge=0)
    max_chunks: int = Field(default=8, ge=1, le=100)
    embed_batch: int = Field(default=64, ge=1, le=2_048)
    deadline: float = Field(default=2.0, gt=0, le=600)
    model_id: str | None = Field(default=None, min_length=1, max_length=200)
    cache_mb: float = Field(default=256.0, gt=0)
    candidates: int = Field(default=200, ge=200, le=1_000)
    index: HNSW | None = None
    weights: Weights = Weights()

    @field_validator("message_range", mode="before")
    @classmethod
    def _range(cls, value: Any) -> Any:
        return checked_range(value)

    @field_validator("filter")
    @classmethod
    def _filter(cls, value: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        parse_filter(value)
        return value

    @model_validator(mode="after")
    def _overlap(self) -> SemanticRecall:
        if self.chunk_overlap > self.chunk_characters // 2:
            raise ValueError(
                f"chunk_overlap must be at most half of chunk_characters ({self.chunk_characters}), "
                f"not {self.chunk_overlap}"
            )
        return self

    def features(self, *, with_model: bool) -> frozenset[str]:
        """Return what the store is told about each save, so that the index follows in the same transaction.

        Args:
            with_model: Whether there is an embedding model.
        """
        names = set() if self.tools else {"recall.without_tools"}
        if with_model and self.mode != "lexical":
            names.add("recall.vectors")
        return frozenset(names)

    @property
    def around(self) -> tuple[int, int]:
        """How many messages are shown before and after a hit."""
        return as_range(self.message_range)


def as_range(value: int | tuple[int, int]) -> tuple[int, int]:
    """Return `(before, after)` of a message range."""
    return (value, value) if isinstance(value, int) else value


def checked_range(value: Any) -> int | tuple[int, int]:
    """Return a message range that was given as a number, a pair, or `{"before": b, "after": a}`.

    Raises:
        ValueError: A number is not 0 to 100, or there are not two.
    """
    if isinstance(value, Mapping):
        if set(value) - {"before", "after"}:
            raise ValueError(f"message_range has the keys before and after, not {sorted(map(str, value))}")
        value = (value.get("before", 0), value.get("after", 0))
    numbers = value if isinstance(value, (tuple, list)) else (value,)
    whole = all(isinstance(n, int) and not isinstance(n, bool) and 0 <= n <= 100 for n in numbers)
    if not whole or len(numbers) not in (1, 2) or (len(numbers) == 1 and not isinstance(value, int)):
        raise ValueError(f"message_range must be 0 to 100 messages, or (before, after), not {shown(value, 60)}")
    return value if isinstance(value, int) else (numbers[0], numbers[1])
