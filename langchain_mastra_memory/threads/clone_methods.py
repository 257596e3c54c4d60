"""The methods of `Memory` that copy threads and follow copies back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from langchain_mastra_memory.base import MemoryBase
from langchain_mastra_memory.errors import InvalidQueryError, ThreadNotFoundError
from langchain_mastra_memory.ids import checked_id, new_id, optional_id
from langchain_mastra_memory.io import IO, both
from langchain_mastra_memory.shown import shown
from langchain_mastra_memory.store.operations.threads import CopyThread, GetCloneHistory, GetThread, ListClones
from langchain_mastra_memory.threads.filters import Moment, check_count, check_metadata, check_title, to_range
from langchain_mastra_memory.threads.lineage import read_clone_info, source_of
from langchain_mastra_memory.types import ClonedThread, CloneMetadata, Thread
from langchain_mastra_memory.working_memory.rules import metadata_with_page


class CloneMethods(MemoryBase):
    """Cloning and copying threads."""

    @both
    async def clone_thread(
        self,
        io: IO,
        source_thread_id: str,
        *,
        new_thread_id: str | None = None,
        resource_id: str | None = None,
        title: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        message_limit: int | None = None,
        start: Moment | None = None,
        end: Moment | None = None,
        message_ids: Iterable[str] | None = None,
        checkpoint_id: str | None = None,
        source_resource_id: str | None = None,
    ) -> ClonedThread:
        """Copy a thread as it stands, with new message ids, and return the copied messages.

        Times, roles, contents and order stay. Branches that the thread has left are not copied. What the features keep
        for the thread (index, working memory of thread scope, observations) is copied in the same transaction; working
        memory of resource scope is shared with a clone of the same owner and copied for another one that has none.

        Args:
            source_thread_id: The thread to clone.
            new_thread_id: The id of the clone; None makes a new one.
            resource_id: The owner of the clone; None means the source's.
            title: Its title; None or `""` means "Clone of ..." if the source has one.
            metadata: Merged over the source's metadata; None as a value removes a key. `clone` says what it was cloned
                from, see `get_clone_metadata`. With working memory on, `working_memory` is the clone's page.
            message_limit: At most so many messages, the newest of those that the other conditions leave.
            start: Only messages from this time on, inclusive.
            end: Only messages up to this time, inclusive.
            message_ids: Only these messages; unknown ids are passed over, an empty list copies none.
            checkpoint_id: Clone what was in view at this checkpoint.
            source_resource_id: The owner of the source, checked when given.

        Raises:
            ThreadNotFoundError: There is no such source (of `source_resource_id`), or it has no such checkpoint.
            InvalidIdError: There is a thread of the new id.
            InvalidQueryError: A limit, time or id makes no sense.

        Example:
            >>> from langchain_mastra_memory import Memory
            >>> memory = Memory()
            >>> saved = memory.save_messages([("user", "Hi"), ("ai", "Hello")], thread_id="t1", resource_id="user-1")
            >>> clone = memory.clone_thread("t1", message_limit=1)
            >>> [stored.message.content for stored in clone.messages], memory.is_clone(clone.thread)
            (['Hello'], True)
        """
        arguments = _copy_arguments(
            source_thread_id=source_thread_id,
            new_thread_id=new_thread_id,
            resource_id=resource_id,
            title=title,
            metadata=metadata_with_page(self.options.working_memory, check_metadata(metadata)),
            message_limit=message_limit,
            start=start,
            end=end,
            message_ids=message_ids,
            checkpoint_id=checkpoint_id,
            source_resource_id=source_resource_id,
        )
        return await self._write(io, CopyThread(**arguments, with_messages=True, features=self.options.features))

    aclone_thread = clone_thread.twin

    @both
    async def copy_thread(
        self,
        io: IO,
        source_thread_id: str,
        *,
        new_thread_id: str | None = None,
        resource_id: str | None = None,
        title: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        message_limit: int | None = None,
        start: Moment | None = None,
        end: Moment | None = None,
        message_ids: Iterable[str] | None = None,
        checkpoint_id: str | None = None,
        source_resource_id: str | None = None,
    ) -> ClonedThread:
        """Copy a thread like `clone_thread`, without returning the messages: no body leaves the database.

        Arguments and errors are those of `clone_thread`; `messages` of the result is empty.

        Example:
            >>> from langchain_mastra_memory import Memory
            >>> memory = Memory()
            >>> saved = memory.save_messages([("user", "Hi")], thread_id="t1", resource_id="user-1")
            >>> copy = memory.copy_thread("t1", new_thread_id="t2")
            >>> copy.thread.id, len(copy.message_id_map), copy.messages
            ('t2', 1, ())
        """
        arguments = _copy_arguments(
            source_thread_id=source_thread_id,
            new_thread_id=new_thread_id,
            resource_id=resource_id,
            title=title,
            metadata=metadata_with_page(self.options.working_memory, check_metadata(metadata)),
            message_limit=message_limit,
            start=start,
            end=end,
            message_ids=message_ids,
            checkpoint_id=checkpoint_id,
            source_resource_id=source_resource_id,
        )
        return await self._write(io, CopyThread(**arguments, with_messages=False, features=self.options.features))

    acopy_thread = copy_thread.twin

    @both
    async def is_clone(self, io: IO, thread: Thread | str, *, resource_id: str | None = None) -> bool:
        """Tell whether a thread was cloned or copied from another one.

        Args:
            thread: The thread, or its id.
            resource_id: Its owner, checked when given.

        Raises:
            ThreadNotFoundError: There is no such thread for this resource.
        """
        found = await _found(io, thread, resource_id)
        return source_of(found.metadata) is not None

    ais_clone = is_clone.twin

    @both
    async def get_clone_metadata(
        self, io: IO, thread: Thread | str, *, resource_id: str | None = None
    ) -> CloneMetadata | None:
        """Return what a thread was cloned from and when, or None if it is no clone.

        Args:
            thread: The thread, or its id.
            resource_id: Its owner, checked when given.

        Raises:
            ThreadNotFoundError: There is no such thread for this resource.
        """
        found = await _found(io, thread, resource_id)
        return read_clone_info(found.metadata)

    aget_clone_metadata = get_clone_metadata.twin

    @both
    async def get_source_thread(self, io: IO, thread_id: str, *, resource_id: str | None = None) -> Thread | None:
        """Return the thread that a clone was made from; None if it is no clone or the source is gone.

        Args:
            thread_id: The clone.
            resource_id: Its owner, checked when given; a source of another owner is then not shown.

        Raises:
            ThreadNotFoundError: There is no such thread for this resource.
        """
        found = await _found(io, thread_id, resource_id)
        source = source_of(found.metadata)
        if source is None:
            return None
        return await io.run(GetThread(thread_id=source, resource_id=optional_id(resource_id)))

    aget_source_thread = get_source_thread.twin

    @both
    async def list_clones(self, io: IO, source_thread_id: str, *, resource_id: str | None = None) -> list[Thread]:
        """Return the clones of a thread, oldest first, whether the thread is still there or not.

        Args:
            source_thread_id: What they were cloned from.
            resource_id: Its owner, checked when given; only this resource's clones are then shown.

        Raises:
            ThreadNotFoundError: The thread is another resource's.
        """
        return await io.run(
            ListClones(
                source_thread_id=checked_id(source_thread_id, "source_thread_id"), resource_id=optional_id(resource_id)
            )
        )

    alist_clones = list_clones.twin

    @both
    async def get_clone_history(self, io: IO, thread_id: str, *, resource_id: str | None = None) -> list[Thread]:
        """Return a thread and what it was cloned from, and so on: the original first, the thread last.

        The line ends where a source is gone, or is another resource's and `resource_id` is given.

        Args:
            thread_id: The thread.
            resource_id: Its owner, checked when given. Without it, a missing thread has an empty history.

        Raises:
            ThreadNotFoundError: A resource is given and it has no such thread.
        """
        return await io.run(GetCloneHistory(thread_id=checked_id(thread_id), resource_id=optional_id(resource_id)))

    aget_clone_history = get_clone_history.twin


async def _found(io: IO, thread: Thread | str, resource_id: str | None) -> Thread:
    """Return a thread given as such or by its id; one given as such is checked by what it says."""
    resource_id = optional_id(resource_id)
    if isinstance(thread, Thread):
        found: Thread | None = thread if resource_id in (None, thread.resource_id) else None
    else:
        found = await io.run(GetThread(thread_id=checked_id(thread), resource_id=resource_id))
    if found is None:
        thread_id = thread.id if isinstance(thread, Thread) else str(thread)
        raise ThreadNotFoundError(f"there is no thread {thread_id[:80]!r} for this resource")
    return found


def _copy_arguments(
    *,
    source_thread_id: object,
    new_thread_id: object,
    resource_id: object,
    title: object,
    metadata: object,
    message_limit: object,
    start: object,
    end: object,
    message_ids: Iterable[str] | None,
    checkpoint_id: object,
    source_resource_id: object,
) -> dict[str, Any]:
    """Return the arguments of `CopyThread`, checked."""
    if message_ids is not None and (isinstance(message_ids, (str, bytes)) or not isinstance(message_ids, Iterable)):
        raise InvalidQueryError(f"message_ids must be a list of ids, not {shown(message_ids, 80)}")
    first, last = to_range(start, end, "[]")
    return {
        "source_thread_id": checked_id(source_thread_id, "source_thread_id"),
        "source_resource_id": optional_id(source_resource_id, "source_resource_id"),
        "new_thread_id": new_id() if new_thread_id is None else checked_id(new_thread_id, "new_thread_id"),
        "resource_id": optional_id(resource_id),
        "title": check_title(title),
        "metadata": check_metadata(metadata),
        "message_limit": None if message_limit is None else check_count(message_limit, "message_limit"),
        "start": first,
        "end": last,
        "message_ids": None if message_ids is None else tuple(checked_id(one, "message id") for one in message_ids),
        "checkpoint_id": optional_id(checkpoint_id, "checkpoint_id"),
    }
