"""Copies of threads, made inside the database: no message body passes through Python."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles

from langchain_mastra_memory.errors import InvalidIdError
from langchain_mastra_memory.store.operations.threads import CopyThread, GetCloneHistory, ListClones
from langchain_mastra_memory.store.sql.cascade import CopiedRow, ThreadCopy, on_thread_copied
from langchain_mastra_memory.store.sql.lines import make_thread
from langchain_mastra_memory.store.sql.locking import COLUMNS, ThreadRow, find_thread, lock_thread, not_found
from langchain_mastra_memory.store.sql.positions import position_at
from langchain_mastra_memory.store.sql.registry import handles
from langchain_mastra_memory.store.sql.rows import MESSAGE_COLUMNS, stored_message
from langchain_mastra_memory.store.sql.schema import messages, threads
from langchain_mastra_memory.store.sql.threads import EVERYTHING, announce_thread, is_title
from langchain_mastra_memory.store.sql.tx import Tx, any_of
from langchain_mastra_memory.store.sql.values import dump_json, from_micros, load_json
from langchain_mastra_memory.store.sql.view import Path, ViewStatements, path_of
from langchain_mastra_memory.threads.lineage import clone_info, source_of
from langchain_mastra_memory.threads.merging import merged
from langchain_mastra_memory.types import ClonedThread, Thread

if TYPE_CHECKING:
    from sqlalchemy.sql.compiler import SQLCompiler


class _RandomId(sa.ColumnElement[str]):
    """A random UUID, made by the database anew for each row."""

    inherit_cache = True
    __visit_name__ = "random_id"
    type = sa.Text()


@compiles(_RandomId, "sqlite")
def _sqlite(_element: _RandomId, _compiler: SQLCompiler, **_kwargs: Any) -> str:
    parts = (
        "hex(randomblob(4))",
        "'-'",
        "hex(randomblob(2))",
        "'-4'",
        "substr(hex(randomblob(2)), 2)",
        "'-'",
        "substr('89ab', 1 + (random() & 3), 1)",
        "substr(hex(randomblob(2)), 2)",
        "'-'",
        "hex(randomblob(6))",
    )
    return f"lower({' || '.join(parts)})"


@compiles(_RandomId, "postgresql")
def _postgresql(_element: _RandomId, _compiler: SQLCompiler, **_kwargs: Any) -> str:
    return "gen_random_uuid()::text"


_of_source = messages.c.thread == sa.bindparam("source_key")
_whole = sa.or_(messages.c.kind.is_(None), messages.c.kind != sa.literal_column("'refused'"))
_NAMES: Final = tuple(column.name for column in messages.c)
_NEW: Final[dict[str, sa.ColumnElement[Any]]] = {
    "thread": sa.bindparam("target_key", type_=sa.BigInteger),
    "branch": sa.literal_column("0"),
    "id": _RandomId(),
    "revision": sa.literal_column("1"),
    "outside": sa.literal_column("1"),
}


def _copied(*, listed: bool) -> ViewStatements:
    """Return the statement that copies what is in view; `listed`: only the ids in a list."""
    listing = [any_of(messages.c.id, "ids")] if listed else []

    def build(in_view: sa.ColumnElement[bool]) -> sa.Insert:
        rows = (
            sa.select(*(_NEW.get(column.name, column) for column in messages.c))
            .where(
                _of_source,
                in_view,
                _whole,
                messages.c.created_at >= sa.bindparam("start_at", type_=sa.BigInteger),
                messages.c.created_at <= sa.bindparam("end_at", type_=sa.BigInteger),
                *listing,
            )
            .order_by(messages.c.seq.desc())
            .limit(sa.bindparam("size", type_=sa.BigInteger))
        )
        return sa.insert(messages).from_select(_NAMES, rows)

    return ViewStatements(build)


_COPY: Final = {listed: _copied(listed=listed) for listed in (False, True)}
# Two lists joined in Python: a planner without statistics joins a new thread to itself in quadratic time.
_SOURCES = ViewStatements(
    lambda in_view: sa.select(messages.c.seq, messages.c.branch, messages.c.id).where(_of_source, in_view)
)
_COPIES = (
    sa.select(messages.c.seq, messages.c.id)
    .where(messages.c.thread == sa.bindparam("target_key", type_=sa.BigInteger))
    .order_by(messages.c.seq)
)
_LAST = ViewStatements(
    lambda in_view: sa.select(messages.c.id).where(_of_source, in_view, _whole).order_by(messages.c.seq.desc()).limit(1)
)
_COUNT = ViewStatements(
    lambda in_view: sa.select(sa.func.count()).select_from(messages).where(_of_source, in_view, _whole)
)
_ALL_OF = (
    sa.select(*MESSAGE_COLUMNS)
    .where(messages.c.thread == sa.bindparam("target_key", type_=sa.BigInteger))
    .order_by(messages.c.seq)
)
# A clone says in its metadata what it was made of. The text is searched first: few threads mention this one.
_ESCAPE: Final = "/"
_CLONES = (
    sa.select(*COLUMNS)
    .where(threads.c.metadata.contains('"clone"'), threads.c.metadata.like(sa.bindparam("mention"), escape=_ESCAPE))
    .order_by(threads.c.created_at, threads.c.key)
)
_CLONES_OF_RESOURCE = _CLONES.where(threads.c.resource_id == sa.bindparam("owner"))


@handles(CopyThread)
def copy_thread(tx: Tx, op: CopyThread) -> ClonedThread:
    """Copy a thread, let the features copy what they keep for it, and return the new ids."""
    source = lock_thread(tx, op.source_thread_id, op.source_resource_id, touch=False)
    branch, head = position_at(tx, source, op.checkpoint_id)
    path = path_of(tx, source.key, branch, head)
    statement, params = _LAST(path)
    last_id = tx.value(statement, {"source_key": source.key, **params})
    metadata = merged(merged(load_json(source.metadata), op.metadata), {"clone": None})
    metadata["clone"] = clone_info(source.id, from_micros(tx.now), last_id)
    given = is_title(op.title)
    title = op.title if given else (f"Clone of {source.title}" if is_title(source.title) else None)
    titled_by = "person" if given else source.titled_by
    target = make_thread(
        tx,
        op.new_thread_id,
        resource_id=source.resource_id if op.resource_id is None else op.resource_id,
        title=title,
        titled_by=titled_by if title else None,
        metadata=dump_json(metadata),
        head=head,
        delegated=op.resource_id in (None, source.resource_id),
    )
    if target is None:
        raise InvalidIdError(f"there is a thread {op.new_thread_id[:80]!r} already; choose another new_thread_id")
    target = announce_thread(tx, target, metadata, op.features)
    rows = _copy_messages(tx, op, source, target, path)
    statement, params = _COUNT(path)
    whole = len(rows) == tx.value(statement, {"source_key": source.key, **params})
    stood = replace(source, branch=branch, head=head)
    on_thread_copied.fire(tx, ThreadCopy(source=stood, target=target, whole=whole, rows=rows, features=op.features))
    copied = find_thread(tx, target.id) or target  # a feature may have put something into its metadata
    bodies = tx.all(_ALL_OF, {"target_key": target.key}) if op.with_messages else []
    return ClonedThread(
        thread=copied.thread(),
        messages=tuple(stored_message(copied, row) for row in bodies),
        message_id_map={row.source_id: row.id for row in rows},
    )


def _copy_messages(tx: Tx, op: CopyThread, source: ThreadRow, target: ThreadRow, path: Path) -> list[CopiedRow]:
    """Copy the chosen messages; return where each came from."""
    both = {"source_key": source.key, "target_key": target.key}
    choice: dict[str, Any] = {
        "start_at": -EVERYTHING if op.start is None else op.start,
        "end_at": EVERYTHING if op.end is None else op.end,
        "size": EVERYTHING if op.message_limit is None else op.message_limit,
    }
    if op.message_ids is not None:
        choice["ids"] = list(op.message_ids)
    statement, params = _COPY[op.message_ids is not None](path)
    tx.run(statement, {**both, **choice, **params})
    statement, params = _SOURCES(path)
    sources = {seq: (branch, old) for seq, branch, old in tx.all(statement, {**both, **params})}
    return [CopiedRow(seq, *sources[seq], new) for seq, new in tx.all(_COPIES, both)]


@handles(ListClones)
def list_clones(tx: Tx, op: ListClones) -> list[Thread]:
    """Return the clones of a thread, whether it is still there or not."""
    mention = _mention(op.source_thread_id)
    if op.resource_id is None:
        rows = tx.all(_CLONES, {"mention": mention})
    else:
        source = find_thread(tx, op.source_thread_id)
        if source is not None and source.resource_id not in (None, op.resource_id):
            raise not_found(op.source_thread_id)
        rows = tx.all(_CLONES_OF_RESOURCE, {"owner": op.resource_id, "mention": mention})
    found = [ThreadRow(*row).thread() for row in rows]
    return [thread for thread in found if source_of(thread.metadata) == op.source_thread_id]


def _mention(thread_id: str) -> str:
    """Return the pattern of metadata with an id in it."""
    spelled = dump_json(thread_id)
    for sign in (_ESCAPE, "%", "_"):
        spelled = spelled.replace(sign, _ESCAPE + sign)
    return f"%{spelled}%"


@handles(GetCloneHistory)
def get_clone_history(tx: Tx, op: GetCloneHistory) -> list[Thread]:
    """Return a thread and its sources, the original first; a circle is walked once."""
    history: list[Thread] = []
    met: set[str] = set()
    wanted: str | None = op.thread_id
    while wanted is not None and wanted not in met:
        met.add(wanted)
        row = find_thread(tx, wanted)
        if row is None or (op.resource_id is not None and row.resource_id not in (None, op.resource_id)):
            if op.resource_id is not None and not history:
                raise not_found(op.thread_id)
            break
        thread = row.thread()
        history.append(thread)
        wanted = source_of(thread.metadata)
    return history[::-1]
