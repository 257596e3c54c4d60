"""The optional HNSW table of PostgreSQL: the int8 vectors once more, as pgvector's `halfvec`.

It is made when `SemanticRecall(index=HNSW(...))` asks for it, one for each length of vectors, and serves scopes that
do not fit the cache. It needs pgvector, so it is not part of the schema.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import sqlalchemy as sa

from langchain_mastra_memory.errors import ConfigurationError
from langchain_mastra_memory.store.operations.index import PrepareHNSW, SearchHNSW
from langchain_mastra_memory.store.sql.registry import handles
from langchain_mastra_memory.store.sql.tx import Tx

_LOCK = sa.text("SELECT pg_advisory_xact_lock(7290043)")
_AVAILABLE = sa.text("SELECT 1 FROM pg_available_extensions WHERE name = 'vector'")
_EXTENSION = sa.text("CREATE EXTENSION IF NOT EXISTS vector")


def table_name(dimension: int) -> str:
    """Return the name of the table for vectors of a length."""
    return f"mastra_hnsw_{int(dimension)}"


def _exists(tx: Tx, dimension: int) -> bool:
    if tx.dialect != "postgresql":
        return False
    found = sa.text("SELECT to_regclass(:name)::text")
    return tx.value(found, {"name": table_name(dimension)}, keep=False) is not None


def _halfvec(v: bytes) -> str:
    return str(np.frombuffer(v, dtype=np.int8).tolist())


def keep_in_hnsw(tx: Tx, dimension: int, rows: Sequence[tuple[int, int, int, bytes]]) -> None:
    """Keep `(thread key, text key, chunk, int8 bytes)` in the table, if it was made."""
    if not rows or not _exists(tx, dimension):
        return
    insert = sa.text(
        f"INSERT INTO {table_name(dimension)} (thread, text, chunk, h) VALUES (:thread, :text_key, :chunk, "  # noqa: S608 - a number
        "CAST(:h AS halfvec)) ON CONFLICT (text, chunk) DO UPDATE SET h = excluded.h"
    )
    for thread, text, chunk, v in rows:
        tx.run(insert, {"thread": thread, "text_key": text, "chunk": chunk, "h": _halfvec(v)}, keep=False)


def copy_in_hnsw(tx: Tx, target: int) -> None:
    """Give the vectors of a copied thread their rows in the tables that there are."""
    if tx.dialect != "postgresql":
        return
    names = sa.text("SELECT DISTINCT dimension FROM mastra_models")
    for (dimension,) in tx.all(names):
        if _exists(tx, dimension):
            _fill(
                tx,
                dimension,
                sa.text("SELECT v.thread, v.text, v.chunk, v.v FROM mastra_vectors v WHERE v.thread = :key"),
                target,
            )


def _fill(tx: Tx, dimension: int, select: sa.TextClause, key: int | None = None) -> None:
    rows = tx.all(select, {} if key is None else {"key": key}, keep=False)
    keep_in_hnsw(tx, dimension, [(t, x, c, bytes(v)) for t, x, c, v in rows if len(v) == dimension])


@handles(PrepareHNSW)
def prepare_hnsw(tx: Tx, op: PrepareHNSW) -> None:
    """Make the table and its index, and fill it."""
    if tx.dialect != "postgresql":
        raise ConfigurationError("SemanticRecall(index=HNSW()) needs a PostgreSQL store; leave it out on SQLite")
    if tx.value(_AVAILABLE) is None:
        raise ConfigurationError("SemanticRecall(index=HNSW()) needs the pgvector extension on the server")
    tx.all(_LOCK)
    tx.run(_EXTENSION)
    name = table_name(op.dimension)
    if not _exists(tx, op.dimension):
        tx.run(
            sa.text(
                f"CREATE TABLE {name} (thread BIGINT NOT NULL, text BIGINT NOT NULL REFERENCES mastra_texts (key) "
                f"ON DELETE CASCADE, chunk BIGINT NOT NULL, h halfvec({int(op.dimension)}) NOT NULL, "
                "PRIMARY KEY (text, chunk))"
            ),
            keep=False,
        )
        tx.run(sa.text(f"CREATE INDEX {name}_by_thread ON {name} (thread)"), keep=False)
        tx.run(
            sa.text(
                f"CREATE INDEX {name}_near ON {name} USING hnsw (h halfvec_cosine_ops) "
                f"WITH (m = {int(op.m)}, ef_construction = {int(op.ef_construction)})"
            ),
            keep=False,
        )
    missing = (
        "SELECT v.thread, v.text, v.chunk, v.v FROM mastra_vectors v "  # noqa: S608 - a number
        f"WHERE NOT EXISTS (SELECT 1 FROM {name} h WHERE h.text = v.text AND h.chunk = v.chunk)"
    )
    _fill(tx, op.dimension, sa.text(missing))


@handles(SearchHNSW)
def search_hnsw(tx: Tx, op: SearchHNSW) -> list[tuple[int, float]]:
    """Return the nearest vectors of the threads; the scan goes on until enough of them are in the scope."""
    tx.run(sa.text(f"SET LOCAL hnsw.ef_search = {int(op.ef_search)}"), keep=False)
    tx.run(sa.text("SET LOCAL hnsw.iterative_scan = 'strict_order'"), keep=False)
    rows = tx.all(
        sa.text(
            f"SELECT text, 1 - (h <=> CAST(:near AS halfvec)) FROM {table_name(len(op.vector))} "  # noqa: S608 - a number
            "WHERE thread = ANY(CAST(:thread_keys AS bigint[])) ORDER BY h <=> CAST(:near AS halfvec) LIMIT :size"
        ),
        {"near": str(list(op.vector)), "thread_keys": list(op.threads), "size": op.limit},
        keep=False,
    )
    best: dict[int, float] = {}
    for text, cosine in rows:
        best[text] = max(cosine, best.get(text, -1.0))
    return list(best.items())
