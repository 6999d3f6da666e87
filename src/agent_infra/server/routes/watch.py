"""Changes as a stream of events."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Request
from fastapi.responses import StreamingResponse

from agent_infra.server.codec import body_of
from agent_infra.server.events import written
from agent_infra.server.routes.common import Home

router = APIRouter(prefix="/state", tags=["state"])


@router.get("/watch")
async def watch(
    request: Request,
    infra: Home,
    session: str,
    since: int | None = None,
    timeout: float | None = None,
    last_event_id: Annotated[int | None, Header()] = None,
) -> StreamingResponse:
    """Each move of a session's head behind `Last-Event-ID` or `since`, else from now on; ends after `timeout` seconds
    without one.
    """
    begin = last_event_id if last_event_id is not None else since
    if begin is None:
        begin = body_of(infra.backend.reader(session).version).moves or 0
    changes = infra.backend.awatch(session, begin, timeout)
    return StreamingResponse(
        written(changes, begin, request.app.state.ending),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store"},
    )
