"""The base of options: frozen, no unknown names, and a fault is a `ConfigurationError` that names field and value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, ValidationError

from langchain_mastra_memory.errors import ConfigurationError
from langchain_mastra_memory.shown import shown


class CheckedOptions(BaseModel):
    """Options that are checked where they are made."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    if not TYPE_CHECKING:  # a signature here would hide the fields from type checkers

        def __init__(self, **values: Any) -> None:
            try:
                super().__init__(**values)
            except ValidationError as error:
                raise ConfigurationError(faults_of(type(self).__name__, error)) from error
            except TypeError as error:  # options in a mapping whose keys are no names
                raise ConfigurationError(f"{type(self).__name__}: {error}") from error


def faults_of(name: str, error: ValidationError) -> str:
    """Return what is wrong with options: each field once, with its value and what it may be."""
    found: dict[str, str] = {}
    for fault in error.errors():
        field = str(fault["loc"][0]) if fault["loc"] else ""
        message = fault["msg"].removeprefix("Value error, ")
        if fault["type"] == "extra_forbidden":
            message = "there is no such option"
        given = f" (got {shown(fault['input'], 60)})" if field else ""
        found[field] = f"{found[field]}, or: {message}" if field in found else f"{field}{given}: {message}".lstrip(": ")
    return f"{name}: " + "; ".join(found.values())
