"""Vectors of messages, what an outside index must forget, and making the whole index anew."""

from __future__ import annotations

import secrets
from typing import Any

import sqlalchemy as sa

from langchain_mastra_memory.errors import EmbeddingModelMismatchError, ThreadNotFoundError
from langchain_mastra_memory.recall.terms import TERMS_VERSION
from langchain_mastra_memory.store.operations.index import (
    ClaimPending,
    ClearOutbox,
    CountPending,
    CountTexts,
    Embedded,
    FindPoints,
    FinishReindex,
    Pending,
    ReadOutbox,
    ReindexPage,
    WriteVectors,
)
from langchain_mastra_memory.store.sql.cascade import WrittenRow
from langchain_mastra_memory.store.sql.index import forget_texts, index_columns
from langchain_mastra_memory.store.sql.index_hnsw import keep_in_hnsw
from langchain_mastra_memory.store.sql.locking import lock_thread
from langchain_mastra_memory.store.sql.registry import handles
from langchain_mastra_memory.store.sql.rows import MESSAGE_COLUMNS, message_of
from langchain_mastra_memory.store.sql.schema import messages, threads
from langchain_mastra_memory.store.sql.tables_index import models, outbox, recall_state, texts, vectors
from langchain_mastra_memory.store.sql.tx import Tx, any_of, insert_row, upsert
from langchain_mastra_memory.store.sql.values import load_json

_joined = texts.join(
    messages,
    sa.and_(messages.c.thread == texts.c.thread, messages.c.seq == texts.c.seq, messages.c.branch == texts.c.branch),
).join(threads, threads.c.key == texts.c.thread)


def _pending(*conditions: sa.ColumnElement[bool]) -> sa.Select[Any]:
    return (
        sa.select(
            texts.c.key,
            threads.c.id,
            threads.c.resource_id,
            messages.c.id,
            messages.c.body,
            messages.c.revision,
            texts.c.point,
        )
        .select_from(_joined)
        .where(texts.c.chunks.is_(None), texts.c.key > sa.bindparam("last_key"), *conditions)
        .order_by(texts.c.key)
        .limit(sa.bindparam("size", type_=sa.BigInteger))
    )


_PENDING = _pending()
_PENDING_OF_THREAD = _pending(threads.c.id == sa.bindparam("thread_id"))
_PENDING_OF_RESOURCE = _pending(threads.c.resource_id == sa.bindparam("owner"))
_NAME = (
    sa.update(texts)
    .where(texts.c.key == sa.bindparam("text_key"))
    .values(point=sa.bindparam("new_point", type_=sa.BigInteger))
)
_NOTE = upsert(outbox, ["point"], ["chunks", "until", "gone"])
_UNNOTE = sa.delete(outbox).where(any_of(outbox.c.point, "points"))
_NOW = (
    sa.select(texts.c.key, texts.c.point, messages.c.revision)
    .select_from(_joined)
    .where(any_of(texts.c.key, "text_keys"), threads.c.id == sa.bindparam("thread_id"))
)
_DONE = (
    sa.update(texts)
    .where(texts.c.key == sa.bindparam("text_key"))
    .values(
        chunks=sa.bindparam("new_chunks", type_=sa.BigInteger), point=sa.bindparam("new_point", type_=sa.BigInteger)
    )
)
_MODELS = sa.select(models.c.key, models.c.name, models.c.dimension)
_ADD_MODEL = insert_row(models, "name", "dimension").returning(models.c.key)
_ADD_VECTOR = insert_row(vectors, "thread", "text", "chunk", "model", "v")
_DROP_VECTORS = sa.delete(vectors).where(any_of(vectors.c.text, "text_keys"))
_COUNT_PENDING = sa.select(sa.func.count()).select_from(texts).where(texts.c.chunks.is_(None))
_COUNT_TEXTS = sa.select(sa.func.count()).select_from(messages).where(messages.c.kind.is_(None))
_POINTS = sa.select(texts.c.point, texts.c.key).where(
    any_of(texts.c.point, "points"), any_of(texts.c.thread, "thread_keys")
)
_DUE = (
    sa.select(outbox.c.point, outbox.c.chunks)
    .where(outbox.c.gone == 1, outbox.c.until <= sa.bindparam("now"))
    .order_by(outbox.c.until, outbox.c.point)
    .limit(sa.bindparam("size", type_=sa.BigInteger))
)
_CLEAR = sa.delete(outbox).where(
    any_of(outbox.c.point, "points"), outbox.c.gone == 1, outbox.c.until <= sa.bindparam("now")
)
_PAGE = (
    sa.select(messages.c.thread, threads.c.id, texts.c.key, *MESSAGE_COLUMNS)
    .select_from(
        messages.join(threads, threads.c.key == messages.c.thread).outerjoin(
            texts,
            sa.and_(
                texts.c.thread == messages.c.thread,
                texts.c.seq == messages.c.seq,
                texts.c.branch == messages.c.branch,
            ),
        )
    )
    .where(
        sa.tuple_(messages.c.thread, messages.c.seq, messages.c.branch)
        > sa.tuple_(
            sa.bindparam("after_thread", type_=sa.BigInteger),
            sa.bindparam("after_seq", type_=sa.BigInteger),
            sa.bindparam("after_branch", type_=sa.BigInteger),
        ),
        messages.c.kind.is_(None),
    )
    .order_by(messages.c.thread, messages.c.seq, messages.c.branch)
    .limit(sa.bindparam("size", type_=sa.BigInteger))
)
_ANEW = upsert(texts, ["thread", "seq", "branch"], ["terms", "chunks", "point"])
_DROP_MODELS = sa.delete(models).where(~sa.exists().where(vectors.c.model == models.c.key))
_SET_STATE = upsert(recall_state, ["name"], ["value"])


@handles(ClaimPending)
def claim_pending(tx: Tx, op: ClaimPending) -> list[Pending]:
    """Return what is to be embedded; note first what will be written outside."""
    params: dict[str, Any] = {"last_key": op.after, "size": op.limit}
    statement = _PENDING
    if op.thread_id is not None:
        statement, params["thread_id"] = _PENDING_OF_THREAD, op.thread_id
    elif op.resource_id is not None:
        statement, params["owner"] = _PENDING_OF_RESOURCE, op.resource_id
    claimed = []
    for key, thread_id, owner, message_id, body, revision, known in tx.all(statement, params):
        point = known
        if op.outside:
            point = known or secrets.randbits(62) or 1
            tx.run(_NAME, {"text_key": key, "new_point": point})
            tx.run(_NOTE, {"point": point, "chunks": op.chunks, "until": tx.now + op.lease, "gone": 0})
        message = message_of(message_id, body)
        claimed.append(Pending(key, thread_id, owner, message, revision, point if op.outside else None))
    return claimed


@handles(WriteVectors)
def write_vectors(tx: Tx, op: WriteVectors) -> int:
    """Keep the vectors of messages that are still as they were embedded."""
    by_thread: dict[str, list[Embedded]] = {}
    for row in op.rows:
        by_thread.setdefault(row.thread, []).append(row)
    model: int | None = None
    written = 0
    late: list[Embedded] = []
    for thread_id in sorted(by_thread):  # one order for everybody: no deadlock
        rows = by_thread[thread_id]
        try:
            thread = lock_thread(tx, thread_id, None, texts=1, touch=False)
        except ThreadNotFoundError:
            late += rows
            continue
        if model is None and any(row.chunks for row in rows):
            model = model_key(tx, op.model, op.dimension)
        now = {
            key: (point, revision)
            for key, point, revision in tx.all(_NOW, {"text_keys": [row.text for row in rows], "thread_id": thread_id})
        }
        good = [r for r in rows if r.text in now and now[r.text][1] == r.revision and r.point in (None, now[r.text][0])]
        late += [row for row in rows if row not in good]
        moved = [row.text for row in good if row.point is None and now[row.text][0] is not None]
        if moved:  # they were outside, and are here from now on
            forget_texts(tx, moved)
        tx.run(_DROP_VECTORS, {"text_keys": [row.text for row in good]})
        entries: list[dict[str, Any]] = [
            {"thread": thread.key, "text": row.text, "chunk": chunk, "model": model, "v": v}
            for row in good
            for chunk, v in enumerate(row.vectors)
        ]
        tx.run_many(_ADD_VECTOR, entries)
        if op.hnsw:
            keep_in_hnsw(tx, op.dimension, [(e["thread"], e["text"], e["chunk"], e["v"]) for e in entries])
        tx.run_many(_DONE, [{"text_key": r.text, "new_chunks": r.chunks, "new_point": r.point} for r in good])
        points = [row.point for row in good if row.point is not None]
        if points:
            tx.run(_UNNOTE, {"points": points})
        written += len(good)
    for row in late:
        if row.point is not None:
            tx.run(_NOTE, {"point": row.point, "chunks": row.chunks, "until": 0, "gone": 1})
    return written


def model_key(tx: Tx, name: str, dimension: int) -> int:
    """Return the key of an embedding model, adding the first one.

    Raises:
        EmbeddingModelMismatchError: The store has vectors of another model.
    """
    known = tx.all(_MODELS)
    for key, other, size in known:
        if (other, size) == (name, dimension):
            return int(key)
    if known:
        _, other, size = known[0]
        raise EmbeddingModelMismatchError(
            f"the index has vectors of the model {other[:80]!r} ({size} numbers), not of {name[:80]!r} ({dimension}): "
            "call reindex() to embed everything anew, or go back to the old model"
        )
    return int(tx.value(_ADD_MODEL, {"name": name, "dimension": dimension}))


@handles(CountPending)
def count_pending(tx: Tx, op: CountPending) -> int:
    """Count what is still to be embedded."""
    del op
    return int(tx.value(_COUNT_PENDING))


@handles(CountTexts)
def count_texts(tx: Tx, op: CountTexts) -> int:
    """Count the messages that can be found."""
    del op
    return int(tx.value(_COUNT_TEXTS))


@handles(FindPoints)
def find_points(tx: Tx, op: FindPoints) -> dict[int, int]:
    """Return which names of an outside index are ours."""
    if not op.points or not op.threads:
        return {}
    return dict(tx.all(_POINTS, {"points": list(op.points), "thread_keys": list(op.threads)}))


@handles(ReadOutbox)
def read_outbox(tx: Tx, op: ReadOutbox) -> list[tuple[int, int]]:
    """Return what an outside index must forget."""
    return [(point, chunks) for point, chunks in tx.all(_DUE, {"now": tx.now, "size": op.limit})]


@handles(ClearOutbox)
def clear_outbox(tx: Tx, op: ClearOutbox) -> None:
    """Note that an outside index has forgotten."""
    tx.run(_CLEAR, {"points": list(op.points), "now": tx.now})


@handles(ReindexPage)
def reindex_page(tx: Tx, op: ReindexPage) -> tuple[int, int, int] | None:
    """Write the blobs of a page anew; its vectors go, and wait to be made again."""
    after = op.after or (-1, -1, -1)
    params = {"after_thread": after[0], "after_seq": after[1], "after_branch": after[2], "size": op.limit}
    found = tx.all(_PAGE, params)
    if not found:
        return None
    for thread_id in sorted({row[1] for row in found}):
        lock_thread(tx, thread_id, None, edits=1, touch=False)
    found = tx.all(_PAGE, params)  # as it is now that nobody else changes it
    if not found:
        return None
    old = [row[2] for row in found if row[2] is not None]
    if old:
        forget_texts(tx, old)
        tx.run(_DROP_VECTORS, {"text_keys": old})
    rows = []
    for thread_key, _, _, seq, branch, message_id, kind, body, metadata, tokens, revision, outside, created in found:
        message = message_of(message_id, body)
        row = WrittenRow(
            seq=seq, branch=branch, id=message_id, role=message.type, kind=kind, message=message,
            metadata=load_json(metadata), tokens=tokens, revision=revision, created_at=created, outside=bool(outside),
        )  # fmt: skip
        columns = index_columns(row, op.features)
        if columns is not None:
            rows.append({"thread": thread_key, "seq": seq, "branch": branch, "point": None, **columns})
    tx.run_many(_ANEW, rows)
    last = found[-1]
    return last[0], last[3], last[4]


@handles(FinishReindex)
def finish_reindex(tx: Tx, op: FinishReindex) -> None:
    """Note the tokenizer's version, and forget models without vectors."""
    del op
    tx.run(_DROP_MODELS)
    tx.run(_SET_STATE, {"name": "terms", "value": str(TERMS_VERSION)})
