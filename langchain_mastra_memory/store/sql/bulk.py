"""Inserting many rows at once: as arrays on PostgreSQL, where every row of its own costs a message to the server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import sqlalchemy as sa

from langchain_mastra_memory.store.sql.tx import Params, Tx, insert_row

MANY: Final = 8
"""From so many rows on, arrays are faster."""


class BulkInsert:
    """Inserts rows of one table; made once, as a constant of a module.

    Args:
        table: The table.
        names: The columns that every row gives.

    Example:
        ```text
        _INSERT = BulkInsert(messages, "thread", "seq", "branch")
        _INSERT(tx, [{"thread": 1, "seq": 1, "branch": 0}])
        ```
    """

    def __init__(self, table: sa.Table, *names: str) -> None:
        self._names = names
        self._each = insert_row(table, *names)
        arrays = ", ".join(f"(:{name})::{_array_of(table.c[name])}" for name in names)
        columns = ", ".join(names)
        self._arrays = sa.text(
            f"INSERT INTO {table.name} ({columns}) SELECT * FROM unnest({arrays})"  # noqa: S608 - names of a table
        )

    def __call__(self, tx: Tx, rows: Sequence[Params]) -> None:
        """Insert the rows."""
        if tx.dialect == "postgresql" and len(rows) >= MANY:
            tx.run(self._arrays, {name: [row[name] for row in rows] for name in self._names})
        else:
            tx.run_many(self._each, rows)


def _array_of(column: sa.Column[object]) -> str:
    """Return the PostgreSQL type of an array of a column's values."""
    if isinstance(column.type, sa.Integer):
        return "bigint[]"
    if isinstance(column.type, sa.Float):
        return "double precision[]"
    return "bytea[]" if isinstance(column.type, sa.LargeBinary) else "text[]"
