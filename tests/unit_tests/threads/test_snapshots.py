"""Molds make equal messages that share nothing; snapshots see every change."""

from langchain_core.messages import AIMessage, HumanMessage

from langchain_mastra_memory.threads.snapshots import Mold, all_hold, copy_plain, snapshot


def call():
    return {"name": "f", "args": {"deep": [{"x": 1}]}, "id": "c", "type": "tool_call"}


def test_two_messages_of_a_mold_are_equal_and_share_nothing():
    mold = Mold(AIMessage([{"type": "text", "text": "hi"}], id="a", tool_calls=[call()]))
    first, second = mold.make(), mold.make()
    assert first == second
    assert first.model_fields_set == second.model_fields_set
    first.tool_calls[0]["args"]["deep"][0]["x"] = 2
    first.additional_kwargs["k"] = "v"
    first.content[0]["text"] = "changed"
    assert second == mold.make() == AIMessage([{"type": "text", "text": "hi"}], id="a", tool_calls=[call()])


def test_a_mold_shares_nothing_with_the_message_that_it_was_made_of():
    message = AIMessage("hi", id="a", tool_calls=[call()])
    mold = Mold(message)
    message.tool_calls[0]["args"]["deep"].append(1)
    assert mold.make() == AIMessage("hi", id="a", tool_calls=[call()])


def test_a_message_of_a_mold_is_a_message_like_any_other():
    made = Mold(HumanMessage("hi", id="h")).make()
    assert made.model_copy(update={"content": "ho"}).content == "ho"
    assert made.model_dump() == HumanMessage("hi", id="h").model_dump()
    made.metadata = {"free": "field"}  # messages take fields of anybody
    assert made.model_dump()["metadata"] == {"free": "field"}


def test_a_message_with_more_than_its_fields_has_no_mold():
    assert Mold.of(HumanMessage("hi", id="h", extra_field=1)) is None


def test_a_change_inside_one_of_many_messages_is_seen():
    messages = [Mold(AIMessage(str(n), id=str(n), tool_calls=[call()])).make() for n in range(5)]
    taken = [snapshot(m) for m in messages]
    assert all_hold(taken, messages)
    messages[3].tool_calls[0]["args"]["deep"][0]["x"] = 2
    assert not all_hold(taken, messages)


def test_a_new_field_of_one_of_many_messages_is_seen():
    messages = [HumanMessage(str(n), id=str(n)) for n in range(3)]
    taken = [snapshot(m) for m in messages]
    messages[1].free = 1
    assert not all_hold(taken, messages)


def test_a_plain_copy_copies_what_is_not_plain_too():
    value = {"a": [1, {"b": {2}}], "t": ([3],)}
    copied = copy_plain(value)
    assert copied == value
    copied["a"][1]["b"].add(4)
    copied["t"][0].append(5)
    assert value == {"a": [1, {"b": {2}}], "t": ([3],)}
