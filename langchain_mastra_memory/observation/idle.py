"""When buffered observations are due early: after a pause, or when another model answers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from langchain_core.messages import BaseMessage

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

MINUTE: Final = 60.0
HOUR: Final = 3600.0

# How long providers keep a prompt cache, as Mastra documents it for "auto".
_PROVIDERS: Final = {"deepseek": HOUR, "google": 24 * HOUR, "gemini": 24 * HOUR, "vertex": 24 * HOUR, "groq": 2 * HOUR}
_SHORT_OPENAI = re.compile(r"gpt-4|gpt-5(?:-|$)|gpt-5\.[1-4](?:-|$)")


def identity(model: BaseChatModel | None) -> tuple[str, str]:
    """Return provider and name of a model, as far as it says; empty otherwise."""
    if model is None:
        return "", ""
    inner: Any = model
    while hasattr(inner, "bound"):
        inner = inner.bound
    try:
        params = inner._get_ls_params()  # noqa: SLF001 - the one place where a model names its provider
    except (AttributeError, NotImplementedError, TypeError):
        params = {}
    name = params.get("ls_model_name") or getattr(inner, "model_name", None) or getattr(inner, "model", None)
    return str(params.get("ls_provider") or ""), str(name or "")


def cache_seconds(provider: str, name: str, retention: str | None = None) -> float:
    """Return how long a provider keeps a prompt cache, in seconds.

    Args:
        provider: As LangChain names it: `openai`, `anthropic`, `google_genai`, ...
        name: The model's name.
        retention: OpenAI's `prompt_cache_retention`, where it is set.
    """
    for word, seconds in _PROVIDERS.items():
        if word in provider.lower():
            return seconds
    if "openai" not in provider.lower():
        return 5 * MINUTE
    if retention == "24h":
        return HOUR
    if retention == "in_memory" or _SHORT_OPENAI.match(name):
        return 5 * MINUTE
    return HOUR


def idle_limit(after: Any, model: BaseChatModel | None) -> float | None:
    """Return the pause after which activation is due, in seconds; None when it is off."""
    if after is None or after is False:
        return None
    if after != "auto":
        return float(after)
    provider, name = identity(model)
    extra = getattr(model, "model_kwargs", None) or {}
    retention = extra.get("prompt_cache_retention") or getattr(model, "prompt_cache_retention", None)
    return cache_seconds(provider, name, retention)


def changed_provider(last: BaseMessage | None, model: BaseChatModel | None) -> bool:
    """Return whether another model answers now than answered last; what does not say its name has not changed.

    Providers answer with longer names than they are called by (`gpt-5-mini-2025-08-07`): a name that begins with the
    other is the same model.
    """
    if last is None or model is None:
        return False
    said = last.response_metadata.get("model_name") or last.response_metadata.get("model")
    before = last.response_metadata.get("model_provider")
    provider, name = identity(model)
    if isinstance(before, str) and before and provider and before != provider:
        return True
    if not isinstance(said, str) or not said or not name:
        return False
    return not (said.startswith(name) or name.startswith(said))
