"""What each wrapper adds, beyond passing the conformance suite."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.messages.tool import tool_call

from langchain_mastra_memory.errors import (
    ConfigurationError,
    InvalidQueryError,
    ProcessorError,
    StoreCorruptError,
    StoreReadOnlyError,
    ThreadNotFoundError,
)
from langchain_mastra_memory.store.operations.index import CountTexts
from langchain_mastra_memory.store.operations.messages import ListMessages, NewMessage, SaveMessages
from langchain_mastra_memory.store.operations.pages import GetPage, PageOwner, SavePage
from langchain_mastra_memory.store.operations.resources import DeleteResource, ExportResource, ImportResource
from langchain_mastra_memory.store.operations.threads import (
    CopyThread,
    CreateThread,
    DeleteThread,
    GetThread,
    ListThreads,
    UpdateThread,
)
from langchain_mastra_memory.store.sql.engine import SQLMemoryStore
from langchain_mastra_memory.store.wrappers import EncryptedStore, ReadOnlyStore, RedactingStore, Trace, TracedStore

KEY = b"k" * 64
OTHER = b"o" * 32
PAGE = PageOwner(scope="resource", resource_id="ada")
MESSAGES = (
    HumanMessage("SECRET question", id="q", name="SECRETname"),
    AIMessage(
        [{"type": "text", "text": "SECRET answer"}],
        id="a",
        tool_calls=[tool_call(name="look", args={"q": "SECRET argument"}, id="call-1")],
        additional_kwargs={"note": "SECRET note"},
    ),
    ToolMessage("SECRET result", id="r", tool_call_id="call-1", artifact={"x": "SECRET artifact"}),
)


def fill(store: EncryptedStore | SQLMemoryStore) -> None:
    store.run(
        CreateThread(thread_id="t", resource_id="ada", title="SECRET title", metadata={"k": "SECRET value", "n": 1})
    )
    saved = tuple(NewMessage(message=m, tokens=3, metadata={"m": "SECRET metadata"}) for m in MESSAGES)
    store.run(SaveMessages(thread_id="t", messages=saved, features=frozenset({"recall"})))
    store.run(SavePage(owner=PAGE, text="SECRET page"))


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    return tmp_path / "m.db"


def test_nothing_that_a_user_wrote_is_readable_in_the_file(path: Path) -> None:
    with EncryptedStore(SQLMemoryStore(f"sqlite:///{path}"), KEY) as store:
        fill(store)
        store.run(CopyThread(source_thread_id="t", new_thread_id="copy"))
        store.run(UpdateThread(thread_id="t", metadata={"deep": {"list": ["SECRET deep"]}}))
        written = b"".join(file.read_bytes() for file in path.parent.iterdir())
    assert b"call-1" in written
    assert b"SECRET" not in written + path.read_bytes()


def test_checkpoints_of_an_encrypted_store_are_ciphertext_and_their_messages_are_stored_once(path: Path) -> None:
    from langgraph.graph import END, START, MessagesState, StateGraph

    from langchain_mastra_memory.store.wrappers.walking import CODEC
    from langchain_mastra_memory.threads import bodies
    from langchain_mastra_memory.threads.saver import ThreadSaver

    class State(MessagesState):
        note: str

    assert CODEC == bodies.CODEC
    graph = StateGraph(State)
    graph.add_node("answer", lambda state: {"messages": [AIMessage("SECRET answer")], "note": "SECRET note " * 400})
    graph.add_edge(START, "answer")
    graph.add_edge("answer", END)
    config = {"configurable": {"thread_id": "t", "resource_id": "ada"}}
    with EncryptedStore(SQLMemoryStore(f"sqlite:///{path}"), KEY) as store:
        chat = graph.compile(checkpointer=ThreadSaver(store))
        for number in range(20):
            chat.invoke({"messages": [HumanMessage(f"SECRET {number}")]}, config)
        state = graph.compile(checkpointer=ThreadSaver(store)).get_state(config)
        assert len(state.values["messages"]) == 40
        assert state.values["note"] == "SECRET note " * 400
        assert store.run(ListMessages(thread_ids=("t",), per_page=False)).total == 40
    assert b"SECRET" not in path.read_bytes()
    database = sqlite3.connect(path)
    assert database.execute("SELECT count(*) FROM mastra_bodies").fetchone()[0] <= 60
    database.close()


def test_the_same_without_encryption_is_readable(path: Path) -> None:
    """Otherwise the test above would prove nothing."""
    with SQLMemoryStore(f"sqlite:///{path}") as store:
        fill(store)
    assert path.read_bytes().count(b"SECRET") > 8


def test_a_copy_is_titled_after_its_source_and_has_its_own_message_ids() -> None:
    with EncryptedStore(SQLMemoryStore("memory://"), KEY) as store:
        fill(store)
        copy = store.run(CopyThread(source_thread_id="t", new_thread_id="copy", with_messages=True))
        assert copy.thread.title == "Clone of SECRET title"
        assert [m.message.model_copy(update={"id": None}) for m in copy.messages] == [
            m.model_copy(update={"id": None}) for m in MESSAGES
        ]
        assert [m.message.id for m in copy.messages] == [m.id for m in copy.messages] != ["q", "a", "r"]


def test_filters_by_equality_work_on_ciphertext() -> None:
    with EncryptedStore(SQLMemoryStore("memory://"), KEY) as store:
        fill(store)
        assert store.run(ListThreads(resource_id="ada", metadata={"k": "SECRET value"})).total == 1
        assert store.run(ListThreads(resource_id="ada", metadata={"n": 1.0})).total == 1
        assert store.run(ListThreads(resource_id="ada", metadata={"n": True})).total == 0


def test_another_key_is_an_error_and_an_old_key_is_tried(path: Path) -> None:
    url = f"sqlite:///{path}"
    with EncryptedStore(SQLMemoryStore(url), KEY) as store:
        fill(store)
    with EncryptedStore(SQLMemoryStore(url), OTHER) as store:
        for operation in (GetThread(thread_id="t"), ListMessages(thread_ids=("t",)), GetPage(owner=PAGE)):
            with pytest.raises(StoreCorruptError, match="another key"):
                store.run(operation)
    with EncryptedStore(SQLMemoryStore(url), OTHER, old_keys=[KEY]) as store:
        assert [m.message for m in store.run(ListMessages(thread_ids=("t",)))] == list(MESSAGES)
        store.run(UpdateThread(thread_id="t", set_title=True, title="new"))
        assert store.run(GetPage(owner=PAGE)).text == "SECRET page"
    with EncryptedStore(SQLMemoryStore(url), KEY) as store, pytest.raises(StoreCorruptError):
        store.run(GetThread(thread_id="t"))


def test_what_was_written_before_encryption_was_turned_on_is_read(path: Path) -> None:
    url = f"sqlite:///{path}"
    with SQLMemoryStore(url) as store:
        fill(store)
    with EncryptedStore(SQLMemoryStore(url), KEY) as store:
        thread = store.run(GetThread(thread_id="t"))
        assert thread is not None
        assert (thread.title, thread.metadata) == ("SECRET title", {"k": "SECRET value", "n": 1})
        assert [m.message for m in store.run(ListMessages(thread_ids=("t",)))] == list(MESSAGES)
        assert store.run(GetPage(owner=PAGE)).text == "SECRET page"


def test_an_export_of_ciphertext_is_imported_with_the_same_key() -> None:
    with EncryptedStore(SQLMemoryStore("memory://"), KEY) as store:
        fill(store)
        exported = store.run(ExportResource(resource_id="ada"))
        assert "SECRET" not in repr(exported)
        store.run(DeleteResource(resource_id="ada"))
        store.run(ImportResource(data=exported, resource_id="ada"))
        assert [m.message for m in store.run(ListMessages(thread_ids=("t",)))] == list(MESSAGES)
        assert store.run(GetPage(owner=PAGE)).text == "SECRET page"


def test_searching_ciphertext_is_refused_and_nothing_is_indexed(path: Path) -> None:
    with EncryptedStore(SQLMemoryStore(f"sqlite:///{path}"), KEY) as store:
        assert "index" not in store.capabilities
        fill(store)
        with pytest.raises(ConfigurationError, match="semantic_recall"):
            store.run(CountTexts())
    database = sqlite3.connect(path)
    assert database.execute("SELECT count(*) FROM mastra_texts").fetchone() == (0,)
    database.close()


@pytest.mark.parametrize("key", [b"", b"short", "k" * 64, b"k" * 65])
def test_a_key_of_another_size_is_refused(key) -> None:
    with pytest.raises(ConfigurationError, match="32, 48 or 64"):
        EncryptedStore(SQLMemoryStore("memory://"), key)


def test_metadata_that_is_no_json_is_refused() -> None:
    with EncryptedStore(SQLMemoryStore("memory://"), KEY) as store, pytest.raises(InvalidQueryError):
        store.run(CreateThread(thread_id="t", resource_id="r", metadata={"x": {1}}))


async def test_a_memory_works_on_an_encrypted_store() -> None:
    from langchain_mastra_memory.memory import Memory

    with Memory(EncryptedStore(SQLMemoryStore("memory://"), KEY)) as memory:
        memory.save_messages([HumanMessage("hello", id="m")], thread_id="t", resource_id="ada")
        assert [m.message.text for m in await memory.arecall(thread_id="t")] == ["hello"]
        await memory.aupdate_thread("t", title="Lisbon", metadata={"a": 1})
        assert memory.list_threads("ada", metadata={"a": 1})[0].title == "Lisbon"


def test_nothing_that_is_redacted_reaches_the_file_and_the_rest_stays(path: Path) -> None:
    with RedactingStore(SQLMemoryStore(f"sqlite:///{path}"), lambda text: text.replace("SECRET", "[gone]")) as store:
        fill(store)
        store.run(UpdateThread(thread_id="t", metadata={"deep": {"list": ["SECRET deep"]}}))
        saved = [m.message for m in store.run(ListMessages(thread_ids=("t",)))]
        assert saved[1].tool_calls[0]["args"] == {"q": "[gone] argument"}
        assert [m.content for m in saved] == [
            "[gone] question",
            [{"type": "text", "text": "[gone] answer"}],
            "[gone] result",
        ]
        thread = store.run(GetThread(thread_id="t"))
        assert thread is not None
        assert thread.metadata == {"k": "[gone] value", "n": 1, "deep": {"list": ["[gone] deep"]}}
    # names and additional_kwargs are not texts
    assert path.read_bytes().replace(b"SECRETname", b"").replace(b"SECRET note", b"").count(b"SECRET") == 0


def test_a_graph_goes_on_with_redacted_messages_and_its_archive_agrees(path: Path) -> None:
    from langgraph.graph import END, START, MessagesState, StateGraph

    from langchain_mastra_memory.threads.saver import ThreadSaver

    graph = StateGraph(MessagesState)
    graph.add_node("answer", lambda state: {"messages": [AIMessage("SECRET answer")]})
    graph.add_edge(START, "answer")
    graph.add_edge("answer", END)
    config = {"configurable": {"thread_id": "t", "resource_id": "ada"}}
    with RedactingStore(SQLMemoryStore(f"sqlite:///{path}"), lambda text: text.replace("SECRET", "[gone]")) as store:
        for number in range(3):
            graph.compile(checkpointer=ThreadSaver(store)).invoke(
                {"messages": [HumanMessage(f"SECRET {number}")]}, config
            )
        state = graph.compile(checkpointer=ThreadSaver(store)).get_state(config).values["messages"]
        archive = [m.message for m in store.run(ListMessages(thread_ids=("t",), per_page=False))]
    assert [m.text for m in state] == [t for n in range(3) for t in (f"[gone] {n}", "[gone] answer")]
    assert archive == state


def test_a_read_only_store_says_which_operation_it_refused() -> None:
    with ReadOnlyStore(SQLMemoryStore("memory://")) as store:
        with pytest.raises(StoreReadOnlyError, match="DeleteThread"):
            store.run(DeleteThread(thread_id="t"))
        assert store.run(GetThread(thread_id="t")) is None


def test_a_traced_store_logs_one_line_per_operation_without_the_users_data(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "langchain_mastra_memory")
    with TracedStore(SQLMemoryStore("memory://")) as store:
        store.run(CreateThread(thread_id="SECRET", resource_id="SECRET", title="SECRET"))
        with pytest.raises(ThreadNotFoundError):
            store.run(UpdateThread(thread_id="SECRET2", title="SECRET"))
    traced = [record for record in caplog.records if record.name.endswith("wrappers.traced")]
    assert [record.levelname for record in traced] == ["DEBUG", "WARNING"]
    assert [record.getMessage().split(" ")[0] for record in traced] == ["threads.CreateThread", "threads.UpdateThread"]
    assert "SECRET" not in " ".join(record.getMessage() for record in traced)


async def test_a_trace_has_the_operation_its_error_and_a_time() -> None:
    traces: list[Trace] = []
    async with TracedStore(SQLMemoryStore("memory://"), traces.append) as store:
        await store.arun(GetThread(thread_id="t"))
        with pytest.raises(ThreadNotFoundError):
            await store.arun(UpdateThread(thread_id="t", metadata={"a": 1}))
    assert [type(trace.operation) for trace in traces] == [GetThread, UpdateThread]
    assert traces[0].error is None
    assert isinstance(traces[1].error, ThreadNotFoundError)
    assert all(trace.seconds >= 0 for trace in traces)


@pytest.mark.parametrize("broken", [lambda text: 1 / 0, lambda text: None, lambda text: text.encode()])
def test_a_redact_function_that_fails_stops_the_write_with_an_error_that_names_it(broken: object) -> None:
    with SQLMemoryStore("memory://") as inner:
        store = RedactingStore(inner, broken)  # type: ignore[arg-type]
        message = NewMessage(message=HumanMessage("PIN 1234", id="m"), tokens=1)
        with pytest.raises(ProcessorError, match="redact function") as raised:
            store.run(SaveMessages(thread_id="t", resource_id="ada", messages=(message,)))
        assert "1234" not in str(raised.value)
        assert inner.run(GetThread(thread_id="t")) is None
