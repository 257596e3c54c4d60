"""What a turn costs in a checkpointer, and how large its database grows, beside LangGraph's own.

One unmodified `add_messages` graph, two messages of 500 characters a turn, `durability="sync"`. All savers take turns
in one process, turn by turn, so that what else the machine does meets all of them. Counted are the saver's methods
only, one at a time. "fresh" is the first turn of a new process that has opened the database.

    python benchmarks/checkpoints.py [--turns 400] [--fresh 7] [--postgres URL | --embedded] [--json FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import inspect
import json
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, MessagesState, StateGraph

STOPS = (10, 50, 100, 200, 400)
WINDOW = 5
"""A figure is the median of the turns from so many before to so many after."""
CONFIG = {"configurable": {"thread_id": "t"}}
METHODS = ("get_tuple", "put", "put_writes")
TEXT = "abcdefghi " * 50


@dataclass
class Contestant:
    """A saver with its graph and its clock.

    Attributes:
        name: As in the table.
        saver: The saver.
        size: Returns the bytes of its database.
        awaits: Whether it is run by `ainvoke`.
        turns: Milliseconds in the saver's methods, turn by turn.
        sizes: Bytes after some turns.
    """

    name: str
    saver: BaseCheckpointSaver[Any]
    size: Callable[[], int]
    awaits: bool = False
    turns: list[float] = field(default_factory=list)
    sizes: dict[int, int] = field(default_factory=dict)
    spent: float = 0.0

    def __post_init__(self) -> None:
        """Build the graph and put clocks around the saver's methods."""
        builder = StateGraph(MessagesState)
        builder.add_node("model", lambda _state: {"messages": [AIMessage(TEXT)]})
        builder.add_edge(START, "model")
        builder.add_edge("model", END)
        self.graph = builder.compile(checkpointer=self.saver)
        self.graph.checkpointer = self.saver
        lock = threading.Lock()
        alock = asyncio.Lock()
        for name in METHODS:
            if self.awaits:
                self._clock_async(f"a{name}", alock)
            else:
                self._clock(name, lock)

    def _clock(self, name: str, lock: threading.Lock) -> None:
        method = getattr(self.saver, name)

        def timed(*args: Any, **kwargs: Any) -> Any:
            with lock:
                start = time.perf_counter()
                try:
                    return method(*args, **kwargs)
                finally:
                    self.spent += time.perf_counter() - start

        self._replace(name, method, timed)

    def _clock_async(self, name: str, lock: asyncio.Lock) -> None:
        method = getattr(self.saver, name)

        async def timed(*args: Any, **kwargs: Any) -> Any:
            async with lock:
                start = time.perf_counter()
                try:
                    return await method(*args, **kwargs)
                finally:
                    self.spent += time.perf_counter() - start

        self._replace(name, method, timed)

    def _replace(self, name: str, method: Callable[..., Any], timed: Callable[..., Any]) -> None:
        functools.update_wrapper(timed, method)
        timed.__signature__ = inspect.signature(method)  # LangGraph looks for task_path
        setattr(self.saver, name, timed)

    async def turn(self) -> None:
        """Run one turn and note what it cost."""
        self.spent = 0.0
        message = {"messages": [HumanMessage(TEXT)]}
        if self.awaits:
            await self.graph.ainvoke(message, CONFIG, durability="sync")
        else:
            self.graph.invoke(message, CONFIG, durability="sync")
        self.turns.append(self.spent * 1000)

    def at(self, turn: int) -> float:
        """Return milliseconds a turn around a turn."""
        return statistics.median(self.turns[max(0, turn - WINDOW) : turn + WINDOW])


def file_size(path: Path) -> Callable[[], int]:
    """Return the size of a SQLite file with everything in its log written back."""

    def size() -> int:
        connection = sqlite3.connect(path)
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        page = connection.execute("PRAGMA page_size").fetchone()[0]
        connection.close()
        return int(pages * page)

    return size


def sqlite_saver(path: Path, synchronous: str) -> BaseCheckpointSaver[Any]:
    """Return LangGraph's saver on a file."""
    from langgraph.checkpoint.sqlite import SqliteSaver

    connection = sqlite3.connect(path, check_same_thread=False)
    saver = SqliteSaver(connection)
    saver.setup()
    connection.execute(f"PRAGMA synchronous={synchronous}")
    return saver


def thread_saver(url: str) -> BaseCheckpointSaver[Any]:
    """Return ours; the database is open afterwards."""
    from langchain_mastra_memory.store.sql.engine import SQLMemoryStore
    from langchain_mastra_memory.threads.saver import ThreadSaver

    saver = ThreadSaver(SQLMemoryStore(url))
    saver.get_tuple({"configurable": {"thread_id": "nobody", "checkpoint_ns": ""}})
    return saver


def postgres_saver(url: str) -> BaseCheckpointSaver[Any]:
    """Return LangGraph's saver on a database."""
    import psycopg
    from langgraph.checkpoint.postgres import PostgresSaver
    from psycopg.rows import dict_row

    saver = PostgresSaver(psycopg.connect(url, autocommit=True, prepare_threshold=0, row_factory=dict_row))
    saver.setup()
    return saver


def database_size(url: str) -> Callable[[], int]:
    """Return the bytes of a PostgreSQL database's own tables."""

    def size() -> int:
        import psycopg

        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("VACUUM FULL")
            total = (
                "SELECT sum(pg_total_relation_size(oid)) FROM pg_class "
                "WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'"
            )
            return int(connection.execute(total).fetchone()[0])

    return size


async def contestants(folder: Path, postgres: str | None, stack: AsyncExitStack) -> list[Contestant]:
    """Return everybody who takes part."""
    full, normal, ours = folder / "full.db", folder / "normal.db", folder / "ours.db"
    found = [
        Contestant("SqliteSaver (FULL)", sqlite_saver(full, "FULL"), file_size(full)),
        Contestant("SqliteSaver (NORMAL)", sqlite_saver(normal, "NORMAL"), file_size(normal)),
        Contestant("ThreadSaver", thread_saver(f"sqlite:///{ours}"), file_size(ours)),
    ]
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    peer = await stack.enter_async_context(AsyncSqliteSaver.from_conn_string(str(folder / "async.db")))
    found.append(Contestant("AsyncSqliteSaver", peer, file_size(folder / "async.db"), awaits=True))
    url = f"sqlite:///{folder / 'ours-async.db'}"
    found.append(Contestant("ThreadSaver (async)", thread_saver(url), file_size(folder / "ours-async.db"), awaits=True))
    if postgres:
        theirs, ours = new_database(postgres, stack), new_database(postgres, stack)
        found.append(Contestant("PostgresSaver", postgres_saver(theirs), database_size(theirs)))
        found.append(Contestant("ThreadSaver (PostgreSQL)", thread_saver(ours), database_size(ours)))
    return found


def new_database(server: str, stack: AsyncExitStack) -> str:
    """Make a database on a server and return its URL; it is dropped at the end."""
    import psycopg

    name = f"bench_{uuid.uuid4().hex[:12]}"

    def run(statement: str) -> None:
        with psycopg.connect(f"{server}/postgres", autocommit=True) as connection:
            connection.execute(statement)

    run(f'CREATE DATABASE "{name}"')
    stack.callback(run, f'DROP DATABASE "{name}" WITH (FORCE)')
    return f"{server}/{name}"


# The first turn of a new process


def fresh_turn(kind: str, where: str) -> float:
    """Return milliseconds of one turn in this process, which has just opened the database."""
    savers: dict[str, Callable[[], BaseCheckpointSaver[Any]]] = {
        "SqliteSaver (FULL)": lambda: sqlite_saver(Path(where), "FULL"),
        "SqliteSaver (NORMAL)": lambda: sqlite_saver(Path(where), "NORMAL"),
        "ThreadSaver": lambda: thread_saver(f"sqlite:///{where}"),
    }
    contestant = Contestant(kind, savers[kind](), lambda: 0)
    asyncio.run(contestant.turn())
    return contestant.turns[0]


FRESH = {"SqliteSaver (FULL)": "full.db", "SqliteSaver (NORMAL)": "normal.db", "ThreadSaver": "ours.db"}


def fresh_turns(folder: Path, rounds: int) -> dict[str, float]:
    """Return the median first turn of new processes, which take turns."""
    found: dict[str, list[float]] = {name: [] for name in FRESH}
    for _ in range(rounds):
        for name, file in FRESH.items():
            command = [sys.executable, __file__, "--fresh-turn", name, str(folder / file)]
            found[name].append(float(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
    return {name: statistics.median(values) for name, values in found.items()}


# The report

RATIOS = (
    ("ThreadSaver", "SqliteSaver (FULL)"),
    ("ThreadSaver", "SqliteSaver (NORMAL)"),
    ("ThreadSaver (async)", "AsyncSqliteSaver"),
    ("ThreadSaver (PostgreSQL)", "PostgresSaver"),
)


def report(found: list[Contestant], stops: list[int], fresh: dict[int, dict[str, float]]) -> dict[str, Any]:
    """Print the tables; return the numbers."""
    names = {c.name: c for c in found}
    header = "| ms a turn, all saver calls | " + " | ".join(str(s) for s in stops) + " |"
    print(header, "|---|" + "--:|" * len(stops), sep="\n")
    for c in found:
        print(f"| {c.name} | " + " | ".join(f"{c.at(s):.2f}" for s in stops) + " |")
    pairs = [(a, b) for a, b in RATIOS if a in names and b in names]
    for ours, theirs in pairs:
        ratio = " | ".join(f"{names[ours].at(s) / names[theirs].at(s):.2f}" for s in stops)
        print(f"| {ours} / {theirs} | {ratio} |")
    print("\n| MB after | " + " | ".join(str(s) for s in stops) + " |", "|---|" + "--:|" * len(stops), sep="\n")
    for c in found:
        print(f"| {c.name} | " + " | ".join(f"{c.sizes[s] / 1e6:.2f}" for s in stops) + " |")
    for ours, theirs in pairs:
        ratio = " | ".join(f"1/{names[theirs].sizes[s] / names[ours].sizes[s]:.0f}" for s in stops)
        print(f"| {ours} / {theirs} | {ratio} |")
    for stop, values in fresh.items():
        print(f"\n| ms of the first turn of a process, after {stop} turns | |", "|---|--:|", sep="\n")
        for name, value in values.items():
            print(f"| {name} | {value:.2f} |")
    return {
        "turn_ms": {c.name: {s: c.at(s) for s in stops} for c in found},
        "bytes": {c.name: c.sizes for c in found},
        "fresh_ms": fresh,
    }


async def measure(turns: int, rounds: int, postgres: str | None) -> dict[str, Any]:
    """Run everybody, turn by turn, and report."""
    stops = [stop for stop in STOPS if stop <= turns]
    fresh: dict[int, dict[str, float]] = {}
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        found = await contestants(folder, postgres, stack)
        for turn in range(1, turns + WINDOW + 1):
            for contestant in found:
                await contestant.turn()
                if turn in stops:
                    contestant.sizes[turn] = contestant.size()
            if rounds and turn in (10, 200):
                fresh[turn] = fresh_turns(folder, rounds)
        return report(found, stops, fresh)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=400)
    parser.add_argument("--fresh", type=int, default=7, help="processes started for the first turn; 0 leaves it out")
    parser.add_argument("--postgres", help="URL of a server that may make databases, without a database name")
    parser.add_argument("--embedded", action="store_true", help="start the PostgreSQL of the tests")
    parser.add_argument("--json", type=Path, help="where to write the numbers")
    parser.add_argument("--fresh-turn", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.fresh_turn:
        print(fresh_turn(*arguments.fresh_turn))
        return
    postgres, folder = arguments.postgres, None
    if arguments.embedded:
        sys.path.insert(0, str(Path(__file__).parent.parent))
        from tests.postgres import PostgresFolder

        folder = PostgresFolder.create()
        postgres = folder.url()
    try:
        numbers = asyncio.run(measure(arguments.turns, arguments.fresh, postgres))
    finally:
        if folder is not None:
            folder.stop()
    if arguments.json:
        arguments.json.write_text(json.dumps(numbers, indent=2))


if __name__ == "__main__":
    main()
