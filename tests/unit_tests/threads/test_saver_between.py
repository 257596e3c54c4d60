"""Whatever comes between two steps of a run, an edit stays, a deletion stays, and nothing is lost or doubled.

What a run asks of the store, and what it remembers, gives the points; at each of them somebody else does one thing
from beginning to end. LangGraph's executor runs here at once, so that the points are the same each time.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.pregel import _executor

from langchain_mastra_memory.memory import Memory
from langchain_mastra_memory.store.operations.checkpoints import GetCheckpoint
from langchain_mastra_memory.store.sql import checkpoints
from langchain_mastra_memory.store.sql.engine import SQLMemoryStore
from langchain_mastra_memory.threads.putting import Putting, address_of, learn
from langchain_mastra_memory.threads.saver import ThreadSaver

OLD = ["q0", "a-q0", "q1", "a-q1", "q2", "a-q2"]
NEW = ["x", "a-x"]
NEXT = ["y", "a-y"]


class AtOnce(Executor):
    """Runs what it is given in the calling thread."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - it is the future's
            future.set_exception(error)
        return future


@dataclass
class Points:
    """Counts the points of a run, and does something at one of them."""

    at: int = -1
    act: Callable[[], object] = lambda: None
    met: int = 0
    on: bool = field(default=False)

    def pass_one(self) -> None:
        if self.on:
            self.met += 1
            if self.met - 1 == self.at:
                self.on = False
                self.act()
                self.on = True


@pytest.fixture
def points(monkeypatch: pytest.MonkeyPatch) -> Points:
    @contextmanager
    def executor(_config: Any) -> Iterator[Executor]:
        yield AtOnce()

    found = Points()
    run, parent, plan = SQLMemoryStore.run, Putting._parent, Putting._plan

    def running(self: Any, operation: Any) -> Any:
        found.pass_one()
        result = run(self, operation)
        found.pass_one()
        return result

    async def with_parent(self: Any, *args: Any) -> Any:
        result = await parent(self, *args)
        found.pass_one()
        return result

    def planning(self: Any, *args: Any) -> Any:
        result = plan(self, *args)
        found.pass_one()
        return result

    monkeypatch.setattr(_executor, "get_executor_for_config", executor)
    monkeypatch.setattr(SQLMemoryStore, "run", running)
    monkeypatch.setattr(Putting, "_parent", with_parent)
    monkeypatch.setattr(Putting, "_plan", planning)
    return found


class Scene:
    """A thread with three turns, whose fourth is under way; and somebody else with a memory of the same store."""

    def __init__(self, memory: Memory, others: Memory, thread: str, *, encrypted: bool, copies: bool) -> None:
        self.encrypted, self.copies = encrypted, copies
        self.config: Any = {"configurable": {"thread_id": thread, "resource_id": "r"}}
        self.thread, self.memory, self.others = thread, memory, others
        self.saver = self.new_saver(memory)
        self.graph = self.chat(self.saver)
        for text in ("q0", "q1", "q2"):
            self.say(text)
        self.past = [state.config for state in self.graph.get_state_history(self.config)][-2]
        self.read = memory.store.run(GetCheckpoint(address=address_of(self.config), id=None))

    def new_saver(self, memory: Memory) -> ThreadSaver:
        key = b"0123456789abcdef"
        serde = EncryptedSerializer.from_pycryptodome_aes(key=key) if self.encrypted else None
        return ThreadSaver(memory, serde=serde)

    def chat(self, saver: ThreadSaver) -> Any:
        def answer(state: MessagesState) -> Any:
            said = state["messages"]
            new = AIMessage(f"re: {said[-1].text}", id=f"a-{said[-1].id}")
            if not self.copies or said[-1].id != "x":
                return {"messages": [new]}
            again = [message.model_copy(deep=True) for message in said]
            return {"messages": [RemoveMessage(REMOVE_ALL_MESSAGES), *again, new]}

        builder = StateGraph(MessagesState)
        builder.add_node("answer", answer)
        builder.add_edge(START, "answer")
        return builder.compile(checkpointer=saver)

    def say(self, text: str) -> None:
        self.graph.invoke({"messages": [HumanMessage(text, id=text)]}, self.config, durability="sync")

    def edit(self) -> None:
        self.others.update_messages([{"id": "q1", "content": "edited"}], thread_id=self.thread)

    def delete(self) -> None:
        self.others.delete_messages(["q0"], thread_id=self.thread)

    def prune(self) -> None:
        self.others.checkpointer.prune([self.thread], strategy="delete")

    def read_late(self) -> None:
        """Let two readers of this process be done: one that began before the edit, and one of an old checkpoint."""
        known = self.saver._known(self.thread)
        learn(known, self.saver.serde, self.saver._writer, self.read, {}, self.thread)
        past = {**self.past["configurable"], "resource_id": "r"}
        self.saver.get_tuple({"configurable": past})

    def archive(self) -> list[tuple[str, str]]:
        found = self.others.recall(thread_id=self.thread, per_page=False)
        return [(row.id, str(row.message.text)) for row in found]

    def state(self) -> list[str]:
        found = self.chat(self.new_saver(self.others)).get_state(self.config)
        return [message.id for message in found.values.get("messages", [])]


def edit(scene: Scene) -> None:
    scene.edit()


def delete_and_edit(scene: Scene) -> None:
    scene.delete()
    scene.edit()


def prune_after_an_edit(scene: Scene) -> None:
    scene.edit()
    scene.prune()


def read_late(scene: Scene) -> None:
    scene.read_late()


CASES: list[Any] = [
    pytest.param(lambda _: None, edit, id="edit"),
    pytest.param(lambda _: None, delete_and_edit, id="delete and edit"),
    pytest.param(lambda _: None, prune_after_an_edit, id="edit and prune"),
    pytest.param(edit, read_late, id="read late"),
]


@pytest.mark.parametrize(
    ("encrypted", "copies", "short_way"),
    [
        pytest.param(False, False, True, id="plain, appends"),
        pytest.param(False, False, False, id="plain, appends, the general way"),
        pytest.param(False, True, True, id="plain, copies"),
        pytest.param(True, False, True, id="encrypted, appends"),
        pytest.param(True, True, True, id="encrypted, copies"),
    ],
)
@pytest.mark.parametrize(("before", "act"), CASES)
def test_what_comes_between_two_steps_of_a_run_stays(
    points: Points,
    monkeypatch: pytest.MonkeyPatch,
    before: Callable[[Scene], None],
    act: Callable[[Scene], None],
    *,
    encrypted: bool,
    copies: bool,
    short_way: bool,
) -> None:
    if not short_way:
        monkeypatch.setattr(checkpoints, "append", lambda *_args, **_kwargs: None)
    with Memory("memory://") as memory, Memory(memory.store) as others:
        for at in itertools.count():
            scene = Scene(memory, others, f"t{at}", encrypted=encrypted, copies=copies)
            before(scene)
            points.at, points.met, points.on = at, 0, True
            points.act = lambda scene=scene: act(scene)  # type: ignore[misc]  # this round's
            scene.say("x")
            points.on = False
            if points.met <= at:
                break
            check(scene, deleted=act is delete_and_edit, pruned=act is prune_after_an_edit, at=at)
        assert at > 15, "there are hardly any points"


def check(scene: Scene, *, deleted: bool, pruned: bool, at: int) -> None:
    left = [i for i in OLD if not (deleted and i == "q0")]
    for text, new in (("", NEW), ("y", [*NEW, *NEXT])):
        if text:
            scene.graph = scene.chat(scene.new_saver(scene.others))
            scene.say(text)
        archive = scene.archive()
        assert [i for i, _ in archive] == [*left, *new], f"at {at}"
        assert dict(archive)["q1"] == "edited", f"at {at}"
        if not pruned:
            assert scene.state() == [*left, *new], f"at {at}"
