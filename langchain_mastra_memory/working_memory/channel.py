"""The page as graph state: channels with the same rules as the store.

A node may return `{"working_memory": {...}}` (fields to change) or `{"working_memory": "text"}` (the whole page). What
the memory writes carries the version that the store gave, and of two versions the higher one wins: the order of
parallel writers, retries and replays change nothing. What nodes return is kept as patches until the memory has saved
them, so that they can join a page that somebody else has changed meanwhile.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Final, NotRequired, Self

from langgraph.channels.base import BaseChannel
from langgraph.errors import EmptyChannelError, InvalidUpdateError
from langgraph.types import Overwrite
from typing_extensions import TypedDict

from langchain_mastra_memory.working_memory.document import PageValue, merge

MARK: Final = "__working_memory__"
"""The key of a write that the memory made; the rest of it says which version it is."""

_OVERWRITE: Final = "__overwrite__"


@dataclass(frozen=True, slots=True)
class Patch:
    """What a node returned.

    Attributes:
        value: Fields to change, or a whole text.
        whole: Whether it replaces the page (text, or an `Overwrite`).
    """

    value: PageValue
    whole: bool = False

    def on(self, page: PageValue | None) -> PageValue:
        """Return the page with this patch."""
        if self.whole or isinstance(self.value, str):
            return self.value
        merged: PageValue = merge(page if isinstance(page, Mapping) else {}, self.value)
        return merged


@dataclass(frozen=True, slots=True)
class PageState:
    """What the channel holds.

    Attributes:
        page: The page as nodes see it: the store's, with the patches on it.
        version: The version of the store's page; 0 before any.
        start: The version that the run started from; None while no memory has taken part.
        patches: What nodes returned since the start, oldest first. Kept only once a memory takes part.
        run: What names the run that started, for the patches to be saved once only.
    """

    page: PageValue | None = None
    version: int = 0
    start: int | None = None
    patches: tuple[Patch, ...] = field(default=())
    run: str | None = None

    def updated(self, writes: Sequence[Any]) -> PageState:
        """Return the state after the writes of one step, whatever their order among the memory's own."""
        state = self
        marked = [write[MARK] for write in writes if _is_marked(write)]
        for write in sorted(marked, key=_by_version):
            state = state.versioned(write)
        for write in writes:
            if not _is_marked(write) and write is not None:
                state = state.patched(_patch(write))
        return state

    def versioned(self, write: Mapping[str, Any]) -> PageState:
        """Return the state after a write of the memory."""
        version, page = int(write["version"]), write["page"]
        if write.get("start"):
            return PageState(page=page, version=version, start=version, run=write.get("run"))
        if version <= self.version:
            return self
        for patch in self.patches:
            page = patch.on(page)
        return replace(self, page=page, version=version)

    def patched(self, patch: Patch) -> PageState:
        """Return the state after what a node returned."""
        patch = self._meant(patch)
        if isinstance(patch.value, str) and patch.value == self.page:
            return self
        if patch.value == {} and not patch.whole:
            return self if self.page is not None else replace(self, page={})
        kept = self.patches if self.start is None else (*self.patches, patch)
        return replace(self, page=patch.on(self.page), patches=kept)

    def _meant(self, patch: Patch) -> Patch:
        """Return what a node wants to change: one that returns the whole page, as it got it, means what differs.

        Otherwise a node that returns its whole state, or a subgraph with this channel, would bring back every field
        that somebody else has changed meanwhile.
        """
        page, value = self.page, patch.value
        if (
            patch.whole
            or not isinstance(page, Mapping)
            or not isinstance(value, Mapping)
            or not page.keys() <= value.keys()
        ):
            return patch
        return Patch({key: new for key, new in value.items() if key not in page or not _same(page[key], new)})

    def dumped(self) -> dict[str, Any]:
        """Return the state as plain data for a checkpoint."""
        return {
            MARK: {
                "page": self.page,
                "version": self.version,
                "start": self.start,
                "patches": [[patch.value, patch.whole] for patch in self.patches],
                "run": self.run,
            }
        }

    @classmethod
    def loaded(cls, data: Any) -> PageState:
        """Return the state of a checkpoint; a bare page is what a graph kept before it had this channel."""
        if not _is_marked(data):
            return cls(page=data if isinstance(data, str) else dict(data))
        kept = data[MARK]
        return cls(
            page=kept["page"],
            version=int(kept["version"]),
            start=kept["start"],
            patches=tuple(Patch(value, whole) for value, whole in kept["patches"]),
            run=kept.get("run"),
        )


def page_write(page: PageValue | None, version: int, *, start: bool = False, run: str | None = None) -> dict[str, Any]:
    """Return what the memory writes to the page's channel.

    Args:
        page: The page of the store.
        version: Its version; the higher one wins.
        start: Whether a run starts from it: then it holds, whatever the channel had.
        run: What names the run that starts.
    """
    return {MARK: {"page": page, "version": version, "start": start, "run": run}}


def version_write(version: int, *, start: bool = False) -> dict[str, Any]:
    """Return what the memory writes to the channel of the version; see `page_write`."""
    return {MARK: {"version": version, "start": start}}


class PageChannel(BaseChannel[PageValue, Any, dict[str, Any]]):
    """Holds the page of a graph; see the module."""

    __slots__ = ("state",)

    def __init__(self, typ: Any = PageValue, key: str = "") -> None:
        super().__init__(typ, key)
        self.state = PageState()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PageChannel)

    __hash__ = None  # type: ignore[assignment]  # channels are compared by kind and never kept in sets

    @property
    def ValueType(self) -> Any:  # noqa: N802  # LangGraph's name
        """The type of the page."""
        return self.typ

    @property
    def UpdateType(self) -> Any:  # noqa: N802  # LangGraph's name
        """The type of what nodes may return."""
        return self.typ

    def checkpoint(self) -> dict[str, Any] | Any:
        """Return the page, its version and the patches that are not saved yet."""
        if self.state == PageState():
            return super().checkpoint()
        return self.state.dumped()

    def from_checkpoint(self, checkpoint: Any) -> Self:
        """Return a new channel with the state of a checkpoint."""
        channel = self.__class__(self.typ, self.key)
        if isinstance(checkpoint, (str, Mapping)):
            channel.state = PageState.loaded(checkpoint)
        return channel

    def copy(self) -> Self:
        """Return a copy; the state is immutable and shared."""
        channel = self.__class__(self.typ, self.key)
        channel.state = self.state
        return channel

    def update(self, values: Sequence[Any]) -> bool:
        """Apply the writes of a step."""
        if not values:
            return False
        self.state = self.state.updated(values)
        return True

    def get(self) -> PageValue:
        """Return the page."""
        if self.state.page is None:
            raise EmptyChannelError
        return copy.deepcopy(self.state.page)  # nodes do change what they get

    def is_available(self) -> bool:
        """Return whether there is a page."""
        return self.state.page is not None


class VersionChannel(BaseChannel[int, Any, int]):
    """Holds the version of the page that the model was shown last: the highest of a step, or where a run starts."""

    __slots__ = ("value",)

    def __init__(self, typ: Any = int, key: str = "") -> None:
        super().__init__(typ, key)
        self.value: int | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VersionChannel)

    __hash__ = None  # type: ignore[assignment]  # channels are compared by kind and never kept in sets

    @property
    def ValueType(self) -> Any:  # noqa: N802  # LangGraph's name
        """The type of a version."""
        return self.typ

    @property
    def UpdateType(self) -> Any:  # noqa: N802  # LangGraph's name
        """The type of an update."""
        return self.typ

    def from_checkpoint(self, checkpoint: Any) -> Self:
        """Return a new channel with the version of a checkpoint."""
        channel = self.__class__(self.typ, self.key)
        if isinstance(checkpoint, int):
            channel.value = checkpoint
        return channel

    def update(self, values: Sequence[Any]) -> bool:
        """Take the highest version of the step; a start holds whatever was there."""
        if not values:
            return False
        writes = [write[MARK] if _is_marked(write) else {"version": write} for write in values]
        for write in sorted(writes, key=_by_version):
            version = int(write["version"])
            self.value = version if write.get("start") else max(version, self.value or 0)
        return True

    def get(self) -> int:
        """Return the version."""
        if self.value is None:
            raise EmptyChannelError
        return self.value


class WorkingMemoryState(TypedDict):
    """State of a graph that keeps a page.

    Attributes:
        working_memory: The page: text, or the object of a schema. A node returns the fields to change (objects merge
            deeply, None deletes, arrays replace), or a text that replaces the page.
        working_memory_version: The version of the page in the store; written by the memory.

    Example:
        ```python
        from langgraph.graph import START, MessagesState, StateGraph
        from langchain_mastra_memory import WorkingMemoryState

        class State(MessagesState, WorkingMemoryState):
            pass

        graph = StateGraph(State)
        graph.add_node("learn", lambda state: {"working_memory": {"name": "Ann"}})
        graph.add_edge(START, "learn")
        assert graph.compile().invoke({"messages": []})["working_memory"] == {"name": "Ann"}
        ```
    """

    working_memory: NotRequired[Annotated[PageValue, PageChannel]]
    working_memory_version: NotRequired[Annotated[int, VersionChannel]]


def channel_state(config: Mapping[str, Any]) -> PageState | None:
    """Return what the page's channel of the running graph holds, patches included; None where it cannot be reached.

    LangGraph shows nodes the value of a channel only. The reader that it puts into a node's config holds the channels
    themselves, and the patches are there.
    """
    reader = config.get("configurable", {}).get("__pregel_read")
    for argument in getattr(reader, "args", ()):
        channel = argument.get("working_memory") if isinstance(argument, Mapping) else None
        if isinstance(channel, PageChannel):
            return channel.state
    return None


def _is_marked(write: object) -> bool:
    return isinstance(write, Mapping) and len(write) == 1 and isinstance(write.get(MARK), Mapping)


def _same(one: object, other: object) -> bool:
    """Compare as JSON: 1 is not true."""
    return json.dumps(one, sort_keys=True, default=repr) == json.dumps(other, sort_keys=True, default=repr)


def _by_version(write: Mapping[str, Any]) -> tuple[bool, int]:
    return (not write.get("start"), int(write["version"]))


def _patch(write: object) -> Patch:
    if isinstance(write, Overwrite):
        write = {_OVERWRITE: write.value}
    if isinstance(write, Mapping) and len(write) == 1 and _OVERWRITE in write:
        value = write[_OVERWRITE]
        if isinstance(value, Mapping):
            value = merge({}, value)
        whole = True
    else:
        value, whole = write, isinstance(write, str)
    if isinstance(value, str):
        return Patch(value, whole=True)
    if isinstance(value, Mapping):
        return Patch(copy.deepcopy(dict(value)), whole=whole)
    raise InvalidUpdateError(
        f"working_memory takes the fields to change (a dict) or the whole text (a str), not {type(value).__name__}"
    )
