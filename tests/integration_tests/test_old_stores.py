"""Database files of earlier versions are opened, brought up to date, and everything in them is found."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest

from langchain_mastra_memory.store.operations.threads import GetThread
from langchain_mastra_memory.store.sql.engine import SQLMemoryStore
from langchain_mastra_memory.store.sql.migrate import migrations
from tests.integration_tests.old_stores import FOLDER, check, fill

FILES = sorted(FOLDER.glob("*.db"))


def schema_of(path: Path) -> list[tuple[str, ...]]:
    connection = sqlite3.connect(path)
    found = connection.execute(
        "SELECT type, name, tbl_name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' ORDER BY name"
    ).fetchall()
    connection.close()
    return found


def test_there_is_a_file_of_every_version_since_the_first_one_that_has_one() -> None:
    numbers = [int(path.stem) for path in FILES]
    assert numbers, "make one: python -m tests.integration_tests.old_stores"
    assert numbers[-1] == len(migrations()), "a migration was added: python -m tests.integration_tests.old_stores"


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
def test_a_file_of_an_earlier_version_is_opened_and_nothing_in_it_is_lost(file: Path, tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    shutil.copy(file, path)
    check(f"sqlite:///{path}")
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    connection.close()


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
def test_a_file_of_an_earlier_version_becomes_what_a_new_one_is(file: Path, tmp_path: Path) -> None:
    """A released migration is never edited: a change is a migration of its own."""
    old, new = tmp_path / "old.db", tmp_path / "new.db"
    shutil.copy(file, old)
    for path in (old, new):
        with SQLMemoryStore(f"sqlite:///{path}") as store:
            store.run(GetThread(thread_id="t"))
    assert schema_of(old) == schema_of(new)


def test_what_is_checked_in_old_files_holds_for_a_new_database_of_every_engine(store_url: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'm.db'}" if store_url == "memory://" else store_url
    fill(url)
    check(url)
