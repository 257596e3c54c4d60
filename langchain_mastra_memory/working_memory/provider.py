"""Working memory's part in a run: the page in the prompt, the tool, the channel, what nodes have changed."""

from __future__ import annotations

import hashlib
import json
import logging
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, NotRequired

from langchain.agents.middleware.types import PrivateStateAttr
from langchain_core.messages import HumanMessage
from typing_extensions import TypedDict

from langchain_mastra_memory.agents.identity import current_config
from langchain_mastra_memory.context.layers import Contribution, Signal
from langchain_mastra_memory.context.provider import FeatureProvider, Outcome, RunFacts
from langchain_mastra_memory.errors import ConfigurationError
from langchain_mastra_memory.ids import MAX_ID_LENGTH
from langchain_mastra_memory.io import IO
from langchain_mastra_memory.store.operations.messages import NewMessage, SaveMessages
from langchain_mastra_memory.store.operations.pages import (
    HERE,
    GetPage,
    ListSignals,
    PageOwner,
    StoredPage,
    StoredSignal,
    Where,
)
from langchain_mastra_memory.tokens import ready
from langchain_mastra_memory.working_memory.channel import (
    PageChannel,
    PageState,
    Patch,
    VersionChannel,
    channel_state,
    page_write,
    version_write,
)
from langchain_mastra_memory.working_memory.document import PageValue
from langchain_mastra_memory.working_memory.options import WorkingMemory
from langchain_mastra_memory.working_memory.prompt import SIGNAL_TAG, page_layer, signal_id, signal_text
from langchain_mastra_memory.working_memory.rules import as_text, misfit, value_of
from langchain_mastra_memory.working_memory.service import Update, page_owner, read_page, write_page
from langchain_mastra_memory.working_memory.tool import working_memory_tool

if TYPE_CHECKING:
    from langchain_core.tools import BaseTool

    from langchain_mastra_memory.base import MemoryBase

_log = logging.getLogger(__name__)

_REPORTED: Final = 256
_REMEMBERED: Final = 512
_OWN: Final = 256


class PrivateWorkingMemoryState(TypedDict):
    """The page's channels in an agent: private, so that parallel sub-agents neither collide nor leak."""

    working_memory: NotRequired[Annotated[PageValue, PrivateStateAttr, PageChannel]]
    working_memory_version: NotRequired[Annotated[int, PrivateStateAttr, VersionChannel]]


class WorkingMemoryProvider(FeatureProvider):
    """Shows the page, gives the tool, starts the channel and saves what nodes have changed."""

    name = "working_memory"
    state_schema = PrivateWorkingMemoryState

    def __init__(self, memory: MemoryBase) -> None:
        self.memory = memory
        self.options = settled_options(memory)
        self._reported: set[tuple[PageOwner, int]] = set()
        self._pending: OrderedDict[tuple[str, str], Signal] = OrderedDict()
        changes = self.options.has_tool and not memory.options.read_only
        self.tools: Sequence[BaseTool] = (working_memory_tool(memory, self.options),) if changes else ()

    async def start(self, io: IO, run: RunFacts) -> Mapping[str, Any] | None:
        """Save what is left of an earlier run, then start the channel from the store's page; once in a turn."""
        if _started(run) is not None:
            return None
        owner = self._owner(run)
        await self._save_patches(io, run, owner)
        page = await read_page(io, owner, self._where(run))
        value = value_of(self.options, page.text)
        return {
            "working_memory": page_write(value, page.version, start=True, run=_name(run)),
            "working_memory_version": version_write(page.version, start=True),
        }

    async def begin(self, io: IO, run: RunFacts) -> Contribution:
        """Return the page as it is shown through the turn."""
        owner = self._owner(run)
        page = await self._page(io, run, owner)
        self._report(run, owner, page)
        can_change = bool(self.tools) and not run.read_only
        return Contribution(
            working_memory=page_layer(self.options, page.text, can_change=can_change),
            signals=await self._signals(io, run, page) if self.options.use_state_signals else (),
            hidden_tools=frozenset() if can_change else frozenset(tool.name for tool in self.tools),
        )

    async def finish(self, io: IO, run: RunFacts, outcome: Outcome) -> None:
        """Save what nodes have changed and the signal that was shown; nothing of a refused run."""
        if outcome.status != "complete" or run.read_only or run.preview:
            return
        owner = self._owner(run)
        await self._save_patches(io, run, owner)
        if self.options.use_state_signals:
            await self._save_signal(io, run)

    def _owner(self, run: RunFacts) -> PageOwner:
        return page_owner(self.options, thread_id=run.thread_id, resource_id=run.resource_id)

    def _where(self, run: RunFacts) -> Where:
        return where_of(run) if self.options.scope == "thread" else HERE

    async def _page(self, io: IO, run: RunFacts, owner: PageOwner) -> StoredPage:
        """Return the page that the run started from, whatever has changed since: the prompt stays as it is."""
        held = None if run.preview else _started(run)
        if held is None or held.start is None:
            return await read_page(io, owner, self._where(run))
        if held.start == held.version and not held.patches:
            return StoredPage(version=held.start, text=None if held.page is None else as_text(held.page))
        return await io.run(GetPage(owner=owner, version=held.start))

    def _report(self, run: RunFacts, owner: PageOwner, page: StoredPage) -> None:
        """Say once that a page does not fit the schema (which may have changed); it is shown as it is."""
        known = (owner, page.version)
        if known in self._reported or run.preview:
            return
        if len(self._reported) >= _REPORTED:
            self._reported.clear()
        self._reported.add(known)
        reason = misfit(self.options, page.text)
        if reason is not None:
            _log.warning(
                "the working memory of %s does not fit its schema and is shown as it is; the next valid update "
                "repairs it: %s",
                owner.resource_id if owner.scope == "resource" else owner.thread_id,
                reason,
            )
            run.writer({"type": "memory.working_memory", "phase": "misfit", "reason": reason})

    async def _save_patches(self, io: IO, run: RunFacts, owner: PageOwner) -> None:
        """Save what nodes have returned, each patch once however often this runs."""
        held = channel_state(current_config())
        if held is None or run.read_only or run.preview:
            return
        for index, patch in enumerate(_unsaved(held)):
            mark = hashlib.sha256(json.dumps([patch.value, patch.whole], sort_keys=True).encode()).hexdigest()[:16]
            update = Update(
                value=patch.value,
                replace=patch.whole,
                writer="node",
                call=f"patch:{held.run or run.thread_id}:{held.start}:{index}:{mark}",
                where=self._where(run),
                after_message=next((item.id for item in reversed(run.items) if item.id), None),
            )
            await write_page(io, self.options, owner, update)

    async def _signals(self, io: IO, run: RunFacts, page: StoredPage) -> tuple[Signal, ...]:
        """Return the signals of the conversation, and a new one if the page changed or the last one left the window."""
        stored = await io.run(
            ListSignals(thread_id=run.thread_id, resource_id=run.resource_id, state=SIGNAL_TAG, where=where_of(run))
        )
        new = self._new_signal(run, page, stored[-1] if stored else None)
        shown = [
            Signal(message=signal.message, before=signal.before, always=new is None and signal is stored[-1])
            for signal in stored
        ]
        self._pending.pop((run.thread_id, run.turn), None)
        if new is None:
            return tuple(shown)
        self._pending[run.thread_id, run.turn] = new
        while len(self._pending) > _REMEMBERED:
            self._pending.popitem(last=False)
        return (*shown, new)

    def _new_signal(self, run: RunFacts, page: StoredPage, last: StoredSignal | None) -> Signal | None:
        before = run.question
        if before is None or before.id is None or (last is None and page.text is None):
            return None
        text = signal_text(self.options, page.text)
        if last is not None:
            unchanged = last.message.text == text and self._in_window(run, last, before.id)
            if unchanged or last.before == before.id:
                return None
        return Signal(message=HumanMessage(text, id=signal_id(before.id)), before=before.id)

    def _in_window(self, run: RunFacts, last: StoredSignal, question: str) -> bool:
        """Tell whether the model will see a signal: whether the message that it stands before is in the window."""
        history = self.memory.options.message_history
        if history is None:
            return False
        most = history.limits(run.options).last_messages
        if most is None:
            return True
        if not run.checkpointed:
            return last.distance < most
        behind: int | None = None
        for item in reversed(run.items):
            behind = 0 if item.id == question else (behind if behind is None else behind + 1)
            if behind is not None and (item.id == last.before or behind > most):
                return behind <= most
        return False

    async def _save_signal(self, io: IO, run: RunFacts) -> None:
        """Archive the signal that the turn showed. One that is lost with the process is made again by the next turn."""
        signal = self._pending.pop((run.thread_id, run.turn), None)
        if signal is None or signal.message.id is None or len(signal.message.id) > MAX_ID_LENGTH:
            return
        counter = await ready(self.memory.token_counter, io)
        new = NewMessage(
            message=signal.message,
            tokens=counter.count_message(signal.message),
            kind="signal",
            metadata={"state": SIGNAL_TAG, "before": signal.before},
        )
        await io.run(
            SaveMessages(
                thread_id=run.thread_id,
                resource_id=run.resource_id,
                messages=(new,),
                features=self.memory.options.features,
            )
        )


def settled_options(memory: MemoryBase) -> WorkingMemory:
    """Return the memory's options with every None decided.

    Raises:
        ConfigurationError: Working memory is off.
    """
    options = memory.options.working_memory
    if options is None:
        raise ConfigurationError("working memory is off: turn it on with Memory(working_memory=True)")
    observations = memory.options.observational_memory
    manages = observations is not None and observations.observation.manage_working_memory
    return options.settled(observer_manages=manages)


def where_of(run: RunFacts) -> Where:
    """Return from where a run looks at the conversation: the archive up to its position, then its own messages."""
    own: list[str] = []
    for item in reversed(run.items):
        if (run.position is not None and item.seq is not None) or len(own) == _OWN:
            break
        if item.id:
            own.append(item.id)
    position = None if run.position is None else (run.position.branch, run.position.head)
    return Where(position=position, ids=tuple(reversed(own)), from_state=run.checkpointed)


def _name(run: RunFacts) -> str:
    return f"{run.thread_id}:{run.turn}"


def _started(run: RunFacts) -> PageState | None:
    """Return what the channel holds if this turn has started it; a step of its own before sees the last turn's."""
    held = channel_state(current_config())
    return held if held is not None and held.start is not None and held.run == _name(run) else None


def _unsaved(held: PageState) -> tuple[Patch, ...]:
    """Return the patches of a channel; before a first start, the page itself is what nodes or the input gave."""
    if held.start is not None:
        return held.patches
    return () if held.page is None else (Patch(held.page),)
