"""A world for the observation log: threads, branches, observers and reflectors that interleave, and a strict checker.

Everything is plain Python: the store is a list, a commit is atomic, and what happens between reading and writing is up
to whoever drives the tasks. The checker knows nothing of the transitions; it compares what the log says with what the
messages are, revision by revision.
"""

from __future__ import annotations

import random
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from langchain_mastra_memory.observation import planning, transitions, units
from langchain_mastra_memory.observation.log import (
    START,
    Head,
    LogRow,
    LogState,
    MessageFact,
    Path,
    Span,
    between,
    digest,
    log_tokens,
)

Task = Generator[str, None, None]


class ViolationError(AssertionError):
    """The log lost, repeated or misquoted something."""


@dataclass
class Msg:
    seq: int
    branch: int
    id: str
    role: str
    calls: tuple[str, ...] = ()
    answers: str | None = None
    tokens: int = 10
    revision: int = 1

    def fact(self) -> MessageFact:
        return MessageFact(
            id=self.id,
            seq=self.seq,
            branch=self.branch,
            revision=self.revision,
            role=self.role,
            calls=self.calls,
            answers=self.answers,
            tokens=self.tokens,
        )


@dataclass
class Thread:
    key: int
    name: str
    next_seq: int = 0
    branch: int = 0
    head: int = START
    ancestors: dict[int, tuple[tuple[int, int], ...]] = field(default_factory=lambda: {0: ()})
    rows: list[Msg] = field(default_factory=list)

    def path(self, branch: int | None = None, head: int | None = None) -> Path:
        branch = self.branch if branch is None else branch
        head = self.head if head is None else head
        steps = tuple((b, min(cut, head)) for b, cut in self.ancestors[branch])
        return Path(self.key, (*steps, (branch, head)))

    def view(self, path: Path | None = None) -> list[Msg]:
        path = path or self.path()
        seen: dict[int, Msg] = {}
        for row in self.rows:
            if path.shows(row.branch, row.seq) and (row.seq not in seen or row.branch > seen[row.seq].branch):
                seen[row.seq] = row
        return [seen[seq] for seq in sorted(seen)]

    def end(self, branch: int) -> int:
        return max((row.seq for row in self.rows if row.branch == branch), default=START)


@dataclass
class Log:
    epoch: str
    version: int = 0
    heads: list[Head] = field(default_factory=list)
    rows: dict[str, LogRow] = field(default_factory=dict)


@dataclass
class World:
    """Threads of one resource and their logs: one for each thread, or one for all."""

    rng: random.Random
    scope: Literal["thread", "resource"] = "thread"
    threads: dict[str, Thread] = field(default_factory=dict)
    logs: dict[Any, Log] = field(default_factory=dict)
    ids: Iterator[int] = field(default_factory=lambda: iter(range(10**9)))
    dropped: int = 0
    committed: int = 0
    cursors: dict[tuple[int, int], int] = field(default_factory=dict)

    # threads

    def new(self, prefix: str) -> str:
        return f"{prefix}{next(self.ids)}"

    def thread(self, name: str) -> Thread:
        if name not in self.threads:
            self.threads[name] = Thread(key=next(self.ids), name=name)
        return self.threads[name]

    def log_of(self, thread: Thread) -> Log:
        key = thread.key if self.scope == "thread" else "all"
        if key not in self.logs:
            self.logs[key] = Log(epoch=self.new("epoch"))
        return self.logs[key]

    def save(self, thread: Thread, role: str, calls: tuple[str, ...] = (), answers: str | None = None) -> Msg:
        if thread.head != max(thread.end(thread.branch), START) and thread.rows:
            self._open_branch(thread)
        message = Msg(
            seq=thread.next_seq,
            branch=thread.branch,
            id=self.new("m"),
            role=role,
            calls=calls,
            answers=answers,
            tokens=self.rng.randint(1, 40),
        )
        thread.rows.append(message)
        thread.head = thread.next_seq
        thread.next_seq += 1
        return message

    def _open_branch(self, thread: Thread) -> None:
        branch = max(thread.ancestors) + 1
        thread.ancestors[branch] = thread.path().steps
        thread.branch = branch

    def grow(self, thread: Thread) -> None:
        """Add whatever may come next: a question, a call, a result, an answer, or a crash in between."""
        view = thread.view()
        last = view[-1] if view else None
        open_calls = self._open_calls(view)
        dice = self.rng.random()
        if last is None or (last.role == "ai" and not last.calls) or dice < 0.08:
            self.save(thread, "human")
        elif open_calls and dice < 0.9:
            self.save(thread, "tool", answers=open_calls[0])
        elif not open_calls and dice < 0.5:
            self.save(thread, "ai", calls=tuple(self.new("c") for _ in range(self.rng.randint(1, 2))))
        elif not open_calls:
            self.save(thread, "ai")

    @staticmethod
    def _open_calls(view: list[Msg]) -> list[str]:
        answered = {m.answers for m in view}
        asked: list[str] = []
        for m in view:
            if m.role == "human":
                asked = []
            asked += [c for c in m.calls if c not in answered]
        return asked

    def fork(self, thread: Thread) -> None:
        view = thread.view()
        if view:
            at = self.rng.choice(view)
            steps = tuple((b, min(c, at.seq)) for b, c in thread.path().steps)
            kept = [(b, c) for b, c in steps if b <= at.branch]
            thread.branch, thread.head = at.branch, at.seq
            assert kept
            self.save(thread, "human")
            self._moved(thread)

    def switch(self, thread: Thread) -> None:
        branch = self.rng.choice(list(thread.ancestors))
        thread.branch, thread.head = branch, max(thread.end(branch), START)
        if thread.head == START and thread.ancestors[branch]:
            thread.head = thread.ancestors[branch][-1][1]
        self._moved(thread)

    def _moved(self, thread: Thread) -> None:
        if self.scope == "resource":
            self.cursors = {k: v for k, v in self.cursors.items() if k[0] != thread.key}

    def edit(self, thread: Thread, message: Msg | None = None) -> None:
        view = thread.view()
        if not view:
            return
        message = message or self.rng.choice(view)
        message.revision += 1
        self._changed(thread, message)

    def delete(self, thread: Thread) -> None:
        view = thread.view()
        if not view:
            return
        message = self.rng.choice(view)
        self._changed(thread, message)
        thread.rows.remove(message)

    def _changed(self, thread: Thread, message: Msg) -> None:
        log = self.log_of(thread)
        state = self.state(log)
        stale = transitions.touched(log.rows.values(), [(thread.key, message.seq)])
        for row_id in stale:
            log.rows[row_id] = replace(log.rows[row_id], stale=True)
        head = transitions.edited(state, stale)
        if head is not None:
            self._write(log, head)

    def clear(self, thread: Thread) -> None:
        thread.rows.clear()
        thread.ancestors = {0: ()}
        thread.branch, thread.head = 0, thread.next_seq - 1
        self._forget(thread)

    def delete_thread(self, thread: Thread) -> None:
        del self.threads[thread.name]
        self._forget(thread)

    def _forget(self, thread: Thread) -> None:
        log = self.log_of(thread)
        if self.scope == "thread":
            log.epoch, log.version, log.heads, log.rows = self.new("epoch"), 0, [], {}
        else:
            state = replace(self.state(log, threads=[*self.threads.values(), thread]))
            head, gone = transitions.without_thread(state, thread.key, self.new("epoch"))
            for row_id in gone:
                log.rows.pop(row_id, None)
            log.epoch = head.epoch
            self._write(log, head)
        self.cursors = {k: v for k, v in self.cursors.items() if k[0] != thread.key}

    def clone(self, thread: Thread) -> Thread | None:
        copy = self.thread(self.new("clone"))
        view = thread.view()
        copy.rows = [replace(m, branch=0, id=self.new("m"), revision=1) for m in view]
        copy.next_seq, copy.head = thread.next_seq, thread.head
        source = self.state(self.log_of(thread))
        target = self.log_of(copy)
        if self.scope == "thread":
            named = {*source.head.log, *source.head.buffered, *([source.head.pending] if source.head.pending else [])}
            rows = [source.rows[i] for i in [*named, *(_inputs(source, named) - named)]]
            ids = {row.id: self.new("row") for row in rows}
            copies = transitions.copied(rows, ids, source=thread.key, thread=copy.key, branch=0)
            head = Head(
                epoch=target.epoch,
                version=1,
                at=copy.head,
                log=tuple(ids[i] for i in source.head.log),
                buffered=tuple(ids[i] for i in source.head.buffered),
                pending=ids.get(source.head.pending or ""),
            )
        else:
            rows = transitions.base_rows(source, thread.key)
            ids = {row.id: self.new("row") for row in rows}
            copies = [
                replace(row, origin=old.id)
                for old, row in zip(
                    rows,
                    transitions.copied(rows, ids, source=thread.key, thread=copy.key, branch=0),
                    strict=True,
                )
            ]
            appended = transitions.appended(self.state(target), copies)
            if appended is None:
                return copy
            head = appended
        for row in copies:
            target.rows[row.id] = replace(row, text=_told(copy, row) if not row.stale else row.text)
        for row in copies:
            if row.is_reflection:
                target.rows[row.id] = replace(target.rows[row.id], text=_joined(target.rows, row))
        self._write(target, head)
        return copy

    # the log

    def state(self, log: Log, threads: list[Thread] | None = None) -> LogState:
        owners = threads or [t for t in self.threads.values() if self.log_of(t) is log]
        paths = {t.key: t.path() for t in owners}
        if self.scope == "thread" and owners:
            head = transitions.head_for(log.heads, owners[0].path(), log.epoch)
            movable = owners[0].head >= owners[0].end(owners[0].branch)
        else:
            head = max(log.heads, key=lambda h: h.version, default=Head(epoch=log.epoch, version=0))
            movable = True
        head = replace(head, epoch=log.epoch, version=log.version)
        return transitions.settle(LogState(head=head, rows=dict(log.rows), paths=paths, movable=movable))

    def _write(self, log: Log, head: Head) -> None:
        log.heads.append(head)
        log.version = head.version
        self._check_written(log, head)
        self._check_entries(log, head)

    def _check_written(self, log: Log, head: Head) -> None:
        """A head must be sound as it was written, before anything settles it."""
        if head.epoch != log.epoch:
            raise ViolationError(f"a head of epoch {head.epoch} was written into epoch {log.epoch}")
        reach: dict[int, int] = {}
        for row_id in (*head.log, *head.buffered):
            if row_id not in log.rows:
                raise ViolationError(f"{row_id} is named but not there")
            for span in log.rows[row_id].covers:
                if span.after != reach.get(span.thread, START):
                    raise ViolationError(
                        f"{row_id} was written behind {reach.get(span.thread)}, it starts at {span.after}"
                    )
                reach[span.thread] = span.upto

    def _check_entries(self, log: Log, head: Head) -> None:
        before = {i for h in log.heads[:-1] for i in h.log}
        for row_id in head.log:
            row = log.rows.get(row_id)
            if row_id not in before and row and row.stale and not row.is_reflection and row.origin is None:
                fresh = any(row_id in h.buffered for h in log.heads[:-1])
                if fresh:
                    raise ViolationError(f"{row_id} was edited while it waited and entered the log")

    def facts(self, log: Log) -> dict[int, list[MessageFact]]:
        return {t.key: [m.fact() for m in t.view()] for t in self.threads.values() if self.log_of(t) is log}

    def commit(
        self,
        log: Log,
        state: LogState,
        head: Head,
        rows: tuple[LogRow, ...],
        result: transitions.Observed | None = None,
    ) -> bool | transitions.Refused:
        """Write a head: one transaction."""
        if not transitions.same_version((state.head.epoch, state.head.version), (log.epoch, log.version)):
            return False
        now = {t.key: t.path() for t in self.threads.values()}
        if not transitions.same_lines(state.paths, now):
            return False
        if result is not None:
            refused = transitions.check_messages(result, self.facts(log))
            if refused:
                return refused
            self._check_ends(result, self.facts(log))
        for row in rows:
            log.rows[row.id] = row
        self._write(log, head)
        self.committed += 1
        return True

    def _check_ends(self, result: transitions.Observed, facts: dict[int, list[MessageFact]]) -> None:
        """A range may not end inside a unit: judged here without `units`."""
        for row in result.rows:
            span = row.covers[0]
            inside = [m for m in facts.get(span.thread, []) if m.seq is not None and m.seq <= span.upto]
            later = [m for m in facts.get(span.thread, []) if m.seq is not None and m.seq > span.upto]
            asked = {c for m in inside for c in m.calls} - {m.answers for m in inside}
            if asked & {m.answers for m in later}:
                raise ViolationError("a tool call was observed without its result")
            if asked and not any(m.role in {"human", "ai"} for m in later):
                tail = max(n for n, m in enumerate(inside) if set(m.calls) & asked)
                if not any(m.role in {"human", "ai"} for m in inside[tail + 1 :]):
                    raise ViolationError("an open tool call was observed")
            if not result.in_loop and later:
                continue
            if not result.in_loop and inside and (inside[-1].role != "ai" or inside[-1].calls):
                raise ViolationError("the running turn was observed")

    # observers and reflectors

    def observer(self, log: Log, target: transitions.Target, *, cut: bool = False) -> Task:
        state = self.state(log)
        if not state.movable or not state.paths:
            return
        facts = self.facts(log)
        in_loop = target == "log" and self.rng.random() < 0.3
        rows, digests = [], []
        for key, messages in facts.items():
            tail = planning.tail(messages, state.cursor(key), state.buffered_to(key))
            chosen = tail.loop if in_loop else tail.closed
            if not chosen:
                continue
            if not cut:
                ends = [u.end for u in units.units(chosen)]
                chosen = chosen[: self.rng.choice(ends)]
            else:
                chosen = chosen[: self.rng.randint(1, len(chosen))]
            last = chosen[-1]
            assert last.seq is not None
            span = Span(key, last.branch, state.buffered_to(key), last.seq)
            rows.append(
                LogRow(
                    id=self.new("row"),
                    covers=(span,),
                    text=repr(digest(chosen)),
                    tokens=max(1, planning.tokens(chosen) // 4),
                    message_tokens=planning.tokens(chosen),
                )
            )
            digests.append(digest(chosen))
            if self.scope == "thread" or self.rng.random() < 0.5:
                break
        if not rows:
            return
        result = transitions.Observed(
            epoch=state.head.epoch,
            rows=tuple(rows),
            digests=tuple(digests),
            target=target,
            in_loop=in_loop,
        )
        yield "called the observer"
        while True:
            state = self.state(log)
            if not state.movable:
                return
            head = transitions.commit_observed(state, result)
            if isinstance(head, transitions.Refused):
                self.dropped += 1
                return
            yield "read the head"
            done = self.commit(log, state, head, result.rows, result)
            if isinstance(done, transitions.Refused):
                self.dropped += 1
            if done is not False:
                return

    def reflector(self, log: Log, target: Literal["log", "pending"]) -> Task:
        state = self.state(log)
        if len(state.head.log) < 1 or not state.movable:
            return
        inputs = state.log[: self.rng.randint(1, len(state.log))]
        size = log_tokens(replace(state, head=replace(state.head, log=tuple(r.id for r in inputs))))
        row = LogRow(id=self.new("row"), covers=(), text=repr([r.text for r in inputs]), tokens=max(1, size // 2))
        result = transitions.Reflected(
            epoch=state.head.epoch,
            row=transitions.reflection_of(inputs, row),
            size=size,
            target=target,
        )
        yield "called the reflector"
        while True:
            state = self.state(log)
            if not state.movable:
                return
            head = transitions.commit_reflected(state, result)
            if isinstance(head, transitions.Refused):
                self.dropped += 1
                return
            yield "read the head"
            row = transitions.as_committed(state, result.row)
            if self.commit(log, state, head, (row,)):
                return

    def activator(self, log: Log) -> Task:
        while True:
            state = self.state(log)
            if not state.movable:
                return
            head = transitions.activate(state, self.rng.randint(1, 3))
            if head is None:
                head = transitions.activate_reflection(state)
            if head is None:
                return
            yield "read the head"
            if self.commit(log, state, head, ()):
                return

    # the checker

    def check(self) -> None:
        """Raise `ViolationError` unless every message in view is covered once or raw, and quoted as it is."""
        for log in {id(self.log_of(t)): self.log_of(t) for t in self.threads.values()}.values():
            state = self.state(log)
            for thread in [t for t in self.threads.values() if self.log_of(t) is log]:
                self._check_thread(log, state, thread)

    def _check_thread(self, log: Log, state: LogState, thread: Thread) -> None:
        path, reach = thread.path(), START
        view = [m.fact() for m in thread.view()]
        for row_id in (*state.head.log, *state.head.buffered):
            row = state.rows[row_id]
            for span in row.covers:
                if span.thread != thread.key:
                    continue
                if not path.shows(span.branch, span.upto):
                    raise ViolationError(f"{row_id} is not visible here")
                if span.after != reach:
                    raise ViolationError(f"{row_id} starts behind {span.after}, the one before ended at {reach}")
                reach = span.upto
            if not row.stale and any(state.rows[i].stale for i in _inputs(state, {row_id})):
                raise ViolationError(f"{row_id} was made from an edited message and is not marked")
            if not row.stale and any(s.thread == thread.key for s in row.covers):
                told = _flat(state, row_id, thread.key)
                now = digest(between(view, row.covers[_place(row, thread.key)].after, reach))
                if told != now:
                    raise ViolationError(f"{row_id} says {told}, the messages are {now}")
        if any(state.rows[i].stale for i in state.head.buffered):
            raise ViolationError("a stale row waits in the buffer")
        if len({*state.head.log, *state.head.buffered}) != len(state.head.log) + len(state.head.buffered):
            raise ViolationError("a row is named twice")
        if state.movable:
            line = (thread.key, thread.branch)
            cursor = state.cursor(thread.key)
            if cursor < self.cursors.get(line, START):
                raise ViolationError(f"the cursor of {line} moved back from {self.cursors[line]} to {cursor}")
            self.cursors[line] = cursor

    def drain(self) -> None:
        """Observe everything that is closed, and check that nothing is stranded."""
        for thread in list(self.threads.values()):
            view = thread.view()
            if not view or thread.head < thread.end(thread.branch):
                continue
            self.save(thread, "human")
            self.save(thread, "ai")
        for log in {id(self.log_of(t)): self.log_of(t) for t in self.threads.values()}.values():
            for _ in range(300):
                list(self.observer(log, "log"))
                state = self.state(log)
                facts = self.facts(log)
                if not any(planning.tail(m, state.cursor(k), state.buffered_to(k)).closed for k, m in facts.items()):
                    break
            state = self.state(log)
            while state.movable and (head := transitions.activate(state, 99)) is not None:
                self._write(log, head)
                state = self.state(log)
            if state.movable:
                for key, messages in self.facts(log).items():
                    if planning.tail(messages, state.cursor(key), state.buffered_to(key)).closed:
                        raise ViolationError("closed messages are stranded")
        self.check()


def _inputs(state: LogState, ids: set[str]) -> set[str]:
    found: set[str] = set()
    waiting = list(ids)
    while waiting:
        for source in state.rows[waiting.pop()].inputs:
            if source not in found and source in state.rows:
                found.add(source)
                waiting.append(source)
    return found


def _told(thread: Thread, row: LogRow) -> str:
    if row.is_reflection:
        return row.text
    span = row.covers[0]
    return repr(digest(between([m.fact() for m in thread.view()], span.after, span.upto)))


def _joined(rows: dict[str, LogRow], row: LogRow) -> str:
    return repr([_joined(rows, rows[i]) if rows[i].is_reflection else rows[i].text for i in row.inputs])


def _place(row: LogRow, thread: int) -> int:
    return next(n for n, span in enumerate(row.covers) if span.thread == thread)


def _flat(state: LogState, row_id: str, thread: int) -> tuple[Any, ...]:
    """What a row says of a thread, read out of its text (and its inputs' texts) alone."""
    row = state.rows[row_id]
    if row.is_reflection:
        return tuple(part for i in row.inputs if i in state.rows for part in _flat(state, i, thread))
    if row.covers[0].thread != thread:
        return ()
    return tuple(eval(row.text))


PROFILES: dict[str, dict[str, int]] = {
    "even": {
        "grow": 34,
        "task": 28,
        "observe": 10,
        "activate": 6,
        "reflect": 5,
        "edit": 5,
        "delete": 3,
        "fork": 3,
        "switch": 3,
        "clear": 1,
        "remove": 1,
        "clone": 1,
    },
    "branches": {
        "grow": 30,
        "task": 26,
        "observe": 12,
        "activate": 4,
        "reflect": 2,
        "edit": 10,
        "fork": 7,
        "switch": 9,
    },
    "churn": {"grow": 26, "task": 34, "observe": 14, "activate": 14, "reflect": 4, "clear": 8},
}
"""How often what happens, in parts."""


def play(
    seed: int,
    *,
    scope: Literal["thread", "resource"] = "thread",
    steps: int = 80,
    cut: bool = False,
    profile: str = "even",
) -> World:
    """Let threads, observers and reflectors of one seed interleave, checking after every step."""
    rng = random.Random(seed)
    world = World(rng=rng, scope=scope)
    names = ["a"] if scope == "thread" else ["a", "b", "c"]
    tasks: list[Task] = []
    weights = PROFILES[profile]
    for _ in range(steps):
        thread = world.thread(rng.choice(names))
        log = world.log_of(thread)
        match rng.choices(list(weights), list(weights.values()))[0]:
            case "grow":
                for _ in range(rng.randint(1, 4)):
                    world.grow(thread)
            case "task" if tasks:
                task = rng.choice(tasks)
                if next(task, None) is None:
                    tasks.remove(task)
            case "observe":
                tasks.append(world.observer(log, rng.choice(["log", "buffered"]), cut=cut))
            case "activate":
                tasks.append(world.activator(log))
            case "reflect":
                tasks.append(world.reflector(log, rng.choice(["log", "pending"])))
            case "edit":
                world.edit(thread)
            case "delete":
                world.delete(thread)
            case "fork":
                world.fork(thread)
            case "switch":
                world.switch(thread)
            case "clear":
                world.clear(thread)
            case "remove":
                world.delete_thread(thread)
            case "clone":
                copy = world.clone(thread)
                if copy is not None and rng.random() < 0.5:
                    names.append(copy.name)
        world.check()
    for task in tasks:
        for _ in task:
            world.check()
    world.drain()
    return world
