"""A condition on JSON text: these keys have exactly these values. One static statement for any filter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles

if TYPE_CHECKING:
    from sqlalchemy.sql.compiler import SQLCompiler


class _HasValues(sa.ColumnElement[bool]):
    inherit_cache = True
    __visit_name__ = "has_values"

    def __init__(self, column: sa.ColumnElement[Any], name: str) -> None:
        self.column = column
        self.wanted = sa.bindparam(name, type_=sa.Text())
        self.type = sa.Boolean()


@compiles(_HasValues, "sqlite")
def _sqlite(element: _HasValues, compiler: SQLCompiler, **kwargs: Any) -> str:
    column = compiler.process(element.column, **kwargs)
    wanted = compiler.process(element.wanted, **kwargs)
    # Types are compared as well: SQLite's own values of true and 1 are the same.
    return (
        f"NOT EXISTS (SELECT 1 FROM json_each({wanted}) AS wanted WHERE NOT EXISTS ("  # noqa: S608 - all compiled
        f"SELECT 1 FROM json_each(coalesce({column}, '{{}}')) AS found WHERE found.key = wanted.key "
        "AND found.atom IS wanted.atom AND (found.type = wanted.type "
        "OR (found.type IN ('integer', 'real') AND wanted.type IN ('integer', 'real')))))"
    )


@compiles(_HasValues, "postgresql")
def _postgresql(element: _HasValues, compiler: SQLCompiler, **kwargs: Any) -> str:
    column = compiler.process(element.column, **kwargs)
    wanted = compiler.process(element.wanted, **kwargs)
    return f"(coalesce({column}, '{{}}')::jsonb @> ({wanted})::jsonb)"


def has_values(column: sa.ColumnElement[Any], name: str) -> sa.ColumnElement[bool]:
    """Return the condition that a column of JSON text has every key of the JSON object in parameter `name`.

    Values are compared with their types: true is not 1, "1" is not 1, 1 is 1.0, null is not a missing key.
    """
    return _HasValues(column, name)
