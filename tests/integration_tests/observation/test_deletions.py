"""Observations beside deletions."""

from __future__ import annotations

from langchain_mastra_memory import Memory, Observation, ObservationalMemory
from langchain_mastra_memory.observation import observing
from langchain_mastra_memory.testing.models import ScriptedChatModel


def test_a_thread_that_is_deleted_between_two_calls_of_one_observation_is_passed_over(sqlite_url, monkeypatch):
    options = ObservationalMemory(
        scope="resource", observation=Observation(message_tokens=2_000, max_tokens_per_batch=100)
    )
    model = ScriptedChatModel(lambda _messages: "<observations>\n* Something was said.\n</observations>")
    with Memory(sqlite_url) as other, Memory(sqlite_url, model=model, observational_memory=options) as memory:
        commit = observing._commit

        async def commit_and_lose_a_thread(*args, **kwargs):
            reason = await commit(*args, **kwargs)
            if other.get_thread("b") is not None:
                other.delete_thread("b")
            return reason

        monkeypatch.setattr(observing, "_commit", commit_and_lose_a_thread)
        for thread in ("a", "b"):
            said = [("user", f"{thread} " + "word " * 200), ("ai", "noted " * 100)]
            memory.save_messages(said, thread_id=thread, resource_id="r")
        result = memory.observe(resource_id="r")
        assert result.observed
        assert "Something was said." in memory.get_observations(resource_id="r").text
