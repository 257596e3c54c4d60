"""Write the layers of a prompt into messages: one pure function for both layouts.

| | `documented` | `cached` |
|---|---|---|
| system | instructions, call-time text, guide and page, other threads' messages, observations and hints, dates | \
instructions, call-time text, guides, observations and hints |
| conversation | continuation, recalled messages and history by seq, context, new message | continuation, history by \
seq, context, new message, whose first block holds dates, recalled messages and the page |

The same layers always give the same bytes, so that a prompt extends the one before it as far as its layers do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage

from langchain_mastra_memory.context.layers import Contribution, Item, Layer, Layers, LeftOut, Origin, Prompt, Shown
from langchain_mastra_memory.context.tags import message_line, wrapped
from langchain_mastra_memory.history.repair import repair
from langchain_mastra_memory.history.units import cut

Layout = Literal["documented", "cached"]


def arrange(
    *,
    instructions: SystemMessage | None,
    call_system: str,
    contribution: Contribution,
    history: Sequence[Item],
    context: Sequence[BaseMessage],
    turn: Sequence[Item],
) -> Layers:
    """Put everything that a prompt is made of in its place.

    Args:
        instructions: The agent's system message.
        call_system: Text for this call only.
        contribution: What the features handed in.
        history: Remembered messages that the window kept, oldest first.
        context: Messages for this call only.
        turn: The running turn.

    Returns:
        Layers whose conversation has no id twice: recalled messages and history by seq, then signals before the
        message that they belong to, then the context, then the turn.
    """
    shown = {item.id for item in (*history, *turn) if item.id}
    recalled = [Item.of(stored, "recall") for stored in contribution.recalled_same if stored.id not in shown]
    remembered = _by_seq(history, recalled)
    new = [replace(item, origin="turn") for item in turn]
    given = [Item(message=message, origin="context") for message in context]
    conversation = _with_signals([*remembered, *given, *new], contribution)
    return Layers(
        instructions=instructions,
        call_system=call_system,
        working_memory=contribution.working_memory,
        recalled_other=contribution.recalled_other,
        observations=contribution.observations,
        continuation=contribution.continuation,
        volatile=contribution.volatile,
        conversation=tuple(conversation),
    )


def assemble(layers: Layers, layout: Layout = "documented") -> Prompt:
    """Return what the model is sent: valid for strict providers, nothing of the layers lost but what `left_out` names.

    Args:
        layers: What goes in.
        layout: The order; see the module.
    """
    recalled = [item for item in layers.conversation if item.origin == "recall"] if layout == "cached" else []
    in_place = [item for item in layers.conversation if layout == "documented" or item.origin != "recall"]
    if layers.continuation is not None and layers.continuation.text:
        in_place.insert(0, Item(message=HumanMessage(layers.continuation.text), origin="signal"))
    repaired = repair(in_place)
    block = _volatile_block(layers, recalled) if layout == "cached" else ""
    items = _with_block(list(repaired.items), block) if block else repaired.items
    return Prompt(
        system=_system(layers, layout, [message.text for message in repaired.system]),
        messages=tuple(item.message for item in items),
        left_out=repaired.left_out,
    )


def describe(
    layers: Layers,
    prompt: Prompt,
    layout: Layout,
    count: Callable[[str], float],
    weigh: Callable[[BaseMessage], float],
) -> tuple[Shown, ...]:
    """Return the layers of a finished prompt with their sizes, in the order of the layout.

    Args:
        layers: What went in.
        prompt: What came out.
        layout: The order.
        count: The tokens of a text.
        weigh: The tokens of a message.
    """
    place = "system" if layout == "documented" else "last human message"
    shown: list[Shown] = []

    def add(name: str, text: str, where: str, items: Sequence[Item] = ()) -> None:
        if text or items:
            tokens = sum(weigh(item.message) for item in items) if items else count(text)
            shown.append(Shown(name=name, text=text, tokens=tokens, where=where, messages=len(items)))

    def add_layer(layer: Layer | None, where: str) -> None:
        if layer is not None:
            add(layer.name, "\n\n".join(part for part in (layer.guide, layer.text) if part), where)

    add("instructions", layers.instructions.text if layers.instructions else "", "system")
    add("call_system", layers.call_system, "system")
    if layout == "documented":
        add_layer(layers.working_memory, place)
        add_layer(layers.recalled_other, place)
    for layer in layers.observations:
        add_layer(layer, "system")
    if layout == "documented":
        for layer in layers.volatile:
            add_layer(layer, place)
    add_layer(layers.continuation, "conversation")
    present = {message.id for message in prompt.messages if message.id}
    parts: tuple[tuple[str, Origin], ...] = (
        ("history", "history"),
        ("recalled", "recall"),
        ("signals", "signal"),
        ("context", "context"),
        ("turn", "turn"),
    )
    for name, origin in parts:
        items = [item for item in layers.conversation if item.origin == origin]
        items = [
            item for item in items if not item.id or item.id in present or (origin == "recall" and layout == "cached")
        ]
        text = "\n".join(message_text(item.message) for item in items)
        where = place if origin == "recall" and layout == "cached" else "conversation"
        add(name, text, where, items)
    if layout == "cached":
        add_layer(layers.working_memory, place)
        add_layer(layers.recalled_other, place)
        for layer in layers.volatile:
            add_layer(layer, place)
    return tuple(shown)


def message_text(message: BaseMessage) -> str:
    """Return a message as one readable text: role, text, calls."""
    calls = [f"[calls {call['name']}]" for call in getattr(message, "tool_calls", ())]
    return " ".join(part for part in (f"{message.type}:", message.text, *calls) if part)


def beside_history(layers: Layers, layout: Layout) -> tuple[str, list[BaseMessage]]:
    """Return what stands in a prompt beside the history and the turn, for counting: the text, and the messages.

    Args:
        layers: What goes in, without history and turn.
        layout: The order: in the cached one, recalled messages are text.
    """
    system = _system(layers, layout, ())
    parts = [system.text if system else "", layers.continuation.text if layers.continuation else ""]
    items = layers.conversation
    if layout == "cached":
        recalled = [item for item in items if item.origin == "recall"]
        items = tuple(item for item in items if item.origin != "recall")
        block = _volatile_block(layers, recalled)
        parts.append(wrapped("memory", block) if block else "")
    return "\n\n".join(part for part in parts if part), [item.message for item in items]


def _by_seq(history: Sequence[Item], recalled: Sequence[Item]) -> list[Item]:
    """Merge recalled messages into the history by seq, whole units between whole units."""
    if not recalled:
        return list(history)
    before: dict[int, list[Item]] = {}
    units = cut([item.message for item in history])
    heads = [(unit.first, seq) for unit in units if (seq := history[unit.first].seq) is not None]
    for unit in cut([item.message for item in recalled]):
        seq = recalled[unit.first].seq
        later = (at for at, other in heads if seq is not None and other > seq)
        before.setdefault(next(later, len(history)), []).extend(recalled[place] for place in unit.places)
    merged: list[Item] = []
    for at in (place for unit in units for place in unit.places):
        merged += before.pop(at, ())
        merged.append(history[at])
    return merged + [item for rest in before.values() for item in rest]


def _with_signals(items: list[Item], contribution: Contribution) -> list[Item]:
    if not contribution.signals:
        return items
    present = {item.id for item in items}
    turn = next((item.id for item in items if item.origin == "turn"), "")
    before: dict[str, list[Item]] = {}
    for signal in contribution.signals:
        place = turn if signal.always and signal.before not in present else signal.before
        before.setdefault(place, []).append(Item(message=signal.message, origin="signal"))
    return [part for item in items for part in (*before.get(item.id, ()), item)] if before else items


def _system(layers: Layers, layout: Layout, hoisted: Sequence[str]) -> SystemMessage | None:
    parts = [layers.call_system, *hoisted]
    data = layout == "documented"
    for layer in (layers.working_memory, layers.recalled_other):
        if layer is not None:
            parts += [layer.guide, layer.text if data else ""]
    for layer in layers.observations:
        parts += [layer.guide, layer.text]
    for layer in layers.volatile:
        parts += [layer.guide, layer.text if data else ""]
    added = "\n\n".join(part for part in parts if part.strip())
    own = layers.instructions
    if own is not None and isinstance(own.content, str) and not own.content.strip():
        own = None
    if not added:
        return own
    if own is None:
        return SystemMessage(added)
    if isinstance(own.content, str):
        return own.model_copy(update={"content": f"{own.content}\n\n{added}"})
    return own.model_copy(update={"content": [*own.content, {"type": "text", "text": added}]})


def _volatile_block(layers: Layers, recalled: Sequence[Item]) -> str:
    parts = [layer.text for layer in layers.volatile]
    if recalled:
        lines = [message_line(item.message, at=item.created_at) for item in recalled]
        parts.append(wrapped("recalled-messages", "\n".join(lines), {"thread": "this"}))
    parts += [layer.text for layer in (layers.recalled_other, layers.working_memory) if layer is not None]
    return "\n\n".join(part for part in parts if part)


def _with_block(items: list[Item], block: str) -> list[Item]:
    """Put the block first into the newest human message of the turn; without one, a human message of its own."""
    turn = (at for at in range(len(items) - 1, -1, -1) if items[at].origin == "turn")
    at = next((at for at in turn if items[at].message.type == "human"), None)
    first: dict[str, Any] = {"type": "text", "text": wrapped("memory", block)}
    if at is None:
        return [*items, Item(message=HumanMessage([first]), origin="turn")]
    message = items[at].message
    rest = [{"type": "text", "text": message.content}] if isinstance(message.content, str) else message.content
    shown = message.model_copy(update={"content": [first, *rest]})
    return [*items[:at], replace(items[at], message=shown, tokens=None), *items[at + 1 :]]


def left_out_summary(left_out: Sequence[LeftOut]) -> str:
    """Return what is left out in words, grouped by reason."""
    reasons: dict[str, int] = {}
    for entry in left_out:
        reasons[entry.reason] = reasons.get(entry.reason, 0) + 1
    return ", ".join(f"{count} {reason}" for reason, count in reasons.items())
