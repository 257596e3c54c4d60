"""Options of the message history."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Final, Literal, Self, get_args

from langchain_core.messages import BaseMessage
from pydantic import Field, field_validator, model_validator

from langchain_mastra_memory.agents.run_options import RunOptions
from langchain_mastra_memory.checked_options import CheckedOptions
from langchain_mastra_memory.context.layers import Layers
from langchain_mastra_memory.errors import ConfigurationError
from langchain_mastra_memory.history.window import Limits
from langchain_mastra_memory.shown import shown

Processor = Callable[[Layers], Layers]
"""Shapes the prompt: from the assembled layers to the layers. Never sees or changes the archive."""

BeforeSave = Callable[[BaseMessage], BaseMessage | Awaitable[BaseMessage | None] | None]
"""Looks at a message before it is archived: returns it, another one in its place, or None to keep it out."""

HistorySource = Literal["auto", "state", "archive"]
"""Where the history of a run comes from: the graph's state, the archive, or whichever is right for the run."""

HISTORY_SOURCES: Final = get_args(HistorySource)

DEFAULT_LAST_MESSAGES = 10
REMOVE_SHARE = 0.25


class MessageHistory(CheckedOptions):
    """How much of the conversation the model sees, and how it is shaped and saved.

    Attributes:
        last_messages: How many remembered messages, at most; every stored message counts, tool calls and results too,
            the running turn does not. 10 by default; None: no cap; `False` or 0: none shown and none archived. Not
            given, there is no cap when `max_tokens` is given or observations are on.
        max_tokens: The budget of the whole prompt in tokens: system text, tools' schemas, injected layers, context
            and the running turn count too. 0 turns the history off.
        remove_tokens: How far below `max_tokens` a trim goes, in tokens, so that the prompt's start stays the same for
            several turns. A quarter of `max_tokens` by default; at most `max_tokens`.
        processors: Functions from the assembled layers to the layers, in order, after memory and before the user's
            own middleware. They shape the prompt, never the archive. `history.processors` has a ready set.
        before_save: Functions from a message of a run to the message that is archived (or None), sync or async, in
            order, run before archive, index, observer and title. The graph's state keeps what was said.
        history: Where the history comes from. "auto": the state when the run has a checkpointer, else the archive.
        retain_full_input: Take what the caller sends as the whole conversation, as it is, and save what is new of it.
        save_partial: Keep the question and what was streamed of the answer when the caller cancels an async run, or
            leaves its stream. A sync stream that is closed early does not cancel the model: LangGraph waits for its
            whole answer, then ends the run without a word to anybody, and nothing of the run is saved.

    Raises:
        ConfigurationError: A value is out of its range.

    Example:
        >>> MessageHistory(max_tokens=8_000).limits().remove_tokens
        2000.0
        >>> MessageHistory().limits().last_messages
        10
    """

    last_messages: Annotated[int, Field(ge=0, strict=True)] | Literal[False] | None = DEFAULT_LAST_MESSAGES
    max_tokens: Annotated[int, Field(ge=0, strict=True)] | None = None
    remove_tokens: Annotated[int, Field(ge=0, strict=True)] | None = None
    processors: Sequence[Processor] = ()
    before_save: Sequence[BeforeSave] = ()
    history: HistorySource = "auto"
    retain_full_input: bool = False
    save_partial: bool = False

    @field_validator("processors", "before_save", mode="before")
    @classmethod
    def _callables(cls, value: object) -> object:
        functions = tuple(value) if isinstance(value, (list, tuple)) else (value,)
        for function in functions:
            if not callable(function):
                raise ValueError(f"{shown(function, 60)} is not a function")  # noqa: TRY004  # pydantic wants a ValueError
        return functions

    @field_validator("processors")
    @classmethod
    def _sync_processors(cls, value: Sequence[Processor]) -> Sequence[Processor]:
        for function in value:
            if inspect.iscoroutinefunction(function):
                raise ValueError(f"the processor {function_name(function)} must be a plain function, not async")
        return value

    @model_validator(mode="after")
    def _removal(self) -> Self:
        if self.remove_tokens is not None:
            if self.max_tokens is None:
                raise ValueError(f"remove_tokens={self.remove_tokens} needs max_tokens")
            if self.remove_tokens > self.max_tokens:
                raise ValueError(
                    f"remove_tokens={self.remove_tokens} must be at most max_tokens={self.max_tokens}: 0 to "
                    f"{self.max_tokens}"
                )
        return self

    def limits(self, run: RunOptions | None = None, *, uncapped: bool = False) -> Limits:
        """Return the limits of a run.

        Args:
            run: The run's own switches; what it does not set is as in these options.
            uncapped: Whether the default count does not apply (observations are on).

        Raises:
            ConfigurationError: The run's `remove_tokens` is more than its `max_tokens`.
        """
        run = run or RunOptions()
        max_tokens = run.max_tokens if run.given("max_tokens") else self.max_tokens
        remove: float | None
        if run.given("remove_tokens") and run.remove_tokens is not None:
            remove = run.remove_tokens
        else:
            remove = self.remove_tokens if not run.given("max_tokens") else None
        if max_tokens is not None and remove is not None and remove > max_tokens:
            raise ConfigurationError(f"remove_tokens={remove} must be at most max_tokens={max_tokens}")
        if run.given("last_messages"):
            last: int | None = None if run.last_messages is None else int(run.last_messages)
        elif "last_messages" in self.model_fields_set:
            last = None if self.last_messages is None else int(self.last_messages)
        else:
            last = None if max_tokens is not None or uncapped else DEFAULT_LAST_MESSAGES
        return Limits(
            last_messages=last,
            max_tokens=max_tokens,
            remove_tokens=0.0
            if max_tokens is None
            else (max_tokens * REMOVE_SHARE if remove is None else float(remove)),
        )


def function_name(function: Callable[..., object]) -> str:
    """Return the name of a user's function, for errors."""
    return getattr(function, "__qualname__", None) or type(function).__qualname__
