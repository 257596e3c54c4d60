"""What went wrong elsewhere: tool calls under interrupts, overlapping processes, bursts, exits, event loops."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
import threading

import pytest
from blockbuster import blockbuster_ctx
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.types import Command, interrupt

from langchain_mastra_memory.memory import Memory
from langchain_mastra_memory.observation.options import Observation, ObservationalMemory
from langchain_mastra_memory.store.operations.log import ClaimLog, LogAddress, OpenLog
from langchain_mastra_memory.testing import ScriptedChatModel
from langchain_mastra_memory.testing.models import tool_call
from tests.integration_tests.observation.conftest import CONFIG, COUNTER, Says


def test_a_tool_call_that_waits_for_a_person_is_never_observed_without_its_result(talk):
    @tool
    def ask(question: str) -> str:
        """Ask the person."""
        return str(interrupt(question))

    count = iter(range(100))
    replies = [
        tool_call("ask", {"question": "ok?"}, id="c1", text="calling " * 50),
        "done " * 50,
        *["beta " * 50 for _ in count],
    ]
    chat = talk(model=ScriptedChatModel(replies), tools=[ask], buffer_tokens=False, message_tokens=200)
    for n in range(3):
        chat.memory.save_messages(
            [HumanMessage(f"H{n} " + "x " * 40), AIMessage("y " * 40)], thread_id="t", resource_id="r"
        )
    chat.agent.invoke({"messages": [HumanMessage("U1 " + "alpha " * 40)]}, CONFIG)
    chat.memory.observe(thread_id="t")
    shown = " ".join(call.messages[-1].text for call in chat.observer.calls)
    assert "Tool Call ask" not in shown
    chat.agent.invoke(Command(resume="yes"), CONFIG)
    for call in chat.model.calls:
        asked = {c["id"] for m in call.conversation if isinstance(m, AIMessage) for c in m.tool_calls}
        assert asked == {m.tool_call_id for m in call.conversation if isinstance(m, ToolMessage)}
    assert any(m.text == "yes" for m in chat.model.last_call.conversation)


def test_a_second_process_does_not_pay_for_a_call_that_is_under_way(memory_factory, sqlite_url):
    started, go = threading.Event(), threading.Event()

    def slow(_messages):
        started.set()
        go.wait(20)
        return "<observations>\n* once\n</observations>"

    first = ScriptedChatModel(slow)
    second = ScriptedChatModel(Says())
    memories = [
        memory_factory(
            sqlite_url,
            observational_memory=ObservationalMemory(model=model, observation=Observation(message_tokens=400)),
            token_counter=COUNTER,
        )
        for model in (first, second)
    ]
    agents = [
        create_agent(
            ScriptedChatModel(["beta " * 40], repeat_last=True),
            [],
            middleware=[memory.middleware()],
            checkpointer=memory.checkpointer,
        )
        for memory in memories
    ]
    for n in range(2):
        agents[0].invoke({"messages": [HumanMessage(f"U{n} " + "alpha " * 39)]}, CONFIG)
    assert started.wait(20)
    agents[1].invoke({"messages": [HumanMessage("U2 " + "alpha " * 39)]}, CONFIG)
    memories[1].settled()
    assert not second.calls
    go.set()
    assert memories[0].settled() == []
    assert len(memories[0].get_observations(thread_id="t").buffered) == 1


def test_a_claim_ends_by_itself_and_never_decides_what_is_committed(talk):
    chat = talk()
    chat.say()
    address = LogAddress(scope="thread", thread_id="t", resource_id="r")
    chat.memory.store.run(OpenLog(address=address))
    take = {"address": address, "line": 0, "phase": "observation"}
    assert chat.memory.store.run(ClaimLog(**take, owner="dead", seconds=1000))
    assert not chat.memory.store.run(ClaimLog(**take, owner="other", seconds=1))
    assert chat.memory.observe(thread_id="t").observed


def test_after_an_activation_that_was_too_small_the_rest_is_observed_at_once(talk):
    chat = talk()
    for _ in range(2):
        chat.say()
    burst = [(HumanMessage if n % 2 == 0 else AIMessage)(f"B{n} " + "x " * 39) for n in range(30)]
    chat.memory.save_messages(burst, thread_id="t", resource_id="r")
    chat.say()
    assert chat.phases()[-3:] == ["activation", "observation_start", "observation_end"]
    assert sum(len(m.text.split()) + 5 for m in chat.model.last_call.conversation) < 400


def test_the_interpreter_may_end_while_the_observer_is_at_work_and_the_log_is_sound(sqlite_url, memory_factory):
    script = textwrap.dedent(
        f"""
        import time
        from langchain.agents import create_agent
        from langchain_mastra_memory import Memory, Observation, ObservationalMemory
        from langchain_mastra_memory.testing import ScriptedChatModel

        def slow(messages):
            time.sleep(1.5)
            return "<observations>\\n* late\\n</observations>"

        memory = Memory({sqlite_url!r}, observational_memory=ObservationalMemory(
            model=ScriptedChatModel(slow), observation=Observation(message_tokens=100)))
        agent = create_agent(ScriptedChatModel(["beta " * 40], repeat_last=True), [], middleware=[memory.middleware()],
                             checkpointer=memory.checkpointer)
        for n in range(2):
            agent.invoke({{"messages": [("user", "alpha " * 40)]}}, {CONFIG!r})
        """
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    memory = memory_factory(sqlite_url, observational_memory=ObservationalMemory(model=ScriptedChatModel(Says())))
    assert len(memory.recall(thread_id="t", per_page=False)) == 4
    assert memory.observe(thread_id="t").observations.pending_tokens == 0


def test_an_event_loop_may_close_while_the_observer_is_at_work(sqlite_url, memory_factory):
    async def slow(_messages):
        await asyncio.sleep(30)
        return "never"

    memory = Memory(
        sqlite_url,
        observational_memory=ObservationalMemory(
            model=ScriptedChatModel(slow), observation=Observation(message_tokens=100)
        ),
        token_counter=COUNTER,
    )
    agent = create_agent(
        ScriptedChatModel(["beta " * 40], repeat_last=True),
        [],
        middleware=[memory.middleware()],
        checkpointer=memory.checkpointer,
    )

    async def turns():
        for _ in range(2):
            await agent.ainvoke({"messages": [HumanMessage("alpha " * 20)]}, CONFIG)

    asyncio.run(turns())
    memory.close()
    again = memory_factory(sqlite_url, observational_memory=ObservationalMemory(model=ScriptedChatModel(Says())))
    assert again.observe(thread_id="t").observed


async def test_nothing_of_it_blocks_the_event_loop(memory_factory, store_url):
    memory = Memory(
        store_url,
        observational_memory=ObservationalMemory(
            model=ScriptedChatModel(Says()),
            observation=Observation(message_tokens=400, buffer_tokens=False),
            retrieval={"vector": True},
            temporal_markers=True,
        ),
        token_counter=COUNTER,
    )
    agent = create_agent(
        ScriptedChatModel(["beta " * 40], repeat_last=True),
        [],
        middleware=[memory.middleware()],
        checkpointer=memory.checkpointer,
    )
    await agent.ainvoke({"messages": [HumanMessage("U0 " + "alpha " * 39)]}, CONFIG)  # what is imported, is imported
    with blockbuster_ctx():
        for n in range(1, 6):
            await agent.ainvoke({"messages": [HumanMessage(f"U{n} " + "alpha " * 39)]}, CONFIG)
        assert (await memory.aget_observations(thread_id="t")).groups
        assert (await memory.areflect(thread_id="t")).reason in {None, "size"}
    await memory.aclose()


@pytest.mark.parametrize("kind", ["summary", "refused", "signal"])
def test_what_is_no_part_of_the_conversation_is_never_observed(memory_factory, kind):
    from langchain_mastra_memory.store.operations.messages import NewMessage, SaveMessages

    observer = ScriptedChatModel(Says())
    memory = memory_factory(
        "memory://", observational_memory=ObservationalMemory(model=observer), token_counter=COUNTER
    )
    rows = [("a", HumanMessage("said")), ("b", AIMessage("HIDDEN", id="hidden")), ("c", AIMessage("answered"))]
    memory.store.run(
        SaveMessages(
            thread_id="t",
            resource_id="r",
            messages=tuple(
                NewMessage(message=m.model_copy(update={"id": i}), tokens=5, kind=kind if i == "b" else None)
                for i, m in rows
            ),
        )
    )
    result = memory.observe(thread_id="t")
    assert result.observations.pending_tokens == 0
    assert "HIDDEN" not in observer.last_call.messages[-1].text
