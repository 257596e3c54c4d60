"""Store URLs: read with a word to the user, and shown without what is secret in them."""

from __future__ import annotations

import re
from typing import Final

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from langchain_mastra_memory.errors import ConfigurationError

_SECRET: Final = re.compile("pass|secret|token", re.IGNORECASE)
"""Names of parameters that hold a secret, or lead to one: `password`, `sslpassword`, `passfile`."""


def read_url(url: str | URL) -> URL:
    """Return a store URL as SQLAlchemy's.

    Raises:
        ConfigurationError: It cannot be read. What it was is not said: a password may stand anywhere in it.
    """
    try:
        read = make_url(url)
    except (ArgumentError, ValueError):
        read = None
    if read is None or "@" in (read.host or ""):  # an @ in a password ends it too early
        raise ConfigurationError(
            "the store's URL cannot be read: is the port a number, and the password percent-encoded ('@' as '%40')?"
        )
    return read


def shown_url(url: URL) -> str:
    """Return a store URL as it may be shown: without passwords, also without those among its parameters."""
    return url.difference_update_query([name for name in url.query if _SECRET.search(name)]).render_as_string()
