"""Find and run the examples of the documentation: fences in Markdown pages and in docstrings.

A page is a program: its `python` fences run from top to bottom in one namespace, in an empty folder, with `await`
allowed as in a notebook. What a fence prints is compared with its `#>` lines, if it has any. After `python`, the
info string may say `new` (start over with an empty namespace) or `raises=ErrorName` (the fence must end with it).
A page scripts its models with a comment, `<!-- replies: ["text", {"call": "tool", "args": {}}] -->`.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import json
import re
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]

FENCE = re.compile(
    r"^(?P<indent>[ \t]*)```(?P<info>[^\n`]*)\n(?P<code>.*?)^(?P=indent)```[ \t]*$", re.MULTILINE | re.DOTALL
)
REPLIES = re.compile(r"<!--\s*replies:\s*(?P<json>.*?)\s*-->", re.DOTALL)


@dataclass(frozen=True)
class Fence:
    """One fenced block: where it stands, what its info string says, and its code without the indent."""

    path: Path
    line: int
    language: str
    options: dict[str, str] = field(hash=False)
    code: str

    def __str__(self) -> str:
        name = self.path.relative_to(ROOT) if self.path.is_relative_to(ROOT) else self.path
        return f"{name}:{self.line}"


def markdown_pages() -> list[Path]:
    """Return every Markdown page that a reader may see."""
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def fences(path: Path, text: str | None = None, first_line: int = 1) -> list[Fence]:
    """Return the fences of a page, or of a part of it (`first_line`: where the part begins)."""
    text = path.read_text() if text is None else text
    found = []
    for match in FENCE.finditer(text):
        words = match["info"].split()
        indent = match["indent"]
        code = "\n".join(line.removeprefix(indent) for line in match["code"].splitlines()) + "\n"
        options = dict((*word.split("=", 1), "")[:2] for word in words[1:])
        line = first_line + text.count("\n", 0, match.start("code"))
        found.append(Fence(path, line, words[0] if words else "", options, code))
    return found


def scripted_replies(text: str) -> list[Any]:
    """Return the replies that a page gives its models."""
    match = REPLIES.search(text)
    return json.loads(match["json"]) if match else []


def run_page(page_fences: list[Fence], namespace: dict[str, Any]) -> None:
    """Run the fences of a page in order."""
    present = dict(namespace)
    with asyncio.Runner() as runner:
        for fence in page_fences:
            if "new" in fence.options:
                present = dict(namespace)
            run_fence(fence, present, runner)


def run_fence(fence: Fence, namespace: dict[str, Any], runner: asyncio.Runner, flags: int = 0) -> None:
    """Run one fence and compare what it prints with what it says it prints."""
    # Blank lines in front make line numbers in a traceback those of the page.
    source = "\n" * (fence.line - 1) + fence.code
    flags |= ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    code = compile(source, str(fence.path), "exec", flags=flags, dont_inherit=True)
    printed = io.StringIO()
    expected_error = fence.options.get("raises")
    with contextlib.redirect_stdout(printed):
        try:
            _execute(code, namespace, runner)
        except Exception as error:
            if expected_error is None or type(error).__name__ != expected_error:
                error.add_note(f"raised by the example at {fence}")
                raise
        else:
            assert expected_error is None, f"{fence} must raise {expected_error}"
    shown = [line.strip()[2:].strip() for line in fence.code.splitlines() if line.strip().startswith("#>")]
    if shown:
        said = [line.rstrip() for line in printed.getvalue().splitlines()]
        printed_lines = [line.strip() for line in said]
        assert printed_lines == shown, f"{fence} prints something else than it shows: {printed_lines}"


def _execute(code: types.CodeType, namespace: dict[str, Any], runner: asyncio.Runner) -> None:
    namespace.setdefault("__name__", "example")
    if code.co_flags & inspect.CO_COROUTINE:
        function = types.FunctionType(code, namespace)
        runner.run(function())
    else:
        exec(code, namespace)


def docstrings(path: Path) -> Iterator[tuple[str, str, int]]:
    """Yield (name, docstring, its first line) of everything in a module that has a docstring with a fence."""
    tree = ast.parse(path.read_text())
    for node, name in _named(tree, ""):
        first = node.body[0] if node.body else None
        if not (isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)):
            continue
        if isinstance(first.value.value, str) and "```" in first.value.value:
            yield name or path.stem, first.value.value, first.lineno


def _named(node: ast.AST, prefix: str) -> Iterator[tuple[Any, str]]:
    if isinstance(node, ast.Module):
        yield node, prefix
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            name = f"{prefix}.{child.name}" if prefix else child.name
            yield child, name
            yield from _named(child, name)
