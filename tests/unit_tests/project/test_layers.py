"""The one direction of the layers: core <- store and model calls <- adapters. Only imports that run count."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import langchain_mastra_memory

PACKAGE = Path(langchain_mastra_memory.__file__).parent
ROOT = "langchain_mastra_memory"

# The pure core: everything may import it, and it imports nothing of the other layers.
CORE = [
    *("checked_options", "checks", "codec", "errors", "forking", "ids", "io", "models", "shown", "tokens", "types"),
    *("agents.matching", "agents.record", "agents.run_options", "agents.speakers"),
    *("context.assembly", "context.items", "context.layers", "context.provider", "context.tags"),
    *("demo.conversation",),
    *("history.incoming", "history.options", "history.repair", "history.units", "history.window"),
    *(
        "observation.formatting",
        "observation.log",
        "observation.parsing",
        "observation.planning",
        "observation.prompts",
    ),
    *(
        "observation.extractors",
        "observation.hooks",
        "observation.options",
        "observation.render",
        "observation.transitions",
        "observation.units",
    ),
    *(
        "recall.chunking",
        "recall.filters",
        "recall.index",
        "recall.options",
        "recall.ranking",
        "recall.terms",
        "recall.vectors",
    ),
    *("store.base", "store.operations", "store.sql.values"),
    *(
        "threads.bodies",
        "threads.entries",
        "threads.filters",
        "threads.knowledge",
        "threads.lineage",
        "threads.runs",
        "threads.snapshots",
        "threads.merging",
        "threads.planning",
    ),
    *("threads.versions", "working_memory.document", "working_memory.options", "working_memory.prompt"),
    *("working_memory.rules", "working_memory.schema", "working_memory.schema_shown"),
]
# What is LangGraph's or the caller's shape, by the name of the module or of the package; only adapters import adapters.
ADAPTERS = [
    *("__init__", "memory", "cli", "demo", "testing", "agents", "threads.saver", "threads.titles", "context.preview"),
    *(
        "channel",
        "methods",
        "clone_methods",
        "resource_methods",
        "node",
        "provider",
        "recall_tool",
        "retriever",
        "tool",
        "tools",
    ),
]
# How a body waits, the counter, which loads a tokenizer when it first counts, and what a fork does to locks.
EXEMPT = [f"{ROOT}.io", f"{ROOT}.tokens", f"{ROOT}.forking"]

# The core decides. What waits, reads a clock or a database has no place in it.
NOT_IN_THE_CORE = {
    "asyncio",
    "chromadb",
    "concurrent",
    "httpx",
    "multiprocessing",
    "psycopg",
    "requests",
    "socket",
    "sqlalchemy",
    "sqlite3",
    "subprocess",
    "time",
    "urllib",
}


def layer(module: str) -> int:
    """Return 0 for the core, 1 for the store and model calls (whatever is not listed), 2 for adapters."""
    inside = module.removeprefix(f"{ROOT}.") if module != ROOT else "__init__"
    if any(inside == name or inside.startswith(f"{name}.") for name in CORE):
        return 0
    if any(inside == name or inside.startswith(f"{name}.") for name in ADAPTERS) or inside.split(".")[-1] in ADAPTERS:
        return 2
    return 1


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


def runtime_imports(tree: ast.Module) -> list[tuple[str, int]]:
    """Return what a module imports when it is imported, and the line: not under TYPE_CHECKING, not inside functions."""
    found: list[tuple[str, int]] = []

    def visit(nodes: list[ast.stmt]) -> None:
        for node in nodes:
            if isinstance(node, ast.If):
                if "TYPE_CHECKING" not in ast.unparse(node.test):
                    visit(node.body)
                visit(node.orelse)
            elif isinstance(node, ast.Import):
                found.extend((alias.name, node.lineno) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                found.append((node.module or "", node.lineno))
            elif isinstance(node, ast.ClassDef | ast.Try):
                visit(node.body)

    visit(tree.body)
    return found


SOURCES = [
    pytest.param(path, ast.parse(path.read_text()), id=module_name(path)) for path in sorted(PACKAGE.rglob("*.py"))
]


@pytest.mark.parametrize(("path", "tree"), SOURCES)
def test_no_import_is_relative(path, tree):
    assert not [node.lineno for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level]


@pytest.mark.parametrize(("path", "tree"), SOURCES)
def test_nothing_imports_upward(path, tree):
    own = layer(module_name(path))
    upward = [
        f"line {line}: {name}" for name, line in runtime_imports(tree) if name.startswith(ROOT) and layer(name) > own
    ]
    assert not upward, f"{module_name(path)} is in layer {own}; the lists at the top of this test say what is where"


@pytest.mark.parametrize(
    ("path", "tree"), [source for source in SOURCES if layer(source.id) == 0 and source.id not in EXEMPT]
)
def test_the_core_does_no_io_and_reads_no_clock(path, tree):
    impure = [f"line {line}: {name}" for name, line in runtime_imports(tree) if name.split(".")[0] in NOT_IN_THE_CORE]
    clocks = [
        f"line {node.lineno}: {node.attr}()"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr in {"now", "utcnow", "today"}
        and isinstance(node.value, ast.Name)
        and node.value.id in {"datetime", "date"}
    ]
    assert not impure + clocks, "the core decides; if this module does, put it into STORE or ADAPTERS above"


@pytest.mark.parametrize(("path", "tree"), SOURCES)
def test_every_module_says_what_it_is(path, tree):
    assert ast.get_docstring(tree)


def test_the_core_that_is_listed_exists():
    names = {source.id.removeprefix(f"{ROOT}.") for source in SOURCES}
    assert not [name for name in CORE if name not in names]
