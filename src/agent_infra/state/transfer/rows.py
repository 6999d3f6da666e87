"""Versions as rows of a store: what `Batch` writes of a step, made from a step that was written elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count

import msgspec

from agent_infra.clock import MICROS, ulid_text
from agent_infra.content import referred_cids
from agent_infra.state.model import NodeDraft
from agent_infra.state.reading.view import position
from agent_infra.state.rows import keys, records
from agent_infra.state.rows.records import VersionRecord
from agent_infra.state.stores import Write
from agent_infra.state.transfer.arrived import Arrived, ArrivedNode, ArrivedVersion, Place


@dataclass(frozen=True, slots=True)
class _Known:
    """A node that has its row."""

    row: bytes
    place: Place
    draft: NodeDraft | None


class Rows:
    """Collects the rows of arrived versions, oldest first. `numbers` gives the store's branch for each of the file's.

    Raises ValueError for a version that names nodes which it can't see.
    """

    def __init__(self, arrived: Arrived, numbers: Mapping[int, int]) -> None:
        self.rows: list[Write] = []
        self.referred: list[str] = []
        self._arrived = arrived
        self._numbers = numbers
        self._nodes: dict[bytes, _Known] = {}
        self._deaths: dict[bytes, list[Place]] = {}
        self._causes: dict[bytes, list[tuple[Place, str]]] = {}
        for version in arrived.versions.values():
            self._add_version(version)

    def _add_version(self, version: ArrivedVersion) -> None:
        br, step, seq = self._numbers[version.branch], version.step, count(1)
        line = self._line(version.branch, step)
        for node in version.nodes:
            self._add_node(version, node, br, next(seq))
        dying = {ulid for ulid, _ in version.deaths}
        for ulid, kind in version.deaths:
            self._add_death(version, ulid, kind, br, next(seq), line)
        for edge in version.edges:
            self._add_edge(version, edge, br, next(seq), line, dying)
        for ulid in dying:
            self._deaths.setdefault(ulid, []).append((version.branch, step))
        parent, parent_step = self._arrived.parent(version.branch, step)
        record = VersionRecord(
            version.hash,
            version.parent_hash,
            self._numbers.get(parent, 0),
            parent_step,
            version.content(),
            records.pack(version.private),
        )
        self.rows.append((keys.version(br, step), records.pack(record)))
        self.rows.append((keys.by_hash(version.hash[:8], br, step), b""))
        self.rows += [(keys.reference(kind, value, br, step), b"") for kind, value in version.private.references]

    def _line(self, branch: int, step: int) -> dict[int, int]:
        """The last step on each branch that a version sees."""
        line: dict[int, int] = {}
        while branch:
            line[branch] = step
            begins = self._arrived.branches[branch]
            branch, step = begins.parent, begins.fork_step
        return line

    def _sees(self, line: Mapping[int, int], place: Place) -> bool:
        return place[1] <= line.get(place[0], -1)

    def _known(self, ulid: bytes, line: Mapping[int, int], version: ArrivedVersion) -> _Known:
        known = self._nodes.get(ulid)
        if known is None or not self._sees(line, known.place):
            raise ValueError(f"version {version.id} names node {ulid_text(ulid)}, which it can't see")
        return known

    def _add_node(self, version: ArrivedVersion, node: ArrivedNode, br: int, seq: int) -> None:
        row = records.pack_node(node.salt, br, version.step, seq, version.created, node.content())
        self._nodes[node.ulid] = _Known(row, (version.branch, version.step), node.draft)
        self.rows.append((keys.node(node.ulid), row))
        draft = node.draft
        if draft is None:
            return
        suffix = position(row)
        prefixes = keys.index_prefixes(br, draft.type, draft.tool, draft.owner)
        self.rows += [(prefix + suffix, node.ulid) for prefix in prefixes]
        if draft.key is not None:
            self.rows.append((keys.key_prefix(br, draft.key) + keys.step_seq(version.step, seq), node.ulid))
        if draft.ttl is not None:
            ends = version.created + round(draft.ttl * MICROS)
            self.rows.append((keys.expiry(version.session, ends, node.ulid), b""))
        if b'"$cid"' in draft.body:
            referred = referred_cids(msgspec.json.decode(draft.body))
            self.referred += referred
            self.rows += [(keys.user_prefix(cid) + node.ulid, b"") for cid in referred]

    def _add_death(
        self, version: ArrivedVersion, ulid: bytes, kind: bytes, br: int, seq: int, line: Mapping[int, int]
    ) -> None:
        dead = self._known(ulid, line, version)
        self.rows.append((keys.death(ulid, br, version.step), kind))
        if dead.draft is None:
            return
        before = self._line(version.branch, version.step - 1)
        tools = {tool for place, tool in self._causes.get(ulid, []) if self._sees(before, place)}
        suffix = position(dead.row)[:8] + keys.step_seq(version.step, seq)
        ranges = keys.index_prefixes(br, dead.draft.type, dead.draft.tool, dead.draft.owner)
        ranges += [keys.caused_prefix(br, tool) for tool in tools]
        self.rows += [(prefix + suffix, records.MARKER + ulid) for prefix in ranges]

    def _add_edge(
        self,
        version: ArrivedVersion,
        edge: tuple[bytes, bytes, str, str | None],
        br: int,
        seq: int,
        line: Mapping[int, int],
        dying: set[bytes],
    ) -> None:
        source, target, type, told = edge
        start, end = self._known(source, line, version), self._known(target, line, version)
        tool = start.draft.tool if start.draft is not None else told
        self.rows.append((keys.edge(b"O", source, br, version.step, seq), keys.edge_end(target, type)))
        self.rows.append((keys.edge(b"P", target, br, version.step, seq), keys.edge_end(source, type, tool)))
        if type != "causes" or tool is None:
            return
        self._causes.setdefault(target, []).append(((version.branch, version.step), tool))
        dead = target in dying or any(self._sees(line, place) for place in self._deaths.get(target, []))
        if end.draft is not None and not dead:
            suffix = position(end.row)[:8] + keys.step_seq(version.step, seq)
            self.rows.append((keys.caused_prefix(br, tool) + suffix, target + end.row))
            self.rows.append((keys.directory(tool, _created(end.row), br), b""))


def _created(row: bytes) -> int:
    """The creation time of a node's row."""
    return records.node_place(row)[4]
