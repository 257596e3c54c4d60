"""The `recall` tool: pages and searches the raw messages behind the observations; this resource's only."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, Final, Literal

from langchain.tools import ToolRuntime
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from pydantic import BaseModel, ConfigDict, Field, create_model

from langchain_mastra_memory.agents.identity import ACTING, identify
from langchain_mastra_memory.errors import MastraMemoryError, ThreadNotFoundError
from langchain_mastra_memory.io import IO, drive
from langchain_mastra_memory.observation.options import ObservationalMemory, Retrieval
from langchain_mastra_memory.observation.prompts import text_of
from langchain_mastra_memory.shown import shown
from langchain_mastra_memory.store.operations.log import ListGroups
from langchain_mastra_memory.store.operations.messages import Hidden, Include, ListMessages
from langchain_mastra_memory.store.operations.threads import ListThreads
from langchain_mastra_memory.tokens import ready
from langchain_mastra_memory.types import StoredMessage, Thread

if TYPE_CHECKING:
    from langchain_mastra_memory.base import MemoryBase
    from langchain_mastra_memory.tokens import TokenCounter

NAME: Final = "recall"
LIMIT: Final = 20
MOST: Final = 100
PAGE_TOKENS: Final = 2000
"""Tokens of one answer; what does not fit is cut, with a note how to go on."""
LOW_TEXT: Final = 500
"""Characters of a text part at low detail."""
LOW_RESULT: Final = 200
"""Characters of a tool result at low detail."""

PartType = Literal["text", "tool-call", "tool-result", "reasoning", "image", "file"]
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


class Question(BaseModel):
    """What the tool is asked."""

    model_config = ConfigDict(extra="ignore")

    mode: Literal["messages", "threads", "search"] = "messages"
    query: str | None = None
    cursor: str | None = None
    thread_id: str | None = None
    anchor: Literal["start", "end"] = "start"
    page: int | None = None
    limit: int = LIMIT
    detail: Literal["low", "high"] = "low"
    part_type: PartType | None = None
    tool_name: str | None = None
    part_index: int | None = None
    char_offset: int = 0
    before: str | None = None
    after: str | None = None


_DESCRIBED: Final[Mapping[str, str]] = {
    "mode": "What to retrieve: `messages` pages through messages",
    "query": "For mode=search: what to look for.",
    "cursor": "The id of a message: pages are counted from it. Take the first or the last id of a group's range.",
    "thread_id": "Another conversation, from mode=threads; `current` for this one.",
    "anchor": "Without a cursor: page from the start (oldest first) or from the end (newest first).",
    "page": "Messages: 1, 2, ... forwards from the cursor, -1, -2, ... backwards. Threads: from 0.",
    "limit": f"Items on a page, 1 to {MOST}.",
    "detail": "`low`: parts shortened, with their indexes; `high`: in full, as far as one answer holds.",
    "part_type": "Only parts of this type.",
    "tool_name": "Only calls and results of this tool.",
    "part_index": "With a cursor: only this part of that message, in full.",
    "char_offset": "With part_index: go on from this character.",
    "before": "For mode=threads: only those created before this ISO date.",
    "after": "For mode=threads: only those created after this ISO date.",
}


def arguments(retrieval: Retrieval) -> type[BaseModel]:
    """Return the model of the arguments: only those that can have an effect with these options."""
    modes: tuple[str, ...] = ("messages", "threads") if retrieval.scope == "resource" else ("messages",)
    modes += ("search",) if retrieval.vector else ()
    hidden = set() if retrieval.scope == "resource" else {"thread_id", "before", "after"}
    hidden |= set() if retrieval.vector else {"query"}
    fields: dict[str, Any] = {}
    for name, info in Question.model_fields.items():
        if name in hidden:
            continue
        kind: Any = Literal[modes] if name == "mode" else info.annotation
        described = _DESCRIBED[name]
        if name == "mode":
            more = [", `threads` lists the conversations", ", `search` finds observations by what they say"]
            described += (more[0] if "threads" in modes else "") + (more[1] if "search" in modes else "") + "."
        fields[name] = (kind, Field(default=info.default, description=described))
    return create_model("RecallQuestion", __doc__="What to recall.", **fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asker:
    """Who asks.

    Attributes:
        memory: The memory.
        retrieval: The options of the tool.
        scope: The scope of the observations.
        thread_id: The current thread.
        resource_id: The owner; nothing of anybody else is shown.
    """

    memory: MemoryBase
    retrieval: Retrieval
    scope: Literal["thread", "resource"]
    thread_id: str | None
    resource_id: str | None


def recall_tool(memory: MemoryBase, options: ObservationalMemory) -> BaseTool:
    """Return the tool.

    Args:
        memory: The memory whose messages it shows.
        options: The options, with `retrieval` on.
    """
    retrieval = options.retrieval or Retrieval()

    def asker(runtime: Any, config: RunnableConfig | None) -> Asker:
        acting = ACTING.get()
        using = acting[1] if acting is not None else memory
        thread: str | None
        resource: str | None
        if runtime is not None and runtime.tool_call_id is not None:
            run = acting[0] if acting is not None else identify(runtime, runtime.config)
            thread, resource = run.thread_id, run.resource_id
        else:
            configurable: Mapping[str, Any] = (config or {}).get("configurable") or {}
            thread, resource = configurable.get("thread_id"), configurable.get("resource_id")
        return Asker(memory=using, retrieval=retrieval, scope=options.scope, thread_id=thread, resource_id=resource)

    # `runtime` must not be Optional: LangChain injects it by its bare type, and the schema of the arguments has none.
    def run(runtime: ToolRuntime = None, config: RunnableConfig = None, **given: Any) -> str:  # type: ignore[assignment]  # injected by their bare types
        who = asker(runtime, config)
        return drive(answer(who.memory.io(is_async=False), who, Question(**given)))

    async def arun(runtime: ToolRuntime = None, config: RunnableConfig = None, **given: Any) -> str:  # type: ignore[assignment]  # injected by their bare types
        who = asker(runtime, config)
        return await answer(who.memory.io(is_async=True), who, Question(**given))

    return StructuredTool.from_function(
        name=NAME,
        description="Read the messages behind your observations again, word by word. " + text_of("recall_thread"),
        func=run,
        coroutine=arun,
        args_schema=arguments(retrieval),
        infer_schema=False,
        handle_tool_error=True,
    )


async def answer(io: IO, who: Asker, question: Question) -> str:
    """Return the tool's answer as JSON.

    Raises:
        ToolException: The question cannot be answered; the model is told why.
    """
    try:
        return json.dumps(await recall(io, who, question), ensure_ascii=False)
    except MastraMemoryError as error:
        raise ToolException(str(error)) from error


async def recall(io: IO, who: Asker, question: Question) -> dict[str, Any]:
    """Answer a question.

    Raises:
        ToolException: It cannot be answered.
    """
    counter = await ready(who.memory.token_counter, io)
    question = question.model_copy(update={"limit": max(1, min(MOST, question.limit))})
    if question.mode == "threads":
        return await _threads(io, who, question)
    if question.mode == "search":
        return await _search(io, who, question)
    return await _messages(io, who, question, counter)


# messages


async def _messages(io: IO, who: Asker, question: Question, counter: TokenCounter) -> dict[str, Any]:
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
    owned = who.memory
    thread: Thread | None = await io.call(
        _any(owned).get_thread, _any(owned).aget_thread, named, resource_id=who.resource_id
    )
    if thread is None or (
        named != who.thread_id and (who.resource_id is None or thread.resource_id != who.resource_id)
    ):
        raise ToolException("Thread does not belong to the active resource")
    return str(named), ""


def _any(value: Any) -> Any:
    return value


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
        block = f"**{_role(message)} ({_time(message.created_at)})** [{message.id}]:\n" + "\n".join(lines)
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


def _time(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


# threads


async def _threads(io: IO, who: Asker, question: Question) -> dict[str, Any]:
    if who.retrieval.scope == "thread":
        raise ToolException("this tool reads the current thread only")
    if who.resource_id is None:
        raise ToolException("there is no resource whose threads could be listed")
    before, after = _date(question.before, "before"), _date(question.after, "after")
    number = max(0, question.page or 0)
    whole = before is not None or after is not None
    found = await io.run(
        ListThreads(
            resource_id=who.resource_id,
            page=0 if whole else number,
            per_page=False if whole else question.limit,
            order_by="updated_at",
            direction="desc",
        )
    )
    threads = [
        thread
        for thread in found
        if (before is None or thread.created_at < before) and (after is None or thread.created_at > after)
    ]
    more = found.has_more
    if whole:
        start = number * question.limit
        more = len(threads) > start + question.limit
        threads = threads[start : start + question.limit]
    lines = [
        f"- **{thread.title or '(untitled)'}**{' ← current' if thread.id == who.thread_id else ''}\n"
        f"  id: {thread.id}\n"
        f"  updated: {_time(thread.updated_at)} | created: {_time(thread.created_at)}"
        for thread in threads
    ]
    text = "\n".join(lines) or "No threads found matching the criteria."
    return {"threads": text, "count": len(threads), "page": number, "has_more": more}


def _date(text: str | None, name: str) -> datetime | None:
    if text is None:
        return None
    try:
        if len(text) <= len("2026-01-01"):
            day = date.fromisoformat(text)
            return datetime(day.year, day.month, day.day, tzinfo=UTC)
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ToolException(f"{name} must be an ISO date such as 2026-03-15, not {shown(text, 60)}") from error
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


# search


async def _search(io: IO, who: Asker, question: Question) -> dict[str, Any]:
    if not who.retrieval.vector:
        raise ToolException("this tool cannot search; use mode=messages" + _or_threads(who))
    if not question.query or not question.query.strip():
        raise ToolException('query is required for mode="search"')
    own = who.retrieval.scope == "thread" or who.resource_id is None
    groups = await io.run(
        ListGroups(scope=who.scope, thread_id=who.thread_id if own else None, resource_id=who.resource_id)
    )
    from langchain_mastra_memory.observation.search import search_groups  # noqa: PLC0415 - numpy, when on

    found = await io.thread(search_groups, groups, question.query, question.limit)
    blocks = []
    for group, score in found:
        here = group.thread_id == who.thread_id
        where = "current" if here else "another"
        text = " ".join(group.row.text.split())
        updated = datetime.fromtimestamp(group.updated_at / 1_000_000, UTC)
        blocks.append(
            f"### {'Current' if here else 'Other'} thread memory\n"
            f"This result came from {'the current thread' if here else where + ' thread'}.\n"
            f"- thread: {group.thread_id} ({group.title or '(untitled)'})\n"
            f"- source: raw messages from ID {group.first_id} through ID {group.last_id}\n"
            f"- thread updated: {_time(updated)}\n"
            f"- observation group: {group.row.id}\n"
            f"- score: {score:.2f}\n"
            f"```text\n{text}\n```"
        )
    return {"results": "\n\n".join(blocks) or "No matching messages found.", "count": len(blocks)}


def _or_threads(who: Asker) -> str:
    return " or mode=threads" if who.retrieval.scope == "resource" else ""
