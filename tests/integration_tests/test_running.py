"""Every way of running a graph: memory is right in each, and the same in all."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain.tools import tool
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.graph import START, MessagesState, StateGraph, add_messages
from langgraph.types import Command, RetryPolicy, interrupt
from typing_extensions import TypedDict

from langchain_mastra_memory import (
    ConfigurationError,
    Memory,
    MemoryContext,
    MemoryMiddleware,
    MessageHistory,
    Speaker,
    ThreadSaver,
    WorkingMemory,
    as_user_turn,
)
from langchain_mastra_memory.testing.models import ScriptedChatModel, tool_call


def config(thread="t1", resource="r1", **more):
    return {"configurable": {"thread_id": thread, "resource_id": resource, **more}}


def counting() -> ScriptedChatModel:
    """Return a model that says which human messages it sees."""
    return ScriptedChatModel(lambda messages: "seen " + ",".join(m.text for m in messages if m.type == "human"))


def texts(memory, thread="t1"):
    return [stored.message.text for stored in memory.recall(thread_id=thread, per_page=False)]


@pytest.fixture
def memory(sqlite_url):
    with Memory(sqlite_url) as opened:
        yield opened


def savers(memory):
    return {"ours": memory.checkpointer, "foreign": InMemorySaver(), "none": None}


saver_kinds = pytest.mark.parametrize("kind", ["ours", "foreign", "none"])
TWO_TURNS = ["one", "seen one", "two", "seen one,two"]


def invoke(agent, text):
    agent.invoke({"messages": [("user", text)]}, config())


def stream(mode):
    def run(agent, text):
        for _ in agent.stream({"messages": [("user", text)]}, config(), stream_mode=mode):
            pass

    return run


def ainvoke(agent, text):
    asyncio.run(agent.ainvoke({"messages": [("user", text)]}, config()))


def astream(mode):
    async def run(agent, text):
        async for _ in agent.astream({"messages": [("user", text)]}, config(), stream_mode=mode, subgraphs=True):
            pass

    return lambda agent, text: asyncio.run(run(agent, text))


def astream_events(agent, text):
    async def run():
        async for _ in agent.astream_events({"messages": [("user", text)]}, config(), version="v2"):
            pass

    asyncio.run(run())


def batch(agent, text):
    agent.batch([{"messages": [("user", text)]}], [config()])


def durable(durability):
    return lambda agent, text: agent.invoke({"messages": [("user", text)]}, config(), durability=durability)


WAYS = {
    "invoke": invoke,
    "ainvoke": ainvoke,
    "batch": batch,
    "astream_events": astream_events,
    **{
        f"stream {mode}": stream(mode)
        for mode in ("values", "updates", "messages", "custom", "debug", "checkpoints", "tasks")
    },
    **{f"astream {mode}": astream(mode) for mode in ("values", "updates", "messages", "custom", "debug")},
}


@saver_kinds
@pytest.mark.parametrize("way", WAYS)
def test_two_turns_are_remembered_whichever_way_they_run(memory, kind, way):
    if way == "stream checkpoints" and kind == "none":
        pytest.skip("there are no checkpoints to stream")
    agent = create_agent(counting(), middleware=[memory.middleware()], checkpointer=savers(memory)[kind])
    for text in ("one", "two"):
        WAYS[way](agent, text)
    assert texts(memory) == TWO_TURNS


@pytest.mark.parametrize("kind", ["ours", "foreign"])
@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_every_durability_remembers_the_same(memory, kind, durability):
    agent = create_agent(counting(), middleware=[memory.middleware()], checkpointer=savers(memory)[kind])
    for text in ("one", "two"):
        durable(durability)(agent, text)
    assert texts(memory) == TWO_TURNS


def test_a_batch_over_many_threads_mixes_nothing(memory):
    agent = create_agent(counting(), middleware=[memory.middleware()], checkpointer=memory.checkpointer)
    for turn in ("one", "two"):
        agent.batch(
            [{"messages": [("user", f"{turn}-{n}")]} for n in range(12)],
            [config(f"t{n}", f"r{n % 3}") for n in range(12)],
        )
    for n in range(12):
        assert texts(memory, f"t{n}") == [f"one-{n}", f"seen one-{n}", f"two-{n}", f"seen one-{n},two-{n}"]
    assert sorted(thread.id for thread in memory.list_threads("r0")) == ["t0", "t3", "t6", "t9"]


@saver_kinds
def test_a_retried_node_saves_once(memory, kind):
    failures = iter([ConnectionError("once"), None])

    def reply(messages: list[AnyMessage]) -> str:
        if error := next(failures, None):
            raise error
        return "answer"

    agent = create_agent(ScriptedChatModel(reply), middleware=[memory.middleware()], name="inner")
    builder = StateGraph(MessagesState)
    builder.add_node("inner", agent, retry_policy=RetryPolicy(initial_interval=0.001, jitter=False))
    builder.add_edge(START, "inner")
    graph = builder.compile(checkpointer=savers(memory)[kind])
    graph.invoke({"messages": [("user", "hi")]}, config())
    assert texts(memory) == ["hi", "answer"]


@pytest.mark.parametrize("kind", ["ours", "foreign"])
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_an_interrupted_run_is_saved_when_it_ends(memory, kind, mode):
    @tool
    def ask() -> str:
        """Ask a person."""
        return str(interrupt("sure?"))

    model = ScriptedChatModel([tool_call("ask", id="a1"), "done"])
    agent = create_agent(model, [ask], middleware=[memory.middleware()], checkpointer=savers(memory)[kind])

    def run(given: Any) -> Any:
        return asyncio.run(agent.ainvoke(given, config())) if mode == "async" else agent.invoke(given, config())

    assert "__interrupt__" in run({"messages": [("user", "do it")]})
    run(Command(resume="yes"))
    assert texts(memory) == ["do it", "", "yes", "done"]


@pytest.mark.parametrize("kind", ["ours", "foreign", "none"])
@pytest.mark.parametrize("inner", [None, True, False])
def test_an_agent_as_a_subgraph_remembers_however_it_is_compiled(memory, kind, inner):
    if kind == "none" and inner is True:
        pytest.skip("checkpointer=True needs the parent's")
    agent = create_agent(counting(), middleware=[memory.middleware()], checkpointer=inner, name="inner")
    builder = StateGraph(MessagesState)
    builder.add_node("inner", agent)
    builder.add_edge(START, "inner")
    graph = builder.compile(checkpointer=savers(memory)[kind])
    for text in ("one", "two"):
        graph.invoke({"messages": [("user", text)]}, config())
    assert texts(memory) == TWO_TURNS


def test_the_functional_api_remembers(memory):
    model = counting()
    agent = create_agent(model, middleware=[memory.middleware()])

    @task
    def ask(text: str) -> str:
        return agent.invoke({"messages": [("user", text)]})["messages"][-1].text

    @entrypoint(checkpointer=memory.checkpointer)
    def workflow(text: str) -> str:
        return ask(text).result()

    assert workflow.invoke("one", config()) == "seen one"
    assert workflow.invoke("two", config()) == "seen one,two"
    assert texts(memory) == TWO_TURNS


@pytest.mark.filterwarnings("ignore::langgraph.warnings.LangGraphDeprecatedSinceV10")
@saver_kinds
def test_create_react_agent_takes_our_node_as_its_pre_model_hook(memory, kind):
    from langgraph.prebuilt import create_react_agent

    model = counting()
    agent = create_react_agent(
        model,
        [],
        pre_model_hook=memory.load_node(),
        post_model_hook=memory.save_node(),
        checkpointer=savers(memory)[kind],
    )
    for text in ("one", "two"):
        agent.invoke({"messages": [("user", text)]}, config())
    assert [m.text for m in model.last_call.conversation] == ["one", "seen one", "two"]
    assert texts(memory) == TWO_TURNS


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_raw_graph_remembers_with_a_reducer_of_its_own(memory, mode):
    class State(TypedDict):
        chat: Annotated[list[AnyMessage], add_messages]
        prompt: list[AnyMessage]

    model = counting()
    builder = StateGraph(State)
    builder.add_node("load", memory.load_node(input_key="chat", output_key="prompt", system="Be kind."))
    builder.add_node("model", lambda state: {"chat": [model.invoke(state["prompt"])]})
    builder.add_node("save", memory.save_node(input_key="chat"))
    for start, end in ((START, "load"), ("load", "model"), ("model", "save")):
        builder.add_edge(start, end)
    graph = builder.compile()
    for text in ("one", "two"):
        given = {"chat": [("user", text)]}
        asyncio.run(graph.ainvoke(given, config())) if mode == "async" else graph.invoke(given, config())
    assert texts(memory) == TWO_TURNS
    assert "Be kind." in model.last_call.system


def test_two_tenants_in_one_process_never_meet(tmp_path):
    with Memory(f"sqlite:///{tmp_path / 'a.db'}") as a, Memory(f"sqlite:///{tmp_path / 'b.db'}") as b:
        memories = {"a": a, "b": b}

        def chosen(runtime: Any) -> Memory:
            return memories[runtime.context.resource_id[0]]

        agent = create_agent(counting(), middleware=[MemoryMiddleware(chosen)], context_schema=MemoryContext)
        for text in ("one", "two"):
            for tenant in ("a1", "b1"):
                agent.invoke(
                    {"messages": [("user", f"{tenant} {text}")]},
                    {"configurable": {"thread_id": "same"}},
                    context=MemoryContext(resource_id=tenant),
                )
        assert texts(a, "same") == ["a1 one", "seen a1 one", "a1 two", "seen a1 one,a1 two"]
        assert texts(b, "same") == ["b1 one", "seen b1 one", "b1 two", "seen b1 one,b1 two"]


def test_a_saver_of_another_memory_is_refused_and_a_routed_one_follows(tmp_path):
    with Memory(f"sqlite:///{tmp_path / 'a.db'}") as a, Memory(f"sqlite:///{tmp_path / 'b.db'}") as b:
        wrong = create_agent(counting(), middleware=[MemoryMiddleware(lambda _: b)], checkpointer=a.checkpointer)
        with pytest.raises(ConfigurationError, match="route"):
            wrong.invoke({"messages": [("user", "hi")]}, config())

        def of_config(given: Any) -> Memory:
            return a if given["configurable"]["resource_id"].startswith("a") else b

        agent = create_agent(
            counting(),
            middleware=[MemoryMiddleware(lambda runtime: a if runtime.context.resource_id.startswith("a") else b)],
            checkpointer=ThreadSaver.route(of_config),
            context_schema=MemoryContext,
        )
        for resource, expected in (("a1", a), ("b1", b)):
            agent.invoke(
                {"messages": [("user", "hi")]}, config("same", resource), context=MemoryContext(resource_id=resource)
            )
            assert texts(expected, "same") == ["hi", "seen hi"]


def test_agents_that_name_one_resource_share_its_page_and_one_thread_its_history(sqlite_url):
    with Memory(sqlite_url, working_memory=WorkingMemory(template="# Page")) as memory:
        first = create_agent(
            ScriptedChatModel([tool_call("update_working_memory", {"memory": "# Page\nlikes tea"}, id="w1"), "noted"]),
            middleware=[memory.middleware()],
        )
        first.invoke({"messages": [("user", "I like tea")]}, config("t1", "r1"))
        model = ScriptedChatModel(["other thread", "same thread"])
        second = create_agent(model, middleware=[memory.middleware()])
        second.invoke({"messages": [("user", "hi")]}, config("t2", "r1"))
        assert "likes tea" in model.last_call.system
        assert "I like tea" not in str(model.last_call.conversation)
        second.invoke({"messages": [("user", "again")]}, config("t1", "r1"))
        assert next(m.text for m in model.last_call.conversation if m.text) == "I like tea"


def test_several_people_share_a_thread_and_stay_apart_in_history_and_recall(sqlite_url):
    alice = Speaker(id="u_alice", name="Alice", role="editor")
    bob = Speaker(id="u_bob", name="Bob", role="reviewer")
    with Memory(sqlite_url, semantic_recall=True, message_history=MessageHistory(last_messages=2)) as memory:
        model = ScriptedChatModel(lambda _messages: "ok")
        agent = create_agent(model, middleware=[memory.middleware()], checkpointer=memory.checkpointer)
        for turn in (
            as_user_turn(alice, "My favourite colour is teal."),
            as_user_turn(bob, "QA must sign off before we publish."),
            as_user_turn(alice, "Thanks."),
            as_user_turn(bob, "Who likes teal?"),
        ):
            agent.invoke({"messages": [turn]}, config("doc", "doc_42"))
        shown = "\n".join(m.text for m in model.last_call.messages)
        assert 'author_name="Alice"' in shown
        assert "My favourite colour is teal." in shown
        hits = memory.recall(resource_id="doc_42", query="favourite colour", top_k=1)
        assert hits[0].message.text.startswith('<turn author_id="u_alice"')


def test_the_observer_is_told_who_of_several_people_said_what(sqlite_url):
    observer = ScriptedChatModel(lambda _messages: "<observations>\n* Alice likes teal; Bob wants QA.\n</observations>")
    alice = Speaker(id="u_alice", name="Alice", role="editor")
    bob = Speaker(id="u_bob", name="Bob", role="reviewer")
    with Memory(sqlite_url, model=observer, observational_memory=True) as memory:
        said = [
            as_user_turn(alice, "I like teal."),
            AIMessage("Noted."),
            as_user_turn(bob, "QA first."),
            AIMessage("Ok."),
        ]
        memory.save_messages(said, thread_id="doc", resource_id="doc_42")
        memory.observe(thread_id="doc", resource_id="doc_42")
        told = observer.last_call.messages[-1].text
        assert "Alice" in told[: told.index("I like teal.")]
        assert "Bob" in told[told.index("I like teal.") : told.index("QA first.")]
        assert "Alice likes teal" in memory.get_observations(thread_id="doc", resource_id="doc_42").text


def test_a_sub_agent_named_in_the_middleware_has_its_own_resource(memory):
    model = ScriptedChatModel(lambda messages: f"did {messages[-1].text}")
    worker = create_agent(model, middleware=[memory.middleware(agent="helper")], name="helper")
    builder = StateGraph(MessagesState)
    builder.add_node("helper", worker)
    builder.add_edge(START, "helper")
    graph = builder.compile(checkpointer=memory.checkpointer)
    graph.invoke({"messages": [HumanMessage("do it")]}, config())
    (thread,) = memory.list_threads("r1-helper")
    assert thread.metadata["parent"]["thread_id"] == "t1"
    assert texts(memory, thread.id) == ["do it", "did do it"]


def test_answers_written_by_hand_are_part_of_the_history(memory):
    agent = create_agent(counting(), middleware=[memory.middleware()], checkpointer=memory.checkpointer)
    agent.invoke({"messages": [("user", "one"), AIMessage("by hand"), ("user", "two")]}, config())
    assert texts(memory) == ["one", "by hand", "two", "seen one,two"]
