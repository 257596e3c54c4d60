"""Which function runs which operation."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from langchain_mastra_memory.errors import ConfigurationError
from langchain_mastra_memory.store.base import Operation

if TYPE_CHECKING:
    from sqlalchemy import ClauseElement

    from langchain_mastra_memory.store.sql.tx import DialectName, Tx

T = TypeVar("T")
Op = TypeVar("Op", bound=Operation[Any])

HANDLERS: dict[type[Operation[Any]], Callable[[Tx, Any], Any]] = {}


ALONE: dict[type[Operation[Any]], Callable[[Tx, Any], Any]] = {}
"""For some operations, a body that is tried first; None means that it did nothing."""

SINGLE: dict[type[Operation[Any]], Callable[[Any], bool]] = {}
"""For the same operations, whether that body may do all in one statement: where trips cost nothing, only then."""


def tries_alone(
    operation: type[Op], *, single: Callable[[Op], bool]
) -> Callable[[Callable[[Tx, Op], T | None]], Callable[[Tx, Op], T | None]]:
    """Register a body that is tried first, outside of a transaction: it saves the statements that begin and end one.

    It may do its work in one statement, which may be sent twice to a server; or do nothing and return None. On
    PostgreSQL, where each statement is a trip, it may also begin a transaction itself, `Tx.all_of(..., begin=True)`,
    and do everything. `single` tells of an operation whether one statement may be enough.
    """

    def register(function: Callable[[Tx, Op], T | None]) -> Callable[[Tx, Op], T | None]:
        ALONE[operation] = function
        SINGLE[operation] = single
        return function

    return register


def handles(operation: type[Op]) -> Callable[[Callable[[Tx, Op], T]], Callable[[Tx, Op], T]]:
    """Register the decorated function as the body of an operation.

    The function is one unit of work: it may be run again when the connection was lost or a deadlock was broken before
    the commit, so everything that it does goes through its `Tx`.
    """

    def register(function: Callable[[Tx, Op], T]) -> Callable[[Tx, Op], T]:
        if operation in HANDLERS:
            raise TypeError(f"{operation.__name__} has a handler already: {HANDLERS[operation].__qualname__}")
        HANDLERS[operation] = function
        return function

    return register


def handler_of(operation: Operation[T]) -> Callable[[Tx, Operation[T]], T]:
    """Return the body of an operation.

    Raises:
        ConfigurationError: The SQL stores have no such operation.
    """
    handler = HANDLERS.get(type(operation))
    if handler is None:
        raise ConfigurationError(
            f"the SQL stores cannot run {type(operation).__name__}: no handler is registered for it"
        )
    return handler


FIRST_TURN: list[Callable[[DialectName], Iterable[ClauseElement]]] = []
"""What gives the statements of nearly every turn: compiled as the database is opened, not in the first turn."""


def in_every_turn(
    statements: Callable[[DialectName], Iterable[ClauseElement]],
) -> Callable[[DialectName], Iterable[ClauseElement]]:
    """Register the statements of a turn: compiling one takes about a millisecond, once in a process."""
    FIRST_TURN.append(statements)
    return statements
