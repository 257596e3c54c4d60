"""What tests, demos and documentation need: a scripted chat model, a frozen clock, suites for stores and prompts."""

from __future__ import annotations

from langchain_mastra_memory.testing.clock import FrozenClock
from langchain_mastra_memory.testing.models import ModelCall, ScriptedChatModel, ScriptExhaustedError, tool_call

__all__ = ["FrozenClock", "ModelCall", "ScriptExhaustedError", "ScriptedChatModel", "tool_call"]
