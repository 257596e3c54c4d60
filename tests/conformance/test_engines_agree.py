"""The engines give the same answer to every operation: random histories, run side by side, compared step by step."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from langchain_mastra_memory.errors import MastraMemoryError
from langchain_mastra_memory.store.base import Operation
from langchain_mastra_memory.store.operations.messages import (
    ClearThread,
    DeleteMessages,
    EditMessages,
    FindMessages,
    Hidden,
    Include,
    ListMessages,
    MessageEdit,
    NewMessage,
    SaveMessages,
)
from langchain_mastra_memory.store.operations.pages import GetPage, ListPages, PageOwner, SavePage
from langchain_mastra_memory.store.operations.resources import DeleteResource
from langchain_mastra_memory.store.operations.threads import (
    CopyThread,
    CreateThread,
    DeleteThread,
    GetCloneHistory,
    GetThread,
    ListBranches,
    ListClones,
    ListThreads,
    SuggestTitle,
    TransferThread,
    UpdateThread,
)
from langchain_mastra_memory.store.sql.engine import SQLMemoryStore

START = datetime(2026, 1, 1, tzinfo=UTC)
THREADS = ("t", "T", "t%", "t_", "tä", "t\ud800", "日本", "t0")
OWNERS = ("r", "R", "r1", "r10", "é")
TEXTS = ("tea", "", "NUL \0", "\ud800 alone", "日本語", "x" * 3000, "'; --", "\uffff")
VALUES: tuple[Any, ...] = (1, 1.0, 1.5, True, False, None, "1", "", "日\0", -(2**40), 1e-7, [1, {"a": None}])
SCALARS = tuple(value for value in VALUES if not isinstance(value, list))


@dataclass
class World:
    """A random history; every choice depends on the seed only."""

    seed: int
    step: int = 0
    rng: random.Random = field(init=False)
    ids: list[str] = field(default_factory=list)
    now: datetime = START

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)

    def thread(self) -> str:
        return self.rng.choice(THREADS)

    def owner(self) -> str | None:
        return self.rng.choice((None, None, None, *OWNERS))

    def metadata(self) -> dict[str, Any]:
        return {key: self.rng.choice(VALUES) for key in self.rng.sample(("a", "b", "ä", "c d"), self.rng.randint(0, 3))}

    def wanted(self) -> dict[str, Any] | None:
        return self.rng.choice((None, {"a": self.rng.choice(SCALARS)}, {"a": 1, "b": self.rng.choice(SCALARS)}))

    def message_id(self) -> str:
        return self.rng.choice(self.ids) if self.ids and self.rng.random() < 0.9 else "nothing"

    def new_message(self) -> NewMessage:
        if self.ids and self.rng.random() < 0.2:
            message_id = self.rng.choice(self.ids)
        else:
            message_id = f"m{self.step}-{len(self.ids)}"
            self.ids.append(message_id)
        text = self.rng.choice(TEXTS)
        message = self.rng.choice(
            (
                HumanMessage(text, id=message_id),
                AIMessage(text, id=message_id),
                ToolMessage(text, id=message_id, tool_call_id="c"),
            )
        )
        return NewMessage(
            message=message,
            tokens=self.rng.randint(0, 9),
            kind=self.rng.choice((None, None, None, "signal", "summary", "refused")),
            metadata=self.metadata(),
            created_at=self.rng.choice((None, None, 1_700_000_000_000_000 + self.rng.randint(0, 5))),
        )

    def moment(self) -> int | None:
        return self.rng.choice((None, None, 1_700_000_000_000_000 + self.rng.randint(0, 5)))

    def page_owner(self) -> PageOwner:
        if self.rng.random() < 0.5:
            return PageOwner(scope="resource", resource_id=self.rng.choice(OWNERS))
        return PageOwner(scope="thread", thread_id=self.thread(), resource_id=self.owner())

    def operation(self) -> Operation[Any]:
        makers: list[tuple[int, Callable[[], Operation[Any]]]] = [
            (
                5,
                lambda: CreateThread(
                    thread_id=self.thread(), resource_id=self.rng.choice(OWNERS), metadata=self.metadata()
                ),
            ),
            (2, lambda: GetThread(thread_id=self.thread(), resource_id=self.owner())),
            (3, self.list_threads),
            (
                4,
                lambda: UpdateThread(
                    thread_id=self.thread(),
                    resource_id=self.owner(),
                    metadata=self.metadata(),
                    set_title=self.rng.random() < 0.3,
                    title=self.rng.choice((None, *TEXTS)),
                ),
            ),
            (1, lambda: SuggestTitle(thread_id=self.thread(), title="suggested", replace=self.rng.random() < 0.5)),
            (1, lambda: DeleteThread(thread_id=self.thread(), resource_id=self.owner())),
            (
                1,
                lambda: TransferThread(
                    thread_id=self.thread(), new_resource_id=self.rng.choice(OWNERS), resource_id=self.owner()
                ),
            ),
            (2, self.copy),
            (1, lambda: ListClones(source_thread_id=self.thread())),
            (1, lambda: GetCloneHistory(thread_id=self.thread())),
            (1, lambda: ListBranches(thread_id=self.thread())),
            (
                8,
                lambda: SaveMessages(
                    thread_id=self.thread(),
                    resource_id=self.owner(),
                    messages=tuple(self.new_message() for _ in range(self.rng.randint(1, 4))),
                ),
            ),
            (8, self.list_messages),
            (2, lambda: FindMessages(thread_id=self.thread(), message_ids=tuple(self.message_id() for _ in range(3)))),
            (2, self.edit),
            (
                2,
                lambda: DeleteMessages(thread_id=self.thread(), message_ids=tuple(self.message_id() for _ in range(2))),
            ),
            (1, lambda: ClearThread(thread_id=self.thread(), resource_id=self.owner())),
            (
                3,
                lambda: SavePage(
                    owner=self.page_owner(),
                    text=self.rng.choice((None, *TEXTS)),
                    expected=self.rng.choice((None, 0, 1, 2)),
                    call=self.rng.choice((None, "one", "two")),
                ),
            ),
            (2, lambda: GetPage(owner=self.page_owner(), version=self.rng.choice((None, None, 1)))),
            (1, lambda: ListPages(owner=PageOwner(scope="resource", resource_id=self.rng.choice(OWNERS)))),
            (
                1,
                lambda: (
                    DeleteResource(resource_id=self.rng.choice(OWNERS))
                    if self.rng.random() < 0.2
                    else GetThread(thread_id="t")
                ),
            ),
        ]
        return self.rng.choices([make for _, make in makers], [weight for weight, _ in makers])[0]()

    def list_threads(self) -> ListThreads:
        return ListThreads(
            resource_id=self.rng.choice((None, *OWNERS)),
            metadata=self.wanted(),
            page=self.rng.randint(0, 2),
            per_page=self.rng.choice((1, 2, 100)),
            order_by=self.rng.choice(("created_at", "updated_at")),
            direction=self.rng.choice(("asc", "desc")),
        )

    def list_messages(self) -> ListMessages:
        owner = self.owner()
        count = self.rng.choice((0, 1, 1, 1, 2)) if owner else self.rng.choice((1, 1, 2))
        return ListMessages(
            thread_ids=tuple(dict.fromkeys(self.thread() for _ in range(count))),
            resource_id=owner,
            page=self.rng.randint(0, 2),
            per_page=self.rng.choice((False, 0, 1, 3)),
            direction=self.rng.choice((None, "asc", "desc")),
            include=tuple(
                Include(id=self.message_id(), with_previous=self.rng.randint(0, 2), with_next=self.rng.randint(0, 2))
                for _ in range(self.rng.choice((0, 0, 1, 2)))
            ),
            start=self.moment(),
            end=self.moment(),
            metadata=self.wanted(),
            hidden=Hidden(archive=self.rng.random() < 0.7, every_signal=self.rng.random() < 0.3),
        )

    def copy(self) -> CopyThread:
        return CopyThread(
            source_thread_id=self.thread(),
            new_thread_id=self.rng.choice((*THREADS, f"copy{self.step}")),
            resource_id=self.owner(),
            metadata=self.metadata(),
            message_limit=self.rng.choice((None, None, 2)),
            start=self.moment(),
            message_ids=self.rng.choice((None, None, tuple(self.message_id() for _ in range(3)))),
            with_messages=True,
        )

    def edit(self) -> EditMessages:
        new = self.new_message()
        edit = MessageEdit(
            message=new.message,
            tokens=1,
            metadata=new.metadata,
            seq=self.rng.randint(1, 8),
            revision=self.rng.choice((1, 1, 2)),
        )
        return EditMessages(thread_id=self.thread(), edits=(edit,))


def answer(store: SQLMemoryStore, operation: Operation[Any], copied: dict[str, str], step: int) -> str:
    """Return what a store says, with the ids that it made up replaced by others that every store would give."""
    try:
        result = store.run(operation)
    except MastraMemoryError as error:
        return f"{type(error).__name__}: {error}"
    if isinstance(operation, CopyThread):
        for source, made in result.message_id_map.items():
            copied[made] = f"copy of {copied.get(source, source)} at {step}"
    shown = repr(result)
    for made, name in copied.items():
        shown = shown.replace(made, name)
    return shown


@pytest.fixture
def engines(tmp_path, postgres_url: str) -> Iterator[Callable[[World], dict[str, SQLMemoryStore]]]:
    with ExitStack() as stack:

        def make(world: World) -> dict[str, SQLMemoryStore]:
            urls = {
                "memory": "memory://",
                "sqlite": f"sqlite:///{tmp_path / f'{world.seed}.db'}",
                "postgresql": postgres_url,
            }
            return {
                name: stack.enter_context(SQLMemoryStore(url, clock=lambda: world.now)) for name, url in urls.items()
            }

        yield make


@pytest.mark.postgres
@pytest.mark.parametrize("seed", range(3))
def test_the_engines_answer_every_operation_of_a_random_history_alike(seed: int, engines) -> None:
    world = World(seed)
    stores = engines(world)
    copied: dict[str, dict[str, str]] = {name: {} for name in stores}
    refused = 0
    for step in range(200):
        world.step = step
        world.now += timedelta(microseconds=world.rng.choice((0, 0, 1, 1000)))
        operation = world.operation()
        answers = {name: answer(store, operation, copied[name], step) for name, store in stores.items()}
        assert len(set(answers.values())) == 1, (step, operation, answers)
        refused += "Error" in answers["memory"].partition(":")[0]
    assert 5 < refused < 150
