"""The tables of semantic recall: terms and vectors of messages, embedding models, what an outside index must forget."""

from __future__ import annotations

import sqlalchemy as sa

from langchain_mastra_memory.store.sql.schema import BigInt, Id, metadata

texts = sa.Table(
    "mastra_texts",
    metadata,
    sa.Column("key", BigInt, sa.Identity(), primary_key=True),
    sa.Column("thread", BigInt, nullable=False),
    sa.Column("seq", BigInt, nullable=False),
    sa.Column("branch", BigInt, nullable=False),
    sa.Column("terms", sa.LargeBinary, nullable=False, doc="see recall/terms.py"),
    sa.Column("chunks", BigInt, doc="how many vectors it has; NULL: still to be embedded, -1: nobody asked for it"),
    sa.Column("point", BigInt, doc="its random name in an outside vector index; NULL: its vectors are here"),
    sa.ForeignKeyConstraint(
        ["thread", "seq", "branch"],
        ["mastra_messages.thread", "mastra_messages.seq", "mastra_messages.branch"],
        ondelete="CASCADE",
    ),
    sa.Index("mastra_texts_by_place", "thread", "seq", "branch", unique=True),
)
sa.Index(
    "mastra_texts_pending",
    texts.c.thread,
    texts.c.key,
    sqlite_where=texts.c.chunks.is_(None),
    postgresql_where=texts.c.chunks.is_(None),
)
sa.Index(
    "mastra_texts_by_point",
    texts.c.point,
    sqlite_where=texts.c.point.is_not(None),
    postgresql_where=texts.c.point.is_not(None),
)

models = sa.Table(
    "mastra_models",
    metadata,
    sa.Column("key", BigInt, sa.Identity(), primary_key=True),
    sa.Column("name", Id, nullable=False),
    sa.Column("dimension", BigInt, nullable=False),
    sa.Index("mastra_models_by_name", "name", "dimension", unique=True),
)

vectors = sa.Table(
    "mastra_vectors",
    metadata,
    sa.Column("key", BigInt, sa.Identity(), primary_key=True),
    sa.Column("thread", BigInt, nullable=False, doc="the thread of its text"),
    sa.Column("text", BigInt, sa.ForeignKey("mastra_texts.key", ondelete="CASCADE"), nullable=False),
    sa.Column("chunk", BigInt, nullable=False),
    sa.Column("model", BigInt, sa.ForeignKey("mastra_models.key"), nullable=False),
    sa.Column("v", sa.LargeBinary, nullable=False, doc="int8; the scale is one over its norm"),
    sa.Index("mastra_vectors_by_text", "text", "chunk", unique=True),
    sa.Index("mastra_vectors_by_thread", "thread", "key"),
    sa.Index("mastra_vectors_by_model", "model"),
)

outbox = sa.Table(
    "mastra_outbox",
    metadata,
    sa.Column("point", BigInt, primary_key=True, autoincrement=False),
    sa.Column("chunks", BigInt, nullable=False, doc="how many entries it may have in the outside index"),
    sa.Column("until", BigInt, nullable=False, doc="until then somebody may still be writing it there"),
    sa.Column("gone", BigInt, nullable=False, doc="1: its message is gone, the outside index must forget it"),
)
sa.Index("mastra_outbox_due", outbox.c.until, sqlite_where=outbox.c.gone == 1, postgresql_where=outbox.c.gone == 1)

recall_state = sa.Table(
    "mastra_recall",
    metadata,
    sa.Column("name", Id, primary_key=True),
    sa.Column("value", sa.Text, nullable=False, doc="terms: the version of the tokenizer that made the blobs"),
)
