"""The rules of a page as a document: how an update joins it, how it is written, how odd input is understood.

Pure functions; nothing here knows a store, a schema or a model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NoReturn, TypeAlias

from langchain_mastra_memory.errors import WorkingMemoryError
from langchain_mastra_memory.shown import shown

PageValue: TypeAlias = str | dict[str, Any]
"""A page as programs see it: text, or the object of a schema."""

MAX_DEPTH: Final = 100
"""How deep an object may be nested. Deeper ones are refused before anything recurses into them."""

_FENCE: Final = "```"
_MAX_WRAPS: Final = 3


def merge(page: Any, patch: Any) -> Any:
    """Return a page with a patch joined in; neither is changed.

    Objects merge deeply, `None` deletes a field, arrays and everything else replace (RFC 7396). Existing keys keep
    their place, new ones follow. What is not an object patches nothing, and an empty patch changes nothing.

    Args:
        page: What is there; anything that is not an object is replaced by a patch that says something.
        patch: The fields to change.

    Example:
        >>> merge({"name": "Ann", "job": {"title": "dev", "at": "X"}}, {"job": {"title": "lead", "at": None}})
        {'name': 'Ann', 'job': {'title': 'lead'}}
    """
    if not isinstance(patch, Mapping) or not patch:
        return page
    merged: dict[str, Any] = dict(page) if isinstance(page, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping):
            before = merged.get(key)
            merged[key] = merge(before if isinstance(before, Mapping) else {}, value)
        else:
            merged[key] = value
    return merged


def dump_page(value: Mapping[str, Any]) -> str:
    """Return the compact JSON text of a page.

    Raises:
        WorkingMemoryError: A value is not JSON (another type, NaN, a key that is no string).
    """
    check_json(value)
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise WorkingMemoryError(f"the working memory must be JSON data: {error}") from error


def load_page(text: str | None) -> dict[str, Any] | None:
    """Return the object of a page's text, or None where the text is no JSON object."""
    if text is None:
        return None
    try:
        value = _loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def check_json(value: object, depth: int = 0, where: str = "") -> None:
    """Refuse what is no JSON data or is nested too deep.

    Raises:
        WorkingMemoryError: A key is no string, a value is no JSON, or the nesting exceeds `MAX_DEPTH`.
    """
    if depth > MAX_DEPTH:
        raise WorkingMemoryError(f"the working memory is nested more than {MAX_DEPTH} levels deep; make it flatter")
    if isinstance(value, Mapping):
        for key, member in value.items():
            if not isinstance(key, str):
                raise WorkingMemoryError(f"keys of the working memory must be strings, not {shown(key, 60)}{where}")
            check_json(member, depth + 1, f" (in {shown(key, 60)})")
    elif isinstance(value, (list, tuple)):
        for member in value:
            check_json(member, depth + 1, where)
    elif value is not None and not isinstance(value, (str, int, float, bool)):
        raise WorkingMemoryError(f"the working memory must be JSON data, not {type(value).__name__}{where}")


def understood_object(value: object, *, own_fields: frozenset[str] = frozenset()) -> dict[str, Any]:
    """Return the object that a model meant.

    Models send JSON as text, in a code fence, or with the argument's name once more around it. All of that is
    understood; `None` is an empty update.

    Args:
        value: What was sent as `memory`.
        own_fields: The fields of the schema: a wrapper that is a field of the schema is no wrapper.

    Raises:
        WorkingMemoryError: It is no object; the message says what is expected.
    """
    for _ in range(_MAX_WRAPS):
        if value is None:
            return {}
        if isinstance(value, str):
            value = _parsed(value)
        elif isinstance(value, Mapping) and set(value) == {"memory"} and "memory" not in own_fields:
            value = value["memory"]
        else:
            break
    if not isinstance(value, Mapping):
        _refuse_shape(value)
    check_json(value)
    return dict(value)


def understood_text(value: object) -> str:
    """Return the text that a model meant: as it was sent, or out of a wrapper named like the argument.

    Raises:
        WorkingMemoryError: It is no text, or has only white space.
    """
    if isinstance(value, Mapping) and set(value) == {"memory"}:
        value = value["memory"]
    if isinstance(value, str) and value.lstrip()[:1] == "{":
        inner = load_page(value)
        if inner is not None and set(inner) == {"memory"} and isinstance(inner["memory"], str):
            value = inner["memory"]
    if not isinstance(value, str):
        raise WorkingMemoryError(
            f"the working memory is one text: send the whole page as a string, not {type(value).__name__}"
        )
    if not value.strip():
        raise WorkingMemoryError(
            "the new page is empty, and it would replace everything; send the whole page with what should be kept"
        )
    return value


def same_words(one: str, other: str) -> bool:
    """Tell whether two texts differ in white space only."""
    return "".join(one.split()) == "".join(other.split())


def _loads(text: str) -> Any:
    def refused(name: str) -> NoReturn:
        raise ValueError(f"{name} is no JSON")

    return json.loads(text, parse_constant=refused, strict=False)


def _parsed(text: str) -> Any:
    if not text.strip():
        raise WorkingMemoryError("the update is empty; send a JSON object with the fields to change")
    try:
        return _loads(_without_fence(text))
    except RecursionError as error:
        raise WorkingMemoryError(f"the working memory is nested more than {MAX_DEPTH} levels deep") from error
    except ValueError as error:
        raise WorkingMemoryError(
            f"the update is no valid JSON ({error}); send an object with the fields to change, got {shown(text, 80)}"
        ) from error


def _without_fence(text: str) -> str:
    """Return what stands in a code fence; other text as it is. No pattern: input of a model can have any size."""
    bare = text.strip()
    first, newline, rest = bare.partition("\n")
    if newline and first.startswith(_FENCE) and rest.endswith(_FENCE):
        return rest.removesuffix(_FENCE)
    return text


def _refuse_shape(value: object) -> NoReturn:
    kind = "an array" if isinstance(value, (list, tuple)) else type(value).__name__
    raise WorkingMemoryError(
        f"the update must be a JSON object with the fields to change, not {kind} ({shown(value, 60)}); "
        "an array of the page goes under the name of its field"
    )
