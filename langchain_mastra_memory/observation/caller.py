"""What the observer and the reflector are made of: whose they are, why they are called, and what hooks are told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from langchain_mastra_memory.observation.hooks import HookContext, ObservationHooks, Trigger
from langchain_mastra_memory.observation.log import Phase
from langchain_mastra_memory.observation.options import ObservationalMemory

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

    from langchain_mastra_memory.base import MemoryBase
    from langchain_mastra_memory.observation.engine import Cause, Engine
    from langchain_mastra_memory.store.operations.log import LogView


@dataclass(frozen=True, kw_only=True)
class Caller:
    """Calls the model of a phase.

    Attributes:
        phase: What the call does.
        memory: For its token counter, its default model and its clock.
        options: The options.
        hooks: The hooks of the options and of the call.
        trigger: What made the call.
        thread_id: The thread, for hooks.
        resource_id: The owner, for hooks.
        model: The agent's own model.
    """

    phase: ClassVar[Phase]
    memory: MemoryBase
    options: ObservationalMemory
    hooks: tuple[ObservationHooks, ...]
    trigger: Trigger
    thread_id: str | None
    resource_id: str | None
    model: BaseChatModel | None = None

    @classmethod
    def of(cls, engine: Engine, cause: Cause, view: LogView, **more: Any) -> Self:
        """Return the one for a log.

        Args:
            engine: The engine.
            cause: Who observes, and why.
            view: The log.
            **more: Its other fields.
        """
        return cls(
            memory=engine.memory,
            options=engine.options,
            hooks=engine.transforms(cause),
            trigger=cause.trigger,
            thread_id=cause.address.thread_id,
            resource_id=view.resource_id,
            model=cause.model,
            **more,
        )

    def context(self, **more: Any) -> HookContext:
        """Return what hooks are told."""
        return HookContext(
            phase=self.phase, trigger=self.trigger, thread_id=self.thread_id, resource_id=self.resource_id, **more
        )
