"""The operations of the observation log: reading it, committing a head under its conditions, claims, calls, usage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from langchain_mastra_memory.observation.log import START, Head, LogRow, LogState, MessageFact, Path, Span
from langchain_mastra_memory.observation.transitions import Observed, Refused
from langchain_mastra_memory.store.base import Group, Operation

LogScope = Literal["thread", "resource"]


@dataclass(frozen=True, kw_only=True)
class RawMessage:
    """A message behind the cursor; its body is read when it is needed.

    Attributes:
        id: Its id.
        seq: Its place.
        branch: The branch that it was written on.
        kind: What it is; None for an ordinary message.
        role: The type of the LangChain message.
        tokens: Its size.
        revision: 1, and one more for every edit.
        created_at: Microseconds UTC.
        body: The encoded message.
    """

    id: str
    seq: int
    branch: int
    kind: str | None
    role: str
    tokens: int
    revision: int
    created_at: int
    body: bytes = field(repr=False)

    @cached_property
    def message(self) -> BaseMessage:
        """The message."""
        from langchain_mastra_memory.codec import load_message  # noqa: PLC0415 - when it is needed

        message = load_message(self.body)
        if message.id != self.id:
            message.id = self.id
        return message

    @cached_property
    def fact(self) -> MessageFact:
        """What planning needs to know."""
        hidden = self.kind is not None
        return MessageFact(
            id=self.id,
            seq=self.seq,
            branch=self.branch,
            revision=self.revision,
            role=self.role,
            hidden=hidden,
            calls=calls_of(self.message) if self.role == "ai" and not hidden else (),
            answers=answer_of(self.message) if self.role == "tool" and not hidden else None,
            tokens=0 if hidden else self.tokens,
        )


def calls_of(message: BaseMessage) -> tuple[str, ...]:
    """Return the ids of the tool calls that a message makes."""
    if not isinstance(message, AIMessage):
        return ()
    return tuple(call["id"] or "" for call in (*message.tool_calls, *message.invalid_tool_calls))


def answer_of(message: BaseMessage) -> str | None:
    """Return the id of the tool call that a message answers."""
    return message.tool_call_id if isinstance(message, ToolMessage) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogThread:
    """A thread of a log.

    Attributes:
        key: Its key in the database.
        id: Its id.
        title: Its title.
        metadata: The application's data, the mirror below `om` included.
        path: Its view.
        raw: Its messages behind the cursor, oldest first, refused ones excepted.
        counters: Its epoch and its counters of saves and of edits when they were read: while they are the same, so are
            the messages up to where the view ended.
        behind: The cursor that they stand behind.
    """

    key: int
    id: str
    title: str | None
    metadata: Mapping[str, Any]
    path: Path
    raw: tuple[RawMessage, ...]
    counters: tuple[int, int, int] | None = None
    behind: int = START


@dataclass(frozen=True, slots=True, kw_only=True)
class LogView:
    """A log as it is at a position.

    Attributes:
        state: The settled state: head, rows, paths.
        threads: By key, with their raw messages; in thread scope there is one.
        current: The key of the thread that was asked for; 0 when only a resource was named.
        resource_id: The owner.
        opened: Whether the log has rows in the database.
        located: Of the ids that were asked for, those that are archived, with their seq.
        refused: The size of the log when a reflector last failed to make it smaller.
        loaded: The head as it was read, before it was settled on the paths, with the rows that were read for it.
    """

    state: LogState
    threads: Mapping[int, LogThread]
    current: int
    resource_id: str | None
    opened: bool
    located: Mapping[str, int] = field(default_factory=dict)
    refused: int | None = None
    loaded: Head | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogAddress:
    """Which log, seen from where.

    Attributes:
        scope: Whose log.
        thread_id: The thread; None in resource scope means: from no thread.
        resource_id: Checked when given; needed in resource scope.
        position: (branch, last seq in view) of the thread; None is where it stands.
        ids: Messages that the run has and that may have been archived since: the newest of them moves the position.
        checkpoint_id: Or where it stood at a checkpoint.
        whole: Whether every row of the log is read, not only what is needed for the next call.
    """

    scope: LogScope
    thread_id: str | None = None
    resource_id: str | None = None
    position: tuple[int, int] | None = None
    ids: tuple[str, ...] = ()
    checkpoint_id: str | None = None
    whole: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLog(Operation[LogView]):
    """Return a log with the raw messages behind it; with `covered`, with all messages in view.

    Attributes:
        address: Which log, seen from where.
        covered: Whether covered messages are read too.
        known: A view that was read before: what of it still holds by the counters of now is not read again.

    Raises:
        ThreadNotFoundError: The thread is missing, or another resource's.
    """

    group: ClassVar[Group] = "log"
    writes: ClassVar[bool] = False
    address: LogAddress
    covered: bool = False
    known: LogView | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeMessages(Operation[list[RawMessage]]):
    """Return the messages of a span as they are now.

    Raises:
        ThreadNotFoundError: The thread is missing, or another resource's.
    """

    group: ClassVar[Group] = "log"
    writes: ClassVar[bool] = False
    address: LogAddress
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenLog(Operation[str]):
    """Make sure that a log is there, and return its epoch; running it twice changes nothing.

    Raises:
        ThreadNotFoundError: The thread is missing, or another resource's.
    """

    group: ClassVar[Group] = "log"
    address: LogAddress


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitLog(Operation[bool | Refused]):
    """Write a head, if the newest one is still what was read and a result's messages are what its model was given.

    Attributes:
        address: Which log; the line is the head's.
        read: (epoch, version) of the head that was read.
        paths: The views that it was judged on.
        head: What to write.
        rows: New rows that it names.
        terms: Per new row, its packed terms for the search.
        check: A result whose messages and ends are judged again here.
        mirror: Values to keep below `om` in the metadata of threads, by thread key: paths of keys with a value; None
            removes.
        titles: New titles by thread key; a title that a person gave stays.

    Returns:
        True when it was written; False when another head is the newest now: read again and judge again; `Refused`
        when the result is dropped.
    """

    group: ClassVar[Group] = "log"
    address: LogAddress
    read: tuple[str, int]
    paths: Mapping[int, Path]
    head: Head
    rows: tuple[LogRow, ...] = ()
    terms: Mapping[str, bytes] = field(default_factory=dict)
    check: Observed | None = None
    mirror: Mapping[int, Sequence[tuple[tuple[str, ...], Any]]] = field(default_factory=dict)
    titles: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimLog(Operation[bool]):
    """Say that a call is under way, so that no other process pays for the same; return whether nobody else did.

    A claim is never a condition of a commit. It ends by itself.

    Attributes:
        address: Which log.
        line: Its line.
        phase: What the call is for.
        owner: Who makes it.
        seconds: When it ends by itself.
    """

    group: ClassVar[Group] = "log"
    address: LogAddress
    line: int
    phase: str
    owner: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseLog(Operation[None]):
    """End a claim of this owner; a log that is gone is no error."""

    group: ClassVar[Group] = "log"
    address: LogAddress
    line: int
    phase: str
    owner: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecord:
    """A model call of observational memory: what it cost, never what it said.

    Attributes:
        phase: `observation`, `reflection` or `extraction`.
        outcome: `committed`, `dropped`, `refused`, `failed`, `empty` or `degenerate`.
        model: The model's name.
        input_tokens: As the provider counts.
        output_tokens: As the provider counts.
        total_tokens: As the provider counts.
        duration_ms: How long it took.
        details: What the provider says of the call: cost, cached tokens, finish reason.
        created_at: Microseconds UTC; 0 before it is written.
        thread_id: The thread of a thread's log.
    """

    phase: str
    outcome: str
    model: str | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    duration_ms: int = 0
    details: Mapping[str, Any] = field(default_factory=dict)
    created_at: int = 0
    thread_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordCalls(Operation[None]):
    """Keep what calls cost; a log that is gone meanwhile is no error.

    Attributes:
        address: Which log.
        calls: The calls.
        refused: When a reflector failed to make the log smaller: the size of the log.
        reflected: Whether a reflection was committed, so that the next one need not wait for growth.
    """

    group: ClassVar[Group] = "log"
    address: LogAddress
    calls: tuple[CallRecord, ...] = ()
    refused: int | None = None
    reflected: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ListCalls(Operation[list[CallRecord]]):
    """Return the calls of a thread's log, or of all logs of a resource, oldest first.

    Raises:
        ThreadNotFoundError: The thread is missing, or another resource's.
    """

    group: ClassVar[Group] = "log"
    writes: ClassVar[bool] = False
    thread_id: str | None = None
    resource_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundGroup:
    """An observation group for the recall tool's search.

    Attributes:
        row: The row.
        terms: Its packed terms.
        thread_id: Its thread.
        title: The thread's title.
        updated_at: When the thread changed last, microseconds UTC.
        first_id: The first message that it covers and that is still there.
        last_id: The last one.
    """

    row: LogRow
    terms: bytes
    thread_id: str
    title: str | None
    updated_at: int
    first_id: str | None
    last_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListGroups(Operation[list[FoundGroup]]):
    """Return the observation groups that a thread, or the threads of a resource, can see where they stand.

    Groups without a text, which a hook has emptied, are passed over unless `with_empty`.

    Raises:
        ThreadNotFoundError: The thread is missing, or another resource's.
    """

    group: ClassVar[Group] = "log"
    writes: ClassVar[bool] = False
    scope: LogScope
    thread_id: str | None = None
    resource_id: str | None = None
    with_empty: bool = False
