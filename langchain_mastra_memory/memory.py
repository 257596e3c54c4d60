"""`Memory`: one object over one store; it wires the features and holds nothing of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from langchain_mastra_memory.agents.methods import AgentMethods
from langchain_mastra_memory.background import Background
from langchain_mastra_memory.base import Layout, MemoryOptions
from langchain_mastra_memory.checks import check_function, check_switch
from langchain_mastra_memory.errors import ConfigurationError
from langchain_mastra_memory.history.methods import MessageMethods
from langchain_mastra_memory.history.options import MessageHistory
from langchain_mastra_memory.models import checked_model
from langchain_mastra_memory.observation.methods import ObservationMethods
from langchain_mastra_memory.observation.options import ObservationalMemory
from langchain_mastra_memory.recall.methods import RecallMethods
from langchain_mastra_memory.recall.options import SemanticRecall
from langchain_mastra_memory.recall.parts import check_parts
from langchain_mastra_memory.shown import shown
from langchain_mastra_memory.store.base import ContextManaged, MemoryStore, Unpicklable
from langchain_mastra_memory.store.sql.engine import SQLMemoryStore, utc_now
from langchain_mastra_memory.threads.methods import ThreadMethods
from langchain_mastra_memory.threads.titles import ThreadTitles
from langchain_mastra_memory.tokens import TokenCounter, default_counter
from langchain_mastra_memory.types import BackgroundFailure
from langchain_mastra_memory.working_memory.methods import WorkingMemoryMethods
from langchain_mastra_memory.working_memory.options import WorkingMemory

if TYPE_CHECKING:
    from langchain_core.embeddings import Embeddings
    from langchain_core.tools import BaseTool
    from langchain_core.vectorstores import VectorStore
    from sqlalchemy.engine import URL

    from langchain_mastra_memory.context.provider import FeatureProvider
    from langchain_mastra_memory.models import ModelSpec
    from langchain_mastra_memory.threads.saver import ThreadSaver

Option = TypeVar("Option")


class Memory(
    ThreadMethods,
    MessageMethods,
    WorkingMemoryMethods,
    RecallMethods,
    ObservationMethods,
    AgentMethods,
    ContextManaged,
    Unpicklable,
):
    """Agent memory over one store: threads, message history, working memory, semantic recall, observations.

    Each feature takes None or False (off), True (its defaults) or its options. All are off but the message history.
    Every method that touches the store or a model has an async twin, named with an `a` in front.

    Args:
        store: A URL (`memory://`, `sqlite:///memory.db`, `postgresql://user@host/database`) or a `MemoryStore`. A
            store that is passed in stays open when the memory is closed.
        model: The default model of background work (titles, observations): a string for `init_chat_model`, a chat
            model, or a function of the runtime. Without it the agent's own is used.
        embeddings: For semantic recall: a LangChain `Embeddings`, a `provider:model` string, or `"local"`. Without it
            recall is lexical.
        vector_store: Where vectors are kept: `"chroma:///path"`, `"chroma://host:8000"`, or a LangChain
            `VectorStore`. By default in the store itself.
        message_history: The window of messages; on by default.
        working_memory: The page about the user or the task.
        semantic_recall: Search in old messages, by meaning and by words.
        observational_memory: Condensing long conversations into dated observations.
        titles: Naming threads.
        layout: The order of the layers in the prompt: `documented`, or `cached` for long conversations.
        read_only: Whether nothing is ever written.
        clock: Gives the present time, aware; for tests. A store that is passed in has its own.
        token_counter: Counts tokens instead of tiktoken.

    Raises:
        ConfigurationError: An option, or a combination of options, cannot work.

    Example:
        ```python
        memory = Memory("sqlite:///memory.db")
        agent = create_agent(model, tools, middleware=[memory.middleware()], checkpointer=memory.checkpointer)
        config = {"configurable": {"thread_id": "t1", "resource_id": "user-1"}}
        agent.invoke({"messages": [("user", "Hi, I'm Ada.")]}, config)
        ```
    """

    def __init__(
        self,
        store: str | URL | MemoryStore = "memory://",
        *,
        model: ModelSpec | None = None,
        embeddings: Embeddings | str | None = None,
        vector_store: VectorStore | str | None = None,
        message_history: MessageHistory | bool | None = True,
        working_memory: WorkingMemory | bool | None = None,
        semantic_recall: SemanticRecall | bool | None = None,
        observational_memory: ObservationalMemory | bool | None = None,
        titles: ThreadTitles | bool | None = None,
        layout: Layout = "documented",
        read_only: bool = False,
        clock: Callable[[], datetime] | None = None,
        token_counter: TokenCounter | None = None,
    ) -> None:
        if layout not in ("documented", "cached"):
            raise ConfigurationError(f"layout must be 'documented' or 'cached', not {shown(layout, 40)}")
        check_switch("read_only", read_only)
        check_function("clock", clock)
        if token_counter is not None and not isinstance(token_counter, TokenCounter):
            raise ConfigurationError(f"token_counter must be a TokenCounter, not {shown(token_counter, 60)}")
        recall = _feature("semantic_recall", semantic_recall, SemanticRecall)
        self.options = MemoryOptions(
            message_history=_feature("message_history", message_history, MessageHistory),
            working_memory=_feature("working_memory", working_memory, WorkingMemory),
            semantic_recall=recall,
            observational_memory=_feature("observational_memory", observational_memory, ObservationalMemory),
            titles=_feature("titles", titles, ThreadTitles),
            model=checked_model(model),
            embeddings=embeddings,
            vector_index=check_parts(recall, embeddings, vector_store),
            layout=layout,
            read_only=read_only,
        )
        self.clock = clock or utc_now
        if isinstance(store, MemoryStore):
            self.store, self._owns_store = store, False
        else:
            self.store, self._owns_store = SQLMemoryStore(store, clock=self.clock), True
        self.background = Background(self)
        self._token_counter = token_counter

    def __repr__(self) -> str:
        on = [
            name
            for name in ("message_history", "working_memory", "semantic_recall", "observational_memory", "titles")
            if getattr(self.options, name) is not None
        ]
        return f"Memory({self.store!r}, {', '.join(on) or 'no features'})"

    @property
    def token_counter(self) -> TokenCounter:
        """What counts tokens, and by which encoding; see `TokenCounter.name`."""
        return self._token_counter or default_counter()

    @cached_property
    def providers(self) -> Sequence[FeatureProvider]:
        """The parts that the features which are on take in a run, in the order of the layers."""
        providers: list[FeatureProvider] = []
        if self.options.working_memory is not None:
            from langchain_mastra_memory.working_memory.provider import WorkingMemoryProvider  # noqa: PLC0415 - when on

            providers.append(WorkingMemoryProvider(self))
        if self.options.semantic_recall is not None:
            from langchain_mastra_memory.recall.provider import RecallProvider  # noqa: PLC0415 - numpy, when on

            providers.append(RecallProvider(self))
        if self.options.observational_memory is not None:
            from langchain_mastra_memory.observation.provider import ObservationProvider  # noqa: PLC0415 - when on

            providers.append(ObservationProvider(self))
        if self.options.titles is not None:
            from langchain_mastra_memory.threads.titles import TitleProvider  # noqa: PLC0415 - when on

            providers.append(TitleProvider(self))
        return tuple(providers)

    @cached_property
    def checkpointer(self) -> ThreadSaver:
        """The threads as a LangGraph checkpointer: `create_agent(..., checkpointer=memory.checkpointer)`."""
        from langchain_mastra_memory.threads.saver import ThreadSaver  # noqa: PLC0415 - it knows Memory

        return ThreadSaver(self)

    def tools(self) -> list[BaseTool]:
        """Return the tools of the features that are on, for graphs without the middleware (which brings them along)."""
        return [tool for provider in self.providers for tool in provider.tools]

    def settled(self, timeout: float | None = None) -> list[BackgroundFailure]:
        """Wait until no background work is under way, and return what has failed since the last call.

        Args:
            timeout: Seconds to wait at most; None waits as long as it takes.

        Raises:
            RuntimeError: Work runs as tasks of this thread's event loop: await `asettled()` instead.
            TimeoutError: Work is still under way; it goes on.
        """
        return self.background.settled(timeout)

    async def asettled(self, timeout: float | None = None) -> list[BackgroundFailure]:  # noqa: ASYNC109 - as in sync
        """Wait like `settled`, without blocking the event loop."""
        return await self.background.asettled(timeout)

    def close(self) -> None:
        """Wait for background work, then close what this memory opened."""
        self.background.settled()
        self.background.shutdown()
        self._close_recall()
        if self._owns_store:
            self.store.close()

    async def aclose(self) -> None:
        """Close like `close`, without blocking the event loop."""
        await self.background.asettled()
        await asyncio.get_running_loop().run_in_executor(None, self.background.shutdown)
        await asyncio.get_running_loop().run_in_executor(None, self._close_recall)
        if self._owns_store:
            await self.store.aclose()


def _feature(name: str, value: Option | bool | None, kind: type[Option]) -> Option | None:
    """Return a feature's options: None when it is off, its defaults for True."""
    if value is None or value is False:
        return None
    if value is True:
        return kind()
    if isinstance(value, kind):
        return value
    raise ConfigurationError(f"{name} must be True, False, None or {kind.__name__}(...), not {shown(value, 80)}")
