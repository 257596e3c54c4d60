"""What the archive must know of a run: does it count, and what kind a message is.

A middleware keeps a record of the run in a private state channel (`agents.record`), and the saver reads it in the same
write as the messages. Graphs without the middleware have no record: their messages are archived at once.

| record | rows that the step brings |
|---|---|
| none | ordinary |
| `open` | provisional: `kind="refused"` until the run is complete |
| `complete` | those in `ids` ordinary, as `replaced` says; so are now the provisional ones of this run in `ids` |
| `refused` | `kind="refused"`; the provisional ones stay so |
| `off` | none: nothing of this step enters the archive, and the input that came before the record leaves it again |

A record that was closed before this step, or that an input finds, belongs to the run before; what comes then is the
input of the next one, and is provisional too.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, Final, Literal, TypeAlias

from langchain_core.messages import BaseMessage, messages_from_dict

from langchain_mastra_memory.codec import dump_message

RUN_CHANNEL: Final = "memory_run"
"""The private state channel with the records of the run, by the name of the middleware; see `agents.record`."""

Status: TypeAlias = Literal["final", "open", "complete", "refused", "off"]


@dataclass(frozen=True, slots=True)
class RunReport:
    """What a run's record means for the step.

    Attributes:
        status: As in the table of this module; `final` without a record.
        ids: Ids that become ordinary messages.
        replaced: Bodies to archive instead of what is in the state, by id; None keeps a message out.
        inputs: Ids of what came in with a run that is off.
    """

    status: Status = "final"
    ids: tuple[str, ...] = ()
    replaced: Mapping[str, bytes | None] = field(default_factory=dict)
    inputs: tuple[str, ...] = ()


def dump_replacement(message: BaseMessage | None) -> str | None:
    """Return a message as it may stand in a record's `replaced`: text, since the record is JSON."""
    return None if message is None else b64encode(dump_message(message)).decode()


def load_replacement(value: Any) -> bytes | None:
    """Return the body of a message in `replaced`: of `dump_replacement`, or LangChain's `message_to_dict`."""
    if value is None:
        return None
    if isinstance(value, str):
        return b64decode(value)
    return dump_message(messages_from_dict([dict(value)])[0])


NO_REPORT: Final = RunReport()
"""Of a run that keeps no record."""


def report_of(records: Any, *, moved: bool, source: str) -> RunReport:
    """Return what the records of a checkpoint mean for its step.

    Args:
        records: The value of the channel, or None.
        moved: Whether this step wrote the channel.
        source: The checkpoint's source: `input` (also for the step that takes the input in), `loop`, `update` or
            `fork`.
    """
    found: list[Mapping[str, Any]] = [r for r in (records or {}).values() if r.get("saver")]
    if not found:
        return NO_REPORT
    record = found[0]
    status = record.get("status", "open")
    if status == "open":
        return RunReport("open")
    if status == "off" and (moved or ("end" not in record and source != "input")):
        return RunReport("off", inputs=tuple(record.get("inputs") or ()))
    if not moved:
        return RunReport("final" if source == "update" else "open")
    if status == "complete":
        replaced = {i: load_replacement(value) for i, value in (record.get("replaced") or {}).items()}
        return RunReport("complete", tuple(record.get("ids") or ()), replaced)
    return RunReport("refused")


def kind_of(message: BaseMessage) -> str | None:
    """Return what a message is by itself: `summary` if another middleware made it of older ones, else None."""
    return "summary" if message.additional_kwargs.get("lc_source") == "summarization" else None


def leading_summaries(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Return the summaries that a state begins with: what they stand for was removed from it."""
    return list(takewhile(lambda message: kind_of(message) == "summary", messages))
