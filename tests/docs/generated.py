"""The generated parts of the documentation: between `<!-- generated: KIND NAME -->` and `<!-- end -->` in any page.

Kinds: `options NAME` (the fields of an option model of the package), `commands` (the command line interface),
`errors` (the tree), `names` (the public names), `operations GROUP` (of the store protocol).
`python -m tests.docs.generated` writes them anew; a test compares.
"""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Callable, Iterable
from typing import Any

from langchain_core.messages import AnyMessage
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from tests.docs.examples import ROOT, markdown_pages
from tests.docs.operations import operations_list

MARKED = re.compile(
    r"(?P<open><!-- generated: (?P<kind>\w+)(?: (?P<name>[\w.]+))? -->\n)(?P<body>.*?)(?P<close><!-- end -->)",
    re.DOTALL,
)


def rewritten(text: str) -> str:
    """Return a page with its generated parts made anew."""
    return MARKED.sub(lambda match: f"{match['open']}{KINDS[match['kind']](match['name'])}{match['close']}", text)


def options_table(name: str) -> str:
    """Return the table of an option model's fields."""
    import langchain_mastra_memory

    model = getattr(langchain_mastra_memory, name)
    meanings = attribute_docs(model)
    rows = [
        (
            f"`{field.alias or key}`",
            type_text(field),
            f"`{default_text(field)}`" if default_text(field) else "required",
            field.description or meanings.get(key, ""),
        )
        for key, field in model.model_fields.items()
    ]
    return table(("option", "type", "default", "what it does"), rows)


def attribute_docs(owner: type) -> dict[str, str]:
    """Return what the `Attributes:` section of a class's docstring says of each attribute."""
    section = re.search(r"^Attributes:\n(?P<body>(?:[ ]+.*\n?|\n)*)", inspect.getdoc(owner) or "", re.MULTILINE)
    if section is None:
        return {}
    entries = re.split(r"^ {4}(?=\w)", section["body"], flags=re.MULTILINE)
    pairs = (re.match(r"(\w+)(?: \([^)]*\))?:\s*(.*)", entry, re.DOTALL) for entry in entries)
    return {pair[1]: " ".join(pair[2].split()) for pair in pairs if pair}


def default_text(field: FieldInfo) -> str:
    """Return a field's default as it would be written; empty if it has none."""
    default = (
        field.get_default(call_default_factory=True, validated_data={})
        if not field.is_required()
        else PydanticUndefined
    )
    if default is PydanticUndefined:
        return ""
    if isinstance(default, BaseModel):
        return f"{type(default).__name__}()"
    if isinstance(default, type) or callable(default):
        return str(getattr(default, "__name__", default))
    if isinstance(default, int) and not isinstance(default, bool) and default >= 10_000:
        return f"{default:_}"
    return repr(default)


def type_text(field: FieldInfo) -> str:
    """Return a field's type in words, with its bounds."""
    return annotation_text(field.annotation) + bounds_text(field.metadata)


def bounds_text(metadata: Iterable[Any]) -> str:
    """Return the bounds that pieces of metadata set, in parentheses; empty without any."""
    signs = {"ge": "≥ ", "gt": "> ", "le": "≤ ", "lt": "< ", "min_length": "at least ", "max_length": "at most "}
    pieces = [piece for item in metadata for piece in (item.metadata if isinstance(item, FieldInfo) else [item])]
    bounds = [
        f"{sign}{value}"
        for piece in pieces
        for name, sign in signs.items()
        if (value := getattr(piece, name, None)) is not None
    ]
    return f" ({', '.join(bounds)})" if bounds else ""


def annotation_text(annotation: Any) -> str:
    """Return an annotation as a reader would say it."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation is None or annotation is type(None):
        return "None"
    if annotation is typing.Any:
        return "anything"
    if origin in (typing.Union, types.UnionType) and set(arguments) == set(
        typing.get_args(typing.get_args(AnyMessage)[0])
    ):
        return "message"
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(annotation_text(argument) for argument in arguments))
    if origin is typing.Literal:
        return " or ".join(f"`{argument!r}`" for argument in arguments)
    if origin is typing.Annotated:
        return annotation_text(arguments[0]) + bounds_text(arguments[1:])
    name = str(getattr(origin, "__name__", origin))
    if name == "Sequence":
        return f"list of {', '.join(annotation_text(argument) for argument in arguments)}"
    if name in ("Callable", "Mapping", "Runnable"):
        return {"Callable": "function", "Mapping": "dict"}.get(name, name)
    if name == "dict":
        return "dict"
    if origin is not None:
        inner = ", ".join(annotation_text(argument) for argument in arguments if argument is not Ellipsis)
        return (
            f"{getattr(origin, '__name__', origin)} of {inner}" if inner else str(getattr(origin, "__name__", origin))
        )
    return str(getattr(annotation, "__name__", annotation))


def subcommands() -> dict[str, Any]:
    """Return the commands of the command line interface by name."""
    import typer

    from langchain_mastra_memory.cli import app

    # Newer versions of typer bring a click of their own, so nothing is asked of click's classes here.
    found: dict[str, Any] = typer.main.get_command(app).commands
    return found


def commands(_: str | None) -> str:
    """Return every command with its arguments and options."""
    parts = []
    for name, command in subcommands().items():
        rows = [
            (
                f"`{', '.join([*item.opts, *item.secondary_opts])}`",
                f"`{shown_default(item)}`" if shown_default(item) else "",
                item.help or "",
            )
            for item in command.params
        ]
        summary = inspect.cleandoc(command.help or "").split("\n\n")[0].replace("\n", " ")
        parts.append(
            f"## `langchain-mastra-memory {name}`\n\n{summary}\n\n{table(('argument or option', 'default', 'what it does'), rows)}"
        )
    return "\n".join(parts)


def shown_default(item: Any) -> str:
    """Return a parameter's default if it says something."""
    return "" if item.default in (None, False, True, ...) or callable(item.default) else str(item.default)


def errors(_: str | None) -> str:
    """Return the table of errors, parents first."""
    from langchain_mastra_memory import errors as module

    found = [getattr(module, name) for name in module.__all__]
    found.sort(
        key=lambda error: [cls.__name__ for cls in reversed(error.__mro__) if issubclass(cls, module.MastraMemoryError)]
    )
    return table(
        ("error", "is a", "raised when"),
        [(f"`{e.__name__}`", f"`{e.__bases__[0].__name__}`", one_line(e)) for e in found],
    )


def names(_: str | None) -> str:
    """Return the table of public names."""
    import langchain_mastra_memory as package

    meanings = {"__version__": "The version of the package, a text."}
    rows = [(f"`{name}`", meanings.get(name) or one_line(getattr(package, name))) for name in package.__all__]
    return table(("name", "what it is"), rows)


def one_line(thing: Any) -> str:
    """Return the first paragraph of a docstring."""
    return (inspect.getdoc(thing) or "").split("\n\n")[0].replace("\n", " ")


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Return a Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


KINDS: dict[str, Callable[[Any], str]] = {
    "options": options_table,
    "commands": commands,
    "errors": errors,
    "names": names,
    "operations": operations_list,
}


def main() -> None:
    """Write every page's generated parts anew."""
    for page in markdown_pages():
        before = page.read_text()
        after = rewritten(before)
        if after != before:
            page.write_text(after)
            print(f"wrote {page.relative_to(ROOT)}")  # noqa: T201


if __name__ == "__main__":
    main()
