"""Who owns the home, and whether it answers."""

from __future__ import annotations

import os

from fastapi import APIRouter, Response

from agent_infra.server.codec import InfoBody
from agent_infra.server.routes.common import Home, answer
from agent_infra.version import __version__

router = APIRouter(tags=["info"])


@router.get("/info")
def info(infra: Home) -> Response:
    """The owner's version and process, the home, and the settings in force."""
    return answer(InfoBody(__version__, os.getpid(), str(infra.home), infra.settings.model_dump()))


@router.get("/health")
def health(infra: Home) -> Response:
    """Whether the store answers."""
    return answer({"ok": bool(infra.schemas.names())})
