"""Titles: recorded cases on real agents, and what a title never overwrites."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from langchain_mastra_memory import Memory, MessageHistory, ThreadTitles, WorkingMemory
from langchain_mastra_memory.errors import ConfigurationError
from langchain_mastra_memory.testing.clock import FrozenClock
from langchain_mastra_memory.testing.models import ScriptedChatModel, tool_call
from langchain_mastra_memory.threads.titles import INSTRUCTIONS, MAX_TITLE, clean_title, transcript
from tests.golden import load_cases

DELIBERATE = {
    "title-output-spaces": "a title is one line",
    "title-output-long": "a title has at most 80 characters",
    "title-existing-empty": "the thread keeps the time when it was made",
    "title-later-window": "the transcript is of the thread, not of the loaded window",
    "title-wm-thread": "tool results do not belong into a transcript; the page is not in the metadata",
    "title-tools": "tool results do not belong into a transcript",
}
CASES = [case for case in load_cases("12_title_generation") if case["input"].get("thread", "t1") == "t1"]
OUTPUTS = {"title-output-empty": ["", "Second try"], "title-error": [RuntimeError("down"), "Second try"]}


def config(**options: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"thread_id": "t1", "resource_id": "r1"}
    return {"configurable": {**found, "memory": options} if options else found}


def ask(text: str) -> dict[str, Any]:
    return {"messages": [("user", text)]}


def titles_of(recorded: Any) -> ThreadTitles | None:
    if not recorded:
        return None
    if recorded is True:
        return ThreadTitles()
    names = {"minMessages": "min_messages", "instructions": "instructions", "emitEvent": "emit_event"}
    return ThreadTitles(**{names[key]: value for key, value in recorded.items() if key in names})


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_recorded_titles_are_made_when_and_as_recorded(case: dict[str, Any]) -> None:
    given, name = case["input"], case["id"]
    namer = ScriptedChatModel(OUTPUTS.get(name) or [given["title_model_output"]], repeat_last=True)
    recorded = given["memory_options"]
    page = recorded.get("workingMemory")
    clock = FrozenClock(datetime(2025, 1, 1, tzinfo=UTC))
    memory = Memory(
        "memory://",
        model=namer,
        titles=titles_of(recorded.get("generateTitle")),
        message_history=MessageHistory(last_messages=recorded.get("lastMessages", 10)),
        working_memory=WorkingMemory(scope=page.get("scope", "resource"), template=page["template"]) if page else None,
        clock=clock,
    )
    existing = given.get("pre_existing")
    if existing:
        memory.create_thread("r1", thread_id="t1", title=existing["title"], metadata=existing.get("metadata"))
        for line in existing.get("messages", ()):
            role, _, text = line.partition(" ")
            memory.save_messages([(role, text)], thread_id="t1")
    options: dict[str, Any] = {}
    call_options = given.get("call_memory_options", {})
    if "readOnly" in call_options:
        options["read_only"] = call_options["readOnly"]
    if "generateTitle" in call_options:
        options["titles"] = call_options["generateTitle"]
    answers: list[Any] = [f"A{number + 1} reply" for number in range(len(given["turns"]))]
    if page:
        answers = [tool_call("update_working_memory", {"memory": "WM0"}), "A2 reply"]
    agent = create_agent(ScriptedChatModel(answers), middleware=[memory.middleware()])
    clock.set(datetime(2025, 6, 1, tzinfo=UTC))
    for turn, expected in zip(given["turns"], case["expected"]["turns"], strict=True):
        before = len(namer.calls)
        text = "U1 " + "long " * 2000 if "x 2000" in turn else turn
        events = []
        if given["mode"] == "stream":
            events = list(agent.stream(ask(text), config(**options), stream_mode="custom"))
        else:
            agent.invoke(ask(text), config(**options))
        memory.settled()
        thread = memory.get_thread("t1")
        assert len(namer.calls) - before == expected["title_calls"]
        wanted = expected["title_after"]
        title = (thread.title if thread else None) or ""
        if name == "title-output-spaces":
            assert title == "My Title"
        elif name == "title-output-long":
            assert len(title) == MAX_TITLE
        else:
            assert title == wanted
        named = [{"threadId": event["thread_id"], "title": event["title"]} for event in events]
        assert named == expected.get("events", [])
        if existing:
            assert thread is not None
            assert thread.created_at == datetime(2025, 1, 1, tzinfo=UTC)
            assert dict(thread.metadata) == (expected["metadata_after"] or {})
    first = case["expected"].get("first_title_call")
    if first:
        system, user = namer.calls[0].messages
        assert (system.text == INSTRUCTIONS) == first["system_is_default"]
        assert system.text == first.get("system_text", system.text)
        if name == "title-later-window":
            assert user.text == "User: OLD Q\nAssistant: OLD A\nUser: U1 hello\nAssistant: A1 reply"
        elif page:
            assert user.text == "User: U1 hello\nAssistant: A2 reply"
        elif isinstance(first["user_text"], dict):
            assert len(user.text) == first["user_text"]["length"] - 1  # a space at the end of a message does not count
        else:
            assert user.text == first["user_text"]
    memory.close()


def memory_with(namer: Any, **more: Any) -> Memory:
    return Memory("memory://", titles=ThreadTitles(model=namer, **more))


def test_a_title_that_a_person_gave_meanwhile_stays() -> None:
    def rename(_: list[BaseMessage]) -> str:
        memory.update_thread("t1", title="By hand", metadata={"kept": True})
        return "By the model"

    memory = memory_with(ScriptedChatModel(rename))
    agent = create_agent(ScriptedChatModel(["A1"]), middleware=[memory.middleware()])
    agent.invoke(ask("U1"), config())
    assert memory.settled() == []
    thread = memory.get_thread("t1")
    assert thread is not None
    assert thread.title == "By hand"
    assert thread.metadata == {"kept": True}
    memory.close()


def test_a_title_of_the_runs_options_stays() -> None:
    namer = ScriptedChatModel(["By the model"])
    with memory_with(namer) as memory:
        agent = create_agent(ScriptedChatModel(["A1"]), middleware=[memory.middleware()])
        agent.invoke(ask("U1"), config(thread_title="By the run", thread_metadata={"k": 1}))
        memory.settled()
        thread = memory.get_thread("t1")
        assert thread is not None
        assert (thread.title, thread.metadata) == ("By the run", {"k": 1})
        assert namer.calls == ()


def test_a_failing_model_leaves_the_thread_untitled_and_is_reported_once() -> None:
    with memory_with(ScriptedChatModel([RuntimeError("down")])) as memory:
        agent = create_agent(ScriptedChatModel(["A1"]), middleware=[memory.middleware()])
        answer = agent.invoke(ask("U1"), config())
        assert answer["messages"][-1].text == "A1"
        (failure,) = memory.settled()
        assert (failure.phase, str(failure.error), failure.thread_id) == ("title", "down", "t1")
        assert memory.settled() == []
        thread = memory.get_thread("t1")
        assert thread is not None
        assert not thread.title


@pytest.mark.parametrize("answer", ["", " \n", "\u200b", "<think>never ends", AIMessage([])])
def test_an_answer_without_a_title_in_it_is_reported_once_and_asked_for_again(answer: Any) -> None:
    with memory_with(ScriptedChatModel([answer, "A title"])) as memory:
        agent = create_agent(ScriptedChatModel(["A1", "A2"]), middleware=[memory.middleware()])
        agent.invoke(ask("U1"), config())
        (failure,) = memory.settled()
        assert failure.phase == "title"
        assert "no title" in str(failure.error)
        agent.invoke(ask("U2"), config())
        assert memory.settled() == []
        thread = memory.get_thread("t1")
        assert thread is not None
        assert thread.title == "A title"


def test_a_run_without_words_is_not_named() -> None:
    namer = ScriptedChatModel(["A title"])
    with memory_with(namer) as memory:
        image = {"type": "image", "url": "https://example.org/cat.png"}
        agent = create_agent(ScriptedChatModel([AIMessage([image])]), middleware=[memory.middleware()])
        agent.invoke({"messages": [HumanMessage([image])]}, config())
        assert memory.settled() == []
        assert namer.calls == ()


@pytest.mark.parametrize("saver", ["none", "own", "foreign"])
def test_a_thread_that_is_deleted_while_it_is_named_stays_deleted(saver: str) -> None:
    asked, deleted = threading.Event(), threading.Event()

    def slowly(_: list[BaseMessage]) -> str:
        asked.set()
        assert deleted.wait(30)
        return "What was said"

    with memory_with(ScriptedChatModel(slowly)) as memory:
        checkpointer = {"none": None, "own": memory.checkpointer, "foreign": InMemorySaver()}[saver]
        agent = create_agent(ScriptedChatModel(["A1"]), middleware=[memory.middleware()], checkpointer=checkpointer)
        agent.invoke(ask("U1"), config(), durability=None if checkpointer is None else "exit")
        assert asked.wait(30)
        memory.delete_thread("t1")
        deleted.set()
        assert memory.settled() == []
        assert memory.get_thread("t1") is None


def test_a_thread_that_is_made_anew_while_the_old_one_is_named_keeps_its_own_name() -> None:
    clock = FrozenClock(datetime(2025, 1, 1, tzinfo=UTC))

    def meanwhile(_: list[BaseMessage]) -> str:
        memory.delete_thread("t1")
        clock.set(datetime(2025, 1, 2, tzinfo=UTC))
        memory.create_thread("r1", thread_id="t1")
        return "What the old one was about"

    with Memory("memory://", titles=ThreadTitles(model=ScriptedChatModel(meanwhile)), clock=clock) as memory:
        create_agent(ScriptedChatModel(["A1"]), middleware=[memory.middleware()]).invoke(ask("U1"), config())
        assert memory.settled() == []
        thread = memory.get_thread("t1")
        assert thread is not None
        assert thread.title is None


def test_a_thread_that_another_owner_has_by_now_is_not_named() -> None:
    def meanwhile(_: list[BaseMessage]) -> str:
        memory.transfer_thread("t1", "r2")
        return "A title"

    with memory_with(ScriptedChatModel(meanwhile)) as memory:
        create_agent(ScriptedChatModel(["A1"]), middleware=[memory.middleware()]).invoke(ask("U1"), config())
        assert memory.settled() == []
        thread = memory.get_thread("t1")
        assert thread is not None
        assert thread.title is None


@pytest.mark.parametrize("saver", ["none", "own", "foreign"])
def test_no_title_tells_what_is_not_archived(saver: str) -> None:
    def redact(message: BaseMessage) -> BaseMessage | None:
        if "off the record" in message.text:
            return None
        return message.model_copy(update={"content": message.text.replace("4711", "****")})

    namer = ScriptedChatModel(["A title"])
    history = MessageHistory(before_save=[redact])
    with Memory("memory://", titles=ThreadTitles(model=namer, min_messages=4), message_history=history) as memory:
        checkpointer = {"none": None, "own": memory.checkpointer, "foreign": InMemorySaver()}[saver]
        answers = ["A1 4711", "A2 4711", "A3 4711"]
        agent = create_agent(ScriptedChatModel(answers), middleware=[memory.middleware()], checkpointer=checkpointer)
        for question in ("U1 4711", "U2, off the record", "U3 4711"):
            agent.invoke(ask(question), config())
        assert memory.settled() == []
        (call,) = namer.calls
        assert call.conversation[0].text == (
            "User: U1 ****\nAssistant: A1 ****\nAssistant: A2 ****\nUser: U3 ****\nAssistant: A3 ****"
        )


@pytest.mark.parametrize("emit_event", [False, True])
def test_a_model_that_fails_in_every_turn_is_logged_once_until_it_works_again(
    caplog: pytest.LogCaptureFixture, emit_event: bool
) -> None:
    down, works = RuntimeError("down"), "A title"
    with memory_with(ScriptedChatModel([down, down, down, works, down]), emit_event=emit_event) as memory:
        agent = create_agent(ScriptedChatModel(["A"], repeat_last=True), middleware=[memory.middleware()])

        def turn(thread_id: str) -> int:
            where: Any = {"configurable": {"thread_id": thread_id, "resource_id": "r1"}}
            list(agent.stream(ask("U"), where, stream_mode="custom"))
            return len(memory.settled())

        assert [turn("t1"), turn("t1"), turn("t2")] == [1, 1, 1]
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert [turn("t1"), turn("t2")] == [0, 1]
        assert [record.levelname for record in caplog.records] == ["WARNING"] * 2


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("with_owner", [True, False])
async def test_threads_of_a_checkpointer_are_named_whenever_their_checkpoint_is_written(
    durability: str, with_owner: bool
) -> None:
    memory = memory_with(ScriptedChatModel(["A title"]))
    agent = create_agent(ScriptedChatModel(["A1"]), middleware=[memory.middleware()], checkpointer=memory.checkpointer)
    where = config() if with_owner else {"configurable": {"thread_id": "t1"}}
    await agent.ainvoke(ask("U1"), where, durability=durability)
    assert await memory.asettled() == []
    thread = await memory.aget_thread("t1")
    assert thread is not None
    assert thread.title == "A title"
    assert [stored.message.text for stored in await memory.arecall(thread_id="t1")] == ["U1", "A1"]
    await memory.aclose()


async def test_a_streamed_run_sends_the_title_before_it_ends_and_never_stores_it() -> None:
    memory = memory_with(ScriptedChatModel(["A title"]), emit_event=True)
    agent = create_agent(ScriptedChatModel(["A1", "A2"]), middleware=[memory.middleware()])
    events = [event async for event in agent.astream(ask("U1"), config(), stream_mode="custom")]
    assert events == [{"type": "memory.thread_title", "thread_id": "t1", "title": "A title"}]
    again = [event async for event in agent.astream(ask("U2"), config(), stream_mode="custom")]
    assert again == []
    assert len(await memory.arecall(thread_id="t1", per_page=False)) == 4
    await memory.aclose()


@pytest.mark.parametrize("mode", ["invoke", "values", "updates", "messages"])
def test_a_run_whose_custom_stream_nobody_reads_does_not_wait_for_its_title(mode: str) -> None:
    ended = threading.Event()

    def slowly(_: list[BaseMessage]) -> str:
        assert ended.wait(30)
        return "A title"

    with memory_with(ScriptedChatModel(slowly), emit_event=True) as memory:
        agent = create_agent(ScriptedChatModel(["A1"]), middleware=[memory.middleware()])
        if mode == "invoke":
            agent.invoke(ask("U1"), config())
        else:
            list(agent.stream(ask("U1"), config(), stream_mode=mode))
        ended.set()
        assert memory.settled() == []
        thread = memory.get_thread("t1")
        assert thread is not None
        assert thread.title == "A title"


async def test_an_async_run_whose_custom_stream_nobody_reads_does_not_wait_for_its_title() -> None:
    ended = asyncio.Event()

    async def slowly(_: list[BaseMessage]) -> str:
        await asyncio.wait_for(ended.wait(), 30)
        return "A title"

    memory = memory_with(ScriptedChatModel(slowly), emit_event=True)
    agent = create_agent(ScriptedChatModel(["A1"]), middleware=[memory.middleware()])
    await agent.ainvoke(ask("U1"), config())
    ended.set()
    assert await memory.asettled() == []
    await memory.aclose()


def test_the_naming_models_words_never_reach_the_callers_stream() -> None:
    with memory_with(ScriptedChatModel(["Secret title"]), emit_event=True) as memory:
        agent = create_agent(ScriptedChatModel(["A1"]), middleware=[memory.middleware()])
        modes = ["messages", "custom"]
        seen = list(agent.stream(ask("U1"), config(), stream_mode=modes))
        assert "Secret" not in str([chunk for mode, chunk in seen if mode == "messages"])
        assert any(mode == "custom" for mode, _ in seen)


def test_without_any_model_of_its_own_the_agents_model_names() -> None:
    model = ScriptedChatModel(["A1", "Named by the agent's model"])
    with Memory("memory://", titles=True) as memory:
        create_agent(model, middleware=[memory.middleware()]).invoke(ask("U1"), config())
        memory.settled()
        thread = memory.get_thread("t1")
        assert thread is not None
        assert thread.title == "Named by the agent's model"


def test_a_refused_run_is_not_named() -> None:
    @tool
    def broken() -> str:
        """Break."""
        raise ZeroDivisionError

    namer = ScriptedChatModel(["A title"])
    with memory_with(namer) as memory:
        agent = create_agent(
            ScriptedChatModel([tool_call("broken")]),
            [broken],
            middleware=[memory.middleware()],
            checkpointer=memory.checkpointer,
        )
        with pytest.raises(ZeroDivisionError):
            agent.invoke(ask("U1"), config())
        memory.settled()
        assert namer.calls == ()


def test_a_transcript_has_what_people_and_the_assistant_said() -> None:
    messages = [
        SystemMessage("rules"),
        HumanMessage([{"type": "text", "text": "look"}, {"type": "image", "url": "https://example.org/cat.png"}]),
        AIMessage("", tool_calls=[{"name": "look", "args": {}, "id": "a", "type": "tool_call"}]),
        ToolMessage("found", tool_call_id="a"),
        AIMessage("a cat"),
    ]
    assert transcript(messages) == "User: look\nAssistant: a cat"


@pytest.mark.parametrize(
    ("answer", "title"),
    [
        ("  Trip to\nRome ", "Trip to Rome"),
        ("<think>long\nthoughts</think>Trip", "Trip"),
        ("<think>never ends", ""),
        ("The template began the thought.\n</think>\nTrip", "Trip"),
        ("<think>a</think>not yet</think>Trip", "Trip"),
        ("\u200b\u2060", ""),
        ("🧑\u200d🚀" * 50, "🧑\u200d🚀" * 26 + "…"),
        ("🇫🇷" * 50, "🇫🇷" * 39 + "…"),
        ("e\u0301" * 50, "e\u0301" * 39 + "…"),
        ('"Quoted"', '"Quoted"'),
        ("", ""),
        ("word " * 40, ("word " * 40)[:74] + "…"),
        ("x" * 100, "x" * 79 + "…"),
    ],
)
def test_a_title_is_one_line_of_at_most_80_characters(answer: str, title: str) -> None:
    assert clean_title(answer) == title
    assert len(title) <= MAX_TITLE


@pytest.mark.parametrize("options", [{"min_messages": 0}, {"min_messages": 1.5}, {"instructions": ""}, {"modle": "x"}])
def test_options_are_checked_where_they_are_made(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        ThreadTitles(**options)
