"""Who refers to a business key: a ticket system knows its tickets, and none of our ids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent_infra.clock import ulid_text
from agent_infra.state.rows import keys, records

if TYPE_CHECKING:
    from agent_infra.state.engine import StateEngine


@dataclass(frozen=True, slots=True)
class Referring:
    """A step that refers to a business key.

    created   its time, in microseconds since 1970
    nodes     the ids of the nodes that it wrote
    """

    session: str
    step: int
    created: int
    nodes: tuple[str, ...]


def referring(engine: StateEngine, kind: str, value: str) -> list[Referring]:
    """The steps of all sessions, abandoned branches too, that refer to a business key; the newest first."""
    found: list[Referring] = []
    prefix = keys.reference_prefix(kind, value)
    for key, _ in engine.store.scan(prefix, keys.after(prefix)):
        br, step = keys.referring_place(key)
        row = engine.store.get(keys.version(br, step))
        if row is None:
            continue
        record = records.decode_version(row)
        if (kind, value) in records.decode_private(record.private).references:
            content = records.decode_content(record.content)
            nodes = tuple(ulid_text(ulid) for ulid, _ in content.nodes)
            found.append(Referring(content.session, step, content.created, nodes))
    return sorted(found, key=lambda each: (each.created, each.step), reverse=True)


def references_with(engine: StateEngine, node_id: str) -> list[tuple[str, str]]:
    """The business keys that the step which wrote a node refers to; none where it was collected."""
    ulid = keys.raw_id(node_id)
    row = engine.store.get(keys.node(ulid)) if ulid else None
    if row is None:
        return []
    _, br, step, _, _ = records.node_place(row)
    version = engine.store.get(keys.version(br, step))
    return [] if version is None else records.decode_private(records.decode_version(version).private).references
