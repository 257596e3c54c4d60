"""Messages on their way into the archive: the user's `before_save` functions change them, or keep them out."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass

from langchain_core.messages import BaseMessage

from langchain_mastra_memory.errors import ProcessorError
from langchain_mastra_memory.history.options import BeforeSave, MessageHistory, function_name
from langchain_mastra_memory.io import IO
from langchain_mastra_memory.shown import shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Archived:
    """What `before_save` made of a run's messages.

    Attributes:
        messages: What is archived, oldest first.
        ids: The ids of the state's messages that are archived.
        replaced: Messages that became others, by id.
    """

    messages: tuple[BaseMessage, ...]
    ids: tuple[str, ...]
    replaced: dict[str, BaseMessage]


async def before_saving(io: IO, messages: Sequence[BaseMessage], options: MessageHistory | None) -> Archived:
    """Run the user's `before_save` functions over messages.

    Raises:
        ProcessorError: One of them raised, or returned something else than a message or None.
    """
    kept: list[BaseMessage] = []
    ids: list[str] = []
    replaced: dict[str, BaseMessage] = {}
    functions = options.before_save if options else ()
    for message in messages:
        made = await _through(io, functions, message)
        if made is None:
            continue
        if made is not message:
            made = made if made.id == message.id else made.model_copy(update={"id": message.id})
            if made != message:
                replaced[message.id or ""] = made
        kept.append(made)
        ids.append(message.id or "")
    return Archived(messages=tuple(kept), ids=tuple(ids), replaced=replaced)


async def _through(io: IO, functions: Sequence[BeforeSave], message: BaseMessage) -> BaseMessage | None:
    made = message
    for function in functions:
        result = await _apply(io, function, made)
        if result is None:
            return None
        made = result
    return made


async def _apply(io: IO, function: BeforeSave, message: BaseMessage) -> BaseMessage | None:
    name = function_name(function)
    try:
        result = function(message.model_copy(deep=True))
        waits = inspect.isawaitable(result) and not io.is_async
        made = await result if inspect.isawaitable(result) and not waits else result
    except Exception as error:
        raise ProcessorError(f"the before_save function {name} raised {type(error).__name__}: {error}") from error
    if waits:
        if inspect.iscoroutine(made):
            made.close()
        raise ProcessorError(f"the before_save function {name} is async and the run is not: use ainvoke or astream")
    if made is not None and not isinstance(made, BaseMessage):
        raise ProcessorError(f"the before_save function {name} returned {shown(made, 60)}, not a message")
    return made
