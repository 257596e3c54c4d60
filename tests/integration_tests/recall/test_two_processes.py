"""A committed save, edit or delete of one process is seen by the very next query of another."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from typing import Any

import pytest

from langchain_mastra_memory.memory import Memory
from langchain_mastra_memory.recall.options import SemanticRecall
from langchain_mastra_memory.testing.embeddings import WordEmbeddings

WRITER = """
import json, sys
from langchain_core.messages import HumanMessage
from langchain_mastra_memory.memory import Memory
from langchain_mastra_memory.recall.options import SemanticRecall
from langchain_mastra_memory.testing.embeddings import WordEmbeddings

with Memory(sys.argv[1], semantic_recall=SemanticRecall(), embeddings=WordEmbeddings()) as memory:
    for line in sys.stdin:
        what, thread, id, text, resource = json.loads(line)
        if what == "save":
            memory.save_messages([HumanMessage(text, id=id)], thread_id=thread, resource_id=resource)
        elif what == "edit":
            memory.update_messages([{"id": id, "content": text}], thread_id=thread)
        elif what == "delete":
            memory.delete_messages([id], thread_id=thread)
        else:
            memory.transfer_thread(thread, resource)
        print("done", flush=True)
"""


@pytest.mark.parametrize("engine", ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def test_the_next_query_of_another_process_sees_every_change(engine: str, request: pytest.FixtureRequest) -> None:
    url = request.getfixturevalue("sqlite_url" if engine == "sqlite" else "postgres_url")
    chance = random.Random(3)
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]

    def tell(*change: Any) -> None:
        writer = chance.choice(writers)
        assert writer.stdin is not None
        assert writer.stdout is not None
        writer.stdin.write(json.dumps(change) + "\n")
        writer.stdin.flush()
        assert writer.stdout.readline() == "done\n"

    options = SemanticRecall(message_range=0, top_k=50)
    there: dict[str, tuple[str, str]] = {}  # id -> (thread, its only word)
    owner = {f"t{n}": f"r{n % 2}" for n in range(4)}
    with Memory(url, semantic_recall=options, embeddings=WordEmbeddings()) as reader:
        try:
            for step in range(120):
                what = chance.choice(["save", "save", "edit", "delete", "transfer"])
                if what == "save" or not there:
                    thread, name = chance.choice(sorted(owner)), f"m{step}"
                    tell("save", thread, name, f"word{step}", owner[thread])
                    there[name] = thread, f"word{step}"
                elif what == "transfer":
                    thread = chance.choice(sorted(owner))
                    if any(at == thread for at, _ in there.values()):
                        owner[thread] = "r1" if owner[thread] == "r0" else "r0"
                        tell("transfer", thread, "", "", owner[thread])
                else:
                    name = chance.choice(sorted(there))
                    thread, _ = there[name]
                    tell(what, thread, name, f"word{step}", owner[thread])
                    if what == "edit":
                        there[name] = thread, f"word{step}"
                    else:
                        del there[name]
                for resource in ("r0", "r1"):
                    mine = {name: word for name, (thread, word) in there.items() if owner[thread] == resource}
                    query = " ".join(word for _, word in there.values())
                    found = reader.retriever(resource_id=resource, mode="lexical").invoke(query)
                    hits = {d.metadata["message_id"]: d.metadata["content"] for d in found if d.metadata["score"] > 0}
                    assert hits == mine, f"step {step}: {what}"
        finally:
            for writer in writers:
                if writer.stdin is not None:
                    writer.stdin.close()
                writer.wait(60)
                if writer.stdout is not None:
                    writer.stdout.close()
        for resource in ("r0", "r1"):
            mine = {name for name, (thread, _) in there.items() if owner[thread] == resource}
            for name in sorted(mine)[:5]:
                found = reader.retriever(resource_id=resource, mode="vector", k=1).invoke(there[name][1])
                assert found[0].metadata["message_id"] == name
