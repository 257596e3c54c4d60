"""A checkpointer that chooses, for each run, the `ThreadSaver` of one of several memories."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)

from langchain_mastra_memory.errors import ConfigurationError
from langchain_mastra_memory.shown import shown
from langchain_mastra_memory.threads.versions import next_version

if TYPE_CHECKING:
    from langchain_mastra_memory.memory import Memory
    from langchain_mastra_memory.threads.saver import ThreadSaver

Route = Callable[[RunnableConfig], "Memory"]
"""A function of the run's config that says which memory keeps the run's thread."""


class RoutedSaver(BaseCheckpointSaver[Any]):
    """Passes each call on to the saver of the memory that a function of the config chooses.

    What names a thread without a config (`delete_thread`, `prune`, `copy_thread`) is routed by a config with that
    `thread_id` alone; what names neither cannot be routed.
    """

    def __init__(self, route: Route) -> None:
        super().__init__()
        self._route = route

    def of(self, config: RunnableConfig) -> ThreadSaver:
        """Return the saver that keeps the thread of a run.

        Raises:
            ConfigurationError: The function returned something else than a `Memory`.
        """
        memory = self._route(config)
        saver: ThreadSaver | None = getattr(memory, "checkpointer", None)
        if saver is None:
            raise ConfigurationError(
                f"the function given to ThreadSaver.route must return a Memory, not {shown(memory, 80)}"
            )
        return saver

    def of_thread(self, thread_id: str) -> ThreadSaver:
        """Return the saver that keeps a thread, as far as its id tells."""
        return self.of({"configurable": {"thread_id": thread_id}})

    def get_next_version(self, current: Any, channel: None) -> Any:  # noqa: ARG002 - the interface's argument
        """Return the version after `current`; see `threads.versions`."""
        return next_version(current)

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return a checkpoint; see `ThreadSaver.get_tuple`."""
        return self.of(config).get_tuple(config)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return a checkpoint; see `ThreadSaver.get_tuple`."""
        return await self.of(config).aget_tuple(config)

    def list(self, config: RunnableConfig | None, **options: Any) -> Iterator[CheckpointTuple]:
        """Return checkpoints, newest first; see `ThreadSaver.list`."""
        return self.of(_named(config)).list(config, **options)

    def alist(self, config: RunnableConfig | None, **options: Any) -> AsyncIterator[CheckpointTuple]:
        """Return checkpoints, newest first; see `ThreadSaver.list`."""
        return self.of(_named(config)).alist(config, **options)

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Write a checkpoint; see `ThreadSaver.put`."""
        return self.of(config).put(config, checkpoint, metadata, new_versions)

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Write a checkpoint; see `ThreadSaver.put`."""
        return await self.of(config).aput(config, checkpoint, metadata, new_versions)

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Write what a task has written; see `ThreadSaver.put_writes`."""
        self.of(config).put_writes(config, writes, task_id, task_path)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Write what a task has written; see `ThreadSaver.put_writes`."""
        await self.of(config).aput_writes(config, writes, task_id, task_path)

    def delete_thread(self, thread_id: str) -> None:
        """Remove a thread; see `ThreadSaver.delete_thread`."""
        self.of_thread(thread_id).delete_thread(thread_id)

    async def adelete_thread(self, thread_id: str) -> None:
        """Remove a thread; see `ThreadSaver.delete_thread`."""
        await self.of_thread(thread_id).adelete_thread(thread_id)

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Remove old checkpoints; see `ThreadSaver.prune`."""
        for thread_id in thread_ids:
            self.of_thread(thread_id).prune([thread_id], strategy=strategy)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Remove old checkpoints; see `ThreadSaver.prune`."""
        for thread_id in thread_ids:
            await self.of_thread(thread_id).aprune([thread_id], strategy=strategy)

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return what rebuilds DeltaChannels; see `ThreadSaver.get_delta_channel_history`."""
        return self.of(config).get_delta_channel_history(config=config, channels=channels)

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return what rebuilds DeltaChannels; see `ThreadSaver.get_delta_channel_history`."""
        return await self.of(config).aget_delta_channel_history(config=config, channels=channels)


def _named(config: RunnableConfig | None) -> RunnableConfig:
    if config is None:
        raise ConfigurationError("a routed ThreadSaver lists the checkpoints of a config: which memory's is None?")
    return config
