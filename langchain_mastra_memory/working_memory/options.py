"""Options of working memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError, field_validator, model_validator

from langchain_mastra_memory.errors import ConfigurationError
from langchain_mastra_memory.shown import shown
from langchain_mastra_memory.working_memory.document import PageValue
from langchain_mastra_memory.working_memory.schema import PageSchema, page_schema

Scope = Literal["resource", "thread"]
"""Whom a page belongs to: the resource, shared by its threads, or one thread."""

DEFAULT_TEMPLATE: Final = """\
# User

- First Name:
- Last Name:
- Location:
- Occupation:
- Interests:
- Goals:
- Events:
- Facts:
- Projects:"""


class WorkingMemory(BaseModel):
    """A small page that the model always sees and keeps up to date.

    Either text after a Markdown `template` (an update sends the whole page), or an object after a `schema` (an update
    sends the fields that change: objects merge deeply, `null` deletes a field, arrays are replaced). Not both.

    Attributes:
        scope: `resource` (default): one page for all threads of the resource. `thread`: one page for each thread,
            which forks with it. The two are kept apart.
        template: Markdown with short labels; white space around it is removed.
        page_schema: Given as `schema`: a pydantic model class, or a JSON Schema of an object.
        agent_managed: Whether the agent gets the tool. None: yes, unless observational memory manages the page.
        use_state_signals: Whether the page comes as a message of the conversation, when it changed, instead of with
            the system text. The tool is then called `set_working_memory`. None: no, unless observational memory
            manages the page.
        read_only: Whether the agent only reads the page; code may still change it.
        max_chars: How long a page may get, in characters of its text; 1 to 1,000,000.
        screen: Called with a page before it is kept; what it raises as `ValueError` refuses the update, with its
            message as the reason. For rules of your own, such as "no card numbers".

    Raises:
        ConfigurationError: An option is out of its range, or both `template` and `schema` are given.

    Example:
        >>> from pydantic import BaseModel
        >>> class Profile(BaseModel):
        ...     name: str | None = None
        ...     city: str | None = None
        >>> WorkingMemory(schema=Profile).mode
        'schema'
        >>> WorkingMemory(template="- Name:").mode
        'template'
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True, protected_namespaces=())

    scope: Scope = "resource"
    template: str | None = None
    page_schema: type[BaseModel] | Mapping[str, Any] | None = Field(default=None, alias="schema")
    agent_managed: bool | None = None
    use_state_signals: bool | None = None
    read_only: bool = False
    max_chars: int = Field(default=20_000, ge=1, le=1_000_000)
    screen: Callable[[PageValue], object] | None = None

    _schema: PageSchema | None = PrivateAttr(default=None)

    if not TYPE_CHECKING:  # the signature that type checkers see is the fields'

        def __init__(self, **options: Any) -> None:
            try:
                super().__init__(**options)
            except ValidationError as error:
                raise ConfigurationError(_explained(error)) from error

    @field_validator("template")
    @classmethod
    def _trim(cls, template: str | None) -> str | None:
        if template is not None and not template.strip():
            raise ValueError("the template is empty; leave it out for the default one")
        return None if template is None else template.strip()

    @model_validator(mode="after")
    def _one_mode(self) -> Self:
        if self.template is not None and self.page_schema is not None:
            raise ValueError("give a template or a schema, not both: a page is either text or an object")
        if self.page_schema is not None:
            self._schema = page_schema(self.page_schema)
        return self

    @property
    def mode(self) -> Literal["template", "schema"]:
        """Whether the page is text after a template or an object after a schema."""
        return "template" if self._schema is None else "schema"

    @property
    def checker(self) -> PageSchema | None:
        """What checks the object of schema mode; None in template mode."""
        return self._schema

    @property
    def page_template(self) -> str:
        """The template of template mode."""
        return self.template or DEFAULT_TEMPLATE

    @property
    def tool_name(self) -> str:
        """The name of the tool that changes the page."""
        return "set_working_memory" if self.use_state_signals else "update_working_memory"

    @property
    def has_tool(self) -> bool:
        """Whether the agent changes the page itself."""
        return self.agent_managed is not False and not self.read_only

    def settled(self, *, observer_manages: bool) -> WorkingMemory:
        """Return the options with every None decided: what observational memory manages, the agent need not."""
        return self.model_copy(
            update={
                "agent_managed": not observer_manages if self.agent_managed is None else self.agent_managed,
                "use_state_signals": observer_manages if self.use_state_signals is None else self.use_state_signals,
            }
        )


def _explained(error: ValidationError) -> str:
    faults = []
    for fault in error.errors(include_url=False):
        name = ".".join(str(part) for part in fault["loc"])
        given = f" (got {shown(fault['input'], 60)})" if name else ""
        faults.append(f"{name or 'WorkingMemory'}: {fault['msg'].removeprefix('Value error, ')}{given}")
    return "working memory options are not valid: " + "; ".join(dict.fromkeys(faults))
