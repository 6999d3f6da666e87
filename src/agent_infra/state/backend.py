"""What a StateGraph is a face over: a home's sessions, read and written by coarse operations.

A backend is this process's own engine (`local.py`), or the client of the process that owns the home
(`agent_infra.server`). Each operation is one question with one answer, so that a client needs one request for it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

from agent_infra.content import JsonValue
from agent_infra.state.model import Edge, Node, NodeDraft, StepDraft, Verification, Version
from agent_infra.state.reading.diff import Diff
from agent_infra.state.reading.query import Explanation, Page, Query
from agent_infra.state.reading.watch import Change

if TYPE_CHECKING:
    from agent_infra.state.access.leases import Lease
    from agent_infra.state.engine import StateEngine
    from agent_infra.state.reading.view import View
    from agent_infra.state.retention.collect import Collected
    from agent_infra.state.retention.keeping import Retention
    from agent_infra.state.transfer import Exported, Imported


@dataclass(frozen=True, slots=True)
class Acting:
    """The agent by whose rights a session is read and written."""

    name: str
    roles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Terms:
    """Under what terms a step is written. `StateGraph.step` says what they mean."""

    agent: str | None
    expect: str | None
    timeout: float
    durable: bool = True
    lease: Lease | None = None
    acting: Acting | None = None


class Reader(Protocol):
    """One session as of its head, or as of one version and moment. The reads of a StateGraph, which says what they
    mean.
    """

    @property
    def view(self) -> View:
        """The rows behind it. Raises NotOwner where they lie in another process."""
        ...

    @property
    def version(self) -> str: ...

    @property
    def stale(self) -> bool: ...

    def history(self) -> list[Version]: ...

    def verify(self) -> Verification: ...

    def node(self, id: str) -> Node: ...

    def latest(self, name: str) -> Node | None: ...

    def nodes(self, query: Query) -> Page: ...

    def explain(self, query: Query) -> Explanation: ...

    def edges(self, node_id: str) -> list[Edge]: ...

    def caused_by(self, tool: str, within: float) -> list[Node]: ...

    def ancestors(self, id: str, edges: Collection[str] | None, depth: int | None) -> list[Node]: ...

    def descendants(self, id: str, edges: Collection[str] | None, depth: int | None) -> list[Node]: ...

    def path(self, start: str, end: str) -> list[Node]: ...


class Writer(Protocol):
    """One step being written."""

    @property
    def step(self) -> int:
        """The number that the step will have; 0 where only the owner knows."""
        ...

    @property
    def now(self) -> int:
        """Microseconds since 1970."""
        ...

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
        """A node with its final id. What can be checked here and now is."""
        ...

    def put_value(self, value: Any) -> dict[str, JsonValue]:
        """Store a JSON value as a block, with the step where that can be, and give its reference."""
        ...

    def commit(self, draft: StepDraft) -> Version:
        """Write the step. What was not known of its nodes before is filled into the draft."""
        ...


class Backend(Protocol):
    """A home's sessions."""

    @property
    def engine(self) -> StateEngine:
        """The engine itself. Raises NotOwner where another process has it."""
        ...

    def reader(
        self,
        session: str,
        version: str | None = None,
        as_of: int | None = None,
        acting: Acting | None = None,
        schemas: Mapping[str, int | str] | None = None,
    ) -> Reader:
        """A session's head, or one version; `as_of` in microseconds since 1970, the version's commit time unless given.

        Nodes of the types in `schemas` come in these versions. Raises VersionUnknown, VersionCollected,
        PermissionRefused, SchemaUnknown, MigrationMissing.
        """
        ...

    def writing(self, session: str, terms: Terms) -> AbstractContextManager[Writer]:
        """Write one step of a session. Raises LockTimeout, VersionConflict, LeaseLost: on entering, or as the step is
        committed.
        """
        ...

    def flush(self) -> None:
        """Return once every step so far is as durable as the setting promises."""
        ...

    def rollback(self, session: str, *, steps: int, to: str | None, agent: str | None, why: str | None) -> str:
        """Move a head back by some steps, or to a version; the id now at the head. Raises VersionUnknown."""
        ...

    def fork(self, session: str, new: str, *, at: str | None, agent: str | None) -> None:
        """Begin a session where another stands, or at one of its versions. Raises SessionExists, VersionUnknown."""
        ...

    def diff(self, session: str, old: str, new: str, acting: Acting | None = None) -> Diff:
        """What differs between two versions. Raises VersionUnknown, VersionCollected, PermissionRefused."""
        ...

    def watch(self, session: str, since: int | None, timeout: float | None) -> Iterator[Change]:
        """Each move of a head, once and in order."""
        ...

    def awatch(self, session: str, since: int | None, timeout: float | None) -> AsyncIterator[Change]:
        """`watch` for running loops."""
        ...

    def pin(self, version: str, owner: str, why: str | None) -> None:
        """Keep a version readable until the same owner unpins it. Raises VersionUnknown, VersionCollected."""
        ...

    def unpin(self, version: str, owner: str) -> bool:
        """Let go of a pin; whether there was one. Raises VersionUnknown."""
        ...

    def collect(self, session: str, policy: Retention, limit: int, *, agent: str | None) -> Collected:
        """One bounded pass of retention. Raises InvalidSessionId, LockTimeout."""
        ...

    def erase(self, session: str, id: str, why: str, *, agent: str | None, acting: Acting | None = None) -> Collected:
        """Erase a node's data for good. Raises NodeUnknown, PermissionRefused, InvalidSessionId, LockTimeout."""
        ...

    def export_session(self, session: str, out: IO[bytes]) -> Exported:
        """Write a session out. See `export_session`, which says what is raised."""
        ...

    def import_session(
        self, path: Path, session: str | None = None, *, redraw: bool = False, agent: str | None = None
    ) -> Imported:
        """Bring an exported session in. See `import_session`, which says what is raised."""
        ...

    def take_lease(self, session: str, owner: str, seconds: float, timeout: float) -> int:
        """Lead a session for some seconds; the lease's token. Raises LeaseHeld, LockTimeout."""
        ...

    def renew_lease(self, lease: Lease, seconds: float) -> None:
        """Make a lease run for its full time again. Raises LeaseLost."""
        ...

    def release_lease(self, lease: Lease, seconds: float) -> None:
        """Let others lead. Harmless for a lease that is lost."""
        ...
