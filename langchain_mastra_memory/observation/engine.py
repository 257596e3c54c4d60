"""What observing and reflecting share: reading the log, committing under its conditions, claims, back-off, records."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from langchain_mastra_memory.context.provider import no_writer
from langchain_mastra_memory.errors import ThreadNotFoundError
from langchain_mastra_memory.forking import new_lock, watch
from langchain_mastra_memory.ids import new_id
from langchain_mastra_memory.observation.hooks import HookContext, Lifecycle, ObservationHooks, Trigger, call
from langchain_mastra_memory.observation.log import START, Head, LogRow, LogState, MessageFact, Path
from langchain_mastra_memory.observation.options import ObservationalMemory
from langchain_mastra_memory.observation.transitions import Observed, Refused
from langchain_mastra_memory.store.operations.log import (
    CallRecord,
    ClaimLog,
    CommitLog,
    LogAddress,
    LogThread,
    LogView,
    OpenLog,
    ReadLog,
    RecordCalls,
    ReleaseLog,
)

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

    from langchain_mastra_memory.base import MemoryBase
    from langchain_mastra_memory.io import IO
    from langchain_mastra_memory.observation.calls import Reply

COMMITS: Final = 50
"""How often a result is judged again because somebody else was faster, before it is dropped."""
CLAIM_MARGIN: Final = 30.0
"""Seconds that a claim outlives the deadline of its call."""
BACK_OFF: Final = 30.0
"""Seconds without attempts after a second failure in a row; doubled by each further one."""
LONGEST_BACK_OFF: Final = 600.0
REMEMBERED: Final = 1000
VIEWS: Final = 64
"""Views that are kept to read less the next time; one is mostly the texts that its prompts have."""
UNMADE: Final = -1
"""The key of a thread that is not made yet: nothing is ever committed under it."""

Judge = Callable[[LogView], "Head | Refused | None"]


@dataclass(frozen=True, kw_only=True)
class Cause:
    """Who observes, and why.

    Attributes:
        address: Which log.
        trigger: What made the call.
        model: The agent's own model.
        writer: The graph's custom stream.
        hooks: Hooks of this call alone; they are waited for.
        read_only: Whether nothing may be written.
    """

    address: LogAddress
    trigger: Trigger
    model: BaseChatModel | None = None
    writer: Callable[[Any], None] = no_writer
    hooks: ObservationHooks | None = None
    read_only: bool = False

    @property
    def ids(self) -> dict[str, str | None]:
        """The ids, for events."""
        return {"thread_id": self.address.thread_id, "resource_id": self.address.resource_id}


@dataclass(slots=True)
class _Failures:
    count: int = 0
    not_before: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalRow:
    """A row about messages of the running turn that are not archived yet: of this process and this run only.

    Attributes:
        row: The row; its span is given when its messages are archived.
        facts: The messages that it covers.
    """

    row: LogRow
    facts: tuple[MessageFact, ...]


@dataclass
class Engine:
    """The observational memory of one `Memory`.

    Attributes:
        memory: The memory.
        options: Its options.
        owner: The name under which this process claims calls.
    """

    memory: MemoryBase
    options: ObservationalMemory
    owner: str = field(default_factory=new_id)
    _failures: OrderedDict[tuple[str, str], _Failures] = field(default_factory=OrderedDict)
    _local: OrderedDict[str, tuple[str, list[LocalRow]]] = field(default_factory=OrderedDict)
    _questions: OrderedDict[str, str] = field(default_factory=OrderedDict)
    _views: OrderedDict[tuple[str | None, str | None], LogView] = field(default_factory=OrderedDict)
    _running: set[tuple[str, str]] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=new_lock)

    def __post_init__(self) -> None:
        """Have forked processes make their own calls."""
        watch(self)

    def forget_parent(self) -> None:
        """Forget what was under way in the process that this one was forked from, and claim under another name."""
        self.owner, self._running = new_id(), set()

    def address(
        self,
        thread_id: str | None,
        resource_id: str | None,
        *,
        position: tuple[int, int] | None = None,
        ids: tuple[str, ...] = (),
        checkpoint_id: str | None = None,
    ) -> LogAddress:
        """Return the address of a log."""
        return LogAddress(
            scope=self.options.scope,
            thread_id=thread_id,
            resource_id=resource_id,
            position=position,
            ids=ids,
            checkpoint_id=checkpoint_id,
        )

    async def view(self, io: IO, address: LogAddress) -> LogView:
        """Read a log with the raw messages behind it; what was read before and still holds is not read again."""
        key = address.thread_id, address.resource_id
        with self._lock:
            known = self._views.get(key)
        view = await io.run(ReadLog(address=address, known=known))
        if not address.whole and address.checkpoint_id is None:
            with self._lock:
                self._views[key] = view
                self._views.move_to_end(key)
                while len(self._views) > VIEWS:
                    self._views.popitem(last=False)
        return view

    async def view_or_new(self, io: IO, address: LogAddress) -> LogView:
        """Read a log, or return an empty one for a thread that will be made when its first turn is saved."""
        try:
            return await self.view(io, address)
        except ThreadNotFoundError:
            thread_id = address.thread_id or ""
            path = Path(UNMADE, ((0, START),))
            thread = LogThread(key=UNMADE, id=thread_id, title=None, metadata={}, path=path, raw=())
            state = LogState(head=Head(epoch="", version=0), rows={}, paths={UNMADE: path})
            return LogView(
                state=state, threads={UNMADE: thread}, current=UNMADE, resource_id=address.resource_id, opened=True
            )

    async def opened(self, io: IO, address: LogAddress, view: LogView) -> LogView:
        """Return the view of a log that is surely there, so that it has an epoch."""
        if view.opened:
            return view
        await io.run(OpenLog(address=self.owned(address, view)))
        return await self.view(io, address)

    def owned(self, address: LogAddress, view: LogView) -> LogAddress:
        """Return the address with the owner that the view found."""
        return replace(address, resource_id=view.resource_id)

    async def commit(
        self,
        io: IO,
        address: LogAddress,
        judge: Judge,
        *,
        rows: Callable[[LogView], Sequence[LogRow]] = lambda _view: (),
        check: Observed | None = None,
        terms: Mapping[str, bytes] | None = None,
        mirror: Mapping[int, Sequence[tuple[tuple[str, ...], Any]]] | None = None,
        titles: Mapping[int, str] | None = None,
        view: LogView | None = None,
    ) -> tuple[Head | Refused | None, LogView]:
        """Judge on the newest head and write, again while somebody else is faster; the model is never called again.

        Returns:
            The head that was written, why nothing was, or None when there was nothing to do; and the view it was
            judged on.
        """
        for _ in range(COMMITS):
            seen = view if view is not None else await self.view(io, address)
            view = None
            if not seen.state.movable:
                return None, seen
            verdict = judge(seen)
            if verdict is None or isinstance(verdict, Refused):
                return verdict, seen
            done = await io.run(
                CommitLog(
                    address=self.owned(address, seen),
                    read=(seen.state.head.epoch, seen.state.head.version),
                    paths=seen.state.paths,
                    head=verdict,
                    rows=tuple(rows(seen)),
                    terms=terms or {},
                    check=check,
                    mirror=mirror or {},
                    titles=titles or {},
                )
            )
            if isinstance(done, Refused):
                return done, seen
            if done:
                return verdict, seen
        return Refused("position"), seen

    # claims and back-off

    async def claim(self, io: IO, address: LogAddress, view: LogView, phase: str, seconds: float) -> bool:
        """Say that a call is under way; return whether nobody else makes the same one."""
        return await io.run(
            ClaimLog(
                address=self.owned(address, view),
                line=view.state.head.line,
                phase=phase,
                owner=self.owner,
                seconds=seconds + CLAIM_MARGIN,
            )
        )

    async def release(self, io: IO, address: LogAddress, view: LogView, phase: str) -> None:
        """End a claim."""
        await io.run(
            ReleaseLog(address=self.owned(address, view), line=view.state.head.line, phase=phase, owner=self.owner)
        )

    def _key(self, address: LogAddress, phase: str) -> tuple[str, str]:
        return (address.thread_id if self.options.scope == "thread" else address.resource_id) or "", phase

    def may_try(self, address: LogAddress, phase: str) -> bool:
        """Return whether the last failures are long enough ago."""
        with self._lock:
            known = self._failures.get(self._key(address, phase))
        return known is None or self.memory.clock().timestamp() >= known.not_before

    def failed(self, address: LogAddress, phase: str) -> None:
        """Remember a failure: after the second in a row, attempts wait, each time longer."""
        with self._lock:
            known = self._failures.setdefault(self._key(address, phase), _Failures())
            known.count += 1
            if known.count > 1:
                wait = min(LONGEST_BACK_OFF, BACK_OFF * 2 ** (known.count - 2))
                known.not_before = self.memory.clock().timestamp() + wait
            while len(self._failures) > REMEMBERED:
                self._failures.popitem(last=False)

    def is_failing(self, address: LogAddress, phase: str) -> bool:
        """Return whether the last attempt failed."""
        with self._lock:
            return self._key(address, phase) in self._failures

    def begin(self, address: LogAddress, phase: str) -> bool:
        """Note that the background works on a log; return whether it did not already."""
        key = self._key(address, phase)
        with self._lock:
            if key in self._running:
                return False
            self._running.add(key)
            return True

    def end(self, address: LogAddress, phase: str) -> None:
        """Note that the background is done."""
        with self._lock:
            self._running.discard(self._key(address, phase))

    def is_running(self, address: LogAddress, phase: str) -> bool:
        """Return whether the background works on a log in this process."""
        with self._lock:
            return self._key(address, phase) in self._running

    def succeeded(self, address: LogAddress, phase: str) -> None:
        """Forget the failures."""
        with self._lock:
            self._failures.pop(self._key(address, phase), None)

    # rows of a running turn that is not archived yet

    def note_question(self, thread_id: str, question: str) -> None:
        """Remember the running question of a thread."""
        with self._lock:
            self._questions[thread_id] = question
            self._questions.move_to_end(thread_id)
            while len(self._questions) > REMEMBERED:
                self._questions.popitem(last=False)

    def running_question(self, thread_id: str) -> str:
        """Return the running question of a thread, as far as this process knows."""
        with self._lock:
            return self._questions.get(thread_id, "")

    def local_rows(self, thread_id: str) -> tuple[str, list[LocalRow]]:
        """Return the rows about a turn that is not archived yet, with the question of that turn."""
        with self._lock:
            question, rows = self._local.get(thread_id, ("", []))
            return question, list(rows)

    def add_local(self, thread_id: str, question: str, row: LocalRow) -> None:
        """Keep a row until its messages are archived."""
        with self._lock:
            _, rows = self._local.setdefault(thread_id, (question, []))
            rows.append(row)
            self._local.move_to_end(thread_id)
            while len(self._local) > REMEMBERED:
                self._local.popitem(last=False)

    def drop_local(self, thread_id: str, count: int | None = None) -> None:
        """Forget the first rows of a running turn, or all."""
        with self._lock:
            held = self._local.get(thread_id)
            if held is None:
                return
            rest = [] if count is None else held[1][count:]
            if rest:
                self._local[thread_id] = (held[0], rest)
            else:
                del self._local[thread_id]

    # hooks and records

    async def lifecycle(self, io: IO, cause: Cause, name: str, context: HookContext) -> None:
        """Call a lifecycle hook: waited for where that was asked for, else logged when it fails."""
        configured = getattr(self.options.hooks, name, None) if self.options.hooks else None
        waited = self.options.hook_execution == "await" and cause.trigger != "async-buffer"
        if configured is not None and waited:
            await call(io, name, configured, context)
        elif configured is not None:
            self._in_background(io, cause, name, configured, context)
        own: Lifecycle | None = getattr(cause.hooks, name, None) if cause.hooks else None
        await call(io, name, own, context)

    def _in_background(self, io: IO, cause: Cause, name: str, hook: Lifecycle, context: HookContext) -> None:
        async def run(inner: IO) -> None:
            await call(inner, name, hook, context)

        self.memory.background.start(f"hook {name}", run, is_async=io.is_async, **cause.ids)

    def transforms(self, cause: Cause) -> tuple[ObservationHooks, ...]:
        """Return the hooks whose transforms run, the options' first."""
        return tuple(hooks for hooks in (self.options.hooks, cause.hooks) if hooks is not None)

    async def record(
        self,
        io: IO,
        address: LogAddress,
        phase: str,
        outcome: str,
        replies: Sequence[Reply],
        *,
        refused: int | None = None,
        reflected: bool = False,
    ) -> None:
        """Keep what calls cost."""
        calls = tuple(
            CallRecord(
                phase=phase,
                outcome=outcome,
                model=reply.model,
                input_tokens=int(reply.usage.get("input_tokens") or 0),
                output_tokens=int(reply.usage.get("output_tokens") or 0),
                total_tokens=int(reply.usage.get("total_tokens") or 0),
                duration_ms=round(reply.seconds * 1000),
                details=_plain(reply.metadata),
            )
            for reply in replies
        )
        if calls or refused is not None or reflected:
            await io.run(RecordCalls(address=address, calls=calls, refused=refused, reflected=reflected))


def _plain(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of a provider's metadata is plain JSON."""
    import json  # noqa: PLC0415 - only here

    kept: dict[str, Any] = {}
    for key, value in metadata.items():
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError):
            continue
        kept[key] = value
    return kept
