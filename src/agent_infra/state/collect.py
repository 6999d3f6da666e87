"""Collection: what retention no longer needs is removed, in bounded passes, each batch atomic.

A node's data may go if no readable version of any line, no pin and no abandoned version that is still kept shows it
alive. What stays of it is a stub, and of its version the record, so the chain of hashes still reaches down to step 1.
Before anything is removed, the versions that it was for are marked as collected: a crash in between leaves too much
data, never too little.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING

from agent_infra.clock import MICROS
from agent_infra.state import keys, records
from agent_infra.state.records import Line
from agent_infra.state.removal import Removal
from agent_infra.state.retention import EVERYTHING, Retention
from agent_infra.state.view import Lineage, Place

if TYPE_CHECKING:
    from agent_infra.state.blobs import BlobStore
    from agent_infra.state.engine import StateEngine


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


@dataclass(frozen=True, slots=True)
class _Line:
    """What leads to one session's head, and from where on it is readable."""

    session: str
    lineage: Lineage
    first: Line

    def last_on(self, br: int) -> int | None:
        """The last step of a branch that the line goes through, or None."""
        return dict(self.lineage).get(br)

    def first_on(self, br: int, fork_step: int) -> int:
        """The first step of a branch that the line still reads."""
        if self.first.branch == br:
            return self.first.step
        below = [branch for branch, _ in self.lineage]
        starts_below = self.first.branch == 0 or self.first.branch in below[below.index(br) + 1 :]
        return fork_step + 1 if starts_below else EVERYTHING


class Collector:
    """One bounded pass over one session, run under its lock and the topology lock, so that no line moves meanwhile."""

    def __init__(self, engine: StateEngine, blobs: BlobStore | None, session: str, limit: int) -> None:
        self._engine = engine
        self._keeping = engine.keeping
        self._session = session
        self._left = limit
        self._versions = 0
        self._removal = Removal(engine, blobs)

    def run(self, policy: Retention) -> Collected:
        """Apply a policy to the session."""
        if policy.limits_line:
            self._advance_line(policy)
        if policy.abandoned_after is not None:
            self._cut_abandoned(round(policy.abandoned_after * MICROS))
        self._queue_deaths()
        self._collect_doomed()
        freed = self._removal
        return Collected(self._versions, freed.nodes, freed.blobs, freed.bytes, self._left <= 0)

    @cached_property
    def _lines(self) -> list[_Line]:
        lines: list[_Line] = []
        for session in self._engine.all_sessions():
            head = self._engine.head(session)
            lineage = self._engine.lineage(head.branch, head.step)
            lines.append(_Line(session, lineage, self._keeping.line(session)))
        return lines

    def _lines_through(self, br: int) -> Iterator[_Line]:
        return (line for line in self._lines if line.last_on(br) is not None)

    # -- which versions ----------------------------------------------------------------------------------------------

    def _advance_line(self, policy: Retention) -> None:
        """Move the first readable place of the session's line up to where the policy wants it."""
        first = self._first_wanted(policy)
        old = self._keeping.line(self._session)
        if first is None or (first.branch, first.step) == (old.branch, old.step):
            return
        self._keeping.set_line(self._session, Line(first.branch, first.step))
        self.__dict__.pop("_lines", None)
        head = self._engine.head(self._session)
        for br, _ in self._engine.lineage(head.branch, head.step):
            before = max(self._keeping.first(br), self._engine.fork_step(br) + 1)
            wanted = min(line.first_on(br, self._engine.fork_step(br)) for line in self._lines_through(br))
            if wanted > before:
                self._keeping.set_remains(br, wanted, closed=False)
                self._versions += max(0, min(wanted - 1, self._engine.tip(br)) - before + 1)

    def _first_wanted(self, policy: Retention) -> Place | None:
        """The oldest version of the line that every limit of the policy still keeps."""
        oldest = self._engine.clock.micros() - round(policy.max_age * MICROS) if policy.max_age is not None else None
        kept: Place | None = None
        size = 0
        for count, (br, step, record) in enumerate(self._engine.view(self._session).placed_records()):
            content = records.decode_content(record.content)
            size += self._size_of(content) if policy.max_bytes is not None else 0
            too_many = policy.keep_last is not None and count >= policy.keep_last
            too_old = oldest is not None and content.created < oldest
            too_large = policy.max_bytes is not None and size > policy.max_bytes
            if kept is not None and (too_many or too_old or too_large):
                break
            kept = Place(br, step, record.hash, content.created)
        return kept

    def _size_of(self, content: records.Content) -> int:
        rows = self._engine.store.get_many([keys.node(ulid) for ulid, _ in content.nodes])
        return sum(len(row) for row in rows if row is not None)

    # -- abandoned tails ---------------------------------------------------------------------------------------------

    def _cut_abandoned(self, age: int) -> None:
        """Remove what was rolled back and is old: of each of the session's branches, what nothing needs any more."""
        before = self._engine.clock.micros() - age
        for br in sorted(self._engine.branches_of(self._session), reverse=True):
            needed, tip = self._needed_of(br), self._engine.tip(br)
            if tip <= needed or self._engine.place_at(br, tip).created > before:
                continue
            self._keeping.set_remains(br, self._keeping.first(br), closed=True)
            for step in range(tip, needed, -1):
                if self._left <= 0:
                    return
                self._removal.drop_version(br, step)
                self._engine.set_tip(br, step - 1)
                self._versions += 1
                self._left -= 1

    def _line_end(self, br: int) -> int:
        """The last step of a branch that a line goes through."""
        ends = [last for line in self._lines if (last := line.last_on(br)) is not None]
        return max(ends, default=self._engine.fork_step(br))

    def _needed_of(self, br: int) -> int:
        """The last step of a branch that a line, a pin or a branch that begins there needs."""
        pinned = [step for branch, step, _, _ in self._keeping.pins() if branch == br]
        return max([self._line_end(br), *pinned, *self._engine.forks_off(br)])

    # -- dead nodes --------------------------------------------------------------------------------------------------

    def _queue_deaths(self) -> None:
        """Queue what died up to the line's first readable version, and what expired before it."""
        line = self._keeping.line(self._session)
        if line.branch == 0:
            return
        prefix = keys.doomed_prefix(self._session)
        written = self._engine.store.get(prefix)
        done = records.decode_line(written) if written else Line(0, 0)
        first = self._engine.place_at(line.branch, line.step)
        rows: list[tuple[bytes, bytes | None]] = [(prefix, records.pack(line))]
        for br, step, record in self._engine.unchecked_view(self._session, first).placed_records():
            if (br, step) == (done.branch, done.step):
                break
            rows += [(prefix + ulid, b"") for ulid, _ in records.decode_content(record.content).deaths]
        start, end = keys.expiry_prefix(self._session), keys.expiry(self._session, first.created, b"")
        for key, _ in self._engine.store.scan(start, end):
            rows += [(prefix + key[-16:], b""), (key, None)]
        self._engine.store.write(rows)

    def _collect_doomed(self) -> None:
        """Remove the data of queued nodes that nothing readable shows alive; the others stay queued."""
        prefix = keys.doomed_prefix(self._session)
        queued = self._engine.store.scan(prefix + b"\0", keys.after(prefix))
        for key, _ in islice(queued, max(self._left, 0) + 1):
            if self._left <= 0:
                return
            ulid = key[len(prefix) :]
            row = self._engine.store.get(keys.node(ulid))
            self._left -= 1
            if row is not None and not records.is_stub(row):
                if self._is_needed(ulid, row):
                    continue
                self._removal.stub_node(ulid)
            self._removal.flush((key, None))

    def _is_needed(self, ulid: bytes, row: bytes) -> bool:
        """Whether a readable version of any line, a pin, or an abandoned version that is still kept shows it alive."""
        _, br, step, _, _ = records.node_place(row)
        for line in self._lines_through(br):
            if step <= (line.last_on(br) or 0) and not self._is_dead_at(line, ulid, row):
                return True
        pins = [Place(branch, at, b"", 0) for branch, at, _, _ in self._keeping.pins()]
        return any(self._shows(place, ulid) for place in [*pins, *self._kept_abandoned(br)])

    def _is_dead_at(self, line: _Line, ulid: bytes, row: bytes) -> bool:
        if line.first.branch == 0:
            return False
        place = self._engine.place_at(line.first.branch, line.first.step)
        view = self._engine.unchecked_view(line.session, place)
        if view.row(ulid) is None:
            return False
        expires = records.read_node(ulid, row, line.session).expires
        return view.death(ulid) is not None or (expires is not None and expires <= place.created)

    def _shows(self, place: Place, ulid: bytes) -> bool:
        view = self._engine.unchecked_view(self._session, place)
        return view.row(ulid) is not None and view.death(ulid) is None

    def _kept_abandoned(self, br: int) -> Iterator[Place]:
        """The first abandoned version that is still kept of each branch from here on: later ones show no more alive."""
        for branch in self._engine.branches_from(br):
            step = max(self._line_end(branch) + 1, self._keeping.first(branch))
            if step <= self._engine.tip(branch):
                yield Place(branch, step, b"", 0)
