"""Metadata filters."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from langchain_mastra_memory.errors import InvalidFilterError
from langchain_mastra_memory.recall.filters import parse_filter

A = {"project": "a", "prio": 3, "flag": True, "deep": {"er": {"key": 1}}, "dotted.key": "x", "tags": ["t1", "t2"]}
B = {"project": "b", "prio": 5.0, "flag": 1, "tag": None}


def matching(given: dict[str, Any]) -> str:
    rule = parse_filter(given)
    return "".join(name for name, thread in (("a", A), ("b", B)) if rule is None or rule.matches(thread, {"k": "m"}))


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, "ab"),
        ({"project": "a"}, "a"),
        ({"thread.project": "a"}, "a"),
        ({"project": {"$eq": "b"}}, "b"),
        ({"prio": 3}, "a"),
        ({"prio": 3.0}, "a"),
        ({"prio": "3"}, ""),
        ({"flag": True}, "a"),
        ({"flag": 1}, "b"),
        ({"flag": {"$ne": True}}, "b"),
        ({"nope": "x"}, ""),
        ({"nope": None}, "ab"),
        ({"tag": None}, "ab"),
        ({"tag": {"$ne": None}}, ""),
        ({"nope": {"$ne": "x"}}, ""),
        ({"project": {"$ne": "a"}}, "b"),
        ({"prio": {"$gt": 3}}, "b"),
        ({"prio": {"$gte": 3}}, "ab"),
        ({"prio": {"$lt": 5}}, "a"),
        ({"prio": {"$lte": 5}}, "ab"),
        ({"prio": {"$gt": 3, "$lt": 9}}, "b"),
        ({"prio": {"$gt": "x"}}, ""),
        ({"project": {"$gt": "a"}}, "b"),
        ({"flag": {"$gte": 0}}, "b"),
        ({"nope": {"$lt": 5}}, ""),
        ({"project": {"$in": ["a", "z"]}}, "a"),
        ({"project": {"$in": []}}, ""),
        ({"project": {"$nin": ["a"]}}, "b"),
        ({"project": {"$nin": []}}, "ab"),
        ({"nope": {"$nin": ["x"]}}, ""),
        ({"prio": {"$in": (3, 5)}}, "ab"),
        ({"$and": [{"project": "a"}, {"prio": {"$gte": 3}}]}, "a"),
        ({"$or": [{"project": "a"}, {"prio": {"$gt": 4}}]}, "ab"),
        ({"project": "a", "prio": 5}, ""),
        ({"$and": [{"$or": [{"project": "a"}, {"project": "b"}]}, {"prio": {"$lt": 5}}]}, "a"),
        ({"$and": []}, "ab"),
        ({"$or": []}, ""),
        ({"$not": {"project": "a"}}, "b"),
        ({"project": {}}, "ab"),
        ({"deep.er.key": 1}, "a"),
        ({"dotted.key": "x"}, "a"),
        ({"deep": {"$eq": {"er": {"key": 1}}}}, "a"),
        ({"tags": ["t1", "t2"]}, "a"),
        ({"tags": "t1"}, ""),
        ({"a b": "x"}, ""),
        ({"message.k": "m"}, "ab"),
        ({"message.k": "x"}, ""),
        ({"k": "m"}, ""),
        ({"project": "a", "message.k": "m"}, "a"),
    ],
)
def test_a_filter_finds_what_it_says(given: dict[str, Any], found: str) -> None:
    assert matching(given) == found


@pytest.mark.parametrize(
    "given",
    [
        {"project": {"$foo": 1}},
        {"project": {"$regex": "a"}},
        {"$xor": []},
        {"$and": "a"},
        {"$or": {"project": "a"}},
        {"$and": ["a"]},
        {"project": {"$in": "a"}},
        {"project": {"$nin": 5}},
        {"prio": {"$gt": None}},
        {"prio": {"$gt": True}},
        {"prio": {"$lt": [1]}},
        {"when": datetime(2025, 1, 1, tzinfo=UTC)},
        {"prio": float("nan")},
        {"prio": {"$in": [object()]}},
        {3: "a"},
        {"": "a"},
        ["project"],
        {"project": {"$eq": "a", "plain": 1}},
    ],
)
def test_a_filter_that_makes_no_sense_is_refused(given: Any) -> None:
    with pytest.raises(InvalidFilterError):
        parse_filter(given)


def test_a_filter_that_nests_too_deep_is_refused() -> None:
    given: dict[str, Any] = {"project": "a"}
    for _ in range(100):
        given = {"$not": given}
    with pytest.raises(InvalidFilterError, match="deep"):
        parse_filter(given)


def test_only_keys_of_messages_need_the_messages() -> None:
    assert not parse_filter({"thread.a": 1, "b": 2}).needs_messages  # type: ignore[union-attr]
    assert parse_filter({"$or": [{"b": 2}, {"message.a": 1}]}).needs_messages  # type: ignore[union-attr]
