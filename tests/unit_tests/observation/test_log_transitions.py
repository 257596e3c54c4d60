"""The transitions of the log, one by one, and each condition of a commit on its own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from langchain_mastra_memory.observation import transitions as t
from langchain_mastra_memory.observation.log import (
    START,
    Head,
    LogRow,
    LogState,
    MessageFact,
    Path,
    Span,
    between,
    digest,
    log_tokens,
    rendered,
)

MESSAGES = [
    MessageFact(id=f"m{n}", seq=n, role="human" if n % 2 == 0 else "ai", tokens=10, revision=1) for n in range(12)
]


def row(name, after, upto, *, thread=1, branch=0, tokens=5, **more):
    return LogRow(
        id=name, covers=(Span(thread, branch, after, upto),), text=name, tokens=tokens, message_tokens=50, **more
    )


def state(log=(), buffered=(), pending=None, *, rows=(), head=11, steps=None, **more):
    known = {r.id: r for r in (*log, *buffered, *rows, *([pending] if pending else []))}
    return LogState(
        head=Head(
            epoch="e",
            version=3,
            at=head,
            log=tuple(r.id for r in log),
            buffered=tuple(r.id for r in buffered),
            pending=pending.id if pending else None,
        ),
        rows=known,
        paths={1: Path(1, steps or ((0, head),))},
        **more,
    )


def observed(r, *, epoch="e", target="log", messages=MESSAGES, in_loop=False):
    span = r.covers[0]
    given = digest(between(messages, span.after, span.upto))
    return t.Observed(epoch=epoch, rows=(r,), digests=(given,), target=target, in_loop=in_loop)


A, B, C = row("a", START, 3), row("b", 3, 5), row("c", 5, 9)


def test_an_observation_joins_the_log_and_takes_the_buffered_rows_before_it_along():
    head = t.commit_observed(state([A], [B]), observed(C))
    assert (head.log, head.buffered, head.version) == (("a", "b", "c"), (), 4)


def test_a_buffered_observation_waits_behind_the_others():
    head = t.commit_observed(state([A], [B]), observed(C, target="buffered"))
    assert (head.log, head.buffered) == (("a",), ("b", "c"))


def test_condition_a_a_result_of_another_epoch_is_dropped():
    assert t.commit_observed(state([A], [B]), observed(C, epoch="before")) == t.Refused("epoch")


@pytest.mark.parametrize("late", [row("x", START, 3), row("x", 3, 5), row("x", 7, 9)])
def test_condition_b_a_result_whose_place_is_taken_is_dropped(late):
    assert t.commit_observed(state([A], [B]), observed(late)) == t.Refused("position")


@pytest.mark.parametrize(
    "now",
    [
        [replace(m, revision=2) if m.seq == 7 else m for m in MESSAGES],
        [m for m in MESSAGES if m.seq != 7],
        [replace(m, branch=1) if m.seq == 7 else m for m in MESSAGES],
        [replace(m, id="other") if m.seq == 7 else m for m in MESSAGES],
    ],
    ids=["edited", "deleted", "another branch", "another message"],
)
def test_condition_c_a_result_about_messages_that_changed_is_dropped(now):
    assert t.check_messages(observed(C), {1: MESSAGES}) is None
    assert t.check_messages(observed(C), {1: now}) == t.Refused("digest")


def test_condition_d_an_end_that_a_fork_has_reopened_is_dropped():
    reopened = [m for m in MESSAGES if m.seq <= 8]
    short = row("x", 5, 8)
    assert t.check_messages(observed(short, messages=reopened), {1: [*reopened, MESSAGES[9]]}) is None
    assert t.check_messages(observed(short, messages=reopened), {1: reopened}) == t.Refused("end")


def test_condition_e_a_version_means_nothing_in_another_epoch():
    assert t.same_version(("e", 3), ("e", 3))
    assert not t.same_version(("e", 3), ("e", 4))
    assert not t.same_version(("e", 3), ("other", 3))


def test_condition_e_a_thread_that_moved_to_another_line_is_noticed_and_one_that_grew_is_not():
    read = {1: Path(1, ((0, 5),))}
    assert t.same_lines(read, {1: Path(1, ((0, 9),))})
    assert not t.same_lines(read, {1: Path(1, ((0, 5), (1, 9)))})
    assert not t.same_lines(read, {})


def reflected(rows, *, size=None, target="log", tokens=3, epoch="e"):
    made = t.reflection_of(rows, LogRow(id="r", covers=(), text="r", tokens=tokens))
    return t.Reflected(epoch=epoch, row=made, size=size or sum(r.tokens for r in rows), target=target)


def test_a_reflection_replaces_its_inputs_and_what_came_behind_them_stays():
    head = t.commit_reflected(state([A, B, C]), reflected([A, B]))
    assert head.log == ("r", "c")


def test_a_reflection_covers_what_its_inputs_cover():
    made = reflected([A, B]).row
    assert made.covers == (Span(1, 0, START, 5),)
    assert made.inputs == ("a", "b")


def test_a_reflection_of_rows_that_are_no_longer_the_first_is_dropped():
    assert t.commit_reflected(state([B, C]), reflected([A, B])) == t.Refused("prefix")


def test_a_reflection_of_another_epoch_is_dropped():
    assert t.commit_reflected(state([A, B]), reflected([A, B], epoch="x")) == t.Refused("epoch")


@pytest.mark.parametrize("tokens", [10, 12])
def test_a_reflection_that_is_not_smaller_is_refused(tokens):
    assert t.commit_reflected(state([A, B]), reflected([A, B], tokens=tokens)) == t.Refused("size")


def test_at_most_one_reflection_waits():
    waiting = reflected([A]).row
    assert t.commit_reflected(state([A, B], pending=waiting), reflected([A, B], target="pending")) == t.Refused(
        "pending"
    )


def test_a_waiting_reflection_is_activated_and_keeps_what_came_behind():
    waiting = reflected([A, B]).row
    head = t.activate_reflection(state([A, B, C], pending=waiting))
    assert (head.log, head.pending) == (("r", "c"), None)


def test_a_waiting_reflection_whose_rows_are_gone_is_dropped():
    waiting = reflected([A, B]).row
    head = t.activate_reflection(state([A, C], rows=[B], pending=waiting))
    assert (head.log, head.pending) == (("a", "c"), None)


def test_a_reflection_made_while_an_input_was_edited_is_marked():
    now = state([replace(A, stale=True), B])
    assert t.as_committed(now, reflected([A, B]).row).stale


def test_activation_moves_the_first_rows_and_does_nothing_without_any():
    head = t.activate(state([A], [B, C]), 1)
    assert (head.log, head.buffered) == (("a", "b"), ("c",))
    assert t.activate(state([A]), 1) is None


def test_an_edited_buffered_row_leaves_the_buffer_with_those_behind_it():
    head = t.edited(state([A], [B, C]), {"b"})
    assert (head.log, head.buffered) == (("a",), ())
    assert t.edited(state([A], [B, C]), {"c"}).buffered == ("b",)


def test_an_edited_covered_message_stays_covered_and_the_head_moves_on_so_that_others_notice():
    head = t.edited(state([A], [B]), {"a"})
    assert (head.log, head.buffered, head.version) == (("a",), ("b",), 4)


def test_an_edit_of_a_raw_message_changes_nothing():
    assert t.touched([A, B], [(1, 8)]) == set()
    assert t.edited(state([A], [B]), set()) is None


def test_every_row_made_from_a_message_is_touched_in_view_or_not():
    abandoned = row("old", START, 7, branch=3)
    made = reflected([A, B]).row
    assert t.touched([A, B, C, abandoned, made], [(1, 2)]) == {"a", "old", "r"}
    assert t.touched([A], [(2, 2)]) == set()


def test_a_fork_inside_a_reflected_range_brings_back_the_inputs_that_end_before_it():
    made = reflected([A, B]).row
    forked = state([made, C], rows=[A, B], steps=((0, 4), (1, 12)))
    settled = t.settle(forked)
    assert (settled.head.log, settled.head.buffered) == (("a",), ())
    assert settled.cursor(1) == 3


def test_a_fork_keeps_paid_work_in_the_buffer():
    settled = t.settle(state([], rows=[A, B, C], steps=((0, 5), (1, 12))))
    assert (settled.head.log, settled.head.buffered) == ((), ("a", "b"))


def test_a_state_that_is_sound_settles_to_itself():
    sound = state([A], [B, C])
    assert t.settle(sound) == sound


def test_a_stale_row_never_rejoins_the_buffer():
    settled = t.settle(state([A], rows=[replace(B, stale=True), C]))
    assert settled.head.buffered == ()


def test_a_fork_takes_the_head_that_held_at_the_fork_point():
    early = Head(epoch="e", version=1, at=5, log=(), buffered=("a",))
    late = Head(epoch="e", version=2, at=11, log=("a", "b"))
    assert t.head_for([early, late], Path(1, ((0, 6), (1, 8))), "e").buffered == ("a",)
    assert t.head_for([early, late], Path(1, ((0, 11),)), "e").log == ("a", "b")
    assert t.head_for([early, late], Path(1, ((0, 2),)), "e").version == 0


def test_a_thread_leaves_a_shared_log_with_everything_made_from_it():
    other = row("o", START, 5, thread=2)
    made = reflected([A, other]).row
    shared = LogState(
        head=Head(epoch="e", version=3, log=("r", "b")),
        rows={r.id: r for r in (A, B, other, made)},
        paths={1: Path(1, ((0, 11),)), 2: Path(2, ((0, 11),))},
    )
    head, gone = t.without_thread(shared, 1, "new")
    assert (head.log, head.epoch) == (("o",), "new")
    assert gone == {"a", "b", "r"}


def test_a_clone_keeps_ranges_and_changes_only_ids_thread_and_branch():
    made = reflected([A, B]).row
    copies = t.copied([made, A], {"r": "r2", "a": "a2", "b": "b2"}, source=1, thread=9, branch=0)
    assert copies[0].inputs == ("a2", "b2")
    assert copies[0].covers == (Span(9, 0, START, 5),)
    assert copies[1].text == "a"


def test_copies_whose_origin_is_in_view_are_not_shown_and_weigh_nothing():
    copy = row("copy", START, 3, thread=2, origin="a")
    shared = LogState(
        head=Head(epoch="e", version=3, log=("a", "copy")),
        rows={"a": A, "copy": copy},
        paths={1: Path(1, ((0, 11),)), 2: Path(2, ((0, 11),))},
    )
    assert [r.id for r in rendered(shared)] == ["a"]
    assert log_tokens(shared) == A.tokens
    orphan = replace(shared, head=replace(shared.head, log=("copy",)))
    assert [r.id for r in rendered(orphan)] == ["copy"]


def test_a_stale_row_is_replaced_and_reflections_made_from_it_open_up():
    made = reflected([A, B]).row
    fresh = row("a2", START, 3)
    now = state([made, C], rows=[A, B]).with_rows([fresh])
    assert t.reobserved(now, fresh, "a").log == ("a2", "b", "c")
    assert t.reobserved(now, fresh, "nobody") == t.Refused("gone")
