"""Arguments of the wrong kind, refused by name where they come in and not where they would break something."""

from __future__ import annotations

from collections.abc import Collection

from langchain_mastra_memory.errors import ConfigurationError
from langchain_mastra_memory.shown import shown


def check_text(name: str, value: object, *, optional: bool = False) -> None:
    """Refuse what is no string.

    Args:
        name: The argument, for the message.
        value: What was given.
        optional: Whether None will do.

    Raises:
        ConfigurationError: It is none.
    """
    if not isinstance(value, str) and not (optional and value is None):
        raise ConfigurationError(f"{name} must be a text, not {shown(value, 60)}")


def check_function(name: str, value: object) -> None:
    """Refuse what is neither None nor a function.

    Raises:
        ConfigurationError: It is neither.
    """
    if value is not None and not callable(value):
        raise ConfigurationError(f"{name} must be a function, not {shown(value, 60)}")


def check_switch(name: str, value: object, *, optional: bool = False) -> None:
    """Refuse what is neither True nor False.

    Args:
        name: The argument, for the message.
        value: What was given.
        optional: Whether None will do.

    Raises:
        ConfigurationError: It is neither.
    """
    if not isinstance(value, bool) and not (optional and value is None):
        raise ConfigurationError(f"{name} must be True or False, not {shown(value, 40)}")


def check_choice(name: str, value: object, choices: Collection[str], *, optional: bool = False) -> None:
    """Refuse what is not one of a few words.

    Args:
        name: The argument, for the message.
        value: What was given.
        choices: The words.
        optional: Whether None will do.

    Raises:
        ConfigurationError: It is none of them.
    """
    if not (isinstance(value, str) and value in choices) and not (optional and value is None):
        *first, last = map(repr, choices)
        raise ConfigurationError(f"{name} must be {', '.join(first)} or {last}, not {shown(value, 40)}")
