"""The conformance suite as a pytest class: subclass it and give it a `store` fixture."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar

from langchain_mastra_memory.store.base import Group, MemoryStore
from langchain_mastra_memory.testing.conformance.registry import CASES, COUNTS, Case, check_counts
from langchain_mastra_memory.testing.conformance.report import Mode
from langchain_mastra_memory.testing.conformance.session import Session
from langchain_mastra_memory.testing.conformance.validate import detect, run_body


class MemoryStoreConformance:
    """The behaviours of a `MemoryStore`, one test per case and per way of running it.

    Subclass it in a test module and define a fixture `store` that gives a store; cases take ids of their own, so the
    store may be shared. A test that is known to fail is overridden with `@pytest.mark.xfail(reason=...)`; any other
    override, and any test that is missing, fails `test_no_conformance_test_was_dropped`.

    Attributes:
        skip_groups: Groups of operations that the store does not have.

    Example:
        ```python
        import pytest

        from langchain_mastra_memory import SQLMemoryStore
        from langchain_mastra_memory.testing.conformance import MemoryStoreConformance


        class TestMyStore(MemoryStoreConformance):
            @pytest.fixture
            def store(self):
                with SQLMemoryStore("memory://") as store:
                    yield store
        ```
    """

    skip_groups: ClassVar[frozenset[Group]] = frozenset()

    def test_every_group_is_declared_and_works(self, store: MemoryStore) -> None:
        """A capability is more than a word: an operation of each declared group is run."""
        with asyncio.Runner() as runner:
            wrong = {group: detect(group, store, runner) for group in COUNTS if group not in self.skip_groups}
        assert not any(wrong.values()), {group: problem for group, problem in wrong.items() if problem}

    def test_no_conformance_test_was_dropped(self) -> None:
        """Neither the suite nor a subclass of it may lose a test."""
        check_counts()
        tests = {name for name in vars(MemoryStoreConformance) if name.startswith("test_")}
        assert len(tests) == 2 * sum(COUNTS.values()) + 2, "two cases have the same test name"
        changed = {name for name in tests if getattr(type(self), name, None) is not vars(MemoryStoreConformance)[name]}
        silent = {name for name in changed if not _expected_to_fail(getattr(type(self), name, None))}
        assert not silent, f"conformance tests deleted, or overridden without xfail and a reason: {sorted(silent)}"


def _expected_to_fail(test: object) -> bool:
    marks = getattr(test, "pytestmark", ())
    return any(mark.name == "xfail" and mark.kwargs.get("reason") for mark in marks)


def _test_of(each: Case, mode: Mode) -> Callable[[Any, MemoryStore], None]:
    def test(self: MemoryStoreConformance, store: MemoryStore) -> None:
        import pytest  # noqa: PLC0415  # the rest of the package works without it

        skipped = self.skip_groups.intersection({each.group, *each.needs})
        if skipped:
            pytest.skip(f"skipped by name: {', '.join(sorted(skipped))}")
        with asyncio.Runner() as runner:
            run_body(each.body, Session(store, is_async=mode == "arun"), runner)

    test.__doc__ = f"{each.description} ({mode})"
    return test


def add_tests() -> None:
    """Give the class a test per case and mode; called once, after every group module has registered its cases."""
    for group, cases in CASES.items():
        for each in cases.values():
            modes: dict[Mode, str] = {"run": "", "arun": "_async"}
            for mode, suffix in modes.items():
                test = _test_of(each, mode)
                test.__name__ = f"test_{group}_{each.name}{suffix}"
                test.__qualname__ = f"{MemoryStoreConformance.__qualname__}.{test.__name__}"
                setattr(MemoryStoreConformance, test.__name__, test)
