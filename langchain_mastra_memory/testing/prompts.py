"""Check that a prompt is valid for strict providers, and that a prompt extends the one before it.

The rules are those that the providers publish for their chat endpoints, taken together: a prompt that passes is taken
by each of them.

| rule | published by |
|---|---|
| system messages stand first | Anthropic (`system` is a parameter of its own) |
| the first message is the user's | Anthropic, Gemini |
| the last message is the user's or a tool's | Anthropic (models that take no prefill), Gemini |
| no message is empty, no text block is empty or only white space; the answer of a tool may be | Anthropic |
| every tool call is answered, right behind it, once, before anything else | OpenAI, Anthropic, Gemini |
| every tool result answers a call of the message right before it | OpenAI, Anthropic |
| ids of tool calls are there and unique in the prompt | Anthropic |
| a tool call has a name and its arguments are an object | OpenAI, Anthropic, Gemini |
| reasoning is followed by the item that it belongs to | OpenAI (Responses), Anthropic |
| a message id stands once | LangGraph (`add_messages`) |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, ToolMessage, message_to_dict

_REASONING = ("reasoning", "thinking", "redacted_thinking")
_CALLS = ("tool_use", "tool_call", "function_call")


def prompt_faults(messages: Sequence[BaseMessage], *, prefill: bool = False) -> list[str]:
    """Return what a strict provider would refuse in a prompt, in words; an empty list for a valid one.

    Args:
        messages: The whole prompt, system message included.
        prefill: Whether the last message may be an AI message that the model is to go on with.

    Example:
        >>> from langchain_core.messages import AIMessage, HumanMessage
        >>> prompt_faults([HumanMessage("hi"), AIMessage("")])
        ['message 1 (ai) is empty', 'the last message is ai, not human or tool']
    """
    faults: list[str] = []
    start = next((at for at, message in enumerate(messages) if not isinstance(message, SystemMessage)), len(messages))
    conversation = messages[start:]
    if not conversation:
        return [*faults, "there is no conversation"]
    if conversation[0].type != "human":
        faults.append(f"the conversation begins with {conversation[0].type}, not human")
    faults += _message_faults(messages)
    faults += _call_faults(messages, start)
    ids = [message.id for message in messages if message.id]
    faults += [
        f"the message id {twice!r} stands {ids.count(twice)} times"
        for twice in sorted(set(ids))
        if ids.count(twice) > 1
    ]
    if conversation[-1].type not in ("human", "tool") and not prefill:
        faults.append(f"the last message is {conversation[-1].type}, not human or tool")
    return faults


def check_prompt(messages: Sequence[BaseMessage], *, prefill: bool = False) -> None:
    """Assert that a prompt is valid for strict providers.

    Raises:
        AssertionError: It is not; the message lists every fault and the prompt.
    """
    faults = prompt_faults(messages, prefill=prefill)
    if faults:
        shown = "\n".join(f"  {at}: {_shown(message)}" for at, message in enumerate(messages))
        raise AssertionError("a strict provider would refuse this prompt:\n- " + "\n- ".join(faults) + "\n" + shown)


def _message_faults(messages: Sequence[BaseMessage]) -> list[str]:
    faults = []
    conversing = False
    for at, message in enumerate(messages):
        where = f"message {at} ({message.type})"
        if isinstance(message, SystemMessage):
            if conversing:
                faults.append(f"{where} stands behind the conversation's beginning")
        else:
            conversing = True
        if isinstance(message, ToolMessage):
            continue
        blocks = message.content if isinstance(message.content, list) else [message.content]
        calls = bool(getattr(message, "tool_calls", ()))
        if _is_empty(message) and not calls:
            faults.append(f"{where} is empty")
        elif isinstance(message.content, list) and any(_is_empty_text(block) for block in blocks):
            faults.append(f"{where} has an empty text block")
        if isinstance(message, AIMessage):
            # In a message of its own it belongs to the AI message behind it: clients send the two as one turn.
            if at + 1 == len(messages) or not isinstance(messages[at + 1], AIMessage):
                faults += _reasoning_faults(message, where)
            if message.invalid_tool_calls:
                faults.append(f"{where} has tool calls that cannot be read")
    return faults


def _reasoning_faults(message: AIMessage, where: str) -> list[str]:
    if not isinstance(message.content, list):
        return []
    kinds = [block.get("type") if isinstance(block, Mapping) else "text" for block in message.content]
    if not any(kind in _REASONING for kind in kinds) or message.tool_calls:
        return []
    return [f"{where} has reasoning and nothing that it belongs to"] if kinds[-1] in _REASONING else []


def _call_faults(messages: Sequence[BaseMessage], start: int) -> list[str]:
    faults = []
    seen: set[str] = set()
    waiting: dict[str, int] = {}
    for at in range(start, len(messages)):
        message = messages[at]
        where = f"message {at} ({message.type})"
        if isinstance(message, ToolMessage):
            if waiting.pop(message.tool_call_id, None) is None:
                faults.append(f"{where} answers {message.tool_call_id!r}, which the message before it does not call")
            continue
        faults += [
            f"the call {call!r} of message {place} is not answered right behind it" for call, place in waiting.items()
        ]
        waiting = {}
        if isinstance(message, AIMessage):
            for call in message.tool_calls:
                faults += _single_call_faults(call, where, seen)
                waiting[call["id"] or ""] = at
            in_content = _ids_in_content(message)
            extra = in_content - set(waiting)
            faults += [
                f"{where} has content of the call {call!r} that is not among its calls" for call in sorted(extra)
            ]
    faults += [f"the call {call!r} of message {place} is not answered" for call, place in waiting.items()]
    return faults


def _single_call_faults(call: Mapping[str, Any], where: str, seen: set[str]) -> list[str]:
    faults = []
    name, args, call_id = call.get("name"), call.get("args"), call.get("id")
    if not call_id:
        faults.append(f"{where} has a call without an id")
    elif call_id in seen:
        faults.append(f"{where} uses the call id {call_id!r} again")
    seen.add(call_id or "")
    if not name:
        faults.append(f"{where} has a call without a name")
    if not isinstance(args, Mapping):
        faults.append(f"{where} has a call whose arguments are no object")
    return faults


def _ids_in_content(message: AIMessage) -> set[str]:
    if not isinstance(message.content, list):
        return set()
    blocks = (block for block in message.content if isinstance(block, Mapping) and block.get("type") in _CALLS)
    return {str(block.get("call_id") or block.get("id")) for block in blocks}


def _is_empty(message: BaseMessage) -> bool:
    content = message.content
    return not content.strip() if isinstance(content, str) else all(_is_empty_text(block) for block in content)


def _is_empty_text(block: str | Mapping[str, Any]) -> bool:
    if isinstance(block, str):
        return not block.strip()
    return block.get("type") == "text" and not str(block.get("text") or "").strip()


def _shown(message: BaseMessage) -> str:
    calls = [f"{call['name']}#{call['id']}" for call in getattr(message, "tool_calls", ())]
    answered = f" answers {message.tool_call_id}" if isinstance(message, ToolMessage) else ""
    return f"{message.type}{answered} {message.text[:60]!r} {' '.join(calls)}".rstrip()


def prompt_bytes(messages: Sequence[BaseMessage]) -> list[bytes]:
    """Return each message of a prompt as bytes, as far as a provider's cache looks at them: no ids, no usage."""
    found = []
    for message in messages:
        data = message_to_dict(message)["data"]
        kept = {key: data.get(key) for key in ("type", "content", "name", "tool_calls", "tool_call_id")}
        found.append(repr(sorted(kept.items(), key=lambda pair: pair[0])).encode("utf-8", "surrogatepass"))
    return found


def shared_prefix(before: Sequence[BaseMessage], after: Sequence[BaseMessage]) -> tuple[int, int, int]:
    """Return how much of a prompt is byte for byte the beginning of the prompt before it.

    Args:
        before: The earlier prompt.
        after: The later prompt.

    Returns:
        Bytes that are the same from the start; bytes that could have been, which is the later prompt without messages
        that are new in it; bytes of the later prompt.

    Example:
        >>> from langchain_core.messages import AIMessage, HumanMessage
        >>> first = [HumanMessage("hello")]
        >>> same, possible, whole = shared_prefix(first, [*first, AIMessage("Hi!"), HumanMessage("bye")])
        >>> same == possible < whole
        True
    """
    old, new = prompt_bytes(before), prompt_bytes(after)
    first, second = b"".join(old), b"".join(new)
    same = 0
    limit = min(len(first), len(second))
    while same < limit and first[same : same + 4096] == second[same : same + 4096]:
        same += min(4096, limit - same)
    while same < limit and first[same] == second[same]:
        same += 1
    known = {message.id for message in before if message.id}
    was = set(old)
    fresh = sum(
        len(part)
        for part, message in zip(new, after, strict=True)
        if part not in was and (message.id not in known if message.id else not isinstance(message, SystemMessage))
    )
    return min(same, len(second)), max(len(second) - fresh, min(same, len(second))), len(second)


def check_extends(before: Sequence[BaseMessage], after: Sequence[BaseMessage]) -> None:
    """Assert that a prompt begins with the whole prompt before it: what a provider's cache wants.

    Raises:
        AssertionError: It does not; the message names the first message that differs.
    """
    old, new = prompt_bytes(before), prompt_bytes(after)
    for at, part in enumerate(old):
        if at >= len(new) or new[at] != part:
            now = _shown(after[at]) if at < len(after) else "nothing"
            raise AssertionError(f"the prompt changed at message {at}: it was {_shown(before[at])}, now it is {now}")
