"""What to do before a model call: the activation rule.

With P the raw tokens behind the log, counted now, and M, B, R, X of the options (message tokens, buffer tokens,
retention floor, block after):

1. at the threshold, idle, or after a change of provider: activate buffered rows, as many as `choose` says;
2. at the threshold with nothing buffered, or still over it: observe, blocking, what is closed before the question;
   in a tool loop, if that is less than B or does not bring the messages below the threshold, the closed units of the
   running turn but the newest too;
3. reflection likewise: buffer at a share of its threshold, activate at it, block behind it;
4. when the closed messages that nobody has buffered hold B: buffer them in the background.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from langchain_mastra_memory.observation.log import MessageFact
from langchain_mastra_memory.observation.units import closed_ends, loop_ends, running_from, units

FLOOR: Final = 1000
"""Tokens that an activation leaves at least, unless the retention floor is lower or one row covers everything."""

OVERSHOOT: Final = 0.95
"""How far below the retention floor an activation may go, as a share of it, before it takes one row less."""

GROWTH: Final = 1.25
"""A log that a reflector could not shrink is tried again when it has grown by a quarter."""

Trigger = Literal["threshold", "ttl", "provider_change"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The options in tokens.

    Attributes:
        message_tokens: M: raw tokens at which observations activate.
        buffer_tokens: B: closed tokens at which the background observes; None: never.
        retention: R: raw tokens that an activation leaves.
        block_after: X: raw tokens above which an activation may leave less.
        observation_tokens: O: tokens of the log at which reflections activate.
        reflect_from: Tokens of the log at which the background reflects; None: never.
        reflect_block: Tokens of the log at which a reflection blocks.
        share: Whether messages may use what the log leaves of M + O.
    """

    message_tokens: int
    buffer_tokens: int | None
    retention: int
    block_after: int
    observation_tokens: int
    reflect_from: int | None
    reflect_block: int
    share: bool = False

    def threshold(self, log_tokens: int) -> int:
        """Return the raw tokens at which observing is due, given the size of the log."""
        if not self.share:
            return self.message_tokens
        return max(self.message_tokens, self.message_tokens + self.observation_tokens - log_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """The raw messages of one thread, split where a range may end.

    Attributes:
        pending: P: tokens of the raw messages behind the log, the running turn included.
        closed: Messages that may be observed now: closed, before the running turn, not buffered.
        loop: Those and the closed units of the running turn but the newest; empty outside a tool loop.
    """

    pending: int
    closed: tuple[MessageFact, ...]
    loop: tuple[MessageFact, ...] = ()

    @property
    def closed_tokens(self) -> int:
        """Tokens that may be observed now."""
        return tokens(self.closed)


def tokens(messages: Sequence[MessageFact]) -> int:
    """Return the size of messages."""
    return sum(message.tokens for message in messages)


def tail(messages: Sequence[MessageFact], cursor: int, buffered_to: int) -> Tail:
    """Split the messages of a thread behind its cursor.

    Args:
        messages: The messages in view behind the cursor (or more), in order; unsaved ones have no seq.
        cursor: The last seq that the log covers.
        buffered_to: The last seq that the log or the buffer covers.
    """
    raw = [m for m in messages if m.seq is None or m.seq > cursor]
    behind = [m for m in messages if m.seq is None or m.seq > buffered_to]
    ends = closed_ends(behind)
    loop = loop_ends(behind)
    return Tail(
        pending=tokens(raw),
        closed=tuple(behind[: ends[-1]]) if ends else (),
        loop=tuple(behind[: loop[-1]]) if loop else (),
    )


def choose(rows: Sequence[int], pending: int, limits: Limits) -> int:
    """Return how many buffered rows to activate.

    Args:
        rows: Message tokens of the buffered rows, oldest first.
        pending: Raw tokens behind the log, counted now.
        limits: The options.

    Returns:
        The smallest number that leaves at most the retention floor, or one less if that would leave too little: below
        `min(1000, R)`, or below the floor by more than 95 % of it while `pending` is under `block_after`. At least 1.
    """
    target = pending - limits.retention
    total = 0
    for count, size in enumerate(rows, start=1):
        total += size
        if total < target:
            continue
        left, over = pending - total, total - target
        enough = left >= min(FLOOR, limits.retention)
        if count == 1 or (enough and (over <= OVERSHOOT * limits.retention or pending >= limits.block_after)):
            return count
        return count - 1
    return len(rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What to do about messages before a model call.

    Attributes:
        activate: How many buffered rows to activate.
        trigger: Why.
        observe: What to observe first, blocking: closed messages, or those of the running tool loop too.
    """

    activate: int = 0
    trigger: Trigger = "threshold"
    observe: Literal["closed", "loop"] | None = None


def plan_messages(
    limits: Limits,
    tail: Tail,
    buffered: Sequence[int],
    log_tokens: int,
    *,
    idle: bool = False,
    provider_change: bool = False,
) -> Step:
    """Decide what happens before a model call: rules 1 and 2."""
    due = tail.pending >= limits.threshold(log_tokens)
    if buffered and (due or idle or provider_change):
        trigger: Trigger = "threshold" if due else "ttl" if idle else "provider_change"
        return Step(activate=choose(buffered, tail.pending, limits), trigger=trigger)
    if not due:
        return Step()
    least = limits.buffer_tokens or 1
    helps = tail.pending - tail.closed_tokens < limits.threshold(log_tokens)
    if tail.closed and tail.closed_tokens >= least and (helps or not tail.loop):
        return Step(observe="closed")
    if tail.loop and tokens(tail.loop) >= least:
        return Step(observe="loop")
    return Step()


def should_buffer(limits: Limits, tail: Tail) -> bool:
    """Decide whether the background observes the closed messages that nobody has buffered: rule 4."""
    return limits.buffer_tokens is not None and bool(tail.closed) and tail.closed_tokens >= limits.buffer_tokens


ReflectStep = Literal["activate", "block", "buffer"]


def plan_reflection(
    limits: Limits,
    log_tokens: int,
    *,
    rows: int,
    pending: bool,
    refused_at: int | None = None,
    early: bool = False,
) -> ReflectStep | None:
    """Decide what happens to the log: rule 3.

    Args:
        limits: The options.
        log_tokens: The size of the log as the model sees it.
        rows: How many rows it has.
        pending: Whether a reflection waits for these rows.
        refused_at: The size of the log when a reflector last failed to make it smaller.
        early: Whether a waiting reflection is due by idle time or change of provider.
    """
    if pending:
        return "activate" if early or log_tokens >= limits.observation_tokens else None
    if not rows or (refused_at is not None and log_tokens < refused_at * GROWTH):
        return None
    block = limits.observation_tokens if limits.reflect_from is None else limits.reflect_block
    if log_tokens >= block:
        return "block"
    if limits.reflect_from is not None and log_tokens >= limits.reflect_from:
        return "buffer"
    return None


def batches(messages: Sequence[MessageFact], limit: int) -> list[tuple[MessageFact, ...]]:
    """Split messages into ranges of at most `limit` tokens that each end where a unit ends.

    A single unit over the limit is a range of its own: its call is made in parts.
    """
    found: list[tuple[MessageFact, ...]] = []
    start, size = 0, 0
    for unit in units(messages):
        weight = tokens(messages[unit.start : unit.end])
        if size and size + weight > limit:
            found.append(tuple(messages[start : unit.start]))
            start, size = unit.start, 0
        size += weight
    if start < len(messages):
        found.append(tuple(messages[start:]))
    return found


def is_tool_loop(messages: Sequence[MessageFact]) -> bool:
    """Return whether the running turn has made tool calls already."""
    return any(message.calls for message in messages[running_from(messages) :])
