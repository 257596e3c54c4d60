"""Cut a long text into overlapping chunks, so that each fits an embedding model. Pure."""

from __future__ import annotations

from typing import Final

CHUNK: Final = 2000
OVERLAP: Final = 200
MOST: Final = 8


def chunks(text: str, size: int = CHUNK, overlap: int = OVERLAP, most: int = MOST) -> list[str]:
    """Return a text's chunks, in order.

    A chunk ends at a line, a sentence or a space in its second half if there is one, else where it is full. What lies
    behind the last chunk has no vector; its words are in the lexical index all the same.

    Args:
        text: Any text.
        size: Characters in a chunk at most.
        overlap: Characters of a chunk that the next one repeats.
        most: How many chunks at most.

    Returns:
        The chunks; none for a text without a letter, digit or symbol.

    Example:
        >>> chunks("one two three four", size=10, overlap=3)
        ['one two', 'wo three', 'ee four']
    """
    text = text.strip()
    found: list[str] = []
    start = 0
    while start < len(text) and len(found) < most:
        end = start + size
        if end < len(text):
            end = _good_end(text, start + size // 2, end)
        found.append(text[start:end].strip())
        if end >= len(text):
            break
        start = max(end - overlap, start + 1)
    return [chunk for chunk in found if chunk]


def _good_end(text: str, low: int, high: int) -> int:
    for mark in ("\n", ". ", "。", " "):
        at = text.rfind(mark, low, high)
        if at >= 0:
            return at + 1
    return high
