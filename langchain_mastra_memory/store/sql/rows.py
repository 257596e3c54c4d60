"""Message rows as users see them."""

from __future__ import annotations

from typing import Any, Final, cast

from langchain_core.messages import BaseMessage

from langchain_mastra_memory.codec import load_message
from langchain_mastra_memory.store.sql.locking import ThreadRow
from langchain_mastra_memory.store.sql.schema import messages
from langchain_mastra_memory.store.sql.values import from_micros, load_json
from langchain_mastra_memory.types import MessageKind, StoredMessage

MESSAGE_COLUMNS: Final = tuple(
    messages.c[name]
    for name in ("seq", "branch", "id", "kind", "body", "metadata", "tokens", "revision", "outside", "created_at")
)
"""What `stored_message` takes, in order."""


def message_of(message_id: str, body: bytes) -> BaseMessage:
    """Return a row's message under the row's own id.

    A copy is made inside the database, where bodies are opaque: its rows have new ids and the bodies of their source.
    """
    message = load_message(body)
    if message.id != message_id:
        message.id = message_id
    return message


def stored_message(thread: ThreadRow, row: tuple[Any, ...], score: float | None = None) -> StoredMessage:
    """Return a row of `MESSAGE_COLUMNS` as users see it."""
    seq, branch, message_id, kind, body, metadata, tokens, revision, outside, created_at = row
    return StoredMessage(
        id=message_id,
        thread_id=thread.id,
        resource_id=thread.resource_id,
        seq=seq,
        message=message_of(message_id, body),
        created_at=from_micros(created_at),
        metadata=load_json(metadata),
        kind=cast("MessageKind", kind or "message"),
        tokens=tokens,
        score=score,
        branch=branch,
        revision=revision,
        outside=bool(outside),
    )
