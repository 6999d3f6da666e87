"""The sessions of a home that another process owns, behind the faces that one's own have.

A step is collected here and sent whole when its `with` ends: only then is it checked against schemas, permissions and
the head, and either all of it lands or nothing does. Its nodes have their final ids from the start.
"""

from __future__ import annotations

import asyncio
import math
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, Final, cast

from agent_infra.clock import SystemClock, new_ulid
from agent_infra.content import JsonValue, json_copy
from agent_infra.errors import InvalidNode, OwnerUnreachable
from agent_infra.server.client import Client
from agent_infra.server.codec import (
    ActingBody,
    CollectBody,
    CommittedBody,
    EraseBody,
    ForkBody,
    GcBody,
    HeadBody,
    LeaseBody,
    NodeBody,
    PageBody,
    PinBody,
    RollbackBody,
    Stamp,
    StepBody,
    body_of,
    decode,
    encode,
    head_of,
    page_of,
)
from agent_infra.server.events import Event
from agent_infra.server.remote_stores import RemoteBlobs
from agent_infra.state import (
    Acting,
    Change,
    Collected,
    Diff,
    Edge,
    Explanation,
    Exported,
    Imported,
    Lease,
    Node,
    NodeDraft,
    Page,
    Query,
    Retention,
    StateEngine,
    StepDraft,
    Terms,
    Verification,
    Version,
    VersionId,
    View,
)
from agent_infra.state.transfer import check_export, exported_in

CHUNK: Final = 1 << 20
_UNCHECKED: Final = ("", 0, "")
"""The schema of a node whose step is not committed: only the owner knows it."""
_RECONNECTS: Final = 3
_PAUSE: Final = 0.2


class RemoteReader:
    """One session as its owner shows it."""

    def __init__(self, client: Client, named: dict[str, Any]) -> None:
        self._client = client
        self._named = named

    def _ask(self, operation: str, record: Any, /, **params: Any) -> Any:
        return self._client.get(f"/api/state/{operation}", record, self._named | params)

    def head(self) -> HeadBody:
        """The version shown. Raises what is wrong with what was named."""
        return self._ask("head", HeadBody)

    @property
    def view(self) -> View:
        raise self._client.only_owner("the rows of a graph")

    @property
    def version(self) -> str:
        return head_of(self.head())

    @property
    def stale(self) -> bool:
        return self.head().stale

    def history(self) -> list[Version]:
        return self._ask("history", list[Version])

    def verify(self) -> Verification:
        return self._ask("verify", Verification)

    def node(self, id: str) -> Node:
        return self._ask("node", Node, id=id)

    def latest(self, name: str) -> Node | None:
        return self._ask("latest", Node | None, name=name)

    def nodes(self, query: Query) -> Page:
        return page_of(self._ask("nodes", PageBody, **_asked(query)))

    def explain(self, query: Query) -> Explanation:
        return self._ask("explain", Explanation, **_asked(query))

    def edges(self, node_id: str) -> list[Edge]:
        return self._ask("edges", list[Edge], id=node_id)

    def caused_by(self, tool: str, within: float) -> list[Node]:
        return self._ask("caused_by", list[Node], tool=tool, within=within)

    def ancestors(self, id: str, edges: Collection[str] | None, depth: int | None) -> list[Node]:
        return self._ask("ancestors", list[Node], id=id, edges=_listed(edges), depth=depth)

    def descendants(self, id: str, edges: Collection[str] | None, depth: int | None) -> list[Node]:
        return self._ask("descendants", list[Node], id=id, edges=_listed(edges), depth=depth)

    def path(self, start: str, end: str) -> list[Node]:
        return self._ask("path", list[Node], start=start, end=end)


class RemoteWriter:
    """A step that is collected here and committed there."""

    step = 0

    def __init__(self, client: Client, session: str, terms: Terms) -> None:
        self._client = client
        self._session = session
        self._terms = terms
        self._clock = SystemClock()
        self._versions: dict[str, int | str | None] = {}
        self._read: HeadBody | None = None

    @property
    def now(self) -> int:
        return self._clock.micros()

    def put_value(self, value: Any) -> dict[str, JsonValue]:
        return RemoteBlobs(self._client).put_value(value)

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
        body, copy = json_copy(data, where=f"the data of a {type!r} node")
        if not isinstance(copy, dict):
            raise InvalidNode(f"the data of a {type!r} node must be an object")
        if isinstance(ttl, float) and not math.isfinite(ttl):  # JSON would make null of it
            raise InvalidNode(f"a ttl is seconds from 0 on, not {ttl!r}")
        rights = json_copy(dict(permissions), where="permissions")[1] if permissions else None
        draft = NodeDraft(
            new_ulid(self.now),
            type,
            cast("dict[str, Any]", copy),
            body,
            _UNCHECKED,
            key,
            ttl,
            owner,
            tool,
            rights,
            tuple(labels),
        )
        self._versions[draft.id] = schema_version
        return draft

    def commit(self, draft: StepDraft) -> Version:
        terms = self._terms
        body = StepBody(
            session=self._session,
            agent=draft.agent,
            expect=body_of(terms.expect) if terms.expect is not None else self._read,
            lock_wait_timeout=terms.timeout,
            durable=terms.durable,
            lease=_lease_body(terms.lease, 0) if terms.lease else None,
            acting=ActingBody(terms.acting.name, terms.acting.roles) if terms.acting else None,
            nodes=[_node_body(node, self._versions[node.id]) for node in draft.nodes],
            edges=draft.edges,
            removals=draft.removals,
            references=draft.references,
        )
        done: CommittedBody = self._client.post("/api/state/steps", body, CommittedBody, wait=terms.timeout)
        draft.nodes = [_stamped(node, stamp) for node, stamp in zip(draft.nodes, done.stamps, strict=True)]
        return replace(done.version, id=VersionId(done.version.id, done.moves))

    def before_reading(self) -> None:
        """Note the head that a read in this step is of: what is written because of it must not land behind another."""
        if self._read is None and self._terms.expect is None:
            self._read = RemoteReader(self._client, {"session": self._session, "version": None, "as_of": None}).head()


class RemoteBackend:
    """All sessions of a home that another process owns."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @property
    def engine(self) -> StateEngine:
        raise self._client.only_owner("the engine")

    def sessions(self, where: str | None = None) -> list[str]:
        """The ids of the sessions; `where` is a CEL condition over `session`."""
        return self._client.get("/api/state/sessions", list[str], {"where": where})

    def gc(self, limit: int) -> Collected:
        """The settings' retention, applied to every session in one bounded pass each."""
        return self._post("gc", GcBody(limit), Collected)

    def caused_by(self, tool: str, within: float) -> list[Node]:
        """`caused_by` over all sessions."""
        return self._client.get("/api/state/caused_by_everywhere", list[Node], {"tool": tool, "within": within})

    def reader(
        self,
        session: str,
        version: str | None = None,
        as_of: int | None = None,
        acting: Acting | None = None,
        schemas: Mapping[str, int | str] | None = None,
    ) -> RemoteReader:
        named: dict[str, Any] = {"session": session, "version": version, "as_of": as_of}
        if acting is not None:
            named |= {"agent": acting.name, "role": list(acting.roles)}
        if schemas:
            named["schemas"] = encode(schemas).decode()
        reader = RemoteReader(self._client, named)
        if version is not None or acting is not None or schemas:
            reader.head()
        return reader

    @contextmanager
    def writing(self, session: str, terms: Terms) -> Generator[RemoteWriter]:
        """Nothing is held there while a step is collected here. A step in which the session was read is committed only
        if nobody else has written meanwhile: VersionConflict.
        """
        writer = RemoteWriter(self._client, session, terms)
        with self._client.reads_told(writer.before_reading):
            yield writer

    def flush(self) -> None:
        self._post("flush", {}, None)

    def _post(self, operation: str, body: Any, type: Any, wait: float = 0.0) -> Any:
        return self._client.post(f"/api/state/{operation}", body, type, wait=wait)

    # -- time travel -------------------------------------------------------------------------------

    def rollback(self, session: str, *, steps: int, to: str | None, agent: str | None, why: str | None) -> str:
        return head_of(self._post("rollback", RollbackBody(session, steps, to, agent, why), HeadBody))

    def fork(self, session: str, new: str, *, at: str | None, agent: str | None) -> None:
        self._post("fork", ForkBody(session, new, at, agent), None)

    def diff(self, session: str, old: str, new: str, acting: Acting | None = None) -> Diff:
        named: dict[str, Any] = {"session": session, "old": str(old), "new": str(new)}
        if acting is not None:
            named |= {"agent": acting.name, "role": list(acting.roles)}
        return self._client.get("/api/state/diff", Diff, named)

    def watch(self, session: str, since: int | None, timeout: float | None) -> Iterator[Change]:
        """Goes on over broken connections, and with the next owner of the home, if that comes soon."""
        return self._follow(_Following(session, self._moves(session) if since is None else since, timeout))

    def _moves(self, session: str) -> int | None:
        """How often a head has moved until now."""
        return self.reader(session).head().moves

    def _follow(self, following: _Following) -> Iterator[Change]:
        while not following.over:
            try:
                for event in self._client.events("/api/state/watch", following.params):
                    change = following.take(event)
                    if change is not None:
                        yield change
            except OwnerUnreachable as error:
                following.broken(error)
                time.sleep(_PAUSE)

    def awatch(self, session: str, since: int | None, timeout: float | None) -> AsyncIterator[Change]:
        """`watch` for running loops."""
        return self._afollow(_Following(session, self._moves(session) if since is None else since, timeout))

    async def _afollow(self, following: _Following) -> AsyncIterator[Change]:
        while not following.over:
            try:
                async for event in self._client.aevents("/api/state/watch", following.params):
                    change = following.take(event)
                    if change is not None:
                        yield change
            except OwnerUnreachable as error:
                following.broken(error)
                await asyncio.sleep(_PAUSE)

    # -- retention ---------------------------------------------------------------------------------

    def pin(self, version: str, owner: str, why: str | None) -> None:
        self._post("pin", PinBody(version, owner, why), None)

    def unpin(self, version: str, owner: str) -> bool:
        return self._post("unpin", PinBody(version, owner), bool)

    def collect(self, session: str, policy: Retention, limit: int, *, agent: str | None) -> Collected:
        asked = CollectBody(
            session,
            policy.keep_last,
            policy.max_age,
            policy.max_bytes,
            policy.abandoned_after,
            limit,
            agent,
        )
        return self._post("collect", asked, Collected)

    def erase(self, session: str, id: str, why: str, *, agent: str | None, acting: Acting | None = None) -> Collected:
        by = ActingBody(acting.name, acting.roles) if acting is not None else None
        return self._post("erase", EraseBody(session, id, why, agent, by), Collected)

    # -- transfer ----------------------------------------------------------------------------------

    def export_session(self, session: str, out: IO[bytes]) -> Exported:
        """It comes aside first and is checked, so that `out` gets a whole one or nothing."""
        with tempfile.NamedTemporaryFile() as aside:
            for chunk in self._client.download("/api/transfer", {"session": session}):
                aside.write(chunk)
            aside.flush()
            exported = exported_in(Path(aside.name))
            aside.seek(0)
            shutil.copyfileobj(aside, out)
        return exported

    def import_session(
        self, path: Path, session: str | None = None, *, redraw: bool = False, agent: str | None = None
    ) -> Imported:
        """Every hash is checked here, before the owner checks them again."""
        check_export(path)
        asked = {"session": session, "redraw": redraw, "agent": agent}
        with path.open("rb") as file:
            chunks = iter(lambda: file.read(CHUNK), b"")
            return self._client.upload("/api/transfer", chunks, Imported, asked)

    # -- leases ------------------------------------------------------------------------------------

    def take_lease(self, session: str, owner: str, seconds: float, timeout: float) -> int:
        asked = LeaseBody(session, owner, seconds, lock_wait_timeout=timeout)
        return self._post("leases", asked, int, wait=timeout)

    def renew_lease(self, lease: Lease, seconds: float) -> None:
        self._post("leases/renew", _lease_body(lease, seconds), None, wait=seconds)

    def release_lease(self, lease: Lease, seconds: float) -> None:
        self._post("leases/release", _lease_body(lease, seconds), None, wait=seconds)


class _Following:
    """How far a watch has come, across broken connections."""

    def __init__(self, session: str, since: int | None, timeout: float | None) -> None:
        self.over = False
        self._session = session
        self._since = since
        self._timeout = timeout
        self._fruitless = 0

    @property
    def params(self) -> dict[str, Any]:
        """Where the next connection begins."""
        return {"session": self._session, "since": self._since, "timeout": self._timeout}

    def take(self, event: Event) -> Change | None:
        """Note an event; the change that it tells of."""
        self._fruitless = 0
        if event.name == "from":
            self._since = decode(event.data.encode(), dict[str, int])["seq"]
        elif event.name == "end":
            self.over = True
        elif event.name == "change":
            change = decode(event.data.encode(), Change)
            self._since = change.seq
            return change
        return None

    def broken(self, error: OwnerUnreachable) -> None:
        """Give up where connection after connection told nothing."""
        self._fruitless += 1
        if self._fruitless > _RECONNECTS:
            raise error


def _asked(query: Query) -> dict[str, Any]:
    fields = {name: getattr(query, name) for name in Query.__slots__}
    return fields | {"lifecycle": query.lifecycle or "all"}


def _listed(names: Collection[str] | None) -> str | None:
    return None if names is None else encode(list(names)).decode()


def _node_body(node: NodeDraft, schema_version: int | str | None) -> NodeBody:
    return NodeBody(
        node.id, node.type, node.data, node.key, node.ttl, node.tool, node.permissions, node.labels, schema_version
    )


def _stamped(node: NodeDraft, stamp: Stamp) -> NodeDraft:
    return replace(node, schema=stamp.schema, ttl=stamp.ttl, data=node.data if stamp.data is None else stamp.data)


def _lease_body(lease: Lease, seconds: float) -> LeaseBody:
    return LeaseBody(lease.session, lease.owner, seconds, lease.token)
