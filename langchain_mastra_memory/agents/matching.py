"""Recognise what a client sends again: by id, and by role and content where it sends its history without ids. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langchain_mastra_memory.history.units import call_ids


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
    before what is new. New is the newest human message and what follows it; where the conversation so far ends with a
    call that waits for its result, and the client sends that call again, new is only what follows the call. The order
    must be that of the known messages, from the end backwards; what the client left out (tool calls, results) is
    passed over.

    Args:
        given: What came in, oldest first.
        known: The conversation so far, oldest first.

    Returns:
        Place in `given` to the known message.
    """
    matches = _by_id(given, known)
    earlier = _sent_without_ids(given, known, matches)
    if not earlier:
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


def begins_a_history(given: Sequence[BaseMessage]) -> bool:
    """Return whether what came in may be a history: a human message, later an AI message.

    Under a checkpointer a person may have put an answer alone into the state, with words that stood there before.
    """
    kinds = [message.type for message in given]
    return "human" in kinds and "ai" in kinds[kinds.index("human") :]


def is_found_whole(given: Sequence[BaseMessage], known: Sequence[BaseMessage]) -> bool:
    """Return whether everything that a client sends as its history is among the known messages.

    Where it is not, older messages than the known ones are worth reading.
    """
    earlier = _sent_without_ids(given, known, _by_id(given, known))
    matches = resent(given, known) if earlier else {}
    return all(at in matches for at in earlier if isinstance(given[at], (HumanMessage, AIMessage)))


def _by_id(given: Sequence[BaseMessage], known: Sequence[BaseMessage]) -> dict[int, BaseMessage]:
    by_id = {message.id: message for message in known if message.id}
    return {at: by_id[message.id] for at, message in enumerate(given) if message.id in by_id}


def _sent_without_ids(
    given: Sequence[BaseMessage], known: Sequence[BaseMessage], matches: Mapping[int, BaseMessage]
) -> list[int]:
    """Return the places of a history that a client sends, but for what is matched; nothing where it sends none."""
    waiting = _waiting_call(known)
    newest = next((at for at in range(len(given) - 1, -1, -1) if given[at].type == "human"), len(given))
    called = (at for at in range(len(given) - 1, newest, -1) if waiting and _calls_of(given[at]) == waiting)
    end = next(called, newest - 1) + 1
    earlier = [at for at in range(end) if at not in matches]
    return earlier if any(isinstance(given[at], AIMessage) for at in earlier) else []


def _waiting_call(known: Sequence[BaseMessage]) -> frozenset[str]:
    """Return the ids of the calls that a conversation ends with, if one of them has no result yet; else nothing."""
    answered: set[str] = set()
    for message in reversed(known):
        if isinstance(message, ToolMessage):
            answered.add(message.tool_call_id)
            continue
        calls = _calls_of(message)
        return calls if calls - answered else frozenset()
    return frozenset()


def _calls_of(message: BaseMessage) -> frozenset[str]:
    return frozenset(call_ids(message)) - {""}
