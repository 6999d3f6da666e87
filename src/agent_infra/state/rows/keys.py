"""The rows' keys. Numbers are big-endian; `~x` stands for inverted, so that every scan runs forward and meets the
newest first.

    key                                        value
    F                                          format number of the store
    H session                                  head: branch, step, hash, commit time, count of moves
    B br                                       branch: session, parent branch, fork step
    V br ~step                                 one version: hashes, time, agent, what it wrote
    W hash8 br step                            (empty) finds a version by the hash in its id
    N ulid                                     a node
    T br kind value\\0 ~created ~step ~seq      ulid: index by type, tool or owner; or a death marker
    X br tool\\0 ~created(target) ~step ~seq    target of a `causes` edge from a node of that tool, whole; or a death
    marker K br key\\0 ~step ~seq                      ulid: index by key
    D ulid br ~step                            superseded or removed
    O ulid br ~step ~seq / P …                 edge from / to that node: other end, type; in P also a causing tool
    R br step owner                            a pin: why, and when
    c session                                  its lease: token, owner, end
    Z br                                       what gc took of a branch: its collected steps, whether its tail was cut
    L session                                  the step from which on a session asks for its line
    G session\\0 ulid                          died before the line's first readable version: to be collected
    Q session\\0 expiry ulid                   (empty) nodes with a ttl, by the moment it ends
    U cid ulid|cid                             (empty) what refers to a block of content
    u cid                                      (empty) lost a reference: to be removed if it was the last
    E session\\0 seq                           what moved the head: a step, a rollback, a fork, an import
    Y cid                                      a small block of content
    r hash16 br step                           (empty) finds versions by a business key
    o table\\0 name                             an operational record, overwritten in place

A row is visible in a view if its step is at most the lineage's last step on its branch: that is all the snapshot
there is. Branch numbers are store-wide and never reused, nor is (branch, step). In `T` and `X`, markers of a death
meet the dead node's own row: they share its creation time and carry a later step, so they stand before it.
"""

from __future__ import annotations

import struct
from hashlib import sha256
from typing import Final

from agent_infra.clock import ulid_bytes

U32: Final = 0xFFFFFFFF
U64: Final = 0xFFFFFFFFFFFFFFFF

FORMAT: Final = b"F"
BY_TYPE: Final = b"t"
BY_TOOL: Final = b"l"
BY_OWNER: Final = b"w"

_BR = struct.Struct(">cI")
_BR_STEP = struct.Struct(">cII")
_KIND = struct.Struct(">cIc")
_SUFFIX = struct.Struct(">QII")
_STEP_SEQ = struct.Struct(">II")
_EDGE = struct.Struct(">c16sIII")
_DEATH = struct.Struct(">c16sII")
_HASH = struct.Struct(">c8sII")

SUFFIX_LENGTH: Final = _SUFFIX.size


def head(session: str) -> bytes:
    """H session."""
    return b"H" + session.encode()


def branch(br: int) -> bytes:
    """B br."""
    return _BR.pack(b"B", br)


def branch_number(key: bytes) -> int:
    """The branch of a B key."""
    return _BR.unpack(key)[1]


def versions_prefix(br: int) -> bytes:
    """V br: all versions of a branch."""
    return _BR.pack(b"V", br)


def version(br: int, step: int) -> bytes:
    """V br ~step."""
    return _BR_STEP.pack(b"V", br, U32 - step)


def version_step(key: bytes) -> int:
    """The step of a V key."""
    return U32 - _BR_STEP.unpack(key)[2]


def by_hash(hash8: bytes, br: int, step: int) -> bytes:
    """W hash8 br step."""
    return _HASH.pack(b"W", hash8, br, step)


def hash_place(key: bytes) -> tuple[int, int]:
    """(branch, step) of a W key."""
    _, _, br, step = _HASH.unpack(key)
    return br, step


def node(ulid: bytes) -> bytes:
    """N ulid."""
    return b"N" + ulid


def suffix(created: int, step: int, seq: int) -> bytes:
    """~created ~step ~seq: the order of every time-ordered index."""
    return _SUFFIX.pack(U64 - created, U32 - step, U32 - seq)


def suffix_parts(key: bytes) -> tuple[int, int, int]:
    """(created, step, seq) from the end of a key."""
    created, step, seq = _SUFFIX.unpack(key[-SUFFIX_LENGTH:])
    return U64 - created, U32 - step, U32 - seq


def index_prefix(br: int, kind: bytes, value: str) -> bytes:
    """T br kind value\\0."""
    return _KIND.pack(b"T", br, kind) + value.encode() + b"\0"


def index_prefixes(br: int, type: str, tool: str | None, owner: str | None) -> list[bytes]:
    """T ranges that hold a node: by its type, and by its tool and owner where it has them."""
    named = ((BY_TYPE, type), (BY_TOOL, tool), (BY_OWNER, owner))
    return [index_prefix(br, kind, value) for kind, value in named if value is not None]


def caused_prefix(br: int, tool: str) -> bytes:
    """X br tool\\0."""
    return _BR.pack(b"X", br) + tool.encode() + b"\0"


def directory_prefix(tool: str) -> bytes:
    """A tool\\0."""
    return b"A" + tool.encode() + b"\0"


def directory(tool: str, created: int, br: int) -> bytes:
    """A tool\\0 ~bucket br."""
    return directory_prefix(tool) + directory_bucket(created) + br.to_bytes(4, "big")


def directory_bucket(created: int) -> bytes:
    """~bucket: 2^26 microseconds (67 s) of time, the newest first."""
    return (U64 - (created >> 26)).to_bytes(8, "big")


def feed_prefix(session: str) -> bytes:
    """E session\\0: everything that ever moved a session's head, oldest first."""
    return b"E" + session.encode() + b"\0"


def feed(session: str, seq: int) -> bytes:
    """E session\\0 seq."""
    return feed_prefix(session) + seq.to_bytes(8, "big")


def key_prefix(br: int, key: str) -> bytes:
    """K br key\\0."""
    return _BR.pack(b"K", br) + key.encode() + b"\0"


def step_seq(step: int, seq: int) -> bytes:
    """~step ~seq."""
    return _STEP_SEQ.pack(U32 - step, U32 - seq)


def step_of(key: bytes) -> int:
    """The step of a key that ends in ~step ~seq."""
    return U32 - _STEP_SEQ.unpack(key[-8:])[0]


def death(ulid: bytes, br: int, step: int) -> bytes:
    """D ulid br ~step."""
    return _DEATH.pack(b"D", ulid, br, U32 - step)


def death_place(key: bytes) -> tuple[int, int]:
    """(branch, step) of a D key."""
    _, _, br, step = _DEATH.unpack(key)
    return br, U32 - step


def edge(direction: bytes, ulid: bytes, br: int, step: int, seq: int) -> bytes:
    """O|P ulid br ~step ~seq."""
    return _EDGE.pack(direction, ulid, br, U32 - step, U32 - seq)


def edge_place(key: bytes) -> tuple[int, int, int]:
    """(branch, step, seq) of an O or P key."""
    _, _, br, step, seq = _EDGE.unpack(key)
    return br, U32 - step, U32 - seq


def edge_end(ulid: bytes, type: str, tool: str | None = None) -> bytes:
    """The value of an O or P key. A `causes` edge from a node of a tool says so at its target: the source may be
    collected before it.
    """
    named = f"{type}\0{tool}" if type == "causes" and tool is not None else type
    return ulid + named.encode()


def edge_parts(value: bytes) -> tuple[bytes, str]:
    """(other end, type) of an O or P value."""
    return value[:16], value[16:].partition(b"\0")[0].decode()


def causing_tool(value: bytes) -> str | None:
    """The tool whose call caused the target, if a P value says so."""
    _, told, tool = value[16:].partition(b"\0")
    return tool.decode() if told else None


def pin(br: int, step: int, owner: str) -> bytes:
    """R br step owner."""
    return _BR_STEP.pack(b"R", br, step) + owner.encode()


def pin_parts(key: bytes) -> tuple[int, int, str]:
    """(branch, step, owner) of an R key."""
    _, br, step = _BR_STEP.unpack(key[:9])
    return br, step, key[9:].decode()


def remains(br: int) -> bytes:
    """Z br."""
    return _BR.pack(b"Z", br)


def remains_branch(key: bytes) -> int:
    """The branch of a Z key."""
    return _BR.unpack(key)[1]


def line(session: str) -> bytes:
    """L session."""
    return b"L" + session.encode()


def doomed_prefix(session: str) -> bytes:
    """G session\\0."""
    return b"G" + session.encode() + b"\0"


def expiry_prefix(session: str) -> bytes:
    """Q session\\0."""
    return b"Q" + session.encode() + b"\0"


def expiry(session: str, moment: int, ulid: bytes) -> bytes:
    """Q session\\0 expiry ulid."""
    return expiry_prefix(session) + min(moment, U64).to_bytes(8, "big") + ulid


def lease(session: str) -> bytes:
    """c session."""
    return b"c" + session.encode()


def user_prefix(cid: str) -> bytes:
    """U cid\\0."""
    return b"U" + cid.encode() + b"\0"


def loosened(cid: str) -> bytes:
    """u cid."""
    return b"u" + cid.encode()


def block(cid: str) -> bytes:
    """Y cid."""
    return b"Y" + cid.encode()


def reference_prefix(kind: str, value: str) -> bytes:
    """r hash16: a business key by its hash, as it may name a person."""
    return b"r" + sha256(f"{kind}\0{value}".encode()).digest()[:16]


def reference(kind: str, value: str, br: int, step: int) -> bytes:
    """r hash16 br step."""
    return reference_prefix(kind, value) + _STEP_SEQ.pack(br, step)


def referring_place(key: bytes) -> tuple[int, int]:
    """(branch, step) of an r key."""
    br, step = _STEP_SEQ.unpack(key[-_STEP_SEQ.size :])
    return br, step


def records_prefix(table: str) -> bytes:
    """o table\\0: the operational records of a table."""
    return b"o" + table.encode() + b"\0"


def after(prefix: bytes) -> bytes:
    """The first key behind every key that begins with a prefix."""
    raw = prefix.rstrip(b"\xff")
    return raw[:-1] + bytes([raw[-1] + 1])


def raw_id(text: str) -> bytes | None:
    """A node id's 16 bytes, or None where the text is no ULID and so names no node."""
    try:
        return ulid_bytes(text)
    except ValueError:
        return None
