"""The harness itself: what it must find, and that it can fail."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field

from tests.docs.examples import docstrings, fences, run_page, scripted_replies
from tests.docs.generated import annotation_text, attribute_docs, table, type_text
from tests.docs.stand_ins import provider


def run(text: str, path: Path = Path("page.md")) -> None:
    run_page([fence for fence in fences(path, text) if fence.language == "python"], {})


def test_fences_share_one_namespace_from_top_to_bottom():
    run("```python\na = 1\n```\ntext\n```python\nprint(a + 1)\n#> 2\n```\n")


def test_a_fence_marked_new_starts_over():
    with pytest.raises(NameError):
        run("```python\na = 1\n```\n```python new\nprint(a)\n```\n")


def test_what_is_printed_must_be_what_is_shown():
    with pytest.raises(AssertionError, match=r"page.md:2 prints something else"):
        run("```python\nprint('yes')\n#> no\n```\n")


def test_a_fence_that_shows_nothing_may_print_anything():
    run("```python\nprint('yes')\n```\n")


def test_an_error_names_the_page_and_its_line():
    with pytest.raises(ZeroDivisionError) as raised:
        run("# Title\n\n```python\nx = 0\n1 / x\n```\n")
    assert traceback.extract_tb(raised.value.__traceback__)[-1].lineno == 5
    assert "page.md:4" in raised.value.__notes__[0]


def test_an_error_that_is_announced_must_come_and_be_that_one():
    run("```python raises=ZeroDivisionError\n1 / 0\n```\n")
    with pytest.raises(AssertionError, match="must raise ZeroDivisionError"):
        run("```python raises=ZeroDivisionError\n1 / 1\n```\n")
    with pytest.raises(NameError):
        run("```python raises=ZeroDivisionError\nmissing\n```\n")


def test_await_is_allowed_as_in_a_notebook():
    run(
        "```python\nimport asyncio\nlock = asyncio.Lock()\nawait lock.acquire()\n```\n```python\nawait asyncio.sleep(0)\nprint(lock.locked())\n#> True\n```\n"
    )


def test_indented_fences_are_found_where_they_stand():
    found = fences(Path("p.md"), "1. Do:\n\n   ```sh\n   make test\n   ```\n")
    assert [(fence.language, fence.line, fence.code) for fence in found] == [("sh", 4, "make test\n")]


def test_docstrings_of_modules_classes_methods_and_nested_functions_are_found(tmp_path):
    path = tmp_path / "module.py"
    fence = "Say.\n\n{0}```python\n{0}1\n{0}```\n{0}"
    path.write_text(
        f'"""{fence.format("")}"""\nclass A:\n    """{fence.format("    ")}"""\n    async def f(self):\n'
        f'        """{fence.format("        ")}"""\n        def g():\n            """{fence.format("            ")}"""\n'
    )
    found = {name: fences(path, text, line) for name, text, line in docstrings(path)}
    assert set(found) == {"module", "A", "A.f", "A.f.g"}
    lines = path.read_text().splitlines()
    for examples in found.values():
        assert [example.code for example in examples] == ["1\n"]
        assert lines[examples[0].line - 1].strip() == "1"


def test_a_page_scripts_the_models_that_it_names():
    text = '<!-- replies: ["one", {"call": "look", "args": {"a": 1}}] -->'
    with provider(scripted_replies(text)):
        from langchain.chat_models import init_chat_model

        model = init_chat_model("openai:gpt-5-mini")
        assert model.invoke("q").text == "one"
        assert init_chat_model("openai:other").invoke("q").tool_calls[0]["args"] == {"a": 1}
        assert model.invoke("q").text == "Understood."


def test_the_scripted_provider_is_gone_afterwards(monkeypatch):
    from langchain.chat_models import init_chat_model

    monkeypatch.setitem(sys.modules, "langchain_openai", None)  # as if it were not installed
    with provider([]):
        init_chat_model("openai:gpt-5-mini")
    with pytest.raises(ImportError):
        init_chat_model("openai:gpt-5-mini")


def test_a_field_s_type_is_written_for_readers():
    class Options(BaseModel):
        """Options.

        Attributes:
            count: How many,
                in messages.
            mode: The way.
        """

        count: Annotated[int, Field(ge=1, le=9)] | None = None
        mode: Literal["a", "b"] = "a"
        names: tuple[str, ...] = Field((), max_length=3)

    fields = Options.model_fields
    assert type_text(fields["count"]) == "int (≥ 1, ≤ 9) or None"
    assert type_text(fields["mode"]) == "`'a'` or `'b'`"
    assert type_text(fields["names"]) == "tuple of str (at most 3)"
    assert attribute_docs(Options) == {"count": "How many, in messages.", "mode": "The way."}
    assert annotation_text(type(None)) == "None"


def test_a_bar_in_a_cell_does_not_end_it():
    assert table(("a",), [("x | y",)]).splitlines()[-1] == "| x \\| y |"
