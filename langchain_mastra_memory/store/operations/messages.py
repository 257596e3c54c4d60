"""The operations on messages: saving, listing, changing, removing them.

Arguments are checked and normalised already: ids are `checked_id`s, metadata is JSON data, times are microseconds UTC,
every message has its id and its size in tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from langchain_core.messages import BaseMessage

from langchain_mastra_memory.store.base import Group, Operation
from langchain_mastra_memory.store.operations.threads import Direction
from langchain_mastra_memory.types import Page, StoredMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMessage:
    """A message on its way into the archive.

    Attributes:
        message: The message, with its id.
        tokens: Its size.
        kind: What it is; None for an ordinary message.
        metadata: JSON data of the application.
        created_at: Microseconds UTC; None means the time of the transaction.
        fresh: Whether the id was just made, so that no row can have it.
    """

    message: BaseMessage
    tokens: int
    kind: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    created_at: int | None = None
    fresh: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveMessages(Operation[list[StoredMessage]]):
    """Append messages to a thread where it stands; a message of an id that is in view is changed in its place.

    Running it twice adds nothing. `seq`s follow the order of the list and the order of commits.

    Attributes:
        thread_id: The thread.
        resource_id: Checked when given; makes a thread that is missing, adopts one that nobody owns.
        messages: In order; of several with one id the last counts, in the place of the first.
        outside: Whether they enter outside a run.
        features: What is on in the memory that asks.

    Returns:
        The messages as they are stored, in the order of the list, each id once.

    Raises:
        ThreadNotFoundError: It is missing and no resource is given, or it is another resource's.
    """

    group: ClassVar[Group] = "messages"
    thread_id: str
    resource_id: str | None = None
    messages: tuple[NewMessage, ...]
    outside: bool = True
    features: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Include:
    """A message that is wanted whatever the page holds, with neighbours.

    Attributes:
        id: The message.
        thread_id: Its thread; None looks in the listed threads first, then in the owner's others.
        with_previous: How many messages before it, in its thread.
        with_next: How many messages after it.
    """

    id: str
    thread_id: str | None = None
    with_previous: int = 0
    with_next: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Hidden:
    """Which rows a listing does not show. Rows of a refused run are never shown.

    Attributes:
        archive: Hide what is kept for the archive only: state signals of the package, summaries of a middleware. They
            take no place on a page and do not count.
        every_signal: Hide every signal.
        kinds: Hide the signals of these types. They keep their places: a page may be shorter for it.
    """

    archive: bool = True
    every_signal: bool = False
    kinds: frozenset[str] = frozenset({"reactive", "system-reminder"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ListMessages(Operation[Page[StoredMessage]]):
    """Return one page of messages, of threads or of all threads of a resource, with more messages on request.

    Within a thread the order is `seq`. Messages of several threads are merged by time, each thread in its order.

    Attributes:
        thread_ids: The threads; empty means all of the resource's.
        resource_id: Checked when given. Without it, a missing thread has no messages.
        page: From 0.
        per_page: Size of a page; False means all; 0 reads no page, only what is included.
        direction: `asc` pages from the oldest, `desc` from the newest; None pages from the newest, each page in order.
        include: More messages, whatever page and filters say; of this owner only.
        start: Microseconds, inclusive.
        end: Microseconds, inclusive.
        metadata: A checked filter of `threads.filters`; all keys must match.
        hidden: What is not shown.
        checkpoint_id: List what was in view at this checkpoint, of one thread.

    Raises:
        ThreadNotFoundError: `resource_id` is given and a thread is missing or another resource's; or there is no such
            checkpoint.
    """

    group: ClassVar[Group] = "messages"
    writes: ClassVar[bool] = False
    thread_ids: tuple[str, ...] = ()
    resource_id: str | None = None
    page: int = 0
    per_page: int | Literal[False] = 10
    direction: Direction | None = None
    include: tuple[Include, ...] = ()
    start: int | None = None
    end: int | None = None
    metadata: Mapping[str, Any] | None = None
    hidden: Hidden = Hidden()
    checkpoint_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FindMessages(Operation[list[StoredMessage]]):
    """Return messages in view by their ids, in the order of the ids; ids of nothing in this thread are passed over.

    Attributes:
        thread_id: The thread.
        resource_id: Checked when given.
        message_ids: What to find.

    Raises:
        ThreadNotFoundError: It is missing, or another resource's.
        MessageNotFoundError: An id is a message of another thread; with a `resource_id`, also one of no message.
    """

    group: ClassVar[Group] = "messages"
    writes: ClassVar[bool] = False
    thread_id: str
    resource_id: str | None = None
    message_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageEdit:
    """What a message is to become.

    Attributes:
        message: The new message, with the id of the old one.
        tokens: Its size.
        metadata: The new metadata, as a whole.
        seq: Where it was read.
        revision: The revision that was read.
    """

    message: BaseMessage
    tokens: int
    metadata: Mapping[str, Any]
    seq: int
    revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EditMessages(Operation[list[StoredMessage] | None]):
    """Change messages, if they are still as they were read; return them, or None if one has changed meanwhile.

    A row that only this line sees is changed in its place; where another line sees it, that line keeps the old one.

    Raises:
        ThreadNotFoundError: It is missing, or another resource's.
    """

    group: ClassVar[Group] = "messages"
    thread_id: str
    resource_id: str | None = None
    edits: tuple[MessageEdit, ...]
    features: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteMessages(Operation[int]):
    """Remove messages from every line of a thread, with all that was made of them; return how many there were.

    A tombstone keeps each from being archived again from an old checkpoint. Running it twice is safe.

    Attributes:
        thread_id: The thread.
        resource_id: Checked when given.
        message_ids: What to remove; ids of nothing are passed over.

    Raises:
        ThreadNotFoundError: It is missing, or another resource's.
        MessageNotFoundError: An id is a message of another thread; with a `resource_id`, also one of no message.
    """

    group: ClassVar[Group] = "messages"
    thread_id: str
    resource_id: str | None = None
    message_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearThread(Operation[int]):
    """Remove every message of a thread, on all lines, with all that was made of them; return how many there were.

    The thread stays, with its title and metadata, and begins anew: no old checkpoint brings a message back.

    Raises:
        ThreadNotFoundError: It is missing, or another resource's.
    """

    group: ClassVar[Group] = "messages"
    thread_id: str
    resource_id: str | None = None
