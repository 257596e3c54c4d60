"""The methods of `Memory` on messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Sized
from typing import Any, Final, Literal

from langchain_core.messages import BaseMessage

from langchain_mastra_memory.base import MemoryBase
from langchain_mastra_memory.errors import InvalidQueryError, MissingResourceError, StoreError
from langchain_mastra_memory.history.incoming import (
    Change,
    MessageInput,
    incoming_changes,
    incoming_ids,
    incoming_messages,
)
from langchain_mastra_memory.history.query import HideSignals, RecallQuery, read_hidden, read_include
from langchain_mastra_memory.ids import checked_id, optional_id
from langchain_mastra_memory.io import IO, both
from langchain_mastra_memory.store.operations.messages import (
    ClearThread,
    DeleteMessages,
    EditMessages,
    FindMessages,
    Include,
    ListMessages,
    MessageEdit,
    NewMessage,
    SaveMessages,
)
from langchain_mastra_memory.store.operations.threads import Direction
from langchain_mastra_memory.threads.filters import (
    Bounds,
    Moment,
    check_count,
    check_filter,
    check_page,
    check_per_page,
    check_word,
    to_range,
)
from langchain_mastra_memory.threads.merging import merged
from langchain_mastra_memory.tokens import TokenCounter, ready
from langchain_mastra_memory.types import Page, StoredMessage

TRIES: Final = 20
"""How often an update is read again because somebody else changed the message meanwhile."""
MANY: Final = 100
"""From so many messages on, reading them and counting their tokens is not done on an event loop."""


class MessageMethods(MemoryBase):
    """Saving, recalling, changing and removing messages."""

    @both
    async def save_messages(
        self, io: IO, messages: Iterable[MessageInput], *, thread_id: str, resource_id: str | None = None
    ) -> list[StoredMessage]:
        """Append messages to a thread, in order.

        A message without an id gets one, in place. An id that the thread has already is changed in its place and keeps
        its time; saving the same again changes nothing. `RemoveMessage`s are never stored. Metadata is taken from
        `additional_kwargs["metadata"]` (JSON data), the time from `additional_kwargs["created_at"]` or the metadata's
        `created_at`, else it is now. The order is that of saving, whatever the times say.

        Args:
            messages: LangChain messages, (role, content) pairs, mappings with `role` and `content`, or
                `StoredMessage`s of another store.
            thread_id: The thread.
            resource_id: Its owner: checked, and given to a thread that nobody owns yet. A missing thread is made.

        Returns:
            The messages as they are stored, in order.

        Raises:
            ThreadNotFoundError: There is no such thread for this resource, or none at all and no resource is given.
            InvalidQueryError: It is no list of messages; nothing was saved.

        Example:
            >>> from langchain_mastra_memory import Memory
            >>> memory = Memory()
            >>> saved = memory.save_messages([("user", "Hello")], thread_id="t1", resource_id="user-1")
            >>> saved[0].seq, saved[0].message.content
            (1, 'Hello')
        """
        thread_id, resource_id = checked_id(thread_id), optional_id(resource_id)
        counter = await ready(self.token_counter, io)
        given = await _incoming(io, messages, counter)
        return await self._write(
            io,
            SaveMessages(
                thread_id=thread_id,
                resource_id=resource_id,
                messages=given,
                features=self.options.features,
            ),
        )

    asave_messages = save_messages.twin

    @both
    async def recall(
        self,
        io: IO,
        *,
        thread_id: str | Sequence[str] | None = None,
        resource_id: str | None = None,
        query: str | None = None,
        page: int = 0,
        per_page: int | Literal[False] | None = None,
        direction: Direction | None = None,
        include: Iterable[str | Include | Mapping[str, Any]] | None = None,
        start: Moment | None = None,
        end: Moment | None = None,
        bounds: Bounds = "[]",
        metadata: Mapping[str, Any] | None = None,
        hide_signals: HideSignals = ("reactive", "system-reminder"),
        top_k: int | None = None,
        message_range: int | tuple[int, int] | None = None,
        filter: Mapping[str, Any] | None = None,  # noqa: A002 - Mastra's name
        checkpoint_id: str | None = None,
    ) -> Page[StoredMessage]:
        """Return messages: the newest, a page, some by their ids with neighbours, or what answers a query.

        Messages of one thread are in the order of saving (`seq`). Those of several threads are merged by time, each
        thread in its own order. Branches that the thread has left are not shown.

        Args:
            thread_id: The thread, or a list of threads; None means all of the resource's.
            resource_id: The owner, checked when given. Without it, a missing thread has no messages.
            query: Search for this instead (semantic recall must be on): returns the best `top_k` with their scores,
                among their neighbours.
            page: The page, from 0.
            per_page: Messages on a page; False means all; None means the newest `last_messages` of the options; 0
                reads no page, only what is included.
            direction: By default pages count from the newest, and each page is oldest first. `"asc"` counts from the
                oldest, `"desc"` from the newest and turns the page round. With `per_page=None` it is always the
                newest window, oldest first or (`"desc"`) newest first.
            include: Messages that are wanted whatever the page and the filters say: ids, or mappings with `id`,
                `thread_id`, `with_previous`, `with_next`. Of this owner only; unknown ids are passed over.
            start: Only messages from this time on: a `datetime`, a `date` (its midnight) or an ISO 8601 string; UTC if
                it is naive.
            end: Only messages up to this time. A day as a whole is `start=day, end=next_day, bounds="[)"`.
            bounds: Whether the ends belong to it: `"[]"`, `"[)"`, `"(]"`, `"()"`.
            metadata: Only messages whose metadata has exactly these values; types are strict, None is an explicit
                null.
            hide_signals: Types of signals that are not shown, True for all, False for none. They keep their places on
                the pages and in `total`. State signals and summaries of other middleware, kept for the archive, are
                shown, and counted, only if nothing is hidden.
            top_k: With a query: how many hits.
            message_range: With a query: how many neighbours of each hit, or (before, after).
            filter: With a query: a filter with operators on thread and message metadata.
            checkpoint_id: What was in view at this checkpoint, instead of now.

        Returns:
            The messages; `total` counts those that match, on all pages, included ones aside.

        Raises:
            ThreadNotFoundError: A resource is given and a thread is missing or another resource's; or the thread has
                no such checkpoint.
            MissingResourceError: Neither a thread nor a resource is given.
            InvalidQueryError: An argument makes no sense, or belongs to a search and there is no query.

        Example:
            >>> from langchain_mastra_memory import Memory
            >>> memory = Memory()
            >>> texts = [("user", f"message {n}") for n in range(12)]
            >>> saved = memory.save_messages(texts, thread_id="t1", resource_id="user-1")
            >>> page = memory.recall(thread_id="t1", per_page=5)
            >>> [stored.seq for stored in page], page.total, page.has_more
            ([8, 9, 10, 11, 12], 12, True)
        """
        threads = _thread_ids(thread_id)
        resource_id = optional_id(resource_id)
        if not threads and resource_id is None:
            raise MissingResourceError("recall needs a thread_id, or a resource_id to recall from all of its threads")
        checkpoint_id = optional_id(checkpoint_id, "checkpoint_id")
        if checkpoint_id is not None and len(threads) != 1:
            raise InvalidQueryError("checkpoint_id needs exactly one thread_id")
        page = check_page(page)
        size = self._window() if per_page is None else check_per_page(per_page, page)
        if direction is not None:
            check_word(direction, Direction, "direction")
        first, last = to_range(start, end, bounds)
        included = read_include(include)
        hidden, wanted = read_hidden(hide_signals), check_filter(metadata)
        if query is not None:
            if page or per_page is not None or direction is not None or included:
                raise InvalidQueryError("page, per_page, direction and include don't go with a query; use top_k")
            if len(threads) > 1:
                raise InvalidQueryError("a query takes one thread_id, or a resource_id")
            return await self._recall_query(
                io,
                RecallQuery(
                    text=query,
                    thread_id=threads[0] if threads else None,
                    resource_id=resource_id,
                    top_k=None if top_k is None else check_count(top_k, "top_k"),
                    message_range=message_range,
                    filter=filter,
                    start=first,
                    end=last,
                    metadata=wanted,
                    hidden=hidden,
                    checkpoint_id=checkpoint_id,
                ),
            )
        for name, value in (("top_k", top_k), ("message_range", message_range), ("filter", filter)):
            if value is not None:
                raise InvalidQueryError(f"{name} goes with a query; for a listing use per_page, include or metadata")
        return await io.run(
            ListMessages(
                thread_ids=threads,
                resource_id=resource_id,
                page=page,
                per_page=size,
                direction=None if per_page is None and direction == "asc" else direction,
                include=included,
                start=first,
                end=last,
                metadata=wanted,
                hidden=hidden,
                checkpoint_id=checkpoint_id,
            )
        )

    arecall = recall.twin

    @both
    async def update_messages(
        self,
        io: IO,
        messages: Iterable[BaseMessage | StoredMessage | Mapping[str, Any]],
        *,
        thread_id: str,
        resource_id: str | None = None,
    ) -> list[StoredMessage]:
        """Change stored messages: what they say, their metadata, or both. Place and time stay.

        Changes by several callers at once all count. Where another branch of the thread sees the message, that branch
        keeps the old one.

        Args:
            messages: LangChain messages with the ids of stored ones (they take their place), or mappings with `id`
                and `content`, `metadata` or both. Metadata is merged, key by key; None removes a key.
            thread_id: The thread.
            resource_id: Its owner, checked when given.

        Returns:
            The messages as they are now, in order; ids of nothing are left out.

        Raises:
            ThreadNotFoundError: There is no such thread for this resource.
            MessageNotFoundError: An id is a message of another thread; with a `resource_id`, also one of no message.
            InvalidQueryError: It is no list of these.

        Example:
            >>> from langchain_mastra_memory import Memory
            >>> memory = Memory()
            >>> saved = memory.save_messages([{"role": "user", "content": "Hi", "id": "m1"}], thread_id="t1",
            ...     resource_id="user-1")
            >>> changed = memory.update_messages([{"id": "m1", "metadata": {"seen": True}}], thread_id="t1")
            >>> changed[0].metadata, changed[0].revision
            ({'seen': True}, 2)
        """
        thread_id, resource_id = checked_id(thread_id), optional_id(resource_id)
        changes = incoming_changes(messages)
        ids = tuple(dict.fromkeys(change.id for change in changes))
        if not changes:
            return []
        counter = await ready(self.token_counter, io)
        for _ in range(TRIES):
            found = await io.run(FindMessages(thread_id=thread_id, resource_id=resource_id, message_ids=ids))
            edits = _edits(found, changes, counter)
            edited = await self._write(
                io,
                EditMessages(thread_id=thread_id, resource_id=resource_id, edits=edits, features=self.options.features),
            )
            if edited is not None:
                return edited
        raise StoreError(f"the messages were changed by others {TRIES} times while they were updated; try again")

    aupdate_messages = update_messages.twin

    @both
    async def delete_messages(
        self, io: IO, message_ids: Iterable[object], *, thread_id: str, resource_id: str | None = None
    ) -> int:
        """Remove messages, from every branch of the thread, and everything that was made of them.

        They don't come back: an old checkpoint that has them is scrubbed, and a prompt leaves them out.

        Args:
            message_ids: A list of ids, of messages, or of mappings with an `id`.
            thread_id: The thread.
            resource_id: Its owner, checked when given.

        Returns:
            How many there were; ids of nothing are passed over.

        Raises:
            ThreadNotFoundError: There is no such thread for this resource.
            MessageNotFoundError: An id is a message of another thread; with a `resource_id`, also one of no message.
                Nothing was removed.
            InvalidQueryError: It is no list.

        Example:
            >>> from langchain_mastra_memory import Memory
            >>> memory = Memory()
            >>> saved = memory.save_messages([("user", "Hi"), ("ai", "Hello")], thread_id="t1", resource_id="user-1")
            >>> memory.delete_messages([saved[0].id], thread_id="t1")
            1
        """
        thread_id, resource_id = checked_id(thread_id), optional_id(resource_id)
        ids = incoming_ids(message_ids)
        return await self._write(
            io, DeleteMessages(thread_id=thread_id, resource_id=resource_id, message_ids=tuple(ids))
        )

    adelete_messages = delete_messages.twin

    @both
    async def clear_thread(self, io: IO, thread_id: str, *, resource_id: str | None = None) -> int:
        """Remove every message of a thread, on all branches, and keep the thread with its title and metadata.

        Args:
            thread_id: The thread.
            resource_id: Its owner, checked when given.

        Returns:
            How many messages there were.

        Raises:
            ThreadNotFoundError: There is no such thread for this resource.
        """
        return await self._write(io, ClearThread(thread_id=checked_id(thread_id), resource_id=optional_id(resource_id)))

    aclear_thread = clear_thread.twin

    def _window(self) -> int | Literal[False]:
        """Return how many messages a recall without a page size is of."""
        history = self.options.message_history
        if history is None:
            return 0
        limits = history.limits()
        if limits.off:
            return 0
        return False if limits.last_messages is None else limits.last_messages


def _thread_ids(thread_id: object) -> tuple[str, ...]:
    if thread_id is None:
        return ()
    if isinstance(thread_id, (list, tuple)):
        if not thread_id:
            raise InvalidQueryError("thread_id is an empty list; name at least one thread")
        return tuple(dict.fromkeys(checked_id(one) for one in thread_id))
    return (checked_id(thread_id),)


async def _incoming(io: IO, messages: Iterable[MessageInput], counter: TokenCounter) -> tuple[NewMessage, ...]:
    """Return the rows to save, read and counted; not on the event loop if they are many."""

    def read() -> tuple[NewMessage, ...]:
        return tuple(item.counted(counter.count_message(item.message)) for item in incoming_messages(messages))

    if io.is_async and isinstance(messages, Sized) and len(messages) >= MANY:
        return await io.thread(read)
    return read()


def _edits(found: list[StoredMessage], changes: list[Change], counter: TokenCounter) -> tuple[MessageEdit, ...]:
    """Return what stored messages become."""
    edits = []
    for stored in found:
        message, metadata = stored.message, dict(stored.metadata)
        for change in changes:
            if change.id == stored.id:
                message, metadata = change.edit(message), merged(metadata, change.metadata)
        if message.id != stored.id:
            message = message.model_copy(update={"id": stored.id})
        edits.append(
            MessageEdit(
                message=message,
                tokens=counter.count_message(message),
                metadata=metadata,
                seq=stored.seq,
                revision=stored.revision,
            )
        )
    return tuple(edits)
