"""Every error of the package, in one tree.

```text
MastraMemoryError
├── ConfigurationError              an option, URL or combination that cannot work
│   └── EmbeddingModelMismatchError vectors of another model are in the index
├── InvalidIdError                  a thread, resource or message id that is not 1-512 characters
├── InvalidQueryError               a page, order, date or bound that makes no sense
│   └── InvalidFilterError          a metadata filter that cannot be honoured
├── MissingResourceError            a feature needs a resource id and the run has none
├── ThreadNotFoundError             no such thread for this resource
├── ThreadOwnershipError            the thread or the derived resource belongs to somebody else
├── MessageNotFoundError            no such message in this thread
├── WorkingMemoryError              an update of a page that is refused
├── ProcessorError                  a user's processor, filter or hook raised
├── ObservationError                an explicit observe or reflect that failed
└── StoreError                      the database said no
    ├── StoreClosedError            the store or the memory was closed
    ├── StoreUnavailableError       the database cannot be reached or opened
    ├── StoreLockedError            another process holds the write lock too long
    ├── StoreFullError              no space left for the write
    ├── StoreReadOnlyError          the database cannot be written
    ├── StoreCorruptError           the file is not a database of ours, or is damaged
    └── SchemaVersionError          the database was written by a newer version of the package
```

The docstring of a class is its default message. Driver errors are mapped at one place
(`langchain_mastra_memory.store.sql.failures`), with the driver's error kept as the cause.
"""

from __future__ import annotations

import inspect

__all__ = [
    "ConfigurationError",
    "EmbeddingModelMismatchError",
    "InvalidFilterError",
    "InvalidIdError",
    "InvalidQueryError",
    "MastraMemoryError",
    "MessageNotFoundError",
    "MissingResourceError",
    "ObservationError",
    "ProcessorError",
    "SchemaVersionError",
    "StoreClosedError",
    "StoreCorruptError",
    "StoreError",
    "StoreFullError",
    "StoreLockedError",
    "StoreReadOnlyError",
    "StoreUnavailableError",
    "ThreadNotFoundError",
    "ThreadOwnershipError",
    "WorkingMemoryError",
]


class MastraMemoryError(Exception):
    """Something went wrong in the memory layer."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or inspect.getdoc(type(self)) or type(self).__name__)


class ConfigurationError(MastraMemoryError, ValueError):
    """An option, a URL or a combination of them cannot work."""


class EmbeddingModelMismatchError(ConfigurationError):
    """The index holds vectors of another embedding model; call `reindex()` to embed everything anew."""


class InvalidIdError(MastraMemoryError, ValueError):
    """An id must be 1 to 512 characters of any kind but NUL."""


class InvalidQueryError(MastraMemoryError, ValueError):
    """A page, an order, a date or a bound makes no sense."""


class InvalidFilterError(InvalidQueryError):
    """A metadata filter has a key, an operator or a value that cannot be honoured."""


class MissingResourceError(MastraMemoryError, ValueError):
    """This feature needs a resource id: pass it in the run's context or in `configurable["resource_id"]`."""


class ThreadNotFoundError(MastraMemoryError, LookupError):
    """There is no such thread for this resource."""


class ThreadOwnershipError(MastraMemoryError, PermissionError):
    """The id belongs to another resource."""


class MessageNotFoundError(MastraMemoryError, LookupError):
    """There is no such message in this thread."""


class WorkingMemoryError(MastraMemoryError, ValueError):
    """The update of the working memory was refused; nothing was changed."""


class ProcessorError(MastraMemoryError, RuntimeError):
    """A processor, a filter or a hook raised; its own error is the cause."""


class ObservationError(MastraMemoryError, RuntimeError):
    """An observation or a reflection that was asked for could not be made; nothing was changed."""


class StoreError(MastraMemoryError):
    """The database refused the operation; nothing of it was written."""


class StoreClosedError(StoreError):
    """The store was closed; make a new `Memory` to go on."""


class StoreUnavailableError(StoreError):
    """The database cannot be reached or opened; check the URL, the server and the folder's permissions."""


class StoreLockedError(StoreError):
    """Another process held the write lock longer than the busy timeout; nothing was written, try again."""


class StoreFullError(StoreError):
    """There is no space left, or a quota is used up; what was saved before is intact. Make room and try again."""


class StoreReadOnlyError(StoreError):
    """The database is read-only; give it a writable path, or `read_only=True` (SQLite: and a writable folder)."""


class StoreCorruptError(StoreError):
    """The file is not a database of this package, or it is damaged; it was left untouched."""


class SchemaVersionError(StoreError):
    """The database was written by a newer version of the package; upgrade the package. It was left untouched."""
