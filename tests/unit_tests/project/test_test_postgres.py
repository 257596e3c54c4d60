from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psycopg
import pytest

ROOT = Path(__file__).parents[3]
SESSION = textwrap.dedent(
    """
    import os, psycopg, pytest

    @pytest.mark.parametrize("number", range(4))
    def test_a_table_can_be_made(postgres_url, number, worker_id):
        with psycopg.connect(postgres_url) as connection:
            assert connection.execute("select count(*) from pg_tables where schemaname = 'public'").fetchone() == (0,)
            connection.execute("create table kept (x int)")
            print("SERVER", connection.info.port, os.environ["MASTRA_TEST_POSTGRES_FOLDER"].split(":")[1])
    """
)


def test_the_database_is_new_and_empty_and_takes_any_text(postgres_url):
    with psycopg.connect(postgres_url) as connection:
        tables = connection.execute("select count(*) from pg_tables where schemaname = 'public'").fetchone()
        encoding = connection.execute("show server_encoding").fetchone()
    assert tables == (0,)
    assert encoding == ("UTF8",)


def test_pgvector_is_there(postgres_url):
    with psycopg.connect(postgres_url) as connection:
        connection.execute("create extension vector")
        assert connection.execute("select '[1,2]'::vector <-> '[1,3]'").fetchone() == (1.0,)


def test_what_needs_postgres_is_marked(request, postgres_url):
    assert request.node.get_closest_marker("postgres")


def test_each_store_has_its_own_url(store_url, request):
    assert store_url.startswith(request.node.callspec.params["store_url"])


def session(folder: Path, *options: str) -> subprocess.Popen[str]:
    (folder / "test_session.py").write_text(SESSION)
    (folder / "conftest.py").write_text("from tests.conftest import *")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for name in list(environment):
        if name.startswith(("MASTRA_TEST", "PYTEST")):
            del environment[name]
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-rP",
            "-p",
            "no:cacheprovider",
            *options,
            str(folder / "test_session.py"),
        ],
        cwd=folder,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


@pytest.mark.slow
def test_workers_share_one_server_and_nothing_of_it_stays(tmp_path):
    with session(tmp_path, "-n", "2") as run:
        output, _ = run.communicate(timeout=60)
    assert run.returncode == 0, output
    servers = {line for line in output.splitlines() if line.startswith("SERVER")}
    assert len(servers) == 1, output
    _, port, folder = servers.pop().split()
    assert not Path(folder).exists()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(f"postgresql://postgres@127.0.0.1:{port}/postgres")


@pytest.mark.slow
def test_a_killed_session_leaves_no_server():
    code = "import sys; from tests.postgres import *; f = PostgresFolder.create(); print(f.url(), f.path, flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as owner:
        url, folder = owner.stdout.readline().split()
        psycopg.connect(f"{url}/postgres").close()
        owner.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 30
    while Path(folder).exists():
        assert time.monotonic() < deadline, "the server's folder is still there"
        time.sleep(0.1)
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(f"{url}/postgres")
