"""`Preview`: what the model would be sent, layer by layer, with sizes and with what is left out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from langchain_core.messages import BaseMessage, SystemMessage

from langchain_mastra_memory.context.layers import LeftOut, Shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What the model would be sent, and why. Making one writes nothing and calls no model.

    Attributes:
        messages: The messages in order, the system message first when there is one.
        layers: What they are made of, in the order of the layout, with sizes in tokens.
        left_out: Messages that are not shown, and the rule that left each out.
        tokens: The whole prompt, tools' schemas included.
        tool_tokens: The tools' schemas alone.
        counted_by: What counted; see `TokenCounter.name`.
        layout: The order of the layers.
        thread_id: The thread.

    Example:
        ```python
        preview = memory.preview([("user", "Where did we leave off?")], thread_id="t1", resource_id="user-1")
        print(preview)
        ```
    """

    messages: tuple[BaseMessage, ...]
    layers: tuple[Shown, ...]
    left_out: tuple[LeftOut, ...]
    tokens: float
    tool_tokens: int
    counted_by: str
    layout: str
    thread_id: str

    @property
    def system(self) -> SystemMessage | None:
        """The system message, or None."""
        first = self.messages[0] if self.messages else None
        return first if isinstance(first, SystemMessage) else None

    def layer(self, name: str) -> Shown | None:
        """Return the layer of this name, or None when it is not in the prompt."""
        return next((layer for layer in self.layers if layer.name == name), None)

    def __str__(self) -> str:
        """Return the preview for people: a line for each layer, then the messages, then what is left out."""
        head = (
            f"Prompt of thread {self.thread_id!r}: {self.tokens:.0f} tokens by {self.counted_by}, layout {self.layout}"
        )
        lines = [head, ""]
        width = max((len(layer.name) for layer in self.layers), default=0)
        for layer in self.layers:
            count = f" ({layer.messages} message{'s' * (layer.messages != 1)})" if layer.messages else ""
            lines.append(f"  {layer.name:<{width}}  {layer.tokens:>7.0f} tokens  in {layer.where}{count}")
        if self.tool_tokens:
            lines.append(f"  {'tools':<{width}}  {self.tool_tokens:>7.0f} tokens")
        lines.append("")
        lines += [f"  {message.type:>6}: {_short(message.text, 100)}" for message in self.messages]
        if self.left_out:
            lines += ["", f"Left out ({len(self.left_out)}):"]
            lines += [f"  {gone.reason:>9}  {gone.role}: {_short(gone.text, 60)}" for gone in self.left_out]
        return "\n".join(lines)

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:
        """Show it for people at the end of a notebook's cell."""
        printer.text(str(self))


def _short(text: str, length: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= length else line[: length - 1] + "…"
