"""The records of the state layer as JSON, for both ends of the wire.

Domain records go as they are, field by field; what has no field (a page's cursor, the moves that a version id
remembers) has a small structure of its own here. Bodies that don't fit their type raise `RequestInvalid` at the server.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar

import msgspec

from agent_infra.errors import RequestInvalid
from agent_infra.state import Node, Page, Version, VersionId
from agent_infra.state.schemas import Compatibility

T = TypeVar("T")


class HeadBody(msgspec.Struct):
    """A version id as `graph.version` gives it; `moves` only for a head."""

    version: str
    moves: int | None = None
    stale: bool = False


class PageBody(msgspec.Struct):
    """A listing, and where it goes on."""

    nodes: list[Node]
    cursor: str | None = None


class NodeBody(msgspec.Struct):
    """A node to be written, with the id that the client drew."""

    id: str
    type: str
    data: dict[str, Any]
    key: str | None = None
    ttl: float | None = None
    tool: str | None = None
    permissions: Mapping[str, Any] | None = None
    labels: tuple[str, ...] = ()
    schema_version: int | str | None = None


class LeaseBody(msgspec.Struct):
    """A lease on a session: taken, renewed, released, or written under."""

    session: str
    owner: str
    seconds: float
    token: int = 0
    lock_wait_timeout: float = 5.0


class ActingBody(msgspec.Struct):
    """By whose rights."""

    name: str
    roles: tuple[str, ...] = ()


class StepBody(msgspec.Struct):
    """One whole step."""

    session: str
    agent: str | None = None
    expect: HeadBody | None = None
    lock_wait_timeout: float = 5.0
    durable: bool = True
    lease: LeaseBody | None = None
    acting: ActingBody | None = None
    nodes: list[NodeBody] = []
    edges: list[tuple[str, str, str]] = []
    removals: list[tuple[str, str]] = []
    references: list[tuple[str, str]] = []


class Stamp(msgspec.Struct):
    """What the owner set of a node: the schema that it was checked against, the ttl in force, and its data where that
    was brought to another schema version.
    """

    schema: tuple[str, int, str]
    ttl: float | None = None
    data: dict[str, Any] | None = None


class CommittedBody(msgspec.Struct):
    """The version that a step became; a stamp for each of its nodes, in order."""

    version: Version
    stamps: list[Stamp]
    moves: int


class RollbackBody(msgspec.Struct):
    """A move of a head: to a version, else back by some steps."""

    session: str
    steps: int = 1
    to: str | None = None
    agent: str | None = None
    why: str | None = None


class ForkBody(msgspec.Struct):
    """A new session that begins at another's head, or at one of its versions."""

    session: str
    new: str
    at: str | None = None
    agent: str | None = None


class PinBody(msgspec.Struct):
    """A pin to set or to take away."""

    version: str
    owner: str
    why: str | None = None


class CollectBody(msgspec.Struct):
    """One pass of retention."""

    session: str
    keep_last: int | None = None
    max_age: float | None = None
    max_bytes: int | None = None
    abandoned_after: float | None = None
    limit: int = 1000
    agent: str | None = None


class EraseBody(msgspec.Struct):
    """A node whose data is to go for good, and why; `acting`: the agent by whose rights."""

    session: str
    node: str
    why: str
    agent: str | None = None
    acting: ActingBody | None = None


class GcBody(msgspec.Struct):
    """One pass of the settings' retention over every session."""

    limit: int = 1000


class SchemaBody(msgspec.Struct):
    """A schema, to be registered or as it is."""

    name: str
    schema: Any
    compatibility: Compatibility = "BACKWARD"
    version: int = 0
    tags: tuple[str, ...] = ()
    compatible_with: tuple[int, ...] = ()
    deprecated: str | None = None


class DeprecationBody(msgspec.Struct):
    """A schema version to take out of use."""

    name: str
    version: int | str
    why: str = "deprecated"


class MappingBody(msgspec.Struct):
    """A migration from one schema version to another."""

    name: str
    from_version: int | str
    to_version: int | str
    mapping: dict[str, Any]


class InfoBody(msgspec.Struct):
    """Who owns the home."""

    version: str
    pid: int
    home: str
    settings: dict[str, Any]


def _plain(value: Any) -> str:
    """A version id is a text of its own class; msgspec takes no subclasses by itself."""
    if isinstance(value, str):
        return str.__str__(value)
    raise TypeError(f"a {type(value).__name__} has no place on the wire")


encode = msgspec.json.Encoder(enc_hook=_plain).encode


@cache
def _decoder(type: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(type)


def decode(raw: bytes, type: type[T]) -> T:
    """A record from its JSON. Raises RequestInvalid for text that isn't such a record."""
    try:
        return _decoder(type).decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise RequestInvalid(
            f"this is not a {getattr(type, '__name__', type)} in JSON",
            why=str(error),
            mend="Send what the API asks for.",
        ) from None


def head_of(body: HeadBody) -> str:
    """A version id, which remembers the head's moves if it was read from a head."""
    return body.version if body.moves is None else VersionId(body.version, body.moves)


def body_of(version: str) -> HeadBody:
    """A version id for the wire."""
    return HeadBody(str(version), version.seq if isinstance(version, VersionId) else None)


def page_of(body: PageBody) -> Page:
    """A listing as `graph.nodes()` gives it."""
    page = Page(body.nodes)
    page.cursor = body.cursor
    return page
