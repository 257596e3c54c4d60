"""Which model does background work, and how it is called without leaking into the caller's stream."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from langchain.agents.middleware.internal_call_transformer import internal_call_metadata
from langchain.chat_models import init_chat_model
from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.constants import TAG_NOSTREAM

from langchain_mastra_memory.errors import ConfigurationError
from langchain_mastra_memory.shown import shown

ModelSpec = str | Runnable[Any, Any] | Callable[..., Any]
"""A `provider:model` string for `init_chat_model`, a chat model, any Runnable from messages to a message, or a function
of the runtime that returns one of these."""


def chat_model(*candidates: ModelSpec | None, what: str, runtime: object = None) -> Runnable[Any, Any]:
    """Return the first model given: the phase's own, else the memory's, else the agent's.

    Args:
        candidates: In that order; None is passed over.
        what: What the model is for, for the message.
        runtime: The run's runtime, for candidates that are functions of it.

    Raises:
        ConfigurationError: No candidate was given, or a string names no model.
    """
    for candidate in candidates:
        if candidate is None:
            continue
        if isinstance(candidate, Runnable):
            return candidate
        if isinstance(candidate, str):
            return _from_string(candidate)
        return chat_model(checked_model(candidate)(runtime), what=what)
    raise ConfigurationError(f"{what} needs a model: give it one, or `Memory(model=...)`")


def checked_model(value: Any) -> Any:
    """Return what can be a model, or None, as it is.

    Raises:
        ConfigurationError: It is none. A class is none either: give an instance of it.
    """
    if value is None or isinstance(value, (str, Runnable)) or (callable(value) and not isinstance(value, type)):
        return value
    raise ConfigurationError(f"a model must be a string, a chat model or a function, not {shown(value, 80)}")


@lru_cache(maxsize=32)
def _from_string(name: str) -> BaseChatModel:
    try:
        return init_chat_model(name)
    except (ImportError, ValueError) as error:
        raise ConfigurationError(f"the model {shown(name)} cannot be made: {error}") from error


def internal_config(name: str, **metadata: str) -> RunnableConfig:
    """Return the config of a model call of our own: a named child run whose tokens never reach the caller's stream.

    Args:
        name: The run's name, such as `mastra.observe`.
        metadata: More scalars for the trace.
    """
    return {
        "run_name": name,
        "tags": [TAG_NOSTREAM, "mastra_memory"],
        "metadata": {**internal_call_metadata(), "lc_source": "mastra_memory", **metadata},
    }
