"""The record of a run, kept in a private channel of the graph's state.

It travels with the checkpoint, so that an interrupt, a resume in another process and a retry find it, and so that a
`ThreadSaver` learns in the same write as the messages whether the run counts. JSON only.

A run is *open* from its first step until `after_agent` closes it as `complete` or `refused`. Rows that a saver
archives meanwhile are kept as refused, and become ordinary messages when the run is complete. A run that is *off*
leaves nothing in the archive. `threads.runs` says what a saver makes of it.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NotRequired

from langchain.agents.middleware.types import PrivateStateAttr
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from typing_extensions import TypedDict

from langchain_mastra_memory.history.units import last_answers
from langchain_mastra_memory.threads.runs import RUN_CHANNEL, leading_summaries

Status = Literal["open", "complete", "refused", "off"]


class RunRecord(TypedDict, total=False):
    """What is known of a run.

    Attributes:
        turn: The id of the turn.
        status: Where it is.
        saver: Whether a `ThreadSaver` of the same store archives the run's messages.
        inputs: Ids of the messages that came in with the run.
        since: The id behind which everything is the run's; None: from the beginning.
        again: Ids of the answers that the state ended with, where nothing new came in: their question is asked again.
        summaries: Ids of the summaries that the state began with.
        answers: Ids of messages that came through our model hook in this run.
        returning: Names of tools that the model had and whose result ends a run.
        ids: At the end: ids that become ordinary messages.
        end: At the end: the id of the last message of the state.
        replaced: At the end: what `before_save` made of messages, by id; see `threads.runs.dump_replacement`.
        refused: Ids of messages that stay out of prompts: of refused runs, and copies of what was there already.
    """

    turn: str
    status: Status
    saver: bool
    inputs: list[str]
    since: str | None
    again: list[str]
    summaries: list[str]
    answers: list[str]
    returning: list[str]
    ids: list[str]
    end: str | None
    replaced: dict[str, str | None]
    refused: list[str]


Records = dict[str, RunRecord]
"""Records by the name of the middleware, so that two memories in one graph do not mix."""


__all__ = [
    "RUN_CHANNEL",
    "RunRecord",
    "RunState",
    "is_complete",
    "merge_records",
    "opened",
    "record_of",
]


def merge_records(left: Records | None, right: Mapping[str, RunRecord] | None) -> Records:
    """Return the records with new ones: a new turn replaces, the same turn is filled in, answers add up."""
    merged: Records = dict(left or {})
    for name, new in (right or {}).items():
        old = merged.get(name)
        if old is None or ("turn" in new and new["turn"] != old.get("turn")):
            merged[name] = new
            continue
        both: RunRecord = {**old, **new}
        both["answers"] = list(dict.fromkeys([*old.get("answers", ()), *new.get("answers", ())]))
        if "returning" in both:
            both["returning"] = list(dict.fromkeys([*old.get("returning", ()), *new.get("returning", ())]))
        merged[name] = both
    return merged


class RunState(TypedDict):
    """The channel: private to the middleware, the reducer last."""

    memory_run: NotRequired[Annotated[dict[str, Any], PrivateStateAttr, merge_records]]


def opened(previous: RunRecord, messages: Sequence[BaseMessage], *, saver: bool, off: bool = False) -> RunRecord:
    """Return the record of a run that begins.

    What came in with it are the messages behind the last run's end. Where that run never ended, they are the messages
    at the end that no model and no tool wrote and that were not its own input; what it left is saved with the next run
    that is complete, unless it was off.

    Args:
        previous: The record of the last run; empty for the first.
        messages: The state's messages.
        saver: Whether a `ThreadSaver` of the same store archives the run.
        off: Whether nothing of the run is archived.
    """
    closed = previous.get("status") in ("complete", "refused", "off") and "end" in previous
    end = _end_of(previous, messages) if closed else None
    first = next((at + 1 for at in range(len(messages) - 1, -1, -1) if messages[at].id == end), None)
    if end is None or first is None:
        earlier = set() if closed else set(previous.get("inputs", ()))
        first = len(messages)
        while first and _may_come_in(messages[first - 1]) and messages[first - 1].id not in earlier:
            first -= 1
    else:
        first += _put_in_between(messages[first:])
    # What a refused run found unsaved is still to be saved; its own messages stay out by their ids.
    since = end if closed and previous.get("status") != "refused" else previous.get("since")
    if previous.get("status") == "off" and not closed and first:
        since = messages[first - 1].id
    refused = previous.get("refused", ())
    known = {message.id for message in messages} if refused else set()
    summaries = [summary.id or "" for summary in leading_summaries(messages)]
    made: RunRecord = {
        "turn": str(uuid.uuid4()),
        "status": "off" if off else "open",
        "saver": saver,
        "inputs": [message.id or "" for message in messages[first:]],
        "since": since,
        "answers": [],
        "refused": [gone for gone in refused if gone in known],
    }
    if summaries:
        made["summaries"] = summaries
    if closed and messages and messages[-1].id == end:
        made["again"] = [answer.id or "" for answer in last_answers(messages)]
    return made


def _end_of(previous: RunRecord, messages: Sequence[BaseMessage]) -> str | None:
    """Return the id of the last message of a closed run; where that was removed since, of the last that is left."""
    end = previous.get("end")
    own = {*previous.get("inputs", ()), *previous.get("ids", ())}
    if any(message.id == end for message in reversed(messages)):
        return end
    return next((message.id for message in reversed(messages) if message.id in own), end)


def _put_in_between(messages: Sequence[BaseMessage]) -> int:
    """Return how many answers a person put into the state before a question came in: a client sends no such thing.

    Where more answers follow behind the question, a client sends its history.
    """
    said = next((at for at, message in enumerate(messages) if not isinstance(message, AIMessage)), len(messages))
    asked = said < len(messages) and messages[said].type == "human"
    return said if asked and not any(isinstance(message, AIMessage) for message in messages[said:]) else 0


def _may_come_in(message: BaseMessage) -> bool:
    return not isinstance(message, (AIMessage, ToolMessage))


def record_of(state: Mapping[str, Any], name: str) -> RunRecord:
    """Return the record of a middleware in a state; empty when there is none."""
    records: Records = state.get(RUN_CHANNEL) or {}
    return records.get(name, RunRecord())


def is_complete(messages: Sequence[BaseMessage], record: RunRecord, *, structured: bool) -> bool:
    """Return whether a run ended with an answer that counts.

    Args:
        messages: The state's messages at the end.
        record: The run's record.
        structured: Whether the state has a structured response.

    Returns:
        True when the last message came through our model hook in this run and calls nothing, or is the result of a
        `return_direct` tool that such a message called, or is part of a structured response.
    """
    if not messages:
        return False
    answers = set(record.get("answers", ()))
    last = messages[-1]
    if isinstance(last, AIMessage):
        return last.id in answers and (not last.tool_calls or structured)
    if isinstance(last, ToolMessage):
        if last.id in answers:
            return True
        caller = next(
            (
                message
                for message in reversed(messages)
                if isinstance(message, AIMessage)
                and any(call["id"] == last.tool_call_id for call in message.tool_calls)
            ),
            None,
        )
        called = {call["id"]: call["name"] for call in caller.tool_calls} if caller else {}
        return (
            caller is not None and caller.id in answers and called.get(last.tool_call_id) in record.get("returning", ())
        )
    return False
