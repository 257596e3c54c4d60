"""The text index: term blobs that follow each message in its own transaction, and what a search reads."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from langchain_mastra_memory.collecting import collecting_later
from langchain_mastra_memory.recall.terms import SHARED
from langchain_mastra_memory.recall.text import indexed_text
from langchain_mastra_memory.store.operations.index import (
    Place,
    ReadBlock,
    ReadDetails,
    ReadPlaces,
    ReadScope,
    ScopeRead,
    TextEntry,
    ThreadState,
    VectorEntry,
)
from langchain_mastra_memory.store.sql.cascade import (
    Features,
    RemovedRow,
    ThreadCopy,
    WrittenRow,
    on_messages_deleted,
    on_messages_edited,
    on_messages_saved,
    on_thread_cleared,
    on_thread_copied,
    on_thread_deleted,
)
from langchain_mastra_memory.store.sql.index_hnsw import copy_in_hnsw
from langchain_mastra_memory.store.sql.locking import COLUMNS, ThreadRow, find_thread, read_thread
from langchain_mastra_memory.store.sql.positions import position_at
from langchain_mastra_memory.store.sql.registry import handles
from langchain_mastra_memory.store.sql.rows import MESSAGE_COLUMNS, stored_message
from langchain_mastra_memory.store.sql.schema import branches, messages, threads
from langchain_mastra_memory.store.sql.tables_index import models, outbox, recall_state, texts, vectors
from langchain_mastra_memory.store.sql.tx import Params, Tx, any_of, insert_row
from langchain_mastra_memory.store.sql.values import from_micros, load_json
from langchain_mastra_memory.store.sql.view import Path, ViewStatements, path_of
from langchain_mastra_memory.types import StoredMessage

NOT_ASKED: Final = -1

_of_thread = texts.c.thread == sa.bindparam("thread_key")
_of_threads = any_of(texts.c.thread, "thread_keys")
_ENTRY = (texts.c.key, texts.c.thread, texts.c.seq, texts.c.branch, texts.c.terms)
_INSERT = insert_row(texts, "thread", "seq", "branch", "terms", "chunks", "point")
_AT = sa.select(texts.c.key, texts.c.seq, texts.c.branch).where(_of_thread, any_of(texts.c.seq, "seqs"))
_CHANGE = (
    sa.update(texts)
    .where(texts.c.key == sa.bindparam("text_key"))
    .values(
        terms=sa.bindparam("new_terms", type_=sa.LargeBinary),
        chunks=sa.bindparam("new_chunks", type_=sa.BigInteger),
        point=None,
    )
)
_DROP_TEXTS = sa.delete(texts).where(any_of(texts.c.key, "text_keys"))
_DROP_VECTORS = sa.delete(vectors).where(any_of(vectors.c.text, "text_keys"))

_OWNED = sa.select(
    threads.c.key, threads.c.id, threads.c.texts, threads.c.edits, threads.c.branch, threads.c.head, sa.literal(None)
).where(threads.c.resource_id == sa.bindparam("owner"))
_OWNED_WITH_METADATA = sa.select(
    threads.c.key, threads.c.id, threads.c.texts, threads.c.edits, threads.c.branch, threads.c.head, threads.c.metadata
).where(threads.c.resource_id == sa.bindparam("owner"))
_FORKED = (
    sa.select(branches.c.thread, branches.c.path)
    .join(threads, sa.and_(threads.c.key == branches.c.thread, threads.c.branch == branches.c.branch))
    .where(any_of(branches.c.thread, "thread_keys"))
)
_COUNT = sa.select(sa.func.count()).select_from(texts).where(_of_threads)
_PENDING = sa.select(sa.func.count()).select_from(texts).where(_of_threads, texts.c.chunks.is_(None))
_TEXTS = sa.select(*_ENTRY).where(_of_threads).order_by(texts.c.key)
_NEW_TEXTS = sa.select(*_ENTRY).where(_of_thread, texts.c.seq > sa.bindparam("last_seq")).order_by(texts.c.key)
_BLOCK = (
    sa.select(*_ENTRY)
    .where(_of_threads, texts.c.key > sa.bindparam("last_key"))
    .order_by(texts.c.key)
    .limit(sa.bindparam("size", type_=sa.BigInteger))
)
_VECTOR = (vectors.c.key, vectors.c.thread, vectors.c.text, vectors.c.v)
_VECTORS = sa.select(*_VECTOR).where(any_of(vectors.c.thread, "thread_keys")).order_by(vectors.c.key)
_NEW_VECTORS = (
    sa.select(*_VECTOR)
    .where(vectors.c.thread == sa.bindparam("thread_key"), vectors.c.key > sa.bindparam("last_key"))
    .order_by(vectors.c.key)
)
_VECTORS_OF = sa.select(*_VECTOR).where(any_of(vectors.c.text, "text_keys")).order_by(vectors.c.key)
_MODELS = sa.select(models.c.name, models.c.dimension).order_by(models.c.key)
_TERMS = sa.select(recall_state.c.value).where(recall_state.c.name == "terms")
_KEYS = sa.select(*COLUMNS).where(any_of(threads.c.key, "thread_keys"))
_AT_PLACES = sa.select(*MESSAGE_COLUMNS).where(
    messages.c.thread == sa.bindparam("thread_key"), messages.c.kind.is_(None), any_of(messages.c.seq, "seqs")
)


def _details(*conditions: sa.ColumnElement[bool]) -> sa.Select[Any]:
    return sa.select(messages.c.thread, messages.c.seq, messages.c.branch, messages.c.metadata).where(
        any_of(messages.c.thread, "thread_keys"),
        messages.c.kind.is_(None),
        messages.c.created_at >= sa.bindparam("first", type_=sa.BigInteger),
        messages.c.created_at <= sa.bindparam("last", type_=sa.BigInteger),
        *conditions,
    )


_DETAILS = _details()
_DETAILS_WITH_METADATA = _details(messages.c.metadata.is_not(None))


def _forget(which: sa.ColumnElement[bool]) -> tuple[sa.ClauseElement, sa.ClauseElement]:
    """Return what notes that an outside index must forget texts: those written there, and those being written."""
    written = sa.select(texts.c.point, texts.c.chunks, sa.literal(0), sa.literal(1)).where(
        which, texts.c.point.is_not(None), texts.c.chunks > 0
    )
    note = postgresql.insert(outbox).from_select(["point", "chunks", "until", "gone"], written)
    being_written = sa.select(texts.c.point).where(which, texts.c.point.is_not(None))
    return (
        note.on_conflict_do_update(index_elements=["point"], set_={"gone": 1}),
        sa.update(outbox).where(outbox.c.point.in_(being_written)).values(gone=1),
    )


_FORGET_THREAD = _forget(_of_thread)
_FORGET_TEXTS = _forget(any_of(texts.c.key, "text_keys"))


def forget_texts(tx: Tx, keys: Sequence[int]) -> None:
    """Note that an outside index must forget these texts."""
    for statement in _FORGET_TEXTS:
        tx.run(statement, {"text_keys": list(keys)})


def index_columns(row: WrittenRow, features: Features) -> dict[str, Any] | None:
    """Return what the index keeps of a message; None for one that is never found."""
    if row.kind is not None:
        return None
    speaker, text = indexed_text(row.message, tools="recall.without_tools" not in features)
    blob = SHARED.document(text, speaker=speaker, date=from_micros(row.created_at) if text.strip() else None)
    chunks = 0 if not text.strip() else None if "recall.vectors" in features else NOT_ASKED
    return {"terms": blob, "chunks": chunks}


@on_messages_saved.only_with("recall")
def index_saved(tx: Tx, thread: ThreadRow, rows: Sequence[WrittenRow], features: Features) -> None:
    """Write the term blobs of new messages."""
    if "recall" not in features:
        return
    found = ((row, index_columns(row, features)) for row in rows)
    tx.run_many(
        _INSERT,
        [
            {"thread": thread.key, "seq": row.seq, "branch": row.branch, "point": None, **columns}
            for row, columns in found
            if columns is not None
        ],
    )


@on_messages_edited
def index_edited(tx: Tx, thread: ThreadRow, rows: Sequence[WrittenRow], features: Features) -> None:
    """Index changed messages anew; those that another memory indexed, whatever this one has on."""
    there = _text_keys(tx, thread.key, [(row.seq, row.branch) for row in rows])
    if there:
        forget_texts(tx, list(there.values()))
        tx.run(_DROP_VECTORS, {"text_keys": list(there.values())})
    dropped = []
    for row in rows:
        key = there.get((row.seq, row.branch))
        columns = index_columns(row, features)
        if columns is None:
            dropped += [] if key is None else [key]
        elif key is not None:
            tx.run(_CHANGE, {"text_key": key, "new_terms": columns["terms"], "new_chunks": columns["chunks"]})
        elif "recall" in features:
            tx.run(_INSERT, {"thread": thread.key, "seq": row.seq, "branch": row.branch, "point": None, **columns})
    if dropped:
        tx.run(_DROP_TEXTS, {"text_keys": dropped})


def _text_keys(tx: Tx, thread_key: int, places: Iterable[tuple[int, int]]) -> dict[tuple[int, int], int]:
    wanted = set(places)
    rows = tx.all(_AT, {"thread_key": thread_key, "seqs": sorted({seq for seq, _ in wanted})})
    return {(seq, branch): key for key, seq, branch in rows if (seq, branch) in wanted}


@on_messages_deleted
def forget_deleted(tx: Tx, thread: ThreadRow, rows: Sequence[RemovedRow]) -> None:
    """Remove what the index has of messages, also of rows that stay in the archive unseen."""
    keys = list(_text_keys(tx, thread.key, ((row.seq, row.branch) for row in rows)).values())
    if keys:
        forget_texts(tx, keys)
        tx.run(_DROP_TEXTS, {"text_keys": keys})


@on_thread_cleared
@on_thread_deleted
def forget_thread(tx: Tx, thread: ThreadRow) -> None:
    """Let an outside index forget a whole thread."""
    for statement in _FORGET_THREAD:
        tx.run(statement, {"thread_key": thread.key})


def _copy_texts(in_view: sa.ColumnElement[bool]) -> sa.Insert:
    target = messages.alias("copied")
    rows = (
        sa.select(
            sa.bindparam("target_key", type_=sa.BigInteger),
            texts.c.seq,
            sa.literal(0),
            texts.c.terms,
            # Vectors that are outside can't be copied here: the copy is embedded anew, from the cache where it can.
            sa.case((texts.c.point.is_not(None), None), else_=texts.c.chunks),
        )
        .where(
            _of_thread,
            in_view,
            sa.exists().where(
                target.c.thread == sa.bindparam("target_key", type_=sa.BigInteger), target.c.seq == texts.c.seq
            ),
        )
        .order_by(texts.c.seq)
    )
    return sa.insert(texts).from_select(["thread", "seq", "branch", "terms", "chunks"], rows)


def _copied_vectors(in_view: sa.ColumnElement[bool]) -> sa.Insert:
    made = texts.alias("made")
    rows = (
        sa.select(made.c.thread, made.c.key, vectors.c.chunk, vectors.c.model, vectors.c.v)
        .select_from(
            texts.join(vectors, vectors.c.text == texts.c.key).join(
                made, sa.and_(made.c.thread == sa.bindparam("target_key"), made.c.seq == texts.c.seq)
            )
        )
        .where(_of_thread, in_view)
        .order_by(vectors.c.key)
    )
    return sa.insert(vectors).from_select(["thread", "text", "chunk", "model", "v"], rows)


_COPY_TEXTS = ViewStatements(_copy_texts, texts)
_COPY_VECTORS = ViewStatements(_copied_vectors, texts)


@on_thread_copied
def copy_index(tx: Tx, copy: ThreadCopy) -> None:
    """Give a copy the terms and vectors of what was copied, inside the database."""
    path = path_of(tx, copy.source.key, copy.source.branch, copy.source.head)
    for statements in (_COPY_TEXTS, _COPY_VECTORS):
        statement, params = statements(path)
        tx.run(statement, {"thread_key": copy.source.key, "target_key": copy.target.key, **params})
    copy_in_hnsw(tx, copy.target.key)


@handles(ReadScope)
def read_scope(tx: Tx, op: ReadScope) -> ScopeRead:
    """Read the counters of a scope's threads, then what is new since."""
    states, override = _states(tx, op)
    keys = [state.key for state in states]
    of_threads = {"thread_keys": keys}
    asked: list[tuple[sa.ClauseElement, Params]] = [(_TERMS, {})]
    if op.with_models:
        asked.append((_MODELS, {}))
    if op.with_pending:
        asked.append((_PENDING, of_threads))
    if op.most is not None and not op.known:
        asked.append((_COUNT, of_threads))
    answers = {statement: rows for (statement, _), rows in zip(asked, tx.all_of(asked), strict=True)}
    read = ScopeRead(
        threads=tuple(states),
        override=override,
        models=tuple(answers.get(_MODELS, ())),
        terms=int(answers[_TERMS][0][0]) if answers[_TERMS] else 0,
        pending=int(answers[_PENDING][0][0]) if _PENDING in answers else 0,
    )
    if not keys:
        return replace(read, dropped=frozenset(op.known))
    rows = int(answers[_COUNT][0][0]) if _COUNT in answers else 0
    if op.most is not None and rows > op.most:
        return replace(read, rows=rows)
    dropped = set(op.known) - set(keys)
    anew, grown = [], []
    for state in states:
        seen = op.known.get(state.key)
        if seen is None or seen.edits != state.edits:
            anew.append(state.key)
            if seen is not None:
                dropped.add(state.key)
        elif seen.texts != state.texts:
            grown.append((state.key, seen))
    entries: list[TextEntry] = []
    found: list[VectorEntry] = []
    with collecting_later():
        if anew:
            entries += tx.all(_TEXTS, {"thread_keys": anew})
            found += tx.all(_VECTORS, {"thread_keys": anew}) if op.with_vectors else ()
        for key, seen in grown:
            entries += tx.all(_NEW_TEXTS, {"thread_key": key, "last_seq": seen.seq})
            if op.with_vectors:
                found += tx.all(_NEW_VECTORS, {"thread_key": key, "last_key": seen.vector})
        return replace(read, dropped=frozenset(dropped), texts=tuple(entries), vectors=tuple(found))


def _states(tx: Tx, op: ReadScope) -> tuple[list[ThreadState], tuple[int, Path] | None]:
    scope = op.scope
    rows: list[tuple[Any, ...]]
    present: ThreadRow | None = None
    if scope.thread_id is not None:
        present = read_thread(tx, scope.thread_id, scope.resource_id)
        metadata = present.metadata if op.with_metadata else None
        rows = [(present.key, present.id, present.texts, present.edits, present.branch, present.head, metadata)]
    else:
        rows = tx.all(_OWNED_WITH_METADATA if op.with_metadata else _OWNED, {"owner": scope.resource_id})
        if scope.present is not None and (scope.position is not None or scope.checkpoint_id is not None):
            present = find_thread(tx, scope.present)
    forked = [row[0] for row in rows if row[4] != 0]
    ancestors = {key: json.loads(path) for key, path in tx.all(_FORKED, {"thread_keys": forked})} if forked else {}
    states = [
        ThreadState(
            key,
            thread_id,
            saves,
            edits,
            (*((int(b), min(int(cut), head)) for b, cut in ancestors.get(key, ())), (branch, head)),
            load_json(text) if op.with_metadata else None,
        )
        for key, thread_id, saves, edits, branch, head, text in rows
    ]
    if present is None or (scope.position is None and scope.checkpoint_id is None):
        return states, None
    position = scope.position or position_at(tx, present, scope.checkpoint_id)
    return states, (present.key, path_of(tx, present.key, *position))


@handles(ReadBlock)
def read_block(tx: Tx, op: ReadBlock) -> tuple[tuple[TextEntry, ...], tuple[VectorEntry, ...]]:
    """Read the next block of texts, and their vectors."""
    entries = tx.all(_BLOCK, {"thread_keys": list(op.threads), "last_key": op.after, "size": op.limit})
    if not entries or not op.with_vectors:
        return tuple(entries), ()
    return tuple(entries), tuple(tx.all(_VECTORS_OF, {"text_keys": [row[0] for row in entries]}))


@handles(ReadPlaces)
def read_places(tx: Tx, op: ReadPlaces) -> dict[Place, StoredMessage]:
    """Return messages by their places, after checking whose they are."""
    asked = set(op.places)
    wanted: dict[int, list[int]] = {}
    for key, seq, _ in op.places:
        wanted.setdefault(key, []).append(seq)
    rows = tx.all(_KEYS, {"thread_keys": list(wanted)}) if wanted else ()
    threads = [thread for thread in (ThreadRow(*row) for row in rows) if _may_see(op, thread)]
    found: dict[Place, StoredMessage] = {}
    asked_of = [(_AT_PLACES, {"thread_key": thread.key, "seqs": wanted[thread.key]}) for thread in threads]
    for thread, messages_there in zip(threads, tx.all_of(asked_of) if asked_of else (), strict=True):
        for message in messages_there:
            place = (thread.key, message[0], message[1])
            if place in asked:
                found[place] = stored_message(thread, message)
    return found


def _may_see(op: ReadPlaces, thread: ThreadRow) -> bool:
    scope = op.scope
    if scope.thread_id is not None:
        return thread.id == scope.thread_id and scope.resource_id in (None, thread.resource_id or scope.resource_id)
    return thread.resource_id is not None and thread.resource_id == scope.resource_id


@handles(ReadDetails)
def read_details(tx: Tx, op: ReadDetails) -> list[tuple[int, int, int, Any]]:
    """Return places and metadata of the messages that a filter may allow."""
    span = {"first": -(2**62) if op.start is None else op.start, "last": 2**62 if op.end is None else op.end}
    statement = _DETAILS_WITH_METADATA if op.needs_metadata else _DETAILS
    rows = tx.all(statement, {"thread_keys": list(op.threads), **span})
    return [(key, seq, branch, load_json(metadata)) for key, seq, branch, metadata in rows]
