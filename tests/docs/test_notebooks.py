from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.examples import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))

# A kernel is a process of its own with sockets and an event loop; so is what drives it, and its warnings are not ours.
RUNNER = """
import sys, nbformat, nbclient
notebook = nbformat.read(sys.argv[1], as_version=4)
nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
"""

notebooks = pytest.mark.parametrize("notebook", [pytest.param(path, id=path.stem) for path in NOTEBOOKS])


def test_there_are_notebooks():
    assert NOTEBOOKS


@notebooks
def test_every_cell_runs_from_top_to_bottom(notebook, tmp_path):
    environment = {**os.environ, "JUPYTER_PREFER_ENV_PATH": "1", "LANGSMITH_TRACING": "false", "PYTHONPATH": str(ROOT)}
    keys = [name for name in environment if name.endswith("_API_KEY")]
    for name in keys:
        del environment[name]
    run = subprocess.run(
        [sys.executable, "-c", RUNNER, str(notebook)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, re.sub(r"\x1b\[[0-9;]*m", "", run.stderr)[-6000:]


@notebooks
def test_outputs_are_stored_and_none_is_an_error(notebook):
    cells = [cell for cell in json.loads(notebook.read_text())["cells"] if cell["cell_type"] == "code"]
    kinds = {output["output_type"] for cell in cells for output in cell["outputs"]}
    assert kinds, "run the notebook and keep its outputs, so that it can be read without running it"
    assert "error" not in kinds


@notebooks
def test_it_says_in_its_first_cell_what_it_is_about(notebook):
    first = json.loads(Path(notebook).read_text())["cells"][0]
    assert first["cell_type"] == "markdown"
    assert "".join(first["source"]).startswith("# ")
