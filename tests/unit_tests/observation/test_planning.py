"""When what is observed, activated and reflected on; the numbers are those of the design."""

from __future__ import annotations

import pytest

from langchain_mastra_memory.observation.log import START, MessageFact
from langchain_mastra_memory.observation.planning import (
    Limits,
    Step,
    batches,
    choose,
    is_tool_loop,
    plan_messages,
    plan_reflection,
    should_buffer,
    tail,
    tokens,
)

DEFAULTS = Limits(
    message_tokens=30_000,
    buffer_tokens=6_000,
    retention=6_000,
    block_after=36_000,
    observation_tokens=40_000,
    reflect_from=20_000,
    reflect_block=48_000,
)
SMALL = Limits(
    message_tokens=400,
    buffer_tokens=80,
    retention=80,
    block_after=480,
    observation_tokens=300,
    reflect_from=150,
    reflect_block=360,
)
WIDE = Limits(
    message_tokens=30_000,
    buffer_tokens=5_000,
    retention=25_000,
    block_after=36_000,
    observation_tokens=40_000,
    reflect_from=20_000,
    reflect_block=48_000,
)


@pytest.mark.parametrize(
    ("limits", "pending", "rows", "count", "left"),
    [
        (DEFAULTS, 30_000, [6_000] * 4, 4, 6_000),
        (DEFAULTS, 30_500, [6_000] * 4, 4, 6_500),
        (DEFAULTS, 31_000, [6_000] * 5, 5, 1_000),
        (DEFAULTS, 30_000, [6_000] * 3, 3, 12_000),
        (DEFAULTS, 30_100, [29_500], 1, 600),
        (WIDE, 30_500, [5_000, 24_800], 1, 25_500),
        (WIDE, 36_500, [5_000, 24_800], 2, 6_700),
        (SMALL, 433, [91, 91, 91], 3, 160),
        (SMALL, 433, [91] * 4, 3, 160),
        (SMALL, 420, [85] * 4, 4, 80),
        (SMALL, 479, [230, 230], 1, 249),
    ],
)
def test_activation_takes_as_many_rows_as_leave_the_retention_floor(limits, pending, rows, count, left):
    assert choose(rows, pending, limits) == count
    assert pending - sum(rows[:count]) == left


def message(seq, role="human", tokens=10, *, calls=(), answers=None, hidden=False):
    return MessageFact(
        id=f"m{seq}", seq=seq, role=role, tokens=tokens, calls=tuple(calls), answers=answers, hidden=hidden
    )


def talk(*sizes):
    return [message(seq, "human" if seq % 2 == 0 else "ai", size) for seq, size in enumerate(sizes)]


def test_below_the_threshold_nothing_is_activated_or_observed():
    found = tail(talk(100, 100, 100), START, START)
    assert plan_messages(SMALL, found, [90], 0) == Step()


def test_the_running_question_counts_but_is_never_observed():
    found = tail(talk(200, 100, 150), START, START)
    assert found.pending == 450
    assert [m.id for m in found.closed] == ["m0", "m1"]


def test_buffered_rows_are_activated_before_anything_is_observed():
    found = tail(talk(200, 100, 150), START, 1)
    assert plan_messages(SMALL, found, [300], 0) == Step(activate=1, trigger="threshold")


def test_at_the_threshold_with_nothing_buffered_the_closed_messages_are_observed():
    assert plan_messages(SMALL, tail(talk(200, 100, 150), START, START), [], 0).observe == "closed"


def test_closed_messages_smaller_than_a_buffer_are_not_worth_a_blocking_call():
    assert plan_messages(SMALL, tail(talk(20, 20, 500), START, START), [], 0) == Step()


def test_idle_time_and_a_change_of_provider_activate_early():
    found = tail(talk(100, 100, 10), START, 1)
    assert plan_messages(SMALL, found, [200], 0, idle=True) == Step(activate=1, trigger="ttl")
    assert plan_messages(SMALL, found, [200], 0, provider_change=True) == Step(activate=1, trigger="provider_change")
    assert plan_messages(SMALL, found, [], 0, idle=True) == Step()


def test_in_a_tool_loop_closed_units_of_the_turn_but_the_newest_are_observed_when_nothing_else_suffices():
    loop = [message(0, tokens=50)]
    for n in range(3):
        loop += [message(1 + 2 * n, "ai", 60, calls=[f"c{n}"]), message(2 + 2 * n, "tool", 60, answers=f"c{n}")]
    found = tail(loop, START, START)
    assert found.closed == ()
    assert [m.id for m in found.loop] == ["m0", "m1", "m2", "m3", "m4"]
    assert plan_messages(SMALL, found, [], 0).observe == "loop"
    assert is_tool_loop(loop)


def test_messages_may_use_what_the_log_leaves_of_a_shared_budget():
    shared = Limits(
        message_tokens=400,
        buffer_tokens=None,
        retention=0,
        block_after=480,
        observation_tokens=300,
        reflect_from=None,
        reflect_block=300,
        share=True,
    )
    assert shared.threshold(0) == 700
    assert shared.threshold(100) == 600
    assert shared.threshold(500) == 400


def test_the_background_buffers_when_the_closed_messages_hold_a_buffer():
    assert not should_buffer(SMALL, tail(talk(40, 39, 500), START, START))
    assert should_buffer(SMALL, tail(talk(40, 40, 500), START, START))
    off = Limits(
        message_tokens=400,
        buffer_tokens=None,
        retention=0,
        block_after=480,
        observation_tokens=300,
        reflect_from=None,
        reflect_block=300,
    )
    assert not should_buffer(off, tail(talk(40, 40, 500), START, START))


@pytest.mark.parametrize(
    ("tokens", "pending", "refused_at", "early", "step"),
    [
        (149, False, None, False, None),
        (150, False, None, False, "buffer"),
        (299, True, None, False, None),
        (300, True, None, False, "activate"),
        (200, True, None, True, "activate"),
        (310, False, None, False, "buffer"),
        (360, False, None, False, "block"),
        (360, False, 300, False, None),
        (375, False, 300, False, "block"),
    ],
)
def test_reflection_buffers_activates_blocks_and_backs_off(tokens, pending, refused_at, early, step):
    found = plan_reflection(SMALL, tokens, rows=2, pending=pending, refused_at=refused_at, early=early)
    assert found == step


def test_without_buffering_a_reflection_blocks_at_its_threshold():
    plain = Limits(
        message_tokens=400,
        buffer_tokens=None,
        retention=0,
        block_after=480,
        observation_tokens=300,
        reflect_from=None,
        reflect_block=360,
    )
    assert plan_reflection(plain, 299, rows=1, pending=False) is None
    assert plan_reflection(plain, 300, rows=1, pending=False) == "block"


def test_oversized_input_is_split_where_units_end_and_none_of_it_is_skipped():
    messages = talk(40, 40, 40, 40, 200, 10)
    found = batches(messages, 100)
    assert [m for batch in found for m in batch] == messages
    assert [tokens(batch) for batch in found] == [80, 80, 200, 10]


def test_in_a_tool_loop_that_would_stay_too_long_its_closed_units_are_observed_at_once():
    loop = [message(0, tokens=60), message(1, "ai", 60), message(2, tokens=20)]
    for n in range(4):
        loop += [message(3 + 2 * n, "ai", 60, calls=[f"c{n}"]), message(4 + 2 * n, "tool", 60, answers=f"c{n}")]
    found = tail(loop, START, START)
    assert found.closed_tokens == 120
    assert plan_messages(SMALL, found, [], 0).observe == "loop"
    assert plan_messages(SMALL, tail(loop[:-2], START, START), [], 0).observe == "closed"
