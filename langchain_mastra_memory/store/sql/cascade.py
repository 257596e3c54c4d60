"""What else happens in a transaction that changes messages or threads: hooks that the features join.

The handlers of threads, messages and checkpoints fire these hooks; the tables of a feature (text index, vectors,
observation log, pages, checkpoints) hook into them, so that whatever follows a message follows it in the same
transaction. A hook is registered where the feature's SQL lives, and costs nothing where nobody joined:

```python
@on_messages_saved
def index_texts(tx: Tx, thread: ThreadRow, rows: Sequence[WrittenRow], features: Features) -> None: ...
```

Rules for everything that joins:

- The thread row is locked and its owner checked already. `thread` is the row as it is after the change.
- It must be a pure function of its arguments and the database: the transaction may be run again from its start.
- It may not call user code, a model or the network: an embedding is asked for through an outbox.
- What it raises undoes the whole transaction.
- The order among features is not defined; none may count on another.

| hook | fired | with |
|---|---|---|
| `on_messages_saved` | rows entered the archive (save, checkpoint, import) | `(tx, thread, rows, features)` |
| `on_messages_edited` | rows changed: an id saved again, an update, an override | `(tx, thread, rows, features)` |
| `on_messages_deleted` | rows are about to be removed; they are still there | `(tx, thread, rows)` |
| `on_thread_created` | a thread was made; what you take out of `metadata` goes | `(tx, thread, metadata, features)` |
| `on_thread_updated` | metadata is about to be merged; likewise | `(tx, thread, patch, features)` |
| `on_thread_cleared` | every message, on all branches, is about to be removed; new epoch | `(tx, thread)` |
| `on_thread_deleted` | the thread is about to be removed with all that it owns | `(tx, thread)` |
| `on_thread_copied` | a clone or copy was made, its thread and message rows are there | `(tx, copy)` |
| `on_thread_transferred` | the owner has changed | `(tx, thread, old_resource_id)` |
| `on_resource_deleted` | a resource is about to be removed; its threads are gone already | `(tx, resource_id)` |
| `on_resource_exported` | a backup is made: add your own part | `(tx, resource_id, parts)` |
| `on_resource_imported` | a backup is read; threads and messages are there | `(tx, resource_id, parts, threads)` |

A change of a thread's title or metadata moves neither `texts` nor `edits`: read metadata together with the counters.
A copy fires `on_thread_created` for the new thread, then `on_thread_copied`.
A copied row keeps the body of its source, and with it the source's id: `rows.message_of` puts the row's id in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, ParamSpec

from langchain_core.messages import BaseMessage

if TYPE_CHECKING:
    from langchain_mastra_memory.store.sql.locking import ThreadRow
    from langchain_mastra_memory.store.sql.tx import Tx

P = ParamSpec("P")

Features = frozenset[str]
"""The features that are on in the memory that made the change: `recall`, `observation`, `working_memory`, ...

A feature that keeps rows for every message (the text index) writes them only when its name is in here; removing is
done whatever the caller has on, since another memory over the same store may have written them.
"""


@dataclass(frozen=True, slots=True)
class WrittenRow:
    """A message row that was just inserted or changed.

    Attributes:
        seq: Its place in the thread.
        branch: The line that it was written on.
        id: The message's id.
        role: The type of the LangChain message.
        kind: What the row is; None for an ordinary message.
        message: The message as it was written.
        metadata: The application's data.
        tokens: Its size in tokens.
        revision: 1, and one more for every edit.
        created_at: Microseconds UTC.
        outside: Whether it entered outside a run.
        overrides: For an edit: the branch of the row whose place this one takes in the view of its branch, if that is
            another row. Where an edit is for one line only, the old message is among the rows again, for each other
            line that goes on seeing it.
    """

    seq: int
    branch: int
    id: str
    role: str
    kind: str | None
    message: BaseMessage
    metadata: Mapping[str, Any]
    tokens: int
    revision: int
    created_at: int
    outside: bool
    overrides: int | None = None


@dataclass(frozen=True, slots=True)
class RemovedRow:
    """A message row that is about to be removed.

    Attributes:
        seq: Its place in the thread.
        branch: The line that it was written on.
        id: The message's id.
    """

    seq: int
    branch: int
    id: str


@dataclass(frozen=True, slots=True)
class CopiedRow:
    """A message row of a clone and where it came from. `seq` is the same in both threads; the clone's branch is 0.

    Attributes:
        seq: Its place in both threads.
        source_branch: The branch of the row that was copied.
        source_id: The id in the source.
        id: The new id.
    """

    seq: int
    source_branch: int
    source_id: str
    id: str


@dataclass(frozen=True, slots=True)
class ThreadCopy:
    """A clone or copy of a thread.

    Attributes:
        source: The thread that was copied, at the position that was copied (its `branch` and `head`).
        target: The new thread: everything is on branch 0.
        whole: Whether every message of the view was copied, so that what is kept by `seq` can follow unchanged.
        rows: The copied rows by `seq`; no bodies.
        features: The features that are on in the memory that made the copy.
    """

    source: ThreadRow
    target: ThreadRow
    whole: bool
    rows: Sequence[CopiedRow]
    features: Features


class Hook(Generic[P]):
    """A moment of a transaction that features join; used as a decorator."""

    def __init__(self) -> None:
        self._joined: dict[str, Callable[P, None]] = {}
        self._features: dict[str, str] = {}

    def __call__(self, function: Callable[P, None]) -> Callable[P, None]:
        """Join: call `function` whenever this happens. Joining again under the same name replaces."""
        self._joined[f"{function.__module__}.{function.__qualname__}"] = function
        return function

    def only_with(self, feature: str) -> Callable[[Callable[P, None]], Callable[P, None]]:
        """Join with a function that does nothing unless a feature is on: then its arguments need not be built."""

        def join(function: Callable[P, None]) -> Callable[P, None]:
            self._features[f"{function.__module__}.{function.__qualname__}"] = feature
            return self(function)

        return join

    def has_work(self, features: Features) -> bool:
        """Tell whether anybody who joined may do something with these features on."""
        return any(self._features.get(name, None) in (None, *features) for name in self._joined)

    def __bool__(self) -> bool:
        """Tell whether anybody joined: what nobody looks at need not be built."""
        return bool(self._joined)

    def fire(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Call everything that joined."""
        for function in self._joined.values():
            function(*args, **kwargs)


on_messages_saved: Hook[Tx, ThreadRow, Sequence[WrittenRow], Features] = Hook()
on_messages_edited: Hook[Tx, ThreadRow, Sequence[WrittenRow], Features] = Hook()
on_messages_deleted: Hook[Tx, ThreadRow, Sequence[RemovedRow]] = Hook()
on_thread_created: Hook[Tx, ThreadRow, MutableMapping[str, Any], Features] = Hook()
on_thread_updated: Hook[Tx, ThreadRow, MutableMapping[str, Any], Features] = Hook()
on_thread_cleared: Hook[Tx, ThreadRow] = Hook()
on_thread_deleted: Hook[Tx, ThreadRow] = Hook()
on_thread_copied: Hook[Tx, ThreadCopy] = Hook()
on_thread_transferred: Hook[Tx, ThreadRow, str | None] = Hook()
on_resource_deleted: Hook[Tx, str] = Hook()
on_resource_exported: Hook[Tx, str, MutableMapping[str, Any]] = Hook()
on_resource_imported: Hook[Tx, str, Mapping[str, Any], Mapping[str, ThreadRow]] = Hook()
