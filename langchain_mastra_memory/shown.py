"""Values in error messages: shortened, whatever they are."""

from __future__ import annotations


def shown(value: object, most: int = 80) -> str:
    """Return how a value looks, at most so many characters; its type where it cannot be shown.

    What is nested too deeply, or has a `__repr__` that fails, must not hide the error that names it.

    Example:
        >>> shown("a" * 100, 5)
        "'aaaa"
    """
    try:
        return repr(value)[:most]
    except Exception:  # noqa: BLE001 - anybody's code
        return f"a {type(value).__name__} that cannot be shown"
