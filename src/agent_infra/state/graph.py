"""StateGraph, the face of layer 1: what users and the layers above hold in their hands.

A graph is a session seen from its head, or, from `at()`, from one of its versions, read-only. Writing goes through a
step:

    with graph.step(agent="planner") as step:
        intent = step.add_node("user_intent", {"query": "…"}, ttl=3600)
        answer = step.add_node("api_response", {...}, key="answer")
        step.add_edge(intent.id, answer.id, "triggers")

All of it lands as one version, or nothing does.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, cast, overload

from agent_infra import opening
from agent_infra.clock import to_micros
from agent_infra.errors import InvalidNode, LeaseLost, PermissionRefused, ReadOnlyView, VersionUnknown
from agent_infra.state.access.leases import Lease
from agent_infra.state.backend import Acting, Backend, Terms
from agent_infra.state.engine import StateEngine
from agent_infra.state.local import LOCK_WAIT, LocalBackend
from agent_infra.state.model import (
    Edge,
    Lifecycle,
    Node,
    Verification,
    Version,
    check_session_id,
)
from agent_infra.state.reading.diff import Diff
from agent_infra.state.reading.query import Explanation, Page, Query
from agent_infra.state.reading.view import View
from agent_infra.state.reading.watch import Change
from agent_infra.state.retention.collect import Collected
from agent_infra.state.retention.keeping import Retention
from agent_infra.state.step import Step


class StateGraph:
    """A session's graph.

    session_id  the session, made by its first step
    engine      the home's engine, or the client that stands for it; that of the default home unless given
    agent       who writes: becomes the owner of new nodes

    Raises InvalidSessionId.
    """

    def __init__(
        self, session_id: str, *, engine: StateEngine | Backend | None = None, agent: str | None = None
    ) -> None:
        self._show(engine or opening.default_infra().backend, check_session_id(session_id), agent)

    @classmethod
    def of_system(cls, engine: StateEngine | Backend, session: str, *, agent: str | None = None) -> StateGraph:
        """The graph of a system session or of a reward ledger, whose names users can't give."""
        graph = cls.__new__(cls)
        graph._show(engine, session, agent)
        return graph

    def _show(self, engine: StateEngine | Backend, session: str, agent: str | None) -> None:
        self.backend: Backend = LocalBackend(engine) if isinstance(engine, StateEngine) else engine
        self.session_id = session
        self.agent = agent
        self._acting: Acting | None = None
        self._past: tuple[str, int | None] | None = None
        self._schemas: dict[str, int | str] = {}
        self._reader = self.backend.reader(session)

    def _seen(
        self, acting: Acting | None, past: tuple[str, int | None] | None, schemas: Mapping[str, int | str]
    ) -> StateGraph:
        """This session by the rights of an agent, from a version and moment, or in some schema versions."""
        graph = StateGraph.of_system(self.backend, self.session_id, agent=acting.name if acting else self.agent)
        graph._acting, graph._past, graph._schemas = acting, past, dict(schemas)
        graph._reader = self.backend.reader(self.session_id, *(past or (None, None)), acting, schemas)
        return graph

    def __repr__(self) -> str:
        return f"StateGraph({self.version!r})"

    @property
    def engine(self) -> StateEngine:
        """The home's engine. Raises NotOwner where another process has it."""
        return self.backend.engine

    @property
    def view(self) -> View:
        """What this graph shows just now. Raises NotOwner where another process owns the home."""
        return self._reader.view

    @property
    def version(self) -> str:
        """The version id that this graph shows: the head's, or the one that `at()` was given."""
        return self._reader.version

    @property
    def stale(self) -> bool:
        """Whether a writer is at work just now, so that what is read is the last committed state and about to
        change.
        """
        return self._reader.stale

    def as_agent(self, name: str, roles: Sequence[str] = ()) -> StateGraph:
        """This graph as an agent may see and change it, by the permissions of nodes and types.

        Nodes that it may not read are not there for it; a refused write raises PermissionRefused, naming the rule.
        """
        return self._seen(Acting(name, tuple(roles)), self._past, self._schemas)

    def with_schemas(self, versions: Mapping[str, int | str]) -> StateGraph:
        """This graph as a program sees it that was made for certain versions of node types' schemas:
        `graph.with_schemas({"plan_step": "1.8"})`, by number or tag.

        Nodes of these types are read in these versions, whatever they were written under; what is written is taken as
        of these versions (as by `schema_version`). Raises SchemaUnknown, and MigrationMissing, before anything is done
        with it, where a node that the graph shows can't be brought to its version. `history()` works without.
        """
        return self._seen(self._acting, self._past, {**self._schemas, **versions})

    def lease(self, seconds: float = 30.0, owner: str | None = None, timeout: float = LOCK_WAIT) -> Lease:
        """Lead the session for a while: `with graph.lease() as lease: …` renews it, `graph.step(lease=lease)` writes
        under it.

        Raises LeaseHeld while another owner leads.
        """
        holder = owner or self.agent or "user"
        token = self.backend.take_lease(self.session_id, holder, seconds, timeout)
        return Lease(self.backend, self.session_id, holder, seconds, token)

    # -- writing -----------------------------------------------------------------------------------

    def step(
        self,
        agent: str | None = None,
        expect: str | None = None,
        lock_wait_timeout: float = LOCK_WAIT,
        *,
        durable: bool = True,
        lease: Lease | None = None,
    ) -> Step:
        """Open a step: everything added inside the `with` lands as one version, or, after an exception, nothing does.

        agent              who writes; the graph's agent unless given
        expect             the version that the head must be
        lock_wait_timeout  seconds to wait for another writer of the session
        durable            False leaves the fsync to the next durable step
        lease              the lease that must still be the session's newest and run

        Raises LockTimeout, VersionConflict, LeaseLost, PermissionRefused, ReadOnlyView.
        """
        if self._past is not None:
            raise ReadOnlyView(
                "a past version can't be written to",
                where=self.version,
                mend="Write to the session's head, or roll it back first.",
            )
        if lease is not None and lease.session != self.session_id:
            raise LeaseLost(
                f"a lease of session {lease.session!r} gives no right to session {self.session_id!r}",
                mend="Take a lease of the session that is written.",
                facts={"session": self.session_id, "token": lease.token},
            )
        terms = Terms(agent or self.agent, expect, lock_wait_timeout, durable, lease, self._acting)
        return Step(self.session_id, terms.agent, self.backend.writing(self.session_id, terms), self._schemas)

    def add_node(
        self,
        type: str,
        data: Mapping[str, Any],
        key: str | None = None,
        ttl: float | None = None,
        tool: str | None = None,
        permissions: Mapping[str, Any] | None = None,
        labels: Sequence[str] = (),
        schema_version: int | str | None = None,
    ) -> Node:
        """Add one node, as a step of its own. See `Step.add_node`."""
        with self.step() as step:
            return step.add_node(type, data, key, ttl, tool, permissions, labels, schema_version)

    def add_edge(self, source_id: str, target_id: str, type: str) -> None:
        """Add one edge, as a step of its own. Raises NodeUnknown, InvalidNode."""
        with self.step() as step:
            step.add_edge(source_id, target_id, type)

    def flush(self) -> None:
        """Return once every step so far is as durable as the setting promises."""
        self.backend.flush()

    # -- time travel -------------------------------------------------------------------------------

    def at(self, version: str, as_of: datetime | None = None) -> StateGraph:
        """This session as of a version, read-only: of its own line, an abandoned branch, or where it was forked from.

        `as_of` is the moment by which lifetimes are judged: the version's commit time unless given. Raises
        VersionUnknown.
        """
        if not isinstance(cast("object", version), str):
            none = cast("object", version) is None
            hint = "An empty step has no version: its `step.version` is None." if none else "Give its `id`."
            raise VersionUnknown(f"{version!r} is no version id", mend=hint)
        return self._seen(self._acting, (version, _instant(as_of)), self._schemas)

    def history(self) -> list[Version]:
        """The versions that led here and can be opened, newest last."""
        return self._reader.history()

    @overload
    def rollback(self, steps: int = 1, *, why: str | None = None) -> str: ...
    @overload
    def rollback(self, *, to: str, why: str | None = None) -> str: ...
    def rollback(self, steps: int = 1, to: str | None = None, why: str | None = None) -> str:
        """Move the head back by some steps, or to a version; give the id of the version now at the head.

        Nothing is deleted: the abandoned versions stay readable by `at()`. The cost doesn't depend on the graph's size.
        Raises VersionUnknown where there are not that many steps, or the version is another session's.
        """
        if self._past is not None:
            raise ReadOnlyView("a past version can't be rolled back", where=self.version)
        if isinstance(cast("object", steps), bool) or not isinstance(cast("object", steps), int):
            raise InvalidNode(f"a rollback goes back by a whole number of steps, not {steps!r}")
        if to is not None and steps != 1:
            raise InvalidNode(
                "a rollback goes back by some steps, or to a version, not both", mend="Give one of the two."
            )
        return self.backend.rollback(self.session_id, steps=steps, to=to, agent=self.agent, why=why)

    def fork(self, session_id: str, at: str | None = None) -> StateGraph:
        """A new session that begins where this one stands, or at one of its versions, and shares all history till then.

        Nothing is copied. Versions before the fork keep their ids. Raises SessionExists, VersionUnknown.
        """
        check_session_id(session_id)
        if at is None and self._past is not None:
            at = self._past[0]
        self.backend.fork(self.session_id, session_id, at=at, agent=self.agent)
        new = StateGraph(session_id, engine=self.backend, agent=self.agent)
        return new._seen(self._acting, None, self._schemas)

    def diff(self, old: str, new: str) -> Diff:
        """What differs between two versions: nodes added and gone, keys whose node changed.

        Raises VersionUnknown, VersionCollected.
        """
        return self.backend.diff(self.session_id, old, new, self._acting)

    def watch(self, since: int | None = None, timeout: float | None = None) -> Iterator[Change]:
        """Each move of the head, once and in order: steps, rollbacks, forks; from now on, or behind a change's `seq`.

        Ends when none came for `timeout` seconds; never without one.
        """
        return self.backend.watch(self.session_id, since, timeout)

    def awatch(self, since: int | None = None, timeout: float | None = None) -> AsyncIterator[Change]:
        """`watch` for running loops."""
        return self.backend.awatch(self.session_id, since, timeout)

    # -- retention ---------------------------------------------------------------------------------------------------

    def pin(self, version: str, owner: str | None = None, why: str | None = None) -> None:
        """Keep a version readable until the same owner unpins it. Raises VersionUnknown, VersionCollected."""
        self.backend.pin(version, owner or self.agent or "user", why)

    def unpin(self, version: str, owner: str | None = None) -> bool:
        """Let go of a pin; whether there was one. Raises VersionUnknown, and PermissionRefused where an agent's view would
        let go of another owner's.
        """
        if self._acting is not None and owner not in (None, self._acting.name):
            raise _not_for_agents(self._acting.name, f"let go of {owner!r}'s pin", self.session_id)
        return self.backend.unpin(version, owner or self.agent or "user")

    def gc(
        self,
        keep_last: int | None = None,
        max_age: float | None = None,
        max_bytes: int | None = None,
        abandoned_after: float | None = None,
        limit: int = 1000,
    ) -> Collected:
        """Remove what retention no longer needs, in one bounded pass, and say what was freed.

        keep_last        versions of the line that stay readable, at least the head
        max_age          seconds for which they do
        max_bytes        bytes that their nodes may take, with the content that these refer to
        abandoned_after  seconds after which versions that were rolled back go; as long as nobody asks, they stay
        limit            nodes and versions looked at; `.more` says that there is more to do

        Pinned versions stay, and so does what another session needs of its line. A collected version raises
        VersionCollected; what no version shows alive any more is left out of listings. Raises InvalidNode,
        InvalidSessionId, LockTimeout, and PermissionRefused in an agent's view: what is kept is not the agent's to say.
        """
        if self._acting is not None:
            raise _not_for_agents(self._acting.name, "collect versions", self.session_id)
        policy = Retention(keep_last, max_age, max_bytes, abandoned_after)
        return self.backend.collect(self.session_id, policy, limit, agent=self.agent)

    def erase(self, node_id: str, why: str) -> Collected:
        """Erase a node's data for good, from every version and every fork that shows it, and say what was freed.

        A stub keeps its place, so versions keep their ids and `verify` stays clean; listings leave it out, and `node`
        says that it was erased. Who did it and why is noted in `_control`. Content that only it referred to goes too.
        Raises NodeUnknown, PermissionRefused, InvalidSessionId, LockTimeout.
        """
        return self.backend.erase(self.session_id, node_id, why, agent=self.agent, acting=self._acting)

    # -- checking ----------------------------------------------------------------------------------------------------

    def verify(self) -> Verification:
        """Recompute the chain of hashes down to step 1, and every node's digest; say what doesn't fit."""
        return self._reader.verify()

    # -- reading -----------------------------------------------------------------------------------

    def node(self, id: str) -> Node:
        """A node by its id. Raises NodeUnknown where this graph doesn't show it."""
        return self._reader.node(id)

    def latest(self, name: str) -> Node | None:
        """The newest live node with that key, else of that type: what `state.nodes.<name>` means in a condition."""
        return self._reader.latest(name)

    @overload
    def nodes(
        self,
        type: str | None = None,
        tool: str | None = None,
        key: str | None = None,
        owner: str | None = None,
        schema: str | None = None,
        since: datetime | None = None,
        where: str | None = None,
        lifecycle: Lifecycle | None = "active",
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page: ...
    @overload
    def nodes(
        self,
        type: str | None = None,
        tool: str | None = None,
        key: str | None = None,
        owner: str | None = None,
        schema: str | None = None,
        since: datetime | None = None,
        where: str | None = None,
        lifecycle: Lifecycle | None = "active",
        limit: int | None = None,
        cursor: str | None = None,
        *,
        explain: bool,
    ) -> Page | Explanation: ...
    def nodes(
        self,
        type: str | None = None,
        tool: str | None = None,
        key: str | None = None,
        owner: str | None = None,
        schema: str | None = None,
        since: datetime | None = None,
        where: str | None = None,
        lifecycle: Lifecycle | None = "active",
        limit: int | None = None,
        cursor: str | None = None,
        explain: bool = False,
    ) -> Page | Explanation:
        """Nodes that fit all that is asked, newest first, as a list; its `.cursor` goes on where `limit` cut it.

        schema     under which they were written: a name, or with a version's number or tag, as "plan_step@1.8"
        where      a CEL condition over `node`, as "node.data.confidence > 0.8"
        lifecycle  "active" unless given; None for all
        explain    give the index that would be used and the rows that it holds, instead of the nodes

        Raises ExpressionError, InvalidNode, SchemaUnknown.
        """
        query = Query(type, tool, key, owner, schema, _instant(since), where, lifecycle, limit, cursor)
        return self._reader.explain(query) if explain else self._reader.nodes(query)

    def edges(self, node_id: str) -> list[Edge]:
        """Edges from and to a node, oldest first."""
        return self._reader.edges(node_id)

    def caused_by(self, tool: str, within: float) -> list[Node]:
        """Live nodes at the end of a `causes` edge from a node of that tool, created in the last `within` seconds,
        newest first."""
        return self._reader.caused_by(tool, within)

    def ancestors(self, id: str, edges: Collection[str] | None = None, depth: int | None = None) -> list[Node]:
        """The nodes that led to a node, nearest first; over some edge types only, at most `depth` edges away."""
        return self._reader.ancestors(id, edges, depth)

    def descendants(self, id: str, edges: Collection[str] | None = None, depth: int | None = None) -> list[Node]:
        """The nodes that came of a node, nearest first."""
        return self._reader.descendants(id, edges, depth)

    def path(self, start: str, end: str) -> list[Node]:
        """The shortest causal path from one node to another, both included; empty where there is none."""
        return self._reader.path(start, end)


def _instant(moment: datetime | None) -> int | None:
    if moment is None:
        return None
    try:
        return to_micros(moment)
    except ValueError as error:
        raise InvalidNode(str(error), mend="Give an aware datetime, as datetime.now(UTC).") from None


def _not_for_agents(agent: str, what: str, session: str) -> PermissionRefused:
    return PermissionRefused(
        f"agent {agent!r} may not {what}",
        where=f"session {session!r}",
        mend="Use a graph that is no agent's view.",
        facts={"agent": agent},
    )
