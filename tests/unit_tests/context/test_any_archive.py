"""Any archive of random messages, tool batches, orphans and cuts gives a prompt that strict providers take."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage

from langchain_mastra_memory import Memory, MessageHistory
from langchain_mastra_memory.context.assembly import Layout, arrange, assemble
from langchain_mastra_memory.context.layers import Contribution, Item, Layer
from langchain_mastra_memory.history.processors import cap_tool_results, drop_tool_calls, keep_roles, strip_reasoning
from langchain_mastra_memory.history.units import turn_start
from langchain_mastra_memory.history.window import Boundary, Limits, Shape, choose
from langchain_mastra_memory.testing.prompts import check_prompt
from tests.unit_tests.history.conversations import conversations

LAYOUTS = st.sampled_from(["documented", "cached"])
PROCESSORS = st.lists(
    st.sampled_from([cap_tool_results(2), drop_tool_calls("look", keep_last=1), strip_reasoning, keep_roles("human")]),
    max_size=2,
)


@st.composite
def limits(draw: st.DrawFn) -> Limits:
    budget = draw(st.one_of(st.none(), st.integers(0, 250)))
    return Limits(
        last_messages=draw(st.one_of(st.none(), st.integers(0, 12))),
        max_tokens=budget,
        remove_tokens=draw(st.floats(0, 1)) * (budget or 0),
    )


@given(
    conversations(),
    limits(),
    LAYOUTS,
    PROCESSORS,
    st.one_of(st.none(), st.integers(0, 14)),
    st.one_of(st.none(), st.integers(0, 14)),
    st.booleans(),
)
def test_window_processors_and_layers_together(  # noqa: PLR0917 - drawn by hypothesis
    messages: list[BaseMessage],
    cap: Limits,
    layout: Layout,
    processors: list[Any],
    covered: int | None,
    trimmed: int | None,
    with_page: bool,
) -> None:
    items = [Item(message=message, seq=at, tokens=10) for at, message in enumerate(messages)]
    boundary = None
    if trimmed is not None and trimmed < len(items) and cap.max_tokens:
        boundary = Boundary(
            message_id=items[trimmed].id, seq=trimmed, max_tokens=cap.max_tokens, remove_tokens=cap.remove_tokens
        )
    window = choose(
        items,
        turn=turn_start(messages),
        limits=cap,
        weigh=lambda item: item.tokens or 0,
        shape=Shape(covered_upto=covered, boundary=boundary),
    )
    layers = arrange(
        instructions=SystemMessage("INSTRUCTIONS"),
        call_system="",
        contribution=Contribution(working_memory=Layer(name="page", text="PAGE") if with_page else None),
        history=window.items[: window.turn],
        context=[HumanMessage("CONTEXT")],
        turn=window.items[window.turn :],
    )
    for processor in processors:
        layers = processor(layers)
    prompt = assemble(layers, layout)
    assert prompt.system is not None
    check_prompt([prompt.system, *prompt.messages])
    assert any("the question" in message.text for message in prompt.messages)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(conversations(asked=False), limits(), LAYOUTS)
def test_a_real_archive(messages: list[BaseMessage], cap: Limits, layout: Layout) -> None:
    options: dict[str, Any] = {"last_messages": cap.last_messages, "max_tokens": cap.max_tokens}
    with Memory("memory://", message_history=MessageHistory(**options), layout=layout) as memory:
        memory.save_messages(messages, thread_id="t", resource_id="r")
        preview = memory.preview([("user", "the question")], thread_id="t", resource_id="r", system="INSTRUCTIONS")
        check_prompt(preview.messages)
        assert preview.messages[-1].text == "the question"
        if cap.max_tokens:
            kept = preview.layer("history")
            assert preview.tokens <= cap.max_tokens + 1 or kept is None
