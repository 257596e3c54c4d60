from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langchain_tests.unit_tests import ChatModelUnitTests
from pydantic import BaseModel

from langchain_mastra_memory.testing import ScriptedChatModel, ScriptExhaustedError, tool_call


class City(BaseModel):
    """A city."""

    name: str
    people: int


@tool
def weather(city: str) -> str:
    """Return the weather in a city."""
    return f"sunny in {city}"


REPLIES = [
    pytest.param("two  words\n", id="text"),
    pytest.param("", id="empty"),
    pytest.param("   ", id="spaces"),
    pytest.param("\n lead and tail ", id="outer spaces"),
    pytest.param(tool_call("weather", {"city": "Rome"}, text="Let me see"), id="text and a call"),
    pytest.param(
        AIMessage(
            content="",
            tool_calls=[
                {"name": "weather", "args": {"city": "Rome"}, "id": "a"},
                {"name": "weather", "args": {}, "id": "b"},
            ],
        ),
        id="two calls",
    ),
    pytest.param(
        AIMessage(content=[{"type": "text", "text": "a block"}, {"type": "reasoning", "reasoning": "why"}]), id="blocks"
    ),
    pytest.param(AIMessage(content="with extras", additional_kwargs={"seen": True}), id="extras"),
]


def plain(message: AIMessage) -> dict[str, Any]:
    # LangChain drops the name when it puts chunks together, whatever the model.
    kept = {"content", "tool_calls", "additional_kwargs", "usage_metadata", "response_metadata"}
    return {name: value for name, value in message.model_dump().items() if name in kept}


class TestStandard(ChatModelUnitTests):
    @property
    def chat_model_class(self):
        return ScriptedChatModel

    @property
    def chat_model_params(self):
        return {"replies": ["Hello"]}


def test_replies_come_in_the_order_of_the_list():
    model = ScriptedChatModel(["one", AIMessage("two"), "three"])
    assert [model.invoke("next").text for _ in range(3)] == ["one", "two", "three"]


def test_a_script_that_ends_says_what_it_was_asked():
    model = ScriptedChatModel(["only one"])
    model.invoke("first")
    with pytest.raises(ScriptExhaustedError, match=r"1 replies.*'the second question'"):
        model.invoke("the second question")
    assert len(model.calls) == 2


def test_the_last_reply_repeats_when_asked_to():
    model = ScriptedChatModel(["one", "ever"], repeat_last=True)
    assert [model.invoke("next").text for _ in range(4)] == ["one", "ever", "ever", "ever"]


def test_an_empty_script_has_no_last_reply_to_repeat():
    with pytest.raises(ScriptExhaustedError):
        ScriptedChatModel([], repeat_last=True).invoke("next")


def test_a_function_sees_the_messages_and_may_keep_them_without_harm():
    def last_word(messages):
        messages[0].content = "changed by the script"
        return messages[-1].text.split()[-1]

    model = ScriptedChatModel(last_word)
    sent = [SystemMessage("Be brief"), HumanMessage("say cheese")]
    assert model.invoke(sent).text == "cheese"
    assert model.last_call.system == "Be brief"
    assert sent[0].text == "Be brief"


def test_an_error_in_the_script_is_raised_by_the_call_and_the_script_goes_on():
    model = ScriptedChatModel([TimeoutError("the provider is slow"), "back"])
    with pytest.raises(TimeoutError, match="slow"):
        model.invoke("hi")
    assert model.invoke("hi").text == "back"


@pytest.mark.parametrize("reply", REPLIES)
async def test_streaming_gives_the_same_message_as_invoking(reply):
    whole = ScriptedChatModel([reply]).invoke("q")
    streamed = list(ScriptedChatModel([reply]).stream("q"))
    merged = streamed[0]
    for chunk in streamed[1:]:
        merged += chunk
    async_chunks = [chunk async for chunk in ScriptedChatModel([reply]).astream("q")]
    async_merged = async_chunks[0]
    for chunk in async_chunks[1:]:
        async_merged += chunk
    assert plain(merged) == plain(whole) == plain(async_merged)
    assert plain(await ScriptedChatModel([reply]).ainvoke("q")) == plain(whole)


def test_text_is_streamed_word_by_word():
    assert [chunk.content for chunk in ScriptedChatModel(["so it goes"]).stream("q")] == ["so", " it", " goes", ""]


def test_what_was_sent_is_recorded_with_tools_and_run_tags():
    model = ScriptedChatModel(["ok"])
    bound = model.bind_tools([weather], tool_choice="weather", temperature=0)
    bound.invoke(
        [SystemMessage("a"), SystemMessage("b"), HumanMessage("c")], {"tags": ["x"], "metadata": {"k": 1}}, stop=["!"]
    )
    call = model.last_call
    assert call.system == "a\nb"
    assert [message.text for message in call.conversation] == ["c"]
    assert call.tool_names == ("weather",)
    assert call.tool_choice == "weather"
    assert call.stop == ("!",)
    assert call.tags == ("x",)
    assert call.metadata["k"] == 1
    assert call.options == {"temperature": 0}


def test_the_record_does_not_change_with_the_messages_that_were_sent():
    model = ScriptedChatModel(["ok"])
    message = HumanMessage("as it was")
    model.invoke([message])
    message.content = "as it is now"
    assert model.last_call.messages[0].text == "as it was"


def test_a_reply_object_used_twice_is_two_messages():
    reply = AIMessage("same")
    model = ScriptedChatModel(lambda _: reply)
    first, second = model.invoke("a"), model.invoke("b")
    assert first.id != second.id
    assert reply.id is None
    assert reply.usage_metadata is None


@pytest.mark.parametrize("reply", [City(name="Rome", people=3), {"name": "Rome", "people": 3}])
async def test_structured_output_is_made_of_the_scripted_data(reply):
    model = ScriptedChatModel([reply, reply])
    structured = model.with_structured_output(City)
    assert structured.invoke("which?") == City(name="Rome", people=3)
    assert await structured.ainvoke("which?") == City(name="Rome", people=3)
    assert model.last_call.tool_choice == "any"


def test_structured_data_without_a_forced_tool_is_json_text():
    model = ScriptedChatModel([{"name": "Zürich"}])
    assert model.bind_tools([weather]).invoke("q").text == '{"name": "Zürich"}'


@pytest.mark.parametrize(
    ("choice", "name"),
    [
        ({"type": "function", "function": {"name": "weather"}}, "weather"),
        ({"type": "tool", "name": "weather"}, "weather"),
        ({"type": "any"}, "any"),
        ("required", "any"),
        (True, "any"),
        ("auto", None),
        (None, None),
    ],
)
def test_every_provider_s_way_to_force_a_tool_is_understood(choice, name):
    model = ScriptedChatModel(["ok"])
    model.bind_tools([weather], tool_choice=choice).invoke("q")
    assert model.last_call.tool_choice == name


def test_usage_is_counted_and_a_reply_s_own_usage_is_kept():
    own = {"input_tokens": 7, "output_tokens": 8, "total_tokens": 15}
    model = ScriptedChatModel(["12345678", AIMessage("x", usage_metadata=own)])
    assert model.invoke("1234").usage_metadata == {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}
    assert model.invoke("1234").usage_metadata == own


def test_provider_and_model_name_are_in_the_response():
    message = ScriptedChatModel(["x"], provider="acme", model_name="acme-1").invoke("q")
    assert message.response_metadata["model_provider"] == "acme"
    assert message.response_metadata["model_name"] == "acme-1"


async def test_an_async_script_is_awaited():
    gate = asyncio.Event()

    async def script(messages):
        await gate.wait()
        return messages[-1].text

    call = asyncio.create_task(ScriptedChatModel(script).ainvoke("later"))
    await asyncio.sleep(0)
    assert not call.done()
    gate.set()
    assert (await call).text == "later"


def test_an_async_script_cannot_be_called_synchronously():
    async def script(messages):
        return "never"

    with pytest.raises(TypeError, match="ainvoke"):
        ScriptedChatModel(script).invoke("q")


def test_threads_get_each_reply_once():
    replies = [str(number) for number in range(64)]
    model = ScriptedChatModel(replies)
    start = threading.Barrier(8)

    def work(_):
        start.wait()
        return [model.invoke("q").text for _ in range(8)]

    with ThreadPoolExecutor(8) as pool:
        said = [text for texts in pool.map(work, range(8)) for text in texts]
    assert sorted(said, key=int) == replies
    assert len(model.calls) == 64


def test_copies_and_bindings_share_script_and_record():
    model = ScriptedChatModel(["one", "two", "three"])
    assert model.model_copy().invoke("a").text == "one"
    assert model.with_config(RunnableConfig(tags=["t"])).invoke("b").text == "two"
    assert model.bind_tools([]).invoke("c").text == "three"
    assert len(model.calls) == 3


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_it_drives_an_agent_with_tools(asynchronous):
    model = ScriptedChatModel([tool_call("weather", {"city": "Rome"}), "It is sunny in Rome."])
    agent = create_agent(model, [weather], system_prompt="You know the weather.")
    question = {"messages": [HumanMessage("Weather in Rome?")]}
    result = await agent.ainvoke(question) if asynchronous else agent.invoke(question)
    assert result["messages"][-1].text == "It is sunny in Rome."
    assert isinstance(model.last_call.messages[-1], ToolMessage)
    assert model.last_call.messages[-1].text == "sunny in Rome"
    assert model.last_call.system == "You know the weather."
