"""What a state graph is made of: nodes, edges, versions.

All are immutable records. A node never changes; what happens to it later (superseded, removed, expired) is a fact of
the view it is read in, so one node may be active in one version and superseded in the next.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias, cast

from agent_infra.clock import MICROS, to_datetime
from agent_infra.errors import InvalidNode, InvalidSessionId, VersionUnknown

Lifecycle: TypeAlias = Literal["active", "superseded", "expired", "tombstoned"]
EDGE_TYPES: Final = frozenset({"causes", "references", "temporally_follows", "triggers", "depends_on"})
SYSTEM_SESSIONS: Final = ("_control", "_agents", "_registry", "_experiments")
LEDGER: Final = "/rewards"


@dataclass(frozen=True, slots=True)
class Node:
    """One typed record of a session's graph.

    id           ULID, drawn once
    type         names its schema
    data         JSON object; treat it as read-only
    key          stable name in the session; a newer node with the same key supersedes this one
    created      microseconds since 1970: the commit time of its step, one for all of a step's nodes
    ttl          seconds of validity from `created_at`, or None for no end
    owner        the agent that wrote it
    tool         the tool that it is a call of, or came from
    permissions  {"read": [agent, "role:x", "*"], "write": […]}, or None: everybody
    labels       inherited by what is made from it (tainted, personal, canary, …)
    schema       (name, version, hash) that its data was checked against
    lifecycle    as of the view that it was read in
    """

    id: str
    type: str
    data: dict[str, Any]
    key: str | None
    created: int
    step: int
    session: str
    schema: tuple[str, int, str]
    ttl: float | None = None
    owner: str | None = None
    tool: str | None = None
    permissions: Mapping[str, Any] | None = None
    labels: tuple[str, ...] = ()
    lifecycle: Lifecycle = "active"

    @property
    def created_at(self) -> datetime:
        """When the node's step was committed."""
        return to_datetime(self.created)

    @property
    def expires(self) -> int | None:
        """The instant (microseconds since 1970) from which the node is no longer valid, or None."""
        return None if self.ttl is None else self.created + round(self.ttl * MICROS)

    def as_dict(self) -> dict[str, Any]:
        """The node as JSON values: what conditions read and `--json` shows."""
        return {
            "id": self.id,
            "type": self.type,
            "key": self.key,
            "data": self.data,
            "created_at": self.created_at.isoformat(),
            "ttl": self.ttl,
            "owner": self.owner,
            "tool": self.tool,
            "permissions": dict(self.permissions) if self.permissions else None,
            "labels": list(self.labels),
            "schema": {"name": self.schema[0], "version": self.schema[1], "hash": self.schema[2]},
            "lifecycle": self.lifecycle,
            "session": self.session,
            "step": self.step,
        }


@dataclass(frozen=True, slots=True)
class Edge:
    """Why: a typed link from one node to another, seen from the step that added it."""

    source: str
    target: str
    type: str
    step: int


@dataclass(frozen=True, slots=True)
class Version:
    """One committed step of a session. `id` is `session_id.step_count.hash`."""

    id: str
    parent: str | None
    session: str
    step_count: int
    agent: str | None
    created: int
    nodes: tuple[str, ...] = ()

    @property
    def created_at(self) -> datetime:
        """When the step was committed."""
        return to_datetime(self.created)

    def __str__(self) -> str:
        return self.id


@dataclass(frozen=True, slots=True)
class Verification:
    """What `verify()` found: `ok`, and each problem with the version and node it is at."""

    ok: bool
    steps: int
    nodes: int
    problems: tuple[str, ...] = ()


@dataclass(slots=True)
class NodeDraft:
    """A node before its step is committed."""

    id: str
    type: str
    data: dict[str, Any]
    body: bytes
    schema: tuple[str, int, str]
    key: str | None = None
    ttl: float | None = None
    owner: str | None = None
    tool: str | None = None
    permissions: Mapping[str, Any] | None = None
    labels: tuple[str, ...] = ()


@dataclass(slots=True)
class StepDraft:
    """A step before it is committed: what `Step` collects and a backend writes in one batch."""

    agent: str | None = None
    nodes: list[NodeDraft] = field(default_factory=list[NodeDraft])
    edges: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])
    removals: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    references: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])


class VersionId(str):
    """A version id read from a head. It remembers how often the head had moved, so that `expect=` notices a commit and
    a rollback in between, after which the same version stands at the head again."""

    __slots__ = ("seq",)
    seq: int

    def __new__(cls, text: str, seq: int) -> VersionId:
        """The id with the head's count of moves."""
        made = super().__new__(cls, text)
        made.seq = seq
        return made

    def __reduce__(self) -> tuple[type[VersionId], tuple[str, int]]:
        return VersionId, (str(self), self.seq)


# -- version ids -----------------------------------------------------------------------------------

HASH_LENGTH: Final = 32
_SESSION = re.compile(r"[^/\x00-\x1f\x7f\ud800-\udfff]{1,200}")
_NAME = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]{1,500}")


def root_hash(session: str) -> bytes:
    """The chain's anchor: the hash of a session with no step. It binds every version of the session to its name."""
    return hashlib.sha256(b"agent_infra/session/" + session.encode()).digest()


def version_id(session: str, step: int, digest: bytes) -> str:
    """`session_id.step_count.hash`; the hash shows the first 8 bytes of the chain's digest."""
    return f"{session}.{step}.{digest[:8].hex()}"


def split_version(text: str) -> tuple[str, int, bytes]:
    """(session, step count, first 8 bytes of the hash) of a version id, split from the right, as session ids may
    hold dots.

    Raises VersionUnknown for a text of another form.
    """
    session, _, rest = text.rpartition(".")
    session, _, step = session.rpartition(".")
    try:
        digest = bytes.fromhex(rest)
        if not session or str(int(step)) != step or len(digest) != 8:
            raise ValueError
    except ValueError:
        raise VersionUnknown(
            f"{text!r} is not a version id", mend="It has the form session_id.step_count.hash.", facts={"version": text}
        ) from None
    return session, int(step), digest


def session_of(version: str) -> str:
    """The session in a version id. Raises VersionUnknown for a text of another form."""
    return split_version(version)[0]


def check_session_id(session: str) -> str:
    """The id itself, if users may call a session that. Raises InvalidSessionId."""
    if not isinstance(cast("object", session), str) or not _SESSION.fullmatch(session) or session.startswith("_"):
        raise InvalidSessionId(
            f"{session!r} can't be a session id",
            why="it must be 1 to 200 characters, without `/` or control characters, and not begin with `_`",
            mend="Choose another name; names that begin with `_` are the system's own.",
            facts={"session": session},
        )
    return session


def check_name(text: object, what: str) -> None:
    """Raises InvalidNode for a name (type, key, tool, agent, label, …) that can't be one."""
    if not isinstance(text, str) or not _NAME.fullmatch(text):
        raise InvalidNode(
            f"{text!r} can't be {what}",
            why="it must be text of 1 to 500 characters, without control characters and lone surrogates",
            mend="Choose another name.",
        )


def check_edge_type(type: str, known: frozenset[str] = EDGE_TYPES) -> str:
    """The edge type itself, if it is registered. Raises InvalidNode."""
    if not isinstance(cast("object", type), str) or type not in known:
        raise InvalidNode(
            f"{type!r} is not an edge type", mend=f"Use one of {', '.join(sorted(known))}.", facts={"type": type}
        )
    return type
