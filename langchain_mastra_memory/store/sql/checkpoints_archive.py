"""The archive follows the checkpoint: what a root checkpoint brings becomes rows of its thread's messages.

A put starts where its parent stands. What is new continues that line if nothing of another run stands behind, else it
opens a line of its own; what is known and has changed is changed in its place, or overridden where another line sees
it. Rows that entered outside a run do not force a line: they join the view.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import sqlalchemy as sa

from langchain_mastra_memory.codec import dump_message, load_message
from langchain_mastra_memory.store.operations.checkpoints import Archived, ArchivePlan, Need
from langchain_mastra_memory.store.sql.cascade import (
    Features,
    RemovedRow,
    WrittenRow,
    on_messages_deleted,
    on_messages_edited,
    on_messages_saved,
)
from langchain_mastra_memory.store.sql.lines import Content, change_message, open_branch
from langchain_mastra_memory.store.sql.locking import ThreadRow
from langchain_mastra_memory.store.sql.rows import message_of
from langchain_mastra_memory.store.sql.schema import branches, messages, threads, tombstones
from langchain_mastra_memory.store.sql.tables_checkpoints import bodies
from langchain_mastra_memory.store.sql.tx import Tx, any_of, insert_row
from langchain_mastra_memory.store.sql.values import dump_json, load_json
from langchain_mastra_memory.store.sql.view import Path, ViewStatements, in_path, path_of
from langchain_mastra_memory.threads.runs import kind_of

REFUSED = "refused"


class RetractedRow(RemovedRow):
    """A row that its own run took back: it leaves the archive, and its checkpoints stay as they are."""


class Position(NamedTuple):
    """A line and the last seq in view."""

    branch: int
    head: int


@dataclass(frozen=True, slots=True)
class Archive:
    """What came of it: where the checkpoint stands, and the counters of the thread row.

    Attributes:
        branch: The line.
        head: The last seq in view.
        next_seq: The seq of the next message.
        texts: The thread's counter.
        edits: The thread's counter.
        changed: Whether any row was written.
        inserts: Rows that are still to be inserted, with the rest of the checkpoint.
        saved: What the features are to be told of then.
        edited: The same, for rows that were changed.
    """

    branch: int
    head: int
    next_seq: int
    texts: int
    edits: int
    changed: bool = True
    inserts: tuple[dict[str, Any], ...] = ()
    saved: tuple[WrittenRow, ...] = ()
    edited: tuple[WrittenRow, ...] = ()

    def statements(self) -> list[tuple[sa.ClauseElement, dict[str, Any]]]:
        """Return what inserts the rows."""
        return [(_ADD, row) for row in self.inserts]

    def tell(self, tx: Tx, thread: ThreadRow, features: Features) -> None:
        """Tell the features, once the rows are there."""
        if self.saved or self.edited:
            now = _thread_after(thread, self)
            if self.saved:
                on_messages_saved.fire(tx, now, self.saved, features)
            if self.edited:
                on_messages_edited.fire(tx, now, self.edited, features)


class KnownRow(NamedTuple):
    """A row that is there."""

    seq: int
    branch: int
    id: str
    kind: str | None
    body: bytes
    metadata: str | None
    revision: int
    outside: int
    created_at: int
    tokens: int


_ROW = (
    messages.c.seq,
    messages.c.branch,
    messages.c.id,
    messages.c.kind,
    messages.c.body,
    messages.c.metadata,
    messages.c.revision,
    messages.c.outside,
    messages.c.created_at,
    messages.c.tokens,
)
_in_thread = messages.c.thread == sa.bindparam("thread_key")


def key_of_thread() -> sa.ScalarSelect[int]:
    """Return the key of the thread that is named: so that a statement need not wait for another one's answer."""
    return sa.select(threads.c.key).where(threads.c.id == sa.bindparam("thread_id")).scalar_subquery()


def _known(rows: sa.ColumnElement[bool], graves: sa.ColumnElement[bool]) -> sa.CompoundSelect[Any]:
    """Return the rows of some ids, and a row of seq -1 for each of them that was deleted."""
    nothing = (sa.literal(0), sa.literal(0), sa.literal(0), sa.literal(0))
    blank = sa.cast(sa.null(), sa.Text)
    return sa.union_all(
        sa.select(*_ROW).where(messages.c.thread == key_of_thread(), rows),
        sa.select(
            sa.literal(-1),
            sa.literal(0),
            tombstones.c.id,
            blank,
            sa.cast(sa.null(), sa.LargeBinary),
            blank,
            *nothing,
        ).where(tombstones.c.thread == key_of_thread(), graves),
    )


_KNOWN = _known(any_of(messages.c.id, "ids"), any_of(tombstones.c.id, "ids"))
# Nearly every step brings one message, and an equality costs a fraction of a list.
_KNOWN_ONE = _known(messages.c.id == sa.bindparam("message_id"), tombstones.c.id == sa.bindparam("message_id"))
_LAST_OF_RUNS = sa.select(sa.func.max(messages.c.seq)).where(
    _in_thread, messages.c.branch == sa.bindparam("branch_no"), messages.c.outside == sa.literal(0)
)
_CLAIM = (
    sa.update(messages)
    .where(_in_thread, messages.c.branch == sa.bindparam("branch_no"), any_of(messages.c.seq, "seqs"))
    .values(outside=sa.literal(0))
)
_LINES = sa.select(branches.c.branch, branches.c.path).where(branches.c.thread == sa.bindparam("thread_key"))
_EDITED = ViewStatements(lambda in_view: sa.select(*_ROW).where(_in_thread, messages.c.revision > 1, in_view))
_of_run = (
    _in_thread,
    messages.c.branch == sa.bindparam("branch_no"),
    messages.c.seq > sa.bindparam("base"),
    messages.c.outside == sa.literal(0),
)
# By id, not by the run's beginning: a run that failed and is tried again (`durability="exit"`) began before it.
_REFUSED = sa.select(*_ROW).where(
    _in_thread,
    any_of(messages.c.id, "ids"),
    messages.c.outside == sa.literal(0),
    messages.c.kind == sa.literal(REFUSED),
)
_ORDINARY = sa.select(*_ROW).where(*_of_run, messages.c.kind.is_(None))
_IS_BODY = (
    sa.select(sa.literal(1))
    .where(
        bodies.c.thread == sa.bindparam("thread_key"),
        bodies.c.id == sa.bindparam("message_id"),
        bodies.c.body == sa.bindparam("body", type_=sa.LargeBinary),
    )
    .limit(1)
)
_ADD = insert_row(
    messages,
    "thread",
    "seq",
    "branch",
    "id",
    "role",
    "kind",
    "body",
    "metadata",
    "tokens",
    "revision",
    "outside",
    "created_at",
)
_at_row = (_in_thread, messages.c.seq == sa.bindparam("at_seq"), messages.c.branch == sa.bindparam("at_branch"))
_SET_KIND = sa.update(messages).where(*_at_row).values(kind=sa.bindparam("new_kind"))
_SETTLE_ROW = (
    sa.update(messages)
    .where(*_at_row)
    .values(
        kind=sa.bindparam("new_kind"),
        role=sa.bindparam("new_role"),
        body=sa.bindparam("new_body", type_=sa.LargeBinary),
        metadata=sa.bindparam("new_metadata", type_=sa.Text),
        tokens=sa.bindparam("new_tokens", type_=sa.BigInteger),
    )
)
_REMOVE = sa.delete(messages).where(*_at_row)


@dataclass(slots=True)
class _Work:
    """What one put does to the archive, collected before the hooks are told."""

    tx: Tx
    thread: ThreadRow
    plan: ArchivePlan
    branch: int
    head: int
    path: Path
    next_seq: int
    forked: bool = False
    saved: list[WrittenRow] = field(default_factory=list)
    edited: list[WrittenRow] = field(default_factory=list)
    removed: list[RemovedRow] = field(default_factory=list)
    demoted: list[RemovedRow] = field(default_factory=list)
    inserts: list[dict[str, Any]] = field(default_factory=list)
    lines: list[tuple[int, list[list[int]]]] | None = None

    def other_lines(self) -> list[tuple[int, list[list[int]]]]:
        """Return every line with its ancestors."""
        if self.lines is None:
            rows = self.tx.all(_LINES, {"thread_key": self.thread.key})
            self.lines = [(branch, json.loads(path)) for branch, path in rows]
        return self.lines

    def is_seen_elsewhere(self, branch: int, seq: int) -> bool:
        """Tell whether a line that left `branch` sees its row `seq`."""
        return any(b == branch and cut >= seq for _, path in self.other_lines() for b, cut in path)


def archive_messages(  # noqa: PLR0917 - one call
    tx: Tx, thread: ThreadRow, start: Position, base: int, plan: ArchivePlan, known: Sequence[KnownRow]
) -> Archive | Need:
    """Bring the archive to a root checkpoint.

    Args:
        tx: The transaction; the thread's row is locked.
        thread: The row.
        start: Where the parent stands.
        base: The head when the run began.
        plan: What the checkpoint brings.
        known: What `known_rows` found for its ids.

    Returns:
        Where the checkpoint stands; or what the plan must bring as well, and then nothing was written.
    """
    unchanged = Archive(*start, thread.next_seq, thread.texts, thread.edits, changed=False)
    idle = not plan.messages and not plan.removed and not plan.accepted and not plan.demote
    behind = thread.branch == start.branch and thread.head > start.head
    if idle and not behind:
        return unchanged
    work = _Work(tx, thread, plan, *start, path_of(tx, thread.key, *start), thread.next_seq)
    if idle:  # what entered outside behind the parent stays in view
        return replace(unchanged, head=thread.head) if _continues(work) else unchanged
    dead = {row.id for row in known if row.seq < 0}
    joins = _continues(work)
    there = _on_line(work, known, joins=joins)
    new = [m for m in plan.messages if m.id not in there and m.id not in dead]
    changes = [
        (m, there[m.id])
        for m in plan.messages
        if m.id in there and m.id not in dead and _is_change(tx, thread.key, m, there[m.id])
    ]
    removed = [there[i] for i in plan.removed if i in there and joins]
    if (new or changes) and not joins:
        need = _open_line(work, {m.id for m, _ in changes})
        if need is not None:
            return need
    _claim(work, [there[m.id] for m in plan.messages if m.id in there])
    for message, row in changes:
        _change(work, message, row)
    _append(work, new)
    for row in there.values():
        if joins and row.branch == work.branch:
            work.head = max(work.head, row.seq)
    for row in removed:
        if row.seq > base and row.branch == start.branch and not row.outside:
            _retract(work, row)
    if plan.demote and not work.forked:
        _demote(work, base)
    if plan.accepted:
        _accept(work)
    return _finish(work, unchanged)


def known_rows(thread_id: str, plan: ArchivePlan | None) -> tuple[sa.ClauseElement, dict[str, Any]] | None:
    """Return what finds the rows and tombstones of a plan's ids; None if it has none."""
    if plan is None or not (plan.messages or plan.removed):
        return None
    ids = [*(m.id for m in plan.messages), *plan.removed]
    if len(ids) == 1:
        return _KNOWN_ONE, {"thread_id": thread_id, "message_id": ids[0]}
    return _KNOWN, {"thread_id": thread_id, "ids": ids}


def _continues(work: _Work) -> bool:
    """Tell whether the line may go on from here: nothing of another run stands behind on it."""
    thread = work.thread
    if (work.branch, work.head) == (thread.branch, thread.head) and work.head == thread.next_seq - 1:
        return True
    last = work.tx.value(_LAST_OF_RUNS, {"thread_key": thread.key, "branch_no": work.branch})
    return last is None or last <= work.head


def _on_line(work: _Work, known: Sequence[KnownRow], *, joins: bool) -> dict[str, KnownRow]:
    """Return the row of each id in view, those included that entered outside and join it."""
    there: dict[str, KnownRow] = {}
    for row in known:
        if row.seq < 0:
            continue
        behind = joins and row.outside and row.branch == work.branch and row.seq > work.head
        if (behind or in_path(work.path, row.branch, row.seq)) and (
            row.id not in there or there[row.id].branch < row.branch
        ):
            there[row.id] = row
    return there


def _claim(work: _Work, rows: Sequence[KnownRow]) -> None:
    """Count rows that entered outside as the run's, now that its state has them: a fork from before leaves them out."""
    seqs = [row.seq for row in rows if row.outside and row.branch == work.branch]
    if seqs:
        work.tx.run(_CLAIM, {"thread_key": work.thread.key, "branch_no": work.branch, "seqs": seqs})


def _is_change(tx: Tx, thread_key: int, message: Archived, row: KnownRow) -> bool:
    """Tell whether a checkpoint's message replaces the row; a text edited outside gives way to a real change only."""
    if row.body == message.body or dump_message(message_of(row.id, row.body)) == message.body:
        return False
    if message.surely:
        return True
    return _is_of_a_run(tx, thread_key, row)


def _is_of_a_run(tx: Tx, thread_key: int, row: KnownRow) -> bool:
    """Tell whether a checkpoint holds just this text, so that it was not written from outside."""
    params = {"thread_key": thread_key, "message_id": row.id, "body": row.body}
    return tx.first(_IS_BODY, params) is not None


def _open_line(work: _Work, changing: set[str]) -> Need | None:
    """Open a line at the work's position. Texts edited by runs after it get the parent's own text as an override."""
    tx, thread = work.tx, work.thread
    statement, params = _EDITED(work.path)
    rows = [KnownRow._make(row) for row in tx.all(statement, {"thread_key": thread.key, **params})]
    edited = [r for r in rows if r.id not in changing and _is_of_a_run(tx, thread.key, r)]
    own = work.plan.own
    if own is None and edited:
        return Need(tuple(row.id for row in edited))
    work.branch = open_branch(tx, thread.key, work.path)
    work.forked, work.lines = True, None
    for row in edited:
        body = (own or {}).get(row.id)
        if body is not None and body != row.body:
            role = load_message(body).type
            _change(work, Archived(row.id, role, row.kind, body, row.tokens), row)
    return None


def _written(
    message: Archived,
    *,
    seq: int,
    branch: int,
    kind: str | None,
    metadata: Mapping[str, Any],
    revision: int,
    created_at: int,
    outside: bool = False,
    overrides: int | None = None,
) -> WrittenRow:
    return WrittenRow(
        seq=seq,
        branch=branch,
        id=message.id,
        role=message.role,
        kind=kind,
        message=message_of(message.id, message.body),
        metadata=metadata,
        tokens=message.tokens,
        revision=revision,
        created_at=created_at,
        outside=outside,
        overrides=overrides,
    )


def _append(work: _Work, new: Sequence[Archived]) -> None:
    """Add rows behind the head."""
    rows = []
    plan, accepted = work.plan, set(work.plan.accepted)
    for message in new:
        provisional = plan.run != "final" and message.id not in accepted
        kind = REFUSED if provisional else message.kind
        if not provisional and message.id in plan.replaced:
            instead = plan.replaced[message.id]
            if instead is None:
                continue
            message = instead._replace(id=message.id)  # noqa: PLW2901
        rows.append(
            {
                "thread": work.thread.key,
                "seq": work.next_seq,
                "branch": work.branch,
                "id": message.id,
                "role": message.role,
                "kind": kind,
                "body": message.body,
                "metadata": dump_json(message.metadata) if message.metadata else None,
                "tokens": message.tokens,
                "revision": 1,
                "outside": 0,
                "created_at": work.tx.now,
            }
        )
        if not provisional:
            work.saved.append(
                _written(
                    message,
                    seq=work.next_seq,
                    branch=work.branch,
                    kind=kind,
                    metadata=message.metadata,
                    revision=1,
                    created_at=work.tx.now,
                )
            )
        work.head = work.next_seq
        work.next_seq += 1
    work.inserts += rows


def _change(work: _Work, message: Archived, row: KnownRow, kind: str | None = None) -> None:
    """Change a row for this line: in its place, or as an override; other lines go on seeing the old one."""
    kind = kind or (row.kind if row.kind not in (None, "summary") else message.kind)
    metadata = {**load_json(row.metadata), **message.metadata}
    written = dump_json(metadata) if message.metadata else row.metadata
    content = Content(message.role, kind, message.body, written, message.tokens, row.revision + 1)
    kept = change_message(work.tx, work.thread, work.branch, (row.seq, row.branch), content)
    overrides = None if row.branch == work.branch else row.branch
    now = _written(
        message,
        seq=row.seq,
        branch=work.branch,
        kind=kind,
        metadata=metadata,
        revision=row.revision + 1,
        created_at=row.created_at,
        outside=bool(row.outside),
        overrides=overrides,
    )
    old = message_of(row.id, row.body) if kept else now.message
    work.edited.append(now)
    work.edited += [
        replace(now, branch=branch, kind=row.kind, message=old, revision=row.revision, overrides=row.branch)
        for branch in kept
    ]


def _retract(work: _Work, row: KnownRow) -> None:
    """Take a row of this run back; another line that sees it keeps it."""
    if work.is_seen_elsewhere(row.branch, row.seq):
        message = message_of(row.id, row.body)
        _change(work, Archived(row.id, message.type, row.kind, row.body, row.tokens), row, kind=REFUSED)
    else:
        work.removed.append(RetractedRow(row.seq, row.branch, row.id))


def _demote(work: _Work, base: int) -> None:
    """Make what this run has brought so far provisional: its record came later."""
    new = {row.seq for row in work.saved}
    gone = {(r.seq, r.branch) for r in work.removed}
    params = {"thread_key": work.thread.key, "branch_no": work.branch, "base": base}
    for row in map(KnownRow._make, work.tx.all(_ORDINARY, params)):
        if row.seq <= work.head and row.seq not in new and (row.seq, row.branch) not in gone:
            work.demoted.append(RetractedRow(row.seq, row.branch, row.id))


def _accept(work: _Work) -> None:
    """Make the provisional rows of a complete run ordinary ones: those in view that its record names.

    Where a run was interrupted and went on later, they may be older than its last step, or stand on the line that the
    run has left since.
    """
    accepted, replaced = work.plan.accepted, work.plan.replaced
    gone = {(r.seq, r.branch) for r in work.removed}
    found: dict[str, KnownRow] = {}
    rows = work.tx.all(_REFUSED, {"thread_key": work.thread.key, "ids": list(accepted)})
    for row in map(KnownRow._make, rows):
        here = row.branch == work.branch and row.seq <= work.head
        seen = here or in_path(work.path, row.branch, row.seq)
        if seen and (row.seq, row.branch) not in gone and (row.id not in found or found[row.id].branch < row.branch):
            found[row.id] = row
    for row in sorted(found.values(), key=lambda row: row.seq):
        instead = replaced.get(row.id)
        if instead is not None:
            metadata = dump_json(instead.metadata) if instead.metadata else None
            row = row._replace(body=instead.body, metadata=metadata, tokens=instead.tokens)  # noqa: PLW2901
        elif row.id in replaced:
            work.removed.append(RetractedRow(row.seq, row.branch, row.id))
            continue
        _settle(work, row)
    work.saved.sort(key=lambda written: written.seq)


def _settle(work: _Work, row: KnownRow) -> None:
    """Make a provisional row an ordinary one, for this line, with what is to stand in it."""
    message = message_of(row.id, row.body)
    kind = kind_of(message)
    if row.branch == work.branch:
        at_row = {"thread_key": work.thread.key, "at_seq": row.seq, "at_branch": row.branch}
        new = {"new_kind": kind, "new_role": message.type, "new_body": row.body}
        work.tx.run(_SETTLE_ROW, {**at_row, **new, "new_metadata": row.metadata, "new_tokens": row.tokens})
    else:
        content = Content(message.type, kind, row.body, row.metadata, row.tokens, row.revision)
        change_message(work.tx, work.thread, work.branch, (row.seq, row.branch), content)
    work.saved.append(
        WrittenRow(
            seq=row.seq,
            branch=work.branch,
            id=row.id,
            role=message.type,
            kind=kind,
            message=message,
            metadata=load_json(row.metadata),
            tokens=row.tokens,
            revision=row.revision,
            created_at=row.created_at,
            outside=False,
        )
    )


def _finish(work: _Work, unchanged: Archive) -> Archive:
    """Remove what was taken back, and return what is left to do."""
    tx, thread = work.tx, work.thread
    edits = int(bool(work.edited or work.removed or work.demoted or work.forked))
    if not (work.saved or edits or work.inserts):
        return unchanged if work.head == unchanged.head else _moved(unchanged, work)
    archive = Archive(
        work.branch,
        work.head,
        work.next_seq,
        thread.texts + int(bool(work.saved)),
        thread.edits + edits,
        inserts=tuple(work.inserts),
        saved=tuple(work.saved),
        edited=tuple(work.edited),
    )
    now = _thread_after(thread, archive)
    if work.demoted:
        on_messages_deleted.fire(tx, now, work.demoted)
        for row in work.demoted:
            at_row = {"thread_key": thread.key, "at_seq": row.seq, "at_branch": row.branch}
            tx.run(_SET_KIND, {**at_row, "new_kind": REFUSED})
    if work.removed:
        on_messages_deleted.fire(tx, now, work.removed)
        for row in work.removed:
            tx.run(_REMOVE, {"thread_key": thread.key, "at_seq": row.seq, "at_branch": row.branch})
    return archive


def _moved(unchanged: Archive, work: _Work) -> Archive:
    return Archive(unchanged.branch, work.head, unchanged.next_seq, unchanged.texts, unchanged.edits, changed=False)


def _thread_after(thread: ThreadRow, archive: Archive) -> ThreadRow:
    """Return the thread's row as it will be."""
    return replace(
        thread,
        next_seq=archive.next_seq,
        branch=archive.branch,
        head=archive.head,
        texts=archive.texts,
        edits=archive.edits,
    )
