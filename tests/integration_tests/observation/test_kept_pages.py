"""The page that the observer keeps: an update is applied once, and never over what somebody else has written."""

from __future__ import annotations

from typing import Any

import pytest

from langchain_mastra_memory.errors import StoreUnavailableError
from langchain_mastra_memory.store.operations.log import CommitLog
from langchain_mastra_memory.store.operations.pages import ListPages, PageOwner
from langchain_mastra_memory.testing import ScriptedChatModel
from langchain_mastra_memory.working_memory.options import WorkingMemory

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}, "pets": {"type": "array"}}}
MODES = {
    "template": (WorkingMemory(template="# User"), "# User\n- Oslo", "# User\n- Oslo\n- a cat"),
    "schema": (WorkingMemory(schema=SCHEMA), {"city": "Oslo"}, {"pets": ["cat"]}),
    "thread": (WorkingMemory(scope="thread", template="# User"), "# User\n- Oslo", "# User\n- Oslo\n- a cat"),
}
modes = pytest.mark.parametrize("mode", MODES)


class Observer:
    """Notes something, and gives a page when it is asked for one."""

    def __init__(self, *pages: Any) -> None:
        self.pages = list(pages)
        self.shown: list[str] = []
        self.meanwhile: Any = None

    def __call__(self, messages: Any) -> Any:
        if "Values to extract" not in messages[-1].text:
            return "<observations>\n* noted\n</observations>"
        self.shown.append(messages[-1].text)
        if self.meanwhile is not None:
            self.meanwhile()
        return {"working-memory": self.pages.pop(0)}


def ids_of(mode: str) -> dict[str, str]:
    return {"thread_id": "t"} if mode == "thread" else {"resource_id": "r"}


def versions(memory: Any, mode: str) -> list[Any]:
    owner = PageOwner(scope="thread" if mode == "thread" else "resource", **ids_of(mode))
    return list(memory.store.run(ListPages(owner=owner)))


@modes
def test_a_cycle_that_is_made_again_writes_its_page_once(talk: Any, mode: str, monkeypatch: Any) -> None:
    options, first, _ = MODES[mode]
    observer = Observer(first)
    chat = talk(ScriptedChatModel(observer), manage_working_memory=True, working_memory=options)
    chat.say()
    store, run = chat.memory.store, chat.memory.store.run

    def dies(operation: Any) -> Any:
        if isinstance(operation, CommitLog):
            raise StoreUnavailableError("the process was killed")
        return run(operation)

    monkeypatch.setattr(store, "run", dies)
    with pytest.raises(StoreUnavailableError):
        chat.memory.observe(thread_id="t")
    monkeypatch.setattr(store, "run", run)
    assert chat.memory.get_working_memory(**ids_of(mode)) == first
    chat.memory.observe(thread_id="t")
    assert chat.memory.get_observations(thread_id="t").text
    assert chat.memory.get_working_memory(**ids_of(mode)) == first
    assert [page.writer for page in versions(chat.memory, mode)] == ["observer"]
    assert len(observer.shown) == 1


@modes
def test_new_messages_are_kept_on_the_page_that_is_there(talk: Any, mode: str) -> None:
    options, first, second = MODES[mode]
    chat = talk(ScriptedChatModel(Observer(first, second)), manage_working_memory=True, working_memory=options)
    for _ in range(2):
        chat.say()
        chat.memory.observe(thread_id="t")
    wanted = {**first, **second} if isinstance(first, dict) else second
    assert chat.memory.get_working_memory(**ids_of(mode)) == wanted
    assert len(versions(chat.memory, mode)) == 2


@modes
def test_what_was_written_while_the_observer_thought_is_not_lost(talk: Any, mode: str) -> None:
    options, first, second = MODES[mode]
    observer = Observer(first, second)
    chat = talk(ScriptedChatModel(observer), manage_working_memory=True, working_memory=options)
    chat.say()
    mine: Any = {"city": "Bergen"} if mode == "schema" else "# User\n- written by hand"

    def write() -> None:
        observer.meanwhile = None
        chat.memory.update_working_memory(mine, **ids_of(mode))

    observer.meanwhile = write
    chat.memory.observe(thread_id="t")
    page = chat.memory.get_working_memory(**ids_of(mode))
    if mode == "schema":  # fields merge
        assert page == {"city": "Oslo"}
        assert len(observer.shown) == 1
    else:  # asked again, with the page that is there now
        assert page == second
        assert "written by hand" in str(chat.observer.calls[-1].tools)


def test_a_page_that_never_stands_still_is_left_alone_and_said_so(talk: Any) -> None:
    observer = Observer("# A", "# B", "# C", "# D")
    options = WorkingMemory(template="# User")
    chat = talk(ScriptedChatModel(observer), manage_working_memory=True, working_memory=options)
    chat.say()
    count = iter(range(100))
    observer.meanwhile = lambda: chat.memory.update_working_memory(f"by hand {next(count)}", resource_id="r")
    result = chat.memory.observe(thread_id="t")
    assert chat.memory.get_working_memory(resource_id="r") == "by hand 2"
    assert len(observer.shown) == 3
    assert result.observations.text
