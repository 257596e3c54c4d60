"""The `recall` tool: pages and searches the raw messages behind the observations; this resource's only."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from langchain.tools import ToolRuntime
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool, ToolException

from langchain_mastra_memory.agents.identity import ACTING, identify
from langchain_mastra_memory.errors import MastraMemoryError
from langchain_mastra_memory.io import IO, drive
from langchain_mastra_memory.observation.options import ObservationalMemory, Retrieval
from langchain_mastra_memory.observation.prompts import text_of
from langchain_mastra_memory.observation.recall_messages import read_messages
from langchain_mastra_memory.observation.recall_question import MOST, Asker, Question, arguments
from langchain_mastra_memory.observation.recall_threads import list_threads, search_observations
from langchain_mastra_memory.tokens import ready

if TYPE_CHECKING:
    from langchain_mastra_memory.base import MemoryBase

NAME: Final = "recall"


def recall_tool(memory: MemoryBase, options: ObservationalMemory) -> BaseTool:
    """Return the tool.

    Args:
        memory: The memory whose messages it shows.
        options: The options, with `retrieval` on.
    """
    retrieval = options.recall_tool or Retrieval()

    def asker(runtime: Any, config: RunnableConfig | None) -> Asker:
        acting = ACTING.get()
        using = acting[1] if acting is not None else memory
        thread: str | None
        resource: str | None
        if runtime is not None and runtime.tool_call_id is not None:
            run = acting[0] if acting is not None else identify(runtime, runtime.config)
            thread, resource = run.thread_id, run.resource_id
        else:
            configurable: Mapping[str, Any] = (config or {}).get("configurable") or {}
            thread, resource = configurable.get("thread_id"), configurable.get("resource_id")
        return Asker(memory=using, retrieval=retrieval, scope=options.scope, thread_id=thread, resource_id=resource)

    # `runtime` must not be Optional: LangChain injects it by its bare type, and the schema of the arguments has none.
    def run(runtime: ToolRuntime = None, config: RunnableConfig = None, **given: Any) -> str:  # type: ignore[assignment]  # injected by their bare types
        who = asker(runtime, config)
        return drive(answer(who.memory.io(is_async=False), who, Question(**given)))

    async def arun(runtime: ToolRuntime = None, config: RunnableConfig = None, **given: Any) -> str:  # type: ignore[assignment]  # injected by their bare types
        who = asker(runtime, config)
        return await answer(who.memory.io(is_async=True), who, Question(**given))

    return StructuredTool.from_function(
        name=NAME,
        description="Read the messages behind your observations again, word by word. " + text_of("recall_thread"),
        func=run,
        coroutine=arun,
        args_schema=arguments(retrieval),
        infer_schema=False,
        handle_tool_error=True,
    )


async def answer(io: IO, who: Asker, question: Question) -> str:
    """Return the tool's answer as JSON.

    Raises:
        ToolException: The question cannot be answered; the model is told why.
    """
    try:
        return json.dumps(await recall(io, who, question), ensure_ascii=False)
    except MastraMemoryError as error:
        raise ToolException(str(error)) from error


async def recall(io: IO, who: Asker, question: Question) -> dict[str, Any]:
    """Answer a question.

    Raises:
        ToolException: It cannot be answered.
    """
    counter = await ready(who.memory.token_counter, io)
    question = question.model_copy(update={"limit": max(1, min(MOST, question.limit))})
    if question.mode == "threads":
        return await list_threads(io, who, question)
    if question.mode == "search":
        return await search_observations(io, who, question)
    return await read_messages(io, who, question, counter)
