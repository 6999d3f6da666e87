"""Bringing sessions in: whole, in one atomic batch, or not at all."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from agent_infra.clock import ulid_bytes
from agent_infra.content import from_canonical
from agent_infra.errors import NodesExist, SessionExists
from agent_infra.state.blobs import VALUE_PREFIX, BlobStore
from agent_infra.state.model import check_session_id, root_hash, version_id
from agent_infra.state.rows import keys, records
from agent_infra.state.rows.records import Branch, Head
from agent_infra.state.stores import Write
from agent_infra.state.transfer.arrived import Arrived
from agent_infra.state.transfer.lines import BlobLine, SessionLine, damaged, read_lines
from agent_infra.state.transfer.reading import read_export
from agent_infra.state.transfer.rewriting import redraw as redraw_ids
from agent_infra.state.transfer.rewriting import rename
from agent_infra.state.transfer.rows import Rows

if TYPE_CHECKING:
    from agent_infra.state.engine import StateEngine

LOCK_WAIT: Final = 30.0
"""Seconds to wait for other writers of the sessions."""
_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class Imported:
    """What came in. `missing` are blocks that nodes refer to and neither the export nor the home holds."""

    session: str
    version: str
    versions: int
    nodes: int
    blobs: int
    schemas: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    def __str__(self) -> str:
        told = f"{self.version}: {self.versions} versions, {self.nodes} nodes, {self.blobs} blobs"
        if self.schemas:
            told += f"; new in the registry: {', '.join(self.schemas)}"
        return f"{told}; {len(self.missing)} blobs are missing" if self.missing else told


def import_session(
    engine: StateEngine, path: Path, session: str | None = None, *, redraw: bool = False, agent: str | None = None
) -> Imported:
    """Bring an exported session into this home, with its ledger, its content and the schemas that its nodes need.

    session  another name for it; its versions then get other ids, as these hold the name
    redraw   give its nodes new ids, also where their data names them: for what a home holds already

    Everything is checked first, and written as one batch that is held in memory until then. Schemas that the home
    doesn't have come as deprecated versions where their name is known here. Raises FileMissing, ExportDamaged,
    StoreFormat, InvalidSessionId, SessionExists, NodesExist, StoreFull.
    """
    arrived = read_export(path)
    if session is not None and session != arrived.sessions[0].session:
        rename(arrived, check_session_id(session))
    if redraw:
        redraw_ids(arrived)
    with ExitStack() as locks:
        for line in arrived.sessions:
            locks.enter_context(engine.writing(line.session, agent=agent, expect=None, timeout=LOCK_WAIT))
        _check_room(engine, arrived)
        brought = _bring_blobs(engine.blobs, arrived, path)
        try:
            with engine.keeping.topology:
                _check_room(engine, arrived)  # again: another import may have brought the same nodes meanwhile
                imported, ticket = _write(engine, arrived, path, agent)
        except BaseException:
            _drop_blobs(engine, brought)
            raise
    engine.settle(ticket)
    return imported


def _check_room(engine: StateEngine, arrived: Arrived) -> None:
    """Raises SessionExists, NodesExist for what the home holds already."""
    for line in arrived.sessions:
        if engine.store.get(keys.head(line.session)) is not None:
            raise SessionExists(
                f"there is a session {line.session!r} already",
                mend="Import it under another name (`--as`).",
                facts={"session": line.session},
            )
    ids = arrived.node_ids()
    rows = engine.store.get_many([keys.node(ulid_bytes(id)) for id in ids])
    taken = [id for id, row in zip(ids, rows, strict=True) if row is not None]
    if taken:
        more = f" and {len(taken) - _SHOWN} more" if len(taken) > _SHOWN else ""
        raise NodesExist(
            f"this home holds {len(taken)} of its nodes already",
            why=f"{', '.join(taken[:_SHOWN])}{more}: the session, or one that shares history with it, came from here",
            mend="Import it with redraw (`--redraw`): its nodes then get new ids.",
            facts={"nodes": taken},
        )


# -- content -------------------------------------------------------------------------------------------------------------


def _bring_blobs(blobs: BlobStore | None, arrived: Arrived, path: Path) -> list[str]:
    """Store the file's content; the blocks that were not here before."""
    if blobs is None or not arrived.blobs:
        return []
    brought: list[str] = []
    try:
        with tempfile.TemporaryFile() as aside:
            for _, line in read_lines(path):
                if isinstance(line, BlobLine):
                    aside.write(line.content())
                    if line.last:
                        brought += _keep(blobs, line.cid, aside, path)
    except BaseException:
        for cid in brought:
            blobs.drop(cid)
        raise
    return brought


def _keep(blobs: BlobStore, cid: str, aside: IO[bytes], path: Path) -> list[str]:
    """Store the block that was put aside, which is empty afterwards."""
    new = [] if blobs.has(cid) else [cid]
    aside.flush()
    aside.seek(0)
    if cid.startswith(VALUE_PREFIX):
        stored = blobs.put_value(from_canonical(aside.read()))
    else:
        stored = blobs.put(Path(f"/proc/self/fd/{aside.fileno()}"), "application/octet-stream")
    if stored["$cid"] != cid:
        raise damaged(path, None, f"content {cid} is no block of the kind that its id says")
    aside.seek(0)
    aside.truncate()
    return new


def _drop_blobs(engine: StateEngine, cids: list[str]) -> None:
    """Take back what was stored for an import that failed, unless somebody else refers to it by now."""
    for cid in cids:
        prefix = keys.user_prefix(cid)
        if engine.blobs is not None and next(iter(engine.store.scan(prefix, keys.after(prefix))), None) is None:
            engine.blobs.used([cid])
            engine.blobs.drop(cid)


# -- the batch -----------------------------------------------------------------------------------------------------------


def _write(engine: StateEngine, arrived: Arrived, path: Path, agent: str | None) -> tuple[Imported, int]:
    numbers = dict(zip(arrived.branches, engine.reserve_branches(len(arrived.branches)), strict=True))
    try:
        rows = Rows(arrived, numbers)
    except ValueError as error:
        raise damaged(path, None, str(error)) from error
    branches = {
        numbers[old]: Branch(branch.session, numbers.get(branch.parent, 0), branch.fork_step)
        for old, branch in arrived.branches.items()
    }
    heads = {line.session: _head(arrived, line.session, (line.branch, line.step), numbers) for line in arrived.sessions}
    kept: list[Write] = [
        (keys.remains(numbers[branch]), records.pack(remains)) for branch, remains in arrived.remains.items()
    ]
    kept += [
        (keys.line(line.session), line.asked_from.to_bytes(4, "big")) for line in arrived.sessions if line.asked_from
    ]
    why = f"it came with session {arrived.sessions[0].session}"
    with engine.schemas.adopting(arrived.schemas, why) as schemas:
        notes = [_note(line, branches, heads[line.session]) for line in arrived.sessions]
        ticket = engine.bring_in(heads, branches, rows.rows, kept, schemas, notes, agent=agent)
    if engine.blobs is not None:
        engine.blobs.used([*rows.referred, *arrived.blobs])
    missing = [cid for cid in arrived.missing if engine.blobs is None or not engine.blobs.has(cid)]
    first = arrived.sessions[0].session
    imported = Imported(
        first,
        engine.version_of(first, heads[first]),
        len(arrived.versions),
        len(arrived.node_ids()),
        len(arrived.blobs),
        tuple(f"{schema.name} {schema.version}" for schema in schemas),
        tuple(missing),
    )
    return imported, ticket


def _note(line: SessionLine, branches: Mapping[int, Branch], head: Head) -> dict[str, str]:
    """What `_control` says of an import: the version that was exported, and what it is called here."""
    owner = branches[head.branch].session if head.branch else line.session
    here = version_id(owner, head.step, head.hash)
    return {"session": line.session, "from": line.version, "to": here, "why": "import"}


def _head(arrived: Arrived, session: str, place: tuple[int, int], numbers: dict[int, int]) -> Head:
    if place[0] == 0:
        return Head(0, 0, root_hash(session), 0, 1)
    version = arrived.versions[place]
    return Head(numbers[place[0]], place[1], version.hash, version.created, 1)
