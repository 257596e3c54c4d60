"""What the tests of agents share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from langchain_mastra_memory import Memory


@pytest.fixture(params=["sync", "async"])
def invoke(request: pytest.FixtureRequest) -> Callable[..., dict[str, Any]]:
    """Return a function that invokes a graph, one way or the other."""
    if request.param == "sync":
        return lambda graph, *args, **kwargs: graph.invoke(*args, **kwargs)
    return lambda graph, *args, **kwargs: asyncio.run(graph.ainvoke(*args, **kwargs))


@pytest.fixture
def memory() -> Iterator[Memory]:
    """Return a memory that keeps nothing on disk."""
    with Memory("memory://") as made:
        yield made
