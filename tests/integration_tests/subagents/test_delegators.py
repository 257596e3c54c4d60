"""A worker that remembers, in the four places where one agent delegates to another: each with the real package."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import pytest
from deepagents import create_deep_agent
from langchain.agents import create_agent
from langchain.tools import tool
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, interrupt
from langgraph_supervisor import create_supervisor
from pydantic import BaseModel

from langchain_mastra_memory.agents.middleware import MemoryMiddleware
from langchain_mastra_memory.errors import (
    ConfigurationError,
    MissingResourceError,
    ProcessorError,
    ThreadOwnershipError,
)
from langchain_mastra_memory.memory import Memory
from langchain_mastra_memory.testing.models import ScriptedChatModel, tool_call
from langchain_mastra_memory.working_memory.options import WorkingMemory

CONFIG = {"configurable": {"thread_id": "t1", "resource_id": "r1"}}


@pytest.fixture
def memory(sqlite_url):
    with Memory(sqlite_url, working_memory=WorkingMemory(template="# Page")) as opened:
        yield opened


def say(*replies: Any) -> ScriptedChatModel:
    return ScriptedChatModel(list(replies))


def worker_agent(model, tools=(), middleware=None, **options):
    return create_agent(model, list(tools), middleware=[middleware or MemoryMiddleware()], name="helper", **options)


def parent_agent(memory, model, tools, **options):
    return create_agent(
        model,
        tools,
        middleware=[memory.middleware()],
        system_prompt="PARENT INSTRUCTIONS",
        **{"checkpointer": memory.checkpointer, **options},
    )


async def run(agent, messages, mode, config=CONFIG):
    given = messages if isinstance(messages, Command) else {"messages": messages}
    return (
        await agent.ainvoke(given, config) if mode == "async" else await asyncio.to_thread(agent.invoke, given, config)
    )


def stored(memory, resource_id="r1-helper"):
    """Return the worker's threads: id, parent, texts."""
    return [
        (
            thread.metadata["parent"]["thread_id"],
            [m.message.text for m in memory.recall(thread_id=thread.id, per_page=False)],
        )
        for thread in memory.list_threads(resource_id, direction="asc")
    ]


modes = pytest.mark.parametrize("mode", ["sync", "async"])


@modes
async def test_a_tool_of_create_agent_delegates_with_the_parents_conversation_and_saves_task_and_answer(memory, mode):
    model = say("found it", "found more")
    worker = memory.subagent(worker_agent(model), name="helper", description="Finds things.")
    asks = [
        tool_call("helper", {"prompt": "find A"}, id="c1"),
        "done 1",
        tool_call("helper", {"prompt": "find B"}, id="c2"),
        "done 2",
    ]
    parent = parent_agent(memory, say(*asks), [worker.as_tool()])
    result = await run(parent, [("user", "please look for A")], mode)
    assert result["messages"][-1].text == "done 1"
    assert [m.text for m in result["messages"] if isinstance(m, ToolMessage)] == ["found it"]
    await run(parent, [("user", "now B")], mode)

    assert stored(memory) == [("t1", ["find A", "found it"]), ("t1", ["find B", "found more"])]
    first, second = (call.messages for call in model.calls)
    assert [m.text for m in first if m.type != "system"] == ["please look for A", "find A"]
    assert [m.text for m in second if m.type != "system"] == ["please look for A", "done 1", "now B", "find B"]
    shown = model.calls[0].system
    assert "PARENT INSTRUCTIONS" not in shown
    assert [m.message.text for m in memory.recall(thread_id="t1", per_page=False) if m.role != "tool"] == [
        "please look for A",
        "",
        "done 1",
        "now B",
        "",
        "done 2",
    ]


@modes
@pytest.mark.filterwarnings("ignore::langgraph.warnings.LangGraphDeprecatedSinceV10")  # langgraph-supervisor's own
async def test_langgraph_supervisor_delegates_in_both_output_modes(memory, mode):
    for output_mode in ("last_message", "full_history"):
        model = say(f"answer {output_mode}")
        worker = memory.subagent(worker_agent(model), name="helper")
        supervisor = create_supervisor(
            [worker],
            model=say(tool_call("transfer_to_helper", id="c1"), "all done"),
            output_mode=output_mode,
        ).compile(checkpointer=memory.checkpointer)
        config = {"configurable": {"thread_id": output_mode, "resource_id": "r1"}}
        result = await run(supervisor, [("user", "earlier"), ("ai", "yes?"), ("user", "do it")], mode, config)
        assert result["messages"][-1].text == "all done"
        assert f"answer {output_mode}" in [m.text for m in result["messages"]]
        assert [m.text for m in result["messages"] if m.type == "human"] == ["earlier", "do it"]
        assert [m.text for m in model.last_call.conversation] == ["earlier", "yes?", "do it"]
    assert stored(memory) == [
        ("last_message", ["do it", "answer last_message"]),
        ("full_history", ["do it", "answer full_history"]),
    ]


@modes
async def test_deepagents_delegates_through_its_task_tool(memory, mode):
    model = say("deep answer")
    worker = memory.subagent(worker_agent(model), name="helper", description="Helps.")
    parent = create_deep_agent(
        model=say(tool_call("task", {"description": "go deep", "subagent_type": "helper"}, id="c1"), "done"),
        subagents=[worker.as_compiled_subagent()],
        middleware=[memory.middleware()],
        checkpointer=memory.checkpointer,
    )
    result = await run(parent, [("user", "start")], mode)
    assert result["messages"][-1].text == "done"
    assert [m.text for m in result["messages"] if isinstance(m, ToolMessage)] == ["deep answer"]
    assert stored(memory) == [("t1", ["go deep", "deep answer"])]


@modes
@pytest.mark.parametrize("saver", ["none", "ours", "foreign"])
@pytest.mark.parametrize("question", [lambda text: ("user", text), str, HumanMessage])
async def test_a_deep_agent_remembers_its_questions_in_whatever_form_they_come(memory, mode, saver, question):
    checkpointer = {"none": None, "ours": memory.checkpointer, "foreign": InMemorySaver()}[saver]
    model = say("A1", "A2", "A3")
    agent = create_deep_agent(model=model, middleware=[memory.middleware()], checkpointer=checkpointer)
    for text in ("U1", "U2", "U3"):
        state = await run(agent, [question(text)], mode)
    said = [stored.message.text for stored in await memory.arecall(thread_id="t1")]
    assert said == ["U1", "A1", "U2", "A2", "U3", "A3"]
    assert [message.text for message in model.last_call.conversation] == ["U1", "A1", "U2", "A2", "U3"]
    assert [message.text for message in state["messages"]] == (said if checkpointer else said[-2:])
    assert all(message.id for message in state["messages"])


@pytest.mark.parametrize("saver", ["none", "ours", "foreign"])
def test_an_agent_with_a_name_of_its_own_works_as_the_outermost_graph_too(memory, saver):
    checkpointer = {"none": None, "ours": memory.checkpointer, "foreign": InMemorySaver()}[saver]
    agent = create_agent(
        say("A1", "A2"), middleware=[MemoryMiddleware(memory, agent="helper")], checkpointer=checkpointer
    )
    for text in ("U1", "U2"):
        agent.invoke({"messages": [("user", text)]}, CONFIG)
    (thread,) = memory.list_threads("r1-helper")
    assert [stored.message.text for stored in memory.recall(thread_id=thread.id)] == ["U1", "A1", "U2", "A2"]


class PydanticState(BaseModel):
    messages: Annotated[list[AnyMessage], add_messages]


@modes
@pytest.mark.parametrize("schema", [MessagesState, PydanticState])
async def test_a_plain_node_delegates(memory, mode, schema):
    model = say("node answer")
    builder = StateGraph(schema)
    builder.add_node("helper", memory.subagent(worker_agent(model), name="helper"))
    builder.add_edge(START, "helper")
    builder.add_edge("helper", END)
    graph = builder.compile(checkpointer=memory.checkpointer)
    result = await run(graph, [("user", "do it")], mode)
    assert [m.text for m in result["messages"]] == ["do it", "node answer"]
    assert stored(memory) == [("t1", ["do it", "node answer"])]


@modes
async def test_parallel_delegations_to_one_worker_have_a_thread_each(memory, mode):
    worker = memory.subagent(
        worker_agent(ScriptedChatModel(lambda messages: f"did {messages[-1].text}")), name="helper"
    )
    both = AIMessage(
        "",
        tool_calls=[
            {"name": "helper", "args": {"prompt": prompt}, "id": f"c-{prompt}", "type": "tool_call"}
            for prompt in ("A", "B")
        ],
    )
    parent = parent_agent(memory, say(both, "done"), [worker.as_tool()])
    result = await run(parent, [("user", "do both")], mode)
    assert [m.text for m in result["messages"] if isinstance(m, ToolMessage)] == ["did A", "did B"]
    assert sorted(texts for _, texts in stored(memory)) == [["A", "did A"], ["B", "did B"]]


@modes
async def test_three_levels_deep(memory, mode):
    lowest = memory.subagent(worker_agent(say("bottom")), name="low")
    middle = memory.subagent(
        worker_agent(say(tool_call("low", {"prompt": "to low"}, id="c2"), "middle done"), [lowest.as_tool()]),
        name="mid",
    )
    parent = parent_agent(memory, say(tool_call("mid", {"prompt": "to mid"}, id="c1"), "top done"), [middle.as_tool()])
    result = await run(parent, [("user", "go")], mode)
    assert result["messages"][-1].text == "top done"
    (mid,) = memory.list_threads("r1-mid")
    (low,) = memory.list_threads("r1-mid-low")
    assert mid.metadata["parent"] == {"thread_id": "t1", "resource_id": "r1", "agent": "mid"}
    assert low.metadata["parent"] == {"thread_id": mid.id, "resource_id": "r1-mid", "agent": "low"}
    assert [m.message.text for m in memory.recall(thread_id=low.id, per_page=False)] == ["to low", "bottom"]


def test_a_worker_without_memory_hooks_is_remembered_too(memory):
    model = say("plain answer")
    worker = memory.subagent(create_agent(model), name="helper")
    parent = parent_agent(memory, say(tool_call("helper", {"prompt": "task"}, id="c1"), "done"), [worker.as_tool()])
    parent.invoke({"messages": [("user", "hello")]}, CONFIG)
    assert stored(memory) == [("t1", ["task", "plain answer"])]
    assert [m.text for m in model.last_call.messages] == ["hello", "task"]


def test_a_raw_graph_with_our_nodes_keeps_its_own_memory(memory):
    class State(MessagesState):
        llm_input_messages: list[AnyMessage]

    model = say("raw answer")
    builder = StateGraph(State)
    builder.add_node("load", memory.load_node())
    builder.add_node("model", lambda state: {"messages": [model.invoke(state["llm_input_messages"])]})
    builder.add_node("save", memory.save_node())
    for start, end in ((START, "load"), ("load", "model"), ("model", "save")):
        builder.add_edge(start, end)
    worker = memory.subagent(builder.compile(), name="helper")
    top = say(tool_call("helper", {"prompt": "task"}, id="c1"), "done")
    parent_agent(memory, top, [worker.as_tool()]).invoke({"messages": [("user", "hello")]}, CONFIG)
    assert stored(memory) == [("t1", ["task", "raw answer"])]
    assert [m.text for m in model.last_call.conversation] == ["hello", "task"]


def test_a_worker_with_a_memory_of_its_own_uses_it(memory, tmp_path):
    with Memory(f"sqlite:///{tmp_path / 'own.db'}") as own:
        worker = memory.subagent(worker_agent(say("answer"), middleware=own.middleware()), name="helper")
        parent = parent_agent(memory, say(tool_call("helper", {"prompt": "task"}, id="c1"), "done"), [worker.as_tool()])
        parent.invoke({"messages": [("user", "hello")]}, CONFIG)
        assert stored(own) == [("t1", ["task", "answer"])]
    assert list(memory.list_threads("r1-helper")) == []


def test_a_stable_worker_sees_its_own_earlier_turns(memory):
    model = say("first", "second")
    worker = memory.subagent(worker_agent(model), name="helper", thread="stable", message_filter=lambda **_: [])
    asks = [
        tool_call("helper", {"prompt": "one"}, id="c1"),
        "ok",
        tool_call("helper", {"prompt": "two"}, id="c2"),
        "ok",
    ]
    parent = parent_agent(memory, say(*asks), [worker.as_tool()])
    for text in ("go", "again"):
        parent.invoke({"messages": [("user", text)]}, CONFIG)
    assert stored(memory) == [("t1", ["one", "first", "two", "second"])]
    assert [m.text for m in model.last_call.conversation] == ["one", "first", "two"]


def test_a_shared_worker_writes_under_the_parents_resource(memory):
    worker = memory.subagent(worker_agent(say("answer")), name="helper", resource="shared")
    parent = parent_agent(memory, say(tool_call("helper", {"prompt": "task"}, id="c1"), "done"), [worker.as_tool()])
    parent.invoke({"messages": [("user", "hello")]}, CONFIG)
    assert len(memory.list_threads("r1")) == 2


def test_ids_that_the_model_adds_to_the_call_are_ignored(memory):
    memory.create_thread("victim", thread_id="victim-thread")
    worker = memory.subagent(worker_agent(say("answer")), name="helper")
    call = tool_call("helper", {"prompt": "task", "thread_id": "victim-thread", "resource_id": "victim"}, id="c1")
    parent_agent(memory, say(call, "done"), [worker.as_tool()]).invoke({"messages": [("user", "hi")]}, CONFIG)
    assert stored(memory) == [("t1", ["task", "answer"])]
    assert len(memory.recall(thread_id="victim-thread", per_page=False)) == 0


def test_no_prompt_has_two_pages_and_nothing_private_crosses(memory):
    memory.update_working_memory("# Page\nPARENT SECRET", resource_id="r1")
    model = say(tool_call("update_working_memory", {"memory": "# Page\nWORKER NOTE"}, id="w1"), "answer")
    worker = memory.subagent(worker_agent(model), name="helper")
    top = say(tool_call("helper", {"prompt": "task"}, id="c1"), "done")
    result = parent_agent(memory, top, [worker.as_tool()]).invoke({"messages": [("user", "hi")]}, CONFIG)
    for call in model.calls:
        assert "PARENT SECRET" not in str(call.messages)
        assert call.system.count("</working_memory>") <= 1
    for call in top.calls:
        assert "WORKER NOTE" not in str(call.messages)
    assert set(result) == {"messages"}
    assert "WORKER NOTE" in memory.get_working_memory(resource_id="r1-helper")
    assert "PARENT SECRET" in memory.get_working_memory(resource_id="r1")


@modes
@pytest.mark.parametrize("questions", [1, 2])
async def test_a_worker_asks_people_and_gets_the_right_answers(memory, mode, questions):
    @tool
    def ask() -> str:
        """Ask a person."""
        return " and ".join(str(interrupt(f"question {n}")) for n in range(questions))

    model = say(tool_call("ask", id="a1"), "thanks")
    worker = memory.subagent(worker_agent(model, [ask]), name="helper")
    parent = parent_agent(memory, say(tool_call("helper", {"prompt": "task"}, id="c1"), "done"), [worker.as_tool()])
    result = await run(parent, [("user", "hi")], mode)
    for n in range(questions):
        assert [i.value for i in result["__interrupt__"]] == [f"question {n}"]
        result = await run(parent, Command(resume=f"answer {n}"), mode)
    assert result["messages"][-1].text == "done"
    expected = " and ".join(f"answer {n}" for n in range(questions))
    assert [m.text for m in model.last_call.messages if isinstance(m, ToolMessage)] == [expected]
    assert [texts for _, texts in stored(memory)] == [["task", "", expected, "thanks"]]


@modes
async def test_parallel_workers_each_wait_for_their_own_answer(memory, mode):
    @tool
    def ask(what: str) -> str:
        """Ask a person."""
        return f"{what}:{interrupt(what)}"

    def reply(messages: list[AnyMessage]) -> Any:
        last = messages[-1]
        return (
            f"got {last.text}"
            if isinstance(last, ToolMessage)
            else tool_call("ask", {"what": last.text}, id=f"a-{last.text}")
        )

    worker = memory.subagent(worker_agent(ScriptedChatModel(reply), [ask]), name="helper")
    both = AIMessage(
        "",
        tool_calls=[
            {"name": "helper", "args": {"prompt": prompt}, "id": f"c-{prompt}", "type": "tool_call"}
            for prompt in ("A", "B")
        ],
    )
    parent = parent_agent(memory, say(both, "done"), [worker.as_tool()])
    result = await run(parent, [("user", "hi")], mode)
    waiting = {i.value: i.id for i in result["__interrupt__"]}
    assert set(waiting) == {"A", "B"}
    result = await run(parent, Command(resume={waiting["B"]: "for B", waiting["A"]: "for A"}), mode)
    assert [m.text for m in result["messages"] if isinstance(m, ToolMessage)] == ["got A:for A", "got B:for B"]


async def test_a_question_two_levels_deep_is_answered(memory):
    @tool
    def ask() -> str:
        """Ask a person."""
        return str(interrupt("really?"))

    low = memory.subagent(worker_agent(say(tool_call("ask", id="a1"), "low done"), [ask]), name="low")
    mid = memory.subagent(
        worker_agent(say(tool_call("low", {"prompt": "x"}, id="c2"), "mid done"), [low.as_tool()]), name="mid"
    )
    parent = parent_agent(memory, say(tool_call("mid", {"prompt": "y"}, id="c1"), "done"), [mid.as_tool()])
    result = await parent.ainvoke({"messages": [("user", "hi")]}, CONFIG)
    assert [i.value for i in result["__interrupt__"]] == ["really?"]
    result = await parent.ainvoke(Command(resume="yes"), CONFIG)
    assert result["messages"][-1].text == "done"
    (thread,) = memory.list_threads("r1-mid-low")
    assert [m.message.text for m in memory.recall(thread_id=thread.id, per_page=False)] == ["x", "", "yes", "low done"]


def test_a_question_without_a_checkpointer_to_wait_with_is_a_clear_error(memory):
    @tool
    def ask() -> str:
        """Ask a person."""
        return str(interrupt("really?"))

    worker = memory.subagent(worker_agent(say(tool_call("ask", id="a1"), "x"), [ask]), name="helper")
    parent = parent_agent(
        memory, say(tool_call("helper", {"prompt": "y"}, id="c1"), "done"), [worker.as_tool()], checkpointer=None
    )
    with pytest.raises(ConfigurationError, match="checkpointer"):
        parent.invoke({"messages": [("user", "hi")]}, CONFIG)


async def test_tokens_updates_and_events_of_a_worker_reach_the_callers_stream(memory):
    @tool
    def work(runtime: Any = None) -> str:
        """Work."""
        from langgraph.config import get_stream_writer

        get_stream_writer()({"progress": 1})
        return "worked"

    worker = memory.subagent(worker_agent(say(tool_call("work", id="w1"), "worker words"), [work]), name="helper")
    parent = parent_agent(memory, say(tool_call("helper", {"prompt": "task"}, id="c1"), "done"), [worker.as_tool()])
    tokens, events, nested_updates = "", [], 0
    async for namespace, kind, chunk in parent.astream(
        {"messages": [("user", "hi")]}, CONFIG, stream_mode=["messages", "custom", "updates"], subgraphs=True
    ):
        if kind == "messages" and namespace:
            tokens += chunk[0].text
        elif kind == "custom":
            events.append(chunk)
        elif kind == "updates" and namespace:
            nested_updates += 1
    assert "worker words" in tokens
    assert {"progress": 1} in events
    assert nested_updates > 1


async def test_cancelling_the_parent_cancels_the_worker(memory):
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def reply(_messages: list[AnyMessage]) -> str:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return "never"

    worker = memory.subagent(worker_agent(ScriptedChatModel(reply)), name="helper")
    parent = parent_agent(memory, say(tool_call("helper", {"prompt": "task"}, id="c1"), "done"), [worker.as_tool()])
    running = asyncio.create_task(parent.ainvoke({"messages": [("user", "hi")]}, CONFIG))
    await asyncio.wait_for(started.wait(), 20)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert cancelled.is_set()


@modes
async def test_a_workers_failure_is_a_tool_error_without_its_secrets(memory, mode, caplog):
    worker = memory.subagent(worker_agent(say(ValueError("api key sk-123"))), name="helper")
    top = say(tool_call("helper", {"prompt": "task"}, id="c1"), "I will try something else")
    result = await run(parent_agent(memory, top, [worker.as_tool()]), [("user", "hi")], mode)
    (failed,) = [m for m in result["messages"] if isinstance(m, ToolMessage)]
    assert failed.status == "error"
    assert failed.text == "helper could not do the task (ValueError)."
    assert "ValueError" in caplog.text
    assert "sk-123" not in caplog.text
    assert result["messages"][-1].text == "I will try something else"


@modes
@pytest.mark.parametrize("prompt", ["", " \n"])
async def test_an_empty_task_is_an_answer_that_the_delegating_model_can_mend(memory, mode, prompt):
    worker = memory.subagent(worker_agent(say("done it")), name="helper")
    calls = [tool_call("helper", {"prompt": text}, id=name) for text, name in ((prompt, "c1"), ("task", "c2"))]
    result = await run(parent_agent(memory, say(*calls, "done"), [worker.as_tool()]), [("user", "hi")], mode)
    empty, mended = [m for m in result["messages"] if isinstance(m, ToolMessage)]
    assert (empty.status, mended.status) == ("error", "success")
    assert "prompt" in empty.text
    assert mended.text == "done it"


def test_a_worker_that_answers_nothing_says_so(memory):
    worker = memory.subagent(worker_agent(say("")), name="helper")
    top = say(tool_call("helper", {"prompt": "task"}, id="c1"), "done")
    result = parent_agent(memory, top, [worker.as_tool()]).invoke({"messages": [("user", "hi")]}, CONFIG)
    assert [m.text for m in result["messages"] if isinstance(m, ToolMessage)] == ["helper gave no answer."]


@modes
async def test_a_filter_chooses_what_the_worker_sees(memory, mode):
    seen: dict[str, Any] = {}

    def only_the_first(messages, agent, prompt):
        seen.update(messages=messages, agent=agent, prompt=prompt)
        return messages[:1]

    async def only_the_first_async(messages, agent, prompt):
        return only_the_first(messages, agent, prompt)

    model = say("answer")
    chosen = only_the_first if mode == "sync" else only_the_first_async
    worker = memory.subagent(worker_agent(model), name="helper", message_filter=chosen)
    parent = parent_agent(memory, say(tool_call("helper", {"prompt": "task"}, id="c1"), "done"), [worker.as_tool()])
    await run(parent, [("user", "one"), ("ai", "two"), ("user", "three")], mode)
    assert [m.text for m in model.last_call.conversation] == ["one", "task"]
    assert (seen["agent"], seen["prompt"]) == ("helper", "task")
    assert [m.text for m in seen["messages"]] == ["one", "two", "three", ""]


def test_a_filter_that_fails_is_a_clear_error(memory):
    worker = memory.subagent(worker_agent(say("x")), name="helper", message_filter=lambda **_: 1 / 0)
    parent = parent_agent(memory, say(tool_call("helper", {"prompt": "task"}, id="c1"), "done"), [worker.as_tool()])
    with pytest.raises(ProcessorError, match="message_filter of worker 'helper'"):
        parent.invoke({"messages": [("user", "hi")]}, CONFIG)


def test_the_parents_archive_is_forwarded_when_the_state_does_not_have_it(memory):
    memory.save_messages([("user", "OLD USER"), ("ai", "OLD ANSWER")], thread_id="t1", resource_id="r1")
    model = say("answer")
    worker = memory.subagent(worker_agent(model), name="helper")
    top = say(tool_call("helper", {"prompt": "task"}, id="c1"), "done")
    parent_agent(memory, top, [worker.as_tool()], checkpointer=None).invoke({"messages": [("user", "new")]}, CONFIG)
    assert [m.text for m in model.last_call.conversation] == ["OLD USER", "OLD ANSWER", "new", "task"]


def test_a_run_without_a_resource_cannot_delegate(memory):
    worker = memory.subagent(worker_agent(say("x")), name="helper")
    builder = StateGraph(MessagesState)
    builder.add_node("helper", worker)
    builder.add_edge(START, "helper")
    with pytest.raises(MissingResourceError, match="helper"):
        builder.compile().invoke({"messages": [("user", "hi")]}, {"configurable": {"thread_id": "t1"}})


def test_a_user_whose_id_spells_a_workers_never_gets_its_memory(memory):
    worker = memory.subagent(worker_agent(say("secret of r1")), name="helper")
    top = say(tool_call("helper", {"prompt": "task"}, id="c1"), "done")
    parent_agent(memory, top, [worker.as_tool()]).invoke({"messages": [("user", "hi")]}, CONFIG)
    stranger = create_agent(say("hello"), middleware=[memory.middleware()], checkpointer=memory.checkpointer)
    with pytest.raises(ThreadOwnershipError, match="sub-agent"):
        stranger.invoke(
            {"messages": [("user", "hi")]}, {"configurable": {"thread_id": "t9", "resource_id": "r1-helper"}}
        )


@pytest.mark.parametrize("name", ["my helper/é:1 😀", "a-b.c", "'; --"])
def test_a_worker_may_have_any_name(memory, name):
    worker = memory.subagent(worker_agent(say("answer")), name=name)
    called = worker.as_tool().name
    assert called.replace("_", "").replace("-", "").isascii()
    top = say(tool_call(called, {"prompt": "task"}, id="c1"), "done")
    parent_agent(memory, top, [worker.as_tool()]).invoke({"messages": [("user", "hi")]}, CONFIG)
    assert stored(memory, f"r1-{name}") == [("t1", ["task", "answer"])]


def test_read_only_delegations_write_nothing(memory):
    worker = memory.subagent(worker_agent(say("answer")), name="helper")
    top = say(tool_call("helper", {"prompt": "task"}, id="c1"), "done")
    config = {"configurable": {**CONFIG["configurable"], "memory": {"read_only": True}}}
    parent = parent_agent(memory, top, [worker.as_tool()], checkpointer=InMemorySaver())
    assert parent.invoke({"messages": [("user", "hi")]}, config)["messages"][-1].text == "done"
    assert list(memory.list_threads(all_resources=True)) == []


def test_the_worker_takes_a_prompt_messages_or_a_state(memory):
    model = ScriptedChatModel(lambda messages: f"did {messages[-1].text}")
    worker = memory.subagent(worker_agent(model), name="helper")
    for given in ("task", {"prompt": "task"}, [HumanMessage("task")], {"messages": [("user", "task")]}):
        assert worker.invoke(given, CONFIG)["messages"][-1].text == "did task"
    for nothing in ("", " ", [], {"messages": [("ai", "x")]}, 5):
        with pytest.raises(ConfigurationError):
            worker.invoke(nothing, CONFIG)


def test_two_workers_of_one_name_are_told_that_they_share(memory, caplog):
    first = memory.subagent(worker_agent(say("x")), name="helper")
    memory.subagent(worker_agent(say("y")), name="other")
    assert not caplog.records
    second = memory.subagent(worker_agent(say("y")), name="helper")
    third = memory.subagent(worker_agent(say("z")), name="helper")
    assert caplog.text.count("two workers are named 'helper'") == 1
    assert first.name == second.name == third.name


def test_workers_that_delegate_in_a_circle_are_stopped(memory):
    def reply(messages: list[AnyMessage]) -> Any:
        return tool_call("self", {"prompt": f"{messages[-1].text}."}, id="c1")

    made: list[Any] = []

    @tool("self")
    def again(prompt: str) -> str:
        """Delegate to myself."""
        return made[0].invoke(prompt)["messages"][-1].text

    made.append(memory.subagent(worker_agent(ScriptedChatModel(reply), [again]), name="a"))
    with pytest.raises(ConfigurationError, match="circle"):
        made[0].invoke("go", CONFIG)
