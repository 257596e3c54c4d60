"""Run the conformance cases against a store, in or outside pytest."""

from __future__ import annotations

import asyncio
import inspect
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from langchain_mastra_memory.errors import MastraMemoryError
from langchain_mastra_memory.io import drive
from langchain_mastra_memory.store.base import Group, MemoryStore
from langchain_mastra_memory.testing.conformance.registry import CASES, COUNTS, PROBES, Body, Case, check_counts
from langchain_mastra_memory.testing.conformance.report import CaseResult, GroupReport, Mode, Report
from langchain_mastra_memory.testing.conformance.session import Session

T = TypeVar("T")
Factory: TypeAlias = Callable[[], "MemoryStore | Iterator[MemoryStore] | AsyncIterator[MemoryStore]"]


@dataclass(frozen=True)
class StoreTest:
    """A store to validate; made by `store_test`.

    Attributes:
        name: What the report calls it.
        factory: Gives a fresh, empty store; called once per group of operations.
        skip_groups: Groups that the store is known not to have.
    """

    name: str
    factory: Factory
    skip_groups: frozenset[Group] = frozenset()


def store_test(name: str, *, skip_groups: Iterable[Group] = ()) -> Callable[[Factory], StoreTest]:
    """Name a factory of stores, for `validate`.

    Args:
        name: What the report calls the store.
        skip_groups: Groups of operations that the store does not have. Any other group that is missing is a failure.

    Returns:
        A decorator for a function that returns a store, or for a (sync or async) generator that yields one and closes
        it afterwards.

    Example:
        >>> from langchain_mastra_memory import SQLMemoryStore
        >>> @store_test("SQLMemoryStore in memory")
        ... def stores():
        ...     with SQLMemoryStore("memory://") as store:
        ...         yield store
        >>> stores.name
        'SQLMemoryStore in memory'
    """

    def decorate(factory: Factory) -> StoreTest:
        return StoreTest(name, factory, frozenset(skip_groups))

    return decorate


def validate(test: StoreTest | Factory, *, groups: Iterable[Group] | None = None) -> Report:
    """Run every case against a store, through `run` and through `arun`.

    Args:
        test: What `store_test` made, or a bare factory.
        groups: Only these groups; all by default.

    Returns:
        The report: `assert report.passed_all(), report`.

    Raises:
        AssertionError: The suite itself lost a case.
        RuntimeError: Called where an event loop runs; use `avalidate` there.
    """
    check_counts()
    if not isinstance(test, StoreTest):
        test = StoreTest(getattr(test, "__name__", "store"), test)
    report = Report(test.name)
    wanted = set(COUNTS if groups is None else groups)
    with asyncio.Runner() as runner:
        for group in COUNTS:
            if group not in wanted:
                continue
            if group in test.skip_groups:
                report.groups[group] = GroupReport(group, skipped=True)
                continue
            with opened(test.factory, runner) as store:
                report.groups[group] = validate_group(group, store, runner, test.skip_groups)
    return report


async def avalidate(test: StoreTest | Factory, *, groups: Iterable[Group] | None = None) -> Report:
    """Do the same where an event loop runs; the validation has a thread and a loop of its own."""
    return await asyncio.to_thread(validate, test, groups=groups)


def validate_group(group: Group, store: MemoryStore, runner: asyncio.Runner, skipped: frozenset[Group]) -> GroupReport:
    """Detect one group and run its cases."""
    report = GroupReport(group, declared=group in store.capabilities)
    report.problem = detect(group, store, runner)
    if report.problem is None:
        for each in CASES[group].values():
            if skipped.intersection(each.needs):
                report.left_out.append(each.name)
            else:
                report.results += [run_case(each, store, mode, runner) for mode in ("run", "arun")]
    return report


def detect(group: Group, store: MemoryStore, runner: asyncio.Runner) -> str | None:
    """Return what is wrong with a store's claim to have a group: None when it is declared and works.

    A store must refuse an operation of a group that it does not declare with an error of `errors.py`.
    """
    declared = group in store.capabilities
    for is_async in (False, True):
        call = "arun" if is_async else "run"
        try:
            run_body(PROBES[group], Session(store, is_async=is_async), runner)
        except MastraMemoryError as error:
            if declared:
                return f"declared, but {call} of its simplest operation raised {error!r}"
        except Exception as error:  # noqa: BLE001  # a probe of foreign code may raise anything
            return f"{call} of its simplest operation raised {error!r}, which is not a MastraMemoryError"
        else:
            if not declared:
                return f"works through {call}, but is not among the capabilities"
    return None if declared else "not among the capabilities; if the store has no such operations, skip it by name"


def run_case(each: Case, store: MemoryStore, mode: Mode, runner: asyncio.Runner) -> CaseResult:
    """Run one case one way."""
    try:
        run_body(each.body, Session(store, is_async=mode == "arun"), runner)
    except Exception:  # noqa: BLE001  # whatever the case raised is its result
        return CaseResult(each.name, mode, traceback.format_exc())
    return CaseResult(each.name, mode)


def run_body(body: Body, session: Session, runner: asyncio.Runner) -> None:
    """Drive a body without an event loop, or run it on the runner's."""

    async def whole() -> None:
        await body(session)

    if session.is_async:
        runner.run(whole())
    else:
        drive(whole())


def opened(factory: Factory, runner: asyncio.Runner) -> AbstractContextManager[MemoryStore]:
    """Return a context manager over what a factory gives: a store, or a generator that yields one."""
    if inspect.isasyncgenfunction(factory):
        return _in_loop(asynccontextmanager(factory), runner)
    if inspect.isgeneratorfunction(factory):
        return contextmanager(factory)()
    return _closing(factory)


@contextmanager
def _in_loop(
    manager: Callable[[], AbstractAsyncContextManager[MemoryStore]], runner: asyncio.Runner
) -> Iterator[MemoryStore]:
    context = manager()
    store = runner.run(_coroutine(context.__aenter__()))
    try:
        yield store
    finally:
        runner.run(_coroutine(context.__aexit__(None, None, None)))


async def _coroutine(awaitable: Awaitable[T]) -> T:
    return await awaitable


@contextmanager
def _closing(factory: Factory) -> Iterator[MemoryStore]:
    store = factory()
    assert isinstance(store, MemoryStore), f"the factory gave a {type(store).__name__}, which is not a MemoryStore"
    try:
        yield store
    finally:
        store.close()
