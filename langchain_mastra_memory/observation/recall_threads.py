"""The recall tool looks around: the owner's conversations, and observations by what they say."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

from langchain_core.tools import ToolException

from langchain_mastra_memory.observation.recall_question import Asker, Question, stamp
from langchain_mastra_memory.shown import shown
from langchain_mastra_memory.store.operations.log import ListGroups
from langchain_mastra_memory.store.operations.threads import ListThreads

if TYPE_CHECKING:
    from langchain_mastra_memory.io import IO


async def list_threads(io: IO, who: Asker, question: Question) -> dict[str, Any]:
    """Return a page of the owner's threads, the last changed first.

    Raises:
        ToolException: The tool reads the current thread only, nobody owns it, or a date is none.
    """
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
        f"  updated: {stamp(thread.updated_at)} | created: {stamp(thread.created_at)}"
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


async def search_observations(io: IO, who: Asker, question: Question) -> dict[str, Any]:
    """Return the groups of observations that say what is looked for, the best first.

    Raises:
        ToolException: The tool cannot search, or there is no query.
    """
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
        text = " ".join(group.row.text.split())
        updated = datetime.fromtimestamp(group.updated_at / 1_000_000, UTC)
        blocks.append(
            f"### {'Current' if here else 'Other'} thread memory\n"
            f"This result came from {'the current' if here else 'another'} thread.\n"
            f"- thread: {group.thread_id} ({group.title or '(untitled)'})\n"
            f"- source: raw messages from ID {group.first_id} through ID {group.last_id}\n"
            f"- thread updated: {stamp(updated)}\n"
            f"- observation group: {group.row.id}\n"
            f"- score: {score:.2f}\n"
            f"```text\n{text}\n```"
        )
    return {"results": "\n\n".join(blocks) or "No matching messages found.", "count": len(blocks)}


def _or_threads(who: Asker) -> str:
    return " or mode=threads" if who.retrieval.scope == "resource" else ""
