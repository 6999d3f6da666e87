"""What differs between two versions: found by walking from both to where their lines meet, not by comparing graphs."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent_infra.clock import ulid_text
from agent_infra.errors import NodeUnknown, PermissionRefused
from agent_infra.state.access.permissions import Guard
from agent_infra.state.model import Node
from agent_infra.state.reading.view import Place, View, position
from agent_infra.state.rows import records

if TYPE_CHECKING:
    from agent_infra.state.engine import StateEngine


@dataclass(frozen=True, slots=True)
class Diff:
    """From `old` to `new`: nodes that only `new` shows alive, nodes that only `old` does, and changed keys as pairs."""

    old: str
    new: str
    added: tuple[Node, ...]
    gone: tuple[Node, ...]
    changed: tuple[tuple[Node, Node], ...]

    @property
    def is_empty(self) -> bool:
        """Whether both show the same nodes."""
        return not (self.added or self.gone or self.changed)


def diff_versions(
    engine: StateEngine, session: str, old: Place, new: Place, names: tuple[str, str], guard: Guard | None = None
) -> Diff:
    """The difference between two places, as far as an agent may see it. The cost grows with the steps between them, not
    with the graph.
    """
    views = (engine.view(session, old, guard=guard), engine.view(session, new, guard=guard))
    meeting = _meeting(engine, old, new)
    touched: dict[bytes, None] = {}
    for view in views:
        for ulid in _touched(view, meeting):
            touched[ulid] = None
    before, after = (_alive(view, list(touched)) for view in views)
    gone = {id: node for id, node in before.items() if id not in after}
    added = {id: node for id, node in after.items() if id not in before}
    by_key = {node.key: node for node in gone.values() if node.key is not None}
    pairs = [(by_key[node.key], node) for node in added.values() if node.key in by_key]
    paired = {node.id for pair in pairs for node in pair}
    return Diff(
        names[0],
        names[1],
        tuple(node for node in added.values() if node.id not in paired),
        tuple(node for node in gone.values() if node.id not in paired),
        tuple(pairs),
    )


def _meeting(engine: StateEngine, a: Place, b: Place) -> dict[int, int]:
    """(branch, step) up to which both lines are the same."""
    one, two = dict(engine.lineage(a.branch, a.step)), dict(engine.lineage(b.branch, b.step))
    return {branch: min(step, two[branch]) for branch, step in one.items() if branch in two}


def _touched(view: View, meeting: dict[int, int]) -> list[bytes]:
    """The nodes that a view's versions behind the meeting wrote or buried."""
    found: list[bytes] = []
    for branch, step, record in view.placed_records():
        if step <= meeting.get(branch, -1):
            break
        content = records.decode_content(record.content)
        found += [ulid for ulid, _ in content.nodes]
        found += [ulid for ulid, _ in content.deaths]
    return found


def _alive(view: View, ulids: list[bytes]) -> dict[str, Node]:
    """The living among some nodes, oldest first."""
    found: list[tuple[bytes, Node]] = []
    for ulid in ulids:
        row = view.row(ulid)
        with suppress(PermissionRefused, NodeUnknown):  # not for this agent; or collected this very moment
            if row is not None and (node := view.node(ulid_text(ulid))).lifecycle in ("active", "expired"):
                found.append((position(row), node))
    found.sort(key=lambda item: item[0], reverse=True)
    return {node.id: node for _, node in found}
