"""The observation log as plain data: rows, heads, paths, and what can be said of them without a database.

A row covers a half-open range of one thread (`after < seq <= upto`); a reflection covers what its inputs cover. A head
is one version of a log: which rows are in it, which are buffered behind it, which reflection waits. Rows and heads are
never changed. What a row's state is follows from the list that names it, and a thread's cursor is the highest `upto`
in the log: nothing derived is stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

START: Final = -1
"""The cursor of a thread of which nothing was observed: before every seq."""

JsonValue = str | int | float | bool | None | Sequence["JsonValue"] | Mapping[str, "JsonValue"]
"""What an extracted value may be."""

Phase = Literal["observation", "reflection"]


@dataclass(frozen=True, slots=True)
class Span:
    """A range of one thread: the messages with `after < seq <= upto` on the path that ends in `branch`.

    Attributes:
        thread: The thread's key in the database.
        branch: The branch that the last message was written on.
        after: The `upto` of the range before, or `START`.
        upto: The seq of the last message.
    """

    thread: int
    branch: int
    after: int
    upto: int


@dataclass(frozen=True, slots=True)
class Hints:
    """What an observer says beside its observations.

    Attributes:
        current_task: What is being worked on.
        suggested_response: How the conversation would go on.
        thread_title: A suggested title.
    """

    current_task: str | None = None
    suggested_response: str | None = None
    thread_title: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRow:
    """An observation group, or a reflection, which names the rows that it replaces.

    Attributes:
        id: A random id.
        covers: What it covers: one span for an observation, one per thread for a reflection.
        inputs: The ids of the rows that a reflection was made from; empty for an observation.
        text: The observations; empty for a range that a hook emptied on purpose.
        tokens: The size of the text.
        message_tokens: The size of the messages that it covers.
        messages: How many messages it covers.
        hints: Current task, suggested response and title.
        hinted: Whether the call was asked for hints: then hints that are missing clear the older ones.
        extracted: Values of extractors by slug.
        first_at: Time of the first message, microseconds UTC.
        last_at: Time of the last message, microseconds UTC.
        created_at: When it was made, microseconds UTC.
        model: The model that wrote it.
        origin: In a clone inside one resource: the row that it is a copy of.
        stale: A message that it was made from was edited or deleted since.
        generation: How often what it says was condensed: 0 for an observation.
    """

    id: str
    covers: tuple[Span, ...]
    inputs: tuple[str, ...] = ()
    text: str = ""
    tokens: int = 0
    message_tokens: int = 0
    messages: int = 0
    hints: Hints = Hints()
    hinted: bool = False
    extracted: Mapping[str, JsonValue] = field(default_factory=dict)
    first_at: int | None = None
    last_at: int | None = None
    created_at: int = 0
    model: str | None = None
    origin: str | None = None
    stale: bool = False
    generation: int = 0

    @property
    def is_reflection(self) -> bool:
        """Whether it replaces other rows."""
        return bool(self.inputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """One version of a log.

    Attributes:
        epoch: A random word, new after a clear or a deletion: versions of different epochs have nothing in common.
        version: Grows by one with every head of the epoch, on whichever line.
        line: The branch in thread scope, 0 in resource scope.
        at: The last seq of the thread's view when it was written; 0 in resource scope.
        log: The ids of the rows that the model sees, oldest first.
        buffered: The ids of the rows that wait behind them.
        pending: The id of a reflection that waits.
    """

    epoch: str
    version: int
    line: int = 0
    at: int = 0
    log: tuple[str, ...] = ()
    buffered: tuple[str, ...] = ()
    pending: str | None = None


@dataclass(frozen=True, slots=True)
class Path:
    """The view of one thread: its branches with the last seq seen of each, oldest first.

    Attributes:
        thread: The thread's key.
        steps: `((branch, last seq), ...)`; the last one is the branch that the position stands on.
    """

    thread: int
    steps: tuple[tuple[int, int], ...]

    def shows(self, branch: int, seq: int) -> bool:
        """Return whether a message of the branch is on this path."""
        return any(step == branch and seq <= last for step, last in self.steps)

    def continues(self, other: Path) -> bool:
        """Return whether this is the other path, or that path with more at its end."""
        return (
            self.thread == other.thread
            and self.branch == other.branch
            and self.steps[:-1] == other.steps[:-1]
            and self.head >= other.head
        )

    @property
    def branch(self) -> int:
        """The branch that the position stands on."""
        return self.steps[-1][0]

    @property
    def head(self) -> int:
        """The last seq in view."""
        return self.steps[-1][1]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogState:
    """A head with the rows that it names and the paths of its threads.

    Attributes:
        head: The newest version.
        rows: Every row that the head names, their inputs, and rows that could join again.
        paths: The present view of each thread of the scope, by key.
        movable: Whether a head may be written here: not at a position inside a branch, until it has a branch.
    """

    head: Head
    rows: Mapping[str, LogRow]
    paths: Mapping[int, Path]
    movable: bool = True

    def named(self, ids: Iterable[str]) -> list[LogRow]:
        """Return the rows of these ids."""
        return [self.rows[i] for i in ids]

    @property
    def log(self) -> list[LogRow]:
        """The rows that the model sees."""
        return self.named(self.head.log)

    @property
    def buffered(self) -> list[LogRow]:
        """The rows that wait."""
        return self.named(self.head.buffered)

    @property
    def pending(self) -> LogRow | None:
        """The reflection that waits."""
        return self.rows[self.head.pending] if self.head.pending else None

    def cursor(self, thread: int) -> int:
        """Return the last seq of the thread that the log covers, or `START`."""
        return _reach(self.log, thread)

    def buffered_to(self, thread: int) -> int:
        """Return the last seq of the thread that the log or the buffer covers, or `START`."""
        return max(_reach(self.log, thread), _reach(self.buffered, thread))

    def with_head(self, head: Head | None) -> LogState:
        """Return the state after a transition; the same state when it did nothing."""
        return self if head is None else replace(self, head=head)

    def with_rows(self, rows: Iterable[LogRow]) -> LogState:
        """Return the state with more rows known, named by no list yet."""
        return replace(self, rows={**self.rows, **{row.id: row for row in rows}})


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageFact:
    """What planning needs to know of a message.

    Attributes:
        id: Its id.
        seq: Its place in the thread; None while the run that it belongs to is not saved.
        branch: The branch that it was written on.
        revision: Grows with every edit.
        role: `human`, `ai`, `tool`, `system`, or another.
        hidden: Whether it is no part of the conversation: a signal, a summary, a reminder.
        calls: Ids of the tool calls that it makes.
        answers: The id of the tool call that it answers.
        tokens: Its size.
    """

    id: str
    seq: int | None = None
    branch: int = 0
    revision: int = 1
    role: str = "human"
    hidden: bool = False
    calls: tuple[str, ...] = ()
    answers: str | None = None
    tokens: int = 0


Digest = tuple[tuple[str, int, int], ...]
"""The (id, revision, branch) list of a range: what the model was given."""


def digest(messages: Iterable[MessageFact]) -> Digest:
    """Return the (id, revision, branch) list of messages."""
    return tuple((message.id, message.revision, message.branch) for message in messages)


def between(messages: Iterable[MessageFact], after: int, upto: int) -> list[MessageFact]:
    """Return the saved messages with `after < seq <= upto`."""
    return [m for m in messages if m.seq is not None and after < m.seq <= upto]


def union(rows: Iterable[LogRow]) -> tuple[Span, ...]:
    """Return what rows cover together: one span per thread, from the first `after` to the last `upto`."""
    spans: dict[int, Span] = {}
    for row in rows:
        for span in row.covers:
            first = spans.get(span.thread)
            spans[span.thread] = span if first is None else replace(span, after=first.after)
    return tuple(spans[thread] for thread in sorted(spans))


def log_tokens(state: LogState) -> int:
    """Return the size of the log as the model sees it; copies whose origin is in view weigh nothing."""
    return sum(row.tokens for row in rendered(state))


def rendered(state: LogState) -> list[LogRow]:
    """Return the rows of the log that are shown: those with a text, and not copies of rows in view."""
    in_view = set(state.head.log) | made_from(state.rows, state.head.log)
    return [row for row in state.log if row.text and not (row.origin and row.origin in in_view)]


def made_from(rows: Mapping[str, LogRow], ids: Iterable[str]) -> set[str]:
    """Return the ids of all rows that these rows were made from, at any depth."""
    found: set[str] = set()
    waiting = list(ids)
    while waiting:
        row = rows.get(waiting.pop())
        for source in row.inputs if row else ():
            if source not in found:
                found.add(source)
                waiting.append(source)
    return found


def _reach(rows: Iterable[LogRow], thread: int) -> int:
    return max((span.upto for row in rows for span in row.covers if span.thread == thread), default=START)
