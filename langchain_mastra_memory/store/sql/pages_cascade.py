"""What pages do when threads and resources are made, changed, copied, moved and removed."""

from __future__ import annotations

import logging
from collections.abc import Mapping, MutableMapping, Sequence
from types import NoneType
from typing import Any, Final

import sqlalchemy as sa

from langchain_mastra_memory.store.operations.pages import (
    Where,
)
from langchain_mastra_memory.store.sql.cascade import (
    Features,
    RemovedRow,
    ThreadCopy,
    on_messages_deleted,
    on_resource_deleted,
    on_resource_exported,
    on_resource_imported,
    on_thread_cleared,
    on_thread_copied,
    on_thread_created,
    on_thread_deleted,
    on_thread_updated,
)
from langchain_mastra_memory.store.sql.locking import ThreadRow, read_thread
from langchain_mastra_memory.store.sql.page_versions import (
    LAST_OF_THREAD,
    OF_RESOURCE,
    OF_THREAD,
    anchor_of,
    append_to_resource,
    append_to_thread,
    lock_resource,
    newest_of_resource,
    visible,
)
from langchain_mastra_memory.store.sql.schema import threads
from langchain_mastra_memory.store.sql.tables_pages import pages
from langchain_mastra_memory.store.sql.tx import Tx

_log = logging.getLogger("langchain_mastra_memory.working_memory")

METADATA_KEY: Final = "working_memory"
"""The key of a thread's metadata that sets its page; the page is taken out of the metadata."""
RESOURCE_FEATURE: Final = "working_memory:resource"
THREAD_FEATURE: Final = "working_memory:thread"

_DELETE_RESOURCE = sa.delete(pages).where(OF_RESOURCE)
_DELETE_THREAD = sa.delete(pages).where(OF_THREAD)
_CLEAR = sa.delete(pages).where(OF_THREAD, sa.or_(pages.c.message_id.is_not(None), pages.c.seq.is_not(None)))
_PIN = (
    sa.update(pages)
    .where(OF_THREAD, pages.c.message_id == sa.bindparam("gone"), pages.c.seq.is_(None))
    .values(branch=sa.bindparam("at_branch", type_=sa.BigInteger), seq=sa.bindparam("at_seq", type_=sa.BigInteger))
)
_KEPT_IN_COPY: Final = tuple(column.name for column in pages.c if column.name not in {"key", "thread"})
_COPY_VERSIONS = sa.insert(pages).from_select(
    ["thread", *_KEPT_IN_COPY],
    sa.select(
        sa.bindparam("target", type_=sa.BigInteger).label("thread"), *(pages.c[name] for name in _KEPT_IN_COPY)
    ).where(OF_THREAD),
)
_THREADS_WITH_PAGES = sa.select(threads.c.id).where(
    threads.c.resource_id == sa.bindparam("owner"),
    sa.exists().where(pages.c.thread == threads.c.key),
)
_HAS_ANCHORED = sa.select(pages.c.key).where(OF_THREAD, pages.c.message_id.is_not(None)).limit(1)


@on_thread_created
def take_first_page(tx: Tx, thread: ThreadRow, metadata: MutableMapping[str, Any], features: Features) -> None:
    """Take a new thread's page out of its metadata; a resource keeps the page that it has."""
    scope = _scope(features)
    if scope is None or not _has_page(metadata):
        return
    text = metadata.pop(METADATA_KEY)
    if text is None:
        return
    if scope == "thread":
        append_to_thread(tx, thread, text, "metadata")
    elif thread.resource_id is not None:
        lock_resource(tx, thread.resource_id)
        now = newest_of_resource(tx, thread.resource_id)
        if now.text is not None:
            _log.warning(
                "the page in the metadata of the new thread %r was not taken: its resource has one already; "
                "update_working_memory changes it",
                thread.id,
            )
            return
        append_to_resource(tx, thread.resource_id, text, "metadata")


@on_thread_updated
def take_page(tx: Tx, thread: ThreadRow, patch: MutableMapping[str, Any], features: Features) -> None:
    """Take a page out of a thread's new metadata; None erases it."""
    scope = _scope(features)
    if scope is None or not _has_page(patch):
        return
    text = patch.pop(METADATA_KEY)
    if scope == "thread":
        branch, seq = anchor_of(tx, thread, Where())
        append_to_thread(tx, thread, text, "metadata", branch=branch, seq=seq)
    elif thread.resource_id is not None:
        lock_resource(tx, thread.resource_id)
        append_to_resource(tx, thread.resource_id, text, "metadata")


def _has_page(metadata: Mapping[str, Any]) -> bool:
    """Tell whether metadata has a page in its stored form; what is no text is the application's own."""
    return METADATA_KEY in metadata and isinstance(metadata[METADATA_KEY], (str, NoneType))


def _scope(features: Features) -> str | None:
    if THREAD_FEATURE in features:
        return "thread"
    return "resource" if RESOURCE_FEATURE in features else None


@on_messages_deleted
def keep_place(tx: Tx, thread: ThreadRow, rows: Sequence[RemovedRow]) -> None:
    """Remember where a message was that a page holds after: deleting a message rewinds nothing."""
    if tx.first(_HAS_ANCHORED, {"owner": thread.key}) is not None:
        tx.run_many(
            _PIN,
            [{"owner": thread.key, "gone": row.id, "at_branch": row.branch, "at_seq": row.seq} for row in rows],
        )


@on_thread_cleared
def clear_pages(tx: Tx, thread: ThreadRow) -> None:
    """Remove what the conversation wrote; a page from before the first message stays."""
    tx.run(_CLEAR, {"owner": thread.key})


@on_thread_deleted
def delete_pages(tx: Tx, thread: ThreadRow) -> None:
    """Remove the thread's pages; its resource's page stays."""
    tx.run(_DELETE_THREAD, {"owner": thread.key})


@on_thread_copied
def copy_page(tx: Tx, copy: ThreadCopy) -> None:
    """Give a copy the page as it was where it was copied; a resource's page goes to another owner that has none."""
    scope = _scope(copy.features)
    source, target = copy.source, copy.target
    if scope == "thread" and tx.value(LAST_OF_THREAD, {"owner": target.key}) is None:
        if copy.rows and all(row.id == row.source_id for row in copy.rows):  # every line, under the same ids
            tx.run(_COPY_VERSIONS, {"owner": source.key, "target": target.key})
            return
        upto = source.head if copy.whole or not copy.rows else max(row.seq for row in copy.rows)
        page = visible(tx, source, Where(position=(source.branch, upto)))
        if page.text is not None:
            append_to_thread(tx, target, page.text, "clone")
    elif scope == "resource" and source.resource_id and target.resource_id not in (None, source.resource_id):
        page = newest_of_resource(tx, source.resource_id)
        if page.text is not None and target.resource_id is not None:
            lock_resource(tx, target.resource_id)
            if newest_of_resource(tx, target.resource_id).text is None:
                append_to_resource(tx, target.resource_id, page.text, "clone")


@on_resource_deleted
def delete_resource_pages(tx: Tx, resource_id: str) -> None:
    """Remove the resource's pages."""
    tx.run(_DELETE_RESOURCE, {"owner": resource_id})


@on_resource_exported
def export_page(tx: Tx, resource_id: str, parts: MutableMapping[str, Any]) -> None:
    """Add the resource's page, and the page of each of its threads as it stands."""
    resource_page = newest_of_resource(tx, resource_id)
    threads: dict[str, str] = {}
    for (thread_id,) in tx.all(_THREADS_WITH_PAGES, {"owner": resource_id}):
        thread = read_thread(tx, thread_id, resource_id)
        page = visible(tx, thread, Where())
        if page.text is not None:
            threads[thread_id] = page.text
    parts["working_memory"] = {"page": resource_page.text, "threads": threads}


@on_resource_imported
def import_page(tx: Tx, resource_id: str, parts: Mapping[str, Any], threads: Mapping[str, ThreadRow]) -> None:
    """Put pages back; a resource that has a page keeps it."""
    given = parts.get("working_memory") or {}
    if given.get("page") is not None:
        lock_resource(tx, resource_id)
        if newest_of_resource(tx, resource_id).text is None:
            append_to_resource(tx, resource_id, given["page"], "import")
    for thread_id, text in (given.get("threads") or {}).items():
        if thread_id in threads:
            append_to_thread(tx, threads[thread_id], text, "import")
