from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.docs.examples import ROOT, fences, markdown_pages, run_page, scripted_replies
from tests.docs.generated import subcommands
from tests.docs.stand_ins import provider

LANGUAGES = {"python", "console", "sh", "text", "toml", "json", "yaml", "sql", "mermaid", ""}
LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?P<target>[^)\s]+)\)|!\[[^\]]*\]\((?P<image>[^)\s]+)\)")

pages = pytest.mark.parametrize(
    "page", [pytest.param(page, id=str(page.relative_to(ROOT))) for page in markdown_pages()]
)


@pages
def test_every_python_fence_runs(page, tmp_path, monkeypatch, request):
    monkeypatch.chdir(tmp_path)
    text = page.read_text()
    examples = [fence for fence in fences(page) if fence.language == "python"]
    if any("postgresql://localhost/" in fence.code for fence in examples):
        url = request.getfixturevalue("postgres_url")
        examples = [
            type(fence)(
                fence.path,
                fence.line,
                fence.language,
                fence.options,
                re.sub(r"postgresql://localhost/\w+", url, fence.code),
            )
            for fence in examples
        ]
    with provider(scripted_replies(text)):
        run_page(examples, {})


@pages
def test_every_fence_has_a_language_that_is_checked(page):
    unknown = [str(fence) for fence in fences(page) if fence.language not in LANGUAGES]
    assert not unknown, f"fences in languages that no test checks: {unknown}"
    # A fence without a language could hide code.
    bare = [str(fence) for fence in fences(page) if fence.language == ""]
    assert not bare, f"say what these fences are (`text` if nothing else): {bare}"


@pages
def test_every_data_fence_can_be_read(page):
    readers = {"toml": tomllib.loads, "yaml": yaml.safe_load}
    for fence in fences(page):
        if fence.language in readers:
            readers[fence.language](fence.code)


@pages
def test_every_command_exists(page):
    makefile = (ROOT / "Makefile").read_text()
    for fence in fences(page):
        if fence.language not in {"console", "sh"}:
            continue
        for line in fence.code.splitlines():
            words = shlex.split(line.removeprefix("$ "), comments=True)
            if words[:1] == ["make"]:
                targets = [word for word in words[1:] if "=" not in word and not word.startswith("-")]
                assert all(re.search(rf"^{re.escape(target)}:", makefile, re.MULTILINE) for target in targets), (
                    f"{fence}: {line}"
                )
            if words[:1] == ["langchain-mastra-memory"]:
                assert_command_parses(words[1:], f"{fence}: {line}")


def assert_command_parses(arguments: list[str], where: str) -> None:
    """Check a command's name and options against the command line interface, without running it."""
    commands = subcommands()
    name = next((word for word in arguments if not word.startswith("-")), None)
    if name is None:
        assert set(arguments) <= {"--help"}, where
        return
    assert name in commands, f"{where}: no command {name!r}"
    known = {
        "--help",
        *(option for parameter in commands[name].params for option in (*parameter.opts, *parameter.secondary_opts)),
    }
    unknown = {word.split("=")[0] for word in arguments if word.startswith("-")} - known
    assert not unknown, f"{where}: no option {unknown}"


@pages
def test_every_link_inside_the_project_leads_somewhere(page):
    broken = []
    for match in LINK.finditer(re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL)):
        target = match["target"] or match["image"]
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        path = (page.parent / file).resolve() if file else page
        if not path.exists() or (anchor and path.suffix == ".md" and anchor not in anchors(path)):
            broken.append(target)
    assert not broken, f"{page.relative_to(ROOT)} links to {broken}"


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+\s+(.*)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_every_page_can_be_found_from_the_index():
    index = ROOT / "docs/index.md"
    linked = {
        (index.parent / match["target"].partition("#")[0]).resolve()
        for match in LINK.finditer(index.read_text())
        if match["target"]
    }
    lost = [page for page in (ROOT / "docs").rglob("*.md") if page != index and not {page, *page.parents} & linked]
    assert not [str(page.relative_to(ROOT)) for page in lost], "link these from docs/index.md"
