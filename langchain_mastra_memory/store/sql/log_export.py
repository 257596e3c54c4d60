"""The observation log in the export of a resource: its rows, what they cover, and every head, under new row ids."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, MutableMapping
from typing import Any, Final

import sqlalchemy as sa

from langchain_mastra_memory.ids import new_id
from langchain_mastra_memory.store.sql.cascade import on_resource_exported, on_resource_imported
from langchain_mastra_memory.store.sql.locking import ThreadRow
from langchain_mastra_memory.store.sql.log_cascade import new_row_id
from langchain_mastra_memory.store.sql.log_rows import find_log, resource_scope, thread_scope
from langchain_mastra_memory.store.sql.schema import threads
from langchain_mastra_memory.store.sql.tables_log import log_heads, log_rows, log_spans, logs
from langchain_mastra_memory.store.sql.tx import Tx, insert_row

PART: Final = "observations"
_ROW_NAMES: Final = tuple(c.name for c in log_rows.c if c.name != "log")
_HEAD_NAMES: Final = tuple(c.name for c in log_heads.c if c.name != "log")
_LOG_NAMES: Final = ("scope", "thread", "resource_id", "epoch", "version", "refused", "created_at")

_LOGS = (
    sa.select(logs.c.key, threads.c.id, logs.c.version, logs.c.refused, logs.c.created_at)
    .select_from(logs)
    .join(threads, threads.c.key == logs.c.thread, isouter=True)
    .where(sa.or_(logs.c.scope == sa.bindparam("scope"), threads.c.resource_id == sa.bindparam("owner")))
    .order_by(logs.c.key)
)
_ROWS = (
    sa.select(*(log_rows.c[name] for name in _ROW_NAMES))
    .where(log_rows.c.log == sa.bindparam("log_key"))
    .order_by(log_rows.c.created_at, log_rows.c.id)
)
_SPANS = (
    sa.select(log_spans.c.row_id, threads.c.id, log_spans.c.branch, log_spans.c.after_seq, log_spans.c.upto)
    .join(threads, threads.c.key == log_spans.c.thread)
    .join(log_rows, log_rows.c.id == log_spans.c.row_id)
    .where(log_rows.c.log == sa.bindparam("log_key"))
    .order_by(log_spans.c.row_id, log_spans.c.thread)
)
_HEADS = (
    sa.select(*(log_heads.c[name] for name in _HEAD_NAMES))
    .where(log_heads.c.log == sa.bindparam("log_key"))
    .order_by(log_heads.c.version)
)
_PUT_LOG = insert_row(logs, *_LOG_NAMES).returning(logs.c.key)
_PUT_ROW = insert_row(log_rows, "log", *_ROW_NAMES)
_PUT_SPAN = insert_row(log_spans, "row_id", "thread", "branch", "after_seq", "upto")
_PUT_HEAD = insert_row(log_heads, "log", *_HEAD_NAMES)


@on_resource_exported
def export_logs(tx: Tx, resource_id: str, parts: MutableMapping[str, Any]) -> None:
    """Add the logs of the resource and of its threads; what a model call cost is no memory and stays behind."""
    exported = []
    for key, thread_id, version, refused, created_at in tx.all(
        _LOGS, {"scope": resource_scope(resource_id), "owner": resource_id}
    ):
        log = {"log_key": key}
        rows = [dict(zip(_ROW_NAMES, row, strict=True)) for row in tx.all(_ROWS, log)]
        for row in rows:
            row["terms"] = None if row["terms"] is None else base64.b64encode(row["terms"]).decode()
        exported.append(
            {
                "thread_id": thread_id,
                "version": version,
                "refused": refused,
                "created_at": created_at,
                "rows": rows,
                "spans": [list(span) for span in tx.all(_SPANS, log)],
                "heads": [dict(zip(_HEAD_NAMES, head, strict=True)) for head in tx.all(_HEADS, log)],
            }
        )
    parts[PART] = exported


@on_resource_imported
def import_logs(tx: Tx, resource_id: str, parts: Mapping[str, Any], made: Mapping[str, ThreadRow]) -> None:
    """Put logs back under new row ids; a resource that has a log of its own keeps that one."""
    for log in parts.get(PART) or ():
        thread = None if log["thread_id"] is None else made[log["thread_id"]]
        scope = resource_scope(resource_id) if thread is None else thread_scope(thread.key)
        if find_log(tx, scope, lock=True) is not None:
            continue
        opened = {
            "scope": scope,
            "thread": None if thread is None else thread.key,
            "resource_id": resource_id if thread is None else None,
            "epoch": new_id(),
            **{name: log[name] for name in ("version", "refused", "created_at")},
        }
        _import_log(tx, log, int(tx.value(_PUT_LOG, opened)), made)


def _import_log(tx: Tx, log: Mapping[str, Any], key: int, made: Mapping[str, ThreadRow]) -> None:
    ids = {row["id"]: new_row_id() for row in log["rows"]}
    for row in log["rows"]:
        changed = {"log": key, "id": ids[row["id"]], "inputs": _renamed(row["inputs"], ids)}
        changed["origin"] = ids.get(row["origin"]) if row["origin"] is not None else None
        changed["terms"] = None if row["terms"] is None else base64.b64decode(row["terms"], validate=True)
        tx.run(_PUT_ROW, {**row, **changed})
    for row_id, thread_id, branch, after_seq, upto in log["spans"]:
        span = {"row_id": ids[row_id], "thread": made[thread_id].key, "branch": branch, "after_seq": after_seq}
        tx.run(_PUT_SPAN, {**span, "upto": upto})
    for head in log["heads"]:
        tx.run(_PUT_HEAD, {**head, "log": key, "names": _renamed(head["names"], ids)})


def _renamed(names: str, ids: Mapping[str, str]) -> str:
    """Return JSON text with new ids in the place of the old ones."""

    def rename(value: Any) -> Any:
        if isinstance(value, list):
            return [rename(item) for item in value]
        if isinstance(value, dict):
            return {key: rename(item) for key, item in value.items()}
        return ids.get(value, value) if isinstance(value, str) else value

    return json.dumps(rename(json.loads(names)))
