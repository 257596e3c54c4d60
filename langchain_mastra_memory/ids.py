"""Ids: what they may be, how new ones are made, how a sub-agent's resource is derived."""

from __future__ import annotations

import uuid
from typing import Final

from langchain_mastra_memory.errors import InvalidIdError
from langchain_mastra_memory.shown import shown

MAX_ID_LENGTH: Final = 512


def checked_id(value: object, what: str = "thread_id") -> str:
    """Return an id as a string, or refuse it.

    Args:
        value: A string of 1 to 512 characters without NUL, or an integer or a UUID, taken as their strings.
        what: The name of the argument, for the message.

    Returns:
        The id, unchanged: any character but NUL is allowed, and ids are compared exactly.

    Raises:
        InvalidIdError: `value` is empty, None, too long, of another type, or has a NUL.
    """
    if isinstance(value, uuid.UUID) or (isinstance(value, int) and not isinstance(value, bool)):
        value = str(value)
    if not isinstance(value, str):
        raise InvalidIdError(f"{what} must be a string of 1 to {MAX_ID_LENGTH} characters, not {shown(value, 80)}")
    if not value:
        raise InvalidIdError(f"{what} is empty; it must have 1 to {MAX_ID_LENGTH} characters")
    if len(value) > MAX_ID_LENGTH:
        raise InvalidIdError(
            f"{what} has {len(value)} characters, at most {MAX_ID_LENGTH} are allowed: {value[:40]!r}..."
        )
    if "\0" in value:
        raise InvalidIdError(f"{what} has a NUL character: {value[:40]!r}")
    return value


def optional_id(value: object, what: str = "resource_id") -> str | None:
    """Return `checked_id(value)`, or None for None."""
    return None if value is None else checked_id(value, what)


def new_id() -> str:
    """Return a new random id (a UUID4 string of 36 characters)."""
    return str(uuid.uuid4())


def derive_resource_id(parent: str, agent: str) -> str:
    """Return the resource id of a sub-agent: `{parent}-{agent}`, the same for every delegation.

    Args:
        parent: The resource id of the delegating agent.
        agent: The name of the sub-agent.

    Returns:
        The derived id. Two pairs can spell the same id ("r1-a" + "b", "r1" + "a-b"): the store records the
        pair that an id came from and refuses the other one.

    Raises:
        InvalidIdError: One of the two, or the result, is not a valid id.

    Example:
        >>> derive_resource_id("user-1", "researcher")
        'user-1-researcher'
    """
    return checked_id(f"{checked_id(parent, 'parent')}-{checked_id(agent, 'agent')}", "derived resource_id")
