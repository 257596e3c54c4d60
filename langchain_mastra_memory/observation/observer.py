"""The observer: from a range of messages to observations, hints and extracted values. It commits nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final

from langchain_core.messages import BaseMessage

from langchain_mastra_memory.errors import ObservationError
from langchain_mastra_memory.observation import calls
from langchain_mastra_memory.observation.caller import Caller
from langchain_mastra_memory.observation.extraction import Extractions
from langchain_mastra_memory.observation.formatting import Shown, Transcript, parts_of, previous_tail, transcript
from langchain_mastra_memory.observation.hooks import call
from langchain_mastra_memory.observation.log import Hints, JsonValue, Phase
from langchain_mastra_memory.observation.parsing import Answer, is_degenerate, parse_answer, parse_threads
from langchain_mastra_memory.observation.prompts import observer_input, observer_system
from langchain_mastra_memory.observation.render import obscured

if TYPE_CHECKING:
    from langchain_mastra_memory.io import IO

DEGENERATE_RETRIES: Final = 1
"""How often an observer that repeats itself is asked again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadInput:
    """The range of one thread that is to be observed.

    Attributes:
        thread_id: The thread.
        messages: In order.
        hints: What is known of task, response and title.
        extracted: The last value of every extractor.
    """

    thread_id: str
    messages: Sequence[Shown]
    hints: Hints = field(default_factory=Hints)
    extracted: Mapping[str, JsonValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadOutput:
    """What an observer says of one thread.

    Attributes:
        observations: The text; empty when a hook emptied the range.
        hints: What it was asked for.
        extracted: Values by slug.
        failures: Extractors that failed: slug and reason.
    """

    observations: str = ""
    hints: Hints = field(default_factory=Hints)
    extracted: Mapping[str, JsonValue] = field(default_factory=dict)
    failures: tuple[Mapping[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ObserverResult:
    """What a call came to.

    Attributes:
        threads: By thread id; a thread of which nothing usable was said is not in it.
        hinted: Whether hints were asked for.
        replies: Every model call that was made.
        model: The model's name.
    """

    threads: Mapping[str, ThreadOutput]
    hinted: bool
    replies: tuple[calls.Reply, ...] = ()
    model: str | None = None


class UnusableError(ObservationError):
    """The model's answer cannot be used: it is empty or repeats itself; nothing was changed."""

    def __init__(self, reason: str, replies: Sequence[calls.Reply] = ()) -> None:
        super().__init__(f"the model's answer cannot be used: it is {reason}")
        self.reason = reason
        self.replies = tuple(replies)


@dataclass(frozen=True, kw_only=True)
class Observer(Caller):
    """Makes observations with the model of the phase; see `Caller` for its other attributes.

    Attributes:
        previous: The log and the buffer as text, a waiting reflection in place of what it condenses.
    """

    phase: ClassVar[Phase] = "observation"
    previous: str = ""

    @property
    def hinted(self) -> bool:
        """Whether hints are asked for: not in the background, where they would be old when they are shown."""
        wanted = self.options.observation.hints
        return self.trigger != "async-buffer" and (wanted.current_task or wanted.suggested_response)

    async def run(self, io: IO, inputs: Sequence[ThreadInput]) -> ObserverResult:
        """Observe ranges of one thread, or of several in one call.

        Raises:
            ObservationError: The model failed, or what it said cannot be used.
            ProcessorError: A transform hook raised.
            ConfigurationError: There is no model.
        """
        kept, emptied = [], {}
        for given in inputs:
            messages = await self._before(io, given.messages)
            if messages:
                kept.append(replace(given, messages=messages))
            else:
                emptied[given.thread_id] = ThreadOutput()
        if not kept:
            return ObserverResult(threads=emptied, hinted=False)
        result = await self._observe(io, kept)
        outputs = {}
        for thread_id, output in result.threads.items():
            text = output.observations
            for hooks in self.hooks:
                changed = await call(io, "after_observation", hooks.after_observation, text, self.context())
                text = text if changed is None else str(changed)
            outputs[thread_id] = replace(output, observations=text)
        return replace(result, threads={**emptied, **outputs})

    async def _before(self, io: IO, messages: Sequence[Shown]) -> Sequence[Shown]:
        for hooks in self.hooks:
            if hooks.before_observation is None or not messages:
                continue
            given = [shown.message for shown in messages]
            changed = await call(io, "before_observation", hooks.before_observation, given, self.context())
            if changed is not None:
                messages = _matched(messages, list(changed))
        return messages

    async def _observe(self, io: IO, inputs: Sequence[ThreadInput]) -> ObserverResult:
        count = self.memory.token_counter.count_text
        options = self.options.observation
        together = self._together(inputs)
        first = inputs[0]
        extractions = Extractions(
            memory=self.memory,
            phase="observation",
            extractors=options.extract,
            thread_id=first.thread_id if not together else None,
            resource_id=self.resource_id,
            previous=first.extracted,
            manage_working_memory=options.manage_working_memory,
        )
        wanted = options.hints
        system = observer_system(
            instruction=options.instruction,
            task=self.hinted and wanted.current_task,
            response=self.hinted and wanted.suggested_response,
            title=options.thread_title,
            extractors=extractions.inline,
            threads=together,
        )
        tail = previous_tail(self.previous, options.previous_observer_tokens, count)
        size = count(tail.text) + sum(count(str(s.message.text)) for given in inputs for s in given.messages)
        model = calls.phase_model(self.options, self.phase, size, memory=self.memory.options.model, run=self.model)
        attachments = options.observe_attachments
        seen = transcripts(
            inputs,
            count,
            calls.accepted_attachments(model) if attachments == "auto" else attachments,
            together=together,
        )
        limit = max(options.max_tokens_per_batch, options.message_tokens)
        pieces = parts_of(seen.text, limit, count)
        session = calls.Session(io=io, model=model, attempts=calls.Attempts(options.retries, options.timeout))
        answers: list[Mapping[str, Answer]] = []
        for number, piece in enumerate(pieces, start=1):
            text = observer_input(
                piece,
                previous=tail.text,
                truncated=tail.truncated,
                hints=first.hints if self.hinted else Hints(thread_title=first.hints.thread_title),
                title=options.thread_title,
                extracted=extractions.shown,
                part=(number, len(pieces)),
            )
            messages = calls.prompt(system, text, seen.attachments if number == 1 else ())
            answers.append(await self._ask(session, messages, extractions, inputs))
        outputs = {}
        for given in inputs:
            said = [answer[given.thread_id] for answer in answers if given.thread_id in answer]
            if said:
                outputs[given.thread_id] = self._output(said)
        if not outputs:
            raise UnusableError("empty", session.replies)
        noted = "\n\n".join(output.observations for output in outputs.values())
        extraction = await extractions.run(session, seen.text, noted)
        first_id = next(iter(outputs))
        outputs[first_id] = replace(outputs[first_id], extracted=extraction.values, failures=extraction.failures)
        return ObserverResult(
            threads=outputs,
            hinted=self.hinted,
            replies=tuple(session.replies),
            model=calls.model_name(model),
        )

    async def _ask(
        self,
        session: calls.Session,
        messages: list[BaseMessage],
        extractions: Extractions,
        inputs: Sequence[ThreadInput],
    ) -> Mapping[str, Answer]:
        slugs = [slug for slug, _ in extractions.inline]

        def read(text: str) -> Mapping[str, Answer]:
            if not self._together(inputs):
                return {inputs[0].thread_id: parse_answer(text, slugs)}
            names = {obscured(given.thread_id): given.thread_id for given in inputs}
            names |= {given.thread_id: given.thread_id for given in inputs}
            found = parse_threads(text, slugs)
            if not found and len(inputs) == 1:
                found = {inputs[0].thread_id: parse_answer(text, slugs)}
            return {names[i]: answer for i, answer in found.items() if i in names}

        chain = calls.pipeline(session.model, read, "mastra.observe")
        problem = "empty"
        for _ in range(DEGENERATE_RETRIES + 1):
            answers = await session.ask(chain, messages, "mastra.observe")
            usable = {i: answer for i, answer in answers.items() if answer.problem is None}
            if usable:
                extractions.said.update({k: v for answer in usable.values() for k, v in answer.extracted.items()})
                return usable
            problem = "degenerate" if is_degenerate(session.replies[-1].text) else "empty"
            if problem == "empty":
                break
        raise UnusableError(problem, session.replies)

    def _together(self, inputs: Sequence[ThreadInput]) -> bool:
        return len(inputs) > 1 or self.options.scope == "resource"

    def _output(self, said: Sequence[Answer]) -> ThreadOutput:
        last = said[-1]
        wanted = self.options.observation.hints
        return ThreadOutput(
            observations="\n".join(answer.observations for answer in said),
            hints=Hints(
                current_task=last.current_task if self.hinted and wanted.current_task else None,
                suggested_response=last.suggested_response if self.hinted and wanted.suggested_response else None,
                thread_title=last.thread_title if self.options.observation.thread_title else None,
            ),
        )


def _matched(shown: Sequence[Shown], messages: Sequence[BaseMessage]) -> list[Shown]:
    """Give messages that a hook returned the times of those that they came from."""
    by_identity = {id(s.message): s for s in shown}
    by_id = {s.message.id: s for s in shown if s.message.id}
    found = []
    for message in messages:
        source = by_identity.get(id(message)) or by_id.get(message.id or "")
        found.append(Shown(message=message, at=source.at if source else None, note=bool(source and source.note)))
    return found


def transcripts(inputs: Sequence[ThreadInput], count: Any, attachments: Any, *, together: bool) -> Transcript:
    """Return the transcript of one thread, or of several, each in a tag with an obscured id."""
    if not together:
        return transcript(inputs[0].messages, count=count, attachments=attachments)
    whole, blocks = Transcript(), []
    for given in inputs:
        made = transcript(given.messages, count=count, attachments=attachments)
        blocks.append(f'<thread id="{obscured(given.thread_id)}">\n{made.text}\n</thread>')
        whole.attachments += made.attachments
    whole.text = "\n\n".join(blocks)
    return whole


def moment(micros: int | None) -> datetime | None:
    """Return an aware time, or None."""
    from datetime import UTC, timedelta  # noqa: PLC0415 - beside their use

    return None if micros is None else datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
