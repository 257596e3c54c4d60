"""Sealing plain data: what a user wrote becomes ciphertext, and everything that a store works with stays.

`Seal.seal` walks the dataclasses of an operation, `Seal.unseal` those of a result. Both follow the table of `walking`;
every message and all bytes are sealed wherever they are.

The cipher is AES-SIV (RFC 5297), deterministic on purpose: equal values have equal ciphertexts, so that metadata can be
filtered by equality and a body is stored once. Whoever reads the file learns which values are equal, and their sizes.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.messages.tool import tool_call

from langchain_mastra_memory.codec import dump_message, load_message
from langchain_mastra_memory.errors import ConfigurationError, InvalidQueryError, StoreCorruptError
from langchain_mastra_memory.store.wrappers.walking import Walk

T = TypeVar("T")

_TOKEN: Final = re.compile("\ue000enc1:([A-Za-z0-9_-]+=*)\ue001")
_MESSAGE: Final = re.compile("\ue000enc1m:([A-Za-z0-9_-]+=*)\ue001")
_MAGIC: Final = b"\0enc1"
_CONTEXT: Final = [b"langchain-mastra-memory"]


class Seal:
    """A key, and older keys that can still open what they sealed."""

    def __init__(self, key: bytes, old_keys: Sequence[bytes] = ()) -> None:
        try:
            from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - an extra
            from cryptography.hazmat.primitives.ciphers.aead import AESSIV  # noqa: PLC0415
        except ImportError as error:
            raise ConfigurationError(
                f"EncryptedStore needs an extra: pip install 'langchain-mastra-memory[encryption]' ({error})"
            ) from error
        for each in (key, *old_keys):
            if not isinstance(each, bytes) or len(each) not in (32, 48, 64):
                raise ConfigurationError("a key must be 32, 48 or 64 random bytes, such as secrets.token_bytes(64)")
        self._ciphers = [AESSIV(each) for each in (key, *old_keys)]
        self._invalid = InvalidTag

    def encrypt(self, plain: bytes) -> bytes:
        """Return the ciphertext of bytes; the same for the same bytes."""
        return self._ciphers[0].encrypt(b"+" + plain, _CONTEXT)  # AES-SIV refuses empty input

    def decrypt(self, sealed: bytes) -> bytes:
        """Undo `encrypt`, with whichever key it takes.

        Raises:
            StoreCorruptError: It was sealed with a key that is not here, or was changed.
        """
        for cipher in self._ciphers:
            try:
                plain: bytes = cipher.decrypt(sealed, _CONTEXT)
            except self._invalid:
                continue
            return plain[1:]
        raise StoreCorruptError("the data cannot be decrypted: it was sealed with another key, or it was changed")

    def seal(self, value: T) -> T:
        """Return an operation with what users wrote sealed."""
        sealed: T = Walk(self._seal_text, self._seal_json, self._seal_bytes, self._seal_message).walk(value)
        return sealed

    def unseal(self, value: T) -> T:
        """Return a result with everything opened; what was never sealed comes back as it is."""
        opened: T = Walk(self._open_text, self._open_json, self._open_bytes, self._open_message).walk(value)
        return opened

    def _token(self, plain: bytes, kind: str = "") -> str:
        return f"\ue000enc1{kind}:{base64.urlsafe_b64encode(self.encrypt(plain)).decode()}\ue001"

    def _seal_text(self, text: str) -> str:
        return self._token(json.dumps(text).encode()) if text.strip() else text  # an empty title is no title

    def _seal_json(self, value: Any) -> Any:
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
            value = int(value)  # equal numbers are equal in a filter
        try:  # lone surrogates survive as escapes
            return self._token(json.dumps(value, allow_nan=False, separators=(",", ":")).encode())
        except (TypeError, ValueError) as error:
            raise InvalidQueryError(f"metadata must be JSON data: {error}") from error

    def _open_json(self, value: Any) -> Any:
        if isinstance(value, str):
            whole = _TOKEN.fullmatch(value)
            return json.loads(self._opened(whole)) if whole else self._open_text(value)
        if isinstance(value, Mapping):  # what the store put together out of sealed values
            return {key: self._open_json(inner) for key, inner in value.items()}
        return [self._open_json(inner) for inner in value] if isinstance(value, list) else value

    def _open_text(self, text: str) -> str:
        """Open every token in a text: a store may have put words around one (`Clone of ...`)."""
        return _TOKEN.sub(lambda token: _as_text(json.loads(self._opened(token))), text)

    def _opened(self, token: re.Match[str]) -> bytes:
        return self.decrypt(base64.urlsafe_b64decode(token[1]))

    def _seal_bytes(self, plain: bytes) -> bytes:
        return _MAGIC + self.encrypt(plain)

    def _open_bytes(self, sealed: bytes) -> bytes:
        return self.decrypt(sealed[len(_MAGIC) :]) if sealed.startswith(_MAGIC) else sealed

    def _seal_message(self, message: BaseMessage) -> BaseMessage:
        return _shell(message, self._token(dump_message(message), "m"))

    def _open_message(self, message: BaseMessage) -> BaseMessage:
        token = _MESSAGE.fullmatch(message.content) if isinstance(message.content, str) else None
        if token is None:
            return message
        opened = load_message(self._opened(token))
        opened.id = message.id  # a copy has an id of its own
        return opened


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _shell(message: BaseMessage, content: str) -> BaseMessage:
    """Return a message of the same type, id and calls that says nothing but `content`."""
    if isinstance(message, AIMessage):
        ids = [call["id"] for call in (*message.tool_calls, *message.invalid_tool_calls)]
        return AIMessage(
            content, id=message.id, tool_calls=[tool_call(name="sealed", args={}, id=each) for each in ids]
        )
    if isinstance(message, ToolMessage):
        return ToolMessage(content, id=message.id, tool_call_id=message.tool_call_id)
    if isinstance(message, ChatMessage):
        return ChatMessage(content=content, id=message.id, role="sealed")
    if isinstance(message, FunctionMessage):
        return FunctionMessage(content=content, id=message.id, name="sealed")
    if isinstance(message, SystemMessage):
        return SystemMessage(content, id=message.id)
    return HumanMessage(content, id=message.id)
