"""What the model reads about the page: how to use it (unchanging), the page (data), and the state signal.

The guide says only what the agent can do: an agent that may not change the page never hears of the tool. The page
stands inside a closed tag, with everything in it that looks like a tag of ours neutralised.
"""

from __future__ import annotations

from typing import Final

from langchain_mastra_memory.context.layers import Layer
from langchain_mastra_memory.context.tags import DATA_NOTE, tagged
from langchain_mastra_memory.working_memory.options import WorkingMemory
from langchain_mastra_memory.working_memory.schema_shown import example_line

LAYER: Final = "working_memory"
DATA_TAG: Final = "working_memory_data"
TEMPLATE_TAG: Final = "working_memory_template"
SIGNAL_TAG: Final = "working-memory"

_WHAT: Final = {
    "resource": "You have a working memory: one page of facts about the user that is at hand in every conversation.",
    "thread": "You have a working memory: one page of facts about this conversation that is always at hand.",
}
_WHERE_SYSTEM: Final = f"The page stands in <{DATA_TAG}>. {DATA_NOTE}"
_WHERE_SIGNAL: Final = (
    f"The page comes in a <{SIGNAL_TAG}> message whenever it has changed; the newest one counts. {DATA_NOTE}"
)
_USE: Final = "Use what it says without mentioning the page, and do not ask again for what it already tells you."
_KEEP: Final = (
    "Call `{tool}` as soon as you learn something that belongs on the page, or something on it is no longer true: in "
    "the same turn, without announcing it. Do not call it when nothing has changed."
)
_HOW_TEMPLATE: Final = (
    "Send the whole page as Markdown: it replaces the old one, so keep everything that is still true. Follow the "
    "headings and labels of the template, keep entries short, and leave a label empty while its value is unknown."
)
_HOW_SCHEMA: Final = (
    "Send a JSON object with only the fields that change: objects are merged with what is there, null deletes a field, "
    "an array replaces the old array."
)
_READ_ONLY: Final = "You can read the page but not change it."
_EMPTY: Final = "(nothing is known yet)"


def guide(options: WorkingMemory, *, can_change: bool) -> str:
    """Return the instructions: the same text in every turn.

    Args:
        options: The options, settled.
        can_change: Whether the agent has the tool in this run.
    """
    signals = bool(options.use_state_signals)
    lines = ["# Working memory", _WHAT[options.scope], _WHERE_SIGNAL if signals else _WHERE_SYSTEM, _USE]
    if not can_change:
        lines.append(_READ_ONLY)
        return "\n".join(lines)
    lines += [_KEEP.format(tool=options.tool_name), how_to_send(options)]
    shape = shape_of(options)
    if shape:
        lines.append(shape)
    return "\n".join(lines)


def how_to_send(options: WorkingMemory) -> str:
    """Return what an update looks like in this mode."""
    return _HOW_TEMPLATE if options.mode == "template" else _HOW_SCHEMA


def shape_of(options: WorkingMemory) -> str:
    """Return the template in its tag, or an example of the schema's fields; empty for a schema without fields."""
    if options.checker is None:
        return tagged(TEMPLATE_TAG, options.page_template)
    example = example_line(options.checker)
    return f"The fields, all empty:\n{tagged(TEMPLATE_TAG, example)}" if example else ""


def tool_description(options: WorkingMemory) -> str:
    """Return what the model reads about the tool."""
    what = "user" if options.scope == "resource" else "conversation"
    return f"Update the working memory, the page of facts about the {what}. {how_to_send(options)}"


def page_layer(options: WorkingMemory, text: str | None, *, can_change: bool) -> Layer:
    """Return the layer of the page for a prompt.

    Args:
        options: The options, settled.
        text: The stored page; None when there is none.
        can_change: Whether the agent has the tool in this run.
    """
    shown = _EMPTY if text is None or not text.strip() else text
    if options.use_state_signals:
        return Layer(name=LAYER, guide=guide(options, can_change=can_change))
    return Layer(name=LAYER, text=tagged(DATA_TAG, shown), guide=guide(options, can_change=can_change))


def signal_text(options: WorkingMemory, text: str | None) -> str:
    """Return the text of the state signal."""
    kind = "markdown" if options.mode == "template" else "json"
    shown = _EMPTY if text is None or not text.strip() else text
    return tagged(SIGNAL_TAG, shown, {"format": kind, "scope": options.scope})


def signal_id(before: str) -> str:
    """Return the id of the signal that stands before a message: the same however often it is made."""
    return f"{SIGNAL_TAG}@{before}"
