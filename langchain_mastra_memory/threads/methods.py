"""The methods of `Memory` on threads."""

from __future__ import annotations

from collections.abc import Mapping
from types import EllipsisType
from typing import Any, Literal

from langchain_mastra_memory.checks import check_choice
from langchain_mastra_memory.errors import InvalidQueryError, MissingResourceError, ThreadNotFoundError
from langchain_mastra_memory.ids import checked_id, new_id, optional_id
from langchain_mastra_memory.io import IO, both
from langchain_mastra_memory.shown import shown
from langchain_mastra_memory.store.operations.checkpoints import PruneCheckpoints
from langchain_mastra_memory.store.operations.threads import (
    CreateThread,
    DeleteThread,
    Direction,
    GetThread,
    ListBranches,
    ListThreads,
    OrderBy,
    TransferThread,
    UpdateThread,
)
from langchain_mastra_memory.threads.clone_methods import CloneMethods
from langchain_mastra_memory.threads.filters import (
    check_filter,
    check_metadata,
    check_page,
    check_per_page,
    check_title,
    check_word,
)
from langchain_mastra_memory.threads.resource_methods import ResourceMethods
from langchain_mastra_memory.types import Branch, Deleted, Page, Thread
from langchain_mastra_memory.working_memory.rules import metadata_with_page


class ThreadMethods(CloneMethods, ResourceMethods):
    """Making, finding, changing and removing threads."""

    @both
    async def create_thread(
        self,
        io: IO,
        resource_id: str,
        *,
        thread_id: str | None = None,
        title: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Thread:
        """Make a thread, or return the one that the resource has under this id, as it is.

        Args:
            resource_id: The owner, for life.
            thread_id: Its id; None makes a new one. An id that a checkpointer made and nobody owns yet is adopted.
            title: A line for people; an automatic title never replaces it.
            metadata: JSON data of the application. With working memory on, `working_memory` is the first page: it is
                taken out of the metadata and kept as the page, in resource scope only where the resource has none.

        Raises:
            ThreadOwnershipError: Another resource has a thread of this id.
            InvalidIdError: An id is not 1 to 512 characters.

        Example:
            >>> from langchain_mastra_memory import Memory
            >>> memory = Memory()
            >>> memory.create_thread("user-1", thread_id="t1", title="Travel").title
            'Travel'
            >>> memory.create_thread("user-1", thread_id="t1", title="Other").title
            'Travel'
        """
        return await self._write(
            io,
            CreateThread(
                thread_id=new_id() if thread_id is None else checked_id(thread_id),
                resource_id=checked_id(resource_id, "resource_id"),
                title=check_title(title),
                metadata=metadata_with_page(self.options.working_memory, check_metadata(metadata)),
                features=self.options.features,
            ),
            indexed=False,
        )

    acreate_thread = create_thread.twin

    @both
    async def get_thread(self, io: IO, thread_id: str, *, resource_id: str | None = None) -> Thread | None:
        """Return a thread, or None if there is none, or it is another resource's.

        Args:
            thread_id: The thread.
            resource_id: Its owner, checked when given.
        """
        return await io.run(GetThread(thread_id=checked_id(thread_id), resource_id=optional_id(resource_id)))

    aget_thread = get_thread.twin

    @both
    async def list_threads(
        self,
        io: IO,
        resource_id: str | None = None,
        *,
        metadata: Mapping[str, Any] | None = None,
        page: int = 0,
        per_page: int | Literal[False] = 100,
        order_by: OrderBy = "created_at",
        direction: Direction = "desc",
        all_resources: bool = False,
    ) -> Page[Thread]:
        """Return one page of a resource's threads.

        Args:
            resource_id: The owner.
            metadata: Only threads whose metadata has exactly these values; types are strict, None is an explicit
                null, all keys must match.
            page: The page, from 0.
            per_page: Threads on a page; False means all.
            order_by: `created_at` or `updated_at`; equal times are ordered by id.
            direction: `asc` or `desc`.
            all_resources: List everybody's threads. It has to be said, and without a resource.

        Raises:
            MissingResourceError: Neither a resource is given nor `all_resources=True`.
            InvalidQueryError: A page, an order or a filter makes no sense.

        Example:
            >>> from langchain_mastra_memory import Memory
            >>> memory = Memory()
            >>> for team in ("red", "blue"):
            ...     thread = memory.create_thread("user-1", thread_id=team, metadata={"team": team})
            >>> [thread.id for thread in memory.list_threads("user-1", metadata={"team": "red"})]
            ['red']
        """
        if all_resources not in (True, False):
            raise InvalidQueryError(f"all_resources must be True or False, not {shown(all_resources, 40)}")
        if resource_id is None and not all_resources:
            raise MissingResourceError(
                "list_threads needs a resource_id; to list everybody's threads say all_resources=True"
            )
        if resource_id is not None and all_resources:
            raise InvalidQueryError("list_threads takes a resource_id or all_resources=True, not both")
        page = check_page(page)
        return await io.run(
            ListThreads(
                resource_id=optional_id(resource_id),
                metadata=check_filter(metadata),
                page=page,
                per_page=check_per_page(per_page, page),
                order_by=check_word(order_by, OrderBy, "order_by"),
                direction=check_word(direction, Direction, "direction"),
            )
        )

    alist_threads = list_threads.twin

    @both
    async def update_thread(
        self,
        io: IO,
        thread_id: str,
        *,
        title: str | EllipsisType | None = ...,
        metadata: Mapping[str, Any] | EllipsisType | None = ...,
        resource_id: str | None = None,
    ) -> Thread:
        """Change a thread's title, or merge metadata into it; parallel updates of different keys all count.

        Args:
            thread_id: The thread.
            title: The new title, which no automatic title replaces; None or `""` leaves the thread untitled. Left
                out, it stays.
            metadata: Keys to set, each as a whole; None as a value removes the key. With working memory on,
                `working_memory` replaces the page (None erases it) and is not kept in the metadata.
            resource_id: The owner, checked when given.

        Raises:
            ThreadNotFoundError: There is no such thread for this resource.

        Example:
            >>> from langchain_mastra_memory import Memory
            >>> memory = Memory()
            >>> thread = memory.create_thread("user-1", thread_id="t1", metadata={"a": 1, "b": 2})
            >>> memory.update_thread("t1", metadata={"b": None, "c": 3}).metadata
            {'a': 1, 'c': 3}
        """
        return await self._write(
            io,
            UpdateThread(
                thread_id=checked_id(thread_id),
                resource_id=optional_id(resource_id),
                set_title=title is not ...,
                title=None if title is ... else check_title(title),
                metadata=metadata_with_page(
                    self.options.working_memory, {} if metadata is ... else check_metadata(metadata)
                ),
                features=self.options.features,
            ),
            indexed=False,
        )

    aupdate_thread = update_thread.twin

    @both
    async def delete_thread(self, io: IO, thread_id: str, *, resource_id: str | None = None) -> Deleted:
        """Remove a thread with everything that it owned: messages, checkpoints, pages, observations, index.

        What belongs to the resource (its working memory, its other threads) stays.

        Args:
            thread_id: The thread.
            resource_id: Its owner, checked when given.

        Returns:
            How much went; all zeros if no resource is given and there is no such thread.

        Raises:
            ThreadNotFoundError: A resource is given and it has no such thread.

        Example:
            >>> from langchain_mastra_memory import Memory
            >>> memory = Memory()
            >>> saved = memory.save_messages([("user", "Hi"), ("ai", "Hello")], thread_id="t1", resource_id="user-1")
            >>> memory.delete_thread("t1", resource_id="user-1").messages
            2
        """
        return await self._write(
            io, DeleteThread(thread_id=checked_id(thread_id), resource_id=optional_id(resource_id))
        )

    adelete_thread = delete_thread.twin

    @both
    async def prune(
        self,
        io: IO,
        thread_id: str,
        *,
        strategy: Literal["keep_latest", "delete"] = "keep_latest",
        resource_id: str | None = None,
    ) -> int:
        """Remove the old checkpoints of a thread; its messages and everything else that is remembered stay.

        Args:
            thread_id: The thread.
            strategy: `keep_latest` keeps the newest checkpoint of each namespace, from which graphs go on; `delete`
                keeps none.
            resource_id: Its owner, checked when given.

        Returns:
            How many checkpoints went; 0 if no resource is given and there is no such thread.

        Raises:
            ConfigurationError: Another strategy.
            ThreadNotFoundError: A resource is given and it has no such thread.

        Example:
            >>> from langchain_mastra_memory import Memory
            >>> Memory().prune("t1")
            0
        """
        check_choice("strategy", strategy, ("keep_latest", "delete"))
        checked, owner = checked_id(thread_id), optional_id(resource_id)
        if owner is not None and await io.run(GetThread(thread_id=checked, resource_id=owner)) is None:
            raise ThreadNotFoundError(f"there is no thread {checked[:80]!r} for this resource")
        return await self._write(io, PruneCheckpoints(thread_id=checked, keep_latest=strategy == "keep_latest"))

    aprune = prune.twin

    @both
    async def transfer_thread(
        self, io: IO, thread_id: str, new_resource_id: str, *, resource_id: str | None = None
    ) -> Thread:
        """Give a thread to another resource, with its messages and what else belongs to the thread alone.

        It bypasses the rule that a thread has one owner for life: call it from trusted code only. What belongs to
        the old resource (its working memory of resource scope) stays there.

        Args:
            thread_id: The thread.
            new_resource_id: Who gets it. If it has the thread already, nothing happens.
            resource_id: The owner until now, checked when given.

        Raises:
            ThreadNotFoundError: There is no such thread (of `resource_id`).

        Example:
            >>> from langchain_mastra_memory import Memory
            >>> memory = Memory()
            >>> thread = memory.create_thread("user-1", thread_id="t1")
            >>> memory.transfer_thread("t1", "team-7").resource_id
            'team-7'
        """
        return await self._write(
            io,
            TransferThread(
                thread_id=checked_id(thread_id),
                new_resource_id=checked_id(new_resource_id, "new_resource_id"),
                resource_id=optional_id(resource_id),
            ),
        )

    atransfer_thread = transfer_thread.twin

    @both
    async def list_branches(
        self, io: IO, thread_id: str, *, resource_id: str | None = None, checkpoint_id: str | None = None
    ) -> list[Branch]:
        """Return the lines of a thread: each fork that went on from an older turn opened one.

        Args:
            thread_id: The thread.
            resource_id: Its owner, checked when given.
            checkpoint_id: Mark the line of this checkpoint as `current`, instead of the one on which the thread
                stands.

        Raises:
            ThreadNotFoundError: There is no such thread for this resource, or it has no such checkpoint.
        """
        return await io.run(
            ListBranches(
                thread_id=checked_id(thread_id),
                resource_id=optional_id(resource_id),
                checkpoint_id=optional_id(checkpoint_id, "checkpoint_id"),
            )
        )

    alist_branches = list_branches.twin
