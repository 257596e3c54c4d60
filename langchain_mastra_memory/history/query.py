"""What `recall` is asked for, checked and as plain data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from langchain_mastra_memory.errors import InvalidQueryError
from langchain_mastra_memory.ids import checked_id, optional_id
from langchain_mastra_memory.shown import shown
from langchain_mastra_memory.store.operations.messages import Hidden, Include
from langchain_mastra_memory.threads.filters import check_count

HideSignals = bool | Iterable[str]
"""True hides every signal, False shows everything, a collection of types hides these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallQuery:
    """A search, as `recall(query=...)` hands it to the part that searches.

    Attributes:
        text: What to look for, not empty.
        thread_id: The thread that is asked about, if one.
        resource_id: The owner, if named.
        top_k: How many hits; None means the option's.
        message_range: How many neighbours, or (before, after); None means the option's.
        filter: A filter on metadata with operators, unchecked.
        start: Microseconds, inclusive.
        end: Microseconds, inclusive.
        metadata: A checked filter of equal values on the messages' metadata.
        hidden: What is not shown.
        checkpoint_id: Search what was in view at this checkpoint.
    """

    text: str
    thread_id: str | None = None
    resource_id: str | None = None
    top_k: int | None = None
    message_range: int | tuple[int, int] | None = None
    filter: Mapping[str, Any] | None = None
    start: int | None = None
    end: int | None = None
    metadata: Mapping[str, Any] | None = None
    hidden: Hidden = field(default_factory=Hidden)
    checkpoint_id: str | None = None


def read_include(include: object) -> tuple[Include, ...]:
    """Return what is to be included whatever the page holds.

    Args:
        include: A list of message ids, of `Include`s, or of mappings with `id` and, if you like, `thread_id`,
            `with_previous` and `with_next` (numbers of neighbours). None means nothing.

    Raises:
        InvalidQueryError: It is no list of these.
        InvalidIdError: An id is none.
    """
    if include is None:
        return ()
    if isinstance(include, (str, bytes, Mapping, Include)) or not isinstance(include, Iterable):
        raise InvalidQueryError(f"include must be a list of ids or mappings, not {shown(include, 80)}")
    return tuple(_read_item(item, f"include[{place}]") for place, item in enumerate(include))


def _read_item(item: object, where: str) -> Include:
    if isinstance(item, Include):
        item = {
            "id": item.id,
            "thread_id": item.thread_id,
            "with_previous": item.with_previous,
            "with_next": item.with_next,
        }
    if not isinstance(item, Mapping):
        return Include(id=checked_id(item, where))
    unknown = sorted(str(key) for key in item if key not in Include.__dataclass_fields__)
    if unknown:
        raise InvalidQueryError(
            f"{where} has {shown(unknown[0], 40)}; it may have id, thread_id, with_previous, with_next"
        )
    return Include(
        id=checked_id(item.get("id"), f"{where} id"),
        thread_id=optional_id(item.get("thread_id"), f"{where} thread_id"),
        with_previous=check_count(item.get("with_previous", 0), f"{where} with_previous"),
        with_next=check_count(item.get("with_next", 0), f"{where} with_next"),
    )


def read_hidden(hide_signals: object) -> Hidden:
    """Return what is not shown.

    Args:
        hide_signals: True, False, or a collection of signal types.

    Raises:
        InvalidQueryError: It is none of these.
    """
    if hide_signals is True:
        return Hidden(every_signal=True)
    if hide_signals is False:
        return Hidden(archive=False, kinds=frozenset())
    if isinstance(hide_signals, (str, bytes)) or not isinstance(hide_signals, Iterable):
        raise InvalidQueryError(f"hide_signals must be True, False or a list of types, not {shown(hide_signals, 60)}")
    kinds = list(hide_signals)
    if not all(isinstance(kind, str) and kind for kind in kinds):
        raise InvalidQueryError(f"hide_signals must name types of signals, not {shown(kinds)}")
    return Hidden(archive=bool(kinds), kinds=frozenset(kinds))
