"""Small graphs over a checkpointer, and what their archive shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage
from langgraph.channels import DeltaChannel
from langgraph.graph import END, START, StateGraph, add_messages
from langgraph.graph.message import _messages_delta_reducer
from typing_extensions import TypedDict

from langchain_mastra_memory.memory import Memory


class PlainState(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], add_messages]
    note: str


class DeltaState(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], DeltaChannel(_messages_delta_reducer, snapshot_frequency=3)]
    note: str


STATES: dict[str, Any] = {"add_messages": PlainState, "delta": DeltaState}
MODES = ("sync", "async", "exit")


def answer(state: dict[str, Any]) -> dict[str, Any]:
    """Answer the last human message by naming how many messages there are before the answer."""
    messages = state["messages"]
    question = next(m for m in reversed(messages) if m.type == "human")
    return {"messages": [AIMessage(f"a:{question.text}:{len(messages)}")]}


class Bot:
    """A graph of one thread, run in one durability mode, sync or async.

    Args:
        memory: The memory.
        kind: `add_messages` or `delta`.
        mode: The durability.
        nodes: Nodes that run one after another.
        awaits: Whether runs are async.
        thread_id: The thread.
        saver: Another saver than the memory's.
    """

    def __init__(
        self,
        memory: Memory,
        *,
        kind: str = "add_messages",
        mode: str = "sync",
        nodes: Sequence[tuple[str, Callable[..., Any]]] = (("model", answer),),
        awaits: bool = False,
        thread_id: str = "t",
        saver: Any = None,
        **compile_options: Any,
    ) -> None:
        self.memory, self.mode, self.awaits, self.thread_id = memory, mode, awaits, thread_id
        self.saver = saver or memory.checkpointer
        builder = StateGraph(STATES[kind])
        before = START
        for name, node in nodes:
            builder.add_node(name, node)
            builder.add_edge(before, name)
            before = name
        builder.add_edge(before, END)
        self.graph = builder.compile(checkpointer=self.saver, **compile_options)

    def config(self, checkpoint_id: str | None = None, **configurable: Any) -> dict[str, Any]:
        at = {"checkpoint_id": checkpoint_id} if checkpoint_id else {}
        return {"configurable": {"thread_id": self.thread_id, **at, **configurable}}

    async def run(self, value: Any, config: dict[str, Any] | None = None, **options: Any) -> list[str]:
        """Run the graph; return the texts of the state afterwards."""
        config = config or self.config()
        options.setdefault("durability", self.mode)
        if self.awaits:
            result = await self.graph.ainvoke(value, config, **options)
        else:
            result = self.graph.invoke(value, config, **options)
        return texts(result["messages"])

    async def say(self, text: str, config: dict[str, Any] | None = None, **options: Any) -> list[str]:
        return await self.run({"messages": [HumanMessage(text)]}, config, **options)

    async def state(self, config: dict[str, Any] | None = None) -> Any:
        config = config or self.config()
        return await self.graph.aget_state(config) if self.awaits else self.graph.get_state(config)

    async def history(self) -> list[Any]:
        if self.awaits:
            return [s async for s in self.graph.aget_state_history(self.config())]
        return list(self.graph.get_state_history(self.config()))

    async def update(self, config: dict[str, Any], values: Any, as_node: str = "model") -> dict[str, Any]:
        if self.awaits:
            return await self.graph.aupdate_state(config, values, as_node=as_node)
        return self.graph.update_state(config, values, as_node=as_node)

    async def shown(self) -> list[str]:
        """Return the texts of the state where the thread stands."""
        return texts((await self.state()).values.get("messages", []))

    async def config_after(self, count: int) -> dict[str, Any]:
        """Return the config of the newest checkpoint whose state has so many messages and nothing to do."""
        for snapshot in await self.history():
            if len(snapshot.values.get("messages", [])) == count and not snapshot.next:
                return dict(snapshot.config)
        raise AssertionError(f"no finished checkpoint with {count} messages")

    def archive(self, checkpoint_id: str | None = None, **options: Any) -> list[str]:
        """Return the texts that the archive shows where the thread stands."""
        page = self.memory.recall(thread_id=self.thread_id, per_page=False, checkpoint_id=checkpoint_id, **options)
        return [item.message.text for item in page]


def texts(messages: Sequence[BaseMessage]) -> list[str]:
    return [message.text for message in messages]
