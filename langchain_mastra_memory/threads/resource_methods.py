"""The methods of `Memory` on a resource as a whole: taking out, putting back, removing everything that it owns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_mastra_memory.base import MemoryBase
from langchain_mastra_memory.errors import InvalidQueryError
from langchain_mastra_memory.ids import checked_id
from langchain_mastra_memory.io import IO, both
from langchain_mastra_memory.shown import shown
from langchain_mastra_memory.store.operations.resources import DeleteResource, ExportResource, ImportResource
from langchain_mastra_memory.types import Deleted


class ResourceMethods(MemoryBase):
    """Backup and removal of everything that a resource owns."""

    @both
    async def export_resource(self, io: IO, resource_id: str) -> dict[str, Any]:
        """Return everything that a resource owns as JSON data: threads, messages on all branches, working memory, log.

        Checkpoints are not in it: they are a graph's state, not the user's memory. The index is made anew on import.

        Args:
            resource_id: The owner.

        Returns:
            What `import_resource` takes. Every message is there twice: exactly, and as text to read.

        Example:
            >>> from langchain_mastra_memory import Memory
            >>> memory, other = Memory(), Memory()
            >>> saved = memory.save_messages([("user", "Hi")], thread_id="t1", resource_id="user-1")
            >>> other.import_resource(memory.export_resource("user-1"))
            1
            >>> other.recall(thread_id="t1")[0].message.content
            'Hi'
        """
        return await io.run(ExportResource(resource_id=checked_id(resource_id, "resource_id")))

    aexport_resource = export_resource.twin

    @both
    async def import_resource(self, io: IO, data: Mapping[str, Any], *, resource_id: str | None = None) -> int:
        """Put back what `export_resource` gave: everything, or nothing.

        Import only what you trust: a message may name a class of its own, which is looked up in the installed packages.

        Args:
            data: What was exported, from this or another database.
            resource_id: The owner of what is imported; None means the one it was exported from.

        Returns:
            How many threads were made.

        Raises:
            InvalidQueryError: The data is not an export.
            InvalidIdError: There is a thread of an imported id already.
        """
        if not isinstance(data, Mapping) or not isinstance(data.get("resource_id"), str):
            raise InvalidQueryError(f"this is not what export_resource gives: {shown(data, 80)}")
        owner = data["resource_id"] if resource_id is None else resource_id
        return await self._write(
            io, ImportResource(data=data, resource_id=checked_id(owner, "resource_id"), features=self.options.features)
        )

    aimport_resource = import_resource.twin

    @both
    async def delete_resource(self, io: IO, resource_id: str) -> Deleted:
        """Remove everything that a resource owns: all its threads as by `delete_thread`, its pages and observations.

        Args:
            resource_id: The owner.

        Returns:
            How much went; all zeros if there was nothing.
        """
        return await self._write(io, DeleteResource(resource_id=checked_id(resource_id, "resource_id")))

    adelete_resource = delete_resource.twin
