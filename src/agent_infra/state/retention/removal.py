"""Removing rows: one node or one version at a time, with everything that points at it, in one batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from agent_infra.content import referred_cids
from agent_infra.state.model import Node
from agent_infra.state.reading.view import position
from agent_infra.state.rows import keys, records
from agent_infra.state.stores import Write

if TYPE_CHECKING:
    from agent_infra.state.blobs import BlobStore
    from agent_infra.state.engine import StateEngine


class Removal:
    """Collects the deletions that belong together, writes them, and counts what they freed."""

    def __init__(self, engine: StateEngine, blobs: BlobStore | None) -> None:
        self.nodes = self.blobs = self.bytes = 0
        self._store = engine.store
        self._blobs = blobs
        self._rows: list[Write] = []

    def flush(self, *further: Write) -> None:
        """Write what was collected, together with further rows."""
        rows = [*self.take(), *further]
        if rows:
            self._store.write(rows)

    def take(self) -> list[Write]:
        """What was collected, to be written by the caller in a batch of its own."""
        rows, self._rows = self._rows, []
        return rows

    def stub_node(self, ulid: bytes, *, erased: bool = False) -> None:
        """Remove a node's data and what finds it; a stub keeps its place in the chain."""
        row = self._remove_data(ulid)
        if row is not None:
            self._rows.append((keys.node(ulid), records.stub_of(row, erased=erased)))
            self.bytes -= records.NODE_HEAD_LENGTH

    def drop_version(self, br: int, step: int) -> None:
        """Remove a version of an abandoned tail with its nodes, its deaths and its edges, in one batch."""
        row = self._store.get(keys.version(br, step))
        if row is None:
            return
        record = records.decode_version(row)
        content = records.decode_content(record.content)
        for kind, value in records.decode_private(record.private).references:
            self._rows.append((keys.reference(kind, value, br, step), None))
        for source, target, _ in content.edges:
            self._remove_edge(br, step, source, target)
        for ulid, _ in content.deaths:
            self._remove_death(br, step, ulid)
        for ulid, _ in content.nodes:
            if self._remove_data(ulid) is not None:
                self._rows.append((keys.node(ulid), None))
        self.bytes += len(row)
        self.flush((keys.version(br, step), None))

    # -- a node ------------------------------------------------------------------------------------------------------

    def _remove_data(self, ulid: bytes) -> bytes | None:
        """Remove a node's index rows, its death markers and its hold on blobs; give its row, None where it is gone."""
        row = self._store.get(keys.node(ulid))
        if row is None or records.is_stub(row):
            return None
        node = records.read_node(ulid, row, "")
        _, br, step, seq, _ = records.node_place(row)
        suffix = position(row)
        self._rows += [(prefix + suffix, None) for prefix in keys.index_prefixes(br, node.type, node.tool, node.owner)]
        if node.key is not None:
            self._rows.append((keys.key_prefix(br, node.key) + keys.step_seq(step, seq), None))
        for edge_br, edge_step, edge_seq, tool in self._causes(ulid):
            key = keys.caused_prefix(edge_br, tool) + suffix[:8] + keys.step_seq(edge_step, edge_seq)
            self._rows.append((key, None))
        prefix = b"D" + ulid
        for key, _ in self._store.scan(prefix, keys.after(prefix)):
            self._remove_markers(*keys.death_place(key), ulid, node, suffix)
        for cid in referred_cids(node.data):
            self._release(cid, ulid)
        self.nodes += 1
        self.bytes += len(row)
        return row

    def _causes(self, ulid: bytes) -> Iterator[tuple[int, int, int, str]]:
        """(branch, step, seq, tool) of each `causes` edge to a node from a node of a tool."""
        prefix = b"P" + ulid
        for key, value in self._store.scan(prefix, keys.after(prefix)):
            tool = keys.causing_tool(value)
            if tool is not None:
                yield *keys.edge_place(key), tool

    # -- a death -----------------------------------------------------------------------------------------------------

    def _remove_death(self, br: int, step: int, ulid: bytes) -> None:
        self._rows.append((keys.death(ulid, br, step), None))
        row = self._store.get(keys.node(ulid))
        if row is not None and not records.is_stub(row):
            self._remove_markers(br, step, ulid, records.read_node(ulid, row, ""), position(row))

    def _remove_markers(self, br: int, step: int, ulid: bytes, node: Node, suffix: bytes) -> None:
        """Remove what a death wrote into the ranges of the indexes that hold the dead node."""
        marker = records.MARKER + ulid
        tools = {tool for _, _, _, tool in self._causes(ulid)}
        for prefix in [
            *keys.index_prefixes(br, node.type, node.tool, node.owner),
            *(keys.caused_prefix(br, tool) for tool in tools),
        ]:
            start = prefix + suffix[:8] + (keys.U32 - step).to_bytes(4, "big")
            found = self._store.scan(start, keys.after(start))
            self._rows += [(key, None) for key, value in found if value == marker]

    # -- an edge -----------------------------------------------------------------------------------------------------

    def _remove_edge(self, br: int, step: int, source: bytes, target: bytes) -> None:
        start = keys.edge(b"P", target, br, step, keys.U32)[:-4]
        row = self._store.get(keys.node(target))
        for key, value in self._store.scan(start, keys.after(start)):
            if value[:16] != source:
                continue
            _, _, seq = keys.edge_place(key)
            self._rows += [(key, None), (keys.edge(b"O", source, br, step, seq), None)]
            tool = keys.causing_tool(value)
            if tool is not None and row is not None:
                prefix = keys.caused_prefix(br, tool) + position(row)[:8]
                self._rows.append((prefix + keys.step_seq(step, seq), None))

    # -- a blob ------------------------------------------------------------------------------------------------------

    def _release(self, cid: str, user: bytes) -> None:
        """Take one user from a block, and note that it may have been the last."""
        self._rows += [(keys.user_prefix(cid) + user, None), (keys.loosened(cid), b"")]

    def sweep_blobs(self) -> None:
        """Remove the blocks that lost their last user, and what only they referred to. The note of it goes last, so that
        a sweep that was cut off is made good by the next.
        """
        if self._blobs is None:
            return
        loose = [key[1:].decode() for key, _ in self._store.scan(b"u", b"v")]
        while loose:
            loose = [inner for cid in loose for inner in self._sweep(cid, self._blobs)]

    def _sweep(self, cid: str, blobs: BlobStore) -> list[str]:
        """Remove a block unless it is used, or about to be; the blocks that it referred to."""
        prefix = keys.user_prefix(cid)
        inner: list[str] = []
        with blobs.leaving(cid) as may_go:
            if next(iter(self._store.scan(prefix, keys.after(prefix))), None) is None:
                if not may_go:
                    return []
                inner = blobs.referred_by(cid)
                for each in inner:
                    self._release(each, cid.encode())
                self.flush()
                self.bytes += blobs.drop(cid)
                self.blobs += 1
            self.flush((keys.loosened(cid), None))
        return inner
