r"""Cut text into terms and pack them: the lexical index of one message is a blob of about 200 bytes.

A term is the Snowball stem of a word, a character or a pair of characters of a script without spaces, an emoji, a
number, or an identifier (whole, and its parts). Terms are hashed to 28 bits; the low 4 bits of the 32 hold how often
the term occurs, 15 at most. The same code reads documents and queries, so a query has no syntax.

The text is cut with a table from characters to classes, not with `\w`: that splits Thai and Indic words at their
combining marks.
"""

from __future__ import annotations

import re
import struct
import unicodedata
import zlib
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import lru_cache
from hashlib import blake2s
from itertools import pairwise
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from langchain_mastra_memory.forking import new_lock

TERMS_VERSION: Final = 1
"""The version of these rules. A store whose blobs were made by another one needs `reindex()`."""

HASH_MASK: Final = 0xFFFFFFF0
COUNT_MASK: Final = 0xF

# Words that carry no content in English questions and answers. Chosen by measuring: a list of 22 words costs 3.5
# points of recall@10 on LoCoMo, none at all 3.1, a list of 150 another 0.6. "not", "no" and names of people stay.
_STOP: Final = (
    "a an and are as at be been but by did do does for from had has have he her him his how i in is it its me my of "
    "on or our she so that the their them they this to us was we were what when which who will with you your"
)
STOP_WORDS: Final = frozenset(_STOP.split())

MONTHS: Final = (
    "january", "february", "march", "april", "may", "june",
    "july", "august", "september", "october", "november", "december",
)  # fmt: skip

_MEMO_LIMIT: Final = 60_000
_MAX_WORD: Final = 100

# Scripts written without spaces, as ranges of code points (Unicode 15 block boundaries).
_SPACELESS: Final = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Burmese
    (0x1100, 0x11FF),  # Hangul Jamo
    (0x1780, 0x17FF),  # Khmer
    (0x2E80, 0x2FDF),  # CJK radicals
    (0x3005, 0x3007),  # iteration marks
    (0x3021, 0x3029),
    (0x3040, 0x30FF),  # Hiragana, Katakana
    (0x3105, 0x318F),  # Bopomofo, Hangul
    (0x31A0, 0x31FF),
    (0x3400, 0x4DBF),  # Han
    (0x4E00, 0x9FFF),
    (0xA960, 0xA97F),  # Hangul
    (0xAA60, 0xAA7F),  # Burmese
    (0xAC00, 0xD7FF),  # Hangul
    (0xF900, 0xFAFF),
    (0x20000, 0x323AF),
)
# The Snowball algorithm of a script. Latin text is stemmed as English: on other languages that shortens little.
_STEMMERS: Final = (
    (0x0000, 0x024F, "english"),
    (0x0370, 0x03FF, "greek"),
    (0x0400, 0x052F, "russian"),
    (0x0530, 0x058F, "armenian"),
    (0x0600, 0x06FF, "arabic"),
    (0x0900, 0x097F, "hindi"),
    (0x0B80, 0x0BFF, "tamil"),
)
_JOINERS: Final = frozenset("_-./@:#+'\u2019&")
_EMOJI: Final = ((0x1F000, 0x1FAFF), (0x2600, 0x27BF), (0x2190, 0x21FF), (0x2B00, 0x2BFF))


def _in_ranges(code: int, ranges: Sequence[tuple[int, int]]) -> bool:
    return any(low <= code <= high for low, high in ranges)


class _Classes(dict[int, str]):
    """Classes of characters, filled as they are met: w word, s spaceless, m mark, e emoji, j joiner, x other."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        category = unicodedata.category(char)
        if category[0] == "M" or code in (0x200C, 0x200D):
            found = "m"
        elif category[0] == "L" or (category[0] == "N" and char.isalnum()):
            found = "s" if _in_ranges(code, _SPACELESS) else "w"
        elif char in _JOINERS:
            found = "j"
        elif 0x1F3FB <= code <= 0x1F3FF:  # skin tones belong to their emoji
            found = "m"
        elif _in_ranges(code, _EMOJI):
            found = "e"
        else:
            found = "x"
        self[code] = found
        return found


_CLASSES: Final = _Classes()
_RUN: Final = re.compile(r"w[wm]*(?:jw[wm]*)*|s[sm]*|e")
_JOINED: Final = re.compile(r"[_\-./@:#+&]")
_PARTS: Final = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")
_PATH: Final = re.compile(r"[/@:#+&]")
_ISO_DATE: Final = re.compile(r"^((\d{4})-(\d{1,2})-(\d{1,2}))(?:\D|$)")
_CJK_MONTH: Final = re.compile(r"(?<!\d)(\d{1,2})\s?[月월]")
_ASCII_RUN: Final = re.compile(r"[A-Za-z0-9]+(?:[_\-./@:#+'&][A-Za-z0-9]+)*")
_THOUSANDS: Final = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")


class _Stemmer(Protocol):
    def stemWord(self, word: str) -> str: ...  # noqa: N802  # snowballstemmer's name


@lru_cache(maxsize=16)
def _stemmer(language: str) -> _Stemmer:
    import snowballstemmer  # noqa: PLC0415

    made: _Stemmer = snowballstemmer.stemmer(language)
    return made


def _strip_accents(word: str) -> str:
    return "".join(char for char in unicodedata.normalize("NFD", word) if unicodedata.category(char) != "Mn")


def _stem(word: str) -> str:
    """Return the stem of a casefolded word; accents go only where they are spelling variants."""
    if word.isascii():
        return word if word.isdigit() else _stemmer("english").stemWord(word)
    code = ord(word[0])
    if code <= 0x024F:
        return _stemmer("english").stemWord(_strip_accents(word))
    for low, high, language in _STEMMERS:
        if low <= code <= high:
            stem = _stemmer(language).stemWord(word)
            return _strip_accents(stem) if language in {"greek", "russian"} else stem
    return word


def _word_terms(run: str) -> Iterator[str]:
    """Yield the terms of a run of word characters: its stem, or the whole identifier and its parts."""
    run = run.replace("\u2019", "'")
    pieces = [piece for piece in _JOINED.split(run) if piece]
    if len(pieces) > 1:
        yield run.casefold()[:_MAX_WORD]
        if date := _ISO_DATE.match(run):
            if date.end() < len(run):
                yield date[1]
            yield from _date_terms(int(date[2]), int(date[3]), int(date[4]))
            return
        names = _PATH.split(run)  # the host in an address, the file in a path
        if len(names) > 1:
            yield from (name.casefold()[:_MAX_WORD] for name in names if _JOINED.search(name))
    for piece in pieces:
        word = piece.casefold()
        if word in STOP_WORDS:
            continue
        yield _stem(word[:_MAX_WORD])
        if "'" in word or (word.isalpha() and (piece[1:].islower() or piece.isupper())):
            continue
        parts = _PARTS.findall(piece)
        if len(parts) > 1:
            yield from (_stem(part.casefold()) for part in parts if len(part) > 1 or part.isdigit())


def _spaceless_terms(run: str) -> Iterator[str]:
    """Yield the characters of a run (with their marks) and each pair of neighbours."""
    clusters = list(run)
    if "m" in run.translate(_CLASSES):
        clusters = []
        for char in run:
            if clusters and _CLASSES[ord(char)] == "m":
                clusters[-1] += char
            else:
                clusters.append(char)
    yield from clusters
    yield from (first + second for first, second in pairwise(clusters))


def _date_terms(year: int, month: int, day: int) -> Iterator[str]:
    yield str(year)
    if 1 <= month <= 12:
        yield _stem(MONTHS[month - 1])
    yield str(day)


class Tokenizer:
    """Cuts text into hashed terms. Safe to use from any thread.

    Args:
        key: Makes the hashes keyed (blake2s), so that blobs can't be read back with a dictionary; for encryption at
            rest. None hashes with CRC-32.

    Example:
        >>> tokenizer = Tokenizer()
        >>> sorted(tokenizer.words("The hikers reached ERR-42 in 東京"))
        ['42', 'err', 'err-42', 'hiker', 'reach', '京', '東', '東京']
    """

    def __init__(self, key: bytes | None = None) -> None:
        self._key = key
        self._memo: dict[str, tuple[int, ...]] = {}
        self._spaceless: dict[str, int] = {}
        self._lock = new_lock()  # Snowball's stemmers keep their cursor in the object

    def words(self, text: str) -> list[str]:
        """Return the terms of a text before hashing, in order, with repeats."""
        text = _normalised(text)
        terms = [term for run, kind in _runs(text) for term in self._terms_of(run, kind)]
        return terms + [term for name in _month_names(text) for term in self._terms_of(name, "w")]

    def hashes(self, text: str) -> list[int]:
        """Return the hashed terms of a text, in order, with repeats; the low 4 bits are 0."""
        text = _normalised(text)
        found: list[int] = []
        if text.isascii():
            memo = self._memo
            for run in _ASCII_RUN.findall(text):
                known = memo.get(run)
                found += self._word(run) if known is None else known
            return found
        for run, kind in _runs(text):
            if kind == "s":
                found += self._pairs(run)
            else:
                known = self._memo.get(run)
                found += self._word(run, kind) if known is None else known
        for name in _month_names(text):
            found += self._word(name)
        return found

    def hash(self, term: str) -> int:
        """Return the 28-bit hash of a term, in the upper bits of 32."""
        raw = term.encode("utf-8", "surrogatepass")
        if self._key is None:
            return zlib.crc32(raw) & HASH_MASK
        return int.from_bytes(blake2s(raw, key=self._key[:32], digest_size=4).digest(), "little") & HASH_MASK

    def query(self, text: str) -> list[int]:
        """Return the distinct terms of a query, in a fixed order."""
        return sorted(set(self.hashes(text)))

    def document(self, text: str, *, speaker: str | None = None, date: datetime | None = None) -> bytes:
        """Return the term blob of a message.

        Args:
            text: What the message says.
            speaker: Who says it, when it has a name: "what did Ana say" finds it.
            date: When: "in May 2023" finds it. Its words are day, month and year.

        Returns:
            Little-endian u32: the length in terms, then the sorted terms with their counts.
        """
        hashes = self.hashes(f"{speaker} {text}" if speaker else text)
        if date is not None:
            for word in (str(date.year), MONTHS[date.month - 1], str(date.day)):
                known = self._memo.get(word)
                hashes += self._word(word) if known is None else known
        return pack_terms(hashes)

    def _word(self, run: str, kind: str = "w") -> tuple[int, ...]:
        """Return the hashed terms of a run, and remember them: words come again."""
        found = tuple(self.hash(term) for term in self._terms_of(run, kind))
        if len(self._memo) >= _MEMO_LIMIT:
            self._memo.clear()
        self._memo[run] = found
        return found

    def _pairs(self, run: str) -> list[int]:
        """Return the hashed terms of a spaceless run, remembering each: the run itself never comes again."""
        known = self._spaceless
        if len(known) >= _MEMO_LIMIT:
            known.clear()
        found: list[int] = []
        for term in _spaceless_terms(run):
            value = known.get(term)
            if value is None:
                known[term] = value = self.hash(term)
            found.append(value)
        return found

    def _terms_of(self, run: str, kind: str) -> list[str]:
        if kind == "w":
            with self._lock:
                return list(_word_terms(run))
        return list(_spaceless_terms(run)) if kind == "s" else [run]


SHARED: Final = Tokenizer()
"""The tokenizer of this process: what one part has met, the others need not stem again."""


def _normalised(text: str) -> str:
    if not text.isascii() and not unicodedata.is_normalized("NFKC", text):
        text = unicodedata.normalize("NFKC", text)
    return _THOUSANDS.sub("", text) if "," in text else text


def _runs(text: str) -> Iterator[tuple[str, str]]:
    for match in _RUN.finditer(classes := text.translate(_CLASSES)):
        start, end = match.span()
        yield text[start:end], classes[start]


def _month_names(text: str) -> Iterator[str]:
    """Yield the English names of the months that a Chinese, Japanese or Korean date spells with a number."""
    if "月" in text or "월" in text:
        for match in _CJK_MONTH.finditer(text):
            if 1 <= int(match[1]) <= 12:
                yield MONTHS[int(match[1]) - 1]


def pack_terms(hashes: Sequence[int]) -> bytes:
    """Return the blob of a document's hashed terms; see `Tokenizer.document`."""
    counts: dict[int, int] = {}
    for value in hashes:
        counts[value] = counts.get(value, 0) + 1
    terms = sorted(value | min(count, COUNT_MASK) for value, count in counts.items())
    return struct.pack(f"<{len(terms) + 1}I", len(hashes), *terms)


def unpack_terms(blob: bytes) -> npt.NDArray[np.uint32]:
    """Return the numbers of a blob: the length in terms first."""
    return np.frombuffer(blob, dtype="<u4")
