"""The step that nearly every put is: new messages at the end of the line, and nothing else.

Whether it is one is asked in the statement that moves the thread on; if that finds anything else, nothing was written,
and the general way is taken. On PostgreSQL the whole step is one statement.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from langchain_mastra_memory.store.operations.checkpoints import Archived, ArchivePlan, Place, Put, PutCheckpoint
from langchain_mastra_memory.store.sql.cascade import WrittenRow, on_messages_saved
from langchain_mastra_memory.store.sql.checkpoints_archive import REFUSED
from langchain_mastra_memory.store.sql.checkpoints_dead import brought_ids
from langchain_mastra_memory.store.sql.locking import COLUMNS, ThreadRow
from langchain_mastra_memory.store.sql.positions import ROOT
from langchain_mastra_memory.store.sql.registry import in_every_turn
from langchain_mastra_memory.store.sql.rows import message_of
from langchain_mastra_memory.store.sql.schema import messages, threads, tombstones
from langchain_mastra_memory.store.sql.tables_checkpoints import bodies, checkpoints
from langchain_mastra_memory.store.sql.tx import DialectName, Tx
from langchain_mastra_memory.store.sql.values import dump_json
from langchain_mastra_memory.threads.entries import dump_skeleton, settle_skeleton

FEW: Final = 4
"""Messages, and bodies, that a step brings at most: there is a statement for each number of them."""

_MESSAGE = ("seq", "branch", "id", "role", "kind", "body", "metadata", "tokens", "revision", "outside", "created_at")
_OWN = ("seq", "id", "role", "kind", "body", "metadata", "tokens")
"""What differs from message to message of a step."""
_BODY = ("space", "n", "id", "form", "body")
_CHECKPOINT = (
    "ns", "id", "parent", "body", "metadata", "run", "hidden", "branch", "head", "base", "created_at"
)  # fmt: skip


def _bind(table: sa.Table, column: str, name: str) -> sa.BindParameter[Any]:
    return sa.bindparam(name, type_=table.c[column].type)


def _message_columns(index: int) -> dict[str, sa.BindParameter[Any]]:
    return {c: _bind(messages, c, f"message_{c}" + (f"_{index}" if c in _OWN else "")) for c in _MESSAGE}


def _body_columns(index: int) -> dict[str, sa.BindParameter[Any]]:
    return {c: _bind(bodies, c, f"body_{c}_{index}") for c in _BODY}


def _checkpoint_columns() -> dict[str, sa.BindParameter[Any]]:
    return {c: _bind(checkpoints, c, f"checkpoint_{c}") for c in _CHECKPOINT}


def _count_of(table: sa.Table, ids: Sequence[sa.BindParameter[str]]) -> sa.ScalarSelect[int]:
    """Return how many rows of a thread have these ids. PostgreSQL would make a join of `EXISTS`, over whole tables."""
    counted = sa.select(sa.func.count()).select_from(table)
    return counted.where(table.c.thread == threads.c.key, table.c.id.in_(ids)).scalar_subquery()


_seen = threads.alias("seen")
# On PostgreSQL a statement that waited for the row sees it as it is now, and every other table as it was before: then
# the row is another version than the one that the statement saw when it began.
_NOBODY_BETWEEN: Final = (
    sa.literal_column(f"{threads.name}.xmin")
    == sa.select(sa.literal_column("seen.xmin"))
    .select_from(_seen)
    .where(_seen.c.id == sa.bindparam("thread_id"))
    .scalar_subquery()
)


def _thread_moves_on(new_messages: int, new_bodies: int, *more: sa.ColumnElement[bool]) -> sa.Update:
    """Return what takes the thread's lock and moves it on, if it stands where the step begins and knows nothing of it.

    The questions about other tables hold under the lock: whoever writes there writes the thread's row as well, or
    meets the same number in a primary key.
    """
    ids = [sa.bindparam(f"message_id_{index}", type_=sa.Text) for index in range(new_messages)]
    newest = sa.select(sa.func.max(checkpoints.c.id)).where(
        checkpoints.c.thread == threads.c.key,
        checkpoints.c.ns == sa.literal(ROOT),
        checkpoints.c.hidden == sa.literal(0),
    )
    conditions = [
        *more,
        threads.c.id == sa.bindparam("thread_id"),
        sa.or_(sa.bindparam("owner", type_=sa.Text).is_(None), threads.c.resource_id == sa.bindparam("owner")),
        threads.c.epoch == sa.bindparam("epoch"),
        threads.c.edits == sa.bindparam("old_edits"),
        threads.c.branch == sa.bindparam("message_branch"),
        threads.c.head == sa.bindparam("old_head"),
        threads.c.next_seq == sa.bindparam("message_seq_0"),
        newest.scalar_subquery() <= sa.bindparam("checkpoint_id"),
        _count_of(messages, ids) == sa.literal(0),
        _count_of(tombstones, ids) == sa.literal(0),
    ]
    if new_bodies:
        last = sa.select(sa.func.max(bodies.c.n)).where(
            bodies.c.thread == threads.c.key, bodies.c.space == sa.bindparam("body_space_0")
        )
        conditions.append(sa.func.coalesce(last.scalar_subquery(), sa.literal(0)) == sa.bindparam("last_body"))
    now = sa.bindparam("message_created_at", type_=sa.BigInteger)
    return (
        sa.update(threads)
        .where(*conditions)
        .values(
            next_seq=threads.c.next_seq + sa.literal(new_messages),
            head=threads.c.head + sa.literal(new_messages),
            texts=threads.c.texts + sa.bindparam("more_texts", type_=sa.BigInteger),
            updated_at=sa.case((threads.c.updated_at < now, now), else_=threads.c.updated_at),
        )
        .returning(*COLUMNS)
    )


_KEY: Final = sa.bindparam("thread", type_=sa.BigInteger)


def _put_checkpoint(insert: postgresql.Insert) -> sa.Insert:
    return insert.on_conflict_do_update(
        index_elements=["thread", "ns", "id"],
        set_={name: insert.excluded[name] for name in _CHECKPOINT if name not in ("ns", "id")},
    )


@cache
def _statements(new_messages: int, new_bodies: int) -> tuple[sa.ClauseElement, ...]:
    """Return the statements of a step, the first of which may find that it is none."""
    return (
        _thread_moves_on(new_messages, new_bodies),
        *(sa.insert(messages).values(thread=_KEY, **_message_columns(index)) for index in range(new_messages)),
        *(sa.insert(bodies).values(thread=_KEY, **_body_columns(index)) for index in range(new_bodies)),
        _put_checkpoint(postgresql.insert(checkpoints).values(thread=_KEY, **_checkpoint_columns())),
    )


@cache
def _statement(new_messages: int, new_bodies: int) -> sa.ClauseElement:
    """Return the whole step as one statement, which returns the thread's row, or none if it is no such step."""
    moved = _thread_moves_on(new_messages, new_bodies, _NOBODY_BETWEEN).cte("moved")

    def insert(table: sa.Table, columns: Mapping[str, sa.BindParameter[Any]]) -> postgresql.Insert:
        chosen = sa.select(moved.c.key, *(bound.label(name) for name, bound in columns.items()))
        return postgresql.insert(table).from_select(["thread", *columns], chosen)

    parts: list[sa.Insert] = [insert(messages, _message_columns(index)) for index in range(new_messages)]
    parts += [insert(bodies, _body_columns(index)) for index in range(new_bodies)]
    parts.append(_put_checkpoint(insert(checkpoints, _checkpoint_columns())))
    return sa.select(moved).add_cte(*(part.cte(f"part_{index}") for index, part in enumerate(parts)))


@in_every_turn
def statements_of_one_message(dialect: DialectName) -> Iterable[sa.ClauseElement]:
    """Return the statements of a step that brings one message."""
    return _statements(1, 1) if dialect == "sqlite" else (_statement(1, 1),)


def append(tx: Tx, op: PutCheckpoint, *, begin: bool = False) -> Put | None:
    """Write a step that is nothing but new messages at the end of the thread's line; None if it is not one.

    Args:
        tx: The transaction, or none yet.
        op: The put.
        begin: Whether there is no transaction yet, and each statement is a trip: one is begun only if it is needed.
    """
    plan, start = op.archive, op.start
    if plan is None or start is None or op.known is None or not _is_step(op, plan):
        return None
    numbers = tuple((body.space, body.expected) for body in op.bodies)
    provisional = plan.run != "final"
    head = start.head + len(plan.messages)
    place = Place(start.branch, head, start.head if op.base is None else min(op.base, head))
    params: dict[str, Any] = {
        "thread_id": op.address.thread_id,
        "owner": op.address.resource_id,
        "epoch": op.known[0],
        "old_edits": op.known[1],
        "old_head": start.head,
        "last_body": numbers[0][1] - 1 if numbers else 0,
        "more_texts": 0 if provisional else 1,
        "message_branch": start.branch,
        "message_revision": 1,
        "message_outside": 0,
        "message_created_at": tx.now,
        "checkpoint_ns": ROOT,
        "checkpoint_id": op.id,
        "checkpoint_parent": op.parent,
        "checkpoint_body": dump_skeleton(settle_skeleton(op.skeleton, numbers, ())),
        "checkpoint_metadata": op.metadata,
        "checkpoint_run": op.run,
        "checkpoint_hidden": 0,
        "checkpoint_branch": place.branch,
        "checkpoint_head": place.head,
        "checkpoint_base": place.base,
        "checkpoint_created_at": tx.now,
    }
    for index, message in enumerate(plan.messages):
        kind = REFUSED if provisional else message.kind
        metadata = dump_json(message.metadata) if message.metadata else None
        values = (start.head + 1 + index, message.id, message.role, kind, message.body, metadata, message.tokens)
        params.update((f"message_{name}_{index}", value) for name, value in zip(_OWN, values, strict=True))
    for index, body in enumerate(op.bodies):
        kept = (body.space, body.expected, body.id, body.form, body.body)
        params.update((f"body_{name}_{index}", value) for name, value in zip(_BODY, kept, strict=True))
    told = not provisional and on_messages_saved.has_work(op.features)
    row = _run(tx, (len(plan.messages), len(op.bodies)), params, begin=begin and told)
    if row is None:
        return None
    if told:
        on_messages_saved.fire(tx, ThreadRow(*row), _written(plan.messages, start, tx.now), op.features)
    return Put(op.known, numbers, (), place)


def _is_step(op: PutCheckpoint, plan: ArchivePlan) -> bool:
    """Tell whether a put may be such a step, as far as the plan knows."""
    if (
        op.address.ns
        or op.values
        or plan.removed
        or plan.accepted
        or plan.replaced
        or plan.demote
        or plan.own is not None
    ):
        return False
    if not 0 < len(plan.messages) <= FEW or len(op.bodies) > FEW:
        return False
    ids = {message.id for message in plan.messages}
    if len(ids) != len(plan.messages) or not brought_ids(op) <= ids:
        return False
    first = op.bodies[0] if op.bodies else None
    return first is None or all(
        (body.space, body.expected) == (first.space, first.expected + index) for index, body in enumerate(op.bodies)
    )


def _run(tx: Tx, size: tuple[int, int], params: dict[str, Any], *, begin: bool) -> Sequence[Any] | None:
    """Write the step and return the thread's row; None if nothing was written."""
    if tx.dialect == "postgresql":
        (rows,) = tx.all_of([(_statement(*size), params)], begin=begin)
        return rows[0] if rows else None
    moves_on, *inserts = _statements(*size)
    row = tx.first(moves_on, params)
    if row is not None:
        params["thread"] = row[0]
        tx.run_all([(statement, params) for statement in inserts])
    return row


def _written(new: Sequence[Archived], start: Place, now: int) -> list[WrittenRow]:
    return [
        WrittenRow(
            seq=start.head + 1 + index,
            branch=start.branch,
            id=message.id,
            role=message.role,
            kind=message.kind,
            message=message_of(message.id, message.body),
            metadata=message.metadata,
            tokens=message.tokens,
            revision=1,
            created_at=now,
            outside=False,
        )
        for index, message in enumerate(new)
    ]
