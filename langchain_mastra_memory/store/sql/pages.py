"""Working-memory pages in SQL: append-only versions, and which of them holds where.

A page of resource scope is the newest version of the resource. A page of thread scope is the newest version whose
message is on the path of the position that is looked from: `message_id` (a tool's answer, archived after the page was
written) or `(branch, seq)`. A version with neither holds from the beginning of the thread. So a fork, a replay or an
earlier checkpoint sees the page as it was there, by the same rule that shows it the messages.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import replace
from types import NoneType
from typing import Any, Final, NamedTuple, cast

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
    Where,
    Writer,
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
from langchain_mastra_memory.store.sql.lines import make_thread
from langchain_mastra_memory.store.sql.locking import ThreadRow, find_thread, lock_thread, read_thread
from langchain_mastra_memory.store.sql.positions import position_at
from langchain_mastra_memory.store.sql.registry import handles
from langchain_mastra_memory.store.sql.rows import message_of
from langchain_mastra_memory.store.sql.runs import position_of
from langchain_mastra_memory.store.sql.schema import messages, resources, threads
from langchain_mastra_memory.store.sql.tables_pages import pages
from langchain_mastra_memory.store.sql.threads import announce_thread
from langchain_mastra_memory.store.sql.tx import Tx, any_of, insert_row
from langchain_mastra_memory.store.sql.values import dump_json
from langchain_mastra_memory.store.sql.view import Path, in_path, path_of

_log = logging.getLogger("langchain_mastra_memory.working_memory")

KEPT_VERSIONS: Final = 100
"""How many versions of a resource's page are kept. Only the newest is ever read; the others are history, and know which
calls were applied. A thread's versions all stay, since a fork can come back to any of them."""
METADATA_KEY: Final = "working_memory"
"""The key of a thread's metadata that sets its page; the page is taken out of the metadata."""
RESOURCE_FEATURE: Final = "working_memory:resource"
THREAD_FEATURE: Final = "working_memory:thread"

_COLUMNS: Final = (pages.c.version, pages.c.page, pages.c.created_at, pages.c.writer)
_OF_RESOURCE = pages.c.resource_id == sa.bindparam("owner")
_OF_THREAD = pages.c.thread == sa.bindparam("owner")

_NEWEST_OF_RESOURCE = sa.select(*_COLUMNS).where(_OF_RESOURCE).order_by(pages.c.version.desc()).limit(1)
_PAGE_OF_THREAD = sa.select(*_COLUMNS).where(_OF_THREAD, pages.c.version == sa.bindparam("wanted"))
_PAGE_OF_RESOURCE = sa.select(*_COLUMNS).where(_OF_RESOURCE, pages.c.version == sa.bindparam("wanted"))
_ANCHORS = (
    sa.select(pages.c.version, pages.c.branch, pages.c.seq, pages.c.message_id, pages.c.stand_ins)
    .where(_OF_THREAD, pages.c.version < sa.bindparam("below"))
    .order_by(pages.c.version.desc())
    .limit(32)
)
_MESSAGES_OF = sa.select(messages.c.id, messages.c.branch, messages.c.seq).where(
    messages.c.thread == sa.bindparam("thread_key"), any_of(messages.c.id, "ids")
)
_CALL_OF_RESOURCE = sa.select(pages.c.version).where(pages.c.call == sa.bindparam("asked_by"), _OF_RESOURCE)
_CALL_OF_THREAD = sa.select(pages.c.version).where(pages.c.call == sa.bindparam("asked_by"), _OF_THREAD)
_LAST_OF_RESOURCE = sa.select(sa.func.max(pages.c.version)).where(_OF_RESOURCE)
_LAST_OF_THREAD = sa.select(sa.func.max(pages.c.version)).where(_OF_THREAD)
_INSERT = insert_row(
    pages,
    "resource_id",
    "thread",
    "version",
    "page",
    "writer",
    "call",
    "branch",
    "seq",
    "message_id",
    "stand_ins",
    "created_at",
)
_ERASE_RESOURCE = sa.update(pages).where(_OF_RESOURCE).values(page=sa.null())
_ERASE_THREAD = sa.update(pages).where(_OF_THREAD).values(page=sa.null())
_TRIM = sa.delete(pages).where(_OF_RESOURCE, pages.c.version <= sa.bindparam("last_dropped"))
_LIST_RESOURCE = sa.select(*_COLUMNS).where(_OF_RESOURCE).order_by(pages.c.version.desc()).limit(sa.bindparam("most"))
_LIST_THREAD = sa.select(*_COLUMNS).where(_OF_THREAD).order_by(pages.c.version.desc()).limit(sa.bindparam("most"))
_DELETE_RESOURCE = sa.delete(pages).where(_OF_RESOURCE)
_DELETE_THREAD = sa.delete(pages).where(_OF_THREAD)
_CLEAR = sa.delete(pages).where(_OF_THREAD, sa.or_(pages.c.message_id.is_not(None), pages.c.seq.is_not(None)))
_PIN = (
    sa.update(pages)
    .where(_OF_THREAD, pages.c.message_id == sa.bindparam("gone"), pages.c.seq.is_(None))
    .values(branch=sa.bindparam("at_branch", type_=sa.BigInteger), seq=sa.bindparam("at_seq", type_=sa.BigInteger))
)
_KEPT_IN_COPY: Final = tuple(column.name for column in pages.c if column.name not in {"key", "thread"})
_COPY_VERSIONS = sa.insert(pages).from_select(
    ["thread", *_KEPT_IN_COPY],
    sa.select(
        sa.bindparam("target", type_=sa.BigInteger).label("thread"), *(pages.c[name] for name in _KEPT_IN_COPY)
    ).where(_OF_THREAD),
)
_THREADS_WITH_PAGES = sa.select(threads.c.id).where(
    threads.c.resource_id == sa.bindparam("owner"),
    sa.exists().where(pages.c.thread == threads.c.key),
)
_SIGNALS = (
    sa.select(messages.c.id, messages.c.body)
    .where(messages.c.thread == sa.bindparam("owner"), messages.c.kind == sa.literal_column("'signal'"))
    .order_by(messages.c.seq.desc())
    .limit(sa.bindparam("most", type_=sa.BigInteger))
)
_HAS_ANCHORED = sa.select(pages.c.key).where(_OF_THREAD, pages.c.message_id.is_not(None)).limit(1)


def _lock_resource_statement() -> sa.Insert:
    from sqlalchemy.dialects.postgresql import insert  # noqa: PLC0415 - SQLite reads the same SQL

    names = ("id", "metadata", "version", "created_at", "updated_at")
    made = insert(resources).values({name: sa.bindparam(name, type_=resources.c[name].type) for name in names})
    return made.on_conflict_do_update(
        index_elements=["id"],
        set_={"version": resources.c.version + 1, "updated_at": made.excluded.updated_at},
    )


_LOCK_RESOURCE = _lock_resource_statement()


def lock_resource(tx: Tx, resource_id: str) -> None:
    """Make the resource if it is missing, and hold its row until the transaction ends: its writers come one by one."""
    tx.run(
        _LOCK_RESOURCE,
        {"id": resource_id, "metadata": "{}", "version": 1, "created_at": tx.now, "updated_at": tx.now},
    )


@handles(GetPage)
def get_page(tx: Tx, op: GetPage) -> StoredPage:
    """Read the page that holds."""
    if op.owner.scope == "resource":
        resource_id = _resource(op.owner)
        page = (
            _newest_of_resource(tx, resource_id)
            if op.version is None
            else _version(tx, _PAGE_OF_RESOURCE, resource_id, op.version)
        )
        done = _applied(tx, _CALL_OF_RESOURCE, op.call, resource_id)
    else:
        try:
            thread = read_thread(tx, _thread(op.owner), op.owner.resource_id)
        except ThreadNotFoundError:
            return NO_PAGE
        page = (
            _visible(tx, thread, op.where)
            if op.version is None
            else _version(tx, _PAGE_OF_THREAD, thread.key, op.version)
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
    return [_page(row) for row in rows]


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
    path = _path(tx, thread, op.where)
    own = frozenset(op.where.ids)
    places = _places(tx, thread.key, list(found))
    placed = {before: seq for before in found if (seq := _seen(places.get(before, ()), path)) is not None}
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
    now = _newest_of_resource(tx, resource_id)
    done = _applied(tx, _CALL_OF_RESOURCE, op.call, resource_id)
    if done:
        return SavedPage(status="repeated", page=now, version=done)
    if _is_stale(op, now):
        return SavedPage(status="stale", page=now, version=0)
    version = int(tx.value(_LAST_OF_RESOURCE, {"owner": resource_id}) or 0) + 1
    if op.text is None:
        tx.run(_ERASE_RESOURCE, {"owner": resource_id})
    page = _append(tx, version, op.text, op.writer, resource_id=resource_id, call=op.call)
    tx.run(_TRIM, {"owner": resource_id, "last_dropped": version - KEPT_VERSIONS})
    return SavedPage(status="written", page=page, version=version)


def _save_of_thread(tx: Tx, op: SavePage) -> SavedPage:
    thread = lock_thread(tx, _thread(op.owner), op.owner.resource_id)
    now = _visible(tx, thread, op.where)
    done = _applied(tx, _CALL_OF_THREAD, op.call, thread.key)
    if done:
        return SavedPage(status="repeated", page=now, version=done)
    if _is_stale(op, now):
        return SavedPage(status="stale", page=now, version=0)
    branch, seq = (None, None) if op.after_message is not None else _anchor(tx, thread, op.where)
    page = _append_to_thread(
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


def _append_to_thread(
    tx: Tx,
    thread: ThreadRow,
    text: str | None,
    writer: Writer,
    *,
    branch: int | None = None,
    seq: int | None = None,
    message_id: str | None = None,
    stand_ins: tuple[str, ...] = (),
    call: str | None = None,
) -> StoredPage:
    version = int(tx.value(_LAST_OF_THREAD, {"owner": thread.key}) or 0) + 1
    if text is None:
        tx.run(_ERASE_THREAD, {"owner": thread.key})
    return _append(
        tx,
        version,
        text,
        writer,
        thread=thread.key,
        branch=branch,
        seq=seq,
        message_id=message_id,
        stand_ins=stand_ins,
        call=call,
    )


def _append(
    tx: Tx,
    version: int,
    text: str | None,
    writer: Writer,
    *,
    resource_id: str | None = None,
    thread: int | None = None,
    branch: int | None = None,
    seq: int | None = None,
    message_id: str | None = None,
    stand_ins: tuple[str, ...] = (),
    call: str | None = None,
) -> StoredPage:
    tx.run(
        _INSERT,
        {
            "resource_id": resource_id,
            "thread": thread,
            "version": version,
            "page": text,
            "writer": writer,
            "call": call,
            "branch": branch,
            "seq": seq,
            "message_id": message_id,
            "stand_ins": json.dumps(stand_ins, ensure_ascii=False) if stand_ins else None,
            "created_at": tx.now,
        },
    )
    return StoredPage(version=version, text=text, created_at=tx.now, writer=writer)


def _newest_of_resource(tx: Tx, resource_id: str) -> StoredPage:
    row = tx.first(_NEWEST_OF_RESOURCE, {"owner": resource_id})
    return NO_PAGE if row is None else _page(row)


def _visible(tx: Tx, thread: ThreadRow, where: Where) -> StoredPage:
    """Return the newest version that holds from there."""
    path = _path(tx, thread, where)
    for batch in _anchors(tx, thread.key):
        anchors = [_Anchor(row[1], row[2], row[3], tuple(json.loads(row[4])) if row[4] else ()) for row in batch]
        wanted = {known for anchor in anchors for known in (anchor.message_id, *anchor.stand_ins) if known}
        places = _places(tx, thread.key, sorted(wanted.difference(where.ids)))
        for row, anchor in zip(batch, anchors, strict=True):
            if _holds(anchor, path, places, where.ids):
                return _version(tx, _PAGE_OF_THREAD, thread.key, row[0])
    return NO_PAGE


class _Anchor(NamedTuple):
    """After what a version holds."""

    branch: int | None
    seq: int | None
    message_id: str | None
    stand_ins: tuple[str, ...]


def _holds(anchor: _Anchor, path: Path, places: Mapping[str, Sequence[tuple[int, int]]], own: tuple[str, ...]) -> bool:
    """Tell whether a version holds at the end of a path and of a run's own messages behind it."""
    if anchor.branch is not None and anchor.seq is not None and in_path(path, anchor.branch, anchor.seq):
        return True
    if anchor.message_id is None:
        return anchor.seq is None
    if anchor.message_id in own or _seen(places.get(anchor.message_id, ()), path) is not None:
        return True
    if anchor.message_id in places or anchor.seq is not None:  # archived, but not on this line
        return False
    for message_id in anchor.stand_ins:
        if message_id in own:
            return message_id != own[-1]
        if message_id in places:
            seen = _seen(places[message_id], path)
            return seen is not None and (path[-1][1] > seen or bool(own))
    return False


def _seen(rows: Sequence[tuple[int, int]], path: Path) -> int | None:
    """Return the seq of a message on the path, or None."""
    return next((seq for branch, seq in rows if in_path(path, branch, seq)), None)


def _version(tx: Tx, statement: sa.Select[Any], owner: str | int, version: int) -> StoredPage:
    row = tx.first(statement, {"owner": owner, "wanted": version})
    return NO_PAGE if row is None else _page(row)


def _anchors(tx: Tx, thread_key: int) -> Iterator[list[tuple[Any, ...]]]:
    below = 2**62
    while rows := tx.all(_ANCHORS, {"owner": thread_key, "below": below}):
        yield rows
        below = rows[-1][0]


def _places(tx: Tx, thread_key: int, ids: Sequence[str]) -> dict[str, list[tuple[int, int]]]:
    """Return (branch, seq) of every row of these messages, on whatever line."""
    places: dict[str, list[tuple[int, int]]] = {}
    if ids:
        for message_id, branch, seq in tx.all(_MESSAGES_OF, {"thread_key": thread_key, "ids": list(ids)}):
            places.setdefault(message_id, []).append((int(branch), int(seq)))
    return places


def _path(tx: Tx, thread: ThreadRow, where: Where) -> Path:
    position: tuple[int, int] | None
    if where.position is not None:
        position = where.position
    elif where.from_state:
        position = position_of(tx, thread, where.ids)
    else:
        position = position_at(tx, thread, where.checkpoint_id)
    return () if position is None else path_of(tx, thread.key, *position)


def _anchor(tx: Tx, thread: ThreadRow, where: Where) -> tuple[int | None, int | None]:
    path = _path(tx, thread, where)
    if not path or path[-1][1] == 0:  # before the first message: it holds from the beginning
        return None, None
    return path[-1]


def _page(row: Sequence[Any]) -> StoredPage:
    version, text, created_at, writer = row
    return StoredPage(version=version, text=text, created_at=created_at, writer=cast("Writer", writer))


def _resource(owner: PageOwner) -> str:
    if owner.resource_id is None:
        raise ValueError("a page of resource scope needs a resource_id")
    return owner.resource_id


def _thread(owner: PageOwner) -> str:
    if owner.thread_id is None:
        raise ValueError("a page of thread scope needs a thread_id")
    return owner.thread_id


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
        _append_to_thread(tx, thread, text, "metadata")
    elif thread.resource_id is not None:
        lock_resource(tx, thread.resource_id)
        now = _newest_of_resource(tx, thread.resource_id)
        if now.text is not None:
            _log.warning(
                "the page in the metadata of the new thread %r was not taken: its resource has one already; "
                "update_working_memory changes it",
                thread.id,
            )
            return
        _append_to_resource(tx, thread.resource_id, text, "metadata")


@on_thread_updated
def take_page(tx: Tx, thread: ThreadRow, patch: MutableMapping[str, Any], features: Features) -> None:
    """Take a page out of a thread's new metadata; None erases it."""
    scope = _scope(features)
    if scope is None or not _has_page(patch):
        return
    text = patch.pop(METADATA_KEY)
    if scope == "thread":
        branch, seq = _anchor(tx, thread, Where())
        _append_to_thread(tx, thread, text, "metadata", branch=branch, seq=seq)
    elif thread.resource_id is not None:
        lock_resource(tx, thread.resource_id)
        _append_to_resource(tx, thread.resource_id, text, "metadata")


def _append_to_resource(tx: Tx, resource_id: str, text: str | None, writer: Writer) -> None:
    version = int(tx.value(_LAST_OF_RESOURCE, {"owner": resource_id}) or 0) + 1
    if text is None:
        tx.run(_ERASE_RESOURCE, {"owner": resource_id})
    _append(tx, version, text, writer, resource_id=resource_id)
    tx.run(_TRIM, {"owner": resource_id, "last_dropped": version - KEPT_VERSIONS})


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
    if scope == "thread" and tx.value(_LAST_OF_THREAD, {"owner": target.key}) is None:
        if copy.rows and all(row.id == row.source_id for row in copy.rows):  # every line, under the same ids
            tx.run(_COPY_VERSIONS, {"owner": source.key, "target": target.key})
            return
        upto = source.head if copy.whole or not copy.rows else max(row.seq for row in copy.rows)
        page = _visible(tx, source, Where(position=(source.branch, upto)))
        if page.text is not None:
            _append_to_thread(tx, target, page.text, "clone")
    elif scope == "resource" and source.resource_id and target.resource_id not in (None, source.resource_id):
        page = _newest_of_resource(tx, source.resource_id)
        if page.text is not None and target.resource_id is not None:
            lock_resource(tx, target.resource_id)
            if _newest_of_resource(tx, target.resource_id).text is None:
                _append_to_resource(tx, target.resource_id, page.text, "clone")


@on_resource_deleted
def delete_resource_pages(tx: Tx, resource_id: str) -> None:
    """Remove the resource's pages."""
    tx.run(_DELETE_RESOURCE, {"owner": resource_id})


@on_resource_exported
def export_page(tx: Tx, resource_id: str, parts: MutableMapping[str, Any]) -> None:
    """Add the resource's page, and the page of each of its threads as it stands."""
    resource_page = _newest_of_resource(tx, resource_id)
    threads: dict[str, str] = {}
    for (thread_id,) in tx.all(_THREADS_WITH_PAGES, {"owner": resource_id}):
        thread = read_thread(tx, thread_id, resource_id)
        page = _visible(tx, thread, Where())
        if page.text is not None:
            threads[thread_id] = page.text
    parts["working_memory"] = {"page": resource_page.text, "threads": threads}


@on_resource_imported
def import_page(tx: Tx, resource_id: str, parts: Mapping[str, Any], threads: Mapping[str, ThreadRow]) -> None:
    """Put pages back; a resource that has a page keeps it."""
    given = parts.get("working_memory") or {}
    if given.get("page") is not None:
        lock_resource(tx, resource_id)
        if _newest_of_resource(tx, resource_id).text is None:
            _append_to_resource(tx, resource_id, given["page"], "import")
    for thread_id, text in (given.get("threads") or {}).items():
        if thread_id in threads:
            _append_to_thread(tx, threads[thread_id], text, "import")
