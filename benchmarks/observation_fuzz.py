"""Nothing is lost or repeated: seeded interleavings in one process, and processes that are killed, on a real database.

```text
python benchmarks/observation_fuzz.py --seeds 500 --kills 500                      # SQLite
python benchmarks/observation_fuzz.py --seeds 500 --kills 500 --url postgresql://… # an empty PostgreSQL database
```

Messages say their own id and revision, and the scripted observer repeats exactly what it was shown; so a checker that
knows nothing of the log's rules can compare what the log says with what the messages are. Exit code 1 and the seed on a
violation; the last line is a summary.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.graph import START as BEGIN
from langgraph.graph import MessagesState, StateGraph

from langchain_mastra_memory.errors import MastraMemoryError, ThreadNotFoundError
from langchain_mastra_memory.memory import Memory
from langchain_mastra_memory.observation import calls, manual
from langchain_mastra_memory.observation.activation import activate, activate_reflection
from langchain_mastra_memory.observation.buffering import buffer
from langchain_mastra_memory.observation.engine import Cause
from langchain_mastra_memory.observation.log import START, made_from
from langchain_mastra_memory.observation.observing import observe
from langchain_mastra_memory.observation.options import Observation, ObservationalMemory, Reflection
from langchain_mastra_memory.observation.planning import tail
from langchain_mastra_memory.observation.provider import engine_of
from langchain_mastra_memory.observation.reflecting import reflect
from langchain_mastra_memory.store.operations.log import LogAddress, LogView, ReadLog
from langchain_mastra_memory.store.sql.engine import SQLMemoryStore
from langchain_mastra_memory.testing import ScriptedChatModel
from langchain_mastra_memory.tokens import TokenCounter

WORD = re.compile(r"\bm\d+r\d+\b")
RESOURCE = "r"


class ViolationError(AssertionError):
    """A message was lost, repeated or misquoted."""


def size_of(text: str) -> int:
    """Count the tokens of a text; what a reflector wrote counts a tenth, so that it always shrinks."""
    return max(1, len(text) // (40 if "~R" in text else 4)) if text else 0


def observing(messages: list[BaseMessage]) -> str:
    """Repeat what is in the history, thread by thread, as an observer."""
    history = str(messages[-1].text).partition("## New Message History to Observe")[2]
    history = history.partition("\n\n---\n\n")[0]
    blocks = re.findall(r'<thread id="([^"]+)">\n(.*?)\n</thread>', history, re.DOTALL)
    if blocks:
        said = (
            f'<thread id="{i}">\n<observations>\n* {" ".join(WORD.findall(t))}\n</observations>\n</thread>'
            for i, t in blocks
        )
        return "\n".join(said)
    return f"<observations>\n* {' '.join(WORD.findall(history))}\n</observations>"


def reflecting(messages: list[BaseMessage]) -> str:
    """Repeat everything in the log, as a reflector."""
    log = str(messages[-1].text).partition("## The Log")[2].partition("\n\n---\n\n")[0]
    return f"<observations>\n* ~R {' '.join(WORD.findall(log))}\n</observations>"


def memory_on(store: Any, scope: Literal["thread", "resource"], *, slow: float = 0.0) -> Memory:
    """Return a memory with a scripted observer and small limits."""

    def observer(messages: list[BaseMessage]) -> str:
        time.sleep(random.random() * slow)
        return observing(messages)

    return Memory(
        store,
        observational_memory=ObservationalMemory(
            scope=scope,
            observation=Observation(
                model=ScriptedChatModel(observer),
                message_tokens=200,
                buffer_tokens=None if scope == "thread" else False,
                previous_observer_tokens=0,
            ),
            reflection=Reflection(model=ScriptedChatModel(reflecting), observation_tokens=100),
        ),
        token_counter=TokenCounter(count=size_of, name="fuzz"),
    )


# the checker


def check(view: LogView) -> None:
    """Compare the log with the messages of its threads, all read in one transaction.

    Raises:
        ViolationError: A row is not visible, does not join the one before it, or says something else than the messages.
    """
    state = view.state
    for key, thread in view.threads.items():
        messages = [m for m in thread.raw if m.kind is None]
        reach = START
        for row_id in (*state.head.log, *state.head.buffered):
            row = state.rows[row_id]
            for span in row.covers:
                if span.thread != key:
                    continue
                if not thread.path.shows(span.branch, span.upto):
                    raise ViolationError(f"{row_id} is not visible in {thread.id}")
                if span.after != reach:
                    raise ViolationError(f"{row_id} starts behind {span.after}, the one before ended at {reach}")
                reach = span.upto
                stale = row.stale or any(
                    state.rows[i].stale for i in made_from(state.rows, [row_id]) if i in state.rows
                )
                if stale and not row.stale:
                    raise ViolationError(f"{row_id} was made from a changed message and is not marked")
                if row.stale:
                    continue
                covered = [m for m in messages if span.after < m.seq <= span.upto]
                now = [word for m in covered for word in WORD.findall(str(m.message.text))]
                said = WORD.findall(row.text)
                if len(row.covers) > 1:  # several threads in one text, and a clone says the same again
                    said = [word for word in now if word in set(said)]
                if said != now:
                    raise ViolationError(f"{row_id} of {thread.id} says {said}, the messages are {now}")
        last_unit(messages, reach)
    waiting = [i for i in state.head.buffered if state.rows[i].stale]
    if waiting:
        raise ViolationError(f"{waiting} were made from changed messages and wait in the buffer")


def last_unit(messages: list[Any], reach: int) -> None:
    """A range may not part a call from its result, unless somebody spoke in between: that closed the open call.

    Who spoke may be gone since (deleted, or on another line), so only results right behind their call are judged.
    """
    at = {m.seq: m.message for m in messages}
    for call in messages:
        if call.seq > reach or not isinstance(call.message, AIMessage):
            continue
        asked = {c["id"] for c in call.message.tool_calls}
        seq = call.seq + 1
        while isinstance(result := at.get(seq), ToolMessage):
            if result.tool_call_id in asked and seq > reach:
                raise ViolationError(f"the call {result.tool_call_id} was observed without its result")
            seq += 1


# the world


class Step:
    """Gives the scheduler its turn."""

    def __await__(self) -> Iterator[None]:
        yield None


class FuzzIO:
    """Does everything at once, but stops before and after: what happens in between is up to the scheduler."""

    is_async = False

    def __init__(self, store: Any) -> None:
        self.store = store

    async def run(self, operation: Any) -> Any:
        await Step()
        result = self.store.run(operation)
        await Step()
        return result

    async def invoke(self, runnable: Any, value: Any, config: Any = None) -> Any:
        await Step()
        return runnable.invoke(value, config)

    async def call(self, sync: Callable[..., Any], asynchronous: Any, /, *a: Any, **k: Any) -> Any:
        return sync(*a, **k)

    async def thread(self, function: Callable[..., Any], /, *a: Any, **k: Any) -> Any:
        return function(*a, **k)


async def stepping_invoke(io: Any, chain: Any, value: Any, *, name: str, seconds: float) -> Any:
    """Call a model with a stop before and after, in place of a thread with a deadline."""
    del name, seconds
    await Step()
    answer = chain.invoke(value)
    await Step()
    del io
    return answer


Task = Coroutine[Any, Any, Any]


@dataclass
class World:
    """Two memories over one store, threads that grow and change, observers and reflectors under way."""

    rng: random.Random
    store: Any
    scope: Literal["thread", "resource"]
    prefix: str = ""
    memories: list[Memory] = field(default_factory=list)
    graphs: list[Any] = field(default_factory=list)
    counter: int = 0
    dropped: int = 0
    committed: int = 0
    cursors: dict[str, tuple[Any, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.memories = [memory_on(self.store, self.scope) for _ in range(2)]
        for memory in self.memories:
            graph = StateGraph(MessagesState)
            graph.add_node("n", lambda state: {"messages": []})
            graph.add_edge(BEGIN, "n")
            self.graphs.append(graph.compile(checkpointer=memory.checkpointer))

    def text(self, revision: int = 1, number: int | None = None) -> str:
        if number is None:
            self.counter += 1
            number = self.counter
        return f"m{number}r{revision} " + "x" * self.rng.randint(20, 200)

    def config(self, thread: str) -> dict[str, Any]:
        return {"configurable": {"thread_id": thread, "resource_id": RESOURCE}}

    def put(self, thread: str, messages: list[BaseMessage], config: Any = None) -> None:
        graph = self.rng.choice(self.graphs)
        graph.update_state(config or self.config(thread), {"messages": messages}, as_node="n")

    def grow(self, thread: str) -> None:
        """Add what may come next."""
        state = self.rng.choice(self.graphs).get_state(self.config(thread))
        messages = state.values.get("messages", []) if state.values else []
        last = messages[-1] if messages else None
        results = {m.tool_call_id for m in messages if isinstance(m, ToolMessage)}
        open_calls = [
            c["id"] for m in messages[-4:] if isinstance(m, AIMessage) for c in m.tool_calls if c["id"] not in results
        ]
        dice = self.rng.random()
        if last is None or (isinstance(last, AIMessage) and not last.tool_calls) or dice < 0.08:
            new: BaseMessage = HumanMessage(self.text())
        elif open_calls and not isinstance(last, HumanMessage):
            new = ToolMessage(self.text(), tool_call_id=open_calls[0], name="look")
        elif dice < 0.4:
            new = AIMessage(self.text(), tool_calls=[{"name": "look", "args": {}, "id": f"c{self.counter}"}])
        else:
            new = AIMessage(self.text())
        self.put(thread, [new])

    def fork(self, thread: str) -> None:
        history = list(self.rng.choice(self.graphs).get_state_history(self.config(thread)))
        if history:
            self.put(thread, [HumanMessage(self.text())], self.rng.choice(history).config)
            self.moved(thread)

    def changed(self, thread: str) -> None:
        memory = self.rng.choice(self.memories)
        rows = list(memory.recall(thread_id=thread, per_page=False))
        if not rows:
            return
        row = self.rng.choice(rows)
        if self.rng.random() < 0.4:
            memory.delete_messages([row.id], thread_id=thread)
            return
        found = WORD.search(str(row.message.text))
        if found is None:
            return
        number, revision = found[0][1:].split("r")
        fresh = row.message.model_copy(update={"content": self.text(int(revision) + 1, int(number)), "id": row.id})
        memory.update_messages([fresh], thread_id=thread)

    def moved(self, thread: str) -> None:
        if self.scope == "resource":
            self.cursors.clear()
        self.cursors.pop(thread, None)

    # tasks

    def address(self, thread: str) -> LogAddress:
        return LogAddress(scope=self.scope, thread_id=thread, resource_id=RESOURCE)

    async def observer(self, thread: str, target: Literal["log", "buffered"]) -> None:
        engine = engine_of(self.rng.choice(self.memories))
        io: Any = FuzzIO(self.store)
        cause = Cause(address=self.address(thread), trigger="manual")
        view = await engine.view(io, cause.address)
        ranges = {}
        for key, found in view.threads.items():
            part = tail([m.fact for m in found.raw], view.state.cursor(key), view.state.buffered_to(key)).closed
            if part:
                ranges[key] = part
        if not ranges or not view.state.movable:
            return
        outcome, _ = await observe(engine, io, cause, view, ranges, target=target)
        if outcome.error is not None and not isinstance(outcome.error, ThreadNotFoundError):
            raise outcome.error
        self.dropped += len(outcome.dropped)
        self.committed += len(outcome.rows)

    async def reflector(self, thread: str, target: Literal["log", "pending"]) -> None:
        engine = engine_of(self.rng.choice(self.memories))
        io: Any = FuzzIO(self.store)
        cause = Cause(address=self.address(thread), trigger="manual")
        view = await engine.view(io, cause.address)
        if not view.state.log or not view.state.movable or not any(row.text for row in view.state.log):
            return
        outcome, _ = await reflect(engine, io, cause, view, target=target)
        self.dropped += len(outcome.dropped)
        self.committed += len(outcome.rows)

    async def activator(self, thread: str) -> None:
        engine = engine_of(self.rng.choice(self.memories))
        io: Any = FuzzIO(self.store)
        cause = Cause(address=self.address(thread), trigger="manual")
        view = await engine.view(io, cause.address)
        if view.state.buffered:
            view = await activate(engine, io, cause, view, count=self.rng.randint(1, 3), trigger="manual")
        if view.state.pending is not None and view.state.movable:
            await activate_reflection(engine, io, cause, view)

    async def reobserver(self, thread: str) -> None:
        engine = engine_of(self.rng.choice(self.memories))
        io: Any = FuzzIO(self.store)
        await manual.reobserve(engine, io, Cause(address=self.address(thread), trigger="manual"))

    def check(self, thread: str) -> None:
        """Check a thread as it is now."""
        try:
            view = self.store.run(ReadLog(address=self.address(thread), covered=True))
        except ThreadNotFoundError:
            return
        check(view)
        if self.scope == "thread":
            here = view.threads[view.current]
            place = (view.state.head.epoch, here.path.branch)
            known = self.cursors.get(thread)
            cursor = view.state.cursor(view.current)
            if known is not None and known[:2] == place and cursor < known[2]:
                raise ViolationError(f"the cursor of {thread} moved back from {known[2]} to {cursor}")
            self.cursors[thread] = (*place, cursor)


def play(seed: int, store: Any, scope: Literal["thread", "resource"], *, steps: int = 60) -> World:
    """Let one seed play, checking after every step."""
    rng = random.Random(seed)
    world = World(rng=rng, store=store, scope=scope, prefix=f"{scope}{seed}-")
    names = [f"{world.prefix}a"] + ([f"{world.prefix}b"] if scope == "resource" else [])
    tasks: list[Task] = []
    kept = calls.invoke
    calls.invoke = stepping_invoke  # type: ignore[assignment]  # a model call that can be stopped
    try:
        for _ in range(steps):
            name = rng.choice(names)
            what = rng.choices(
                [
                    "grow",
                    "task",
                    "observe",
                    "activate",
                    "reflect",
                    "change",
                    "fork",
                    "clear",
                    "delete",
                    "clone",
                    "reobserve",
                ],
                [30, 34, 11, 6, 4, 7, 4, 1, 1, 1, 1],
            )[0]
            try:
                if what == "grow":
                    for _ in range(rng.randint(1, 3)):
                        world.grow(name)
                elif what == "task" and tasks:
                    advance(tasks, rng)
                elif what == "observe":
                    target: Any = rng.choice(["log", "buffered"]) if scope == "thread" else "log"
                    tasks.append(world.observer(name, target))
                elif what == "activate":
                    tasks.append(world.activator(name))
                elif what == "reflect":
                    tasks.append(world.reflector(name, rng.choice(["log", "pending"])))
                elif what == "reobserve":
                    tasks.append(world.reobserver(name))
                elif what == "change":
                    world.changed(name)
                elif what == "fork":
                    world.fork(name)
                elif what == "clear":
                    rng.choice(world.memories).clear_thread(name)
                    world.moved(name)
                elif what == "delete":
                    rng.choice(world.memories).delete_thread(name)
                    world.moved(name)
                elif what == "clone":
                    copy = rng.choice(world.memories).clone_thread(
                        name, new_thread_id=f"{name}-c{rng.randrange(1 << 40)}"
                    )
                    world.check(copy.thread.id)
                    if rng.random() < 0.5:
                        names.append(copy.thread.id)
            except (ThreadNotFoundError, MastraMemoryError) as error:
                if not isinstance(error, ThreadNotFoundError):
                    raise
            for known in names:
                world.check(known)
        while tasks:
            advance(tasks, rng)
            for known in names:
                world.check(known)
        drain(world, names)
    finally:
        calls.invoke = kept  # type: ignore[assignment]  # as before
        for task in tasks:
            task.close()
        for name in names:
            try:
                world.memories[0].delete_thread(name)
            except ThreadNotFoundError:
                continue
        for memory in world.memories:
            memory.close()
    return world


def advance(tasks: list[Task], rng: random.Random) -> None:
    """Let a task go on to its next stop."""
    task = rng.choice(tasks)
    try:
        task.send(None)
    except StopIteration:
        tasks.remove(task)
    except ThreadNotFoundError:
        tasks.remove(task)


def drain(world: World, names: list[str]) -> None:
    """Observe everything, and check that nothing is stranded."""
    for name in names:
        try:
            world.put(name, [HumanMessage(world.text())])
            world.put(name, [AIMessage(world.text())])
        except ThreadNotFoundError:
            continue
        task = world.observer(name, "log")
        while True:
            try:
                task.send(None)
            except StopIteration:
                break
        view = world.store.run(ReadLog(address=world.address(name), covered=True))
        check(view)
        if world.scope == "thread":
            facts = [m.fact for m in view.threads[view.current].raw]
            key = view.current
            if tail(facts, view.state.cursor(key), view.state.buffered_to(key)).closed:
                raise ViolationError(f"closed messages of {name} are stranded")


# processes that are killed


def worker(url: str, seed: int, scope: Literal["thread", "resource"]) -> None:
    """Talk, observe, reflect, edit and fork until killed."""
    rng = random.Random(seed)
    store = SQLMemoryStore(url)
    memory = memory_on(store, scope, slow=0.02)
    engine = engine_of(memory)
    world = World(rng=rng, store=store, scope=scope, counter=seed * 1_000_000)
    world.memories, world.graphs = [memory], world.graphs[:1]
    while True:
        name = rng.choice(["a", "b"])
        dice = rng.random()
        try:
            if dice < 0.5:
                world.grow(name)
            elif dice < 0.8:
                memory.observe(thread_id=name, resource_id=RESOURCE)
            elif dice < 0.86:
                memory.reflect(thread_id=name, resource_id=RESOURCE)
            elif dice < 0.93:
                world.changed(name)
            elif dice < 0.96:
                world.fork(name)
            elif dice < 0.97:
                memory.clear_thread(name)
            else:
                cause = Cause(address=world.address(name), trigger="async-buffer")
                from langchain_mastra_memory.io import drive

                drive(buffer(engine, memory.io(is_async=False), cause)) if scope == "thread" else None
        except MastraMemoryError:
            continue
        print(".", end="", flush=True)


def kill_run(
    url: str, kills: int, scope: Literal["thread", "resource"], seed: int, processes: int = 3
) -> tuple[int, int]:
    """Run processes, kill one at random again and again, and check all the while; return kills and checks."""
    with SQLMemoryStore(url) as store:
        return _kill_run(store, url, kills, scope, seed=seed, processes=processes)


def _kill_run(
    store: SQLMemoryStore, url: str, kills: int, scope: Literal["thread", "resource"], *, seed: int, processes: int
) -> tuple[int, int]:
    rng = random.Random(seed)
    world = World(rng=rng, store=store, scope=scope, counter=999_000_000)
    for name in ("a", "b"):
        world.put(name, [HumanMessage(world.text())])
    number = 0

    def start() -> subprocess.Popen[bytes]:
        nonlocal number
        number += 1
        command = [sys.executable, __file__, "--worker", str(seed * 1000 + number), "--url", url, "--scope", scope]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    alive = [start() for _ in range(processes)]
    killed = checks = 0
    try:
        for process in alive:
            process.stdout.read(3)  # type: ignore[union-attr]  # it is a pipe: everybody is at work
        while killed < kills:
            until = time.monotonic() + rng.uniform(0.05, 0.4)
            while time.monotonic() < until:
                for name in ("a", "b"):
                    check(store.run(ReadLog(address=world.address(name), covered=True)))
                    checks += 1
                time.sleep(0.01)
            victim = alive.pop(rng.randrange(len(alive)))
            victim.send_signal(signal.SIGKILL)
            victim.communicate()  # which closes the pipe, too
            killed += 1
            alive.append(start())
            if killed % 5 == 0:
                alive[-1].stdout.read(1)  # type: ignore[union-attr]  # it is a pipe
    finally:
        for process in alive:
            process.kill()
            process.communicate()
    for name in ("a", "b"):
        check(store.run(ReadLog(address=world.address(name), covered=True)))
    return killed, checks


def main() -> None:
    """Run the long tests."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=100, help="interleavings per scope")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--kills", type=int, default=100, help="processes to kill per scope")
    parser.add_argument("--url", default=None, help="an empty PostgreSQL database; SQLite files by default")
    parser.add_argument("--scope", choices=["thread", "resource"], default=None)
    parser.add_argument("--worker", type=int, default=None, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker is not None:
        worker(given.url, given.worker, given.scope)
        return
    scopes: list[Any] = [given.scope] if given.scope else ["thread", "resource"]
    started, committed, dropped, killed, checks = time.monotonic(), 0, 0, 0, 0
    for scope in scopes:
        with SQLMemoryStore(given.url or "memory://") as store:
            for seed in range(given.first, given.first + given.seeds):
                try:
                    world = play(seed, store, scope)
                except ViolationError as error:
                    print(f"VIOLATION seed {seed} scope {scope}: {error}")
                    sys.exit(1)
                committed += world.committed
                dropped += world.dropped
        if given.kills:
            with tempfile.TemporaryDirectory() as folder:
                url = given.url or f"sqlite:///{folder}/fuzz.db"
                try:
                    done = kill_run(url, given.kills, scope, given.first)
                except ViolationError as error:
                    print(f"VIOLATION with kills, seed {given.first} scope {scope}: {error}")
                    sys.exit(1)
                killed += done[0]
                checks += done[1]
    print(
        f"0 violations: {len(scopes)} x {given.seeds} seeds, {committed} results committed, {dropped} dropped, "
        f"{killed} kills, {checks} checks beside them, {time.monotonic() - started:.0f} s"
    )


if __name__ == "__main__":
    main()
