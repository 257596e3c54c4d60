"""Derived resources: stable ids, one pair for each, nobody else's threads under them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from langchain_mastra_memory.agents.delegation import (
    DELEGATION_KEY,
    MAX_DEPTH,
    current_delegation,
    delegate,
    worker_thread_id,
)
from langchain_mastra_memory.errors import ConfigurationError, InvalidIdError, ThreadOwnershipError
from langchain_mastra_memory.ids import derive_resource_id
from langchain_mastra_memory.store.operations.delegations import StartDelegation
from langchain_mastra_memory.store.operations.threads import CreateThread, GetThread, ListThreads
from langchain_mastra_memory.store.sql.engine import SQLMemoryStore


@pytest.fixture
def store(store_url):
    with SQLMemoryStore(store_url) as opened:
        yield opened


def start(store, parent="r1", agent="helper", thread_id="w1"):
    derived = derive_resource_id(parent, agent)
    return store.run(
        StartDelegation(
            parent_resource_id=parent,
            agent=agent,
            resource_id=derived,
            thread_id=thread_id,
            metadata={"parent": {"thread_id": "t1"}},
        )
    )


def test_a_worker_gets_a_thread_under_its_derived_resource_once(store):
    made = start(store)
    assert (made.id, made.resource_id, made.metadata) == ("w1", "r1-helper", {"parent": {"thread_id": "t1"}})
    assert start(store) == made
    start(store, thread_id="w2")
    assert [thread.id for thread in store.run(ListThreads(resource_id="r1-helper", direction="asc"))] == ["w1", "w2"]


def test_two_pairs_that_spell_the_same_id_never_share_a_memory(store):
    start(store, parent="r1-a", agent="b")
    with pytest.raises(ThreadOwnershipError, match="another pair"):
        start(store, parent="r1", agent="a-b", thread_id="w2")
    assert store.run(GetThread(thread_id="w2")) is None


def test_a_resource_of_the_application_is_never_taken_for_a_worker(store):
    store.run(CreateThread(thread_id="own", resource_id="r1-helper"))
    with pytest.raises(ThreadOwnershipError, match="owns threads"):
        start(store)


def test_a_user_whose_id_spells_a_workers_gets_no_thread_there(store):
    start(store)
    with pytest.raises(ThreadOwnershipError, match="sub-agent"):
        store.run(CreateThread(thread_id="mine", resource_id="r1-helper"))


@pytest.mark.parametrize("agent", ["my helper/é:1 😀", "a-b.c", "'; --", "%", "a" * 400])
def test_any_name_of_an_agent_makes_an_id(store, agent):
    assert start(store, agent=agent).resource_id == f"r1-{agent}"


def test_a_derived_id_that_is_too_long_says_so():
    with pytest.raises(InvalidIdError, match="derived resource_id"):
        derive_resource_id("r" * 300, "a" * 300)


def test_a_circle_of_delegations_ends_with_an_error():
    delegation = None
    for _ in range(MAX_DEPTH):
        delegation = delegate(
            None, agent="a", parent=delegation, parent_thread_id="t", parent_resource_id="r", thread_id="w", context=()
        )
    assert delegation is not None
    assert delegation.depth == MAX_DEPTH
    with pytest.raises(ConfigurationError, match="circle"):
        delegate(
            None, agent="a", parent=delegation, parent_thread_id="t", parent_resource_id="r", thread_id="w", context=()
        )


def test_a_delegation_that_a_client_made_up_is_ignored():
    assert current_delegation({DELEGATION_KEY: {"agent": "x", "resource_id": "victim"}}) is None
    real = delegate(
        None, agent="a", parent=None, parent_thread_id="t", parent_resource_id="r", thread_id="w", context=()
    )
    assert current_delegation({DELEGATION_KEY: real}) is real
    assert replace(real, depth=2).thread_metadata == real.thread_metadata


def test_the_thread_of_a_delegation_is_found_again_by_what_it_was_made_of():
    assert worker_thread_id("t", "a", "ns", "call") == worker_thread_id("t", "a", "ns", "call")
    ids = {worker_thread_id(*parts) for parts in [("t", "a", "b"), ("t", "ab"), ("ta", "b"), ("t", "a", "b", "")]}
    assert len(ids) == 4
