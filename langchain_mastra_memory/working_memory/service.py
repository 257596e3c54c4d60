"""Reading and changing pages through a store: what the facade, the tool, the graph nodes and the observer share.

In schema mode an update is decided on the page that is there and written only if that page is still there; otherwise it
is decided again on the newer one. Somebody's write has succeeded each time, so the loop ends, and no update is lost. In
template mode the version that the writer saw guards the replacement.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from langchain_mastra_memory.errors import InvalidIdError, MissingResourceError, WorkingMemoryError
from langchain_mastra_memory.ids import checked_id, optional_id
from langchain_mastra_memory.io import IO
from langchain_mastra_memory.store.operations.pages import (
    HERE,
    GetPage,
    NewThread,
    PageOwner,
    SavePage,
    StoredPage,
    Where,
    Writer,
)
from langchain_mastra_memory.working_memory.options import WorkingMemory
from langchain_mastra_memory.working_memory.rules import decide

_ATTEMPTS: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """An update on its way to a page.

    Attributes:
        value: The whole text, or the fields to change; None with `replace` erases the page.
        replace: In schema mode: nothing of the old page stays.
        writer: What kind of writer.
        call: What asks, the same for its retries and replays.
        seen: Template mode: the version that the writer saw; None replaces whatever is there.
        where: From where in the conversation (thread scope).
        after_message: The id of the message after which the page will hold (thread scope).
        stand_ins: Messages before that one, in case it is never archived.
        new_thread: Make the thread where it is missing.
    """

    value: object
    replace: bool = False
    writer: Writer = "code"
    call: str | None = None
    seen: int | None = None
    where: Where = HERE
    after_message: str | None = None
    stand_ins: tuple[str, ...] = ()
    new_thread: NewThread | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What became of an update.

    Attributes:
        status: `written`, `repeated` (it was applied before) or `stale` (template mode: the page has changed since).
        page: The page that holds now.
        version: The version that the update wrote, now or before; 0 when stale.
        notes: What the writer should know.
    """

    status: Literal["written", "repeated", "stale"]
    page: StoredPage
    version: int = 0
    notes: tuple[str, ...] = ()


def page_owner(options: WorkingMemory, *, thread_id: object, resource_id: object) -> PageOwner:
    """Return whose page the options and the ids mean.

    Raises:
        MissingResourceError: Resource scope, and no resource id.
        InvalidIdError: An id is not valid, or thread scope has no thread id.
    """
    if options.scope == "resource":
        if resource_id is None:
            raise MissingResourceError(
                "working memory has scope 'resource' and needs a resource id: pass resource_id=..., or in a run "
                'configurable["resource_id"] or the context\'s resource_id; WorkingMemory(scope="thread") needs none'
            )
    elif thread_id is None:
        raise InvalidIdError("working memory has scope 'thread' and needs a thread id: pass thread_id=...")
    return PageOwner(
        scope=options.scope,
        resource_id=optional_id(resource_id),
        thread_id=None if thread_id is None else checked_id(thread_id),
    )


async def read_page(io: IO, owner: PageOwner, where: Where = HERE) -> StoredPage:
    """Return the page that holds."""
    return await io.run(GetPage(owner=owner, where=where))


async def write_page(
    io: IO, options: WorkingMemory, owner: PageOwner, update: Update, *, by_agent: bool = False
) -> Written:
    """Apply an update, once.

    Args:
        io: Runs the operations.
        options: The options.
        owner: Whose page.
        update: What to do.
        by_agent: Whether a model sent it.

    Raises:
        WorkingMemoryError: It is refused; nothing was changed.
        ThreadNotFoundError: Thread scope, and there is no such thread for this resource.
    """
    page = await io.run(GetPage(owner=owner, where=update.where, call=update.call))
    if page.applied:
        return Written(status="repeated", page=page, version=page.applied)
    guard = update.seen if options.mode == "template" else None
    if guard is not None and guard != page.version:
        return Written(status="stale", page=page)
    merges = options.mode == "schema" and not update.replace
    for _ in range(_ATTEMPTS):
        notes: tuple[str, ...] = ()
        text: str | None = None
        if update.value is not None or not update.replace:
            decision = decide(options, page.text, update.value, replace=update.replace, by_agent=by_agent)
            text, notes = decision.text, decision.notes
        expected = page.version if merges else guard
        saved = await io.run(_save(owner, update, text, expected))
        if saved.status != "stale" or not merges:
            return Written(status=saved.status, page=saved.page, version=saved.version, notes=notes)
        page = saved.page
    raise WorkingMemoryError(f"the page was changed by others {_ATTEMPTS} times while it was being updated; try again")


def _save(owner: PageOwner, update: Update, text: str | None, expected: int | None) -> SavePage:
    return SavePage(
        owner=owner,
        text=text,
        expected=expected,
        call=update.call,
        writer=update.writer,
        where=update.where,
        after_message=update.after_message,
        stand_ins=update.stand_ins,
        new_thread=update.new_thread,
    )
