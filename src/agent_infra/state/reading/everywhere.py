"""Questions over all sessions at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_infra.state.model import Node
from agent_infra.state.reading.view import seconds_before
from agent_infra.state.rows import keys

if TYPE_CHECKING:
    from agent_infra.state.engine import StateEngine


def caused_by(engine: StateEngine, tool: str, within: float) -> list[Node]:
    """Live nodes of any session's head at the end of a `causes` edge from a node of that tool, created in the last
    `within` seconds, newest first, each once however many forks share it.

    A directory by time says which branches have such edges; only sessions whose line goes through one are asked.
    """
    since = seconds_before(engine.clock.micros(), within)
    branches = _branches(engine, tool, since)
    found: dict[str, Node] = {}
    for session in engine.sessions():
        head = engine.head(session)
        if any(br in branches for br, _ in engine.lineage(head.branch, head.step)):
            found.update((node.id, node) for node in engine.view(session).caused_by(tool, since))
    return sorted(found.values(), key=lambda node: (-node.created, node.id))


def _branches(engine: StateEngine, tool: str, since: int) -> set[int]:
    prefix = keys.directory_prefix(tool)
    oldest = prefix + keys.directory_bucket(since)
    return {int.from_bytes(key[-4:], "big") for key, _ in engine.store.scan(prefix, keys.after(oldest))}
