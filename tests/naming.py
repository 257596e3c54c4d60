"""Names of parametrised tests that are the same in every worker."""

from __future__ import annotations

import re


def spelled(value: object) -> str:
    """Return a value's repr without addresses, which each process has its own of: for `ids=spelled`."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))
