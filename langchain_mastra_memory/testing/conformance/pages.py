"""Conformance: working-memory pages, their versions, and who may write over whom."""

from __future__ import annotations

from langchain_mastra_memory.errors import ThreadNotFoundError, ThreadOwnershipError
from langchain_mastra_memory.store.operations.messages import ClearThread
from langchain_mastra_memory.store.operations.pages import (
    GetPage,
    ListPages,
    NewThread,
    PageOwner,
    SavedPage,
    SavePage,
    StoredPage,
    Where,
)
from langchain_mastra_memory.store.operations.resources import DeleteResource
from langchain_mastra_memory.store.operations.threads import DeleteThread, GetThread
from langchain_mastra_memory.testing.conformance.registry import case, probe
from langchain_mastra_memory.testing.conformance.session import Session
from langchain_mastra_memory.testing.conformance.threads import make, say

NOTHING = StoredPage()


def of_resource(resource_id: str | None) -> PageOwner:
    """Return the owner of a resource's page."""
    return PageOwner(scope="resource", resource_id=resource_id)


@probe("pages")
async def reading_the_page_of_an_unknown_resource(s: Session) -> None:
    """Gives no page."""
    assert await s.run(GetPage(owner=of_resource(s.new("nobody")))) == NOTHING


@case("pages")
async def a_saved_page_is_read_as_it_was_written(s: Session) -> None:
    owner = of_resource(s.new("resource"))
    text = "# Page\nNUL \0 surrogate \ud800 日本語\n" + "x" * 200_000
    saved = await s.run(SavePage(owner=owner, text=text, writer="tool"))
    assert (saved.status, saved.version, saved.page.text, saved.page.version) == ("written", 1, text, 1)
    found = await s.run(GetPage(owner=owner))
    assert (found.text, found.version, found.writer) == (text, 1, "tool")
    assert found.created_at > 0


@case("pages")
async def versions_count_up_and_each_can_be_read(s: Session) -> None:
    owner = of_resource(s.new("resource"))
    for text in ("one", "two", "three"):
        await s.run(SavePage(owner=owner, text=text))
    assert (await s.run(GetPage(owner=owner))).text == "three"
    assert (await s.run(GetPage(owner=owner, version=2))).text == "two"
    assert (await s.run(GetPage(owner=owner, version=0))).text is None
    kept = await s.run(ListPages(owner=owner))
    assert [(page.version, page.text) for page in kept] == [(3, "three"), (2, "two"), (1, "one")]
    newest = await s.run(ListPages(owner=owner, limit=2))
    assert newest == kept[:2]


@case("pages")
async def the_page_of_a_resource_is_nobody_elses(s: Session) -> None:
    resource = s.new("resource")
    await s.run(SavePage(owner=of_resource(resource), text="mine"))
    for other in (f"{resource}0", resource[:-1], resource.upper(), "%"):
        assert await s.run(GetPage(owner=of_resource(other))) == NOTHING
        assert await s.run(ListPages(owner=of_resource(other))) == []


@case("pages")
async def a_writer_that_knows_an_older_version_is_refused_and_shown_the_present_page(s: Session) -> None:
    owner = of_resource(s.new("resource"))
    await s.run(SavePage(owner=owner, text="one", expected=0))
    await s.run(SavePage(owner=owner, text="two", expected=1))
    late = await s.run(SavePage(owner=owner, text="late", expected=1))
    assert (late.status, late.version, late.page.text, late.page.version) == ("stale", 0, "two", 2)
    assert (await s.run(GetPage(owner=owner))).text == "two"


@case("pages")
async def of_many_writers_that_know_one_version_exactly_one_writes(s: Session) -> None:
    owner = of_resource(s.new("resource"))
    outcomes = await s.together(*(SavePage(owner=owner, text=str(i), expected=0) for i in range(8)))
    saved = [outcome for outcome in outcomes if isinstance(outcome, SavedPage)]
    assert len(saved) == 8, outcomes
    written = [outcome for outcome in saved if outcome.status == "written"]
    assert len(written) == 1
    assert (await s.run(GetPage(owner=owner))).text == written[0].page.text
    kept = await s.run(ListPages(owner=owner))
    assert len(kept) == 1


@case("pages")
async def a_call_that_is_repeated_is_applied_once(s: Session) -> None:
    owner = of_resource(s.new("resource"))
    first = await s.run(SavePage(owner=owner, text="one", call="run/call-1"))
    await s.run(SavePage(owner=owner, text="two"))
    again = await s.run(SavePage(owner=owner, text="one", call="run/call-1"))
    assert (first.status, again.status) == ("written", "repeated")
    assert again.version == first.version
    assert (await s.run(GetPage(owner=owner))).text == "two"
    assert (await s.run(GetPage(owner=owner, call="run/call-1"))).applied == first.version
    assert (await s.run(GetPage(owner=owner, call="run/call-2"))).applied == 0


@case("pages")
async def a_write_that_is_only_for_the_first_page_leaves_a_page_alone(s: Session) -> None:
    owner = of_resource(s.new("resource"))
    assert (await s.run(SavePage(owner=owner, text="first", only_first=True))).status == "written"
    assert (await s.run(SavePage(owner=owner, text="second", only_first=True))).status == "stale"
    assert (await s.run(GetPage(owner=owner))).text == "first"


@case("pages")
async def an_erased_page_is_gone_in_every_version(s: Session) -> None:
    owner = of_resource(s.new("resource"))
    await s.run(SavePage(owner=owner, text="secret one"))
    await s.run(SavePage(owner=owner, text="secret two"))
    await s.run(SavePage(owner=owner, text=None))
    assert (await s.run(GetPage(owner=owner))).text is None
    assert {page.text for page in await s.run(ListPages(owner=owner))} == {None}
    await s.run(SavePage(owner=owner, text="new"))
    assert (await s.run(GetPage(owner=owner))).text == "new"


@case("pages", needs=("threads",))
async def the_page_of_a_thread_is_its_own_and_checked_against_its_owner(s: Session) -> None:
    one, two = await make(s, 2)
    thief = s.new("thief")
    owner = PageOwner(scope="thread", thread_id=one.id, resource_id=one.resource_id)
    await s.run(SavePage(owner=owner, text="of one"))
    assert (await s.run(GetPage(owner=owner))).text == "of one"
    assert await s.run(GetPage(owner=PageOwner(scope="thread", thread_id=two.id))) == NOTHING
    assert await s.run(GetPage(owner=of_resource(one.resource_id))) == NOTHING
    foreign = PageOwner(scope="thread", thread_id=one.id, resource_id=thief)
    assert await s.run(GetPage(owner=foreign)) == NOTHING
    await s.refused(ThreadNotFoundError, SavePage(owner=foreign, text="stolen"))
    missing = PageOwner(scope="thread", thread_id=s.new("thread"))
    await s.refused(ThreadNotFoundError, SavePage(owner=missing, text="nowhere"))
    assert (await s.run(GetPage(owner=owner))).text == "of one"


@case("pages", needs=("threads",))
async def a_resource_cannot_write_its_page_from_somebody_elses_thread(s: Session) -> None:
    [thread] = await make(s)
    thief = PageOwner(scope="resource", resource_id=s.new("thief"), thread_id=thread.id)
    await s.refused(ThreadOwnershipError, SavePage(owner=thief, text="x"))
    assert await s.run(GetPage(owner=of_resource(thief.resource_id))) == NOTHING


@case("pages", needs=("threads",))
async def a_write_can_make_the_thread_that_it_belongs_to(s: Session) -> None:
    owner = PageOwner(scope="thread", thread_id=s.new("thread"), resource_id=s.new("resource"))
    await s.run(SavePage(owner=owner, text="early", new_thread=NewThread(title="t", metadata={"k": 1})))
    thread = await s.run(GetThread(thread_id=str(owner.thread_id), resource_id=owner.resource_id))
    assert thread is not None
    assert (thread.title, thread.metadata) == ("t", {"k": 1})
    assert (await s.run(GetPage(owner=owner))).text == "early"


@case("pages", needs=("threads", "messages"))
async def the_page_of_a_thread_holds_from_its_message_on(s: Session) -> None:
    [thread] = await make(s)
    owner = PageOwner(scope="thread", thread_id=thread.id, resource_id=thread.resource_id)
    first, second = await say(s, thread, ["a", "b"])
    await s.run(SavePage(owner=owner, text="after the first", after_message=first))
    await s.run(SavePage(owner=owner, text="after the second", after_message=second))
    assert (await s.run(GetPage(owner=owner))).text == "after the second"
    seen = await s.run(GetPage(owner=owner, where=Where(ids=(first,))))
    assert seen.text in {"after the first", "after the second"}
    assert (await s.run(GetPage(owner=owner, where=Where(position=(0, 0))))).text is None


@case("pages", needs=("threads", "messages", "resources"))
async def pages_go_with_their_thread_and_their_resource(s: Session) -> None:
    [thread] = await make(s)
    of_thread = PageOwner(scope="thread", thread_id=thread.id, resource_id=thread.resource_id)
    whole = of_resource(thread.resource_id)
    await s.run(SavePage(owner=of_thread, text="of the thread"))
    await s.run(SavePage(owner=whole, text="of the resource"))
    await s.run(DeleteThread(thread_id=thread.id))
    assert await s.run(GetPage(owner=of_thread)) == NOTHING
    assert (await s.run(GetPage(owner=whole))).text == "of the resource"
    await s.run(DeleteResource(resource_id=str(thread.resource_id)))
    assert (await s.run(GetPage(owner=whole))).text is None


@case("pages", needs=("threads", "messages"))
async def clearing_a_thread_clears_what_its_conversation_wrote_and_no_other_page(s: Session) -> None:
    one, two = await make(s, 2)
    for thread in (one, two):
        await say(s, thread, ["hello"])
        await s.run(SavePage(owner=PageOwner(scope="thread", thread_id=thread.id), text=thread.id))
    await s.run(ClearThread(thread_id=one.id))
    assert (await s.run(GetPage(owner=PageOwner(scope="thread", thread_id=one.id)))).text is None
    assert (await s.run(GetPage(owner=PageOwner(scope="thread", thread_id=two.id)))).text == two.id
