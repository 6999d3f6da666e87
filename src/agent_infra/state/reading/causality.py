"""Questions about why: what led to a node, what came of it, and the shortest way between two.

The edges of a node stay when retention collects its data: ways lead on through it, and it is left out of the answer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress

from agent_infra.errors import NodeUnknown
from agent_infra.state.model import Edge, Node, check_edge_type
from agent_infra.state.reading.view import View

BACKWARD = frozenset({"references", "depends_on"})
"""Edges that point from an effect to what it came from; all others point from a cause to its effect."""


def ancestors(view: View, id: str, edges: Collection[str] | None = None, depth: int | None = None) -> list[Node]:
    """The nodes that led to a node, nearest first; over some edge types only, at most `depth` edges away."""
    return _reached(view, id, edges, depth, towards_cause=True)


def descendants(view: View, id: str, edges: Collection[str] | None = None, depth: int | None = None) -> list[Node]:
    """The nodes that came of a node, nearest first."""
    return _reached(view, id, edges, depth, towards_cause=False)


def path(view: View, start: str, end: str) -> list[Node]:
    """The shortest causal path from a node to one that came of it, both included; empty where there is none."""
    view.node(end)
    came_from: dict[str, str] = {view.node(start).id: ""}
    frontier = [start]
    while frontier and end not in came_from:
        following: list[str] = []
        for id in frontier:
            for other in _neighbours(view, id, None, towards_cause=False):
                if other not in came_from:
                    came_from[other] = id
                    following.append(other)
        frontier = following
    if end not in came_from:
        return []
    steps = [end]
    while came_from[steps[-1]]:
        steps.append(came_from[steps[-1]])
    return [node for id in reversed(steps) for node in _kept(view, id)]


def _kept(view: View, id: str) -> Iterator[Node]:
    with suppress(NodeUnknown):
        yield view.node(id)


def _reached(
    view: View, id: str, edges: Collection[str] | None, depth: int | None, *, towards_cause: bool
) -> list[Node]:
    for type in edges or ():
        check_edge_type(type)
    seen = {view.node(id).id}
    found: list[Node] = []
    frontier = [id]
    while frontier and (depth is None or depth > 0):
        following: list[str] = []
        for each in frontier:
            for other in _neighbours(view, each, edges, towards_cause=towards_cause):
                if other not in seen:
                    seen.add(other)
                    following.append(other)
                    found += _kept(view, other)
        frontier = following
        depth = None if depth is None else depth - 1
    return found


def _neighbours(view: View, id: str, edges: Collection[str] | None, *, towards_cause: bool) -> Iterator[str]:
    for edge in view.edges(id):
        if edges is None or edge.type in edges:
            cause, effect = _ends(edge)
            if towards_cause and effect == id:
                yield cause
            elif not towards_cause and cause == id:
                yield effect


def _ends(edge: Edge) -> tuple[str, str]:
    """(cause, effect) of an edge, whichever way it points."""
    return (edge.target, edge.source) if edge.type in BACKWARD else (edge.source, edge.target)
