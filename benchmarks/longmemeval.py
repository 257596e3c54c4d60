"""LongMemEval (Wu et al., 2024) with observational memory: for whoever has the data and a model's key.

    python benchmarks/longmemeval.py longmemeval_s.json --model openai:gpt-5-mini [--observer ...] [--judge ...]

The data are at https://github.com/xiaowu0162/LongMemEval. Every session of a question's haystack is saved with its date
and observed; then the question is asked in the same thread, at its date, with what observational memory shows. A judge
says whether the answer is right. Prints accuracy by question type and the tokens that were used.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain.chat_models import init_chat_model
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from langchain_mastra_memory import Memory, Observation, ObservationalMemory, Reflection, StoredMessage

ANSWER = (
    "Answer the question from what you remember of the conversation, in one or two sentences. "
    "If it was never said, say that you do not know."
)
JUDGE = (
    "Question: {question}\nRight answer: {answer}\nGiven answer: {given}\n\n"
    "Does the given answer say the same as the right answer, or contain it? Answer with yes or no only."
)


@dataclass(frozen=True)
class Session:
    """Messages of one sitting.

    Attributes:
        at: When it was.
        messages: What was said.
    """

    at: datetime
    messages: tuple[BaseMessage, ...]


@dataclass(frozen=True)
class Question:
    """A question about a conversation.

    Attributes:
        id: Its id.
        kind: Its type or category.
        text: What is asked.
        answer: The right answer.
        at: When it is asked.
    """

    id: str
    kind: str
    text: str
    answer: str
    at: datetime


@dataclass
class Score:
    """How many were right, by kind.

    Attributes:
        right: Right answers.
        asked: Questions.
        tokens: Tokens of the observer and the reflector.
    """

    right: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    asked: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    tokens: int = 0

    def add(self, kind: str, *, right: bool) -> None:
        """Count an answer."""
        self.asked[kind] += 1
        self.right[kind] += right

    @property
    def accuracy(self) -> float:
        """The share of right answers, 0 to 1."""
        return sum(self.right.values()) / max(1, sum(self.asked.values()))

    def table(self) -> str:
        """Return one line for each kind and one for all."""
        lines = [
            f"{kind:32} {self.right[kind]:>5} / {self.asked[kind]:<5} {self.right[kind] / self.asked[kind]:>7.1%}"
            for kind in sorted(self.asked)
        ]
        whole = f"{'all':32} {sum(self.right.values()):>5} / {sum(self.asked.values()):<5} {self.accuracy:>7.1%}"
        return "\n".join([*lines, whole, f"observer and reflector: {self.tokens} tokens"])


def moment(text: str) -> datetime:
    """Return a date as the data write it: `2023/05/20 (Sat) 02:21`, or an ISO date."""
    cleaned = " ".join(part for part in text.split() if not part.startswith("("))
    for form in ("%Y/%m/%d %H:%M", "%Y/%m/%d"):
        try:
            return datetime.strptime(cleaned, form).replace(tzinfo=UTC)
        except ValueError:
            continue
    found = datetime.fromisoformat(cleaned)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def read(data: Sequence[Mapping[str, Any]]) -> Iterator[tuple[list[Session], Question]]:
    """Yield the haystack and the question of each item, sessions in the order of their dates."""
    for item in data:
        sessions = []
        for date, turns in zip(item["haystack_dates"], item["haystack_sessions"], strict=True):
            messages = tuple(
                (HumanMessage if turn["role"] == "user" else AIMessage)(turn["content"])
                for turn in turns
                if turn["content"]
            )
            if messages:
                sessions.append(Session(moment(date), messages))
        sessions.sort(key=lambda session: session.at)
        yield (
            sessions,
            Question(
                item["question_id"],
                item["question_type"],
                item["question"],
                str(item["answer"]),
                moment(item["question_date"]),
            ),
        )


class Clock:
    """The time of the conversation."""

    def __init__(self) -> None:
        self.now = datetime(2000, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


def remember(sessions: Sequence[Session], *, observer: Any, message_tokens: int = 30_000) -> tuple[Memory, Clock]:
    """Save sessions and observe them as they come; return the memory and its clock."""
    clock = Clock()
    memory = Memory(
        "memory://",
        observational_memory=ObservationalMemory(
            observation=Observation(model=observer, message_tokens=message_tokens, timeout=600),
            reflection=Reflection(model=observer, timeout=600),
        ),
        clock=clock,
    )
    for number, session in enumerate(sessions):
        clock.now = session.at
        memory.save_messages(
            [stored(message, session.at, f"s{number}-{at}") for at, message in enumerate(session.messages)],
            thread_id="t",
            resource_id="r",
        )
        log = memory.get_observations(thread_id="t", resource_id="r")
        if log.pending_tokens >= message_tokens:
            memory.observe(thread_id="t", resource_id="r")
        if log.tokens >= 40_000:
            memory.reflect(thread_id="t", resource_id="r")
    memory.observe(thread_id="t", resource_id="r")
    return memory, clock


def stored(message: BaseMessage, at: datetime, message_id: str) -> StoredMessage:
    """Return a message with its own date."""
    message.id = message_id
    return StoredMessage(id=message_id, thread_id="t", resource_id="r", seq=0, message=message, created_at=at)


def ask(memory: Memory, clock: Clock, question: Question, model: BaseChatModel) -> str:
    """Ask a question with what the memory shows; nothing of it is kept."""
    clock.now = max(clock.now, question.at)
    agent = create_agent(model, [], middleware=[memory.middleware()], system_prompt=ANSWER)
    config: Any = {"configurable": {"thread_id": "t", "resource_id": "r", "memory": {"read_only": True}}}
    text = f"(It is {question.at:%B %d, %Y}.) {question.text}"
    return str(agent.invoke({"messages": [HumanMessage(text)]}, config)["messages"][-1].text)


def is_right(judge: BaseChatModel, question: Question, given: str) -> bool:
    """Let a judge compare an answer with the right one."""
    asked = JUDGE.format(question=question.text, answer=question.answer, given=given)
    return str(judge.invoke(asked).text).strip().lower().startswith("yes")


def evaluate(
    items: Iterator[tuple[list[Session], Question]], *, model: BaseChatModel, observer: Any, judge: BaseChatModel
) -> Score:
    """Remember, ask and judge each item."""
    score = Score()
    for sessions, question in items:
        memory, clock = remember(sessions, observer=observer)
        with memory:
            score.add(question.kind, right=is_right(judge, question, ask(memory, clock, question, model)))
            score.tokens += memory.usage(resource_id="r").total.total_tokens
    return score


def main() -> None:
    """Run on a file of the data."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--model", required=True, help="answers, as provider:model")
    parser.add_argument("--observer", default=None, help="observes and reflects; the same model by default")
    parser.add_argument("--judge", default=None, help="judges; the same model by default")
    parser.add_argument("--limit", type=int, default=None)
    given = parser.parse_args()
    data = json.loads(given.data.read_text("utf-8"))[: given.limit]
    score = evaluate(
        read(data),
        model=init_chat_model(given.model),
        observer=given.observer or given.model,
        judge=init_chat_model(given.judge or given.model),
    )
    print(score.table())
    sys.exit(0)


if __name__ == "__main__":
    main()
