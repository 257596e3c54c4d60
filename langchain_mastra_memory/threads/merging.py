"""Merging metadata. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def merged(metadata: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata with a patch over it: what a key holds is replaced as a whole, None removes the key.

    Example:
        >>> merged({"a": 1, "b": {"x": 1}}, {"a": None, "b": {"y": 2}})
        {'b': {'y': 2}}
    """
    result = {**metadata, **patch}
    return {key: value for key, value in result.items() if not (key in patch and value is None)}
