"""Reading what an observer or a reflector answers, whatever shape it comes in; pure text in, plain data out."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final, Literal

LONG_ENOUGH: Final = 2000
"""Characters below which an answer is never taken for a loop."""
COUNTED_LINE: Final = 24
"""Characters of a line that counts; shorter ones repeat in sound lists too."""
COUNTED_LINES: Final = 20
"""Lines from which repetition is judged."""
SENTENCE_LINE: Final = 400
"""Characters of a line above which its sentences are judged."""

SECTIONS: Final = ("observations", "current-task", "suggested-response", "thread-title")

_FENCE = re.compile(r"^[ \t]*(?:```|~~~)[\w-]*[ \t]*$\n?", re.MULTILINE)
_BULLET = re.compile(
    r"^\s*(?:[-*+\u2022\u2023\u2043\u25aa\u25ab\u25cf\u25cb\u25e6\u00b7\u2219\u2013\u2014\u25ba\u25b8]|\d{1,3}[.)])\s+\S"
)
_DATE = re.compile(r"^\s*(?:#+\s*)?(?:\*\*)?Date:", re.IGNORECASE)
_NOTHING = re.compile(r"\W*(?:no(?:ne|thing)?(?: new)?(?: observations?)?|n/?a|empty)\W*", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What an answer says.

    Attributes:
        observations: The observations; empty when there is nothing usable.
        current_task: What is being worked on.
        suggested_response: How the conversation would go on.
        thread_title: A title.
        extracted: Inline extractor values by slug.
        problem: Why there are no observations.
    """

    observations: str = ""
    current_task: str | None = None
    suggested_response: str | None = None
    thread_title: str | None = None
    extracted: dict[str, str] = field(default_factory=dict)
    problem: Literal["empty", "degenerate"] | None = None


def parse_answer(text: str, slugs: Sequence[str] = ()) -> Answer:
    r"""Read an answer: tags on one line or on many, missing end tags, code fences, lists of any bullet, prose around.

    Args:
        text: What the model said.
        slugs: Tags of inline extractors.

    Example:
        >>> parse_answer("Sure!\\n<observations>* likes tea</observations>").observations
        '* likes tea'
    """
    if is_degenerate(text):
        return Answer(problem="degenerate")
    text = _FENCE.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    names = (*SECTIONS, *slugs)
    observations = _observations(text, names)
    hints = {name: _section(text, name, names) for name in SECTIONS[1:]}
    return Answer(
        observations=observations,
        current_task=hints["current-task"],
        suggested_response=hints["suggested-response"],
        thread_title=hints["thread-title"],
        extracted={slug: value for slug in slugs if (value := _section(text, slug, names)) is not None},
        problem=None if observations else "empty",
    )


def is_degenerate(text: str) -> bool:
    """Return whether a model has fallen into a loop: a long answer, most of it the same line or sentence again."""
    if len(text) < LONG_ENOUGH:
        return False
    pieces: list[str] = []
    for line in text.splitlines():
        stripped = line.strip()
        if len(stripped) > SENTENCE_LINE:
            pieces += [
                part.strip() for part in re.split(r"[.!?;]\s", stripped) if len(part.strip()) >= COUNTED_LINE // 2
            ]
        elif len(stripped) >= COUNTED_LINE:
            pieces.append(stripped)
    if len(pieces) < COUNTED_LINES:
        return False
    counts = Counter(pieces)
    most = counts.most_common(1)[0][1]
    return most > len(pieces) / 2 or len(counts) < len(pieces) / 8


def _observations(text: str, names: Sequence[str]) -> str:
    found = _section(text, "observations", names, anywhere=True)
    if found is None:
        rest = text
        for name in names[1:]:
            rest = re.sub(
                rf"<{re.escape(name)}\b[^>]*>.*?(?:</{re.escape(name)}\s*>|\Z)",
                "",
                rest,
                flags=re.DOTALL | re.IGNORECASE,
            )
        found = "\n".join(line for line in rest.split("\n") if _BULLET.match(line) or _DATE.match(line)).rstrip()
        return found if any(_BULLET.match(line) for line in found.split("\n")) else ""
    return "" if _NOTHING.fullmatch(found) else found


def _section(text: str, name: str, names: Sequence[str], *, anywhere: bool = False) -> str | None:
    """Return the content of a tag that starts its line; with `anywhere`, of one inside a line if no other is there.

    The end tag is one that starts its line; else the last one before the same tag opens again; without any, the
    content goes on to the next section or to the end.
    """
    tag = re.escape(name)
    opened = list(re.finditer(rf"^[ \t]*<{tag}(?:\s[^<>]*)?>", text, re.IGNORECASE | re.MULTILINE))
    if not opened and anywhere:
        opened = list(re.finditer(rf"<{tag}(?:\s[^<>]*)?>", text, re.IGNORECASE))[:1]
    parts = []
    behind = 0
    for number, start in enumerate(opened):
        if start.start() < behind:
            continue
        limit = opened[number + 1].start() if number + 1 < len(opened) else len(text)
        body = text[start.end() : limit]
        end = re.search(rf"^[ \t]*</{tag}\s*>", body, re.IGNORECASE | re.MULTILINE)
        if end is None or "\n" not in body[: end.start()]:
            ends = list(re.finditer(rf"</{tag}\s*>", body, re.IGNORECASE))
            end = ends[-1] if ends else None
        if end is not None:
            body = body[: end.start()]
        else:
            others = "|".join(re.escape(other) for other in names if other != name)
            following = re.search(rf"^[ \t]*</?(?:{others})\b[^>]*>", body, re.IGNORECASE | re.MULTILINE)
            body = body[: following.start()] if following else body
        behind = start.end() + len(body)
        content = textwrap.dedent(body).strip()
        if content:
            parts.append(content)
    return "\n".join(parts) or None


_MINOR = re.compile(r"[🟡🟢]\ufe0f?[ \t]*")
_LABEL = re.compile(r"(`[^`\n]*`)|(?<![\w\])])\[(?! ?\]|[xX]\])([^\[\]\n]*)\](?!\()")
_COLLAPSED = re.compile(r"\d+ items? collapsed\b.*", re.IGNORECASE)


@lru_cache(maxsize=2048)  # rows are immutable and shown at every model call
def for_context(observations: str) -> str:
    r"""Return observations as the agent reads them: minor markers and labels dropped, code and nesting kept.

    Example:
        >>> for_context("* 🔴 a\\n  * 🟡 [tag] uses arr[0]")
        '* 🔴 a\\n  * uses arr[0]'
    """
    lines = []
    for line in observations.split("\n"):
        text = _LABEL.sub(_keep, _MINOR.sub("", line))
        indent = text[: len(text) - len(text.lstrip())]
        lines.append((indent + re.sub(r"[ \t]{2,}", " ", text.lstrip())).rstrip())
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def _keep(match: re.Match[str]) -> str:
    if match[1] is not None:  # code
        return match[0]
    return match[0] if _COLLAPSED.fullmatch(match[2].strip()) else ""


_THREAD = re.compile(
    r"<thread\s+id\s*=\s*[\"']?([^\"'>]*)[\"']?[^>]*>(.*?)(?=</thread\s*>|<thread\s|\Z)", re.DOTALL | re.IGNORECASE
)


def parse_threads(text: str, slugs: Sequence[str] = ()) -> dict[str, Answer]:
    """Read an answer about several threads: by the id of each thread tag, what it says of that thread.

    Observations may stand in tags of their own inside the thread tag, or the thread tags inside the observations.
    """
    if is_degenerate(text):
        return {}
    found = {}
    text = _FENCE.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    for match in _THREAD.finditer(text):
        body = match[2]
        answer = parse_answer(body, slugs)
        if not re.search(r"<observations\b", body, re.IGNORECASE):
            rest = body
            for name in (*SECTIONS[1:], *slugs):
                tag = re.escape(name)
                rest = re.sub(rf"<{tag}\b[^>]*>.*?(?:</{tag}\s*>|\Z)", "", rest, flags=re.DOTALL | re.IGNORECASE)
            rest = textwrap.dedent(rest).strip()
            answer = replace(answer, observations=rest, problem=None if rest else "empty")
        found[match[1].strip()] = answer
    return found
