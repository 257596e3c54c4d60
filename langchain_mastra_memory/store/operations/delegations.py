"""The operation that starts a worker's thread under its derived resource."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from langchain_mastra_memory.store.base import Group, Operation
from langchain_mastra_memory.types import Thread


@dataclass(frozen=True, slots=True, kw_only=True)
class StartDelegation(Operation[Thread]):
    """Record the pair that a derived resource id came from, and make the worker's thread; running it twice is safe.

    Attributes:
        parent_resource_id: The delegating agent's resource.
        agent: The worker's name.
        resource_id: The derived id.
        thread_id: The worker's thread.
        metadata: The metadata of a new thread.
        features: What is on in the memory that asks.

    Raises:
        ThreadOwnershipError: The derived id came from another pair, or is somebody's own resource.
    """

    group: ClassVar[Group] = "resources"
    parent_resource_id: str
    agent: str
    resource_id: str
    thread_id: str
    metadata: Mapping[str, Any] = field(default_factory=dict)
    features: frozenset[str] = frozenset()
