"""Every method of `Memory` that names a thread or a resource: bad ids and wrong owners are refused, nothing changes."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableLambda

import langchain_mastra_memory
from langchain_mastra_memory import (
    HNSW,
    Extractor,
    MemoryMiddleware,
    ModelByInputTokens,
    Observation,
    ObservationalMemory,
    ObservationNode,
    Reflection,
    SemanticRecall,
    SemanticRecallRetriever,
    Speaker,
    SQLMemoryStore,
    ThreadTitles,
    as_user_turn,
    redact_tool_results,
    summarize_conversation,
)
from langchain_mastra_memory.agents.subagent import SubAgent
from langchain_mastra_memory.errors import (
    ConfigurationError,
    InvalidIdError,
    InvalidQueryError,
    MastraMemoryError,
    MissingResourceError,
    ThreadNotFoundError,
    ThreadOwnershipError,
)
from langchain_mastra_memory.memory import Memory
from langchain_mastra_memory.testing.models import ScriptedChatModel

IDS = (
    "thread_id",
    "thread",
    "source_thread_id",
    "new_thread_id",
    "resource_id",
    "new_resource_id",
    "source_resource_id",
)
BAD = ("", "x" * 513, "a\0b", 3.5)
MESSAGE = HumanMessage("stolen", id="m1")

# What each method is called with, besides ids.
CALLS: dict[str, dict[str, Any]] = {
    "clear_thread": {"thread_id": "t"},
    "clone_thread": {"source_thread_id": "t", "new_thread_id": "new"},
    "copy_thread": {"source_thread_id": "t", "new_thread_id": "new"},
    "create_thread": {"thread_id": "t", "resource_id": "eve"},
    "delete_messages": {"message_ids": ["m1"], "thread_id": "t"},
    "delete_resource": {"resource_id": "eve"},
    "delete_thread": {"thread_id": "t"},
    "export_resource": {"resource_id": "eve"},
    "get_clone_history": {"thread_id": "t"},
    "get_clone_metadata": {"thread": "t"},
    "get_observations": {"thread_id": "t"},
    "get_source_thread": {"thread_id": "t"},
    "get_thread": {"thread_id": "t"},
    "get_working_memory": {"thread_id": "t", "resource_id": "ada"},
    "is_clone": {"thread": "t"},
    "list_branches": {"thread_id": "t"},
    "list_clones": {"source_thread_id": "t"},
    "list_threads": {"resource_id": "eve"},
    "observe": {"thread_id": "t"},
    "preview": {"thread_id": "t"},
    "prune": {"thread_id": "t"},
    "recall": {"thread_id": "t"},
    "reflect": {"thread_id": "t"},
    "reobserve": {"thread_id": "t"},
    "save_messages": {"messages": [MESSAGE], "thread_id": "t"},
    "summarize_thread": {"thread_id": "t"},
    "transfer_thread": {"thread_id": "t", "new_resource_id": "eve"},
    "update_messages": {"messages": [{"id": "m1", "content": "stolen"}], "thread_id": "t"},
    "update_thread": {"thread_id": "t", "metadata": {"stolen": 1}},
    "update_working_memory": {"value": "stolen", "thread_id": "t", "resource_id": "ada"},
    "usage": {"thread_id": "t"},
}
# Methods that name no thread of somebody else's in the call itself.
ELSEWHERE = {
    "import_resource": "the data names the threads; an id that is taken is refused",
    "retriever": "reads its ids when it is invoked",
    "get_working_memory_as": "get_working_memory with a type",
    "load_node": "reads its ids when it runs",
    "save_node": "reads its ids when it runs",
    "middleware": "reads its ids when it runs",
    "subagent": "reads its ids when it runs",
}


def methods() -> set[str]:
    """Return the sync methods that take an id."""
    found = set()
    for name in dir(Memory):
        if name.startswith("_") or name == "recall_engine":
            continue
        member = getattr(Memory(), name)
        if callable(member) and set(inspect.signature(member).parameters) & set(IDS):
            found.add(name)
    return {name for name in found if not (name.startswith("a") and name[1:] in found)}


@pytest.fixture
def memory() -> Iterator[Memory]:
    model = ScriptedChatModel(lambda _messages: "* seen")
    with Memory(
        model=model,
        working_memory=True,
        semantic_recall=True,
        embeddings=DeterministicFakeEmbedding(size=8),
        observational_memory=True,
    ) as memory:
        memory.create_thread("ada", thread_id="t", title="Ada's", metadata={"k": 1})
        memory.save_messages([HumanMessage("hello", id="m1"), AIMessage("hi", id="m2")], thread_id="t")
        memory.update_working_memory("Ada's page", resource_id="ada")
        memory.settled()
        yield memory


def everything(memory: Memory) -> dict[str, Any]:
    """Return all that Ada owns."""
    exported = memory.export_resource("ada")
    exported.pop("exported_at")
    return exported


def test_every_method_that_takes_an_id_is_tried_here() -> None:
    assert methods() - set(ELSEWHERE) == set(CALLS)


@pytest.mark.parametrize("name", sorted(CALLS))
async def test_another_resource_gets_nothing_and_changes_nothing(memory: Memory, name: str) -> None:
    before = everything(memory)
    parameters = inspect.signature(getattr(memory, name)).parameters
    arguments = dict(CALLS[name])
    owner = "source_resource_id" if "source_resource_id" in parameters else "resource_id"
    arguments[owner] = "eve"

    def attempt(call: Callable[..., Any]) -> Any:
        return call(**arguments)

    for result in (
        _outcome(attempt, getattr(memory, name)),
        await _async_outcome(attempt, getattr(memory, f"a{name}")),
    ):
        if isinstance(result, MastraMemoryError):
            assert isinstance(result, ThreadNotFoundError | ThreadOwnershipError), repr(result)
            assert "ada" not in str(result).lower().replace("adapt", "")
        else:
            assert "Ada" not in repr(result)
            assert "hello" not in repr(result)
    assert everything(memory) == before
    assert memory.get_thread("new") is None


def _outcome(attempt: Callable[..., Any], call: Callable[..., Any]) -> Any:
    try:
        return attempt(call)
    except MastraMemoryError as error:
        return error


async def _async_outcome(attempt: Callable[..., Any], call: Callable[..., Any]) -> Any:
    try:
        return await attempt(call)
    except MastraMemoryError as error:
        return error


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: repr(bad)[:12])
@pytest.mark.parametrize("name", sorted(CALLS))
async def test_a_bad_id_is_refused_and_changes_nothing(memory: Memory, name: str, bad: Any) -> None:
    before = everything(memory)
    parameters = inspect.signature(getattr(memory, name)).parameters
    for parameter in (parameter for parameter in IDS if parameter in parameters):
        arguments = {**CALLS[name], parameter: bad}
        with pytest.raises(InvalidIdError):
            getattr(memory, name)(**arguments)
        with pytest.raises(InvalidIdError):
            await getattr(memory, f"a{name}")(**arguments)
    assert everything(memory) == before


@pytest.mark.parametrize("name", sorted(CALLS))
def test_none_never_means_everything(memory: Memory, name: str) -> None:
    before = everything(memory)
    parameters = inspect.signature(getattr(memory, name)).parameters
    given = [parameter for parameter in IDS if parameter in CALLS[name]]
    arguments = {**CALLS[name], **dict.fromkeys(given)}
    if name == "create_thread":
        arguments = {"resource_id": None}
    if name in {"clone_thread", "copy_thread"}:
        arguments["new_thread_id"] = "new"
    with pytest.raises((InvalidIdError, MissingResourceError, TypeError, ValueError)):
        getattr(memory, name)(**{key: value for key, value in arguments.items() if key in parameters})
    assert everything(memory) == before


# What is no id: per argument, values of the wrong kind. Each is refused with an error of ours that names the argument.
NO_MESSAGES = (
    0,
    "text",
    b"x",
    HumanMessage("x"),
    [5],
    [[]],
    [{}],
    [("user", None)],
    [{"role": "nobody", "content": "x"}],
)
NO_TEXT = (None, 5, b"x", ["text"], object)
NO_MODEL = (5, b"x", [5], object, ScriptedChatModel)
WRONG: list[tuple[str, str, tuple[Any, ...]]] = [
    ("save_messages", "messages", NO_MESSAGES),
    ("update_messages", "messages", (*NO_MESSAGES, [{"id": "m1", "content": [5]}], [{"id": "m1", "content": 5}])),
    ("preview", "messages", NO_MESSAGES),
    ("preview", "state", (5, "text", {"messages": 5}, [5])),
    ("preview", "tools", (5, "text", {})),
    ("observe", "messages", (5, "text", [5])),
    ("recall", "hide_signals", (5, "text", [5], [[]], [{}])),
    ("clone_thread", "message_ids", (5, "text", [5.5])),
    ("copy_thread", "message_ids", (5, "text", [None])),
    ("retriever", "filter", (5, "text", {"k": {"$where": 1}})),
    ("retriever", "k", (0, -1, "many")),
    ("retriever", "mode", (5, "semantic")),
    ("retriever", "message_range", (-1, "wide")),
    ("observation_node", "name", (5,)),
    ("observation_node", "trim_messages", ("perhaps",)),
    ("summarize_thread", "last_messages", (0, -1, "1", 1.5, True)),
    ("summarize_thread", "max_input_tokens", (0, None, "1", 1.5)),
    ("summarize_thread", "extract", (5, "text", [5])),
    ("summarize_thread", "instructions", NO_TEXT),
    ("summarize_thread", "model", NO_MODEL),
    ("reflect", "prompt", NO_TEXT[1:]),
    ("observe", "hooks", (5, "text", {})),
    ("reobserve", "hooks", (5, "text", {})),
    ("reindex", "progress", (5, "text", [5])),
    ("preview", "system", (5, [5], HumanMessage("x"))),
    ("middleware", "name", (5, b"x")),
    ("middleware", "agent", (5, b"x")),
    ("middleware", "resource_id", (5, "ada")),
    ("middleware", "history", (5, "all")),
    ("middleware", "save_partial", (5, "yes")),
    ("load_node", "input_key", NO_TEXT),
    ("load_node", "output_key", NO_TEXT),
    ("load_node", "system", (5, [5])),
    ("load_node", "resource_id", (5, "ada")),
    ("load_node", "history", (5, "all")),
    ("load_node", "name", NO_TEXT),
    ("save_node", "input_key", NO_TEXT),
    ("save_node", "resource_id", (5, "ada")),
    ("save_node", "history", (5, "all")),
]


@pytest.mark.parametrize(
    ("name", "argument", "values"), WRONG, ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_value_of_the_wrong_kind_is_refused_and_changes_nothing(
    memory: Memory, name: str, argument: str, values: tuple[Any, ...]
) -> None:
    before = everything(memory)
    for value in values:
        with pytest.raises(MastraMemoryError):
            getattr(memory, name)(**{**CALLS.get(name, {}), argument: value})
    assert everything(memory) == before


@pytest.mark.parametrize(
    "wrong",
    [
        {"k": 0},
        {"mode": "all"},
        {"message_range": -1},
        {"filter": {"k": {"$where": 1}}},
        {"threshold": "high"},
        {"threshold": 1.5},
        {"m": 1},
    ],
    ids=str,
)
async def test_what_a_call_of_the_retriever_overrides_is_refused_like_its_fields(memory: Memory, wrong: Any) -> None:
    retriever = memory.retriever(resource_id="ada")
    with pytest.raises(MastraMemoryError):
        retriever.invoke("hello", **wrong)
    with pytest.raises(MastraMemoryError):
        await retriever.ainvoke("hello", **wrong)


class Unshowable:
    def __repr__(self) -> str:
        raise RuntimeError("no")


# The same for what is made by name.
MADE: list[tuple[Callable[..., Any], dict[str, Any], str, tuple[Any, ...]]] = [
    (Memory, {}, "model", NO_MODEL),
    (Memory, {}, "read_only", (None, 5, "yes")),
    (Memory, {}, "clock", (5, "noon")),
    (Memory, {}, "token_counter", (5, len)),
    (MemoryMiddleware, {}, "memory", (5, "memory", Memory)),
    (MemoryMiddleware, {}, "features", (5, "memory", Memory)),
    (ObservationNode, {}, "memory", (None, 5, Memory)),
    (ObservationNode, {"memory": Memory()}, "trim_messages", ("perhaps",)),
    (ObservationNode, {"memory": Memory()}, "input_messages_key", NO_TEXT),
    (SemanticRecallRetriever, {}, "memory", (None, 5, Memory)),
    (SemanticRecallRetriever, {"memory": Memory(semantic_recall=True)}, "k", (0, "many")),
    (SemanticRecallRetriever, {"memory": Memory(semantic_recall=True)}, "filter", (5, {"k": {"$where": 1}})),
    (ThreadTitles, {}, "model", NO_MODEL),
    (Observation, {}, "model", NO_MODEL),
    (Observation, {}, "previous_observer_tokens", (None, -1, "all")),
    (Reflection, {}, "model", NO_MODEL),
    (ObservationalMemory, {}, "model", NO_MODEL),
    (ModelByInputTokens, {}, "up_to", (None, 5, [5], "model", {}, {5: 5}, {0: "model"})),
    (Extractor, {}, "name", NO_TEXT),
    (Extractor, {"name": "a"}, "instructions", (None, 5, ["text"])),
    (Extractor, {"name": "a"}, "schema", (5, "text")),
    (Extractor, {"name": "a"}, "metadata_path", (True, 5, ["text"], "a..b")),
    (Extractor, {"name": "a"}, "on_extracted", (5, "text")),
    (SemanticRecall, {}, "top_k", (0, "many", None)),
    (SemanticRecall, {}, "tok_k", (4,)),
    (SemanticRecall, {}, "filter", (5, {"k": {"$where": 1}})),
    (SemanticRecall, {}, "weights", (5, {5: 5}, {"unknown": 1})),
    (ObservationalMemory, {}, "observation", (5, {5: 5}, {"unknown": 1})),
    (HNSW, {}, "m", (0, "many")),
    (Speaker, {"name": "Ann"}, "id", ("", None, 5)),
    (as_user_turn, {"text": "hi"}, "speaker", (None, "Ann", {"id": "u1", "name": "Ann"})),
    (as_user_turn, {"speaker": Speaker(id="u1", name="Ann")}, "text", NO_TEXT),
    (redact_tool_results, {}, "tools", (5, "vault")),
    (redact_tool_results, {}, "placeholder", NO_TEXT),
    (SQLMemoryStore, {}, "busy_timeout", (None, -1, "long", True)),
    (SQLMemoryStore, {}, "clock", (5, "noon")),
    (SubAgent, {"agent": RunnableLambda(str), "name": "w", "memory": Memory()}, "thread", (None, 5, "old")),
    (SubAgent, {"agent": RunnableLambda(str), "name": "w", "memory": Memory()}, "worker_memory", (5, Memory)),
    (SubAgent, {"agent": RunnableLambda(str), "name": "w", "memory": Memory()}, "message_filter", (5, "all")),
    (summarize_conversation, {"model": "m"}, "messages", NO_MESSAGES),
    (summarize_conversation, {"messages": [], "model": "m"}, "instructions", NO_TEXT),
    (summarize_conversation, {"messages": [MESSAGE]}, "model", (None, *NO_MODEL)),
    (summarize_conversation, {"messages": [MESSAGE], "model": "m"}, "thread_id", BAD),
]


@pytest.mark.parametrize(
    ("make", "given", "argument", "values"), MADE, ids=lambda v: getattr(v, "__name__", str(v)[:20])
)
def test_what_is_made_by_name_refuses_a_value_of_the_wrong_kind(
    make: Callable[..., Any], given: dict[str, Any], argument: str, values: tuple[Any, ...]
) -> None:
    for value in (*values, Unshowable()):
        with pytest.raises(MastraMemoryError):
            make(**{**given, argument: value})


@pytest.mark.parametrize("store", [None, 5, b"sqlite://", "sqlite:///a\0b", "", "somewhere"])
def test_a_store_that_is_none_is_refused(store: Any) -> None:
    with pytest.raises(ConfigurationError):
        Memory(store)


@pytest.mark.parametrize("query", [None, 5, ["words"], {"question": "words"}, HumanMessage("words")])
async def test_a_query_that_is_no_text_is_refused_by_the_retriever(memory: Memory, query: Any) -> None:
    retriever = memory.retriever(resource_id="ada")
    with pytest.raises(InvalidQueryError, match="text"):
        retriever.invoke(query)
    with pytest.raises(InvalidQueryError, match="text"):
        await retriever.ainvoke(query)


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"a": value}
    return value


@pytest.mark.parametrize("value", [nested(5_000), Unshowable()], ids=["deep", "unshowable"])
def test_a_value_that_cannot_be_shown_is_refused_like_any_other(memory: Memory, value: Any) -> None:
    for name, argument in (
        ("get_thread", "thread_id"),
        ("list_threads", "resource_id"),
        ("list_threads", "metadata"),
        ("list_threads", "page"),
        ("recall", "metadata"),
        ("recall", "direction"),
        ("recall", "start"),
        ("recall", "include"),
        ("update_thread", "title"),
        ("update_thread", "metadata"),
        ("preview", "options"),
        ("summarize_thread", "instructions"),
        ("middleware", "history"),
        ("load_node", "system"),
    ):
        with pytest.raises(MastraMemoryError):
            getattr(memory, name)(**{**CALLS.get(name, {}), argument: value})


def test_errors_name_values_by_the_one_function_that_cannot_fail() -> None:
    cut_short = re.compile(r"![rs]:\.\d")
    package = Path(langchain_mastra_memory.__file__).parent
    assert [str(path) for path in package.rglob("*.py") if cut_short.search(path.read_text("utf-8"))] == []
