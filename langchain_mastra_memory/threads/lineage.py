"""What a clone says about where it came from: the key `clone` of its thread's metadata. Pure data."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from langchain_mastra_memory.types import CloneMetadata


def clone_info(source_thread_id: str, cloned_at: datetime, last_message_id: str | None) -> dict[str, Any]:
    """Return what a new clone says: its source, when, and the source's last message then (left out if it had none)."""
    info: dict[str, Any] = {"source_thread_id": source_thread_id, "cloned_at": cloned_at.isoformat()}
    if last_message_id is not None:
        info["last_message_id"] = last_message_id
    return info


def read_clone_info(metadata: Mapping[str, Any]) -> CloneMetadata | None:
    """Return where a thread was cloned from, or None if it is no clone.

    The spelling of Mastra's own databases (`sourceThreadId`, ...) is understood as well. A time that can't be read is
    the beginning of 1970: what counts is the source.
    """
    info = metadata.get("clone")
    source = source_of(metadata)
    if source is None or not isinstance(info, Mapping):
        return None
    last = info.get("last_message_id", info.get("lastMessageId"))
    return CloneMetadata(
        source_thread_id=source,
        cloned_at=_moment(info.get("cloned_at", info.get("clonedAt"))),
        last_message_id=last if isinstance(last, str) and last else None,
    )


def source_of(metadata: Mapping[str, Any]) -> str | None:
    """Return the id of the thread that this one was cloned from, or None."""
    info = metadata.get("clone")
    if not isinstance(info, Mapping):
        return None
    source = info.get("source_thread_id", info.get("sourceThreadId"))
    return source if isinstance(source, str) and source else None


def _moment(value: object) -> datetime:
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        moment = None
    if moment is None:
        return datetime.fromtimestamp(0, UTC)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
