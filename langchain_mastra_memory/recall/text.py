"""What a message says, for the index: the words of all its blocks, tool calls and results shortened. Pure."""

from __future__ import annotations

import json
from typing import Final

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from langchain_mastra_memory.agents.speakers import read_user_turn

TOOL_CHARACTERS: Final = 1_000
"""How much of one tool call or result is indexed: enough to find it, not enough to drown its neighbours."""
_UNSEEN: Final = frozenset({"system", "remove", "developer"})


def plain_text(message: BaseMessage) -> str:
    """Return the text of all text blocks of a message, one line each; images and other blocks are skipped."""
    if isinstance(message.content, str):
        return message.content
    parts = [block if isinstance(block, str) else block.get("text") for block in message.content]
    return "\n".join(part for part in parts if isinstance(part, str) and part.strip())


def indexed_text(message: BaseMessage, *, tools: bool = True) -> tuple[str | None, str]:
    """Return who speaks and what is said, as it is indexed and embedded.

    Args:
        message: Any LangChain message.
        tools: Whether tool calls and results are part of it, each cut to `TOOL_CHARACTERS`.

    Returns:
        `(speaker, text)`; the speaker is the message's name or that of its speaker tag, or None. Instructions (system
        messages) have no text: they are never recalled.
    """
    if message.type in _UNSEEN:
        return None, ""
    if isinstance(message, ToolMessage):
        return None, plain_text(message)[:TOOL_CHARACTERS] if tools else ""
    text, name = plain_text(message), message.name
    if message.type == "human" and text.startswith("<turn ") and (turn := read_user_turn(text)) is not None:
        name, text = turn[0].name, turn[1]
    if tools and isinstance(message, AIMessage):
        calls = [f"{call['name']} {_arguments(call['args'])}"[:TOOL_CHARACTERS] for call in message.tool_calls]
        text = "\n".join(part for part in (text, *calls) if part)
    return name, text


def _arguments(args: object) -> str:
    return json.dumps(args, ensure_ascii=False, default=str)


def embedded_text(speaker: str | None, text: str) -> str:
    """Return the text that is embedded: the speaker's name helps to find who said it."""
    return f"{speaker}: {text}" if speaker and text.strip() else text
