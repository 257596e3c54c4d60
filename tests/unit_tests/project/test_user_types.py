"""What the documentation shows passes the type checkers of those who paste it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

USER = """
from langchain_core.messages import HumanMessage
from pydantic import BaseModel

from langchain_mastra_memory import (
    Extractor, Memory, MessageHistory, Observation, ObservationalMemory, Page, Reflection, RunOptions, SemanticRecall,
    StoredMessage, Thread, WorkingMemory,
)
from langchain_mastra_memory.history.processors import cap_tool_results, drop_tool_calls


class Profile(BaseModel):
    name: str | None = None


memory = Memory(
    message_history=MessageHistory(processors=[cap_tool_results(2_000), drop_tool_calls()], before_save=[lambda m: m]),
    working_memory=WorkingMemory(schema=Profile),
    semantic_recall=SemanticRecall(message_range=(1, 2), filter={"project": {"$eq": "alps"}}),
    observational_memory=ObservationalMemory(
        observation=Observation(
            extract=[Extractor(name="Mood", instructions="The user's mood.")],
            observe_attachments=["image/*"],
            continuation_hints=False,
        ),
        reflection=Reflection(continuation_hints={"current_task": True}),
        retrieval={"vector": True},
    ),
)
ObservationalMemory(retrieval=True)
RunOptions(context_messages=[HumanMessage("Today is Friday.")])
threads: Page[Thread] = memory.list_threads("ada")
found: list[StoredMessage] = list(memory.recall(thread_id="trip", query="cat"))
profile: Profile | None = memory.get_working_memory_as(Profile, resource_id="ada")


async def main() -> None:
    page: Page[StoredMessage] = await memory.arecall(thread_id="trip")
    async with Memory("memory://") as other:
        thread: Thread | None = await other.aget_thread("trip")
"""


@pytest.mark.slow
def test_a_strictly_checked_program_may_be_written_as_the_documentation_writes_it(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(USER)
    command = [sys.executable, "-m", "mypy", "--config-file=", "--strict", "--follow-imports=silent"]
    checked = subprocess.run(
        [*command, "--cache-dir", str(tmp_path / "cache"), str(program)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
