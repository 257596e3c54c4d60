"""The condition over a list parameter stands alone, so that both engines use an index for it."""

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from langchain_mastra_memory.store.sql.schema import messages
from langchain_mastra_memory.store.sql.tx import any_of


def test_a_list_condition_is_never_compared_with_a_boolean():
    statement = sa.select(messages.c.seq).where(messages.c.thread == sa.bindparam("t"), any_of(messages.c.id, "ids"))
    for dialect in (sqlite.dialect(), postgresql.dialect()):
        text = str(statement.compile(dialect=dialect))
        assert "= 1" not in text
        assert "= true" not in text


def test_sqlite_finds_messages_by_a_list_of_ids_through_the_index(tmp_path):
    import sqlite3

    from langchain_mastra_memory.store.operations.threads import CreateThread
    from langchain_mastra_memory.store.sql.engine import SQLMemoryStore

    path = tmp_path / "m.db"
    with SQLMemoryStore(f"sqlite:///{path}") as store:
        store.run(CreateThread(thread_id="t", resource_id="r"))
    statement = sa.select(messages.c.seq).where(messages.c.thread == sa.bindparam("t"), any_of(messages.c.id, "ids"))
    sql = str(statement.compile(dialect=sqlite.dialect()))
    connection = sqlite3.connect(path)
    plan = " ".join(row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", (1, "[]")))
    connection.close()
    assert "mastra_messages_by_id (thread=? AND id=?)" in plan
