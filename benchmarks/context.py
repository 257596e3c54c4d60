"""What the middleware costs per model call, and how much of each prompt is the beginning of the one before.

Overhead: a real agent with every feature on (working memory, lexical recall, observations with a scripted observer of
8x, history), on a SQLite file, with threads of 100 and of 10 000 messages of 500 characters, with a `ThreadSaver` and
without a checkpointer. Timed is the middleware's model hook without the model; each turn is a question, a tool call and
an answer, so two model calls. The hooks at a run's start and end are timed apart. On a machine that does other things
too, read the processor time. Both have in them what the checkpointer does meanwhile: LangGraph writes the checkpoint of
a step in another thread while the next step's hook runs, and Python runs one of them at a time. "Own" is the processor
time of the hook's thread alone.

Prefix: 200 turns of two messages of 500 characters, a page of 600 characters that changes every 5 turns; bytes that are
identical to the previous prompt, of those that could be (new messages left out).

    python benchmarks/context.py [--turns 200] [--calls 60] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.tools import tool

from langchain_mastra_memory import Memory, MemoryMiddleware, MessageHistory, SemanticRecall, WorkingMemory
from langchain_mastra_memory.testing.models import ScriptedChatModel, tool_call
from langchain_mastra_memory.testing.prompts import shared_prefix

SIZES = (100, 10_000)
TARGET_MS, TARGET_RATIO = 10.0, 1.5
CONFIG: dict[str, Any] = {"configurable": {"thread_id": "t", "resource_id": "r"}}
Clocks = tuple[float, float, float]
WORDS = [f"{a}{b}" for a in "bcdfghklmnprstvw" for b in ("ale", "ine", "orn", "ust", "eam", "ift", "ock", "ark")]


def text(seed: int, characters: int = 500) -> str:
    """Return words that hardly repeat, the same for a seed."""
    chosen = random.Random(seed)
    made = ""
    while len(made) < characters:
        made += chosen.choice(WORDS) + " "
    return made[:characters]


@tool
def lookup(city: str) -> str:
    """Look a city up."""
    return text(len(city))


class Timed(MemoryMiddleware):
    """The middleware with a clock around its hooks; the model's own time is left out."""

    def __init__(self, memory: Memory) -> None:
        super().__init__(memory)
        self.calls: list[Clocks] = []
        self.ends: list[Clocks] = []

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        """Time what is not the model."""
        inside = (0.0, 0.0, 0.0)

        def timed(shown: Any) -> Any:
            nonlocal inside
            start = clocks()
            try:
                return handler(shown)
            finally:
                inside = since(start)

        start = clocks()
        result = super().wrap_model_call(request, timed)
        wall, busy, own = since(start)
        self.calls.append((wall - inside[0], busy - inside[1], own - inside[2]))
        return result

    def before_agent(self, state: Any, runtime: Any) -> Any:
        """Time the start of a run."""
        start = clocks()
        result = super().before_agent(state, runtime)
        self.ends.append(since(start))
        return result

    def after_agent(self, state: Any, runtime: Any) -> Any:
        """Time the end of a run."""
        start = clocks()
        result = super().after_agent(state, runtime)
        wall, busy, own = since(start)
        before = self.ends[-1]
        self.ends[-1] = (before[0] + wall, before[1] + busy, before[2] + own)
        return result


def clocks() -> Clocks:
    """Return the time, the processor time of this process and that of this thread, in milliseconds."""
    return time.perf_counter() * 1000, time.process_time() * 1000, time.thread_time() * 1000


def since(start: Clocks) -> Clocks:
    """Return what has passed on each clock."""
    now = clocks()
    return now[0] - start[0], now[1] - start[1], now[2] - start[2]


def observed(messages: list[BaseMessage]) -> str:
    """Return what an observer of a fixed compression of 8 says."""
    said = "".join(message.text for message in messages)
    notes = [f"* 🟡 (10:00) {text(len(said) + line, 200)}" for line in range(max(1, len(said) // 8 // 200))]
    return "<observations>\nDate: Jan 1, 2025\n" + "\n".join(notes) + "\n</observations>"


def overhead(size: int, calls: int, *, saver: bool, everything: bool) -> dict[str, float]:
    """Return medians in milliseconds for a thread of `size` messages."""
    with tempfile.TemporaryDirectory() as folder:
        memory = Memory(
            f"sqlite:///{folder}/memory.db",
            model=ScriptedChatModel(observed),
            working_memory=WorkingMemory(template="# About\n- name:") if everything else None,
            semantic_recall=SemanticRecall(mode="lexical") if everything else None,
            observational_memory=everything,
        )
        if everything:
            memory.update_working_memory("# About\n- name: Ada", resource_id="r")
        middleware = Timed(memory)
        answers = [
            reply
            for number in range(calls // 2 + 2)
            for reply in (tool_call("lookup", {"city": "Rome"}, id=f"c{number}"), text(number))
        ]
        model = ScriptedChatModel(answers)
        agent = create_agent(
            model, [lookup], middleware=[middleware], checkpointer=memory.checkpointer if saver else None
        )
        talk = [
            (HumanMessage if number % 2 == 0 else AIMessage)(text(number), id=f"m{number}") for number in range(size)
        ]
        if saver:
            agent.update_state(CONFIG, {"messages": talk}, as_node="__start__")
        else:
            memory.save_messages(talk, thread_id="t", resource_id="r")
        if everything:
            memory.observe(thread_id="t", resource_id="r")
            memory.settled()
        for turn in range(calls // 2 + 2):
            agent.invoke({"messages": [("user", f"What about {text(turn, 40)}?")]}, CONFIG)
            memory.settled()
        memory.close()
    first, later = middleware.calls[4::2], middleware.calls[5::2]
    parts = {"call": [*first, *later], "first of a turn": first, "later": later, "start and end": middleware.ends[2:]}
    return {
        name + kind: statistics.median(sample[clock] for sample in samples)
        for name, samples in parts.items()
        for clock, kind in enumerate(("", ", processor", ", own processor"))
    }


def prefix_share(turns: int, layout: Any, *, recall: bool) -> float:
    """Return identical bytes over bytes that could be, in percent."""
    model = ScriptedChatModel(lambda messages: text(len(messages)))
    with Memory(
        "memory://",
        layout=layout,
        message_history=MessageHistory(last_messages=None),
        working_memory=WorkingMemory(template="# About"),
        semantic_recall=SemanticRecall(mode="lexical") if recall else None,
    ) as memory:
        agent = create_agent(model, middleware=[memory.middleware()], system_prompt=text(-1, 2_000))
        said = [HumanMessage(text(20_000 + number)) for number in range(turns)]
        memory.save_messages(said, thread_id="another thread", resource_id="r")
        same = possible = 0
        before: tuple[BaseMessage, ...] = ()
        for turn in range(turns):
            if turn % 5 == 0:
                memory.update_working_memory(f"# About\n{text(1_000 + turn, 600)}", resource_id="r")
            old = text(20_000 + turn, 80)  # half of a sentence that was said in another thread
            agent.invoke({"messages": [HumanMessage(f"{text(10_000 + turn, 420)} {old}")]}, CONFIG)
            now = model.last_call.messages
            if before:
                found = shared_prefix(before, now)
                same, possible = same + found[0], possible + found[1]
            before = now
    return 100 * same / possible


def main() -> None:
    """Measure, print tables, and fail when a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=200, help="turns of the prefix part")
    parser.add_argument("--calls", type=int, default=60, help="model calls that are timed for each thread")
    parser.add_argument("--json", type=Path, help="where to write the numbers")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    report: dict[str, Any] = {"overhead_ms": {}, "prefix_percent": {}}
    missed = []
    print(f"{'overhead, median ms':<56}{'100 messages':>14}{'10 000':>10}{'ratio':>8}")
    for saver, everything in ((True, True), (False, True), (True, False), (False, False)):
        name = f"{'ThreadSaver' if saver else 'no checkpointer'}, {'all' if everything else 'history only'}"
        small, large = (overhead(size, arguments.calls, saver=saver, everything=everything) for size in SIZES)
        report["overhead_ms"][name] = {str(SIZES[0]): small, str(SIZES[1]): large}
        for part in small:
            ratio = large[part] / small[part]
            print(f"{name + ', ' + part:<56}{small[part]:>14.2f}{large[part]:>10.2f}{ratio:>8.2f}")
        if large["call"] > TARGET_MS or large["call"] / small["call"] > TARGET_RATIO:
            missed.append(f"{name}: {large['call']:.2f} ms, {large['call'] / small['call']:.2f}x")
    print(f"\n{'identical prefix, %':<56}{'documented':>14}{'cached':>10}")
    for recall in (False, True):
        name = "with recall" if recall else "without recall"
        shares = [prefix_share(arguments.turns, layout, recall=recall) for layout in ("documented", "cached")]
        report["prefix_percent"][name] = dict(zip(("documented", "cached"), shares, strict=True))
        print(f"{name:<56}{shares[0]:>14.1f}{shares[1]:>10.1f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1))
    if missed:
        sys.exit("missed: " + "; ".join(missed))


if __name__ == "__main__":
    main()
