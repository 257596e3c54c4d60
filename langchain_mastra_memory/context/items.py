"""The messages of a state as items, made only where somebody looks: a thread of 10 000 messages costs its tail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import overload

from langchain_core.messages import BaseMessage

from langchain_mastra_memory.context.layers import Item
from langchain_mastra_memory.store.operations.runs import Located
from langchain_mastra_memory.store.sql.values import from_micros


class StateItems(Sequence[Item]):
    """Items of messages with what the archive knows of them.

    Args:
        messages: The messages, oldest first.
        located: Rows of the archive by message id.
        edited: The archive's messages by id, where they are not the state's.
    """

    def __init__(
        self,
        messages: Sequence[BaseMessage],
        located: Mapping[str, Located],
        edited: Mapping[str, BaseMessage] | None = None,
    ) -> None:
        self._messages = messages
        self._located = located
        self._edited = edited or {}
        self._made: dict[int, Item] = {}

    @property
    def messages(self) -> tuple[BaseMessage, ...]:
        """All messages, as the archive has them where they were edited; no items are made."""
        if not self._edited:
            return tuple(self._messages)
        return tuple(self._edited.get(message.id or "", message) for message in self._messages)

    def __len__(self) -> int:
        return len(self._messages)

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Item, ...]: ...
    def __getitem__(self, index: int | slice) -> Item | tuple[Item, ...]:
        """Return an item, or a tuple of items."""
        if isinstance(index, slice):
            return tuple(self[at] for at in range(*index.indices(len(self))))
        at = range(len(self))[index]
        made = self._made.get(at)
        if made is None:
            made = self._made[at] = self._item(self._messages[at])
        return made

    def seq(self, index: int) -> int | None:
        """Return the place of a message in the archive; None while it is not archived."""
        row = self._located.get(self._messages[index].id or "")
        return None if row is None else row.seq

    def _item(self, message: BaseMessage) -> Item:
        row = self._located.get(message.id or "")
        if row is None:
            return Item(message=message)
        return Item(
            message=self._edited.get(message.id or "", message),
            seq=row.seq,
            tokens=row.tokens or None,
            created_at=from_micros(row.created_at),
        )
