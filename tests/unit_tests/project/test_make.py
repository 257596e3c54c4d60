"""The two commands of the README, as far as they can be tried without installing anything."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def run_make(
    target: str, tmp_path: Path, *options: str, uv: bool, python: str = "3.12"
) -> subprocess.CompletedProcess[str]:
    """Run make for a folder that has no virtual environment yet, on a machine with little on it."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sh", "touch", "find", "rm", "test"):
        found = shutil.which(name)
        assert found
        (tools / name).symlink_to(found)
    # A python that knows its version and nothing else.
    version = tuple(int(part) for part in python.split("."))
    script = tools / "python3"
    script.write_text(f"#!/bin/sh\n{'echo ' + str(script) if version >= (3, 11) else 'true'}\n")
    script.chmod(0o755)
    if uv:
        (tools / "uv").write_text("#!/bin/sh\n")
        (tools / "uv").chmod(0o755)
    make = shutil.which("make")
    assert make
    return subprocess.run(
        [make, "--no-print-directory", *options, "-C", str(ROOT), target, f"VENV={tmp_path / 'venv'}"],
        env={"PATH": str(tools), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )


def planned(target: str, tmp_path: Path, *, uv: bool) -> str:
    """Return the commands that make would run."""
    run = run_make(target, tmp_path, "--dry-run", uv=uv)
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.mark.parametrize("target", ["demo", "test"])
def test_pip_does_it_where_there_is_no_uv(tmp_path, target):
    commands = planned(target, tmp_path, uv=False)
    assert f'-m venv "{tmp_path}/venv"' in commands
    assert "-m pip install --quiet --editable" in commands
    assert "uv " not in commands


@pytest.mark.parametrize("target", ["demo", "test"])
def test_uv_does_it_where_it_is(tmp_path, target):
    commands = planned(target, tmp_path, uv=True)
    assert re.search(r"uv venv .*--python", commands)
    assert "uv pip install" in commands
    assert "-m pip" not in commands


def test_the_test_command_runs_every_check(tmp_path):
    commands = planned("test", tmp_path, uv=False)
    for check in ("ruff check .", "ruff format --check .", "bin/mypy", "-m pytest -n 2"):
        assert check in commands


@pytest.mark.parametrize("uv", [True, False])
def test_an_old_python_is_refused_in_words(tmp_path, uv):
    run = run_make("demo", tmp_path, uv=uv, python="3.9")
    assert run.returncode != 0
    assert run.stdout.startswith("Python 3.11 or newer is needed")
    assert not (tmp_path / "venv").exists()


def test_the_demo_installs_what_users_install_and_nothing_for_developers(tmp_path):
    commands = planned("demo", tmp_path, uv=False)
    assert "--group" not in commands


def test_every_extra_and_group_of_the_makefile_exists():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    makefile = (ROOT / "Makefile").read_text()
    extras = re.search(r"^EXTRAS := (.*)$", makefile, re.MULTILINE)
    assert extras
    assert set(extras[1].split(",")) == set(project["project"]["optional-dependencies"])
    assert set(re.findall(r"--group ([\w-]+)", makefile)) <= set(project["dependency-groups"])


def test_ci_runs_the_readme_s_test_command_in_an_environment_of_its_own():
    script = (ROOT / ".ci/run").read_text()
    assert os.access(ROOT / ".ci/run", os.X_OK)
    assert "make test VENV=" in script
    assert "make test" in (ROOT / "README.md").read_text()
