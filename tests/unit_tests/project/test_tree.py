"""Rules of the source tree that no linter knows."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TEXT = {".py", ".md", ".toml", ".ipynb", ".sql", ".yml", ".yaml", ".json", ".sh", ".txt", ".cfg", ""}

# Spelled in pieces, so that this file does not name what it looks for.
PLACES = re.compile(
    r"(?<![\w.])/(?:"
    + "|".join(["wo" + "rk/", "ro" + "ot/", "ho" + r"me/\w+/", "opt/py" + "pi", "tmp/bash_" + "jobs"])
    + ")"
    "|" + "|".join(["pyen" + "v/versions", r"\.libr" + "ary/", "site-pack" + "ages/"])
)


def committed_files() -> list[Path]:
    """Return the files that are, or would be, committed; everything that is there if this is no repository."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode == 0:
        names = listed.stdout.splitlines()
        return [ROOT / name for name in names if (ROOT / name).is_file()]
    return [
        path for path in ROOT.rglob("*") if path.is_file() and not any(part.startswith(".venv") for part in path.parts)
    ]


def test_no_file_names_a_place_of_one_machine():
    found = []
    for path in committed_files():
        if path.suffix in TEXT and path.stat().st_size < 5_000_000:
            text = path.read_text(errors="replace")
            found += [f"{path.relative_to(ROOT)}: {match[0]}" for match in PLACES.finditer(text)]
    assert not found


@pytest.mark.parametrize(
    "name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE", "docs/architecture.md", "docs/index.md"]
)
def test_the_pages_that_a_visitor_looks_for_are_there(name):
    assert (ROOT / name).stat().st_size > 500


def test_the_changelog_has_the_version_or_says_unreleased():
    text = (ROOT / "CHANGELOG.md").read_text()
    assert re.search(r"^## \[(Unreleased|\d+\.\d+\.\d+)\]", text, re.MULTILINE)
    kinds = set(re.findall(r"^### (.*)$", text, re.MULTILINE))
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_decisions_are_numbered_once():
    numbers = [path.name.split("-")[0] for path in (ROOT / "docs/decisions").glob("[0-9]*.md")]
    assert sorted(numbers) == sorted(set(numbers))


def test_no_module_is_too_long_to_be_about_one_thing():
    long = {
        str(path.relative_to(ROOT)): lines
        for path in (ROOT / "langchain_mastra_memory").rglob("*.py")
        if (lines := len(path.read_text().splitlines())) > 600
    }
    assert not long, "split these"
