"""The tables of the checkpointer.

A checkpoint's row says where each channel's value is: inside the row, in `mastra_values`, or, for messages, as ranges
of numbers into `mastra_bodies`. See `langchain_mastra_memory.threads.entries` for what the bytes hold.
"""

from __future__ import annotations

import sqlalchemy as sa

from langchain_mastra_memory.store.sql.schema import BigInt, Id, metadata

checkpoints = sa.Table(
    "mastra_checkpoints",
    metadata,
    sa.Column("thread", BigInt, sa.ForeignKey("mastra_threads.key", ondelete="CASCADE"), primary_key=True),
    sa.Column("ns", Id, primary_key=True, doc="'/' and LangGraph's namespace, so that it is never empty"),
    sa.Column("id", Id, primary_key=True),
    sa.Column("parent", Id),
    sa.Column("body", sa.LargeBinary, nullable=False, doc="the checkpoint and where its values are"),
    sa.Column("metadata", sa.Text, nullable=False, doc="JSON, for filters and for reading"),
    sa.Column("run", Id, doc="the run_id of the metadata, for delete_for_runs"),
    sa.Column("hidden", BigInt, nullable=False, doc="1: deleted, kept for the writes that later checkpoints build on"),
    sa.Column("branch", BigInt, doc="root namespace: the line of the archive that it stands on"),
    sa.Column("head", BigInt, doc="root namespace: the last seq in its view"),
    sa.Column("base", BigInt, doc="root namespace: the head when its run began"),
    sa.Column("created_at", BigInt, nullable=False),
)
sa.Index(
    "mastra_checkpoints_by_run",
    checkpoints.c.run,
    sqlite_where=checkpoints.c.run.is_not(None),
    postgresql_where=checkpoints.c.run.is_not(None),
)

bodies = sa.Table(
    "mastra_bodies",
    metadata,
    sa.Column("thread", BigInt, sa.ForeignKey("mastra_threads.key", ondelete="CASCADE"), primary_key=True),
    sa.Column("space", Id, primary_key=True, doc="the channel, with the nodes of its namespace: numbers count in it"),
    sa.Column("n", BigInt, primary_key=True, autoincrement=False),
    sa.Column("id", Id, doc="the message's id"),
    sa.Column("form", sa.Text, nullable=False, doc="how the body is written; 'gone' when the message was deleted"),
    sa.Column("body", sa.LargeBinary, nullable=False),
)

values = sa.Table(
    "mastra_values",
    metadata,
    sa.Column("thread", BigInt, sa.ForeignKey("mastra_threads.key", ondelete="CASCADE"), primary_key=True),
    sa.Column("n", BigInt, primary_key=True, autoincrement=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
)

writes = sa.Table(
    "mastra_writes",
    metadata,
    sa.Column("thread", BigInt, sa.ForeignKey("mastra_threads.key", ondelete="CASCADE"), primary_key=True),
    sa.Column("ns", Id, primary_key=True),
    sa.Column("checkpoint", Id, primary_key=True, doc="may arrive before its checkpoint does"),
    sa.Column("task_id", Id, primary_key=True),
    sa.Column("task_path", Id, nullable=False),
    sa.Column("body", sa.LargeBinary, nullable=False, doc="every write of the task: index, channel, value"),
)
