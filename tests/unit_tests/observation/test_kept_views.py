"""What an engine keeps of a log between two reads is what a new read finds, whoever has written meanwhile."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from langchain_mastra_memory.errors import ThreadNotFoundError
from langchain_mastra_memory.io import drive
from langchain_mastra_memory.memory import Memory
from langchain_mastra_memory.observation.options import Observation, ObservationalMemory, Retrieval
from langchain_mastra_memory.observation.provider import ObservationProvider, engine_of
from langchain_mastra_memory.store.operations.log import LogAddress, LogView, ReadLog
from langchain_mastra_memory.testing import ScriptedChatModel
from langchain_mastra_memory.tokens import TokenCounter

CONFIG: Any = {"configurable": {"thread_id": "t", "resource_id": "r"}}
COUNTER = TokenCounter(count=lambda text: len(text.split()), name="words")
Make = Callable[..., Memory]


class Numbered:
    """An observer whose notes can be told from each other, and that condenses them."""

    def __init__(self) -> None:
        self.n = 0

    def __call__(self, messages: list[BaseMessage]) -> str:
        self.n += 1
        note = f"Date: Jan 1, 2025\n* 🔴 (10:00) note {self.n}"
        threads = dict.fromkeys(re.findall(r'<thread id="([0-9a-f]+)"', messages[-1].text))
        blocks = [f'<thread id="{thread}">\n{note}\n</thread>' for thread in threads]
        return "<observations>\n" + ("\n".join(blocks) or note) + "\n</observations>"


def made(memory_factory: Make, url: str, **options: Any) -> Memory:
    return memory_factory(
        url,
        observational_memory=ObservationalMemory(
            model=ScriptedChatModel(Numbered()),
            observation=Observation(message_tokens=10_000, buffer_tokens=False),
            **options,
        ),
        token_counter=COUNTER,
    )


def read(memory: Memory, address: LogAddress) -> LogView:
    """Return the view of a read that knows nothing."""
    return memory.store.run(ReadLog(address=address))


def kept(memory: Memory, address: LogAddress) -> LogView:
    """Return the view of the engine, which has read before."""
    return drive(engine_of(memory).view(memory.io(is_async=False), address))


def same(left: LogView, right: LogView) -> bool:
    return (left.state.head, left.state.log, left.state.buffered, left.state.paths, left.state.movable) == (
        right.state.head,
        right.state.log,
        right.state.buffered,
        right.state.paths,
        right.state.movable,
    ) and (left.threads, left.located, left.opened, left.refused) == (
        right.threads,
        right.located,
        right.opened,
        right.refused,
    )


class World:
    """A thread that another memory on the same database works on."""

    def __init__(self, memory: Memory, seed: int) -> None:
        self.memory = memory
        self.random = random.Random(seed)
        self.n = 0
        answers = ScriptedChatModel(lambda _messages: self.words("answer"))
        self.agent = create_agent(answers, middleware=[memory.middleware()], checkpointer=memory.checkpointer)

    def words(self, what: str) -> str:
        self.n += 1
        return f"{what} {self.n} " + "word " * 20

    def ids(self) -> list[str]:
        return [stored.id for stored in self.memory.recall(thread_id="t", per_page=False)]

    def turn(self) -> None:
        self.agent.invoke({"messages": [HumanMessage(self.words("question"))]}, CONFIG)

    def fork(self) -> None:
        history = [state for state in self.agent.get_state_history(CONFIG) if not state.next]
        if history:
            config = self.random.choice(history).config
            self.agent.invoke({"messages": [HumanMessage(self.words("question"))]}, config)

    def save(self) -> None:
        self.memory.save_messages([AIMessage(self.words("import"))], thread_id="t", resource_id="r")

    def save_elsewhere(self) -> None:
        thread = self.random.choice(["t2", "t3"])
        self.memory.save_messages([HumanMessage(self.words("other"))], thread_id=thread, resource_id="r")

    def delete_elsewhere(self) -> None:
        if self.memory.get_thread("t2") is not None:
            self.memory.delete_thread("t2")

    def edit(self) -> None:
        if ids := self.ids():
            self.memory.update_messages([{"id": self.random.choice(ids), "content": self.words("edit")}], thread_id="t")

    def delete(self) -> None:
        if ids := self.ids():
            self.memory.delete_messages([self.random.choice(ids)], thread_id="t")

    def observe(self) -> None:
        self.memory.observe(thread_id="t", resource_id="r")

    def reflect(self) -> None:
        self.memory.reflect(thread_id="t", resource_id="r")

    def clear(self) -> None:
        self.memory.clear_thread("t")

    def act(self) -> str:
        """Do something that may change what a view holds; return what."""
        names = ["turn"] * 4 + ["fork", "save", "save", "edit", "edit", "delete", "observe", "observe", "reflect"]
        names += ["save_elsewhere"] * 2 + ["delete_elsewhere"]
        name = self.random.choice([*names, "clear"] if self.random.random() < 0.3 else names)
        getattr(self, name)()
        self.memory.settled()
        return name


def addresses(memory: Memory, chance: random.Random) -> list[LogAddress]:
    """Return where the thread stands, and a place where it stood."""
    ids = tuple(stored.id for stored in memory.recall(thread_id="t", per_page=False))
    engine = engine_of(memory)
    here = engine.address("t", "r")
    if not ids:
        return [here]
    branch, head = read(memory, here).state.paths[read(memory, here).current].steps[-1]
    before = (branch, chance.randint(0, head))
    return [here, engine.address("t", "r", position=before), engine.address("t", "r", position=before, ids=ids[-2:])]


@pytest.mark.parametrize("engine", ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
@pytest.mark.parametrize("scope", ["thread", "resource"])
@pytest.mark.parametrize("seed", range(2))
def test_a_view_that_is_kept_is_what_a_new_read_finds_whatever_another_memory_did(
    memory_factory: Make, request: pytest.FixtureRequest, engine: str, scope: str, seed: int
) -> None:
    url = request.getfixturevalue("sqlite_url" if engine == "sqlite" else "postgres_url")
    world, reader = World(made(memory_factory, url, scope=scope), seed), made(memory_factory, url, scope=scope)
    world.save()
    provider = ObservationProvider(reader)
    io = reader.io(is_async=False)
    done = []
    for _ in range(20):
        done.append(world.act())
        for address in addresses(reader, world.random):
            view, new = kept(reader, address), read(reader, address)
            assert same(view, new), done
            whole = [reader.store.run(ReadLog(address=address, covered=True, known=v)) for v in (view, None)]
            assert same(*whole), done
            layers = drive(provider._layers(io, view, view.state))
            assert layers == drive(ObservationProvider(reader)._layers(io, new, new.state)), done


def test_what_still_holds_is_not_read_again(memory_factory: Make, sqlite_url: str) -> None:
    world, reader = World(made(memory_factory, sqlite_url), 0), made(memory_factory, sqlite_url)
    world.save()
    world.observe()
    world.save()
    here = engine_of(reader).address("t", "r")
    first = kept(reader, here)
    world.save()
    second = kept(reader, here)
    assert second.state.rows is first.state.rows
    assert [m.seq for m in second.threads[second.current].raw] == [2, 3]
    assert second.threads[second.current].raw[0] is first.threads[first.current].raw[0]
    third = kept(reader, here)
    assert third.threads[third.current].raw[0] is second.threads[second.current].raw[0]


def test_before_a_reflection_what_it_was_made_from_is_read_though_the_head_is_the_same(
    memory_factory: Make, sqlite_url: str
) -> None:
    memory = made(memory_factory, sqlite_url, scope="resource")
    world, engine = World(memory, 0), engine_of(memory)
    for _ in range(2):
        world.turn()
        world.observe()
    world.reflect()
    reflected = kept(memory, engine.address("t", "r"))
    assert [row.is_reflection for row in reflected.state.log] == [True]
    before = kept(memory, engine.address("t", "r", position=(0, 2)))
    assert [row.covers[0].upto for row in before.state.log] == [2]


def test_a_view_is_kept_for_each_thread_and_owner_alone(memory_factory: Make, sqlite_url: str) -> None:
    memory = made(memory_factory, sqlite_url)
    for thread, owner in (("t1", "r1"), ("t2", "r2")):
        memory.save_messages([HumanMessage(f"of {owner}")], thread_id=thread, resource_id=owner)
    engine = engine_of(memory)
    for thread, owner in (("t1", "r1"), ("t2", "r2"), ("t1", "r1")):
        view = kept(memory, engine.address(thread, owner))
        assert [m.message.text for m in view.threads[view.current].raw] == [f"of {owner}"]
    with pytest.raises(ThreadNotFoundError):
        kept(memory, engine.address("t1", "r2"))


def test_a_prompt_shows_what_another_memory_has_just_observed(memory_factory: Make, sqlite_url: str) -> None:
    world, other = World(made(memory_factory, sqlite_url), 0), made(memory_factory, sqlite_url)
    model = ScriptedChatModel(lambda _messages: "answer")
    agent = create_agent(model, middleware=[other.middleware()], checkpointer=other.checkpointer)
    for expected in (["note 1"], ["note 1", "note 2"]):
        agent.invoke({"messages": [HumanMessage("first")]}, CONFIG)
        world.observe()
        agent.invoke({"messages": [HumanMessage("second")]}, CONFIG)
        assert all(note in model.last_call.system for note in expected)


def test_views_and_rendered_notes_are_bounded(
    memory_factory: Make, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("langchain_mastra_memory.observation.engine.VIEWS", 3)
    monkeypatch.setattr("langchain_mastra_memory.observation.provider.RENDERED", 3)
    memory = made(memory_factory, sqlite_url)
    provider, io = ObservationProvider(memory), memory.io(is_async=False)
    for n in range(6):
        memory.save_messages([HumanMessage("one")], thread_id=f"t{n}", resource_id="r")
        view = kept(memory, engine_of(memory).address(f"t{n}", "r"))
        drive(provider._layers(io, view, view.state))
    assert len(engine_of(memory)._views) == 3
    assert len(provider._rendered) == 3


def test_ranges_of_the_recall_tool_follow_a_deletion_by_another_memory(memory_factory: Make, sqlite_url: str) -> None:
    world = World(made(memory_factory, sqlite_url), 0)
    reader = made(memory_factory, sqlite_url, retrieval=Retrieval())
    world.turn()
    world.turn()
    world.observe()
    provider, io = ObservationProvider(reader), reader.io(is_async=False)
    here = engine_of(reader).address("t", "r")
    first, *_ = world.ids()
    view = kept(reader, here)
    assert first in drive(provider._layers(io, view, view.state))[0].text
    world.memory.delete_messages([first], thread_id="t")
    view = kept(reader, here)
    assert first not in drive(provider._layers(io, view, view.state))[0].text
