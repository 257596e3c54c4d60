from __future__ import annotations
import __future__ as future

import asyncio
import doctest
import importlib
import pkgutil
from pathlib import Path
from typing import Any

import pytest

import langchain_mastra_memory
from tests.docs.examples import ROOT, docstrings, fences, run_fence
from tests.docs.stand_ins import provider

PACKAGE = Path(langchain_mastra_memory.__file__).parent


def module_names() -> list[str]:
    return [
        "langchain_mastra_memory",
        *(info.name for info in pkgutil.walk_packages([str(PACKAGE)], "langchain_mastra_memory.")),
    ]


def fenced_docstrings() -> list[Any]:
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for name, text, line in docstrings(path):
            examples = [fence for fence in fences(path, text, line) if fence.language != "text"]
            if examples:
                found.append(pytest.param(module, examples, id=f"{module}:{name}"))
    return found


@pytest.mark.parametrize("name", module_names())
def test_every_prompt_in_a_docstring_gives_what_it_shows(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module(name)
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    with provider([]) as model:
        ready = ready_objects(model) if ">>>" in Path(module.__file__ or "").read_text() else {}
        extra = {key: value for key, value in ready.items() if key not in vars(module)}
        results = doctest.testmod(module, optionflags=flags, extraglobs=extra)
    assert results.failed == 0


@pytest.mark.parametrize(("module", "examples"), fenced_docstrings())
def test_every_fence_in_a_docstring_runs(module, examples, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    not_python = [str(fence) for fence in examples if fence.language != "python"]
    assert not not_python, f"docstrings show `python` or `text`: {not_python}"
    with provider([]) as model, asyncio.Runner() as runner:
        namespace = ready_objects(model)
        namespace.update(vars(importlib.import_module(module)))
        for fence in examples:
            run_fence(fence, namespace, runner, flags=future.annotations.compiler_flag)
        close = getattr(namespace["memory"], "close", None)
        if close is not None:
            close()


def ready_objects(model: Any) -> dict[str, Any]:
    """Return what a docstring may use without making it: `memory`, `agent`, `model`, `builder` and the public names."""
    from langchain.agents import create_agent
    from langchain_core.messages import AIMessage, HumanMessage
    from langgraph.graph import START, MessagesState, StateGraph

    from langchain_mastra_memory import Memory

    # What features there are depends on the example; an agent without a resource can only have the history.
    memory = Memory("memory://", model=model, working_memory=True, semantic_recall=True, observational_memory=True)
    memory.save_messages([HumanMessage("Hello"), AIMessage("Hello, Ada.")], thread_id="t1", resource_id="user-1")
    plain = Memory("memory://", model=model)
    public = {name: getattr(langchain_mastra_memory, name) for name in langchain_mastra_memory.__all__}
    agent = create_agent(model, middleware=[plain.middleware()], checkpointer=plain.checkpointer)
    builder = StateGraph(MessagesState)
    builder.add_node("answer", lambda state: {"messages": [model.invoke(state["messages"])]})
    builder.add_edge(START, "answer")
    return {
        **public,
        "builder": builder,
        "graph": builder,
        "START": START,
        "MessagesState": MessagesState,
        "StateGraph": StateGraph,
        "memory": memory,
        "agent": agent,
        "model": model,
        "tools": [],
        "create_agent": create_agent,
        "AIMessage": AIMessage,
        "HumanMessage": HumanMessage,
    }
