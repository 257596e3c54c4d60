"""Turn a LangChain message into bytes and back, exactly.

The body of a message is a msgpack array `[class, content, id, fields, extra, private, base]`, cut after the last part
that says something: a plain message is its text, its id and about four bytes. A class of LangChain is a small number,
a class of somebody else its module and name. Fields that have their default are left out. Messages are rebuilt
without validation, so that what was stored is what comes back.

msgpack knows texts, numbers, bytes, lists and dicts with text keys. Everything else is an extension of ours: tuples,
sets, large integers, moments, nested messages, texts with lone surrogates, dicts with other keys. What remains
(pydantic models, dataclasses, enums, arrays, ...) goes through LangGraph's `JsonPlusSerializer`. Nothing that is read
is ever called, but for the constructors that this serializer calls.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import cache
from typing import Any, Final
from zoneinfo import ZoneInfo

import ormsgpack
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    BaseMessageChunk,
    ChatMessage,
    ChatMessageChunk,
    FunctionMessage,
    FunctionMessageChunk,
    HumanMessage,
    HumanMessageChunk,
    RemoveMessage,
    SystemMessage,
    SystemMessageChunk,
    ToolMessage,
    ToolMessageChunk,
)
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from pydantic_core import PydanticUndefined

logger = logging.getLogger(__name__)

# Written into every database: append, never renumber.
_CLASSES: Final[tuple[type[BaseMessage], ...]] = (
    BaseMessage,
    HumanMessage,
    AIMessage,
    SystemMessage,
    ToolMessage,
    ChatMessage,
    FunctionMessage,
    RemoveMessage,
    HumanMessageChunk,
    AIMessageChunk,
    SystemMessageChunk,
    ToolMessageChunk,
    ChatMessageChunk,
    FunctionMessageChunk,
    BaseMessageChunk,
)
_FIELDS: Final = (
    "content",
    "id",
    "type",
    "name",
    "additional_kwargs",
    "response_metadata",
    "tool_calls",
    "invalid_tool_calls",
    "usage_metadata",
    "tool_call_id",
    "artifact",
    "status",
    "role",
    "tool_call_chunks",
    "chunk_position",
)
_CLASS_NUMBER: Final = {cls: number for number, cls in enumerate(_CLASSES)}
_FIELD_NUMBER: Final = {name: number for number, name in enumerate(_FIELDS)}

_TUPLE, _SET, _FROZENSET, _DEQUE, _INTEGER, _MOMENT, _TEXT, _PAIRS, _MESSAGE, _OBJECT = range(10)

_PACK: Final = (
    ormsgpack.OPT_PASSTHROUGH_TUPLE
    | ormsgpack.OPT_PASSTHROUGH_BIG_INT
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_UUID
)
_STRICT: Final = os.environ.get("LANGGRAPH_STRICT_MSGPACK", "").lower() in {"1", "true", "yes"}
_Default = Callable[[Any], ormsgpack.Ext]


def dump_message(message: BaseMessage) -> bytes:
    """Return the body of a message: compact, exact, the same for equal messages of equal build.

    Args:
        message: Any LangChain message, its subclasses included.

    Returns:
        What `load_message` takes.

    Raises:
        TypeError: A value inside can't be stored: it is not plain data, a message, or of a type that LangGraph's
            `JsonPlusSerializer` takes.

    Example:
        >>> from langchain_core.messages import HumanMessage
        >>> load_message(dump_message(HumanMessage("Hello", id="m1")))
        HumanMessage(content='Hello', additional_kwargs={}, response_metadata={}, id='m1')
    """
    return _dump(message, _default)


def dump_plain_message(message: BaseMessage) -> bytes | None:
    """Return the body of a message that `load_message` rebuilds without calling anybody's code, or None.

    None means that its class is not one of LangChain's own, or that a value inside is of somebody's type.
    """
    if type(message) not in _CLASS_NUMBER:
        return None
    try:
        return _dump(message, _plain_default)
    except TypeError:
        return None


def load_message(body: bytes) -> BaseMessage:
    """Return the message that a body was made from: a new object, equal to it, with nothing shared.

    A message of a class that can't be found any more comes back as the LangChain class that it was derived from,
    with all its data, and a warning.

    Raises:
        ValueError: `body` was not made by `dump_message`.
    """
    try:
        parts = ormsgpack.unpackb(body, ext_hook=_load_extension)
        return _build(parts)
    except (ormsgpack.MsgpackDecodeError, KeyError, IndexError, TypeError) as error:
        raise ValueError(f"not the body of a message: {body[:40]!r}") from error


def dump_value(value: Any) -> bytes:
    """Return the bytes of plain data, with the same exactness as a value inside a message.

    Raises:
        TypeError: As for `dump_message`.
    """
    return _pack(value, _default)


def load_value(body: bytes) -> Any:
    """Return what `dump_value` was given."""
    return ormsgpack.unpackb(body, ext_hook=_load_extension)


@dataclass(frozen=True, slots=True)
class _Plan:
    """How messages of one class are taken apart and put together."""

    tag: Any
    base: int | None
    optional: tuple[tuple[str, int | str, type, Any], ...]
    constants: dict[str, Any]
    fresh: tuple[tuple[str, Callable[[], Any]], ...]
    names: frozenset[str]


@cache
def _plan(cls: type[BaseMessage]) -> _Plan:
    optional: list[tuple[str, int | str, type, Any]] = []
    constants: dict[str, Any] = {}
    fresh: list[tuple[str, Callable[[], Any]]] = []
    for name, field in cls.model_fields.items():
        if field.default is not PydanticUndefined:
            blank = constants[name] = field.default
        elif field.default_factory in {dict, list}:
            factory: Any = field.default_factory
            fresh.append((name, factory))
            blank = factory()
            constants[name] = None  # keeps the order of the fields
        else:
            blank = PydanticUndefined
            constants[name] = None
        if name not in {"content", "id"}:
            optional.append((name, _FIELD_NUMBER.get(name, name), type(blank), blank))
    number = _CLASS_NUMBER.get(cls)
    base = None if number is not None else next(_CLASS_NUMBER[c] for c in cls.__mro__ if c in _CLASS_NUMBER)
    tag = number if number is not None else [cls.__module__, cls.__qualname__]
    return _Plan(tag, base, tuple(optional), constants, tuple(fresh), frozenset(cls.model_fields))


def _dump(message: BaseMessage, default: _Default) -> bytes:
    plan = _plan(type(message))
    values = message.__dict__
    if "content" not in values:
        raise TypeError(f"a {type(message).__name__} without content can't be stored")
    fields: list[Any] = []
    for name, code, kind, blank in plan.optional:
        value = values.get(name, blank)
        if type(value) is not kind or value != blank:
            fields += (code, value)
    parts: list[Any] = [plan.tag, values["content"], values.get("id")]
    extra, private = message.__pydantic_extra__, message.__pydantic_private__
    if plan.base is not None:
        parts += (fields, extra or None, private or None, plan.base)
    elif private:
        parts += (fields, extra or None, private)
    elif extra:
        parts += (fields, extra)
    elif fields:
        parts.append(fields)
    return _pack(parts, default)


def _build(parts: list[Any]) -> BaseMessage:
    tag = parts[0]
    cls = _CLASSES[tag] if type(tag) is int else _find_class(tag[0], tag[1], parts[6])
    plan = _plan(cls)
    values = plan.constants.copy()
    for name, factory in plan.fresh:
        values[name] = factory()
    values["content"] = parts[1]
    values["id"] = parts[2]
    given = {"content", "id"}
    extra: dict[str, Any] = {}
    private = None
    if len(parts) > 3:
        fields = iter(parts[3])
        for code, value in zip(fields, fields, strict=True):
            name = _FIELDS[code] if type(code) is int else code
            if name in plan.names:
                values[name] = value
                given.add(name)
            else:
                extra[name] = value  # a field of a class that is gone, or that lost it
        if len(parts) > 4 and parts[4]:
            extra.update(parts[4])
            given.update(parts[4])
        if len(parts) > 5:
            private = parts[5]
    message = cls.__new__(cls)
    set_slot = object.__setattr__
    set_slot(message, "__dict__", values)
    set_slot(message, "__pydantic_fields_set__", given)
    set_slot(message, "__pydantic_extra__", extra)
    if cls.__private_attributes__:
        set_slot(message, "__pydantic_private__", None)
        message.model_post_init(None)
        if private and message.__pydantic_private__ is not None:
            message.__pydantic_private__.update(private)
    else:
        set_slot(message, "__pydantic_private__", None)
    return message


@cache
def _find_class(module: str, qualname: str, base: int) -> type[BaseMessage]:
    """Return a class of somebody else, or the LangChain class that it was derived from."""
    found: Any = sys.modules.get(module)
    if found is None and not _STRICT:
        try:
            found = importlib.import_module(module)
        except Exception:  # noqa: BLE001  # whatever the import of somebody's module raises
            found = None
    for name in qualname.split("."):
        found = getattr(found, name, None)
    if isinstance(found, type) and issubclass(found, BaseMessage):
        return found
    logger.warning("Message class %s.%s is not there; its messages come back as %s", module, qualname, _CLASSES[base])
    return _CLASSES[base]


def _pack(value: Any, default: _Default) -> bytes:
    try:
        return ormsgpack.packb(value, default=default, option=_PACK)
    except ormsgpack.MsgpackEncodeError as error:
        reason = error
    try:
        return ormsgpack.packb(_spell_out(value, default), default=default, option=_PACK)
    except ormsgpack.MsgpackEncodeError as error:
        raise TypeError(f"it holds a value that can't be stored: {error.__cause__ or error}") from reason
    except RecursionError as error:
        raise TypeError("it holds a value that is nested too deeply to be stored") from error


def _spell_out(value: Any, default: _Default) -> Any:
    """Write what msgpack refuses (lone surrogates, keys that are no texts) as extensions, all the way down."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return ormsgpack.Ext(_TEXT, value.encode("utf-8", "surrogatepass"))
        return value
    if isinstance(value, dict):
        pairs = [(_spell_out(key, default), _spell_out(item, default)) for key, item in value.items()]
        if all(type(key) is str for key, _ in pairs):
            return dict(pairs)
        flat = [part for pair in pairs for part in pair]
        return ormsgpack.Ext(_PAIRS, ormsgpack.packb(flat, default=default, option=_PACK))
    if isinstance(value, list):
        return [_spell_out(item, default) for item in value]
    return value


def _plain_default(value: Any) -> ormsgpack.Ext:
    """Encode what msgpack does not know but any reader may rebuild."""
    kind = type(value)
    code = _SEQUENCES.get(kind)
    if code is not None:
        return ormsgpack.Ext(code, _pack(list(value), _plain_default))
    if kind is int:
        return ormsgpack.Ext(_INTEGER, str(value).encode())
    if kind is datetime:
        return ormsgpack.Ext(_MOMENT, _pack(_take_moment(value), _plain_default))
    if kind in _CLASS_NUMBER:
        return ormsgpack.Ext(_MESSAGE, _dump(value, _plain_default))
    raise TypeError(f"{kind.__module__}.{kind.__qualname__} is not plain data")


def _default(value: Any) -> ormsgpack.Ext:
    """Encode what msgpack does not know."""
    kind = type(value)
    code = _SEQUENCES.get(kind)
    if code is not None:
        return ormsgpack.Ext(code, _pack(list(value), _default))
    if isinstance(value, BaseMessage):
        return ormsgpack.Ext(_MESSAGE, _dump(value, _default))
    if kind is int or kind is datetime:
        return _plain_default(value)
    form, data = _SERIALIZER.dumps_typed(value)
    if form != "msgpack":
        raise TypeError(f"{kind.__module__}.{kind.__qualname__} can't be stored")
    return ormsgpack.Ext(_OBJECT, data)


_SEQUENCES: Final[dict[type, int]] = {tuple: _TUPLE, set: _SET, frozenset: _FROZENSET, deque: _DEQUE}
_SERIALIZER: Final = JsonPlusSerializer()


def _take_moment(value: datetime) -> list[Any]:
    zone = value.tzinfo
    wall = value.replace(tzinfo=None).isoformat()
    if zone is None:
        return [wall, value.fold]
    if isinstance(zone, ZoneInfo) and zone.key:
        return [wall, value.fold, zone.key]
    offset = value.utcoffset() or timedelta()
    return [wall, value.fold, offset // timedelta(microseconds=1)]


def _make_moment(wall: str, fold: int, zone: str | int | None = None) -> datetime:
    tz: tzinfo | None = None
    if isinstance(zone, str):
        tz = ZoneInfo(zone)
    elif zone is not None:
        tz = timezone(timedelta(microseconds=zone)) if zone else UTC
    return datetime.fromisoformat(wall).replace(fold=fold, tzinfo=tz)


def _load_extension(code: int, data: bytes) -> Any:
    if code == _MESSAGE:
        return load_message(data)
    if code == _TEXT:
        return data.decode("utf-8", "surrogatepass")
    if code == _INTEGER:
        return int(data)
    if code == _OBJECT:
        value = _SERIALIZER.loads_typed(("msgpack", data))
        if value is None:
            raise ValueError(f"a stored value can't be rebuilt here: {data[:60]!r}")
        return value
    inner = ormsgpack.unpackb(data, ext_hook=_load_extension)
    if code == _TUPLE:
        return tuple(inner)
    if code == _PAIRS:
        flat = iter(inner)
        return dict(zip(flat, flat, strict=True))
    if code == _MOMENT:
        return _make_moment(*inner)
    if code in _COLLECTIONS:
        return _COLLECTIONS[code](inner)
    raise KeyError(code)


_COLLECTIONS: Final[dict[int, Callable[[Any], Any]]] = {_SET: set, _FROZENSET: frozenset, _DEQUE: deque}
