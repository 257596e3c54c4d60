"""A worker as a tool of the delegating agent."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any, Final, Protocol

from langchain.tools import ToolRuntime
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from langgraph.errors import GraphBubbleUp
from pydantic import BaseModel, ConfigDict, Field

from langchain_mastra_memory.agents.forwarding import Task, answer_of, read_task
from langchain_mastra_memory.errors import MastraMemoryError

logger = logging.getLogger(__name__)

TOOL_NAME_LENGTH: Final = 64


class Worker(Protocol):
    """What a tool needs of a worker."""

    name: str | None

    def delegate(self, task: Task, config: RunnableConfig | None, call_id: str) -> dict[str, Any]:
        """Give it a task."""
        ...

    async def adelegate(self, task: Task, config: RunnableConfig | None, call_id: str) -> dict[str, Any]:
        """Give it a task."""
        ...


class ToolInput(BaseModel):
    """What the delegating model fills in; ids that it adds are ignored."""

    model_config = ConfigDict(extra="ignore")

    prompt: str = Field(description="The task, complete in itself: what to do, what is known, what to give back.")


def worker_tool(worker: Worker, *, name: str, description: str) -> BaseTool:
    """Return a tool that gives a worker a task."""

    def run(prompt: str, runtime: ToolRuntime = None) -> str:  # type: ignore[assignment]  # injected; None outside an agent
        with _Failures(worker.name):
            return _text(worker.delegate(*_call(prompt, runtime)))

    async def arun(prompt: str, runtime: ToolRuntime = None) -> str:  # type: ignore[assignment]  # injected; None outside an agent
        with _Failures(worker.name):
            return _text(await worker.adelegate(*_call(prompt, runtime)))

    return StructuredTool.from_function(
        func=run,
        coroutine=arun,
        name=name,
        description=description,
        args_schema=ToolInput,
        infer_schema=False,
        handle_tool_error=True,
    )


def tool_name(name: str) -> str:
    """Return a name that every provider takes: letters, digits, `_` and `-`, at most 64.

    Example:
        >>> tool_name("my helper/é:1")
        'my_helper___1'
    """
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:TOOL_NAME_LENGTH]


def _call(prompt: str, runtime: ToolRuntime | None) -> tuple[Task, RunnableConfig | None, str]:
    if not prompt.strip():  # the delegating model's mistake, which it can mend
        raise ToolException("The task is empty. Call the tool again with a prompt that says what to do.")
    task = read_task(prompt)
    if runtime is None:
        return task, None, ""
    state = runtime.state
    messages = state.get("messages", ()) if isinstance(state, Mapping) else getattr(state, "messages", ())
    return replace(task, conversation=tuple(messages)), runtime.config, runtime.tool_call_id or ""


class _Failures:
    """Turns a worker's failure into a tool error that the delegating agent can handle.

    The text of a foreign error may hold secrets: it goes neither to the model nor, above DEBUG, into a log. Interrupts
    pass, and so do errors of ours, which the application must see.
    """

    def __init__(self, name: str | None) -> None:
        self._name = name

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception) and not isinstance(error, GraphBubbleUp | MastraMemoryError | ToolException):
            logger.warning(
                "worker %r failed: %s (its text and traceback: level DEBUG)", self._name, type(error).__name__
            )
            logger.debug("worker %r failed", self._name, exc_info=error)
            raise ToolException(f"{self._name} could not do the task ({type(error).__name__}).") from error


def _text(result: Mapping[str, Any]) -> str:
    structured = result.get("structured_response")
    if isinstance(structured, BaseModel):
        return structured.model_dump_json()
    if structured is not None:
        return json.dumps(structured, ensure_ascii=False, default=str)
    answer = answer_of(result["messages"])
    return answer.text if answer is not None else ""
