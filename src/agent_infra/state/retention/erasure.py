"""Erasing one node's data for good, from every version that shows it, because a person or a law asks for it.

A stub stays in its place, so that the chain of hashes still reaches down to step 1; the digest in it is salted, and the
salt goes with the data. What the node was, who erased it and why is a node of `_control`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_infra.errors import InvalidSessionId, NodeUnknown
from agent_infra.state.access.permissions import Guard
from agent_infra.state.model import SYSTEM_SESSIONS, StepDraft, check_name
from agent_infra.state.retention.collect import Collected
from agent_infra.state.retention.removal import Removal
from agent_infra.state.rows import keys, records

if TYPE_CHECKING:
    from agent_infra.state.engine import StateEngine


def erase_node(
    engine: StateEngine, session: str, id: str, why: str, *, agent: str | None, guard: Guard | None
) -> tuple[Collected, int | None]:
    """Erase a node that a session wrote, while the session's lock is held; what was freed, and a ticket for `settle`.

    Nothing is done where its data is gone already. Raises NodeUnknown, PermissionRefused, InvalidSessionId.
    """
    check_name(why, "the reason for an erasure")
    if session in SYSTEM_SESSIONS:
        raise InvalidSessionId(f"{session!r} is a system session; nothing of it is erased", facts={"session": session})
    ulid, writer = keys.raw_id(id), engine.locate(id)
    if ulid is None or writer != session:
        raise NodeUnknown(
            f"session {session!r} has written no node {id!r}",
            why=f"session {writer!r} has" if writer is not None and guard is None else None,
            mend="A node is erased in the session that wrote it, and is then gone from all its forks.",
            facts={"node": id, "session": session},
        )
    row = engine.store.get(keys.node(ulid)) or b""
    if records.is_stub(row):
        return Collected(), None
    node = records.read_node(ulid, row, session)
    if guard is not None:
        guard.check_change(node)
    note = {"session": session, "node": id, "type": node.type, "why": why}
    with engine.keeping.topology, engine.locks.hold("_control", agent=agent, timeout=30.0):
        removal = Removal(engine, engine.blobs)
        removal.stub_node(ulid, erased=True)
        draft = StepDraft(agent, nodes=[engine.schemas.draft("erasure", note, owner=agent)])
        _, ticket = engine.commit("_control", draft, *removal.take())
        removal.sweep_blobs()
    return Collected(0, removal.nodes, removal.blobs, removal.bytes), ticket
