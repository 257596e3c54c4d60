"""The reflector: from the whole log to a shorter one, asked more firmly while it does not shrink."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final

from langchain_core.messages import BaseMessage

from langchain_mastra_memory.errors import ObservationError
from langchain_mastra_memory.observation import calls
from langchain_mastra_memory.observation.caller import Caller
from langchain_mastra_memory.observation.extraction import Extractions
from langchain_mastra_memory.observation.hooks import call
from langchain_mastra_memory.observation.log import Hints, JsonValue, Phase
from langchain_mastra_memory.observation.observer import UnusableError
from langchain_mastra_memory.observation.parsing import Answer, parse_answer
from langchain_mastra_memory.observation.prompts import FIRMER_LEVELS, reflector_input, reflector_system

if TYPE_CHECKING:
    from langchain_mastra_memory.io import IO

TARGET_SHARE: Final = 0.5
"""The size that a reflection is asked for, as a share of its input."""
SHRUNK_SHARE: Final = 0.75
"""A reflection of at most this share of its input is taken without asking again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReflectorResult:
    """What a reflection came to.

    Attributes:
        text: The log, condensed.
        tokens: Its size.
        hints: What it was asked for.
        hinted: Whether hints were asked for.
        extracted: Values by slug.
        failures: Extractors that failed.
        replies: Every model call that was made.
        model: The model's name.
    """

    text: str
    tokens: int
    hints: Hints = field(default_factory=Hints)
    hinted: bool = False
    extracted: Mapping[str, JsonValue] = field(default_factory=dict)
    failures: tuple[Mapping[str, str], ...] = ()
    replies: tuple[calls.Reply, ...] = ()
    model: str | None = None


@dataclass(frozen=True, kw_only=True)
class Reflector(Caller):
    """Condenses the log with the model of the phase; see `Caller` for its other attributes.

    Attributes:
        previous: What was extracted before, by slug.
    """

    phase: ClassVar[Phase] = "reflection"
    previous: Mapping[str, JsonValue] = field(default_factory=dict)

    async def run(self, io: IO, log: str, size: int, *, wish: str = "") -> ReflectorResult:
        """Condense a log.

        Args:
            io: What drives it.
            log: The log as text.
            size: Its size as the agent sees it, in tokens.
            wish: What the caller of `reflect` asks for.

        Raises:
            ObservationError: The model failed, or no answer can be used.
            ProcessorError: A transform hook raised.
        """
        for hooks in self.hooks:
            changed = await call(io, "before_reflection", hooks.before_reflection, log, self.context())
            log = log if changed is None else str(changed)
        options = self.options.reflection
        count = self.memory.token_counter.count_text
        extractions = Extractions(
            memory=self.memory,
            phase="reflection",
            extractors=options.extract,
            thread_id=self.thread_id,
            resource_id=self.resource_id,
            previous=self.previous,
        )
        wanted = options.hints
        hinted = wanted.current_task or wanted.suggested_response
        system = reflector_system(
            instruction=options.instruction,
            task=wanted.current_task,
            response=wanted.suggested_response,
            extractors=extractions.inline,
        )
        model = calls.phase_model(
            self.options, self.phase, count(log), memory=self.memory.options.model, run=self.model
        )
        session = calls.Session(io=io, model=model, attempts=calls.Attempts(options.retries, options.timeout))

        def asked(level: int) -> list[BaseMessage]:
            target = max(1, round(size * TARGET_SHARE))
            return calls.prompt(system, reflector_input(log, target=target, level=level, prompt=wish))

        best = await self._best(session, asked, size, [slug for slug, _ in extractions.inline])
        extractions.said.update(best.extracted)
        extraction = await extractions.run(session, log, best.observations)
        text = best.observations
        for hooks in self.hooks:
            changed = await call(io, "after_reflection", hooks.after_reflection, text, self.context())
            text = text if changed is None else str(changed)
        return ReflectorResult(
            text=text,
            tokens=count(text),
            hints=Hints(
                current_task=best.current_task if wanted.current_task else None,
                suggested_response=best.suggested_response if wanted.suggested_response else None,
            ),
            hinted=hinted,
            extracted=extraction.values,
            failures=extraction.failures,
            replies=tuple(session.replies),
            model=calls.model_name(model),
        )

    async def _best(
        self,
        session: calls.Session,
        asked: Callable[[int], list[BaseMessage]],
        size: int,
        slugs: Sequence[str],
    ) -> Answer:
        """Ask until an answer is clearly smaller, more firmly each time; return the smallest sound one."""
        count = self.memory.token_counter.count_text
        chain = calls.pipeline(session.model, lambda text: parse_answer(text, slugs), "mastra.reflect")
        candidates: list[tuple[int, Answer]] = []
        problem = "empty"
        for level in range(FIRMER_LEVELS + 1):
            try:
                answer = await session.ask(chain, asked(level), "mastra.reflect")
            except ObservationError:
                if candidates:
                    break
                raise
            if answer.problem is None:
                candidates.append((count(answer.observations), answer))
                if candidates[-1][0] <= size * SHRUNK_SHARE:
                    break
            else:
                problem = answer.problem
        if not candidates:
            raise UnusableError(problem, session.replies)
        return min(candidates, key=lambda candidate: candidate[0])[1]
