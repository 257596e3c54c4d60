from __future__ import annotations

import inspect
import pickle
import re

import pytest

from langchain_mastra_memory import errors

CLASSES = [getattr(errors, name) for name in errors.__all__]


def drawn_tree() -> dict[str, str | None]:
    """Return name -> parent as the module's docstring draws it."""
    drawing = re.search(r"```text\n(.*?)```", errors.__doc__ or "", re.DOTALL)
    assert drawing
    parents: dict[str, str | None] = {}
    path: list[str] = []
    for line in drawing[1].splitlines():
        match = re.match(r"(?P<branch>[│├└─ ]*)(?P<name>\w+)", line)
        assert match, line
        depth = len(match["branch"]) // 4
        path[depth:] = [match["name"]]
        parents[match["name"]] = path[depth - 1] if depth else None
    return parents


def test_the_drawing_is_the_tree_of_the_classes():
    classes = {
        cls.__name__: next(
            (base.__name__ for base in cls.__bases__ if issubclass(base, errors.MastraMemoryError)), None
        )
        for cls in CLASSES
    }
    assert drawn_tree() == classes


def test_every_error_of_the_module_is_public_and_sorted():
    found = sorted(
        name for name, cls in vars(errors).items() if inspect.isclass(cls) and issubclass(cls, errors.MastraMemoryError)
    )
    assert list(errors.__all__) == found


def test_every_error_is_reachable_from_the_package():
    import langchain_mastra_memory

    assert set(errors.__all__) <= set(langchain_mastra_memory.__all__)


@pytest.mark.parametrize("cls", CLASSES)
def test_the_docstring_is_the_default_message(cls):
    assert str(cls()) == inspect.getdoc(cls)
    assert str(cls("more exact")) == "more exact"


@pytest.mark.parametrize("cls", CLASSES)
def test_errors_survive_pickling_since_they_cross_processes(cls):
    copy = pickle.loads(pickle.dumps(cls("said")))
    assert (type(copy), str(copy)) == (cls, "said")
