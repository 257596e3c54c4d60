"""The command line: a demonstration, and a look into a database."""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from langchain_mastra_memory._version import __version__
from langchain_mastra_memory.errors import MastraMemoryError, ThreadNotFoundError
from langchain_mastra_memory.shown import shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langchain_mastra_memory.memory import Memory

app = typer.Typer(
    name="langchain-mastra-memory",
    help="Agent memory for LangChain and LangGraph: see it work, look into a database.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Database = Annotated[str, typer.Argument(help="The database: a URL, or the path of a SQLite file.", metavar="DATABASE")]
Owner = Annotated[str | None, typer.Option("--resource", help="Only what this resource owns.", metavar="ID")]


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Take what stands before the command."""
    del version


@app.command()
def demo(
    model: Annotated[
        str | None,
        typer.Option(help="A real chat model, as `init_chat_model` names it (openai:gpt-5-mini). Scripted without."),
    ] = None,
    db: Annotated[
        Path, typer.Option(help="The SQLite file to use; it is kept, and each run adds threads of its own.")
    ] = Path("memory-demo.db"),
) -> None:
    """See an agent remember: a conversation in two processes over one SQLite file."""
    started = time.monotonic()
    path = db.expanduser().resolve()
    if not path.parent.is_dir():
        raise typer.BadParameter(f"there is no folder {path.parent}", param_hint="--db")
    run = secrets.token_hex(2)
    for act in ("tell", "ask"):
        command = [sys.executable, "-m", "langchain_mastra_memory.demo", act, f"sqlite:///{path}", run]
        finished = subprocess.run([*command, *([model] if model else [])], check=False)  # noqa: S603  # our own module
        if finished.returncode:
            raise typer.Exit(finished.returncode)

    from langchain_mastra_memory.demo.printing import Stage  # noqa: PLC0415 - rich, when it is needed

    Stage().closing(
        [
            f"Two processes, one memory, {time.monotonic() - started:.1f} seconds.",
            f"The database is {path}",
            f"Look into it:  langchain-mastra-memory threads {os.path.relpath(path)}",
        ]
    )


@app.command()
def threads(
    database: Database,
    resource: Owner = None,
    limit: Annotated[int, typer.Option(help="How many to show, the newest first.", min=1)] = 20,
) -> None:
    """List the threads of a database."""
    from langchain_mastra_memory.demo.printing import Stage  # noqa: PLC0415 - rich, when it is needed

    with _opened(database) as memory:
        page = (
            memory.list_threads(resource, per_page=limit, order_by="updated_at")
            if resource is not None
            else memory.list_threads(all_resources=True, per_page=limit, order_by="updated_at")
        )
        rows = [
            (
                thread.id,
                thread.resource_id or "",
                thread.title or "",
                memory.recall(thread_id=thread.id, per_page=1).total,
                thread.updated_at.astimezone().strftime("%Y-%m-%d %H:%M:%S"),
            )
            for thread in page
        ]
        stage = Stage()
        stage.table(("thread", "resource", "title", "messages", "updated"), rows)
        stage.remark(f"{len(page)} of {page.total} threads")


@app.command()
def messages(
    database: Database,
    thread: Annotated[str, typer.Argument(help="The id of the thread.", metavar="THREAD")],
    resource: Owner = None,
    limit: Annotated[int, typer.Option(help="How many to show, the newest.", min=1)] = 20,
) -> None:
    """Show the newest messages of a thread, oldest first."""
    from langchain_mastra_memory.demo.printing import Stage, shortened  # noqa: PLC0415 - rich, when it is needed

    with _opened(database) as memory:
        if memory.get_thread(thread, resource_id=resource) is None:
            raise ThreadNotFoundError(
                f"there is no thread {shown(thread, 80)} here" + (f" of {shown(resource, 80)}" if resource else "")
            )
        page = memory.recall(thread_id=thread, resource_id=resource, per_page=limit, direction="desc")
        rows = [
            (
                stored.seq,
                stored.role,
                stored.tokens,
                stored.created_at.astimezone().strftime("%Y-%m-%d %H:%M:%S"),
                shortened(stored.message.text, 100) or ", ".join(_calls(stored.message)),
            )
            for stored in sorted(page, key=lambda stored: stored.seq)
        ]
        stage = Stage()
        stage.table(("seq", "role", "tokens", "time", "text"), rows)
        stage.remark(f"{len(page)} of {page.total} messages")


def _calls(message: object) -> list[str]:
    """Return what a message without text calls."""
    return [f"calls {call['name']}" for call in getattr(message, "tool_calls", ())]


@contextlib.contextmanager
def _opened(database: str) -> Iterator[Memory]:
    """Open a database that exists; its errors end the command with their message."""
    from langchain_mastra_memory.memory import Memory  # noqa: PLC0415 - LangGraph, when it is needed

    url = database if "://" in database else f"sqlite:///{Path(database).expanduser().resolve()}"
    path = _sqlite_file(url)
    if path is not None and not path.is_file():
        fault = f"{path} is a folder" if path.is_dir() else f"there is no file {path}"
        raise typer.BadParameter(fault, param_hint="DATABASE")
    try:
        with Memory(url, read_only=True) as memory:
            yield memory
    except MastraMemoryError as error:
        typer.echo(f"{type(error).__name__}: {error}", err=True)
        raise typer.Exit(1) from error


def _sqlite_file(url: str) -> Path | None:
    """Return the file of a SQLite URL, so that looking at it does not make it; None for every other URL."""
    scheme, _, rest = url.partition("://")
    return Path(rest.removeprefix("/").partition("?")[0]).resolve() if scheme.startswith("sqlite") else None


if __name__ == "__main__":
    app()
