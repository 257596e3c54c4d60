"""A text that no model can be sent, with a lone surrogate in it, is embedded all the same."""

from __future__ import annotations

import pytest
from langchain_core.embeddings import Embeddings

from langchain_mastra_memory.io import SyncIO, drive
from langchain_mastra_memory.recall.embeddings import Embedder


class SendsUTF8(Embeddings):
    def __init__(self) -> None:
        self.sent: list[str] = []

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        for text in texts:
            text.encode()
        self.sent += texts
        return [[1.0, 2.0] for _ in texts]

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]


@pytest.mark.parametrize(
    ("text", "sent"),
    [("a \ud800 b", "a \ufffd b"), ("日本 😀", "日本 😀"), ("\udc00\ud800", "\ufffd\ufffd"), ("plain", "plain")],
)
def test_a_lone_surrogate_is_sent_as_the_replacement_character(text: str, sent: str) -> None:
    model = SendsUTF8()
    embedder, io = Embedder(model), SyncIO(None)
    assert drive(embedder.documents(io, [text, "other"])) == [[1.0, 2.0], [1.0, 2.0]]
    assert drive(embedder.query(io, text, 1.0)) == [1.0, 2.0]
    assert model.sent == [sent, "other", sent]
