"""Make a conversation valid for strict providers. For the prompt only: the archive keeps what was said.

Whatever the source (a client's own history, a crashed run, a cancelled tool, an imported thread):

- a result without its call, a second result of a call, a call without its result, and a call without a name or an id
  are left out; an answered call beside an open one stays;
- results stand right behind the message that made the calls, in the order of the calls;
- AI messages without text and calls, and empty text blocks, are left out; reasoning stays with its message;
- system messages in the middle are taken out, for the system text;
- a `ChatMessage` of a usual role becomes a message of that role;
- a conversation begins with a human message (a "." stands in where it does not).

Nothing is changed in place: a message that has to differ is copied.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    HumanMessage,
    SystemMessage,
    ToolCall,
    ToolMessage,
)

from langchain_mastra_memory.context.layers import Item, LeftOut
from langchain_mastra_memory.history.units import REASONING, call_ids, cut

FILLER = "."
"""What stands in for a human message where a provider demands one: before a leading AI message, for empty text."""

_ROLES: dict[str, type[HumanMessage | AIMessage | SystemMessage]] = {
    "user": HumanMessage,
    "human": HumanMessage,
    "assistant": AIMessage,
    "ai": AIMessage,
    "system": SystemMessage,
    "developer": SystemMessage,
}
_CALL_BLOCKS = frozenset({"tool_use", "tool_call", "function_call", "invalid_tool_call", "tool_call_chunk"})


@dataclass(frozen=True, slots=True)
class Repaired:
    """A valid conversation and what it took.

    Attributes:
        items: The conversation.
        system: System messages that stood in it, in order.
        left_out: Messages that are not in it.
    """

    items: tuple[Item, ...]
    system: tuple[SystemMessage, ...] = ()
    left_out: tuple[LeftOut, ...] = ()


def left_out(message: BaseMessage, reason: Any) -> LeftOut:
    """Return the note that a message is not in the prompt."""
    return LeftOut(id=message.id or "", reason=reason, role=message.type, text=message.text[:80])


def repair(items: Sequence[Item]) -> Repaired:
    """Return a valid conversation with as much of `items` as can stay.

    Args:
        items: A conversation, oldest first. The last human message always stays.

    Returns:
        Items whose messages pass `testing.check_prompt`; the same objects where nothing had to change.
    """
    items = [_with_known_role(item) for item in items]
    system = tuple(item.message for item in items if isinstance(item.message, SystemMessage))
    spoken = [item for item in items if not isinstance(item.message, SystemMessage)]
    spoken, twice = _each_once(spoken)
    messages = [item.message for item in spoken]
    last_human = next((at for at in range(len(spoken) - 1, -1, -1) if messages[at].type == "human"), -1)
    kept: list[Item] = []
    uses: dict[str, int] = {}
    lost: list[BaseMessage] = list(twice)
    for unit in cut(messages):
        results: dict[str, int] = {}
        heads: list[int] = []
        for place in unit.places:
            message = messages[place]
            if isinstance(message, ToolMessage):
                results.setdefault(message.tool_call_id, place)
            else:
                heads.append(place)
        fixed = _fixed(messages[heads[-1]], results.keys(), is_last_human=heads[-1] == last_human) if heads else None
        if fixed is None:
            lost.extend(messages[place] for place in unit.places)
            continue
        kept.extend(spoken[place] for place in heads[:-1])
        names = {call: _unique(call, uses) for call in call_ids(fixed)}
        if names:
            fixed = _renamed(fixed, names)
        head = spoken[heads[-1]]
        kept.append(head if fixed is head.message else replace(head, message=fixed, tokens=None))
        for call, name in names.items():
            kept.append(_fixed_result(spoken[results.pop(call)], name))
        lost.extend(messages[place] for place in results.values())
    if kept and kept[0].message.type != "human":
        kept.insert(0, replace(kept[0], message=HumanMessage(FILLER), seq=None, tokens=None))
    return Repaired(tuple(kept), system, tuple(left_out(message, "repaired") for message in lost))


def _with_known_role(item: Item) -> Item:
    """Return an item whose `ChatMessage` of a usual role is a message of that role: providers know no other."""
    message = item.message
    kind = _ROLES.get(message.role) if isinstance(message, ChatMessage) else None
    if kind is None:
        return item
    made = kind(
        message.content,
        id=message.id,
        name=message.name,
        additional_kwargs=message.additional_kwargs,
        response_metadata=message.response_metadata,
    )
    return replace(item, message=made)


def _each_once(items: Sequence[Item]) -> tuple[list[Item], list[BaseMessage]]:
    """Keep the last content of each id, at its first place."""
    places: dict[str, int] = {}
    kept: list[Item] = []
    twice: list[BaseMessage] = []
    for item in items:
        at = places.get(item.id) if item.id else None
        if at is None:
            if item.id:
                places[item.id] = len(kept)
            kept.append(item)
        else:
            twice.append(kept[at].message)
            kept[at] = item
    return kept, twice


def _unique(call: str, uses: dict[str, int]) -> str:
    """Return an id for a call that no earlier call of the prompt has: some models reuse theirs, some refuse that."""
    uses[call] = uses.get(call, 0) + 1
    return call if uses[call] == 1 else f"{call}_{uses[call]}"


def _renamed(message: BaseMessage, names: dict[str, str]) -> BaseMessage:
    if not isinstance(message, AIMessage) or all(call == name for call, name in names.items()):
        return message
    content = message.content
    if isinstance(content, list):
        content = [_renamed_block(block, names) for block in content]
    calls = [{**call, "id": names[call["id"] or ""]} for call in message.tool_calls]
    kwargs = {key: value for key, value in message.additional_kwargs.items() if key != "tool_calls"}
    return message.model_copy(update={"content": content, "tool_calls": calls, "additional_kwargs": kwargs})


def _renamed_block(block: str | dict[str, Any], names: dict[str, str]) -> str | dict[str, Any]:
    if not isinstance(block, dict) or not _is_call(block):
        return block
    key = "call_id" if "call_id" in block else "id"
    return {**block, key: names.get(str(block.get(key)), block.get(key))}


def _fixed(message: BaseMessage, answered: Collection[str], *, is_last_human: bool) -> BaseMessage | None:
    """Return a message that a strict provider takes, or None where nothing of it is left."""
    content = _without_empty_text(message.content)
    if isinstance(message, AIMessage):
        return _fixed_ai(message, content, answered)
    if not content:
        if not is_last_human:
            return None
        content = FILLER
    return message if _same(content, message.content) else message.model_copy(update={"content": content})


def _fixed_ai(message: AIMessage, content: str | list[Any], answered: Collection[str]) -> AIMessage | None:
    calls, seen = [], set[str]()
    for call in message.tool_calls:
        name = call["id"] or ""
        if name in answered and name not in seen and _is_sound(call):
            seen.add(name)
            calls.append(call)
    dropped = len(calls) != len(message.tool_calls) or bool(message.invalid_tool_calls)
    if dropped and isinstance(content, list):
        content = [block for block in content if not _is_call(block) or _call_id(block) in seen] or ""
    if not calls:
        content = _without_trailing_reasoning(content)
        if not content:
            return None
    if not dropped and _same(content, message.content):
        return message
    update: dict[str, Any] = {"content": content, "tool_calls": calls, "invalid_tool_calls": []}
    if dropped and "tool_calls" in message.additional_kwargs:
        update["additional_kwargs"] = {k: v for k, v in message.additional_kwargs.items() if k != "tool_calls"}
    return message.model_copy(update=update)


def _is_sound(call: ToolCall) -> bool:
    """Tell whether a call is one that can be sent: some models leave the name or the id out."""
    return bool(call["id"] and call["name"]) and isinstance(call["args"], dict)


def _fixed_result(item: Item, name: str) -> Item:
    message = item.message
    content = _without_empty_text(message.content)
    update: dict[str, Any] = {} if _same(content, message.content) else {"content": content}
    if isinstance(message, ToolMessage) and message.tool_call_id != name:
        update["tool_call_id"] = name
    return replace(item, message=message.model_copy(update=update), tokens=None) if update else item


def _same(content: str | list[Any], other: str | list[Any]) -> bool:
    return content is other or (isinstance(content, str) and content == other)


def _without_empty_text(content: str | list[Any]) -> str | list[Any]:
    """Return content without empty text; the same object when there is none, an empty string when nothing is left."""
    if isinstance(content, str):
        return content if content.strip() else ""
    full = [block for block in content if not _is_empty_text(block)]
    if not full:
        return ""
    return content if len(full) == len(content) else full


def _is_empty_text(block: str | dict[str, Any]) -> bool:
    if isinstance(block, str):
        return not block.strip()
    return block.get("type") == "text" and not str(block.get("text") or "").strip()


def _is_call(block: str | dict[str, Any]) -> bool:
    return isinstance(block, dict) and block.get("type") in _CALL_BLOCKS


def _call_id(block: str | dict[str, Any]) -> object:
    return (block.get("call_id") or block.get("id")) if isinstance(block, dict) else None


def _without_trailing_reasoning(content: str | list[Any]) -> str | list[Any]:
    """Return content whose last block is no reasoning: there is nothing behind it that it belongs to."""
    if isinstance(content, str):
        return content
    end = len(content)
    while end and isinstance(content[end - 1], dict) and content[end - 1].get("type") in REASONING:
        end -= 1
    return content if end == len(content) else content[:end]
