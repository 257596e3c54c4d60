"""A model call before and after memory, and the pure decisions about it."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage, SystemMessage
from langchain_core.tools import BaseTool

from langchain_mastra_memory.agents.identity import Identity
from langchain_mastra_memory.context.items import StateItems
from langchain_mastra_memory.context.layers import Contribution, Item, Layers, LeftOut, Prompt, Reason
from langchain_mastra_memory.context.provider import RunFacts, no_writer
from langchain_mastra_memory.errors import ProcessorError
from langchain_mastra_memory.history.options import HistorySource, MessageHistory, function_name
from langchain_mastra_memory.history.units import turn_start
from langchain_mastra_memory.history.window import Boundary, Limits
from langchain_mastra_memory.shown import shown
from langchain_mastra_memory.store.operations.runs import History, Located, StoredBoundary
from langchain_mastra_memory.types import StoredMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What a model call is made of, before memory.

    Attributes:
        identity: Whose run it is.
        turn: The id of the turn.
        messages: The state's messages.
        inputs: Ids of the messages that came in with the run; empty: the newest human message.
        refused: Ids of messages of refused runs.
        again: Ids of earlier answers to a question that was sent again.
        system: The agent's system message.
        tools: The tools that the model sees.
        state: The graph's state.
        model: The agent's model.
        writer: The custom stream.
        streams: Whether somebody listens to it.
        source: Where the history comes from.
        retain_full_input: Take the input as the whole conversation.
        preview: Nothing is written, no model is called.
        checkpoint_id: The checkpoint to stand at (preview only).
    """

    identity: Identity
    turn: str
    messages: tuple[BaseMessage, ...]
    inputs: tuple[str, ...] = ()
    refused: frozenset[str] = frozenset()
    again: frozenset[str] = frozenset()
    system: SystemMessage | None = None
    tools: tuple[BaseTool | Mapping[str, Any], ...] = ()
    state: Mapping[str, Any] = field(default_factory=dict)
    model: BaseChatModel | None = None
    writer: Callable[[Any], None] = no_writer
    streams: bool = False
    source: HistorySource = "auto"
    retain_full_input: bool = False
    preview: bool = False
    checkpoint_id: str | None = None

    @property
    def from_state(self) -> bool:
        """Whether the state is the history."""
        if self.source == "auto":
            return self.identity.state_is_history(self.messages)
        return self.source == "state"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """What memory made of a call.

    Attributes:
        prompt: What the model is sent.
        layers: What went into it.
        left_out: Everything that is not shown, and why.
        hidden_tools: Names of tools that the model is not to see.
        facts: The run as the features saw it.
        tokens: The whole prompt, when there is a budget.
    """

    prompt: Prompt
    layers: Layers
    left_out: tuple[LeftOut, ...]
    hidden_tools: frozenset[str]
    facts: RunFacts
    tokens: float = 0.0


def stored_in_order(history: History) -> list[StoredMessage]:
    """Return the window and what was matched by id, each once, in order."""
    stored = {known.id: known for known in (*history.messages, *history.matched)}
    return sorted(stored.values(), key=lambda known: known.seq)


def input_place(call: Call) -> int:
    """Return the place of the first message that came in with the run; without inputs, of the newest human message."""
    wanted = set(call.inputs)
    first: int | None = None
    for place in range(len(call.messages) - 1, -1, -1):
        if not wanted:
            break
        if call.messages[place].id in wanted:
            wanted.discard(call.messages[place].id or "")
            first = place
    return turn_start(call.messages) if first is None else first


def turn_place(call: Call) -> int:
    """Return the place where the running turn begins: its first input, or the question that its input goes on with.

    A result that comes in without a question belongs to the turn of the newest human message.
    """
    return min(input_place(call), turn_start(call.messages))


def first_shown(
    call: Call,
    start: int,
    *,
    limits: Limits,
    contribution: Contribution,
    facts: RunFacts,
    boundary: Boundary | None,
    gone: Container[str | None],
) -> int:
    """Return a place before which nothing can be shown, so that a long thread costs only its end.

    Args:
        call: The call.
        start: Where the running turn begins.
        limits: The count and the budget.
        contribution: What the features handed in.
        facts: The run as features see it.
        boundary: The stored boundary.
        gone: Ids that are never shown, and so do not count.
    """
    horizon = 0
    if limits.off:
        horizon = start
    elif limits.last_messages:
        counted = (at for at in range(start - 1, -1, -1) if call.messages[at].id not in gone)
        horizon = next(islice(counted, limits.last_messages - 1, None), 0)
    if boundary is not None:
        backwards = range(start - 1, horizon - 1, -1)
        horizon = next((at for at in backwards if call.messages[at].id == boundary.message_id), horizon)
    upto = contribution.covered_upto
    if upto is not None and isinstance(facts.items, StateItems):
        items = facts.items
        backwards = range(start - 1, horizon - 1, -1)
        horizon = next((at for at in backwards if (seq := items.seq(at)) is not None and seq <= upto), horizon)
    return horizon


def not_shown(item: Item, call: Call, repeated: frozenset[str], deleted: frozenset[str]) -> Reason | None:
    """Return why a message of the state is not shown; None for one that is."""
    if item.id in repeated or item.id in call.again:
        return "duplicate"
    if item.id in call.refused:
        return "refused"
    return "deleted" if item.id in deleted else None


def fitting_boundary(known: Sequence[StoredBoundary], limits: Limits) -> Boundary | None:
    """Return the newest boundary that was made for these limits."""
    made = (
        Boundary(
            message_id=stored.message_id,
            seq=stored.seq,
            max_tokens=stored.max_tokens,
            remove_tokens=stored.remove_tokens,
        )
        for stored in known
    )
    return next((boundary for boundary in made if boundary.fits(limits)), None)


def processed(layers: Layers, options: MessageHistory | None) -> Layers:
    """Return the layers after the user's processors.

    Raises:
        ProcessorError: One of them raised, or returned something else.
    """
    for processor in options.processors if options else ():
        try:
            made = processor(layers)
        except Exception as error:
            raise ProcessorError(
                f"the processor {function_name(processor)} raised {type(error).__name__}: {error}"
            ) from error
        if not isinstance(made, Layers):
            raise ProcessorError(f"the processor {function_name(processor)} returned {shown(made, 60)}, not Layers")
        layers = made
    return layers


Marks = tuple[tuple[int, str | None], ...]


def marks_of(messages: Sequence[BaseMessage], count: int) -> Marks:
    """Return places and ids of some of the first `count` messages: first, last, and some between.

    A state only grows at its end, or is changed as a whole: comparing some ids tells whether it begins as before.
    """
    step = max(1, count // 16)
    places = [*range(0, count, step), count - 1] if count else []
    return tuple((place, messages[place].id) for place in places)


def begins(messages: Sequence[BaseMessage], count: int, marks: Marks) -> bool:
    """Return whether a state begins with the `count` messages that `marks` were made of."""
    return len(messages) >= count and all(messages[place].id == message_id for place, message_id in marks)


@dataclass(slots=True)
class Known:
    """What is known of the first `count` messages of a thread's state: right while epoch and edits are the same."""

    epoch: int
    edits: int
    count: int
    marks: Marks
    located: dict[str, Located]
    deleted: set[str]
    edited: dict[str, BaseMessage]
