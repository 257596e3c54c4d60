"""`ThreadSaver`: the threads as a LangGraph checkpointer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from langchain_mastra_memory.errors import ConfigurationError
from langchain_mastra_memory.ids import checked_id
from langchain_mastra_memory.io import IO, AsyncIO, SyncIO, drive
from langchain_mastra_memory.shown import shown
from langchain_mastra_memory.store.base import MemoryStore, Unpicklable
from langchain_mastra_memory.store.operations.checkpoints import (
    CopyCheckpoints,
    DeleteRuns,
    GetCheckpoint,
    GetHistory,
    PruneCheckpoints,
    Read,
)
from langchain_mastra_memory.store.operations.threads import DeleteThread
from langchain_mastra_memory.threads.bodies import BodyWriter
from langchain_mastra_memory.threads.knowledge import Knowledge, Memories
from langchain_mastra_memory.threads.listing import Listing
from langchain_mastra_memory.threads.putting import Putting, address_of, learn
from langchain_mastra_memory.threads.reading import Reader, delta_history, tuple_of
from langchain_mastra_memory.threads.routing import Route, RoutedSaver
from langchain_mastra_memory.threads.versions import next_version

if TYPE_CHECKING:
    from langchain_mastra_memory.base import MemoryBase

MANY: Final = 1_000
"""Messages above which an async read decodes them in a thread, off the event loop."""


class ThreadSaver(Unpicklable, BaseCheckpointSaver[Any]):
    """A checkpointer that stores each message once, archives conversations and knows whose they are.

    Sync and async methods are both native: one object serves `invoke` and `ainvoke`, in any thread and on any event
    loop, beside other processes. A thread of n turns takes space in proportion to n, for an unmodified `add_messages`
    graph too. The messages of the root graph's `messages` channel enter the archive in the same transaction as the
    checkpoint.

    `configurable["resource_id"]` names the owner of a thread: the first one that names it owns it for life, and another
    one gets the same `ThreadNotFoundError` as for a thread that does not exist. Without it no owner is checked.

    Args:
        source: A `Memory`, whose features then follow what is archived, or a bare `MemoryStore`: then the tokens of
            messages are estimated, since no tokenizer is named.
        serde: Writes values; `EncryptedSerializer` encrypts everything but ids, names of channels and metadata of
            checkpoints, and the archive. LangGraph's `JsonPlusSerializer` by default.

    Raises:
        ConfigurationError: `source` is neither.

    Example:
        ```python
        saver = ThreadSaver(SQLMemoryStore("sqlite:///memory.db"))
        graph = builder.compile(checkpointer=saver)
        graph.invoke({"messages": [("user", "hi")]}, {"configurable": {"thread_id": "t1", "resource_id": "ann"}})
        ```
    """

    def __init__(self, source: MemoryBase | MemoryStore, *, serde: SerializerProtocol | None = None) -> None:
        super().__init__(serde=serde)
        memory = None if isinstance(source, MemoryStore) else source
        store = getattr(source, "store", None) if memory is not None else source
        if not isinstance(store, MemoryStore):
            raise ConfigurationError(f"ThreadSaver needs a Memory or a MemoryStore, not {shown(source, 80)}")
        self.memory = memory
        self.store = store
        self._memories = Memories()
        self._put: Putting | None = None
        self._sync = SyncIO(store)
        self._async = AsyncIO(store, self._executor)

    @staticmethod
    def route(memory_of: Route) -> RoutedSaver:
        """Return a checkpointer that chooses a memory for each run.

        It goes with `MemoryMiddleware(fn)`: the two functions must choose the same memory, which is checked.

        Args:
            memory_of: A function of the run's config (`configurable` has `thread_id`, `resource_id`, ...).

        Example:
            ```python
            agent = create_agent(
                model,
                middleware=[MemoryMiddleware(lambda runtime: memories[runtime.context.tenant])],
                checkpointer=ThreadSaver.route(lambda config: memories[config["configurable"]["tenant"]]),
            )
            ```
        """
        return RoutedSaver(memory_of)

    def _executor(self) -> Any:
        return self.memory.background.executor if self.memory is not None else None

    @property
    def _writer(self) -> BodyWriter:
        return BodyWriter(self.serde)

    def _known(self, thread_id: str) -> Knowledge:
        return self._memories.of(self.serde)[thread_id]

    def _putting(self) -> Putting:
        putting = self._put
        if putting is None or putting.serde is not self.serde:  # LangGraph copies a saver and changes its serde
            putting = self._put = Putting(self.serde, self._writer, self._memories.of(self.serde), self.memory)
        return putting

    def get_next_version(self, current: Any, channel: None) -> Any:  # noqa: ARG002
        """Return the version after `current`; see `threads.versions`."""
        return next_version(current)

    # Reading

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return a checkpoint, or the newest of its thread and namespace; None if there is none.

        Raises:
            ThreadNotFoundError: `configurable` names a resource, and another one owns the thread.
        """
        return drive(self._get_tuple(self._sync, config))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return a checkpoint like `get_tuple`, without blocking the event loop."""
        return await self._get_tuple(self._async, config)

    async def _get_tuple(self, io: IO, config: RunnableConfig) -> CheckpointTuple | None:
        address = address_of(config)
        known = self._known(address.thread_id)
        checkpoint_id = config["configurable"].get("checkpoint_id")
        with known.lock:
            state, have, bodies = known.state, known.have(), known.bodies
        read = await io.run(GetCheckpoint(address=address, id=checkpoint_id, known=state, have=have))
        if read.state != state:
            bodies = {}
        if not read.checkpoints:
            return None
        thread_id = config["configurable"]["thread_id"]

        def decode() -> CheckpointTuple:
            return learn(known, self.serde, self._writer, read, bodies, thread_id)

        if io.is_async and _size(read) > MANY:
            return await _in_thread(decode)
        return decode()

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Yield checkpoints, newest first. Nothing is held open between two of them.

        Args:
            config: The thread and namespace; all namespaces without `checkpoint_ns`, all threads for None.
            filter: Metadata that must be equal; a value of None stands for a missing key too.
            before: Only checkpoints older than this one.
            limit: At most so many.

        Raises:
            ThreadNotFoundError: `configurable` names a resource, and another one owns the thread.
        """
        listing = Listing(config, filter=filter, before=before, limit=limit)
        while (operation := listing.next()) is not None:
            yield from listing.take(self.store.run(operation), self._tuple)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Yield checkpoints like `list`, without blocking the event loop."""
        listing = Listing(config, filter=filter, before=before, limit=limit)
        while (operation := listing.next()) is not None:
            for found in listing.take(await self.store.arun(operation), self._tuple):
                yield found

    def _tuple(self, read: Read) -> CheckpointTuple:
        stored = read.checkpoints[0]
        return tuple_of(Reader(self.serde, self._writer, {}, read), stored, stored.thread_id)[0]

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return, for each channel, its last stored value before a checkpoint and what was written to it since."""
        return drive(self._delta_history(self._sync, config, channels))

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return a history like `get_delta_channel_history`, without blocking the event loop."""
        return await self._delta_history(self._async, config, channels)

    async def _delta_history(
        self, io: IO, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        if not channels:
            return {}
        checkpoint_id = config["configurable"].get("checkpoint_id")
        history = await io.run(GetHistory(address=address_of(config), id=checkpoint_id, channels=tuple(channels)))
        reader = Reader(self.serde, self._writer, {}, history.read)
        return delta_history(reader, history.read.checkpoints, channels)

    # Writing

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Write a checkpoint, and archive what its messages bring, in one transaction.

        Args:
            config: The thread, the namespace, and as `checkpoint_id` the parent.
            checkpoint: The checkpoint.
            metadata: Its metadata.
            new_versions: The channels whose values are new.

        Returns:
            The config that names the checkpoint.

        Raises:
            ThreadNotFoundError: `configurable` names a resource, and another one owns the thread.
            StoreError: Nothing was written.
        """
        return drive(self._putting().checkpoint(self._sync, config, checkpoint, metadata, new_versions))

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Write a checkpoint like `put`, without blocking the event loop."""
        return await self._putting().checkpoint(self._async, config, checkpoint, metadata, new_versions)

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Write what a task wrote: of two writes of one index the first stays, of special ones the last.

        Args:
            config: The checkpoint; it may be written later.
            writes: Channel and value.
            task_id: The task.
            task_path: Where the task stands in its step; LangGraph applies writes in this order.
        """
        drive(self._putting().writes(self._sync, config, writes, task_id, task_path))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Write like `put_writes`, without blocking the event loop."""
        await self._putting().writes(self._async, config, writes, task_id, task_path)

    # Removing and copying

    def delete_thread(self, thread_id: str) -> None:
        """Remove a thread with everything that it owned: checkpoints, messages, and what was made of them."""
        drive(self._delete_thread(self._sync, thread_id))

    async def adelete_thread(self, thread_id: str) -> None:
        """Remove a thread like `delete_thread`, without blocking the event loop."""
        await self._delete_thread(self._async, thread_id)

    async def _delete_thread(self, io: IO, thread_id: str) -> None:
        checked = checked_id(thread_id)
        await io.run(DeleteThread(thread_id=checked))
        self._memories.deleted(checked)

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Remove the checkpoints of some runs, by the `run_id` in their metadata, and their writes.

        A thread whose newest checkpoint goes stands where the newest one left stands: messages of the removed runs
        stay in the archive, out of view. What a DeltaChannel of a later checkpoint is rebuilt from is kept, unseen.
        """
        drive(self._delete_for_runs(self._sync, run_ids))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Remove runs like `delete_for_runs`, without blocking the event loop."""
        await self._delete_for_runs(self._async, run_ids)

    async def _delete_for_runs(self, io: IO, run_ids: Sequence[str]) -> None:
        if run_ids:
            await io.run(DeleteRuns(run_ids=tuple(str(run_id) for run_id in run_ids)))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread with all its checkpoints, lines and messages inside the database; ids stay as they are.

        Raises:
            InvalidIdError: The target has messages or checkpoints.
        """
        drive(self._copy_thread(self._sync, source_thread_id, target_thread_id))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread like `copy_thread`, without blocking the event loop."""
        await self._copy_thread(self._async, source_thread_id, target_thread_id)

    async def _copy_thread(self, io: IO, source_thread_id: str, target_thread_id: str) -> None:
        source, target = checked_id(source_thread_id, "source"), checked_id(target_thread_id, "target")
        features = self.memory.options.features if self.memory is not None else frozenset()
        await io.run(CopyCheckpoints(source_thread_id=source, target_thread_id=target, features=features))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Remove checkpoints of some threads; their archive stays.

        Args:
            thread_ids: The threads; missing ones are passed over.
            strategy: `keep_latest` keeps the newest checkpoint of each namespace, and what its DeltaChannels are
                rebuilt from; `delete` (or `delete_all`) removes every checkpoint.

        Raises:
            ConfigurationError: Another strategy.
        """
        drive(self._prune(self._sync, thread_ids, strategy))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Remove checkpoints like `prune`, without blocking the event loop."""
        await self._prune(self._async, thread_ids, strategy)

    async def _prune(self, io: IO, thread_ids: Sequence[str], strategy: str) -> None:
        if strategy not in ("keep_latest", "delete", "delete_all"):
            raise ConfigurationError(f"strategy must be 'keep_latest' or 'delete', not {shown(strategy, 40)}")
        for thread_id in thread_ids:
            await io.run(PruneCheckpoints(thread_id=checked_id(thread_id), keep_latest=strategy == "keep_latest"))


def _size(read: Read) -> int:
    return sum(
        part.last - part.first for c in read.checkpoints for e in c.skeleton.entries.values() for part in e.ranges()
    )


async def _in_thread(function: Callable[[], CheckpointTuple]) -> CheckpointTuple:
    import asyncio  # noqa: PLC0415

    return await asyncio.to_thread(function)
