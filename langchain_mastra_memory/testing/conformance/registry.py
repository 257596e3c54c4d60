"""The list of conformance cases, and how many each group has to have.

A case is an async body over a `Session`; it is run once through `run` and once through `arun`. `COUNTS` is the guard
against a test that disappears: a module that is no longer imported, a decorator that was lost or a name used twice
changes a number and everything stops.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from langchain_mastra_memory.store.base import Group
from langchain_mastra_memory.testing.conformance.session import Session

Body: TypeAlias = Callable[[Session], Awaitable[None]]

COUNTS: Final[dict[Group, int]] = {
    "threads": 27,
    "messages": 26,
    "resources": 6,
    "pages": 14,
    "checkpoints": 16,
    "log": 11,
    "index": 8,
}
"""How many cases each group has, in the order in which groups are run. Adding a case means raising its number here."""

CASES: Final[dict[Group, dict[str, Case]]] = {}
PROBES: Final[dict[Group, Body]] = {}


@dataclass(frozen=True, slots=True)
class Case:
    """One behaviour that every store must have.

    Attributes:
        group: The group of operations that it is about.
        name: A sentence of behaviour, with underscores.
        body: The code, which asserts.
        needs: Other groups that it uses; it is left out when one of them is skipped by name.
    """

    group: Group
    name: str
    body: Body
    needs: tuple[Group, ...] = ()

    @property
    def description(self) -> str:
        """The first line of the body's docstring, or the name in words."""
        lines = (self.body.__doc__ or "").strip().splitlines()
        return lines[0] if lines else self.name.replace("_", " ")


def case(group: Group, *, needs: tuple[Group, ...] = ()) -> Callable[[Body], Body]:
    """Register a body as a case of a group.

    Raises:
        ValueError: The group already has a case of that name.
    """

    def register(body: Body) -> Body:
        name: str = getattr(body, "__name__", "")
        cases = CASES.setdefault(group, {})
        if name in cases:
            raise ValueError(f"the group {group!r} already has a case named {name!r}")
        cases[name] = Case(group, name, body, needs)
        return body

    return register


def probe(group: Group) -> Callable[[Body], Body]:
    """Register the body that shows whether a store can run a group at all: one harmless operation."""

    def register(body: Body) -> Body:
        if group in PROBES:
            raise ValueError(f"the group {group!r} already has a probe")
        PROBES[group] = body
        return body

    return register


def check_counts() -> None:
    """Refuse to go on when a case has disappeared or was added without saying so.

    Raises:
        AssertionError: The registered cases are not as many as `COUNTS` says.
    """
    found = {group: len(CASES.get(group, {})) for group in {*COUNTS, *CASES}}
    wrong = {group: (n, COUNTS.get(group, 0)) for group, n in found.items() if n != COUNTS.get(group, 0)}
    assert not wrong, "conformance cases were dropped or added silently: " + ", ".join(
        f"{group} has {have}, COUNTS says {said}" for group, (have, said) in sorted(wrong.items())
    )
    assert set(COUNTS) == set(PROBES), f"groups without a probe: {sorted(set(COUNTS) ^ set(PROBES))}"
