"""Options of observational memory, validated where they are made, resolved into tokens and seconds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    field_validator,
    model_validator,
)

from langchain_mastra_memory.errors import ConfigurationError
from langchain_mastra_memory.models import ModelSpec, checked_model
from langchain_mastra_memory.observation.extractors import Extractor, checked
from langchain_mastra_memory.observation.hooks import ObservationHooks
from langchain_mastra_memory.observation.planning import Limits
from langchain_mastra_memory.shown import shown

MESSAGE_TOKENS: Final = 30_000
OBSERVATION_TOKENS: Final = 40_000
BUFFER_SHARE: Final = 0.2
ACTIVATION: Final = 0.8
REFLECT_SHARE: Final = 0.5
BLOCK_AFTER: Final = 1.2
LEAST_RETENTION: Final = 1000
"""A `buffer_activation` of at least this many is a number of tokens to keep; at most 1 it is a share to remove."""

_UNITS: Final = {
    "ms": 0.001,
    "s": 1,
    "sec": 1,
    "m": 60,
    "min": 60,
    "h": 3600,
    "hr": 3600,
    "hour": 3600,
    "d": 86400,
    "day": 86400,
}
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*", re.IGNORECASE)


class ModelByInputTokens:
    """A model for each size of the input of a phase.

    Args:
        up_to: Tokens to model: an input takes the model of the smallest number that is at least its size.

    Raises:
        ConfigurationError: It is empty, or a number is not positive.

    Example:
        >>> tiers = ModelByInputTokens({10_000: "openai:gpt-5-nano", 1_000_000: "openai:gpt-5-mini"})
        >>> tiers.resolve(10_000), tiers.resolve(10_001)
        ('openai:gpt-5-nano', 'openai:gpt-5-mini')
    """

    def __init__(self, up_to: Mapping[int, ModelSpec]) -> None:
        if not isinstance(up_to, Mapping) or not up_to:
            raise ConfigurationError(
                f"ModelByInputTokens needs at least one size, such as {{100_000: model}}, not {shown(up_to, 60)}"
            )
        for size in up_to:
            if isinstance(size, bool) or not isinstance(size, (int, float)) or not 0 < size < float("inf"):
                raise ConfigurationError(f"a size in tokens must be a positive number, not {shown(size, 40)}")
            checked_model(up_to[size])
        self._tiers = tuple(sorted(up_to.items()))

    @property
    def thresholds(self) -> tuple[int, ...]:
        """The sizes in tokens, ascending."""
        return tuple(size for size, _ in self._tiers)

    def resolve(self, tokens: int) -> ModelSpec:
        """Return the model for an input of this size.

        Raises:
            ConfigurationError: The input is larger than the largest size.
        """
        for size, model in self._tiers:
            if tokens <= size:
                return model
        raise ConfigurationError(f"no model for an input of {tokens} tokens: the largest size is {self.thresholds[-1]}")

    def __repr__(self) -> str:
        return f"ModelByInputTokens({dict(self._tiers)!r})"


def _model(value: object) -> object:
    return value if isinstance(value, ModelByInputTokens) else checked_model(value)


PhaseModel = Annotated[ModelSpec | ModelByInputTokens | None, PlainValidator(_model)]
Idle = float | str | Literal[False] | None


def seconds(value: object) -> object:
    """Return seconds of a number or of a duration such as "5m", "1hr", "90 sec"; "auto" and False stay.

    Raises:
        ConfigurationError: It is none of these, or not positive.
    """
    if value is None or value is False or value == "auto":
        return value
    if isinstance(value, str):
        match = _DURATION.fullmatch(value)
        word = match[2].lower() if match else ""
        unit = _UNITS.get(word, _UNITS.get(word.removesuffix("s")))
        if match is None or unit is None or float(match[1]) <= 0:
            raise ConfigurationError(
                f"a duration is seconds, 'auto' or a text like '5m' or '1hr', not {shown(value, 40)}"
            )
        return float(match[1]) * unit
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
        raise ConfigurationError(f"a duration must be a positive number of seconds, not {shown(value, 40)}")
    return float(value)


Duration = Annotated[Idle, BeforeValidator(seconds)]


def _number(value: object) -> object:
    """Keep False apart from 0, which pydantic's unions take for the same."""
    if value is None or value is False:
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value or value == float("inf"):  # noqa: PLR0124 - NaN
        raise ValueError(f"must be False or a number, not {shown(value, 40)}")
    return value


class _Options(BaseModel):
    """Frozen options whose errors are ours."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True, protected_namespaces=())

    if not TYPE_CHECKING:  # the signature that type checkers see is the fields'

        def __init__(self, **options: Any) -> None:
            try:
                super().__init__(**options)
            except ValidationError as error:
                raise ConfigurationError(_reason(type(self).__name__, error)) from error
            except TypeError as error:  # options in a mapping whose keys are no names
                raise ConfigurationError(f"{type(self).__name__}: {error}") from error


def _reason(name: str, error: ValidationError) -> str:
    parts = []
    for problem in error.errors(include_url=False):
        field = ".".join(str(place) for place in problem["loc"])
        text = problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "extra_forbidden":
            text = f"there is no such option{_elsewhere(name, field)}"
        given = "" if problem["type"] in {"value_error", "missing"} else f", got {shown(problem['input'], 60)}"
        parts.append(f"{name}.{field}: {text}{given}" if field else text)
    return "; ".join(parts)


def _elsewhere(name: str, option: str) -> str:
    """Return a hint for an option that is one of a phase."""
    phases = () if name != "ObservationalMemory" else (Observation, Reflection)
    homes = [f"{phase.__name__.lower()}={phase.__name__}(...)" for phase in phases if option in phase.model_fields]
    return f" here; it belongs into {' or '.join(homes)}" if homes else ""


class ContinuationHints(_Options):
    """Which hints a phase writes.

    Attributes:
        current_task: What is being worked on.
        suggested_response: How the conversation would go on.
    """

    current_task: bool = True
    suggested_response: bool = True


def _hints(value: object) -> ContinuationHints:
    if isinstance(value, bool):
        return ContinuationHints(current_task=value, suggested_response=value)
    if isinstance(value, Mapping):
        return ContinuationHints(**value)
    if not isinstance(value, ContinuationHints):
        raise ValueError(f"must be True, False, or a dict of current_task and suggested_response, not {shown(value)}")  # noqa: TRY004  # pydantic wants a ValueError
    return value


def _attachments(value: object) -> object:
    if isinstance(value, bool) or value == "auto":
        return value
    if isinstance(value, (list, tuple)) and all(isinstance(pattern, str) for pattern in value):
        return tuple(value)
    raise ValueError(f"must be True, False, 'auto', or a list of patterns like 'image/*', not {shown(value, 40)}")


class Retrieval(_Options):
    """The recall tool.

    Attributes:
        vector: Whether it can search.
        scope: Whether it reaches the other threads of the resource.
        instructions: Appended to the built-in instructions.
    """

    vector: bool = False
    scope: Literal["resource", "thread"] = "resource"
    instructions: str = ""


def _retrieval(value: object) -> Retrieval | None:
    if value is None or value is False:
        return None
    if value is True:
        return Retrieval()
    if isinstance(value, Mapping):
        return Retrieval(**value)
    if not isinstance(value, Retrieval):
        raise ValueError(f"must be True, False, or a dict of vector, scope and instructions, not {shown(value)}")  # noqa: TRY004  # pydantic wants a ValueError
    return value


class _Phase(_Options):
    model: PhaseModel = None
    instruction: str = ""
    continuation_hints: Annotated[ContinuationHints | Mapping[str, bool] | bool, PlainValidator(_hints)] = (
        ContinuationHints()
    )
    extract: Sequence[Extractor] = ()
    model_settings: Mapping[str, Any] = Field(default_factory=dict)
    activate_after_idle: Duration = None
    activate_on_provider_change: bool | None = None
    timeout: float = Field(default=120.0, gt=0)
    retries: int = Field(default=2, ge=0, le=10)

    @field_validator("extract", mode="before")
    @classmethod
    def _distinct(cls, value: Sequence[Extractor]) -> tuple[Extractor, ...]:
        return checked(value)

    @property
    def hints(self) -> ContinuationHints:
        """The `continuation_hints`, whichever way they were given."""
        return _hints(self.continuation_hints)


class Observation(_Phase):
    """How messages are observed.

    Attributes:
        model: The observer: a string, a chat model, a Runnable, a function of the runtime, or `ModelByInputTokens`.
        instruction: Appended to the observer's system prompt.
        message_tokens: Raw tokens at which observations take the place of messages.
        buffer_tokens: How often the background observes: a share of `message_tokens` below 1, else tokens; False: never
            (nor does it reflect).
        buffer_activation: How much of the raw messages an activation removes: a share of `message_tokens` up to 1; from
            1000 on, the tokens that it keeps.
        block_after: Above this an activation may leave less than it should: a multiple of `message_tokens` below 100,
            else tokens.
        buffer_on_idle: Whether the background observes at the end of every turn, however short.
        previous_observer_tokens: How much of the log the observer is shown; 0: none, False: all.
        max_tokens_per_batch: Tokens of one call in resource scope; in thread scope a call takes up to the larger of
            this and `message_tokens`. More input makes more calls.
        observe_attachments: Which images and files the observer is shown: all (True), none (False), those whose MIME
            type matches a pattern (`["image/*"]`), or "auto": as the model's profile says.
        thread_title: Whether the observer names the thread.
        continuation_hints: Whether the observer writes the current task and a suggested response: one answer for both,
            or a dict of `current_task` and `suggested_response`.
        extract: Values to extract.
        manage_working_memory: Whether the observer keeps the working memory.
        model_settings: Bound to the model, such as `{"temperature": 0.3}`.
        activate_after_idle: Overrides the option of `ObservationalMemory`.
        activate_on_provider_change: Overrides the option of `ObservationalMemory`.
        timeout: Seconds that a call may take, all retries included.
        retries: How often a failed call is made again, with back-off.
    """

    message_tokens: int = MESSAGE_TOKENS
    buffer_tokens: Annotated[float | Literal[False] | None, PlainValidator(_number)] = None
    buffer_activation: float = ACTIVATION
    block_after: float = BLOCK_AFTER
    buffer_on_idle: bool = False
    previous_observer_tokens: Annotated[int | Literal[False], PlainValidator(_number)] = 2000
    max_tokens_per_batch: int = 10_000
    observe_attachments: Annotated[bool | Literal["auto"] | Sequence[str], PlainValidator(_attachments)] = True
    thread_title: bool = False
    manage_working_memory: bool = False

    @model_validator(mode="after")
    def _check(self) -> Self:
        total = self.message_tokens
        _require(total > 0, "observation.message_tokens must be > 0", total)
        if self.buffer_tokens is not False and self.buffer_tokens is not None:
            _require(self.buffer_tokens > 0, "observation.buffer_tokens must be > 0 or False", self.buffer_tokens)
            size = _tokens(self.buffer_tokens, total)
            _require(0 < size < total, f"observation.buffer_tokens must be less than message_tokens ({total})", size)
        keep = self.buffer_activation
        _require(
            0 < keep <= 1 or LEAST_RETENTION <= keep < total,
            f"observation.buffer_activation must be a share in (0, 1], or tokens from {LEAST_RETENTION} "
            f"to below message_tokens ({total})",
            keep,
        )
        _require(
            _is_block(self.block_after, total),
            f"observation.block_after must be a multiple in [1, 100), or tokens above message_tokens ({total})",
            self.block_after,
        )
        previous = self.previous_observer_tokens
        _require(
            previous is not None and previous >= 0,
            "observation.previous_observer_tokens must be False or at least 0",
            previous,
        )
        batch = self.max_tokens_per_batch
        _require(batch > 0, "observation.max_tokens_per_batch must be > 0", batch)
        return self


class Reflection(_Phase):
    """How the log is condensed.

    Attributes:
        model: The reflector; see `Observation.model`.
        instruction: Appended to the reflector's system prompt.
        observation_tokens: Tokens of the log at which reflections take the place of observations.
        buffer_activation: The share of `observation_tokens` at which the background reflects.
        block_after: Above this a reflection blocks: a multiple of `observation_tokens` below 100, else tokens.
        continuation_hints: Whether the reflector writes the current task and a suggested response: one answer for both,
            or a dict of `current_task` and `suggested_response`.
        extract: Values to extract.
        model_settings: Bound to the model, such as `{"temperature": 0}`.
        activate_after_idle: Activates a waiting reflection early; not inherited.
        activate_on_provider_change: Activates a waiting reflection early; not inherited.
        timeout: Seconds that a call may take, all retries included.
        retries: How often a failed call is made again, with back-off.
    """

    observation_tokens: int = OBSERVATION_TOKENS
    buffer_activation: float = REFLECT_SHARE
    block_after: float = BLOCK_AFTER

    @model_validator(mode="after")
    def _check(self) -> Self:
        total = self.observation_tokens
        _require(total > 0, "reflection.observation_tokens must be > 0", total)
        share = self.buffer_activation
        _require(0 < share <= 1, "reflection.buffer_activation must be a share in (0, 1]", share)
        _require(
            _is_block(self.block_after, total),
            f"reflection.block_after must be a multiple in [1, 100), or tokens above observation_tokens ({total})",
            self.block_after,
        )
        return self


class ObservationalMemory(_Options):
    """Condensing a long conversation into dated observations; see `docs/observations.md`.

    Attributes:
        model: The model of both phases; not together with a phase's own.
        scope: Whether each thread has its observations, or a resource has one log for all of its threads.
        observation: How messages are observed.
        reflection: How the log is condensed.
        temporal_markers: Whether a marker stands before a message that comes at least 10 minutes after the last one.
        retrieval: The recall tool: True, or a dict of its options: `vector` (whether it searches), `scope` (`resource`
            or `thread`), `instructions` (appended to the built-in ones).
        hooks: Functions around observing and reflecting.
        hook_execution: Whether lifecycle hooks are waited for: "await", or "background" (their errors are logged).
        share_token_budget: Whether messages may use what the log leaves of both budgets.
        activate_after_idle: Activates what is buffered after this pause: seconds, a text like "5m", or "auto": as long
            as the provider keeps a prompt cache.
        activate_on_provider_change: Activates what is buffered when another model answers.

    Raises:
        ConfigurationError: A value is out of its range, or options exclude each other.

    Example:
        >>> ObservationalMemory().limits().retention
        6000
    """

    model: PhaseModel = None
    scope: Literal["thread", "resource"] = "thread"
    observation: Observation = Field(default_factory=Observation)
    reflection: Reflection = Field(default_factory=Reflection)
    temporal_markers: bool = False
    retrieval: Annotated[Retrieval | Mapping[str, Any] | bool | None, PlainValidator(_retrieval)] = None
    hooks: ObservationHooks | None = None
    hook_execution: Literal["background", "await"] = "background"
    share_token_budget: bool = False
    activate_after_idle: Duration = None
    activate_on_provider_change: bool = False

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.model is not None and (self.observation.model is not None or self.reflection.model is not None):
            raise ConfigurationError("give one model to ObservationalMemory, or one to each phase, not both")
        explicit = self.observation.buffer_tokens
        if self.scope == "resource" and explicit is not None and explicit is not False:
            raise ConfigurationError(
                "observation.buffer_tokens needs scope='thread'; with scope='resource' leave it out or give False"
            )
        if self.share_token_budget and explicit is not False:
            raise ConfigurationError(
                "share_token_budget needs buffering to be off: add observation=Observation(buffer_tokens=False)"
            )
        return self

    @property
    def recall_tool(self) -> Retrieval | None:
        """The `retrieval`, whichever way it was given."""
        return _retrieval(self.retrieval)

    @property
    def buffers(self) -> bool:
        """Whether the background observes and reflects."""
        return self.scope == "thread" and self.observation.buffer_tokens is not False

    def limits(self) -> Limits:
        """Return the options in tokens."""
        observation, reflection = self.observation, self.reflection
        total, log = observation.message_tokens, reflection.observation_tokens
        every = BUFFER_SHARE if observation.buffer_tokens is None else observation.buffer_tokens
        keep = observation.buffer_activation
        return Limits(
            message_tokens=total,
            buffer_tokens=max(1, _tokens(every, total)) if self.buffers else None,
            retention=round(total * (1 - keep)) if keep <= 1 else int(keep),
            block_after=_block(observation.block_after, total),
            observation_tokens=log,
            reflect_from=round(log * reflection.buffer_activation) if self.buffers else None,
            reflect_block=_block(reflection.block_after, log),
            share=self.share_token_budget,
        )


def _require(holds: bool, message: str, value: object) -> None:
    if not holds:
        raise ConfigurationError(f"{message}, got {shown(value, 40)}")


def _tokens(value: float, total: int) -> int:
    return round(value * total) if value < 1 else int(value)


def _is_block(value: float, total: int) -> bool:
    return 1 <= value < 100 or (value >= 100 and value > total)


def _block(value: float, total: int) -> int:
    return round(value * total) if value < 100 else int(value)
