"""A state graph of plain dicts: slow, obvious, and written from what the graph promises, not from how it does it.

Every version holds a whole copy of everything that can be seen in it. Reads walk over all nodes. What a real graph
answers can so be compared with what it should answer, for every version that was ever made, abandoned ones too.

In: what was written, with the ids that the real graph gave. Out: the answers. Times are microseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from agent_infra.clock import MICROS


@dataclass(frozen=True, slots=True)
class ModelNode:
    """One node as one version has it. `dead` is None, "superseded" or "tombstoned"; `place` counts a step's nodes."""

    id: str
    type: str
    data: dict[str, Any]
    key: str | None
    ttl: float | None
    tool: str | None
    owner: str | None
    created: int = 0
    step: int = 0
    place: int = 0
    dead: str | None = None

    def lifecycle(self, as_of: int) -> str:
        """What the node is at a moment: dead first, then out of time, else active."""
        if self.dead:
            return self.dead
        over = self.ttl is not None and self.created + round(self.ttl * MICROS) <= as_of
        return "expired" if over else "active"


@dataclass(frozen=True, slots=True)
class ModelVersion:
    """One version: who it follows, and everything that can be seen in it."""

    id: str
    parent: str | None
    step: int
    created: int
    agent: str | None = None
    nodes: dict[str, ModelNode] = field(default_factory=dict[str, ModelNode])
    edges: tuple[tuple[str, str, str, int], ...] = ()


class GraphModel:
    """One session. `root` is the version id of the session before its first step."""

    def __init__(self, root: str) -> None:
        self.versions: dict[str, ModelVersion] = {root: ModelVersion(root, None, 0, 0)}
        self.head = self.versions[root]

    # -- writing -----------------------------------------------------------------------------------

    def commit_time(self, now: int) -> int:
        """When a step written now is committed: never at or before the step that it follows."""
        return max(now, self.head.created + 1)

    def commit(
        self,
        id: str,
        now: int,
        nodes: Sequence[ModelNode],
        edges: Iterable[tuple[str, str, str]] = (),
        removals: Iterable[str] = (),
        agent: str | None = None,
    ) -> None:
        """A step: new nodes supersede older ones of their key, removed ones become tombstones, edges are added once."""
        before = self.head
        created, step = self.commit_time(now), before.step + 1
        seen = dict(before.nodes)
        for node in nodes:
            for older in seen.values():
                if node.key is not None and older.key == node.key and older.dead is None:
                    seen[older.id] = replace(older, dead="superseded")
            seen[node.id] = replace(node, created=created, step=step, place=len(seen))
        for removed in removals:
            seen[removed] = replace(seen[removed], dead="tombstoned")
        known = {edge[:3] for edge in before.edges}
        added = [(*edge, step) for edge in dict.fromkeys(edges) if edge not in known]
        self.head = ModelVersion(id, before.id, step, created, agent, seen, (*before.edges, *added))
        self.versions[id] = self.head

    def back(self, steps: int) -> ModelVersion:
        """The version some steps before the head."""
        version = self.head
        for _ in range(steps):
            version = self.versions[version.parent or ""]
        return version

    def rollback(self, to: str) -> None:
        """Move the head to a version, abandoned or not."""
        self.head = self.versions[to]

    # -- reading -----------------------------------------------------------------------------------

    def history(self, version: ModelVersion) -> list[ModelVersion]:
        """The versions that led to one, itself included, newest last, without the empty beginning."""
        line: list[ModelVersion] = []
        while version.parent is not None:
            line.append(version)
            version = self.versions[version.parent]
        return line[::-1]

    def nodes(
        self, version: ModelVersion, as_of: int, lifecycle: str | None = "active", **asked: Any
    ) -> list[ModelNode]:
        """Nodes that fit `type`, `tool`, `key`, `owner` and `since`, newest first."""
        since = asked.pop("since", None)
        fitting = [
            node
            for node in version.nodes.values()
            if all(getattr(node, name) == value for name, value in asked.items())
            and (since is None or node.created >= since)
            and (lifecycle is None or node.lifecycle(as_of) == lifecycle)
        ]
        return sorted(fitting, key=lambda node: (node.created, node.step, node.place), reverse=True)

    def latest(self, version: ModelVersion, as_of: int, name: str) -> ModelNode | None:
        """The newest live node with that key, else of that type."""
        found = self.nodes(version, as_of, key=name) or self.nodes(version, as_of, type=name)
        return found[0] if found else None

    def edges(self, version: ModelVersion, id: str) -> list[tuple[str, str, str, int]]:
        """Edges from and to a node: source, target, type, and the step that added them."""
        return [edge for edge in version.edges if id in edge[:2]]

    def caused_by(self, version: ModelVersion, as_of: int, tool: str, within: float) -> list[ModelNode]:
        """Live nodes of the last `within` seconds that a `causes` edge joins to a node of that tool, newest first."""
        caused = {
            target
            for source, target, type, _ in version.edges
            if type == "causes" and version.nodes[source].tool == tool
        }
        return [node for node in self.nodes(version, as_of, since=as_of - round(within * MICROS)) if node.id in caused]
