"""What the methods of observational memory give back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from langchain_mastra_memory.observation.log import JsonValue


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservationGroup:
    """A group of observations, or a reflection.

    Attributes:
        id: Its id.
        kind: `observation` or `reflection`.
        text: The notes.
        tokens: Their size.
        thread_ids: The threads that it is about.
        first_message_id: The first message that it was made from and that is still there.
        last_message_id: The last one.
        messages: How many messages it covers.
        message_tokens: Their size.
        stale: Whether a message that it was made from was edited or deleted since; see `reobserve`.
        created_at: When it was made, aware UTC.
    """

    id: str
    kind: str
    text: str
    tokens: int
    thread_ids: tuple[str, ...]
    first_message_id: str | None
    last_message_id: str | None
    messages: int
    message_tokens: int
    stale: bool
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Observations:
    """The observation log as it is at a position.

    Attributes:
        text: What the agent sees of it.
        tokens: Its size.
        groups: What is in the log, oldest first.
        buffered: What waits behind it.
        pending_reflection: A reflection that waits.
        current_task: What is being worked on.
        suggested_response: How the conversation would go on.
        extracted: The newest value of every extractor.
        pending_tokens: The size of the messages that are not observed yet.
        generation: How often the log was condensed.
        cursor: The id of the last message that the log covers.
        version: The version of the log.
    """

    text: str
    tokens: int
    groups: tuple[ObservationGroup, ...] = ()
    buffered: tuple[ObservationGroup, ...] = ()
    pending_reflection: ObservationGroup | None = None
    current_task: str | None = None
    suggested_response: str | None = None
    extracted: Mapping[str, JsonValue] = field(default_factory=dict)
    pending_tokens: int = 0
    generation: int = 0
    cursor: str | None = None
    version: int = 0

    @property
    def stale(self) -> tuple[ObservationGroup, ...]:
        """The groups that were made from messages that have changed since."""
        return tuple(group for group in self.groups if group.stale)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObserveResult:
    """What `observe` came to.

    Attributes:
        observed: Whether anything was observed or activated.
        groups: The ids of the groups that are new in the log.
        observations: The log afterwards.
        dropped: Why results were dropped because the conversation changed under the call; empty as a rule.
        usage: Tokens of all calls.
    """

    observed: bool
    groups: tuple[str, ...]
    observations: Observations
    dropped: tuple[str, ...] = ()
    usage: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReflectResult:
    """What `reflect` came to.

    Attributes:
        reflected: Whether the log was condensed.
        tokens_before: Its size before.
        tokens_after: Its size afterwards.
        observations: The log afterwards.
        reason: Why nothing changed: `empty` (nothing to condense), `size` (no candidate was smaller), or a conflict.
        usage: Tokens of all calls.
    """

    reflected: bool
    tokens_before: int
    tokens_after: int
    observations: Observations
    reason: str | None = None
    usage: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageTotal:
    """Calls of one kind.

    Attributes:
        calls: How many.
        input_tokens: As the provider counts.
        output_tokens: As the provider counts.
        total_tokens: As the provider counts.
        duration_ms: Milliseconds together.
    """

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    duration_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What the model calls of observational memory cost.

    Attributes:
        total: All calls.
        by_phase: By `observation`, `reflection`.
        by_model: By model name.
        by_outcome: By `committed`, `dropped`, `refused`, `failed`, `empty`, `degenerate`.
        calls: Each call, oldest first: a mapping with phase, outcome, model, tokens, duration, details, time.
    """

    total: UsageTotal
    by_phase: Mapping[str, UsageTotal]
    by_model: Mapping[str, UsageTotal]
    by_outcome: Mapping[str, UsageTotal]
    calls: tuple[Mapping[str, Any], ...]
