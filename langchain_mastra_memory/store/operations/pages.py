"""The operations on working-memory pages: reading the one that holds, and appending a version.

A page is append-only: every change is a version with its own number, and says what wrote it and after which message it
holds. The store compares versions and keeps text; what an update does to a page is decided before
(`working_memory.rules`), so that no schema and no user code runs inside a transaction, and a store that encrypts needs
to know nothing of JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from langchain_core.messages import BaseMessage

from langchain_mastra_memory.store.base import Group, Operation

Writer = Literal["tool", "code", "node", "observer", "metadata", "clone", "import"]
"""What wrote a version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageOwner:
    """Whose page it is.

    Attributes:
        scope: `resource`: the page of `resource_id`. `thread`: the page of `thread_id`.
        resource_id: The resource; in thread scope it is checked against the thread's owner when given.
        thread_id: The thread; in resource scope the thread that a write comes from, or None.
    """

    scope: Literal["resource", "thread"]
    resource_id: str | None = None
    thread_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """Where in a conversation a page of thread scope is looked at; a page of resource scope ignores it.

    Attributes:
        position: (branch, head) in the archive. None: see `from_state`.
        checkpoint_id: The position of this checkpoint instead.
        ids: Ids of the messages of a run's state, oldest first: what they say goes, archived yet or not.
        from_state: Whether the newest of `ids` that is archived says where the run stands (nothing of the archive is
            in view when none is); otherwise it stands where the thread stands now.
    """

    position: tuple[int, int] | None = None
    checkpoint_id: str | None = None
    ids: tuple[str, ...] = ()
    from_state: bool = False


HERE = Where()
"""Where the thread stands now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPage:
    """A version of a page.

    Attributes:
        version: Its number, from 1; 0 is "no page yet".
        text: The page; None when there is none, or when it was erased.
        created_at: Microseconds UTC; 0 without a version.
        writer: What wrote it; None without a version.
        applied: The version that the asked-for call wrote; 0 when it was not applied, or none was asked for.
    """

    version: int = 0
    text: str | None = None
    created_at: int = 0
    writer: Writer | None = None
    applied: int = 0


NO_PAGE = StoredPage()


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedPage:
    """What became of a write.

    Attributes:
        status: `written`; `repeated` (this call was applied before, nothing changed); `stale` (the page is not at the
            expected version, nothing changed).
        page: The page that holds now.
        version: The version that this call wrote, now or before; 0 when stale.
    """

    status: Literal["written", "repeated", "stale"]
    page: StoredPage
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NewThread:
    """A thread to make where it is missing: a tool may write before the first checkpoint of its thread.

    Attributes:
        title: Its title.
        metadata: Its metadata.
        features: What is on in the memory that asks.
    """

    title: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    features: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class GetPage(Operation[StoredPage]):
    """Return the page that holds; `NO_PAGE` where there is none, or the thread is missing or somebody else's.

    Attributes:
        owner: Whose page.
        where: From where in the conversation.
        call: Tell whether this call was applied already.
        version: This version instead of the one that holds; 0 is "no page".
    """

    group: ClassVar[Group] = "pages"
    writes: ClassVar[bool] = False
    owner: PageOwner
    where: Where = HERE
    call: str | None = None
    version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SavePage(Operation[SavedPage]):
    """Append a version, if the page is still at the version that it was made from.

    Running it twice is safe when it has a `call`: the second time changes nothing.

    Attributes:
        owner: Whose page. The resource is made where it is missing.
        new_thread: Make the owner's thread where it is missing; None: thread scope needs it, resource scope does not.
        text: The new page; None erases it, older versions too.
        expected: The version that the writer knows; None replaces whatever is there.
        only_first: Write only where there is no page: otherwise the result is `stale`.
        call: What asks, once for all retries and replays (a tool call of a message, a patch of a run).
        writer: What kind of writer.
        where: From where in the conversation the page is looked at (thread scope).
        after_message: The id of the message after which it holds (thread scope), when it is not archived yet.
            None: it holds after the newest message in view.
        stand_ins: Ids of messages before that one, the nearest first. Where it is never archived (it was filtered out,
            or the run broke off), the page holds from behind the first of these that is.

    Raises:
        ThreadNotFoundError: Thread scope: the thread is missing, or another resource's.
        ThreadOwnershipError: Resource scope: the thread is another resource's.
    """

    group: ClassVar[Group] = "pages"
    owner: PageOwner
    new_thread: NewThread | None = None
    text: str | None
    expected: int | None = None
    only_first: bool = False
    call: str | None = None
    writer: Writer = "code"
    where: Where = HERE
    after_message: str | None = None
    stand_ins: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPages(Operation[list[StoredPage]]):
    """Return the versions that are kept, newest first: all of a thread's, the newest hundred of a resource's.

    Attributes:
        owner: Whose page.
        limit: At most so many.
    """

    group: ClassVar[Group] = "pages"
    writes: ClassVar[bool] = False
    owner: PageOwner
    limit: int = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSignal:
    """A state signal of the archive.

    Attributes:
        message: The message.
        before: The id of the message that it stands before.
        distance: How many places of the archive lie between that message and the position; 0 when it is not archived.
    """

    message: BaseMessage
    before: str
    distance: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ListSignals(Operation[list[StoredSignal]]):
    """Return the state signals that stand before a message in view, oldest first; none for a missing thread.

    The id of a signal says what it is about and where it stands: `state@id of the message behind it`.

    Attributes:
        thread_id: The thread.
        resource_id: Checked when given; of somebody else's thread there are none.
        state: What they are about, such as `working-memory`.
        where: From where.
        limit: At most so many, the newest.
    """

    group: ClassVar[Group] = "messages"
    writes: ClassVar[bool] = False
    thread_id: str
    resource_id: str | None = None
    state: str
    where: Where = HERE
    limit: int = 100
