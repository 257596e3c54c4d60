"""Threads and messages beside the real Mastra: `@mastra/memory` on a libSQL file, ours on a SQLite file.

    python benchmarks/mastra.py [--quick] [--folder FOLDER] [--json FILE]

Installs Node 22 and Mastra's packages from npm into a scratch folder (kept if `--folder` names one), runs the same
work on both, in turns, on this machine, and prints a table and JSON. Says so where npm is missing.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PACKAGES = ("node@22", "@mastra/memory@1.31.0", "@mastra/core@1.71.0", "@mastra/libsql@1.23.1")
TEXT = "The quick brown fox jumps over the lazy dog and remembers where the river bends. "
ROWS = {
    "1 save": ("save", 1.5),
    "last 20 of 1 000": ("last", 1.0),
    "all 1 000": ("all", 1 / 5),
    "10 000 in one call": ("bulk", 1 / 10),
    "copy of 10 000": ("copy", 1 / 2),
}

SCRIPT = r"""
import { Memory } from '@mastra/memory';
import { LibSQLStore } from '@mastra/libsql';
import { performance } from 'node:perf_hooks';

const [folder, size, saves, reads, bulk, copies, text] = JSON.parse(process.argv[2]);
const memory = new Memory({ storage: new LibSQLStore({ id: 'bench', url: `file:${folder}/mastra.db` }) });
let made = 0;
const message = (threadId) => ({
  id: `m${++made}`, role: 'user', type: 'text', threadId, resourceId: 'r', createdAt: new Date(1.7e12 + made * 1000),
  content: { format: 2, parts: [{ type: 'text', text: `${made} ${text}` }] },
});
const several = (threadId, count) => Array.from({ length: count }, () => message(threadId));
const times = async (count, work) => {
  const found = [];
  for (let i = 0; i < count; i++) {
    const begin = performance.now();
    await work(i);
    found.push(performance.now() - begin);
  }
  return found;
};
const thread = (threadId) => memory.createThread({ threadId, resourceId: 'r', title: threadId });

await thread('warm');
await memory.saveMessages({ messages: several('warm', 20) });
await thread('one');
const save = await times(saves, () => memory.saveMessages({ messages: [message('one')] }));
await thread('thousand');
await memory.saveMessages({ messages: several('thousand', size) });
const last = await times(reads, () => memory.recall({ threadId: 'thousand', resourceId: 'r', perPage: 20 }));
const all = await times(Math.max(3, reads / 10), () => memory.recall({ threadId: 'thousand', perPage: false }));
await thread('bulk');
const many = several('bulk', bulk);
const inOneCall = await times(1, () => memory.saveMessages({ messages: many }));
const copy = await times(copies, (i) => memory.copyThread({ sourceThreadId: 'bulk', newThreadId: `copy${i}` }));
const { messages } = await memory.recall({ threadId: 'copy0', perPage: false });
console.log(JSON.stringify({ save, last, all, bulk: inOneCall, copy, copied: messages.length }));
"""


def install(folder: Path) -> Path:
    """Install the packages and return the `node` that came with them."""
    npm = shutil.which("npm")
    if npm is None:
        sys.exit("npm is missing: the benchmark beside Mastra needs Node.js with npm on the PATH")
    folder.mkdir(parents=True, exist_ok=True)
    node = folder / "node_modules" / ".bin" / "node"
    if not node.exists():
        print(f"installing {', '.join(PACKAGES)} into {folder} ...", file=sys.stderr)
        (folder / "package.json").write_text('{"private": true, "type": "module"}', "utf-8")
        command = [npm, "install", "--no-audit", "--no-fund", "--loglevel=error", *PACKAGES]
        installed = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if installed.returncode:
            sys.exit(f"npm could not install Mastra:\n{installed.stderr[-2000:]}")
    (folder / "bench.mjs").write_text(SCRIPT, "utf-8")
    return node


def run_mastra(node: Path, folder: Path, sizes: list[int]) -> dict[str, Any]:
    """Run the work on Mastra, in a process of its own, and return milliseconds."""
    with tempfile.TemporaryDirectory(dir=folder) as data:
        command = [str(node), "bench.mjs", json.dumps([data, *sizes, TEXT * 6])]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"Mastra failed:\n{done.stderr[-2000:]}")
        found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        return found


def run_ours(folder: Path, sizes: list[int]) -> dict[str, Any]:
    """Run the same work on ours, and return milliseconds."""
    from langchain_core.messages import HumanMessage

    from langchain_mastra_memory.memory import Memory

    size, saves, reads, bulk, copies = sizes
    made = 0

    def several(count: int) -> list[HumanMessage]:
        nonlocal made
        made += count
        return [HumanMessage(f"{n} {TEXT * 6}", id=f"m{n}") for n in range(made - count, made)]

    def times(count: int, work: Callable[[int], Any]) -> list[float]:
        found = []
        for number in range(count):
            begin = time.perf_counter()
            work(number)
            found.append((time.perf_counter() - begin) * 1000)
        return found

    with tempfile.TemporaryDirectory(dir=folder) as data, Memory(f"sqlite:///{data}/ours.db") as memory:
        for thread_id in ("warm", "one", "thousand", "bulk"):
            memory.create_thread("r", thread_id=thread_id, title=thread_id)
        memory.save_messages(several(20), thread_id="warm")
        singles = [several(1) for _ in range(saves)]
        save = times(saves, lambda n: memory.save_messages(singles[n], thread_id="one"))
        memory.save_messages(several(size), thread_id="thousand")
        last = times(reads, lambda _: memory.recall(thread_id="thousand", resource_id="r", per_page=20))
        everything = times(max(3, reads // 10), lambda _: memory.recall(thread_id="thousand", per_page=False))
        many = several(bulk)
        in_one_call = times(1, lambda _: memory.save_messages(many, thread_id="bulk"))
        copy = times(copies, lambda n: memory.copy_thread("bulk", new_thread_id=f"copy{n}"))
        copied = memory.recall(thread_id="copy0", per_page=1).total
    return {"save": save, "last": last, "all": everything, "bulk": in_one_call, "copy": copy, "copied": copied}


def main() -> None:
    parser = argparse.ArgumentParser(description="Threads and messages beside the real Mastra.")
    parser.add_argument("--quick", action="store_true", help="smaller sizes than the targets are for")
    parser.add_argument("--folder", type=Path, help="where Mastra is installed, and kept for the next time")
    parser.add_argument("--json", type=Path, help="where to write the JSON; printed anyway")
    parser.add_argument("--rounds", type=int, default=2, help="how often both are run in turn")
    options = parser.parse_args()
    sizes = [200, 50, 20, 500, 2] if options.quick else [1_000, 300, 100, 10_000, 3]
    folder = options.folder or Path(tempfile.mkdtemp(prefix="mastra-bench-"))
    try:
        node = install(folder)
        rounds = [(run_mastra(node, folder, sizes), run_ours(folder, sizes)) for _ in range(options.rounds)]
    finally:
        if options.folder is None:
            shutil.rmtree(folder, ignore_errors=True)
    assert all(mastra["copied"] == ours["copied"] == sizes[3] for mastra, ours in rounds)
    report = {"machine": platform.platform(), "python": platform.python_version(), "packages": PACKAGES, "rows": {}}
    print(f"\n{'milliseconds, median':<22}{'Mastra':>10}{'ours':>10}{'ratio':>8}{'target':>8}")
    for label, (name, target) in ROWS.items():
        mastra, ours = (statistics.median([t for pair in rounds for t in pair[side][name]]) for side in (0, 1))
        ratio = ours / mastra
        verdict = "  missed" if ratio > target and not options.quick else ""
        print(f"{label:<22}{mastra:>10.3f}{ours:>10.3f}{ratio:>8.3f}{target:>8.3f}{verdict}")
        report["rows"][label] = {"mastra_ms": mastra, "ours_ms": ours, "ratio": ratio, "target": target}
    text = json.dumps(report, indent=2)
    print(f"\n{text}")
    if options.json:
        options.json.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
