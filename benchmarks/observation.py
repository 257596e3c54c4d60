"""How long the prompt stays, how much of it stays the same, and what it costs: observations beside the alternatives.

200 turns of two messages of 500 characters, a scripted observer that keeps an eighth of what it reads, `message_tokens`
of 30 000 and of 4 000, both layouts, with and without recall. Beside it full history, and LangChain's
`SummarizationMiddleware` with a summary of an eighth, allowed as many tokens as ours take at their 95th percentile.

    python benchmarks/observation.py [--turns 200] [--json FILE]

Identical: bytes of a prompt that are the beginning of the one before, of those that could be (new messages left out).
Targets: at least 95 % (M 30 000 and 4 000) without recall, 95 % and 85 % with it, in the cached layout.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import statistics
import sys
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import SummarizationMiddleware
from langchain_core.messages import BaseMessage, HumanMessage

from langchain_mastra_memory import Memory, MessageHistory, Observation, ObservationalMemory, SemanticRecall
from langchain_mastra_memory.store.operations.messages import NewMessage, SaveMessages
from langchain_mastra_memory.testing import ScriptedChatModel
from langchain_mastra_memory.testing.prompts import shared_prefix
from langchain_mastra_memory.tokens import default_counter

CONFIG: dict[str, Any] = {"configurable": {"thread_id": "t", "resource_id": "r"}}
WORDS = [f"{a}{b}" for a in "bcdfghklmnprstvw" for b in ("ale", "ine", "orn", "ust", "eam", "ift", "ock", "ark")]
COMPRESSION = 8
TARGETS = {(30_000, False): 95.0, (4_000, False): 95.0, (30_000, True): 95.0, (4_000, True): 85.0}


def text(seed: int, characters: int = 500) -> str:
    """Return words that hardly repeat, the same for a seed."""
    chosen = random.Random(seed)
    made = ""
    while len(made) < characters:
        made += chosen.choice(WORDS) + " "
    return made[:characters]


def observing(messages: list[BaseMessage]) -> str:
    """Keep an eighth of what is to be observed."""
    history = str(messages[-1].text).partition("## New Message History to Observe")[2].partition("\n\n---\n\n")[0]
    kept = history[: len(history) // COMPRESSION].split()
    lines = [" ".join(kept[at : at + 12]) for at in range(0, len(kept), 12)]
    return (
        "<observations>\nDate: Jan 5, 2026\n"
        + "\n".join(f"* 🔴 (10:00) {line}" for line in lines)
        + "\n</observations>"
    )


def summarizing(messages: list[BaseMessage]) -> str:
    """Keep an eighth of what is to be summarized."""
    whole = str(messages[-1].text).partition("Messages to summarize:")[2]
    return whole[: len(whole) // COMPRESSION]


def talker() -> ScriptedChatModel:
    """Return a model that answers with 500 characters."""
    count = iter(range(10_000, 20_000))
    return ScriptedChatModel(lambda _messages: text(next(count)))


def run(agent: Any, model: ScriptedChatModel, turns: int, memory: Memory | None) -> dict[str, float]:
    """Talk for some turns; return tokens, identical share and time per turn."""
    counter = default_counter()
    times = []
    for turn in range(turns):
        started = time.perf_counter()
        agent.invoke({"messages": [HumanMessage(text(turn))]}, {**CONFIG, "recursion_limit": 50})
        times.append(time.perf_counter() - started)
        if memory is not None:
            memory.settled()
    prompts: list[Sequence[BaseMessage]] = [call.messages for call in model.calls]
    sizes = sorted(counter.count_messages(prompt) for prompt in prompts)
    same = possible = 0
    for before, after in pairwise(prompts):
        found = shared_prefix(before, after)
        same += found[0]
        possible += found[1]
    return {
        "tokens_p50": sizes[len(sizes) // 2],
        "tokens_p95": sizes[int(len(sizes) * 0.95)],
        "identical": 100 * same / possible,
        "turn_ms": 1000 * statistics.median(times),
    }


def ours(turns: int, limit: int, *, layout: Any, recall: bool) -> dict[str, float]:
    """Run with observations."""
    memory = Memory(
        "memory://",
        layout=layout,
        semantic_recall=SemanticRecall() if recall else None,
        observational_memory=ObservationalMemory(
            model=ScriptedChatModel(observing), observation=Observation(message_tokens=limit)
        ),
    )
    model = talker()
    agent = create_agent(
        model, [], middleware=[memory.middleware()], checkpointer=memory.checkpointer, system_prompt="You are helpful."
    )
    try:
        return run(agent, model, turns, memory)
    finally:
        memory.close()


def full(turns: int) -> dict[str, float]:
    """Run with the whole history."""
    memory = Memory("memory://", message_history=MessageHistory(last_messages=None))
    model = talker()
    agent = create_agent(
        model, [], middleware=[memory.middleware()], checkpointer=memory.checkpointer, system_prompt="You are helpful."
    )
    try:
        return run(agent, model, turns, memory)
    finally:
        memory.close()


def peer(turns: int, budget: int) -> dict[str, float]:
    """Run with LangChain's summary, which may use as many tokens as ours."""
    from langgraph.checkpoint.memory import InMemorySaver

    counter = default_counter()
    model = talker()
    middleware = SummarizationMiddleware(
        model=ScriptedChatModel(summarizing),
        trigger=("tokens", budget),
        keep=("tokens", max(1, budget // 5)),
        token_counter=lambda messages: counter.count_messages(list(messages)),  # type: ignore[arg-type]
        trim_tokens_to_summarize=None,
    )
    agent = create_agent(
        model, [], middleware=[middleware], checkpointer=InMemorySaver(), system_prompt="You are helpful."
    )
    return run(agent, model, turns, None)


def overhead(messages: int) -> float:
    """Return milliseconds per model call that observations cost in a thread of so many messages."""
    counter = default_counter()
    memory = Memory(
        "memory://", observational_memory=ObservationalMemory(model=ScriptedChatModel(observing, repeat_last=False))
    )
    rows = []
    for number in range(messages):
        message: BaseMessage = (HumanMessage if number % 2 == 0 else talker().invoke("x").__class__)(
            text(number), id=f"m{number}"
        )
        rows.append(NewMessage(message=message, tokens=counter.count_message(message), fresh=True))
    memory.store.run(
        SaveMessages(thread_id="t", resource_id="r", messages=tuple(rows), features=memory.options.features)
    )
    memory.observe(thread_id="t", resource_id="r")
    times = {}
    for name, options in (("on", memory.options.observational_memory), ("off", None)):
        one = Memory(memory.store, observational_memory=options)
        model = talker()
        agent = create_agent(model, [], middleware=[one.middleware()])
        taken = []
        for turn in range(25):
            started = time.perf_counter()
            agent.invoke({"messages": [HumanMessage(text(turn))]}, CONFIG)
            taken.append(time.perf_counter() - started)
            one.settled()
        times[name] = statistics.median(taken[5:])
        one.close()
    memory.close()
    return 1000 * (times["on"] - times["off"])


def main() -> None:
    """Print a table and JSON; exit 1 when a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=200)
    parser.add_argument("--json", type=Path, default=None)
    parser.add_argument("--no-overhead", action="store_true", help="skip the threads of 10 000 messages")
    given = parser.parse_args()
    logging.getLogger("langchain_mastra_memory").setLevel(logging.ERROR)
    rows: list[dict[str, Any]] = []
    for limit in (30_000, 4_000):
        for layout in ("documented", "cached"):
            for recall in (False, True):
                name = f"observations, {layout}{', recall' if recall else ''}"
                rows.append(
                    {"name": name, "M": limit, "recall": recall, "layout": layout}
                    | ours(given.turns, limit, layout=layout, recall=recall)
                )
        budget = int(
            next(r["tokens_p95"] for r in rows if r["M"] == limit and r["layout"] == "cached" and not r["recall"])
        )
        rows.append({"name": f"SummarizationMiddleware at {budget}", "M": limit} | peer(given.turns, budget))
    rows.append({"name": "full history", "M": 0} | full(given.turns))
    print(f"{'':44} {'M':>6} {'p50':>7} {'p95':>7} {'identical':>10} {'ms/turn':>8}")
    missed = []
    for row in rows:
        print(
            f"{row['name']:44} {row['M'] or '-':>6} {row['tokens_p50']:>7.0f} {row['tokens_p95']:>7.0f} "
            f"{row['identical']:>9.1f}% {row['turn_ms']:>8.1f}"
        )
        target = TARGETS.get((row["M"], row.get("recall", False))) if row.get("layout") == "cached" else None
        if target is not None and row["identical"] < target:
            missed.append(f"{row['name']} at {row['M']}: {row['identical']:.1f} % < {target} %")
    costs = {} if given.no_overhead else {size: overhead(size) for size in (100, 10_000)}
    for size, cost in costs.items():
        print(f"overhead per model call, {size:>6} messages: {cost:6.2f} ms")
    result = {"rows": rows, "overhead_ms": costs, "missed": missed}
    print(json.dumps(result))
    if given.json is not None:
        given.json.write_text(json.dumps(result, indent=2))
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
