"""The table of working-memory pages."""

from __future__ import annotations

import sqlalchemy as sa

from langchain_mastra_memory.store.sql.schema import BigInt, Id, messages, metadata

pages = sa.Table(
    "mastra_pages",
    metadata,
    sa.Column("key", BigInt, sa.Identity(), primary_key=True),
    sa.Column("resource_id", Id, doc="the owner of a page of resource scope; NULL in thread scope"),
    sa.Column(
        "thread",
        BigInt,
        sa.ForeignKey("mastra_threads.key", ondelete="CASCADE"),
        doc="the owner of a page of thread scope; NULL in resource scope",
    ),
    sa.Column("version", BigInt, nullable=False),
    sa.Column("page", sa.Text, doc="NULL: erased"),
    sa.Column("writer", sa.Text, nullable=False),
    sa.Column("call", Id, doc="what asked for it, the same for its retries and replays"),
    sa.Column("branch", BigInt, doc="with seq: where it holds from; NULL: see message_id, or from the beginning"),
    sa.Column("seq", BigInt),
    sa.Column("message_id", Id, doc="the message it holds after, archived after the page was written"),
    sa.Column("stand_ins", sa.Text, doc="JSON [id, ...]: messages before that one, in case it is never archived"),
    sa.Column("created_at", BigInt, nullable=False),
    sa.Index("mastra_pages_of_resource", "resource_id", "version", unique=True),
    sa.Index("mastra_pages_of_thread", "thread", "version", unique=True),
    sa.Index("mastra_pages_by_call", "call"),
)

# State signals are few among many messages; a partial index costs nothing for the others.
_SIGNAL = sa.text("kind = 'signal'")
sa.Index("mastra_messages_signals", messages.c.thread, messages.c.seq, sqlite_where=_SIGNAL, postgresql_where=_SIGNAL)
