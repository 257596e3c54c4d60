from __future__ import annotations

import pytest
from pydantic import BaseModel

import langchain_mastra_memory
from tests.docs.examples import ROOT, markdown_pages
from tests.docs.generated import MARKED, attribute_docs, rewritten

OPTION_MODELS = sorted(
    name
    for name in langchain_mastra_memory.__all__
    if isinstance(model := getattr(langchain_mastra_memory, name), type)
    and issubclass(model, BaseModel)
    and model.__module__.endswith("options")
)


@pytest.mark.parametrize("page", [pytest.param(page, id=str(page.relative_to(ROOT))) for page in markdown_pages()])
def test_generated_parts_are_as_the_code_makes_them(page):
    assert rewritten(page.read_text()) == page.read_text(), "run `make docs`"


@pytest.mark.parametrize("name", OPTION_MODELS)
def test_every_option_says_what_it_does(name):
    model = getattr(langchain_mastra_memory, name)
    known = attribute_docs(model)
    assert not [key for key, field in model.model_fields.items() if not (field.description or known.get(key))]


@pytest.mark.parametrize("name", OPTION_MODELS)
def test_every_option_model_has_its_table_in_the_reference(name):
    generated = [match["name"] for page in markdown_pages() for match in MARKED.finditer(page.read_text())]
    assert name in generated
