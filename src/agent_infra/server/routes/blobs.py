"""Content by its id, in and out as streams."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from agent_infra.content import from_canonical
from agent_infra.errors import RequestInvalid
from agent_infra.server.routes.common import Home, answer

CHUNK: Final = 1 << 20

router = APIRouter(prefix="/blobs", tags=["blobs"])


@router.post("")
async def put(request: Request, infra: Home, media_type: str) -> Response:
    """Store the body; the reference to put into a node's data."""
    with tempfile.TemporaryFile(dir=infra.home) as aside:
        async for chunk in request.stream():
            await run_in_threadpool(aside.write, chunk)
        aside.flush()
        path = Path(f"/proc/self/fd/{aside.fileno()}")
        return answer(await run_in_threadpool(infra.blobs.put, path, media_type))


@router.post("/values")
async def put_value(request: Request, infra: Home) -> Response:
    """Store a JSON value, sent as its DAG-CBOR block; its reference."""
    block = await request.body()
    try:
        value = from_canonical(block)
    except Exception as error:  # noqa: BLE001 - libipld raises ValueError, TypeError and its own, by what is wrong
        raise RequestInvalid("the body is not one DAG-CBOR block", why=str(error)) from None
    return answer(await run_in_threadpool(infra.blobs.put_value, value))


@router.get("")
def get(infra: Home, cid: str) -> Response:
    """The bytes as stored. Their id lets the reader check them."""
    return StreamingResponse(_chunks(infra.blobs.open(cid)), media_type="application/octet-stream")


def _chunks(content: IO[bytes]) -> Iterator[bytes]:
    with content:
        while chunk := content.read(CHUNK):
            yield chunk


@router.head("")
def has(infra: Home, cid: str) -> Response:
    """200 where this home holds the content, 404 where it doesn't."""
    return Response(status_code=200 if infra.blobs.has(cid) else 404)
