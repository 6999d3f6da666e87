"""Whether a session's history is what was written: the chain of hashes, every node's digest, and every row that answers
rest on, down to step 1.

Indexes, edges and deaths stand in rows of their own, which no digest covers; but a version's content says which rows it
wrote, so a lost one is found by what should be there.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING

from agent_infra.clock import ulid_text
from agent_infra.errors import StoreDamaged
from agent_infra.state.model import Verification, root_hash, version_id
from agent_infra.state.reading.view import View, position
from agent_infra.state.rows import keys, records

if TYPE_CHECKING:
    from agent_infra.state.engine import StateEngine


def verify_lineage(engine: StateEngine, view: View) -> Verification:
    """Recompute a view's chain. A changed value is named by version and node, a damaged block as such."""
    check = _Check(engine, view)
    try:
        check.run()
    except StoreDamaged as damage:
        check.problems.append(f"{view.session}: {damage}")
    return Verification(not check.problems, check.steps, check.nodes, tuple(check.problems))


class _Check:
    """One walk down a lineage, newest version first."""

    def __init__(self, engine: StateEngine, view: View) -> None:
        self.problems: list[str] = []
        self.steps = self.nodes = 0
        self._engine = engine
        self._view = view

    def run(self) -> None:
        """Walk; `problems` says what doesn't fit."""
        place, child = self._view.place, self._view.session
        expected, at, session = place.hash, (place.branch, place.step), self._view.session
        for br, step, row in self._view.version_rows():
            name = f"{self._engine.owner_of(br)}.{step}"
            try:
                record = records.decode_version(row)
                content = records.decode_content(record.content)
            except StoreDamaged as damage:
                self.problems.append(f"{name}: its record can't be read: {damage.why}")
                return
            session = self._engine.owner_of(br)
            name = version_id(session, step, record.hash)
            if (br, step) != at:
                self.problems.append(f"{child}: it says that it follows step {at[1]}, and it follows step {step}")
            if record.hash != expected or (content.session, content.step) != (session, step):
                self.problems.append(f"{name}: {child} follows hash {expected[:8].hex()}, which this is not")
            if records.chain_hash(record.parent_hash, record.content) != record.hash:
                self.problems.append(f"{name}: its content doesn't hash to its id")
            if records.private_digest(record.private) != content.private:
                self.problems.append(f"{name}: its reasons or references were changed")
            self._check_step(name, br, step, content)
            self.steps += 1
            child, expected, at = name, record.parent_hash, (record.parent_branch, record.parent_step)
        if at != (0, 0) or (self.steps and expected != root_hash(session)):
            self.problems.append(f"{child}: it says that it follows step {at[1]}, which is missing")

    def _check_step(self, name: str, br: int, step: int, content: records.Content) -> None:
        self.nodes += len(content.nodes)
        for seq, (ulid, digest) in enumerate(content.nodes, 1):
            problem = self._node_problem(ulid, digest, (br, step, seq, content.created))
            if problem is not None:
                self.problems.append(f"{name}: node {ulid_text(ulid)} {problem}")
        rows = [(key, what) for key, what in self._rows(br, step, content)]
        found = self._engine.store.get_many([key for key, _ in rows])
        missing = [key for (key, _), value in zip(rows, found, strict=True) if value is None]
        if missing:  # a node may have been erased or collected since its rows were listed: look at what is there now
            still = dict(self._rows(br, step, content))
            found = self._engine.store.get_many(missing)
            self.problems += [
                f"{name}: {still[key]} is missing"
                for key, value in zip(missing, found, strict=True)
                if value is None and key in still
            ]

    def _node_problem(self, ulid: bytes, digest: bytes, place: tuple[int, int, int, int]) -> str | None:
        row = self._engine.store.get(keys.node(ulid))
        if row is None:
            return "is missing"
        salt, *found = records.node_place(row)
        if tuple(found) != place:
            return "was moved to another place or time"
        if records.is_stub(row):
            kept = salt != records.ERASED and self._engine.keeping.readable(place[0], place[1])
            return "lost its data, and neither retention nor erasure took it" if kept else None
        if records.node_digest(ulid, salt, row[records.NODE_HEAD_LENGTH :]) != digest:
            return "was changed"
        return None

    # -- the rows that a step must have written --------------------------------------------------------------------------

    def _rows(self, br: int, step: int, content: records.Content) -> Iterator[tuple[bytes, str]]:
        """(key, what it is) of a step's edges, deaths and index rows; rows of collected nodes aside."""
        seq = count(1)
        for ulid, _ in content.nodes:
            yield from self._node_rows(br, step, next(seq), ulid)
        for ulid, _ in content.deaths:
            yield from self._death_rows(br, step, next(seq), ulid)
        for edge in content.edges:
            yield from self._edge_rows(br, step, next(seq), edge)

    def _stored(self, ulid: bytes) -> bytes | None:
        """A node's row, None where its data is gone or can't be read (that is told elsewhere)."""
        row = self._engine.store.get(keys.node(ulid))
        return row if row is not None and not records.is_stub(row) and records.is_readable(row) else None

    def _node_rows(self, br: int, step: int, seq: int, ulid: bytes) -> Iterator[tuple[bytes, str]]:
        row = self._stored(ulid)
        if row is None:
            return
        node, name = records.read_node(ulid, row, ""), ulid_text(ulid)
        for prefix in keys.index_prefixes(br, node.type, node.tool, node.owner):
            yield prefix + position(row), f"an index row of node {name}"
        if node.key is not None:
            yield keys.key_prefix(br, node.key) + keys.step_seq(step, seq), f"the key row of node {name}"

    def _death_rows(self, br: int, step: int, seq: int, ulid: bytes) -> Iterator[tuple[bytes, str]]:
        row = self._stored(ulid)
        if row is None:
            return
        node, name = records.read_node(ulid, row, ""), ulid_text(ulid)
        suffix = position(row)[:8] + keys.step_seq(step, seq)
        yield keys.death(ulid, br, step), f"the death of node {name}"
        for prefix in keys.index_prefixes(br, node.type, node.tool, node.owner):
            yield prefix + suffix, f"a death marker of node {name}"
        before = self._engine.line_view(self._view.session, br, step - 1)
        for tool in before.causing_tools(ulid):
            yield keys.caused_prefix(br, tool) + suffix, f"a death marker of node {name}"

    def _edge_rows(self, br: int, step: int, seq: int, edge: tuple[bytes, bytes, str]) -> Iterator[tuple[bytes, str]]:
        source, target, type = edge
        start, end = self._stored(source), self._stored(target)
        if start is None or end is None:
            return
        what = f"a {type} edge of node {ulid_text(source)}"
        yield keys.edge(b"O", source, br, step, seq), what
        yield keys.edge(b"P", target, br, step, seq), what
        tool = records.tool_of(start) if type == "causes" else None
        if tool is not None and self._engine.line_view(self._view.session, br, step).death(target) is None:
            yield keys.caused_prefix(br, tool) + position(end)[:8] + keys.step_seq(step, seq), what
