"""What servers and images were found to offer, kept in a folder: opening a home starts none of them for their lists.

A list is kept with a fingerprint of the table that declares its server; where that has changed it isn't used.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

import msgspec

from agent_infra.actions.tools.definition import Effects, Tool
from agent_infra.actions.tools.elsewhere import InContainer, OnMcpServer
from agent_infra.content import fingerprint
from agent_infra.errors import ToolInvalid
from agent_infra.observability import get_logger

_log = get_logger(__name__)


class _Tool(msgspec.Struct, frozen=True):
    name: str
    version: str
    description: str
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None
    effects: Effects | None
    resources: dict[str, float]
    on_server: OnMcpServer | None = None
    in_container: InContainer | None = None


class _List(msgspec.Struct, frozen=True):
    declared: str
    tools: list[_Tool]


class FoundTools:
    """Lists of tools, by the name of who offers them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, name: str, declared: Mapping[str, Any]) -> list[Tool] | None:
        """The tools that were found last, if it was under the same declaration; None otherwise."""
        try:
            kept = msgspec.json.decode(self._path(name).read_bytes(), type=_List)
            return [_read(tool) for tool in kept.tools] if kept.declared == fingerprint(dict(declared)) else None
        except (OSError, msgspec.MsgspecError, ToolInvalid):
            return None

    def put(self, name: str, declared: Mapping[str, Any], tools: Iterable[Tool]) -> None:
        """Keep a list. Where the folder can't be written that is said, and the next opening asks again."""
        content = msgspec.json.encode(_List(fingerprint(dict(declared)), [_written(tool) for tool in tools]))
        path = self._path(name)
        try:
            if path.is_file() and path.read_bytes() == content:
                return
            self._folder.mkdir(parents=True, exist_ok=True)
            descriptor, writing = tempfile.mkstemp(dir=self._folder, prefix=".writing-")
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
            os.replace(writing, path)
        except OSError as error:
            _log.warning("tools.list_not_kept", of=name, file=str(path), why=str(error))

    def _path(self, name: str) -> Path:
        return self._folder / f"{fingerprint([name])[:24]}.json"


def _written(tool: Tool) -> _Tool:
    run = tool.run
    return _Tool(
        tool.name,
        tool.version,
        tool.description,
        dict(tool.input_schema),
        None if tool.output_schema is None else dict(tool.output_schema),
        tool.effects,
        dict(tool.resources or {}),
        run if isinstance(run, OnMcpServer) else None,
        run if isinstance(run, InContainer) else None,
    )


def _read(kept: _Tool) -> Tool:
    return Tool(
        kept.name,
        kept.input_schema,
        kept.output_schema,
        cast("OnMcpServer | InContainer", kept.on_server or kept.in_container),
        version=kept.version,
        resources=kept.resources,
        effects=kept.effects,
        description=kept.description,
    )
