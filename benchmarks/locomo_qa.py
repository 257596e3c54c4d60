"""LoCoMo's questions (Maharana et al., 2024) with observational memory: for whoever has the data and a model's key.

    python benchmarks/locomo_qa.py locomo10.json --model openai:gpt-5-mini [--observer ...] [--judge ...] [--limit 50]

The data are at https://github.com/snap-research/locomo. Both speakers' turns are saved with their dates, observed, and
then every question is asked in the same thread; nothing of a question is kept. Prints the judge's accuracy and the
token F1 of the paper by category (1 multi-hop, 2 temporal, 3 open-domain, 4 single-hop; 5, adversarial, is left out).
"""

from __future__ import annotations

import argparse
import json
import re
import string
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from langchain.chat_models import init_chat_model
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage

from benchmarks.longmemeval import Question, Score, Session, ask, is_right, remember

CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop"}
_ARTICLES = re.compile(r"\b(a|an|the|and)\b")


def moment(text: str) -> datetime:
    """Return a date as the data write it: `1:56 pm on 8 May, 2023`."""
    return datetime.strptime(text.strip(), "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)


def read_sessions(conversation: Mapping[str, Any]) -> list[Session]:
    """Return the sessions of a conversation: the first speaker as the user, the second as the other side."""
    first = conversation["speaker_a"]
    numbers = sorted(int(key.split("_")[1]) for key in conversation if re.fullmatch(r"session_\d+", key))
    sessions = []
    for number in numbers:
        at = moment(conversation[f"session_{number}_date_time"])
        messages = []
        for turn in conversation[f"session_{number}"]:
            said = turn["text"] + (f" [shares an image: {turn['blip_caption']}]" if turn.get("blip_caption") else "")
            kind = HumanMessage if turn["speaker"] == first else AIMessage
            messages.append(kind(f"{turn['speaker']}: {said}", name=re.sub(r"\W", "_", turn["speaker"])))
        sessions.append(Session(at, tuple(messages)))
    return sessions


def read_questions(item: Mapping[str, Any], at: datetime) -> list[Question]:
    """Return the questions of an item that have an answer."""
    return [
        Question(f"{number}", CATEGORIES[qa["category"]], qa["question"], str(qa["answer"]), at)
        for number, qa in enumerate(item["qa"])
        if qa["category"] in CATEGORIES and "answer" in qa
    ]


def words_of(text: str) -> list[str]:
    """Return the words that the paper's F1 counts: lower case, no punctuation, no articles."""
    plain = "".join(c for c in text.lower() if c not in string.punctuation)
    return _ARTICLES.sub(" ", plain).split()


def f1(given: str, answer: str) -> float:
    """Return the token F1 of an answer, 0 to 1."""
    found, wanted = words_of(given), words_of(answer)
    same = sum((Counter(found) & Counter(wanted)).values())
    return 0.0 if not same else 2 * same / (len(found) + len(wanted))


def evaluate(
    data: Sequence[Mapping[str, Any]],
    *,
    model: BaseChatModel,
    observer: Any,
    judge: BaseChatModel,
    limit: int | None = None,
) -> tuple[Score, dict[str, float]]:
    """Remember each conversation once and ask all of its questions; return the score and the F1 by category."""
    score = Score()
    overlaps: dict[str, list[float]] = {}
    for item in data:
        sessions = read_sessions(item["conversation"])
        memory, clock = remember(sessions, observer=observer)
        with memory:
            for question in _some(read_questions(item, sessions[-1].at), limit):
                given = ask(memory, clock, question, model)
                score.add(question.kind, right=is_right(judge, question, given))
                overlaps.setdefault(question.kind, []).append(f1(given, question.answer))
            score.tokens += memory.usage(resource_id="r").total.total_tokens
    return score, {kind: sum(values) / len(values) for kind, values in overlaps.items()}


def _some(questions: Sequence[Question], limit: int | None) -> Iterator[Question]:
    yield from questions[:limit]


def main() -> None:
    """Run on a file of the data."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--model", required=True, help="answers, as provider:model")
    parser.add_argument("--observer", default=None, help="observes and reflects; the same model by default")
    parser.add_argument("--judge", default=None, help="judges; the same model by default")
    parser.add_argument("--limit", type=int, default=None, help="questions of each conversation")
    given = parser.parse_args()
    score, overlap = evaluate(
        json.loads(given.data.read_text("utf-8")),
        model=init_chat_model(given.model),
        observer=given.observer or given.model,
        judge=init_chat_model(given.judge or given.model),
        limit=given.limit,
    )
    print(score.table())
    for kind, value in sorted(overlap.items()):
        print(f"F1 {kind:29} {value:.3f}")


if __name__ == "__main__":
    main()
