"""The tool by which an agent changes its page.

It writes at once, in one transaction, and exactly once for a call: a retry, a resume or a replay of the step finds the
version that the call wrote. In schema mode parallel calls all count. In template mode the version that the model saw
guards the replacement, so that the second of two parallel calls is refused and shown the present page.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, cast

from langchain.tools import ToolRuntime
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from langgraph.types import Command
from pydantic import BaseModel, Field, WithJsonSchema, create_model

from langchain_mastra_memory.agents.identity import ACTING, ACTING_CALL, identify
from langchain_mastra_memory.base import MemoryBase
from langchain_mastra_memory.errors import MastraMemoryError, WorkingMemoryError
from langchain_mastra_memory.io import IO, drive
from langchain_mastra_memory.store.operations.pages import NewThread, Where
from langchain_mastra_memory.working_memory.channel import page_write, version_write
from langchain_mastra_memory.working_memory.options import WorkingMemory
from langchain_mastra_memory.working_memory.prompt import tool_description
from langchain_mastra_memory.working_memory.rules import value_of
from langchain_mastra_memory.working_memory.schema_shown import partial_schema
from langchain_mastra_memory.working_memory.service import Update, Written, page_owner, write_page

_NAMESPACE: Final = uuid.UUID("6f1d3c52-6a0e-5d0f-9c55-0d6d4f0b7e11")
_ARGUMENT: Final = {
    "template": "The whole page as Markdown text; it replaces the old one.",
    "schema": "The fields to change; null deletes a field, arrays replace, what is left out stays.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who called the tool, and from where.

    Attributes:
        memory: The memory that the run uses.
        options: Its options, settled.
        thread_id: The memory thread, or None outside of one.
        resource_id: The owner, or None.
        read_only: Whether the run may change nothing.
        messages: The messages of the graph's state; empty outside a graph.
        seen: The version that the model was shown, where the graph keeps it.
        call_id: The id of the tool call; None outside an agent.
        from_state: Whether the graph's state is the history of the thread.
        takes_command: Whether the graph can take a state update.
        title: The title of the thread, when this run makes it.
        metadata: Its metadata, when this run makes it.
    """

    memory: MemoryBase
    options: WorkingMemory
    thread_id: str | None
    resource_id: str | None
    read_only: bool = False
    messages: Sequence[BaseMessage] = ()
    seen: int | None = None
    call_id: str | None = None
    from_state: bool = False
    takes_command: bool = False
    title: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def asked_by(self) -> str | None:
        """What asks: the tool call in the message that made it. Call ids alone repeat with some providers."""
        if self.call_id is None:
            return None
        for message in reversed(self.messages):
            if isinstance(message, AIMessage) and any(call["id"] == self.call_id for call in message.tool_calls):
                return f"{message.id}:{self.call_id}" if message.id else None
        return None

    @property
    def stand_ins(self) -> tuple[str, ...]:
        """The ids of the message that made the call and of the question before it."""
        asks: str | None = None
        for message in reversed(self.messages):
            if asks is None:
                if isinstance(message, AIMessage) and any(call["id"] == self.call_id for call in message.tool_calls):
                    asks = message.id
            elif message.type == "human" and message.id:
                return asks, message.id
        return () if asks is None else (asks,)

    @property
    def answer_id(self) -> str | None:
        """The id of the tool's answer: known before it is archived, and the same for every replay of the call."""
        asked_by = self.asked_by
        return None if asked_by is None else str(uuid.uuid5(_NAMESPACE, asked_by))

    @property
    def where(self) -> Where:
        """Where in the conversation the call was made."""
        ids = tuple(message.id for message in self.messages if message.id)
        return Where(ids=ids, from_state=self.from_state)


def working_memory_tool(memory: MemoryBase, options: WorkingMemory) -> BaseTool:
    """Return the tool.

    Inside an agent with the middleware the run is that of the middleware, with its memory; in other graphs it is what
    the context and the config say; outside a graph the ids come from the config given to `invoke`.

    Args:
        memory: The memory whose page it changes.
        options: The options, settled.
    """

    # `runtime` must not be Optional: LangChain injects it by its bare type, and the schema of the arguments has none.
    def update(memory_: Any, runtime: ToolRuntime, config: RunnableConfig) -> Any:
        caller = _caller(memory, options, runtime, config)
        return drive(_answer(caller.memory.io(is_async=False), caller, memory_))

    async def aupdate(memory_: Any, runtime: ToolRuntime, config: RunnableConfig) -> Any:
        caller = _caller(memory, options, runtime, config)
        return await _answer(caller.memory.io(is_async=True), caller, memory_)

    def _run(memory: Any, runtime: ToolRuntime = None, config: RunnableConfig = None) -> Any:  # type: ignore[assignment]  # injected by their bare types
        return update(memory, runtime, config)

    async def _arun(memory: Any, runtime: ToolRuntime = None, config: RunnableConfig = None) -> Any:  # type: ignore[assignment]  # injected by their bare types
        return await aupdate(memory, runtime, config)

    return StructuredTool.from_function(
        name=options.tool_name,
        description=tool_description(options),
        func=_run,
        coroutine=_arun,
        args_schema=_arguments(options),
        infer_schema=False,
        handle_tool_error=True,
    )


def _arguments(options: WorkingMemory) -> type[BaseModel]:
    """Return the model of the arguments: it shows the schema and takes anything, odd input is understood later."""
    shown: dict[str, Any] = {"type": "string"} if options.checker is None else partial_schema(options.checker)
    kind = Annotated[Any, WithJsonSchema({**shown, "description": _ARGUMENT[options.mode]})]
    fields: dict[str, Any] = {"memory": (kind, Field())}
    made: type[BaseModel] = create_model("WorkingMemoryUpdate", __doc__="An update of the working memory.", **fields)
    return made


def _caller(
    memory: MemoryBase, options: WorkingMemory, runtime: ToolRuntime | None, config: RunnableConfig | None
) -> Caller:
    acting = ACTING.get() if runtime is not None and ACTING_CALL.get() == runtime.tool_call_id else None
    if acting is not None and acting[1] is not memory:
        memory = acting[1]
        options = _options_of(memory)
    read_only = memory.options.read_only or not options.has_tool
    if runtime is None or runtime.tool_call_id is None:
        configurable: Mapping[str, Any] = (config or {}).get("configurable") or {}
        return Caller(
            memory=memory,
            options=options,
            thread_id=configurable.get("thread_id"),
            resource_id=configurable.get("resource_id"),
            read_only=read_only,
        )
    run = acting[0] if acting is not None else identify(runtime, runtime.config)
    switched_off = run.options.read_only or run.options.off or run.options.working_memory is False
    state: object = runtime.state  # a list of messages in a graph of that state
    given = state if isinstance(state, list) else _from(state, "messages")
    messages = [message for message in given or () if isinstance(message, BaseMessage)]
    seen = None if isinstance(state, list) else _from(state, "working_memory_version")
    return Caller(
        memory=memory,
        options=options,
        thread_id=run.thread_id,
        resource_id=run.resource_id,
        read_only=bool(read_only or switched_off),
        messages=messages,
        seen=seen if isinstance(seen, int) else None,
        call_id=runtime.tool_call_id,
        from_state=run.state_is_history(messages),
        takes_command=not isinstance(state, list),
        title=run.options.thread_title,
        metadata=run.options.thread_metadata or {},
    )


def _options_of(memory: MemoryBase) -> WorkingMemory:
    from langchain_mastra_memory.working_memory.provider import settled_options  # noqa: PLC0415 - it makes this tool

    return settled_options(memory)


def _from(state: Any, name: str) -> Any:
    return state.get(name) if isinstance(state, Mapping) else getattr(state, name, None)


async def _answer(io: IO, caller: Caller, value: object) -> Any:
    options = caller.options
    if caller.read_only:
        raise ToolException("the working memory is read-only here; nothing was changed")
    try:
        written = await _write(io, caller, value)
    except WorkingMemoryError as error:
        raise ToolException(str(error)) from error
    except MastraMemoryError as error:
        if caller.call_id is not None:  # the developer's mistake, not the model's: it must not go unseen
            raise
        raise ToolException(str(error)) from error
    text = _text(options, written)
    if not caller.takes_command:
        if written.status == "stale":
            raise ToolException(text)
        return text
    page = value_of(options, written.page.text)
    return Command(
        update={
            "messages": [
                ToolMessage(
                    text,
                    id=caller.answer_id,
                    name=options.tool_name,
                    tool_call_id=cast("str", caller.call_id),
                    status="error" if written.status == "stale" else "success",
                )
            ],
            "working_memory": page_write(page, written.page.version),
            "working_memory_version": version_write(written.page.version),
        }
    )


async def _write(io: IO, caller: Caller, value: object) -> Written:
    owner = page_owner(caller.options, thread_id=caller.thread_id, resource_id=caller.resource_id)
    # A run makes its thread itself, with its title; only a page of thread scope cannot wait for it.
    makes = caller.options.scope == "thread" if caller.call_id is not None else owner.resource_id is not None
    new_thread = NewThread(title=caller.title, metadata=caller.metadata, features=caller.memory.options.features)
    update = Update(
        value=value,
        writer="tool",
        call=caller.asked_by,
        seen=caller.seen,
        where=caller.where,
        after_message=caller.answer_id,
        stand_ins=caller.stand_ins,
        new_thread=new_thread if makes else None,
    )
    return await write_page(io, caller.options, owner, update, by_agent=True)


def _text(options: WorkingMemory, written: Written) -> str:
    page = written.page.text or ""
    if written.status == "stale":
        return (
            "The page was changed since you read it, so your update was not taken. This is the page now; send the "
            f"whole page again with your changes in it:\n{page}"
        )
    said = "The working memory was updated." if written.status == "written" else "This update was applied before."
    if options.mode == "schema":
        said = f"{said} It is now: {page}"
    notes = " ".join(f"Note: {note}." for note in written.notes)
    return f"{said} {notes}".strip()
