"""What a worker is given: its task, and the parent's conversation as context. Pure functions over messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, convert_to_messages

from langchain_mastra_memory.errors import ConfigurationError
from langchain_mastra_memory.history.incoming import fields_of
from langchain_mastra_memory.shown import shown

HANDOFF_MARK: Final = "__is_handoff_back"
"""How langgraph-supervisor marks the messages that say "transferring back"."""


@dataclass(frozen=True, slots=True)
class Task:
    """A task for a worker.

    Attributes:
        prompt: What the worker is asked: the content of a human message.
        conversation: The parent's conversation before the task.
        extra: Other keys of the state that came in.
    """

    prompt: str | list[Any]
    conversation: tuple[BaseMessage, ...]
    extra: Mapping[str, Any]

    @property
    def text(self) -> str:
        """The words of the prompt."""
        return HumanMessage(self.prompt).text


def read_task(given: object) -> Task:
    """Return the task in what a worker was invoked with.

    Args:
        given: A prompt, messages, `{"prompt": ...}`, or a state with `messages`: its newest human message is the
            task. When others have answered behind it, their answers belong to the conversation, and so does the
            message itself.

    Raises:
        ConfigurationError: There is no task in it.
    """
    if isinstance(given, str):
        return _task(given, (), {})
    state = fields_of(given)
    if state is not None:
        extra = {key: value for key, value in state.items() if key not in ("messages", "prompt")}
        if isinstance(state.get("prompt"), str):
            return _task(state["prompt"], convert_to_messages(state.get("messages") or ()), extra)
        return _from_messages(convert_to_messages(state.get("messages") or ()), extra)
    if isinstance(given, BaseMessage):
        return _from_messages([given], {})
    if isinstance(given, Sequence):
        return _from_messages(convert_to_messages(given), {})
    raise ConfigurationError(f"a worker takes a prompt, messages or a state with messages, not {shown(given, 80)}")


def _from_messages(messages: Sequence[BaseMessage], extra: Mapping[str, Any]) -> Task:
    asked = next((n for n in reversed(range(len(messages))) if isinstance(messages[n], HumanMessage)), None)
    if asked is None:
        raise ConfigurationError("there is no human message in what the worker was given: nothing to do")
    answered = forwarded_by_default(messages[asked + 1 :])
    before = messages if answered else messages[:asked]
    return _task(messages[asked].content, before, extra)


def _task(prompt: str | list[Any], conversation: Sequence[BaseMessage], extra: Mapping[str, Any]) -> Task:
    task = Task(prompt, tuple(conversation), extra)
    if not (task.text.strip() or not isinstance(prompt, str)):
        raise ConfigurationError("the task for the worker is empty")
    return task


def forwarded_by_default(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Return what of the parent's conversation a worker sees unless a filter says otherwise.

    It is the text of people and agents: no system text (the parent's instructions and memory stay with it), no tool
    calls, no tool results, no notices of a handoff.

    Example:
        >>> forwarded_by_default([HumanMessage("hi"), AIMessage("")])
        [HumanMessage(content='hi', additional_kwargs={}, response_metadata={})]
    """
    kept: list[BaseMessage] = []
    for message in messages:
        text = message.text
        if not text.strip() or message.response_metadata.get(HANDOFF_MARK):
            continue
        if isinstance(message, HumanMessage):
            kept.append(HumanMessage(text, name=message.name, id=message.id))
        elif isinstance(message, AIMessage):
            kept.append(AIMessage(text, name=message.name, id=message.id))
    return kept


def answer_of(messages: Sequence[BaseMessage]) -> AIMessage | None:
    """Return a worker's answer: its newest message with text that calls no tool, or None."""
    return next(
        (m for m in reversed(messages) if isinstance(m, AIMessage) and m.text.strip() and not m.tool_calls), None
    )
