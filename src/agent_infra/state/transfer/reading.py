"""Reading an export: every line, every digest and every link of the chain is checked before anything else is done."""

from __future__ import annotations

import hashlib
from pathlib import Path

from agent_infra.clock import ulid_bytes
from agent_infra.content import cid_of_digest, is_cid
from agent_infra.errors import AgentInfraError, ExportDamaged, FileMissing, StoreFormat
from agent_infra.state.model import LEDGER, NodeDraft, check_session_id, root_hash, version_id
from agent_infra.state.retention.spans import covers
from agent_infra.state.rows import records
from agent_infra.state.rows.records import Branch, Private, Remains
from agent_infra.state.schemas.registry import schema_from
from agent_infra.state.transfer.arrived import Arrived, ArrivedNode, ArrivedVersion
from agent_infra.state.transfer.lines import (
    BlobLine,
    BranchLine,
    EndLine,
    HeaderLine,
    Line,
    NodeLine,
    RemainsLine,
    SchemaLine,
    SessionLine,
    VersionLine,
    damaged,
    hexadecimal,
    read_lines,
)


def read_export(path: Path) -> Arrived:
    """What a file holds, all hashes checked; content is checked too, and left in the file.

    Raises FileMissing, ExportDamaged, StoreFormat.
    """
    reader = _Reader()
    try:
        for reader.number, line in read_lines(path):
            reader.take(line)
    except (ExportDamaged, FileMissing, StoreFormat):
        raise
    except LookupError as error:
        raise damaged(path, reader.number, f"it names {error}, which doesn't stand before it") from error
    except (ValueError, AgentInfraError) as error:
        raise damaged(path, reader.number, str(error)) from error
    return reader.arrived


def check_export(path: Path) -> None:
    """Recompute every hash of a file. Raises FileMissing, ExportDamaged, StoreFormat."""
    read_export(path)


class _Reader:
    """The lines read so far. Each `_take_…` raises ValueError, LookupError or an error of this library for what is wrong."""

    def __init__(self) -> None:
        self.arrived = Arrived()
        self.number = 0
        self._names: list[str] = []
        self._open: tuple[ArrivedVersion, VersionLine] | None = None
        self._blob: tuple[str, int, hashlib._Hash] | None = None  # pyright: ignore[reportPrivateUsage]
        self._nodes: set[bytes] = set()

    def take(self, line: Line) -> None:
        """Take in the next line."""
        if not isinstance(line, NodeLine):
            self._close_version()
        if self._blob is not None and not isinstance(line, BlobLine):
            raise ValueError(f"content {self._blob[0]} is cut off")
        match line:
            case HeaderLine():
                self._take_header(line)
            case BranchLine():
                self._take_branch(line)
            case VersionLine():
                self._take_version(line)
            case NodeLine():
                self._take_node(line)
            case RemainsLine():
                spans = tuple((first, last) for first, last in line.gone)
                self.arrived.branches[line.branch]
                self.arrived.remains[line.branch] = Remains(spans, line.closed)
            case SessionLine():
                self._take_session(line)
            case SchemaLine():
                self._take_schema(line)
            case BlobLine():
                self._take_blob(line)
            case EndLine():
                self._take_end(line)

    # -- the frame ---------------------------------------------------------------------------------

    def _take_header(self, line: HeaderLine) -> None:
        if self._names:
            raise ValueError("there is a second header")
        first = check_session_id(line.sessions[0] if line.sessions else "")
        if line.sessions[1:] not in ([], [first + LEDGER]):
            raise ValueError(f"{line.sessions[1:]} are not the ledger of session {first!r}")
        self._names = line.sessions

    def _take_session(self, line: SessionLine) -> None:
        if line.session != self._names[len(self.arrived.sessions)]:
            raise ValueError(f"session {line.session!r} is not the next of the header")
        if line.branch:
            found = self.arrived.versions[line.branch, line.step].id
        else:
            found = version_id(line.session, 0, root_hash(line.session))
        if found != line.version:
            raise ValueError(f"the head is {line.version}, and at its place is {found}")
        if line.branch in self.arrived.remains and covers(self.arrived.remains[line.branch].gone, line.step):
            raise ValueError(f"the head {line.version} is a version that was collected")
        self.arrived.sessions.append(line)

    def _take_end(self, line: EndLine) -> None:
        arrived = self.arrived
        found = (len(arrived.versions), len(self._nodes), len(arrived.blobs), len(arrived.sessions))
        told = (line.versions, line.nodes, line.blobs, len(self._names))
        if found != told:
            raise ValueError(f"it tells of {told} versions, nodes, blobs and sessions, and holds {found}")
        arrived.missing = line.missing

    # -- versions ----------------------------------------------------------------------------------

    def _take_branch(self, line: BranchLine) -> None:
        check_session_id(line.session.removesuffix(LEDGER))
        known = self.arrived.branches
        if line.branch <= 0 or line.branch in known:
            raise ValueError(f"branch {line.branch} can't be one of the file")
        if (line.parent == 0) != (line.fork_step == 0) or (line.parent and line.parent not in known):
            raise ValueError(f"branch {line.branch} can't begin behind step {line.fork_step} of {line.parent}")
        known[line.branch] = Branch(line.session, line.parent, line.fork_step)

    def _take_version(self, line: VersionLine) -> None:
        arrived = self.arrived
        session = arrived.branches[line.branch].session
        kinds = {"superseded": records.SUPERSEDED, "removed": records.REMOVED}
        private = Private(
            hexadecimal(line.private.salt, 16),
            line.private.reasons,
            line.private.references,
        )
        version = ArrivedVersion(
            session,
            line.branch,
            line.step,
            hexadecimal(line.hash, 32),
            arrived.parent_hash(line.branch, line.step),
            line.created,
            line.agent,
            private,
            [(ulid_bytes(edge.source), ulid_bytes(edge.target), edge.type, edge.tool) for edge in line.edges],
            [(ulid_bytes(id), kinds[kind]) for id, kind in line.deaths],
        )
        if (line.branch, line.step) in arrived.versions:
            raise ValueError(f"version {line.id} is there twice")
        arrived.versions[line.branch, line.step] = version
        self._open = version, line

    def _take_node(self, line: NodeLine) -> None:
        if self._open is None:
            raise ValueError(f"node {line.id} belongs to no version")
        ulid = ulid_bytes(line.id)
        if ulid in self._nodes:
            raise ValueError(f"node {line.id} is there twice")
        self._nodes.add(ulid)
        node = ArrivedNode(ulid, hexadecimal(line.digest, 32))
        if line.salt is not None:
            node.salt = hexadecimal(line.salt, 16)
            node.draft = _draft(line)
            if not node.fits():
                raise ValueError(f"node {line.id} was changed: it doesn't hash to its digest")
        elif line.erased:
            node.salt = records.ERASED
        self._open[0].nodes.append(node)

    def _close_version(self) -> None:
        """Whether a version, now that its nodes are read, hashes to its id."""
        if self._open is None:
            return
        version, line = self._open
        self._open = None
        if len(version.nodes) != line.nodes:
            raise ValueError(f"version {line.id} has {line.nodes} nodes, and {len(version.nodes)} are there")
        if version.chained() != version.hash or version.id != line.id:
            raise ValueError(f"version {line.id} was changed: its content doesn't hash to its id")

    def _take_schema(self, line: SchemaLine) -> None:
        schema = schema_from(line.schema)
        if schema.hash != line.schema["hash"]:
            raise ValueError(f"{schema} was changed: it doesn't hash to {line.schema['hash']}")
        self.arrived.schemas.append(schema)

    # -- content -----------------------------------------------------------------------------------

    def _take_blob(self, line: BlobLine) -> None:
        cid, part, digest = self._blob or (line.cid, 0, hashlib.sha256())
        if (line.cid, line.part) != (cid, part) or not is_cid(cid) or cid in self.arrived.blobs:
            raise ValueError(f"part {line.part} of content {line.cid} is not what comes next")
        digest.update(line.content())
        self._blob = None if line.last else (cid, part + 1, digest)
        if line.last:
            if cid not in (cid_of_digest(digest.digest()), cid_of_digest(digest.digest(), value=True)):
                raise ValueError(f"content {cid} was changed: it doesn't hash to its id")
            self.arrived.blobs[cid] = None


def _draft(line: NodeLine) -> NodeDraft:
    return NodeDraft(
        line.id,
        line.type,
        {},
        bytes(line.data),
        line.schema,
        line.key,
        line.ttl,
        line.owner,
        line.tool,
        line.permissions,
        tuple(line.labels),
    )
