"""The messages of a run as observational memory sees them: those of the archive, and the running turn's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from langchain_core.messages import BaseMessage

from langchain_mastra_memory.context.layers import Item
from langchain_mastra_memory.context.provider import RunFacts
from langchain_mastra_memory.observation.engine import Engine, LocalRow
from langchain_mastra_memory.observation.log import MessageFact
from langchain_mastra_memory.observation.planning import Tail, tail
from langchain_mastra_memory.store.operations.log import LogView, answer_of, calls_of


@dataclass(frozen=True, kw_only=True)
class Seen:
    """The messages of a run, put together from the archive and the state."""

    view: LogView
    local: tuple[LocalRow, ...]
    facts: tuple[MessageFact, ...]
    unsaved: Mapping[str, BaseMessage]
    covered: frozenset[str]

    @cached_property
    def tail(self) -> Tail:
        """The run's messages, split where a range may end."""
        key, state = self.view.current, self.view.state
        return tail(self.facts, state.cursor(key), state.buffered_to(key))

    def shows(self, view: LogView, local: Sequence[LocalRow]) -> bool:
        """Tell whether it was made of this view and these rows."""
        return view is self.view and list(local) == list(self.local)


def own_items(items: Sequence[Item]) -> list[Item]:
    """Return the items at the end of the state that were not archived when the turn began."""
    found: list[Item] = []
    for index in range(len(items) - 1, -1, -1):
        if items[index].seq is not None:
            break
        found.append(items[index])
    return found[::-1]


def fact_of(engine: Engine, item: Item) -> MessageFact:
    """Return what planning needs to know of a message that is not archived."""
    message = item.message
    size = item.tokens if item.tokens is not None else engine.memory.token_counter.count_message(message)
    return MessageFact(
        id=item.id,
        role=message.type,
        calls=calls_of(message),
        answers=answer_of(message),
        tokens=round(size),
    )


def see(engine: Engine, view: LogView, run: RunFacts, local: Sequence[LocalRow]) -> Seen:
    """Put the raw messages of the archive and those of the running turn together.

    The archive hides a turn until it is complete, so the turn's own messages come from the state.
    """
    thread, cursor = view.threads[view.current], view.state.cursor(view.current)
    raw = [message.fact for message in thread.raw]
    held = {fact.id for row in local for fact in row.facts}
    known = {fact.id for fact in raw}
    own: list[Item] = []
    for index in range(len(run.items) - 1, -1, -1):
        item = run.items[index]
        seq = item.seq if item.seq is not None else view.located.get(item.id)
        if item.id in known or (seq is not None and seq <= cursor):
            break
        if item.id:
            own.append(item)
        if item.message.type == "human":  # what stands before the question and is not archived never will be
            break
    own.reverse()
    facts = [fact for fact in (*raw, *(fact_of(engine, item) for item in own)) if fact.id not in held]
    # Archived since the turn began, and in the log already: a raw graph archives its turn step by step.
    late = {item.id for item in own_items(run.items) if view.located.get(item.id, cursor + 1) <= cursor}
    return Seen(
        view=view,
        local=tuple(local),
        facts=tuple(facts),
        unsaved={item.id: item.message for item in own},
        covered=frozenset(held | late),
    )


def other_tails(engine: Engine, view: LogView) -> dict[int, Tail]:
    """Return the messages of the resource's other threads, by the thread's key, where they are observed together."""
    if engine.options.scope == "thread":
        return {}
    return {
        key: tail([m.fact for m in thread.raw], view.state.cursor(key), view.state.buffered_to(key))
        for key, thread in view.threads.items()
        if key != view.current
    }
