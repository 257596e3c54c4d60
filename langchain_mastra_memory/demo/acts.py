"""The two acts of the demonstration, each played by a process of its own."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from langchain.agents import create_agent
from langchain.chat_models import init_chat_model
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig

from langchain_mastra_memory.demo.conversation import (
    ASKED,
    ASKED_IN_FORK,
    OTHER_TOLD,
    RESOURCE,
    SYSTEM,
    TOLD,
    answer,
)
from langchain_mastra_memory.demo.printing import Stage, shortened
from langchain_mastra_memory.errors import ConfigurationError
from langchain_mastra_memory.memory import Memory
from langchain_mastra_memory.testing.models import ScriptedChatModel


def chat_model(name: str | None) -> BaseChatModel:
    """Return the model of the demonstration: scripted, or any that `init_chat_model` knows by name.

    Raises:
        ConfigurationError: The named model cannot be made: no such name, no package, no key.
    """
    if name is None:
        return ScriptedChatModel(answer)
    try:
        return init_chat_model(name)
    except Exception as error:  # each provider has its own for a missing package, name or key
        raise ConfigurationError(f"the model {name!r} cannot be made: {error}") from error


def is_scripted(model: BaseChatModel) -> bool:
    """Return whether the model is the demonstration's own."""
    return isinstance(model, ScriptedChatModel) and model.replies is answer


def play(act: str, *, url: str, run: str, model: str | None) -> None:
    """Play an act, `tell` or `ask`.

    Args:
        act: Which one.
        url: The database.
        run: What sets this run's threads apart from those of other runs.
        model: A name for `init_chat_model`; None plays with the scripted model.
    """
    with Memory(url) as memory:
        player = _Player(memory, chat_model(model), run)
        {"tell": player.tell, "ask": player.ask}[act]()


class _Player:
    def __init__(self, memory: Memory, model: BaseChatModel, run: str) -> None:
        self.memory = memory
        self.model = model
        self.stage = Stage()
        self.trip, self.report = f"trip-{run}", f"report-{run}"
        # What a user writes: the middleware, and the checkpointer of the same memory.
        self.agent = create_agent(
            model, system_prompt=SYSTEM, middleware=[memory.middleware()], checkpointer=memory.checkpointer
        )

    def tell(self) -> None:
        """Play the first process: it is told facts in several turns and ends."""
        self.stage.act(f"Process 1 (pid {os.getpid()}): Ada tells the agent a few things", [self._about_the_model()])
        for line in TOLD:
            self._say(line, self.trip, title="A weekend in Lisbon")
        self.stage.heading("In another thread")
        for line in OTHER_TOLD:
            self._say(line, self.report, title="Quarterly report")
        self.stage.remark("The process ends here; nothing of it is left but the database.")

    def ask(self) -> None:
        """Play the second process: it is given one new message, and finds everything else in the database."""
        self.stage.act(
            f"Process 2 (pid {os.getpid()}): a new process, given nothing but one new message",
            [self._about_the_model()],
        )
        self._show_what_the_model_will_see(ASKED)
        self._say(ASKED, self.trip)
        self._check_that_the_preview_was_true()
        self._list_threads()
        self._fork()

    def _about_the_model(self) -> str:
        if is_scripted(self.model):
            return "The chat model is scripted: it can only repeat facts from the messages that it is sent."
        return f"The chat model is {getattr(self.model, 'model_name', type(self.model).__name__)}."

    def _config(self, thread_id: str, *, title: str | None = None, checkpoint_id: str | None = None) -> RunnableConfig:
        configurable: dict[str, Any] = {"thread_id": thread_id, "resource_id": RESOURCE}
        if title is not None:
            configurable["memory"] = {"thread_title": title}
        if checkpoint_id is not None:
            configurable["checkpoint_id"] = checkpoint_id
        return {"configurable": configurable}

    def _say(self, text: str, thread_id: str, *, title: str | None = None, checkpoint_id: str | None = None) -> str:
        config = self._config(thread_id, title=title, checkpoint_id=checkpoint_id)
        result = self.agent.invoke({"messages": [HumanMessage(text)]}, config)
        said: str = result["messages"][-1].text
        self.stage.turn(text, said)
        return said

    def _show_what_the_model_will_see(self, text: str, checkpoint_id: str | None = None) -> None:
        self.stage.heading("What the model is about to see, layer by layer (memory.preview)")
        self.previewed = self.memory.preview(
            [HumanMessage(text)],
            thread_id=self.trip,
            resource_id=RESOURCE,
            system=SYSTEM,
            checkpoint_id=checkpoint_id,
        )
        rows: Sequence[Sequence[object]] = [
            (layer.name, layer.messages or "", layer.tokens, shortened(layer.text)) for layer in self.previewed.layers
        ]
        total = sum(layer.tokens for layer in self.previewed.layers)
        self.stage.table(("layer", "messages", "tokens", "text"), [*rows, ("total", "", total, "")])
        if self.previewed.counted_by == "estimate":
            self.stage.remark("Tokens are estimated here; langchain-mastra-memory[local] counts them.")

    def _check_that_the_preview_was_true(self) -> None:
        if isinstance(self.model, ScriptedChatModel):
            sent = [(message.type, message.text) for message in self.model.last_call.messages]
            if sent != [(message.type, message.text) for message in self.previewed.messages]:
                raise AssertionError("the model was sent something else than the preview showed")
            self.stage.check(f"the model was sent exactly these {len(sent)} messages")

    def _list_threads(self) -> None:
        self.stage.heading("Ada's threads (memory.list_threads)")
        threads = self.memory.list_threads(RESOURCE)
        self.stage.table(
            ("thread", "title", "messages", "created"),
            [
                (
                    thread.id,
                    thread.title or "",
                    self.memory.recall(thread_id=thread.id, resource_id=RESOURCE, per_page=1).total,
                    thread.created_at.astimezone().strftime("%Y-%m-%d %H:%M:%S"),
                )
                for thread in threads
            ],
        )

    def _newest_checkpoint(self) -> str:
        state = self.agent.get_state(self._config(self.trip))
        newest: str = state.config["configurable"]["checkpoint_id"]
        return newest

    def _checkpoint_after_turn(self, turn: int) -> str:
        for state in self.agent.get_state_history(self._config(self.trip)):
            if not state.next and sum(message.type == "human" for message in state.values["messages"]) == turn:
                found: str = state.config["configurable"]["checkpoint_id"]
                return found
        raise AssertionError(f"there is no checkpoint after turn {turn}")

    def _fork(self) -> None:
        end_of_main_line = self._newest_checkpoint()
        self.stage.heading("A fork: back to the end of the first turn, before the allergy was mentioned")
        first_turn = self._checkpoint_after_turn(1)
        self._show_what_the_model_will_see(ASKED_IN_FORK, first_turn)
        said = self._say(ASKED_IN_FORK, self.trip, checkpoint_id=first_turn)
        if is_scripted(self.model):
            if "peanuts" in said:
                raise AssertionError("the fork knows what came later")
            self.stage.check("the fork does not know what came later")
        self.stage.heading("The line that was left is still there: the same question, asked from its end")
        self._say(ASKED_IN_FORK, self.trip, checkpoint_id=end_of_main_line)
        branches = self.memory.list_branches(self.trip, resource_id=RESOURCE)
        self.stage.remark(f"The thread now has {len(branches)} lines; its messages are stored once.")
