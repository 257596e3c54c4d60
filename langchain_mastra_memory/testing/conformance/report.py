"""What a validation found: per group, per case, per way of running it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from langchain_mastra_memory.store.base import Group

Mode = Literal["run", "arun"]


@dataclass(frozen=True, slots=True)
class CaseResult:
    """One case, run one way.

    Attributes:
        case: Its name.
        mode: `run` or `arun`.
        error: The traceback of its failure; None when it passed.
    """

    case: str
    mode: Mode
    error: str | None = None


@dataclass(slots=True)
class GroupReport:
    """One group of operations.

    Attributes:
        group: Its name.
        declared: Whether it is among the store's capabilities.
        skipped: Whether it was skipped by name.
        problem: What is wrong with the group as a whole: not declared, declared but not working, ...
        results: One per case and mode.
        left_out: Cases that need a group that was skipped by name.
    """

    group: Group
    declared: bool = False
    skipped: bool = False
    problem: str | None = None
    results: list[CaseResult] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether the group works as it must, or was skipped by name."""
        return self.skipped or (self.problem is None and all(result.error is None for result in self.results))

    @property
    def failures(self) -> list[CaseResult]:
        """The cases that failed."""
        return [result for result in self.results if result.error is not None]

    def line(self) -> str:
        """Return the group's line of the report."""
        if self.skipped:
            return f"  -   {self.group:<12} skipped by name"
        if self.problem:
            return f"FAIL  {self.group:<12} {self.problem}"
        passed, total = len(self.results) - len(self.failures), len(self.results)
        rest = f", {len(self.left_out)} left out" if self.left_out else ""
        return f"{'  ok' if self.passed else 'FAIL'}  {self.group:<12} {passed}/{total}{rest}"


@dataclass(slots=True)
class Report:
    """Everything that a validation found; `print(report)` shows it.

    Attributes:
        name: The store's name.
        groups: By name of the group.
    """

    name: str
    groups: dict[Group, GroupReport] = field(default_factory=dict)

    def passed_all(self) -> bool:
        """Whether every group that was not skipped by name works."""
        return bool(self.groups) and all(group.passed for group in self.groups.values())

    def __str__(self) -> str:
        """Return a table, and the traceback of each failure."""
        lines = [f"MemoryStore conformance: {self.name}", *(group.line() for group in self.groups.values())]
        for group in self.groups.values():
            for failure in group.failures:
                lines += ["", f"{group.group}: {failure.case} ({failure.mode})", str(failure.error).rstrip()]
        lines.append(f"{'passed' if self.passed_all() else 'FAILED'}: {self.name}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON data."""
        return {
            "name": self.name,
            "passed": self.passed_all(),
            "groups": {
                name: {
                    "declared": group.declared,
                    "skipped": group.skipped,
                    "problem": group.problem,
                    "passed": len(group.results) - len(group.failures),
                    "failures": [{"case": f.case, "mode": f.mode, "error": f.error} for f in group.failures],
                    "left_out": group.left_out,
                }
                for name, group in self.groups.items()
            },
        }
