"""What `import langchain_mastra_memory` costs over `import langgraph.graph` and `langchain.agents`: at most 50 ms.

Names are imported when they are first used, so what `from langchain_mastra_memory import Memory` costs is shown too.
Each sample is a new interpreter; the imports take turns, so that what else the machine does meets all of them.

    python benchmarks/import_time.py [--rounds 15] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

PEERS = "import langgraph.graph, langchain.agents"
TARGET_MS = 50.0

TIMED = """
{first}
from time import perf_counter, process_time
start, cpu = perf_counter(), process_time()
{then}
print((perf_counter() - start) * 1000, (process_time() - cpu) * 1000)
"""
# The peers are imported before the clock starts: only what the package adds is measured.
IMPORTS = {
    "peers": ("langgraph.graph + langchain.agents", TIMED.format(first="", then=PEERS)),
    "added": ("+ import langchain_mastra_memory", TIMED.format(first=PEERS, then="import langchain_mastra_memory")),
    "memory": (
        "+ from langchain_mastra_memory import Memory",
        TIMED.format(first=PEERS, then="from langchain_mastra_memory import Memory"),
    ),
}


def milliseconds(code: str) -> tuple[float, float]:
    """Return the time and the processor time that a new interpreter prints after running some code."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    elapsed, busy = run.stdout.split()
    return float(elapsed), float(busy)


def main() -> None:
    """Measure, print a table, and fail when the target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15, help="interpreters started for each import")
    parser.add_argument("--json", type=Path, help="where to write the numbers")
    arguments = parser.parse_args()

    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in IMPORTS}
    for _, code in IMPORTS.values():  # byte code is compiled here, not in the samples
        milliseconds(code)
    for _ in range(arguments.rounds):
        for name, (_, code) in IMPORTS.items():
            samples[name].append(milliseconds(code))

    result: dict[str, float] = {"target_ms": TARGET_MS, "rounds": arguments.rounds}
    print(f"{'import':<48} {'median':>10} {'min':>10} {'max':>10} {'processor':>10}")
    for name, (label, _) in IMPORTS.items():
        elapsed = [sample[0] for sample in samples[name]]
        busy = statistics.median(sample[1] for sample in samples[name])
        numbers = (statistics.median(elapsed), min(elapsed), max(elapsed), busy)
        result[f"{name}_ms"], result[f"{name}_processor_ms"] = numbers[0], busy
        print(f"{label:<48}" + "".join(f" {number:>7.1f} ms" for number in numbers))
    print(f"target: the package at most {TARGET_MS:.0f} ms more")
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=2) + "\n")
    if result["added_ms"] > TARGET_MS:
        sys.exit(1)


if __name__ == "__main__":
    main()
