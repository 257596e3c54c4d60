"""Conformance: taking out, putting back and removing everything that a resource owns."""

from __future__ import annotations

import json

from langchain_mastra_memory.errors import InvalidIdError, InvalidQueryError
from langchain_mastra_memory.store.operations.resources import DeleteResource, ExportResource, ImportResource
from langchain_mastra_memory.store.operations.threads import DeleteThread, GetThread, ListThreads, UpdateThread
from langchain_mastra_memory.testing.conformance.registry import case, probe
from langchain_mastra_memory.testing.conformance.session import Session
from langchain_mastra_memory.testing.conformance.threads import make, say, texts_of


@probe("resources")
async def deleting_an_unknown_resource(s: Session) -> None:
    """Removes nothing."""
    gone = await s.run(DeleteResource(resource_id=s.new("nobody")))
    assert (gone.threads, gone.messages, gone.checkpoints) == (0, 0, 0)


@case("resources", needs=("threads", "messages"))
async def deleting_a_resource_removes_all_its_threads_and_no_other(s: Session) -> None:
    owner = s.new("resource")
    one, two = await make(s, 2, owner=owner)
    [neighbour] = await make(s, owner=f"{owner}0")
    await say(s, one, ["a", "b"])
    await say(s, two, ["c"])
    await say(s, neighbour, ["stays"])
    gone = await s.run(DeleteResource(resource_id=owner))
    assert (gone.threads, gone.messages) == (2, 3)
    assert (await s.run(ListThreads(resource_id=owner))).total == 0
    assert await texts_of(s, neighbour.id) == ["stays"]
    assert (await s.run(DeleteResource(resource_id=owner))).threads == 0


@case("resources", needs=("threads", "messages"))
async def an_export_is_json_and_its_import_brings_everything_back(s: Session) -> None:
    [thread] = await make(s)
    await s.run(UpdateThread(thread_id=thread.id, set_title=True, title="a title", metadata={"k": [1, "日本\0"]}))
    await say(s, thread, ["one", "two \0 \ud800"])
    before = await s.run(GetThread(thread_id=thread.id))
    owner = str(thread.resource_id)
    exported = json.loads(json.dumps(await s.run(ExportResource(resource_id=owner))))
    await s.run(DeleteResource(resource_id=owner))
    assert await s.run(ImportResource(data=exported, resource_id=owner)) == 1
    after = await s.run(GetThread(thread_id=thread.id, resource_id=owner))
    assert before is not None
    assert after is not None
    assert (after.title, after.metadata, after.created_at) == (before.title, before.metadata, before.created_at)
    assert await texts_of(s, thread.id) == ["one", "two \0 \ud800"]
    await say(s, after, ["three"])
    assert (await texts_of(s, thread.id))[-1] == "three"


@case("resources", needs=("threads", "messages"))
async def an_import_under_another_owner_belongs_to_that_owner(s: Session) -> None:
    [thread] = await make(s)
    await say(s, thread, ["one"])
    exported = await s.run(ExportResource(resource_id=str(thread.resource_id)))
    await s.run(DeleteThread(thread_id=thread.id))
    heir = s.new("heir")
    await s.run(ImportResource(data=exported, resource_id=heir))
    assert [t.id for t in await s.run(ListThreads(resource_id=heir))] == [thread.id]
    assert (await s.run(ListThreads(resource_id=thread.resource_id))).total == 0


@case("resources", needs=("threads", "messages"))
async def an_import_that_meets_an_existing_thread_is_refused_whole(s: Session) -> None:
    gone, kept = await make(s, 2)
    await say(s, gone, ["gone"])
    await say(s, kept, ["kept"])
    exported = await s.run(ExportResource(resource_id=str(gone.resource_id)))
    await s.run(DeleteThread(thread_id=gone.id))
    await s.refused(InvalidIdError, ImportResource(data=exported, resource_id=str(gone.resource_id)))
    assert await s.run(GetThread(thread_id=gone.id)) is None
    assert await texts_of(s, kept.id) == ["kept"]


@case("resources")
async def what_is_no_export_is_refused(s: Session) -> None:
    for data in ({}, {"version": 10**9, "threads": []}, {"something": "else"}):
        await s.refused(InvalidQueryError, ImportResource(data=data, resource_id=s.new("resource")))


@case("resources")
async def an_export_of_nobody_can_be_imported(s: Session) -> None:
    exported = await s.run(ExportResource(resource_id=s.new("nobody")))
    assert await s.run(ImportResource(data=exported, resource_id=s.new("nobody"))) == 0
