"""The lines of an export: one JSON object each, `kind` first, UTF-8.

    header   the format, who wrote it, which sessions it holds
    branch   a line of versions: where it begins on another one; parents stand before their branches
    version  one step, oldest first, with its hash; behind it, in order, its nodes
    node     one node with salt and digest; of a collected one only id and digest are left
    remains  what retention took of a branch
    session  where a session's head stands
    schema   a version of a schema that nodes were written under
    blob     content that nodes refer to, in base64, as parts of at most 1 MiB
    end      how much there was, and the SHA-256 of all bytes before this line

Hashes, salts and digests are hexadecimal; branch numbers have a meaning inside the file only.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import msgspec

from agent_infra.errors import ExportDamaged, FileMissing, StoreFormat

EXPORT_FORMAT: Final = 1


class HeaderLine(msgspec.Struct, tag_field="kind", tag="header"):
    """The first line."""

    format: int
    sessions: list[str]
    library: str
    exported_at: str


class BranchLine(msgspec.Struct, tag_field="kind", tag="branch"):
    """A line of versions of one session, behind `fork_step` of `parent` (0: the empty beginning)."""

    branch: int
    session: str
    parent: int
    fork_step: int


class PrivatePart(msgspec.Struct):
    """What of a version may be erased: reasons of removals, business references."""

    salt: str
    reasons: list[str]
    references: list[tuple[str, str]]


class EdgePart(msgspec.Struct, omit_defaults=True):
    """An edge; `tool` where its source was a call of one and is collected."""

    source: str
    target: str
    type: str
    tool: str | None = None


class VersionLine(msgspec.Struct, tag_field="kind", tag="version"):
    """One version. `created` is in microseconds since 1970, `nodes` how many node lines follow."""

    id: str
    branch: int
    step: int
    hash: str
    created: int
    agent: str | None
    nodes: int
    edges: list[EdgePart]
    deaths: list[tuple[str, Literal["superseded", "removed"]]]
    private: PrivatePart


class NodeLine(msgspec.Struct, tag_field="kind", tag="node", omit_defaults=True):
    """One node; only `id` and `digest` of one whose data was collected, or `erased`. `data` is the JSON text that was stored."""

    id: str
    digest: str
    salt: str | None = None
    type: str = ""
    key: str | None = None
    ttl: int | float | None = None
    owner: str | None = None
    tool: str | None = None
    permissions: dict[str, Any] | None = None
    labels: list[str] = []
    schema: tuple[str, int, str] = ("", 0, "")
    data: msgspec.Raw = msgspec.Raw(b"null")
    erased: bool = False


class RemainsLine(msgspec.Struct, tag_field="kind", tag="remains"):
    """What retention took of a branch: spans (first, last) of collected steps; a closed branch lost its tail."""

    branch: int
    gone: list[tuple[int, int]]
    closed: bool


class SessionLine(msgspec.Struct, tag_field="kind", tag="session"):
    """Where a session stands, and from which step on it asks retention for its line."""

    session: str
    version: str
    branch: int
    step: int
    asked_from: int


class SchemaLine(msgspec.Struct, tag_field="kind", tag="schema"):
    """A version of a schema, as the registry keeps it."""

    schema: dict[str, Any]


class BlobLine(msgspec.Struct, tag_field="kind", tag="blob"):
    """A part of some content."""

    cid: str
    part: int
    last: bool
    data: str

    def content(self) -> bytes:
        """The part's bytes. Raises ValueError."""
        return base64.b64decode(self.data, validate=True)


class EndLine(msgspec.Struct, tag_field="kind", tag="end"):
    """The last line. `missing` are blocks that nodes refer to and the home did not hold."""

    versions: int
    nodes: int
    blobs: int
    missing: list[str]
    sha256: str


Line: TypeAlias = (
    HeaderLine | BranchLine | VersionLine | NodeLine | RemainsLine | SessionLine | SchemaLine | BlobLine | EndLine
)
encode_line = msgspec.json.Encoder().encode
_decode_line = msgspec.json.Decoder(Line).decode


def damaged(path: Path, number: int | None, why: str) -> ExportDamaged:
    """The error for a file that is no whole export."""
    return ExportDamaged(
        "the file is not a whole, unchanged export",
        where=str(path) if number is None else f"{path}, line {number}",
        why=why,
        mend="Export the session again; nothing of this file was imported.",
        facts={"file": str(path), "line": number},
    )


def read_lines(path: Path) -> Iterator[tuple[int, Line]]:
    """(line number, line) of an export, checked as a whole behind its last line.

    Raises FileMissing, ExportDamaged, and StoreFormat for a format that this version doesn't read.
    """
    if not path.is_file():
        raise FileMissing(path, what="export")
    digest = hashlib.sha256()
    line: Line | None = None
    number = 0
    with path.open("rb") as file:
        for number, raw in enumerate(file, 1):
            if isinstance(line, EndLine):
                raise damaged(path, number, "there is more behind its end")
            try:
                line = _decode_line(raw)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                raise damaged(path, number, str(error)) from None
            if number == 1:
                _check_header(path, line)
            if isinstance(line, EndLine) and line.sha256 != digest.hexdigest():
                raise damaged(path, number, "what stands before it has another checksum")
            digest.update(raw)
            yield number, line
    if not isinstance(line, EndLine):
        raise damaged(path, number, "it ends before its end line: the file was cut off")


def _check_header(path: Path, line: Line) -> None:
    if not isinstance(line, HeaderLine):
        raise damaged(path, 1, "it doesn't begin with a header")
    if line.format != EXPORT_FORMAT:
        raise StoreFormat(
            f"the export has format {line.format}, this version reads format {EXPORT_FORMAT}",
            where=str(path),
            mend="Import it with the version that wrote it.",
            facts={"found": line.format, "reads": EXPORT_FORMAT},
        )


def hexadecimal(text: str, length: int) -> bytes:
    """Bytes from their hexadecimal form. Raises ValueError for another length."""
    try:
        raw = bytes.fromhex(text)
    except (ValueError, binascii.Error):
        raw = b""
    if len(raw) != length:
        raise ValueError(f"{text!r} is not {length} bytes in hexadecimal")
    return raw
