"""Schemas of a page: pydantic models and JSON Schema behave alike."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, RootModel

from langchain_mastra_memory.errors import ConfigurationError
from langchain_mastra_memory.working_memory.schema import fitted, page_schema, repaired
from langchain_mastra_memory.working_memory.schema_shown import example_line, field_names, partial_schema


class Job(BaseModel):
    title: str | None = None
    company: str | None = None


class Item(BaseModel):
    id: int
    label: str = ""


class Profile(BaseModel):
    name: str
    age: int | None = None
    job: Job | None = None
    items: list[Item] = []


PROFILE = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer"},
        "job": {"type": "object", "properties": {"title": {"type": "string"}, "company": {"type": "string"}}},
        "items": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"id": {"type": "integer"}, "label": {"type": "string"}},
                "required": ["id"],
            },
        },
    },
    "required": ["name"],
}

both = pytest.mark.parametrize("source", [Profile, PROFILE], ids=["pydantic", "json-schema"])


@both
def test_a_page_that_fits_has_no_faults(source):
    page = {"name": "Ann", "job": {"title": "dev"}, "items": [{"id": 1, "label": "x"}]}
    checked = fitted(page_schema(source), page)
    assert (checked.faults, checked.value) == ((), page)


@both
def test_a_fault_names_the_field(source):
    schema = page_schema(source)
    assert [str(f).split(":")[0] for f in schema.check({"name": "Ann", "age": "old"}).faults] == ["age"]
    missing = schema.check({"age": 3}).faults
    assert [f.missing for f in missing] == [True]
    assert "name" in str(missing[0]).lower()


@both
def test_a_null_in_an_object_of_an_array_means_no_such_field(source):
    checked = fitted(page_schema(source), {"name": "Ann", "items": [{"id": 1, "label": None}, {"id": 2}]})
    assert checked.faults == ()
    assert checked.value["items"] == [{"id": 1}, {"id": 2}]


@both
def test_a_null_in_an_array_is_not_dropped_where_the_field_is_required(source):
    assert fitted(page_schema(source), {"name": "Ann", "items": [{"id": None}]}).faults


@both
def test_what_no_longer_fits_is_dropped_and_named_and_the_rest_stays(source):
    page = {"name": "Ann", "age": "old", "job": {"title": 5, "company": "X"}, "items": [{"id": "a"}, {"id": 2}]}
    value, dropped = repaired(page_schema(source), page)
    assert value["name"] == "Ann"
    assert value["job"] == {"company": "X"}
    assert "age" not in value
    assert page_schema(source).check(value).faults == ()
    assert {str(f).split(":")[0] for f in dropped} >= {"age", "job.title"}


@both
def test_what_is_missing_is_not_repaired(source):
    assert repaired(page_schema(source), {"age": 3}) == ({"age": 3}, ())


@both
def test_an_update_may_leave_out_every_field_and_delete_every_field_but_not_inside_arrays(source):
    partial = partial_schema(page_schema(source))
    assert "required" not in partial
    assert {"type": "null"} in partial["properties"]["name"].get("anyOf", []) or "null" in partial["properties"][
        "name"
    ]["type"]
    assert "$ref" not in str(partial)
    items = partial["properties"]["items"]
    items = items if "items" in items else next(m for m in items["anyOf"] if "items" in m)
    assert items["items"]["required"] == ["id"]


@both
def test_the_fields_at_the_top_are_known(source):
    assert field_names(page_schema(source)) == {"name", "age", "job", "items"}


@both
def test_the_example_has_an_empty_value_for_each_field(source):
    assert example_line(page_schema(source)) == '{"name":"","age":0,"job":{"title":"","company":""},"items":[]}'


def test_a_schema_without_fields_has_no_example():
    assert example_line(page_schema({"type": "object", "properties": {}})) == ""


def test_a_pydantic_model_drops_unknown_fields_and_a_json_schema_keeps_them():
    page = {"name": "Ann", "pet": "cat"}
    assert page_schema(Profile).check(page).value == {"name": "Ann"}
    assert page_schema(PROFILE).check(page).value == page


def test_forbidden_fields_are_refused_by_name_in_both():
    class Strict(BaseModel):
        model_config = ConfigDict(extra="forbid")
        name: str = ""

    json_schema = {"type": "object", "properties": {"name": {"type": "string"}}, "additionalProperties": False}
    for source in (Strict, json_schema):
        schema = page_schema(source)
        assert [f.place for f in schema.check({"name": "A", "pet": "cat"}).faults] == [("pet",)]
        assert repaired(schema, {"name": "A", "pet": "cat"})[0] == {"name": "A"}


def test_aliases_are_the_names_of_the_page_and_only_what_was_set_is_kept():
    class Event(BaseModel):
        on: Annotated[dt.date | None, Field(alias="schema")] = None
        place: str = "here"

    schema = page_schema(Event)
    assert schema.check({"schema": "2026-01-02"}).value == {"schema": "2026-01-02"}
    assert field_names(schema) == {"schema", "place"}


def test_a_model_that_contains_itself_has_a_finite_partial_schema():
    class Node(BaseModel):
        name: str = ""
        child: Node | None = None

    Node.model_rebuild()
    assert "child" in partial_schema(page_schema(Node))["properties"]


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ({"type": "array"}, "object"),
        ({"type": "object", "properties": {"a": {"type": "strin"}}}, "not a valid JSON Schema"),
        ({"name": "string"}, "no JSON Schema"),
        (RootModel[list[int]], "RootModel"),
        ("Profile", "pydantic model class"),
        (5, "pydantic model class"),
    ],
)
def test_what_is_no_schema_of_an_object_is_refused_when_it_is_given(source: Any, says):
    with pytest.raises(ConfigurationError, match=says):
        page_schema(source)


def test_a_model_without_a_json_schema_is_refused_when_it_is_given():
    class Odd:
        pass

    class Holder(BaseModel):
        model_config = ConfigDict(arbitrary_types_allowed=True)
        odd: Odd

    with pytest.raises(ConfigurationError, match="Holder"):
        page_schema(Holder)


def test_a_remote_reference_is_never_fetched():
    schema = page_schema({"type": "object", "properties": {"a": {"$ref": "http://example.com/schema.json"}}})
    with pytest.raises(ConfigurationError, match=r"schema\.json"):
        schema.check({"a": 1})
