"""How the engines find rows: by the index that fits, whatever they know of a thread's size."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from langchain_core.messages import HumanMessage
from sqlalchemy.dialects import postgresql, sqlite

from langchain_mastra_memory.memory import Memory
from langchain_mastra_memory.store.sql import listing, messages, runs
from langchain_mastra_memory.store.sql.schema import messages as table
from langchain_mastra_memory.store.sql.view import ViewStatements

FORKED = ((0, 990), (1, 1_000))
IN_VIEW = ViewStatements(
    lambda in_view: sa.select(table.c.id).where(table.c.thread == sa.bindparam("thread_key"), in_view)
)


@pytest.mark.parametrize("statement", [messages._BY_ID, runs._BY_ID, runs._LOCATE], ids=["save", "run", "locate"])
def test_sqlite_finds_messages_by_their_ids_and_does_not_walk_the_thread(
    tmp_path: Path, statement: sa.Select[Any]
) -> None:
    path = tmp_path / "m.db"
    with Memory(f"sqlite:///{path}") as memory:
        memory.create_thread("r", thread_id="t")
    compiled = statement.compile(dialect=sqlite.dialect())
    parameters = [{**compiled.params, "thread_key": 1, "ids": "[]"}[name] for name in compiled.positiontup]
    connection = sqlite3.connect(path)
    rows = connection.execute(f"EXPLAIN QUERY PLAN {compiled}", parameters).fetchall()
    connection.close()
    assert "mastra_messages_by_id (thread=? AND id=?)" in " ".join(row[3] for row in rows)


@pytest.mark.postgres
@pytest.mark.parametrize("count", [False, True], ids=["rows", "count"])
def test_postgresql_looks_for_overriding_rows_one_by_one_in_a_thread_that_its_statistics_do_not_know(
    postgres_url: str, count: bool
) -> None:
    import psycopg

    with Memory(postgres_url) as memory, psycopg.connect(postgres_url, autocommit=True) as connection:
        memory.save_messages([("user", "known")], thread_id="old", resource_id="r")
        connection.execute("ANALYZE")
        memory.save_messages([HumanMessage("x", id=f"m{n}") for n in range(1_000)], thread_id="t", resource_id="r")
        shape = listing._Shape(archive=True, dated=False, filtered=False)
        statement, params = (listing._OF_ONE[shape][1] if count else IN_VIEW)(FORKED)
        compiled = statement.compile(dialect=postgresql.dialect())
        values = {**compiled.params, **params, "thread_key": 2}
        plan = "\n".join(row[0] for row in connection.execute(f"EXPLAIN {compiled}", values))
    assert "Join" not in plan  # of the thread with itself: a thousand times a thousand rows
    assert "(thread = mastra_messages.thread) AND (seq = mastra_messages.seq)" in plan
