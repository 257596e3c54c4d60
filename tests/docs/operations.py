"""The generated list of a group's operations: what each is given, returns and raises, out of its docstring."""

from __future__ import annotations

import dataclasses
import inspect
import re
import typing
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from langchain_mastra_memory.store import operations as package
from langchain_mastra_memory.store.base import Operation

SECTION = re.compile(r"^(Attributes|Returns|Raises):\n((?:[ ]+.*(?:\n|$)|\n)*)", re.MULTILINE)
ENTRY = re.compile(r"^ {4}(?=\S)", re.MULTILINE)


def operations_of(group: str) -> list[type[Operation[Any]]]:
    """Return the operations of a group in the order of their modules."""
    found = []
    for module in sorted(info.name for info in iter_modules(package.__path__)):
        members = vars(import_module(f"{package.__name__}.{module}")).values()
        found += [
            member
            for member in members
            if isinstance(member, type)
            and issubclass(member, Operation)
            and member is not Operation
            and member.__module__ == f"{package.__name__}.{module}"
            and member.group == group
        ]
    return found


def operations_list(group: str) -> str:
    """Return every operation of a group, as Markdown."""
    return "\n".join(one_operation(operation) for operation in operations_of(group))


def one_operation(operation: type[Operation[Any]]) -> str:
    """Return one operation: its text, its fields, what it raises."""
    text = inspect.getdoc(operation) or ""
    sections = {match[1]: match[2] for match in SECTION.finditer(text)}
    said = SECTION.sub("", text).strip()
    meanings = entries(sections.get("Attributes", ""))
    kind = "writes" if operation.writes else "reads"
    lines = [f"**`{operation.__name__}`** → `{result_of(operation)}` · {kind}", "", said, ""]
    for field in dataclasses.fields(operation):  # type: ignore[arg-type]  # every operation is a dataclass
        lines.append(f"- `{field.name}: {field.type}{default_of(field)}`{colon(meanings.get(field.name))}")
    if "Returns" in sections:
        lines.append(f"- returns: {' '.join(sections['Returns'].split())}")
    lines += [f"- raises `{error}`: {why}" for error, why in entries(sections.get("Raises", "")).items()]
    return "\n".join(lines) + "\n"


def entries(section: str) -> dict[str, str]:
    """Return the entries of a docstring's section: name to text."""
    pairs = (entry.partition(":") for entry in ENTRY.split(section) if ":" in entry)
    return {name.strip(): " ".join(text.split()) for name, _, text in pairs}


def result_of(operation: type[Operation[Any]]) -> str:
    """Return the type of an operation's result as it is written."""
    [base] = [base for base in operation.__orig_bases__ if typing.get_origin(base) is Operation]  # type: ignore[attr-defined]  # generic classes have it
    return re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Z])", "", written(typing.get_args(base)[0]))


def written(annotation: Any) -> str:
    """Return an annotation as source."""
    if annotation is type(None) or annotation is None:
        return "None"
    return annotation.__name__ if isinstance(annotation, type) and not typing.get_args(annotation) else str(annotation)


def default_of(field: dataclasses.Field[Any]) -> str:
    """Return ` = default`, or nothing for a required field."""
    if field.default_factory is not dataclasses.MISSING:
        return f" = {field.default_factory()!r}"
    if field.default is dataclasses.MISSING:
        return ""
    return f" = {field.default!r}" if len(repr(field.default)) < 40 else f" = {type(field.default).__name__}()"


def colon(meaning: str | None) -> str:
    """Return `: meaning`."""
    return f": {meaning}" if meaning else ""
