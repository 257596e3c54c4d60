"""Units: the pieces of a conversation that stay together or go together.

An AI message with tool calls and all its results are one unit, parallel calls included, wherever the results were
saved. An AI message that has only reasoning belongs to the AI message that follows it. Everything else is a unit of
its own. Pure functions over messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage


@dataclass(frozen=True, slots=True)
class Unit:
    """Messages that belong together, by their places in the list that was cut.

    Attributes:
        places: Indexes into the list, ascending; the first is where the unit stands.
        open_calls: Ids of tool calls of the unit that have no result.
    """

    places: tuple[int, ...]
    open_calls: frozenset[str] = frozenset()

    @property
    def first(self) -> int:
        """Where the unit stands."""
        return self.places[0]

    @property
    def last(self) -> int:
        """Where its last message stands."""
        return self.places[-1]


_NONE: Final = frozenset[str]()


def call_ids(message: BaseMessage) -> tuple[str, ...]:
    """Return the ids of the tool calls that a message makes, in order."""
    if not isinstance(message, AIMessage):
        return ()
    return tuple(call["id"] or "" for call in message.tool_calls)


def cut(messages: Sequence[BaseMessage]) -> list[Unit]:
    """Cut a conversation into units, in the order of their first messages.

    A result belongs to the nearest AI message before it that calls with its id and has no result for it yet. A result
    without such a call is a unit of its own (`repair` leaves it out).

    Args:
        messages: A conversation, oldest first, in any state of disorder.

    Returns:
        Units; each place is in exactly one.
    """
    owner: dict[int, int] = {}  # place of a result, or of reasoning -> place of the message that it belongs to
    unanswered: dict[int, set[str]] = {}
    callers: dict[str, list[int]] = {}
    waiting: list[int] = []  # reasoning that waits for its message
    for place, message in enumerate(messages):
        if isinstance(message, ToolMessage):
            call = message.tool_call_id
            for caller in reversed(callers.get(call, ())):
                if call in unanswered[caller]:
                    unanswered[caller].discard(call)
                    owner[place] = caller
                    break
            continue
        if isinstance(message, AIMessage):
            if is_only_reasoning(message):
                waiting.append(place)
                continue
            for before in waiting:
                owner[before] = place
            if message.tool_calls:
                calls = call_ids(message)
                unanswered[place] = set(calls)
                for call in calls:
                    callers.setdefault(call, []).append(place)
        waiting.clear()
    if not owner:
        return [Unit((place,), frozenset(unanswered.get(place, _NONE))) for place in range(len(messages))]
    members: dict[int, list[int]] = {}  # in the order of their first places, each ascending
    for place in range(len(messages)):
        members.setdefault(owner.get(place, place), []).append(place)
    return [Unit(tuple(places), frozenset(unanswered.get(head, _NONE))) for head, places in members.items()]


def is_only_reasoning(message: AIMessage) -> bool:
    """Return whether an AI message has reasoning and nothing else."""
    if isinstance(message.content, str) or message.tool_calls or message.invalid_tool_calls:
        return False
    kinds = [_kind(block) for block in message.content]
    return bool(kinds) and all(kind in REASONING for kind in kinds)


REASONING = frozenset({"reasoning", "thinking", "redacted_thinking"})
"""Types of content blocks that are a model's reasoning, for every provider."""


def turn_start(messages: Sequence[BaseMessage]) -> int:
    """Return the place where the running turn begins: its newest human message.

    The last human message and what follows it always stay in the prompt. Without a human message the turn is empty
    and begins at the end.
    """
    return next((at for at in range(len(messages) - 1, -1, -1) if messages[at].type == "human"), len(messages))


def last_answers(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Return the AI messages that a conversation ends with, newest first; nothing where it has none but these."""
    found = list(takewhile(lambda message: isinstance(message, AIMessage), reversed(messages)))
    return found if len(found) < len(messages) else []


def _kind(block: str | Mapping[str, object]) -> str:
    return "text" if isinstance(block, str) else str(block.get("type", ""))


def joined(units: Iterable[Unit]) -> list[int]:
    """Return the places of units, ascending."""
    return sorted(place for unit in units for place in unit.places)
