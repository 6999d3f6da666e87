"""A session's story: everything that happened, as a tree that follows `triggers` and `causes`.

Signals and woven rewards lie in the session's ledger; they are shown under the call that they are about. A subgoal's
newest state stands for all its states.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from agent_infra import Infra
from agent_infra.state import LEDGER, Node, StateGraph

_SHOWN: Final = 110
_LEADING: Final = ("triggers", "causes")


class Story:
    """The nodes of a session and its ledger, each under what led to it."""

    def __init__(self, infra: Infra, session: str) -> None:
        self.graph = infra.session(session)
        ledger = StateGraph.of_system(infra.backend, session + LEDGER)
        told = [node for type in ("signal", "woven_reward") for node in reversed(ledger.nodes(type=type))]
        nodes = [*reversed(self.graph.nodes(lifecycle=None)), *told]
        newest = {node.key: node.id for node in nodes if node.key and node.type in ("subgoal", "goal", "plan")}
        self._stands_for = {node.id: newest[node.key] for node in nodes if node.key in newest}
        self.nodes = {node.id: node for node in nodes if self._stands_for.get(node.id, node.id) == node.id}
        self.children: dict[str, list[str]] = {}
        led: set[str] = set()
        for node in nodes:
            for target in self._led_to(node):
                siblings = self.children.setdefault(self._stands_for.get(node.id, node.id), [])
                if target not in siblings:
                    siblings.append(target)
                led.add(target)
        for node in nodes:
            event = node.data.get("event_id") if node.type in ("signal", "woven_reward") else None
            if event in self.nodes:
                self.children.setdefault(event, []).append(node.id)
                led.add(node.id)
        self.roots = [id for id in self.nodes if id not in led]

    def _led_to(self, node: Node) -> Iterable[str]:
        for edge in self.graph.edges(node.id):
            if edge.source == node.id and edge.type in _LEADING:
                yield self._stands_for.get(edge.target, edge.target)


def story_text(infra: Infra, session: str) -> str:
    """The story for people."""
    story = Story(infra, session)
    lines = [f"{session}  (head {story.graph.version})"]

    def grow(ids: list[str], indent: str, above: frozenset[str]) -> None:
        shown = [id for id in ids if id not in above]
        for id in shown:
            last = id == shown[-1]
            lines.append(f"{indent}{'└── ' if last else '├── '}{describe(story.nodes[id])}")
            grow(story.children.get(id, []), indent + ("    " if last else "│   "), above | {id})

    grow(story.roots, "", frozenset())
    return "\n".join(lines)


def story_data(infra: Infra, session: str) -> dict[str, Any]:
    """The story for programs: the nodes by id, who led to whom, and where to begin."""
    story = Story(infra, session)
    return {
        "session": session,
        "version": story.graph.version,
        "roots": story.roots,
        "children": story.children,
        "nodes": {id: node.as_dict() for id, node in story.nodes.items()},
    }


def describe(node: Node) -> str:
    """A node in one line."""
    data = node.data
    match node.type:
        case "goal" | "subgoal":
            text = f"{data['name']}: {data['status']}{_why(data.get('error'))}"
        case "plan":
            text = ", ".join(each["name"] for each in data["subgoals"])
        case "call":
            params = ", ".join(f"{name}={_plain(value)}" for name, value in data["params"].items())
            text = f"{data['action']}: {data['tool']}({params})"
        case "receipt":
            took = f" in {data['seconds']:.3g} s" if data.get("seconds") is not None else ""
            cid = f", evidence {data['evidence']['$cid']}" if "evidence" in data else ""
            text = f"{data['status']}{took}{_why(data.get('error'))}{cid}"
        case "signal":
            text = f"{data['source']} {data['value']}"
        case "woven_reward":
            micro = data.get("micro")
            text = f"{'unscored' if micro is None else micro / 1e6} ({data['status']})"
        case _:
            text = f"{node.key + ' ' if node.key else ''}{_plain(data)}"
    state = "" if node.lifecycle == "active" else f" [{node.lifecycle}]"
    line = f"{node.type} {text}{state}".replace("\n", " ")
    return line if len(line) <= _SHOWN * 2 else line[: _SHOWN * 2 - 1] + "…"


def _why(error: dict[str, Any] | None) -> str:
    return f", {error.get('code')}: {error.get('why') or error.get('what')}" if error else ""


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
