"""Node, hooks, resource scope, early activation, titles, attachments and the other options: each changes something."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import pytest
from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from typing_extensions import TypedDict

from langchain_mastra_memory import Memory, MessageHistory, ObservationNode, redact_tool_results
from langchain_mastra_memory.errors import ConfigurationError, MissingResourceError, ProcessorError
from langchain_mastra_memory.observation.extractors import Extractor
from langchain_mastra_memory.observation.hooks import ObservationHooks
from langchain_mastra_memory.observation.idle import cache_seconds, changed_provider
from langchain_mastra_memory.observation.options import (
    ContinuationHints,
    Observation,
    ObservationalMemory,
    Reflection,
)
from langchain_mastra_memory.observation.render import obscured
from langchain_mastra_memory.testing import FrozenClock, ScriptedChatModel
from langchain_mastra_memory.testing.models import tool_call
from tests.integration_tests.observation.conftest import CONFIG, COUNTER, HINTS, Says

# the node


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    llm_input_messages: list[AnyMessage]


def graph_of(memory, model, **fields):
    def call(state):
        return {"messages": [model.invoke(state["llm_input_messages"])]}

    graph = StateGraph(State)
    graph.add_node("observe", ObservationNode(memory, **fields))
    graph.add_node("model", call)
    graph.add_edge(START, "observe")
    graph.add_edge("observe", "model")
    return graph


def memory_with(memory_factory, observer=None, url="memory://", **options):
    observation = {"message_tokens": 400, "buffer_tokens": False, **options.pop("observation", {})}
    return memory_factory(
        url,
        observational_memory=ObservationalMemory(
            model=observer or ScriptedChatModel(Says(HINTS)), observation=Observation(**observation), **options
        ),
        token_counter=COUNTER,
    )


def answering():
    count = iter(range(1, 1000))
    return ScriptedChatModel(lambda _messages: f"A{next(count)} " + "beta " * 39)


def test_the_node_puts_observations_in_place_of_old_messages(memory_factory, store_url):
    memory, model = memory_with(memory_factory, url=store_url), answering()
    graph = graph_of(memory, model).compile(checkpointer=memory.checkpointer)
    for n in range(1, 7):
        graph.invoke({"messages": [HumanMessage(f"U{n} " + "alpha " * 39)]}, CONFIG)
    assert "obs1" in model.last_call.system
    assert [m.text.split()[0] for m in model.last_call.conversation] == ["<system-reminder>", "U5", "A5", "U6"]
    assert len(graph.get_state(CONFIG).values["messages"]) == 12


async def test_the_node_is_async_too(memory_factory):
    memory, model = memory_with(memory_factory), answering()
    graph = graph_of(memory, model).compile(checkpointer=memory.checkpointer)
    for n in range(1, 7):
        await graph.ainvoke({"messages": [HumanMessage(f"U{n} " + "alpha " * 39)]}, CONFIG)
    assert "obs1" in model.last_call.system
    await memory.aclose()


def test_the_node_can_remove_what_is_covered_from_the_state(memory_factory):
    memory, model = memory_with(memory_factory), answering()
    graph = graph_of(memory, model, trim_messages=True).compile(checkpointer=memory.checkpointer)
    for n in range(1, 7):
        graph.invoke({"messages": [HumanMessage(f"U{n} " + "alpha " * 39)]}, CONFIG)
    kept = [m.text.split()[0] for m in graph.get_state(CONFIG).values["messages"]]
    assert kept == ["U5", "A5", "U6", "A6"]
    assert memory.recall(thread_id="t", per_page=False)[0].message.text.startswith("U1")


def test_the_node_works_in_a_subgraph_and_keeps_the_callers_system_message(memory_factory):
    memory, model = memory_with(memory_factory), answering()
    inner = graph_of(memory, model).compile()
    outer = StateGraph(State)
    outer.add_node("inner", inner)
    outer.add_edge(START, "inner")
    graph = outer.compile(checkpointer=memory.checkpointer)
    graph.invoke({"messages": [SystemMessage("INSTR"), HumanMessage("U1 " + "alpha " * 39)]}, CONFIG)
    for n in range(2, 7):
        graph.invoke({"messages": [HumanMessage(f"U{n} " + "alpha " * 39)]}, CONFIG)
    assert model.last_call.system.startswith("INSTR")
    assert "obs1" in model.last_call.system


def test_the_node_takes_other_keys_and_refuses_one_for_both(memory_factory):
    memory = memory_with(memory_factory)
    with pytest.raises(ConfigurationError):
        ObservationNode(memory, output_messages_key="messages")
    with pytest.raises(ConfigurationError, match="off"):
        ObservationNode(memory_factory("memory://"))


def test_a_tool_loop_in_a_raw_graph_stays_inside_the_budget_and_keeps_its_question(memory_factory):
    memory, steps = memory_with(memory_factory), iter(range(1, 1000))

    def answer(_messages):
        step = next(steps)
        call = {"name": "look", "args": {}, "id": f"c{step}"}
        return AIMessage("calling " * 10, tool_calls=[call]) if step < 30 else AIMessage("done")

    model = ScriptedChatModel(answer)

    def look(state):
        call = state["messages"][-1].tool_calls[0]
        return {"messages": [ToolMessage("result " * 30, tool_call_id=call["id"], name="look")]}

    graph = graph_of(memory, model)
    graph.add_node("look", look)
    graph.add_conditional_edges("model", lambda state: "look" if state["messages"][-1].tool_calls else "__end__")
    graph.add_edge("look", "observe")
    app = graph.compile(checkpointer=memory.checkpointer)
    # "sync": the observer sees what is archived, and with "async" a late put may keep the last steps from it.
    question = {"messages": [HumanMessage("U1 " + "alpha " * 39)]}
    app.invoke(question, {**CONFIG, "recursion_limit": 200}, durability="sync")
    for call in model.calls:
        assert sum(len(m.text.split()) + 5 for m in call.conversation) < 600
        labels = [m.text.split()[0] for m in call.conversation if m.type == "human"]
        assert labels[-1] == "U1"
        asked = [c["id"] for m in call.conversation if isinstance(m, AIMessage) for c in m.tool_calls]
        assert asked == [m.tool_call_id for m in call.conversation if m.type == "tool"]
    assert "obs2" in model.last_call.system


@pytest.mark.parametrize("saver", ["none", "ours", "foreign"])
def test_the_observer_sees_the_running_turn_as_it_will_be_archived(saver):
    @tool
    def look(place: str) -> str:
        """Look somewhere."""
        return "4711 " * 30 if place == "vault" else "off the record " * 30

    def redact(message):
        return (
            None
            if "off the record" in message.text
            else message.model_copy(update={"content": message.text.replace("4711", "****")})
        )

    answers = [tool_call("look", {"place": ("vault", "attic")[n % 2]}, id=f"c{n}") for n in range(20)]
    observer = ScriptedChatModel(Says(HINTS))
    memory = Memory(
        "memory://",
        message_history=MessageHistory(last_messages=None, before_save=[redact]),
        observational_memory=ObservationalMemory(
            model=observer, observation=Observation(message_tokens=200, buffer_tokens=False)
        ),
        token_counter=COUNTER,
    )
    checkpointer = {"none": None, "ours": memory.checkpointer, "foreign": InMemorySaver()}[saver]
    agent = create_agent(
        ScriptedChatModel([*answers, "done"]), [look], middleware=[memory.middleware()], checkpointer=checkpointer
    )
    agent.invoke({"messages": [HumanMessage("U1 4711")]}, {**CONFIG, "recursion_limit": 200})
    assert memory.settled() == []
    asked = [message.text for call in observer.calls for message in call.messages]
    assert any("****" in text for text in asked)
    assert not any("4711" in text or "off the record" in text for text in asked)
    memory.close()


def test_the_first_turn_of_a_thread_without_a_checkpointer_is_observed_in_its_loop_too(memory_factory):
    @tool
    def look(place: str) -> str:
        """Look somewhere."""
        return "result " * 30

    steps = iter(range(1, 1000))

    def answer(_messages):
        step = next(steps)
        return tool_call("look", {"place": "x"}, id=f"c{step}", text="calling " * 5) if step < 20 else "done"

    memory, model = memory_with(memory_factory), ScriptedChatModel(answer)
    agent = create_agent(model, [look], middleware=[memory.middleware()])
    agent.invoke({"messages": [HumanMessage("U1 " + "alpha " * 39)]}, {**CONFIG, "recursion_limit": 200})
    assert max(sum(len(m.text.split()) + 5 for m in call.conversation) for call in model.calls) < 600
    assert all(any(m.text.startswith("U1") for m in call.conversation) for call in model.calls)
    assert len(memory.get_observations(thread_id="t").groups) >= 1
    agent.invoke({"messages": [HumanMessage("U2")]}, CONFIG)
    assert model.last_call.conversation[-1].text == "U2"
    assert "obs1" in model.last_call.system


# hooks


def test_hooks_see_every_cycle_with_its_usage(talk):
    seen = []
    hooks = ObservationHooks(
        on_observation_start=lambda context: seen.append(("start", context.trigger, context.thread_id)),
        on_observation_end=lambda context: seen.append(("end", context.usage["total_tokens"] > 0, context.error)),
    )
    chat = talk(buffer_tokens=False, hooks=hooks)
    for _ in range(5):
        chat.say()
    assert sorted(seen, key=str) == [("end", True, None), ("start", "turn-sync", "t")]
    chat.memory.observe(thread_id="t")
    chat.memory.settled()
    assert ("start", "manual", "t") in seen
    buffered = talk(hooks=hooks)
    seen.clear()
    for _ in range(3):
        buffered.say()
    assert ("start", "async-buffer", "t") in seen


def test_a_lifecycle_hook_that_raises_is_reported_unless_it_is_waited_for(talk):
    def boom(_context):
        raise ValueError("hook boom")

    chat = talk(buffer_tokens=False, hooks=ObservationHooks(on_observation_start=boom))
    for _ in range(5):
        chat.say()
    assert "obs1" in chat.system
    assert isinstance(chat.failures[0].error, ProcessorError)
    strict = talk(buffer_tokens=False, hooks=ObservationHooks(on_observation_start=boom), hook_execution="await")
    strict.say()
    with pytest.raises(ProcessorError, match="hook boom"):
        strict.memory.observe(thread_id="t")
    assert not strict.observer.calls


@pytest.mark.parametrize("moment", ["start", "end"])
@pytest.mark.parametrize("phase", ["observation", "reflection"])
def test_a_turn_is_answered_when_a_hook_that_is_waited_for_raises(talk, phase, moment):
    def boom(_context):
        raise ValueError("hook boom")

    chat = talk(
        buffer_tokens=False,
        hooks=ObservationHooks(**{f"on_{phase}_{moment}": boom}),
        hook_execution="await",
        message_tokens=100,
        reflection=Reflection(observation_tokens=5, buffer_activation=1),
    )
    failures = []
    for turn in range(1, 8):
        chat.say()
        failures += chat.failures
        assert chat.prompt[-1] == f"U{turn}"
    assert {type(failure.error) for failure in failures} == {ProcessorError}
    log = chat.memory.get_observations(thread_id="t")
    assert bool(log.groups) is not (phase == "observation" and moment == "start")
    assert (log.generation > 0) is (moment == "end")


def test_hooks_of_one_call_are_waited_for(talk):
    chat = talk()
    chat.say()
    with pytest.raises(ProcessorError, match="own"):
        chat.memory.observe(
            thread_id="t",
            hooks=ObservationHooks(on_observation_start=lambda _c: (_ for _ in ()).throw(ValueError("own"))),
        )


def test_transform_hooks_change_what_goes_in_and_what_is_kept(talk):
    hooks = ObservationHooks(
        before_observation=lambda messages, _context: messages[:1],
        after_observation=lambda text, _context: text.replace("obs1", "replaced"),
    )
    chat = talk(buffer_tokens=False, hooks=hooks)
    for _ in range(5):
        chat.say()
    assert "replaced" in chat.system
    assert "U1" in chat.observer.last_call.messages[-1].text
    assert "U2" not in chat.observer.last_call.messages[-1].text


def test_a_hook_that_returns_no_messages_marks_them_observed_without_a_call(talk):
    chat = talk(buffer_tokens=False, hooks=ObservationHooks(before_observation=lambda _messages, _context: []))
    for _ in range(5):
        chat.say()
    assert not chat.observer.calls
    assert chat.prompt == ["U5"]
    log = chat.memory.get_observations(thread_id="t")
    assert (log.text, log.groups[0].messages) == ("", 8)


def test_a_transform_hook_that_raises_stops_the_cycle_before_anything_is_kept(talk):
    def boom(_text, _context):
        raise ValueError("no")

    chat = talk(buffer_tokens=False, hooks=ObservationHooks(after_observation=boom))
    for _ in range(5):
        chat.say()
    assert chat.memory.get_observations(thread_id="t").groups == ()
    assert chat.prompt[-1] == "U5"


def test_tool_results_can_be_kept_from_the_observer(talk):
    hooks = ObservationHooks(before_observation=redact_tool_results(["vault"]))
    chat = talk(hooks=hooks)
    call = {"name": "vault", "args": {"key": "k"}, "id": "c1"}
    messages = [
        HumanMessage("open"),
        AIMessage("", tool_calls=[call]),
        ToolMessage("s3cret", tool_call_id="c1", name="vault"),
        AIMessage("done"),
    ]
    chat.memory.observe(thread_id="t", resource_id="r", messages=messages)
    shown = chat.observer.last_call.messages[-1].text
    assert "s3cret" not in shown
    assert "Tool Call vault" in shown


async def test_async_hooks_run_in_async_methods_and_are_refused_in_sync_ones(talk):
    async def keep(text, _context):
        return text + " (seen)"

    chat = talk(hooks=ObservationHooks(after_observation=keep))
    await chat.memory.asave_messages([HumanMessage("a"), AIMessage("b")], thread_id="t", resource_id="r")
    assert "(seen)" in (await chat.memory.aobserve(thread_id="t")).observations.text
    await chat.memory.aclose()


# options


def test_instructions_and_hints_are_asked_for_as_configured(talk):
    chat = talk(
        Says(HINTS),
        buffer_tokens=False,
        instruction="MIND THE GAP",
        continuation_hints=ContinuationHints(suggested_response=False),
        reflection=Reflection(continuation_hints=False, observation_tokens=300),
    )
    for _ in range(5):
        chat.say()
    asked = chat.observer.last_call.system
    assert "MIND THE GAP" in asked
    assert "<current-task>" in asked
    assert "<suggested-response>" not in asked
    assert "task1" in chat.system
    assert "sugg1" not in chat.system


def test_model_settings_are_bound_to_the_model(talk):
    chat = talk(buffer_tokens=False, model_settings={"temperature": 0.3})
    chat.say()
    chat.memory.observe(thread_id="t")
    assert chat.observer.last_call.options["temperature"] == 0.3


@pytest.mark.parametrize(("budget", "seen"), [(0, False), (False, True), (2000, True)])
def test_the_observer_is_shown_as_much_of_the_log_as_configured(talk, budget, seen):
    chat = talk(previous_observer_tokens=budget)
    for _ in range(2):
        chat.say()
        chat.memory.observe(thread_id="t")
    assert ("## Previous Observations" in chat.observer.last_call.messages[-1].text) == seen


def test_the_observer_names_the_thread_only_when_asked_and_a_persons_title_stays(talk):
    title = "<thread-title>\nTea {n}\n</thread-title>"
    named = talk(Says(title), thread_title=True)
    named.say()
    named.memory.observe(thread_id="t")
    assert named.memory.get_thread("t").title == "Tea 1"
    off = talk(Says(title))
    off.say()
    off.memory.observe(thread_id="t")
    assert off.memory.get_thread("t").title is None
    named.memory.update_thread("t", title="Mine")
    named.say()
    named.memory.observe(thread_id="t")
    assert named.memory.get_thread("t").title == "Mine"


def test_the_background_names_the_thread_too(talk):
    chat = talk(Says("<thread-title>\nTea {n}\n</thread-title>"), thread_title=True)
    for _ in range(3):
        chat.say()
    assert chat.memory.get_thread("t").title.startswith("Tea ")


IMAGE = {"type": "image", "url": "https://x.y/pic.png", "mime_type": "image/png"}
PDF = {"type": "file", "url": "https://x.y/doc.pdf", "mime_type": "application/pdf"}


@pytest.mark.parametrize(
    ("wanted", "kinds"),
    [
        (True, ["image", "file"]),
        (False, []),
        (("image/*",), ["image"]),
        (("application/PDF",), ["file"]),
        ("auto", ["image", "file"]),
    ],
)
def test_attachments_are_forwarded_as_configured_and_always_named(talk, wanted, kinds):
    chat = talk(observe_attachments=wanted)
    messages = [HumanMessage([{"type": "text", "text": "see"}, IMAGE, PDF]), AIMessage("ok")]
    chat.memory.observe(thread_id="t", resource_id="r", messages=messages)
    content = chat.observer.last_call.messages[-1].content
    text = content if isinstance(content, str) else content[0]["text"]
    assert "[Image #1: pic.png]" in text
    assert "[File #1: doc.pdf]" in text
    assert [block["type"] for block in content[1:] if isinstance(block, dict)] == kinds


def test_auto_forwards_what_the_models_profile_can_read(talk):
    chat = talk(
        ScriptedChatModel(Says(), profile={"image_inputs": True, "pdf_inputs": False}), observe_attachments="auto"
    )
    chat.memory.observe(
        thread_id="t",
        resource_id="r",
        messages=[HumanMessage([{"type": "text", "text": "see"}, IMAGE, PDF]), AIMessage("ok")],
    )
    assert [b["type"] for b in chat.observer.last_call.messages[-1].content] == ["text", "image"]


def test_messages_may_use_what_the_log_leaves_of_a_shared_budget(talk):
    chat = talk(buffer_tokens=False, share_token_budget=True)
    for _ in range(8):
        chat.say()
    assert chat.phases() == []
    chat.say()
    assert chat.phases() == ["observation_start", "observation_end"]


def test_what_is_buffered_is_activated_after_a_pause(talk):
    clock = FrozenClock()
    chat = talk(clock=clock, activate_after_idle="5m")
    for _ in range(3):
        chat.say()
    assert "activation" not in chat.phases()
    clock.advance(timedelta(minutes=6))
    chat.say()
    activation = next(event for event in chat.events if event["phase"] == "activation")
    assert activation["triggered_by"] == "ttl"
    off = talk(
        clock=clock, activate_after_idle="5m", observation=Observation(message_tokens=400, activate_after_idle=False)
    )
    for _ in range(3):
        off.say()
    clock.advance(timedelta(minutes=6))
    off.say()
    assert "activation" not in off.phases()


def test_what_is_buffered_is_activated_when_another_model_answers(talk):
    chat = talk(activate_on_provider_change=True)
    for _ in range(3):
        chat.say()
    other = ScriptedChatModel(["A " + "beta " * 39], repeat_last=True, model_name="another")
    agent = create_agent(other, [], middleware=[chat.memory.middleware()], checkpointer=chat.memory.checkpointer)
    events = list(agent.stream({"messages": [HumanMessage("U4")]}, CONFIG, stream_mode="custom"))
    assert [e["triggered_by"] for e in events if e.get("phase") == "activation"] == ["provider_change"]


def test_a_longer_name_of_the_same_model_is_no_change():
    model = ScriptedChatModel([], model_name="gpt-5-mini")
    same = AIMessage("x", response_metadata={"model_name": "gpt-5-mini-2025-08-07"})
    assert not changed_provider(same, model)
    assert changed_provider(AIMessage("x", response_metadata={"model_name": "claude"}), model)
    assert not changed_provider(AIMessage("x"), model)
    assert not changed_provider(None, GenericFakeChatModel(messages=iter([])))


@pytest.mark.parametrize(
    ("provider", "name", "retention", "minutes"),
    [
        ("anthropic", "claude-haiku-4-5", None, 5),
        ("openrouter", "x", None, 5),
        ("unknown", "x", None, 5),
        ("xai", "grok-4", None, 5),
        ("deepseek", "deepseek-v4", None, 60),
        ("google_genai", "gemini-2.5-flash", None, 24 * 60),
        ("groq", "llama", None, 120),
        ("openai", "gpt-5.6", "24h", 60),
        ("openai", "gpt-5.6", "in_memory", 5),
        ("openai", "gpt-4o", None, 5),
        ("openai", "gpt-5", None, 5),
        ("openai", "gpt-5-mini", None, 5),
        ("openai", "gpt-5.4-mini", None, 5),
        ("openai", "gpt-5.6-sol", None, 60),
    ],
)
def test_auto_waits_as_long_as_the_provider_keeps_its_cache(provider, name, retention, minutes):
    assert cache_seconds(provider, name, retention) == minutes * 60


def test_a_short_turn_is_buffered_when_the_agent_goes_idle(talk):
    chat = talk(buffer_tokens=300, buffer_on_idle=True)
    chat.say()
    chat.say()
    assert len(chat.memory.get_observations(thread_id="t").buffered) >= 1
    off = talk(buffer_tokens=300)
    off.say()
    off.say()
    assert off.memory.get_observations(thread_id="t").buffered == ()


def test_an_extractor_is_shown_its_last_value_unless_it_asks_not_to_be(talk):
    chat = talk(
        Says("<mood>\nhappy{n}\n</mood>\n<blocker>\nnone{n}\n</blocker>"),
        extract=[Extractor(name="Mood"), Extractor(name="Blocker", include_previous=False)],
    )
    for _ in range(2):
        chat.say()
        chat.memory.observe(thread_id="t")
    shown = chat.observer.last_call.messages[-1].text
    assert "- prior mood: happy1" in shown
    assert "none1" not in shown
    assert chat.memory.get_observations(thread_id="t").extracted == {"mood": "happy2", "blocker": "none2"}


def test_the_observer_keeps_the_working_memory_when_asked(talk):
    from langchain_mastra_memory.working_memory.options import WorkingMemory

    replies = ["<observations>\n* lives in Oslo\n</observations>", {"working-memory": "# User\n- Location: Oslo"}]
    chat = talk(
        ScriptedChatModel(replies),
        manage_working_memory=True,
        working_memory=WorkingMemory(template="# User\n- Location:"),
    )
    assert "working_memory" not in " ".join(tool.name for tool in chat.memory.tools())
    chat.say()
    chat.memory.observe(thread_id="t")
    assert chat.memory.get_working_memory(resource_id="r") == "# User\n- Location: Oslo"


def test_with_the_recall_tool_groups_name_the_messages_behind_them(talk):
    chat = talk(buffer_tokens=False, retrieval={"instructions": "PREFER NEW"})
    for _ in range(9):
        chat.say()
    log = chat.memory.get_observations(thread_id="t")
    assert len(log.groups) == 2
    for group in log.groups:
        assert f"## Group `{group.id}`" in chat.system
        assert f"_range: `{group.first_message_id}:{group.last_message_id}`_" in chat.system
    assert "PREFER NEW" in chat.system
    assert 'mode="threads"' in chat.system
    chat.memory.delete_messages([log.groups[0].first_message_id], thread_id="t")
    chat.say()
    assert log.groups[0].first_message_id not in chat.system
    assert chat.memory.get_observations(thread_id="t").groups[0].first_message_id in chat.system


# resource scope


def resource_chat(memory_factory, observer, **options):
    memory = memory_with(memory_factory, observer, scope="resource", observation={"buffer_tokens": None}, **options)
    model = answering()
    agent = create_agent(model, [], middleware=[memory.middleware()], checkpointer=memory.checkpointer)

    def say(thread, text):
        config = {"configurable": {"thread_id": thread, "resource_id": "r"}}
        agent.invoke({"messages": [HumanMessage(f"{text} " + "alpha " * 39)]}, config)

    return memory, model, say


class PerThread:
    """An observer that answers for each thread that it is shown."""

    def __init__(self):
        self.n = 0

    def __call__(self, messages):
        import re

        self.n += 1
        history = messages[-1].text
        blocks = re.findall(r'<thread id="([^"]+)">\n(.*?)\n</thread>', history, re.DOTALL)
        said = []
        for i, text in blocks:
            seen = " ".join(re.findall(r"[UV][0-9]+", text))
            said.append(f'<thread id="{i}">\n<observations>\n* saw {seen}\n</observations>\n</thread>')
        return "\n".join(said)


def test_in_resource_scope_each_threads_messages_stay_in_its_own_block_under_an_obscured_id(memory_factory):
    observer = ScriptedChatModel(PerThread())
    memory, model, say = resource_chat(memory_factory, observer)
    for n in range(1, 6):
        say("tA", f"U{n}")
        say("tB", f"V{n}")
    shown = observer.calls[0].messages[-1].text
    assert "tA" not in shown
    assert "tB" not in shown
    block = shown.split(f'<thread id="{obscured("tA")}">')[1].split("</thread>")[0]
    assert "U1" in block
    assert "V1" not in block
    log = memory.get_observations(resource_id="r")
    assert {group.thread_ids for group in log.groups} == {("tA",), ("tB",)}
    assert f'<thread id="{obscured("tA")}"' in model.last_call.system
    assert "saw U1" in model.last_call.system


def test_other_threads_raw_messages_stand_in_blocks_of_their_own(memory_factory):
    memory, model, say = resource_chat(memory_factory, ScriptedChatModel(PerThread()))
    say("tA", "U1")
    say("tB", "V1")
    assert "<other-threads>" in model.last_call.system
    assert "U1" in model.last_call.system.split("<other-threads>")[1]
    assert [m.text.split()[0] for m in model.last_call.conversation] == ["V1"]
    assert memory.get_observations(resource_id="r").pending_tokens > 0


def test_deleting_a_thread_in_resource_scope_removes_its_rows_and_what_was_made_of_them(memory_factory, store_url):
    observer = ScriptedChatModel(PerThread())
    memory = memory_with(memory_factory, observer, url=store_url, scope="resource", observation={"buffer_tokens": None})
    for thread, word in (("tA", "U"), ("tB", "V")):
        memory.save_messages([HumanMessage(f"{word}1"), AIMessage(f"{word}2")], thread_id=thread, resource_id="r")
    memory.observe(resource_id="r")
    reflector = ScriptedChatModel(["<observations>\n* both\n</observations>"])
    from langchain_mastra_memory.observation.provider import engine_of

    engine = engine_of(memory)
    engine.options = engine.options.model_copy(update={"model": reflector})
    assert memory.reflect(resource_id="r").reflected
    memory.delete_thread("tA")
    log = memory.get_observations(resource_id="r")
    assert "saw V1" in log.text
    assert "U1" not in log.text
    assert "both" not in log.text


def test_a_clone_inside_a_resource_is_covered_and_shown_only_when_its_source_is_gone(memory_factory):
    memory = memory_with(
        memory_factory, ScriptedChatModel(PerThread()), scope="resource", observation={"buffer_tokens": None}
    )
    memory.save_messages([HumanMessage("U1"), AIMessage("U2")], thread_id="tA", resource_id="r")
    memory.observe(resource_id="r")
    tokens = memory.get_observations(resource_id="r").tokens
    memory.clone_thread("tA", new_thread_id="tC")
    log = memory.get_observations(resource_id="r")
    assert len(log.groups) == 2
    assert (log.text.count("saw U1"), log.tokens, log.pending_tokens) == (1, tokens, 0)
    memory.delete_thread("tA")
    assert memory.get_observations(resource_id="r").text.count("saw U1") == 1


def test_a_transferred_thread_takes_its_observations_along(memory_factory):
    memory = memory_with(
        memory_factory, ScriptedChatModel(PerThread()), scope="resource", observation={"buffer_tokens": None}
    )
    memory.save_messages([HumanMessage("U1"), AIMessage("U2")], thread_id="tA", resource_id="r")
    memory.observe(resource_id="r")
    memory.transfer_thread("tA", "r2")
    assert memory.get_observations(resource_id="r").groups == ()
    assert "saw U1" in memory.get_observations(resource_id="r2").text


def test_resource_scope_needs_a_resource(memory_factory):
    memory = memory_with(memory_factory, scope="resource", observation={"buffer_tokens": None})
    with pytest.raises(MissingResourceError):
        memory.observe()
    with pytest.raises(ConfigurationError):
        memory_with(memory_factory).observe()


def test_an_observer_that_forgets_a_thread_leaves_that_threads_messages_raw(memory_factory):
    def only_first(messages):
        import re

        first = re.findall(r'<thread id="([^"]+)">', messages[-1].text)[0]
        return f'<thread id="{first}">\n<observations>\n* one\n</observations>\n</thread>'

    memory = memory_with(
        memory_factory, ScriptedChatModel(only_first), scope="resource", observation={"buffer_tokens": None}
    )
    for thread in ("tA", "tB"):
        memory.save_messages([HumanMessage("q"), AIMessage("a")], thread_id=thread, resource_id="r")
    result = memory.observe(resource_id="r")
    assert len(result.groups) == 1
    assert result.observations.pending_tokens > 0
