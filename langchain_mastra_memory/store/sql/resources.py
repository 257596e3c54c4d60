"""A resource as a whole: export, import, removal."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

import sqlalchemy as sa

from langchain_mastra_memory.codec import dump_message, load_message
from langchain_mastra_memory.errors import InvalidIdError, InvalidQueryError
from langchain_mastra_memory.ids import checked_id
from langchain_mastra_memory.shown import shown
from langchain_mastra_memory.store.operations.resources import DeleteResource, ExportResource, ImportResource
from langchain_mastra_memory.store.sql.bulk import BulkInsert
from langchain_mastra_memory.store.sql.cascade import (
    WrittenRow,
    on_messages_saved,
    on_resource_deleted,
    on_resource_exported,
    on_resource_imported,
)
from langchain_mastra_memory.store.sql.lines import make_thread, move_thread
from langchain_mastra_memory.store.sql.locking import COLUMNS, ThreadRow, lock_thread
from langchain_mastra_memory.store.sql.registry import handles
from langchain_mastra_memory.store.sql.rows import message_of
from langchain_mastra_memory.store.sql.schema import branches, messages, resources, threads, tombstones
from langchain_mastra_memory.store.sql.threads import remove_thread
from langchain_mastra_memory.store.sql.tx import Tx, insert_row, upsert
from langchain_mastra_memory.store.sql.values import dump_json, load_json
from langchain_mastra_memory.types import Deleted

FORMAT: Final = "langchain-mastra-memory/resource"
VERSION: Final = 1

_THREADS = sa.select(*COLUMNS).where(threads.c.resource_id == sa.bindparam("owner")).order_by(threads.c.key)
_MESSAGE_NAMES: Final = tuple(column.name for column in messages.c if column.name != "thread")
_MESSAGES = (
    sa.select(*(messages.c[name] for name in _MESSAGE_NAMES))
    .where(messages.c.thread == sa.bindparam("thread_key"))
    .order_by(messages.c.seq, messages.c.branch)
)
_BRANCHES = (
    sa.select(branches.c.branch, branches.c.path, branches.c.created_at)
    .where(branches.c.thread == sa.bindparam("thread_key"))
    .order_by(branches.c.branch)
)
_TOMBSTONES = (
    sa.select(tombstones.c.id, tombstones.c.created_at)
    .where(tombstones.c.thread == sa.bindparam("thread_key"))
    .order_by(tombstones.c.id)
)
_RESOURCE_NAMES: Final = ("metadata", "derived_from", "derived_agent", "version", "created_at", "updated_at")
_RESOURCE = sa.select(*(resources.c[name] for name in _RESOURCE_NAMES)).where(resources.c.id == sa.bindparam("owner"))
_PUT_MESSAGE = BulkInsert(messages, "thread", *_MESSAGE_NAMES)
_PUT_BRANCH = insert_row(branches, "thread", "branch", "path", "created_at")
_PUT_TOMBSTONE = insert_row(tombstones, "thread", "id", "created_at")
_PUT_RESOURCE = upsert(resources, ["id"], _RESOURCE_NAMES)
_DELETE_RESOURCE = sa.delete(resources).where(resources.c.id == sa.bindparam("owner"))


@handles(ExportResource)
def export_resource(tx: Tx, op: ExportResource) -> dict[str, Any]:
    """Return everything as JSON data."""
    owner = {"owner": op.resource_id}
    row = tx.first(_RESOURCE, owner)
    parts: dict[str, Any] = {}
    on_resource_exported.fire(tx, op.resource_id, parts)
    return {
        "format": FORMAT,
        "version": VERSION,
        "resource_id": op.resource_id,
        "exported_at": tx.now,
        "resource": None if row is None else dict(zip(_RESOURCE_NAMES, row, strict=True)),
        "threads": [_export_thread(tx, ThreadRow(*found)) for found in tx.all(_THREADS, owner)],
        "parts": parts,
    }


def _export_thread(tx: Tx, thread: ThreadRow) -> dict[str, Any]:
    key = {"thread_key": thread.key}
    return {
        "id": thread.id,
        "title": thread.title,
        "titled_by": thread.titled_by,
        "metadata": load_json(thread.metadata),
        "next_seq": thread.next_seq,
        "branch": thread.branch,
        "head": thread.head,
        "created_at": thread.created_at,
        "updated_at": thread.updated_at,
        "branches": [list(row) for row in tx.all(_BRANCHES, key)],
        "tombstones": [list(row) for row in tx.all(_TOMBSTONES, key)],
        "messages": [_export_message(row) for row in tx.all(_MESSAGES, key)],
    }


def _export_message(row: tuple[Any, ...]) -> dict[str, Any]:
    exported = dict(zip(_MESSAGE_NAMES, row, strict=True))
    message = message_of(exported["id"], exported["body"])
    exported["body"] = base64.b64encode(dump_message(message)).decode()
    exported["metadata"] = load_json(exported["metadata"])
    exported["text"] = message.text
    return exported


@handles(ImportResource)
def import_resource(tx: Tx, op: ImportResource) -> int:
    """Put everything back under an owner."""
    data = op.data
    if data.get("format") != FORMAT:
        raise InvalidQueryError(f"this is not what export_resource gives: format {shown(data.get('format'))}")
    if data.get("version") != VERSION:
        raise InvalidQueryError(
            f"the export has version {shown(data.get('version'), 20)}, this package reads {VERSION}: "
            "upgrade the package"
        )
    try:
        made = {exported["id"]: _import_thread(tx, op, exported) for exported in data["threads"]}
        if data["resource"] is not None:
            tx.run(_PUT_RESOURCE, {"id": op.resource_id, **{name: data["resource"][name] for name in _RESOURCE_NAMES}})
        on_resource_imported.fire(tx, op.resource_id, data["parts"], made)
    except InvalidIdError:
        raise
    except (KeyError, TypeError, IndexError, AttributeError, ValueError) as error:  # binascii.Error is a ValueError
        raise InvalidQueryError(f"the export is damaged: {type(error).__name__}: {error}") from error
    return len(made)


def _import_thread(tx: Tx, op: ImportResource, exported: Mapping[str, Any]) -> ThreadRow:
    thread_id = checked_id(exported["id"])
    thread = make_thread(
        tx,
        thread_id,
        resource_id=op.resource_id,
        title=exported["title"],
        titled_by=exported["titled_by"],
        metadata=dump_json(exported["metadata"]),
        created_at=int(exported["created_at"]),
        updated_at=int(exported["updated_at"]),
    )
    if thread is None:
        raise InvalidIdError(f"there is a thread {thread_id[:80]!r} already; delete it before you import it")
    key = thread.key
    tx.run_many(
        _PUT_BRANCH,
        [{"thread": key, "branch": b, "path": path, "created_at": at} for b, path, at in exported["branches"]],
    )
    tx.run_many(_PUT_TOMBSTONE, [{"thread": key, "id": i, "created_at": at} for i, at in exported["tombstones"]])
    rows = [_import_message(row) for row in exported["messages"]]
    _PUT_MESSAGE(tx, [{"thread": key, **row} for row, _ in rows])
    lock_thread(tx, thread.id, op.resource_id, texts=1, touch=False)
    thread = move_thread(
        tx, key, branch=int(exported["branch"]), head=int(exported["head"]), next_seq=int(exported["next_seq"])
    )
    if on_messages_saved and rows:
        on_messages_saved.fire(tx, thread, [written for _, written in rows], op.features)
    return thread


def _import_message(exported: Mapping[str, Any]) -> tuple[dict[str, Any], WrittenRow]:
    body = base64.b64decode(exported["body"], validate=True)
    row = {name: exported[name] for name in _MESSAGE_NAMES}
    row |= {name: int(exported[name]) for name in ("seq", "branch", "tokens", "revision", "created_at")}
    row["id"] = checked_id(exported["id"], "message id")
    row["body"] = body
    row["metadata"] = dump_json(exported["metadata"]) if exported["metadata"] else None
    row["outside"] = 1
    written = WrittenRow(
        seq=row["seq"],
        branch=row["branch"],
        id=row["id"],
        role=row["role"],
        kind=row["kind"],
        message=load_message(body),
        metadata=exported["metadata"],
        tokens=row["tokens"],
        revision=row["revision"],
        created_at=row["created_at"],
        outside=True,
    )
    return row, written


@handles(DeleteResource)
def delete_resource(tx: Tx, op: DeleteResource) -> Deleted:
    """Remove everything that a resource owns."""
    total = Deleted()
    owner = {"owner": op.resource_id}
    for row in tx.all(_THREADS, owner):
        locked = lock_thread(tx, ThreadRow(*row).id, op.resource_id, edits=1)
        gone = remove_thread(tx, locked)
        total = Deleted(
            threads=total.threads + gone.threads,
            messages=total.messages + gone.messages,
            checkpoints=total.checkpoints + gone.checkpoints,
        )
    on_resource_deleted.fire(tx, op.resource_id)
    tx.run(_DELETE_RESOURCE, owner)
    return total
