"""Switches of a run, and whose run it is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from langchain_mastra_memory import Memory, MemoryContext, MemoryMiddleware, MessageHistory, RunOptions, WorkingMemory
from langchain_mastra_memory.agents.identity import identify
from langchain_mastra_memory.agents.run_options import run_options
from langchain_mastra_memory.errors import (
    ConfigurationError,
    InvalidIdError,
    ThreadNotFoundError,
    ThreadOwnershipError,
)
from langchain_mastra_memory.testing.models import ScriptedChatModel


def config(**configurable: Any) -> dict[str, Any]:
    return {"configurable": {"thread_id": "t", "resource_id": "r", **configurable}}


def runtime(context: Any = None, user: str | None = None) -> Any:
    server = SimpleNamespace(user=SimpleNamespace(identity=user)) if user is not None else None
    return SimpleNamespace(context=context, server_info=server)


def ask(text: str) -> dict[str, Any]:
    return {"messages": [("user", text)]}


def test_unknown_switches_are_refused_with_their_names() -> None:
    with pytest.raises(ConfigurationError, match=r"red_only.*Known options: .*read_only"):
        run_options({"red_only": True})
    with pytest.raises(ConfigurationError, match="RunOptions or a dict"):
        run_options("off")
    with pytest.raises(ConfigurationError, match="last_messages"):
        run_options({"last_messages": -1})
    with pytest.raises(ConfigurationError, match="context_messages"):
        run_options({"context_messages": [5]})


def test_an_unknown_switch_stops_the_run_before_the_model_is_called() -> None:
    model = ScriptedChatModel(["A1"])
    with Memory("memory://") as memory:
        agent = create_agent(model, middleware=[memory.middleware()])
        with pytest.raises(ConfigurationError, match="las_messages"):
            agent.invoke(ask("U1"), config(memory={"las_messages": 1}))
    assert model.calls == ()


def test_every_switch_acts() -> None:
    model = ScriptedChatModel(lambda messages: f"answer {len(messages)}")
    with Memory("memory://") as memory:
        agent = create_agent(model, middleware=[memory.middleware()], system_prompt="SYSTEM")
        for turn in ("U1", "U2"):
            agent.invoke(ask(turn), config())
        seen: dict[str, list[str]] = {}
        switches: dict[str, dict[str, Any]] = {
            "off": {"off": True},
            "read_only": {"read_only": True},
            "last_messages": {"last_messages": 1, "read_only": True},
            "none": {"last_messages": False},
            "budget": {"max_tokens": 50, "read_only": True},
            "context": {"context_messages": [("user", "CONTEXT")], "read_only": True},
            "system": {"system": "BRIEFLY", "read_only": True},
        }
        for name, options in switches.items():
            agent.invoke(ask("now"), config(memory=options))
            seen[name] = [message.text for message in model.last_call.messages]
        history = ["U1", "answer 2", "U2", "answer 4"]
        assert seen == {
            "off": ["SYSTEM", "now"],
            "read_only": ["SYSTEM", *history, "now"],
            "last_messages": ["SYSTEM", ".", "answer 4", "now"],
            "none": ["SYSTEM", "now"],
            "budget": ["SYSTEM", "now"],
            "context": ["SYSTEM", *history, "CONTEXT", "now"],
            "system": ["SYSTEM\n\nBRIEFLY", *history, "now"],
        }
        assert [stored.message.text for stored in memory.recall(thread_id="t", per_page=False)] == history


def test_a_cap_can_be_lifted_for_a_run() -> None:
    model = ScriptedChatModel(lambda messages: "answer")
    with Memory("memory://", message_history=MessageHistory(last_messages=1)) as memory:
        agent = create_agent(model, middleware=[memory.middleware()])
        for turn in ("U1", "U2"):
            agent.invoke(ask(turn), config())
        agent.invoke(ask("now"), config(memory={"last_messages": None}))
        assert len(model.last_call.messages) == 5


@pytest.mark.parametrize("saver", [True, False])
def test_a_read_only_memory_writes_nothing(saver: bool) -> None:
    with Memory("memory://", read_only=True) as memory:
        agent = create_agent(
            ScriptedChatModel(["A1"]),
            middleware=[memory.middleware()],
            checkpointer=memory.checkpointer if saver else None,
        )
        agent.invoke(ask("U1"), config())
        thread = memory.get_thread("t")
        assert thread is None or not memory.recall(thread_id="t", per_page=False)


def test_a_new_thread_gets_the_title_and_metadata_of_its_first_run_only() -> None:
    with Memory("memory://") as memory:
        agent = create_agent(ScriptedChatModel(["A1", "A2"]), middleware=[memory.middleware()])
        agent.invoke(ask("U1"), config(memory={"thread_title": "First", "thread_metadata": {"k": 1}}))
        agent.invoke(ask("U2"), config(memory={"thread_title": "Second", "thread_metadata": {"k": 2}}))
        thread = memory.get_thread("t")
        assert thread is not None
        assert (thread.title, thread.metadata) == ("First", {"k": 1})


def test_context_messages_are_never_stored() -> None:
    with Memory("memory://") as memory:
        agent = create_agent(ScriptedChatModel(["A1"]), middleware=[memory.middleware()])
        agent.invoke(ask("U1"), config(memory={"context_messages": [HumanMessage("CONTEXT")]}))
        assert [stored.message.text for stored in memory.recall(thread_id="t")] == ["U1", "A1"]


def test_a_run_without_a_thread_is_refused_unless_memory_is_off() -> None:
    model = ScriptedChatModel(["A1"])
    with Memory("memory://") as memory:
        agent = create_agent(model, middleware=[memory.middleware()])
        with pytest.raises(ConfigurationError, match="thread_id"):
            agent.invoke(ask("U1"))
        agent.invoke(ask("U1"), {"configurable": {"memory": {"off": True}}})
    assert len(model.calls) == 1


def test_a_foreign_thread_looks_like_one_that_does_not_exist() -> None:
    model = ScriptedChatModel(["A1", "never"])
    with Memory("memory://") as memory:
        agent = create_agent(model, middleware=[memory.middleware()])
        agent.invoke(ask("U1"), config())
        with pytest.raises(ThreadNotFoundError):
            agent.invoke(ask("U2"), config(resource_id="somebody else"))
    assert len(model.calls) == 1


def test_the_context_goes_before_the_config() -> None:
    for context in ({"resource_id": "c"}, MemoryContext(resource_id="c"), SimpleNamespace(resource_id="c")):
        assert identify(runtime(context), config()).resource_id == "c"
    assert identify(runtime(), config()).resource_id == "r"
    assert identify(runtime(MemoryContext()), {"configurable": {"thread_id": 7}}).resource_id is None


def test_the_authenticated_user_is_the_resource_and_no_client_can_be_another() -> None:
    alone = {"configurable": {"thread_id": "t"}}
    assert identify(runtime(user="ada"), alone).resource_id == "ada"
    assert identify(runtime({"resource_id": "ada"}, user="ada"), config(resource_id="ada")).resource_id == "ada"
    for claimed in (({"resource_id": "eve"}, alone), (None, config(resource_id="eve"))):
        with pytest.raises(ThreadOwnershipError, match="authenticated user"):
            identify(runtime(claimed[0], user="ada"), claimed[1])
    decided = identify(runtime({"resource_id": "eve"}, user="ada"), alone, resource_of=lambda found: "org-1")
    assert decided.resource_id == "org-1"


@pytest.mark.parametrize("bad", ["", "a\0b", "x" * 513])
def test_ids_that_are_none_are_refused(bad: str) -> None:
    with pytest.raises(InvalidIdError):
        identify(runtime(), config(thread_id=bad))
    with pytest.raises(InvalidIdError):
        identify(runtime(), config(resource_id=bad))


def test_the_middleware_says_what_it_needs() -> None:
    with pytest.raises(ConfigurationError, match="history must be"):
        MemoryMiddleware(Memory("memory://"), history="both")
    agent = create_agent(ScriptedChatModel(["A1"]), middleware=[MemoryMiddleware(lambda runtime: "no memory")])
    with pytest.raises(ConfigurationError, match="needs a Memory"):
        agent.invoke(ask("U1"), config())
    agent = create_agent(ScriptedChatModel(["A1"]), middleware=[MemoryMiddleware()])
    with pytest.raises(ConfigurationError, match="no delegation"):
        agent.invoke(ask("U1"), config())


def test_run_options_are_checked_where_they_are_made() -> None:
    with pytest.raises(ConfigurationError, match="max_tokens"):
        RunOptions(max_tokens=-1)


def test_run_options_know_what_was_given() -> None:
    assert RunOptions(last_messages=None).given("last_messages")
    assert not RunOptions().given("last_messages")


NOTHING_KEPT = ({"off": True}, {"read_only": True}, {"last_messages": 0})


@pytest.mark.parametrize("crashes", [False, True])
@pytest.mark.parametrize(
    ("saver", "durability"), [("ours", "sync"), ("ours", "async"), ("ours", "exit"), ("langgraph", "sync")]
)
@pytest.mark.parametrize("where", ["configurable", "context"])
@pytest.mark.parametrize("switch", NOTHING_KEPT, ids=lambda switch: next(iter(switch)))
def test_a_run_of_which_nothing_is_kept_costs_neither_neighbour_a_message(
    switch: dict[str, Any], where: str, saver: str, durability: Any, crashes: bool
) -> None:
    def answer(messages: list[Any]) -> str:
        if crashes and "unkept" in messages[-1].text:
            raise RuntimeError("no model")
        return f"re: {messages[-1].text}"

    with Memory("memory://") as memory:
        agent = create_agent(
            ScriptedChatModel(answer),
            middleware=[memory.middleware()],
            checkpointer=memory.checkpointer if saver == "ours" else InMemorySaver(),
            context_schema=MemoryContext,
        )

        def run(text: str, options: dict[str, Any] | None = None) -> None:
            context = MemoryContext(resource_id="r", memory=options if where == "context" else None)
            given = {"memory": options} if options and where == "configurable" else {}
            try:
                agent.invoke(ask(text), config(**given), context=context, durability=durability)
            except RuntimeError:
                assert "unkept" in text

        for text in ("unkept 1", "U1", "unkept 2", "unkept 3", "U2", "U3"):
            run(text, switch if "unkept" in text else None)
        kept = [stored.message.text for stored in memory.recall(thread_id="t", per_page=False)]
    assert [text for text in kept if "unkept" not in text] == ["U1", "re: U1", "U2", "re: U2", "U3", "re: U3"]
    assert not [text for text in kept if "unkept" in text]


@pytest.mark.parametrize("heavy", ["tools", "page", "system", "context", "call"])
def test_everything_in_the_prompt_counts_against_the_budget(heavy: str) -> None:
    @tool(description="A tool. " + "word " * (400 if heavy == "tools" else 1))
    def helper(city: str) -> str:
        return city

    words = "word " * 400
    with Memory(
        "memory://",
        message_history=MessageHistory(max_tokens=900),
        working_memory=WorkingMemory(template="# About", agent_managed=False),
    ) as memory:
        talk = [("user" if number % 2 == 0 else "assistant", f"message {number}") for number in range(40)]
        memory.save_messages(talk, thread_id="t", resource_id="r")
        if heavy == "page":
            memory.update_working_memory(words, resource_id="r")
        options: dict[str, Any] = {"read_only": True}
        if heavy == "call":
            options["system"] = words
        if heavy == "context":
            options["context_messages"] = [("user", words)]
        model = ScriptedChatModel(["A1"])
        system = words if heavy == "system" else "SYSTEM"
        agent = create_agent(model, [helper], middleware=[memory.middleware()], system_prompt=system)
        agent.invoke(ask("now"), config(memory=options))
        whole = memory.token_counter.count_messages(model.last_call.messages)
        whole += memory.token_counter.count_tools([helper, *memory.tools()])
        assert whole <= 900
        assert len([message for message in model.last_call.messages if "message" in message.text]) < 40
