"""What the real Mastra did with threads and messages, through our public API; where ours differs, ours is asserted."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from langchain_mastra_memory.testing.clock import FrozenClock
from tests.golden import ERROR, NOW, Difference, load_cases, memory_options, run_case

CASES = load_cases("03_list_threads", "04_recall", "05_clone_thread", "06_thread_ownership")


def page(*ids: str, total: int, per_page: int | bool = False, number: int = 0, has_more: bool = False) -> Any:
    return {"ids": list(ids), "total": total, "page": number, "per_page": per_page, "has_more": has_more}


def thread(thread_id: str, resource_id: str, title: str, metadata: Any = None, updated_at: str = "<now>") -> Any:
    return {
        "id": thread_id,
        "resource_id": resource_id,
        "title": title,
        "metadata": metadata,
        "created_at": "2025-01-01T10:00:00.000Z",
        "updated_at": updated_at,
    }


def documented(
    *, last: str | None = None, source: dict[str, Any] | None = None, **changed: Any
) -> Callable[[Any], Any]:
    """Return a clone as documented: with the source's metadata, and the source's last message."""
    inherited = {"a": 1, "b": "x"} if source is None else source

    def ours(recorded: Any) -> Any:
        whole = "thread" in recorded
        found = recorded["thread"] if whole else recorded
        clone = {**found["metadata"]["clone"], **({"lastMessageId": last} if last else {})}
        own = {key: value for key, value in found["metadata"].items() if key not in ("clone", "workingMemory")}
        found = {**found, "metadata": {**inherited, **own, "clone": clone}}
        return {**recorded, "thread": found, **changed} if whole else {**found, **changed}

    return ours


def copied(*ids: str, first: int) -> dict[str, Any]:
    """Return the parts of a clone that has these messages of the thread m1 to m5."""
    new = {old: f"<gen:{first + place}>" for place, old in enumerate(ids)}
    return {
        "cloned_from_ids": list(ids),
        "cloned_texts": [f"text {old}" for old in ids],
        "messages": [
            {
                "id": new[old],
                "role": "user" if int(old[1]) % 2 else "assistant",
                "thread_id": "c3" if first == 3 else "c4",
                "resource_id": "r1",
                "created_at": f"2025-01-01T10:00:0{old[1]}.000Z",
                "text": f"text {old}",
            }
            for old in ids
        ],
        "message_id_map": new,
    }


MERGED = "the source's metadata is merged into the clone's, as documented (fault 21)"
LAST = f"{MERGED}; last_message_id is the last of the source, as documented"
TIES = "equal times are ordered by id (fault 46)"
LITERAL = "a limit of 0 and an empty list mean none, a negative limit nothing that we could do"
KEPT = "a thread has one owner for life, and creating it again changes nothing (fault 5)"
REFUSED = "saving checks the owner (fault 48)"
TRANSFER = "the metadata is returned as it is stored (fault 25)"
REMOVED = "None removes a key (fault 50)"

ALL7 = ("t7", "t6", "t5", "t4", "t3", "t2", "t1")
BY_UPDATE = page("t1", "t4", "t7", "t6", "t5", "t2", "t3", total=7, per_page=100)
ALL10 = tuple(f"m{n}" for n in range(1, 11))
AGENT = {"text": "Hello"}

DELIBERATE: dict[str, Difference] = {
    "lt-resource": Difference("an empty id is an error and never means everything", {8: ERROR}),
    "lt-order": Difference(
        f"{TIES}; an unknown order is refused", {10: BY_UPDATE, 11: BY_UPDATE, 13: ERROR, 14: ERROR}
    ),
    "lt-order-ties": Difference(
        TIES,
        {
            10: page("qc", "qb", "qa", total=3, per_page=100),
            11: page("qa", "qb", "qc", total=3, per_page=100),
            12: page("qc", "qb", total=3, per_page=2, has_more=True),
            13: page("qa", total=3, per_page=2, number=1),
        },
    ),
    "lt-meta-bool": Difference(
        "true is not 1 (fault 44)", {9: page(total=0, per_page=100), 10: page(total=0, per_page=100)}
    ),
    "lt-meta-null": Difference(
        "null matches an explicit null only (fault 44)",
        {7: page("t3", total=1, per_page=100), 8: page(total=0, per_page=100)},
    ),
    "rc-per-page-false": Difference("everything has one page, here as in list_threads (fault 45)", {7: ERROR}),
    "rc-explicit-desc": Difference(
        "desc turns the page round (fault 37)",
        {
            6: page("m10", "m9", "m8", total=10, per_page=3, has_more=True),
            7: page(*ALL10[::-1], total=10),
        },
    ),
    "rc-unknown-thread": Difference("ids are any characters, spaces too", {10: page(total=0, per_page=5)}),
    "rc-include-basic": Difference(
        "include is honoured, as documented (fault 15)",
        {
            6: page("m4", "m5", "m6", "m7", total=0, per_page=0),
            7: page("m5", total=0, per_page=0),
            8: page("m1", total=0, per_page=0),
            9: page("m10", total=0, per_page=0),
        },
    ),
    "rc-recall-include-ignored": Difference(
        "include is honoured, as documented (fault 15)",
        {6: page("m1", "m9", "m10", total=10, per_page=2, has_more=True)},
    ),
    "rc-inc-cross-thread": Difference(
        "include reaches this owner's messages only (fault 43)", {9: page(total=0, per_page=0)}
    ),
    "rc-unknown-in-thread-list": Difference("a thread of somebody else's is as good as missing: refused", {7: ERROR}),
    "rc-inc-ties": Difference(
        "neighbours are chosen by seq (fault 42)",
        {2: page("a", total=0, per_page=0), 3: page("c", total=0, per_page=0)},
    ),
    "rc-save-errors": Difference(
        "the owner is the thread's and needs not be named; seqs, times and totals follow",
        {7: {"message_ids": ["q"]}},
    ),
    "cl-basic": Difference(MERGED, {2: documented(), 4: documented()}),
    "cl-generated-id": Difference(MERGED, {2: documented()}),
    "cl-title": Difference(MERGED, {1: documented(), 2: documented(), 3: documented(), 6: documented()}),
    "cl-metadata": Difference(MERGED, {2: documented(), 3: documented(), 4: documented()}),
    "cl-last-message-id": Difference(LAST, {1: documented(), 3: documented(last="m5"), 4: documented(last="m5")}),
    "cl-limit": Difference(
        f"{MERGED}; {LITERAL}",
        {
            **{place: documented() for place in (2, 3, 4, 5)},
            6: documented(cloned_from_ids=[], cloned_texts=[], messages=[], message_id_map={}),
            7: ERROR,
        },
    ),
    "cl-dates": Difference(LAST, {place: documented(last="m5") for place in (2, 3, 4, 5)}),
    "cl-ids": Difference(
        f"{LAST}; {LITERAL}",
        {
            **{place: documented(last="m5") for place in (4, 5)},
            6: documented(last="m5", cloned_from_ids=[], cloned_texts=[], messages=[], message_id_map={}),
            7: documented(last="m5", **copied("m1", first=4)),
        },
    ),
    "cl-combined": Difference(LAST, {place: documented(last="m5") for place in (2, 3)}),
    "cl-other-resource": Difference(MERGED, {2: documented()}),
    "cl-copy": Difference(LAST, {2: documented(), 4: documented(last="m5")}),
    "cl-clone-wm-resource-same": Difference(MERGED, {2: documented()}),
    "cl-clone-wm-resource-other": Difference(MERGED, {2: documented()}),
    "cl-clone-wm-resource-overwrite": Difference(
        f"{MERGED}; a page that is there is never overwritten (fault 27)", {3: documented(), 4: "THEIRS"}
    ),
    "cl-clone-wm-resource-empty": Difference(MERGED, {2: documented()}),
    "cl-clone-wm-thread": Difference(
        f"{MERGED}; the page is no part of the thread's metadata", {2: documented(), 6: documented()}
    ),
    "cl-clone-wm-thread-other": Difference(MERGED, {2: documented()}),
    "cl-copy-wm-resource-same": Difference(MERGED, {2: documented()}),
    "cl-copy-wm-resource-other": Difference(MERGED, {2: documented()}),
    "cl-copy-wm-resource-empty": Difference(MERGED, {2: documented()}),
    "cl-copy-wm-thread-other": Difference(MERGED, {2: documented()}),
    "cl-wm-metadata-arg": Difference(f"{MERGED}; what was given wins (fault 28)", {2: documented(), 3: "GIVEN"}),
    "cl-utils-deleted-source": Difference(
        f"{MERGED}; clones of a deleted source are found (fault 53)", {1: documented(), 2: documented(), 7: ["c2"]}
    ),
    "cl-utils-metadata-lost": Difference(
        f"{MERGED}; {KEPT}",
        {
            1: documented(),
            2: documented(),
            4: lambda _: {
                **thread("c1", "r1", "T"),
                "metadata": {"a": 1, "b": "x", "clone": {"sourceThreadId": "s", "clonedAt": "<now>"}, "k": 1},
                "created_at": "<now>",
            },
            5: True,
        },
    ),
    "ow-save-other-resource": Difference(REFUSED, {1: ERROR, 2: page("a", total=1), 5: page(total=0)}),
    "ow-transfer": Difference(TRANSFER, {2: thread("t1", "r2", "t1", {"a": 1})}),
    "ow-transfer-errors": Difference(
        "an empty id is an error (fault 52)",
        {2: ERROR, 3: thread("t1", "r1", "t1", updated_at="2025-01-01T10:00:00.000Z")},
    ),
    "ow-transfer-mixed": Difference(REFUSED, {1: ERROR, 3: page("a", total=1)}),
    "ow-delete-messages-shapes": Difference("integers are taken as their strings", {14: None}),
    "ow-delete-messages-cross": Difference(
        "ids of another thread are refused, and nothing is removed",
        {4: ERROR, 5: page("a", total=1), 6: page("b", total=1)},
    ),
    "ow-update-merge": Difference(
        REMOVED, {place: thread("t1", "r1", "t1", {"n": {"x": 9}, "l": [3], "b": 2}) for place in (2, 3, 4)}
    ),
    "ow-updated-at": Difference(
        "each thread that got a message is refreshed (fault 49)", {5: thread("t2", "r1", "t2")}
    ),
    "ow-updated-at-recall": Difference(KEPT, {5: thread("t3", "r1", "t3"), 6: thread("t3", "r1", "t3")}),
    "ow-agent-foreign-thread": Difference("a page, not a list", {2: page(total=0, per_page=10)}),
    "ow-agent-missing-ids": Difference(
        "features of thread scope need no resource; without a thread there is nothing to remember", {0: AGENT}
    ),
}

PLAIN = [case for case in CASES if "generator" not in case["input"]]


@pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for case in PLAIN])
def test_the_recorded_case_gives_the_same_or_what_we_do_on_purpose(
    case: dict[str, Any], memory_factory: Callable[..., Any], store_url: str
) -> None:
    clock = FrozenClock(NOW)
    memory = memory_factory(store_url, clock=clock, **memory_options(case["input"].get("memory_options", {})))
    run_case(case, memory, clock, DELIBERATE.get(case["id"]))


def test_a_page_of_threads_has_a_hundred_by_default(memory_factory: Callable[..., Any], store_url: str) -> None:
    """Case lt-default-page-size: 103 threads, a minute apart."""
    clock = FrozenClock(NOW)
    memory = memory_factory(store_url, clock=clock)
    for number in range(103):
        clock.set(NOW + timedelta(minutes=number))
        memory.create_thread("many", thread_id=f"m{number}")
    first, second = memory.list_threads("many"), memory.list_threads("many", page=1)
    assert (first.total, len(first), first.has_more, first[0].id, first[-1].id) == (103, 100, True, "m102", "m3")
    assert (second.total, len(second), second.has_more, second[0].id, second[-1].id) == (103, 3, False, "m2", "m0")


def test_every_deliberate_difference_is_one_of_a_recorded_case() -> None:
    assert DELIBERATE.keys() <= {case["id"] for case in PLAIN}
