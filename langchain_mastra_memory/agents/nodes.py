"""Graph nodes for raw graphs: `load_node` makes the prompt, `save_node` saves the run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from langchain_core.messages import BaseMessage, SystemMessage
from langchain_core.runnables import Runnable, RunnableLambda
from langchain_core.tools import BaseTool
from langgraph.runtime import get_runtime

from langchain_mastra_memory.agents.call import Call
from langchain_mastra_memory.agents.core import turns_of
from langchain_mastra_memory.agents.delegation import start_of
from langchain_mastra_memory.agents.identity import Identity, ResourceOf, current_config, identify, is_streamed
from langchain_mastra_memory.agents.record import RunRecord
from langchain_mastra_memory.agents.saving import archives, check_shaping, finish
from langchain_mastra_memory.base import MemoryBase
from langchain_mastra_memory.errors import ConfigurationError
from langchain_mastra_memory.history.incoming import fields_of, give_ids
from langchain_mastra_memory.history.options import HistorySource
from langchain_mastra_memory.ids import new_id
from langchain_mastra_memory.io import IO, drive
from langchain_mastra_memory.shown import shown
from langchain_mastra_memory.store.operations.runs import ReadRun

State = Mapping[str, Any]
Body = Callable[[IO, State], Awaitable[dict[str, Any]]]


class MemoryNode(RunnableLambda[Any, Any]):
    """A node of ours: a worker's graph that has one keeps its memory by itself."""


def load_node(
    memory: MemoryBase,
    *,
    input_key: str,
    output_key: str,
    system: SystemMessage | None,
    tools: tuple[BaseTool, ...],
    resource_of: ResourceOf | None,
    source: HistorySource | None,
    name: str,
) -> Runnable[Any, Any]:
    """Return the node that puts the prompt under a key of the state; see `Memory.load_node`."""

    async def load(io: IO, state: State) -> dict[str, Any]:
        identity, call = _call(memory, state, input_key, resource_of, source, system=system, tools=tools)
        messages = list(call.messages)
        if identity.options.off:
            return {output_key: [system, *messages] if system else messages}
        turns = turns_of(memory)
        if identity.delegation is not None and not turns.read_only(identity):
            await io.run(start_of(identity.delegation, memory.options.features))
        facts = await turns.facts(io, call)
        started: dict[str, Any] = {}
        for provider in turns.providers(identity):
            started.update(await provider.start(io, facts) or {})
        prompt = (await turns.prepare(io, call)).prompt
        return {**started, output_key: [prompt.system, *prompt.messages] if prompt.system else list(prompt.messages)}

    return _node(memory, load, name)


def save_node(
    memory: MemoryBase,
    *,
    input_key: str,
    resource_of: ResourceOf | None,
    source: HistorySource | None,
    name: str,
) -> Runnable[Any, Any]:
    """Return the node that saves a run; see `Memory.save_node`."""

    async def save(io: IO, state: State) -> dict[str, Any]:
        identity, call = _call(memory, state, input_key, resource_of, source)
        record: RunRecord = {"saver": archives(identity, memory), "since": None, "inputs": list(_ids(call.messages))}
        if call.from_state and not record["saver"]:
            record["since"], record["inputs"] = await _unsaved(io, call)
        await finish(io, turns_of(memory), call, record, complete=True)
        return {}

    return _node(memory, save, name)


async def _unsaved(io: IO, call: Call) -> tuple[str | None, list[str]]:
    """Return the id behind which nothing of the state is archived, and the ids that are not."""
    ids = _ids(call.messages)
    view = await io.run(
        ReadRun(thread_id=call.identity.thread_id, resource_id=call.identity.resource_id, ids=ids, with_outside=False)
    )
    last = next((at for at in range(len(ids) - 1, -1, -1) if ids[at] in view.located), None)
    return (None, list(ids)) if last is None else (ids[last], list(ids[last + 1 :]))


def _ids(messages: tuple[BaseMessage, ...]) -> tuple[str, ...]:
    return tuple(message.id or "" for message in messages)


def _call(
    memory: MemoryBase,
    state: State,
    input_key: str,
    resource_of: ResourceOf | None,
    source: HistorySource | None,
    *,
    system: SystemMessage | None = None,
    tools: tuple[BaseTool, ...] = (),
) -> tuple[Identity, Call]:
    runtime, config = get_runtime(), current_config()
    identity = identify(runtime, config, resource_of=resource_of)
    check_shaping(identity, memory)
    if input_key not in state:
        raise ConfigurationError(f"the state has no {input_key!r}: set input_key")
    messages = tuple(state[input_key] or ())
    give_ids(messages)  # a channel without `add_messages`: once, in place
    question = next((message.id for message in reversed(messages) if message.type == "human"), None)
    options = memory.options.message_history
    call = Call(
        identity=identity,
        turn=question or new_id(),
        messages=messages,
        system=system,
        tools=tools,
        state=state,
        writer=runtime.stream_writer,
        streams=is_streamed(runtime.stream_writer),
        source=source or (options.history if options else "auto"),
        retain_full_input=bool(options and options.retain_full_input),
    )
    return identity, call


def _node(memory: MemoryBase, body: Body, name: str) -> Runnable[Any, Any]:
    def sync(state: object) -> dict[str, Any]:
        return drive(_whole(body(memory.io(is_async=False), _fields(state))))

    async def asynchronous(state: object) -> dict[str, Any]:
        return await body(memory.io(is_async=True), _fields(state))

    return MemoryNode(sync, asynchronous, name=name)


def _fields(state: object) -> State:
    fields = fields_of(state)
    if fields is None:
        raise ConfigurationError(f"the state must be a dict, a dataclass or a pydantic model, not {shown(state)}")
    return fields


async def _whole(awaitable: Awaitable[dict[str, Any]]) -> dict[str, Any]:
    return await awaitable
