"""Agents with a scripted observer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage

from langchain_mastra_memory.memory import Memory
from langchain_mastra_memory.observation.options import Observation, ObservationalMemory, Reflection
from langchain_mastra_memory.testing import ScriptedChatModel
from langchain_mastra_memory.tokens import TokenCounter

CONFIG = {"configurable": {"thread_id": "t", "resource_id": "r"}}


def words(text: str) -> int:
    return len(text.split())


COUNTER = TokenCounter(count=words, name="words")
"""A message of 40 words weighs 45 tokens."""


class Says:
    """An observer that numbers its answers."""

    def __init__(self, extra: str = "", text: str = "* 🔴 (10:00) obs{n} fact") -> None:
        self.n = 0
        self.extra = extra
        self.text = text

    def __call__(self, _messages: Any) -> str:
        self.n += 1
        said = self.text.format(n=self.n)
        return f"<observations>\nDate: Jan 1, 2025\n{said}\n</observations>\n" + self.extra.format(n=self.n)


HINTS = "<current-task>\ntask{n}\n</current-task>\n<suggested-response>\nsugg{n}\n</suggested-response>"


@dataclass
class Talk:
    """An agent that talks to itself: every question and every answer has 40 words."""

    memory: Memory
    agent: Any
    model: ScriptedChatModel
    observer: ScriptedChatModel
    events: list[dict[str, Any]] = field(default_factory=list)
    turns: int = 0

    def say(self, text: str | None = None, config: Any = None, words: int = 40) -> list[dict[str, Any]]:
        """Take a turn and wait for the background; return the events of the turn."""
        self.turns += 1
        question = HumanMessage(text or f"U{self.turns} " + "alpha " * (words - 1))
        events = [
            event
            for event in self.agent.stream({"messages": [question]}, config or CONFIG, stream_mode="custom")
            if event.get("type") == "memory.observation"
        ]
        self.events += events
        self.failures = self.memory.settled()
        return events

    async def asay(self, config: Any = None) -> None:
        self.turns += 1
        await self.agent.ainvoke({"messages": [HumanMessage(f"U{self.turns} " + "alpha " * 39)]}, config or CONFIG)
        self.failures = await self.memory.asettled()

    @property
    def prompt(self) -> list[str]:
        """The first words of what the model was sent last, without the system message."""
        return [message.text.split()[0] for message in self.model.last_call.conversation]

    @property
    def system(self) -> str:
        return self.model.last_call.system

    def phases(self) -> list[str]:
        return [event["phase"] for event in self.events if event["phase"] != "status"]


@pytest.fixture
def talk(memory_factory):
    """Return a function that makes an agent with observational memory."""

    def make(
        observer: Any = None, *, url: str = "memory://", tools: Any = (), model: Any = None, **options: Any
    ) -> Talk:
        watching = observer if isinstance(observer, ScriptedChatModel) else ScriptedChatModel(observer or Says(HINTS))
        given = {name: options.pop(name) for name in list(options) if name in ObservationalMemory.model_fields}
        observation = {name: options.pop(name) for name in list(options) if name in Observation.model_fields}
        observation.setdefault("message_tokens", 400)
        given.setdefault("observation", Observation(**observation))
        given.setdefault("reflection", Reflection(observation_tokens=300))
        memory = memory_factory(
            url,
            observational_memory=ObservationalMemory(model=watching, **given),
            token_counter=COUNTER,
            **options,
        )
        count = iter(range(1, 10_000))
        talking = model or ScriptedChatModel(lambda _messages: f"A{next(count)} " + "beta " * 39)
        agent = create_agent(talking, list(tools), middleware=[memory.middleware()], checkpointer=memory.checkpointer)
        return Talk(memory=memory, agent=agent, model=talking, observer=watching)

    return make
