"""Running extractors: inline values out of the answer, structured ones by a call of their own, working memory too."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, Literal

from langchain_core.messages import BaseMessage
from langchain_core.runnables import Runnable, RunnableLambda
from pydantic import BaseModel, ValidationError

from langchain_mastra_memory.errors import MastraMemoryError, ObservationError
from langchain_mastra_memory.observation import calls
from langchain_mastra_memory.observation.extractors import ExtractionContext, Extractor
from langchain_mastra_memory.observation.hooks import call
from langchain_mastra_memory.observation.log import JsonValue
from langchain_mastra_memory.observation.prompts import SEPARATOR, text_of
from langchain_mastra_memory.store.operations.pages import GetPage, PageOwner, StoredPage
from langchain_mastra_memory.working_memory.options import WorkingMemory
from langchain_mastra_memory.working_memory.rules import value_of
from langchain_mastra_memory.working_memory.service import Update, page_owner, write_page

if TYPE_CHECKING:
    from langchain_mastra_memory.base import MemoryBase
    from langchain_mastra_memory.io import IO

PAGE: Final = "working-memory"
PAGE_TRIES: Final = 3
"""Model calls for a page that others change meanwhile: a stale one must not replace theirs."""
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_OBJECT = re.compile(r"\{.*\}", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Extraction:
    """What extractors came to.

    Attributes:
        values: By slug.
        failures: Slug and reason of each that failed; the others are kept.
    """

    values: Mapping[str, JsonValue] = field(default_factory=dict)
    failures: tuple[Mapping[str, str], ...] = ()


@dataclass(kw_only=True)
class Extractions:
    """The extractors of one call.

    Attributes:
        phase: What they run in.
        extractors: All of them.
        memory: For their context, and for the working memory.
        thread_id: The thread, if it is one.
        resource_id: The owner.
        previous: The last value of every extractor.
        manage_working_memory: Whether the page is kept too.
        said: Inline values of the answer, by slug; filled by whoever reads it.
    """

    phase: Literal["observation", "reflection", "summary"]
    extractors: Sequence[Extractor]
    memory: MemoryBase | None = None
    thread_id: str | None = None
    resource_id: str | None = None
    previous: Mapping[str, JsonValue] = field(default_factory=dict)
    manage_working_memory: bool = False
    said: dict[str, str] = field(default_factory=dict)

    def _context(self, slug: str, current: JsonValue = None) -> ExtractionContext:
        return ExtractionContext(
            phase=self.phase,
            thread_id=self.thread_id,
            resource_id=self.resource_id,
            memory=self.memory,
            current=current,
            previous=self.previous.get(slug),
        )

    @cached_property
    def schemas(self) -> dict[str, type[BaseModel] | Mapping[str, Any] | None]:
        """The schema of every extractor, by slug; None for inline ones."""
        return {e.slug: e.schema_for(self._context(e.slug)) for e in self.extractors}

    @cached_property
    def inline(self) -> list[tuple[str, str]]:
        """Slug and instructions of those that are answered in a tag."""
        return [(e.slug, e.instructed(self._context(e.slug))) for e in self.extractors if self.schemas[e.slug] is None]

    @property
    def shown(self) -> list[tuple[str, str]]:
        """Slug and last value of the inline ones that are shown it."""
        values = [(e.slug, self.previous.get(e.slug)) for e in self.extractors if e.include_previous]
        inline = {slug for slug, _ in self.inline}
        return [(slug, _as_text(value)) for slug, value in values if value is not None and slug in inline]

    async def run(self, session: calls.Session, history: str, noted: str) -> Extraction:
        """Return the values of all extractors; a failure of one leaves the others alone."""
        found: dict[str, JsonValue] = dict(self.said)
        failures: list[Mapping[str, str]] = []
        structured = {e.slug: e for e in self.extractors if self.schemas[e.slug] is not None}
        io = session.io
        page = await self._page(io, history)
        text = SEPARATOR.join([f"## Conversation\n\n{history}", f"## Notes\n\n{noted}"])
        for _ in range(PAGE_TRIES):
            if not structured and page is None:
                break
            values, failed = await self._structured(session, structured, None if page is None else page.form, text)
            failures += failed
            if page is not None:
                page = await self._keep_page(io, page, values.pop(PAGE, None), failures)
            found |= values
            structured = {}
        if page is not None:
            failures.append({"slug": PAGE, "error": "the page was changed by others each time that it was to be kept"})
        kept: dict[str, JsonValue] = {}
        for extractor in self.extractors:
            if extractor.slug not in found:
                continue
            value = found[extractor.slug]
            try:
                changed = await call(io, "on_extracted", extractor.on_extracted, self._context(extractor.slug, value))
            except MastraMemoryError as error:
                reason = str(error.__cause__ or error)
                failures.append({"slug": extractor.slug, "error": reason})
                continue
            kept[extractor.slug] = value if changed is None else changed
        return Extraction(kept, tuple(failures))

    async def _structured(
        self,
        session: calls.Session,
        extractors: Mapping[str, Extractor],
        page: Mapping[str, Any] | None,
        text: str,
    ) -> tuple[dict[str, JsonValue], list[Mapping[str, str]]]:
        names = {slug: slug if _NAME.fullmatch(slug) else f"value_{n}" for n, slug in enumerate(extractors, start=1)}
        fields: dict[str, Any] = {}
        lines = []
        for slug, extractor in extractors.items():
            schema = self.schemas[slug]
            fields[names[slug]] = _json_schema(schema)
            said = extractor.instructed(self._context(slug)).strip()
            before = self.previous.get(slug) if extractor.include_previous else None
            lines.append(
                f"- {names[slug]} ({extractor.name}): {said}"
                + (f"\n  last value: {_as_text(before)}" if before is not None else "")
            )
        if page is not None:
            fields[PAGE] = page
            lines.append(f"- {PAGE}: {text_of('working_memory')}")
        form = {
            "title": "Extraction",
            "description": "What the conversation says.",
            "type": "object",
            "properties": fields,
        }
        text = SEPARATOR.join([text, "## Values to extract\n\n" + "\n".join(lines)])
        messages = calls.prompt(text_of("extraction"), text)
        faults: dict[str, str] = {}
        for _ in range(2):
            try:
                raw = await session.ask(_form_chain(session.model, form), messages, "mastra.extract")
            except ObservationError as error:
                return {}, [{"slug": slug, "error": str(error)} for slug in (*extractors, *([PAGE] if page else []))]
            values, faults = {}, {}
            for slug in extractors:
                name = names[slug]
                if name not in raw:
                    continue
                try:
                    values[slug] = _valid(self.schemas[slug], raw[name])
                except ValueError as error:
                    faults[slug] = f"the value does not fit the schema: {error}"
            if page is not None and raw.get(PAGE) is not None:
                values[PAGE] = raw[PAGE]
            if not faults:
                break
        return values, [{"slug": slug, "error": reason} for slug, reason in faults.items()]

    async def _page(self, io: IO, history: str) -> _Page | None:
        """Return the page that is to be kept; None when it is not ours to keep, or was kept for these messages before.

        A cycle that was broken off after the page was written is made again, over the same messages.
        """
        options = self.memory.options.working_memory if self.memory is not None else None
        if not self.manage_working_memory or options is None:
            return None
        if (self.thread_id if options.scope == "thread" else self.resource_id) is None:
            return None
        by_thread = options.scope == "thread"
        owner = page_owner(options, thread_id=self.thread_id if by_thread else None, resource_id=self.resource_id)
        seen = sha256(f"{self.thread_id}\n{history}".encode("utf-8", "surrogatepass")).hexdigest()
        asks = f"observer:{seen[:40]}"
        stored = await io.run(GetPage(owner=owner, call=asks))
        return None if stored.applied else _Page(options=options, owner=owner, stored=stored, call=asks)

    async def _keep_page(self, io: IO, page: _Page, value: Any, failures: list[Mapping[str, str]]) -> _Page | None:
        """Write the page; return the one that is there when somebody else has written meanwhile."""
        if value is None:
            return None
        update = Update(value=value, writer="observer", call=page.call, seen=page.stored.version)
        try:
            written = await write_page(io, page.options, page.owner, update, by_agent=True)
        except MastraMemoryError as error:
            failures.append({"slug": PAGE, "error": str(error)})
            return None
        return replace(page, stored=written.page) if written.status == "stale" else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Page:
    """A page that the observer keeps.

    Attributes:
        options: The options of working memory.
        owner: Whose page.
        stored: The page that the model is shown.
        call: What asks for the update: the same when the same messages are observed again.
    """

    options: WorkingMemory
    owner: PageOwner
    stored: StoredPage
    call: str

    @property
    def form(self) -> Mapping[str, Any]:
        """The schema of the update, which shows the page."""
        page = value_of(self.options, self.stored.text)
        if self.options.page_schema is not None:
            return {**_json_schema(self.options.page_schema), "description": f"Present page: {_as_text(page)}"}
        present = _as_text(page) if page else (self.options.template or "")
        return {"type": "string", "description": f"Markdown. Present page:\n{present}"}


def _form_chain(model: Runnable[Any, Any], form: Mapping[str, Any]) -> Runnable[Any, Any]:
    """Return a Runnable from messages to the reply and the object that fills in the form."""
    inner = calls.bare(model)
    if hasattr(inner, "with_structured_output"):

        def read(answer: Any) -> tuple[calls.Reply, dict[str, Any]]:
            reply = calls.reply_of(answer["raw"], model)
            return reply, _checked(answer["parsed"] if answer["parsed"] is not None else _object_in(reply.text))

        chain: Runnable[Any, Any] = inner.with_structured_output(dict(form), include_raw=True) | RunnableLambda(read)
        return chain.with_config(run_name="mastra.extract")

    def ask(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
        wish = f"{messages[-1].text}\n\nAnswer with JSON that fits this schema:\n{json.dumps(form, ensure_ascii=False)}"
        return [*messages[:-1], messages[-1].model_copy(update={"content": wish})]

    def take(answer: Any) -> tuple[calls.Reply, dict[str, Any]]:
        reply = calls.reply_of(answer, model)
        return reply, _checked(_object_in(reply.text))

    return (RunnableLambda(ask) | model | RunnableLambda(take)).with_config(run_name="mastra.extract")


def _checked(parsed: Any) -> dict[str, Any]:
    if isinstance(parsed, BaseModel):
        parsed = parsed.model_dump(mode="json")
    if not isinstance(parsed, dict):
        raise ObservationError(f"the answer is no JSON object: {str(parsed)[:80]!r}")
    return parsed


def _object_in(text: str) -> Any:
    match = _OBJECT.search(text)
    return json.loads(match[0]) if match else None


def _json_schema(schema: Any) -> dict[str, Any]:
    if isinstance(schema, type) and issubclass(schema, BaseModel):
        return _inlined(schema.model_json_schema())
    return _inlined(dict(schema))


def _inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """Put definitions where they are referred to: the schema becomes a part of another one."""
    definitions = schema.pop("$defs", {})

    def visit(part: Any, depth: int = 0) -> Any:
        if isinstance(part, dict):
            reference = part.get("$ref")
            if isinstance(reference, str) and reference.startswith("#/$defs/") and depth < 8:
                return visit(dict(definitions[reference.removeprefix("#/$defs/")]), depth + 1)
            return {key: visit(value, depth) for key, value in part.items()}
        if isinstance(part, list):
            return [visit(value, depth) for value in part]
        return part

    inlined: dict[str, Any] = visit(schema)
    return inlined


def _valid(schema: Any, value: Any) -> JsonValue:
    if isinstance(schema, type) and issubclass(schema, BaseModel):
        try:
            dumped: JsonValue = schema.model_validate(value).model_dump(mode="json", exclude_unset=True)
        except ValidationError as error:
            problems = [f"{'.'.join(map(str, p['loc']))}: {p['msg']}" for p in error.errors(include_url=False)]
            raise ValueError("; ".join(problems)) from None
        return dumped
    import jsonschema  # noqa: PLC0415 - when it is needed

    problems = [error.message for error in jsonschema.Draft202012Validator(dict(schema)).iter_errors(value)]
    if problems:
        raise ValueError("; ".join(problems[:3]))
    checked: JsonValue = value
    return checked


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
