"""The middleware on real agents: what the model sees, what is saved, with every kind of checkpointer, sync and async."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any, cast

import pytest
from blockbuster import blockbuster_ctx
from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    HumanInTheLoopMiddleware,
    ModelCallLimitMiddleware,
    SummarizationMiddleware,
    hook_config,
)
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    ToolMessage,
)
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.tools import tool
from langgraph.types import Command, interrupt
from pydantic import BaseModel

from langchain_mastra_memory import (
    ConfigurationError,
    Memory,
    MemoryMiddleware,
    MessageHistory,
    SemanticRecall,
    SQLMemoryStore,
    ThreadSaver,
    ThreadTitles,
)
from langchain_mastra_memory.store.wrappers import ReadOnlyStore
from langchain_mastra_memory.testing.models import ScriptedChatModel, tool_call
from langchain_mastra_memory.testing.prompts import check_extends, check_prompt
from tests.unit_tests.agents.savers import SAVERS, saver_of

Invoke = Callable[..., dict[str, Any]]


def config(thread: str = "t", **options: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"thread_id": thread, "resource_id": "r"}
    if options:
        found["memory"] = options
    return {"configurable": found}


def ask(text: str, **fields: Any) -> dict[str, Any]:
    return {"messages": [HumanMessage(text, **fields)]}


def archive(memory: Memory, thread: str = "t") -> list[str]:
    return [
        stored.message.text or stored.role
        for stored in memory.recall(thread_id=thread, resource_id="r", per_page=False)
    ]


def shown(model: ScriptedChatModel, call: int = -1) -> list[str]:
    check_prompt(model.calls[call].messages)
    return [message.text or message.type for message in model.calls[call].messages]


@tool
def lookup(city: str) -> str:
    """Look a city up."""
    return f"facts about {city}"


@pytest.mark.parametrize("saver", SAVERS)
@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_a_conversation_with_tools_is_remembered_and_stored_once(
    memory: Memory, invoke: Invoke, saver: str, durability: str
) -> None:
    checkpointer = saver_of(memory, saver)
    model = ScriptedChatModel(["A1", tool_call("lookup", {"city": "Rome"}), "A2", "A3"])
    agent = create_agent(
        model, [lookup], middleware=[memory.middleware()], checkpointer=checkpointer, system_prompt="SYSTEM"
    )
    modes = {"durability": durability} if checkpointer is not None else {}
    for turn in ("U1", "U2", "U3"):
        invoke(agent, ask(turn), config(), **modes)
    whole = ["U1", "A1", "U2", "ai", "facts about Rome", "A2", "U3"]
    assert shown(model) == ["SYSTEM", *whole]
    assert archive(memory) == [*whole, "A3"]
    for before, after in zip(model.calls, model.calls[1:], strict=False):
        check_extends(before.messages, after.messages)


@pytest.mark.parametrize("saver", SAVERS)
def test_the_window_is_chosen_at_the_model_call_and_the_state_stays_whole(
    memory_factory: Any, invoke: Invoke, saver: str
) -> None:
    memory = memory_factory(message_history=MessageHistory(last_messages=2))
    model = ScriptedChatModel([f"A{number}" for number in range(1, 5)])
    agent = create_agent(model, middleware=[memory.middleware()], checkpointer=saver_of(memory, saver))
    for number in range(1, 5):
        state = invoke(agent, ask(f"U{number}"), config())
    assert shown(model) == ["U3", "A3", "U4"]
    assert len(state["messages"]) == (2 if saver == "none" else 8)
    assert len(archive(memory)) == 8


def test_another_process_goes_on_where_the_first_one_was(sqlite_url: str, invoke: Invoke) -> None:
    for number, expected in ((1, ["U1"]), (2, ["U1", "A1", "U2"])):
        with Memory(sqlite_url) as memory:
            model = ScriptedChatModel([f"A{number}"])
            agent = create_agent(model, middleware=[memory.middleware()])
            invoke(agent, ask(f"U{number}"), config())
            assert shown(model) == expected


@pytest.mark.parametrize("saver", SAVERS)
def test_a_client_that_sends_its_whole_history_adds_only_what_is_new(
    memory: Memory, invoke: Invoke, saver: str
) -> None:
    model = ScriptedChatModel(["A1", "A2", "A3"])
    agent = create_agent(model, middleware=[memory.middleware()], checkpointer=saver_of(memory, saver))
    invoke(agent, ask("U1"), config())
    again = [("user", "U1"), ("assistant", "A1"), ("user", "U2")]
    invoke(agent, {"messages": again}, config())
    assert shown(model) == ["U1", "A1", "U2"]
    assert archive(memory) == ["U1", "A1", "U2", "A2"]
    again = [*again, ("assistant", "A2"), ("user", "U1")]  # the question may be an old one's words
    invoke(agent, {"messages": again}, config())
    assert shown(model) == ["U1", "A1", "U2", "A2", "U1"]
    assert archive(memory) == ["U1", "A1", "U2", "A2", "U1", "A3"]


def test_known_ids_are_shown_as_they_are_stored_and_new_tool_results_are_kept(memory: Memory, invoke: Invoke) -> None:
    call = tool_call("ask_browser", {"q": "x"}, id="client-1")
    memory.save_messages(
        [HumanMessage("U1", id="u1"), call.model_copy(update={"id": "a1"})], thread_id="t", resource_id="r"
    )
    model = ScriptedChatModel(["A1"])
    agent = create_agent(model, middleware=[memory.middleware()])
    sent = [
        HumanMessage("U1 as the client has it", id="u1"),
        call.model_copy(update={"id": "a1"}),
        ToolMessage("from the browser", tool_call_id="client-1", id="r1"),
    ]
    invoke(agent, {"messages": sent}, config())
    assert shown(model) == ["U1", "ai", "from the browser"]
    assert archive(memory) == ["U1", "ai", "from the browser", "A1"]


def test_the_whole_input_is_taken_as_it_is_on_request_and_what_is_new_is_saved(memory: Memory, invoke: Invoke) -> None:
    model = ScriptedChatModel(["A1", "A2"])
    agent = create_agent(model, middleware=[memory.middleware(retain_full_input=True)])
    invoke(agent, ask("U1"), config())
    sent = [("user", "a summary by the client"), ("assistant", "A1"), ("user", "U2")]
    invoke(agent, {"messages": sent}, config())
    assert shown(model) == ["a summary by the client", "A1", "U2"]
    assert archive(memory) == ["U1", "A1", "a summary by the client", "U2", "A2"]


@pytest.mark.parametrize("saver", SAVERS)
def test_a_turn_that_is_sent_again_with_its_ids_is_stored_once(memory: Memory, invoke: Invoke, saver: str) -> None:
    answers = [AIMessage("A1", id="a1"), AIMessage("A1", id="a1")]
    agent = create_agent(
        ScriptedChatModel(answers), middleware=[memory.middleware()], checkpointer=saver_of(memory, saver)
    )
    for _ in range(2):
        invoke(agent, ask("U1", id="u1"), config())
    assert archive(memory) == ["U1", "A1"]


@pytest.mark.parametrize("saver", ["memory", "ours"])
def test_an_interrupted_run_saves_when_it_ends(memory: Memory, invoke: Invoke, saver: str) -> None:
    @tool
    def approve(what: str) -> str:
        """Ask a person."""
        return f"person said {interrupt(what)}"

    model = ScriptedChatModel([tool_call("approve", {"what": "x"}), "done"])
    agent = create_agent(model, [approve], middleware=[memory.middleware()], checkpointer=saver_of(memory, saver))
    invoke(agent, ask("U1"), config())
    assert memory.get_thread("t") is None or archive(memory) == []
    invoke(agent, Command(resume="yes"), config())
    assert archive(memory) == ["U1", "ai", "person said yes", "done"]
    assert shown(model) == ["U1", "ai", "person said yes"]


@pytest.mark.parametrize("saver", ["memory", "ours"])
def test_a_message_instead_of_an_answer_to_an_interrupt_works(memory: Memory, invoke: Invoke, saver: str) -> None:
    model = ScriptedChatModel([tool_call("lookup", {"city": "Rome"}), "A2"])
    agent = create_agent(
        model,
        [lookup],
        middleware=[memory.middleware(), HumanInTheLoopMiddleware(interrupt_on={"lookup": True})],
        checkpointer=saver_of(memory, saver),
    )
    invoke(agent, ask("U1"), config())
    invoke(agent, ask("never mind"), config())
    assert shown(model) == ["U1", "never mind"]
    assert archive(memory)[-2:] == ["never mind", "A2"]


@pytest.mark.parametrize("saver", SAVERS)
def test_a_thread_whose_last_run_died_in_a_tool_works_on_the_next_message(
    memory: Memory, invoke: Invoke, saver: str
) -> None:
    @tool
    def broken(city: str) -> str:
        """Break."""
        raise ZeroDivisionError(city)

    model = ScriptedChatModel([tool_call("broken", {"city": "Rome"}), "A2"])
    agent = create_agent(model, [broken], middleware=[memory.middleware()], checkpointer=saver_of(memory, saver))
    with pytest.raises(ZeroDivisionError):
        invoke(agent, ask("U1"), config())
    assert memory.get_thread("t") is None or archive(memory) == []
    invoke(agent, ask("U2"), config())
    assert shown(model)[-1] == "U2"
    assert archive(memory)[-2:] == ["U2", "A2"]


class Blocking(AgentMiddleware):
    """Ends a run at a hook, as guardrails do."""

    def __init__(self, hook: str) -> None:
        super().__init__()
        self.hook = hook

    def _block(self, hook: str, state: Any) -> dict[str, Any] | None:
        if hook != self.hook or "forbidden" not in str(state["messages"]):
            return None
        return {"messages": [AIMessage("blocked")], "jump_to": "end"}

    @hook_config(can_jump_to=["end"])
    def before_agent(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        return self._block("before_agent", state)

    @hook_config(can_jump_to=["end"])
    def before_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        return self._block("before_model", state)

    @hook_config(can_jump_to=["end"])
    def after_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        return self._block("after_model", state)

    def after_agent(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        if self.hook != "after_agent" or "forbidden" not in str(state["messages"]):
            return None
        return {"messages": [RemoveMessage(id=state["messages"][-1].id), AIMessage("blocked")]}


@pytest.mark.parametrize("saver", SAVERS)
@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("hook", ["before_agent", "before_model", "after_model", "after_agent"])
def test_a_run_that_a_guardrail_ended_is_neither_saved_nor_shown_again(
    memory: Memory, invoke: Invoke, saver: str, hook: str, durability: str
) -> None:
    checkpointer = saver_of(memory, saver)
    model = ScriptedChatModel(lambda messages: f"answer to {messages[-1].text}")
    agent = create_agent(model, middleware=[memory.middleware(), Blocking(hook)], checkpointer=checkpointer)
    modes = {"durability": durability} if checkpointer is not None else {}
    invoke(agent, ask("U1"), config(), **modes)
    state = invoke(agent, ask("forbidden thing"), config(), **modes)
    assert state["messages"][-1].text == "blocked"
    assert archive(memory) == ["U1", "answer to U1"]
    agent = create_agent(model, middleware=[memory.middleware()], checkpointer=checkpointer)
    invoke(agent, ask("U3"), config(), **modes)
    assert shown(model) == ["U1", "answer to U1", "U3"]
    assert archive(memory) == ["U1", "answer to U1", "U3", "answer to U3"]


def test_an_answer_that_a_guard_changed_under_its_own_id_is_saved_as_it_was_left(
    memory: Memory, invoke: Invoke
) -> None:
    class Redacting(AgentMiddleware):
        def after_model(self, state: Any, runtime: Any) -> dict[str, Any]:
            last = state["messages"][-1]
            return {"messages": [AIMessage(last.text.replace("secret", "***"), id=last.id)]}

    agent = create_agent(ScriptedChatModel(["the secret"]), middleware=[memory.middleware(), Redacting()])
    invoke(agent, ask("U1"), config())
    assert archive(memory) == ["U1", "the ***"]


def test_a_run_that_hit_a_limit_is_refused(memory: Memory, invoke: Invoke) -> None:
    model = ScriptedChatModel(lambda messages: tool_call("lookup", {"city": "Rome"}, id=f"c{len(messages)}"))
    limit = ModelCallLimitMiddleware(run_limit=2, exit_behavior="end")
    agent = create_agent(model, [lookup], middleware=[memory.middleware(), limit])
    invoke(agent, ask("U1"), config())
    assert memory.get_thread("t") is None


@pytest.mark.parametrize("saver", SAVERS)
def test_a_tool_that_returns_directly_completes_a_run(memory: Memory, invoke: Invoke, saver: str) -> None:
    @tool(return_direct=True)
    def final(city: str) -> str:
        """Answer."""
        return f"final word on {city}"

    model = ScriptedChatModel([tool_call("final", {"city": "Rome"})])
    agent = create_agent(model, [final], middleware=[memory.middleware()], checkpointer=saver_of(memory, saver))
    invoke(agent, ask("U1"), config())
    assert archive(memory) == ["U1", "ai", "final word on Rome"]


class Weather(BaseModel):
    """The weather."""

    degrees: int


@pytest.mark.parametrize("saver", SAVERS)
def test_a_structured_response_completes_a_run(memory: Memory, invoke: Invoke, saver: str) -> None:
    model = ScriptedChatModel([Weather(degrees=20), Weather(degrees=21)])
    agent = create_agent(
        model,
        middleware=[memory.middleware()],
        response_format=ToolStrategy(Weather),
        checkpointer=saver_of(memory, saver),
    )
    for turn in ("U1", "U2"):
        state = invoke(agent, ask(turn), config())
    assert state["structured_response"].degrees == 21
    assert len(archive(memory)) == 6
    check_prompt(model.last_call.messages)


@pytest.mark.parametrize("saver", ["memory", "ours"])
def test_regenerating_an_answer_shows_the_new_one_only(memory: Memory, invoke: Invoke, saver: str) -> None:
    model = ScriptedChatModel(["A1", "A2 first", "A2 second", "A3"])
    agent = create_agent(model, middleware=[memory.middleware()], checkpointer=saver_of(memory, saver))
    for turn in ("U1", "U2"):
        invoke(agent, ask(turn), config())
    before = next(
        found.config
        for found in agent.get_state_history(config())
        if found.next == ("model",) and found.values["messages"][-1].text == "U2"
    )
    invoke(agent, None, before)
    assert archive(memory) == ["U1", "A1", "U2", "A2 second"]
    invoke(agent, ask("U3"), config())
    assert shown(model) == ["U1", "A1", "U2", "A2 second", "U3"]
    assert archive(memory) == ["U1", "A1", "U2", "A2 second", "U3", "A3"]


@pytest.mark.parametrize("saver", ["memory", "ours"])
def test_what_was_imported_joins_the_view_of_a_checkpointed_thread(memory: Memory, invoke: Invoke, saver: str) -> None:
    memory.save_messages([HumanMessage("old question"), AIMessage("old answer")], thread_id="t", resource_id="r")
    model = ScriptedChatModel(["A1", "A2"])
    agent = create_agent(model, middleware=[memory.middleware()], checkpointer=saver_of(memory, saver))
    for turn in ("U1", "U2"):
        invoke(agent, ask(turn), config())
    assert shown(model) == ["old question", "old answer", "U1", "A1", "U2"]
    assert archive(memory) == ["old question", "old answer", "U1", "A1", "U2", "A2"]


@pytest.mark.parametrize("saver", ["memory", "ours"])
def test_an_edited_message_is_shown_as_the_archive_has_it_and_a_deleted_one_is_not_shown(
    memory: Memory, invoke: Invoke, saver: str
) -> None:
    model = ScriptedChatModel(["A1", "A2", "A3"])
    agent = create_agent(model, middleware=[memory.middleware()], checkpointer=saver_of(memory, saver))
    invoke(agent, ask("my password is 1234", id="u1"), config())
    memory.update_messages([{"id": "u1", "content": "my password is ****"}], thread_id="t")
    invoke(agent, ask("U2"), config())
    assert shown(model) == ["my password is ****", "A1", "U2"]
    memory.delete_messages(["u1"], thread_id="t")
    invoke(agent, ask("U3"), config())
    assert "password" not in " ".join(shown(model))
    assert shown(model)[-4:] == ["A1", "U2", "A2", "U3"]


def test_two_memories_in_one_graph_each_store_each_message_once(sqlite_url: str, invoke: Invoke) -> None:
    with Memory("memory://") as first, Memory(sqlite_url, message_history=MessageHistory(last_messages=1)) as second:
        model = ScriptedChatModel(["A1", "A2"])
        agent = create_agent(
            model,
            middleware=[first.middleware(), MemoryMiddleware(second, name="second")],
            checkpointer=first.checkpointer,
        )
        for turn in ("U1", "U2"):
            invoke(agent, ask(turn), config())
        for memory in (first, second):
            assert archive(memory) == ["U1", "A1", "U2", "A2"]


FEATURES = {
    "history": {},
    "all": {"working_memory": True, "semantic_recall": SemanticRecall(mode="lexical")},
}


@pytest.mark.parametrize("options", list(FEATURES.values()), ids=list(FEATURES))
def test_a_checkpointer_of_a_second_memory_that_is_made_alike_is_as_good_as_the_own(
    sqlite_url: str, invoke: Invoke, options: dict[str, Any]
) -> None:
    with Memory(sqlite_url, **options) as memory, Memory(sqlite_url, **options) as other:
        model = ScriptedChatModel(["A1", "A2", "A3"])
        agent = create_agent(model, middleware=[other.middleware()], checkpointer=memory.checkpointer)
        for turn in (1, 2, 3):
            invoke(agent, ask(f"U{turn}"), config())
            assert archive(memory) == archive(other) == [f"{who}{n}" for n in range(1, turn + 1) for who in "UA"]
        assert len(other.list_branches("t")) == 1
        assert shown(model)[-5:] == ["U1", "A1", "U2", "A2", "U3"]
        assert other.settled() == memory.settled() == []
        if options:
            assert "U2" in [hit.message.text for hit in other.recall(resource_id="r", query="U2", top_k=1)]


@pytest.mark.parametrize(
    ("wrap", "options"),
    [
        (ReadOnlyStore, {}),
        (lambda store: store, {"semantic_recall": True}),
        (lambda store: store, {"read_only": True}),
        (lambda store: store, {"message_history": MessageHistory(last_messages=0)}),
    ],
    ids=["store", "features", "read_only", "off"],
)
def test_a_checkpointer_of_a_second_memory_that_is_made_otherwise_is_refused(
    sqlite_url: str, invoke: Invoke, wrap: Any, options: dict[str, Any]
) -> None:
    with Memory(sqlite_url) as memory, Memory(wrap(SQLMemoryStore(sqlite_url)), **options) as other:
        saver = ThreadSaver(memory)
        agent = create_agent(ScriptedChatModel(["A"]), middleware=[other.middleware()], checkpointer=saver)
        with pytest.raises(ConfigurationError, match="two memories over sqlite:"):
            invoke(agent, ask("Q"), config())


def test_a_checkpointer_of_another_database_of_ours_is_one_like_any_other(sqlite_url: str, invoke: Invoke) -> None:
    with Memory(sqlite_url) as memory, Memory("memory://") as first, Memory("memory://") as second:
        for one, other in ((memory, first), (first, second)):
            model = ScriptedChatModel(["A1", "A2"])
            agent = create_agent(model, middleware=[one.middleware()], checkpointer=other.checkpointer)
            for text in ("Q1", "Q2"):
                invoke(agent, ask(text), config())
            assert archive(one) == archive(other) == ["Q1", "A1", "Q2", "A2"]
            assert len(one.list_branches("t")) == 1
            one.delete_thread("t")
            other.delete_thread("t")


def test_the_memory_can_be_chosen_by_the_run(sqlite_url: str, invoke: Invoke) -> None:
    with Memory("memory://") as free, Memory(sqlite_url) as paid:
        pick = MemoryMiddleware(lambda runtime: paid if runtime.context["plan"] == "paid" else free)
        agent = create_agent(ScriptedChatModel(["A1", "A2"]), middleware=[pick])
        invoke(agent, ask("U1"), config(), context={"plan": "paid"})
        invoke(agent, ask("U2"), config(), context={"plan": "free"})
        assert archive(paid) == ["U1", "A1"]
        assert archive(free) == ["U2", "A2"]


def test_private_channels_neither_come_in_nor_go_out(memory: Memory, invoke: Invoke) -> None:
    agent = create_agent(ScriptedChatModel(["A1"]), middleware=[memory.middleware()])
    state = invoke(agent, {**ask("U1"), "memory_run": {"MastraMemory": {"refused": ["x"]}}}, config())
    assert set(state) == {"messages"}


def test_a_history_that_is_off_is_neither_shown_nor_archived(memory_factory: Any, invoke: Invoke) -> None:
    for value in (False, 0):
        memory = memory_factory("memory://", message_history=MessageHistory(last_messages=value))
        model = ScriptedChatModel(["A1", "A2"])
        agent = create_agent(model, middleware=[memory.middleware()], checkpointer=memory.checkpointer)
        for turn in ("U1", "U2"):
            state = invoke(agent, ask(turn), config())
        assert shown(model) == ["U2"]
        assert archive(memory) == []
        assert len(state["messages"]) == 4, "the checkpoint is written as usual"


def test_memory_that_is_not_first_in_the_list_warns() -> None:
    class Other(AgentMiddleware):
        def wrap_model_call(self, request: Any, handler: Any) -> Any:
            return handler(request)

    with Memory("memory://") as memory:
        agent = create_agent(ScriptedChatModel(["A1"]), middleware=[Other(), memory.middleware()])
        with pytest.warns(UserWarning, match="first"):
            agent.invoke(ask("U1"), config())


def test_a_node_hook_before_memory_warns() -> None:
    class Other(AgentMiddleware):
        def before_agent(self, state: Any, runtime: Any) -> None:
            return None

    with Memory("memory://") as memory:
        agent = create_agent(ScriptedChatModel(["A1"]), middleware=[Other(), memory.middleware()])
        with pytest.warns(UserWarning, match="first"):
            agent.invoke(ask("U1"), config())


def test_steps_that_a_thread_has_from_elsewhere_do_not_look_like_a_hook_before_memory() -> None:
    def edited(agent: Any) -> None:
        agent.update_state(config(), {"messages": [("user", "U0")]})

    def died_at_the_start(agent: Any) -> None:
        agent.invoke(ask("U0"), config(), interrupt_before="*")

    for before in (edited, died_at_the_start):
        with Memory("memory://") as memory, warnings.catch_warnings(action="error"):
            model = ScriptedChatModel(["A1"])
            agent = create_agent(model, middleware=[memory.middleware()], checkpointer=memory.checkpointer)
            before(agent)
            agent.invoke(ask("U1"), config())
            assert shown(model) == ["U0", "U1"]


def test_messages_without_ids_get_one_in_place(memory: Memory) -> None:
    asked: AnyMessage = HumanMessage("U1")
    agent = create_agent(ScriptedChatModel([AIMessage("A1")]), middleware=[memory.middleware()])
    agent.invoke({"messages": [asked]}, config())
    stored = memory.recall(thread_id="t", per_page=False)
    assert stored[0].id == asked.id
    assert all(message.id for message in stored)


async def test_two_runs_at_once_on_one_thread_lose_nothing_of_the_archive(memory: Memory) -> None:
    both_asked = asyncio.Barrier(2)

    async def slow(messages: list[BaseMessage]) -> str:
        await both_asked.wait()
        return f"answer to {messages[-1].text}"

    agent = create_agent(ScriptedChatModel(slow), middleware=[memory.middleware()], checkpointer=memory.checkpointer)
    await asyncio.gather(*(agent.ainvoke(ask(turn), config()) for turn in ("U1", "U2")))
    state = await agent.aget_state(config())
    newest = [message.text for message in state.values["messages"]]
    assert archive(memory) == newest, "the newest root checkpoint wins, in state and archive"
    assert len(memory.list_branches("t")) >= 1


class SlowModel(ScriptedChatModel):
    """Streams two words and then waits for ever."""

    async def _astream(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> Any:
        for number, word in enumerate(("half ", "a sentence")):
            chunk = ChatGenerationChunk(message=AIMessageChunk(word, id="partial-1"))
            yield chunk
            if number:
                await asyncio.Event().wait()


@pytest.mark.parametrize("saver", SAVERS)
@pytest.mark.parametrize("wanted", [True, False])
async def test_what_was_streamed_is_kept_on_request_when_the_caller_cancels(
    memory: Memory, saver: str, wanted: bool
) -> None:
    checkpointer = saver_of(memory, saver)
    agent = create_agent(SlowModel([]), middleware=[memory.middleware(save_partial=wanted)], checkpointer=checkpointer)
    heard = []

    async def listen() -> None:
        async for chunk, _ in agent.astream(ask("U1"), config(), stream_mode="messages"):
            heard.append(chunk.text)
            if len(heard) == 2:
                raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await listen()
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait([task], timeout=5)
    assert await memory.asettled() == []
    if not wanted:
        assert memory.get_thread("t") is None or archive(memory) == []
        return
    assert archive(memory) == ["U1", "half a sentence"]
    model = ScriptedChatModel(["A2"])
    agent = create_agent(model, middleware=[memory.middleware()], checkpointer=checkpointer)
    await agent.ainvoke(ask("go on"), config())
    assert shown(model) == ["U1", "half a sentence", "go on"]
    assert archive(memory) == ["U1", "half a sentence", "go on", "A2"]


@pytest.mark.parametrize("saver", SAVERS)
async def test_what_was_streamed_is_kept_when_the_caller_leaves_an_async_stream(memory: Memory, saver: str) -> None:
    agent = create_agent(
        SlowModel([]), middleware=[memory.middleware(save_partial=True)], checkpointer=saver_of(memory, saver)
    )
    stream = agent.astream(ask("U1"), config(), stream_mode="messages")
    heard = [await anext(stream), await anext(stream)]
    await cast("AsyncGenerator[Any]", stream).aclose()
    assert await memory.asettled() == []
    assert len(heard) == 2
    assert archive(memory) == ["U1", "half a sentence"]


@pytest.mark.parametrize("saver", SAVERS)
def test_a_sync_stream_that_is_left_early_saves_nothing_since_nobody_is_told(memory: Memory, saver: str) -> None:
    """As `save_partial` says: LangGraph lets the model finish, and neither cancels the node nor goes on with the run."""
    model, checkpointer = ScriptedChatModel(["one two three four five", "A2"]), saver_of(memory, saver)
    agent = create_agent(model, middleware=[memory.middleware(save_partial=True)], checkpointer=checkpointer)
    stream = agent.stream(ask("U1"), config(), stream_mode="messages")
    next(iter(stream))
    cast("Generator[Any]", stream).close()
    assert memory.settled() == []
    assert memory.get_thread("t") is None or archive(memory) == []
    agent.invoke(ask("U2"), config())
    assert archive(memory)[-2:] == ["U2", "A2"]
    assert "one two three four five" not in archive(memory)


class Counting:
    """A store that counts what it is asked."""

    def __init__(self, store: Any) -> None:
        self.inner = store
        self.asked: list[str] = []

    @property
    def capabilities(self) -> Any:
        return self.inner.capabilities

    def run(self, operation: Any) -> Any:
        self.asked.append(type(operation).__name__)
        return self.inner.run(operation)

    async def arun(self, operation: Any) -> Any:
        self.asked.append(type(operation).__name__)
        return await self.inner.arun(operation)

    def close(self) -> None:
        self.inner.close()

    async def aclose(self) -> None:
        await self.inner.aclose()


@pytest.mark.parametrize("saver", ["none", "memory"])
def test_a_tool_loop_reads_the_archive_once(saver: str, invoke: Invoke) -> None:
    store = Counting(SQLMemoryStore("memory://"))
    memory = Memory(store)
    steps = [tool_call("lookup", {"city": "Rome"}, id=f"c{step}") for step in range(10)]
    agent = create_agent(
        ScriptedChatModel(["A1", *steps, "A2"]),
        [lookup],
        middleware=[memory.middleware()],
        checkpointer=saver_of(memory, saver),
    )
    invoke(agent, ask("U1"), config())
    store.asked.clear()
    invoke(agent, ask("U2"), config())
    reads = [name for name in store.asked if name in {"ReadRun", "LoadHistory"}]
    assert len(reads) == 1
    assert store.asked.count("SaveRun") == 1
    store.close()


@pytest.mark.parametrize("saver", ["memory", "ours"])
def test_a_summary_of_another_middleware_shortens_the_state_and_not_the_archive(
    memory: Memory, invoke: Invoke, saver: str
) -> None:
    summarizer = SummarizationMiddleware(
        ScriptedChatModel(["SUMMARY"], repeat_last=True), trigger=("messages", 5), keep=("messages", 2)
    )
    model = ScriptedChatModel(["A1", "A2", "A3", "A4"])
    agent = create_agent(model, middleware=[memory.middleware(), summarizer], checkpointer=saver_of(memory, saver))
    for turn in ("U1", "U2", "U3", "U4"):
        invoke(agent, ask(turn), config())
    assert archive(memory) == ["U1", "A1", "U2", "A2", "U3", "A3", "U4", "A4"]
    assert any("SUMMARY" in text for text in shown(model))
    assert "U1" not in shown(model)


@pytest.mark.parametrize("options", [{"last_messages": 0}, {"last_messages": False}, {"max_tokens": 0}])
@pytest.mark.parametrize("for_one_run", [True, False])
def test_a_run_without_history_leaves_nothing_in_the_archive_of_a_checkpointed_thread(
    memory_factory: Any, invoke: Invoke, options: dict[str, Any], for_one_run: bool
) -> None:
    memory = memory_factory("memory://", message_history=MessageHistory(**({} if for_one_run else options)))
    model = ScriptedChatModel(["A1", "A2"])
    agent = create_agent(model, middleware=[memory.middleware()], checkpointer=memory.checkpointer)
    where = config(**options) if for_one_run else config()
    for turn in ("U1", "U2"):
        state = invoke(agent, ask(turn), where)
    assert shown(model) == ["U2"]
    assert archive(memory) == []
    assert len(state["messages"]) == 4


@pytest.mark.parametrize("saver", ["memory", "ours"])
@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_a_run_that_is_tried_again_after_a_failure_is_saved_once(
    memory: Memory, invoke: Invoke, saver: str, durability: str
) -> None:
    model = ScriptedChatModel(["A1", ConnectionError("down"), "A2", "A3"])
    agent = create_agent(model, middleware=[memory.middleware()], checkpointer=saver_of(memory, saver))
    invoke(agent, ask("U1"), config(), durability=durability)
    with pytest.raises(ConnectionError):
        invoke(agent, ask("U2"), config(), durability=durability)
    assert archive(memory) == ["U1", "A1"]
    invoke(agent, None, config(), durability=durability)
    assert archive(memory) == ["U1", "A1", "U2", "A2"]
    invoke(agent, ask("U3"), config(), durability=durability)
    assert shown(model) == ["U1", "A1", "U2", "A2", "U3"]


@pytest.mark.parametrize("saver", SAVERS)
async def test_no_hook_blocks_the_event_loop(sqlite_url: str, saver: str) -> None:
    memory = Memory(sqlite_url, titles=ThreadTitles(model=ScriptedChatModel(["A title"])))
    checkpointer = saver_of(memory, saver)
    model = ScriptedChatModel([tool_call("lookup", {"city": "Rome"}), "A1", "A2"])
    agent = create_agent(model, [lookup], middleware=[memory.middleware()], checkpointer=checkpointer)
    with blockbuster_ctx("langchain_mastra_memory"):
        for turn in ("U1", "U2"):
            await agent.ainvoke(ask(turn), config())
        await memory.asettled()
    assert len(archive(memory)) == 6
    await memory.aclose()
