"""The page as graph state."""

from __future__ import annotations

import itertools
import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_config
from langgraph.errors import InvalidUpdateError
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Overwrite, Send

from langchain_mastra_memory.working_memory.channel import (
    PageChannel,
    PageState,
    VersionChannel,
    WorkingMemoryState,
    channel_state,
    page_write,
    version_write,
)
from langchain_mastra_memory.working_memory.document import merge


class State(MessagesState, WorkingMemoryState):
    pass


_patches = st.lists(
    st.dictionaries(st.sampled_from("abc"), st.none() | st.integers(0, 3), max_size=3), min_size=1, max_size=5
)


@given(patches=_patches)
def test_what_nodes_return_is_merged_like_in_the_store(patches):
    state = PageState().updated(patches)
    expected: Any = None
    for patch in patches:
        expected = merge(expected if isinstance(expected, dict) else {}, patch)
    assert state.page == expected


@given(versions=st.lists(st.integers(1, 6), min_size=1, max_size=6), seed=st.integers())
def test_the_higher_version_wins_in_any_order_and_however_often_it_comes(versions, seed):
    writes = [page_write({"v": version}, version) for version in versions]
    mixed = [*writes, *writes]
    random.Random(seed).shuffle(mixed)
    together = PageState().updated(mixed)
    state = PageState()
    for write in mixed:
        state = state.updated([write])
    assert together.page == state.page == {"v": max(versions)}


def test_an_old_version_never_comes_back():
    state = PageState().updated([page_write({"v": 5}, 5)]).updated([page_write({"v": 3}, 3)])
    assert (state.page, state.version) == ({"v": 5}, 5)


def test_a_run_starts_from_what_it_is_given_even_if_that_is_older():
    state = PageState().updated([page_write({"v": 5}, 5), {"x": 1}])
    started = state.updated([page_write({"v": 2}, 2, start=True)])
    assert (started.page, started.version, started.patches) == ({"v": 2}, 2, ())


def test_a_start_beside_a_patch_drops_nothing():
    for writes in itertools.permutations([page_write({"v": 2}, 2, start=True), {"x": 1}]):
        assert PageState().updated(list(writes)).page == {"v": 2, "x": 1}


def test_patches_that_are_not_saved_stay_on_top_of_a_newer_version():
    state = PageState().updated([page_write({"a": 1}, 1, start=True)]).updated([{"b": 2, "a": None}])
    newer = state.updated([page_write({"a": 7, "c": 3}, 2)])
    assert newer.page == {"c": 3, "b": 2}
    assert len(newer.patches) == 1


STARTED = PageState().updated([page_write({"a": 1, "b": {"c": 2}}, 1, start=True)])


@pytest.mark.parametrize(
    ("returned", "patches"),
    [
        ({"a": 1, "b": {"c": 2}}, []),
        ({"a": 1, "b": {"c": 2}, "d": 3}, [{"d": 3}]),
        ({"a": True, "b": {"c": 2}}, [{"a": True}]),
        ({"a": 1, "b": None}, [{"b": None}]),
        ({"a": 1}, [{"a": 1}]),
        ({}, []),
    ],
)
def test_a_node_that_returns_the_whole_page_means_what_differs(returned, patches):
    state = STARTED.updated([returned])
    assert [patch.value for patch in state.patches] == patches
    assert state.page == merge({"a": 1, "b": {"c": 2}}, returned)


def test_without_a_memory_no_patches_pile_up():
    state = PageState()
    for number in range(50):
        state = state.updated([{"n": number}])
    assert state.patches == ()


@pytest.mark.parametrize("overwrite", [Overwrite({"z": 1}), {"__overwrite__": {"z": 1}}], ids=["typed", "as JSON"])
def test_an_overwrite_replaces_the_page(overwrite):
    assert PageState(page={"a": 1}).updated([overwrite]).page == {"z": 1}


def test_a_text_replaces_and_nothing_is_nothing():
    assert PageState(page="old").updated(["new"]).page == "new"
    assert PageState(page="old").updated([None]).page == "old"
    started = PageState().updated([page_write("old", 1, start=True)])
    assert started.updated(["old"]).patches == ()
    assert len(started.updated(["new"]).patches) == 1


def test_something_else_is_a_clear_error():
    with pytest.raises(InvalidUpdateError, match="working_memory takes"):
        PageState().updated([5])


@given(patches=_patches)
def test_a_checkpoint_brings_the_whole_channel_back_as_plain_data(patches):
    channel = PageChannel()
    channel.update([page_write({"a": 1}, 3, start=True)])
    channel.update(patches)
    data = channel.checkpoint()
    assert PageChannel().from_checkpoint(json.loads(json.dumps(data))).state == channel.state
    assert channel.copy().state == channel.state


def test_a_checkpoint_of_a_plain_page_is_understood():
    assert PageChannel().from_checkpoint({"name": "Ann"}).get() == {"name": "Ann"}
    assert PageChannel().from_checkpoint("text").get() == "text"


def test_the_version_channel_takes_the_highest_and_starts_anywhere():
    channel = VersionChannel()
    channel.update([version_write(4), version_write(6), version_write(5)])
    assert channel.get() == 6
    channel.update([version_write(5)])
    assert channel.get() == 6
    channel.update([version_write(2, start=True)])
    assert channel.from_checkpoint(channel.checkpoint()).get() == 2


def build(*nodes):
    graph = StateGraph(State)
    for name, node in nodes:
        graph.add_node(name, node)
    for before, after in itertools.pairwise([START, *(name for name, _ in nodes)]):
        graph.add_edge(before, after)
    return graph


def test_a_node_returns_the_fields_that_change():
    app = build(
        ("learn", lambda _: {"working_memory": {"name": "Ann", "age": 3}}),
        ("forget", lambda _: {"working_memory": {"age": None}}),
    ).compile()
    assert app.invoke({"messages": []})["working_memory"] == {"name": "Ann"}


def test_a_node_may_change_the_page_that_it_gets():
    seen = []

    def learn(state):
        state["working_memory"]["b"]["c"] = 9
        return {"working_memory": state["working_memory"]}

    app = build(
        ("start", lambda _: {"working_memory": page_write({"a": 1, "b": {"c": 2}}, 1, start=True)}),
        ("learn", learn),
        ("look", lambda _: seen.append(channel_state(get_config()))),
    ).compile()
    assert app.invoke({"messages": []})["working_memory"] == {"a": 1, "b": {"c": 9}}
    assert [patch.value for patch in seen[0].patches] == [{"b": {"c": 9}}]


def test_a_subgraph_with_the_same_channel_gives_back_only_what_it_changed():
    seen = []
    child = build(("inner", lambda _: {"working_memory": {"b": 2}})).compile()
    app = build(
        ("start", lambda _: {"working_memory": page_write({"a": 1}, 1, start=True)}),
        ("child", child),
        ("look", lambda _: seen.append(channel_state(get_config()))),
    ).compile()
    assert app.invoke({"messages": []})["working_memory"] == {"a": 1, "b": 2}
    assert [patch.value for patch in seen[0].patches] == [{"b": 2}]


def test_parallel_nodes_all_count():
    graph = StateGraph(State)
    for name in "abc":
        graph.add_node(name, lambda _, name=name: {"working_memory": {name: 1}})
        graph.add_edge(START, name)
    assert graph.compile().invoke({"messages": []})["working_memory"] == {"a": 1, "b": 1, "c": 1}


def test_the_page_travels_with_the_checkpoint_and_a_fork_has_the_page_as_it_was():
    counter = itertools.count(1)
    app = build(("learn", lambda _: {"working_memory": {"n": next(counter)}})).compile(checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "t"}}
    app.invoke({"messages": []}, config)
    first = app.get_state(config)
    app.invoke({"messages": []}, config)
    assert app.get_state(config).values["working_memory"] == {"n": 2}
    assert app.get_state(first.config).values["working_memory"] == {"n": 1}


def test_a_running_node_can_reach_the_patches():
    seen = []
    app = build(
        ("start", lambda _: {"working_memory": page_write({"a": 1}, 1, start=True)}),
        ("learn", lambda _: {"working_memory": {"b": 2}}),
        ("look", lambda _: seen.append(channel_state(get_config()))),
    ).compile()
    app.invoke({"messages": []})
    assert [patch.value for patch in seen[0].patches] == [{"b": 2}]
    assert (seen[0].start, seen[0].page) == (1, {"a": 1, "b": 2})


def test_a_page_passes_through_send_and_the_saved_step():
    def fan(state):
        return [Send("work", {**state, "n": n}) for n in range(3)]

    graph = StateGraph(State)
    graph.add_node("start", lambda _: {"working_memory": page_write({"a": 1}, 1, start=True)})
    graph.add_node("work", lambda state: {"working_memory": {f"w{state['n']}": state["working_memory"]["a"]}})
    graph.add_edge(START, "start")
    graph.add_conditional_edges("start", fan, ["work"])
    app = graph.compile(checkpointer=InMemorySaver())
    result = app.invoke({"messages": []}, {"configurable": {"thread_id": "t"}})
    assert result["working_memory"] == {"a": 1, "w0": 1, "w1": 1, "w2": 1}


async def test_it_works_on_an_event_loop():
    async def learn(_):
        return {"working_memory": {"name": "Ann"}}

    app = build(("learn", learn)).compile()
    assert (await app.ainvoke({"messages": []}))["working_memory"] == {"name": "Ann"}
