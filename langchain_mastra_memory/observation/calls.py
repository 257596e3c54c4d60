"""Calling the models of observing and reflecting: which one, with a deadline, again when it fails, at what cost."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.runnables import Runnable, RunnableLambda

from langchain_mastra_memory.errors import ConfigurationError, ObservationError, ProcessorError
from langchain_mastra_memory.models import ModelSpec, chat_model, internal_config
from langchain_mastra_memory.observation.options import ModelByInputTokens, Observation, ObservationalMemory, Reflection

if TYPE_CHECKING:
    from langchain_mastra_memory.io import IO

Out = TypeVar("Out")
In = TypeVar("In")

RETRY_DELAY: Final = 0.5
"""Seconds before the first retry; each further one waits twice as long."""

_LABELS: Final = {"observation": "the observer", "reflection": "the reflector", "summary": "the summarizer"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a model said and what it cost.

    Attributes:
        text: Its text.
        usage: Input, output and total tokens, as LangChain counts them.
        metadata: What the provider says of the call.
        model: The model's name.
        seconds: How long it took.
    """

    text: str
    usage: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    model: str | None = None
    seconds: float = 0.0


def phase_model(
    options: ObservationalMemory,
    phase: Literal["observation", "reflection"],
    tokens: int,
    *,
    memory: ModelSpec | None,
    run: BaseChatModel | None = None,
) -> Runnable[Any, Any]:
    """Return the model of a phase: its own, that of both, the other phase's, the memory's, the agent's.

    Args:
        options: The options.
        phase: Which.
        tokens: The size of the input, for `ModelByInputTokens`.
        memory: The memory's default model.
        run: The agent's own model.

    Raises:
        ConfigurationError: There is none, or none for an input of this size.
    """
    own: Observation | Reflection = options.observation if phase == "observation" else options.reflection
    other: Observation | Reflection = options.reflection if phase == "observation" else options.observation
    candidates: list[ModelSpec | None] = []
    for given in (own.model, options.model, other.model):
        if given is not None:
            candidates.append(given.resolve(tokens) if isinstance(given, ModelByInputTokens) else given)
            break
    model = chat_model(*candidates, memory, run, what=_LABELS[phase])
    return model.bind(**own.model_settings) if own.model_settings else model


def bare(model: Runnable[Any, Any]) -> Any:
    """Return the model under its bindings."""
    while hasattr(model, "bound"):
        model = model.bound
    return model


def model_name(model: Runnable[Any, Any]) -> str | None:
    """Return the name of a model, as its provider spells it."""
    inner = bare(model)
    for attribute in ("model_name", "model", "model_id"):
        name = getattr(inner, attribute, None)
        if isinstance(name, str):
            return name
    return type(inner).__name__


def accepted_attachments(model: Runnable[Any, Any]) -> bool | list[str]:
    """Return which attachments a model can read, by its profile: everything when it has none."""
    profile = getattr(bare(model), "profile", None)
    if not profile:
        return True
    kinds = {
        "image_inputs": "image/*",
        "pdf_inputs": "application/pdf",
        "audio_inputs": "audio/*",
        "video_inputs": "video/*",
    }
    return [mime for key, mime in kinds.items() if profile.get(key)]


def pipeline(model: Runnable[Any, Any], read: Callable[[str], Out], name: str) -> Runnable[Any, tuple[Reply, Out]]:
    """Return model and parser as one named Runnable, from the messages of a prompt to the reply and what it says."""

    def parse(answer: Any) -> tuple[Reply, Out]:
        reply = reply_of(answer, model)
        return reply, read(reply.text)

    chain: Runnable[Any, tuple[Reply, Out]] = model | RunnableLambda(parse, name="parse")
    return chain.with_config(run_name=name)


def reply_of(answer: Any, model: Runnable[Any, Any]) -> Reply:
    """Return what a model said, with its cost."""
    if isinstance(answer, BaseMessage):
        usage = dict(answer.usage_metadata or {}) if isinstance(answer, AIMessage) else {}
        metadata = {k: v for k, v in answer.response_metadata.items() if isinstance(v, (str, int, float, bool, dict))}
        name = metadata.get("model_name")
        return Reply(
            text=str(answer.text),
            usage=usage,
            metadata=metadata,
            model=name if isinstance(name, str) else model_name(model),
        )
    return Reply(text=str(answer), model=model_name(model))


def prompt(system: str, text: str, attachments: Sequence[Mapping[str, Any]] = ()) -> list[BaseMessage]:
    """Return the messages of a call; attachments stand beside the text that names them."""
    if not attachments:
        return [SystemMessage(system), HumanMessage(text)]
    return [SystemMessage(system), HumanMessage([{"type": "text", "text": text}, *map(dict, attachments)])]


async def invoke(io: IO, chain: Runnable[In, Out], value: In, *, name: str, seconds: float) -> Out:
    """Invoke a Runnable as a child run of our own, for at most `seconds`.

    Raises:
        TimeoutError: It took longer; what it answers later is not looked at.
    """
    config = internal_config(name)
    if io.is_async:
        return await asyncio.wait_for(io.invoke(chain, value, config), seconds)
    return _within(lambda: chain.invoke(value, config), seconds)


def _within(work: Callable[[], Out], seconds: float) -> Out:
    """Run blocking work in a thread of its own: a model that hangs must not hold the caller, nor the exit."""
    done = threading.Event()
    result: list[Out] = []
    failure: list[BaseException] = []
    context = contextvars.copy_context()

    def run() -> None:
        try:
            result.append(context.run(work))
        except BaseException as error:  # noqa: BLE001 - raised in the caller
            failure.append(error)
        finally:
            done.set()

    threading.Thread(target=run, name="mastra-model-call", daemon=True).start()
    if not done.wait(seconds):
        raise TimeoutError(f"the model did not answer within {seconds:g} s")
    if failure:
        raise failure[0]
    return result[0]


@dataclass
class Attempts:
    """How often a call may be made, and until when.

    Attributes:
        retries: Further calls after the first.
        timeout: Seconds for all of them together.
    """

    retries: int
    timeout: float
    started: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self.timeout - (time.monotonic() - self.started)

    async def run(self, io: IO, work: Callable[[float], Any]) -> Any:
        """Call `work(seconds left)` until it succeeds.

        Raises:
            ObservationError: The last attempt failed; its error is the cause.
        """
        attempt = 0
        while True:
            try:
                if self.left <= 0:
                    raise TimeoutError(f"no answer within {self.timeout:g} s")  # noqa: TRY301 - handled like the model's
                return await work(self.left)
            except (ConfigurationError, ProcessorError):
                raise
            except Exception as error:
                delay = RETRY_DELAY * 2**attempt
                if attempt >= self.retries or delay >= self.left:
                    raise ObservationError(f"{type(error).__name__}: {error}") from error
                attempt += 1
                await io.call(_pause, _apause, delay)


def _pause(seconds: float) -> None:
    time.sleep(seconds)


async def _apause(seconds: float) -> None:
    await asyncio.sleep(seconds)


@dataclass(kw_only=True)
class Session:
    """The model calls of one observation or reflection.

    Attributes:
        io: What drives them.
        model: The model.
        attempts: How often and until when.
        replies: Every call that was made so far.
    """

    io: IO
    model: Runnable[Any, Any]
    attempts: Attempts
    replies: list[Reply] = field(default_factory=list)

    async def ask(self, chain: Runnable[Any, Any], value: Any, name: str) -> Any:
        """Invoke a Runnable of this model, again when it fails; `chain` gives a `Reply` and what was read of it.

        Raises:
            ObservationError: It failed for good.
        """

        async def once(left: float) -> Any:
            started = time.perf_counter()
            reply, read = await invoke(self.io, chain, value, name=name, seconds=left)
            self.replies.append(replace(reply, seconds=time.perf_counter() - started))
            return read

        return await self.attempts.run(self.io, once)


def merged_usage(usages: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return the tokens of several calls together."""
    keys = ("input_tokens", "output_tokens", "total_tokens")
    return {key: sum(int(usage.get(key) or 0) for usage in usages) for key in keys}
