"""The rows' values: how heads, branches, versions and nodes are written down.

What a chain hash covers is kept apart from what it must not: a version's `content` holds ids, salted digests and
edges, and is hashed as it is stored; branch numbers are local to a store, and reasons and business references may
have to be erased, so they stand outside, and only salted digests of them are in the content.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec

from agent_infra.clock import to_datetime, ulid_text
from agent_infra.errors import StoreDamaged
from agent_infra.state.model import Lifecycle, Node, NodeDraft, Version, version_id

FORMAT_NUMBER: Final = 1
T = TypeVar("T")
_NODE_HEAD = struct.Struct(">16s I I I Q")
NODE_HEAD_LENGTH: Final = _NODE_HEAD.size
ERASED: Final = b"erased".ljust(16, b"\0")
"""In the place of a stub's salt: the data was erased by name, and not collected by retention."""
ALIVE: Final = b""
MARKER: Final = b"\x01"
SUPERSEDED: Final = b"s"
REMOVED: Final = b"r"


class Head(msgspec.Struct, array_like=True, frozen=True):
    """Where a session stands. `seq` counts everything that ever moved the head, so that no move goes unnoticed."""

    branch: int
    step: int
    hash: bytes
    created: int
    seq: int = 0


class Movement(msgspec.Struct, array_like=True, frozen=True):
    """What moved a head: `kind` is step, rollback, fork or import; and where it stood afterwards."""

    kind: str
    branch: int
    step: int
    hash: bytes


class Remains(msgspec.Struct, array_like=True, frozen=True):
    """What retention took of a branch: spans (first, last) of collected steps; a closed branch lost its tail."""

    gone: tuple[tuple[int, int], ...] = ()
    closed: bool = False


class Progress(msgspec.Struct, array_like=True, frozen=True):
    """How far the collection of a session's dead nodes came: deaths up to that place of its line are queued, and queued
    nodes up to `cursor` were looked at.
    """

    branch: int = 0
    step: int = 0
    cursor: bytes = b""


class Pin(msgspec.Struct, array_like=True, frozen=True):
    """Why somebody needs a version, and since when."""

    why: str | None
    created: int


class Branch(msgspec.Struct, array_like=True, frozen=True):
    """A line of versions: begins after `fork_step` of `parent` (branch 0 is the empty beginning of everything)."""

    session: str
    parent: int
    fork_step: int


class Content(msgspec.Struct, array_like=True, frozen=True):
    """What a version's hash covers, besides its parent's hash."""

    session: str
    step: int
    created: int
    agent: str | None
    nodes: list[tuple[bytes, bytes]]
    edges: list[tuple[bytes, bytes, str]]
    deaths: list[tuple[bytes, str]]
    private: bytes


class Private(msgspec.Struct, array_like=True, frozen=True):
    """What may be erased from a version without breaking its chain: removal reasons, business references."""

    salt: bytes
    reasons: list[str]
    references: list[tuple[str, str]]


class VersionRecord(msgspec.Struct, array_like=True, frozen=True):
    """One version as stored."""

    hash: bytes
    parent_hash: bytes
    parent_branch: int
    parent_step: int
    content: bytes
    private: bytes


class _NodeContent(msgspec.Struct, array_like=True, frozen=True):
    type: str
    key: str | None
    ttl: float | None
    owner: str | None
    tool: str | None
    permissions: dict[str, Any] | None
    labels: tuple[str, ...]
    schema: tuple[str, int, str]
    body: bytes


_pack = msgspec.msgpack.Encoder().encode
_decode_json = msgspec.json.Decoder().decode


def _reader(type: type[T]) -> Callable[[bytes], T]:
    """A decoder whose failure is damage: what it reads was written by the encoder here."""
    decode = msgspec.msgpack.Decoder(type).decode

    def read(row: bytes) -> T:
        try:
            return decode(row)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise damaged_row(type.__name__.strip("_"), error) from None

    return read


def damaged_row(what: str, error: Exception) -> StoreDamaged:
    """The error for a row that is not what was written."""
    return StoreDamaged(
        f"a stored {what} can't be read",
        why=str(error),
        mend="Run `agent-infra state verify` to see what is damaged; restore the home from a copy.",
        facts={"record": what},
    )


decode_head = _reader(Head)
decode_branch = _reader(Branch)
decode_remains = _reader(Remains)
decode_progress = _reader(Progress)
decode_pin = _reader(Pin)
decode_movement = _reader(Movement)
decode_content = _reader(Content)
decode_private = _reader(Private)
decode_version = _reader(VersionRecord)
_decode_node = _reader(_NodeContent)
pack = _pack


def chain_hash(parent_hash: bytes, content: bytes) -> bytes:
    """The hash of a version: over its parent's hash and its own content as stored."""
    return hashlib.sha256(parent_hash + content).digest()


def private_digest(private: bytes) -> bytes:
    """What stands in a version's content for its erasable part; the salt inside keeps it from being guessed."""
    return hashlib.sha256(private).digest()


def node_content(draft: NodeDraft) -> bytes:
    """A node as its digest covers it: everything but where in the store it lies."""
    return _pack(
        (
            draft.type,
            draft.key,
            draft.ttl,
            draft.owner,
            draft.tool,
            draft.permissions,
            draft.labels,
            draft.schema,
            draft.body,
        )
    )


def node_fields(content: bytes) -> tuple[Any, ...]:
    """What `node_content` packed, in its order and number for number: an int stays one."""
    try:
        return tuple(msgspec.msgpack.decode(content))
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise damaged_row("node", error) from None


def node_digest(ulid: bytes, salt: bytes, content: bytes) -> bytes:
    """The salted digest of a node. The salt lives in the node's row only: erased with it, the digest tells nothing."""
    return hashlib.sha256(ulid + salt + content).digest()


def pack_node(salt: bytes, br: int, step: int, seq: int, created: int, content: bytes) -> bytes:
    """A node's row: salt, place, time, content."""
    return _NODE_HEAD.pack(salt, br, step, seq, created) + content


def stub_of(row: bytes, *, erased: bool = False) -> bytes:
    """What is left of a node whose data was collected or erased: its place, without salt and content."""
    _, br, step, seq, created = _NODE_HEAD.unpack_from(row)
    return _NODE_HEAD.pack(ERASED if erased else bytes(16), br, step, seq, created)


def is_stub(row: bytes) -> bool:
    """Whether a node's data is gone."""
    return len(row) == NODE_HEAD_LENGTH


def node_place(row: bytes) -> tuple[bytes, int, int, int, int]:
    """(salt, branch, step, seq, created) of a node's row."""
    return _NODE_HEAD.unpack_from(row)


def read_node(ulid: bytes, row: bytes, session: str, lifecycle: Lifecycle = "active") -> Node:
    """A node from its row, with the lifecycle that the view found."""
    _, _, step, _, created = _NODE_HEAD.unpack_from(row)
    content = _decode_node(row[NODE_HEAD_LENGTH:])
    try:
        data = _decode_json(content.body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise damaged_row("node", error) from None
    return Node(
        ulid_text(ulid),
        content.type,
        data,
        content.key,
        created,
        step,
        session,
        content.schema,
        content.ttl,
        content.owner,
        content.tool,
        content.permissions,
        content.labels,
        lifecycle,
    )


def is_readable(row: bytes) -> bool:
    """Whether a node's row can be decoded."""
    try:
        read_node(bytes(16), row, "")
    except StoreDamaged:
        return False
    return True


def tool_of(row: bytes) -> str | None:
    """The tool of a node's row, without reading the rest of it."""
    return _decode_node(row[NODE_HEAD_LENGTH:]).tool


def read_version(record: VersionRecord, parent: str | None) -> Version:
    """A version as callers see it."""
    content = decode_content(record.content)
    return Version(
        id=version_id(content.session, content.step, record.hash),
        parent=parent,
        session=content.session,
        step_count=content.step,
        agent=content.agent,
        created=content.created,
        nodes=tuple(ulid_text(ulid) for ulid, _ in content.nodes),
    )


def moment(micros: int) -> str:
    """An instant as people read it in errors."""
    return to_datetime(micros).isoformat(timespec="milliseconds")
