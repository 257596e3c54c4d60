"""Reflecting: the log condensed as it is now; a candidate that is not smaller changes nothing."""

from __future__ import annotations

import secrets
from functools import partial
from typing import TYPE_CHECKING, Literal

from langchain_mastra_memory.observation import transitions
from langchain_mastra_memory.observation.cycle import Cycle, Made, Outcome, mirrored, names_of
from langchain_mastra_memory.observation.engine import Cause, Engine
from langchain_mastra_memory.observation.log import LogRow, log_tokens
from langchain_mastra_memory.observation.reflector import Reflector
from langchain_mastra_memory.observation.render import latest_extracted, log_text
from langchain_mastra_memory.observation.transitions import Reflected, Refused
from langchain_mastra_memory.store.operations.log import LogView

if TYPE_CHECKING:
    from langchain_mastra_memory.io import IO

Goal = Literal["log", "pending"]
"""Whether a reflection takes the place of what it condenses at once, or waits."""


async def reflect(
    engine: Engine, io: IO, cause: Cause, view: LogView, *, target: Goal = "log", wish: str = ""
) -> tuple[Outcome, LogView]:
    """Condense the log as it is now; a candidate that is not smaller changes nothing.

    Returns:
        What came of it, and the newest view.
    """
    outcome = Outcome()
    reflector = Reflector.of(engine, cause, view, previous=latest_extracted(view.state.log))
    cycle = Cycle(
        engine=engine,
        io=io,
        cause=cause,
        view=view,
        caller=reflector,
        buffers=target == "pending",
        size=log_tokens(view.state),
        outcome=outcome,
    )
    await cycle.run(partial(_reflected, cycle, reflector, target=target, wish=wish))
    return outcome, await engine.view(io, cause.address)


async def _reflected(cycle: Cycle, reflector: Reflector, *, target: Goal, wish: str) -> Made:
    engine, io, state, inputs = cycle.engine, cycle.io, cycle.view.state, cycle.view.state.log
    made = await reflector.run(io, log_text(state, names=names_of(engine, cycle.view)), cycle.size, wish=wish)
    cycle.replies = made.replies
    row = transitions.reflection_of(
        inputs,
        LogRow(
            id=secrets.token_hex(8),
            covers=(),
            text=made.text,
            tokens=made.tokens,
            hints=made.hints,
            hinted=made.hinted,
            extracted={**latest_extracted(inputs), **made.extracted},
            model=made.model,
        ),
    )
    result = Reflected(epoch=state.head.epoch, row=row, size=cycle.size, target=target)
    return Made(
        rows=(row,),
        dropped=await _commit(cycle, result),
        tokens=made.tokens,
        said={
            "observations": made.text,
            "current_task": made.hints.current_task,
            "suggested_response": made.hints.suggested_response,
            "extracted_values": dict(made.extracted) or None,
            "extraction_failures": list(made.failures) or None,
        },
    )


async def _commit(cycle: Cycle, result: Reflected) -> str | None:
    """Commit a reflection; return why it was dropped, or None."""
    current = cycle.view.current
    verdict, _ = await cycle.engine.commit(
        cycle.io,
        cycle.cause.address,
        lambda seen: transitions.commit_reflected(seen.state, result),
        rows=lambda seen: [transitions.as_committed(seen.state, result.row)],
        mirror={current: mirrored(cycle.engine, result.row)} if current else {},
    )
    if isinstance(verdict, Refused):
        return verdict.reason
    return "position" if verdict is None else None
