"""The table of history boundaries (how far the trims of a thread went, for which budget), and an index for runs."""

from __future__ import annotations

import sqlalchemy as sa

from langchain_mastra_memory.store.sql.schema import BigInt, Id, messages, metadata

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

#: What entered outside a run joins the view of a state: each run asks for it, and mostly there is none.
IS_OUTSIDE = messages.c.outside == sa.literal_column("1")
sa.Index(
    "mastra_messages_outside",
    messages.c.thread,
    messages.c.seq,
    sqlite_where=IS_OUTSIDE,
    postgresql_where=IS_OUTSIDE,
)
