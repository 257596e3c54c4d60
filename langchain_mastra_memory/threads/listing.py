"""A listing of checkpoints, page by page: what to ask for next, and what of a page is wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple

from langchain_mastra_memory.ids import checked_id, optional_id
from langchain_mastra_memory.store.operations.checkpoints import ListCheckpoints, Read

PAGE: Final = 32
"""Checkpoints read at once; nothing is held open while the caller looks at them."""
_SCALARS: Final = (str, int, float, bool, type(None))


class Listing:
    """Plans the pages of one `list` call.

    Args:
        config: The thread and namespace, or None for all.
        filter: Metadata that must be equal. Scalars are looked for by the database, key and value bound; the rest
            here.
        before: Only checkpoints older than this one.
        limit: At most so many.
    """

    def __init__(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None,  # noqa: A002 - LangGraph's name
        before: RunnableConfig | None,
        limit: int | None,
    ) -> None:
        configurable: dict[str, Any] = config["configurable"] if config is not None else {}
        thread_id = configurable.get("thread_id")
        self._ns: str | None = configurable.get("checkpoint_ns")
        self._thread_id = None if thread_id is None else checked_id(thread_id)
        self._resource_id = None if self._ns else optional_id(configurable.get("resource_id"))
        self._id: str | None = configurable.get("checkpoint_id")
        self._before: str | None = before["configurable"].get("checkpoint_id") if before is not None else None
        self._filter = filter or {}
        self._scalars = {key: value for key, value in self._filter.items() if _is_scalar(value)}
        self._left = limit
        self._after: tuple[str, int, str] | None = None
        self._ended = limit is not None and limit <= 0

    def next(self) -> ListCheckpoints | None:
        """Return the operation for the next page, or None at the end."""
        if self._ended:
            return None
        size = PAGE
        if self._left is not None and len(self._scalars) == len(self._filter):
            size = min(PAGE, self._left)
        self._asked = size
        return ListCheckpoints(
            thread_id=self._thread_id,
            resource_id=self._resource_id,
            ns=self._ns,
            id=self._id,
            before=self._before,
            filters=self._scalars,
            limit=size,
            after=self._after,
        )

    def take(self, page: list[Read], decode: Callable[[Read], CheckpointTuple]) -> Iterator[CheckpointTuple]:
        """Yield what is wanted of a page."""
        self._ended = len(page) < self._asked
        if page:
            self._after = page[-1].cursor
        for read in page:
            found = decode(read)
            if all(found.metadata.get(key) == value for key, value in self._filter.items()):
                yield found
                if self._left is not None:
                    self._left -= 1
                    if self._left <= 0:
                        self._ended = True
                        return


def _is_scalar(value: object) -> bool:
    return isinstance(value, _SCALARS) and not (isinstance(value, float) and value != value)  # noqa: PLR0124 - NaN
