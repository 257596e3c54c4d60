"""Ready processors for `MessageHistory(processors=[...])`: they shape the prompt, never the archive.

A processor is a plain function from `Layers` to `Layers`. These make one:

```python
MessageHistory(processors=[cap_tool_results(2_000), drop_tool_calls("search", keep_last=1)])
```

Whatever a processor leaves is made valid afterwards: a call whose result is dropped goes with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from langchain_mastra_memory.context.layers import Item, Layers
from langchain_mastra_memory.errors import ConfigurationError
from langchain_mastra_memory.history.options import Processor
from langchain_mastra_memory.history.units import REASONING

_CALL_BLOCKS = frozenset({"tool_use", "tool_call", "function_call"})
_OWN_IDS = frozenset({"id", "encrypted_content", "signature"})


def drop_tool_calls(*names: str, keep_last: int = 0) -> Processor:
    """Return a processor that leaves calls of tools, and their results, out of the prompt.

    Args:
        names: Names of tools; none: all tools.
        keep_last: How many of the newest such calls stay. Calls of the running turn always do.

    Raises:
        ConfigurationError: `keep_last` is negative.

    Example:
        >>> processor = drop_tool_calls("search", keep_last=2)
    """
    if keep_last < 0:
        raise ConfigurationError(f"keep_last must be at least 0, not {keep_last}")
    wanted = frozenset(names)

    def drop(layers: Layers) -> Layers:
        ids = [
            call["id"]
            for item in layers.conversation
            if item.origin != "turn" and isinstance(item.message, AIMessage)
            for call in item.message.tool_calls
            if not wanted or call["name"] in wanted
        ]
        gone = set(ids[: len(ids) - keep_last])

        def without(item: Item) -> Item | None:
            message = item.message
            if item.origin == "turn":
                return item
            if isinstance(message, ToolMessage):
                return None if message.tool_call_id in gone else item
            if not isinstance(message, AIMessage) or not any(call["id"] in gone for call in message.tool_calls):
                return item
            calls = [call for call in message.tool_calls if call["id"] not in gone]
            content = message.content
            if isinstance(content, list):
                content = [block for block in content if not _calls_one_of(block, gone)]
            if not calls and not message.text.strip():
                return None
            kwargs = {key: value for key, value in message.additional_kwargs.items() if key != "tool_calls"}
            update = {"tool_calls": calls, "content": content, "additional_kwargs": kwargs}
            return replace(item, message=message.model_copy(update=update), tokens=None)

        return _each(layers, without)

    drop.__qualname__ = "drop_tool_calls"
    return drop


def cap_tool_results(characters: int, *, note: str = "[... {left} characters left out ...]") -> Processor:
    """Return a processor that shortens long tool results: their beginning and end stay.

    Args:
        characters: How long a result may be, in characters; at least 1.
        note: What stands in the middle; `{left}` becomes the number of characters that are not shown.

    Raises:
        ConfigurationError: `characters` is less than 1.

    Example:
        >>> processor = cap_tool_results(4_000)
    """
    if characters < 1:
        raise ConfigurationError(f"characters must be at least 1, not {characters}")

    def shortened(text: str) -> str:
        if len(text) <= characters:
            return text
        head = -(-characters * 2 // 3)
        tail = characters - head
        middle = note.replace("{left}", str(len(text) - characters))
        return f"{text[:head]}\n{middle}\n{text[len(text) - tail :]}" if tail else f"{text[:head]}\n{middle}"

    def cap(layers: Layers) -> Layers:
        def capped(item: Item) -> Item:
            message = item.message
            if not isinstance(message, ToolMessage):
                return item
            content = message.content
            made = shortened(content) if isinstance(content, str) else [_with_text(part, shortened) for part in content]
            return item if made == content else _changed(item, made)

        return _each(layers, capped)

    cap.__qualname__ = "cap_tool_results"
    return cap


def strip_reasoning(layers: Layers) -> Layers:
    """Leave the models' reasoning of earlier turns out, with the ids that tie it to its message.

    The running turn keeps its own: providers want it back within a tool loop.
    """

    def without(item: Item) -> Item | None:
        message = item.message
        if item.origin == "turn" or not isinstance(message, AIMessage):
            return item
        kwargs = {k: v for k, v in message.additional_kwargs.items() if k not in ("reasoning_content", "reasoning")}
        content = message.content
        if isinstance(content, list) and any(_is_reasoning(block) for block in content):
            content = [_untied(block) for block in content if not _is_reasoning(block)]
        elif len(kwargs) == len(message.additional_kwargs):
            return item
        if not content and not message.tool_calls:
            return None
        update = {"content": content, "additional_kwargs": kwargs}
        return replace(item, message=message.model_copy(update=update), tokens=None)

    return _each(layers, without)


def keep_roles(*roles: str) -> Processor:
    """Return a processor that keeps only messages of these roles in the history; the running turn stays whole.

    Args:
        roles: `human` (or `user`), `ai` (or `assistant`), `tool`, `system`.

    Raises:
        ConfigurationError: A role is unknown, or none is given.

    Example:
        >>> processor = keep_roles("human", "ai")
    """
    names = {"user": "human", "assistant": "ai"}
    kept = {names.get(role, role) for role in roles}
    unknown = kept - {"human", "ai", "tool", "system"}
    if unknown or not kept:
        raise ConfigurationError(f"roles are human, ai, tool and system, not {sorted(unknown)!r}")

    def keep(layers: Layers) -> Layers:
        return _each(layers, lambda item: item if item.origin == "turn" or item.message.type in kept else None)

    keep.__qualname__ = "keep_roles"
    return keep


def _each(layers: Layers, change: Callable[[Item], Item | None]) -> Layers:
    """Return the layers with each message of the conversation changed, or left out where the change is None."""
    changed = (change(item) for item in layers.conversation)
    return replace(layers, conversation=tuple(item for item in changed if item is not None))


def _changed(item: Item, content: str | list[Any]) -> Item:
    message: BaseMessage = item.message.model_copy(update={"content": content})
    return replace(item, message=message, tokens=None)


def _with_text(part: str | dict[str, Any], change: Callable[[str], str]) -> str | dict[str, Any]:
    if isinstance(part, str):
        return change(part)
    return {**part, "text": change(str(part["text"]))} if part.get("type") == "text" and "text" in part else part


def _calls_one_of(block: str | dict[str, Any], ids: set[str | None]) -> bool:
    return (
        isinstance(block, dict)
        and block.get("type") in _CALL_BLOCKS
        and (block.get("call_id") or block.get("id")) in ids
    )


def _is_reasoning(block: str | dict[str, Any]) -> bool:
    return isinstance(block, dict) and block.get("type") in REASONING


def _untied(block: str | dict[str, Any]) -> str | dict[str, Any]:
    """Return a text block without what ties it to its reasoning: an id without the item it names is refused."""
    if not isinstance(block, dict) or block.get("type") != "text":
        return block
    return {key: value for key, value in block.items() if key not in _OWN_IDS}
