"""The backend of the process that owns the home: each operation straight on its engine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, Final, TypeVar

from agent_infra.content import JsonValue
from agent_infra.errors import EvidenceUnknown, VersionUnknown
from agent_infra.state import transfer
from agent_infra.state.access import leases
from agent_infra.state.access.leases import Lease, check_lease
from agent_infra.state.access.permissions import Guard
from agent_infra.state.backend import Acting, Terms
from agent_infra.state.blobs import BlobStore
from agent_infra.state.engine import StateEngine
from agent_infra.state.model import Edge, Node, NodeDraft, StepDraft, Verification, Version, VersionId, split_version
from agent_infra.state.reading import causality
from agent_infra.state.reading import watch as watching
from agent_infra.state.reading.diff import Diff, diff_versions
from agent_infra.state.reading.query import Explanation, Page, Query, explain_query, run_query
from agent_infra.state.reading.verify import verify_lineage
from agent_infra.state.reading.view import Place, View, seconds_before
from agent_infra.state.reading.watch import Change
from agent_infra.state.retention.collect import Collected
from agent_infra.state.retention.erasure import erase_node
from agent_infra.state.retention.keeping import Retention, collected
from agent_infra.state.schemas import Translation
from agent_infra.state.stores import Write
from agent_infra.state.transfer import Exported, Imported

Answer = TypeVar("Answer")
LOCK_WAIT: Final = 5.0
"""Seconds to wait for another writer of a session, unless a step says otherwise."""


class LocalReader:
    """One session of an engine, from its head or from one place, to everyone or by one agent's rights."""

    __slots__ = ("as_of", "engine", "guard", "place", "session", "translation")

    def __init__(
        self,
        engine: StateEngine,
        session: str,
        place: Place | None,
        as_of: int | None,
        guard: Guard | None,
        translation: Translation | None,
    ) -> None:
        self.engine = engine
        self.session = session
        self.place = place
        self.as_of = as_of
        self.guard = guard
        self.translation = translation

    @property
    def view(self) -> View:
        return self.engine.view(self.session, self.place, self.as_of, self.guard, self.translation)

    @property
    def version(self) -> str:
        if self.place is not None:
            return self.engine.version_of(self.session, self.place)
        head = self.engine.head(self.session)
        return VersionId(self.engine.version_of(self.session, head), head.seq)

    @property
    def stale(self) -> bool:
        return self.place is None and self.engine.locks.held(self.session)

    def _ask(self, question: Callable[[View], Answer]) -> Answer:
        """An answer from one version. If that is collected while it is being read, so that the answer may lack something,
        the head is read anew, and a version of the past is refused. Raises VersionCollected.
        """
        lost: Place | None = None
        while True:
            view = self.view
            if view.place == lost:
                raise collected(self.engine.version_of(self.session, view.place))
            lost = view.place
            try:
                answer = question(view)
            except Exception:
                if self._is_kept(view.place):
                    raise
            else:
                if self._is_kept(view.place):
                    return answer

    def _is_kept(self, place: Place) -> bool:
        return self.engine.keeping.readable(place.branch, place.step)

    def history(self) -> list[Version]:
        return self._ask(lambda view: view.history(self.engine.keeping.readable))

    def verify(self) -> Verification:
        return self._ask(lambda view: verify_lineage(self.engine, view))

    def node(self, id: str) -> Node:
        return self._ask(lambda view: view.node(id))

    def latest(self, name: str) -> Node | None:
        return self._ask(lambda view: view.latest(name))

    def nodes(self, query: Query) -> Page:
        query = self._numbered(query)
        return self._ask(lambda view: run_query(view, query))

    def explain(self, query: Query) -> Explanation:
        query = self._numbered(query)
        return self._ask(lambda view: explain_query(view, query))

    def _numbered(self, query: Query) -> Query:
        """A query whose schema version is a number, where a tag was given. Raises SchemaUnknown."""
        name, _, version = (query.schema or "").partition("@")
        if not version or version.isdigit():
            return query
        return replace(query, schema=f"{name}@{self.engine.schemas.get(name, version).version}")

    def edges(self, node_id: str) -> list[Edge]:
        return self._ask(lambda view: view.edges(node_id))

    def caused_by(self, tool: str, within: float) -> list[Node]:
        return self._ask(lambda view: view.caused_by(tool, seconds_before(view.as_of, within)))

    def ancestors(self, id: str, edges: Collection[str] | None, depth: int | None) -> list[Node]:
        return self._ask(lambda view: causality.ancestors(view, id, edges, depth))

    def descendants(self, id: str, edges: Collection[str] | None, depth: int | None) -> list[Node]:
        return self._ask(lambda view: causality.descendants(view, id, edges, depth))

    def path(self, start: str, end: str) -> list[Node]:
        return self._ask(lambda view: causality.path(view, start, end))


class LocalWriter:
    """One step of a session whose write lock is held."""

    __slots__ = ("_blocks", "_engine", "_session", "_terms", "_used", "step", "ticket")

    def __init__(self, engine: StateEngine, session: str, terms: Terms) -> None:
        self._engine = engine
        self._session = session
        self._terms = terms
        self._blocks: list[Write] = []
        self._used: list[str] = []
        self.step = engine.head(session).step + 1
        self.ticket: int | None = None

    @property
    def now(self) -> int:
        return self._engine.clock.micros()

    def draft(
        self,
        type: str,
        data: Mapping[str, Any],
        *,
        key: str | None,
        ttl: float | None,
        owner: str | None,
        tool: str | None,
        permissions: Mapping[str, Any] | None,
        labels: Sequence[str],
        schema_version: int | str | None = None,
    ) -> NodeDraft:
        return self._engine.schemas.draft(
            type,
            data,
            key=key,
            ttl=ttl,
            owner=owner,
            tool=tool,
            permissions=permissions,
            labels=labels,
            schema_version=schema_version,
        )

    def put_value(self, value: Any) -> dict[str, JsonValue]:
        blobs = _blobs_of(self._engine)
        reference, rows, used = blobs.rows_of(value)
        self._blocks += rows
        self._used += used
        return reference

    def commit(self, draft: StepDraft) -> Version:
        if self._terms.lease is not None:
            check_lease(self._engine, self._terms.lease)
        if self._terms.acting is not None:
            _check_rights(_guard(self._engine, self._terms.acting), self._engine.view(self._session), draft)
        version, self.ticket = self._engine.commit(self._session, draft, *self._blocks)
        if self._used:
            _blobs_of(self._engine).used(self._used)
        return version


def _blobs_of(engine: StateEngine) -> BlobStore:
    if engine.blobs is None:
        raise EvidenceUnknown("this store keeps no content", mend="Open it as a home.")
    return engine.blobs


def _guard(engine: StateEngine, acting: Acting) -> Guard:
    return Guard(acting.name, acting.roles, engine.schemas)


def _check_rights(guard: Guard, view: View, draft: StepDraft) -> None:
    """Whether the agent may change what a step changes. Raises PermissionRefused."""
    guard.check_author(draft.agent, view.session)
    for node in draft.nodes:
        guard.check_add(node.type, view.session)
        older = view.latest_keyed(node.key) if node.key is not None else None
        if older is not None:
            guard.check_change(older)
    for id, _ in draft.removals:
        guard.check_change(view.node(id))
    own = {node.id for node in draft.nodes}
    for id in {end for edge in draft.edges for end in edge[:2]} - own:
        guard.check_read(view.node(id))


class LocalBackend:
    """The sessions of this process's own engine."""

    __slots__ = ("engine",)

    def __init__(self, engine: StateEngine) -> None:
        self.engine = engine

    def reader(
        self,
        session: str,
        version: str | None = None,
        as_of: int | None = None,
        acting: Acting | None = None,
        schemas: Mapping[str, int | str] | None = None,
    ) -> LocalReader:
        guard = None
        if acting is not None:
            guard = _guard(self.engine, acting)
            guard.check_session(session)
        place = self._own(session, version) if version is not None else None
        moment = place.created if place is not None and as_of is None else as_of
        translation = None
        if schemas:
            translation = Translation(self.engine.schemas, schemas)
            translation.check(self.engine.view(session, place, moment))
        return LocalReader(self.engine, session, place, moment, guard, translation)

    @contextmanager
    def writing(self, session: str, terms: Terms) -> Generator[LocalWriter]:
        """The lock is let go before the wait for the disk, so that the fsyncs of all sessions are shared."""
        engine = self.engine
        with engine.writing(session, agent=terms.agent, expect=terms.expect, timeout=terms.timeout, lease=terms.lease):
            writer = LocalWriter(engine, session, terms)
            yield writer
        if terms.durable and writer.ticket is not None:
            engine.settle(writer.ticket)

    def flush(self) -> None:
        self.engine.settle()

    # -- time travel -------------------------------------------------------------------------------

    def rollback(self, session: str, *, steps: int, to: str | None, agent: str | None, why: str | None) -> str:
        engine = self.engine
        with engine.writing(session, agent=agent, expect=None, timeout=LOCK_WAIT):
            place = self._steps_back(session, steps) if to is None else self._own(session, to)
            target, ticket = engine.rollback(session, place, agent=agent, why=why)
        engine.settle(ticket)
        return target

    def _steps_back(self, session: str, steps: int) -> Place:
        head = self.engine.head(session)
        if not 0 <= steps <= head.step:
            raise VersionUnknown(
                f"session {session!r} can't be rolled back by {steps} steps",
                why=f"its head is at step {head.step}",
                mend="`graph.history()` lists the steps.",
                facts={"session": session, "steps": steps, "step": head.step},
            )
        return self.engine.place_in_line(session, head.step - steps)

    def _own(self, session: str, version: str) -> Place:
        place = self.engine.resolve(version)
        if not self.engine.belongs(session, place, version):
            raise VersionUnknown(
                f"{version!r} is not a version of session {session!r}",
                mend="Name a version of this session.",
                facts={"session": session, "version": version},
            )
        return place

    def fork(self, session: str, new: str, *, at: str | None, agent: str | None) -> None:
        engine = self.engine
        place = self._own(session, at) if at is not None else engine.view(session).place
        with engine.writing(new, agent=agent, expect=None, timeout=LOCK_WAIT):
            ticket = engine.fork(new, place, engine.version_of(session, place), agent=agent)
        engine.settle(ticket)

    def diff(self, session: str, old: str, new: str, acting: Acting | None = None) -> Diff:
        guard = None
        if acting is not None:
            guard = _guard(self.engine, acting)
            for version in (old, new):
                guard.check_session(split_version(version)[0])
        places = self.engine.resolve(old), self.engine.resolve(new)
        found = diff_versions(self.engine, session, *places, (str(old), str(new)), guard)
        for place in places:
            self.engine.keeping.check(place, session)
        return found

    def watch(self, session: str, since: int | None, timeout: float | None) -> Iterator[Change]:
        return watching.watch(self.engine, session, since, timeout)

    def awatch(self, session: str, since: int | None, timeout: float | None) -> AsyncIterator[Change]:
        return watching.awatch(self.engine, session, since, timeout)

    # -- retention ---------------------------------------------------------------------------------

    def pin(self, version: str, owner: str, why: str | None) -> None:
        self.engine.keeping.pin(self.engine.resolve(version), owner, why)

    def unpin(self, version: str, owner: str) -> bool:
        return self.engine.keeping.unpin(self.engine.resolve(version), owner)

    def collect(self, session: str, policy: Retention, limit: int, *, agent: str | None) -> Collected:
        with self.engine.writing(session, agent=agent, expect=None, timeout=LOCK_WAIT):
            return self.engine.collect(session, policy, limit)

    def erase(self, session: str, id: str, why: str, *, agent: str | None, acting: Acting | None = None) -> Collected:
        guard = None if acting is None else _guard(self.engine, acting)
        if guard is not None:
            guard.check_session(session)
        with self.engine.writing(session, agent=agent, expect=None, timeout=LOCK_WAIT):
            freed, ticket = erase_node(self.engine, session, id, why, agent=agent, guard=guard)
        if ticket is not None:
            self.engine.settle(ticket)
        return freed

    # -- transfer ----------------------------------------------------------------------------------

    def export_session(self, session: str, out: IO[bytes]) -> Exported:
        return transfer.export_session(self.engine, session, out)

    def import_session(
        self, path: Path, session: str | None = None, *, redraw: bool = False, agent: str | None = None
    ) -> Imported:
        return transfer.import_session(self.engine, path, session, redraw=redraw, agent=agent)

    # -- leases ------------------------------------------------------------------------------------

    def take_lease(self, session: str, owner: str, seconds: float, timeout: float) -> int:
        return leases.take_lease(self.engine, session, owner, seconds, timeout)

    def renew_lease(self, lease: Lease, seconds: float) -> None:
        leases.renew_lease(self.engine, lease, seconds)

    def release_lease(self, lease: Lease, seconds: float) -> None:
        leases.release_lease(self.engine, lease, seconds)
