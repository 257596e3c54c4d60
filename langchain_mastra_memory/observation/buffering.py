"""Observing and reflecting ahead, in the background: the results wait until they are activated."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Literal

from langchain_mastra_memory.observation.engine import Cause, Engine
from langchain_mastra_memory.observation.observing import observe
from langchain_mastra_memory.observation.planning import tail
from langchain_mastra_memory.observation.reflecting import reflect
from langchain_mastra_memory.tokens import ready

if TYPE_CHECKING:
    from langchain_mastra_memory.io import IO

ARCHIVE_TRIES: Final = 100
ARCHIVE_PAUSE: Final = 0.02
"""Seconds between looks at whether a turn is archived; 2 seconds in all."""


def start(
    engine: Engine,
    io: IO,
    cause: Cause,
    phase: Literal["observation", "reflection"],
    *,
    until: str = "",
    upto: int | None = None,
) -> None:
    """Start a phase in the background, once at a time.

    Args:
        engine: The engine.
        io: What drives the caller.
        cause: Who observes; the trigger becomes the background's.
        phase: `observation` or `reflection`.
        until: A message that must be archived first.
        upto: The last seq to observe; None: all that is closed by then.
    """
    if not engine.may_try(cause.address, phase) or not engine.begin(cause.address, phase):
        return

    async def body(inner: IO) -> None:
        try:
            await _archived(engine, inner, cause, until)
            await (
                buffer(engine, inner, cause, upto)
                if phase == "observation"
                else buffer_reflection(engine, inner, cause)
            )
        finally:
            engine.end(cause.address, phase)

    # The conversation goes on meanwhile: the background looks at where the thread stands then.
    cause = replace(cause, address=replace(cause.address, position=None, ids=()), trigger="async-buffer")
    name = "observe" if phase == "observation" else "reflect"
    engine.memory.background.start(name, body, is_async=io.is_async, **cause.ids)


async def _archived(engine: Engine, io: IO, cause: Cause, message_id: str) -> None:
    """Wait until a turn that has just ended is archived: with a checkpointer that is a moment after its last hook."""
    for _ in range(ARCHIVE_TRIES if message_id else 0):
        view = await engine.view(io, cause.address)
        if any(raw.id == message_id for raw in view.threads[view.current].raw):
            return
        await io.call(time.sleep, _sleep, ARCHIVE_PAUSE)


async def _sleep(seconds: float) -> None:
    await asyncio.sleep(seconds)


async def buffer(engine: Engine, io: IO, cause: Cause, upto: int | None = None) -> None:
    """Observe what is closed, up to a seq, into the buffer; unless another process is at it."""
    await ready(engine.memory.token_counter, io)
    view = await engine.opened(io, cause.address, await engine.view(io, cause.address))
    key = view.current
    if not view.state.movable:
        return
    found = tail([m.fact for m in view.threads[key].raw], view.state.cursor(key), view.state.buffered_to(key))
    closed = [fact for fact in found.closed if upto is None or (fact.seq is not None and fact.seq <= upto)]
    if not closed:
        return
    if not await engine.claim(io, cause.address, view, "observation", engine.options.observation.timeout):
        return
    try:
        outcome, _ = await observe(engine, io, cause, view, {key: closed}, target="buffered")
    finally:
        await engine.release(io, cause.address, view, "observation")
    if outcome.error is not None:
        raise outcome.error


async def buffer_reflection(engine: Engine, io: IO, cause: Cause) -> None:
    """Condense the log into a reflection that waits; unless one does, or another process is at it."""
    await ready(engine.memory.token_counter, io)
    view = await engine.view(io, cause.address)
    if not view.state.movable or not view.state.log or view.state.pending is not None:
        return
    if not await engine.claim(io, cause.address, view, "reflection", engine.options.reflection.timeout):
        return
    try:
        outcome, _ = await reflect(engine, io, cause, view, target="pending")
    finally:
        await engine.release(io, cause.address, view, "reflection")
    if outcome.error is not None:
        raise outcome.error
