"""The data that the memory gives back: frozen, made by the store, the same on every engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, Literal, TypeVar, overload

from langchain_core.messages import BaseMessage

T = TypeVar("T")

MessageKind = Literal["message", "signal", "summary", "refused", "reactive", "system-reminder"]
"""What a stored message is: part of the conversation, a state signal, a summary made by another middleware,
a row of a run that was refused, or a reminder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thread:
    """A conversation, owned by one resource for life.

    Attributes:
        id: 1 to 512 characters, unique in the store.
        resource_id: The owner; None for a thread that a bare checkpointer made and nobody has named yet.
        title: A line for people, or None.
        metadata: JSON data of the application.
        created_at: Aware UTC.
        updated_at: Aware UTC: the last change of the thread or save of a message.
    """

    id: str
    resource_id: str | None
    title: str | None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMessage:
    """A message of the archive.

    Attributes:
        id: The message's id, unique on its line of the thread.
        thread_id: Its thread.
        resource_id: The owner of the thread.
        seq: Its place in the thread, given by the store: the only order.
        message: The LangChain message, as it was saved.
        created_at: Aware UTC; for people and date filters, never for order.
        metadata: JSON data of the application.
        kind: What the row is; see `MessageKind`.
        tokens: Its size in tokens, counted when it was saved.
        score: How well it answers the query, 0 to 1; None outside a search.
        branch: The line of the thread that it was written on, 0 for the first.
        revision: 1, and one more for every edit.
        outside: Whether it entered the archive outside a run (import, clone, `save_messages`).
    """

    id: str
    thread_id: str
    resource_id: str | None
    seq: int
    message: BaseMessage
    created_at: datetime
    metadata: Mapping[str, Any] = field(default_factory=dict)
    kind: MessageKind = "message"
    tokens: int = 0
    score: float | None = None
    branch: int = 0
    revision: int = 1
    outside: bool = False

    @property
    def role(self) -> str:
        """The type of the LangChain message: `human`, `ai`, `tool`, `system`, ..."""
        return self.message.type


@dataclass(frozen=True, slots=True)
class Page(Sequence[T], Generic[T]):
    """One page of a listing; a sequence of its items.

    Attributes:
        items: The items of this page, in order.
        total: How many there are on all pages.
        page: The number of this page, from 0.
        per_page: The size of a page; False means everything on one page.
        has_more: Whether a later page has items.
    """

    items: tuple[T, ...]
    total: int
    page: int = 0
    per_page: int | Literal[False] = False
    has_more: bool = False

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...
    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        """Return an item, or a slice of the items."""
        return self.items[index]

    def __len__(self) -> int:
        """Return the number of items on this page."""
        return len(self.items)

    def __iter__(self) -> Iterator[T]:
        """Iterate over the items of this page."""
        return iter(self.items)


@dataclass(frozen=True, slots=True)
class ClonedThread:
    """A clone and what was copied into it.

    Attributes:
        thread: The new thread; its metadata has the source's with `clone` added.
        messages: The copied messages, oldest first, with their new ids.
        message_id_map: Old message id to new message id.
    """

    thread: Thread
    messages: tuple[StoredMessage, ...]
    message_id_map: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class CloneMetadata:
    """Where a clone came from.

    Attributes:
        source_thread_id: The thread that it was cloned from.
        cloned_at: Aware UTC.
        last_message_id: The last message that the source had then, copied or not; None if it had none.
    """

    source_thread_id: str
    cloned_at: datetime
    last_message_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleted:
    """How much went with a thread.

    Attributes:
        threads: Threads removed.
        messages: Messages removed, on all branches.
        checkpoints: Checkpoints removed, in all namespaces.
    """

    threads: int = 0
    messages: int = 0
    checkpoints: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """One line of a thread: a fork opens a new one.

    Attributes:
        thread_id: The thread.
        branch: Its number, 0 for the first line.
        parent: The branch that it left; None for the first.
        cut: The last seq of the parent that it still sees; None for the first.
        head: The last seq written on it.
        current: Whether the thread stands on it now.
    """

    thread_id: str
    branch: int
    parent: int | None
    cut: int | None
    head: int
    current: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BackgroundFailure:
    """A failure of background work, kept for `settled()`.

    Attributes:
        phase: What was being done: `title`, `embed`, `observe`, `reflect`, ...
        error: What was raised.
        thread_id: The thread that it was about, if one.
        resource_id: The resource that it was about, if one.
        at: Aware UTC.
    """

    phase: str
    error: BaseException
    thread_id: str | None
    resource_id: str | None
    at: datetime
