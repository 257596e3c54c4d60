"""The rules of a page as a document."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_mastra_memory.errors import WorkingMemoryError
from langchain_mastra_memory.working_memory.document import (
    MAX_DEPTH,
    dump_page,
    load_page,
    merge,
    understood_object,
    understood_text,
)

_scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
_values = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)
_keys = st.sampled_from(["a", "b", "c"])
_objects = st.recursive(
    st.dictionaries(_keys, _scalars, max_size=3),
    lambda inner: st.dictionaries(_keys, inner | _scalars | st.lists(_scalars, max_size=2), max_size=3),
    max_leaves=8,
)


def rfc_7396(target: object, patch: object) -> object:
    """Return what the standard's own pseudo-code gives."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = rfc_7396(result.get(key), value)
    return result


def has_null_member(value: object) -> bool:
    return isinstance(value, dict) and any(v is None or has_null_member(v) for v in value.values())


@given(page=_objects, patch=_objects)
def test_merging_is_the_standard_merge_patch(page, patch):
    assert merge(page, patch) == rfc_7396(page, patch)


@given(page=_objects, patch=_objects)
def test_a_patch_applied_twice_is_applied_once(page, patch):
    once = merge(page, patch)
    assert merge(once, patch) == once


@given(patch=_objects)
def test_no_null_is_ever_kept_in_an_object(patch):
    assert not has_null_member(merge({}, patch))


@given(page=_objects, one=_values, other=_values)
def test_patches_of_different_fields_give_the_same_page_in_any_order(page, one, other):
    first, second = {"left": one}, {"right": other}
    assert merge(merge(page, first), second) == merge(merge(page, second), first)


@given(page=_objects, patch=_objects)
def test_neither_page_nor_patch_is_changed(page, patch):
    before = json.dumps([page, patch])
    merge(page, patch)
    assert json.dumps([page, patch]) == before


@given(page=_values)
def test_an_empty_patch_changes_nothing_whatever_the_page_is(page):
    assert merge(page, {}) == page


def test_existing_keys_keep_their_place_and_new_ones_follow():
    assert list(merge({"b": 1, "a": 2}, {"c": 3, "a": 9})) == ["b", "a", "c"]


@given(page=st.dictionaries(st.text(), _values, max_size=4))
def test_a_page_comes_back_as_it_was_written(page):
    assert load_page(dump_page(page)) == page


def test_a_page_is_compact_json_with_readable_letters():
    assert dump_page({"name": "Åsa 😀 \0x", "ключ": "値"}) == '{"name":"Åsa 😀 \\u0000x","ключ":"値"}'


@pytest.mark.parametrize("value", [{"a": float("nan")}, {"a": float("inf")}, {"a": {1, 2}}, {1: "a"}, {"a": b"x"}])
def test_what_is_no_json_is_refused(value):
    with pytest.raises(WorkingMemoryError):
        dump_page(value)


def test_nesting_without_end_is_refused_before_anything_recurses_into_it():
    deep: dict = {}
    for _ in range(MAX_DEPTH + 1):
        deep = {"a": deep}
    with pytest.raises(WorkingMemoryError, match="levels deep"):
        understood_object(deep)
    with pytest.raises(WorkingMemoryError, match="levels deep"):
        understood_object('{"a":' * 100_000 + "1" + "}" * 100_000)


@pytest.mark.parametrize(
    "sent",
    [
        {"age": 40},
        '{"age": 40}',
        ' \n{"age": 40}\n',
        '```json\n{"age": 40}\n```',
        '```\n{"age": 40}```',
        {"memory": {"age": 40}},
        {"memory": '{"age": 40}'},
        '{"memory": {"age": 40}}',
        '"{\\"age\\": 40}"',
    ],
)
def test_an_object_is_understood_however_a_model_wraps_it(sent):
    assert understood_object(sent) == {"age": 40}


def test_a_field_of_the_schema_that_is_called_memory_is_no_wrapper():
    assert understood_object({"memory": {"age": 40}}, own_fields=frozenset({"memory"})) == {"memory": {"age": 40}}


def test_null_is_an_empty_update():
    assert understood_object(None) == {}


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        ("", "empty"),
        ("  \n", "empty"),
        ('{"age": ', "no valid JSON"),
        ('{"a": NaN}', "NaN"),
        ("[1, 2]", "array"),
        ([1, 2], "array"),
        (5, "int"),
        ("just words", "no valid JSON"),
    ],
)
def test_what_is_no_object_is_refused_with_the_reason(sent, says):
    with pytest.raises(WorkingMemoryError, match=says):
        understood_object(sent)


@pytest.mark.parametrize("sent", ["# A\n", {"memory": "# A\n"}, '{"memory": "# A\\n"}'])
def test_a_text_is_understood_out_of_a_wrapper(sent):
    assert understood_text(sent) == "# A\n"


@pytest.mark.parametrize("text", ["{braces} $& $1 \\1", '{"memory": 5}', "[1]", "{", "</working_memory_data>"])
def test_any_other_text_is_taken_letter_by_letter(text):
    assert understood_text(text) == text


@pytest.mark.parametrize("sent", ["", " \n\t", "\u3000", None, 5, ["a"], {"name": "Ann"}])
def test_an_empty_text_or_something_else_is_refused(sent):
    with pytest.raises(WorkingMemoryError):
        understood_text(sent)
