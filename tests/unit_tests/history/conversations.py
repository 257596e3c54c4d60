"""Conversations in every state of disorder, for property tests."""

from __future__ import annotations

from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

CALLS = [f"c{number}" for number in range(5)]
TEXTS = st.sampled_from(["", " ", "hello", "more words than one", "日本語"])
BLOCKS = st.lists(
    st.sampled_from(
        [
            {"type": "text", "text": ""},
            {"type": "text", "text": "said"},
            {"type": "reasoning", "reasoning": "thought"},
            {"type": "image", "url": "https://example.org/cat.png"},
        ]
    ),
    max_size=3,
)


def _call(call_id: str) -> dict[str, object]:
    return {"name": "look", "args": {"q": call_id}, "id": call_id, "type": "tool_call"}


@st.composite
def ai_messages(draw: st.DrawFn) -> AIMessage:
    """Return an AI message: text or blocks, with or without calls, some of them broken."""
    ids = draw(st.lists(st.sampled_from(CALLS), max_size=3))
    content: object = draw(st.one_of(TEXTS, BLOCKS))
    if isinstance(content, list) and draw(st.booleans()):
        content = [*content, *({"type": "tool_use", "id": call, "name": "look", "input": {}} for call in ids)]
    broken = draw(st.booleans())
    invalid = [{"name": "look", "args": "{", "id": "bad", "error": "no JSON", "type": "invalid_tool_call"}]
    return AIMessage(
        content,
        tool_calls=[_call(call) for call in ids],
        invalid_tool_calls=invalid if broken and draw(st.booleans()) else [],
    )


MESSAGES = st.one_of(
    ai_messages(),
    TEXTS.map(HumanMessage),
    BLOCKS.map(lambda blocks: HumanMessage([block for block in blocks if block["type"] != "reasoning"])),
    st.builds(lambda call, text: ToolMessage(text, tool_call_id=call, name="look"), st.sampled_from(CALLS), TEXTS),
    TEXTS.map(SystemMessage),
)


@st.composite
def conversations(draw: st.DrawFn, *, asked: bool = True) -> list[BaseMessage]:
    """Return a conversation; with `asked` a human message is in it and only results follow the last one's answers."""
    found = draw(st.lists(MESSAGES, max_size=14))
    if asked:
        found.append(HumanMessage("the question"))
        for call in draw(st.lists(st.sampled_from(CALLS), max_size=2, unique=True)):
            found.append(AIMessage("", tool_calls=[_call(call)]))
            found.append(ToolMessage("found", tool_call_id=call))
    ids = draw(st.booleans())
    return [message.model_copy(update={"id": f"m{at}" if ids else None}) for at, message in enumerate(found)]
