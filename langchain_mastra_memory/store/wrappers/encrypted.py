"""A store that keeps what users wrote as ciphertext."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Final, TypeVar

from langchain_mastra_memory.errors import ConfigurationError
from langchain_mastra_memory.store.base import Group, MemoryStore, Operation
from langchain_mastra_memory.store.wrappers.base import Inner, StoreWrapper
from langchain_mastra_memory.store.wrappers.sealing import Seal

T = TypeVar("T")

INDEX: Final = frozenset[Group]({"index"})


class EncryptedStore(StoreWrapper):
    """Encrypts at rest: messages, titles, metadata values, working-memory pages, observations, checkpoint values.

    What stays readable in the database: ids (of threads, resources, messages, tool calls, checkpoints, tasks), roles
    and kinds, times, order, sizes in tokens and bytes, metadata *keys*, channel and node names, the metadata of
    checkpoints (LangGraph's step, source and configurable scalars), and which values are equal to each other: the
    cipher is deterministic (AES-SIV), so that equality filters on metadata work as before.

    Not possible on ciphertext, and refused with `ConfigurationError`: the group `index`, that is semantic and lexical
    recall. An export of a resource is encrypted too; importing it needs the same key. Data that was written before
    encryption was turned on is read as it is, but filters find only what was written since.

    Args:
        store: The store to wrap.
        key: 32, 48 or 64 random bytes (`secrets.token_bytes(64)`), kept outside the database.
        old_keys: Keys that data was written with before; it is read, and what is written uses `key`.

    Raises:
        ConfigurationError: The key has another size, or the extra `encryption` is not installed.

    Example:
        >>> from langchain_mastra_memory import Memory, SQLMemoryStore
        >>> store = EncryptedStore(SQLMemoryStore("memory://"), key=b"0123456789abcdef" * 4)
        >>> with Memory(store) as memory:
        ...     memory.create_thread("ada", thread_id="trip", title="Lisbon in May").title
        'Lisbon in May'
        >>> from langchain_mastra_memory.store.operations.threads import GetThread
        >>> "Lisbon" in store.inner.run(GetThread(thread_id="trip")).title
        False
    """

    def __init__(self, store: MemoryStore, key: bytes, *, old_keys: Sequence[bytes] = ()) -> None:
        super().__init__(store)
        self._seal = Seal(key, old_keys)

    @property
    def capabilities(self) -> frozenset[Group]:
        """Everything that the wrapped store can do but searching."""
        return self.inner.capabilities - INDEX

    async def around(self, operation: Operation[T], inner: Inner) -> T:
        """Seal the operation and open its result."""
        if operation.group in INDEX:
            raise ConfigurationError(
                f"{type(operation).__name__} searches in text, which an EncryptedStore cannot: turn semantic_recall off"
            )
        features: Any = getattr(operation, "features", None)
        if features:  # what is indexed would be ciphertext
            kept = frozenset(name for name in features if not name.startswith("recall"))
            operation = dataclasses.replace(operation, features=kept)  # type: ignore[type-var]  # every operation is a dataclass
        result: T = await inner(self._seal.seal(operation))
        return self._seal.unseal(result)
