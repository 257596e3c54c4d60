"""Processes that change one page at once: `python writers.py URL MODE PROCESSES COUNT`.

The package is imported once and the processes are forked from there, before any database is opened.
"""

from __future__ import annotations

import os
import sys

from langchain_mastra_memory.memory import Memory
from langchain_mastra_memory.store.sql import engine, postgresql, sqlite
from langchain_mastra_memory.working_memory.options import WorkingMemory


def write(url: str, mode: str, numbers: range) -> None:
    """Write one field after the other, or the whole text."""
    options = WorkingMemory(schema={"type": "object"}) if mode == "fields" else WorkingMemory()
    with Memory(url, working_memory=options) as memory:
        for number in numbers:
            value = {f"field_{number}": number, "nested": {f"n{number}": number}}
            memory.update_working_memory(value if mode == "fields" else f"text {number}", resource_id="r")


def main(url: str, mode: str, processes: int, count: int) -> int:
    """Fork the processes, let them go at once, and return how many failed."""
    assert postgresql and sqlite and engine._load_handlers()  # so that no child imports it for itself  # noqa: PT018
    go, start = os.pipe()
    children = []
    for place in range(processes):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                os.close(start)
                os.read(go, 1)  # ends when the parent closes its end: all go at once
                write(url, mode, range(place * count, (place + 1) * count))
                status = 0
            finally:
                os._exit(status)
        children.append(child)
    os.close(go)
    os.close(start)
    return sum(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0 for child in children)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
