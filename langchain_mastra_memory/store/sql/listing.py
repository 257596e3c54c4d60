"""Pages of messages: of one thread by `seq`, of several merged by time, with more messages on request."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from langchain_mastra_memory.store.operations.messages import Hidden, Include, ListMessages
from langchain_mastra_memory.store.sql.json_match import has_values
from langchain_mastra_memory.store.sql.locking import COLUMNS, ThreadRow, find_thread, not_found, read_thread
from langchain_mastra_memory.store.sql.positions import position_at
from langchain_mastra_memory.store.sql.registry import handles
from langchain_mastra_memory.store.sql.rows import MESSAGE_COLUMNS, stored_message
from langchain_mastra_memory.store.sql.schema import messages, threads
from langchain_mastra_memory.store.sql.threads import EVERYTHING
from langchain_mastra_memory.store.sql.tx import DialectName, Row, Tx, any_of
from langchain_mastra_memory.store.sql.values import dump_json, load_json
from langchain_mastra_memory.store.sql.view import Path, ViewStatements, in_path, path_of
from langchain_mastra_memory.types import Page, StoredMessage

_TWICE: Final = (False, True)
_of_thread = messages.c.thread == sa.bindparam("thread_key")


@dataclass(frozen=True, slots=True)
class _Shape:
    """Which of the constant statements a listing needs."""

    archive: bool
    dated: bool
    filtered: bool
    descending: bool = False

    def conditions(self, table: sa.FromClause = messages) -> list[sa.ColumnElement[bool]]:
        found = [_shown(table, archive=self.archive)]
        if self.dated:
            found += [
                table.c.created_at >= sa.bindparam("start_at", type_=sa.BigInteger),
                table.c.created_at <= sa.bindparam("end_at", type_=sa.BigInteger),
            ]
        if self.filtered:
            found.append(has_values(table.c.metadata, "wanted"))
        return found

    def in_order(self, *columns: sa.ColumnElement[Any]) -> list[sa.ColumnElement[Any]]:
        return [column.desc() if self.descending else column.asc() for column in columns]


def _kinds(*, archive: bool) -> list[sa.ColumnElement[Any]]:
    """Return the kinds that are not shown and take no place, as parts of a statement."""
    return [sa.literal_column(f"'{kind}'") for kind in (("refused", "signal", "summary") if archive else ("refused",))]


def _shown(table: sa.FromClause = messages, *, archive: bool) -> sa.ColumnElement[bool]:
    return sa.or_(table.c.kind.is_(None), table.c.kind.not_in(_kinds(archive=archive)))


_size, _skip = sa.bindparam("size", type_=sa.BigInteger), sa.bindparam("skip", type_=sa.BigInteger)


def _pages(shape: _Shape) -> tuple[ViewStatements, ViewStatements]:
    """Return the page and the count of one thread."""
    page = ViewStatements(
        lambda in_view: (
            sa.select(*MESSAGE_COLUMNS)
            .where(_of_thread, in_view, *shape.conditions())
            .order_by(*shape.in_order(messages.c.seq))
            .limit(_size)
            .offset(_skip)
        )
    )
    if shape.dated or shape.filtered:
        return page, ViewStatements(lambda in_view: sa.select(_count(in_view, *shape.conditions())))
    # Both counts are answered by an index alone; a condition on the kind would read every row.
    return page, ViewStatements(
        lambda in_view: sa.select(_count(in_view) - _count(in_view, messages.c.kind.in_(_kinds(archive=shape.archive))))
    )


def _count(*conditions: sa.ColumnElement[bool]) -> sa.ScalarSelect[int]:
    return sa.select(sa.func.count()).select_from(messages).where(_of_thread, *conditions).scalar_subquery()


_LINES: Final[dict[DialectName, str]] = {
    "sqlite": "SELECT json_extract(value, '$[0]') AS thread, json_extract(value, '$[1]') AS branch, "
    "json_extract(value, '$[2]') AS cut FROM json_each(:lines)",
    "postgresql": "SELECT (v->>0)::bigint AS thread, (v->>1)::bigint AS branch, (v->>2)::bigint AS cut "
    "FROM jsonb_array_elements((:lines)::jsonb) AS v",
}


def _merged(shape: _Shape, dialect: DialectName, *, forked: bool) -> tuple[sa.Select[Any], sa.Select[Any]]:
    """Return the page and the count of several threads, whose paths are in the parameter `lines`.

    A thread's messages keep their order whatever their times: each counts as late as the latest before it. Bodies are
    read for the page only. Overriding rows are looked for only if a thread stands on a branch.
    """
    lines = (
        sa.text(_LINES[dialect])
        .columns(*(sa.column(name, sa.BigInteger) for name in ("thread", "branch", "cut")))
        .subquery("lines")
    )
    key_names = ("thread", "seq", "branch")
    light: list[sa.ColumnElement[Any]] = [
        messages.c[name] for name in (*key_names, "created_at", "kind", *(["metadata"] if shape.filtered else []))
    ]
    clock = sa.func.max(messages.c.created_at).over(partition_by=messages.c.thread, order_by=messages.c.seq)
    same_place = [messages.c.thread, messages.c.seq]
    place = sa.func.row_number().over(partition_by=same_place, order_by=messages.c.branch.desc())
    in_line = sa.and_(
        messages.c.thread == lines.c.thread, messages.c.branch == lines.c.branch, messages.c.seq <= lines.c.cut
    )
    light += [place.label("place")] if forked else []
    seen = sa.select(*light, clock.label("clock")).join(lines, in_line).subquery("seen")
    counted = sa.select(*light).join(lines, in_line).subquery("counted")

    def conditions(table: sa.Subquery) -> list[sa.ColumnElement[bool]]:
        return [*([table.c.place == sa.literal_column("1")] if forked else []), *shape.conditions(table)]

    picked = (
        sa.select(seen.c.clock, *(seen.c[name] for name in key_names))
        .where(*conditions(seen))
        .order_by(*shape.in_order(seen.c.clock, seen.c.thread, seen.c.seq))
        .limit(_size)
        .offset(_skip)
        .subquery("picked")
    )
    page = (
        sa.select(messages.c.thread, *MESSAGE_COLUMNS)
        .join(picked, sa.and_(*(messages.c[name] == picked.c[name] for name in key_names)))
        .order_by(*shape.in_order(picked.c.clock, picked.c.thread, picked.c.seq))
    )
    return page, sa.select(sa.func.count()).select_from(counted).where(*conditions(counted))


_SHAPES: Final = [_Shape(a, d, f, r) for a in _TWICE for d in _TWICE for f in _TWICE for r in _TWICE]
_OF_ONE: Final = {shape: _pages(shape) for shape in _SHAPES}
_OF_MANY: Final = {
    (shape, dialect, forked): _merged(shape, dialect, forked=forked)
    for shape in _SHAPES
    for dialect in _LINES
    for forked in _TWICE
}

_OWN_THREADS = sa.select(*COLUMNS).where(threads.c.resource_id == sa.bindparam("owner")).order_by(threads.c.key)
_PLACES = sa.select(messages.c.thread, messages.c.seq, messages.c.branch).where(
    any_of(messages.c.thread, "thread_keys"), messages.c.id == sa.bindparam("message_id")
)
_OTHER_THREADS = (
    sa.select(*COLUMNS)
    .join(messages, messages.c.thread == threads.c.key)
    .where(threads.c.resource_id == sa.bindparam("owner"), messages.c.id == sa.bindparam("message_id"))
    .order_by(threads.c.key)
)


def _around(archive: bool, compare: Callable[[Any, Any], Any], descending: bool) -> ViewStatements:
    seq = messages.c.seq
    return ViewStatements(
        lambda in_view: (
            sa.select(*MESSAGE_COLUMNS)
            .where(
                _of_thread,
                in_view,
                compare(seq, sa.bindparam("at_seq", type_=sa.BigInteger)),
                _shown(archive=archive),
            )
            .order_by(seq.desc() if descending else seq.asc())
            .limit(_size)
        )
    )


_BEFORE: Final = {a: _around(a, lambda seq, at: seq <= at, descending=True) for a in _TWICE}
_AFTER: Final = {a: _around(a, lambda seq, at: seq > at, descending=False) for a in _TWICE}

_Place = tuple[ThreadRow, Path]
_Found = dict[tuple[int, int], tuple[ThreadRow, Row]]


@handles(ListMessages)
def list_messages(tx: Tx, op: ListMessages) -> Page[StoredMessage]:
    """Return one page of messages, and what is to be included."""
    places = _places(tx, op)
    shape = _Shape(
        archive=op.hidden.archive,
        dated=op.start is not None or op.end is not None,
        filtered=bool(op.metadata),
        descending=op.direction != "asc",
    )
    found, total = _read_page(tx, op, shape, places) if places and (op.per_page is False or op.per_page) else ({}, 0)
    in_page = len(found)
    for item in op.include:
        found |= _included(tx, op, item, places)
    rows = _ordered(found, descending=op.direction == "desc") if len(found) > in_page else list(found.values())
    size = op.per_page or EVERYTHING
    has_more = op.per_page is not False and total > 0 and op.page * op.per_page + size < total
    if has_more and op.include and not shape.dated and not shape.filtered:
        keys = {place.key for place, _ in places}
        has_more = sum(thread.key in keys for thread, _ in rows) < total
    return Page(
        items=tuple(stored_message(thread, row) for thread, row in rows if not _is_hidden(row, op.hidden)),
        total=total,
        page=op.page,
        per_page=op.per_page,
        has_more=has_more,
    )


def _places(tx: Tx, op: ListMessages) -> list[_Place]:
    """Return the threads to list and the path of each one's position."""
    if not op.thread_ids:
        rows = [ThreadRow(*row) for row in tx.all(_OWN_THREADS, {"owner": op.resource_id})]
    elif op.resource_id is not None:
        rows = [read_thread(tx, thread_id, op.resource_id) for thread_id in op.thread_ids]
    else:
        rows = [row for thread_id in op.thread_ids if (row := find_thread(tx, thread_id)) is not None]
        if op.checkpoint_id is not None and not rows:
            raise not_found(op.thread_ids[0])
    return [(row, path_of(tx, row.key, *position_at(tx, row, op.checkpoint_id))) for row in rows]


def _read_page(tx: Tx, op: ListMessages, shape: _Shape, places: list[_Place]) -> tuple[_Found, int]:
    params: dict[str, Any] = {}
    if shape.dated:
        params["start_at"] = -EVERYTHING if op.start is None else op.start
        params["end_at"] = EVERYTHING if op.end is None else op.end
    if op.metadata:
        params["wanted"] = dump_json(op.metadata)
    size = min(op.per_page or EVERYTHING, EVERYTHING)
    paging = {"size": size, "skip": min(op.page * op.per_page, EVERYTHING)}
    counted = _Shape(shape.archive, shape.dated, shape.filtered)
    if len(places) == 1:
        thread, path = places[0]
        page, count = _OF_ONE[shape][0](path), _OF_ONE[counted][1](path)
        params["thread_key"] = thread.key
        rows = [(thread, row) for row in tx.all(page[0], {**params, **page[1], **paging})]
        whole = op.page == 0 and len(rows) < size
        total = len(rows) if whole else int(tx.value(count[0], {**params, **count[1]}))
    else:
        by_key = {thread.key: thread for thread, _ in places}
        params["lines"] = json.dumps([(thread.key, *step) for thread, path in places for step in path])
        forked = any(len(path) > 1 for _, path in places)
        page_of_many, count_of_many = _OF_MANY[shape, tx.dialect, forked]
        rows = [(by_key[row[0]], row[1:]) for row in tx.all(page_of_many, {**params, **paging})]
        whole = op.page == 0 and len(rows) < size
        total = len(rows) if whole else int(tx.value(count_of_many, params))
    if op.direction is None:
        rows.reverse()
    return {(thread.key, row[0]): (thread, row) for thread, row in rows}, total


def _included(tx: Tx, op: ListMessages, item: Include, places: list[_Place]) -> _Found:
    """Return an included message with its neighbours; nothing if this owner has no such message."""
    at = _locate(tx, item, places) or _locate(tx, item, _elsewhere(tx, op, item, places))
    if at is None:
        return {}
    (thread, path), seq = at
    found: list[Row] = []
    for statements, size in (
        (_BEFORE, item.with_previous + 1),
        (_AFTER, item.with_next),
    ):
        if size:
            statement, params = statements[op.hidden.archive](path)
            found += tx.all(statement, {"thread_key": thread.key, "at_seq": seq, "size": size, **params})
    if not any(row[0] == seq for row in found):
        return {}  # it is not shown itself
    return {(thread.key, row[0]): (thread, row) for row in found}


def _locate(tx: Tx, item: Include, places: list[_Place]) -> tuple[_Place, int] | None:
    """Return where a message is in view: in the first of these threads that has it."""
    wanted = {thread.key: (thread, path) for thread, path in places if item.thread_id in (None, thread.id)}
    if not wanted:
        return None
    rows = tx.all(_PLACES, {"thread_keys": list(wanted), "message_id": item.id})
    for key, (thread, path) in wanted.items():
        for of_thread, seq, branch in rows:
            if of_thread == key and in_path(path, branch, seq):
                return (thread, path), seq
    return None


def _elsewhere(tx: Tx, op: ListMessages, item: Include, places: list[_Place]) -> list[_Place]:
    """Return the other threads of the same owner that may have an included message."""
    owners = {op.resource_id} if op.resource_id is not None else {thread.resource_id for thread, _ in places}
    rows = [
        ThreadRow(*row)
        for owner in sorted(owner for owner in owners if owner is not None)
        for row in tx.all(_OTHER_THREADS, {"owner": owner, "message_id": item.id})
    ]
    return [(row, path_of(tx, row.key, row.branch, row.head)) for row in rows]


def _ordered(found: _Found, *, descending: bool) -> list[tuple[ThreadRow, Row]]:
    """Return rows by `seq`, those of several threads merged by time with each thread in its order."""
    clocks: dict[int, int] = {}
    keyed = []
    for (thread_key, seq), place in sorted(found.items(), key=lambda item: item[0]):
        clock = clocks[thread_key] = max(clocks.get(thread_key, place[1][9]), place[1][9])
        keyed.append(((clock, thread_key, seq), place))
    keyed.sort(key=lambda item: item[0], reverse=descending)
    return [place for _, place in keyed]


def _is_hidden(row: Row, hidden: Hidden) -> bool:
    kind, metadata = row[3], row[5]
    signal = kind if kind in ("signal", "reactive", "system-reminder") else None
    if metadata and '"signal"' in metadata:
        described = load_json(metadata).get("signal")
        if isinstance(described, dict) and isinstance(described.get("type"), str):
            signal = described["type"]
    return signal is not None and (hidden.every_signal or signal in hidden.kinds or kind in hidden.kinds)
