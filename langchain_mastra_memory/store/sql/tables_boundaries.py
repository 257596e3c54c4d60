"""The table of history boundaries: how far the trims of a thread went, for which budget."""

from __future__ import annotations

import sqlalchemy as sa

from langchain_mastra_memory.store.sql.schema import BigInt, Id, metadata

boundaries = sa.Table(
    "mastra_boundaries",
    metadata,
    sa.Column("thread", BigInt, sa.ForeignKey("mastra_threads.key", ondelete="CASCADE"), primary_key=True),
    sa.Column("branch", BigInt, primary_key=True, autoincrement=False),
    sa.Column("seq", BigInt, primary_key=True, autoincrement=False, doc="the newest unit that went stands here"),
    sa.Column("max_tokens", BigInt, primary_key=True, autoincrement=False),
    sa.Column("remove_milli", BigInt, primary_key=True, autoincrement=False, doc="thousandths of a token"),
    sa.Column("message_id", Id, nullable=False),
    sa.Column("created_at", BigInt, nullable=False),
)
