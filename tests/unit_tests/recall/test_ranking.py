"""The ranking formula and the index over plain arrays."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from langchain_mastra_memory.recall.index import ScopeIndex, TextRow, VectorRow
from langchain_mastra_memory.recall.options import Weights
from langchain_mastra_memory.recall.ranking import Match, View, above_median, best, idf, lexical, pick, rank
from langchain_mastra_memory.recall.terms import Tokenizer
from langchain_mastra_memory.recall.vectors import QueryVector, quantize, scales_of, unpack

TOKENIZER = Tokenizer()
ALL = ((0, 10**9),)


def index_of(*threads: list[str], vectors: dict[int, list[float]] | None = None) -> ScopeIndex:
    """Make an index: thread 1 has the texts of the first list, ids count on from 0."""
    index, number = ScopeIndex(), 0
    for key, texts in enumerate(threads, 1):
        rows = [TextRow(number + i, key, i, 0, TOKENIZER.document(text)) for i, text in enumerate(texts)]
        index.add(rows)
        index.place(key, ALL)
        number += len(rows)
    rows = [VectorRow(i, 1, text, quantize(vector)) for i, (text, vector) in enumerate((vectors or {}).items())]
    index.add_vectors(rows)
    return index


def search(
    index: ScopeIndex, query: str, vector: list[float] | None = None, mode: str = "hybrid", k: int = 10
) -> list[tuple[int, float]]:
    view = index.view()
    cosines = index.cosines(view, QueryVector.of(vector)) if vector else None
    ranked = rank(view, index.matches(view, TOKENIZER.query(query)), cosines, mode)  # type: ignore[arg-type]
    return [(int(view.age[p]), float(ranked.own[p])) for p in best(view, ranked, k)[:k]]


def test_bm25_is_the_textbook_formula_over_its_bound() -> None:
    texts = ["zebra zebra lion", "lion", "monkey rocket moon planet"]
    index = index_of(texts)
    view = index.view()
    messages, _ = lexical(view, index.matches(view, TOKENIZER.query("zebra lion nowhere")))
    weights = {"zebra": idf(3, 1), "lion": idf(3, 2), "nowhere": idf(3, 0)}
    average, bound = 8 / 3, 2.2 * sum(weights.values())

    def term(word: str, count: int, length: int) -> float:
        return weights[word] * count * 2.2 / (count + 1.2 * (1 - 0.9 + 0.9 * length / average))

    expected = [(term("zebra", 2, 3) + term("lion", 1, 3)) / bound, term("lion", 1, 1) / bound, 0.0]
    assert messages.tolist() == pytest.approx(expected)
    assert idf(3, 1) == pytest.approx(math.log(1 + 2.5 / 1.5))


def test_the_vector_half_is_what_is_above_the_median() -> None:
    assert above_median(np.array([0.0, 0.5, 1.0, np.nan])).tolist() == [0.0, 0.0, 1.0, 0.0]
    assert above_median(np.array([1.0, 1.0])).tolist() == [1.0, 1.0]
    assert above_median(np.array([np.nan])).tolist() == [0.0]


def test_squeezed_cosines_give_the_same_vector_half() -> None:
    cosines = np.array([0.1, 0.2, 0.6, 0.9, 0.15])
    assert above_median(0.75 + 0.25 * cosines) == pytest.approx(above_median(cosines))


def test_own_score_is_seven_tenths_words_and_three_tenths_vector() -> None:
    index = index_of(["zebra lion", "monkey", "rocket"], vectors={0: [0, 1], 1: [1, 0], 2: [0, 1]})
    view = index.view()
    matches = index.matches(view, TOKENIZER.query("zebra"))
    cosines = index.cosines(view, QueryVector.of([1, 0]))
    ranked = rank(view, matches, cosines)
    assert ranked.own.tolist() == pytest.approx((0.7 * ranked.lex + 0.3 * ranked.vec).round(6).tolist())
    assert ranked.vec.tolist() == pytest.approx([0, 1, 0])


def test_a_neighbour_of_a_good_message_rises_and_less_when_it_is_long() -> None:
    index = index_of(["long " * 300, "zebra zebra", "short"])
    found = search(index, "zebra", mode="lexical")
    assert [text for text, _ in found] == [1, 2, 0]
    assert found[1][1] == found[2][1] == 0.0


def test_neighbours_never_cross_threads() -> None:
    index = index_of(["monkey", "zebra"], ["monkey", "rocket"])
    assert [text for text, _ in search(index, "zebra", mode="lexical")] == [1, 0]


def test_a_thread_about_the_question_lifts_its_messages() -> None:
    index = index_of(["pasta", "zebra"], ["zebra", "zebra stripes", "zebra food"], ["moon"] * 20)
    first, second = search(index, "zebra", mode="lexical")[:2]
    assert {first[0], second[0]} <= {2, 3, 4}


def test_ties_go_to_the_newer_message() -> None:
    index = index_of(["zebra", "x", "x", "x", "zebra"])
    assert [text for text, _ in search(index, "zebra", mode="lexical", k=2)] == [4, 0]


def test_without_any_vector_hybrid_is_lexical() -> None:
    index = index_of(["zebra", "lion"])
    assert search(index, "zebra", [1.0, 0.0]) == search(index, "zebra", mode="lexical")


def test_a_message_without_a_word_or_a_vector_in_common_is_no_hit() -> None:
    assert search(index_of(["zebra", "x", "x", "x", "lion"]), "giraffe") == []
    assert [text for text, _ in search(index_of(["zebra", "x", "x", "x", "lion"]), "zebra")] == [0, 1, 2]


def test_a_query_of_nothing_finds_nothing_by_words() -> None:
    assert search(index_of(["zebra"]), "", mode="lexical") == []
    assert search(ScopeIndex(), "zebra") == []


def test_a_threshold_is_on_the_own_score() -> None:
    index = index_of(["zebra", "lion", "monkey"], vectors={0: [1, 0], 1: [0.5, 0.5], 2: [0, 1]})
    view = index.view()
    ranked = rank(view, [], index.cosines(view, QueryVector.of([1, 0])), "vector")
    assert best(view, ranked, 10, threshold=0.9).tolist() == [0]
    assert ranked.own[0] == 1.0


def test_only_allowed_messages_are_returned_but_all_count_in_the_statistics() -> None:
    index = index_of(["zebra", "zebra", "lion"])
    view = index.view()
    ranked = rank(view, index.matches(view, TOKENIZER.query("zebra")), None)
    assert best(view, ranked, 10, allowed=np.array([True, False, False])).tolist() == [0]


def test_a_hit_shown_beside_a_better_one_takes_no_place() -> None:
    eight = np.arange(8)
    view = View(eight, np.array([7, 8]), eight, eight, np.array([0, 0, 0, 0, 0, 0, 1, 1]), np.ones(8), eight)
    assert pick(view, np.array([2, 3, 5, 6, 1]), 3, before=1, after=1) == [2, 5, 6]
    assert pick(view, np.array([2, 3, 1]), 3, before=1, after=0) == [2, 3]
    assert pick(view, np.array([2, 3]), 3, before=0, after=0) == [2, 3]
    assert pick(view, np.array([6, 5]), 3, before=1, after=1) == [6, 5]  # of another thread


def test_a_message_counts_once_with_its_best_chunk() -> None:
    index = index_of(["a", "b"])
    far, near = quantize([0.0, 1.0]), quantize([1.0, 0.0])
    index.add_vectors([VectorRow(0, 1, 0, far), VectorRow(1, 1, 0, near), VectorRow(2, 1, 1, far)])
    view = index.view()
    assert index.cosines(view, QueryVector.of([1.0, 0.0])) == pytest.approx([1.0, 0.0])


def test_messages_without_a_vector_have_none() -> None:
    index = index_of(["a", "b"], vectors={1: [1, 0]})
    view = index.view()
    cosines = index.cosines(view, QueryVector.of([1, 0]))
    assert cosines is not None
    assert np.isnan(cosines[0])
    assert cosines[1] == pytest.approx(1)


def test_vectors_of_unknown_messages_are_left_out() -> None:
    index = index_of(["a"], vectors={99: [1, 0]})
    assert index.dimension is None


def test_candidates_of_an_outside_index_count_and_the_others_have_the_last_ones_cosine() -> None:
    index = index_of(["a", "b", "c", "d"])
    view = index.view()
    cosines = index.candidates(view, {1: 0.9, 3: 0.4, 77: 0.95}, complete=False)
    assert cosines is not None
    assert cosines.tolist() == [0.4, 0.9, 0.4, 0.4]
    assert index.candidates(view, {}, complete=True) is None


def test_when_an_outside_index_returned_all_that_it_has_the_others_have_no_vector() -> None:
    index = index_of(["a", "b"])
    cosines = index.candidates(index.view(), {1: 0.9}, complete=True)
    assert cosines is not None
    assert np.isnan(cosines[0])
    assert cosines[1] == 0.9


def test_products_are_exact_whatever_the_order_of_the_rows() -> None:
    numbers = np.random.default_rng(7)
    packed = [quantize(row) for row in numbers.normal(size=(257, 384))]
    query = QueryVector.of(numbers.normal(size=384).tolist())
    rows = [np.frombuffer(v, dtype=np.int8).astype(np.float32) for v in packed]
    scales = scales_of(np.stack(rows))
    whole = query.cosines(np.stack(rows), scales)
    for size in (1, 3, 17):
        parts = [query.cosines(np.stack(rows[i : i + size]), scales[i : i + size]) for i in range(0, 257, size)]
        assert np.concatenate(parts).tobytes() == whole.tobytes()


def test_quantized_cosines_are_close_to_the_true_ones() -> None:
    numbers = np.random.default_rng(3)
    a, b = numbers.normal(size=(2, 512))
    row = unpack([quantize(a)], 512)
    found = QueryVector.of(b.tolist()).cosines(row, scales_of(row))
    assert found[0] == pytest.approx(float(a @ b / np.linalg.norm(a) / np.linalg.norm(b)), abs=0.005)


@pytest.mark.parametrize("vector", [[], [float("nan")], [float("inf"), 1.0], [[1.0]]])
def test_a_vector_that_is_none_is_refused(vector: list[float]) -> None:
    with pytest.raises(ValueError, match="embedding"):
        quantize(vector)


def test_a_zero_vector_is_like_nothing() -> None:
    row = unpack([quantize([0.0, 0.0])], 2)
    assert scales_of(row).tolist() == [0.0]
    assert QueryVector.of([1.0, 0.0]).cosines(row, scales_of(row)).tolist() == [0.0]
    assert QueryVector.of([0.0, 0.0]).cosines(np.ones((1, 2), dtype=np.float32), np.array([1.0])).tolist() == [0.0]


def test_a_branch_sees_its_own_rows_and_its_ancestors_up_to_the_cut() -> None:
    index = ScopeIndex()
    rows = [
        (0, 0, 0, "one"),
        (1, 1, 0, "two"),
        (2, 2, 0, "three"),
        (3, 2, 1, "fork"),
        (4, 1, 1, "override"),
        (5, 3, 1, "four"),
    ]
    index.add([TextRow(i, 1, seq, branch, TOKENIZER.document(text)) for i, seq, branch, text in rows])
    index.place(1, ((0, 2),))
    assert index.view().age.tolist() == [0, 1, 2]
    index.place(1, ((0, 1), (1, 3)))
    assert index.view().age.tolist() == [0, 4, 3, 5]
    assert index.view({1: ((0, 0),)}).age.tolist() == [0]
    assert index.view(threads=[2]).age.tolist() == []
    index.place(1, ((0, 1), (1, 2)))
    assert index.view().age.tolist() == [0, 4, 3]


def test_an_index_that_grew_dropped_and_reloaded_answers_like_a_fresh_one() -> None:
    chance = random.Random(11)
    words = [
        "zebra",
        "lion",
        "tiger",
        "monkey",
        "rocket",
        "moon",
        "planet",
        "guitar",
        "piano",
        "violin",
        "bread",
        "ocean",
    ]
    live: dict[int, list[tuple[TextRow, VectorRow]]] = {}
    index, number = ScopeIndex(), 0

    def new_row(key: int) -> tuple[TextRow, VectorRow]:
        nonlocal number
        number += 1
        v = quantize([chance.gauss(0, 1) for _ in range(16)])
        blob = TOKENIZER.document(" ".join(chance.choices(words, k=chance.randint(0, 30))))
        return TextRow(number, key, number, 0, blob), VectorRow(number, key, number, v)

    for _ in range(150):
        key, what = chance.randint(1, 6), chance.random()
        rows = live.setdefault(key, [])
        if what < 0.7:
            new = [new_row(key) for _ in range(chance.randint(1, 4))]
            rows += new
            index.add([text for text, _ in new])
            index.add_vectors([vector for _, vector in new])
        elif what < 0.9 and rows:
            rows.pop(chance.randrange(len(rows)))
            index.drop_thread(key)
            index.add([text for text, _ in rows])
            index.add_vectors([vector for _, vector in rows])
        else:
            index.drop_thread(key)
            live.pop(key)
        for thread in live:
            index.place(thread, ALL)
        fresh = ScopeIndex()
        for thread, there in live.items():
            fresh.add([text for text, _ in there])
            fresh.add_vectors([vector for _, vector in there])
            fresh.place(thread, ALL)
        query, vector = " ".join(chance.sample(words, 3)), [chance.gauss(0, 1) for _ in range(16)]
        assert search(index, query, vector) == search(fresh, query, vector)
        assert len(index) == len(fresh)


def test_a_vector_of_another_length_replaces_the_old_ones() -> None:
    index = index_of(["a", "b"], vectors={0: [1, 0]})
    index.add_vectors([VectorRow(9, 1, 1, quantize([1, 0, 0]))])
    assert index.dimension == 3


def test_weights_change_what_counts() -> None:
    index = index_of(["zebra", "lion"])
    view = View(**{**index.view().__dict__, "weights": Weights(near=0.0, far=0.0)})
    ranked = rank(view, index.matches(index.view(), TOKENIZER.query("zebra")), None)
    assert ranked.order[1] == 0.0


def test_a_term_of_the_query_that_occurs_nowhere_lowers_the_score() -> None:
    index = index_of(["zebra", "lion"])
    assert search(index, "zebra giraffe")[0][1] < search(index, "zebra")[0][1]


def test_a_match_outside_the_view_does_not_count() -> None:
    index = index_of(["zebra", "lion"], ["zebra", "monkey"])
    view = index.view(threads=[1])
    match = index.matches(view, TOKENIZER.query("zebra"))[0]
    assert isinstance(match, Match)
    assert match.places.tolist() == [0]


@pytest.mark.parametrize("seed", range(20))
def test_a_view_is_in_order_however_its_rows_came(seed: int) -> None:
    chance = random.Random(seed)
    index = ScopeIndex()
    there: dict[int, list[tuple[int, int]]] = {}
    number = 0
    for _ in range(40):
        thread = chance.choice([7, 3, 5])
        if chance.random() < 0.15:
            index.drop_thread(thread)
            there.pop(thread, None)
            continue
        rows = []
        for _ in range(chance.choice([1, 1, 4, 150])):
            number += 1
            seq = number if chance.random() < 0.9 else 50_000 - number
            rows.append((number, thread, seq, 0, TOKENIZER.document("zebra")))
            there.setdefault(thread, []).append((seq, number))
        index.add(rows)
        index.place(thread, ((0, 100_000),))
        if chance.random() < 0.5:
            view = index.view()
            found: dict[int, list[tuple[int, int]]] = {}
            for key, seq, age in zip(
                view.keys[view.thread].tolist(), view.seq.tolist(), view.age.tolist(), strict=True
            ):
                found.setdefault(key, []).append((seq, age))
            assert found == {key: sorted(rows) for key, rows in there.items()}
            assert (np.diff(view.thread) >= 0).all()
            (match,) = index.matches(view, TOKENIZER.query("zebra"))
            assert sorted(match.places.tolist()) == list(range(len(view)))
            assert [index._ids[row] for row in view.rows] == view.age.tolist()
