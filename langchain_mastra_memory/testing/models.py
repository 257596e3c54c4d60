"""A chat model that says what it was told to say, and remembers what it was asked."""

from __future__ import annotations

import inspect
import json
import re
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.language_models.base import LangSmithParams
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, SystemMessage
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from langchain_mastra_memory.shown import shown

Reply: TypeAlias = str | AIMessage | Mapping[str, Any] | BaseModel | BaseException
"""What the model answers: text, a whole message, structured data (a call of the forced tool, or JSON text where none
is forced), or an error that the call raises."""

Script: TypeAlias = Sequence[Reply] | Callable[[list[BaseMessage]], Reply | Awaitable[Reply]]
"""The replies in order, or a function of the messages that were sent."""


class ScriptExhaustedError(RuntimeError):
    """A scripted model was called more often than it has replies."""


@dataclass(frozen=True, slots=True)
class ModelCall:
    """What the model was sent in one call.

    Attributes:
        messages: A copy of the messages, in order.
        tools: The tools bound to the call, as OpenAI tool schemas.
        tool_choice: The tool that the call demands; "any" for some tool, None for free choice.
        stop: The stop words.
        tags: The tags of the run.
        metadata: The metadata of the run.
        options: Everything else that was bound to or passed with the call.
    """

    messages: tuple[BaseMessage, ...]
    tools: tuple[dict[str, Any], ...] = ()
    tool_choice: str | None = None
    stop: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def system(self) -> str:
        """The text of all system messages, joined by newlines."""
        return "\n".join(message.text for message in self.messages if isinstance(message, SystemMessage))

    @property
    def conversation(self) -> tuple[BaseMessage, ...]:
        """The messages that are not system messages."""
        return tuple(message for message in self.messages if not isinstance(message, SystemMessage))

    @property
    def tool_names(self) -> tuple[str, ...]:
        """The names of the bound tools."""
        return tuple(tool["function"]["name"] for tool in self.tools)


def tool_call(name: str, args: Mapping[str, Any] | None = None, *, id: str | None = None, text: str = "") -> AIMessage:  # noqa: A002  # LangChain's own name
    """Return a reply that calls one tool.

    Args:
        name: The name of the tool.
        args: Its arguments; none by default.
        id: The id of the call; `call_<name>` by default, so give ids when a script calls a tool twice.
        text: What the model says along with the call.
    """
    call = {"name": name, "args": dict(args or {}), "id": id or f"call_{name}", "type": "tool_call"}
    return AIMessage(content=text, tool_calls=[call])


class _Played:
    """How far a script is and what was asked; shared by all copies of a model."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.position = 0
        self.calls: list[ModelCall] = []


class ScriptedChatModel(BaseChatModel):
    """A chat model for tests, demos and documentation: no network, no key, the same answers every time.

    It is a whole chat model: sync and async, streaming (word by word), tools, structured output, usage metadata. Safe
    to share between threads; copies and bindings of one model share the script and the record of calls.

    Example:
        >>> model = ScriptedChatModel(["Hello!", tool_call("lookup", {"city": "Rome"})])
        >>> model.invoke("Hi").text
        'Hello!'
        >>> model.invoke("Where are you?").tool_calls[0]["args"]
        {'city': 'Rome'}
        >>> [call.messages[0].text for call in model.calls]
        ['Hi', 'Where are you?']

        A function answers from what it is shown:

        >>> parrot = ScriptedChatModel(lambda messages: messages[-1].text.upper())
        >>> parrot.invoke("so it goes").text
        'SO IT GOES'
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    replies: Any = Field(exclude=True, repr=False)
    """The script: see `Script`. A list that ends raises `ScriptExhaustedError`."""
    model_name: str = "scripted"
    """The name that responses and traces carry."""
    provider: str = "scripted"
    """The provider that responses and traces carry."""
    repeat_last: bool = False
    """Whether the last reply of a list is given again and again."""

    _played: _Played = PrivateAttr(default_factory=_Played)

    def __init__(self, replies: Script, **fields: Any) -> None:
        super().__init__(replies=replies, **fields)

    @property
    def calls(self) -> tuple[ModelCall, ...]:
        """What the model was sent, call by call."""
        with self._played.lock:
            return tuple(self._played.calls)

    @property
    def last_call(self) -> ModelCall:
        """What the model was sent last.

        Raises:
            IndexError: The model was not called yet.
        """
        return self.calls[-1]

    @property
    def _llm_type(self) -> str:
        return "scripted"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"model_name": self.model_name, "provider": self.provider}

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        params = super()._get_ls_params(stop=stop, **kwargs)
        params["ls_provider"] = self.provider
        return params

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Return the model with tools: they are recorded, and a structured reply becomes a call of the forced one."""
        schemas = [convert_to_openai_tool(tool) for tool in tools]
        return self.bind(tools=schemas, tool_choice=tool_choice, **kwargs)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        call = _recorded(messages, stop, run_manager, kwargs)
        reply = self._next(call)
        if inspect.isawaitable(reply):
            if inspect.iscoroutine(reply):
                reply.close()
            raise TypeError("the script is an async function, so the model can only be called with ainvoke or astream")
        return _result(self._message(reply, call))

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        call = _recorded(messages, stop, run_manager, kwargs)
        reply = self._next(call)
        if inspect.isawaitable(reply):
            reply = await reply
        return _result(self._message(reply, call))

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        result = self._generate(messages, stop, run_manager, **kwargs)
        yield from _chunks(result)

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        result = await self._agenerate(messages, stop, run_manager, **kwargs)
        for chunk in _chunks(result):
            yield chunk

    def _next(self, call: ModelCall) -> Reply | Awaitable[Reply]:
        """Record the call and return the reply to it; a function is called outside the lock."""
        with self._played.lock:
            self._played.calls.append(call)
            if not callable(self.replies):
                return self._from_list(call)
        reply: Reply | Awaitable[Reply] = self.replies([_copy(message) for message in call.messages])
        return reply

    def _from_list(self, call: ModelCall) -> Reply:
        replies: Sequence[Reply] = self.replies
        position = self._played.position
        if position >= len(replies):
            if not (self.repeat_last and replies):
                last = call.messages[-1].text if call.messages else ""
                raise ScriptExhaustedError(
                    f"the script has {len(replies)} replies and was asked for one more, after {last[:80]!r}"
                )
            position = len(replies) - 1
        self._played.position = position + 1
        return replies[position]

    def _message(self, reply: Reply, call: ModelCall) -> AIMessage:
        if isinstance(reply, BaseException):
            raise reply
        message = _as_message(reply, call)
        if message.usage_metadata is None:
            message.usage_metadata = _usage(call, message)
        message.response_metadata = {
            "model_name": self.model_name,
            "model_provider": self.provider,
            **message.response_metadata,
        }
        return message


def _recorded(
    messages: list[BaseMessage],
    stop: list[str] | None,
    run_manager: CallbackManagerForLLMRun | AsyncCallbackManagerForLLMRun | None,
    options: dict[str, Any],
) -> ModelCall:
    rest = dict(options)
    choice = rest.pop("tool_choice", None)
    return ModelCall(
        messages=tuple(_copy(message) for message in messages),
        tools=tuple(rest.pop("tools", None) or ()),
        tool_choice=_name_of_choice(choice),
        stop=tuple(stop or ()),
        tags=tuple(run_manager.tags) if run_manager else (),
        metadata=dict(run_manager.metadata) if run_manager else {},
        options=rest,
    )


def _name_of_choice(choice: object) -> str | None:
    """Return the name in any provider's way to force a tool; "any" where no tool is named."""
    if isinstance(choice, Mapping):
        function = choice.get("function", choice)
        return str(function.get("name", "any")) if isinstance(function, Mapping) else "any"
    if choice is True or choice == "required":
        return "any"
    return None if choice in (None, False, "auto", "none") else str(choice)


def _as_message(reply: str | AIMessage | Mapping[str, Any] | BaseModel, call: ModelCall) -> AIMessage:
    if isinstance(reply, AIMessage):
        return reply.model_copy(deep=True)
    if isinstance(reply, str):
        return AIMessage(content=reply)
    data = reply.model_dump(mode="json") if isinstance(reply, BaseModel) else dict(reply)
    if call.tools and call.tool_choice is not None:
        name = call.tool_names[0] if call.tool_choice == "any" else call.tool_choice
        return tool_call(name, data)
    return AIMessage(content=json.dumps(data, ensure_ascii=False))


def _usage(call: ModelCall, message: AIMessage) -> Any:
    """Count about four characters to a token: the same everywhere, without a tokenizer."""
    sent = sum(_tokens(part.text) for part in call.messages)
    said = _tokens(message.text) + sum(_tokens(json.dumps(tool["args"])) for tool in message.tool_calls)
    return {"input_tokens": sent, "output_tokens": said, "total_tokens": sent + said}


def _tokens(text: str) -> int:
    return -(-len(text) // 4)


def _copy(message: BaseMessage) -> BaseMessage:
    return message.model_copy(deep=True)


def _result(message: AIMessage) -> ChatResult:
    return ChatResult(generations=[ChatGeneration(message=message)])


def _chunks(result: ChatResult) -> Iterator[ChatGenerationChunk]:
    """Cut a reply into words and tool calls; put together, the chunks are the reply again."""
    message = result.generations[0].message
    if not isinstance(message, AIMessage):  # pragma: no cover  # _result makes AI messages only
        raise TypeError(f"a chat model answers with an AIMessage, not {shown(message, 80)}")
    text = message.content if isinstance(message.content, str) else ""
    for word in re.findall(r"\s*\S+\s*$|\s*\S+|\s+$", text):
        yield _chunk(AIMessageChunk(content=word, id=message.id))
    for index, call in enumerate(message.tool_calls):
        part = tool_call_chunk(name=call["name"], args=json.dumps(call["args"]), id=call["id"], index=index)
        yield _chunk(AIMessageChunk(content="", tool_call_chunks=[part], id=message.id))
    yield _chunk(
        AIMessageChunk(
            content="" if text else message.content,
            additional_kwargs=message.additional_kwargs,
            response_metadata=message.response_metadata,
            usage_metadata=message.usage_metadata,
            name=message.name,
            id=message.id,
            chunk_position="last",
        )
    )


def _chunk(message: AIMessageChunk) -> ChatGenerationChunk:
    return ChatGenerationChunk(message=message)
