"""Channel versions: they grow, they differ between forks, and they go on in the style in which a thread began."""

from __future__ import annotations

import secrets
from typing import Any, Final

WIDTH: Final = 8
"""Digits of a version's count: LangGraph compares versions as text. 10^8 steps of one channel fit."""
_SUFFIX: Final = 4


def next_version(current: Any) -> Any:
    """Return the version after `current`: `00000007.x3hk`, a count and a random end.

    Integers and floats, which other checkpointers write, go on as such; of a text the digits keep their width.

    Example:
        >>> next_version(None)[:8], next_version("00000000000000000000000000000041.0.25")[:32], next_version(7)
        ('00000001', '00000000000000000000000000000042', 8)
    """
    if current is None:
        return f"{1:0{WIDTH}}.{_random()}"
    if isinstance(current, str):
        digits = current.partition(".")[0]
        return f"{int(digits) + 1:0{len(digits)}}.{_random()}"
    return int(current) + 1


def _random() -> str:
    return secrets.token_hex(_SUFFIX)
