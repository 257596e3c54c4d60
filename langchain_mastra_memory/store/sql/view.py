"""The view of a position: which rows of a thread are seen at (branch, head).

They are the rows of the branch up to the head, and of its ancestors up to where each was left; where several branches
have a row of one seq, the highest branch wins.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import sqlalchemy as sa

from langchain_mastra_memory.store.sql.schema import branches, messages
from langchain_mastra_memory.store.sql.tx import Tx

Row = tuple[Any, ...]
Path = tuple[tuple[int, int], ...]
"""`((branch, last seq seen), ...)`, oldest branch first."""

_PATH = sa.select(branches.c.path).where(
    branches.c.thread == sa.bindparam("thread_key"), branches.c.branch == sa.bindparam("branch_no")
)


def path_of(tx: Tx, thread_key: int, branch: int, head: int) -> Path:
    """Return the path of a position; the first branch needs no look-up."""
    if branch == 0:
        return ((0, head),)
    stored = tx.value(_PATH, {"thread_key": thread_key, "branch_no": branch})
    ancestors = json.loads(stored) if stored else []
    return (*((int(b), min(int(cut), head)) for b, cut in ancestors), (branch, head))


def in_path(path: Path, branch: int, seq: int) -> bool:
    """Tell whether a row of this branch and seq is on the path (it may still be overridden there)."""
    return any(b == branch and seq <= cut for b, cut in path)


def rows_seen(rows: Iterable[Row], path: Path, *, seq_at: int, branch_at: int) -> list[Row]:
    """Return the rows on a path, of several branches' rows with one seq the highest: what `view_clause` does in SQL.

    For rows that were found by their ids: with a condition on seq SQLite would walk the thread and not the ids.

    Args:
        rows: Rows of one thread, of any branch.
        path: What is seen.
        seq_at: The place of `seq` in a row.
        branch_at: The place of `branch`.
    """
    seen: dict[int, Row] = {}
    for row in rows:
        seq, branch = row[seq_at], row[branch_at]
        if in_path(path, branch, seq) and (seq not in seen or seen[seq][branch_at] < branch):
            seen[seq] = row
    return list(seen.values())


class ViewStatements:
    """A statement over the messages in view, built once for each length of path.

    Example:
        ```text
        _WINDOW = ViewStatements(lambda in_view: sa.select(messages.c.id).where(messages.c.thread == ..., in_view))
        statement, params = _WINDOW(path)
        rows = tx.all(statement, {"thread_key": key, **params})
        ```
    """

    def __init__(
        self, build: Callable[[sa.ColumnElement[bool]], sa.ClauseElement], table: sa.FromClause = messages
    ) -> None:
        self._build = build
        self._table = table
        self._built: dict[int, sa.ClauseElement] = {}

    def __call__(self, path: Path) -> tuple[sa.ClauseElement, dict[str, Any]]:
        """Return the statement for a path and the parameters that carry the path."""
        statement = self._built.get(len(path))
        if statement is None:
            statement = self._built[len(path)] = self._build(view_clause(len(path), self._table))
        params: dict[str, Any] = {}
        for index, (branch, cut) in enumerate(path):
            params[f"v_branch_{index}"], params[f"v_cut_{index}"] = branch, cut
        return statement, params


def _on_path(length: int, table: sa.FromClause) -> sa.ColumnElement[bool]:
    return sa.or_(
        *(
            sa.and_(
                table.c.branch == sa.bindparam(f"v_branch_{index}", type_=sa.BigInteger),
                table.c.seq <= sa.bindparam(f"v_cut_{index}", type_=sa.BigInteger),
            )
            for index in range(length)
        )
    )


def view_clause(length: int, table: sa.FromClause = messages) -> sa.ColumnElement[bool]:
    """Return the condition "this row is in view" for a path of `length` branches."""
    if length == 1:
        return _on_path(1, table)
    # A value for each row, and no NOT EXISTS: PostgreSQL joins that, and for a thread that its statistics do not know
    # it compares each row of the thread with each other.
    other = messages.alias("overriding")
    highest = (
        sa.select(sa.func.max(other.c.branch))
        .where(other.c.thread == table.c.thread, other.c.seq == table.c.seq, _on_path(length, other))
        .scalar_subquery()
    )
    return sa.and_(_on_path(length, table), sa.func.coalesce(highest, table.c.branch) <= table.c.branch)
