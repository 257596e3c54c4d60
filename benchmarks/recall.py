"""How well, how fast and how small semantic recall is, beside LangGraph's store, langchain-chroma and LangMem.

Quality: LoCoMo (each session a thread, each conversation a resource; Maharana et al. 2024, CC BY-NC 4.0) and BEAM-100K
(Tavakoli et al. 2025, CC BY-SA 4.0), read from the paths given; nothing of them is kept. Recall@k is the mean share of
the evidence among the first k messages found, MRR the mean of one over the rank of the first. All contestants get the
same texts and the same vectors (Universal Sentence Encoder, extra `local`).

Speed and size: messages of about 460 characters in 50 threads of one resource, random vectors of 512 numbers, so that
neither words nor vectors are easy. The query's embedding is not counted. Cold is the first query of a new process.

    python benchmarks/recall.py quality --locomo locomo5.json --beam beam6.json [--postgres URL | --embedded] [--peers]
    python benchmarks/recall.py tuning --locomo locomo5.json --beam beam6.json
    python benchmarks/recall.py speed [--sizes 1000 10000 100000] [--postgres URL | --embedded] [--peers]

Peers come with `pip install --group bench-recall`.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from langchain_core.embeddings import Embeddings
from langchain_core.messages import AIMessage, HumanMessage

from langchain_mastra_memory.memory import Memory
from langchain_mastra_memory.recall.chunking import chunks
from langchain_mastra_memory.recall.embeddings import LocalEmbeddings
from langchain_mastra_memory.recall.index import ScopeIndex
from langchain_mastra_memory.recall.options import SemanticRecall, Weights
from langchain_mastra_memory.recall.ranking import best, rank
from langchain_mastra_memory.recall.terms import SHARED, STOP_WORDS
from langchain_mastra_memory.recall.text import embedded_text
from langchain_mastra_memory.recall.vectors import QueryVector, quantize

SHA256 = {
    "locomo5.json": "ee8f45f9bb413443394e59e334e76747370a70635f4f2988ce9190710b1d84b4",
    "beam6.json": "ff4a14d2111c52883c7faba300d4b40a3d858c22e1d1497e58005d7b06f405c5",
}
DEPTHS = (1, 5, 10, 20)
TARGETS = {"LoCoMo": {"hybrid": 76, "lexical": 75}, "BEAM": {"hybrid": 76}}
MODES = ("lexical", "vector", "hybrid")
DIMENSION = 512


@dataclass(frozen=True)
class Said:
    """A message of a data set."""

    id: str
    thread: str
    text: str
    role: str = "user"
    speaker: str | None = None
    date: datetime | None = None


@dataclass(frozen=True)
class Conversation:
    """A conversation and its questions: `(question, ids of the evidence)`."""

    name: str
    messages: list[Said]
    questions: list[tuple[str, frozenset[str]]]


def read(path: Path) -> Any:
    """Return a data file after comparing its hash with the one that the figures were made with."""
    raw = path.read_bytes()
    known, found = SHA256.get(path.name), hashlib.sha256(raw).hexdigest()
    if known is not None and known != found:
        print(f"note: {path.name} is not the file that the published figures were made with ({found[:12]})")
    return json.loads(raw)


def locomo(path: Path) -> list[Conversation]:
    """Return LoCoMo conversations."""
    found = []
    for sample in read(path):
        talk, messages = sample["conversation"], []
        for n in itertools.count(1):
            if f"session_{n}" not in talk:
                if n > 60:
                    break
                continue
            date = datetime.strptime(talk[f"session_{n}_date_time"] + " +0000", "%I:%M %p on %d %B, %Y %z")
            for turn in talk[f"session_{n}"]:
                text = f"{turn['text']} {turn.get('blip_caption', '')}".strip()
                messages.append(Said(turn["dia_id"], f"session {n}", text, speaker=turn["speaker"], date=date))
        questions = []
        for qa in sample["qa"]:
            evidence = {f"D{a}:{int(b)}" for line in qa["evidence"] for a, b in re.findall(r"D:?(\d+):(\d+)", line)}
            if evidence:
                questions.append((qa["question"], frozenset(evidence)))
        found.append(Conversation(str(sample["sample_id"]), messages, questions))
    return found


def beam(path: Path) -> list[Conversation]:
    """Return BEAM chats."""
    return [
        Conversation(
            f"chat {chat['chat']}",
            [Said(str(m["id"]), "chat", m["text"], m["role"]) for m in chat["messages"]],
            [(qa["question"], frozenset(map(str, qa["evidence"]))) for qa in chat["qa"] if qa["evidence"]],
        )
        for chat in read(path)
    ]


class Remembered(Embeddings):
    """An embedding model that embeds each text once for all contestants."""

    def __init__(self, model: Embeddings) -> None:
        self.model = getattr(model, "model", "model")
        self._inner = model
        self._known: dict[str, list[float]] = {}

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        missing = [text for text in dict.fromkeys(texts) if text not in self._known]
        for start in range(0, len(missing), 64):
            part = missing[start : start + 64]
            self._known |= dict(zip(part, self._inner.embed_documents(part), strict=True))
        return [self._known[text] for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]


Searcher = Callable[[str, str, int], list[str]]
"""`(conversation, question, k)` to the ids found, best first."""


def score(data: Sequence[Conversation], search: Searcher) -> dict[str, float]:
    """Return recall at each depth and MRR, in percent."""
    rows = []
    for conversation in data:
        for question, evidence in conversation.questions:
            found = search(conversation.name, question, max(DEPTHS))
            first = next((n for n, one in enumerate(found, 1) if one in evidence), None)
            shares = [len(evidence & set(found[:depth])) / len(evidence) for depth in DEPTHS]
            rows.append([*shares, 1 / first if first else 0.0])
    means = (np.array(rows).mean(axis=0) * 100).round(1)
    return dict(zip([*(f"R@{depth}" for depth in DEPTHS), "MRR"], means.tolist(), strict=True))


def fill(memory: Memory, data: Sequence[Conversation]) -> None:
    """Save a data set."""
    for conversation in data:
        for thread, group in itertools.groupby(conversation.messages, key=lambda said: said.thread):
            messages = [
                (AIMessage if said.role == "assistant" else HumanMessage)(
                    said.text,
                    id=said.id,
                    name=said.speaker,
                    additional_kwargs={"created_at": said.date.isoformat()} if said.date else {},
                )
                for said in group
            ]
            memory.save_messages(messages, thread_id=f"{conversation.name} {thread}", resource_id=conversation.name)
    failed = memory.settled()
    assert not failed, failed


def ours(memory: Memory, mode: Any) -> Searcher:
    """Return a searcher over a filled memory."""

    def search(conversation: str, question: str, k: int) -> list[str]:
        retriever = memory.retriever(resource_id=conversation, mode=mode, k=k, message_range=0)
        return [document.metadata["message_id"] for document in retriever.invoke(question)]

    return search


def peers(data: Sequence[Conversation], embeddings: Embeddings, folder: Path) -> Iterator[tuple[str, Searcher]]:
    """Yield other searchers over the same texts and vectors."""
    from langgraph.store.memory import InMemoryStore

    store = InMemoryStore(index={"embed": embeddings, "dims": DIMENSION, "fields": ["text"]})
    for conversation in data:
        for said in conversation.messages:
            text = embedded_text(said.speaker, said.text)[:2_000]
            store.put((conversation.name,), said.id, {"text": text})

    def by_store(conversation: str, question: str, k: int) -> list[str]:
        return [item.key for item in store.search((conversation,), query=question, limit=k)]

    yield "LangGraph InMemoryStore.search", by_store
    try:
        from langmem import create_search_memory_tool
    except ImportError as error:
        print(f"note: no LangMem ({error})")
    else:
        tools = {c.name: create_search_memory_tool(namespace=(c.name,), store=store) for c in data}

        def by_tool(conversation: str, question: str, k: int) -> list[str]:
            return [item["key"] for item in json.loads(tools[conversation].invoke({"query": question, "limit": k}))]

        yield "LangMem search tool", by_tool
    try:
        import chromadb
        from langchain_chroma import Chroma
    except ImportError as error:
        print(f"note: no langchain-chroma ({error})")
        return
    client = chromadb.PersistentClient(str(folder / "peer-chroma"))
    stores = {}
    for n, conversation in enumerate(data):
        stores[conversation.name] = Chroma(f"peer-{n}", embeddings, client=client)
        texts = [embedded_text(said.speaker, said.text)[:2_000] for said in conversation.messages]
        for start in range(0, len(texts), 1_000):  # the backend refuses larger batches
            ids = [said.id for said in conversation.messages[start : start + 1_000]]
            stores[conversation.name].add_texts(texts[start : start + 1_000], ids=ids)

    def by_chroma(conversation: str, question: str, k: int) -> list[str]:
        return [document.id or "" for document in stores[conversation].similarity_search(question, k=k)]

    yield "langchain-chroma similarity", by_chroma


@contextmanager
def database(arguments: argparse.Namespace) -> Iterator[str | None]:
    """Yield the URL of a PostgreSQL, if one was asked for."""
    if not arguments.embedded:
        yield arguments.postgres
        return
    sys.path.insert(0, str(Path(__file__).parent.parent))
    from tests.postgres import PostgresFolder

    folder = PostgresFolder.create()
    try:
        yield f"{folder.url()}/postgres"
    finally:
        folder.stop()


def quality(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure what is found."""
    embeddings = Remembered(LocalEmbeddings())
    results: dict[str, Any] = {}
    sets = {
        "LoCoMo": locomo(arguments.locomo) if arguments.locomo else [],
        "BEAM": beam(arguments.beam) if arguments.beam else [],
    }
    with database(arguments) as postgres, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for title, data in sets.items():
            if not data:
                continue
            table = results.setdefault(title, {})
            lists: dict[str, list[list[str]]] = {}
            places = {"SQLite": (f"sqlite:///{folder / title}.db", None)}
            if postgres:
                places["PostgreSQL"] = (postgres, None)
            places["Chroma"] = (f"sqlite:///{folder / title}-chroma.db", f"chroma:///{folder / title}-chroma")
            for place, (url, vector_store) in places.items():
                options = SemanticRecall(message_range=0, deadline=60)
                with Memory(url, semantic_recall=options, embeddings=embeddings, vector_store=vector_store) as memory:
                    fill(memory, data)
                    for mode in MODES:
                        if place == "Chroma" and mode == "lexical":
                            continue
                        search = ours(memory, mode)
                        table[f"{place} {mode}"] = score(data, search)
                        show(title, f"{place} {mode}", table[f"{place} {mode}"])
                        lists[f"{place} {mode}"] = [search(c.name, q, 10) for c in data for q, _ in c.questions]
                    for conversation in data:
                        memory.delete_resource(conversation.name)
            if postgres:
                same = sum(
                    a == b
                    for mode in MODES
                    for a, b in zip(lists[f"SQLite {mode}"], lists[f"PostgreSQL {mode}"], strict=True)
                )
                total = sum(len(lists[f"SQLite {mode}"]) for mode in MODES)
                table["lists"] = {"same": same, "of": total}
                print(f"{title}: {same} of {total} lists are the same on SQLite and PostgreSQL")
            for mode, target in TARGETS[title].items():
                reached = table[f"SQLite {mode}"]["R@10"]
                print(f"{title} {mode}: R@10 {reached} (target {target} on unseen conversations)")
            if arguments.peers:
                for peer, search in peers(data, embeddings, folder):
                    table[peer] = score(data, search)
                    show(title, peer, table[peer])
    return results


def show(title: str, name: str, row: dict[str, float]) -> None:
    print(f"{title:8} {name:32} " + "  ".join(f"{key} {value:5.1f}" for key, value in row.items()), flush=True)


def tuning(arguments: argparse.Namespace) -> dict[str, Any]:
    """Leave one conversation out: choose the numbers on the others, measure them on it, beside the defaults."""
    embeddings = Remembered(LocalEmbeddings())
    grid = [
        Weights(lexical=lexical, half_length=half, b=b)
        for lexical in (0.6, 0.7, 0.8)
        for half in (60.0, 120.0, 240.0)
        for b in (0.75, 0.9)
    ]
    results: dict[str, Any] = {}
    for title, data in {"LoCoMo": locomo(arguments.locomo), "BEAM": beam(arguments.beam)}.items():
        per = [_per_conversation(conversation, embeddings, [Weights(), *grid]) for conversation in data]
        held = []
        for n, conversation in enumerate(data):
            others = [(sum(rows[g] for m, (rows, _) in enumerate(per) if m != n), g) for g in range(1, len(grid) + 1)]
            chosen = max(others)[1]
            rows, count = per[n]
            held.append((rows[0] / count, rows[chosen] / count, count, conversation.name))
        total = sum(count for *_, count, _ in held)
        default = 100 * sum(a * count for a, _, count, _ in held) / total
        chosen_mean = 100 * sum(b * count for _, b, count, _ in held) / total
        results[title] = {"default": round(default, 1), "left out": round(chosen_mean, 1)}
        print(f"{title}: R@10 hybrid, defaults {default:.1f}; chosen on the other conversations {chosen_mean:.1f}")
        for a, b, count, name in held:
            print(f"    {name:12} {count:4} questions: defaults {100 * a:.1f}, chosen on the others {100 * b:.1f}")
    return results


def _per_conversation(
    conversation: Conversation, embeddings: Embeddings, grid: Sequence[Weights]
) -> tuple[list[float], int]:
    """Return the sum of R@10 for each set of numbers."""
    threads = {name: n for n, name in enumerate(dict.fromkeys(said.thread for said in conversation.messages))}
    rows = [
        (n, threads[said.thread], n, 0, SHARED.document(said.text, speaker=said.speaker, date=said.date))
        for n, said in enumerate(conversation.messages)
    ]
    parts = [
        (n, part)
        for n, said in enumerate(conversation.messages)
        for part in chunks(embedded_text(said.speaker, said.text))
    ]
    vectors = embeddings.embed_documents([part for _, part in parts])
    entries = [
        (m, threads[conversation.messages[n].thread], n, quantize(v))
        for m, ((n, _), v) in enumerate(zip(parts, vectors, strict=True))
    ]
    asked = embeddings.embed_documents([question for question, _ in conversation.questions])
    sums = []
    for weights in grid:
        index = ScopeIndex(weights)
        index.add(rows)
        index.add_vectors(entries)
        for key in threads.values():
            index.place(key, ((0, 1 << 40),))
        view, total = index.view(), 0.0
        for (question, evidence), vector in zip(conversation.questions, asked, strict=True):
            ranked = rank(
                view, index.matches(view, SHARED.query(question)), index.cosines(view, QueryVector.of(vector))
            )
            found = {conversation.messages[int(view.age[place])].id for place in best(view, ranked, 10)[:10]}
            total += len(evidence & found) / len(evidence)
        sums.append(total)
    return sums, len(conversation.questions)


# --- speed and size ---


class Random(Embeddings):
    """Vectors that are the same for the same text, at no cost."""

    model = "random"

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        seed = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
        return np.random.default_rng(seed).standard_normal(DIMENSION).tolist()


def words() -> list[str]:
    """Return 20 000 words, the common ones first: stop words are the commonest, as in any language."""
    letters = np.random.default_rng(7)
    rare = [
        "".join(letters.choice(list("etaoinshrdlcumwfgypbvk"), size=int(n))) for n in letters.integers(2, 10, 20_000)
    ]
    return [*sorted(STOP_WORDS), *rare][:20_000]


def texts(count: int, seed: int, size: int = 75) -> list[str]:
    """Return texts whose words are as frequent as those of a language (Zipf)."""
    vocabulary = words()
    share = 1 / np.arange(1, len(vocabulary) + 1)
    drawn = np.random.default_rng(seed).choice(len(vocabulary), size=(count, size), p=share / share.sum())
    return [" ".join(vocabulary[n] for n in row) for row in drawn]


def new_memory(url: str, *, recall: bool = True, mode: Any = "hybrid") -> Memory:
    options = SemanticRecall(message_range=0, deadline=600, mode=mode) if recall else None
    embeddings = Random() if recall and mode != "lexical" else None
    return Memory(url, semantic_recall=options, embeddings=embeddings)


def load(memory: Memory, count: int) -> None:
    said = texts(count, 1)
    for start in range(0, count, 1_000):
        part = said[start : start + 1_000]
        memory.save_messages([("user", text) for text in part], thread_id=f"t{start // 1_000 % 50}", resource_id="r")
    failed = memory.settled()
    assert not failed, failed


def timed(call: Callable[[str], object], questions: Sequence[str]) -> dict[str, float]:
    """Return milliseconds per call: median and 95th percentile by the clock, and median of this process's CPU time.

    The clock depends on what else the machine does; CPU time leaves out the database server.
    """
    took, worked = [], []
    for question in questions:
        began, cpu = time.perf_counter(), time.process_time()
        call(question)
        took.append((time.perf_counter() - began) * 1_000)
        worked.append((time.process_time() - cpu) * 1_000)
    return {
        "median": statistics.median(took),
        "p95": sorted(took)[int(len(took) * 0.95)],
        "cpu": statistics.median(worked),
    }


COLD = """
import sys, time
sys.path.insert(0, {folder!r})
from recall import new_memory, texts
memory = new_memory(sys.argv[1])
question = texts(1, 9, 12)[0]
memory.get_thread("t0")
memory.recall_engine.embedder  # the import is not the query
vector = memory.recall_engine.embedder.embeddings.embed_query(question)
memory.recall_engine.embedder.embeddings.embed_query = lambda _: vector
began, cpu = time.perf_counter(), time.process_time()
memory.recall(resource_id="r", query=question)
print((time.perf_counter() - began) * 1000, (time.process_time() - cpu) * 1000)
memory.close()
"""


def speed(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure milliseconds per query, and bytes per message."""
    results: dict[str, Any] = {}
    questions = texts(60, 9, 12)
    with database(arguments) as postgres, tempfile.TemporaryDirectory() as name:
        for count in arguments.sizes:
            urls = {"SQLite": f"sqlite:///{name}/{count}.db"}
            if postgres:
                urls["PostgreSQL"] = postgres
            for place, url in urls.items():
                row = results.setdefault(f"{place} {count}", {})
                with new_memory(url) as memory:
                    load(memory, count)
                colds = []
                for _ in range(3):
                    script = COLD.format(folder=str(Path(__file__).parent))
                    done = subprocess.run(
                        [sys.executable, "-c", script, url], capture_output=True, text=True, check=True
                    )
                    colds.append([float(part) for part in done.stdout.split()])
                row["cold"], row["cold cpu"] = (min(column) for column in zip(*colds, strict=True))
                with new_memory(url) as memory:
                    for question in questions:  # the query's embedding is not counted: it is in the cache
                        memory.recall(resource_id="r", query=question)
                    for mode in ("lexical", "hybrid"):
                        retriever = memory.retriever(resource_id="r", mode=mode, k=10)
                        row |= {f"{mode} {name}": value for name, value in timed(retriever.invoke, questions).items()}
                    row["cache MB"] = memory.recall_engine.scopes.nbytes / 1e6
                    memory.delete_resource("r")
                print(
                    f"{place:12} {count:7} messages: " + "  ".join(f"{k} {v:.1f}" for k, v in row.items()), flush=True
                )
        results["size"] = sizes(Path(name))
        if arguments.peers:
            results["peers"] = peer_speed(min(10_000, max(arguments.sizes)), questions, Path(name))
    return results


def sizes(folder: Path, count: int = 5_000) -> dict[str, float]:
    """Return bytes per message of the terms and of the vectors, and what the terms add to a save."""
    found, took = {}, {}
    for kind in ("none", "lexical", "hybrid"):
        path = folder / f"size-{kind}.db"
        with new_memory(
            f"sqlite:///{path}", recall=kind != "none", mode=kind if kind != "none" else "hybrid"
        ) as memory:
            load(memory, count)
            # Compared beside each other in one loop below, on what is there already.
        found[kind] = path.stat().st_size / count
    memories = {
        kind: new_memory(f"sqlite:///{folder / f'size-{kind}.db'}", recall=kind != "none", mode="lexical")
        for kind in ("none", "lexical")
    }
    rows: dict[str, list[float]] = {kind: [] for kind in memories}
    for n, text in enumerate(texts(300, 5, 80)):
        for kind, memory in memories.items():
            began = time.perf_counter()
            memory.save_messages([("user", text[:500])], thread_id=f"s{n % 3}", resource_id="s")
            rows[kind].append((time.perf_counter() - began) * 1_000)
    took = {kind: statistics.median(row) for kind, row in rows.items()}
    for memory in memories.values():
        memory.close()
    characters = statistics.mean(map(len, texts(1_000, 1)))
    result = {
        "characters": characters,
        "terms": found["lexical"] - found["none"],
        "vector": found["hybrid"] - found["lexical"],
        "target": 0.5 * characters + 40,
        "save": took["lexical"] - took["none"],
    }
    print(
        f"bytes for {characters:.0f} characters: terms {result['terms']:.0f} (target {result['target']:.0f}), "
        f"vector {result['vector']:.0f}; terms add {result['save']:.3f} ms to a save of 500 characters (target 0.15)"
    )
    return result


def peer_speed(count: int, questions: Sequence[str], folder: Path) -> dict[str, Any]:
    """Return milliseconds per query of the peers, their embedding not counted."""
    embeddings = Remembered(Random())
    embeddings.embed_documents(list(questions))
    data = [Conversation("r", [Said(str(n), "t", text) for n, text in enumerate(texts(count, 1))], [])]
    found = {}
    for name, search in peers(data, embeddings, folder):
        took = timed(lambda question, search=search: search("r", question, 10), questions)  # type: ignore[misc]
        found[name] = took
        print(f"{name}, {count} messages: " + "  ".join(f"{k} {v:.1f}" for k, v in took.items()), flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", default="speed", choices=["quality", "tuning", "speed"])
    parser.add_argument("--locomo", type=Path)
    parser.add_argument("--beam", type=Path)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--postgres", metavar="URL")
    parser.add_argument("--embedded", action="store_true", help="start a PostgreSQL of one's own")
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    results = {"quality": quality, "tuning": tuning, "speed": speed}[arguments.what](arguments)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1), "utf-8")


if __name__ == "__main__":
    main()
