"""The operations on checkpoints: what `ThreadSaver` asks of a store.

A write is planned against what is known of the thread, and says so: `known` is the (epoch, edits) of the thread row
that the plan counts on. If the thread has moved on in another way since, the store writes nothing and returns `Stale`,
and the saver plans again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Final, Literal, NamedTuple

from langchain_mastra_memory.store.base import Group, Operation
from langchain_mastra_memory.threads.entries import Skeleton, Write

State = tuple[int, int]
"""The epoch and the `edits` counter of a thread row: numbers of bodies and positions hold while both are the same."""

RunState = Literal["final", "open", "complete", "refused"]
"""What is known of a run when its rows are archived; see `threads.runs`."""


class Address(NamedTuple):
    """Where a checkpoint belongs.

    Attributes:
        thread_id: The thread.
        ns: LangGraph's namespace; empty for the root.
        resource_id: Checked in the root namespace when given; adopts a thread that nobody owns.
    """

    thread_id: str
    ns: str = ""
    resource_id: str | None = None


NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class NewThread:
    """What the thread is to be, if this write makes it."""

    title: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


class NewBody(NamedTuple):
    """A message body that the plan brings.

    Attributes:
        space: Where it is numbered.
        id: The message's id, if it has one.
        form: How the body is written.
        body: The bytes.
        unique: Whether equal messages have equal bytes, so that one that is stored already is found by them.
        expected: The number that it gets if nobody else has written in the space.
    """

    space: str
    id: str | None
    form: str
    body: bytes
    unique: bool
    expected: int = 1


class Archived(NamedTuple):
    """A message on its way from a checkpoint to the archive.

    Attributes:
        id: Its id.
        role: Its type.
        kind: What it is by itself: None, or `summary`.
        body: Its bytes in the codec.
        tokens: Its size.
        metadata: What the application keeps with it; over what a row that is there has already.
        surely: Whether this step is known to have changed it, so that it overrides an edit made outside the run.
    """

    id: str
    role: str
    kind: str | None
    body: bytes
    tokens: int
    metadata: Mapping[str, Any] = NOTHING
    surely: bool = True


@dataclass(frozen=True, slots=True)
class ArchivePlan:
    """What a root checkpoint means for the archive.

    Attributes:
        messages: What this checkpoint has and its parent has not, in order.
        removed: Ids that the parent has and this one has not, if they are to be retracted where this run added them.
        run: What is known of the run.
        accepted: Of a complete run, the ids that become ordinary messages.
        replaced: Of a complete run, what to archive instead, by id; None keeps a message out.
        demote: Whether rows that this run has already brought as ordinary ones become provisional.
        own: For a fork that the store asked about (`Need`): the parent's own bodies of messages edited since, by id.
    """

    messages: tuple[Archived, ...] = ()
    removed: tuple[str, ...] = ()
    run: RunState = "final"
    accepted: tuple[str, ...] = ()
    replaced: Mapping[str, Archived | None] = field(default_factory=dict)
    demote: bool = False
    own: Mapping[str, bytes] | None = None


class Place(NamedTuple):
    """Where a root checkpoint stands in the archive: line, last seq in view, and that when its run began."""

    branch: int
    head: int
    base: int


@dataclass(frozen=True, slots=True)
class Stale:
    """Nothing was written: the plan counts on a state of the thread that is no more."""

    state: State | None


@dataclass(frozen=True, slots=True)
class Need:
    """Nothing was written: this is a fork, and the parent's own bodies of these ids must be in the plan."""

    ids: tuple[str, ...]


class Put(NamedTuple):
    """A checkpoint was written.

    Attributes:
        state: The state of the thread now; what was known of it still holds.
        numbers: The space and number of each body of the plan.
        stored: The number of each value of the plan.
        place: Where it stands, if it is a root checkpoint.
        gone: Which bodies of the plan were left empty, since their messages were deleted.
    """

    state: State
    numbers: tuple[tuple[str, int], ...]
    stored: tuple[int, ...] = ()
    place: Place | None = None
    gone: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class PutCheckpoint(Operation[Put | Stale | Need]):
    """Write a checkpoint, the bodies that it brings, and what it means for the archive, together.

    Running it twice writes the same checkpoint again.

    Attributes:
        address: Where it belongs; the thread is made if it is missing.
        new_thread: What the thread is to be in that case.
        known: What the plan counts on; None if it counts on nothing.
        id: The checkpoint.
        parent: Its parent's id.
        skeleton: The checkpoint with entries of the plan.
        metadata: JSON text.
        run: The run_id in the metadata.
        bodies: What it brings.
        values: Values too large for the row.
        start: Where the parent stands; None if there is no parent, or none that is known.
        base: The head when the run began; None means where this checkpoint starts.
        archive: What it means for the archive; None for nothing.
        features: What is on in the memory that asks; see `cascade.Features`.

    Raises:
        ThreadNotFoundError: Another resource owns the thread.
    """

    group: ClassVar[Group] = "checkpoints"
    address: Address
    new_thread: NewThread = NewThread()
    known: State | None
    id: str
    parent: str | None
    skeleton: Skeleton
    metadata: str
    run: str | None = None
    bodies: tuple[NewBody, ...] = ()
    values: tuple[bytes, ...] = ()
    start: Place | None = None
    base: int | None = None
    archive: ArchivePlan | None = None
    features: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class PutWrites(Operation[Put | Stale]):
    """Write what a task did, for a checkpoint that is there or comes later.

    Running it twice changes nothing: of two writes with one index the first stays, of special ones the last.

    Attributes:
        address: Where the checkpoint belongs; the thread is made if it is missing.
        new_thread: What the thread is to be in that case.
        known: What the plan counts on; None if it counts on nothing.
        checkpoint: Its id.
        task_id: The task.
        task_path: The task's place in the step.
        task_writes: What it wrote, with entries of the plan.
        bodies: What it brings.
        features: What is on in the memory that asks.
    """

    group: ClassVar[Group] = "checkpoints"
    address: Address
    new_thread: NewThread = NewThread()
    known: State | None
    checkpoint: str
    task_id: str
    task_path: str
    task_writes: tuple[Write, ...]
    bodies: tuple[NewBody, ...] = ()
    features: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class TaskWrites:
    """What a task wrote, as it is stored."""

    task_id: str
    task_path: str
    writes: tuple[Write, ...]


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """A checkpoint as it is stored.

    Attributes:
        thread_id: Its thread.
        ns: Its namespace.
        id: Itself.
        parent: Its parent's id.
        skeleton: The rest of it.
        metadata: JSON text.
        place: Where it stands, if it is a root checkpoint.
        tasks: What its tasks wrote, in the order in which LangGraph applies it.
    """

    thread_id: str
    ns: str
    id: str
    parent: str | None
    skeleton: Skeleton
    metadata: str
    place: Place | None
    tasks: tuple[TaskWrites, ...] = ()


Bodies = Mapping[str, Mapping[int, tuple[str, bytes]]]
"""By space and number: form and bytes."""


@dataclass(frozen=True, slots=True)
class Read:
    """Checkpoints with everything that their values need.

    Attributes:
        state: The state of the thread; None if it is missing.
        checkpoints: What was asked for.
        bodies: What their holes need and the asker has not.
        values: Values too large for a row, by number.
        cursor: Of a listing, where it ended: id, thread key, stored namespace.
    """

    state: State | None
    checkpoints: tuple[StoredCheckpoint, ...] = ()
    bodies: Bodies = field(default_factory=dict)
    values: Mapping[int, bytes] = field(default_factory=dict)
    cursor: tuple[str, int, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetCheckpoint(Operation[Read]):
    """Return a checkpoint, or the newest of its namespace.

    Attributes:
        address: Where it belongs.
        id: The checkpoint; None means the newest.
        known: The state that `have` counts on.
        have: By space, the first and last number of the bodies that the asker has.

    Raises:
        ThreadNotFoundError: Another resource owns the thread.
    """

    group: ClassVar[Group] = "checkpoints"
    writes: ClassVar[bool] = False
    address: Address
    id: str | None = None
    known: State | None = None
    have: Mapping[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class FindBodies(Operation[tuple[State | None, tuple[tuple[str, int, str, str, bytes], ...]]]):
    """Return the state of a thread and its bodies of some message ids: space, number, id, form, bytes."""

    group: ClassVar[Group] = "checkpoints"
    writes: ClassVar[bool] = False
    thread_id: str
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListCheckpoints(Operation[list[Read]]):
    """Return a page of checkpoints, newest first, one `Read` for each.

    Attributes:
        thread_id: The thread; None means all threads.
        resource_id: Checked when given with a thread.
        ns: The namespace; None means all.
        id: Only this one.
        before: Only ids below this one.
        filters: Metadata keys and the scalars that they must be equal to.
        limit: At most so many.
        after: Where the page before ended.

    Raises:
        ThreadNotFoundError: Another resource owns the thread.
    """

    group: ClassVar[Group] = "checkpoints"
    writes: ClassVar[bool] = False
    thread_id: str | None
    resource_id: str | None = None
    ns: str | None = None
    id: str | None = None
    before: str | None = None
    filters: Mapping[str, str | int | float | bool | None] = field(default_factory=dict)
    limit: int
    after: tuple[str, int, str] | None = None


@dataclass(frozen=True, slots=True)
class History:
    """What some channels were made from, up to a checkpoint that is not among them.

    Attributes:
        read: The ancestors, newest first, back to where every channel has a value.
        target: The checkpoint itself; None if it is missing.
    """

    read: Read
    target: StoredCheckpoint | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetHistory(Operation[History]):
    """Return the ancestors of a checkpoint back to where each of some channels has a value, with their writes.

    Deleted checkpoints that are kept for their writes are among them.

    Attributes:
        address: Where it belongs.
        id: The checkpoint; None means the newest.
        channels: The channels.
    """

    group: ClassVar[Group] = "checkpoints"
    writes: ClassVar[bool] = False
    address: Address
    id: str | None = None
    channels: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRuns(Operation[int]):
    """Remove the checkpoints of some runs and their writes; return how many.

    A checkpoint that a remaining one builds on (a DeltaChannel's writes) is hidden instead. Where a thread's newest
    root checkpoint goes, the thread stands where the newest one left stands.
    """

    group: ClassVar[Group] = "checkpoints"
    run_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneCheckpoints(Operation[int]):
    """Remove checkpoints of a thread, its archive stays; return how many.

    Attributes:
        thread_id: The thread; a missing one has nothing to remove.
        keep_latest: Whether the newest of each namespace stays, with what it builds on.
    """

    group: ClassVar[Group] = "checkpoints"
    thread_id: str
    keep_latest: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyCheckpoints(Operation[bool]):
    """Copy a thread with its archive, on all lines, and its checkpoints, inside the database.

    Returns:
        Whether there was a source.

    Raises:
        InvalidIdError: The target has messages or checkpoints.
    """

    group: ClassVar[Group] = "checkpoints"
    source_thread_id: str
    target_thread_id: str
    features: frozenset[str] = frozenset()
