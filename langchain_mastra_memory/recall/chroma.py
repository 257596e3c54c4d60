"""Chroma as an outside vector index: embedded (`chroma:///path`) or a server (`chroma://host:8000`).

Chroma's embedded client loses vectors, without an error, when two processes write to one folder. So the folder has a
lock file, and a second process is refused with what it can do instead.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, Final, cast
from urllib.parse import parse_qs, unquote, urlsplit

from langchain_mastra_memory.errors import ConfigurationError
from langchain_mastra_memory.forking import new_lock
from langchain_mastra_memory.recall.vector_index import Entry, VectorIndex
from langchain_mastra_memory.shown import shown

if TYPE_CHECKING:
    from chromadb.api.client import Client
    from chromadb.api.models.Collection import Collection

LOCK_NAME: Final = "mastra-memory.lock"
_THREADS_AT_ONCE: Final = 100
_PAGE: Final = 100  # ids in one request of a delete: low enough for every backend's limit on parameters


@dataclass(slots=True)
class _Folder:
    """An open folder of this process: one client for however many memories use it."""

    client: Client
    lock: BinaryIO
    users: int = 1


class ChromaVectorIndex(VectorIndex):
    """Entries in a Chroma collection, one for each length of vectors: `mastra-memory-512`.

    Args:
        url: `chroma:///relative/path`, `chroma:////absolute/path`, or `chroma://host:8000`; `?collection=name` names
            the collection, `?ssl=true` speaks HTTPS to a server.

    Raises:
        ConfigurationError: The URL is wrong, the server can't be reached, or another process uses the folder.
    """

    _folders: ClassVar[dict[Path, _Folder]] = {}
    _folders_lock: ClassVar[threading.Lock] = new_lock()

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        options = {key: values[-1] for key, values in parse_qs(parts.query).items()}
        unknown = set(options) - {"collection", "ssl"}
        if parts.scheme != "chroma" or unknown or (not parts.hostname and len(parts.path) < 2):
            raise ConfigurationError(
                f"{shown(url, 100)} is no Chroma URL: use chroma:///path, chroma:////absolute/path or "
                "chroma://host:8000, with ?collection=name or ?ssl=true"
            )
        self.url = url
        self.collection = options.get("collection", "mastra-memory")
        self._lock = new_lock()
        self._known: dict[int, Collection] = {}
        self._folder: Path | None = None
        self._client: Client | None = None
        self._closed = False
        self._server = (parts.hostname, parts.port or 8000, options.get("ssl") == "true") if parts.hostname else None
        self._path = None if self._server else Path(unquote(parts.path[1:]))

    def _open(self) -> Client:
        with self._lock:
            if self._client is None:
                if self._closed:
                    raise ConfigurationError("this Chroma index was closed; make a new Memory to go on")
                self._client = self._connect() if self._server else self._open_folder()
            return self._client

    def _connect(self) -> Client:
        import chromadb  # noqa: PLC0415 - heavy

        assert self._server is not None  # noqa: S101 - the caller looked
        host, port, ssl = self._server
        try:
            return cast("Client", chromadb.HttpClient(host=host, port=port, ssl=ssl, settings=_settings()))
        except Exception as error:
            raise ConfigurationError(
                f"the Chroma server at {host}:{port} can't be reached ({error}); start one with "
                f"`chroma run --host {host} --port {port}`"
            ) from error

    def _open_folder(self) -> Client:
        import chromadb  # noqa: PLC0415 - heavy

        assert self._path is not None  # noqa: S101 - the caller looked
        folder = self._path.absolute()
        with self._folders_lock:
            self._folder = folder
            known = self._folders.get(folder)
            if known is not None:
                known.users += 1
                return known.client
            folder.mkdir(parents=True, exist_ok=True)
            lock = _take_lock(folder)
            client = cast("Client", chromadb.PersistentClient(path=str(folder), settings=_settings()))
            self._folders[folder] = _Folder(client, lock)
            return client

    def _collection(self, dimension: int) -> Collection:
        found = self._known.get(dimension)
        if found is None:
            found = self._known[dimension] = self._open().get_or_create_collection(
                f"{self.collection}-{dimension}", embedding_function=None, configuration={"hnsw": {"space": "cosine"}}
            )
        return found

    def _collections(self) -> Iterator[Collection]:
        client = self._open()
        for listed in client.list_collections():
            stem, _, dimension = listed.name.rpartition("-")
            if stem == self.collection and dimension.isdigit():
                yield self._collection(int(dimension))

    @property
    def _most(self) -> int:
        return max(1, min(1_000, self._open().get_max_batch_size()))

    def upsert(self, entries: Sequence[Entry]) -> None:
        """Write entries, in batches below the backend's limit."""
        by_length: dict[int, list[Entry]] = {}
        for entry in entries:
            by_length.setdefault(len(entry.vector), []).append(entry)
        for dimension, some in by_length.items():
            collection = self._collection(dimension)
            for start in range(0, len(some), self._most):
                part = some[start : start + self._most]
                vectors: Any = [list(entry.vector) for entry in part]
                collection.upsert(
                    ids=[entry.id for entry in part],
                    embeddings=vectors,
                    metadatas=[{"thread": entry.thread} for entry in part],
                )

    def delete(self, ids: Sequence[str]) -> None:
        """Remove entries, from every collection of ours."""
        if not ids:
            return
        for collection in self._collections():
            step = min(_PAGE, self._most)
            for start in range(0, len(ids), step):
                collection.delete(ids=list(ids[start : start + step]))

    def search(self, text: str, vector: Sequence[float], threads: Sequence[str], limit: int) -> list[tuple[str, float]]:
        """Search by cosine."""
        del text
        best: dict[str, float] = {}
        collection = self._collection(len(vector))
        if not threads or not collection.count():
            return []
        for start in range(0, len(threads), _THREADS_AT_ONCE):
            some = list(threads[start : start + _THREADS_AT_ONCE])
            where: Any = {"thread": some[0]} if len(some) == 1 else {"thread": {"$in": some}}
            queries: Any = [list(vector)]
            found = collection.query(query_embeddings=queries, n_results=limit, where=where, include=["distances"])
            distances = found["distances"] or [[]]
            best |= {one: 1.0 - float(d) for one, d in zip(found["ids"][0], distances[0], strict=True)}
        return sorted(best.items(), key=lambda pair: -pair[1])[:limit]

    def count(self) -> int:
        """Count the entries."""
        return sum(collection.count() for collection in self._collections())

    def close(self) -> None:
        """Let another process have the folder."""
        with self._lock:
            client, self._client, self._closed = self._client, None, True
            self._known.clear()
        if self._server is not None and client is not None:
            _hang_up(client)
        with self._folders_lock:
            folder, self._folder = self._folder, None
            known = self._folders.get(folder) if folder is not None else None
            if known is None or folder is None:
                return
            known.users -= 1
            if not known.users:
                del self._folders[folder]
                _release(known)


def _hang_up(client: Client) -> None:
    """Close a server's client and its connections, which Chroma leaves open; each client has its own."""
    parts = (client, getattr(client, "_admin_client", None))
    sessions = [getattr(getattr(part, "_server", None), "_session", None) for part in parts]
    client.close()
    for session in sessions:
        if session is not None:
            session.close()


def _settings() -> Any:
    from chromadb.config import Settings  # noqa: PLC0415 - heavy

    return Settings(anonymized_telemetry=False)


def _take_lock(folder: Path) -> BinaryIO:
    """Hold the folder's lock file until it is closed; the system lets go of it when the process dies."""
    file = (folder / LOCK_NAME).open("a+b")
    try:
        if os.name == "nt":
            import msvcrt  # noqa: PLC0415 - Windows

            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]  # Windows
        else:
            import fcntl  # noqa: PLC0415 - Unix

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise ConfigurationError(
            f"the Chroma folder {folder} is in use by another process, and two would lose each other's vectors. Either "
            f"run a server (`chroma run --path {folder}`) and use vector_store='chroma://localhost:8000' in both, or "
            "leave vector_store out: vectors in the store itself are safe for many processes"
        ) from error
    return file


def _release(folder: _Folder) -> None:
    folder.client.close()
    folder.lock.close()
