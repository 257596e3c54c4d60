"""Extractors: values that are read out of a conversation beside the observations.

An extractor without a schema is answered inline, in a tag of the observer's own answer. One with a schema is asked for
in a call of its own with structured output, after the observations are there.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from langchain_mastra_memory.checks import check_function, check_text
from langchain_mastra_memory.errors import ConfigurationError
from langchain_mastra_memory.observation.log import JsonValue
from langchain_mastra_memory.shown import shown

if TYPE_CHECKING:
    from pydantic import BaseModel

    from langchain_mastra_memory.base import MemoryBase

BUILT_IN: Final = frozenset({"current-task", "suggested-response", "thread-title"})
RESERVED: Final = BUILT_IN | {"observations", "observation", "observation-group", "thread", "reflection", "memory"}

_SEPARATORS = re.compile(r"[^\w]+|_+")


def slug_of(name: str) -> str:
    """Return the stable identifier of a name: lower case, words of any script, joined by hyphens.

    Example:
        >>> slug_of("Größe & Farbe!")
        'größe-farbe'
    """
    return _SEPARATORS.sub("-", unicodedata.normalize("NFC", name).lower()).strip("-")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractionContext:
    """What an extractor's functions get.

    Attributes:
        phase: What the value is extracted in: `observation`, `reflection` or `summary`.
        thread_id: The thread, if one.
        resource_id: The resource, if one.
        memory: The memory that does it; None for `summarize_conversation`.
        current: The value that was extracted; None while instructions and schema are made.
        previous: The value that was extracted before, if one.
    """

    phase: Literal["observation", "reflection", "summary"]
    thread_id: str | None = None
    resource_id: str | None = None
    memory: MemoryBase | None = None
    current: JsonValue = None
    previous: JsonValue = None


Instructions = str | Callable[[ExtractionContext], str]
OnExtracted = Callable[[ExtractionContext], JsonValue | Awaitable[JsonValue]]


@dataclass(frozen=True, kw_only=True)
class Extractor:
    """A value to extract while observing, reflecting or summarizing.

    Attributes:
        name: For people; its slug names the value and the tag.
        instructions: What to extract and when to change it; or a function of the context.
        schema: A pydantic model or a JSON schema for a structured value; or a function of the context that returns one
            or None. Without one the value is a string.
        include_previous: Whether the last value is shown to the extractor.
        metadata_path: Where below `om` in the thread's metadata the value is kept, parts separated by dots;
            `extracted.<slug>` by default; False keeps it on the log only.
        on_extracted: Called with the value before it is kept, sync or async; what it returns (if not None) replaces
            the value; what it raises is reported as a failure of this extractor only.

    Raises:
        ConfigurationError: The name has no letter or digit, or its slug is reserved.

    Example:
        >>> Extractor(name="User mood", instructions="The mood in two words.").slug
        'user-mood'
    """

    name: str
    instructions: Instructions = ""
    schema: Any = None
    include_previous: bool = True
    metadata_path: str | Literal[False] | None = None
    on_extracted: OnExtracted | None = None
    slug: str = field(init=False)

    def __post_init__(self) -> None:
        """Check the fields, and derive the slug."""
        check_text("an extractor's name", self.name)
        if not callable(self.instructions):
            check_text("an extractor's instructions", self.instructions)
        if self.schema is not None and not isinstance(self.schema, (type, Mapping)):
            check_function("an extractor's schema", self.schema)
        check_function("on_extracted", self.on_extracted)
        slug = slug_of(self.name)
        if not slug:
            raise ConfigurationError(f"an extractor's name must have a letter or a digit: {shown(self.name, 80)}")
        if slug in RESERVED:
            raise ConfigurationError(f"the extractor slug {slug!r} (of {shown(self.name, 80)}) is reserved; rename it")
        if self.metadata_path is not None and self.metadata_path is not False:
            check_text("metadata_path", self.metadata_path)
            parts = self.metadata_path.split(".")
            if not all(part.strip() for part in parts):
                raise ConfigurationError(
                    f"metadata_path must be words separated by dots: {shown(self.metadata_path, 80)}"
                )
        object.__setattr__(self, "slug", slug)

    @property
    def path(self) -> tuple[str, ...] | None:
        """The keys below `om`, or None if the value is kept on the log only."""
        if self.metadata_path is False:
            return None
        return tuple((self.metadata_path or f"extracted.{self.slug}").split("."))

    def instructed(self, context: ExtractionContext) -> str:
        """Return the instructions for a call."""
        return self.instructions(context) if callable(self.instructions) else self.instructions

    def schema_for(self, context: ExtractionContext) -> type[BaseModel] | Mapping[str, Any] | None:
        """Return the schema for a call, or None for an inline string."""
        if self.schema is None or isinstance(self.schema, (type, Mapping)):
            return self.schema
        made: type[BaseModel] | Mapping[str, Any] | None = self.schema(context)
        return made


def checked(extractors: Sequence[Extractor]) -> tuple[Extractor, ...]:
    """Return extractors whose slugs differ.

    Raises:
        ConfigurationError: Two have the same slug, or one is none.
    """
    seen: dict[str, Extractor] = {}
    if not isinstance(extractors, Iterable) or not all(isinstance(one, Extractor) for one in extractors):
        raise ConfigurationError(f"extract must be a list of Extractor(...), not {shown(extractors, 80)}")
    for extractor in extractors:
        if extractor.slug in seen:
            other = seen[extractor.slug].name
            raise ConfigurationError(
                f"{other!r} and {extractor.name!r} have the same extractor slug: {extractor.slug!r}"
            )
        seen[extractor.slug] = extractor
    return tuple(extractors)
