"""The prompts of observational memory: texts in `prompts/`, versioned by name, put together here."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from string import Template
from typing import Final

from langchain_mastra_memory.observation.log import Hints

VERSION: Final = 1
"""The version of the texts; a changed text is a new file with a new number."""

FIRMER_LEVELS: Final = 3
"""How often a reflector that did not shrink the log is asked more firmly."""


def _texts() -> dict[str, str]:
    """Read the texts of this version, once, when the module is imported: never later, on an event loop."""
    folder = resources.files("langchain_mastra_memory.observation") / "prompts"
    end = f".v{VERSION}.txt"
    return {f.name.removesuffix(end): f.read_text("utf-8").rstrip() for f in folder.iterdir() if f.name.endswith(end)}


_TEXTS: Final = _texts()


def text_of(name: str) -> str:
    """Return a text by its name, without the version."""
    return _TEXTS[name]


def _extractor_sections(asked: Sequence[tuple[str, str]]) -> str:
    return "".join(
        f"\n\n<{slug}>\n{instructions.strip() or 'The value, as text.'}\n</{slug}>" for slug, instructions in asked
    )


def observer_system(
    *,
    instruction: str = "",
    task: bool = True,
    response: bool = True,
    title: bool = False,
    extractors: Sequence[tuple[str, str]] = (),
    threads: bool = False,
) -> str:
    """Return the observer's system prompt.

    Args:
        instruction: The user's own, appended.
        task: Whether the current task is asked for.
        response: Whether a suggested response is asked for.
        title: Whether a thread title is asked for.
        extractors: Slug and instructions of each inline extractor.
        threads: Whether the transcript holds several threads.
    """
    output = text_of("observer_output")
    output += "\n" + text_of("observer_task") if task else ""
    output += "\n" + text_of("observer_response") if response else ""
    output += "\n" + text_of("observer_title") if title else ""
    output += _extractor_sections(extractors)
    parts = [text_of("observer"), output, text_of("observer_threads") if threads else "", _own(instruction)]
    return "\n\n".join(part for part in parts if part)


def _own(instruction: str) -> str:
    return f"## Instructions of the application\n{instruction.strip()}" if instruction.strip() else ""


SEPARATOR: Final = "\n\n---\n\n"


def observer_input(
    history: str,
    *,
    previous: str = "",
    truncated: bool = False,
    hints: Hints = Hints(),  # noqa: B008 - frozen
    title: bool = False,
    extracted: Sequence[tuple[str, str]] = (),
    part: tuple[int, int] | None = None,
) -> str:
    """Return what the observer is given to read.

    Args:
        history: The transcript.
        previous: The tail of the log.
        truncated: Whether older lines of it are left out.
        hints: What is known of task, response and title.
        title: Whether the title is shown.
        extracted: Slug and last value of each extractor that is shown its last value.
        part: Number and count, when one long message is read in parts.
    """
    heading = "## New Message History to Observe"
    if part is not None and part[1] > 1:
        heading += f" (part {part[0]} of {part[1]} of it; write down what this part says)"
    sections = [f"{heading}\n\n{history}"]
    if previous:
        note = "\n(Older observations are left out here; they are not forgotten.)" if truncated else ""
        sections.append(f"## Previous Observations{note}\n\n{previous}")
    known = [("current-task", hints.current_task), ("suggested-response", hints.suggested_response)]
    if title:
        known.append(("thread-title", hints.thread_title))
    lines = [f"- prior {name}: {value}" for name, value in known if value]
    lines += [f"- prior {slug}: {value}" for slug, value in extracted]
    if lines:
        sections.append("## Prior Thread Metadata\n\n" + "\n".join(lines))
    sections.append(text_of("observer_again"))
    return SEPARATOR.join(sections)


def reflector_system(
    *,
    instruction: str = "",
    task: bool = True,
    response: bool = True,
    extractors: Sequence[tuple[str, str]] = (),
) -> str:
    """Return the reflector's system prompt."""
    output = text_of("reflector_output")
    output += "\n" + text_of("observer_task") if task else ""
    output += "\n" + text_of("observer_response") if response else ""
    output += _extractor_sections(extractors)
    return "\n\n".join(part for part in (text_of("reflector"), output, _own(instruction)) if part)


def reflector_input(log: str, *, target: int, level: int = 0, prompt: str = "") -> str:
    """Return what the reflector is given to read.

    Args:
        log: The whole log.
        target: Tokens that it should come out with at most.
        level: How often it did not become shorter so far.
        prompt: What the caller of `reflect` asks for.
    """
    sections = ["## The Log\n\n" + log, Template(text_of("reflector_task")).substitute(target=target)]
    if prompt.strip():
        sections.append(f"## Wishes for this time\n{prompt.strip()}")
    if level:
        sections.append(text_of(f"reflector_firmer_{min(level, FIRMER_LEVELS)}"))
    return SEPARATOR.join(sections)


def summarizer_system(*, instructions: str = "", extractors: Sequence[tuple[str, str]] = ()) -> str:
    """Return the summarizer's system prompt."""
    output = text_of("summarizer_output") + _extractor_sections(extractors)
    return "\n\n".join(part for part in (text_of("summarizer"), output, _own(instructions)) if part)
