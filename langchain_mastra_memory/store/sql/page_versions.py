"""Versions of a working-memory page in SQL: which one holds where, and appending one.

A page of resource scope is the newest version of the resource. A page of thread scope is the newest version whose
message is on the path of the position that is looked from: `message_id` (a tool's answer, archived after the page was
written) or `(branch, seq)`. A version with neither holds from the beginning of the thread. So a fork, a replay or an
earlier checkpoint sees the page as it was there, by the same rule that shows it the messages.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from langchain_mastra_memory.store.operations.pages import (
    NO_PAGE,
    StoredPage,
    Where,
    Writer,
)
from langchain_mastra_memory.store.sql.locking import ThreadRow
from langchain_mastra_memory.store.sql.positions import position_at
from langchain_mastra_memory.store.sql.runs import position_of
from langchain_mastra_memory.store.sql.schema import messages, resources
from langchain_mastra_memory.store.sql.tables_pages import pages
from langchain_mastra_memory.store.sql.tx import Tx, any_of, insert_row
from langchain_mastra_memory.store.sql.view import Path, in_path, path_of

KEPT_VERSIONS: Final = 100
"""How many versions of a resource's page are kept. Only the newest is ever read; the others are history, and know which
calls were applied. A thread's versions all stay, since a fork can come back to any of them."""

COLUMNS: Final = (pages.c.version, pages.c.page, pages.c.created_at, pages.c.writer)
OF_RESOURCE = pages.c.resource_id == sa.bindparam("owner")
OF_THREAD = pages.c.thread == sa.bindparam("owner")

_NEWEST_OF_RESOURCE = sa.select(*COLUMNS).where(OF_RESOURCE).order_by(pages.c.version.desc()).limit(1)
PAGE_OF_THREAD = sa.select(*COLUMNS).where(OF_THREAD, pages.c.version == sa.bindparam("wanted"))
_ANCHORS = (
    sa.select(pages.c.version, pages.c.branch, pages.c.seq, pages.c.message_id, pages.c.stand_ins)
    .where(OF_THREAD, pages.c.version < sa.bindparam("below"))
    .order_by(pages.c.version.desc())
    .limit(32)
)
_MESSAGES_OF = sa.select(messages.c.id, messages.c.branch, messages.c.seq).where(
    messages.c.thread == sa.bindparam("thread_key"), any_of(messages.c.id, "ids")
)
_LAST_OF_RESOURCE = sa.select(sa.func.max(pages.c.version)).where(OF_RESOURCE)
LAST_OF_THREAD = sa.select(sa.func.max(pages.c.version)).where(OF_THREAD)
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
_ERASE_RESOURCE = sa.update(pages).where(OF_RESOURCE).values(page=sa.null())
_ERASE_THREAD = sa.update(pages).where(OF_THREAD).values(page=sa.null())
_TRIM = sa.delete(pages).where(OF_RESOURCE, pages.c.version <= sa.bindparam("last_dropped"))


_made = postgresql.insert(resources).values(
    {
        name: sa.bindparam(name, type_=resources.c[name].type)
        for name in ("id", "metadata", "version", "created_at", "updated_at")
    }
)
_LOCK_RESOURCE = _made.on_conflict_do_update(
    index_elements=["id"], set_={"version": resources.c.version + 1, "updated_at": _made.excluded.updated_at}
)


def lock_resource(tx: Tx, resource_id: str) -> None:
    """Make the resource if it is missing, and hold its row until the transaction ends: its writers come one by one."""
    tx.run(
        _LOCK_RESOURCE,
        {"id": resource_id, "metadata": "{}", "version": 1, "created_at": tx.now, "updated_at": tx.now},
    )


def append_to_resource(
    tx: Tx, resource_id: str, text: str | None, writer: Writer, *, call: str | None = None
) -> StoredPage:
    """Append a version of a resource's page, whose row is locked; None erases it, older versions too."""
    version = int(tx.value(_LAST_OF_RESOURCE, {"owner": resource_id}) or 0) + 1
    if text is None:
        tx.run(_ERASE_RESOURCE, {"owner": resource_id})
    page = _append(tx, version, text, writer, resource_id=resource_id, call=call)
    tx.run(_TRIM, {"owner": resource_id, "last_dropped": version - KEPT_VERSIONS})
    return page


def append_to_thread(
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
    """Append a version of a thread's page, whose row is locked; None erases it, older versions too."""
    version = int(tx.value(LAST_OF_THREAD, {"owner": thread.key}) or 0) + 1
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


def newest_of_resource(tx: Tx, resource_id: str) -> StoredPage:
    """Return the page of a resource."""
    row = tx.first(_NEWEST_OF_RESOURCE, {"owner": resource_id})
    return NO_PAGE if row is None else page_of(row)


def visible(tx: Tx, thread: ThreadRow, where: Where) -> StoredPage:
    """Return the newest version that holds from there."""
    path = path_from(tx, thread, where)
    for batch in _anchors(tx, thread.key):
        anchors = [_Anchor(row[1], row[2], row[3], tuple(json.loads(row[4])) if row[4] else ()) for row in batch]
        wanted = {known for anchor in anchors for known in (anchor.message_id, *anchor.stand_ins) if known}
        places = places_of(tx, thread.key, sorted(wanted.difference(where.ids)))
        for row, anchor in zip(batch, anchors, strict=True):
            if _holds(anchor, path, places, where.ids):
                return version_of(tx, PAGE_OF_THREAD, thread.key, row[0])
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
    if anchor.message_id in own or seen_at(places.get(anchor.message_id, ()), path) is not None:
        return True
    if anchor.message_id in places or anchor.seq is not None:  # archived, but not on this line
        return False
    for message_id in anchor.stand_ins:
        if message_id in own:
            return message_id != own[-1]
        if message_id in places:
            seen = seen_at(places[message_id], path)
            return seen is not None and (path[-1][1] > seen or bool(own))
    return False


def seen_at(rows: Sequence[tuple[int, int]], path: Path) -> int | None:
    """Return the seq of a message on the path, or None."""
    return next((seq for branch, seq in rows if in_path(path, branch, seq)), None)


def version_of(tx: Tx, statement: sa.Select[Any], owner: str | int, version: int) -> StoredPage:
    """Return one version of a page, by `PAGE_OF_THREAD` or a statement like it."""
    row = tx.first(statement, {"owner": owner, "wanted": version})
    return NO_PAGE if row is None else page_of(row)


def _anchors(tx: Tx, thread_key: int) -> Iterator[list[tuple[Any, ...]]]:
    below = 2**62
    while rows := tx.all(_ANCHORS, {"owner": thread_key, "below": below}):
        yield rows
        below = rows[-1][0]


def places_of(tx: Tx, thread_key: int, ids: Sequence[str]) -> dict[str, list[tuple[int, int]]]:
    """Return (branch, seq) of every row of these messages, on whatever line."""
    places: dict[str, list[tuple[int, int]]] = {}
    if ids:
        for message_id, branch, seq in tx.all(_MESSAGES_OF, {"thread_key": thread_key, "ids": list(ids)}):
            places.setdefault(message_id, []).append((int(branch), int(seq)))
    return places


def path_from(tx: Tx, thread: ThreadRow, where: Where) -> Path:
    """Return the path of the position that is looked from; empty where nothing of it is archived."""
    position: tuple[int, int] | None
    if where.position is not None:
        position = where.position
    elif where.from_state:
        position = position_of(tx, thread, where.ids)
    else:
        position = position_at(tx, thread, where.checkpoint_id)
    return () if position is None else path_of(tx, thread.key, *position)


def anchor_of(tx: Tx, thread: ThreadRow, where: Where) -> tuple[int | None, int | None]:
    """Return the (branch, seq) after which something written there holds; None twice: from the beginning."""
    path = path_from(tx, thread, where)
    if not path or path[-1][1] == 0:  # before the first message: it holds from the beginning
        return None, None
    return path[-1]


def page_of(row: Sequence[Any]) -> StoredPage:
    """Return a row of `COLUMNS`."""
    version, text, created_at, writer = row
    return StoredPage(version=version, text=text, created_at=created_at, writer=cast("Writer", writer))
