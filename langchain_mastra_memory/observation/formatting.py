"""What an observer is shown: messages as a transcript, attachments beside it, the tail of what was observed before."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from langchain_mastra_memory.agents.speakers import read_user_turn

MAX_RESULT_TOKENS: Final = 1000
"""Tokens of a tool result that an observer is shown; the rest is cut with a note."""
IMPORTANT: Final = "🔴"

Attachments = bool | Literal["auto"] | Sequence[str]
Count = Callable[[str], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A message for an observer.

    Attributes:
        message: The message.
        at: When it was said, aware.
        note: Whether it is a marker of the memory itself and no message of the conversation.
    """

    message: BaseMessage
    at: datetime | None = None
    note: bool = False


@dataclass
class Transcript:
    """Messages as text, with the attachments that the text names.

    Attributes:
        text: One line for each part: who, when, what.
        attachments: Content blocks of images and files, in the order of their placeholders.
    """

    text: str = ""
    attachments: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class _Counts:
    images: int = 0
    files: int = 0


def transcript(
    messages: Sequence[Shown],
    *,
    count: Count,
    max_part: int | None = None,
    max_result_tokens: int = MAX_RESULT_TOKENS,
    attachments: Attachments = False,
) -> Transcript:
    """Return messages as an observer reads them.

    Args:
        messages: In order.
        count: Counts the tokens of a text.
        max_part: Characters of a text part; None: all of it.
        max_result_tokens: Tokens of a tool result.
        attachments: Which images and files go along: all, none, or those whose MIME type matches a pattern.
    """
    made, lines, day, counts = Transcript(), [], None, _Counts()
    for shown in messages:
        said = shown.at.strftime("%b %-d %Y") if shown.at else None
        if said is not None and said != day:
            lines += ([""] if day else []) + [f"{said}:"]
            day = said
        at = f" ({shown.at.strftime('%-I:%M %p')})" if shown.at else ""
        for who, text in _parts(shown, made, counts, attachments):
            cut = (
                _shortened(text, max_result_tokens, count)
                if who.startswith("Tool Result")
                else _clipped(text, max_part)
            )
            lines.append(f"{who}{at}: {cut}")
            at = ""
    made.text = "\n".join(lines)
    return made


def _parts(shown: Shown, made: Transcript, counts: _Counts, wanted: Attachments) -> list[tuple[str, str]]:
    message = shown.message
    if shown.note:
        return [("Signal", message.text)]
    if isinstance(message, ToolMessage):
        name = message.name or "tool"
        label = f"Tool Error {name}" if message.status == "error" else f"Tool Result {name}"
        parts = [(label, _plain(message.text))] if message.text or isinstance(message.content, str) else []
    else:
        turn = read_user_turn(message.text) if message.type == "human" else None
        text_of = str(message.text)
        who = {"human": "User", "ai": "Assistant", "system": "System"}.get(message.type, message.type.title())
        if turn is not None:
            who, text_of = f"{who} {turn[0].name}", turn[1]
        elif message.name:
            who = f"{who} {message.name}"
        parts = [("Reasoning", text) for text in _reasoning(message)]
        if text_of.strip():
            parts.append((who, text_of))
    for block in message.content if isinstance(message.content, list) else []:
        if isinstance(block, dict) and (placeholder := _attachment(block, made, counts, wanted)):
            parts.append(("File", placeholder))
    if isinstance(message, AIMessage):
        parts += [(f"Tool Call {call['name']}", _arguments(call["args"])) for call in message.tool_calls]
        parts += [(f"Tool Call {call.get('name')}", str(call.get("args"))) for call in message.invalid_tool_calls]
    return parts


def _reasoning(message: BaseMessage) -> list[str]:
    found = []
    for block in message.content if isinstance(message.content, list) else []:
        if isinstance(block, dict) and block.get("type") in {"reasoning", "thinking"}:
            text = block.get("reasoning") or block.get("thinking") or block.get("text")
            if isinstance(text, str) and text.strip():
                found.append(text)
    return found


def _plain(text: str) -> str:
    return text.strip("\n")


def _arguments(args: Mapping[str, Any]) -> str:
    if not args:
        return "arguments: [empty object]"
    return ", ".join(f"{key}: {json.dumps(value, ensure_ascii=False, default=str)}" for key, value in args.items())


def _attachment(block: Mapping[str, Any], made: Transcript, counts: _Counts, wanted: Attachments) -> str | None:
    kind = str(block.get("type", ""))
    if kind not in {"image", "image_url", "file", "audio", "video", "document", "input_image", "input_file"}:
        return None
    mime = _mime(block, kind)
    if mime.startswith("image/"):
        counts.images += 1
        label, number = "Image", counts.images
    else:
        counts.files += 1
        label, number = "File", counts.files
    if wanted is True or (not isinstance(wanted, (bool, str)) and matches(mime, wanted)):
        made.attachments.append(dict(block))
    extras = block.get("extras")
    name = block.get("filename") or block.get("name") or (extras.get("filename") if isinstance(extras, dict) else None)
    url = block.get("url")
    if not name and isinstance(url, str) and not url.startswith("data:"):
        name = url.split("?")[0].rsplit("/", 1)[-1]
    return f"[{label} #{number}: {name}]" if name else f"[{label} #{number}]"


def _mime(block: Mapping[str, Any], kind: str) -> str:
    given = block.get("mime_type") or block.get("mimeType") or block.get("media_type")
    if isinstance(given, str):
        return given.lower()
    url = block.get("image_url")
    address = url.get("url") if isinstance(url, dict) else url
    if isinstance(address, str) and address.startswith("data:"):
        return address[5:].split(";")[0].split(",")[0].lower()
    return (
        "image/*" if "image" in kind else {"audio": "audio/*", "video": "video/*"}.get(kind, "application/octet-stream")
    )


def matches(mime: str, patterns: Sequence[str]) -> bool:
    """Return whether a MIME type matches one of the patterns (`image/*`, `application/pdf`, `*`), whatever the case."""
    return any(fnmatch.fnmatchcase(mime.lower(), pattern.lower()) for pattern in patterns)


def _clipped(text: str, most: int | None) -> str:
    if most is None or len(text) <= most:
        return text
    return f"{text[:most]}\n... [truncated {len(text) - most} characters]"


def _shortened(text: str, most: int, count: Count) -> str:
    total = count(text)
    if total <= most:
        return text
    low, high = 0, len(text)
    while low < high:  # the longest start that leaves room for the note
        middle = (low + high + 1) // 2
        if count(text[:middle]) <= max(1, most - NOTE_TOKENS):
            low = middle
        else:
            high = middle - 1
    return f"{text[:low]}\n... [truncated ~{total - count(text[:low])} tokens]"


NOTE_TOKENS: Final = 8
"""Tokens that the note about a cut takes."""


def parts_of(text: str, most: int, count: Count) -> list[str]:
    """Split a text into parts of at most `most` tokens, at line ends where that is possible; none of it is skipped."""
    total = count(text)
    if total <= most:
        return [text]
    size = max(1, len(text) * most // (total + 1))
    parts = []
    while text:
        part = _start(text, size)
        while count(part) > most and len(part) > 1:
            part = _start(part, len(part) * 3 // 4)
        parts.append(part)
        text = text[len(part) :]
    return parts


def _start(text: str, size: int) -> str:
    """Return the start of a text, at most `size` characters and at least one, cut at a line or a word if it can be."""
    size = max(1, size)
    if len(text) <= size:
        return text
    cut = max(text.rfind("\n", size // 2, size), text.rfind(" ", size // 2, size)) + 1
    return text[: cut or size]


@dataclass(frozen=True, slots=True)
class Previous:
    """The tail of the log that an observer is shown.

    Attributes:
        text: The lines that fit, with notes where lines were left out.
        truncated: Whether some were left out.
    """

    text: str
    truncated: bool


def previous_tail(observations: str, budget: int | Literal[False], count: Count) -> Previous:
    """Return the newest lines of the log that fit into a budget, and important older ones as far as they fit too.

    Args:
        observations: The log, a waiting reflection in place of the lines that it condenses.
        budget: Tokens; 0 for nothing, False for everything.
        count: Counts the tokens of a text.
    """
    if budget is False:
        return Previous(observations, truncated=False)
    if budget == 0 or not observations:
        return Previous("", truncated=bool(observations))
    if count(observations) <= budget:
        return Previous(observations, truncated=False)
    lines = observations.split("\n")
    sizes = [count(line) for line in lines]
    kept: set[int] = set()
    newest = range(len(lines) - 1, -1, -1)

    def try_adding(index: int) -> bool:
        if index in kept:
            return True
        if _size(sizes, kept | {index}, count) > budget:
            return False
        kept.add(index)
        return True

    if lines and try_adding(len(lines) - 1):
        for index in newest:
            if IMPORTANT in lines[index]:
                try_adding(index)
        for index in newest:
            if not try_adding(index):
                break
    return Previous("\n".join(_with_notes(lines, kept)), truncated=True)


def _gaps(total: int, kept: set[int]) -> list[int]:
    gaps, run = [], 0
    for index in range(total):
        if index in kept:
            gaps += [run] if run else []
            run = 0
        else:
            run += 1
    return gaps + ([run] if run else [])


def _note(lines: int) -> str:
    return f"[{lines} observations truncated here]"


def _size(sizes: Sequence[int], kept: set[int], count: Count) -> int:
    return sum(sizes[index] for index in kept) + sum(count(_note(gap)) for gap in _gaps(len(sizes), kept))


def _with_notes(lines: Sequence[str], kept: set[int]) -> list[str]:
    made, run = [], 0
    for index, line in enumerate(lines):
        if index not in kept:
            run += 1
            continue
        made += [_note(run)] if run else []
        made.append(line)
        run = 0
    return made + ([_note(run)] if run else [])
