"""Keep what a model had said when the caller cancelled."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from langchain_core.callbacks import AsyncCallbackHandler, AsyncCallbackManager
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk, GenerationChunk
from langchain_core.runnables.config import ensure_config, var_child_runnable_config
from langgraph.checkpoint.base import BaseCheckpointSaver

from langchain_mastra_memory.agents.call import Call
from langchain_mastra_memory.agents.core import Turns
from langchain_mastra_memory.agents.record import RUN_CHANNEL, RunRecord
from langchain_mastra_memory.agents.saving import before_run, of_run, save
from langchain_mastra_memory.history.before_save import before_saving
from langchain_mastra_memory.io import IO

_TRIES: Final = 200
_PAUSE: Final = 0.01


class StreamedText(AsyncCallbackHandler):
    """Collects the text of the model call under way, as it is streamed."""

    run_inline = True

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._id: str | None = None

    async def on_llm_new_token(
        self,
        token: str | list[str | dict[str, Any]],
        *,
        chunk: GenerationChunk | ChatGenerationChunk | None = None,
        **_: Any,
    ) -> None:
        """Collect a piece of the answer."""
        message = chunk.message if isinstance(chunk, ChatGenerationChunk) else None
        if isinstance(message, AIMessageChunk):
            self._id = message.id or self._id
            token = str(message.text)
        if isinstance(token, str):
            self._parts.append(token)

    def message(self) -> AIMessage | None:
        """Return what was said so far, marked as partial; None when nothing was."""
        text = "".join(self._parts)
        if not text.strip():
            return None
        return AIMessage(text, id=self._id or str(uuid.uuid4()), response_metadata={"partial": True})


@contextmanager
def streamed_text() -> Iterator[StreamedText]:
    """Listen to what models stream inside."""
    heard = StreamedText()
    config = ensure_config()
    callbacks = config.get("callbacks")
    manager = callbacks.copy() if isinstance(callbacks, AsyncCallbackManager) else AsyncCallbackManager([])
    if not isinstance(callbacks, AsyncCallbackManager):
        for handler in callbacks if isinstance(callbacks, list) else getattr(callbacks, "handlers", ()):
            manager.add_handler(handler)
    manager.add_handler(heard)
    token = var_child_runnable_config.set({**config, "callbacks": manager})
    try:
        yield heard
    finally:
        var_child_runnable_config.reset(token)


def keep_partial(turns: Turns, call: Call, record: RunRecord, said: object) -> None:
    """Save a run that was cancelled in the middle of an answer, in the background: the caller is going away.

    Args:
        turns: The turns of the memory.
        call: The run as it was.
        record: Its record.
        said: What was said; None saves nothing.
    """
    if not isinstance(said, AIMessage):
        return

    async def keep(io: IO) -> None:
        await _checkpointed(call, record)
        run = of_run(call, record, await turns.repeated(io, call))
        archived = await before_saving(io, [*run, said], turns.history)
        await save(io, turns, call, archived, before=before_run(call, run), beside=frozenset({said.id or ""}))

    turns.memory.background.start(
        "save_partial",
        keep,
        is_async=True,
        thread_id=call.identity.thread_id,
        resource_id=call.identity.resource_id,
    )


async def _checkpointed(call: Call, record: RunRecord) -> None:
    """Wait until the checkpoint that opened the run is written: under `durability="async"` it follows the cancelling.

    What is saved before it would be taken for a part of the run, which is not complete.
    """
    saver = call.identity.checkpointer
    if not record.get("saver") or not isinstance(saver, BaseCheckpointSaver):
        return
    where: dict[str, Any] = {"thread_id": call.identity.thread_id, "checkpoint_ns": ""}
    if call.identity.resource_id is not None:
        where["resource_id"] = call.identity.resource_id
    for _ in range(_TRIES):
        found = await saver.aget_tuple({"configurable": where})
        records = found.checkpoint["channel_values"].get(RUN_CHANNEL) if found is not None else None
        if any(known.get("turn") == call.turn for known in (records or {}).values()):
            return
        await asyncio.sleep(_PAUSE)
