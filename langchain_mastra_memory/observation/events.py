"""Events of observational memory on the graph's custom stream: `{"type": "memory.observation", "phase": ...}`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

TYPE: Final = "memory.observation"

EventPhase = Literal[
    "status",
    "observation_start",
    "observation_end",
    "observation_failed",
    "buffering_start",
    "buffering_end",
    "buffering_failed",
    "activation",
    "title",
    "temporal_gap",
    "left_out",
]

_log = logging.getLogger(__name__)


def emit(writer: Callable[[Any], None], phase: EventPhase, **fields: Any) -> None:
    """Send an event; a stream that is closed by now (the run ended) is no reason to fail.

    Fields that are None are left out.
    """
    event: Mapping[str, Any] = {"type": TYPE, "phase": phase, **{k: v for k, v in fields.items() if v is not None}}
    try:
        writer(event)
    except Exception:  # noqa: BLE001 - whatever the stream raises, memory goes on
        _log.debug("the event %s was not delivered", phase, exc_info=True)
