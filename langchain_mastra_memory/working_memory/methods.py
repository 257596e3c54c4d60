"""Working memory from code: the methods of `Memory`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from pydantic import BaseModel

from langchain_mastra_memory.base import MemoryBase
from langchain_mastra_memory.errors import ConfigurationError, StoreReadOnlyError, WorkingMemoryError
from langchain_mastra_memory.ids import optional_id
from langchain_mastra_memory.io import IO, both
from langchain_mastra_memory.shown import shown
from langchain_mastra_memory.store.operations.pages import Where
from langchain_mastra_memory.working_memory.document import PageValue, load_page
from langchain_mastra_memory.working_memory.options import WorkingMemory
from langchain_mastra_memory.working_memory.rules import as_text, value_of
from langchain_mastra_memory.working_memory.schema import explain, model_schema
from langchain_mastra_memory.working_memory.service import Update, page_owner, read_page, write_page

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageTemplate:
    """What a page is written after.

    Attributes:
        format: `markdown` for a template, `json` for a schema.
        content: The template, or the text of the JSON Schema.
    """

    format: Literal["markdown", "json"]
    content: str


class WorkingMemoryMethods(MemoryBase):
    """Reading and changing the page about a user or a task."""

    @both
    async def get_working_memory(
        self, io: IO, *, thread_id: str | None = None, resource_id: str | None = None, checkpoint_id: str | None = None
    ) -> PageValue | None:
        """Return the page: text, or in schema mode the object.

        Args:
            thread_id: The thread; needed in thread scope.
            resource_id: The resource; needed in resource scope, checked against the thread's owner otherwise.
            checkpoint_id: Thread scope: the page as it was at this checkpoint.

        Returns:
            None when working memory is off, nothing was written yet, or the thread is missing or somebody else's.
            A page that is no object in schema mode (it was written under a template) is returned as its text.

        Raises:
            MissingResourceError: Resource scope, and no resource id.

        Example:
            ```python
            memory = Memory("memory://", working_memory=True)
            memory.update_working_memory("- Name: Ann", resource_id="user-1")
            assert memory.get_working_memory(resource_id="user-1") == "- Name: Ann"
            ```
        """
        options = self.options.working_memory
        if options is None:
            return None
        owner = page_owner(options, thread_id=thread_id, resource_id=resource_id)
        where = Where(checkpoint_id=optional_id(checkpoint_id, "checkpoint_id"))
        return value_of(options, (await read_page(io, owner, where)).text)

    aget_working_memory = get_working_memory.twin

    @both
    async def update_working_memory(
        self,
        io: IO,
        value: PageValue | Mapping[str, Any] | BaseModel | None,
        *,
        thread_id: str | None = None,
        resource_id: str | None = None,
        replace: bool = False,
    ) -> PageValue | None:
        """Change the page, and return the new one.

        Args:
            value: Template mode: the whole text. Schema mode: the fields to change (a dict, its JSON text, or an
                instance of the model); objects merge deeply, None deletes a field, arrays replace.
            thread_id: The thread; needed in thread scope.
            resource_id: The resource; needed in resource scope, checked against the thread's owner otherwise.
            replace: Schema mode: the value is the whole page. With the value None, in both modes: erase the page,
                its older versions too.

        Raises:
            WorkingMemoryError: The update is refused; the message has the reason, and nothing was changed.
            MissingResourceError: Resource scope, and no resource id.
            ThreadNotFoundError: Thread scope: there is no such thread for this resource.
            ThreadOwnershipError: Resource scope: the thread is another resource's.
            ConfigurationError: Working memory is off.
            StoreReadOnlyError: The memory is read-only.

        Example:
            ```python
            schema = {"type": "object", "properties": {"name": {"type": "string"}, "city": {"type": "string"}}}
            memory = Memory("memory://", working_memory=WorkingMemory(schema=schema))
            memory.update_working_memory({"name": "Ann"}, resource_id="user-1")
            page = memory.update_working_memory({"city": "Oslo"}, resource_id="user-1")
            assert page == {"name": "Ann", "city": "Oslo"}
            ```
        """
        options = self._page_options()
        if self.options.read_only:
            raise StoreReadOnlyError("this memory was made with read_only=True and changes no page")
        owner = page_owner(options, thread_id=thread_id, resource_id=resource_id)
        if value is None and not replace:
            raise WorkingMemoryError("there is nothing to update; to erase the page pass None with replace=True")
        if isinstance(value, BaseModel):
            value = value.model_dump(mode="json", by_alias=True, exclude_unset=True)
        written = await write_page(io, options, owner, Update(value=value, replace=replace))
        return value_of(options, written.page.text)

    aupdate_working_memory = update_working_memory.twin

    @both
    async def get_working_memory_as(
        self,
        io: IO,
        model: type[M],
        *,
        thread_id: str | None = None,
        resource_id: str | None = None,
        checkpoint_id: str | None = None,
    ) -> M | None:
        """Return the page of schema mode as an instance of a pydantic model, its defaults filled in.

        Args:
            model: The model; usually the schema itself.
            thread_id: As in `get_working_memory`.
            resource_id: As in `get_working_memory`.
            checkpoint_id: As in `get_working_memory`.

        Returns:
            None when there is no page.

        Raises:
            WorkingMemoryError: The page does not fit the model; the message says where.
            ConfigurationError: The page is text, so no model describes it.
        """
        options = self._page_options()
        if options.mode == "template":
            raise ConfigurationError("the page is text after a template; typed access needs WorkingMemory(schema=...)")
        owner = page_owner(options, thread_id=thread_id, resource_id=resource_id)
        where = Where(checkpoint_id=optional_id(checkpoint_id, "checkpoint_id"))
        text = (await read_page(io, owner, where)).text
        if text is None:
            return None
        page = load_page(text)
        if page is None:
            raise WorkingMemoryError(f"the page is no JSON object and does not fit {model.__name__}: {shown(text, 80)}")
        faults = model_schema(model).check(page).faults
        if faults:
            raise WorkingMemoryError(f"the page does not fit {model.__name__}: {explain(faults)}")
        return model.model_validate(page)

    aget_working_memory_as = get_working_memory_as.twin

    def get_working_memory_template(self) -> PageTemplate | None:
        """Return what a page is written after: the Markdown template or the JSON Schema; None when it is off."""
        options = self.options.working_memory
        if options is None:
            return None
        if options.checker is None:
            return PageTemplate(format="markdown", content=options.page_template)
        return PageTemplate(format="json", content=as_text(options.checker.json_schema))

    def _page_options(self) -> WorkingMemory:
        if self.options.working_memory is None:
            raise ConfigurationError("working memory is off: turn it on with Memory(working_memory=True)")
        return self.options.working_memory
