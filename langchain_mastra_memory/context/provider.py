"""How a feature takes part in a run: one small protocol, called by the middleware and by the graph nodes.

```text
run starts ─ start ─┐
                    ├─ begin (once per turn, kept through its tool loop) ─ each_call (before every model call)
run ends ── finish ─┘
```

Working memory, recall and observations each give a `FeatureProvider` (`memory.providers` collects them); the
middleware stays thin and knows none of them by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage
from langchain_core.tools import BaseTool

from langchain_mastra_memory.agents.run_options import RunOptions
from langchain_mastra_memory.context.layers import Contribution, Item
from langchain_mastra_memory.io import IO


def no_writer(_event: object) -> None:
    """Drop an event: what a run without a stream does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where the run stands in the archive: the newest message of its state that is archived.

    Attributes:
        branch: The line of the thread.
        head: The last seq that the run sees on it.
    """

    branch: int
    head: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What is known of the run at a model call, at its start or at its end. Frozen; no I/O.

    Attributes:
        thread_id: The memory thread.
        resource_id: The owner; None when the run names none (thread-scoped features only).
        turn: The id of the turn: the same through its tool loop, an interrupt and a resume.
        options: The per-run switches.
        read_only: Whether nothing may be written (memory, or run).
        checkpointed: Whether the state is the history; otherwise the archive is.
        items: The run's messages, oldest first, with seq and tokens where known. With `checkpointed` this is the whole
            state; without, the run's own messages. Items are made where you look: prefer slices of the end to walking
            the whole of a long thread.
        state: The graph's state, private channels included.
        position: Where the state ends in the archive; None when nothing of it is archived. Reads during the run use
            it instead of the thread's current position.
        now: When the turn began, aware UTC; the same through the turn.
        model: The agent's own model, for features that have none configured.
        writer: Sends an event to the graph's custom stream.
        streams: Whether somebody listens to the custom stream.
        agent: The name of the sub-agent, or None.
        preview: Whether this is a preview: no model calls, nothing written.
    """

    thread_id: str
    resource_id: str | None
    turn: str
    options: RunOptions
    read_only: bool
    checkpointed: bool
    items: Sequence[Item]
    now: datetime
    state: Mapping[str, Any] = field(default_factory=dict)
    position: Position | None = None
    model: BaseChatModel | None = None
    writer: Callable[[Any], None] = no_writer
    streams: bool = False
    agent: str | None = None
    preview: bool = False

    @property
    def messages(self) -> tuple[BaseMessage, ...]:
        """The messages of `items`; cheap even where those are made on demand."""
        known: tuple[BaseMessage, ...] | None = getattr(self.items, "messages", None)
        return tuple(item.message for item in self.items) if known is None else known

    @property
    def question(self) -> BaseMessage | None:
        """The newest human message, or None."""
        return next((item.message for item in reversed(self.items) if item.message.type == "human"), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a run ended.

    Attributes:
        status: `complete`, or `refused` (a guardrail or an exception ended it; nothing of it is remembered).
        saved: The run's messages, oldest first, as they are archived (after `before_save`); empty when refused.
    """

    status: Literal["complete", "refused"]
    saved: tuple[BaseMessage, ...] = ()


class FeatureProvider:
    """The base of a feature's part in a run: override what the feature needs; every method does nothing by default.

    Bodies are written once over an `IO`: sync hooks drive them, async hooks await them.

    Attributes:
        name: The feature, for errors and traces.
        tools: Tools that the agent gets.
        state_schema: Private channels for the middleware's state, or None. Every key is
            `Annotated[T, PrivateStateAttr, reducer]`, the reducer last.
    """

    name: str = "feature"
    tools: Sequence[BaseTool] = ()
    state_schema: type | None = None

    async def start(self, io: IO, run: RunFacts) -> Mapping[str, Any] | None:
        """Return a state update for the start of the run (a step of its own), or None."""
        del io, run
        return None

    async def begin(self, io: IO, run: RunFacts) -> Contribution:
        """Compute what stays the same for the turn: called at its first model call, or again after a restart."""
        del io, run
        return Contribution()

    async def each_call(self, io: IO, run: RunFacts, begun: Contribution) -> Contribution:
        """Return what is shown at this model call, given what `begin` computed (the default: just that)."""
        del io, run
        return begun

    async def finish(self, io: IO, run: RunFacts, outcome: Outcome) -> None:
        """Do what follows a run: index, buffer, name the thread, ... Background work goes to `memory.background`."""
        del io, run, outcome
