"""The lines of a thread: making its row, continuing or opening a branch, changing a message on one branch only.

Shared by everything that writes messages: `save_messages`, checkpoints, imports.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from langchain_mastra_memory.errors import ThreadOwnershipError
from langchain_mastra_memory.store.sql.locking import COLUMNS, ThreadRow, new_epoch
from langchain_mastra_memory.store.sql.schema import branches, messages, resources, threads
from langchain_mastra_memory.store.sql.tx import Tx, insert_row
from langchain_mastra_memory.store.sql.view import Path, in_path, path_of

_MAKE = (
    postgresql.insert(threads)
    .values({c.name: sa.bindparam(c.name, type_=c.type) for c in COLUMNS if c.name != "key"})
    .on_conflict_do_nothing(index_elements=["id"])
    .returning(*COLUMNS)
)
_MOVE = (
    sa.update(threads)
    .where(threads.c.key == sa.bindparam("thread_key"))
    .values(
        branch=sa.bindparam("new_branch", type_=sa.BigInteger),
        head=sa.bindparam("new_head", type_=sa.BigInteger),
        next_seq=sa.bindparam("new_next_seq", type_=sa.BigInteger),
    )
    .returning(*COLUMNS)
)
_LAST_SEQ = sa.select(sa.func.max(messages.c.seq)).where(
    messages.c.thread == sa.bindparam("thread_key"), messages.c.branch == sa.bindparam("branch_no")
)
_LAST_BRANCH = sa.select(sa.func.max(branches.c.branch)).where(branches.c.thread == sa.bindparam("thread_key"))
_BRANCHES = (
    sa.select(branches.c.branch, branches.c.path)
    .where(branches.c.thread == sa.bindparam("thread_key"))
    .order_by(branches.c.branch)
)
_OPEN = insert_row(branches, "thread", "branch", "path", "created_at")
_AT_SEQ = sa.select(messages.c.branch).where(
    messages.c.thread == sa.bindparam("thread_key"), messages.c.seq == sa.bindparam("at_seq")
)
_CONTENT = ("role", "kind", "body", "metadata", "tokens", "revision")
_CHANGE = (
    sa.update(messages)
    .where(
        messages.c.thread == sa.bindparam("thread_key"),
        messages.c.seq == sa.bindparam("at_seq"),
        messages.c.branch == sa.bindparam("branch_no"),
    )
    .values({name: sa.bindparam(f"new_{name}", type_=messages.c[name].type) for name in _CONTENT})
)
_MESSAGE_NAMES = tuple(column.name for column in messages.c)


def _copy_row(content: Mapping[str, sa.ColumnElement[Any]]) -> sa.Insert:
    columns = [content.get(column.name, column) for column in messages.c]
    source = sa.select(*columns).where(
        messages.c.thread == sa.bindparam("thread_key"),
        messages.c.seq == sa.bindparam("at_seq"),
        messages.c.branch == sa.bindparam("from_branch"),
    )
    return sa.insert(messages).from_select(_MESSAGE_NAMES, source)


_DERIVED_FROM = sa.select(resources.c.derived_from).where(resources.c.id == sa.bindparam("owner"))
_BRANCH_NO = {"branch": sa.bindparam("branch_no", type_=sa.BigInteger)}
_KEEP = _copy_row(_BRANCH_NO)
_OVERRIDE = _copy_row(
    _BRANCH_NO | {name: sa.bindparam(f"new_{name}", type_=messages.c[name].type) for name in _CONTENT}
)


def _refuse_derived(tx: Tx, resource_id: str) -> None:
    if tx.value(_DERIVED_FROM, {"owner": resource_id}) is not None:
        raise ThreadOwnershipError(
            f"resource {resource_id[:80]!r} is the memory of a sub-agent; only a delegation makes threads there"
        )


def make_thread(
    tx: Tx,
    thread_id: str,
    *,
    resource_id: str | None = None,
    title: str | None = None,
    titled_by: str | None = None,
    metadata: str = "{}",
    head: int = 0,
    created_at: int | None = None,
    updated_at: int | None = None,
    delegated: bool = False,
) -> ThreadRow | None:
    """Insert a thread's row and return it, or None if there is a thread of that id.

    Args:
        tx: A write transaction.
        thread_id: The id.
        resource_id: The owner; None for a thread that nobody has named yet.
        title: A line for people.
        titled_by: Who gave the title; None for an untitled thread.
        metadata: JSON text.
        head: The last seq of the messages that will be put in; the next one follows it. Seqs begin at 1.
        created_at: Microseconds; None means now.
        updated_at: Microseconds; None means `created_at`.
        delegated: Whether the owner may be a resource that was derived for a worker: only a delegation makes a thread
            there, or a user whose own id spells the same would share the worker's memory.

    Raises:
        ThreadOwnershipError: `resource_id` was derived for a worker.
    """
    if resource_id is not None and not delegated:
        _refuse_derived(tx, resource_id)
    created = tx.now if created_at is None else created_at
    row = tx.first(
        _MAKE,
        {
            "id": thread_id,
            "resource_id": resource_id,
            "title": title,
            "titled_by": titled_by,
            "metadata": metadata,
            "next_seq": head + 1,
            "branch": 0,
            "head": head,
            "epoch": new_epoch(),
            "texts": 0,
            "edits": 0,
            "created_at": created,
            "updated_at": created if updated_at is None else updated_at,
        },
    )
    return None if row is None else ThreadRow(*row)


def move_thread(tx: Tx, thread_key: int, *, branch: int, head: int, next_seq: int) -> ThreadRow:
    """Set where a thread stands and its next seq."""
    row = tx.first(_MOVE, {"thread_key": thread_key, "new_branch": branch, "new_head": head, "new_next_seq": next_seq})
    assert row is not None  # noqa: S101 - the caller holds its lock
    return ThreadRow(*row)


def line_after(tx: Tx, thread_key: int, branch: int, head: int) -> int:
    """Return the branch that a new message after the position (branch, head) is written on.

    It is the same branch while nothing stands behind `head` there, else a new one, opened here.
    """
    last = tx.value(_LAST_SEQ, {"thread_key": thread_key, "branch_no": branch})
    if last is None or last <= head:
        return branch
    return open_branch(tx, thread_key, path_of(tx, thread_key, branch, head))


def open_branch(tx: Tx, thread_key: int, ancestors: Path) -> int:
    """Open a branch that sees what `ancestors` sees, and return its number; nothing moves there by itself."""
    number = int(tx.value(_LAST_BRANCH, {"thread_key": thread_key}) or 0) + 1
    path = json.dumps(ancestors)
    tx.run(_OPEN, {"thread": thread_key, "branch": number, "path": path, "created_at": tx.now})
    return number


def all_paths(tx: Tx, thread_key: int, head: int) -> dict[int, Path]:
    """Return the path of every branch of a thread, each up to `head`."""
    paths: dict[int, Path] = {0: ((0, head),)}
    for branch, path in tx.all(_BRANCHES, {"thread_key": thread_key}):
        ancestors = ((int(b), int(cut)) for b, cut in json.loads(path))
        paths[branch] = (*ancestors, (branch, head))
    return paths


@dataclass(frozen=True, slots=True)
class Content:
    """What a message row is to hold."""

    role: str
    kind: str | None
    body: bytes
    metadata: str | None
    tokens: int
    revision: int


def change_message(tx: Tx, thread: ThreadRow, branch: int, row: tuple[int, int], content: Content) -> list[int]:
    """Change a message for the line `branch` only.

    Its row is changed in place if it is on `branch`, else overridden there. Every other branch that would see the
    change gets the old row as an override of its own first.

    Args:
        tx: A write transaction.
        thread: The locked thread.
        branch: The line that the change is for.
        row: (seq, branch) of the row that `branch` sees now.
        content: What it sees afterwards.

    Returns:
        The branches that got the old row as an override.
    """
    seq, from_branch = row
    kept: list[int] = []
    paths = all_paths(tx, thread.key, thread.next_seq)
    if len(paths) > 1:
        there = {b for (b,) in tx.all(_AT_SEQ, {"thread_key": thread.key, "at_seq": seq})}
        for other, path in paths.items():
            seen = max((b for b in there if in_path(path, b, seq)), default=None)
            if other != branch and seen == from_branch and in_path(path, branch, seq):
                tx.run(
                    _KEEP,
                    {"thread_key": thread.key, "at_seq": seq, "from_branch": from_branch, "branch_no": other},
                )
                kept.append(other)
    params: dict[str, Any] = {f"new_{name}": getattr(content, name) for name in _CONTENT}
    params |= {"thread_key": thread.key, "at_seq": seq, "branch_no": branch}
    if from_branch == branch:
        tx.run(_CHANGE, params)
    else:
        tx.run(_OVERRIDE, {**params, "from_branch": from_branch})
    return kept
