"""Worlds in which everything interleaves: nothing is lost, repeated or misquoted; a broken rule is noticed."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from langchain_mastra_memory.observation import transitions
from tests.unit_tests.observation.mutants import CAUGHT_BY, MUTANTS
from tests.unit_tests.observation.world import PROFILES, ViolationError, World, play


def play_all(worlds, *, cut=False):
    for scope, profile, seed in worlds:
        play(seed, scope=scope, profile=profile, cut=cut)


@pytest.mark.parametrize("scope", ["thread", "resource"])
@pytest.mark.parametrize("profile", list(PROFILES))
def test_every_message_is_covered_exactly_once_or_raw_whatever_interleaves(scope, profile):
    committed = sum(play(seed, scope=scope, profile=profile).committed for seed in range(12))
    assert committed > 20


@pytest.mark.parametrize("name", list(MUTANTS))
def test_a_rule_broken_on_purpose_is_noticed(name, monkeypatch):
    for attribute, broken in MUTANTS[name].items():
        monkeypatch.setattr(transitions, attribute, broken)
    with pytest.raises((ViolationError, KeyError)):
        play_all(CAUGHT_BY[name])


def test_a_planner_that_cuts_units_in_two_is_stopped_by_the_check_at_commit():
    for seed in range(10):
        play(seed, cut=True)


def test_a_planner_that_cuts_units_in_two_is_noticed_when_the_check_at_commit_is_off(monkeypatch):
    monkeypatch.setattr(transitions, "ends_legally", lambda *_a, **_k: True)
    with pytest.raises(ViolationError, match="observed"):
        play_all([("thread", "even", seed) for seed in range(10)], cut=True)


class LogMachine(RuleBasedStateMachine):
    """Hypothesis chooses what happens, and shrinks it when something breaks."""

    scope = "thread"

    def __init__(self) -> None:
        super().__init__()
        self.world = World(rng=random.Random(0), scope=self.scope)
        self.tasks = []

    def pick(self, number):
        names = ["a"] if self.scope == "thread" else ["a", "b"]
        return self.world.thread(names[number % len(names)])

    @rule(n=st.integers(0, 3), seed=st.integers(0, 99))
    def grow(self, n, seed):
        self.world.rng = random.Random(seed)
        for _ in range(3):
            self.world.grow(self.pick(n))

    @rule(n=st.integers(0, 3), into=st.sampled_from(["log", "buffered"]), seed=st.integers(0, 99))
    def observe(self, n, into, seed):
        self.world.rng = random.Random(seed)
        self.tasks.append(self.world.observer(self.world.log_of(self.pick(n)), into))

    @rule(n=st.integers(0, 3), into=st.sampled_from(["log", "pending"]))
    def reflect(self, n, into):
        self.tasks.append(self.world.reflector(self.world.log_of(self.pick(n)), into))

    @rule(n=st.integers(0, 3))
    def activate(self, n):
        self.tasks.append(self.world.activator(self.world.log_of(self.pick(n))))

    @precondition(lambda self: self.tasks)
    @rule(n=st.integers(0, 9), steps=st.integers(1, 3))
    def advance(self, n, steps):
        task = self.tasks[n % len(self.tasks)]
        for _ in range(steps):
            if next(task, None) is None:
                self.tasks.remove(task)
                break

    @rule(n=st.integers(0, 3), what=st.sampled_from(["edit", "delete", "fork", "switch", "clear"]))
    def change(self, n, what):
        getattr(self.world, what)(self.pick(n))

    @invariant()
    def sound(self):
        self.world.check()

    def teardown(self):
        for task in self.tasks:
            for _ in task:
                pass
        self.world.drain()


class ResourceLogMachine(LogMachine):
    scope = "resource"


FEW = settings(max_examples=25, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
TestThreadLog = LogMachine.TestCase
TestThreadLog.settings = FEW
TestResourceLog = ResourceLogMachine.TestCase
TestResourceLog.settings = FEW
