"""The peer that a good engineer would write by hand: one SQLite file in WAL mode, the same indexes, the same hashing.

What it shares with the product is the schema broker's draft: the check, the JSON copy, the id. Each node has a salted
digest, each step a hash chained to its parent's, each index row an order by time; `caused` holds the target's whole
content, so that the query reads one index. A death writes markers there, as in the product. Indexes leave out what a
node doesn't have.

SQLite's `synchronous` for the product's durability, by what a power cut takes:

    os      NORMAL   the last commits, never the file
    group   FULL     nothing; SQLite can't share an fsync among writers
    step    FULL     nothing

With OFF a power cut may take the whole file, which no setting of the product allows; it shows what the fsyncs of
checkpoints cost.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
from _work import Work

from agent_infra.clock import MICROS, random_bytes, ulid_bytes, ulid_text
from agent_infra.state import Node, NodeDraft

SYNCHRONOUS = {"os": "NORMAL", "group": "FULL", "step": "FULL"}
_TABLES = """
CREATE TABLE head(session TEXT PRIMARY KEY, number INTEGER, step INTEGER, hash BLOB, created INTEGER) WITHOUT ROWID;
CREATE TABLE version(session INTEGER, step INTEGER, hash BLOB, parent BLOB, content BLOB,
    PRIMARY KEY (session, step)) WITHOUT ROWID;
CREATE TABLE node(id BLOB PRIMARY KEY, session INTEGER, step INTEGER, seq INTEGER, created INTEGER, type TEXT,
    tool TEXT, owner TEXT, key TEXT, salt BLOB, content BLOB);
CREATE INDEX node_type ON node(session, type, created DESC, step DESC, seq DESC);
CREATE INDEX node_tool ON node(session, tool, created DESC, step DESC, seq DESC) WHERE tool IS NOT NULL;
CREATE INDEX node_owner ON node(session, owner, created DESC, step DESC, seq DESC) WHERE owner IS NOT NULL;
CREATE INDEX node_key ON node(session, key, step DESC, seq DESC) WHERE key IS NOT NULL;
CREATE TABLE edge(source BLOB, session INTEGER, step INTEGER, seq INTEGER, target BLOB, type TEXT,
    PRIMARY KEY (source, session, step, seq)) WITHOUT ROWID;
CREATE INDEX edge_target ON edge(target, session, step, seq);
CREATE TABLE death(id BLOB, session INTEGER, step INTEGER, kind TEXT, PRIMARY KEY (id, session, step)) WITHOUT ROWID;
CREATE TABLE caused(session INTEGER, tool TEXT, created INTEGER, step INTEGER, seq INTEGER, target BLOB, content BLOB,
    PRIMARY KEY (session, tool, created DESC, step DESC, seq DESC)) WITHOUT ROWID;
CREATE INDEX caused_everywhere ON caused(tool, created DESC);
"""
_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder().decode
_json = msgspec.json.Decoder().decode
Draft = Callable[..., NodeDraft]


class SqlitePeer:
    """Sessions of one SQLite file. `synchronous` is SQLite's own setting."""

    def __init__(self, path: Path, draft: Draft, synchronous: str = "NORMAL") -> None:
        fresh = not path.exists()
        self._draft = draft
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=60)
        self._db.executescript(f"PRAGMA journal_mode=WAL; PRAGMA synchronous={synchronous};")
        if fresh:
            self._db.executescript(_TABLES)

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def write(self, session: str, work: Work, created: int) -> list[str]:
        """Write a step as one transaction; the ids of its nodes. `created` is in microseconds since 1970."""
        drafts = [self._draft(item.type, item.data, tool=item.tool, key=item.key) for item in work.items]
        self._db.execute("BEGIN IMMEDIATE")
        try:
            self._write(session, drafts, work, created)
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")
        return [draft.id for draft in drafts]

    def _write(self, session: str, drafts: list[NodeDraft], work: Work, created: int) -> None:
        number, last, parent, before = self._head(session)
        step, created = last + 1, max(created, before + 1)
        rows: list[tuple[Any, ...]] = []
        digests: list[tuple[bytes, bytes]] = []
        ends: dict[str, tuple[bytes, str | None, int, bytes]] = {}
        for seq, draft in enumerate(drafts):
            ulid, salt, content = ulid_bytes(draft.id), random_bytes(16), _content(draft)
            digests.append((ulid, hashlib.sha256(ulid + salt + content).digest()))
            rows.append((ulid, number, step, seq, created, draft.type, draft.tool, None, draft.key, salt, content))
            ends[draft.id] = ulid, draft.tool, created, content
        deaths = self._deaths(number, drafts)
        self._db.executemany("INSERT INTO node VALUES (?,?,?,?,?,?,?,?,?,?,?)", rows)
        for ulid in deaths:
            self._bury(number, step, ulid)
        edges = [(drafts[a].id if isinstance(a, int) else a, drafts[b].id if isinstance(b, int) else b, type)
                 for a, b, type in work.edges]  # fmt: skip
        chained = self._add_edges(number, step, edges, ends)
        body = _pack((session, step, created, digests, chained, deaths))
        digest = hashlib.sha256(parent + body).digest()
        self._db.execute("INSERT INTO version VALUES (?,?,?,?,?)", (number, step, digest, parent, body))
        self._db.execute("INSERT OR REPLACE INTO head VALUES (?,?,?,?,?)", (session, number, step, digest, created))

    def _head(self, session: str) -> tuple[int, int, bytes, int]:
        found = self._db.execute("SELECT number, step, hash, created FROM head WHERE session=?", (session,)).fetchone()
        if found is None:
            (count,) = self._db.execute("SELECT count(*) FROM head").fetchone()
            return count + 1, 0, hashlib.sha256(session.encode()).digest(), 0
        return found

    def _deaths(self, number: int, drafts: Iterable[NodeDraft]) -> list[bytes]:
        """The live nodes whose keys these take over."""
        newest = "SELECT id FROM node WHERE session=? AND key=? ORDER BY step DESC, seq DESC LIMIT 1"
        found = [self._db.execute(newest, (number, draft.key)).fetchone() for draft in drafts if draft.key is not None]
        dead = "SELECT 1 FROM death WHERE id=? AND session=?"
        return [row[0] for row in found if row and self._db.execute(dead, (row[0], number)).fetchone() is None]

    def _bury(self, number: int, step: int, ulid: bytes) -> None:
        self._db.execute("INSERT INTO death VALUES (?,?,?,'s')", (ulid, number, step))
        causes = """SELECT DISTINCT s.tool, t.created FROM edge e JOIN node s ON s.id=e.source JOIN node t ON t.id=e.target
            WHERE e.target=? AND e.session=? AND e.type='causes' AND s.tool IS NOT NULL"""
        for tool, created in self._db.execute(causes, (ulid, number)).fetchall():
            self._db.execute("INSERT INTO caused VALUES (?,?,?,?,?,?,NULL)", (number, tool, created, step, -1, ulid))

    def _add_edges(
        self,
        number: int,
        step: int,
        edges: list[tuple[str, str, str]],
        ends: dict[str, tuple[bytes, str | None, int, bytes]],
    ) -> list[tuple[bytes, bytes, str]]:
        rows: list[tuple[Any, ...]] = []
        caused: list[tuple[Any, ...]] = []
        for seq, (source, target, type) in enumerate(edges):
            start, tool, _, _ = ends.get(source) or self._end(source)
            end, _, created, content = ends.get(target) or self._end(target)
            rows.append((start, number, step, seq, end, type))
            if type == "causes" and tool is not None:
                caused.append((number, tool, created, step, seq, end, content))
        self._db.executemany("INSERT INTO edge VALUES (?,?,?,?,?,?)", rows)
        self._db.executemany("INSERT INTO caused VALUES (?,?,?,?,?,?,?)", caused)
        return [(row[0], row[4], row[5]) for row in rows]

    def _end(self, id: str) -> tuple[bytes, str | None, int, bytes]:
        return self._db.execute("SELECT id, tool, created, content FROM node WHERE id=?", (ulid_bytes(id),)).fetchone()

    # -- reading -----------------------------------------------------------------------------------------------------

    def caused_by(self, session: str, tool: str, now: int, within: float) -> list[Node]:
        """Live nodes at the end of a `causes` edge from a node of that tool, newest first."""
        number, step, _, _ = self._head(session)
        found = self._db.execute(
            """SELECT target, content, created, step FROM caused WHERE session=? AND tool=? AND created>=? AND step<=?
            ORDER BY created DESC, step DESC, seq DESC""",
            (number, tool, now - round(within * MICROS), step),
        )
        return _live(found, session, now)

    def caused_by_everywhere(self, tool: str, now: int, within: float) -> list[Node]:
        """The same over all sessions."""
        found = self._db.execute(
            """SELECT c.target, c.content, c.created, c.step FROM caused c WHERE c.tool=? AND c.created>=?
            ORDER BY c.created DESC""",
            (tool, now - round(within * MICROS)),
        )
        return _live(found, "", now)


def _content(draft: NodeDraft) -> bytes:
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


def _live(found: Iterable[tuple[bytes, bytes | None, int, int]], session: str, now: int) -> list[Node]:
    dead: set[bytes] = set()
    nodes: dict[bytes, Node] = {}
    for ulid, content, created, step in found:
        if content is None:
            dead.add(ulid)
        elif ulid not in dead and ulid not in nodes:
            type, key, ttl, owner, tool, permissions, labels, schema, body = _unpack(content)
            node = Node(
                ulid_text(ulid),
                type,
                _json(body),
                key,
                created,
                step,
                session,
                tuple(schema),
                ttl,
                owner,
                tool,
                permissions,
                tuple(labels),
            )
            if node.expires is None or node.expires > now:
                nodes[ulid] = node
    return list(nodes.values())
