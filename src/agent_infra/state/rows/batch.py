"""One step as rows: nodes, edges, deaths and the version record that chains them, for a single atomic write."""

from __future__ import annotations

from typing import TypeAlias

from agent_infra.clock import MICROS, random_bytes, ulid_bytes
from agent_infra.content import referred_cids
from agent_infra.errors import InvalidNode, NodeUnknown
from agent_infra.state.model import NodeDraft, StepDraft, check_edge_type
from agent_infra.state.reading.view import View, position
from agent_infra.state.rows import keys, records
from agent_infra.state.rows.records import Branch, Content, Head, Private, VersionRecord
from agent_infra.state.stores import Write

_End: TypeAlias = tuple[bytes, bytes, str | None]
"""An edge's end: its id's bytes, its row, its tool."""


class Batch:
    """Collects the rows of one step on one branch. Everything is checked before the store sees any of it."""

    def __init__(self, view: View, created: int) -> None:
        self.rows: list[Write] = []
        self.new_branches: dict[int, Branch] = {}
        self.tips: dict[int, int] = {}
        self.referred: list[str] = []
        self._view = view
        self._created = created
        self._written: dict[str, _End] = {}
        self._dead: dict[bytes, bytes] = {}
        self._ranges: dict[tuple[str, str | None, str | None], list[bytes]] = {}
        self._seq = 0

    def fill(self, session: str, br: int, head: Head, draft: StepDraft) -> VersionRecord:
        """Add a draft's rows as the step after `head`. Raises NodeUnknown, InvalidNode."""
        step = head.step + 1
        deaths = self._find_deaths(draft)
        nodes = [self._add_node(br, step, node) for node in draft.nodes]
        for ulid in deaths:
            self._bury(br, step, ulid)
        edges = [self._add_edge(br, step, *edge) for edge in draft.edges]
        private = records.pack(Private(random_bytes(16), [why for _, why in draft.removals], list(draft.references)))
        content = records.pack(
            Content(
                session,
                step,
                self._created,
                draft.agent,
                nodes,
                edges,
                [(ulid, kind.decode()) for ulid, kind in deaths.items()],
                records.private_digest(private),
            )
        )
        digest = records.chain_hash(head.hash, content)
        record = VersionRecord(digest, head.hash, head.branch, head.step, content, private)
        self.rows.append((keys.version(br, step), records.pack(record)))
        self.rows.append((keys.by_hash(digest[:8], br, step), b""))
        self.rows += [(keys.reference(kind, value, br, step), b"") for kind, value in draft.references]
        return record

    def _next_seq(self) -> int:
        self._seq += 1
        return self._seq

    # -- nodes -------------------------------------------------------------------------------------

    def _add_node(self, br: int, step: int, node: NodeDraft) -> tuple[bytes, bytes]:
        ulid = ulid_bytes(node.id)
        seq = self._next_seq()
        salt = random_bytes(16)
        content = records.node_content(node)
        row = records.pack_node(salt, br, step, seq, self._created, content)
        self._written[node.id] = ulid, row, node.tool
        rows = self.rows
        rows.append((keys.node(ulid), row))
        suffix = keys.suffix(self._created, step, seq)
        named = node.type, node.tool, node.owner
        ranges = self._ranges.get(named)
        if ranges is None:
            ranges = self._ranges[named] = keys.index_prefixes(br, *named)
        rows += [(prefix + suffix, ulid) for prefix in ranges]
        if node.key is not None:
            rows.append((keys.key_prefix(br, node.key) + keys.step_seq(step, seq), ulid))
        if node.ttl is not None:
            rows.append((keys.expiry(self._view.session, self._created + round(node.ttl * MICROS), ulid), b""))
        if b'"$cid"' in node.body:
            referred = referred_cids(node.data)
            self.referred += referred
            rows += [(keys.user_prefix(cid) + ulid, b"") for cid in referred]
        return ulid, records.node_digest(ulid, salt, content)

    # -- deaths ------------------------------------------------------------------------------------

    def _find_deaths(self, draft: StepDraft) -> dict[bytes, bytes]:
        """Who dies by this step: what is removed, and what a newer node with the same key supersedes."""
        given: set[str] = set()
        for node in draft.nodes:
            if node.key is None:
                continue
            if node.key in given:
                raise InvalidNode(
                    f"two nodes of one step have the key {node.key!r}",
                    why="a key names one node, and neither of the two is the newer",
                    mend="Give them different keys, or write them in two steps.",
                    facts={"key": node.key},
                )
            given.add(node.key)
            older = self._view.keyed(node.key)
            if older is not None and self._view.death(older) is None:
                self._dead[older] = records.SUPERSEDED
        for id, _ in draft.removals:
            self._dead[self._alive(id)] = records.REMOVED
        return self._dead

    def _alive(self, id: str) -> bytes:
        node = self._view.node(id)
        ulid = ulid_bytes(node.id)
        if node.lifecycle in ("superseded", "tombstoned"):
            raise InvalidNode(f"node {id!r} is already {node.lifecycle}", facts={"node": id})
        return ulid

    def _bury(self, br: int, step: int, ulid: bytes) -> None:
        """Write a death, and its markers into every index range that holds the dead node."""
        row = self._view.row(ulid)
        if row is None:
            raise NodeUnknown(f"there is no node {ulid!r}")
        node = records.read_node(ulid, row, "")
        marker = records.MARKER + ulid
        suffix = position(row)[:8] + keys.step_seq(step, self._next_seq())
        self.rows.append((keys.death(ulid, br, step), self._dead[ulid]))
        ranges = keys.index_prefixes(br, node.type, node.tool, node.owner)
        ranges += [keys.caused_prefix(br, tool) for tool in self._view.causing_tools(ulid)]
        self.rows += [(prefix + suffix, marker) for prefix in ranges]

    # -- edges -------------------------------------------------------------------------------------

    def _add_edge(self, br: int, step: int, source: str, target: str, type: str) -> tuple[bytes, bytes, str]:
        check_edge_type(type)
        start, _, tool = self._written.get(source) or self._earlier(source)
        end, end_row, _ = self._written.get(target) or self._earlier(target)
        seq = self._next_seq()
        self.rows.append((keys.edge(b"O", start, br, step, seq), keys.edge_end(end, type)))
        self.rows.append((keys.edge(b"P", end, br, step, seq), keys.edge_end(start, type, tool)))
        if type == "causes" and tool is not None and self._lives(target, end):
            suffix = position(end_row)[:8] + keys.step_seq(step, seq)
            self.rows.append((keys.caused_prefix(br, tool) + suffix, end + end_row))
            _, _, _, _, created = records.node_place(end_row)
            self.rows.append((keys.directory(tool, created, br), b""))
        return start, end, type

    def _lives(self, id: str, ulid: bytes) -> bool:
        return ulid not in self._dead and (id in self._written or self._view.death(ulid) is None)

    def _earlier(self, id: str) -> _End:
        """An edge's end that the step's view sees."""
        ulid = keys.raw_id(id)
        row = self._view.row(ulid) if ulid is not None else None
        if ulid is not None and row is not None:
            return ulid, row, records.tool_of(row)
        raise NodeUnknown(
            f"an edge ends at {id!r}, and there is no such node",
            where=f"session {self._view.session!r}",
            mend="Add the node in this step or before; edges don't reach into other sessions.",
            facts={"node": id},
        )
