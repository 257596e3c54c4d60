"""What is said in the demonstration, and a scripted model that can only answer from what it is shown."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from langchain_core.messages import BaseMessage, HumanMessage

RESOURCE: Final = "ada"
SYSTEM: Final = "You are a travel assistant. Answer in one or two short sentences, only from what you were told."

TOLD: Final = (
    "Hi, I'm Ada. I am planning a weekend in Lisbon.",
    "Please remember that I am allergic to peanuts.",
    "I travel with my dog, Pixel, and we take the train on Friday at 9.",
)
"""What the first process is told, turn by turn."""
OTHER_TOLD: Final = ("Could you help me with the quarterly report on Monday?",)
"""What it is told in another thread of the same user."""
ASKED: Final = "Please write one line to the restaurant: who is coming, and what should they know?"
"""The only message that the second process is given."""
ASKED_IN_FORK: Final = "Am I allergic to anything?"
"""What the fork is asked: a line that leaves the conversation before the allergy was mentioned."""

_FACTS: Final[Sequence[tuple[str, str]]] = (
    ("name", r"I'm (\w+)"),
    ("place", r"weekend in (\w+)"),
    ("allergy", r"allergic to (?!anything)(\w+)"),
    ("dog", r"my dog, (\w+)"),
    ("train", r"train on (\w+ at \d+)"),
)


def facts(messages: Sequence[BaseMessage]) -> dict[str, str]:
    """Return what the human messages among these say, by name of the fact."""
    told = "\n".join(message.text for message in messages if isinstance(message, HumanMessage))
    found = {name: re.search(pattern, told) for name, pattern in _FACTS}
    return {name: match[1] for name, match in found.items() if match}


def answer(messages: Sequence[BaseMessage]) -> str:
    """Answer as the scripted model: from the messages that it was sent, and from nothing else."""
    known = facts(messages)
    question = messages[-1].text
    for asked_about, reply in _ANSWERS:
        if asked_about in question:
            return reply(known)
    new = facts(messages[-1:])
    return f"Noted: {', '.join(f'{name} {value}' for name, value in new.items())}." if new else "Gladly."


def _to_the_restaurant(known: dict[str, str]) -> str:
    if not {"name", "allergy", "dog"} <= set(known):
        return "I was told too little to write that."
    return f"{known['name']} is coming with {known['dog']} the dog; no {known['allergy']} in the kitchen, please."


def _about_allergies(known: dict[str, str]) -> str:
    if "allergy" in known:
        return f"Yes, to {known['allergy']}."
    return f"Not that you have told me, {known['name']}." if "name" in known else "Not that you have told me."


_ANSWERS: Final[Sequence[tuple[str, Callable[[dict[str, str]], str]]]] = (
    ("to the restaurant", _to_the_restaurant),
    ("Am I allergic", _about_allergies),
)
