"""Decide what a root checkpoint brings to the archive: pure, from the lists of the checkpoint and of its parent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from langchain_core.messages import BaseMessage, RemoveMessage
from langgraph.graph.message import REMOVE_ALL_MESSAGES

from langchain_mastra_memory.codec import dump_message
from langchain_mastra_memory.history.incoming import metadata_of_run
from langchain_mastra_memory.store.operations.checkpoints import Archived
from langchain_mastra_memory.threads.runs import kind_of

CHANNEL: Final = "messages"
"""The channel whose messages are archived: that of `MessagesState` and `create_agent`."""

CountTokens = Callable[[BaseMessage], int]


def archived(
    message: BaseMessage, count_tokens: CountTokens, *, surely: bool = True, body: bytes | None = None
) -> Archived:
    """Return a message on its way to the archive, with its bytes in the codec if they are at hand."""
    return Archived(
        id=message.id or "",
        role=message.type,
        kind=kind_of(message),
        body=dump_message(message) if body is None else body,
        tokens=count_tokens(message),
        metadata=metadata_of_run(message),
        surely=surely,
    )


def is_archived(message: BaseMessage) -> bool:
    """Tell whether a message belongs into the archive: it has an id, and is no order to remove another."""
    return bool(message.id) and not isinstance(message, RemoveMessage)


def retractable(before: Sequence[tuple[str, bool]], now: Iterable[str], new: Iterable[BaseMessage]) -> tuple[str, ...]:
    """Return the ids that a step took out of the list, if they may be retracted where this run added them.

    A trim takes the oldest messages away and keeps later ones, and a summary stands for what it replaces: that is
    about the prompt, and the archive keeps everything. A guard takes back what was just said.

    Args:
        before: Id of each message of the parent's list, in order, and whether it is a system message.
        now: The ids of the list now.
        new: The messages that the step brought.
    """
    left = set(now)
    removed = [message_id for message_id, _ in before if message_id not in left]
    if not removed or any(kind_of(message) == "summary" for message in new):
        return ()
    conversation = [message_id for message_id, is_system in before if not is_system]
    cut = 0
    while cut < len(conversation) and conversation[cut] not in left:
        cut += 1
    is_trim = 0 < cut < len(conversation) and not any(i not in left for i in conversation[cut:])
    return () if is_trim else tuple(removed)


def retractable_of_writes(written: Sequence[BaseMessage]) -> tuple[str, ...]:
    """Return the ids that a step's writes removed from a DeltaChannel, if they may be retracted.

    The list itself is not at hand: removing everything, as a summary or a trim does, retracts nothing.
    """
    removed = [m.id for m in written if isinstance(m, RemoveMessage) and m.id]
    if REMOVE_ALL_MESSAGES in removed or any(kind_of(message) == "summary" for message in written):
        return ()
    back = {m.id for m in written if is_archived(m)}
    return tuple(message_id for message_id in removed if message_id not in back)


def messages_in(value: Any) -> list[BaseMessage]:
    """Return the messages of a write to the channel: one, a list of them, or an `Overwrite` with a list."""
    value = getattr(value, "value", value) if type(value).__name__ == "Overwrite" else value
    if isinstance(value, BaseMessage):
        return [value]
    return [item for item in value if isinstance(item, BaseMessage)] if isinstance(value, list) else []
