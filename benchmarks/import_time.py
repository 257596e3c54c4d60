"""What `import langchain_mastra_memory` costs over `import langgraph.graph` and `langchain.agents`: at most 50 ms.

Each sample is a new interpreter; the two imports take turns, so that what else the machine does meets both.

    python benchmarks/import_time.py [--rounds 15] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

PEERS = "import langgraph.graph, langchain.agents"
TARGET_MS = 50.0

# The peers are imported before the clock starts: only what the package adds is measured.
TIMED = f"""
{PEERS}
from time import perf_counter
start = perf_counter()
import langchain_mastra_memory
print((perf_counter() - start) * 1000)
"""
PEERS_TIMED = f"""
from time import perf_counter
start = perf_counter()
{PEERS}
print((perf_counter() - start) * 1000)
"""


def milliseconds(code: str) -> float:
    """Return what a new interpreter prints after running some code."""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(run.stdout)


def main() -> None:
    """Measure, print a table, and fail when the target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15, help="interpreters started for each import")
    parser.add_argument("--json", type=Path, help="where to write the numbers")
    arguments = parser.parse_args()

    peers, added = [], []
    for code in (PEERS_TIMED, TIMED):  # byte code is compiled here, not in the samples
        milliseconds(code)
    for _ in range(arguments.rounds):
        peers.append(milliseconds(PEERS_TIMED))
        added.append(milliseconds(TIMED))
    result = {
        "peers_ms": statistics.median(peers),
        "added_ms": statistics.median(added),
        "added_min_ms": min(added),
        "added_max_ms": max(added),
        "target_ms": TARGET_MS,
        "rounds": arguments.rounds,
    }
    print(f"{'import':<40} {'median':>10} {'min':>10} {'max':>10}")
    for name, samples in (("langgraph.graph + langchain.agents", peers), ("+ langchain_mastra_memory", added)):
        print(f"{name:<40}" + "".join(f" {f(samples):>7.1f} ms" for f in (statistics.median, min, max)))
    print(f"target: at most {TARGET_MS:.0f} ms more")
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=2) + "\n")
    if result["added_ms"] > TARGET_MS:
        sys.exit(1)


if __name__ == "__main__":
    main()
