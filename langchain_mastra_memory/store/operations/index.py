"""The operations of semantic recall: reading a scope's index, its hits, and keeping vectors up to date.

Term blobs are not written by an operation of their own: they follow each message in the transaction that saves, edits
or removes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from langchain_core.messages import BaseMessage

from langchain_mastra_memory.store.base import Group, Operation
from langchain_mastra_memory.types import StoredMessage

Place = tuple[int, int, int]
"""`(thread key, seq, branch)`: a row of the archive."""

TextEntry = tuple[int, int, int, int, bytes]
"""`(key, thread key, seq, branch, term blob)`."""

VectorEntry = tuple[int, int, int, bytes]
"""`(key, thread key, text key, int8 bytes)`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeOf:
    """What a search may see: the threads of a resource, or one thread.

    Attributes:
        resource_id: The owner: all its threads, or the check of the one thread.
        thread_id: The one thread; None means all of the resource's.
        present: The run's thread, whose position may be given; a thread that does not exist yet is no error there.
        position: `(branch, head)` of that thread instead of where it stands now.
        checkpoint_id: Or its position at this checkpoint.
    """

    resource_id: str | None = None
    thread_id: str | None = None
    present: str | None = None
    position: tuple[int, int] | None = None
    checkpoint_id: str | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """What a cached index has of a thread.

    Attributes:
        texts: The thread's counter of saves and vector writes.
        edits: Its counter of everything else that changes what can be found.
        seq: The last seq that is in the index.
        vector: The key of the last vector that is in the index.
    """

    texts: int
    edits: int
    seq: int
    vector: int


@dataclass(frozen=True, slots=True)
class ThreadState:
    """A thread of a scope.

    Attributes:
        key: Its key in the database.
        id: Its id.
        texts: As in `Seen`.
        edits: As in `Seen`.
        path: `((branch, last seq seen), ...)`.
        metadata: Its metadata, when it was asked for.
    """

    key: int
    id: str
    texts: int
    edits: int
    path: tuple[tuple[int, int], ...]
    metadata: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeRead:
    """What a cached index of a scope needs to be current.

    Attributes:
        threads: Every thread of the scope.
        dropped: Keys of threads whose rows in the cached index are stale: gone, or edited.
        texts: New rows, and all rows of edited threads, ordered by key.
        vectors: Likewise.
        pending: How many messages of the scope are still to be embedded.
        rows: How many messages the scope has, when it was too large to read.
        models: `(name, dimension)` of the vectors in the store.
        terms: The version of the tokenizer that made the blobs.
        override: `(thread key, path)` when the scope named a position.
    """

    threads: tuple[ThreadState, ...]
    dropped: frozenset[int] = frozenset()
    texts: tuple[TextEntry, ...] = ()
    vectors: tuple[VectorEntry, ...] = ()
    pending: int = 0
    rows: int | None = None
    models: tuple[tuple[str, int], ...] = ()
    terms: int = 0
    override: tuple[int, tuple[tuple[int, int], ...]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadScope(Operation[ScopeRead]):
    """Return what is new in a scope since a cached index was read; the counters are read first, the rows second.

    Attributes:
        scope: What the search may see.
        known: What the cached index has, by thread key; empty for a new index.
        with_vectors: Whether vectors are read.
        with_pending: Whether it is counted what is still to be embedded.
        with_metadata: Whether the metadata of the threads is read.
        with_models: Whether it is read which models the vectors are of.
        most: Read no rows when the scope has more messages than this; None: read them all.

    Raises:
        ThreadNotFoundError: The one thread is missing, or another resource's.
    """

    group: ClassVar[Group] = "index"
    writes: ClassVar[bool] = False
    scope: ScopeOf
    known: Mapping[int, Seen] = field(default_factory=dict)
    with_vectors: bool = False
    with_pending: bool = False
    with_metadata: bool = False
    with_models: bool = True
    most: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBlock(Operation[tuple[tuple[TextEntry, ...], tuple[VectorEntry, ...]]]):
    """Return the next block of a scope that is too large for the cache, by text key.

    Attributes:
        threads: Keys of threads, as `ReadScope` gave them.
        after: The last text key of the block before; 0 to begin.
        limit: How many messages.
        with_vectors: Whether their vectors are read.
    """

    group: ClassVar[Group] = "index"
    writes: ClassVar[bool] = False
    threads: tuple[int, ...]
    after: int = 0
    limit: int = 4_096
    with_vectors: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPlaces(Operation[dict[Place, StoredMessage]]):
    """Return messages of a scope by their places; what is gone or foreign is left out.

    Attributes:
        scope: Whose messages: the owner is checked here, whatever an index said.
        places: Where they are.
    """

    group: ClassVar[Group] = "index"
    writes: ClassVar[bool] = False
    scope: ScopeOf
    places: tuple[Place, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadDetails(Operation[list[tuple[int, int, int, Mapping[str, Any]]]]):
    """Return `(thread key, seq, branch, metadata)` of the messages that a filter may allow.

    Attributes:
        threads: Keys of threads, as `ReadScope` gave them.
        start: Microseconds, inclusive.
        end: Microseconds, inclusive.
        needs_metadata: Only messages that have metadata.
    """

    group: ClassVar[Group] = "index"
    writes: ClassVar[bool] = False
    threads: tuple[int, ...]
    start: int | None = None
    end: int | None = None
    needs_metadata: bool = False


@dataclass(frozen=True, slots=True)
class Pending:
    """A message that is to be embedded.

    Attributes:
        text: The key of its text row.
        thread: The id of its thread.
        resource: The owner of its thread.
        message: The message.
        revision: Its revision when it was read.
        point: Its name in an outside index; None: its vectors go into the store.
    """

    text: int
    thread: str
    resource: str | None
    message: BaseMessage
    revision: int
    point: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimPending(Operation[list[Pending]]):
    """Return messages that are to be embedded, oldest first.

    What will be written outside is noted in the outbox first, so that it is found again if this process dies, and
    gets its name there now, if it has none yet.

    Attributes:
        after: The key of the last text of the batch before; 0 to begin.
        limit: How many.
        thread_id: Only of this thread.
        resource_id: Only of this resource's threads.
        outside: Whether vectors go to an outside index.
        chunks: How many entries a message has there at most.
        lease: For how many microseconds nobody else cleans up behind the claim.
    """

    group: ClassVar[Group] = "index"
    after: int = 0
    limit: int = 64
    thread_id: str | None = None
    resource_id: str | None = None
    outside: bool = False
    chunks: int = 8
    lease: int = 600_000_000


@dataclass(frozen=True, slots=True)
class Embedded:
    """The vectors of a message.

    Attributes:
        text: The key of its text row.
        thread: The id of its thread.
        revision: The revision that was embedded.
        chunks: How many vectors it has.
        vectors: Their int8 bytes; empty when they are outside.
        point: Their name outside.
    """

    text: int
    thread: str
    revision: int
    chunks: int
    vectors: tuple[bytes, ...] = ()
    point: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteVectors(Operation[int]):
    """Keep vectors of messages that are still as they were embedded; return how many messages that were.

    What was edited meanwhile stays pending; what was removed meanwhile is due in the outbox at once.

    Attributes:
        model: The name of the embedding model.
        dimension: The length of its vectors.
        rows: The messages.
        hnsw: Also keep them in the HNSW table of PostgreSQL.

    Raises:
        EmbeddingModelMismatchError: The store has vectors of another model.
    """

    group: ClassVar[Group] = "index"
    model: str
    dimension: int
    rows: tuple[Embedded, ...]
    hnsw: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CountPending(Operation[int]):
    """Return how many messages of the store are still to be embedded."""

    group: ClassVar[Group] = "index"
    writes: ClassVar[bool] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FindPoints(Operation[dict[int, int]]):
    """Return the text key of each name of an outside index that is still one of ours.

    Attributes:
        points: The names.
        threads: Keys of the threads that may be found.
    """

    group: ClassVar[Group] = "index"
    writes: ClassVar[bool] = False
    points: tuple[int, ...]
    threads: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOutbox(Operation[list[tuple[int, int]]]):
    """Return `(point, chunks)` of what an outside index must forget now.

    Attributes:
        limit: How many.
    """

    group: ClassVar[Group] = "index"
    writes: ClassVar[bool] = False
    limit: int = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearOutbox(Operation[None]):
    """Note that an outside index has forgotten.

    Attributes:
        points: What it was told to forget.
    """

    group: ClassVar[Group] = "index"
    points: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReindexPage(Operation[tuple[int, int, int] | None]):
    """Write the term blobs of a page of messages anew and forget their vectors; return where the next page begins.

    Attributes:
        after: `(thread key, seq, branch)` of the last message of the page before; None to begin.
        limit: How many messages.
        features: What is on in the memory that asks.

    Returns:
        The place of the last message of the page; None when there was none left.
    """

    group: ClassVar[Group] = "index"
    after: Place | None = None
    limit: int = 200
    features: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishReindex(Operation[None]):
    """Note that every blob was made by this version of the tokenizer, and forget models without vectors."""

    group: ClassVar[Group] = "index"


@dataclass(frozen=True, slots=True, kw_only=True)
class CountTexts(Operation[int]):
    """Return how many messages the archive has that can be found."""

    group: ClassVar[Group] = "index"
    writes: ClassVar[bool] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareHNSW(Operation[None]):
    """Make the HNSW table of PostgreSQL, if it is not there, and fill it from the int8 rows.

    Attributes:
        dimension: The length of the vectors.
        m: Links of a node.
        ef_construction: How widely a new node looks for its place.

    Raises:
        ConfigurationError: The store is not PostgreSQL, or has no pgvector.
    """

    group: ClassVar[Group] = "index"
    dimension: int
    m: int
    ef_construction: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchHNSW(Operation[list[tuple[int, float]]]):
    """Return `(text key, cosine)` of the nearest vectors of a scope, by the HNSW table.

    Attributes:
        threads: Keys of threads.
        vector: The query.
        limit: How many.
        ef_search: How widely to look.
    """

    group: ClassVar[Group] = "index"
    writes: ClassVar[bool] = False
    threads: tuple[int, ...]
    vector: tuple[float, ...]
    limit: int
    ef_search: int
