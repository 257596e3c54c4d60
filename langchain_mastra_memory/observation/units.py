"""Where a range may end: units of messages, the running turn, legal ends.

A unit is an AI message with the results of all its tool calls; every other message is a unit of its own. A range may
end where a unit ends, before the running turn, and not behind an open tool call unless a later human or AI message
shows that it will never be answered (a run that crashed). Inside a long tool loop the closed units of the running turn
but the newest may end a range too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from langchain_mastra_memory.observation.log import MessageFact


@dataclass(frozen=True, slots=True)
class Unit:
    """A run of messages that stays together.

    Attributes:
        start: Index of its first message.
        end: Index behind its last message.
        closed: Whether every tool call in it is answered or given up.
    """

    start: int
    end: int
    closed: bool


def units(messages: Sequence[MessageFact]) -> list[Unit]:
    """Split messages into units, in order; interleaved units are one."""
    found: list[Unit] = []
    start = 0
    while start < len(messages):
        last, index, answered = start, start, True
        while index <= last:
            for call in messages[index].calls:
                place = _answer(messages, index, call)
                answered = answered and place is not None
                last = max(last, place or 0)
            index += 1
        found.append(Unit(start, last + 1, answered or _spoken_after(messages, last + 1)))
        start = last + 1
    return found


def running_from(messages: Sequence[MessageFact]) -> int:
    """Return the index where the running turn starts, or the number of messages if the last turn is closed.

    A turn is closed when the last message of the conversation is an AI message without calls. It starts with the last
    human message, and with the signals right before it, which announce it; when no human message is in sight, the
    question stands before them and all of them belong to its turn.
    """
    spoken = [i for i, m in enumerate(messages) if not m.hidden and m.role != "system"]
    if not spoken or (messages[spoken[-1]].role == "ai" and not messages[spoken[-1]].calls):
        return len(messages)
    questions = [i for i in spoken if messages[i].role == "human"]
    start = questions[-1] if questions else 0
    while start > 0 and messages[start - 1].hidden:
        start -= 1
    return start


def question_at(messages: Sequence[MessageFact]) -> int | None:
    """Return the index of the running question, or None if no turn is running."""
    running = range(running_from(messages), len(messages))
    return next((i for i in running if messages[i].role == "human" and not messages[i].hidden), None)


def closed_ends(messages: Sequence[MessageFact]) -> list[int]:
    """Return the indices behind the closed units before the running turn: where a range may end."""
    limit, ends = running_from(messages), []
    for unit in units(messages):
        if not unit.closed or unit.end > limit:
            break
        ends.append(unit.end)
    return ends


def loop_ends(messages: Sequence[MessageFact]) -> list[int]:
    """Return the indices behind the closed units of the running turn but the newest: legal when nothing else helps."""
    if running_from(messages) == len(messages):
        return []
    question, ends = question_at(messages), []
    for unit in units(messages)[:-1]:
        if not unit.closed:
            break
        if question is None or unit.start > question:
            ends.append(unit.end)
    return ends


def is_legal_end(messages: Sequence[MessageFact], upto: int, *, in_loop: bool = False) -> bool:
    """Return whether a range may end at this seq.

    Args:
        messages: The messages in view behind the start of the range.
        upto: The seq of the last message of the range.
        in_loop: Whether the closed units of the running turn count.
    """
    ends = closed_ends(messages) + (loop_ends(messages) if in_loop else [])
    return any(messages[end - 1].seq == upto for end in ends)


def _spoken_after(messages: Sequence[MessageFact], index: int) -> bool:
    return any(not m.hidden and m.role in {"human", "ai"} for m in messages[index:])


def _answer(messages: Sequence[MessageFact], index: int, call: str) -> int | None:
    for place in range(index + 1, len(messages)):
        message = messages[place]
        if message.answers == call:
            return place
        if call in message.calls:  # the id is used again: the first call was given up
            return None
    return None
