"""The operations on working-memory pages, and on the state signals that show them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from langchain_mastra_memory.errors import ThreadNotFoundError, ThreadOwnershipError
from langchain_mastra_memory.store.operations.pages import (
    NO_PAGE,
    GetPage,
    ListPages,
    ListSignals,
    PageOwner,
    SavedPage,
    SavePage,
    StoredPage,
    StoredSignal,
)
from langchain_mastra_memory.store.sql.lines import make_thread
from langchain_mastra_memory.store.sql.locking import find_thread, lock_thread, read_thread
from langchain_mastra_memory.store.sql.page_versions import (
    COLUMNS,
    OF_RESOURCE,
    OF_THREAD,
    PAGE_OF_THREAD,
    anchor_of,
    append_to_resource,
    append_to_thread,
    lock_resource,
    newest_of_resource,
    page_of,
    path_from,
    places_of,
    seen_at,
    version_of,
    visible,
)
from langchain_mastra_memory.store.sql.registry import handles
from langchain_mastra_memory.store.sql.rows import message_of
from langchain_mastra_memory.store.sql.schema import messages
from langchain_mastra_memory.store.sql.tables_pages import pages
from langchain_mastra_memory.store.sql.threads import announce_thread
from langchain_mastra_memory.store.sql.tx import Tx
from langchain_mastra_memory.store.sql.values import dump_json

_PAGE_OF_RESOURCE = sa.select(*COLUMNS).where(OF_RESOURCE, pages.c.version == sa.bindparam("wanted"))
_CALL_OF_RESOURCE = sa.select(pages.c.version).where(pages.c.call == sa.bindparam("asked_by"), OF_RESOURCE)
_CALL_OF_THREAD = sa.select(pages.c.version).where(pages.c.call == sa.bindparam("asked_by"), OF_THREAD)
_LIST_RESOURCE = sa.select(*COLUMNS).where(OF_RESOURCE).order_by(pages.c.version.desc()).limit(sa.bindparam("most"))
_LIST_THREAD = sa.select(*COLUMNS).where(OF_THREAD).order_by(pages.c.version.desc()).limit(sa.bindparam("most"))
_SIGNALS = (
    sa.select(messages.c.id, messages.c.body)
    .where(messages.c.thread == sa.bindparam("owner"), messages.c.kind == sa.literal_column("'signal'"))
    .order_by(messages.c.seq.desc())
    .limit(sa.bindparam("most", type_=sa.BigInteger))
)


@handles(GetPage)
def get_page(tx: Tx, op: GetPage) -> StoredPage:
    """Read the page that holds."""
    if op.owner.scope == "resource":
        resource_id = _resource(op.owner)
        page = (
            newest_of_resource(tx, resource_id)
            if op.version is None
            else version_of(tx, _PAGE_OF_RESOURCE, resource_id, op.version)
        )
        done = _applied(tx, _CALL_OF_RESOURCE, op.call, resource_id)
    else:
        try:
            thread = read_thread(tx, _thread(op.owner), op.owner.resource_id)
        except ThreadNotFoundError:
            return NO_PAGE
        page = (
            visible(tx, thread, op.where)
            if op.version is None
            else version_of(tx, PAGE_OF_THREAD, thread.key, op.version)
        )
        done = _applied(tx, _CALL_OF_THREAD, op.call, thread.key)
    return replace(page, applied=done) if done else page


@handles(SavePage)
def save_page(tx: Tx, op: SavePage) -> SavedPage:
    """Append a version, or say why not."""
    _make_thread(tx, op)
    if op.owner.scope == "resource":
        return _save_of_resource(tx, op)
    return _save_of_thread(tx, op)


@handles(ListPages)
def list_pages(tx: Tx, op: ListPages) -> list[StoredPage]:
    """Read the versions."""
    if op.owner.scope == "resource":
        rows = tx.all(_LIST_RESOURCE, {"owner": _resource(op.owner), "most": op.limit})
    else:
        thread = read_thread(tx, _thread(op.owner), op.owner.resource_id)
        rows = tx.all(_LIST_THREAD, {"owner": thread.key, "most": op.limit})
    return [page_of(row) for row in rows]


def _make_thread(tx: Tx, op: SavePage) -> None:
    new, thread_id = op.new_thread, op.owner.thread_id
    if new is None or thread_id is None or find_thread(tx, thread_id) is not None:
        return
    made = make_thread(
        tx,
        thread_id,
        resource_id=op.owner.resource_id,
        title=new.title,
        titled_by="run" if new.title else None,
        metadata=dump_json(dict(new.metadata)),
    )
    if made is not None:
        announce_thread(tx, made, new.metadata, new.features)


@handles(ListSignals)
def list_signals(tx: Tx, op: ListSignals) -> list[StoredSignal]:
    """Read the signals that stand before a message in view, whichever line they were written on."""
    try:
        thread = read_thread(tx, op.thread_id, op.resource_id)
    except ThreadNotFoundError:
        return []
    found: dict[str, tuple[str, bytes]] = {}
    for message_id, body in tx.all(_SIGNALS, {"owner": thread.key, "most": op.limit}):
        state, _, before = message_id.partition("@")
        if state == op.state and before:
            found.setdefault(before, (message_id, body))
    if not found:
        return []
    path = path_from(tx, thread, op.where)
    own = frozenset(op.where.ids)
    places = places_of(tx, thread.key, list(found))
    placed = {before: seq for before in found if (seq := seen_at(places.get(before, ()), path)) is not None}
    head = path[-1][1] if path else 0
    return [
        StoredSignal(message=message_of(message_id, body), before=before, distance=head - placed.get(before, head))
        for before, (message_id, body) in reversed(found.items())
        if before in placed or before in own
    ]


def _save_of_resource(tx: Tx, op: SavePage) -> SavedPage:
    resource_id = _resource(op.owner)
    if op.owner.thread_id is not None:
        thread = find_thread(tx, op.owner.thread_id)
        if thread is not None and thread.resource_id not in (None, resource_id):
            raise ThreadOwnershipError(f"the thread {op.owner.thread_id[:80]!r} belongs to another resource")
    lock_resource(tx, resource_id)
    now = newest_of_resource(tx, resource_id)
    done = _applied(tx, _CALL_OF_RESOURCE, op.call, resource_id)
    if done:
        return SavedPage(status="repeated", page=now, version=done)
    if _is_stale(op, now):
        return SavedPage(status="stale", page=now, version=0)
    page = append_to_resource(tx, resource_id, op.text, op.writer, call=op.call)
    return SavedPage(status="written", page=page, version=page.version)


def _save_of_thread(tx: Tx, op: SavePage) -> SavedPage:
    thread = lock_thread(tx, _thread(op.owner), op.owner.resource_id)
    now = visible(tx, thread, op.where)
    done = _applied(tx, _CALL_OF_THREAD, op.call, thread.key)
    if done:
        return SavedPage(status="repeated", page=now, version=done)
    if _is_stale(op, now):
        return SavedPage(status="stale", page=now, version=0)
    branch, seq = (None, None) if op.after_message is not None else anchor_of(tx, thread, op.where)
    page = append_to_thread(
        tx,
        thread,
        op.text,
        op.writer,
        branch=branch,
        seq=seq,
        message_id=op.after_message,
        stand_ins=op.stand_ins,
        call=op.call,
    )
    return SavedPage(status="written", page=page, version=page.version)


def _applied(tx: Tx, statement: sa.Select[Any], call: str | None, owner: str | int) -> int:
    return 0 if call is None else int(tx.value(statement, {"asked_by": call, "owner": owner}) or 0)


def _is_stale(op: SavePage, now: StoredPage) -> bool:
    if op.only_first:
        return now.text is not None
    return op.expected is not None and op.expected != now.version


def _resource(owner: PageOwner) -> str:
    if owner.resource_id is None:
        raise ValueError("a page of resource scope needs a resource_id")
    return owner.resource_id


def _thread(owner: PageOwner) -> str:
    if owner.thread_id is None:
        raise ValueError("a page of thread scope needs a thread_id")
    return owner.thread_id
