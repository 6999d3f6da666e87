"""The engine: turns drafts of steps into batches, and versions into views. The one place that writes graph rows.

A step comes in as a `StepDraft`, is written as one batch with its new head, and leaves as a `Version`.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal, TypeAlias

from agent_infra.clock import Clock, SystemClock
from agent_infra.errors import InvalidSessionId, SessionExists, VersionConflict, VersionUnknown
from agent_infra.state.access.leases import Lease, check_lease
from agent_infra.state.access.locks import GroupSync, SessionLocks
from agent_infra.state.access.permissions import Guard
from agent_infra.state.blobs import BlobStore
from agent_infra.state.model import (
    LEDGER,
    SYSTEM_SESSIONS,
    StepDraft,
    Version,
    VersionId,
    root_hash,
    split_version,
    version_id,
)
from agent_infra.state.reading.view import Lineage, Place, View
from agent_infra.state.reading.watch import Bell
from agent_infra.state.retention.collect import Collected, Collector
from agent_infra.state.retention.keeping import Keeping, Retention, collected
from agent_infra.state.rows import keys, records
from agent_infra.state.rows.batch import Batch
from agent_infra.state.rows.records import Branch, Head
from agent_infra.state.schemas import Schema, SchemaBroker, Translation
from agent_infra.state.stores import Store, Write

Durability: TypeAlias = Literal["group", "step", "os"]


class StateEngine:
    """All sessions of one store. `durability` says when a commit returns:

    group   after an fsync that it may share with others (the default)
    step    after an fsync of its own
    os      once the operating system has it: survives kill -9, not a power cut
    """

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock | None = None,
        durability: Durability = "group",
        undeclared: Literal["warn", "refuse"] = "warn",
    ) -> None:
        self.store = store
        self.clock: Clock = clock or SystemClock()
        self.durability = durability
        self.locks = SessionLocks()
        self.bell = Bell()
        self._sync = GroupSync(store.sync)
        self._heads: dict[str, Head] = {}
        self._branches: dict[int, Branch] = {}
        self._children: dict[int, list[int]] = {}
        self._tips: dict[int, int] = {}
        self._lineages: dict[int, Lineage] = {}
        self._branch_lock = threading.Lock()
        self._next_branch = self._load_branches() + 1
        self.blobs: BlobStore | None = None
        self.keeping = Keeping(self)
        self.schemas = SchemaBroker(self, undeclared=undeclared)

    def _load_branches(self) -> int:
        for key, value in self.store.scan(b"B", b"C"):
            self._add_branch(keys.branch_number(key), records.decode_branch(value))
        return max(self._branches, default=0)

    def _add_branch(self, br: int, branch: Branch) -> None:
        self._branches[br] = branch
        self._children.setdefault(branch.parent, []).append(br)

    # -- where things are --------------------------------------------------------------------------

    def all_sessions(self) -> list[str]:
        """The ids of all sessions, the system's own and reward ledgers among them."""
        return [key[1:].decode() for key, _ in self.store.scan(b"H", b"I")]

    def sessions(self) -> list[str]:
        """The ids of users' sessions."""
        return [name for name in self.all_sessions() if not name.startswith("_") and not name.endswith(LEDGER)]

    def head(self, session: str) -> Head:
        """Where a session stands; a session that was never written stands at step 0."""
        head = self._heads.get(session)
        if head is None:
            row = self.store.get(keys.head(session))
            head = records.decode_head(row) if row else Head(0, 0, root_hash(session), 0)
            head = self._heads.setdefault(session, head)
        return head

    def version_of(self, session: str, place: Place | Head) -> str:
        """The version id of a place in a session's lineage."""
        owner = self.owner_of(place.branch) if place.branch else session
        return version_id(owner, place.step, place.hash)

    def owner_of(self, br: int) -> str:
        """The session that a branch belongs to. Raises StoreDamaged for a branch that was never begun."""
        branch = self._branches.get(br)
        if branch is None:
            raise records.damaged_row("row", LookupError(f"it names branch {br}, and there is none"))
        return branch.session

    def resolve(self, version: str) -> Place:
        """Where a version lies, on whatever branch, abandoned or not. Raises VersionUnknown."""
        session, step, hash8 = split_version(version)
        if step == 0 and hash8 == root_hash(session)[:8]:
            return Place(0, 0, root_hash(session), 0)
        for key, _ in self.store.scan(b"W" + hash8, keys.after(b"W" + hash8)):
            br, found = keys.hash_place(key)
            if found == step and self.owner_of(br) == session:
                if self.store.get(keys.version(br, step)) is None or not self.keeping.readable(br, step):
                    raise collected(version)
                return self.place_at(br, step)
        raise VersionUnknown(
            f"there is no version {version!r}",
            mend="`graph.history()` lists a session's versions.",
            facts={"version": version},
        )

    def locate(self, node_id: str) -> str | None:
        """The session that a node was written in, or None."""
        ulid = keys.raw_id(node_id)
        row = self.store.get(keys.node(ulid)) if ulid else None
        return self.owner_of(records.node_place(row)[1]) if row else None

    def place_in_line(self, session: str, step: int) -> Place:
        """A step of the line that leads to a session's head."""
        head = self.head(session)
        for br, last in self.lineage(head.branch, head.step):
            if self.fork_step(br) + 1 <= step <= last:
                return self.place_at(br, step)
        return Place(0, 0, root_hash(session), 0)

    def place_at(self, br: int, step: int) -> Place:
        """A version by its branch and step."""
        record = records.decode_version(self.store.get(keys.version(br, step)) or b"")
        return Place(br, step, record.hash, records.decode_content(record.content).created)

    def branch(self, br: int) -> Branch:
        """What a branch begins with."""
        return self._branches[br]

    def fork_step(self, br: int) -> int:
        """The step of its parent that a branch begins after."""
        return self._branches[br].fork_step

    def branches_of(self, session: str) -> list[int]:
        """The branches that a session's own steps were written on."""
        return [br for br, branch in list(self._branches.items()) if branch.session == session]

    def branches_from(self, br: int) -> list[int]:
        """A branch and all that begin on it or on one of these."""
        found = [br]
        for each in found:
            found += self._children.get(each, ())
        return found

    def forks_off(self, br: int) -> list[int]:
        """The steps after which branches begin that still have versions."""
        children = [(other, self.fork_step(other)) for other in self._children.get(br, ())]
        return [fork_step for other, fork_step in children if self.tip(other) > fork_step]

    def belongs(self, session: str, place: Place, version: str) -> bool:
        """Whether a version is one of a session's: on a branch of its own, in its line, or its empty beginning."""
        if place.branch == 0:
            return split_version(version)[0] == session
        head = self.head(session)
        line = dict(self.lineage(head.branch, head.step))
        return self.owner_of(place.branch) == session or place.step <= line.get(place.branch, -1)

    def lineage(self, br: int, step: int) -> Lineage:
        """(branch, last step) from a place down to the beginning."""
        return ((br, step), *self._above(br)) if br else ()

    def _above(self, br: int) -> Lineage:
        """The lineage that a branch begins on; a long line of short branches is walked, not recursed into."""
        walked: list[int] = []
        while br and br not in self._lineages:
            walked.append(br)
            br = self._branches[br].parent
        above = self._lineages.get(br, ())
        for each in reversed(walked):
            branch = self._branches[each]
            if branch.parent:
                above = ((branch.parent, branch.fork_step), *above)
            self._lineages[each] = above
        return above

    def view(
        self,
        session: str,
        place: Place | None = None,
        as_of: int | None = None,
        guard: Guard | None = None,
        translation: Translation | None = None,
    ) -> View:
        """A view of a session's head, or of a place in its history."""
        if place is None:
            head = self.head(session)
            place = Place(head.branch, head.step, head.hash, head.created)
            moment = max(self.clock.micros(), head.created) if as_of is None else as_of
        else:
            self.keeping.check(place, session)
            moment = place.created if as_of is None else as_of
        return self._view(session, place, moment, guard, translation)

    def unchecked_view(self, session: str, place: Place) -> View:
        """A view of a place whether or not retention still lets callers read it."""
        return self._view(session, place, place.created)

    def line_view(self, session: str, br: int, step: int) -> View:
        """A view of a branch up to a step, whether or not that is still a version."""
        return self._view(session, Place(br, step, b"", 0), 0)

    def _view(
        self,
        session: str,
        place: Place,
        moment: int,
        guard: Guard | None = None,
        translation: Translation | None = None,
    ) -> View:
        lineage = self.lineage(place.branch, place.step)
        return View(self.store, session, place, lineage, moment, self.owner_of, guard, translation)

    # -- writing -----------------------------------------------------------------------------------

    @contextmanager
    def writing(
        self, session: str, *, agent: str | None, expect: str | None, timeout: float, lease: Lease | None = None
    ) -> Generator[None]:
        """Hold a session's write lock, its head checked against `expect`, the lease against the newest one.

        Raises LockTimeout, VersionConflict, LeaseLost.
        """
        with self.locks.hold(session, agent=agent, timeout=timeout):
            if expect is not None:
                self._check_unmoved(session, expect)
            if lease is not None:
                check_lease(self, lease)
            yield

    def _check_unmoved(self, session: str, expect: str) -> None:
        head = self.head(session)
        now = self.version_of(session, head)
        seen = expect.seq if isinstance(expect, VersionId) else head.seq
        if now == expect and seen == head.seq:
            return
        why = f"the head is {now}, not {expect}" if now != expect else "it moved on and was rolled back to this version"
        raise VersionConflict(
            f"session {session!r} has moved",
            why=why,
            mend="Read the new head and decide again.",
            facts={"session": session, "expected": str(expect), "head": now},
        )

    def commit(self, session: str, draft: StepDraft, *further: Write) -> tuple[Version, int]:
        """Write a step while its session's lock is held, and further rows with it; give its version and a ticket for
        `settle`.
        """
        batch, head, version = self._batch(session, draft)
        batch.rows += further
        return version, self._write(batch, {session: head})

    def ticket(self) -> int:
        """A ticket for what was written into the store besides steps."""
        return self._sync.ticket()

    def settle(self, ticket: int | None = None) -> None:
        """Return once that commit (or every commit so far) is as durable as the setting promises."""
        if self.durability == "group":
            self._sync.wait(ticket)

    def rollback(self, session: str, to: Place, *, agent: str | None, why: str | None = None) -> tuple[VersionId, int]:
        """Move a session's head while its lock is held; the move itself becomes a node of `_control`, in the same
        batch.
        """
        if session in SYSTEM_SESSIONS:
            raise InvalidSessionId(
                f"{session!r} is a system session and can't be rolled back", facts={"session": session}
            )
        old = self.head(session)
        new = Head(to.branch, to.step, to.hash, to.created, old.seq + 1)
        target = VersionId(self.version_of(session, to), new.seq)
        move = {"session": session, "from": self.version_of(session, old), "to": str(target), "why": why}
        return target, self._write_move(session, new, "rollback", move, agent)

    def fork(self, session: str, at: Place, source: str, *, agent: str | None) -> int:
        """Begin a session at another's place, sharing its history, while the new session's lock is held.

        Raises SessionExists. The fork is noted in `_control`, in the same batch.
        """
        if self.store.get(keys.head(session)) is not None:
            raise SessionExists(
                f"there is a session {session!r} already", mend="Fork to a new name.", facts={"session": session}
            )
        digest = at.hash if at.branch else root_hash(session)  # an empty beginning is the new session's own
        head = Head(at.branch, at.step, digest, at.created, 1)
        note = {"session": session, "from": source, "to": source, "why": "fork"}
        return self._write_move(session, head, "fork", note, agent)

    def _write_move(
        self, session: str, head: Head, kind: str, note: Mapping[str, str | None], agent: str | None
    ) -> int:
        """Move a head without a step of its own, together with the step of `_control` that says so."""
        place = Place(head.branch, head.step, head.hash, head.created)
        with self.keeping.topology, self.locks.hold("_control", agent=agent, timeout=30.0):
            self.keeping.check(place, session)
            draft = StepDraft(agent, nodes=[self.schemas.draft("move", note, owner=agent)])
            batch, control, _ = self._batch("_control", draft)
            kept = self.keeping.move_rows(session, place)
            batch.rows += [*_head_rows(session, head, kind), *kept]
            ticket = self._write(batch, {session: head, "_control": control})
            self.keeping.note(kept)
            return ticket

    def bring_in(
        self,
        heads: Mapping[str, Head],
        branches: Mapping[int, Branch],
        rows: Sequence[Write],
        kept: Sequence[Write],
        schemas: Sequence[Schema],
        notes: Sequence[Mapping[str, str]],
        *,
        agent: str | None,
    ) -> int:
        """Begin sessions that were written elsewhere, while their locks are held: one batch with the rows of their
        versions, with what retention knows of them (`kept`), with schemas for `_registry` and notes for `_control`.
        """
        hold = self.locks.hold
        with (
            self.keeping.topology,
            hold("_registry", agent=agent, timeout=30.0),
            hold("_control", agent=agent, timeout=30.0),
        ):
            drafts = [self.schemas.draft("move", note, owner=agent) for note in notes]
            batch, control, _ = self._batch("_control", StepDraft(agent, nodes=drafts))
            moved = {**heads, "_control": control}
            if schemas:
                declared = StepDraft(agent, nodes=[self.schemas.kept_draft(schema) for schema in schemas])
                registering, moved["_registry"], _ = self._batch("_registry", declared)
                batch.rows += registering.rows
                batch.new_branches |= registering.new_branches
                batch.tips |= registering.tips
            batch.new_branches |= branches
            batch.rows += [(keys.branch(br), records.pack(branch)) for br, branch in branches.items()]
            batch.rows += [*rows, *kept]
            for session, head in heads.items():
                batch.rows += _head_rows(session, head, "import")
            ticket = self._write(batch, moved)
            self.keeping.note(kept)
            return ticket

    def _write(self, batch: Batch, heads: Mapping[str, Head]) -> int:
        self.store.write(batch.rows, sync=self.durability == "step")
        for br, branch in batch.new_branches.items():
            self._add_branch(br, branch)
        self._tips.update(batch.tips)
        if batch.referred and self.blobs is not None:
            self.blobs.used(batch.referred)
        self._heads.update(heads)
        ticket = self._sync.ticket()
        self.bell.ring()
        return ticket

    def _batch(self, session: str, draft: StepDraft) -> tuple[Batch, Head, Version]:
        """A step's rows, its head, and what it will be called. Raises before anything is written."""
        head = self.head(session)
        created = max(self.clock.micros(), head.created + 1)
        batch = Batch(self.view(session), created)
        br = self._branch_for(session, head, batch)
        record = batch.fill(session, br, head, draft)
        new = Head(br, head.step + 1, record.hash, created, head.seq + 1)
        batch.rows += _head_rows(session, new, "step")
        batch.tips[br] = new.step
        version = Version(
            VersionId(version_id(session, new.step, new.hash), new.seq),
            self.version_of(session, head),
            session,
            new.step,
            draft.agent,
            created,
            tuple([node.id for node in draft.nodes]),
        )
        return batch, new, version

    def _branch_for(self, session: str, head: Head, batch: Batch) -> int:
        """The branch that a step on this head belongs to: its own if the head is its tip, else a new one."""
        br = head.branch
        own = br != 0 and self._branches[br].session == session and not self.keeping.closed(br)
        if own and self.tip(br) == head.step:
            return br
        new = self.reserve_branches(1)[0]
        branch = Branch(session, br, head.step)
        batch.new_branches[new] = branch
        batch.rows.append((keys.branch(new), records.pack(branch)))
        return new

    def reserve_branches(self, count: int) -> range:
        """Numbers for branches that nobody else begins."""
        with self._branch_lock:
            first, self._next_branch = self._next_branch, self._next_branch + count
        return range(first, first + count)

    def tip(self, br: int) -> int:
        """The last step that was written on a branch; 0 where there is none any more."""
        tip = self._tips.get(br)
        if tip is None:
            prefix = keys.versions_prefix(br)
            first = next(iter(self.store.scan(prefix, keys.after(prefix))), None)
            tip = self._tips[br] = keys.version_step(first[0]) if first else 0
        return tip

    def collect(self, session: str, policy: Retention, limit: int) -> Collected:
        """One bounded pass of retention over a session while its lock is held. Raises InvalidSessionId."""
        if session in SYSTEM_SESSIONS:
            raise InvalidSessionId(
                f"{session!r} is a system session; nothing of it is collected", facts={"session": session}
            )
        with self.keeping.topology:
            return Collector(self, self.blobs, session, limit).run(policy)

    def set_tip(self, br: int, step: int) -> None:
        """Say where a branch ends after its tail was cut."""
        self._tips[br] = step


def _head_rows(session: str, head: Head, kind: str) -> list[Write]:
    """A head's own row, and the row of the feed that tells of its move."""
    movement = records.Movement(kind, head.branch, head.step, head.hash)
    return [(keys.head(session), records.pack(head)), (keys.feed(session, head.seq), records.pack(movement))]
