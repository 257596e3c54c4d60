"""LangChain's own tests for retrievers, and where a retriever takes its ids from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from langchain_core.documents import Document
from langchain_core.messages import HumanMessage
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langchain_tests.integration_tests import RetrieversIntegrationTests
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.runtime import Runtime

from langchain_mastra_memory.agents.run_options import MemoryContext
from langchain_mastra_memory.errors import MissingResourceError, ThreadOwnershipError
from langchain_mastra_memory.memory import Memory
from langchain_mastra_memory.recall.options import SemanticRecall
from langchain_mastra_memory.recall.retriever import SemanticRecallRetriever
from langchain_mastra_memory.testing.embeddings import WordEmbeddings

Make = Callable[..., Memory]
TEXTS = ["my cat is called Mia", "the cat sleeps", "a dog barks", "cats like boxes", "the cat eats"]


class TestStandard(RetrieversIntegrationTests):
    """`RetrieversIntegrationTests` of langchain-tests."""

    memory: ClassVar[Memory]

    @pytest.fixture(autouse=True)
    def _memory(self, memory_factory: Make) -> None:
        memory = memory_factory(semantic_recall=True, embeddings=WordEmbeddings())
        memory.save_messages([("user", text) for text in TEXTS], thread_id="t1", resource_id="r1")
        type(self).memory = memory

    @property
    def retriever_constructor(self) -> type[BaseRetriever]:
        return SemanticRecallRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {"memory": self.memory, "resource_id": "r1", "message_range": 0}

    @property
    def retriever_query_example(self) -> str:
        return "what does the cat like?"


@pytest.fixture
def memory(memory_factory: Make) -> Memory:
    made = memory_factory(semantic_recall=SemanticRecall(message_range=0, top_k=2))
    for resource in ("r1", "r2"):
        made.save_messages([HumanMessage(f"cat of {resource}")], thread_id=f"t-{resource}", resource_id=resource)
    return made


def contents(documents: list[Document]) -> list[str]:
    return [document.page_content for document in documents]


def config_of(resource: str, **more: Any) -> RunnableConfig:
    return {"configurable": {"thread_id": f"t-{resource}", "resource_id": resource, **more}}


def test_the_fields_say_whose_messages(memory: Memory) -> None:
    retriever = memory.retriever(resource_id="r1")
    assert contents(retriever.invoke("cat")) == ["cat of r1"]
    assert contents(retriever.invoke("cat", config_of("r2"))) == ["cat of r1"]


async def test_else_the_config_of_the_call_says_it(memory: Memory) -> None:
    assert contents(memory.retriever().invoke("cat", config_of("r2"))) == ["cat of r2"]
    assert contents(await memory.retriever().ainvoke("cat", config_of("r1"))) == ["cat of r1"]
    chain = RunnableLambda(str) | memory.retriever()
    assert contents(chain.invoke("cat", config_of("r2"))) == ["cat of r2"]


@pytest.mark.parametrize("by", ["config", "context"])
def test_else_the_run_that_it_is_called_in_says_it(memory: Memory, by: str) -> None:
    seen: list[list[str]] = []

    def node(_: MessagesState, runtime: Runtime[MemoryContext]) -> dict[str, Any]:
        del runtime
        seen.append(contents(memory.retriever().invoke("cat")))
        return {}

    builder = StateGraph(MessagesState, context_schema=MemoryContext)
    builder.add_node("search", node)
    builder.add_edge(START, "search")
    graph = builder.compile()
    if by == "config":
        graph.invoke({"messages": []}, config_of("r2"))
    else:
        graph.invoke({"messages": []}, {"configurable": {"thread_id": "t"}}, context=MemoryContext(resource_id="r2"))
    assert seen == [["cat of r2"]]


def test_none_of_them_is_an_error_that_names_both_ways(memory: Memory) -> None:
    with pytest.raises(MissingResourceError, match="configurable"):
        memory.retriever().invoke("cat")


def test_the_authenticated_user_is_the_resource(memory: Memory) -> None:
    user = {"langgraph_auth_user": {"identity": "r1"}}
    assert contents(memory.retriever().invoke("cat", {"configurable": user})) == ["cat of r1"]
    with pytest.raises(ThreadOwnershipError):
        memory.retriever().invoke("cat", config_of("r2", **user))


def test_a_document_has_the_hit_alone_and_among_its_neighbours(memory_factory: Make) -> None:
    memory = memory_factory(semantic_recall=True)
    saved = memory.save_messages(
        [("user", "where is Mia?"), ("ai", "on the roof"), HumanMessage("thanks", name="Ana")],
        thread_id="t",
        resource_id="r",
    )
    document = memory.retriever(resource_id="r", k=1).invoke("roof")[0]
    assert document.page_content == "user: where is Mia?\nassistant: on the roof\nAna: thanks"
    metadata = dict(document.metadata)
    assert metadata.pop("score") > 0
    assert metadata == {
        "content": "on the roof",
        "thread_id": "t",
        "resource_id": "r",
        "message_id": saved[1].id,
        "message_ids": [row.id for row in saved],
        "seq": 2,
        "role": "ai",
        "speaker": "assistant",
        "created_at": saved[1].created_at.isoformat(),
        "found_by": "words",
    }
    assert document.id == saved[1].id


def test_a_retriever_is_named_in_traces_and_its_callbacks_are_called(memory: Memory) -> None:
    from langchain_core.callbacks import BaseCallbackHandler

    class Seen(BaseCallbackHandler):
        names: ClassVar[list[str]] = []

        def on_retriever_start(self, serialized: Any, query: str, **kwargs: Any) -> None:
            del serialized, query
            self.names.append(kwargs["name"])

    memory.retriever(resource_id="r1").invoke("cat", {"callbacks": [Seen()]})
    assert Seen.names == ["SemanticRecallRetriever"]
