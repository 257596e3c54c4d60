"""Two memories over one store, and processes that are killed: short runs of `benchmarks/observation_fuzz.py`."""

from __future__ import annotations

import pytest

from benchmarks.observation_fuzz import ViolationError, kill_run, play
from langchain_mastra_memory.observation import transitions
from langchain_mastra_memory.store.sql.engine import SQLMemoryStore


def play_all(store, seeds):
    for seed in seeds:
        play(seed, store, "thread", steps=40)


@pytest.mark.parametrize("scope", ["thread", "resource"])
def test_two_memories_that_interleave_inside_their_commits_lose_and_repeat_nothing(scope):
    with SQLMemoryStore("memory://") as store:
        committed = sum(play(seed, store, scope, steps=40).committed for seed in range(4))
    assert committed > 5


@pytest.mark.postgres
@pytest.mark.parametrize("scope", ["thread", "resource"])
def test_interleavings_on_postgresql_lose_and_repeat_nothing(scope, postgres_url):
    with SQLMemoryStore(postgres_url) as store:
        committed = sum(play(seed, store, scope, steps=30).committed for seed in range(2))
    assert committed > 0


def test_a_digest_that_is_not_compared_is_noticed_on_the_real_store(monkeypatch):
    monkeypatch.setattr(transitions, "same_messages", lambda *_: True)
    with SQLMemoryStore("memory://") as store, pytest.raises(ViolationError):
        play_all(store, [26, *range(30)])


@pytest.mark.slow
@pytest.mark.parametrize("scope", ["thread", "resource"])
def test_processes_that_are_killed_leave_a_sound_log(scope, tmp_path):
    killed, checks = kill_run(f"sqlite:///{tmp_path / 'fuzz.db'}", 4, scope, seed=1)
    assert killed == 4
    assert checks > 4


@pytest.mark.slow
@pytest.mark.postgres
def test_processes_that_are_killed_leave_a_sound_log_on_postgresql(postgres_url):
    killed, checks = kill_run(postgres_url, 4, "thread", seed=2)
    assert killed == 4
    assert checks > 4
