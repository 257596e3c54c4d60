"""Pages, windows and includes against a model of a few lines of Python."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

START = datetime(2026, 1, 1, tzinfo=UTC)
SETTINGS = settings(
    max_examples=60,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)
COUNTS = st.integers(min_value=0, max_value=7)


@pytest.fixture
def shelf(memory: Any) -> Callable[[list[int]], list[Any]]:
    """Return a function that makes a thread whose messages have these times, and returns them."""
    made = 0

    def make(times: list[int]) -> list[Any]:
        nonlocal made
        made += 1
        messages = [
            {
                "role": "user",
                "content": str(n),
                "created_at": START + timedelta(seconds=time),
                "metadata": {"odd": n % 2},
            }
            for n, time in enumerate(times)
        ]
        memory.create_thread(f"r{made}", thread_id=f"t{made}")
        return list(memory.save_messages(messages, thread_id=f"t{made}"))

    return make


@st.composite
def questions(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a way to ask for messages."""
    asked: dict[str, Any] = {
        "per_page": draw(st.one_of(st.integers(min_value=0, max_value=5), st.just(False))),
        "direction": draw(st.sampled_from([None, "asc", "desc"])),
        "start": draw(st.one_of(st.none(), COUNTS)),
        "end": draw(st.one_of(st.none(), COUNTS)),
        "bounds": draw(st.sampled_from(["[]", "[)", "(]", "()"])),
        "odd": draw(st.sampled_from([None, None, 0, 1])),
        "include": draw(st.lists(st.tuples(COUNTS, COUNTS, COUNTS), max_size=3)),
    }
    asked["page"] = 0 if asked["per_page"] is False else draw(st.integers(min_value=0, max_value=4))
    if asked["start"] is not None and asked["end"] is not None and asked["start"] > asked["end"]:
        asked["start"], asked["end"] = asked["end"], asked["start"]
    return asked


def model(rows: list[Any], asked: dict[str, Any]) -> tuple[list[int], int, bool]:
    """Return the places of the messages that are to be found, the total, and whether there are more pages."""

    def matches(row: Any) -> bool:
        at = (row.created_at - START).total_seconds()
        first, last = asked["start"], asked["end"]
        after = first is None or at > first or (at == first and asked["bounds"][0] == "[")
        before = last is None or at < last or (at == last and asked["bounds"][1] == "]")
        return after and before and asked["odd"] in (None, row.metadata["odd"])

    found = [place for place, row in enumerate(rows) if matches(row)]
    size = len(rows) + 1 if asked["per_page"] is False else asked["per_page"]
    ordered = found if asked["direction"] == "asc" else found[::-1]
    page = ordered[asked["page"] * size : (asked["page"] + 1) * size]
    total = len(found) if size else 0
    has_more = size > 0 and (asked["page"] + 1) * size < total
    shown = set(page)
    for place, before, after in asked["include"]:
        if place < len(rows):
            shown |= set(range(max(0, place - before), min(len(rows), place + after + 1)))
    unfiltered = asked["start"] is None and asked["end"] is None and asked["odd"] is None
    if asked["include"] and unfiltered and len(shown) >= total:
        has_more = False
    return sorted(shown, reverse=asked["direction"] == "desc"), total, has_more


@SETTINGS
@given(times=st.lists(COUNTS, max_size=8), asked=questions())
def test_recall_gives_what_the_model_gives(
    shelf: Callable[[list[int]], list[Any]], memory: Any, times: list[int], asked: dict[str, Any]
) -> None:
    rows = shelf(times)
    thread_id = rows[0].thread_id if rows else "empty"
    ids = [row.id for row in rows]
    found = memory.recall(
        thread_id=thread_id,
        page=asked["page"],
        per_page=asked["per_page"],
        direction=asked["direction"],
        start=None if asked["start"] is None else START + timedelta(seconds=asked["start"]),
        end=None if asked["end"] is None else START + timedelta(seconds=asked["end"]),
        bounds=asked["bounds"],
        metadata=None if asked["odd"] is None else {"odd": asked["odd"]},
        include=[
            {"id": ids[place] if place < len(ids) else "unknown", "with_previous": before, "with_next": after}
            for place, before, after in asked["include"]
        ],
    )
    places, total, has_more = model(rows, asked)
    assert [row.id for row in found] == [ids[place] for place in places]
    assert (found.total, found.has_more) == (total, has_more)


@SETTINGS
@given(
    threads=st.lists(st.lists(COUNTS, max_size=5), min_size=1, max_size=3),
    size=st.integers(min_value=1, max_value=4),
    direction=st.sampled_from([None, "asc", "desc"]),
)
def test_pages_over_several_threads_cover_them_once_in_one_order(
    shelf: Callable[[list[int]], list[Any]], memory: Any, threads: list[list[int]], size: int, direction: Any
) -> None:
    made = [shelf(times) for times in threads]
    rows = [row for thread in made for row in thread]
    if not rows:
        return
    late: dict[str, datetime] = {}
    keyed = []
    for row in rows:  # a message counts as late as the latest before it in its thread
        late[row.thread_id] = max(late.get(row.thread_id, row.created_at), row.created_at)
        keyed.append((late[row.thread_id], rows.index(row), row.id))
    expected = [message_id for _, _, message_id in sorted(keyed)]
    scope = sorted({row.thread_id for row in rows})
    pages, number = [], 0
    while True:
        page = memory.recall(thread_id=scope, page=number, per_page=size, direction=direction)
        assert page.total == len(rows)
        pages.append([row.id for row in page])
        if not page.has_more:
            break
        number += 1
    joined = [row for page in (pages if direction else pages[::-1]) for row in page]
    assert joined == (expected[::-1] if direction == "desc" else expected)
