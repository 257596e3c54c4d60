"""`SemanticRecallRetriever`: semantic recall as a LangChain retriever."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableConfig
from pydantic import ConfigDict, Field, ValidationError, field_validator

from langchain_mastra_memory.base import MemoryBase
from langchain_mastra_memory.checked_options import faults_of
from langchain_mastra_memory.errors import (
    ConfigurationError,
    InvalidFilterError,
    InvalidQueryError,
    ThreadOwnershipError,
)
from langchain_mastra_memory.ids import optional_id
from langchain_mastra_memory.io import IO, drive
from langchain_mastra_memory.recall.filters import parse_filter
from langchain_mastra_memory.recall.options import Mode, as_range, checked_range
from langchain_mastra_memory.recall.results import Hit, Search
from langchain_mastra_memory.recall.text import indexed_text, plain_text
from langchain_mastra_memory.shown import shown
from langchain_mastra_memory.types import StoredMessage

if TYPE_CHECKING:
    from langchain_mastra_memory.recall.methods import RecallMethods

_IDS = "mastra_ids"


class SemanticRecallRetriever(BaseRetriever):
    """Finds old messages by meaning and by words: one `Document` for each hit.

    `page_content` is the hit among its neighbours, one line each; `metadata` has `content` (the hit alone),
    `thread_id`, `resource_id`, `message_id`, `message_ids` (of everything shown), `seq`, `role`, `speaker`,
    `created_at`, `score` and `found_by` (`words`, `meaning`, `both` or `neighbours`).

    Whose messages: the fields `thread_id` and `resource_id`, else `configurable` of the config given to
    `invoke`/`ainvoke`, else those of the run that the call is part of.

    Attributes:
        memory: The memory; made with `semantic_recall`.
        thread_id: The thread.
        resource_id: The owner.
        k: How many documents; None means `top_k` of the memory's options.
        filter: Which threads and messages may be found; None means the options'.
        mode: Which halves of the index count; None means the options'.
        message_range: How many neighbours are shown, or (before, after); None means the options'.

    Raises:
        ConfigurationError: A field makes no sense.
        InvalidFilterError: The filter cannot be honoured.

    Example:
        ```python
        retriever = memory.retriever(resource_id="user-1", k=3)
        documents = retriever.invoke("when did we go hiking?")
        ```
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    memory: Any = Field(exclude=True, repr=False)
    thread_id: str | None = None
    resource_id: str | None = None
    k: int | None = Field(default=None, ge=1, le=1000)
    filter: Mapping[str, Any] | None = None
    mode: Mode | None = None
    message_range: int | tuple[int, int] | None = None

    def __init__(self, **fields: Any) -> None:
        if not isinstance(fields.get("memory"), MemoryBase):
            raise ConfigurationError(f"SemanticRecallRetriever needs a Memory, not {shown(fields.get('memory'))}")
        try:
            super().__init__(**fields)
        except ValidationError as error:
            is_filter = all(fault["loc"][:1] == ("filter",) for fault in error.errors())
            kind = InvalidFilterError if is_filter else ConfigurationError
            raise kind(faults_of("SemanticRecallRetriever", error)) from error

    @field_validator("message_range", mode="before")
    @classmethod
    def _range(cls, value: Any) -> Any:
        return None if value is None else checked_range(value)

    @field_validator("filter")
    @classmethod
    def _filter(cls, value: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        parse_filter(value)
        return value

    def invoke(self, input: str, config: RunnableConfig | None = None, **kwargs: Any) -> list[Document]:  # noqa: A002 - LangChain's name
        """Return the documents that answer a query; keyword arguments override the fields for this call."""
        return super().invoke(input, config, **{_IDS: self._ids(config)}, **kwargs)

    async def ainvoke(self, input: str, config: RunnableConfig | None = None, **kwargs: Any) -> list[Document]:  # noqa: A002 - LangChain's name
        """Return the documents that answer a query; keyword arguments override the fields for this call."""
        return await super().ainvoke(input, config, **{_IDS: self._ids(config)}, **kwargs)

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, **kwargs: Any
    ) -> list[Document]:
        del run_manager
        return drive(self._find(self._memory.io(is_async=False), query, **kwargs))

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, **kwargs: Any
    ) -> list[Document]:
        del run_manager
        return await self._find(self._memory.io(is_async=True), query, **kwargs)

    @property
    def _memory(self) -> RecallMethods:
        return cast("RecallMethods", self.memory)

    async def _find(self, io: IO, query: str, **kwargs: Any) -> list[Document]:
        if not isinstance(query, str):
            raise InvalidQueryError(f"the query must be a text, not a {type(query).__name__}: {shown(query, 60)}")
        thread_id, resource_id = kwargs.pop(_IDS, None) or self._ids(None)
        kwargs.pop("verbose", None)
        unknown = set(kwargs) - {"k", "filter", "mode", "message_range", "threshold"}
        if unknown:
            raise InvalidQueryError(
                f"the retriever does not know {shown(min(unknown), 40)}; "
                "it takes k, filter, mode, message_range, threshold"
            )
        # Built again, so that what a call overrides is checked like the fields.
        given = {name: kwargs.get(name, getattr(self, name)) for name in ("k", "filter", "mode", "message_range")}
        fields = SemanticRecallRetriever(memory=self.memory, **given)
        engine = self._memory.recall_engine
        options = engine.options
        threshold = kwargs.get("threshold", options.threshold)
        is_number = isinstance(threshold, (int, float)) and not isinstance(threshold, bool)
        if threshold is not None and not (is_number and 0 <= threshold <= 1):
            raise ConfigurationError(f"threshold must be 0 to 1, or None, not {shown(threshold, 40)}")
        hits = await engine.search(
            io,
            Search(
                text=query,
                scope=self._memory._search_scope(thread_id, resource_id),  # noqa: SLF001 - one feature
                top_k=fields.k or options.top_k,
                around=options.around if fields.message_range is None else as_range(fields.message_range),
                mode=engine.mode(fields.mode),
                filter=parse_filter(options.filter if fields.filter is None else fields.filter),
                threshold=threshold,
                wait=options.deadline,
                writes=not self._memory.options.read_only,
            ),
        )
        return [as_document(hit) for hit in hits]

    def _ids(self, config: RunnableConfig | None) -> tuple[str | None, str | None]:
        """Return (thread, resource): from the fields, the config, the run; LangChain hides the config below."""
        thread_id, resource_id = self.thread_id, self.resource_id
        if config is not None:
            found = _configured(config)
            thread_id, resource_id = thread_id or found[0], resource_id or found[1]
        if thread_id is None or resource_id is None:
            found = _ambient()
            # The run's thread belongs to the run's resource: never mix it with a resource from elsewhere.
            if resource_id is None or resource_id == found[1]:
                thread_id, resource_id = thread_id or found[0], resource_id or found[1]
        return thread_id, resource_id


def _configured(config: RunnableConfig) -> tuple[str | None, str | None]:
    from langchain_mastra_memory.agents.identity import authenticated_user  # noqa: PLC0415 - knows this package

    configurable: Mapping[str, Any] = config.get("configurable") or {}
    thread_id = optional_id(configurable.get("thread_id"), "thread_id")
    resource_id = optional_id(configurable.get("resource_id"))
    user = authenticated_user(None, config)
    if user is not None and resource_id not in (None, user):
        raise ThreadOwnershipError("the config names another resource than the authenticated user")
    return thread_id, user or resource_id


def _ambient() -> tuple[str | None, str | None]:
    """Return the ids of the run that this call is part of, if any."""
    from langchain_core.runnables.config import var_child_runnable_config  # noqa: PLC0415
    from langgraph.runtime import get_runtime  # noqa: PLC0415 - heavy

    from langchain_mastra_memory.agents.identity import ACTING, from_context  # noqa: PLC0415 - knows this package

    acting = ACTING.get()
    if acting is not None:
        return acting[0].thread_id, acting[0].resource_id
    config = var_child_runnable_config.get()
    if not config:
        return None, None
    thread_id, resource_id = _configured(config)
    if resource_id is None:
        try:
            resource_id = optional_id(from_context(get_runtime().context, "resource_id"))
        except (RuntimeError, KeyError):
            resource_id = None
    return thread_id, resource_id


def as_document(hit: Hit) -> Document:
    """Return a hit as a LangChain document."""
    stored = hit.message
    alone = shown_text(stored)
    content = alone if len(hit.messages) == 1 else "\n".join(f"{speaker_of(m)}: {shown_text(m)}" for m in hit.messages)
    return Document(
        id=stored.id,
        page_content=content,
        metadata={
            "content": alone,
            "thread_id": stored.thread_id,
            "resource_id": stored.resource_id,
            "message_id": stored.id,
            "message_ids": [message.id for message in hit.messages],
            "seq": stored.seq,
            "role": stored.role,
            "speaker": speaker_of(stored),
            "created_at": stored.created_at.isoformat(),
            "score": stored.score,
            "found_by": hit.found_by,
        },
    )


def speaker_of(stored: StoredMessage) -> str:
    """Return who said it: its name, or its role in plain words."""
    name, _ = indexed_text(stored.message)
    return name or {"human": "user", "ai": "assistant"}.get(stored.role, stored.role)


def shown_text(stored: StoredMessage) -> str:
    """Return what a message says; for a call without words, the call."""
    text = plain_text(stored.message)
    return indexed_text(stored.message)[1] if not text.strip() or stored.role == "human" else text
