"""The methods of `Memory` that observe, reflect and summarize."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from langchain_core.messages import BaseMessage

from langchain_mastra_memory.base import MemoryBase
from langchain_mastra_memory.checks import check_text
from langchain_mastra_memory.errors import ConfigurationError, MissingResourceError, ObservationError
from langchain_mastra_memory.ids import checked_id, optional_id
from langchain_mastra_memory.io import IO, both
from langchain_mastra_memory.models import ModelSpec
from langchain_mastra_memory.observation.extractors import Extractor
from langchain_mastra_memory.observation.hooks import ObservationHooks
from langchain_mastra_memory.observation.results import (
    Observations,
    ObserveResult,
    ReflectResult,
    Usage,
    UsageTotal,
)
from langchain_mastra_memory.shown import shown

if TYPE_CHECKING:
    from langchain_mastra_memory.observation.engine import Cause, Engine
    from langchain_mastra_memory.observation.node import ObservationNode
    from langchain_mastra_memory.observation.summarize import Summary


class ObservationMethods(MemoryBase):
    """Observing, reflecting and summarizing."""

    def observation_node(
        self,
        *,
        input_messages_key: str = "messages",
        output_messages_key: str = "llm_input_messages",
        trim_messages: bool = False,
        name: str = "ObservationNode",
    ) -> ObservationNode:
        """Return the node that puts observations in the place of old messages, for raw graphs.

        Args:
            input_messages_key: The key of the state's messages.
            output_messages_key: The key for the messages that the model is to be sent.
            trim_messages: Whether what is covered is removed from the state.
            name: The node's name in traces.
        """
        from langchain_mastra_memory.observation.node import ObservationNode  # noqa: PLC0415 - it knows the agents

        return ObservationNode(
            self,
            input_messages_key=input_messages_key,
            output_messages_key=output_messages_key,
            trim_messages=trim_messages,
            name=name,
        )

    @both
    async def observe(
        self,
        io: IO,
        *,
        thread_id: str | None = None,
        resource_id: str | None = None,
        messages: Sequence[BaseMessage] | None = None,
        hooks: ObservationHooks | None = None,
    ) -> ObserveResult:
        """Observe now whatever is closed and not observed yet, however little it is; what was buffered activates.

        The last human message stays raw while it has no answer.

        Args:
            thread_id: The thread; in resource scope it may be left out.
            resource_id: Its owner; checked when given.
            messages: Messages to save first, as `save_messages` does.
            hooks: Hooks of this call, after those of the options; they are waited for.

        Raises:
            ObservationError: The model failed, or what it said cannot be used; what was committed before stays.
            ProcessorError: A hook raised.
            ThreadNotFoundError: There is no such thread for this resource.

        Example:
            ```python
            result = memory.observe(thread_id="t1")
            print(result.observations.text)
            ```
        """
        from langchain_mastra_memory.observation import manual  # noqa: PLC0415 - the engine, when it is used

        engine, cause = self._cause(thread_id, resource_id, hooks)
        self._refuse_read_only("observe")
        if messages:
            saving: Any = self
            ids = {"thread_id": checked_id(thread_id), "resource_id": resource_id}
            await io.call(saving.save_messages, saving.asave_messages, messages, **ids)
        return await manual.observe(engine, io, cause)

    aobserve = observe.twin

    @both
    async def reflect(
        self, io: IO, *, thread_id: str | None = None, resource_id: str | None = None, prompt: str | None = None
    ) -> ReflectResult:
        """Condense the log now, whatever its size; a candidate that is not smaller changes nothing.

        Args:
            thread_id: The thread; in resource scope it may be left out.
            resource_id: Its owner; checked when given.
            prompt: What to mind this time, beside the options' instruction.

        Raises:
            ObservationError: The model failed, or what it said cannot be used.
            ProcessorError: A hook raised.
            ThreadNotFoundError: There is no such thread for this resource.
        """
        from langchain_mastra_memory.observation import manual  # noqa: PLC0415 - the engine, when it is used

        check_text("prompt", prompt, optional=True)
        engine, cause = self._cause(thread_id, resource_id, None)
        self._refuse_read_only("reflect")
        return await manual.reflect(engine, io, cause, prompt or "")

    areflect = reflect.twin

    @both
    async def get_observations(
        self,
        io: IO,
        *,
        thread_id: str | None = None,
        resource_id: str | None = None,
        checkpoint_id: str | None = None,
    ) -> Observations:
        """Return the observation log.

        Args:
            thread_id: The thread; in resource scope it may be left out.
            resource_id: Its owner; checked when given.
            checkpoint_id: The log as it is at a checkpoint of the thread.

        Raises:
            ThreadNotFoundError: There is no such thread for this resource, or no such checkpoint.
        """
        from langchain_mastra_memory.observation import manual  # noqa: PLC0415 - the engine, when it is used

        engine, cause = self._cause(thread_id, resource_id, None)
        address = replace(cause.address, checkpoint_id=optional_id(checkpoint_id, "checkpoint_id"))
        return await manual.observations(engine, io, address)

    aget_observations = get_observations.twin

    @both
    async def reobserve(
        self, io: IO, *, thread_id: str, resource_id: str | None = None, hooks: ObservationHooks | None = None
    ) -> ObserveResult:
        """Observe anew what was made from messages that were edited or deleted since (`Observations.stale`).

        A range keeps its place in the log; reflections that were made from it open up into what they were made from.

        Raises:
            ObservationError: The model failed, or what it said cannot be used.
            ThreadNotFoundError: There is no such thread for this resource.
        """
        from langchain_mastra_memory.observation import manual  # noqa: PLC0415 - the engine, when it is used

        engine, cause = self._cause(checked_id(thread_id), resource_id, hooks)
        self._refuse_read_only("reobserve")
        return await manual.reobserve(engine, io, cause)

    areobserve = reobserve.twin

    @both
    async def usage(self, io: IO, *, resource_id: str | None = None, thread_id: str | None = None) -> Usage:
        """Return what the model calls of observational memory cost.

        Args:
            resource_id: All logs of this resource; with a thread, its owner, checked.
            thread_id: The log of one thread only (thread scope).

        Raises:
            MissingResourceError: Neither is given.
            ThreadNotFoundError: There is no such thread for this resource.
        """
        from langchain_mastra_memory.store.operations.log import ListCalls  # noqa: PLC0415 - when it is used

        if resource_id is None and thread_id is None:
            raise MissingResourceError("usage needs a resource_id or a thread_id")
        calls = await io.run(
            ListCalls(thread_id=optional_id(thread_id, "thread_id"), resource_id=optional_id(resource_id))
        )
        return _usage(calls)

    ausage = usage.twin

    @both
    async def summarize_thread(
        self,
        io: IO,
        thread_id: str,
        *,
        resource_id: str | None = None,
        model: ModelSpec | None = None,
        last_messages: int | None = None,
        max_input_tokens: int = 1_000_000,
        instructions: str = "",
        extract: Sequence[Extractor] = (),
    ) -> Summary:
        """Summarize a thread with one call; nothing is written.

        Args:
            thread_id: The thread; an unknown one gives an empty summary when no resource is named.
            resource_id: Its owner; checked when given.
            model: By default that of the memory.
            last_messages: Only the newest so many.
            max_input_tokens: Older messages are left out above this; the newest one always counts.
            instructions: What the summary is for, appended to the system prompt.
            extract: Values to extract; `on_extracted` is called with each.

        Raises:
            ObservationError: The model failed.
            ConfigurationError: There is no model, or a number is not positive.
            ThreadNotFoundError: There is no such thread for this resource.
        """
        from langchain_mastra_memory.observation import manual  # noqa: PLC0415 - the engine, when it is used

        _positive("max_input_tokens", max_input_tokens)
        if last_messages is not None:
            _positive("last_messages", last_messages)
        return await manual.summarize_thread(
            self,
            io,
            checked_id(thread_id),
            optional_id(resource_id),
            model=model,
            last_messages=last_messages,
            max_input_tokens=max_input_tokens,
            instructions=instructions,
            extract=extract,
        )

    asummarize_thread = summarize_thread.twin

    def _cause(
        self, thread_id: str | None, resource_id: str | None, hooks: ObservationHooks | None
    ) -> tuple[Engine, Cause]:
        from langchain_mastra_memory.observation.engine import Cause  # noqa: PLC0415 - the engine, when it is used
        from langchain_mastra_memory.observation.provider import engine_of  # noqa: PLC0415 - the engine

        if hooks is not None and not isinstance(hooks, ObservationHooks):
            raise ConfigurationError(f"hooks must be ObservationHooks(...), not {shown(hooks, 60)}")
        engine = engine_of(self)
        if engine.options.scope == "thread" and thread_id is None:
            raise ConfigurationError("observations of thread scope need a thread_id")
        if engine.options.scope == "resource" and thread_id is None and resource_id is None:
            raise MissingResourceError("observations of resource scope need a resource_id, or a thread_id")
        address = engine.address(optional_id(thread_id, "thread_id"), optional_id(resource_id))
        return engine, Cause(address=address, trigger="manual", hooks=hooks)

    def _refuse_read_only(self, what: str) -> None:
        if self.options.read_only:
            raise ObservationError(f"{what} writes, and this memory is read-only; nothing was changed")


def _positive(name: str, number: object) -> None:
    """Refuse what is no positive whole number.

    Raises:
        ConfigurationError: It is none.
    """
    if not isinstance(number, int) or isinstance(number, bool) or number <= 0:
        raise ConfigurationError(f"{name} must be a positive number, not {shown(number, 40)}")


def _usage(calls: Sequence[Any]) -> Usage:
    def total(some: Sequence[Any]) -> UsageTotal:
        return UsageTotal(
            calls=len(some),
            input_tokens=sum(c.input_tokens for c in some),
            output_tokens=sum(c.output_tokens for c in some),
            total_tokens=sum(c.total_tokens for c in some),
            duration_ms=sum(c.duration_ms for c in some),
        )

    def grouped(key: str) -> Mapping[str, UsageTotal]:
        names = dict.fromkeys(str(getattr(c, key) or "unknown") for c in calls)
        return {name: total([c for c in calls if str(getattr(c, key) or "unknown") == name]) for name in names}

    return Usage(
        total=total(calls),
        by_phase=grouped("phase"),
        by_model=grouped("model"),
        by_outcome=grouped("outcome"),
        calls=tuple(
            {
                "phase": c.phase,
                "outcome": c.outcome,
                "model": c.model,
                "input_tokens": c.input_tokens,
                "output_tokens": c.output_tokens,
                "total_tokens": c.total_tokens,
                "duration_ms": c.duration_ms,
                "details": dict(c.details),
                "thread_id": c.thread_id,
            }
            for c in calls
        ),
    )
