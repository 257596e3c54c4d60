"""Whose run is this: thread, resource and switches, from the platform, the context and the config."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig

from langchain_mastra_memory.agents.delegation import Delegation, current_delegation, delegate, worker_thread_id
from langchain_mastra_memory.agents.run_options import RunOptions, run_options
from langchain_mastra_memory.errors import ConfigurationError, MissingResourceError, ThreadOwnershipError
from langchain_mastra_memory.ids import checked_id, optional_id
from langchain_mastra_memory.threads.routing import RoutedSaver

if TYPE_CHECKING:
    from langchain_mastra_memory.base import MemoryBase

CHECKPOINTER_KEY: Final = "__pregel_checkpointer"
"""LangGraph's own key for the run's checkpointer: None without one (`execution_info` cannot tell)."""

ResourceOf = Callable[[Any], str | None]
"""A function of the runtime that says whose run it is, instead of the rules here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Whose run it is.

    Attributes:
        thread_id: The memory thread.
        resource_id: The owner, or None.
        options: The run's switches.
        checkpointer: The run's checkpointer, or None.
        root: Whether the run is the outermost graph of its thread.
        delegation: What made this run a worker's, or None.
        stop: The step at which LangGraph ends the invocation: another one after an interrupt. None outside a graph.
    """

    thread_id: str
    resource_id: str | None
    options: RunOptions
    checkpointer: object | None = None
    root: bool = True
    delegation: Delegation | None = None
    stop: int | None = None

    @property
    def agent(self) -> str | None:
        """The sub-agent's name, or None."""
        return self.delegation.agent if self.delegation else None

    @property
    def memory(self) -> MemoryBase | None:
        """The memory that a delegation brings, or None."""
        return self.delegation.memory if self.delegation else None

    @property
    def context(self) -> tuple[BaseMessage, ...]:
        """The parent's conversation, for a delegated run."""
        return self.delegation.context if self.delegation else ()

    def state_is_history(self, messages: Sequence[BaseMessage]) -> bool:
        """Return whether the graph's state is the history of this memory thread.

        It is under a checkpointer, in the outermost graph. A graph inside another one has what its parent handed in:
        that is the history when there is more in it than a question.
        """
        if self.checkpointer is None or self.agent is not None:
            return False
        return self.root or any(message.type != "human" for message in messages)


ACTING: Final[ContextVar[tuple[Identity, MemoryBase] | None]] = ContextVar("mastra_memory_acting", default=None)
"""While a tool of a middleware runs: whose run it is and which memory it uses, as that middleware decided."""
ACTING_CALL: Final[ContextVar[str | None]] = ContextVar("mastra_memory_acting_call", default=None)
"""The id of the tool call that `ACTING` is about: a graph inside that tool has calls of its own."""


def current_config() -> RunnableConfig:
    """Return the config of the run that this code is part of; empty outside of one."""
    from langgraph.config import get_config  # noqa: PLC0415  # needs a running graph

    try:
        return get_config()
    except RuntimeError:
        return {}


def is_streamed(writer: Callable[[Any], None]) -> bool:
    """Return whether somebody listens to the custom stream: with `invoke`, or in other modes, nobody does.

    LangGraph gives such a run a writer that does nothing, one of several: a function that reaches for nothing outside
    of itself.

    Args:
        writer: The runtime's `stream_writer`.
    """
    code = getattr(writer, "__code__", None)
    return code is None or bool(code.co_freevars or code.co_names)


def from_context(context: object, name: str) -> Any:
    """Return a field of a run's context, a mapping or an object; None where it has none."""
    if isinstance(context, Mapping):
        return context.get(name)
    return getattr(context, name, None) if context is not None else None


def authenticated_user(runtime: object, config: RunnableConfig) -> str | None:
    """Return the id of the user that the platform has authenticated, or None outside a platform."""
    user = getattr(getattr(runtime, "server_info", None), "user", None)
    identity = getattr(user, "identity", None)
    if identity is None:
        served = (config.get("configurable") or {}).get("langgraph_auth_user")
        identity = served.get("identity") if isinstance(served, Mapping) else getattr(served, "identity", None)
    return None if identity is None else str(identity)


def identify(
    runtime: object,
    config: RunnableConfig,
    *,
    resource_of: ResourceOf | None = None,
    agent: str | None = None,
) -> Identity:
    """Return whose run this is.

    A delegation goes first. Otherwise the thread is `configurable["thread_id"]`, and the resource is what
    `resource_of` says, else the authenticated user, else the context's `resource_id`, else the config's.

    Args:
        runtime: The run's runtime, with `context` and perhaps `server_info`.
        config: The run's config.
        resource_of: Decides the resource instead.
        agent: The name of the sub-agent whose own memory this is.

    Raises:
        ConfigurationError: There is no thread id, or the switches are not valid.
        InvalidIdError: An id is not valid.
        ThreadOwnershipError: The client names another resource than the authenticated user.
    """
    configurable: Mapping[str, Any] = config.get("configurable") or {}
    context = getattr(runtime, "context", None)
    switches = from_context(context, "memory")
    options = run_options(switches if switches is not None else configurable.get("memory"))
    namespace = str(configurable.get("checkpoint_ns") or "")
    root = "|" not in namespace
    checkpointer = configurable.get(CHECKPOINTER_KEY)
    if isinstance(checkpointer, RoutedSaver):
        checkpointer = checkpointer.of(config)
    stop = getattr(configurable.get("__pregel_scratchpad"), "stop", None)
    delegation = current_delegation(configurable)
    if delegation is not None:
        options = options.for_worker()
        return Identity(
            thread_id=delegation.thread_id,
            resource_id=delegation.resource_id,
            options=options,
            checkpointer=checkpointer,
            root=root,
            delegation=delegation,
            stop=stop,
        )
    thread_id = configurable.get("thread_id")
    if thread_id is None:
        thread_id = from_context(context, "thread_id")
    if thread_id is None:
        if options.off:
            thread_id = "-"
        else:
            raise ConfigurationError(
                'memory needs a thread: invoke the graph with {"configurable": {"thread_id": ...}}, or switch memory '
                'off for the run with {"configurable": {"memory": {"off": True}}}'
            )
    thread = checked_id(thread_id)
    resource = _resource(runtime, config, context, resource_of)
    if agent is not None:
        delegation = delegate(
            None,
            agent=agent,
            parent=None,
            parent_thread_id=thread,
            parent_resource_id=needed_resource(resource, f"the worker {agent[:40]!r}"),
            thread_id=worker_thread_id(thread, agent, namespace.rpartition("|")[0]),
            context=(),
        )
        thread, resource = delegation.thread_id, delegation.resource_id
    return Identity(
        thread_id=thread,
        resource_id=resource,
        options=options,
        checkpointer=checkpointer,
        root=root,
        delegation=delegation,
        stop=stop,
    )


def needed_resource(resource_id: str | None, what: str) -> str:
    """Return a resource id that must be there.

    Args:
        resource_id: What the run names.
        what: What needs it, for the message.

    Raises:
        MissingResourceError: The run names none.
    """
    if resource_id is None:
        raise MissingResourceError(
            f"{what} needs a resource id: pass it as `context.resource_id` or as "
            '{"configurable": {"resource_id": ...}}'
        )
    return resource_id


def _resource(runtime: object, config: RunnableConfig, context: object, resource_of: ResourceOf | None) -> str | None:
    if resource_of is not None:
        return optional_id(resource_of(runtime))
    named = from_context(context, "resource_id")
    if named is None:
        named = (config.get("configurable") or {}).get("resource_id")
    named = optional_id(named)
    user = authenticated_user(runtime, config)
    if user is None:
        return named
    if named is not None and named != user:
        raise ThreadOwnershipError(
            f"the run names resource {named[:80]!r}, but the authenticated user is another; leave the resource out, "
            "or decide it with MemoryMiddleware(resource_id=fn)"
        )
    return checked_id(user, "resource_id")
