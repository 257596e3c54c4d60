"""What callers hand in as messages, made into rows to save or edits to make. Pure: ids of new messages aside."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, datetime
from typing import Any, Final

from langchain_core.messages import BaseMessage, RemoveMessage, convert_to_messages
from pydantic import BaseModel

from langchain_mastra_memory.errors import InvalidQueryError
from langchain_mastra_memory.ids import checked_id, new_id
from langchain_mastra_memory.shown import shown
from langchain_mastra_memory.store.operations.messages import NewMessage
from langchain_mastra_memory.threads.filters import check_metadata, to_micros, to_moment
from langchain_mastra_memory.types import StoredMessage

MessageInput = BaseMessage | StoredMessage | Mapping[str, Any] | tuple[str, Any]
"""What can be saved: a LangChain message, a `StoredMessage` (of another store), a mapping with `role` and `content`
(and `id`, `metadata`, `created_at`, ... if you like), or a pair of role and content."""

_KINDS_OF_SIGNALS: Final = frozenset({"reactive", "system-reminder"})
_OWN_KEYS: Final = ("metadata", "created_at")
_EDITABLE: Final = frozenset({"id", "content", "metadata"})


@dataclass(frozen=True, slots=True)
class Incoming:
    """A message on its way in.

    Attributes:
        message: The message, with its id.
        metadata: The application's data.
        created_at: Microseconds UTC, if the caller has said.
        kind: What it is, if no ordinary message.
        fresh: Whether its id was made just now.
    """

    message: BaseMessage
    metadata: Mapping[str, Any]
    created_at: int | None
    kind: str | None
    fresh: bool

    def counted(self, tokens: int) -> NewMessage:
        """Return the row to save."""
        return NewMessage(
            message=self.message,
            tokens=tokens,
            kind=self.kind,
            metadata=self.metadata,
            created_at=self.created_at,
            fresh=self.fresh,
        )


def incoming_messages(messages: object) -> list[Incoming]:
    """Return what is to be saved of what a caller handed in.

    A message without an id gets one, in place. `RemoveMessage`s and transient signals are passed over: they are never
    stored. Metadata is taken from `additional_kwargs["metadata"]`, the time from `additional_kwargs["created_at"]` or
    the metadata's `created_at`.

    Raises:
        InvalidQueryError: It is no list of messages; nothing was changed.
    """
    if isinstance(messages, (str, bytes, Mapping, BaseMessage, StoredMessage)) or not isinstance(messages, Iterable):
        raise InvalidQueryError(f"messages must be a list of messages, not a {type(messages).__name__}")
    read = [_read(item, place) for place, item in enumerate(messages)]
    found: list[Incoming] = []
    for message, metadata, created_at, kind in read:
        if isinstance(message, RemoveMessage) or _is_transient(metadata):
            continue
        fresh = message.id is None
        if fresh:
            message.id = new_id()
        checked_id(message.id, "message id")
        found.append(Incoming(message, metadata, created_at, kind or _kind_of(metadata), fresh))
    return found


def as_messages(messages: object, what: str = "messages") -> list[BaseMessage]:
    """Return what a caller handed in as LangChain messages: the same objects where they are some already.

    Args:
        messages: A list of messages, of pairs of role and content, or of mappings with both.
        what: The name of the argument, for the message.

    Raises:
        InvalidQueryError: It is no such list.
    """
    if isinstance(messages, (str, bytes, Mapping, BaseMessage, StoredMessage)) or not isinstance(messages, Iterable):
        raise InvalidQueryError(f"{what} must be a list of messages, not a {type(messages).__name__}")
    return [
        item if isinstance(item, BaseMessage) else _read(item, place, what)[0] for place, item in enumerate(messages)
    ]


def give_ids(messages: Iterable[BaseMessage]) -> list[BaseMessage]:
    """Give each message that has no id one, in place; return those."""
    nameless = [message for message in messages if not message.id]
    for message in nameless:
        message.id = new_id()
    return nameless


def fields_of(state: object) -> Mapping[str, Any] | None:
    """Return the fields of a graph's state (a dict, a dataclass or a pydantic model); None for anything else.

    Example:
        >>> fields_of({"messages": []}), fields_of([("user", "Hello!")])
        ({'messages': []}, None)
    """
    if isinstance(state, Mapping):
        return state
    if isinstance(state, (BaseMessage, Sequence, type)):  # messages are pydantic models, and a `Page` is a dataclass
        return None
    if isinstance(state, BaseModel):
        return dict(state)
    if is_dataclass(state):
        return {field.name: getattr(state, field.name) for field in fields(state)}
    return None


_Read = tuple[BaseMessage, dict[str, Any], int | None, str | None]


def _read(item: object, place: int, what: str = "messages") -> _Read:
    where = f"{what}[{place}]"
    if isinstance(item, StoredMessage):
        kind = None if item.kind == "message" else item.kind
        return item.message, check_metadata(item.metadata, where), to_micros(to_moment(item.created_at, where)), kind
    if isinstance(item, BaseMessage):
        metadata = message_metadata(item, where)
        return item, metadata, message_time(item, metadata), None
    if isinstance(item, Mapping):
        own = {key: item[key] for key in _OWN_KEYS if item.get(key) is not None}
        message = _converted({key: value for key, value in item.items() if key not in _OWN_KEYS}, where)
        metadata = check_metadata(own.get("metadata"), f"{where} metadata")
        given = own.get("created_at")
        moment = (
            message_time(message, metadata) if given is None else to_micros(to_moment(given, f"{where} created_at"))
        )
        return message, metadata, moment, None
    if isinstance(item, Sequence) and not isinstance(item, (str, bytes)):
        return _converted(tuple(item), where), {}, None, None
    raise InvalidQueryError(
        f"{where} is a {type(item).__name__}: give a LangChain message, a (role, content) pair, or a mapping with "
        "role and content"
    )


def _converted(item: Any, where: str) -> BaseMessage:
    try:
        return convert_to_messages([item])[0]
    except (ValueError, TypeError, NotImplementedError, KeyError, AttributeError) as error:
        raise InvalidQueryError(f"{where} can't be understood as a message: {shown(item, 80)}") from error


def message_metadata(message: BaseMessage, where: str = "message") -> dict[str, Any]:
    """Return the application's metadata of a message: `additional_kwargs["metadata"]`, if that is a mapping.

    Raises:
        InvalidQueryError: It is not JSON data.
    """
    given = message.additional_kwargs.get("metadata")
    return check_metadata(given, f"{where} metadata") if isinstance(given, Mapping) else {}


def metadata_of_run(message: BaseMessage) -> dict[str, Any]:
    """Return the application's metadata of a message like `message_metadata`; none where it is not JSON data.

    A run that is under way is not to fail for it.
    """
    try:
        return message_metadata(message)
    except InvalidQueryError:
        return {}


def message_time(message: BaseMessage, metadata: Mapping[str, Any]) -> int | None:
    """Return when a message was made, in microseconds UTC, if it says so in a way that can be read.

    It says so as a `datetime`, an ISO 8601 string or seconds since 1970, under `created_at` of its
    `additional_kwargs` or of its metadata.
    """
    for given in (message.additional_kwargs.get("created_at"), metadata.get("created_at")):
        moment = _lenient_moment(given)
        if moment is not None:
            return to_micros(moment)
    return None


def _lenient_moment(value: object) -> datetime | None:
    """Return a time, or None for what is somebody else's idea of one."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
        try:
            return datetime.fromtimestamp(value, UTC)
        except (OverflowError, ValueError, OSError):
            return None
    try:
        return None if value is None else to_moment(value, "created_at")
    except InvalidQueryError:
        return None


def _signal(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    signal = metadata.get("signal")
    return signal if isinstance(signal, Mapping) else {}


def _is_transient(metadata: Mapping[str, Any]) -> bool:
    return _signal(metadata).get("transient") is True


def _kind_of(metadata: Mapping[str, Any]) -> str | None:
    """Return the kind of a signal that has one; a signal of another type is an ordinary message to the store."""
    kind = _signal(metadata).get("type")
    return kind if isinstance(kind, str) and kind in _KINDS_OF_SIGNALS else None


@dataclass(frozen=True, slots=True)
class Change:
    """What a caller wants of a stored message.

    Attributes:
        id: The message.
        edit: From the stored message to the new one.
        metadata: What to merge into its metadata; None as a value removes a key.
    """

    id: str
    edit: Callable[[BaseMessage], BaseMessage]
    metadata: Mapping[str, Any]


def incoming_changes(messages: object) -> list[Change]:
    """Return the changes that a caller asks for; of several for one id, in order.

    Args:
        messages: LangChain messages with ids (they replace the stored ones), or mappings with `id` and `content`,
            `metadata` or both.

    Raises:
        InvalidQueryError: It is no list of these.
        InvalidIdError: One has no id.
    """
    if isinstance(messages, (str, bytes, Mapping, BaseMessage, StoredMessage)) or not isinstance(messages, Iterable):
        raise InvalidQueryError(f"messages must be a list of messages or mappings, not a {type(messages).__name__}")
    return [_change(item, place) for place, item in enumerate(messages)]


def _change(item: object, place: int) -> Change:
    where = f"messages[{place}]"
    if isinstance(item, StoredMessage):
        return Change(checked_id(item.id, f"{where} id"), _put(item.message), check_metadata(item.metadata, where))
    if isinstance(item, BaseMessage):
        message_id = checked_id(item.id, f"{where} id")
        return Change(message_id, _put(item), message_metadata(item, where))
    if not isinstance(item, Mapping):
        raise InvalidQueryError(f"{where} is a {type(item).__name__}: give a LangChain message or a mapping with an id")
    message_id = checked_id(item.get("id"), f"{where} id")
    unknown = sorted(str(key) for key in item if key not in _EDITABLE)
    if unknown:
        raise InvalidQueryError(f"{where} has {shown(unknown[0], 40)}; a mapping may have id, content and metadata")
    content = item.get("content")
    if content is not None and not isinstance(content, (str, list)):
        raise InvalidQueryError(f"{where} content must be a string or a list of blocks, not {shown(content, 60)}")
    if isinstance(content, list) and not all(isinstance(block, (str, dict)) for block in content):
        raise InvalidQueryError(
            f"{where} content has a block that is neither a string nor a mapping: {shown(content, 60)}"
        )
    edit = _same if content is None else _with_content(content)
    return Change(message_id, edit, check_metadata(item.get("metadata"), f"{where} metadata"))


def _same(message: BaseMessage) -> BaseMessage:
    return message


def _put(new: BaseMessage) -> Callable[[BaseMessage], BaseMessage]:
    return lambda _: new


def _with_content(content: str | list[Any]) -> Callable[[BaseMessage], BaseMessage]:
    return lambda message: message.model_copy(update={"content": content})


def incoming_ids(message_ids: object) -> list[str]:
    """Return the message ids that a caller names, each once.

    Args:
        message_ids: A list of ids, of messages, or of mappings with an `id`.

    Raises:
        InvalidQueryError: It is no list.
        InvalidIdError: One is no id.
    """
    if isinstance(message_ids, (str, bytes, Mapping, BaseMessage, StoredMessage)) or not isinstance(
        message_ids, Iterable
    ):
        raise InvalidQueryError(f"message_ids must be a list of ids, not a {type(message_ids).__name__}")
    found: dict[str, None] = {}
    for place, item in enumerate(message_ids):
        where = f"message_ids[{place}]"
        if isinstance(item, (BaseMessage, StoredMessage)):
            found[checked_id(item.id, where)] = None
        elif isinstance(item, Mapping):
            found[checked_id(item.get("id"), f"{where} id")] = None
        else:
            found[checked_id(item, where)] = None
    return list(found)
