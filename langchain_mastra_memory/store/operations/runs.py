"""The operations of a run: what the archive knows of its state, the history to load, saving it, the boundary.

A run's own position comes from the message ids in its state, never from where the thread stands now: under
`durability="async"` and `"exit"` a node runs before the checkpoint of its fork is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from langchain_core.messages import BaseMessage

from langchain_mastra_memory.store.base import Group, Operation
from langchain_mastra_memory.store.operations.messages import NewMessage
from langchain_mastra_memory.types import StoredMessage

RunKind = Literal["refused"] | None
"""What the rows of a run are: refused, or ordinary messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBoundary:
    """How far a trim went, as it is stored.

    Attributes:
        message_id: The first message of the newest unit that went.
        seq: Its place.
        branch: The line of its row.
        max_tokens: The budget that it was made for.
        remove_tokens: The removal that it was made for.
    """

    message_id: str
    seq: int
    branch: int
    max_tokens: int
    remove_tokens: float


@dataclass(frozen=True, slots=True)
class Located:
    """A message of the state, as the archive has it.

    Attributes:
        seq: Its place.
        branch: The line of its row.
        kind: What the row is; None for an ordinary message.
        tokens: Its size.
        revision: 1, and one more for every edit.
        created_at: Microseconds UTC.
        edited: The archive's message, when it was edited; it counts instead of the state's.
    """

    seq: int
    branch: int
    kind: str | None
    tokens: int
    revision: int
    created_at: int
    edited: BaseMessage | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """What the archive knows of a run's state.

    Attributes:
        exists: Whether there is a thread of this id.
        epoch: Another epoch is another history under the same id.
        edits: The thread's counter of edits: what was located before stays right while it stays the same.
        position: (branch, head) where the state stands; None when nothing of it is archived.
        located: Rows of the state's messages by id.
        outside: Messages in view that entered outside a run and are not among the ids, oldest first.
        deleted: Ids of the state that were deleted from the archive.
        boundaries: Boundaries on the path, newest first.
    """

    exists: bool
    epoch: int = 0
    edits: int = 0
    position: tuple[int, int] | None = None
    located: Mapping[str, Located] = field(default_factory=dict)
    outside: tuple[StoredMessage, ...] = ()
    deleted: frozenset[str] = frozenset()
    boundaries: tuple[StoredBoundary, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRun(Operation[RunView]):
    """Return what the archive knows of the messages of a run's state.

    Attributes:
        thread_id: The thread; a missing one is an empty view.
        resource_id: Checked when given.
        ids: The ids of the state's messages, oldest first; of a long state the newest, at least those that decide where
            it stands.
        last: How many messages of outside to load at most, the newest; None: all.
        with_outside: Whether messages of outside are loaded.

    Raises:
        ThreadNotFoundError: The thread is another resource's.
    """

    group: ClassVar[Group] = "messages"
    writes: ClassVar[bool] = False
    thread_id: str
    resource_id: str | None = None
    ids: tuple[str, ...]
    last: int | None = None
    with_outside: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What a run without a checkpointer starts from.

    Attributes:
        exists: Whether there is a thread of this id.
        position: (branch, head) where the thread stands.
        messages: The history, oldest first.
        matched: The messages that were asked for by id and are in view, wherever they stand.
        boundaries: Boundaries on the path, newest first.
        deleted: Ids that were asked for and were deleted from the archive.
    """

    exists: bool
    position: tuple[int, int] = (0, 0)
    messages: tuple[StoredMessage, ...] = ()
    matched: tuple[StoredMessage, ...] = ()
    boundaries: tuple[StoredBoundary, ...] = ()
    deleted: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadHistory(Operation[History]):
    """Return the newest messages of a thread, where it stands or stood at a checkpoint.

    Attributes:
        thread_id: The thread; a missing one has no history.
        resource_id: Checked when given.
        last: At most this many; None: no cap.
        tokens: Stop where the loaded messages have more than this; None: no budget.
        after: Only messages behind this seq.
        ids: Messages to match, wherever they stand.
        checkpoint_id: The checkpoint to stand at.
        boundary_for: The budget and removal whose boundary is not to be passed.

    Raises:
        ThreadNotFoundError: The thread is another resource's, or has no such checkpoint.
    """

    group: ClassVar[Group] = "messages"
    writes: ClassVar[bool] = False
    thread_id: str
    resource_id: str | None = None
    last: int | None = None
    tokens: float | None = None
    after: int | None = None
    ids: tuple[str, ...] = ()
    checkpoint_id: str | None = None
    boundary_for: tuple[int, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveRun(Operation[list[StoredMessage]]):
    """Archive the messages of a run that is complete. Running it twice adds nothing.

    Attributes:
        thread_id: The thread; it is made if it is missing.
        resource_id: The owner, or None for a run that names none.
        messages: New messages, oldest first. One whose id is in view is changed in its place; a deleted one is left
            out.
        after: Ids of the messages that the run's state had before, oldest first: where the run stood. Empty with
            `from_state` false: where the thread stands.
        from_state: Whether the position comes from `after`.
        keep_known: Whether a message whose id is in view is left as it is.
        beside: Ids of messages that the run's state does not have: they join its view at their place.
        outside: Whether the thread's own checkpoints do not know of this run: a graph inside another one.
        title: The title of the thread, when it is made here.
        metadata: Its metadata, when it is made here.
        features: What is on in the memory that asks.

    Returns:
        The messages as they are stored, each id once.

    Raises:
        ThreadNotFoundError: The thread is another resource's.
    """

    group: ClassVar[Group] = "messages"
    thread_id: str
    resource_id: str | None = None
    messages: tuple[NewMessage, ...]
    after: tuple[str, ...] = ()
    from_state: bool = False
    keep_known: bool = False
    beside: frozenset[str] = frozenset()
    outside: bool = False
    title: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    features: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreBoundary(Operation[None]):
    """Keep how far a trim went. Running it twice is safe; a missing thread or message is nothing to do.

    Attributes:
        thread_id: The thread.
        resource_id: Checked when given.
        message_id: The first message of the newest unit that went.
        seq: Its place.
        max_tokens: The budget that it was made for.
        remove_tokens: The removal that it was made for.

    Raises:
        ThreadNotFoundError: The thread is another resource's.
    """

    group: ClassVar[Group] = "messages"
    thread_id: str
    resource_id: str | None = None
    message_id: str
    seq: int
    max_tokens: int
    remove_tokens: float
