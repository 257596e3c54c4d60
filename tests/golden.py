# ruff: noqa: A002, PLR0917 - arguments are named and ordered as they were recorded
"""Runs recorded sequences of operations of the real Mastra on our public API.

A recorded case is a list of operations with Mastra's names and options, and what each gave. Names are mapped to ours,
results to the recorded form. Recorded values of the moment are patterns: `<gen:3>` is the third generated id (the same
one wherever it stands), `<now>` any time.

Where ours differs on purpose, the test gives a reason and our own value, which is asserted in place of the recorded
one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from langchain_core.messages import HumanMessage

from langchain_mastra_memory.errors import MastraMemoryError
from langchain_mastra_memory.testing.clock import FrozenClock

DATA = Path(__file__).parent / "data" / "golden"
NOW = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)
ERROR = {"error": True}
PATTERN = re.compile(r"<gen:(\d+)>")
ROLES = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool"}


def load_cases(*names: str) -> list[dict[str, Any]]:
    """Return the cases of some files, in order."""
    return [case for name in names for case in json.loads((DATA / f"{name}.json").read_text("utf-8"))]


@dataclass(frozen=True)
class Difference:
    """What we do otherwise, on purpose.

    Attributes:
        reason: Why.
        ours: By the number of an operation: what it gives here, or a function from what was recorded to that.
    """

    reason: str
    ours: Mapping[int, Any] = field(default_factory=dict)


def memory_options(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Return our options for recorded `memory_options`."""
    from langchain_mastra_memory.history.options import MessageHistory
    from langchain_mastra_memory.working_memory.options import WorkingMemory

    options: dict[str, Any] = {}
    for name, value in recorded.items():
        if name == "lastMessages":
            options["message_history"] = MessageHistory(last_messages=value)
        elif name == "workingMemory":
            known = {key: given for key, given in value.items() if key != "enabled"}
            options["working_memory"] = WorkingMemory(**known) if value.get("enabled") else None
        else:
            raise KeyError(f"no option of ours for {name}")
    return options


class Session:
    """One memory and the operations of one case."""

    def __init__(self, memory: Any, clock: FrozenClock) -> None:
        self.memory = memory
        self.clock = clock
        clock.set(NOW)
        self._thread_of: dict[str, str] = {}

    def run(self, op: Mapping[str, Any]) -> Any:
        """Run an operation and return what it gave in the recorded form."""
        arguments = {key: value for key, value in op.items() if key != "op"}
        try:
            return getattr(self, op["op"])(**arguments)
        except MastraMemoryError:
            return ERROR

    # --- threads ---

    def save_thread(
        self,
        id: str,
        resource_id: str,
        title: str,
        created_at: str,
        updated_at: str | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> Any:
        self.clock.set(datetime.fromisoformat(created_at))
        thread = self.memory.create_thread(resource_id, thread_id=id, title=title, metadata=metadata)
        if updated_at not in (None, created_at):
            self.clock.set(datetime.fromisoformat(updated_at))
            thread = self.memory.update_thread(id, metadata={})
        self.clock.set(NOW)
        return _thread(thread)

    def create_thread(self, resource_id: str, id: str | None = None, **rest: Any) -> Any:
        return _thread(self.memory.create_thread(resource_id, thread_id=id, **rest))

    def get_thread(self, id: str, resource_id: str | None = None) -> Any:
        return _thread(self.memory.get_thread(id, resource_id=resource_id))

    def update_thread(self, id: str, **changes: Any) -> Any:
        return _thread(self.memory.update_thread(id, **changes))

    def delete_thread(self, id: str) -> Any:
        self.memory.delete_thread(id)

    def update_thread_resource_id(self, id: str, resource_id: str) -> Any:
        return _thread(self.memory.transfer_thread(id, resource_id))

    def list_threads(
        self,
        filter: Mapping[str, Any] | None = None,
        order_by: Mapping[str, str] | None = None,
        **paging: Any,
    ) -> Any:
        wanted, order = filter or {}, order_by or {}
        if "field" in order:
            paging["order_by"] = order["field"]
        if "direction" in order:
            paging["direction"] = order["direction"].lower()
        scope = {"resource_id": wanted["resource_id"]} if "resource_id" in wanted else {"all_resources": True}
        return _ids(self.memory.list_threads(**scope, metadata=wanted.get("metadata"), **paging))

    # --- messages ---

    def save_messages(self, messages: list[dict[str, Any]]) -> Any:
        groups: dict[tuple[Any, Any], list[Any]] = {}
        for message in messages:
            groups.setdefault((message.get("thread_id"), message.get("resource_id")), []).append(message)
        saved: list[str] = []
        for (thread_id, resource_id), group in groups.items():
            given = [_message(message) for message in group]
            stored = self.memory.save_messages(given, thread_id=thread_id, resource_id=resource_id)
            saved += [row.id for row in stored]
            self._thread_of |= {row.id: thread_id for row in stored}
        return {"message_ids": saved}

    def update_messages(self, messages: list[dict[str, Any]]) -> Any:
        if not messages:
            return []
        changes = [{("content" if k == "text" else k): v for k, v in message.items()} for message in messages]
        thread_id = self._thread_of[messages[0]["id"]]
        return [_stored(row) for row in self.memory.update_messages(changes, thread_id=thread_id)]

    def delete_messages(self, input: Any) -> Any:
        ids = [i if isinstance(i, str) else i.get("id") for i in input if isinstance(i, (str, dict))]
        thread_id = next((self._thread_of[i] for i in ids if i in self._thread_of), "t1")
        self.memory.delete_messages(input, thread_id=thread_id)

    def recall(self, *, full: bool = False, include_system_reminders: bool = False, **query: Any) -> Any:
        if include_system_reminders:
            query.setdefault("hide_signals", False)
        return _page(self.memory.recall(**_query(query)), full=full)

    def storage_list_messages(self, **query: Any) -> Any:
        query = {"per_page": 40, "order_by": {"direction": "ASC"}, "hide_signals": False, **query}
        return _page(self.memory.recall(**_query(query)))

    def list_messages_by_resource(self, **query: Any) -> Any:
        return self.storage_list_messages(**query)

    # --- clones ---

    def clone_thread(self, source_thread_id: str, options: Mapping[str, Any] | None = None, **rest: Any) -> Any:
        before = self._all(source_thread_id)
        clone = self.memory.clone_thread(source_thread_id, **_copy_options(options), **_renamed(rest))
        back = {new: old for old, new in clone.message_id_map.items()}
        return {
            "thread": _thread(clone.thread),
            "cloned_from_ids": [back[row.id] for row in clone.messages],
            "cloned_texts": [str(row.message.text) for row in clone.messages],
            "messages": [_stored(row) for row in clone.messages],
            "new_ids_differ": not set(before) & set(back),
            "message_id_map": dict(clone.message_id_map),
        }

    def copy_thread(self, source_thread_id: str, options: Mapping[str, Any] | None = None, **rest: Any) -> Any:
        copy = self.memory.copy_thread(source_thread_id, **_copy_options(options), **_renamed(rest))
        assert copy.messages == ()
        return {
            "thread": _thread(copy.thread),
            "message_id_map": dict(copy.message_id_map),
            "result_keys": ["messageIdMap", "thread"],
        }

    def _all(self, thread_id: str) -> list[str]:
        return [row.id for row in self.memory.recall(thread_id=thread_id, per_page=False)]

    def is_clone(self, id: str) -> Any:
        return self.memory.is_clone(id)

    def get_clone_metadata(self, id: str) -> Any:
        found = self.memory.get_clone_metadata(id)
        if found is None:
            return None
        info = {"sourceThreadId": found.source_thread_id, "clonedAt": _time(found.cloned_at)}
        return info if found.last_message_id is None else {**info, "lastMessageId": found.last_message_id}

    def get_source_thread(self, id: str) -> Any:
        found = self.memory.get_source_thread(id)
        return None if found is None else found.id

    def list_clones(self, id: str, resource_id: str | None = None) -> Any:
        return [thread.id for thread in self.memory.list_clones(id, resource_id=resource_id)]

    def get_clone_history(self, id: str) -> Any:
        return [thread.id for thread in self.memory.get_clone_history(id)]

    # --- working memory ---

    def update_working_memory(self, thread_id: str, resource_id: str, working_memory: str) -> Any:
        self.memory.update_working_memory(working_memory, **self._scope(thread_id, resource_id))

    def get_working_memory(self, thread_id: str, resource_id: str) -> Any:
        return self.memory.get_working_memory(**self._scope(thread_id, resource_id))

    def _scope(self, thread_id: str, resource_id: str) -> dict[str, str]:
        if self.memory.options.working_memory.scope == "resource":
            return {"resource_id": resource_id}
        return {"thread_id": thread_id, "resource_id": resource_id}

    # --- agents ---

    def generate(self, user: str, thread: str | None = None, resource: str | None = None) -> Any:
        from langchain.agents import create_agent

        from langchain_mastra_memory.testing.models import ScriptedChatModel

        agent = create_agent(ScriptedChatModel(["Hello"]), middleware=[self.memory.middleware()])
        ids = {"thread_id": thread, "resource_id": resource}
        config = {"configurable": {name: value for name, value in ids.items() if value is not None}}
        state = agent.invoke({"messages": [HumanMessage(user)]}, config)
        return {"text": str(state["messages"][-1].text)}


def _message(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recorded message as a mapping that can be saved; a signal is a user message that says so."""
    role = "user" if recorded["role"] == "signal" else recorded["role"]
    known = {key: recorded[key] for key in ("id", "created_at", "metadata") if key in recorded}
    return {"role": role, "content": recorded["text"], **known}


def _query(query: dict[str, Any]) -> dict[str, Any]:
    """Return our arguments of `recall`."""
    wanted = query.pop("filter", None) or {}
    if "metadata" in wanted:
        query["metadata"] = wanted["metadata"]
    dates = wanted.get("date_range", {})
    query |= {name: dates[name] for name in ("start", "end") if name in dates}
    if dates.get("start_exclusive") or dates.get("end_exclusive"):
        query["bounds"] = ("(" if dates.get("start_exclusive") else "[") + (")" if dates.get("end_exclusive") else "]")
    order = query.pop("order_by", None)
    if order:
        query["direction"] = order["direction"].lower()
    return query


def _copy_options(options: Mapping[str, Any] | None) -> dict[str, Any]:
    found = dict(options or {})
    chosen = found.pop("message_filter", {})
    names = {"start_date": "start", "end_date": "end", "message_ids": "message_ids"}
    return found | {names[name]: value for name, value in chosen.items()}


def _renamed(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return metadata with our key of the working memory."""
    metadata = arguments.get("metadata")
    if metadata and "workingMemory" in metadata:
        kept = {key: value for key, value in metadata.items() if key != "workingMemory"}
        arguments["metadata"] = {**kept, "working_memory": metadata["workingMemory"]}
    return arguments


def _time(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _thread(thread: Any) -> Any:
    if thread is None:
        return None
    metadata = dict(thread.metadata)
    clone = metadata.get("clone")
    if isinstance(clone, dict) and "source_thread_id" in clone:
        names = {"source_thread_id": "sourceThreadId", "cloned_at": "clonedAt", "last_message_id": "lastMessageId"}
        metadata["clone"] = {names[key]: value for key, value in clone.items()}
    return {
        "id": thread.id,
        "resource_id": thread.resource_id,
        "title": thread.title or "",
        "metadata": metadata,
        "created_at": _time(thread.created_at),
        "updated_at": _time(thread.updated_at),
    }


def _stored(row: Any) -> dict[str, Any]:
    shown = {
        "id": row.id,
        "role": ROLES[row.role],
        "thread_id": row.thread_id,
        "resource_id": row.resource_id,
        "created_at": _time(row.created_at),
        "text": str(row.message.text),
    }
    return {**shown, "metadata": dict(row.metadata)} if row.metadata else shown


def _ids(page: Any) -> dict[str, Any]:
    return {
        "ids": [item.id for item in page],
        "total": page.total,
        "page": page.page,
        "per_page": page.per_page,
        "has_more": page.has_more,
    }


def _page(page: Any, *, full: bool = False) -> dict[str, Any]:
    shown = _ids(page)
    return {**shown, "messages": [_stored(row) for row in page]} if full else shown


class Same:
    """Compares results with recorded ones, whose patterns it fills in as it goes."""

    def __init__(self) -> None:
        self._generated: dict[str, str] = {}

    def check(self, ours: Any, recorded: Any, where: str) -> None:
        """Fail unless ours is what was recorded."""
        recorded = _plain(recorded)
        if isinstance(recorded, dict) and recorded.get("error") is True:
            assert ours == ERROR, f"{where}: {ours!r} instead of an error ({recorded.get('message')})"
            return
        assert self._matches(_plain(ours), recorded), f"{where}:\nours     {ours!r}\nrecorded {recorded!r}"

    def _matches(self, ours: Any, recorded: Any) -> bool:
        if isinstance(recorded, dict) and isinstance(ours, dict):
            return ours.keys() == recorded.keys() and all(self._matches(ours[k], recorded[k]) for k in recorded)
        if isinstance(recorded, list) and isinstance(ours, list):
            return len(ours) == len(recorded) and all(map(self._matches, ours, recorded))
        if recorded == "<now>":
            return isinstance(ours, str) and datetime.fromisoformat(ours) == NOW
        if isinstance(recorded, str) and PATTERN.fullmatch(recorded):
            return isinstance(ours, str) and self._generated.setdefault(recorded, ours) == ours
        return type(ours) is type(recorded) and bool(ours == recorded)


def _plain(value: Any) -> Any:
    """Return a value with absent and empty metadata alike."""
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items() if not (k == "metadata" and v in (None, {}))}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value


def run_case(case: Mapping[str, Any], memory: Any, clock: FrozenClock, difference: Difference | None) -> None:
    """Run a recorded sequence of operations and compare every result."""
    session, same = Session(memory, clock), Same()
    ours = dict(difference.ours) if difference else {}
    for place, (op, recorded) in enumerate(zip(case["input"]["ops"], case["expected"]["results"], strict=True)):
        given = session.run(op)
        where = f"{case['id']}[{place}] {op['op']}"
        if place not in ours:
            if "result" in recorded or "error" in recorded:
                same.check(given, recorded.get("result", recorded), where)
            continue
        expected = ours.pop(place)
        if callable(expected):
            expected = expected(recorded.get("result"))
        same.check(given, expected, f"{where} (ours on purpose: {difference.reason if difference else ''})")
    assert not ours, f"{case['id']} has no operation {sorted(ours)}"
