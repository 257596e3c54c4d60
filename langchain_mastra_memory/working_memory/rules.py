"""What an update does to a page: decided here, before anything is written.

Pure: given the page that is there, the options and an update, the result is the new page or a refusal whose message a
model can act on. The store only compares versions and keeps what was decided.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from langchain_mastra_memory.errors import WorkingMemoryError
from langchain_mastra_memory.working_memory.document import (
    PageValue,
    check_json,
    dump_page,
    load_page,
    merge,
    same_words,
    understood_object,
    understood_text,
)
from langchain_mastra_memory.working_memory.options import WorkingMemory
from langchain_mastra_memory.working_memory.schema import (
    PageSchema,
    explain,
    fitted,
    repaired,
)
from langchain_mastra_memory.working_memory.schema_shown import field_names

_log = logging.getLogger(__name__)

METADATA_KEY: Final = "working_memory"
"""The key of a thread's metadata that sets its page."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What a page becomes.

    Attributes:
        text: The page as it is stored.
        notes: What the writer should know: fields that were dropped because the schema has changed.
    """

    text: str
    notes: tuple[str, ...] = ()


def decide(
    options: WorkingMemory, current: str | None, update: object, *, replace: bool = False, by_agent: bool = False
) -> Decision:
    """Return what a page becomes by an update.

    Args:
        options: The mode, its schema or template, the limits.
        current: The text of the page that is there; None when there is none.
        update: The whole text (template mode), or the fields to change (schema mode), in any form that is understood.
        replace: In schema mode: the update is the whole page, nothing of the old one stays.
        by_agent: Whether a model sent it: then the empty template may not wipe a page.

    Raises:
        WorkingMemoryError: The update is refused; the message says why and what to send instead.
    """
    decision = (
        _text(options, current, update, by_agent=by_agent)
        if options.checker is None
        else _object(options.checker, current, update, replace=replace)
    )
    if len(decision.text) > options.max_chars:
        raise WorkingMemoryError(
            f"the page would have {len(decision.text):,} characters, at most {options.max_chars:,} are allowed: "
            "keep what will matter later and shorten the rest (the limit is WorkingMemory(max_chars=...))"
        )
    if options.screen is not None:
        try:
            options.screen(value_of(options, decision.text) or {})
        except ValueError as error:
            raise WorkingMemoryError(f"the update was refused: {error}") from error
    return decision


def value_of(options: WorkingMemory, text: str | None) -> PageValue | None:
    """Return a stored page as programs see it: text, or in schema mode the object.

    A page that is no object (it was written under a template) is returned as it is.
    """
    if text is None or options.mode == "template":
        return text
    value = load_page(text)
    return text if value is None else value


def misfit(options: WorkingMemory, text: str | None) -> str | None:
    """Return why a stored page does not fit the schema, or None where it does."""
    if text is None or options.checker is None:
        return None
    value = load_page(text)
    if value is None:
        return "the page is no JSON object"
    faults = fitted(options.checker, value).faults
    return explain(faults) if faults else None


def as_text(value: PageValue) -> str:
    """Return the stored form of a page."""
    return value if isinstance(value, str) else dump_page(value)


def metadata_with_page(options: WorkingMemory | None, metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a thread's metadata with the page in it checked and in its stored form; the store takes it out.

    In template mode only text is a page: anything else stays in the metadata, which is said in the log.

    Args:
        options: The options; None when working memory is off, and the key means nothing special.
        metadata: The application's metadata; under `working_memory` a whole page, or None to erase it.

    Raises:
        WorkingMemoryError: The page is refused; the message has the reason.
    """
    if options is None or metadata.get(METADATA_KEY) is None:
        return metadata
    page = metadata[METADATA_KEY]
    if options.mode == "template" and not isinstance(page, str):
        _log.warning("metadata[%r] is no text and is not taken as the page of a template: %.80r", METADATA_KEY, page)
        return metadata
    return {**metadata, METADATA_KEY: decide(options, None, page, replace=True).text}


def _text(options: WorkingMemory, current: str | None, update: object, *, by_agent: bool) -> Decision:
    text = understood_text(update)
    template = options.page_template
    wipes = by_agent and current is not None and same_words(text, template) and not same_words(current, template)
    if wipes:
        raise WorkingMemoryError(
            "the update is the empty template and would erase what is known; send the whole page with what should be "
            "kept, or leave it as it is"
        )
    return Decision(text)


def _object(schema: PageSchema, current: str | None, update: object, *, replace: bool) -> Decision:
    patch = understood_object(update, own_fields=field_names(schema))
    if not patch and not replace and current is not None:
        return Decision(current)
    before: dict[str, Any] = {}
    notes: tuple[str, ...] = ()
    if not replace and current is not None:
        loaded = load_page(current)
        if loaded is None:
            notes = ("the page was no JSON object and was started anew",) if current.strip() else ()
        else:
            before, dropped = repaired(schema, loaded)
            notes = tuple(f"dropped, since it no longer fits the schema: {fault}" for fault in dropped)
    merged = merge(before, patch)
    checked = fitted(schema, merged)
    if checked.faults:
        deleted = "; null deletes a field, and a required field cannot be deleted" if _deletes(patch) else ""
        raise WorkingMemoryError(
            f"the update does not fit the schema and nothing was changed: {explain(checked.faults)}{deleted}"
        )
    check_json(checked.value)
    return Decision(dump_page(checked.value), notes)


def _deletes(patch: Mapping[str, Any]) -> bool:
    return any(value is None or (isinstance(value, Mapping) and _deletes(value)) for value in patch.values())
