"""Switches of one run: `RunOptions`, passed in `configurable["memory"]` or in `context.memory`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from langchain_core.messages import AnyMessage
from pydantic import BeforeValidator, Field, SkipValidation

from langchain_mastra_memory.checked_options import CheckedOptions
from langchain_mastra_memory.errors import ConfigurationError
from langchain_mastra_memory.history.incoming import as_messages
from langchain_mastra_memory.shown import shown


def _messages(value: object) -> object:
    return tuple(as_messages(value, "context_messages")) if isinstance(value, (list, tuple)) else value


class RunOptions(CheckedOptions):
    """What one run does differently. Everything left out is as the memory was made.

    Attributes:
        off: Memory is not there at all in this run: nothing shown, nothing saved, no tools.
        read_only: Everything is shown, nothing is written: no message, page, observation, vector or title.
        last_messages: Another count of remembered messages; `False` or 0: none shown and nothing archived.
        max_tokens: Another budget in tokens for the whole prompt.
        remove_tokens: How far below the budget a trim goes, in tokens.
        thread_title: The title of the thread, when this run makes it.
        thread_metadata: The metadata of the thread, when this run makes it.
        context_messages: Messages for this call only: after the history, before the new message; never stored.
        system: System text for this call only: after the instructions.
        titles: Whether this run may name its thread; None: as the memory was made.
        semantic_recall: Whether recall searches in this run; None: as the memory was made.
        working_memory: Whether the page is shown in this run; None: as the memory was made.
        observational_memory: Whether observations are shown and made in this run; None: as the memory was made.
        save_partial: Whether what was streamed is kept when the caller cancels an async run; None: as the middleware
            was made.

    Raises:
        ConfigurationError: An option is unknown, or a value is out of its range.

    Example:
        ```python
        agent.invoke(
            {"messages": [("user", "hi")]},
            {"configurable": {"thread_id": "t1", "memory": {"read_only": True}}},
        )
        ```
    """

    off: bool = False
    read_only: bool | None = None
    last_messages: Annotated[int, Field(ge=0, strict=True)] | Literal[False] | None = None
    max_tokens: Annotated[int, Field(ge=0, strict=True)] | None = None
    remove_tokens: Annotated[int, Field(ge=0, strict=True)] | None = None
    thread_title: str | None = None
    thread_metadata: dict[str, Any] | None = None
    context_messages: Annotated[Sequence[SkipValidation[AnyMessage]], BeforeValidator(_messages)] = ()
    system: str | None = None
    titles: bool | None = None
    semantic_recall: bool | None = None
    working_memory: bool | None = None
    observational_memory: bool | None = None
    save_partial: bool | None = None

    def for_worker(self) -> RunOptions:
        """Return the switches that hold for a worker of the run too: not what is meant for the run's own thread."""
        own = {"thread_title", "thread_metadata", "context_messages", "system"}
        if not self.model_fields_set & own:
            return self
        return RunOptions(**{name: getattr(self, name) for name in self.model_fields_set - own})

    def given(self, name: str) -> bool:
        """Return whether the caller set this option, so that None can be told from nothing."""
        return name in self.model_fields_set


def run_options(value: object) -> RunOptions:
    """Return the options of a run from what the caller passed.

    Args:
        value: None, a mapping, or `RunOptions`.

    Raises:
        ConfigurationError: A key is unknown, or a value is out of its range; the message names it.
    """
    if value is None:
        return RunOptions()
    if isinstance(value, RunOptions):
        return value
    if not isinstance(value, Mapping):
        raise ConfigurationError(f"the run's memory options must be a RunOptions or a dict, not {shown(value)}")
    try:
        return RunOptions(**{str(name): given for name, given in value.items()})
    except ConfigurationError as error:
        known = ", ".join(sorted(RunOptions.model_fields))
        raise ConfigurationError(f"the run's memory options are not valid: {error}. Known options: {known}") from error


@dataclass(frozen=True, kw_only=True)
class MemoryContext:
    """A ready `context_schema`: who the run belongs to, and its switches.

    Attributes:
        resource_id: The owner of the thread.
        memory: The switches of the run.

    Example:
        ```python
        agent = create_agent(model, middleware=[memory.middleware()], context_schema=MemoryContext)
        agent.invoke(
            {"messages": [("user", "hi")]},
            {"configurable": {"thread_id": "t1"}},
            context=MemoryContext(resource_id="user-1"),
        )
        ```
    """

    resource_id: str | None = None
    memory: RunOptions | dict[str, Any] | None = None
