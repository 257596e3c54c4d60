"""Is the middleware the first of its list? What runs before or around it sees a run that memory does not know yet.

LangChain does not tell a middleware where it stands, so this looks: at the frames that called the model hook, and at
how many steps a new thread's run has taken when it gets here.
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
_OPENING = 2
"""Steps of a run when its first node runs: the input, and taking it in."""


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
    """Return whether other nodes ran before this one since the run's input came in, in the first run of a thread.

    The number of the step alone does not say so: a state that a person made with `update_state`, a run that died at
    its beginning, or one that is under way at the same time has taken steps of the thread before. LangGraph's
    scratchpad has the step at which this run ends at the latest, which is its first step and the recursion limit.

    Args:
        config: The config of the node that opens the run.
        messages: The state's messages.
        memories: How many other memories of the graph have opened the run already.
    """
    scratchpad = config.get("configurable", {}).get("__pregel_scratchpad")
    step, stop, limit = (
        getattr(scratchpad, "step", None),
        getattr(scratchpad, "stop", None),
        config.get("recursion_limit"),
    )
    if not (isinstance(step, int) and isinstance(stop, int) and isinstance(limit, int)):
        return False
    first = not any(isinstance(message, (AIMessage, ToolMessage)) for message in messages)
    taken = step - (stop - limit - 1)
    return first and taken > _OPENING + memories


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
