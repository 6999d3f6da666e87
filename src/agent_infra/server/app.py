"""The application: routes around one open Infra, and every error as problem JSON.

Authentication is the transport's: on the home's socket, the file's permissions.
"""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agent_infra.errors import AgentInfraError, RequestInvalid
from agent_infra.observability import get_logger
from agent_infra.server.codec import encode
from agent_infra.server.events import Ending
from agent_infra.server.problems import MEDIA_TYPE, problem_of
from agent_infra.server.routes import ROUTERS
from agent_infra.server.served import Served

_log = get_logger(__name__)


def create_app(infra: Served) -> FastAPI:
    """The application that serves an open home. `app.state.ending.set()` ends its event streams, from any thread."""
    app = FastAPI(title="agent_infra", openapi_url="/api/openapi.json", docs_url=None, redoc_url=None)
    app.state.infra = infra
    app.state.ending = Ending()
    for router in ROUTERS:
        app.include_router(router, prefix="/api")
    app.add_exception_handler(AgentInfraError, _tell)
    app.add_exception_handler(RequestValidationError, _tell_invalid)
    app.add_exception_handler(HTTPException, _tell_http)
    app.add_middleware(_Bugs)
    return app


async def _tell(_: Request, error: Exception) -> Response:
    assert isinstance(error, AgentInfraError)
    return _problem(problem_of(error))


async def _tell_invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found = "; ".join(f"{each['loc'][-1]}: {each['msg']}" for each in error.errors())
    return await _tell(request, RequestInvalid("the request's parameters don't fit", where=request.url.path, why=found))


async def _tell_http(request: Request, error: Exception) -> Response:
    """A path or method that there is none of."""
    assert isinstance(error, HTTPException)
    said = RequestInvalid(f"{request.method} {request.url.path}: {error.detail}", mend="See /api/openapi.json.")
    return _problem(problem_of(said) | {"status": error.status_code})


class _Bugs:
    """Answers a request that failed by a bug: the traceback stays here, the caller learns where to look, and the
    connection stays whole.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = False

        async def sending(message: Message) -> None:
            nonlocal began
            began = True
            await send(message)

        try:
            await self._app(scope, receive, sending)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is not the caller's
            _log.error("request_failed", path=scope.get("path"), exc_info=error)
            if not began:
                await _problem(_bug(scope, error))(scope, receive, send)


def _bug(scope: Scope, error: Exception) -> dict[str, Any]:
    return {
        "title": "InternalError",
        "status": 500,
        "code": "InternalError",
        "what": f"the server failed at {scope.get('method')} {scope.get('path')}",
        "why": f"{type(error).__name__}: {error}",
        "mend": "This is a bug of agent_infra; the owner's log has the traceback.",
    }


def _problem(problem: dict[str, Any]) -> Response:
    return Response(encode(problem), status_code=problem["status"], media_type=MEDIA_TYPE)
