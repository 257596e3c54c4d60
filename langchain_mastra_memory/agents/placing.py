"""Is the middleware the first of its list? What runs before or around it sees a run that memory does not know yet.

LangChain does not tell a middleware where it stands, so this looks: at the frames that called the model hook, and at
the number of the step in which a new thread's run begins.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence

from langchain.agents.middleware.types import AgentMiddleware
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.runnables import RunnableConfig

from langchain_mastra_memory.agents.identity import current_config

_HOOKS = frozenset({"wrap_model_call", "awrap_model_call"})
_DEPTH = 80


def outer_middleware(middleware: AgentMiddleware) -> str | None:
    """Return the name of a middleware whose model hook is around this one's, or None.

    Call it from the model hook: it walks the frames up to LangGraph's task.
    """
    frame = sys._getframe(1)  # noqa: SLF001  # the only way to see who called
    for _ in range(_DEPTH):
        if frame.f_back is None:
            return None
        frame = frame.f_back
        if frame.f_code.co_name == "tick":  # LangGraph's runner: nothing of this agent is above it
            return None
        caller = frame.f_locals.get("self")
        if frame.f_code.co_name in _HOOKS and isinstance(caller, AgentMiddleware) and caller is not middleware:
            if type(caller) is type(middleware):  # a second memory
                continue
            return caller.name
    return None


def is_late_start(config: RunnableConfig, messages: Sequence[BaseMessage], *, memories: int = 0) -> bool:
    """Return whether other nodes ran before this one in the first run of a thread.

    Args:
        config: The config of the node that opens the run.
        messages: The state's messages.
        memories: How many other memories of the graph have opened the run already.
    """
    step = (config.get("metadata") or {}).get("langgraph_step")
    first = not any(isinstance(message, (AIMessage, ToolMessage)) for message in messages)
    return first and isinstance(step, int) and step > 1 + memories


def warn_misplaced(name: str, other: str) -> None:
    """Warn that a middleware should come first; `create_deep_agent` puts its own first, and leaves no choice."""
    if (current_config().get("metadata") or {}).get("ls_integration") == "deepagents":
        return
    warnings.warn(
        f"{name} is not the first middleware of its agent: {other} comes before it. Put memory.middleware() first in "
        "the list, so that it sees what a guardrail leaves of the answer, and other middleware sees the whole prompt.",
        UserWarning,
        stacklevel=3,
    )
