"""What waits takes its place: buffered observations in the log, a reflection for what it condenses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_mastra_memory.observation import transitions
from langchain_mastra_memory.observation.cycle import generation_of
from langchain_mastra_memory.observation.engine import Cause, Engine
from langchain_mastra_memory.observation.events import emit
from langchain_mastra_memory.observation.transitions import Refused
from langchain_mastra_memory.store.operations.log import LogView

if TYPE_CHECKING:
    from langchain_mastra_memory.io import IO


async def activate(engine: Engine, io: IO, cause: Cause, view: LogView, *, count: int, trigger: str) -> LogView:
    """Move buffered rows into the log."""
    wanted = [row.id for row in view.state.buffered[:count]]

    def judge(seen: LogView) -> Any:
        ready_now = list(seen.state.head.buffered)
        still = next((n for n, i in enumerate(wanted) if n >= len(ready_now) or ready_now[n] != i), len(wanted))
        return transitions.activate(seen.state, still)

    before = view.state.head.buffered
    verdict, _ = await engine.commit(io, cause.address, judge, view=view)
    view = await engine.view(io, cause.address)
    if verdict is not None and not isinstance(verdict, Refused):
        rows = [view.state.rows[i] for i in before if i in verdict.log and i in view.state.rows]
        emit(
            cause.writer,
            "activation",
            operation_type="observation",
            chunks_activated=len(rows),
            tokens_activated=sum(row.message_tokens for row in rows),
            observation_tokens=sum(row.tokens for row in rows),
            messages_activated=sum(row.messages for row in rows),
            observations="\n\n".join(row.text for row in rows),
            triggered_by=trigger,
            activated_at=engine.memory.clock().isoformat(),
            generation_count=generation_of(view.state),
            **cause.ids,
        )
    return view


async def activate_reflection(engine: Engine, io: IO, cause: Cause, view: LogView) -> LogView:
    """Put the waiting reflection in place of what it condenses."""
    row = view.state.pending
    verdict, _ = await engine.commit(
        io, cause.address, lambda seen: transitions.activate_reflection(seen.state), view=view
    )
    view = await engine.view(io, cause.address)
    if row is not None and verdict is not None and not isinstance(verdict, Refused) and row.id in verdict.log:
        emit(
            cause.writer,
            "activation",
            operation_type="reflection",
            chunks_activated=1,
            tokens_activated=sum(view.state.rows[i].tokens for i in row.inputs if i in view.state.rows),
            observation_tokens=row.tokens,
            observations=row.text,
            activated_at=engine.memory.clock().isoformat(),
            generation_count=generation_of(view.state),
            **cause.ids,
        )
    return view
