"""`ObservationNode`: a summarizing node for raw graphs. It stands before the model node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from langchain_core.messages import AnyMessage, BaseMessage, RemoveMessage, SystemMessage, convert_to_messages
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.base import RunnableSerializable
from langgraph.runtime import get_runtime
from pydantic import ConfigDict, Field, PrivateAttr, ValidationError

from langchain_mastra_memory.agents.call import Call
from langchain_mastra_memory.agents.core import turns_of
from langchain_mastra_memory.agents.identity import current_config, identify, is_streamed
from langchain_mastra_memory.agents.saving import check_shaping
from langchain_mastra_memory.base import MemoryBase
from langchain_mastra_memory.checked_options import faults_of
from langchain_mastra_memory.context.assembly import arrange, assemble
from langchain_mastra_memory.context.layers import Item
from langchain_mastra_memory.errors import ConfigurationError
from langchain_mastra_memory.history.incoming import fields_of
from langchain_mastra_memory.history.units import turn_start
from langchain_mastra_memory.history.window import Limits, Shape, choose
from langchain_mastra_memory.io import IO, drive
from langchain_mastra_memory.observation.provider import ObservationProvider
from langchain_mastra_memory.shown import shown


class ObservationNode(RunnableSerializable[Any, dict[str, Any]]):
    """Puts observations in the place of old messages, before a model node of a raw graph.

    It reads the messages of the state, observes and activates what is due, and writes the messages for the model
    under a key of their own: a system message with the observations, then what is still raw. With `trim_messages` it
    also removes what is covered from the state. Sync and async, in subgraphs too.

    Args:
        memory: A `Memory` with `observational_memory` on.
        input_messages_key: The key of the state's messages.
        output_messages_key: The key for the messages that the model is to be sent.
        trim_messages: Whether what is covered is removed from the state, by `RemoveMessage`s.
        name: The node's name in traces.

    Raises:
        ConfigurationError: Observational memory is off, or both keys are one while the state is not trimmed.

    Example:
        ```python
        graph.add_node("observe", ObservationNode(memory))
        graph.add_node("model", lambda state: {"messages": [model.invoke(state["llm_input_messages"])]})
        graph.add_edge(START, "observe")
        graph.add_edge("observe", "model")
        ```
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    memory: Any = Field(exclude=True, repr=False)
    input_messages_key: str = "messages"
    output_messages_key: str = "llm_input_messages"
    trim_messages: bool = False
    name: str | None = "ObservationNode"

    _provider: ObservationProvider = PrivateAttr()

    def __init__(self, memory: MemoryBase, **fields: Any) -> None:
        if not isinstance(memory, MemoryBase):
            raise ConfigurationError(f"ObservationNode needs a Memory, not {shown(memory)}")
        try:
            super().__init__(memory=memory, **fields)
        except ValidationError as error:
            raise ConfigurationError(faults_of("ObservationNode", error)) from error
        if self.input_messages_key == self.output_messages_key:
            raise ConfigurationError(
                "output_messages_key must be another key than input_messages_key: the observations are not part of "
                "the conversation"
            )
        self._provider = next(
            (p for p in memory.providers if isinstance(p, ObservationProvider)), None
        ) or ObservationProvider(memory)

    @classmethod
    def is_lc_serializable(cls) -> bool:
        """Return False: a memory is a live object."""
        return False

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> dict[str, Any]:  # noqa: A002 - LangChain's name
        """Return the update of the state."""
        del kwargs
        return self._call_with_config(
            lambda state: drive(self._run(self.memory.io(is_async=False), state)), input, config
        )

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> dict[str, Any]:  # noqa: A002 - LangChain's name
        """Return the update of the state, without blocking the event loop."""
        del kwargs

        async def run(state: Any) -> dict[str, Any]:
            return await self._run(self.memory.io(is_async=True), state)

        return await self._acall_with_config(run, input, config)

    async def _run(self, io: IO, state: Any) -> dict[str, Any]:
        fields = fields_of(state) or {}
        given = fields.get(self.input_messages_key)
        if given is None:
            raise ConfigurationError(f"the state has no {self.input_messages_key!r}: set input_messages_key")
        messages: Sequence[BaseMessage] = convert_to_messages(given)
        config = current_config()
        runtime = get_runtime()
        identity = identify(runtime, config)
        check_shaping(identity, self.memory)
        if identity.options.off or identity.options.observational_memory is False:
            return {self.output_messages_key: list(messages)}
        call = Call(
            identity=identity,
            turn=_turn_of(messages),
            messages=tuple(messages),
            state=fields,
            writer=runtime.stream_writer,
            streams=is_streamed(runtime.stream_writer),
        )
        run = await turns_of(self.memory).facts(io, call)
        begun = await self._provider.begin(io, run)
        contribution = await self._provider.each_call(io, run, begun)
        system = next((m for m in messages if isinstance(m, SystemMessage)), None)
        talk = [item for item in run.items if not isinstance(item.message, SystemMessage)]
        window = choose(
            talk,
            turn=turn_start([item.message for item in talk]),
            limits=Limits(last_messages=None),
            weigh=lambda item: item.tokens or 0,
            shape=Shape(
                covered_upto=contribution.covered_upto,
                covered_ids=contribution.covered_ids,
                pinned=contribution.pinned,
            ),
        )
        layers = arrange(
            instructions=system,
            call_system=identity.options.system or "",
            context=tuple(identity.options.context_messages),
            contribution=replace(contribution, working_memory=None),
            history=window.items[: window.turn],
            turn=window.items[window.turn :],
        )
        prompt = assemble(layers, self.memory.options.layout)
        shown: list[AnyMessage | BaseMessage] = [*([prompt.system] if prompt.system else []), *prompt.messages]
        update: dict[str, Any] = {self.output_messages_key: shown}
        if self.trim_messages:
            gone = self._covered(talk, contribution.covered_upto, contribution.covered_ids, contribution.pinned)
            update[self.input_messages_key] = [RemoveMessage(id=i) for i in gone]
        return update

    @staticmethod
    def _covered(items: Sequence[Item], upto: int | None, ids: frozenset[str], pinned: frozenset[str]) -> list[str]:
        return [
            item.id
            for item in items
            if item.id
            and item.id not in pinned
            and (item.id in ids or (upto is not None and item.seq is not None and item.seq <= upto))
        ]


def _turn_of(messages: Sequence[BaseMessage]) -> str:
    """Return the id of the turn: that of its question."""
    return next((m.id for m in reversed(messages) if m.type == "human" and m.id), "")
