"""Tools that are commands in images: declared by a project, or by the image itself.

    [containers]
    engine = "unix:///run/podman/podman.sock"     # else $DOCKER_HOST, else the usual sockets
    memory_mb = 2048                              # limits for tools that name none
    pids = 256
    images = ["example/tools@sha256:…"]           # their label `agent_infra.tools` lists tools, as JSON

    [containers.tools.word_count]
    image = "example/text:1"
    command = ["python3", "/app/count.py"]
    input_schema = {type = "object", properties = {text = {type = "string"}}, required = ["text"]}
    output_schema = "schemas/counts.json"         # a table, or a JSON file
    effects = "none"
    env = {LANG = "C.UTF-8"}
    mounts = {"data" = "/data"}                   # read-only; paths of this machine start at the project's folder

The label holds a list of tables with the same keys (`name` besides, no `image`, no `mounts`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from agent_infra.actions.tools.definition import Effects, Tool
from agent_infra.actions.tools.elsewhere import InContainer
from agent_infra.actions.tools.tables import Reader
from agent_infra.content import fingerprint
from agent_infra.errors import ToolInvalid

LABEL: Final = "agent_infra.tools"
_SETTINGS = ("engine", "memory_mb", "pids", "images", "tools")
_RUN = ("command", "env", "memory_mb", "pids", "network")
_TOOL = ("input_schema", "output_schema", "effects", "version", "description")
_EFFECTS = ("none", "idempotent", "once")


@dataclass(frozen=True, slots=True)
class ContainerSettings:
    """`[containers]` as read: the engine's address, limits for tools that name none, images to ask, declared tools."""

    engine: str | None = None
    memory_mb: int | None = None
    pids: int | None = None
    images: tuple[str, ...] = ()
    tools: tuple[Tool, ...] = ()


def container_tool(
    name: str,
    run: InContainer,
    input_schema: dict[str, Any],
    output_schema: dict[str, Any] | None,
    *,
    version: str | None = None,
    effects: Effects | None = None,
    description: str = "",
) -> Tool:
    """A tool that is a command in an image. Its version is a hash of how it is run and its schemas unless given one.

    Raises ToolInvalid.
    """
    spoken = [run.image, list(run.command), dict(run.environment), input_schema, output_schema]
    return Tool(
        name,
        input_schema,
        output_schema,
        run,
        version=version or fingerprint(spoken)[:12],
        resources=None if run.memory_mb is None else {"memory_mb": run.memory_mb},
        effects=effects,
        description=description,
    )


def containers_from_config(table: Mapping[str, Any], root: Path) -> ContainerSettings:
    """A project's `[containers]`. Relative paths start at `root`. Raises ToolInvalid with all that is wrong."""
    reader = Reader("containers")
    reader.known("", table, _SETTINGS)
    declared = reader.table("tools", table.get("tools", {})) or {}
    tools: list[Tool] = []
    for name, each in declared.items():
        read = reader.table(f"tools.{name}", each)
        if read is not None:
            tools += _tool(reader, f"tools.{name}", name, read, reader.text(f"tools.{name}", read, "image"), root)
    settings = ContainerSettings(
        reader.text("", table, "engine") if "engine" in table else None,
        reader.whole("", table, "memory_mb"),
        reader.whole("", table, "pids"),
        reader.words("", table, "images"),
        tuple(tools),
    )
    reader.finish('a tool has image = "…", command = ["…"], input_schema and output_schema')
    return settings


def tools_of_image(image: str, labels: Mapping[str, str]) -> tuple[Tool, ...]:
    """The tools that an image's label lists. Raises ToolInvalid with all that is wrong with the list, or without one."""
    text = labels.get(LABEL)
    try:
        entries: Any = json.loads(text or "null")
    except ValueError as error:
        raise ToolInvalid(f"the label {LABEL} of the image {image!r} is not JSON", why=str(error)) from error
    if not isinstance(entries, list):
        raise ToolInvalid(
            f"the image {image!r} lists no tools",
            why=f"its label {LABEL} is {'not there' if text is None else 'no list'}",
            mend="Declare its tools under [containers.tools.NAME], or give the image the label.",
        )
    reader = Reader(f"{LABEL} of {image}")
    tools: list[Tool] = []
    for number, entry in enumerate(cast("list[object]", entries)):
        read = reader.table(str(number), entry)
        if read is not None:
            name = reader.text(str(number), read, "name")
            tools += _tool(reader, str(number), name, read, image, None)
    reader.finish("the label is a JSON list of tables: name, command, input_schema, output_schema")
    return tuple(tools)


def _tool(reader: Reader, at: str, name: str, table: Mapping[str, Any], image: str, root: Path | None) -> list[Tool]:
    """The tool of a table, or none where something is wrong, which is noted. `root` is None for an image's own list."""
    mine = ("name",) if root is None else ("image", "mounts", "pull")
    reader.known(at, table, (*mine, *_RUN, *_TOOL))
    mounts = {} if root is None else reader.texts(at, table, "mounts")
    run = InContainer(
        image,
        reader.words(at, table, "command"),
        reader.texts(at, table, "env"),
        {str((root or Path()) / Path(path).expanduser()): inside for path, inside in mounts.items()},
        reader.whole(at, table, "memory_mb"),
        reader.whole(at, table, "pids"),
        reader.flag(at, table, "network"),
        reader.flag(at, table, "pull"),
    )
    effects = table.get("effects")
    if effects not in (None, *_EFFECTS):
        reader.wrong(at, f"has effects = {effects!r}; known are {', '.join(_EFFECTS)}")
    schemas = [_schema(reader, at, table, key, root) for key in ("input_schema", "output_schema")]
    if schemas[0] is None:
        reader.wrong(at, "needs input_schema as a table or a JSON file")
        return []
    version, description = (reader.text(at, table, key) if key in table else "" for key in ("version", "description"))
    try:
        return [
            container_tool(
                name, run, schemas[0], schemas[1], version=version or None, effects=effects, description=description
            )
        ]
    except ToolInvalid as error:
        reader.wrong(
            at, f"{error.what} (at {error.where}): {error.why}" if error.where else f"{error.what}: {error.why}"
        )
        return []


def _schema(reader: Reader, at: str, table: Mapping[str, Any], key: str, root: Path | None) -> dict[str, Any] | None:
    value: Any = table.get(key)
    if isinstance(value, str) and root is not None:
        try:
            value = json.loads((root / value).read_bytes())
        except (OSError, ValueError) as error:
            reader.wrong(at, f"{key}: {error}")
            return None
    if value is None or isinstance(value, dict):
        return cast("dict[str, Any] | None", value)
    reader.wrong(at, f"needs {key} as a table or a JSON file")
    return None
