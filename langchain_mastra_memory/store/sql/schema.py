"""The tables of the foundation. Later features add theirs on the same metadata, in `tables_*.py`.

Names carry a prefix, since a PostgreSQL database is often shared with an application that has threads of its own.
Columns hold ints, floats, text and bytes only: times are microseconds since 1970 UTC, JSON is text.
"""

from __future__ import annotations

import sqlalchemy as sa

metadata = sa.MetaData()

#: A key inside the database; SQLite gives rowids to INTEGER keys only.
BigInt = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
#: Ids are compared and ordered by their bytes on every engine.
Id = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")

schema_version = sa.Table(
    "mastra_schema",
    metadata,
    sa.Column("version", BigInt, primary_key=True, autoincrement=False),
    sa.Column("applied_at", BigInt, nullable=False),
)

threads = sa.Table(
    "mastra_threads",
    metadata,
    sa.Column("key", BigInt, sa.Identity(), primary_key=True),
    sa.Column("id", Id, nullable=False, unique=True),
    sa.Column("resource_id", Id, doc="NULL: made by a bare checkpointer, nobody has named it yet"),
    sa.Column("title", sa.Text),
    sa.Column("titled_by", sa.Text, doc="person | run | model: a person's title is never overwritten"),
    sa.Column("metadata", sa.Text, nullable=False),
    sa.Column("next_seq", BigInt, nullable=False, doc="the seq of the next message"),
    sa.Column("branch", BigInt, nullable=False, doc="where the thread stands: its line"),
    sa.Column("head", BigInt, nullable=False, doc="where the thread stands: the last seq in view"),
    sa.Column("epoch", BigInt, nullable=False, doc="random; another one means another history under the same id"),
    sa.Column("texts", BigInt, nullable=False, doc="counts saves and vector writes"),
    sa.Column("edits", BigInt, nullable=False, doc="counts everything else that changes what can be found"),
    sa.Column("created_at", BigInt, nullable=False),
    sa.Column("updated_at", BigInt, nullable=False),
    sa.Index("mastra_threads_by_resource", "resource_id", "created_at", "id"),
)

branches = sa.Table(
    "mastra_branches",
    metadata,
    sa.Column("thread", BigInt, sa.ForeignKey("mastra_threads.key", ondelete="CASCADE"), primary_key=True),
    sa.Column("branch", BigInt, primary_key=True, autoincrement=False),
    sa.Column("path", sa.Text, nullable=False, doc="JSON [[branch, cut], ...]: its ancestors, oldest first"),
    sa.Column("created_at", BigInt, nullable=False),
)

messages = sa.Table(
    "mastra_messages",
    metadata,
    sa.Column("thread", BigInt, sa.ForeignKey("mastra_threads.key", ondelete="CASCADE"), primary_key=True),
    sa.Column("seq", BigInt, primary_key=True, autoincrement=False),
    sa.Column("branch", BigInt, primary_key=True, autoincrement=False),
    sa.Column("id", Id, nullable=False),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, doc="NULL is an ordinary message"),
    sa.Column("body", sa.LargeBinary, nullable=False),
    sa.Column("metadata", sa.Text, doc="NULL is {}"),
    sa.Column("tokens", BigInt, nullable=False),
    sa.Column("revision", BigInt, nullable=False),
    sa.Column("outside", BigInt, nullable=False, doc="1: entered outside a run (import, clone, save_messages)"),
    sa.Column("created_at", BigInt, nullable=False),
    sa.Index("mastra_messages_by_id", "thread", "id", "branch", unique=True),
)

sa.Index(
    "mastra_messages_by_kind",
    messages.c.thread,
    messages.c.kind,
    messages.c.seq,
    messages.c.branch,
    sqlite_where=messages.c.kind.is_not(None),
    postgresql_where=messages.c.kind.is_not(None),
)

tombstones = sa.Table(
    "mastra_tombstones",
    metadata,
    sa.Column("thread", BigInt, sa.ForeignKey("mastra_threads.key", ondelete="CASCADE"), primary_key=True),
    sa.Column("id", Id, primary_key=True),
    sa.Column("created_at", BigInt, nullable=False),
)

resources = sa.Table(
    "mastra_resources",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("metadata", sa.Text, nullable=False),
    sa.Column("derived_from", Id, doc="the parent's resource id, for a sub-agent's"),
    sa.Column("derived_agent", Id, doc="the sub-agent's name"),
    sa.Column("version", BigInt, nullable=False),
    sa.Column("created_at", BigInt, nullable=False),
    sa.Column("updated_at", BigInt, nullable=False),
)
