"""Cutting long messages for the embedding model."""

from __future__ import annotations

from itertools import pairwise

import pytest

from langchain_mastra_memory.recall.chunking import chunks


def test_a_short_text_is_one_chunk() -> None:
    assert chunks("  hello there \n") == ["hello there"]


@pytest.mark.parametrize("text", ["", "   ", "\n\n"])
def test_a_text_of_nothing_has_no_chunk(text: str) -> None:
    assert chunks(text) == []


def test_chunks_overlap_and_leave_nothing_out() -> None:
    text = " ".join(f"word{n}" for n in range(1500))
    found = chunks(text, size=2000, overlap=200, most=50)
    assert all(len(chunk) <= 2000 for chunk in found)
    assert {word for chunk in found for word in chunk.split()} >= set(text.split())
    assert all(set(a.split()) & set(b.split()) for a, b in pairwise(found))


def test_a_chunk_ends_at_a_sentence_when_there_is_one() -> None:
    first = chunks("A" * 70 + ". " + "b " * 40, size=100, overlap=10)[0]
    assert first == "A" * 70 + "."


def test_a_text_without_spaces_is_cut_where_a_chunk_is_full() -> None:
    assert [len(chunk) for chunk in chunks("字" * 250, size=100, overlap=20)] == [100, 100, 90]


def test_a_huge_text_has_eight_chunks_at_most() -> None:
    assert len(chunks("lorem ipsum " * 50_000)) == 8
