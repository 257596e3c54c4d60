"""What the features keep for a resource, in its export and after an import."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from langchain_mastra_memory.observation.options import ObservationalMemory
from langchain_mastra_memory.testing.models import ScriptedChatModel

NOTES = "<observations>\n* likes tea\n</observations>"


@pytest.mark.parametrize("scope", ["thread", "resource"])
def test_pages_observations_and_the_index_come_along(
    memory_factory: Callable[..., Any], store_url: str, scope: Any
) -> None:
    def make(url: str) -> Any:
        observing = ObservationalMemory(model=ScriptedChatModel([NOTES], repeat_last=True), scope=scope)
        return memory_factory(url, working_memory=True, semantic_recall=True, observational_memory=observing)

    memory, other = make(store_url), make("memory://")
    for thread_id in ("t", "u"):
        said = [("user", f"I like tea, says {thread_id}"), ("ai", "Noted"), ("user", "and?")]
        memory.save_messages(said, thread_id=thread_id, resource_id="r")
        memory.observe(thread_id=thread_id, resource_id="r")
    memory.update_working_memory("# Ann", resource_id="r")
    before = [memory.get_observations(thread_id=thread_id, resource_id="r") for thread_id in ("t", "u")]
    assert all("likes tea" in str(found) for found in before)

    assert other.import_resource(json.loads(json.dumps(memory.export_resource("r")))) == 2
    assert other.get_working_memory(resource_id="r") == "# Ann"
    assert [row.id for row in other.recall(resource_id="r", query="tea")] == [
        row.id for row in memory.recall(resource_id="r", query="tea")
    ]
    after = [other.get_observations(thread_id=thread_id, resource_id="r") for thread_id in ("t", "u")]
    assert [shown(found) for found in after] == [shown(found) for found in before]
    # what was observed stays observed, and what comes next is observed behind it
    other.save_messages([("ai", "More tea"), ("user", "yes")], thread_id="t")
    other.observe(thread_id="t", resource_id="r")
    assert len(other.get_observations(thread_id="t", resource_id="r").groups) == len(before[0].groups) + 1
    assert memory.export_resource("r")["parts"].keys() == other.export_resource("r")["parts"].keys()


def shown(found: Any) -> tuple[Any, ...]:
    """Return what an observation log says, without its random ids."""
    groups = [(group.kind, group.text, group.tokens) for group in found.groups]
    return found.text, found.tokens, found.pending_tokens, found.cursor, found.generation, found.version, groups
