"""What all routes share: the Infra that is served, the reader that a request names, JSON in and out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeAlias, TypeVar, cast

from fastapi import Depends, Query, Request, Response
from fastapi.concurrency import run_in_threadpool

from agent_infra.server.codec import decode, encode
from agent_infra.server.served import Served
from agent_infra.state import Acting, Reader

T = TypeVar("T")


async def served(request: Request) -> Served:
    """The Infra behind the application."""
    return cast("Served", request.app.state.infra)


Home: TypeAlias = Annotated[Served, Depends(served)]


async def acting_of(agent: str | None = None, role: Annotated[list[str] | None, Query()] = None) -> Acting | None:
    """The agent by whose rights a request asks."""
    return Acting(agent, tuple(role or ())) if agent is not None else None


Acts: TypeAlias = Annotated[Acting | None, Depends(acting_of)]


def reader_of(
    infra: Home,
    by: Acts,
    session: str,
    version: str | None = None,
    as_of: int | None = None,
    schemas: str | None = None,
) -> Reader:
    """The session, version, moment (microseconds since 1970), agent's rights and schema versions that a request names;
    `schemas` is a JSON object from type to version.
    """
    versions = decode(schemas.encode(), dict[str, int | str]) if schemas is not None else None
    return infra.backend.reader(session, version, as_of, by, versions)


Reading: TypeAlias = Annotated[Reader, Depends(reader_of)]


def answer(value: Any) -> Response:
    """A record as JSON."""
    return Response(encode(value), media_type="application/json")


async def acted(request: Request, body: type[T], act: Callable[[T], Any]) -> Response:
    """Read a body, do what it asks in a thread, as it may wait for locks and the disk, and answer with the outcome."""
    return answer(await run_in_threadpool(act, decode(await request.body(), body)))
