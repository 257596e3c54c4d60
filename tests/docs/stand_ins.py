"""What examples may name without the network: a provider package whose models are scripted, and ready objects."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.messages import AIMessage, BaseMessage

from langchain_mastra_memory.testing import ScriptedChatModel, tool_call

OBSERVED = "<observations>\n* (12:00) The user said hello.\n</observations>"


class Script:
    """The replies of a page, in order; then the same polite one, or an observation where one is asked for."""

    def __init__(self, replies: list[Any]) -> None:
        self._replies = iter(replies)

    def __call__(self, messages: list[BaseMessage]) -> str | AIMessage | dict[str, Any]:
        # Background work does not use up what the page's conversation is to hear.
        if any("<observations>" in message.text for message in messages if message.type in ("system", "human")):
            return OBSERVED
        reply = next(self._replies, "Understood.")
        if isinstance(reply, dict) and "call" in reply:
            return tool_call(reply["call"], reply.get("args"), id=reply.get("id"), text=reply.get("text", ""))
        return reply


@contextmanager
def provider(replies: list[Any]) -> Iterator[ScriptedChatModel]:
    """Let `openai:...` and `langchain_openai` be scripted while the block runs; yields the model of the page."""
    from langchain.chat_models import base

    script = Script(replies)

    class ChatOpenAI(ScriptedChatModel):
        def __init__(self, model: str = "gpt-5-mini", **options: Any) -> None:
            super().__init__(script, model_name=model, provider="openai")

    class OpenAIEmbeddings(DeterministicFakeEmbedding):
        def __init__(self, model: str = "text-embedding-3-small", **options: Any) -> None:
            super().__init__(size=64)

    module = types.ModuleType("langchain_openai")
    module.__dict__.update(ChatOpenAI=ChatOpenAI, OpenAIEmbeddings=OpenAIEmbeddings)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "langchain_openai", module)
        _forget_models(base)
        try:
            yield ChatOpenAI()
        finally:
            _forget_models(base)


def _forget_models(module: types.ModuleType) -> None:
    """Empty the caches that remember which class a provider's name stands for."""
    from langchain_mastra_memory import models

    for owner in (module, models):
        for value in vars(owner).values():
            clear = getattr(value, "cache_clear", None)
            if clear is not None:
                clear()
