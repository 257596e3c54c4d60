from __future__ import annotations

import os
import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from langchain_core.messages import HumanMessage
from typer.testing import CliRunner

from langchain_mastra_memory import Memory, __version__
from langchain_mastra_memory.cli import app

ENVIRONMENT = {**os.environ, "COLUMNS": "160", "NO_COLOR": "1", "TERM": "dumb"}


def run(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "langchain_mastra_memory.cli", *arguments],
        cwd=cwd,
        env={**ENVIRONMENT, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture(scope="module")
def played(tmp_path_factory) -> tuple[str, Path]:
    """Return what the demonstration printed and its folder, played once."""
    folder = tmp_path_factory.mktemp("demo")
    finished = run("demo", cwd=folder)
    assert finished.returncode == 0, finished.stderr
    assert finished.stderr == ""
    return finished.stdout, folder


def section(output: str, start: str, end: str) -> str:
    return output.split(start, 1)[1].split(end, 1)[0]


def test_the_two_acts_are_played_by_two_processes(played):
    output, _ = played
    pids = re.findall(r"Process \d \(pid (\d+)\)", output)
    assert len(set(pids)) == len(pids) == 2
    assert str(os.getpid()) not in pids


def test_it_says_that_the_model_is_scripted(played):
    assert played[0].count("The chat model is scripted") == 2


def test_the_second_process_answers_from_what_the_first_was_told(played):
    assert "Ada is coming with Pixel the dog; no peanuts in the kitchen, please." in section(
        played[0], "Process 2", "A fork"
    )


def test_it_shows_what_the_model_sees_layer_by_layer_and_that_it_was_true(played):
    shown = section(played[0], "Process 2", "Ada's threads")
    rows = {
        line.split()[0]: line
        for line in shown.splitlines()
        if line.split()[:1] and line.split()[0] in {"instructions", "history", "turn", "total"}
    }
    assert set(rows) == {"instructions", "history", "turn", "total"}
    assert re.search(r"history\s+6\s+\d+", rows["history"])
    tokens = [int(re.findall(r"\s(\d+)(?=\s|$)", line)[-1]) if name == "total" else None for name, line in rows.items()]
    assert max(token for token in tokens if token is not None) > 0
    assert re.search(r"the model was sent exactly these 8 messages", shown)


def test_it_lists_both_threads_of_the_user(played):
    listed = section(played[0], "Ada's threads", "A fork")
    assert re.search(r"trip-\w+\s+A weekend in Lisbon\s+8\s", listed)
    assert re.search(r"report-\w+\s+Quarterly report\s+2\s", listed)


def test_the_fork_does_not_know_what_came_later_and_the_line_that_was_left_does(played):
    fork = section(played[0], "A fork", "The line that was left")
    left = section(played[0], "The line that was left", "Two processes")
    assert "Not that you have told me, Ada." in fork
    assert "peanuts" not in fork
    assert "Yes, to peanuts." in left
    assert "The thread now has 2 lines" in left


def test_the_database_is_where_it_says_and_whole(played):
    output, folder = played
    path = folder / "memory-demo.db"
    assert str(path) in output.replace("\n", "")
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_threads_lists_what_the_demonstration_left(played):
    _, folder = played
    result = CliRunner().invoke(app, ["threads", str(folder / "memory-demo.db"), "--resource", "ada"])
    assert result.exit_code == 0, result.output
    assert "A weekend in Lisbon" in result.output
    assert "2 of 2 threads" in result.output


def test_messages_shows_the_conversation(played):
    output, folder = played
    thread = re.search(r"(report-\w+)", output)
    assert thread
    result = CliRunner().invoke(app, ["messages", str(folder / "memory-demo.db"), thread[1], "--limit", "1"])
    assert result.exit_code == 0, result.output
    assert "Gladly." in result.output
    assert "1 of 2 messages" in result.output


def test_a_second_run_adds_threads_and_keeps_the_first(played, tmp_path):
    _, folder = played
    shutil.copy(folder / "memory-demo.db", tmp_path / "kept.db")
    finished = run("demo", "--db", "kept.db", cwd=tmp_path)
    assert finished.returncode == 0, finished.stderr
    assert "4 of 4 threads" in CliRunner().invoke(app, ["threads", str(tmp_path / "kept.db")]).output


def test_a_model_by_name_takes_the_place_of_the_scripted_one(tmp_path):
    provider = tmp_path / "langchain_openai.py"
    provider.write_text(
        "from langchain_mastra_memory.testing import ScriptedChatModel\n"
        "class ChatOpenAI(ScriptedChatModel):\n"
        "    model_config = {'extra': 'allow'}\n"
        "    def __init__(self, model, **options):\n"
        "        super().__init__(lambda messages: f'I see {len(messages)} messages', model_name=model)\n"
    )
    finished = run("demo", "--model", "openai:gpt-5-mini", cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.count("The chat model is gpt-5-mini.") == 2
    assert "scripted" not in finished.stdout
    assert "I see 8 messages" in finished.stdout


def test_a_model_that_cannot_be_made_is_said_without_a_traceback(tmp_path):
    finished = run("demo", "--model", "nobody:knows", cwd=tmp_path)
    assert finished.returncode == 1
    assert "ConfigurationError: the model 'nobody:knows' cannot be made" in finished.stderr
    assert "Traceback" not in finished.stderr


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    result = CliRunner().invoke(app, ["demo", "--db", str(tmp_path / "none" / "memory.db")])
    assert result.exit_code == 2
    assert "there is no folder" in result.output


@pytest.mark.parametrize("url", ["{}", "sqlite:///{}", "sqlite+pysqlite:///{}", "sqlite:///{}?timeout=1"])
@pytest.mark.parametrize("command", [["threads"], ["messages", "t1"]])
def test_looking_into_a_file_that_is_not_there_makes_none(tmp_path, command, url):
    path = tmp_path / "none.db"
    result = CliRunner().invoke(app, [command[0], url.format(path), *command[1:]])
    assert result.exit_code == 2
    assert "there is no file" in result.output
    assert not path.exists()


def test_a_folder_is_called_one(tmp_path):
    result = CliRunner().invoke(app, ["threads", str(tmp_path)])
    assert result.exit_code == 2
    assert "is a folder" in result.output.replace("\n", "")


def test_the_package_of_the_demonstration_runs_it_too(tmp_path):
    finished = subprocess.run(
        [sys.executable, "-m", "langchain_mastra_memory.demo"],
        cwd=tmp_path,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (finished.returncode, finished.stderr) == (0, "")
    assert len(re.findall(r"Process \d \(pid \d+\)", finished.stdout)) == 2
    assert (tmp_path / "memory-demo.db").exists()


def test_the_version_is_that_of_the_package():
    assert CliRunner().invoke(app, ["--version"]).output == f"{__version__}\n"


HOSTILE = "\x1b]0;title\x07 \x9b31m \u202e \ud800 \x00 line\nline [bold]no markup[/bold]"


@pytest.fixture
def hostile(tmp_path) -> Path:
    """Return a database whose ids, titles and messages are not made for terminals."""
    path = tmp_path / "hostile.db"
    with Memory(f"sqlite:///{path}") as memory:
        memory.create_thread("\x1b[2J", thread_id="漢字", title=HOSTILE)
        memory.save_messages([HumanMessage(HOSTILE)], thread_id="漢字")
    return path


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("command", [["threads"], ["messages", "漢字"]])
def test_what_people_wrote_cannot_steer_the_terminal_and_is_always_printed(hostile, command, encoding):
    finished = run(
        command[0], str(hostile), *command[1:], cwd=hostile.parent, PYTHONIOENCODING=encoding, PYTHONUTF8="1"
    )
    assert finished.returncode == 0, finished.stderr
    assert "\\x1b]0;title\\x07 \\x9b31m \\u202e \\ud800 \\x00 line" in finished.stdout
    assert "[bold]no markup[/bold]" in finished.stdout
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", finished.stdout)
    if command == ["threads"]:
        assert ("漢字" if encoding == "utf-8" else "\\u6f22\\u5b57") in finished.stdout


def test_ids_are_whole_on_a_narrow_terminal_and_rows_are_lines_in_a_pipe(tmp_path, monkeypatch):
    path = tmp_path / "memory.db"
    with Memory(f"sqlite:///{path}") as memory:
        ids = [memory.create_thread("a resource with a long name " * 3, title="word " * 40).id for _ in range(2)]
    monkeypatch.setenv("COLUMNS", "80")
    narrow = CliRunner().invoke(app, ["threads", str(path)]).output
    assert all(re.search(rf"^{thread} ", narrow, re.MULTILINE) for thread in ids)
    assert max(len(line) for line in narrow.splitlines()) <= 80
    monkeypatch.delenv("COLUMNS")
    piped = CliRunner().invoke(app, ["threads", str(path)]).output
    assert len(piped.splitlines()) == 1 + len(ids) + 1
    assert ("word " * 40).strip() in piped


@pytest.mark.parametrize("command", [["threads"], ["messages", "t1"]])
def test_a_file_that_is_no_database_is_refused_with_the_error_s_name(tmp_path, command):
    path = tmp_path / "letter.db"
    path.write_text("Dear Ada, " * 1000)
    result = CliRunner().invoke(app, [command[0], str(path), *command[1:]])
    assert result.exit_code == 1
    assert "StoreCorruptError" in result.output
    assert path.read_text() == "Dear Ada, " * 1000


def test_a_thread_that_is_not_there_is_said(played):
    _, folder = played
    result = CliRunner().invoke(app, ["messages", str(folder / "memory-demo.db"), "missing"])
    assert result.exit_code == 1
    assert "ThreadNotFoundError" in result.output
