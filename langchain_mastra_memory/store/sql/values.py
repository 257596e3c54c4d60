"""How Python values stand in the database: text that always fits, JSON as text, times as integers.

PostgreSQL refuses NUL in text and both engines refuse lone surrogates, but any string that Python can hold must
survive. So a character that does not fit is written as U+FFFF (a noncharacter, which is escaped itself) and four hex
digits.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from langchain_mastra_memory.errors import InvalidQueryError
from langchain_mastra_memory.shown import shown

ESCAPE: Final = "\uffff"
_UNSAFE: Final = re.compile("[\x00\uffff\ud800-\udfff]")
_ESCAPED: Final = re.compile("\uffff([0-9a-f]{4})")
# json.dumps writes NUL as this escape, which PostgreSQL's jsonb refuses; an odd backslash starts it.
_JSON_NUL: Final = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")
_JSON: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def encode_text(text: str) -> str:
    """Return text that every engine can store; text without odd characters comes back as it is."""
    if text.isascii() and "\0" not in text:
        return text
    return _UNSAFE.sub(lambda match: f"{ESCAPE}{ord(match[0]):04x}", text)


def decode_text(text: str) -> str:
    """Undo `encode_text`."""
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text)


def dump_json(value: object) -> str:
    """Return the JSON text of metadata, readable as jsonb on PostgreSQL.

    Raises:
        InvalidQueryError: The value is not JSON: it has another type, a key that is not a string, or NaN.
    """
    try:
        text = _JSON.encode(value)
    except (TypeError, ValueError) as error:
        raise InvalidQueryError(f"metadata must be JSON data: {error}") from error
    return _JSON_NUL.sub("\\1\0", text) if "\\u0000" in text else text


def load_json(text: str | None) -> dict[str, Any]:
    """Return the object of a JSON text; an empty one for None."""
    if not text or text == "{}":
        return {}
    loaded: dict[str, Any] = json.loads(text, strict=False)  # a raw NUL may stand in a string, see dump_json
    return loaded


def check_json_keys(metadata: Mapping[Any, Any]) -> None:
    """Refuse keys that are not strings: `json.dumps` would turn 1 into "1" without a word.

    Raises:
        InvalidQueryError: A key is not a string.
    """
    for key in metadata:
        if not isinstance(key, str):
            raise InvalidQueryError(f"metadata keys must be strings, not {shown(key, 80)}")


def to_micros(moment: datetime) -> int:
    """Return microseconds since 1970 UTC; a naive time is taken as UTC."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    """Return the aware UTC time of `to_micros`."""
    return _EPOCH + timedelta(microseconds=micros)
