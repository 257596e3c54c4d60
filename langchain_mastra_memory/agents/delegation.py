"""A delegation: what a worker's run is told of where it came from and where its memory goes.

It travels in `configurable`, where LangGraph hands it down to nested runs and never stores it (only scalars are copied
into checkpoints). Only code of this process can make one, so a client cannot claim to be a worker.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from langchain_core.messages import BaseMessage

from langchain_mastra_memory.errors import ConfigurationError
from langchain_mastra_memory.ids import derive_resource_id
from langchain_mastra_memory.store.operations.delegations import StartDelegation
from langchain_mastra_memory.store.operations.threads import CreateThread

if TYPE_CHECKING:
    from langchain_mastra_memory.base import MemoryBase

DELEGATION_KEY: Final = "mastra_delegation"
"""The key of the delegation in `configurable`."""
MAX_DEPTH: Final = 16
"""How deep workers may delegate to workers: deeper is a loop."""

_NAMESPACE: Final = uuid.UUID("6b1f0f0e-5d0a-5c7e-9a35-6d617374726d")


@dataclass(frozen=True, slots=True, kw_only=True)
class Delegation:
    """One task that an agent gave to a worker.

    Attributes:
        agent: The worker's name.
        memory: The memory for a worker that has none of its own: the delegating agent's; None: it must have one.
        thread_id: The worker's memory thread.
        resource_id: The worker's resource: derived from the parent's, unless memory is shared on purpose.
        parent_thread_id: The delegating agent's memory thread.
        parent_resource_id: The delegating agent's resource.
        context: The parent's conversation as the worker may see it: shown, never stored.
        depth: 1 for a worker of the first agent, 2 for a worker's worker, ...
    """

    agent: str
    memory: MemoryBase | None
    thread_id: str
    resource_id: str
    parent_thread_id: str
    parent_resource_id: str
    context: tuple[BaseMessage, ...] = ()
    depth: int = 1

    @property
    def thread_metadata(self) -> dict[str, Any]:
        """What the worker's thread says about its parent."""
        return {
            "parent": {
                "thread_id": self.parent_thread_id,
                "resource_id": self.parent_resource_id,
                "agent": self.agent,
            }
        }


def current_delegation(configurable: Mapping[str, Any]) -> Delegation | None:
    """Return the delegation that a run is part of, or None.

    A value of another type comes from a client and is ignored.
    """
    value = configurable.get(DELEGATION_KEY)
    return value if isinstance(value, Delegation) else None


def worker_thread_id(parent_thread_id: str, *parts: str) -> str:
    """Return the id of a worker's thread: the same for the same delegation, so that a resume finds it again.

    Args:
        parent_thread_id: The delegating agent's memory thread.
        parts: What tells this delegation from others: the worker's name, the task's namespace, the tool call's id.
    """
    return str(uuid.uuid5(_NAMESPACE, "\0".join((parent_thread_id, *parts))))


def delegate(
    memory: MemoryBase | None,
    *,
    agent: str,
    parent: Delegation | None,
    parent_thread_id: str,
    parent_resource_id: str,
    thread_id: str,
    context: tuple[BaseMessage, ...],
) -> Delegation:
    """Return the delegation of a task to a worker.

    Raises:
        ConfigurationError: Workers delegate to workers too deeply.
        InvalidIdError: The derived resource id is too long.
    """
    depth = 1 if parent is None else parent.depth + 1
    if depth > MAX_DEPTH:
        raise ConfigurationError(
            f"worker {agent[:40]!r} was delegated to {depth} levels deep, at most {MAX_DEPTH} are allowed: "
            "do workers delegate to each other in a circle?"
        )
    return Delegation(
        agent=agent,
        memory=memory,
        thread_id=thread_id,
        resource_id=derive_resource_id(parent_resource_id, agent),
        parent_thread_id=parent_thread_id,
        parent_resource_id=parent_resource_id,
        context=context,
        depth=depth,
    )


def start_of(delegation: Delegation, features: frozenset[str]) -> StartDelegation | CreateThread:
    """Return the operation that makes a worker's thread; running it twice is safe."""
    if delegation.resource_id == delegation.parent_resource_id:
        return CreateThread(
            thread_id=delegation.thread_id,
            resource_id=delegation.resource_id,
            metadata=delegation.thread_metadata,
            features=features,
        )
    return StartDelegation(
        parent_resource_id=delegation.parent_resource_id,
        agent=delegation.agent,
        resource_id=delegation.resource_id,
        thread_id=delegation.thread_id,
        metadata=delegation.thread_metadata,
        features=features,
    )
