"""A view: one lineage of one session up to one step, as of one moment. Every read goes through one.

A lineage is the list of (branch, last step) from the session's own branch down to the first; a row belongs to the
view if its step is at most the last step of its branch. Later commits carry later steps, so a view never changes
under its reader and never waits for a writer.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from agent_infra.clock import MICROS, ulid_bytes, ulid_text
from agent_infra.errors import InvalidNode, NodeUnknown
from agent_infra.state.access.permissions import Guard
from agent_infra.state.model import Edge, Lifecycle, Node, Version, root_hash, version_id
from agent_infra.state.rows import keys, records
from agent_infra.state.stores import Store

Lineage: TypeAlias = tuple[tuple[int, int], ...]
_Suffixed: TypeAlias = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a version lies in the store."""

    branch: int
    step: int
    hash: bytes
    created: int


class View:
    """Reads of one session as of one version and moment. `as_of` is in microseconds since 1970."""

    def __init__(
        self,
        store: Store,
        session: str,
        place: Place,
        lineage: Lineage,
        as_of: int,
        owner_of: Callable[[int], str],
        guard: Guard | None = None,
        translate: Callable[[Node], Node] | None = None,
    ) -> None:
        self.session = session
        self.place = place
        self.as_of = as_of
        self._store = store
        self._lineage = lineage
        self._last = dict(lineage)
        self._owner_of = owner_of
        self._guard = guard
        self._translate = translate

    # -- one node ----------------------------------------------------------------------------------

    def row(self, ulid: bytes) -> bytes | None:
        """A node's stored row, if this view sees it."""
        row = self._store.get(keys.node(ulid))
        return row if row is not None and self._sees(row) and not records.is_stub(row) else None

    def node(self, id: str) -> Node:
        """A node by its id. Raises NodeUnknown where this view doesn't see it."""
        ulid = keys.raw_id(id)
        row = self.row(ulid) if ulid else None
        if ulid is None or row is None:
            stub = self._store.get(keys.node(ulid)) if ulid else None
            raise NodeUnknown(
                f"there is no node {id!r}",
                where=f"session {self.session!r} at step {self.place.step}",
                why=_gone(stub) if stub is not None and self._sees(stub) else None,
                mend="Nodes of later steps, of abandoned branches and of other sessions are not in this view.",
                facts={"node": id, "session": self.session, "step": self.place.step},
            )
        node = self._read(ulid, row, self.death(ulid))
        if self._guard is not None:
            self._guard.check_read(node)
        return self.translated(node)

    def translated(self, node: Node) -> Node:
        """A node in the schema version that the view's reader understands. Indexes list nodes as they were written."""
        return node if self._translate is None else self._translate(node)

    def _shown(self, node: Node) -> bool:
        return self._guard is None or self._guard.sees(node)

    def death(self, ulid: bytes) -> bytes | None:
        """SUPERSEDED or REMOVED if the node has died in this view, else None."""
        prefix = b"D" + ulid
        for key, kind in self._store.scan(prefix, keys.after(prefix)):
            br, step = keys.death_place(key)
            if step <= self._last.get(br, -1):
                return kind
        return None

    def _sees(self, row: bytes) -> bool:
        _, br, step, _, _ = records.node_place(row)
        return step <= self._last.get(br, -1)

    def _read(self, ulid: bytes, row: bytes, death: bytes | None) -> Node:
        _, br, _, _, _ = records.node_place(row)
        lifecycle: Lifecycle = "active"
        if death is not None:
            lifecycle = "superseded" if death == records.SUPERSEDED else "tombstoned"
        node = records.read_node(ulid, row, self._owner_of(br), lifecycle)
        if lifecycle == "active" and node.expires is not None and node.expires <= self.as_of:
            return records.read_node(ulid, row, self._owner_of(br), "expired")
        return node

    # -- by key or name ----------------------------------------------------------------------------

    def keyed(self, key: str) -> bytes | None:
        """The newest node ever given that key, dead or alive."""
        for br, last in self._lineage:
            prefix = keys.key_prefix(br, key)
            for _, ulid in self._store.scan(prefix + keys.step_seq(last, keys.U32), keys.after(prefix)):
                return ulid
        return None

    def latest_keyed(self, key: str) -> Node | None:
        """The newest node ever given that key, if it has neither been superseded nor removed."""
        ulid = self.keyed(key)
        row = self.row(ulid) if ulid is not None else None
        if ulid is None or row is None or self.death(ulid) is not None:
            return None
        return self._read(ulid, row, None)

    def all_keyed(self, key: str) -> Iterator[tuple[Node, bytes]]:
        """Every node ever given that key, newest first, each with its position."""
        for br, last in self._lineage:
            prefix = keys.key_prefix(br, key)
            for _, ulid in self._store.scan(prefix + keys.step_seq(last, keys.U32), keys.after(prefix)):
                row = self.row(ulid)
                node = self._read(ulid, row, self.death(ulid)) if row is not None else None
                if row is not None and node is not None and self._shown(node):
                    yield node, position(row)

    def latest(self, name: str) -> Node | None:
        """The newest live node with that key, else of that type: what `state.nodes.<name>` means."""
        ulid = self.keyed(name)
        if ulid is not None:
            row = self.row(ulid)
            node = self._read(ulid, row, self.death(ulid)) if row is not None else None
            if node is not None and node.lifecycle == "active" and self._shown(node):
                return self.translated(node)
        found = next(self.by_index(keys.BY_TYPE, name), None)
        return None if found is None else self.translated(found)

    # -- indexes -----------------------------------------------------------------------------------

    def by_index(
        self,
        kind: bytes,
        value: str,
        *,
        since: int | None = None,
        after: bytes | None = None,
        lifecycle: Lifecycle | None = "active",
    ) -> Iterator[Node]:
        """Nodes by type, tool or owner, newest first; from `since` on, behind the position `after`."""
        prefixes = [(keys.index_prefix(br, kind, value), last) for br, last in self._lineage]
        for ulid, dead, row in self._alive(prefixes, since, after):
            if dead and lifecycle == "active":
                continue
            stored = row or self._store.get(keys.node(ulid))
            if stored is None or records.is_stub(stored):
                continue
            node = self._read(ulid, stored, self.death(ulid) if dead else None)
            if (lifecycle is None or node.lifecycle == lifecycle) and self._shown(node):
                yield node

    def by_time(
        self, *, since: int | None = None, after: bytes | None = None, lifecycle: Lifecycle | None = "active"
    ) -> Iterator[Node]:
        """All nodes, newest first, by the versions that wrote them."""
        stop = keys.suffix_parts(after) if after else None
        for record in self.records():
            content = records.decode_content(record.content)
            if since is not None and content.created < since:
                return
            if stop is not None and content.created > stop[0]:
                continue
            ids = [ulid for ulid, _ in content.nodes]
            rows = self._store.get_many([keys.node(ulid) for ulid in ids])
            for ulid, row in sorted(zip(ids, rows, strict=True), key=_by_seq):
                if row is None or records.is_stub(row) or (after is not None and position(row) <= after):
                    continue
                node = self._read(ulid, row, self.death(ulid))
                if (lifecycle is None or node.lifecycle == lifecycle) and self._shown(node):
                    yield node

    def caused_by(self, tool: str, since: int) -> list[Node]:
        """Live nodes at the end of a `causes` edge from a node of that tool, created at or after `since`, newest
        first.
        """
        prefixes = [(keys.caused_prefix(br, tool), last) for br, last in self._lineage]
        nodes = [
            self._read(ulid, row, None)
            for ulid, dead, row in self._alive(prefixes, since, None)
            if not dead and row is not None
        ]
        if self._guard is not None:
            nodes = [node for node in nodes if self._shown(node) and tool in self.causing_tools(ulid_bytes(node.id))]
        return [self.translated(node) for node in nodes if node.lifecycle == "active"]

    def _alive(
        self, prefixes: list[tuple[bytes, int]], since: int | None, after: bytes | None
    ) -> Iterator[tuple[bytes, bool, bytes | None]]:
        """(ulid, dead, row where the index holds it) of an index's rows, each node once, newest first."""
        dead: set[bytes] = set()
        seen: set[bytes] = set()
        for suffix, value in self._merged(prefixes, since, after):
            if value[:1] == records.MARKER and len(value) == 17:
                dead.add(value[1:])
                continue
            ulid = value[:16]
            if ulid in seen or (after is not None and suffix <= after):
                continue
            seen.add(ulid)
            yield ulid, ulid in dead, value[16:] or None

    def _merged(self, prefixes: list[tuple[bytes, int]], since: int | None, after: bytes | None) -> Iterator[_Suffixed]:
        segments = [self._segment(prefix, last, since, after) for prefix, last in prefixes]
        return segments[0] if len(segments) == 1 else heapq.merge(*segments, key=_suffix)

    def _segment(self, prefix: bytes, last: int, since: int | None, after: bytes | None) -> Iterator[_Suffixed]:
        """One branch's part of an index. It starts at the creation time of `after`, not behind it: the markers of
        nodes of that moment stand before them."""
        lower = prefix + after[:8] if after else prefix
        upper = keys.after(prefix) if since is None else prefix + (keys.U64 - max(since, 1) + 1).to_bytes(8, "big")
        earliest = keys.U32 - last
        for key, value in self._store.scan(lower, upper):
            if int.from_bytes(key[-8:-4], "big") >= earliest:
                yield key[-keys.SUFFIX_LENGTH :], value

    # -- edges -------------------------------------------------------------------------------------

    def edges(self, id: str) -> list[Edge]:
        """Edges from and to a node, oldest first, each once."""
        ulid = keys.raw_id(id)
        if ulid is None:
            return []
        found = [each for direction in (b"O", b"P") for each in self._half_edges(direction, ulid)]
        unique: dict[tuple[str, str, str], Edge] = {}
        for _, edge in sorted(found, key=lambda each: each[0]):
            if self._ends_shown(edge):
                unique.setdefault((edge.source, edge.target, edge.type), edge)
        return list(unique.values())

    def _ends_shown(self, edge: Edge) -> bool:
        return self._guard is None or all(self._end_shown(ulid_bytes(id)) for id in (edge.source, edge.target))

    def _end_shown(self, ulid: bytes) -> bool:
        """Whether the guard lets an edge's end be known: of collected nodes nothing but that is left."""
        row = self.row(ulid) if self._guard is not None else None
        return self._guard is None or row is None or self._guard.sees(self._read(ulid, row, None))

    def _half_edges(self, direction: bytes, ulid: bytes) -> Iterator[tuple[tuple[int, int], Edge]]:
        """((step, sequence), edge) of the edges on one side of a node."""
        prefix = direction + ulid
        me = ulid_text(ulid)
        for key, value in self._store.scan(prefix, keys.after(prefix)):
            br, step, seq = keys.edge_place(key)
            if step <= self._last.get(br, -1):
                end, type = keys.edge_parts(value)
                ends = (me, ulid_text(end)) if direction == b"O" else (ulid_text(end), me)
                yield (step, seq), Edge(*ends, type, step)

    def causing_tools(self, ulid: bytes) -> set[str]:
        """The tools whose calls a node's `causes` edges come from, whether or not those calls were collected."""
        prefix = b"P" + ulid
        tools: set[str] = set()
        for key, value in self._store.scan(prefix, keys.after(prefix)):
            tool = keys.causing_tool(value)
            br, step, _ = keys.edge_place(key)
            if tool is not None and step <= self._last.get(br, -1) and self._end_shown(keys.edge_parts(value)[0]):
                tools.add(tool)
        return tools

    # -- versions ----------------------------------------------------------------------------------

    def records(self) -> Iterator[records.VersionRecord]:
        """The lineage's versions as stored, newest first."""
        return (record for _, _, record in self.placed_records())

    def placed_records(self) -> Iterator[tuple[int, int, records.VersionRecord]]:
        """The lineage's versions as stored, newest first, each with its branch and step."""
        return ((br, step, records.decode_version(row)) for br, step, row in self.version_rows())

    def version_rows(self) -> Iterator[tuple[int, int, bytes]]:
        """The lineage's versions as bytes, newest first, each with its branch and step."""
        for br, last in self._lineage:
            prefix = keys.versions_prefix(br)
            for key, value in self._store.scan(keys.version(br, last), keys.after(prefix)):
                yield br, keys.version_step(key), value

    def history(self, readable: Callable[[int, int], bool]) -> list[Version]:
        """The lineage's versions at readable places (branch, step), newest last."""
        found = [
            records.read_version(record, self._parent_of(record))
            for br, step, record in self.placed_records()
            if readable(br, step)
        ]
        found.reverse()
        return found

    def _parent_of(self, record: records.VersionRecord) -> str:
        if record.parent_branch == 0:
            session = records.decode_content(record.content).session
            return version_id(session, 0, root_hash(session))
        return version_id(self._owner_of(record.parent_branch), record.parent_step, record.parent_hash)


def seconds_before(as_of: int, seconds: float) -> int:
    """The instant `seconds` before another, in microseconds since 1970. Raises InvalidNode for no length of time."""
    if not seconds >= 0:
        raise InvalidNode(f"within is a number of seconds from 0 on, not {seconds!r}")
    return max(0, as_of - round(min(seconds * MICROS, as_of)))


def position(row: bytes) -> bytes:
    """A node's position in every time-ordered listing."""
    _, _, step, seq, created = records.node_place(row)
    return keys.suffix(created, step, seq)


def _suffix(item: _Suffixed) -> bytes:
    return item[0]


def _by_seq(item: tuple[bytes, bytes | None]) -> int:
    return -records.node_place(item[1])[3] if item[1] is not None else 0


def node_facts(node: Node) -> Mapping[str, Any]:
    """A node as expressions read it: its own fields, and behind them the fields of its data."""
    return node.data | node.as_dict()


def _gone(stub: bytes) -> str:
    """Why a node has no data any more."""
    erased = records.node_place(stub)[0] == records.ERASED
    return "its data was erased; `_control` notes by whom and why" if erased else "retention removed its data"
