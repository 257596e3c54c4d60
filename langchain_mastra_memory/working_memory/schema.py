"""The schema of a page: a pydantic model or a JSON Schema, with one face for both.

What a model is offered is the *partial* schema (every field optional, null allowed, so that a field can be deleted);
what is checked is the merged page, against the whole schema.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from pydantic import BaseModel, PydanticSchemaGenerationError, PydanticUserError, RootModel, ValidationError

from langchain_mastra_memory.errors import ConfigurationError
from langchain_mastra_memory.shown import shown

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

SchemaSource: TypeAlias = type[BaseModel] | Mapping[str, Any]
"""What a user gives as `schema`."""

Place: TypeAlias = tuple[str | int, ...]
"""Where a value stands in a page: keys and indexes from the root."""

_SHOWN_FAULTS: Final = 6
_ABOUT_ABSENCE: Final = frozenset({"required", "dependentRequired", "minProperties", "minItems", "contains"})


@dataclass(frozen=True, slots=True)
class Fault:
    """One reason why a page does not fit.

    Attributes:
        place: Where.
        reason: What is wrong, for the model that made the update.
        missing: Whether something is absent rather than wrong: nothing can be removed to repair it.
    """

    place: Place
    reason: str
    missing: bool = False

    def __str__(self) -> str:
        """Return the fault as a line for a model."""
        return f"{'.'.join(map(str, self.place)) or 'the page'}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Checked:
    """What validation says of a page.

    Attributes:
        value: The page as it is kept: normalised by a pydantic model, unchanged under a JSON Schema.
        faults: Why it does not fit; empty when it does.
    """

    value: dict[str, Any]
    faults: tuple[Fault, ...] = ()


class PageSchema(Protocol):
    """What the rest of working memory needs of a schema."""

    @property
    def json_schema(self) -> dict[str, Any]:
        """The whole schema, as JSON Schema."""
        ...

    def check(self, page: Mapping[str, Any]) -> Checked:
        """Validate a whole page."""
        ...


class PydanticPage:
    """A page that a pydantic model describes."""

    def __init__(self, model: type[BaseModel]) -> None:
        if issubclass(model, RootModel):
            raise ConfigurationError(
                f"working_memory.schema must describe an object; {model.__name__} is a RootModel, make it a field"
            )
        self.model = model
        try:
            self._json_schema = model.model_json_schema(by_alias=True)
        except (PydanticUserError, PydanticSchemaGenerationError) as error:
            raise ConfigurationError(
                f"working_memory.schema: {model.__name__} has no JSON Schema that a model could be shown: {error}"
            ) from error

    @property
    def json_schema(self) -> dict[str, Any]:
        """The model's JSON Schema, by alias."""
        return copy.deepcopy(self._json_schema)

    def check(self, page: Mapping[str, Any]) -> Checked:
        """Validate with the model; what fits is kept in the model's JSON form, with the fields that were set only."""
        try:
            value = self.model.model_validate(dict(page))
        except ValidationError as error:
            faults = tuple(
                Fault(tuple(fault["loc"]), fault["msg"], missing=fault["type"] == "missing")
                for fault in error.errors(include_url=False, include_context=False, include_input=False)
            )
            return Checked(dict(page), faults)
        kept = value.model_dump(mode="json", by_alias=True, exclude_unset=True, warnings=False)
        return Checked(
            {key: kept[key] for key in (*(k for k in page if k in kept), *(k for k in kept if k not in page))}
        )


class JsonSchemaPage:
    """A page that a JSON Schema describes."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        from jsonschema import SchemaError  # noqa: PLC0415  # heavy
        from jsonschema.validators import Draft202012Validator, validator_for  # noqa: PLC0415
        from referencing import Registry  # noqa: PLC0415

        self._schema = copy.deepcopy(dict(schema))
        if self._schema.get("type", "object") != "object":
            raise ConfigurationError(
                f"working_memory.schema must describe an object, not type {shown(self._schema['type'], 60)}"
            )
        if not {"type", "properties", "$ref", "allOf", "anyOf", "oneOf", "additionalProperties"} & self._schema.keys():
            raise ConfigurationError(
                f"working_memory.schema is no JSON Schema of an object: give type and properties, got {shown(schema)}"
            )
        kind = validator_for(self._schema, default=Draft202012Validator)
        try:
            kind.check_schema(self._schema)
        except SchemaError as error:
            raise ConfigurationError(
                f"working_memory.schema is not a valid JSON Schema: {error.message:.200}"
            ) from error
        # An empty registry: a remote $ref is an error here, never a request to somebody's server.
        self._validator: Validator = kind(self._schema, registry=Registry())

    @property
    def json_schema(self) -> dict[str, Any]:
        """The schema as it was given."""
        return copy.deepcopy(self._schema)

    def check(self, page: Mapping[str, Any]) -> Checked:
        """Validate with the schema; nothing is changed."""
        from referencing.exceptions import Unresolvable  # noqa: PLC0415

        try:
            errors = list(self._validator.iter_errors(page))
        except Unresolvable as error:
            raise ConfigurationError(
                f"working_memory.schema has a reference that leads out of it, and none is fetched: {error.ref:.120}"
            ) from error
        faults: list[Fault] = []
        for found in errors:
            place = tuple(found.absolute_path)
            extra = _extra_keys(found.validator, found.instance, found.schema)
            if extra:
                faults.extend(Fault((*place, key), "this field is not in the schema") for key in extra)
            else:
                faults.append(Fault(place, f"{found.message:.160}", missing=found.validator in _ABOUT_ABSENCE))
        return Checked(dict(page), tuple(faults))


def _extra_keys(rule: object, instance: Any, schema: Any) -> list[str]:
    if rule != "additionalProperties" or not isinstance(instance, Mapping) or not isinstance(schema, Mapping):
        return []
    if schema.get("additionalProperties") is not False or schema.get("patternProperties"):
        return []
    return [key for key in instance if key not in schema.get("properties", {})]


def page_schema(source: SchemaSource) -> PageSchema:
    """Return the schema behind what the user gave.

    Raises:
        ConfigurationError: It is neither a pydantic model class nor a JSON Schema of an object.
    """
    if isinstance(source, type) and issubclass(source, BaseModel):
        return PydanticPage(source)
    if isinstance(source, Mapping):
        return JsonSchemaPage(source)
    raise ConfigurationError(
        f"working_memory.schema must be a pydantic model class or a JSON Schema (a dict), not {shown(source, 80)}"
    )


def fitted(schema: PageSchema, page: Mapping[str, Any]) -> Checked:
    """Validate a page, taking a null inside an array's objects as "no such field" where the schema wants no null.

    Arrays are replaced whole, so a null in them deletes nothing; a model that was told "null deletes" means it all the
    same.
    """
    checked = schema.check(page)
    while checked.faults:
        nulls = [f.place for f in checked.faults if _is_null_member(checked.value, f.place)]
        if not nulls:
            break
        checked = schema.check(without(checked.value, nulls))
    return checked


def repaired(schema: PageSchema, page: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[Fault, ...]]:
    """Return a page that was written under another schema without what no longer fits, and what that was.

    What is missing cannot be repaired here: the update that follows has to bring it. In an item of an array no update
    can: such an item goes.
    """
    value = dict(page)
    dropped: list[Fault] = []
    while True:
        wrong = [fault for fault in schema.check(value).faults if not fault.missing or _item(fault.place)]
        where = (_item(fault.place) if fault.missing else fault.place for fault in wrong)
        places = [place for part in where if (place := _existing(value, part))]
        if not wrong:
            return value, tuple(dropped)
        dropped.extend(wrong)
        if not places:  # a rule about the page as a whole: nothing of it can stay
            return {}, tuple(dropped)
        value = without(value, places)


def without(page: Mapping[str, Any], places: Iterable[Place]) -> dict[str, Any]:
    """Return a page without the values at these places; the page itself is not changed."""
    value: dict[str, Any] = copy.deepcopy(dict(page))
    # From the back, so that removing an item of an array does not move the ones that are removed after it.
    for place in sorted(set(places), key=_order, reverse=True):
        parent = _at(value, place[:-1])
        if isinstance(parent, dict):
            parent.pop(place[-1], None)
        elif isinstance(parent, list) and isinstance(place[-1], int) and place[-1] < len(parent):
            del parent[place[-1]]
    return value


def explain(faults: Sequence[Fault]) -> str:
    """Return faults as one line for a model."""
    lines = list(dict.fromkeys(str(fault) for fault in faults))
    more = f" (and {len(lines) - _SHOWN_FAULTS} more)" if len(lines) > _SHOWN_FAULTS else ""
    return "; ".join(lines[:_SHOWN_FAULTS]) + more


@lru_cache(maxsize=64)
def model_schema(model: type[BaseModel]) -> PydanticPage:
    """Return the schema of a model class, for typed reading."""
    return PydanticPage(model)


def _order(place: Place) -> tuple[tuple[int, int | str], ...]:
    return tuple((0, part) if isinstance(part, int) else (1, part) for part in place)


def _member(value: Any, part: str | int) -> tuple[bool, Any]:
    """Return whether an object or array has this member, and the member."""
    if isinstance(value, Mapping) and part in value:
        return True, value[part]
    if isinstance(value, list) and isinstance(part, int) and part < len(value):
        return True, value[part]
    return False, None


def _at(value: Any, place: Place) -> Any:
    for part in place:
        _, value = _member(value, part)
    return value


def _existing(page: Mapping[str, Any], place: Place) -> Place:
    """Return the longest part of a place that is there: pydantic adds names of union members and the like."""
    value: Any = page
    for index, part in enumerate(place):
        there, value = _member(value, part)
        if not there:
            return place[:index]
    return place


def _item(place: Place) -> Place:
    """Return the place of the innermost array item on the way, or nothing."""
    indexes = [index for index, part in enumerate(place) if isinstance(part, int)]
    return place[: indexes[-1] + 1] if indexes else ()


def _is_null_member(page: Mapping[str, Any], place: Place) -> bool:
    there = _existing(page, place)
    return bool(there) and isinstance(there[-1], str) and _at(page, there) is None
