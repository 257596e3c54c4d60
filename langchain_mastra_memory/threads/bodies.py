"""Take messages out of a value, and put them back: where lists of messages stand, and how one is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from langchain_core.messages import BaseMessage, RemoveMessage
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Overwrite, Send

from langchain_mastra_memory.codec import dump_plain_message, load_message
from langchain_mastra_memory.threads.entries import LIST, MESSAGE, SNAPSHOT

CODEC: Final = "lc"
"""The form of a body that our own codec wrote: smaller, faster and more exact than the serializer's."""


class BodyWriter:
    """Writes and reads messages for one serializer.

    LangGraph's own serializer gives way to the codec for messages made of plain data; any other one (encryption) is
    used for everything.

    Attributes:
        unique: Whether equal messages get equal bytes.
    """

    def __init__(self, serde: SerializerProtocol) -> None:
        self._serde = serde
        self.unique = type(serde) is JsonPlusSerializer

    def dump(self, message: BaseMessage) -> tuple[str, bytes]:
        """Return the form and the bytes of a message."""
        if self.unique:
            body = dump_plain_message(message)
            if body is not None:
                return CODEC, body
        return self._serde.dumps_typed(message)

    def load(self, form: str, body: bytes) -> Any:
        """Return the message of a body that is not gone."""
        return load_message(body) if form == CODEC else self._serde.loads_typed((form, body))


@dataclass(frozen=True, slots=True)
class Taken:
    """Messages that were taken out of a value.

    Attributes:
        path: Keys from the value down to the place.
        single: Whether it was one message and not a list.
        messages: The messages.
    """

    path: tuple[str | int, ...]
    single: bool
    messages: Sequence[BaseMessage]


@dataclass(frozen=True, slots=True)
class Apart:
    """A value without its messages.

    Attributes:
        form: `LIST`, `SNAPSHOT` or `MESSAGE` if the messages are all that there is; else None: write `rest`.
        rest: What is left, with None in each place.
        taken: The messages.
    """

    form: str | None
    rest: Any
    taken: tuple[Taken, ...]


def take_apart(value: Any) -> Apart:
    """Take the messages out of a value: it is a list of them, or has such lists one level inside.

    Inside means: a dict's value, the argument of a `Send` (a list of them too), the value of an `Overwrite`, the value
    of a DeltaChannel's snapshot. The value itself is not changed.
    """
    kind = type(value)
    if kind is list:
        if only_messages(value):
            return Apart(LIST, None, (Taken((), single=False, messages=value),))
        if value and all(type(item) is Send for item in value):
            return _take_sends(value)
    elif _is_message_class(kind):
        return Apart(MESSAGE, None, (Taken((), single=True, messages=(value,)),))
    elif kind is _DeltaSnapshot:
        if only_messages(value.value):
            return Apart(SNAPSHOT, None, (Taken((), single=False, messages=value.value),))
    elif kind is dict:
        taken = _take_items(value, ())
        if taken:
            return Apart(None, _hollow(value, taken), tuple(taken))
    elif kind is Send:
        taken = _take_items(value.arg, ("arg",)) if type(value.arg) is dict else []
        if taken:
            return Apart(None, Send(value.node, _hollow(value.arg, taken), timeout=value.timeout), tuple(taken))
    elif kind is Overwrite and only_messages(value.value):
        return Apart(None, replace(value, value=None), (Taken(("value",), single=False, messages=value.value),))
    return Apart(None, value, ())


_MESSAGE_CLASSES: Final[dict[type, bool]] = {}


def _is_message_class(kind: type) -> bool:
    known = _MESSAGE_CLASSES.get(kind)
    if known is None:
        known = _MESSAGE_CLASSES[kind] = issubclass(kind, BaseMessage)
    return known


def only_messages(value: Any) -> bool:
    """Tell whether a value is a list of messages, and not empty.

    Each class is asked once: pydantic answers `isinstance` in Python, which is slow for a long list.
    """
    return type(value) is list and bool(value) and all(map(_is_message_class, set(map(type, value))))


def _take_items(value: dict[Any, Any], path: tuple[str | int, ...]) -> list[Taken]:
    taken = []
    for key, item in value.items():
        if type(key) is str:
            if only_messages(item):
                taken.append(Taken((*path, key), single=False, messages=item))
            elif _is_message_class(type(item)):
                taken.append(Taken((*path, key), single=True, messages=(item,)))
    return taken


def _hollow(value: dict[Any, Any], taken: Sequence[Taken]) -> dict[Any, Any]:
    return {**value, **{part.path[-1]: None for part in taken}}


def _take_sends(sends: list[Send]) -> Apart:
    rest: list[Any] = list(sends)
    taken: list[Taken] = []
    for index, send in enumerate(sends):
        inside = _take_items(send.arg, (index, "arg")) if type(send.arg) is dict else []
        if inside:
            rest[index] = Send(send.node, _hollow(send.arg, inside), timeout=send.timeout)
            taken += inside
    return Apart(None, rest, tuple(taken))


def put_together(form: str, rest: Any, filled: Sequence[tuple[tuple[str | int, ...], bool, list[Any]]]) -> Any:
    """Return a value with its messages back in their places.

    Args:
        form: The entry's form.
        rest: What `take_apart` left, freshly read.
        filled: For each place its path, whether it held one message, and the messages. A message that was deleted is
            not among them; where one stood alone, an empty list stands.
    """
    for path, single, messages in filled:
        content: Any = messages[0] if single and messages else messages
        if not path:
            return _DeltaSnapshot(content) if form == SNAPSHOT else content
        place = rest
        for key in path[:-1]:
            place = place.arg if key == "arg" and type(place) is Send else place[key]
        if type(place) is Overwrite:
            rest = replace(place, value=content)
        else:
            cast("dict[Any, Any]", place)[path[-1]] = content
    return rest


def is_order(message: BaseMessage) -> bool:
    """Tell whether it is an order to remove another message, whose id it carries."""
    return isinstance(message, RemoveMessage)


def space_of(ns: str, channel: str, path: tuple[str | int, ...]) -> str:
    """Return the space in which the messages of a place are numbered.

    It is the name of the list (`messages` of the channel, of `__start__`, of a `Send`), behind the nodes of the
    namespace: the ids of its calls are left out, so that a subgraph's calls share.
    """
    name = path[-1] if path and isinstance(path[-1], str) and path[-1] != "value" else channel
    if not ns:
        return str(name)
    nodes = "|".join(part.partition(":")[0] for part in ns.split("|"))
    return f"{nodes}/{name}"
