"""What the recall tool is asked, and by whom."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model

from langchain_mastra_memory.observation.options import Retrieval

if TYPE_CHECKING:
    from langchain_mastra_memory.base import MemoryBase

LIMIT: Final = 20
MOST: Final = 100
"""Items on a page."""

PartType = Literal["text", "tool-call", "tool-result", "reasoning", "image", "file"]


class Question(BaseModel):
    """What the tool is asked."""

    model_config = ConfigDict(extra="ignore")

    mode: Literal["messages", "threads", "search"] = "messages"
    query: str | None = None
    cursor: str | None = None
    thread_id: str | None = None
    anchor: Literal["start", "end"] = "start"
    page: int | None = None
    limit: int = LIMIT
    detail: Literal["low", "high"] = "low"
    part_type: PartType | None = None
    tool_name: str | None = None
    part_index: int | None = None
    char_offset: int = 0
    before: str | None = None
    after: str | None = None


_DESCRIBED: Final[Mapping[str, str]] = {
    "mode": "What to retrieve: `messages` pages through messages",
    "query": "For mode=search: what to look for.",
    "cursor": "The id of a message: pages are counted from it. Take the first or the last id of a group's range.",
    "thread_id": "Another conversation, from mode=threads; `current` for this one.",
    "anchor": "Without a cursor: page from the start (oldest first) or from the end (newest first).",
    "page": "Messages: 1, 2, ... forwards from the cursor, -1, -2, ... backwards. Threads: from 0.",
    "limit": f"Items on a page, 1 to {MOST}.",
    "detail": "`low`: parts shortened, with their indexes; `high`: in full, as far as one answer holds.",
    "part_type": "Only parts of this type.",
    "tool_name": "Only calls and results of this tool.",
    "part_index": "With a cursor: only this part of that message, in full.",
    "char_offset": "With part_index: go on from this character.",
    "before": "For mode=threads: only those created before this ISO date.",
    "after": "For mode=threads: only those created after this ISO date.",
}


def arguments(retrieval: Retrieval) -> type[BaseModel]:
    """Return the model of the arguments: only those that can have an effect with these options."""
    modes: tuple[str, ...] = ("messages", "threads") if retrieval.scope == "resource" else ("messages",)
    modes += ("search",) if retrieval.vector else ()
    hidden = set() if retrieval.scope == "resource" else {"thread_id", "before", "after"}
    hidden |= set() if retrieval.vector else {"query"}
    fields: dict[str, Any] = {}
    for name, info in Question.model_fields.items():
        if name in hidden:
            continue
        kind: Any = Literal[modes] if name == "mode" else info.annotation
        described = _DESCRIBED[name]
        if name == "mode":
            more = [", `threads` lists the conversations", ", `search` finds observations by what they say"]
            described += (more[0] if "threads" in modes else "") + (more[1] if "search" in modes else "") + "."
        fields[name] = (kind, Field(default=info.default, description=described))
    return create_model("RecallQuestion", __doc__="What to recall.", **fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asker:
    """Who asks.

    Attributes:
        memory: The memory.
        retrieval: The options of the tool.
        scope: The scope of the observations.
        thread_id: The current thread.
        resource_id: The owner; nothing of anybody else is shown.
    """

    memory: MemoryBase
    retrieval: Retrieval
    scope: Literal["thread", "resource"]
    thread_id: str | None
    resource_id: str | None


def stamp(at: datetime) -> str:
    """Return a time as the answers write it."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")
