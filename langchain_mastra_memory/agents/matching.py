"""Recognise what a client sends again: by id, and by role and content where it sends its history without ids. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage


def sameness(message: BaseMessage) -> tuple[object, ...]:
    """Return what makes two messages the same to a client: role, text, calls, attachments; never their ids."""
    content = message.content
    if isinstance(content, list):
        texts = [part if isinstance(part, str) else str(part.get("text", "")) for part in content if _is_text(part)]
        others = [
            repr(sorted(part.items(), key=str)) for part in content if not _is_text(part) and isinstance(part, dict)
        ]
        key: object = ("".join(texts).strip(), tuple(others))
    else:
        key = (content.strip(), ())
    calls = (
        tuple((call["name"], repr(call["args"])) for call in message.tool_calls)
        if isinstance(message, AIMessage)
        else ()
    )
    result = message.tool_call_id if isinstance(message, ToolMessage) else None
    return message.type, key, calls, result


def _is_text(part: str | dict[str, object]) -> bool:
    return isinstance(part, str) or part.get("type") == "text"


def resent(given: Sequence[BaseMessage], known: Sequence[BaseMessage]) -> dict[int, BaseMessage]:
    """Return which of the given messages are known ones sent again.

    By id first. By content only when the client evidently sends a history: there is an AI message among what it sends
    before its newest human message. The order must be that of the known messages, from the end backwards; what the
    client left out (tool calls, results) is passed over. The newest human message and what follows it is always new.

    Args:
        given: What came in, oldest first.
        known: The conversation so far, oldest first.

    Returns:
        Place in `given` to the known message.
    """
    by_id = {message.id: message for message in known if message.id}
    matches = {at: by_id[message.id] for at, message in enumerate(given) if message.id in by_id}
    newest = next((at for at in range(len(given) - 1, -1, -1) if given[at].type == "human"), len(given))
    earlier = [at for at in range(newest) if at not in matches]
    if not any(isinstance(given[at], AIMessage) for at in earlier):
        return matches
    keys = [sameness(message) for message in known]
    limit = len(known)
    for at in reversed(earlier):
        later = [place for place, message in matches.items() if place > at and message.id]
        if later:
            nearest = matches[min(later)]
            limit = min(limit, next((i for i, message in enumerate(known) if message is nearest), limit))
        key = sameness(given[at])
        found = next((place for place in range(limit - 1, -1, -1) if keys[place] == key), None)
        if found is not None:
            matches[at] = known[found]
            limit = found
    return matches
