"""The tables of the observation log."""

from __future__ import annotations

import sqlalchemy as sa

from langchain_mastra_memory.store.sql.schema import BigInt, Id, metadata

logs = sa.Table(
    "mastra_logs",
    metadata,
    sa.Column("key", BigInt, sa.Identity(), primary_key=True),
    sa.Column("scope", Id, nullable=False, unique=True, doc="`t:` and a thread's key, or `r:` and a resource's id"),
    sa.Column("thread", BigInt, sa.ForeignKey("mastra_threads.key", ondelete="CASCADE")),
    sa.Column("resource_id", Id),
    sa.Column("epoch", Id, nullable=False, doc="random; new after a clear or a deletion"),
    sa.Column("version", BigInt, nullable=False, doc="that of the newest head, on whichever line"),
    sa.Column("refused", BigInt, doc="the size of the log when a reflector last failed to make it smaller"),
    sa.Column("created_at", BigInt, nullable=False),
    sa.Index("mastra_logs_of_thread", "thread"),
    sa.Index("mastra_logs_of_resource", "resource_id"),
)

log_rows = sa.Table(
    "mastra_log_rows",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("log", BigInt, sa.ForeignKey("mastra_logs.key", ondelete="CASCADE"), nullable=False),
    sa.Column("inputs", sa.Text, nullable=False, doc="JSON: the rows that a reflection replaces"),
    sa.Column("text", sa.Text, nullable=False),
    sa.Column("tokens", BigInt, nullable=False),
    sa.Column("message_tokens", BigInt, nullable=False),
    sa.Column("messages", BigInt, nullable=False),
    sa.Column(
        "hints",
        sa.Text,
        nullable=False,
        doc="JSON: current task, suggested response, title, whether asked for; generation",
    ),
    sa.Column("extracted", sa.Text, nullable=False, doc="JSON: values by slug"),
    sa.Column("first_at", BigInt),
    sa.Column("last_at", BigInt),
    sa.Column("model", sa.Text),
    sa.Column("origin", Id, doc="in a clone inside one resource: the row that it is a copy of"),
    sa.Column("stale", BigInt, nullable=False, doc="1: a message that it was made from has changed"),
    sa.Column("terms", sa.LargeBinary, doc="for the recall tool's search"),
    sa.Column("created_at", BigInt, nullable=False),
    sa.Index("mastra_log_rows_of_log", "log"),
)

log_spans = sa.Table(
    "mastra_log_spans",
    metadata,
    sa.Column("row_id", Id, sa.ForeignKey("mastra_log_rows.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("thread", BigInt, primary_key=True, autoincrement=False),
    sa.Column("branch", BigInt, nullable=False),
    sa.Column("after_seq", BigInt, nullable=False, doc="it covers after_seq < seq <= upto"),
    sa.Column("upto", BigInt, nullable=False),
    sa.Index("mastra_log_spans_of_thread", "thread", "upto"),
)

log_heads = sa.Table(
    "mastra_log_heads",
    metadata,
    sa.Column("log", BigInt, sa.ForeignKey("mastra_logs.key", ondelete="CASCADE"), primary_key=True),
    sa.Column("version", BigInt, primary_key=True, autoincrement=False),
    sa.Column("line", BigInt, nullable=False, doc="the branch in thread scope, 0 in resource scope"),
    sa.Column("at_seq", BigInt, nullable=False, doc="the last seq in view when it was written"),
    sa.Column("names", sa.Text, nullable=False, doc="JSON: the rows in the log, those that wait, a waiting reflection"),
    sa.Column("created_at", BigInt, nullable=False),
    sa.Index("mastra_log_heads_of_line", "log", "line", "version"),
)

log_claims = sa.Table(
    "mastra_log_claims",
    metadata,
    sa.Column("log", BigInt, sa.ForeignKey("mastra_logs.key", ondelete="CASCADE"), primary_key=True),
    sa.Column("line", BigInt, primary_key=True, autoincrement=False),
    sa.Column("phase", Id, primary_key=True),
    sa.Column("owner", Id, nullable=False),
    sa.Column("expires_at", BigInt, nullable=False),
)

log_calls = sa.Table(
    "mastra_log_calls",
    metadata,
    sa.Column("key", BigInt, sa.Identity(), primary_key=True),
    sa.Column("log", BigInt, sa.ForeignKey("mastra_logs.key", ondelete="CASCADE"), nullable=False),
    sa.Column("phase", sa.Text, nullable=False),
    sa.Column("outcome", sa.Text, nullable=False),
    sa.Column("model", sa.Text),
    sa.Column("input_tokens", BigInt, nullable=False),
    sa.Column("output_tokens", BigInt, nullable=False),
    sa.Column("total_tokens", BigInt, nullable=False),
    sa.Column("duration_ms", BigInt, nullable=False),
    sa.Column("details", sa.Text, nullable=False, doc="JSON: what the provider says of the call, cost where it does"),
    sa.Column("created_at", BigInt, nullable=False),
    sa.Index("mastra_log_calls_of_log", "log"),
)
