"""The operations on threads: making, finding, changing, removing, copying them.

Arguments are checked and normalised already: ids are `checked_id`s, metadata is JSON data, times are microseconds UTC.
`resource_id` is checked against the owner whenever it is given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, Literal

from langchain_mastra_memory.store.base import Group, Operation
from langchain_mastra_memory.types import Branch, ClonedThread, Deleted, Page, Thread

OrderBy = Literal["created_at", "updated_at"]
Direction = Literal["asc", "desc"]
TitledBy = Literal["person", "run", "model"]
"""Who gave a title: a person (never overwritten), a run's options, or a model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateThread(Operation[Thread]):
    """Make a thread, or return the one of that id as it is; an id that nobody owns yet is adopted.

    Running it twice changes nothing.

    Attributes:
        thread_id: The new id.
        resource_id: The owner.
        title: A line for people.
        titled_by: Who gave the title.
        metadata: JSON data of the application.
        features: What is on in the memory that asks; see `cascade.Features`.

    Raises:
        ThreadOwnershipError: Another resource owns a thread of this id.
    """

    group: ClassVar[Group] = "threads"
    thread_id: str
    resource_id: str
    title: str | None = None
    titled_by: TitledBy = "person"
    metadata: Mapping[str, Any] = field(default_factory=dict)
    features: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class GetThread(Operation[Thread | None]):
    """Return a thread, or None if it is missing or somebody else's."""

    group: ClassVar[Group] = "threads"
    writes: ClassVar[bool] = False
    thread_id: str
    resource_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListThreads(Operation[Page[Thread]]):
    """Return one page of a resource's threads, or of everybody's.

    Attributes:
        resource_id: The owner; None means every resource and is asked for aloud by the caller.
        metadata: A checked filter of `threads.filters`; all keys must match.
        page: From 0.
        per_page: Size of a page; False means all.
        order_by: What to order by; equal times are ordered by id.
        direction: `asc` or `desc`.
    """

    group: ClassVar[Group] = "threads"
    writes: ClassVar[bool] = False
    resource_id: str | None
    metadata: Mapping[str, Any] | None = None
    page: int = 0
    per_page: int | Literal[False] = 100
    order_by: OrderBy = "created_at"
    direction: Direction = "desc"


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateThread(Operation[Thread]):
    """Change a thread's title or merge metadata into it, in one transaction with the reading.

    Attributes:
        thread_id: The thread.
        resource_id: Checked when given.
        set_title: Whether `title` is to be set.
        title: The new title; None or an empty one leaves the thread untitled, so that it may be named automatically.
        metadata: Keys to set; None as a value removes the key. What a key holds is replaced as a whole.
        features: What is on in the memory that asks.

    Raises:
        ThreadNotFoundError: It is missing, or another resource's.
    """

    group: ClassVar[Group] = "threads"
    thread_id: str
    resource_id: str | None = None
    set_title: bool = False
    title: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    features: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class SuggestTitle(Operation[bool]):
    """Name a thread automatically, unless a person has named it; return whether the title was taken.

    Metadata and times but `updated_at` stay as they are.

    Attributes:
        thread_id: The thread.
        resource_id: Checked when given.
        title: The new title, not empty.
        titled_by: `run` or `model`.
        replace: Whether an earlier automatic title gives way; otherwise only an untitled thread is named.
        made_at: When the thread was made that the title is for: one that was made anew under its id is left alone.

    Raises:
        ThreadNotFoundError: It is missing, or another resource's.
    """

    group: ClassVar[Group] = "threads"
    thread_id: str
    resource_id: str | None = None
    title: str
    titled_by: Literal["run", "model"] = "model"
    replace: bool = True
    made_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteThread(Operation[Deleted]):
    """Remove a thread with everything that it owned.

    Running it twice is safe: without `resource_id` a missing thread is nothing to do.

    Raises:
        ThreadNotFoundError: `resource_id` is given and the thread is missing, or another resource's.
    """

    group: ClassVar[Group] = "threads"
    thread_id: str
    resource_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferThread(Operation[Thread]):
    """Give a thread to another resource, with what belongs to the thread; nothing happens if it has it already.

    Raises:
        ThreadNotFoundError: It is missing, or not `resource_id`'s.
    """

    group: ClassVar[Group] = "threads"
    thread_id: str
    new_resource_id: str
    resource_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyThread(Operation[ClonedThread]):
    """Copy a thread as it stands, inside the database, with new message ids on one line.

    Attributes:
        source_thread_id: The thread to copy.
        source_resource_id: Checked when given.
        new_thread_id: The id of the copy.
        resource_id: The owner of the copy; None means the source's.
        title: Its title; None or empty means `Clone of ...`.
        metadata: Merged over the source's; None as a value removes a key.
        message_limit: Only the newest so many, of those that the other conditions leave.
        start: Microseconds, inclusive.
        end: Microseconds, inclusive.
        message_ids: Only these; ids that are not in view are passed over.
        checkpoint_id: Copy what was in view at this checkpoint.
        with_messages: Whether the result has the messages.
        features: What is on in the memory that asks.

    Raises:
        ThreadNotFoundError: The source is missing, or not `source_resource_id`'s, or has no such checkpoint.
        InvalidIdError: There is a thread of the new id.
    """

    group: ClassVar[Group] = "threads"
    source_thread_id: str
    source_resource_id: str | None = None
    new_thread_id: str
    resource_id: str | None = None
    title: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    message_limit: int | None = None
    start: int | None = None
    end: int | None = None
    message_ids: tuple[str, ...] | None = None
    checkpoint_id: str | None = None
    with_messages: bool = False
    features: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class ListClones(Operation[list[Thread]]):
    """Return the threads that were cloned from a thread, oldest first; the source may be gone.

    Attributes:
        source_thread_id: What they were cloned from.
        resource_id: Only this resource's clones.

    Raises:
        ThreadNotFoundError: `resource_id` is given and the source is another resource's.
    """

    group: ClassVar[Group] = "threads"
    writes: ClassVar[bool] = False
    source_thread_id: str
    resource_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetCloneHistory(Operation[list[Thread]]):
    """Return a thread and what it was cloned from, and so on, the original first.

    The line ends where a source is gone, where it is another resource's and `resource_id` is given, and before a
    thread that was met already. Without `resource_id`, a missing thread has an empty history.

    Raises:
        ThreadNotFoundError: `resource_id` is given and the thread is missing, or another resource's.
    """

    group: ClassVar[Group] = "threads"
    writes: ClassVar[bool] = False
    thread_id: str
    resource_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListBranches(Operation[list[Branch]]):
    """Return the lines of a thread, the first one first.

    Attributes:
        thread_id: The thread.
        resource_id: Checked when given.
        checkpoint_id: Where to stand; None means where the thread stands now.

    Raises:
        ThreadNotFoundError: It is missing, or another resource's, or has no such checkpoint.
    """

    group: ClassVar[Group] = "threads"
    writes: ClassVar[bool] = False
    thread_id: str
    resource_id: str | None = None
    checkpoint_id: str | None = None
