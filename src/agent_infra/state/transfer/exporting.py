"""Writing a session out. Each hash is checked on the way: what is damaged in the home is not exported as if it were whole."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

import msgspec

from agent_infra.clock import new_ulid, to_datetime, ulid_text
from agent_infra.content import referred_cids
from agent_infra.errors import StoreDamaged, VersionUnknown
from agent_infra.state.model import LEDGER, check_session_id, version_id
from agent_infra.state.retention.spans import without
from agent_infra.state.rows import keys, records
from agent_infra.state.rows.records import Content, Head, Pin
from agent_infra.state.schemas.registry import schema_data
from agent_infra.state.transfer.lines import (
    EXPORT_FORMAT,
    BlobLine,
    BranchLine,
    EdgePart,
    EndLine,
    HeaderLine,
    Line,
    NodeLine,
    PrivatePart,
    RemainsLine,
    SchemaLine,
    SessionLine,
    VersionLine,
    damaged,
    encode_line,
    read_lines,
)
from agent_infra.version import __version__

if TYPE_CHECKING:
    from agent_infra.state.engine import StateEngine
    from agent_infra.state.schemas.schema import Stamp


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written. `missing` are blocks that nodes refer to and the home does not hold."""

    session: str
    version: str
    versions: int
    nodes: int
    blobs: int
    bytes: int
    missing: tuple[str, ...] = ()

    def __str__(self) -> str:
        lost = f"; {len(self.missing)} blobs are missing in the home" if self.missing else ""
        return f"{self.version}: {self.versions} versions, {self.nodes} nodes, {self.blobs} blobs, {self.bytes} bytes{lost}"


def export_session(engine: StateEngine, session: str, out: IO[bytes]) -> Exported:
    """Write a session as it stands now, with all of its branches, its ledger and the content that it refers to.

    Others may go on writing; what retention removes meanwhile is exported as collected. Raises InvalidSessionId,
    VersionUnknown for a session that is not there, StoreDamaged, EvidenceDamaged.
    """
    check_session_id(session)
    known = engine.all_sessions()
    if session not in known:
        raise VersionUnknown(
            f"there is no session {session!r}",
            mend="`agent-infra session list` shows those that there are.",
            facts={"session": session},
        )
    ledger = session + LEDGER
    writer = _Writer(engine, [session, ledger] if ledger in known else [session], out)
    with writer.holding():
        return writer.run()


def exported_in(path: Path) -> Exported:
    """What an export holds, as its lines tell. Raises FileMissing, ExportDamaged, StoreFormat."""
    first: SessionLine | None = None
    end: EndLine | None = None
    for _, line in read_lines(path):
        if isinstance(line, SessionLine):
            first = first or line
        elif isinstance(line, EndLine):
            end = line
    if first is None or end is None:
        raise damaged(path, None, "it holds no session")
    size = path.stat().st_size
    return Exported(first.session, first.version, end.versions, end.nodes, end.blobs, size, tuple(end.missing))


class _Writer:
    """One export under way."""

    def __init__(self, engine: StateEngine, sessions: list[str], out: IO[bytes]) -> None:
        self._engine = engine
        self._out = out
        self._digest = hashlib.sha256()
        self._sessions = sessions
        self._heads: dict[str, Head] = {}
        self._last: dict[int, int] = {}
        self._held: list[tuple[int, int]] = []
        self._stamps: dict[Stamp, None] = {}
        self._cids: dict[str, None] = {}
        self._versions = self._nodes = self._blobs = self._bytes = 0
        self._missing: list[str] = []

    def _needed(self) -> dict[int, int]:
        """The branches that the sessions' versions lie on, each with the last step that is needed."""
        engine = self._engine
        places = [(head.branch, head.step) for head in self._heads.values()]
        places += [(br, engine.tip(br)) for session in self._heads for br in engine.branches_of(session)]
        last: dict[int, int] = {}
        for place in places:
            for br, step in engine.lineage(*place):
                last[br] = max(last.get(br, 0), step)
        return dict(sorted(last.items()))

    @contextmanager
    def holding(self) -> Generator[None]:
        """Say what is exported, and keep it from being removed meanwhile, as pins do; nothing of it reaches the disk."""
        keeping = self._engine.keeping
        owner = f"export {new_ulid(self._engine.clock.micros())}"
        pin = records.pack(Pin("it is being exported", self._engine.clock.micros()))
        with keeping.topology:
            self._heads = {session: self._engine.head(session) for session in self._sessions}
            self._last = self._needed()
            places = {*self._last.items(), *((head.branch, head.step) for head in self._heads.values() if head.branch)}
            self._held = [place for place in places if keeping.readable(*place)]
            held = [keys.pin(br, step, owner) for br, step in self._held]
            keeping.note((key, pin) for key in held)
        try:
            yield
        finally:
            with keeping.topology:
                keeping.note((key, None) for key in held)

    def run(self) -> Exported:
        """Write it all."""
        now = to_datetime(self._engine.clock.micros()).isoformat()
        self._write(HeaderLine(EXPORT_FORMAT, list(self._heads), __version__, now))
        for br in self._last:
            branch = self._engine.branch(br)
            self._write(BranchLine(br, branch.session, branch.parent, branch.fork_step))
        for br, last in self._last.items():
            for step in range(self._engine.fork_step(br) + 1, last + 1):
                if not self._write_version(br, step):
                    break
        for br in self._last:
            gone, closed = self._engine.keeping.gone(br), self._engine.keeping.closed(br)
            for step in (step for held, step in self._held if held == br):
                gone = without(gone, step, step)  # whole until now, whatever was collected meanwhile
            if gone or closed:
                self._write(RemainsLine(br, list(gone), closed))
        for session, head in self._heads.items():
            version, asked = self._engine.version_of(session, head), self._engine.keeping.asked_from(session)
            self._write(SessionLine(session, version, head.branch, head.step, asked))
        for stamp in self._stamps:
            if stamp[1]:
                self._write(SchemaLine(schema_data(self._engine.schemas.under(stamp))))
        self._write_blobs()
        self._write(EndLine(self._versions, self._nodes, self._blobs, self._missing, self._digest.hexdigest()))
        session, head = next(iter(self._heads.items()))
        return Exported(
            session,
            self._engine.version_of(session, head),
            self._versions,
            self._nodes,
            self._blobs,
            self._bytes,
            tuple(self._missing),
        )

    def _write(self, line: Line) -> None:
        raw = encode_line(line) + b"\n"
        self._out.write(raw)
        self._digest.update(raw)
        self._bytes += len(raw)

    # -- versions ----------------------------------------------------------------------------------

    def _write_version(self, br: int, step: int) -> bool:
        """Write one version with its nodes; whether it is still there."""
        row = self._engine.store.get(keys.version(br, step))
        if row is None:
            return False
        record = records.decode_version(row)
        content = records.decode_content(record.content)
        name = version_id(content.session, step, record.hash)
        sound = records.chain_hash(record.parent_hash, record.content) == record.hash
        if not sound or records.private_digest(record.private) != content.private:
            raise _unsound(name, "its content doesn't hash to its id")
        rows = self._engine.store.get_many([keys.node(ulid) for ulid, _ in content.nodes])
        if None in rows and self._engine.store.get(keys.version(br, step)) is None:
            return False  # retention cut the tail while it was read
        private = records.decode_private(record.private)
        self._write(
            VersionLine(
                name,
                br,
                step,
                record.hash.hex(),
                content.created,
                content.agent,
                len(content.nodes),
                [self._edge(br, step, content, index) for index in range(len(content.edges))],
                [
                    (ulid_text(ulid), "superseded" if kind.encode() == records.SUPERSEDED else "removed")
                    for ulid, kind in content.deaths
                ],
                PrivatePart(private.salt.hex(), private.reasons, private.references),
            )
        )
        for (ulid, digest), node_row in zip(content.nodes, rows, strict=True):
            self._write(self._node(name, ulid, digest, node_row))
        self._versions += 1
        self._nodes += len(content.nodes)
        return True

    def _edge(self, br: int, step: int, content: Content, index: int) -> EdgePart:
        source, target, type = content.edges[index]
        seq = len(content.nodes) + len(content.deaths) + index + 1
        value = self._engine.store.get(keys.edge(b"P", target, br, step, seq)) if type == "causes" else None
        return EdgePart(ulid_text(source), ulid_text(target), type, keys.causing_tool(value) if value else None)

    def _node(self, version: str, ulid: bytes, digest: bytes, row: bytes | None) -> NodeLine:
        id = ulid_text(ulid)
        if row is None:
            raise _unsound(version, f"its node {id} is missing")
        if records.is_stub(row):
            return NodeLine(id, digest.hex(), erased=records.node_place(row)[0] == records.ERASED)
        salt, content = records.node_place(row)[0], row[records.NODE_HEAD_LENGTH :]
        if records.node_digest(ulid, salt, content) != digest:
            raise _unsound(version, f"its node {id} was changed")
        type, key, ttl, owner, tool, permissions, labels, schema, body = records.node_fields(content)
        self._stamps[tuple(schema)] = None
        if b'"$cid"' in body:
            self._cids |= dict.fromkeys(referred_cids(msgspec.json.decode(body)))
        return NodeLine(
            id,
            digest.hex(),
            salt.hex(),
            type,
            key,
            ttl,
            owner,
            tool,
            permissions,
            list(labels),
            tuple(schema),
            msgspec.Raw(body),
        )

    # -- content -----------------------------------------------------------------------------------

    def _write_blobs(self) -> None:
        """Write what nodes refer to, and what that refers to."""
        waiting = list(self._cids)
        while waiting:
            cid = waiting.pop(0)
            blobs = self._engine.blobs
            if blobs is None or not blobs.has(cid):
                self._missing.append(cid)
                continue
            inner = dict.fromkeys(each for each in blobs.referred_by(cid) if each not in self._cids)
            self._cids |= inner
            waiting += inner
            for line in _parts(cid, blobs.stream(cid)):
                self._write(line)
            self._blobs += 1


def _parts(cid: str, chunks: Iterator[bytes]) -> Iterator[BlobLine]:
    """The lines of one block; the last one says so."""
    part, held = 0, b""
    for chunk in chunks:
        if held:
            yield BlobLine(cid, part, False, base64.b64encode(held).decode())
            part += 1
        held = chunk
    yield BlobLine(cid, part, True, base64.b64encode(held).decode())


def _unsound(version: str, why: str) -> StoreDamaged:
    return StoreDamaged(
        "the session can't be exported as it is damaged",
        where=version,
        why=why,
        mend="Run `agent-infra state verify` to see all of it; restore the home from a copy.",
        facts={"version": version},
    )
