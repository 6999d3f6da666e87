"""What expressions see of a graph: `state.nodes.<name>`, filled in for just the names that they read.

`<name>` is the newest live node with that key, else of that type; behind the node's own fields (id, type, key, data,
…) stand the fields of its data, so `state.nodes.report.status` is the report's own status.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from agent_infra.state.graph import StateGraph
from agent_infra.state.model import Node
from agent_infra.state.reading.view import node_facts


class Reading(Protocol):
    """Anything that knows which paths it reads: a compiled expression or template."""

    @property
    def reads(self) -> tuple[tuple[str, ...], ...]:
        """The paths, each as its parts, as ("state", "nodes", "report", "status")."""
        ...


def activation(graph: StateGraph, expressions: Iterable[Reading]) -> tuple[dict[str, Any], dict[str, Node]]:
    """({"state": {"nodes": {name: fields}}}, {name: node}) for the nodes that expressions read.

    A name with no live node is left out: reading it is the expression's own, explained failure.
    """
    names = {path[2] for each in expressions for path in each.reads if path[:2] == ("state", "nodes") and len(path) > 2}
    view = graph.view
    used = {name: node for name in sorted(names) if (node := view.latest(name)) is not None}
    return {"state": {"nodes": {name: dict(node_facts(node)) for name, node in used.items()}}}, used
