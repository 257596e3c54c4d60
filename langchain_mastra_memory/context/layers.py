"""The layers of a prompt, as plain data: what the features hand in and what the assembly works on.

```text
features ── Contribution ──┐
state or archive ── Item ──┼── window (history/window.py) ── Layers ── processors ── assembly ── Prompt
call ── system, context ───┘
```

A `Layer` is finished text: inside its own closed tags, with the data in it neutralised (`context/tags.py`). Nothing
here is ever stored.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal

from langchain_core.messages import BaseMessage, SystemMessage

from langchain_mastra_memory.types import StoredMessage

Origin = Literal["history", "recall", "signal", "context", "turn"]
"""Where a message of the conversation comes from: remembered, found by recall, a state signal or gap marker, given
for this call only, or the running turn (the new user message and what followed it)."""

Reason = Literal["count", "budget", "boundary", "covered", "refused", "deleted", "repaired", "processor", "duplicate"]
"""Why a message is not in the prompt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A piece of injected text.

    Attributes:
        name: What it is, for previews and traces: `working_memory`, `recalled`, `observations`, `current_task`, ...
        text: The data: closed tags, data neutralised. Where it stands depends on the layout.
        guide: How to read the data or use the tool; it does not change from turn to turn and stays in the system
            text in both layouts.
    """

    name: str
    text: str = ""
    guide: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A message of the conversation and what is known of it.

    Attributes:
        message: The LangChain message.
        origin: Where it comes from.
        seq: Its place in the archive; None while it is not archived.
        tokens: Its size; None when it has not been counted.
        created_at: When it was archived, aware UTC.
    """

    message: BaseMessage
    origin: Origin = "history"
    seq: int | None = None
    tokens: float | None = None
    created_at: datetime | None = None

    @property
    def id(self) -> str:
        """The id of the message, empty when it has none."""
        return self.message.id or ""

    @classmethod
    def of(cls, stored: StoredMessage, origin: Origin = "history") -> Item:
        """Return the item of a stored message."""
        return cls(
            message=stored.message,
            origin=origin,
            seq=stored.seq,
            tokens=stored.tokens or None,
            created_at=stored.created_at,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """A message that memory itself puts into the conversation (a state signal, a gap marker).

    Attributes:
        message: What is shown; usually a HumanMessage with tagged text.
        before: The id of the message that it stands before. It is shown exactly when that message is.
        always: Whether it is shown before the running turn when that message is not: the newest word on a state.
    """

    message: BaseMessage
    before: str
    always: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A message that is not in the prompt, and why.

    Attributes:
        id: The message's id.
        reason: The rule that left it out.
        role: `human`, `ai`, `tool` or `system`.
        text: Its first 80 characters.
    """

    id: str
    reason: Reason
    role: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contribution:
    """What a feature hands in for a model call. Everything is optional.

    Attributes:
        working_memory: The page and how to use it.
        recalled_other: Messages of other threads of the resource, as one text.
        recalled_same: Messages of this thread that were found; whole tool pairs, oldest first.
        observations: The observation log, the current task, the suggested response: one layer each, in that order.
        continuation: Said once before the history, when observations replaced older messages.
        volatile: What changes from turn to turn anyway, such as today's date: last in the system text, or in the
            block before the new message.
        covered_upto: Messages of this thread's view with `seq <=` this are in the observations and left out.
        covered_ids: Messages without a seq yet (the running turn) that are in the observations and left out.
        pinned: Ids that stay in the prompt although covered.
        signals: State signals and gap markers.
        uncapped: Whether the default count of messages does not apply (observations are on).
        hidden_tools: Names of tools that the model is not to see in this call.
        shown: Told, where a count or a budget may have left messages out, whether the prompt has one, by its id; and
            whether the conversation has it that the prompt was chosen from.
    """

    working_memory: Layer | None = None
    recalled_other: Layer | None = None
    recalled_same: tuple[StoredMessage, ...] = ()
    observations: tuple[Layer, ...] = ()
    continuation: Layer | None = None
    volatile: tuple[Layer, ...] = ()
    covered_upto: int | None = None
    covered_ids: frozenset[str] = frozenset()
    pinned: frozenset[str] = frozenset()
    signals: tuple[Signal, ...] = ()
    uncapped: bool = False
    hidden_tools: frozenset[str] = frozenset()
    shown: Callable[[Container[str], Container[str] | None], None] | None = None

    @staticmethod
    def merged(parts: Sequence[Contribution]) -> Contribution:
        """Return the contributions of all features as one; each single layer has one feature that makes it."""
        whole = Contribution()
        for part in parts:
            whole = replace(
                whole,
                working_memory=part.working_memory or whole.working_memory,
                recalled_other=part.recalled_other or whole.recalled_other,
                recalled_same=whole.recalled_same + part.recalled_same,
                observations=whole.observations + part.observations,
                continuation=part.continuation or whole.continuation,
                volatile=whole.volatile + part.volatile,
                covered_upto=part.covered_upto if part.covered_upto is not None else whole.covered_upto,
                covered_ids=whole.covered_ids | part.covered_ids,
                pinned=whole.pinned | part.pinned,
                signals=whole.signals + part.signals,
                uncapped=whole.uncapped or part.uncapped,
                hidden_tools=whole.hidden_tools | part.hidden_tools,
                shown=part.shown or whole.shown,
            )
        return whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """Everything that goes into one prompt, before it is written: what processors get and give back.

    Attributes:
        instructions: The agent's own system message, parts and cache markers as the user made them.
        call_system: Text for this call only.
        working_memory: The page and how to use it.
        recalled_other: Messages of other threads.
        observations: The observation log and its hints.
        continuation: Said before the history when observations replaced messages.
        volatile: What changes from turn to turn anyway.
        conversation: History, recalled messages and signals by seq, then the call's context, then the running turn.
    """

    instructions: SystemMessage | None = None
    call_system: str = ""
    working_memory: Layer | None = None
    recalled_other: Layer | None = None
    observations: tuple[Layer, ...] = ()
    continuation: Layer | None = None
    volatile: tuple[Layer, ...] = ()
    conversation: tuple[Item, ...] = ()

    def without(self, drop: frozenset[str]) -> Layers:
        """Return the same layers without the messages of these ids."""
        return replace(self, conversation=tuple(item for item in self.conversation if item.id not in drop))


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A layer of a finished prompt.

    Attributes:
        name: `instructions`, `call_system`, `working_memory`, `recalled_other`, `observations`, `continuation`,
            `history`, `recalled`, `signals`, `context`, `turn`.
        text: What the model sees of it.
        tokens: Its size.
        where: In which message it stands: `system`, `conversation` or `last human message`.
        messages: How many messages it has; 0 for text inside another message.
    """

    name: str
    text: str
    tokens: float
    where: str
    messages: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What the model is sent.

    Attributes:
        system: The system message, or None.
        messages: The conversation.
        left_out: What is not shown, and why.
    """

    system: SystemMessage | None
    messages: tuple[BaseMessage, ...]
    left_out: tuple[LeftOut, ...] = field(default=())
