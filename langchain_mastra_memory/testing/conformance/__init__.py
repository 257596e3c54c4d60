"""The conformance suite for any `MemoryStore`.

Outside pytest, `validate` runs every case through `run` and `arun` and gives a report; in pytest, subclass
`MemoryStoreConformance`. The groups that a store declares are verified by running an operation of each; a group that
is missing fails unless it is skipped by name; a case that disappears from the suite stops it.

Example:
    >>> from langchain_mastra_memory import SQLMemoryStore
    >>> @store_test("in memory")
    ... def stores():
    ...     with SQLMemoryStore("memory://") as store:
    ...         yield store
    >>> report = validate(stores, groups=["threads"])
    >>> report.passed_all()
    True
"""

from __future__ import annotations

from langchain_mastra_memory.testing.conformance import (
    checkpoints,
    index,
    log,
    messages,
    pages,
    resources,
    threads,
)
from langchain_mastra_memory.testing.conformance.registry import COUNTS, Case, case, probe
from langchain_mastra_memory.testing.conformance.report import CaseResult, GroupReport, Report
from langchain_mastra_memory.testing.conformance.session import Session
from langchain_mastra_memory.testing.conformance.suite import MemoryStoreConformance, add_tests
from langchain_mastra_memory.testing.conformance.validate import StoreTest, avalidate, store_test, validate

# Importing a group's module registers its cases; `COUNTS` notices one that is not imported.
GROUP_MODULES = (threads, messages, resources, pages, checkpoints, log, index)
add_tests()

__all__ = [
    "COUNTS",
    "Case",
    "CaseResult",
    "GroupReport",
    "MemoryStoreConformance",
    "Report",
    "Session",
    "StoreTest",
    "avalidate",
    "case",
    "probe",
    "store_test",
    "validate",
]
