"""Every rule of the log, broken on purpose: each must be caught by the worlds that interleave."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from langchain_mastra_memory.observation import transitions
from langchain_mastra_memory.observation.log import Head, LogRow, LogState, Path


def _true(*_args: Any, **_kwargs: Any) -> bool:
    return True


def _version_only(read: tuple[str, int], newest: tuple[str, int]) -> bool:
    return read[1] == newest[1]


def _newest_head(heads: Iterable[Head], path: Path, epoch: str) -> Head:
    newest = max(heads, key=lambda head: head.version, default=None)
    return replace(newest, line=path.branch) if newest else Head(epoch=epoch, version=0, line=path.branch)


def _copied_head(state: LogState) -> LogState:
    known = state.rows
    head = state.head
    return replace(
        state,
        head=replace(
            head,
            log=tuple(i for i in head.log if i in known),
            buffered=tuple(i for i in head.buffered if i in known),
            pending=head.pending if head.pending in known else None,
        ),
    )


def _untouched(_state: LogState, _stale: Any) -> None:
    return None


def _touched_in_view(rows: Iterable[LogRow], spans: Iterable[tuple[int, int]]) -> set[str]:
    return {i for i in _ORIGINAL_TOUCHED(list(rows), spans) if i in _IN_VIEW}


_ORIGINAL_TOUCHED = transitions.touched
_ORIGINAL_SETTLE = transitions.settle
_IN_VIEW: set[str] = set()


def _settle_and_note(state: LogState) -> LogState:
    settled = _ORIGINAL_SETTLE(state)
    _IN_VIEW.clear()
    _IN_VIEW.update(settled.head.log, settled.head.buffered)
    return settled


MUTANTS: Final[dict[str, dict[str, Any]]] = {
    "claim instead of conditions": dict.fromkeys(
        ("same_epoch", "joins", "same_messages", "ends_legally", "same_version", "is_prefix"), _true
    ),
    "no position check": {"joins": _true},
    "no digest": {"same_messages": _true},
    "no legality re-check": {"ends_legally": _true},
    "no prefix check": {"is_prefix": _true},
    "no compare-and-set": {"same_version": _true},
    "version without epoch": {"same_version": _version_only, "same_epoch": _true},
    "fork copies the head": {"head_for": _newest_head, "settle": _copied_head},
    "edit leaves the head": {"edited": _untouched},
    "stale mark only in view": {"touched": _touched_in_view, "settle": _settle_and_note},
}
"""Per mutant, what takes the place of which function of `transitions`."""

CAUGHT_BY: Final[dict[str, list[tuple[Any, str, int]]]] = {
    "claim instead of conditions": [("thread", "even", 0), ("thread", "branches", 0)],
    "no position check": [("thread", "even", 0), ("resource", "branches", 0)],
    "no digest": [("thread", "branches", 1), ("resource", "even", 2)],
    "no legality re-check": [("thread", "even", 174), ("resource", "even", 201)],
    "no prefix check": [("resource", "branches", 2), ("thread", "branches", 57)],
    "no compare-and-set": [("thread", "churn", 0), ("resource", "churn", 1)],
    "version without epoch": [("thread", "churn", 101), ("thread", "churn", 713)],
    "fork copies the head": [("thread", "branches", 1), ("resource", "branches", 2)],
    "edit leaves the head": [("thread", "even", 75), ("thread", "even", 78)],
    "stale mark only in view": [("thread", "branches", 11), ("thread", "branches", 13)],
}
"""Worlds (scope, profile, seed) that notice each mutant; found by a search over 900 seeds."""
