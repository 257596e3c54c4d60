"""An embedding model for tests: counts of words, hashed. The same on every machine; alike words, alike vectors."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable

from langchain_core.embeddings import Embeddings


class WordEmbeddings(Embeddings):
    """Lowercase words, hashed to a few numbers, counted and normalised.

    Args:
        model: The name of the model, under which its vectors are kept.
        dimension: How many numbers a vector has.

    Attributes:
        asked: Every text that was embedded, in order.
        queries: Every query that was embedded, in order.
        fail: Called with the texts of each call before it answers; what it raises is raised.

    Example:
        >>> embeddings = WordEmbeddings(dimension=8)
        >>> embeddings.embed_query("zebra") == embeddings.embed_query("Zebra!")
        True
    """

    def __init__(self, model: str = "words", dimension: int = 256) -> None:
        self.model = model
        self.dimension = dimension
        self.asked: list[str] = []
        self.queries: list[str] = []
        self.fail: Callable[[list[str]], object] = lambda _: None

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return the vectors of texts."""
        self.fail(texts)
        self.asked += texts
        return [self._vector(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of a query."""
        self.fail([text])
        self.queries.append(text)
        return self._vector(text)

    def _vector(self, text: str) -> list[float]:
        counts = [0.0] * self.dimension
        for word in re.findall(r"[^\W_]+", text.lower()):
            digest = hashlib.md5(word.encode("utf-8", "surrogatepass"), usedforsecurity=False).digest()
            counts[int.from_bytes(digest[:4], "big") % self.dimension] += 1
        norm = math.sqrt(sum(count * count for count in counts)) or 1.0
        return [count / norm for count in counts]
