"""Hooks around observing and reflecting: lifecycle hooks look, transform hooks change what goes in or comes out."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from langchain_mastra_memory.checks import check_text
from langchain_mastra_memory.errors import ConfigurationError, ProcessorError
from langchain_mastra_memory.shown import shown

if TYPE_CHECKING:
    from langchain_mastra_memory.io import IO

Trigger = Literal["manual", "turn-sync", "async-buffer"]
"""What made the call: `observe()` or `reflect()`, a turn that waits for it, or the background."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookContext:
    """What every hook is told.

    Attributes:
        phase: `observation` or `reflection`.
        trigger: What made the call.
        thread_id: The thread, if it is about one.
        resource_id: The owner.
        usage: For end hooks: the tokens of the model call, as LangChain counts them.
        response_metadata: For end hooks: what the provider says of the call, cost included where it does.
        error: For end hooks: why it failed, or None.
    """

    phase: Literal["observation", "reflection"]
    trigger: Trigger
    thread_id: str | None = None
    resource_id: str | None = None
    usage: Mapping[str, Any] = field(default_factory=dict)
    response_metadata: Mapping[str, Any] = field(default_factory=dict)
    error: BaseException | None = None


Lifecycle = Callable[[HookContext], Awaitable[None] | None]
Messages = Sequence[BaseMessage]
BeforeMessages = Callable[[Messages, HookContext], Messages | Awaitable[Messages | None] | None]
Transform = Callable[[str, HookContext], str | Awaitable[str | None] | None]


@dataclass(frozen=True, kw_only=True)
class ObservationHooks:
    """Functions around observing and reflecting, sync or async; every one is optional.

    Attributes:
        on_observation_start: Before an observer call.
        on_observation_end: After it, with usage, or with the error.
        on_reflection_start: Before a reflector call.
        on_reflection_end: After it, with usage, or with the error.
        before_observation: From the messages to those that the observer is shown; an empty list marks the range as
            observed without a call; None changes nothing.
        after_observation: From the observations to those that are kept; None changes nothing.
        before_reflection: From the text that the reflector is shown to another.
        after_reflection: From the reflection to the one that is kept.

    Transform hooks are always waited for, and what they raise stops the call before anything is kept. Lifecycle hooks
    are not waited for, and their errors are logged, unless `hook_execution="await"`.
    """

    on_observation_start: Lifecycle | None = None
    on_observation_end: Lifecycle | None = None
    on_reflection_start: Lifecycle | None = None
    on_reflection_end: Lifecycle | None = None
    before_observation: BeforeMessages | None = None
    after_observation: Transform | None = None
    before_reflection: Transform | None = None
    after_reflection: Transform | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be called."""
        for name, value in vars(self).items():
            if value is not None and not callable(value):
                raise ConfigurationError(f"the hook {name} must be a function, not {shown(value, 60)}")


async def call(io: IO, name: str, hook: Callable[..., Any] | None, *args: object) -> Any:
    """Call a hook, awaiting it where that is possible.

    Raises:
        ProcessorError: It raised, or it is async and the caller is sync.
    """
    if hook is None:
        return None
    try:
        result = hook(*args)
        if not inspect.isawaitable(result):
            return result
        if io.is_async:
            return await result
    except Exception as error:
        raise ProcessorError(f"the hook {name} raised {type(error).__name__}: {error}") from error
    if inspect.iscoroutine(result):
        result.close()
    raise ProcessorError(f"the hook {name} is async: use the async methods, or a sync function")


REDACTED: Final = "[result redacted]"


def redact_tool_results(
    tools: Collection[str] | None = None, *, placeholder: str = REDACTED
) -> Callable[[Messages, HookContext], Messages | None]:
    """Return a `before_observation` hook that keeps tool results from the observer; the calls stay.

    Args:
        tools: Names of tools whose results are replaced; None: of all tools.
        placeholder: What stands in their place.

    Example:
        >>> hook = redact_tool_results(["vault"])
        >>> secret = ToolMessage("s3cret", tool_call_id="1", name="vault")
        >>> hook([secret], HookContext(phase="observation", trigger="manual"))[0].content
        '[result redacted]'
    """
    check_text("placeholder", placeholder)
    if tools is not None and (isinstance(tools, str) or not isinstance(tools, Collection)):
        raise ConfigurationError(f"tools must be a list of names, not {shown(tools, 60)}")

    def hook(messages: Messages, _context: HookContext) -> Messages | None:
        names = {call["id"]: call["name"] for m in messages if isinstance(m, AIMessage) for call in m.tool_calls}
        changed = [
            message.model_copy(update={"content": placeholder, "artifact": None})
            if isinstance(message, ToolMessage)
            and (tools is None or (message.name or names.get(message.tool_call_id)) in tools)
            else message
            for message in messages
        ]
        return changed if any(a is not b for a, b in zip(changed, messages, strict=True)) else None

    return hook
