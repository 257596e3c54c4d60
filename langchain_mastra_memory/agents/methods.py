"""The methods of `Memory` that plug it into agents and graphs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage, SystemMessage
from langchain_core.tools import BaseTool
from pydantic import BaseModel

from langchain_mastra_memory.agents.call import Call
from langchain_mastra_memory.agents.core import Turns
from langchain_mastra_memory.agents.identity import Identity, ResourceOf
from langchain_mastra_memory.agents.run_options import RunOptions, run_options
from langchain_mastra_memory.base import MemoryBase
from langchain_mastra_memory.checks import check_choice, check_function, check_text
from langchain_mastra_memory.context.assembly import describe
from langchain_mastra_memory.context.preview import Preview
from langchain_mastra_memory.errors import ConfigurationError
from langchain_mastra_memory.history.incoming import as_messages, fields_of
from langchain_mastra_memory.history.options import HISTORY_SOURCES, HistorySource
from langchain_mastra_memory.ids import checked_id, new_id, optional_id
from langchain_mastra_memory.io import IO, both
from langchain_mastra_memory.shown import shown
from langchain_mastra_memory.threads.runs import RUN_CHANNEL
from langchain_mastra_memory.tokens import ready

if TYPE_CHECKING:
    from langchain_core.runnables import Runnable

    from langchain_mastra_memory.agents.middleware import MemoryMiddleware
    from langchain_mastra_memory.agents.record import RunRecord
    from langchain_mastra_memory.agents.subagent import MessageFilter, SubAgent


class AgentMethods(MemoryBase):
    """Middleware, graph nodes, preview."""

    def middleware(
        self,
        *,
        name: str | None = None,
        agent: str | None = None,
        resource_id: ResourceOf | None = None,
        history: HistorySource | None = None,
        retain_full_input: bool | None = None,
        save_partial: bool | None = None,
    ) -> MemoryMiddleware:
        """Return the middleware that gives an agent this memory. It goes first in the list.

        Args:
            name: Another name than `MastraMemory`, for a second memory in one graph.
            agent: The name of a sub-agent whose own memory this is.
            resource_id: A function of the runtime that decides whose run it is.
            history: Where the history comes from; by default as in `MessageHistory(history=...)`.
            retain_full_input: Take what the caller sends as the whole conversation.
            save_partial: Keep what was streamed when the caller cancels an async run; see `MessageHistory`.

        Example:
            ```python
            agent = create_agent(model, middleware=[memory.middleware()], checkpointer=memory.checkpointer)
            ```
        """
        from langchain_mastra_memory.agents.middleware import MemoryMiddleware  # noqa: PLC0415 - it knows langchain

        return MemoryMiddleware(
            self,
            name=name,
            agent=agent,
            resource_id=resource_id,
            history=history,
            retain_full_input=retain_full_input,
            save_partial=save_partial,
        )

    def subagent(
        self,
        agent: Runnable[Any, Any],
        *,
        name: str,
        description: str | None = None,
        message_filter: MessageFilter | None = None,
        memory: MemoryBase | None = None,
        thread: Literal["new", "stable"] = "new",
        resource: Literal["derived", "shared"] = "derived",
        resource_id: ResourceOf | None = None,
    ) -> SubAgent:
        """Return a worker with a memory of its own, for this memory's agents to delegate to.

        It is a Runnable: a node of a `StateGraph`, an agent of `create_supervisor`, and by `.as_tool()` and
        `.as_compiled_subagent()` a tool of `create_agent` and a sub-agent of `create_deep_agent`. The task and the
        answer are saved in a thread of the worker's own, whose metadata names the parent's. The parent's conversation
        is shown to the worker, its memory never.

        Args:
            agent: The worker's graph. Built with `MemoryMiddleware()` it takes this memory with all its options; built
                with a memory of its own it uses that; built without, its tasks and answers are saved all the same.
            name: The worker's name; its resource is `{parent's resource}-{name}`.
            description: What it is for, for the delegating model.
            message_filter: Chooses what of the parent's conversation the worker sees: called with `messages`, `agent`
                and `prompt`, sync or async. By default the text of people and agents.
            memory: Another memory for the worker.
            thread: `new`: a thread for each delegation; `stable`: one thread for each parent thread, so that the
                worker sees its own earlier turns.
            resource: `derived`, or `shared`: the worker reads and writes under the parent's resource.
            resource_id: A function of the runtime that decides whose run delegates, where no middleware of this
                memory has decided it.

        Example:
            ```python
            researcher = create_agent(model, tools, middleware=[MemoryMiddleware()], name="researcher")
            worker = memory.subagent(researcher, name="researcher", description="Finds facts.")
            agent = create_agent(model, [worker.as_tool()], middleware=[memory.middleware()])
            ```
        """
        from langchain_mastra_memory.agents.subagent import SubAgent  # noqa: PLC0415 - it knows this module

        return SubAgent(
            agent,
            name=name,
            memory=self,
            description=description,
            message_filter=message_filter,
            worker_memory=memory,
            thread=thread,
            resource=resource,
            resource_id=resource_id,
        )

    def load_node(
        self,
        *,
        input_key: str = "messages",
        output_key: str = "llm_input_messages",
        system: str | SystemMessage | None = None,
        tools: Sequence[BaseTool] = (),
        resource_id: ResourceOf | None = None,
        history: HistorySource | None = None,
        name: str = "load_memory",
    ) -> Runnable[Any, Any]:
        """Return a graph node that makes the prompt: it goes before each node that calls the model.

        Args:
            input_key: The state's messages.
            output_key: Where the prompt goes; the model node reads it there, and the state's messages stay whole.
            system: The agent's instructions; they and memory's system text come first in the prompt.
            tools: The tools of the model, for counting.
            resource_id: A function of the runtime that decides whose run it is.
            history: Where the history comes from; by default as in `MessageHistory(history=...)`.
            name: The node's name in traces.

        Example:
            ```python
            builder.add_node("load", memory.load_node())
            builder.add_node("model", lambda state: {"messages": [model.invoke(state["llm_input_messages"])]})
            builder.add_node("save", memory.save_node())
            ```
        """
        from langchain_mastra_memory.agents.nodes import load_node  # noqa: PLC0415 - it knows this module

        check_text("output_key", output_key)
        _check_node(input_key, resource_id, history, name)
        return load_node(
            self,
            input_key=input_key,
            output_key=output_key,
            system=_system(system),
            tools=_tools(tools),
            resource_of=resource_id,
            source=history,
            name=name,
        )

    def save_node(
        self,
        *,
        input_key: str = "messages",
        resource_id: ResourceOf | None = None,
        history: HistorySource | None = None,
        name: str = "save_memory",
    ) -> Runnable[Any, Any]:
        """Return a graph node that saves what is new of the state's messages: it goes where the run is complete.

        Under a checkpointer of this memory the messages are archived with the checkpoint, and the node does what else
        follows a run (titles, buffering of observations).

        Args:
            input_key: The state's messages.
            resource_id: A function of the runtime that decides whose run it is.
            history: As in `load_node`.
            name: The node's name in traces.
        """
        from langchain_mastra_memory.agents.nodes import save_node  # noqa: PLC0415 - it knows this module

        _check_node(input_key, resource_id, history, name)
        return save_node(self, input_key=input_key, resource_of=resource_id, source=history, name=name)

    @both
    async def preview(
        self,
        io: IO,
        messages: Iterable[Any] = (),
        *,
        thread_id: str,
        resource_id: str | None = None,
        system: str | SystemMessage | None = None,
        tools: Sequence[BaseTool | Mapping[str, Any]] = (),
        model: BaseChatModel | None = None,
        state: Mapping[str, Any] | BaseModel | Sequence[BaseMessage] | None = None,
        checkpoint_id: str | None = None,
        options: RunOptions | Mapping[str, Any] | None = None,
    ) -> Preview:
        """Return what the model would be sent for new messages. Nothing is written and no model is called.

        Args:
            messages: The new messages.
            thread_id: The thread.
            resource_id: Its owner; checked when given.
            system: The agent's instructions.
            tools: The agent's tools, for counting.
            model: The agent's model, for features that look at it.
            state: The graph's state, or its messages: they are the history then. Without it the archive is.
            checkpoint_id: The checkpoint to stand at.
            options: Switches as for a run.

        Raises:
            ThreadNotFoundError: The thread is another resource's, or has no such checkpoint.
            ProcessorError: One of the processors raised.

        Example:
            >>> from langchain_mastra_memory import Memory
            >>> memory = Memory("memory://")
            >>> preview = memory.preview([("user", "Hello!")], thread_id="t1", system="Be kind.")
            >>> [(layer.name, layer.where) for layer in preview.layers]
            [('instructions', 'system'), ('turn', 'conversation')]
        """
        if state is not None and checkpoint_id is not None:
            raise ConfigurationError("preview takes a state or a checkpoint_id, not both")
        new = _with_ids(messages)
        fields = fields_of(state)
        earlier = as_messages(state or () if fields is None else fields.get("messages", ()), "state")
        given: Mapping[str, Any] = {**(fields or {}), "messages": earlier}
        switches = run_options(options)
        call = Call(
            identity=Identity(thread_id=checked_id(thread_id), resource_id=optional_id(resource_id), options=switches),
            turn=f"preview-{new_id()}",
            messages=(*earlier, *new),
            inputs=tuple(message.id or "" for message in new),
            system=_system(system),
            tools=_tools(tools),
            refused=_refused(given),
            state=given,
            model=model,
            source="state" if state is not None else "archive",
            preview=True,
            checkpoint_id=checkpoint_id,
        )
        turns = Turns(self)  # of its own: nothing of a preview stays
        return await _preview(io, turns, call)

    apreview = preview.twin


async def _preview(io: IO, turns: Turns, call: Call) -> Preview:
    counter = await ready(turns.memory.token_counter, io)
    layout = turns.memory.options.layout
    made = await turns.prepare(io, call)
    prompt = made.prompt
    shown = describe(made.layers, prompt, layout, counter.count_text, counter.weigh)
    messages = (prompt.system, *prompt.messages) if prompt.system else prompt.messages
    tool_tokens = counter.count_tools([tool for tool in call.tools if _name(tool) not in made.hidden_tools])
    return Preview(
        messages=messages,
        layers=shown,
        left_out=made.left_out,
        tokens=counter.count_messages(messages) + tool_tokens,
        tool_tokens=tool_tokens,
        counted_by=counter.name,
        layout=layout,
        thread_id=call.identity.thread_id,
    )


def _refused(state: Mapping[str, Any]) -> frozenset[str]:
    """Return the ids of the messages of refused runs in a state that has the record of a middleware."""
    records: Mapping[str, RunRecord] = state.get(RUN_CHANNEL) or {}
    return frozenset(message_id for record in records.values() for message_id in record.get("refused", ()))


def _with_ids(messages: object) -> tuple[BaseMessage, ...]:
    given = as_messages(messages)
    return tuple(message if message.id else message.model_copy(update={"id": new_id()}) for message in given)


def _check_node(input_key: object, resource_id: object, history: object, name: object) -> None:
    check_text("input_key", input_key)
    check_function("resource_id", resource_id)
    check_choice("history", history, HISTORY_SOURCES, optional=True)
    check_text("name", name)


def _system(system: object) -> SystemMessage | None:
    if isinstance(system, str):
        return SystemMessage(system)
    if system is None or isinstance(system, SystemMessage):
        return system
    raise ConfigurationError(f"system must be a text or a SystemMessage, not {shown(system, 60)}")


def _tools(tools: object) -> tuple[Any, ...]:
    if isinstance(tools, (str, bytes, Mapping)) or not isinstance(tools, Iterable):
        raise ConfigurationError(f"tools must be a list of tools, not a {type(tools).__name__}")
    return tuple(tools)


def _name(tool: BaseTool | Mapping[str, Any]) -> str:
    return tool.name if isinstance(tool, BaseTool) else str(tool.get("name", ""))
