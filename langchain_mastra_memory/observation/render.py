"""What the agent sees of the log: the notes, the current task, the suggested response, a word about the missing start.

Dates are absolute, and rows are rendered one after the other, so that the text only grows between activations. Ids of
messages and threads are written here and never stored in a row's text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence

from langchain_mastra_memory.context.layers import Layer
from langchain_mastra_memory.context.tags import neutral, wrapped
from langchain_mastra_memory.observation.log import Hints, JsonValue, LogRow, LogState, Span, rendered
from langchain_mastra_memory.observation.options import ContinuationHints, Retrieval
from langchain_mastra_memory.observation.parsing import for_context
from langchain_mastra_memory.observation.prompts import text_of

Edges = Callable[[Span], tuple[str, str] | None]
"""The ids of the first and the last message of a span, or None if none is left."""


def obscured(thread_id: str) -> str:
    """Return a word for a thread that says nothing of its id: models read meaning into ids, and repeat them."""
    return hashlib.blake2s(thread_id.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()


def group_text(row: LogRow, edges: tuple[str, str] | None) -> str:
    """Return a row with the range of messages that the recall tool can page through."""
    head = f"## Group `{row.id}`\n"
    if edges is not None:
        head += f"_range: `{edges[0]}:{edges[1]}`_\n"
    return f"{head}\n{for_context(row.text)}"


def log_text(
    state: LogState, *, names: Mapping[int, str] | None = None, current: int = 0, edges: Edges | None = None
) -> str:
    """Return the log as text.

    Args:
        state: The log.
        names: In resource scope, the words for threads by key: rows stand in blocks of their thread.
        current: The key of the thread that the run is in.
        edges: With the recall tool, finds the ids of a row's messages.
    """
    blocks = []
    for row in rendered(state):
        text = neutral(group_text(row, edges(row.covers[0])) if edges and row.covers else for_context(row.text))
        if names is not None and not row.is_reflection:
            key = row.covers[0].thread
            mark = {"id": names.get(key, ""), "current": "true" if key == current else None}
            text = wrapped("thread", text, mark)
        blocks.append(text)
    return "\n\n".join(blocks)


def latest_hints(state: LogState, observation: ContinuationHints, reflection: ContinuationHints) -> Hints:
    """Return the hints in view: those of the last row that was asked for any; a buffered row clears them.

    A hint whose section both phases have turned off is not shown.
    """
    newest = state.log[-1] if state.log else None
    if newest is None or not newest.hinted:
        return Hints()
    hints = newest.hints
    return Hints(
        current_task=hints.current_task if observation.current_task or reflection.current_task else None,
        suggested_response=(
            hints.suggested_response if observation.suggested_response or reflection.suggested_response else None
        ),
        thread_title=hints.thread_title,
    )


def latest_extracted(rows: Sequence[LogRow]) -> dict[str, JsonValue]:
    """Return the newest value of every extractor."""
    values: dict[str, JsonValue] = {}
    for row in rows:
        values.update(row.extracted)
    return values


def context_layers(
    state: LogState,
    hints: Hints,
    *,
    retrieval: Retrieval | None = None,
    names: Mapping[int, str] | None = None,
    current: int = 0,
    edges: Edges | None = None,
    others: str = "",
) -> tuple[Layer, ...]:
    """Return the layers of observational memory, in order: notes, other threads, current task, suggested response."""
    text = log_text(state, names=names, current=current, edges=edges if retrieval else None)
    guide = recall_guide(retrieval) if retrieval is not None and (text or retrieval.scope == "resource") else ""
    layers = []
    if text:
        parts = [text_of("context"), text_of("context_threads") if names is not None else "", guide]
        layers.append(
            Layer(name="observations", text=wrapped("observations", text), guide="\n\n".join(p for p in parts if p))
        )
    elif guide:
        layers.append(Layer(name="observations", guide=guide))
    if others:
        layers.append(Layer(name="other_threads", text=others))
    if hints.current_task:
        layers.append(Layer(name="current_task", text=wrapped("current-task", neutral(hints.current_task))))
    if hints.suggested_response:
        layers.append(
            Layer(name="suggested_response", text=wrapped("suggested-response", neutral(hints.suggested_response)))
        )
    return tuple(layers)


def recall_guide(retrieval: Retrieval) -> str:
    """Return how to use the recall tool."""
    parts = [text_of("recall_thread")]
    if retrieval.scope == "resource":
        parts.append(text_of("recall_resource"))
    if retrieval.vector:
        parts.append(text_of("recall_search"))
    if retrieval.instructions.strip():
        parts.append(retrieval.instructions.strip())
    return "\n".join(parts)


def continuation_layer() -> Layer:
    """Return what is said before the history when observations took the place of older messages."""
    return Layer(name="continuation", text=wrapped("system-reminder", text_of("continuation")))
