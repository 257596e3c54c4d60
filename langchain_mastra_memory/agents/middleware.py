"""`MemoryMiddleware`: memory for `create_agent`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast, get_type_hints

from langchain.agents.middleware.types import (
    AgentMiddleware,
    AgentState,
    ExtendedModelResponse,
    ModelRequest,
    ModelResponse,
    ToolCallRequest,
)
from langchain_core.messages import AnyMessage, BaseMessage, RemoveMessage, ToolMessage
from langchain_core.tools import BaseTool
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.runtime import Runtime
from langgraph.types import Command
from typing_extensions import TypedDict

from langchain_mastra_memory.agents.call import Call
from langchain_mastra_memory.agents.channels import every_channel
from langchain_mastra_memory.agents.core import Turns, turns_of
from langchain_mastra_memory.agents.delegation import start_of
from langchain_mastra_memory.agents.identity import (
    ACTING,
    ACTING_CALL,
    Identity,
    ResourceOf,
    current_config,
    identify,
    is_streamed,
)
from langchain_mastra_memory.agents.partial import keep_partial, streamed_text
from langchain_mastra_memory.agents.placing import is_late_start, outer_middleware, warn_misplaced
from langchain_mastra_memory.agents.record import RUN_CHANNEL, RunRecord, RunState, is_complete, opened, record_of
from langchain_mastra_memory.agents.saving import archives, finish, keeps_nothing
from langchain_mastra_memory.base import MemoryBase
from langchain_mastra_memory.checks import check_choice, check_function, check_switch, check_text
from langchain_mastra_memory.errors import ConfigurationError
from langchain_mastra_memory.history.incoming import give_ids
from langchain_mastra_memory.history.options import HISTORY_SOURCES, HistorySource
from langchain_mastra_memory.io import IO, drive
from langchain_mastra_memory.shown import shown
from langchain_mastra_memory.threads.saver import ThreadSaver

logger = logging.getLogger(__name__)

MIDDLEWARE_NAME = "MastraMemory"

MemoryOf = Callable[[Any], MemoryBase]
"""A function of the runtime that says which memory a run uses."""

Handler = Callable[[ModelRequest[Any]], ModelResponse[Any]]
AsyncHandler = Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]


class MemoryMiddleware(AgentMiddleware[Any, Any, Any]):
    """Gives an agent its memory: history, layers, saving. Put it first in the list.

    What the model sees is put into each request; `messages` in the state stays whole and nothing injected is saved.
    The run's messages are saved when it is complete. With a checkpointer the state is the history, and a `ThreadSaver`
    archives by itself; without one the archive is.

    Args:
        memory: The memory; a function of the runtime that returns one per run; None takes the memory of the delegation
            that the agent's run is part of.
        name: Another name, for a second memory in one graph.
        agent: The name of a sub-agent: its memory goes under the derived resource, one thread for each delegation.
        resource_id: Decides whose run it is, as a function of the runtime.
        history: Where the history comes from; by default as in `MessageHistory(history=...)`.
        retain_full_input: Take what the caller sends as the whole conversation.
        save_partial: Keep what was streamed when the caller cancels an async run; see `MessageHistory`.
        features: With a function as `memory`: a memory whose features (tools, channels) all the others have too.

    Example:
        ```python
        agent = create_agent(model, tools, middleware=[MemoryMiddleware(memory)], checkpointer=memory.checkpointer)
        ```
    """

    def __init__(
        self,
        memory: MemoryBase | MemoryOf | None = None,
        *,
        name: str | None = None,
        agent: str | None = None,
        resource_id: ResourceOf | None = None,
        history: HistorySource | None = None,
        retain_full_input: bool | None = None,
        save_partial: bool | None = None,
        features: MemoryBase | None = None,
    ) -> None:
        super().__init__()
        _check_memory(memory)
        if features is not None and not isinstance(features, MemoryBase):
            raise ConfigurationError(f"features must be a Memory, not {shown(features, 60)}")
        check_text("name", name, optional=True)
        check_text("agent", agent, optional=True)
        check_function("resource_id", resource_id)
        check_choice("history", history, HISTORY_SOURCES, optional=True)
        check_switch("retain_full_input", retain_full_input, optional=True)
        check_switch("save_partial", save_partial, optional=True)
        self._memory = memory
        self._name = name or MIDDLEWARE_NAME
        self._agent = agent
        self._resource_of = resource_id
        self._history = history
        self._retain = retain_full_input
        self._partial = save_partial
        sample = features or (memory if isinstance(memory, MemoryBase) else None)
        providers = sample.providers if sample is not None else ()
        self.tools: list[BaseTool] = [tool for provider in providers for tool in provider.tools]
        # Which memory it will be is known at run time only: the graph gets every channel, each run its memory's tools.
        channels = (
            every_channel() if sample is None else [p.state_schema for p in providers if p.state_schema is not None]
        )
        self.state_schema = _state_schema(channels)
        self._is_placed = False

    @property
    def name(self) -> str:
        """The name of the middleware and of its nodes."""
        return self._name

    def before_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Open the run."""
        identity = self._identity(runtime)
        turns = self._turns_for(identity, runtime)
        return drive(self._start(turns.memory.io(is_async=False), turns, identity, state, runtime))

    async def abefore_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Open the run."""
        identity = self._identity(runtime)
        turns = self._turns_for(identity, runtime)
        return await self._start(turns.memory.io(is_async=True), turns, identity, state, runtime)

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Handler
    ) -> ExtendedModelResponse[Any] | ModelResponse[Any]:
        """Put memory into the request, and note that the answer came through here."""
        self._check_place()
        identity = self._identity(request.runtime)
        if identity.options.off:
            return self._noted(handler(self._without_tools(request)), request)
        turns = self._turns_for(identity, request.runtime)
        shown = drive(self._shown(turns.memory.io(is_async=False), turns, identity, request))
        return self._noted(handler(shown), shown)

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: AsyncHandler
    ) -> ExtendedModelResponse[Any] | ModelResponse[Any]:
        """Put memory into the request, and note that the answer came through here."""
        self._check_place()
        identity = self._identity(request.runtime)
        if identity.options.off:
            return self._noted(await handler(self._without_tools(request)), request)
        turns = self._turns_for(identity, request.runtime)
        shown = await self._shown(turns.memory.io(is_async=True), turns, identity, request)
        if not self._keeps_partial(turns, identity):
            return self._noted(await handler(shown), shown)
        with streamed_text() as said:
            try:
                return self._noted(await handler(shown), shown)
            except asyncio.CancelledError:
                call = self._call(turns, identity, request.state, request.runtime)
                record = record_of(request.state, self._name)
                keep_partial(turns, call, record, said.message())
                raise

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], ToolMessage | Command[Any]]
    ) -> ToolMessage | Command[Any]:
        """Tell memory's own tools whose run it is and which memory it uses."""
        with self._acting(request) as known:
            return handler(known)

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]]
    ) -> ToolMessage | Command[Any]:
        """Tell memory's own tools whose run it is and which memory it uses."""
        with self._acting(request) as known:
            return await handler(known)

    @contextmanager
    def _acting(self, request: ToolCallRequest) -> Iterator[ToolCallRequest]:
        """Say whose run it is while a tool works, and find the tool where only this run's memory brings it."""
        runtime = cast("Runtime[Any]", request.runtime)
        identity = self._identity(runtime)
        memory = self._turns_for(identity, runtime).memory
        brought = None if request.tool is not None else _tools_of(memory).get(request.tool_call["name"])
        if brought is not None:
            request = request.override(tool=brought)
        token = ACTING.set((identity, memory))
        call = ACTING_CALL.set(request.tool_call["id"])
        try:
            yield request
        finally:
            ACTING_CALL.reset(call)
            ACTING.reset(token)

    def after_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Close the run: save it when it is complete."""
        identity = self._identity(runtime)
        turns = self._turns_for(identity, runtime)
        return drive(self._finish(turns.memory.io(is_async=False), turns, identity, state, runtime))

    async def aafter_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Close the run: save it when it is complete."""
        identity = self._identity(runtime)
        turns = self._turns_for(identity, runtime)
        return await self._finish(turns.memory.io(is_async=True), turns, identity, state, runtime)

    def _keeps_partial(self, turns: Turns, identity: Identity) -> bool:
        """Return whether what was streamed is kept when the caller cancels."""
        options = turns.history
        choices = (identity.options.save_partial, self._partial, options.save_partial if options else False)
        wanted = next(choice for choice in choices if choice is not None)
        return wanted and not keeps_nothing(identity, turns)

    def _check_place(self) -> None:
        """Warn, once, when another middleware is around this one: it would see the prompt before memory has made it."""
        if self._is_placed:
            return
        self._is_placed = True
        outer = outer_middleware(self)
        if outer is not None:
            warn_misplaced(self._name, outer)

    def _identity(self, runtime: Runtime[Any]) -> Identity:
        return identify(runtime, current_config(), resource_of=self._resource_of, agent=self._agent)

    def _turns_for(self, identity: Identity, runtime: Runtime[Any]) -> Turns:
        memory = self._memory
        if memory is None:
            memory = identity.memory
            if memory is None:
                raise ConfigurationError(
                    "MemoryMiddleware() has no memory of its own and this run is no delegation: give it a memory, or "
                    "run the agent through memory.subagent(...)"
                )
        elif not isinstance(memory, MemoryBase):
            memory = memory(runtime)
            _check_saver(identity, memory)
        if not isinstance(memory, MemoryBase):
            raise ConfigurationError(f"MemoryMiddleware needs a Memory, not {shown(memory)}")
        return turns_of(memory)

    def _call(
        self, turns: Turns, identity: Identity, state: Mapping[str, Any], runtime: Runtime[Any], **more: Any
    ) -> Call:
        options = turns.history
        record = record_of(state, self._name)
        fields: dict[str, Any] = {
            "turn": record.get("turn", ""),
            "inputs": tuple(record.get("inputs", ())),
            "refused": frozenset(record.get("refused", ())),
            "again": frozenset(record.get("again", ())),
            **more,
        }
        if "messages" not in more:  # of a long thread, one copy is enough
            fields["messages"] = tuple(state.get("messages", ()))
        return Call(
            identity=identity,
            state=state,
            writer=runtime.stream_writer,
            streams=is_streamed(runtime.stream_writer),
            source=self._history or (options.history if options else "auto"),
            retain_full_input=options.retain_full_input if options and self._retain is None else bool(self._retain),
            **fields,
        )

    async def _start(
        self, io: IO, turns: Turns, identity: Identity, state: Mapping[str, Any], runtime: Runtime[Any]
    ) -> dict[str, Any] | None:
        messages: Sequence[BaseMessage] = state.get("messages", ())
        new = () if identity.options.off else messages[turns.seen(identity.thread_id, messages) :]
        nameless = give_ids(new)
        others = len(set(state.get(RUN_CHANNEL) or {}) - {self._name})
        if (
            not self._is_placed
            and not record_of(state, self._name)
            and is_late_start(current_config(), messages, memories=others)
        ):
            self._is_placed = True
            warn_misplaced(self._name, "a middleware with a before_agent hook")
        record = opened(
            record_of(state, self._name),
            messages,
            saver=archives(identity, turns.memory),
            off=keeps_nothing(identity, turns),
        )
        update: dict[str, Any] = {RUN_CHANNEL: {self._name: record}}
        if identity.options.off:
            return update
        if nameless:  # a DeltaChannel leaves them so: the state has to know them by the ids that are archived
            update["messages"] = [RemoveMessage(id=REMOVE_ALL_MESSAGES), *messages]
        if identity.delegation is not None and not turns.read_only(identity):
            await io.run(start_of(identity.delegation, turns.memory.options.features))
        call = self._call(
            turns,
            identity,
            state,
            runtime,
            turn=record["turn"],
            inputs=tuple(record["inputs"]),
            refused=frozenset(record["refused"]),
        )
        facts = await turns.facts(io, call)
        for provider in turns.providers(identity):
            update.update(await provider.start(io, facts) or {})
        return update

    async def _shown(self, io: IO, turns: Turns, identity: Identity, request: ModelRequest[Any]) -> ModelRequest[Any]:
        call = self._call(
            turns,
            identity,
            cast("Mapping[str, Any]", request.state),
            request.runtime,
            messages=tuple(request.messages),
            system=request.system_message,
            tools=tuple(request.tools),
            model=request.model,
        )
        ready = await turns.prepare(io, call)
        names = {_tool_name(tool) for tool in request.tools}
        brought = [tool for name, tool in _tools_of(turns.memory).items() if name not in names]
        tools = [tool for tool in (*request.tools, *brought) if _tool_name(tool) not in ready.hidden_tools]
        return request.override(
            system_message=ready.prompt.system,
            messages=cast("list[AnyMessage]", list(ready.prompt.messages)),
            tools=tools,
        )

    def _without_tools(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        """Return a request without memory's tools: memory is off in this run."""
        names = {tool.name for tool in self.tools}
        return request.override(tools=[tool for tool in request.tools if _tool_name(tool) not in names])

    def _noted(self, response: ModelResponse[Any], request: ModelRequest[Any]) -> ExtendedModelResponse[Any]:
        """Return the response with a note in the state: its messages came through here, and which tools end a run."""
        give_ids(response.result)
        record: RunRecord = {"answers": [message.id or "" for message in response.result]}
        returning = [tool.name for tool in request.tools if isinstance(tool, BaseTool) and tool.return_direct]
        if returning:
            record["returning"] = returning
        return ExtendedModelResponse(
            model_response=response, command=Command(update={RUN_CHANNEL: {self._name: record}})
        )

    async def _finish(
        self, io: IO, turns: Turns, identity: Identity, state: Mapping[str, Any], runtime: Runtime[Any]
    ) -> dict[str, Any] | None:
        call = self._call(turns, identity, state, runtime)
        record = record_of(state, self._name)
        complete = is_complete(
            call.messages,
            record,
            structured=state.get("structured_response") is not None,
        )
        closing = await finish(io, turns, call, record, complete=complete)
        return {RUN_CHANNEL: {self._name: closing}}


def _check_memory(memory: object) -> None:
    """Refuse what is neither a memory nor a function that returns one."""
    is_function = callable(memory) and not isinstance(memory, type)
    if memory is not None and not isinstance(memory, MemoryBase) and not is_function:
        raise ConfigurationError(f"MemoryMiddleware needs a Memory, or a function of the runtime, not {shown(memory)}")


def _check_saver(identity: Identity, memory: MemoryBase) -> None:
    """Refuse a run that is remembered in one memory and checkpointed in another."""
    saver = identity.checkpointer
    if isinstance(saver, ThreadSaver) and identity.delegation is None and saver.store is not memory.store:
        raise ConfigurationError(
            "this run's memory and its checkpointer belong to different memories: compile the graph with "
            "ThreadSaver.route(fn), whose function chooses the same memory as MemoryMiddleware(fn)"
        )


def _tools_of(memory: MemoryBase) -> dict[str, BaseTool]:
    return {tool.name: tool for provider in memory.providers for tool in provider.tools}


def _tool_name(tool: BaseTool | dict[str, Any]) -> str:
    if isinstance(tool, dict):
        function = tool.get("function")
        return str(function.get("name") if isinstance(function, dict) else tool.get("name", ""))
    return tool.name


def _state_schema(schemas: Sequence[type]) -> type[Any]:
    """Return the agent's state with our channels."""
    fields: dict[str, Any] = {}
    for schema in (*schemas, RunState):
        fields.update(get_type_hints(schema, include_extras=True))
    hints = get_type_hints(AgentState, include_extras=True)
    make = cast("Callable[[str, dict[str, Any]], type[Any]]", TypedDict)
    return make("MastraMemoryState", {**hints, **fields})
