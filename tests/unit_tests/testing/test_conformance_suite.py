"""The suite notices stores that misbehave, groups that are missing, and cases that disappear."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import pytest

from langchain_mastra_memory.errors import ConfigurationError
from langchain_mastra_memory.store.base import Group, MemoryStore
from langchain_mastra_memory.store.operations.threads import GetThread, UpdateThread
from langchain_mastra_memory.store.sql.engine import SQLMemoryStore
from langchain_mastra_memory.store.wrappers.base import StoreWrapper
from langchain_mastra_memory.testing.conformance import COUNTS, MemoryStoreConformance, avalidate, store_test, validate
from langchain_mastra_memory.testing.conformance.registry import CASES, check_counts


class ForgetsMetadata(StoreWrapper):
    """Loses updates, as a store that writes back what it read would."""

    async def around(self, operation, inner):
        if isinstance(operation, UpdateThread):
            operation = replace(operation, metadata={})
        return await inner(operation)


class Without(StoreWrapper):
    """Cannot run some groups, and may say otherwise."""

    def __init__(self, store: MemoryStore, *groups: Group, honest: bool) -> None:
        super().__init__(store)
        self._groups, self._honest = frozenset(groups), honest

    @property
    def capabilities(self) -> frozenset[Group]:
        return super().capabilities - (self._groups if self._honest else frozenset())

    async def around(self, operation, inner):
        if operation.group in self._groups:
            raise ConfigurationError("no such operation")
        return await inner(operation)


class Undeclared(StoreWrapper):
    capabilities = frozenset()


def in_memory() -> MemoryStore:
    return SQLMemoryStore("memory://")


def test_a_good_store_passes_and_the_report_says_so() -> None:
    report = validate(store_test("good")(in_memory), groups=["threads"])
    assert report.passed_all(), report
    assert len(report.groups["threads"].results) == 2 * COUNTS["threads"]
    assert "passed: good" in str(report)
    assert report.to_dict()["groups"]["threads"]["failures"] == []


def test_a_store_that_loses_updates_fails_in_both_ways_of_running_and_the_case_is_named() -> None:
    report = validate(store_test("bad")(lambda: ForgetsMetadata(in_memory())), groups=["threads"])
    assert not report.passed_all()
    failed = {(f.case, f.mode) for f in report.groups["threads"].failures}
    assert {("parallel_updates_of_different_keys_all_survive", mode) for mode in ("run", "arun")} <= failed
    assert "parallel_updates_of_different_keys_all_survive (arun)" in str(report)
    assert str(report).endswith("FAILED: bad")


@pytest.mark.parametrize("honest", [True, False])
def test_a_group_that_does_not_work_fails_whether_it_is_declared_or_not(honest: bool) -> None:
    stores = store_test("partial")(lambda: Without(in_memory(), "threads", honest=honest))
    report = validate(stores, groups=["threads"])
    assert not report.passed_all()
    assert ("skip it by name" if honest else "declared, but run") in str(report.groups["threads"].problem)


def test_a_group_that_works_undeclared_fails() -> None:
    report = validate(lambda: Undeclared(in_memory()), groups=["threads"])
    assert "not among the capabilities" in str(report.groups["threads"].problem)


def test_a_group_skipped_by_name_is_not_run_and_what_needs_it_is_left_out_and_said() -> None:
    stores = store_test("partial", skip_groups=["threads"])(lambda: Without(in_memory(), "threads", honest=True))
    report = validate(stores, groups=["threads", "resources"])
    assert report.groups["threads"].skipped
    assert report.groups["resources"].left_out
    assert "left out" in str(report)


async def test_a_factory_may_be_a_generator_of_either_kind_and_is_closed(sqlite_url: str) -> None:
    ended: list[str] = []

    def generator() -> Iterator[MemoryStore]:
        with SQLMemoryStore("memory://") as store:
            yield store
        ended.append("sync")

    async def async_generator() -> AsyncIterator[MemoryStore]:
        async with SQLMemoryStore("memory://") as store:
            yield store
        ended.append("async")

    for factory in (generator, async_generator):
        report = await avalidate(factory, groups=["threads"])
        assert report.passed_all(), report
    assert ended == ["sync", "async"]


def test_a_case_that_disappears_stops_the_suite(monkeypatch: pytest.MonkeyPatch) -> None:
    name = next(iter(CASES["threads"]))
    monkeypatch.delitem(CASES["threads"], name)
    with pytest.raises(AssertionError, match="dropped or added silently: threads"):
        validate(in_memory)


def test_a_group_whose_module_is_not_imported_stops_the_suite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(CASES, "resources")
    with pytest.raises(AssertionError, match="resources has 0"):
        check_counts()


def test_the_pytest_class_notices_deleted_and_overridden_tests_but_allows_xfail_with_a_reason() -> None:
    name = "test_threads_a_created_thread_is_found_as_it_was_made"

    def weakened(self: Any, store: MemoryStore) -> None: ...

    @pytest.mark.xfail(reason="a known fault")
    def known(self: Any, store: MemoryStore) -> None: ...

    class Deleted(MemoryStoreConformance):
        pass

    setattr(Deleted, name, None)

    class Weakened(MemoryStoreConformance):
        pass

    setattr(Weakened, name, weakened)

    class Known(MemoryStoreConformance):
        pass

    setattr(Known, name, known)

    for broken in (Deleted, Weakened):
        with pytest.raises(AssertionError, match=name):
            broken().test_no_conformance_test_was_dropped()
    Known().test_no_conformance_test_was_dropped()


def test_a_wrapper_passes_everything_on_and_closes_what_it_wraps() -> None:
    inner = SQLMemoryStore("memory://")
    with StoreWrapper(StoreWrapper(inner)) as store:
        assert isinstance(store, MemoryStore)
        assert store.run(GetThread(thread_id="t")) is None
    with pytest.raises(Exception, match="closed"):
        inner.run(GetThread(thread_id="t"))
