"""What users wrote in the data of operations and results: where it is, and a walk that changes it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from langchain_core.messages import BaseMessage

from langchain_mastra_memory.codec import dump_message, load_message

CODEC: Final = "lc"
"""The form of a checkpoint's body that is an encoded message; see `threads.bodies`."""

TEXTS: Final = frozenset({"title", "text", "current_task", "suggested_response", "thread_title"})
"""Fields whose strings users wrote."""
JSON_VALUES: Final = frozenset({"metadata", "extracted", "titles"})
"""Fields whose mappings have values that users wrote; keys are changed by nobody."""
PLAIN_KEYS: Final = frozenset({"signal", "clone"})
"""Metadata keys that the store itself reads."""
CODEC_BODIES: Final = frozenset({("Archived", "body"), ("ArchivePlan", "own"), ("RawMessage", "body")})
"""Bytes that are an encoded message, which the store decodes; so are those whose form is `CODEC`."""


@dataclasses.dataclass(frozen=True, slots=True)
class Walk:
    """Rebuilds plain data, changing what users wrote; what is not changed stays the same object.

    Attributes:
        text: Changes a string of `TEXTS`.
        json: Changes a value of `JSON_VALUES`.
        raw: Changes bytes.
        message: Changes a message.
    """

    text: Callable[[str], str]
    json: Callable[[Any], Any]
    raw: Callable[[bytes], bytes]
    message: Callable[[BaseMessage], BaseMessage]

    def walk(self, value: Any) -> Any:
        """Return the value, changed within."""
        if isinstance(value, BaseMessage):
            return self.message(value)
        if isinstance(value, bytes):
            return self.raw(value)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            kind: Any = type(value)  # a NamedTuple
            return self._fields(value, kind._fields, kind._replace)
        if isinstance(value, (list, tuple)):
            return type(value)(
                self._codec(inner)
                if isinstance(inner, bytes) and index and value[index - 1] == CODEC
                else self.walk(inner)
                for index, inner in enumerate(value)
            )
        if isinstance(value, Mapping):
            return {key: self.walk(inner) for key, inner in value.items()}
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            names = [field.name for field in dataclasses.fields(value)]
            return self._fields(value, names, dataclasses.replace)
        return value

    def _fields(self, value: Any, names: Iterable[str], replace: Callable[..., Any]) -> Any:
        kind = type(value).__name__
        if kind == "NewMessage" and value.kind == "signal":  # the store reads what a signal is about
            return replace(value, message=self.message(value.message))
        changed = {}
        for name in names:
            before = getattr(value, name)
            coded = name == "body" and getattr(value, "form", None) == CODEC
            after = self._codec(before) if coded else self._field(kind, name, before)
            if after is not before:
                changed[name] = after
        return replace(value, **changed) if changed else value

    def _field(self, kind: str, name: str, value: Any) -> Any:
        if (kind, name) in CODEC_BODIES:
            return (
                {key: self._codec(v) for key, v in value.items()} if isinstance(value, Mapping) else self._codec(value)
            )
        if name in TEXTS and isinstance(value, str):
            return self.text(value)
        if name in JSON_VALUES and isinstance(value, Mapping):
            return {key: inner if key in PLAIN_KEYS else self.json(inner) for key, inner in value.items()}
        if name == "mirror":
            return {
                key: tuple((path, self.json(inner)) for path, inner in values) for key, values in (value or {}).items()
            }
        return self.walk(value)

    def _codec(self, body: bytes | None) -> bytes | None:
        return None if body is None else dump_message(self.message(load_message(body)))
