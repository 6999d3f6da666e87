"""Whole sessions out and in, as streams of JSON lines."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from agent_infra.server.routes.common import Home, answer

CHUNK: Final = 1 << 20

router = APIRouter(prefix="/transfer", tags=["transfer"])


@router.get("")
def export(infra: Home, session: str) -> Response:
    """A session's export. It is made aside first, so that what is wrong is an error and not a broken stream."""
    aside = tempfile.TemporaryFile(dir=infra.home)  # noqa: SIM115 - the response closes it
    try:
        infra.backend.export_session(session, aside)
        aside.seek(0)
    except BaseException:
        aside.close()
        raise
    return StreamingResponse(_chunks(aside), media_type="application/jsonl")


def _chunks(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        while chunk := file.read(CHUNK):
            yield chunk


@router.post("")
async def bring_in(
    request: Request, infra: Home, session: str | None = None, redraw: bool = False, agent: str | None = None
) -> Response:
    """Import the body; what came in."""
    with tempfile.TemporaryFile(dir=infra.home) as aside:
        async for chunk in request.stream():
            await run_in_threadpool(aside.write, chunk)
        aside.flush()
        path = Path(f"/proc/self/fd/{aside.fileno()}")
        imported = await run_in_threadpool(infra.backend.import_session, path, session, redraw=redraw, agent=agent)
        return answer(imported)
