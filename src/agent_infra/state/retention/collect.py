"""Collection: what retention no longer needs is removed, in bounded passes, each batch atomic.

A node's data may go once no readable version of any session shows it alive (`needs.py`). What stays of it is a stub,
and of its version the record, so the chain of hashes still reaches down to step 1. Before anything is removed, the
versions that it was for are marked as collected: a crash in between leaves too much data, never too little.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from agent_infra.clock import MICROS
from agent_infra.content import referred_cids
from agent_infra.state.retention.keeping import Retention
from agent_infra.state.retention.needs import Needs
from agent_infra.state.retention.removal import Removal
from agent_infra.state.retention.spans import Spans, count, covers, joined, without
from agent_infra.state.rows import keys, records
from agent_infra.state.rows.records import Progress

if TYPE_CHECKING:
    from agent_infra.state.blobs import BlobStore
    from agent_infra.state.engine import StateEngine
    from agent_infra.state.stores import Write


@dataclass(frozen=True, slots=True)
class Collected:
    """What a pass freed. `more`: there is more to do, call again."""

    versions: int = 0
    nodes: int = 0
    blobs: int = 0
    bytes: int = 0
    more: bool = False

    def __add__(self, other: Collected) -> Collected:
        return Collected(
            self.versions + other.versions,
            self.nodes + other.nodes,
            self.blobs + other.blobs,
            self.bytes + other.bytes,
            self.more or other.more,
        )

    def __str__(self) -> str:
        rest = "; there is more to do" if self.more else ""
        return f"{self.versions} versions, {self.nodes} nodes, {self.blobs} blobs, {self.bytes} bytes freed{rest}"


class Collector:
    """One bounded pass over one session, run under its lock and the topology lock, so that no head moves back and
    nobody pins or forks meanwhile.
    """

    def __init__(self, engine: StateEngine, blobs: BlobStore | None, session: str, limit: int) -> None:
        self._engine = engine
        self._keeping = engine.keeping
        self._session = session
        self._head = engine.head(session)
        self._lineage = engine.lineage(self._head.branch, self._head.step)
        self._limit = self._left = limit
        self._more = False
        self._versions = 0
        self._removal = Removal(engine, blobs)
        self._blobs = blobs

    def run(self, policy: Retention) -> Collected:
        """Apply a policy to the session. Each kind of work has a limit of its own: under steady writing, what comes new
        must not keep the pass from what is to be collected.
        """
        if policy.limits_line and self._lineage:
            self._let_go_before(self._first_wanted(policy))
        if policy.abandoned_after is not None:
            self._cut_abandoned(round(policy.abandoned_after * MICROS))
        self._left = self._limit
        self._queue_deaths()
        self._left = self._limit
        self._collect_doomed()
        self._removal.sweep_blobs()
        freed = self._removal
        return Collected(self._versions, freed.nodes, freed.blobs, freed.bytes, self._more)

    def _may_go_on(self) -> bool:
        """Whether the pass may look at one thing more."""
        self._left -= 1
        self._more = self._more or self._left < 0
        return self._left >= 0

    @cached_property
    def _lines(self) -> dict[int, list[tuple[str, int]]]:
        """By branch, each session whose line goes through it, and the line's last step on it."""
        lines: dict[int, list[tuple[str, int]]] = {}
        for session in self._engine.all_sessions():
            head = self._engine.head(session)
            for br, last in self._engine.lineage(head.branch, head.step):
                lines.setdefault(br, []).append((session, last))
        return lines

    # -- the session's line ------------------------------------------------------------------------------------------

    def _first_wanted(self, policy: Retention) -> int:
        """The oldest step of the line that every limit of the policy still keeps; the head always is kept."""
        head, first = self._head.step, 1
        if policy.keep_last is not None:
            first = max(first, head - policy.keep_last + 1)
        if policy.max_age is not None:
            oldest = self._engine.clock.micros() - round(policy.max_age * MICROS)
            first += bisect_left(range(first, head), oldest, key=self._created)
        if policy.max_bytes is not None:
            first = self._first_within(policy.max_bytes, first)
        return first

    def _created(self, step: int) -> int:
        return self._engine.place_in_line(self._session, step).created

    def _first_within(self, limit: int, first: int) -> int:
        """The oldest step from `first` on, so that the nodes of all later ones take at most so many bytes."""
        readable = self._first_readable()
        first = max(first, readable[1] if readable else 1)
        counted: set[str] = set()
        size, step = 0, self._head.step
        for _, step, record in self._engine.view(self._session).placed_records():
            size += self._size_of(records.decode_content(record.content), counted)
            if size > limit:
                return min(step + 1, self._head.step)
            if step <= first:
                break
        return step

    def _size_of(self, content: records.Content, counted: set[str]) -> int:
        """The bytes of a version's nodes, and of the content that they refer to and that was not counted before."""
        rows = self._engine.store.get_many([keys.node(ulid) for ulid, _ in content.nodes])
        size = sum(len(row) for row in rows if row is not None)
        for row in rows:
            if self._blobs is None or row is None or b'"$cid"' not in row:
                continue
            for cid in referred_cids(records.read_node(bytes(16), row, "").data):
                if cid not in counted:
                    counted.add(cid)
                    size += self._blobs.size(cid)
        return size

    def _let_go_before(self, first: int) -> None:
        """Let the session ask for its line from a step on only. What no other session asks for either is collected."""
        rows: list[Write] = []
        if self._keeping.asked_from(self._session) != first:
            rows.append(self._keeping.asked_row(self._session, first))
        for br, last in self._lineage:
            start = self._engine.fork_step(br) + 1
            if start >= first:
                continue
            taken = self._untaken(br, ((start, min(last, first - 1)),))
            taken = self._unasked(br, taken) if taken else taken
            if taken:
                rows.append(self._keeping.remains_row(br, joined(self._keeping.gone(br), taken)))
                self._versions += count(taken) - sum(covers(taken, step) for step in self._keeping.pinned(br))
        if rows:
            self._keeping.write(rows)

    def _untaken(self, br: int, spans: Spans) -> Spans:
        """Those of the steps that are not collected yet."""
        for gone in self._keeping.gone(br):
            spans = without(spans, *gone)
        return spans

    def _unasked(self, br: int, spans: Spans) -> Spans:
        """Those of the steps that no other session asks for."""
        for session, last in self._lines.get(br, []):
            if session != self._session:
                spans = without(spans, self._keeping.asked_from(session), last)
        return spans

    # -- abandoned tails ---------------------------------------------------------------------------------------------

    def _cut_abandoned(self, age: int) -> None:
        """Remove what was rolled back and is old: of each of the session's branches, what is behind the last version
        that a line, a pin or another branch leads through. Later branches first, as they begin on earlier ones.
        """
        before = self._engine.clock.micros() - age
        for br in sorted(self._engine.branches_of(self._session), reverse=True):
            tip = self._engine.tip(br)
            own = dict(self._lineage).get(br, self._engine.fork_step(br))
            if tip <= own or self._engine.place_at(br, tip).created > before:
                continue
            needed = self._last_needed(br)
            if tip > needed:
                taken = self._untaken(br, ((needed + 1, tip),))
                if taken or not self._keeping.closed(br):
                    gone = joined(self._keeping.gone(br), taken)
                    self._keeping.write([self._keeping.remains_row(br, gone, closed=True)])
                self._versions += count(taken)
                for step in range(tip, needed, -1):
                    if not self._may_go_on():
                        return
                    self._removal.drop_version(br, step)
                    self._engine.set_tip(br, step - 1)

    def _last_needed(self, br: int) -> int:
        ends = [last for _, last in self._lines.get(br, [])]
        return max([self._engine.fork_step(br), *ends, *self._keeping.pinned(br), *self._engine.forks_off(br)])

    # -- dead nodes --------------------------------------------------------------------------------------------------

    def _progress(self) -> Progress:
        written = self._engine.store.get(keys.doomed_prefix(self._session))
        return records.decode_progress(written) if written else Progress()

    def _queue_deaths(self) -> None:
        """Queue what died up to the line's first readable version, and what expired before it."""
        first = self._first_readable()
        if first is None:
            return
        prefix = keys.doomed_prefix(self._session)
        done = before = self._progress()
        rows: list[Write] = []
        for br, step in self._steps_behind(done, first):
            if not self._may_go_on():
                break
            row = self._engine.store.get(keys.version(br, step)) or b""
            deaths = records.decode_content(records.decode_version(row).content).deaths
            rows += [(prefix + ulid, b"") for ulid, _ in deaths]
            done = Progress(br, step, done.cursor)
        moment = self._engine.place_at(*first).created
        ended = self._engine.store.scan(
            keys.expiry_prefix(self._session), keys.expiry(self._session, moment, b"\xff" * 16)
        )
        for key, _ in ended:
            if not self._may_go_on():
                break
            rows += [(prefix + key[-16:], b""), (key, None)]
        if rows or done != before:
            fresh = [key[len(prefix) :] for key, value in rows if value is not None]
            if (
                fresh and done.cursor
            ):  # collecting goes on where it stopped: what is queued before that must not be missed
                done = Progress(done.branch, done.step, min(done.cursor, *fresh))
            self._engine.store.write([*rows, (prefix, records.pack(done))])

    def _first_readable(self) -> tuple[int, int] | None:
        """(branch, step) from which on the line is readable up to its head; None where nothing of it was collected."""
        newer: tuple[int, int] | None = None
        for br, last in self._lineage:
            taken = [min(end, last) for start, end in self._keeping.gone(br) if start <= last]
            if taken:
                return newer if max(taken) == last else (br, max(taken) + 1)
            newer = (br, self._engine.fork_step(br) + 1)
        return None

    def _steps_behind(self, done: Progress, first: tuple[int, int]) -> Iterator[tuple[int, int]]:
        """The places of the line behind one place, from its beginning where that lies on no line any more, up to
        another, oldest first.
        """
        on_line = done.step <= dict(self._lineage).get(done.branch, -1)
        after = done.step if on_line else 0
        for br, last in reversed(self._lineage):
            start = max(self._engine.fork_step(br), after) + 1
            yield from ((br, step) for step in range(start, min(last, first[1]) + 1))

    def _collect_doomed(self) -> None:
        """Remove the data of queued nodes that nothing needs; the others stay queued. A pass goes on where the last one
        stopped.
        """
        prefix = keys.doomed_prefix(self._session)
        done, needs = self._progress(), Needs(self._engine)
        queued = self._engine.store.scan(prefix + (done.cursor or b"\0"), keys.after(prefix))
        reached = b""
        for key, _ in queued:
            ulid = key[len(prefix) :]
            if not self._may_go_on():
                reached = ulid
                break
            row = self._engine.store.get(keys.node(ulid))
            if row is not None and not records.is_stub(row):
                if needs.is_needed(ulid, row):
                    continue
                self._removal.stub_node(ulid)
            self._removal.flush((key, None))
        if reached != done.cursor:
            self._engine.store.write([(prefix, records.pack(Progress(done.branch, done.step, reached)))])
