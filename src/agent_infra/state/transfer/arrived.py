"""A session on its way in: what an export says, as records whose hashes fit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from agent_infra.clock import ulid_text
from agent_infra.state.model import NodeDraft, root_hash, version_id
from agent_infra.state.rows import records
from agent_infra.state.rows.records import Branch, Content, Private
from agent_infra.state.schemas import Schema
from agent_infra.state.transfer.lines import SessionLine

Place: TypeAlias = tuple[int, int]
"""(branch, step), by the file's own branch numbers."""
ArrivedEdge: TypeAlias = tuple[bytes, bytes, str, str | None]
"""(source, target, type, tool of a collected source)."""


@dataclass(slots=True)
class ArrivedNode:
    """A node; without `draft` only the stub of one that was collected."""

    ulid: bytes
    digest: bytes
    salt: bytes = bytes(16)
    draft: NodeDraft | None = None

    def content(self) -> bytes:
        """What the digest covers besides id and salt; nothing for a stub."""
        return records.node_content(self.draft) if self.draft is not None else b""

    def fits(self) -> bool:
        """Whether the digest is the node's. A stub's can't be told."""
        return self.draft is None or records.node_digest(self.ulid, self.salt, self.content()) == self.digest


@dataclass(slots=True)
class ArrivedVersion:
    """A version with its nodes. `parent_hash` is that of the version that it follows."""

    session: str
    branch: int
    step: int
    hash: bytes
    parent_hash: bytes
    created: int
    agent: str | None
    private: Private
    edges: list[ArrivedEdge]
    deaths: list[tuple[bytes, bytes]]
    nodes: list[ArrivedNode] = field(default_factory=list[ArrivedNode])

    @property
    def id(self) -> str:
        """The version's id."""
        return version_id(self.session, self.step, self.hash)

    def content(self) -> bytes:
        """What the hash covers besides the parent's."""
        return records.pack(
            Content(
                self.session,
                self.step,
                self.created,
                self.agent,
                [(node.ulid, node.digest) for node in self.nodes],
                [edge[:3] for edge in self.edges],
                [(ulid, kind.decode()) for ulid, kind in self.deaths],
                records.private_digest(records.pack(self.private)),
            )
        )

    def chained(self) -> bytes:
        """The hash that the version must have."""
        return records.chain_hash(self.parent_hash, self.content())


@dataclass(slots=True)
class Arrived:
    """Whole sessions, the first one with its ledger behind it."""

    branches: dict[int, Branch] = field(default_factory=dict[int, Branch])
    versions: dict[Place, ArrivedVersion] = field(default_factory=dict[Place, ArrivedVersion])
    remains: dict[int, records.Remains] = field(default_factory=dict[int, records.Remains])
    sessions: list[SessionLine] = field(default_factory=list[SessionLine])
    schemas: list[Schema] = field(default_factory=list[Schema])
    blobs: dict[str, None] = field(default_factory=dict[str, None])
    missing: list[str] = field(default_factory=list[str])

    def parent(self, branch: int, step: int) -> Place:
        """The place that a version follows; (0, 0) for the first."""
        begins = self.branches[branch]
        return (begins.parent, begins.fork_step) if step == begins.fork_step + 1 else (branch, step - 1)

    def parent_hash(self, branch: int, step: int) -> bytes:
        """The hash of what a version follows. Raises KeyError where that is not there."""
        place = self.parent(branch, step)
        return root_hash(self.branches[branch].session) if place[0] == 0 else self.versions[place].hash

    def node_ids(self) -> list[str]:
        """The ids of all nodes."""
        return [ulid_text(node.ulid) for version in self.versions.values() for node in version.nodes]
