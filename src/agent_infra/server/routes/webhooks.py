"""Callbacks of sources outside: each is one signal, answered once it is durable.

200  it is in: `status` says whether it was there already, waits for its event, or came late
401  its signature doesn't fit      404  there is no such source
409  its id came with another body  413  it is too large     422  it can't become a signal: the reason is named
"""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool

from agent_infra.errors import SignalRefused, SourceInvalid
from agent_infra.server.codec import encode
from agent_infra.server.problems import MEDIA_TYPE, problem_of
from agent_infra.server.routes.common import Home, answer

LIMIT: Final = 1 << 20
"""The most bytes that are read of any callback; a source may want fewer."""
STATUS: Final = {"forged_signature": 401, "callback_too_large": 413, "evidence_too_large": 413, "not_running": 503}
router = APIRouter(prefix="/webhooks", tags=["webhooks"])


@router.post("/{source}")
async def receive(request: Request, infra: Home, source: str) -> Response:
    """Take one callback."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > LIMIT:
            refused = SignalRefused(f"a callback for source {source!r} was refused", why=f"it is over {LIMIT} bytes")
            return _refused(refused, 413)
    headers = {name.lower(): value for name, value in request.headers.items()}
    try:
        receipt = await run_in_threadpool(infra.weaver.callback, source, headers, bytes(body))
    except SignalRefused as error:
        return _refused(error, STATUS.get(str(error.facts.get("reason")), 422))
    except SourceInvalid as error:
        return _refused(error, 404)
    return answer(receipt)


def _refused(error: SignalRefused | SourceInvalid, status: int) -> Response:
    return Response(encode(problem_of(error) | {"status": status}), status_code=status, media_type=MEDIA_TYPE)
