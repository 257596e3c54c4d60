"""What a model is shown of a schema: the partial schema of an update, and an example of the fields."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from langchain_mastra_memory.working_memory.document import dump_page
from langchain_mastra_memory.working_memory.schema import PageSchema


def field_names(schema: PageSchema) -> frozenset[str]:
    """Return the names of the fields at the top of a schema."""
    return frozenset(_resolved(schema.json_schema, schema.json_schema).get("properties", {}))


def partial_schema(schema: PageSchema) -> dict[str, Any]:
    """Return the schema of an update: no field required, null allowed everywhere outside arrays, no references."""
    root = schema.json_schema
    inlined = _inline(root, root, (), relax=True)
    inlined.pop("$schema", None)
    inlined["type"] = "object"
    return inlined


def example_line(schema: PageSchema) -> str:
    """Return an object with an empty value for every field, on one line; empty when the schema names no field.

    Example:
        >>> from langchain_mastra_memory.working_memory.schema import page_schema
        >>> example_line(page_schema({"type": "object", "properties": {"name": {"type": "string"}}}))
        '{"name":""}'
    """
    root = schema.json_schema
    value = _example(root, root, ())
    return dump_page(value) if isinstance(value, dict) and value else ""


def _resolved(part: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    for _ in range(20):
        reference = part.get("$ref")
        if not isinstance(reference, str) or not reference.startswith("#"):
            return part
        target: Any = root
        for name in reference.lstrip("#/").split("/") if len(reference) > 1 else []:
            target = target.get(name.replace("~1", "/").replace("~0", "~")) if isinstance(target, Mapping) else None
        if not isinstance(target, Mapping):
            return {}
        part = {**target, **{key: value for key, value in part.items() if key != "$ref"}}
    return part


def _inline(part: Any, root: Mapping[str, Any], seen: tuple[str, ...], *, relax: bool) -> dict[str, Any]:
    if not isinstance(part, Mapping):  # true and false are schemas too
        return {}
    reference = part.get("$ref")
    if isinstance(reference, str):
        if reference in seen:  # a schema that contains itself: say that it is an object, and stop
            return {"type": "object"}
        seen = (*seen, reference)
        part = _resolved(part, root)
    result: dict[str, Any] = {}
    for key, value in part.items():
        if key in {"$defs", "definitions", "$id"} or (relax and key == "required"):
            continue
        if key == "properties" and isinstance(value, Mapping):
            result[key] = {
                name: _nullable(_inline(member, root, seen, relax=True))
                if relax
                else _inline(member, root, seen, relax=False)
                for name, member in value.items()
            }
        elif key in {"items", "contains"} and isinstance(value, Mapping):
            result[key] = _inline(value, root, seen, relax=False)
        elif key == "prefixItems" and isinstance(value, list):
            result[key] = [_inline(member, root, seen, relax=False) for member in value]
        elif key in {"anyOf", "oneOf", "allOf"} and isinstance(value, list):
            result[key] = [_inline(member, root, seen, relax=relax) for member in value]
        elif key in {"additionalProperties", "not"} and isinstance(value, Mapping):
            result[key] = _inline(value, root, seen, relax=relax)
        elif key == "default" and relax:
            continue  # a default would be sent back by models as if it were known
        else:
            result[key] = copy.deepcopy(value)
    return result


def _nullable(part: dict[str, Any]) -> dict[str, Any]:
    kind = part.get("type")
    if "const" in part or "enum" in part or "allOf" in part or not part.keys() & {"type", "anyOf", "oneOf"}:
        return {"anyOf": [part, {"type": "null"}]} if part else {}
    for union in ("anyOf", "oneOf"):
        if union in part:
            members = part[union]
            if any(isinstance(m, Mapping) and m.get("type") == "null" for m in members):
                return part
            return {**part, union: [*members, {"type": "null"}]}
    kinds = kind if isinstance(kind, list) else [kind]
    return part if "null" in kinds else {**part, "type": [*kinds, "null"]}


def _example(part: Any, root: Mapping[str, Any], seen: tuple[str, ...]) -> Any:
    if not isinstance(part, Mapping):
        return None
    reference = part.get("$ref")
    if isinstance(reference, str):
        if reference in seen:
            return {}
        seen = (*seen, reference)
        part = _resolved(part, root)
    if part.get("enum"):
        return part["enum"][0]
    for union in ("anyOf", "oneOf", "allOf"):
        for member in part.get(union, ()):
            if isinstance(member, Mapping) and member.get("type") != "null":
                return _example(member, root, seen)
    kind = part.get("type")
    if isinstance(kind, list):
        kind = next((k for k in kind if k != "null"), None)
    if kind == "object" or "properties" in part:
        return {name: _example(member, root, seen) for name, member in part.get("properties", {}).items()}
    return {"string": "", "number": 0, "integer": 0, "boolean": False, "array": []}.get(str(kind), "")
