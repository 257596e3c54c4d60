"""The recall tool reads messages: pages from an end or around a cursor, and single parts in full."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import ToolException

from langchain_mastra_memory.errors import ThreadNotFoundError
from langchain_mastra_memory.ids import checked_id
from langchain_mastra_memory.observation.recall_question import Asker, PartType, Question, stamp
from langchain_mastra_memory.store.operations.messages import Hidden, Include, ListMessages
from langchain_mastra_memory.store.operations.threads import GetThread
from langchain_mastra_memory.types import StoredMessage

if TYPE_CHECKING:
    from langchain_mastra_memory.io import IO
    from langchain_mastra_memory.tokens import TokenCounter

PAGE_TOKENS: Final = 2000
"""Tokens of one answer; what does not fit is cut, with a note how to go on."""
LOW_TEXT: Final = 500
"""Characters of a text part at low detail."""
LOW_RESULT: Final = 200
"""Characters of a tool result at low detail."""
_SHOWN: Final = Hidden(every_signal=True)


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a message, as the tool shows it.

    Attributes:
        type: What it is.
        text: Its whole text.
        tool: The tool's name, of calls and results.
    """

    type: PartType
    text: str
    tool: str | None = None


def parts(message: Any) -> list[Part]:
    """Return the parts of a message, in the order of their indexes."""
    found: list[Part] = []
    blocks = message.content if isinstance(message.content, list) else [message.content]
    if isinstance(message, ToolMessage):
        name = message.name or "tool"
        return [Part("tool-result", f"[Tool Result: {name}]\n{message.text}", name)]
    for block in blocks:
        if isinstance(block, str):
            found += [Part("text", block)] if block else []
        elif isinstance(block, Mapping):
            kind = str(block.get("type"))
            if kind == "text" and block.get("text"):
                found.append(Part("text", str(block["text"])))
            elif kind in {"reasoning", "thinking"}:
                said = block.get("reasoning") or block.get("thinking") or block.get("text") or ""
                found.append(Part("reasoning", f"[Reasoning]\n{said}"))
            elif "image" in kind:
                found.append(Part("image", f"[Image: {_name(block)}]"))
            elif kind in {"file", "document", "audio", "video", "input_file"}:
                found.append(Part("file", f"[File: {_name(block)}]"))
    if isinstance(message, AIMessage):
        for call in message.tool_calls:
            args = json.dumps(call["args"], ensure_ascii=False, indent=2, default=str)
            found.append(Part("tool-call", f"[Tool Call: {call['name']}]\n{args}", call["name"]))
    return found


def _name(block: Mapping[str, Any]) -> str:
    return str(block.get("filename") or block.get("name") or block.get("mime_type") or "attachment")


async def read_messages(io: IO, who: Asker, question: Question, counter: TokenCounter) -> dict[str, Any]:
    """Return a page of messages, or a part of one.

    Raises:
        ToolException: There is no such message, part or page.
    """
    if question.cursor and ":" in question.cursor:
        start, _, end = question.cursor.partition(":")
        hint = (
            f'The cursor "{question.cursor}" looks like a range. Use one of the individual message ids as the cursor '
            f'instead: start="{start}" or end="{end}".'
        )
        if not await _found(io, who, question.cursor, 0, 0):
            return _page(question, hint, (), page=1, before=False, after=False)
    if question.cursor:
        return await _from_cursor(io, who, question, counter)
    if question.part_index is not None:
        raise ToolException("part_index needs a cursor: the id of the message")
    thread, note = await _thread(io, who, question)
    number = max(1, question.page or 1)
    if (question.page or 1) < 0:
        raise ToolException("a page below 0 needs a cursor")
    found = await io.run(
        ListMessages(
            thread_ids=(thread,),
            resource_id=who.resource_id,
            page=number - 1,
            per_page=question.limit,
            direction="asc" if question.anchor == "start" else "desc",
            hidden=_SHOWN,
        )
    )
    newer, older = (found.has_more, number > 1) if question.anchor == "start" else (number > 1, found.has_more)
    empty = f"(no messages found on page {number} for this thread)"
    return _shown(question, tuple(found), counter, page=number, before=older, after=newer, note=note, empty=empty)


async def _thread(io: IO, who: Asker, question: Question) -> tuple[str, str]:
    """Return the thread to read and a note when it was not named."""
    named = question.thread_id if who.retrieval.scope == "resource" else "current"
    if named in (None, "", "current"):
        if who.thread_id is None:
            raise ToolException("there is no current thread: give a thread_id")
        note = f"thread_id wasn't passed so used default {who.thread_id}.\n\n" if not named else ""
        return who.thread_id, note
    thread = await io.run(GetThread(thread_id=checked_id(named), resource_id=who.resource_id))
    if thread is None or (
        named != who.thread_id and (who.resource_id is None or thread.resource_id != who.resource_id)
    ):
        raise ToolException("Thread does not belong to the active resource")
    return str(named), ""


async def _found(io: IO, who: Asker, cursor: str, before: int, after: int) -> list[StoredMessage]:
    """Return a message of this resource (or thread) with its neighbours, oldest first; empty if there is none."""
    if who.thread_id is None and who.resource_id is None:
        return []
    whole = who.retrieval.scope == "resource" and who.resource_id is not None
    include = Include(id=cursor, thread_id=None if whole else who.thread_id, with_previous=before, with_next=after)
    try:
        found = await io.run(
            ListMessages(
                thread_ids=(who.thread_id,) if who.thread_id else (),
                resource_id=who.resource_id,
                per_page=0,
                include=(include,),
                hidden=_SHOWN,
            )
        )
    except ThreadNotFoundError:
        return []
    around = list(found)
    center = next((m for m in around if m.id == cursor), None)
    return [m for m in around if center is not None and m.thread_id == center.thread_id]


async def _from_cursor(io: IO, who: Asker, question: Question, counter: TokenCounter) -> dict[str, Any]:
    cursor = question.cursor or ""
    number = question.page or 1
    if question.part_index is not None:
        return await _part(io, who, question, counter)
    span = abs(number) * question.limit + 1
    around = await _found(io, who, cursor, span if number < 0 else 1, span if number > 0 else 1)
    if not around:
        raise ToolException(f"Could not resolve cursor message: {cursor}")
    at = next(index for index, message in enumerate(around) if message.id == cursor)
    start, end = (number - 1) * question.limit, number * question.limit
    if number > 0:
        ahead = around[at + 1 :]
        chosen, older, newer = ahead[start:end], at > 0 or number > 1, len(ahead) > end
    else:
        behind = around[:at][::-1]
        start, end = (-number - 1) * question.limit, -number * question.limit
        chosen, older, newer = behind[start:end][::-1], len(behind) > end, True
    return _shown(question, chosen, counter, page=number, before=older, after=newer, empty="(no messages on this page)")


def _shown(
    question: Question,
    messages: Sequence[StoredMessage],
    counter: TokenCounter,
    *,
    page: int,
    before: bool,
    after: bool,
    note: str = "",
    empty: str = "",
) -> dict[str, Any]:
    blocks: list[str] = []
    shown: list[StoredMessage] = []
    cut = 0
    for message in messages:
        lines = _lines(message, question)
        if not lines:
            continue
        block = f"**{_role(message)} ({stamp(message.created_at)})** [{message.id}]:\n" + "\n".join(lines)
        used = counter.count_text("\n\n".join([*blocks, block]))
        if used > PAGE_TOKENS and blocks:
            cut += counter.count_text(block)
            continue
        if used > PAGE_TOKENS:
            block, more = _clamped(block, PAGE_TOKENS, counter)
            cut += more
        blocks.append(block)
        shown.append(message)
    text = note + ("\n\n".join(blocks) or empty or "(no messages)")
    return _page(question, text, shown, page=page, before=before, after=after, cut=cut)


def _page(
    question: Question,
    text: str,
    shown: Sequence[StoredMessage],
    *,
    page: int,
    before: bool,
    after: bool,
    cut: int = 0,
) -> dict[str, Any]:
    return {
        "messages": text,
        "count": len(shown),
        "cursor": question.cursor or (shown[0].id if shown else ""),
        "page": page,
        "limit": question.limit,
        "detail": question.detail,
        "has_next_page": after,
        "has_prev_page": before,
        "truncated": cut > 0,
        "token_offset": cut,
    }


def _lines(message: StoredMessage, question: Question) -> list[str]:
    lines = []
    for index, part in enumerate(parts(message.message)):
        if question.part_type is not None and part.type != question.part_type:
            continue
        if question.tool_name is not None and part.tool != question.tool_name:
            continue
        text = part.text if question.detail == "high" else _low(part, message.id, index)
        lines.append(f"  [p{index}] {text}")
    return lines


def _low(part: Part, message_id: str, index: int) -> str:
    if part.type == "tool-call":
        return part.text.split("\n", 1)[0]
    most = LOW_RESULT if part.type == "tool-result" else LOW_TEXT
    if len(part.text) <= most:
        return part.text
    left = len(part.text) - most
    return (
        f"{part.text[:most]}\n... [truncated {left} characters] "
        f'[recall cursor="{message_id}" part_index={index} for more]'
    )


def _clamped(text: str, most: int, counter: TokenCounter) -> tuple[str, int]:
    total = counter.count_text(text)
    size = len(text)
    while size > 1 and counter.count_text(text[:size]) > most:
        size = size * 9 // 10
    kept = counter.count_text(text[:size])
    return text[:size] + "\n... [cut here; read one part with part_index]", total - kept


async def _part(io: IO, who: Asker, question: Question, counter: TokenCounter) -> dict[str, Any]:
    around = await _found(io, who, question.cursor or "", 0, 1)
    if not around:
        raise ToolException(f"Could not resolve cursor message: {question.cursor}")
    message, index, note = around[0], question.part_index or 0, ""
    own = parts(message.message)
    if not 0 <= index < len(own):
        note = f"Part index {index} not found in message {message.id}"
        following = around[1] if len(around) > 1 else None
        if following is None or not parts(following.message):
            raise ToolException(f"{note}; it has the parts 0 to {len(own) - 1}" if own else f"{note}; it has none")
        note += f"; showing part_index 0 from next message {following.id}.\n\n"
        message, index, own = following, 0, parts(following.message)
    part = own[index]
    offset = max(0, question.char_offset)
    if offset > len(part.text):
        raise ToolException(
            f"char_offset {offset} is behind the end of the part, which has {len(part.text)} characters"
        )
    rest = part.text[offset:]
    size = len(rest)
    while size > 1 and counter.count_text(rest[:size]) > PAGE_TOKENS:
        size = max(1, size * 9 // 10)
    result: dict[str, Any] = {
        "text": note + rest[:size],
        "message_id": message.id,
        "part_index": index,
        "role": _role(message),
        "type": part.type,
        "truncated": size < len(rest),
        "char_offset": offset,
    }
    if size < len(rest):
        following_at = offset + size
        result["next_char_offset"] = following_at
        result["note"] = f'recall cursor="{message.id}" part_index={index} char_offset={following_at}'
    return result


def _role(message: StoredMessage) -> str:
    return {"human": "user", "ai": "assistant"}.get(message.message.type, message.message.type)
