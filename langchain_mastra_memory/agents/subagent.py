"""A worker that remembers: a Runnable around a graph, for every way in which one agent delegates to another.

The worker runs nested in the parent's run, as LangGraph runs any subgraph: its interrupts, streams and cancelling are
LangGraph's own. Only its memory has a thread of its own, under a resource derived from the parent's.
"""

from __future__ import annotations

import inspect
import logging
import re
import uuid
import weakref
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.tools import BaseTool
from langgraph.errors import GraphBubbleUp, GraphInterrupt
from langgraph.runtime import get_runtime

from langchain_mastra_memory.agents.delegation import (
    DELEGATION_KEY,
    Delegation,
    current_delegation,
    delegate,
    start_of,
    worker_thread_id,
)
from langchain_mastra_memory.agents.forwarding import Task, answer_of, forwarded_by_default, read_task
from langchain_mastra_memory.agents.identity import (
    ACTING,
    CHECKPOINTER_KEY,
    Identity,
    current_config,
    identify,
    needed_resource,
)
from langchain_mastra_memory.agents.nodes import MemoryNode
from langchain_mastra_memory.agents.record import RUN_CHANNEL
from langchain_mastra_memory.agents.worker_tool import tool_name, worker_tool
from langchain_mastra_memory.base import MemoryBase
from langchain_mastra_memory.checks import check_choice, check_function, check_text
from langchain_mastra_memory.errors import ConfigurationError, ProcessorError
from langchain_mastra_memory.ids import checked_id, optional_id
from langchain_mastra_memory.io import IO, drive
from langchain_mastra_memory.shown import shown
from langchain_mastra_memory.store.operations.messages import NewMessage, SaveMessages
from langchain_mastra_memory.store.operations.runs import LoadHistory

logger = logging.getLogger(__name__)
_NAMES: weakref.WeakKeyDictionary[MemoryBase, weakref.WeakValueDictionary[str, SubAgent]] = weakref.WeakKeyDictionary()

MessageFilter = Callable[..., Sequence[BaseMessage] | Awaitable[Sequence[BaseMessage]]]
"""`filter(messages=..., agent=..., prompt=...)` returns what of the parent's conversation the worker sees."""

_COORDINATES: Final = frozenset({"thread_id", "checkpoint_ns", "checkpoint_id", "checkpoint_map"})
"""Keys that would make LangGraph drop the parent's run from a nested one, when given again."""
_CHANNELS: Final = re.compile(r"\A(memory_|working_memory)")
"""Our own channels: those of a raw graph are not private, and must not reach the parent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """A delegation that is about to run."""

    delegation: Delegation
    value: dict[str, Any]
    config: RunnableConfig
    prompt: HumanMessage
    saved_here: bool
    can_wait: bool


class SubAgent(Runnable[Any, dict[str, Any]]):
    """A worker with a memory of its own, made by `memory.subagent(...)`.

    It takes a prompt, messages, or a state with `messages`, and returns `{"messages": [what the worker added]}`, with
    its `structured_response` and other state if it has any.

    Attributes:
        name: The worker's name: part of its resource id.
        description: What it is for, for the delegating model.
    """

    def __init__(
        self,
        agent: Runnable[Any, Any],
        *,
        name: str,
        memory: MemoryBase,
        description: str | None = None,
        message_filter: MessageFilter | None = None,
        worker_memory: MemoryBase | None = None,
        thread: Literal["new", "stable"] = "new",
        resource: Literal["derived", "shared"] = "derived",
        resource_id: Callable[[Any], str | None] | None = None,
    ) -> None:
        check_choice("thread", thread, ("new", "stable"))
        check_choice("resource", resource, ("derived", "shared"))
        check_text("description", description, optional=True)
        check_function("message_filter", message_filter)
        check_function("resource_id", resource_id)
        if worker_memory is not None and not isinstance(worker_memory, MemoryBase):
            raise ConfigurationError(f"memory must be a Memory, not {shown(worker_memory, 60)}")
        self._name = self.name = checked_id(name, "name")
        self.shares_its_name = False
        self.description = description or f"Gives a task to {name} and returns the answer."
        self._agent = agent
        self._memory = memory
        self._worker_memory = worker_memory or memory
        self._filter = message_filter
        self._thread = thread
        self._resource = resource
        self._resource_of = resource_id
        self._remembers = any(_has_memory(part) for part in _unwrapped(agent))

        _note_name(memory, self)

    def __repr__(self) -> str:
        return f"SubAgent({self._name!r})"

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> dict[str, Any]:  # noqa: A002 - the interface's name
        """Give the worker a task and return what it added."""
        return drive(self._run(self._memory.io(is_async=False), read_task(input), config, kwargs))

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> dict[str, Any]:  # noqa: A002 - the interface's name
        """Give the worker a task and return what it added."""
        return await self._run(self._memory.io(is_async=True), read_task(input), config, kwargs)

    async def _run(
        self, io: IO, task: Task, config: RunnableConfig | None, kwargs: Mapping[str, Any], call_id: str = ""
    ) -> dict[str, Any]:
        plan = await self._plan(io, task, config, call_id)
        try:
            result = await io.call(self._agent.invoke, self._agent.ainvoke, plan.value, plan.config, **kwargs)
        except GraphInterrupt:
            if plan.can_wait:
                raise
            raise self._cannot_wait() from None
        if not isinstance(result, Mapping) or not isinstance(result.get("messages"), list):
            raise ConfigurationError(
                f"worker {self._name[:40]!r} must return a state with messages, not {shown(result)}"
            )
        if result.get("__interrupt__"):
            raise self._cannot_wait()
        before = {message.id for message in plan.value["messages"]}
        added = [message for message in result["messages"] if message.id not in before]
        if answer_of(added) is None and result.get("structured_response") is None:
            added.append(AIMessage(f"{self._name} gave no answer.", name=self._name))
        elif plan.saved_here:
            await self._save(io, plan, added)
        returned = {key: value for key, value in result.items() if not _CHANNELS.match(key)}
        return {**returned, "messages": added}

    async def _plan(self, io: IO, task: Task, config: RunnableConfig | None, call_id: str) -> _Plan:
        """Decide whose delegation this is and what the worker is given; make its thread if nobody else will."""
        ambient = current_config()
        config = config or {}
        configurable = {**(ambient.get("configurable") or {}), **(config.get("configurable") or {})}
        parent = self._parent(configurable)
        parent_resource = needed_resource(parent.resource_id, f"worker {self._name[:40]!r}")
        conversation = await self._conversation(io, parent, task)
        namespace = str(configurable.get("checkpoint_ns") or configurable.get("run_id") or uuid.uuid4())
        parts = (namespace, call_id, task.text) if self._thread == "new" else ()
        delegation = delegate(
            self._worker_memory,
            agent=self._name,
            parent=parent.delegation,
            parent_thread_id=parent.thread_id,
            parent_resource_id=parent_resource,
            thread_id=worker_thread_id(parent.thread_id, self._name, *parts),
            context=tuple(await self._forwarded(io, conversation, task)),
        )
        if self._resource == "shared":
            delegation = replace(delegation, resource_id=parent_resource)
        prompt = HumanMessage(task.prompt, id=worker_thread_id(delegation.thread_id, namespace, call_id, task.text))
        off = parent.options.off or parent.options.read_only or self._worker_memory.options.read_only
        saved_here = not (self._remembers or off)
        if saved_here:
            await io.run(start_of(delegation, self._worker_memory.options.features))
        messages = [prompt] if self._remembers else [*delegation.context, prompt]
        nested = {} if ambient else dict(configurable)
        nested |= {k: v for k, v in (config.get("configurable") or {}).items() if _is_free(k)}
        nested |= {"resource_id": delegation.resource_id, DELEGATION_KEY: delegation}
        return _Plan(
            delegation=delegation,
            value={**{k: v for k, v in task.extra.items() if not _CHANNELS.match(k)}, "messages": messages},
            config={**config, "configurable": nested},
            prompt=prompt,
            saved_here=saved_here,
            can_wait=configurable.get(CHECKPOINTER_KEY) is not None,
        )

    def _cannot_wait(self) -> ConfigurationError:
        return ConfigurationError(
            f"worker {self._name[:40]!r} stopped to ask a person, but the delegating graph has no checkpointer to wait "
            "with: compile it with one, such as memory.checkpointer"
        )

    def _parent(self, configurable: Mapping[str, Any]) -> Identity:
        """Return whose run delegates: as its middleware decided, where there is one."""
        acting = ACTING.get()
        if acting is not None and acting[0].delegation == current_delegation(configurable):
            return acting[0]
        return identify(_runtime(), {"configurable": dict(configurable)}, resource_of=self._resource_of)

    async def _conversation(self, io: IO, parent: Identity, task: Task) -> list[BaseMessage]:
        """Return the parent's conversation: what came with the task, and what only its archive has."""
        known = list(parent.context) + list(task.conversation)
        history = self._memory.options.message_history
        if parent.checkpointer is not None or parent.options.off or history is None or parent.delegation is not None:
            return known
        loaded = await io.run(
            LoadHistory(
                thread_id=parent.thread_id,
                resource_id=optional_id(parent.resource_id),
                last=history.last_messages if isinstance(history.last_messages, int) else None,
            )
        )
        here = {message.id for message in known}
        return [stored.message for stored in loaded.messages if stored.id not in here] + known

    async def _forwarded(self, io: IO, conversation: list[BaseMessage], task: Task) -> list[BaseMessage]:
        if self._filter is None:
            return forwarded_by_default(conversation)
        try:
            chosen = self._filter(messages=conversation, agent=self._name, prompt=task.text)
            if inspect.isawaitable(chosen):
                if not io.is_async:
                    if inspect.iscoroutine(chosen):
                        chosen.close()
                    raise TypeError("an async message_filter needs the async methods of the graph")  # noqa: TRY301 - reported with the filter's name
                chosen = await chosen
            return list(chosen)
        except GraphBubbleUp:
            raise
        except Exception as error:
            raise ProcessorError(
                f"the message_filter of worker {self._name[:40]!r} failed: {shown(error, 200)}"
            ) from error

    async def _save(self, io: IO, plan: _Plan, added: Sequence[BaseMessage]) -> None:
        """Keep the task and the answer of a worker that has no memory hooks of its own."""
        answer = answer_of(added)
        kept: list[BaseMessage] = [plan.prompt] if answer is None else [plan.prompt, answer]
        counter = self._worker_memory.token_counter
        await io.run(
            SaveMessages(
                thread_id=plan.delegation.thread_id,
                resource_id=plan.delegation.resource_id,
                messages=tuple(NewMessage(message=m, tokens=round(counter.count_message(m))) for m in kept),
                outside=False,
                features=self._worker_memory.options.features,
            )
        )

    def as_tool(  # type: ignore[override]  # Runnable.as_tool makes a tool of any Runnable; this one knows the run
        self, *, name: str | None = None, description: str | None = None
    ) -> BaseTool:
        """Return a tool that gives the worker a task, for `create_agent(tools=[...])`.

        Args:
            name: The tool's name; by default the worker's, with `_` for what providers do not allow.
            description: What the delegating model is told; by default the worker's description.

        Returns:
            A tool with one argument, `prompt`. A worker that fails gives a tool error without the error's text.
        """
        return worker_tool(self, name=name or tool_name(self._name), description=description or self.description)

    def delegate(self, task: Task, config: RunnableConfig | None, call_id: str) -> dict[str, Any]:
        """Give the worker a task that a tool call asks for."""
        return drive(self._run(self._memory.io(is_async=False), task, config, {}, call_id))

    async def adelegate(self, task: Task, config: RunnableConfig | None, call_id: str) -> dict[str, Any]:
        """Give the worker a task that a tool call asks for."""
        return await self._run(self._memory.io(is_async=True), task, config, {}, call_id)

    def as_compiled_subagent(self) -> dict[str, Any]:
        """Return the worker as a `CompiledSubAgent` for `deepagents`' `create_deep_agent(subagents=[...])`."""
        return {"name": self.name, "description": self.description, "runnable": self}


def _is_free(key: str) -> bool:
    return key not in _COORDINATES and not key.startswith("__pregel")


def _note_name(memory: MemoryBase, worker: SubAgent) -> None:
    """Say once when two workers of one memory have one name: they share its resource, with pages and all."""
    named = _NAMES.setdefault(memory, weakref.WeakValueDictionary())
    other = named.setdefault(worker._name, worker)  # noqa: SLF001 - a worker's own module
    if other._agent is not worker._agent and not other.shares_its_name:  # noqa: SLF001
        other.shares_its_name = True
        logger.warning("two workers are named %r: they share one resource; give one another name", worker.name)


def _has_memory(graph: object) -> bool:
    """Tell whether a graph has our middleware or our nodes, so that it keeps its memory by itself."""
    nodes: Mapping[str, Any] = getattr(graph, "nodes", {})
    return RUN_CHANNEL in getattr(graph, "channels", ()) or any(
        isinstance(getattr(node, "bound", None), MemoryNode) for node in nodes.values()
    )


def _unwrapped(agent: object) -> Iterator[object]:
    while agent is not None:
        yield agent
        agent = getattr(agent, "bound", None)


def _runtime() -> object:
    try:
        return get_runtime()
    except (RuntimeError, KeyError):
        return None
