"""Random histories against a reference that is obviously right."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import HumanMessage

from langchain_mastra_memory.io import SyncIO, drive
from langchain_mastra_memory.store.operations.messages import NewMessage
from langchain_mastra_memory.store.operations.pages import GetPage, NewThread, PageOwner, SavePage, Where
from langchain_mastra_memory.store.operations.runs import SaveRun
from langchain_mastra_memory.store.sql.engine import SQLMemoryStore
from langchain_mastra_memory.working_memory.document import merge
from langchain_mastra_memory.working_memory.options import WorkingMemory
from langchain_mastra_memory.working_memory.service import Update, write_page

OPTIONS = WorkingMemory(schema={"type": "object"})
THREAD = PageOwner(scope="thread", thread_id="t", resource_id="r")
RESOURCE = PageOwner(scope="resource", resource_id="r")

# One step: the place to go on from (a fork, if it is not the last one), whether the archive learns of it at once,
# and whether a page is written there: by a tool, before its answer is archived, or from code, after it is.
steps = st.lists(
    st.tuples(st.integers(0, 30), st.booleans(), st.sampled_from(["none", "tool", "code"])), min_size=1, max_size=14
)


@settings(max_examples=60, deadline=None)
@given(steps=steps)
def test_at_every_place_of_every_branch_the_page_is_the_newest_on_the_way_there(steps):
    with SQLMemoryStore("memory://") as store:
        ways: list[tuple[str, ...]] = [()]
        expected: list[str | None] = [None]
        archived: set[str] = set()
        for number, (place, at_once, writer) in enumerate(steps):
            # Only the first message comes from nowhere: a state that shares nothing with the archive goes on where the
            # thread stands.
            at = 1 + place % (len(ways) - 1) if len(ways) > 1 else 0
            before, page = ways[at], expected[at]
            message = f"m{number}"
            way = (*before, message)
            if writer == "tool":
                page = f"page {number}"
                store.run(
                    SavePage(
                        owner=THREAD,
                        new_thread=NewThread(),
                        text=page,
                        where=Where(ids=before, from_state=True),
                        after_message=message,
                    )
                )
            if at_once or writer == "code":
                missing = [known for known in way if known not in archived]
                store.run(
                    SaveRun(
                        thread_id="t",
                        resource_id="r",
                        messages=tuple(NewMessage(message=HumanMessage(m, id=m), tokens=1) for m in missing),
                        after=tuple(known for known in way if known in archived),
                        from_state=True,
                    )
                )
                archived |= set(missing)
            if writer == "code":
                page = f"page {number}"
                store.run(SavePage(owner=THREAD, text=page, where=Where(ids=way, from_state=True)))
            ways.append(way)
            expected.append(page)
            for known, wanted in zip(ways, expected, strict=True):
                seen = store.run(GetPage(owner=THREAD, where=Where(ids=known, from_state=True)))
                assert seen.text == wanted, (known, steps)
                if known and known[-1] in archived and set(known) <= archived:  # a state that was trimmed to its end
                    seen = store.run(GetPage(owner=THREAD, where=Where(ids=known[-1:], from_state=True)))
                    assert seen.text == wanted, (known, steps)


patches = st.dictionaries(st.sampled_from("abc"), st.none() | st.integers(0, 9), min_size=1, max_size=2)
writes = st.lists(st.tuples(st.integers(0, 5), patches, st.booleans()), min_size=1, max_size=12)


@settings(max_examples=60, deadline=None)
@given(writes=writes)
def test_calls_that_come_again_at_any_time_are_applied_once_in_the_order_of_their_first_time(writes):
    with SQLMemoryStore("memory://") as store:
        io = SyncIO(store)
        expected: Any = {}
        done: dict[int, Any] = {}
        for call, patch, from_code in writes:
            if from_code:
                drive(write_page(io, OPTIONS, RESOURCE, Update(value=patch)))
                expected = merge(expected, patch)
                continue
            first = done.setdefault(call, patch)  # a retry sends what it sent before
            written = drive(
                write_page(io, OPTIONS, RESOURCE, Update(value=first, call=f"ai:{call}", writer="tool"), by_agent=True)
            )
            if written.status == "written":
                expected = merge(expected, first)
            assert json.loads(store.run(GetPage(owner=RESOURCE)).text or "{}") == expected
        assert json.loads(store.run(GetPage(owner=RESOURCE)).text or "{}") == expected
