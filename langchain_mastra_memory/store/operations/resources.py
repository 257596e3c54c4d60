"""The operations on a resource as a whole: taking out, putting back, and removing everything that it owns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from langchain_mastra_memory.store.base import Group, Operation
from langchain_mastra_memory.types import Deleted


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportResource(Operation[dict[str, Any]]):
    """Return everything that a resource owns as JSON data, of one moment."""

    group: ClassVar[Group] = "resources"
    writes: ClassVar[bool] = False
    resource_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportResource(Operation[int]):
    """Put back what `ExportResource` gave; return how many threads were made. All of it, or nothing.

    Attributes:
        data: What was exported.
        resource_id: The owner of what is imported.
        features: What is on in the memory that asks.

    Raises:
        InvalidQueryError: The data is not an export, or of a newer version.
        InvalidIdError: There is a thread of an imported id already.
    """

    group: ClassVar[Group] = "resources"
    data: Mapping[str, Any]
    resource_id: str
    features: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteResource(Operation[Deleted]):
    """Remove everything that a resource owns, in one transaction; running it twice is safe."""

    group: ClassVar[Group] = "resources"
    resource_id: str
