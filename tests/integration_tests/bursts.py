"""What a process does until it is killed: writes in bursts, and says so after each call that returned."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Coroutine
from multiprocessing.connection import Connection
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import END, START, MessagesState, StateGraph

from langchain_mastra_memory.store.operations.messages import NewMessage, SaveMessages
from langchain_mastra_memory.store.operations.threads import CreateThread, UpdateThread
from langchain_mastra_memory.store.sql import engine, postgresql, sqlite  # noqa: F401
from langchain_mastra_memory.store.sql.engine import SQLMemoryStore
from langchain_mastra_memory.threads.saver import ThreadSaver

THREADS = ("one", "two", "three")

engine._load_handlers()  # once, in the process that the others are forked from


def save(label: str, rng: random.Random) -> SaveMessages:
    """Return a save of several messages; their ids say how many belong together."""
    size = rng.randint(1, 6)
    messages = [
        (HumanMessage if i % 2 else AIMessage)(f"{label} {i} " + "x" * rng.randint(0, 3000), id=f"{label}/{i}/{size}")
        for i in range(size)
    ]
    return SaveMessages(
        thread_id=rng.choice(THREADS),
        resource_id="r",
        messages=tuple(NewMessage(message=message, tokens=1) for message in messages),
    )


def chat_id(seed: int) -> str:
    """Return the thread of a process's graph."""
    return f"chat-{seed}"


class Burst:
    """Three writers of one process over one store: a thread that calls `run`, a graph, an event loop with `arun`s."""

    def __init__(self, url: str, seed: int, say: Callable[[str], None]) -> None:
        self.store = SQLMemoryStore(url)
        self.seed = seed
        self.say = say

    def sync(self, name: str) -> None:
        rng = random.Random(f"{self.seed}{name}")
        number = 0
        while True:
            label = f"{self.seed}-{name}-{number}"
            number += 1
            self.store.run(save(label, rng))
            self.say(label)
            if number % 5 == 0:
                key = f"k-{label}"
                self.store.run(UpdateThread(thread_id=rng.choice(THREADS), resource_id="r", metadata={key: 1}))
                self.say(key)

    def graph(self) -> None:
        def answer(state: MessagesState) -> dict[str, Any]:
            return {"messages": [AIMessage(f"re: {state['messages'][-1].text}")]}

        graph = StateGraph(MessagesState)
        graph.add_node("answer", answer)
        graph.add_edge(START, "answer")
        graph.add_edge("answer", END)
        chat = graph.compile(checkpointer=ThreadSaver(self.store))
        number = 0
        while True:
            label = f"turn-{self.seed}-{number}"
            number += 1
            chat.invoke(
                {"messages": [HumanMessage(label)]},
                {"configurable": {"thread_id": chat_id(self.seed), "resource_id": "r"}},
                durability=("sync", "async", "exit")[number % 3],
            )
            self.say(label)

    async def asynchronous(self, name: str) -> None:
        rng = random.Random(f"{self.seed}{name}")
        number = 0

        async def one(label: str) -> None:
            await self.store.arun(save(label, rng))
            self.say(label)

        while True:
            burst: list[Coroutine[Any, Any, None]] = []
            for _ in range(rng.randint(1, 30)):
                burst.append(one(f"{self.seed}-{name}-{number}"))
                number += 1
            await asyncio.gather(*burst)


def write_until_killed(url: str, seed: int, connection: Connection) -> None:
    """Write for ever."""
    lock = threading.Lock()

    def say(line: str) -> None:
        with lock:
            connection.send(line)

    burst = Burst(url, seed, say)
    for thread_id in THREADS:
        burst.store.run(CreateThread(thread_id=thread_id, resource_id="r"))
    threading.Thread(target=burst.sync, args=("s",), daemon=True).start()
    threading.Thread(target=burst.graph, daemon=True).start()
    asyncio.run(burst.asynchronous("a"))


def write_some(url: str, seed: int, connection: Connection, count: int) -> None:
    """Write a number of saves, say what was saved, and leave."""
    rng = random.Random(seed)
    with SQLMemoryStore(url) as store:
        for number in range(count):
            label = f"{seed}-{number}"
            store.run(save(label, rng))
            connection.send(label)
    connection.close()


def open_and_leave(url: str, connection: Connection) -> None:
    """Wait for the word, open the database, and say how it went."""
    connection.recv()
    try:
        with SQLMemoryStore(url) as store:
            store.run(CreateThread(thread_id="t", resource_id="r"))
    except Exception as error:  # noqa: BLE001
        connection.send(repr(error))
    else:
        connection.send("ok")
