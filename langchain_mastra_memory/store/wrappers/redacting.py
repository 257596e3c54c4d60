"""A store that never sees what must not be kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from langchain_mastra_memory.errors import ProcessorError
from langchain_mastra_memory.store.base import MemoryStore, Operation
from langchain_mastra_memory.store.wrappers.base import Inner, StoreWrapper
from langchain_mastra_memory.store.wrappers.walking import Walk

T = TypeVar("T")

BLOCK_TEXTS: Final = frozenset({"text", "reasoning", "thinking", "content", "output", "input"})
"""Keys of content blocks that hold text."""


class RedactingStore(StoreWrapper):
    """Changes every text on its way into the store: card numbers, addresses, whatever must not be kept.

    What is changed: the text of messages (contents, arguments of tool calls, artifacts), in the archive and in
    checkpoints; titles; metadata values; working-memory pages; observations. What is not: ids, keys, names, and
    values of a graph's state other than messages, which the checkpointer's serializer has turned into bytes. The run
    under way still has the original; from the store it comes back redacted.

    Args:
        store: The store to wrap.
        redact: Returns a text without what must not be kept. It must give the same for the same text, and change
            nothing in what it gave. If it raises, the write is a `ProcessorError`, and nothing is written.

    Example:
        >>> import re
        >>> from langchain_mastra_memory import Memory, SQLMemoryStore
        >>> store = RedactingStore(SQLMemoryStore("memory://"), lambda text: re.sub(r"[0-9]{4}", "****", text))
        >>> with Memory(store) as memory:
        ...     _ = memory.save_messages([{"role": "user", "content": "PIN 1234"}], thread_id="t", resource_id="ada")
        ...     print(memory.recall(thread_id="t")[0].message.content)
        PIN ****
    """

    def __init__(self, store: MemoryStore, redact: Callable[[str], str]) -> None:
        super().__init__(store)
        self._function = redact
        self._walk = Walk(self._redact, self._json, lambda raw: raw, self._message)

    async def around(self, operation: Operation[T], inner: Inner) -> T:
        """Redact what the operation brings."""
        result: T = await inner(self._walk.walk(operation) if operation.writes else operation)
        return result

    def _redact(self, text: str) -> str:
        try:
            redacted: object = self._function(text)
        except Exception as error:
            raise ProcessorError(
                f"the redact function of a RedactingStore raised {type(error).__name__}; nothing was written"
            ) from error
        if not isinstance(redacted, str):
            raise ProcessorError(
                f"the redact function of a RedactingStore returned a {type(redacted).__name__}, not a text; nothing "
                "was written"
            )
        return redacted

    def _json(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._redact(value)
        if isinstance(value, Mapping):
            return {key: self._json(inner) for key, inner in value.items()}
        return [self._json(inner) for inner in value] if isinstance(value, (list, tuple)) else value

    def _block(self, block: Any) -> Any:
        if not isinstance(block, Mapping):
            return self._redact(block) if isinstance(block, str) else block
        return {key: self._json(inner) if key in BLOCK_TEXTS else inner for key, inner in block.items()}

    def _message(self, message: BaseMessage) -> BaseMessage:
        content = message.content
        changed: dict[str, Any] = {
            "content": self._redact(content) if isinstance(content, str) else [self._block(block) for block in content]
        }
        if isinstance(message, AIMessage):
            changed["tool_calls"] = [{**call, "args": self._json(call["args"])} for call in message.tool_calls]
            changed["invalid_tool_calls"] = [
                {**call, "args": self._json(call["args"])} for call in message.invalid_tool_calls
            ]
        if isinstance(message, ToolMessage):
            changed["artifact"] = self._json(message.artifact)
        return message.model_copy(update=changed)
