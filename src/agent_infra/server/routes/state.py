"""Reading session graphs. Each operation is that of `StateGraph` with the same name, which says what it means."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Response

from agent_infra.server.codec import HeadBody, PageBody, body_of, decode
from agent_infra.server.routes.common import Acts, Home, Reading, answer
from agent_infra.state import Lifecycle, Query

router = APIRouter(prefix="/state", tags=["state"])


@router.get("/sessions")
def sessions(infra: Home, where: str | None = None) -> Response:
    """The ids of the sessions."""
    return answer(infra.sessions(where))


@router.get("/caused_by_everywhere")
def caused_by_everywhere(infra: Home, tool: str, within: float) -> Response:
    """Over all sessions: live nodes that calls of a tool caused in the last `within` seconds, newest first."""
    return answer(infra.caused_by(tool, within))


@router.get("/head")
def head(reader: Reading) -> Response:
    """The version shown, how often the head has moved, and whether a writer is at work."""
    shown = body_of(reader.version)
    return answer(HeadBody(shown.version, shown.moves, reader.stale))


@router.get("/history")
def history(reader: Reading) -> Response:
    """The versions that led here, newest last."""
    return answer(reader.history())


@router.get("/verify")
def verify(reader: Reading) -> Response:
    """The chain of hashes, recomputed."""
    return answer(reader.verify())


@router.get("/node")
def node(reader: Reading, id: str) -> Response:
    """One node."""
    return answer(reader.node(id))


@router.get("/latest")
def latest(reader: Reading, name: str) -> Response:
    """The newest live node with that key, else of that type, or null."""
    return answer(reader.latest(name))


async def _query(
    type: str | None = None,
    tool: str | None = None,
    key: str | None = None,
    owner: str | None = None,
    schema: str | None = None,
    since: int | None = None,
    where: str | None = None,
    lifecycle: Lifecycle | Literal["all"] = "active",
    limit: int | None = None,
    cursor: str | None = None,
) -> Query:
    return Query(type, tool, key, owner, schema, since, where, None if lifecycle == "all" else lifecycle, limit, cursor)


Asked = Annotated[Query, Depends(_query)]


@router.get("/nodes")
def nodes(reader: Reading, query: Asked) -> Response:
    """Nodes that fit all that is asked, newest first; `since` in microseconds since 1970."""
    page = reader.nodes(query)
    return answer(PageBody(list(page), page.cursor))


@router.get("/explain")
def explain(reader: Reading, query: Asked) -> Response:
    """The index that `nodes` would use, and its rows."""
    return answer(reader.explain(query))


@router.get("/edges")
def edges(reader: Reading, id: str) -> Response:
    """Edges from and to a node, oldest first."""
    return answer(reader.edges(id))


@router.get("/caused_by")
def caused_by(reader: Reading, tool: str, within: float) -> Response:
    """Live nodes that calls of a tool caused in the last `within` seconds, newest first."""
    return answer(reader.caused_by(tool, within))


@router.get("/ancestors")
def ancestors(reader: Reading, id: str, edges: str | None = None, depth: int | None = None) -> Response:
    """The nodes that led to a node, nearest first; `edges` is a JSON list of edge types."""
    return answer(reader.ancestors(id, _names(edges), depth))


@router.get("/descendants")
def descendants(reader: Reading, id: str, edges: str | None = None, depth: int | None = None) -> Response:
    """The nodes that came of a node, nearest first."""
    return answer(reader.descendants(id, _names(edges), depth))


def _names(text: str | None) -> list[str] | None:
    return None if text is None else decode(text.encode(), list[str])


@router.get("/path")
def path(reader: Reading, start: str, end: str) -> Response:
    """The shortest causal path between two nodes."""
    return answer(reader.path(start, end))


@router.get("/diff")
def diff(infra: Home, by: Acts, session: str, old: str, new: str) -> Response:
    """What differs between two versions."""
    return answer(infra.backend.diff(session, old, new, by))
