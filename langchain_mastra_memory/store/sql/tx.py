"""One transaction: SQLAlchemy Core statements, compiled once each, run on the driver's cursor.

Plain Core costs 40-100 microseconds a statement; the same SQL on the driver's cursor a fraction of it. All statements
take and give ints, floats, text, bytes and None only, so that no type needs processing on the way.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.compiler import compiles

from langchain_mastra_memory.store.sql.registry import FIRST_TURN
from langchain_mastra_memory.store.sql.values import ESCAPE, decode_text, encode_text

if TYPE_CHECKING:
    from sqlalchemy.engine import Dialect
    from sqlalchemy.sql.compiler import SQLCompiler

DialectName = Literal["sqlite", "postgresql"]
Row = tuple[Any, ...]
Params = Mapping[str, Any]


class Cursor(Protocol):
    """What both drivers' cursors have."""

    @property
    def connection(self) -> Any:
        """The driver's connection."""
        ...

    @property
    def rowcount(self) -> int:
        """How many rows the last statement changed."""
        ...

    def execute(self, sql: Any, params: Any = ..., /) -> Any:
        """Run a statement."""
        ...

    def executemany(self, sql: Any, params: Any, /) -> Any:
        """Run a statement once for each set of parameters."""
        ...

    def fetchall(self) -> list[Any]:
        """Return the rows that are left."""
        ...


class _AnyOf(sa.ColumnElement[bool]):
    """`column IN (the list in a parameter)`: one static statement, any number of values."""

    inherit_cache = False

    def __init__(self, column: sa.ColumnElement[Any], name: str) -> None:
        self.column = column
        self.values = sa.bindparam(name, type_=sa.types.NullType())
        self.type = sa.Boolean()

    def self_group(self, against: Any = None) -> _AnyOf:  # noqa: ARG002
        """Stand alone in a condition: SQLAlchemy would write `= 1` behind it, and SQLite then uses no index."""
        return self


@compiles(_AnyOf, "sqlite")
def _any_of_sqlite(element: _AnyOf, compiler: SQLCompiler, **kwargs: Any) -> str:
    column, values = compiler.process(element.column, **kwargs), compiler.process(element.values, **kwargs)
    return f"{column} IN (SELECT value FROM json_each({values}))"  # noqa: S608 - both are compiled


@compiles(_AnyOf, "postgresql")
def _any_of_postgresql(element: _AnyOf, compiler: SQLCompiler, **kwargs: Any) -> str:
    kind = "bigint" if isinstance(element.column.type, sa.Integer) else "text"
    column = compiler.process(element.column, **kwargs)
    return f"{column} = ANY(({compiler.process(element.values, **kwargs)})::{kind}[])"


def any_of(column: sa.ColumnElement[Any], name: str) -> sa.ColumnElement[bool]:
    """Return `column IN (...)` over the list given as parameter `name`: any length, none of it in the SQL."""
    return _AnyOf(column, name)


def insert_row(table: sa.Table, *columns: str) -> sa.Insert:
    """Return an insert of these columns, each bound by its own name."""
    return sa.insert(table).values({name: sa.bindparam(name, type_=table.c[name].type) for name in columns})


def upsert(table: sa.Table, keys: Sequence[str], columns: Sequence[str]) -> sa.Insert:
    """Return an insert of keys and columns that overwrites the columns of a row with the same keys.

    With no columns the row that is there stays. Both engines read the same `ON CONFLICT`, and SQLite's compiler reads
    PostgreSQL's construct.
    """
    bound = {name: sa.bindparam(name, type_=table.c[name].type) for name in (*keys, *columns)}
    insert = postgresql.insert(table).values(bound)
    if not columns:
        return insert.on_conflict_do_nothing(index_elements=list(keys))
    return insert.on_conflict_do_update(
        index_elements=list(keys), set_={name: insert.excluded[name] for name in columns}
    )


class Prepared:
    """A statement compiled for one dialect.

    Attributes:
        sql: The statement.
        defaults: The values of its literals.
        names: Its parameters in order; None if they are given by name.
    """

    __slots__ = ("defaults", "names", "sql")

    def __init__(self, statement: sa.ClauseElement, dialect: Dialect) -> None:
        compiled = cast("SQLCompiler", statement.compile(dialect=dialect))
        self.sql = str(compiled)
        given = compiled.params
        # Literals of the statement; a parameter that the caller must give is missed where it is missing.
        self.defaults: dict[str, Any] = {
            name: given[name] for bind, name in compiled.bind_names.items() if not bind.required
        }
        positions = compiled.positiontup
        self.names: tuple[str, ...] | None = None if positions is None else tuple(positions)


class Statements:
    """The compiled statements of one engine.

    Args:
        dialect: How the driver takes them.
        inline: How they are written where the driver writes the values in; only for PostgreSQL.
    """

    def __init__(self, dialect: Dialect, inline: Dialect | None = None) -> None:
        self._dialect = dialect
        self._prepared: dict[sa.ClauseElement, Prepared] = {}
        self.inline = Statements(inline) if inline is not None else self

    def __getitem__(self, statement: sa.ClauseElement) -> Prepared:
        prepared = self._prepared.get(statement)
        if prepared is None:
            prepared = self._prepared[statement] = Prepared(statement, self._dialect)
        return prepared

    def compile_first(self, dialect: DialectName) -> None:
        """Compile the statements of nearly every turn."""
        for statements in FIRST_TURN:
            for statement in statements(dialect):
                self[statement]

    def once(self, statement: sa.ClauseElement) -> Prepared:
        """Compile a statement that was built for one call; it is not kept."""
        return Prepared(statement, self._dialect)


def _encode_list(values: Sequence[Any], dialect: DialectName) -> Any:
    """Return a list as a parameter: an array of PostgreSQL, JSON on SQLite."""
    encoded = [encode_text(v) if v.__class__ is str else v for v in values]
    return json.dumps(encoded, ensure_ascii=False) if dialect == "sqlite" else encoded


def _encode(values: list[Any], dialect: DialectName) -> list[Any]:
    """Make parameters fit for the driver, in place."""
    for place, value in enumerate(values):
        kind = value.__class__
        if kind is str:
            if not value.isascii() or "\0" in value:
                values[place] = encode_text(value)
        elif kind is list or kind is tuple:
            values[place] = _encode_list(value, dialect)
    return values


def _decode(rows: list[Row]) -> list[Row]:
    for index, row in enumerate(rows):
        for value in row:
            if value.__class__ is str and ESCAPE in value:
                rows[index] = tuple(decode_text(v) if v.__class__ is str else v for v in row)
                break
    return rows


class Tx:
    """A transaction under way. It ends with the unit of work: committed if the unit returns, else rolled back.

    Attributes:
        dialect: Which engine.
        now: The store's clock when the transaction began, microseconds since 1970 UTC.
        overtaken: Whether the unit is run again because others were faster: now it is to begin with its locks.
    """

    __slots__ = ("_cursor", "_depth", "_statements", "dialect", "now", "overtaken")

    def __init__(
        self, cursor: Cursor, statements: Statements, dialect: DialectName, now: int, *, overtaken: bool = False
    ) -> None:
        self._cursor = cursor
        self._statements = statements
        self._depth = 0
        self.dialect: DialectName = dialect
        self.now = now
        self.overtaken = overtaken

    def _bind(self, prepared: Prepared, params: Params | None) -> Any:
        names, defaults = prepared.names, prepared.defaults
        if names is None:
            bound = {**defaults, **params} if params else defaults
            return dict(zip(bound, _encode(list(bound.values()), self.dialect), strict=True))
        if not params:
            return _encode([defaults[name] for name in names], self.dialect)
        return _encode([params[name] if name in params else defaults[name] for name in names], self.dialect)

    def _execute(self, statement: sa.ClauseElement, params: Params | None, *, keep: bool) -> None:
        if keep:
            prepared = self._statements[statement]
            self._cursor.execute(prepared.sql, self._bind(prepared, params))
            return
        prepared = self._statements.once(statement)
        execute: Any = self._cursor.execute
        if self.dialect == "postgresql":
            execute(prepared.sql, self._bind(prepared, params), prepare=False)
        else:
            execute(prepared.sql, self._bind(prepared, params))

    def all(self, statement: sa.ClauseElement, params: Params | None = None, *, keep: bool = True) -> list[Row]:
        """Run a statement and return its rows.

        Args:
            statement: A module-level constant; with `keep=False`, one built for this call.
            params: The values of its bindparams; a list for an `any_of`.
            keep: Whether the compiled statement is kept: only for constants, or memory grows.
        """
        self._execute(statement, params, keep=keep)
        return _decode(self._cursor.fetchall())

    def first(self, statement: sa.ClauseElement, params: Params | None = None, *, keep: bool = True) -> Row | None:
        """Run a statement and return its first row, or None."""
        rows = self.all(statement, params, keep=keep)
        return rows[0] if rows else None

    def value(self, statement: sa.ClauseElement, params: Params | None = None, *, keep: bool = True) -> Any:
        """Run a statement and return the first column of its first row, or None."""
        row = self.first(statement, params, keep=keep)
        return None if row is None else row[0]

    def run(self, statement: sa.ClauseElement, params: Params | None = None, *, keep: bool = True) -> int:
        """Run a statement that returns no rows; return how many rows it changed."""
        self._execute(statement, params, keep=keep)
        return self._cursor.rowcount

    def run_many(self, statement: sa.ClauseElement, rows: Sequence[Params]) -> None:
        """Run a statement once for each set of parameters."""
        if rows:
            prepared = self._statements[statement]
            self._cursor.executemany(prepared.sql, [self._bind(prepared, row) for row in rows])

    def run_all(self, work: Sequence[tuple[sa.ClauseElement, Params]]) -> None:
        """Run statements whose results nobody needs; in one trip, to PostgreSQL."""
        if self.dialect == "postgresql" and len(work) > 1:
            with self._together(work):
                return
        for statement, params in work:
            self._execute(statement, params, keep=True)

    @contextmanager
    def _together(self, work: Sequence[tuple[sa.ClauseElement, Params]], before: str = "") -> Iterator[Any]:
        """Send statements as one text, with the values written in by the driver.

        The driver's pipeline would keep the prepared statements, but waits for ever when the connection is lost.
        """
        import psycopg  # noqa: PLC0415 - an extra

        with psycopg.ClientCursor(self._cursor.connection) as cursor:
            inline = self._statements.inline
            prepared = [(inline[statement], params) for statement, params in work]
            texts = [cursor.mogrify(p.sql, self._bind(p, params)) for p, params in prepared]
            cursor.execute(before + ";".join(texts))
            yield cursor

    def all_of(self, work: Sequence[tuple[sa.ClauseElement, Params]], *, begin: bool = False) -> list[list[Row]]:
        """Run statements that do not need each other and return the rows of each; in one trip, to PostgreSQL.

        Args:
            work: The statements with their parameters.
            begin: Whether a transaction begins with them, where there is none yet: see `registry.tries_alone`.
        """
        if self.dialect != "postgresql":
            return [self.all(statement, params) for statement, params in work]
        begin = begin and self._cursor.connection.info.transaction_status == 0  # idle
        if len(work) < 2 and not begin:
            return [self.all(statement, params) for statement, params in work]
        with self._together(work, "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;" if begin else "") as cursor:
            if begin:
                cursor.nextset()
            results = [_decode(cursor.fetchall())]
            while cursor.nextset():
                results.append(_decode(cursor.fetchall()))
            return results

    def script(self, sql: str) -> None:
        """Run one statement of a migration."""
        self._cursor.execute(sql)

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Undo what was done inside if it raises; the transaction goes on."""
        self._depth += 1
        name = f"s{self._depth}"
        self._cursor.execute(f"SAVEPOINT {name}")
        try:
            yield
        except BaseException as error:
            try:
                self._cursor.execute(f"ROLLBACK TO SAVEPOINT {name}")
                self._cursor.execute(f"RELEASE SAVEPOINT {name}")
            except Exception:  # noqa: BLE001 - the whole transaction is gone (disk full, lost connection): say why
                raise error from None
            raise
        else:
            self._cursor.execute(f"RELEASE SAVEPOINT {name}")
        finally:
            self._depth -= 1
