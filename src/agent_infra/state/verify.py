"""Whether a session's history is what was written: the chain of hashes, and every node's digest, down to step 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_infra.clock import ulid_text
from agent_infra.errors import StoreDamaged
from agent_infra.state import keys, records
from agent_infra.state.model import Verification, root_hash, version_id
from agent_infra.state.view import View

if TYPE_CHECKING:
    from agent_infra.state.engine import StateEngine


def verify_lineage(engine: StateEngine, view: View) -> Verification:
    """Recompute a view's chain. A changed value is named by version and node, a damaged block as such."""
    problems: list[str] = []
    steps = nodes = 0
    expected, at = view.place.hash, view.place.step
    session = view.session
    try:
        for record in view.records():
            content = records.decode_content(record.content)
            session = content.session
            name = version_id(session, content.step, record.hash)
            if record.hash != expected or content.step != at:
                problems.append(f"{name}: the chain asks for step {at} with hash {expected[:8].hex()} here")
            if records.chain_hash(record.parent_hash, record.content) != record.hash:
                problems.append(f"{name}: its content doesn't hash to its id")
            if records.private_digest(record.private) != content.private:
                problems.append(f"{name}: its reasons or references were changed")
            problems += _node_problems(engine, name, content)
            steps += 1
            nodes += len(content.nodes)
            expected, at = record.parent_hash, content.step - 1
        if at != 0 or (steps and expected != root_hash(session)):
            problems.append(f"{view.session}: the chain ends before step {at + 1}; what came first is missing")
    except StoreDamaged as damage:
        problems.append(f"{view.session}: {damage}")
    return Verification(not problems, steps, nodes, tuple(problems))


def _node_problems(engine: StateEngine, version: str, content: records.Content) -> list[str]:
    problems: list[str] = []
    rows = engine.store.get_many([keys.node(ulid) for ulid, _ in content.nodes])
    for (ulid, digest), row in zip(content.nodes, rows, strict=True):
        name = ulid_text(ulid)
        if row is None:
            problems.append(f"{version}: node {name} is missing")
            continue
        if records.is_stub(row):
            continue
        salt, *_ = records.node_place(row)
        if records.node_digest(ulid, salt, row[records.NODE_HEAD_LENGTH :]) != digest:
            problems.append(f"{version}: node {name} was changed")
    return problems
