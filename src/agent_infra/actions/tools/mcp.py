"""MCP servers as a project declares them, and the tools that they list.

    [mcp.files]                                   # a program that speaks on its standard streams
    command = ["npx", "-y", "some-server"]
    env = {API_KEY = "secret://FILES_KEY"}
    cwd = "data"
    effects = {read_file = "none"}

    [mcp.search]                                  # one that is reached by streamable HTTP
    url = "https://search.example.org/mcp"
    headers = {Authorization = "secret://SEARCH_TOKEN"}
    trust_hints = true

A tool `read_file` of the server `files` is called `files_read_file`. What a server says about effects
(`readOnlyHint`, `idempotentHint`) counts only where `trust_hints` says so: it is the server's own word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TypeAlias, cast

from agent_infra.actions.tools.definition import Effects, Tool
from agent_infra.actions.tools.elsewhere import OnMcpServer
from agent_infra.actions.tools.registry import ToolRegistry
from agent_infra.actions.tools.tables import Reader
from agent_infra.content import fingerprint
from agent_infra.errors import ToolInvalid

_STDIO = ("command", "env", "cwd")
_HTTP = ("url", "headers")
_COMMON = ("effects", "trust_hints")
_EFFECTS: Final = ("none", "idempotent", "once")
_STRANGE = re.compile(r"[^A-Za-z0-9_.\-]")


@dataclass(frozen=True, slots=True)
class StdioServer:
    """A server that is a program of its own: started when it is needed, ended when nobody does.

    command      the program and its arguments
    env          variables besides HOME, LOGNAME, PATH, SHELL, TERM and USER, which it gets; `secret://NAME` is resolved
    cwd          where it runs
    effects      {tool: its effects}, by the server's own names of the tools
    trust_hints  take the server's word for the effects of the others
    """

    name: str
    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    cwd: Path | None = None
    effects: Mapping[str, Effects] = field(default_factory=dict[str, Effects])
    trust_hints: bool = False


@dataclass(frozen=True, slots=True)
class HttpServer:
    """A server that is reached by streamable HTTP. `headers` go with every request; `secret://NAME` is resolved."""

    name: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    effects: Mapping[str, Effects] = field(default_factory=dict[str, Effects])
    trust_hints: bool = False


McpServer: TypeAlias = StdioServer | HttpServer


class Listed(Protocol):
    """One tool as a server lists it: what of `mcp.types.Tool` is read."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str | None: ...
    @property
    def input_schema(self) -> dict[str, Any]: ...
    @property
    def output_schema(self) -> dict[str, Any] | None: ...
    @property
    def annotations(self) -> Any: ...
    @property
    def meta(self) -> dict[str, Any] | None: ...


@dataclass(frozen=True, slots=True)
class Discovered:
    """What a server offers: the tools that can be used, and why the others can't."""

    server: str
    tools: tuple[Tool, ...] = ()
    refused: tuple[ToolInvalid, ...] = ()


def servers_from_config(tables: Mapping[str, Any], root: Path) -> list[McpServer]:
    """The servers of a project's `[mcp.NAME]` tables; relative paths start at `root`.

    Raises ToolInvalid with all that is wrong, each table named.
    """
    reader = Reader("mcp")
    servers: list[McpServer] = []
    for name, table in tables.items():
        read = reader.table(name, table)
        if read is None:
            continue
        if _STRANGE.search(name):
            reader.wrong(name, "a server's name is made of letters of a to z, digits, `_`, `-` and `.`")
        kind = [key for key in ("command", "url") if key in read]
        if len(kind) != 1:
            reader.wrong(name, "needs either command (a program) or url (streamable HTTP)")
            continue
        reader.known(name, read, (*(_STDIO if kind == ["command"] else _HTTP), *_COMMON))
        effects = reader.texts(name, read, "effects", allowed=_EFFECTS)
        trust = reader.flag(name, read, "trust_hints")
        common: dict[str, Any] = {"effects": effects, "trust_hints": trust}
        if kind == ["url"]:
            servers.append(
                HttpServer(name, reader.text(name, read, "url"), reader.texts(name, read, "headers"), **common)
            )
            continue
        cwd = reader.text(name, read, "cwd") if "cwd" in read else None
        command = reader.words(name, read, "command", needed=True)
        where = None if cwd is None else root / cwd
        servers.append(StdioServer(name, command, reader.texts(name, read, "env"), where, **common))
    reader.finish('a program has command = ["…"], a server in the network has url = "https://…"')
    return servers


def tools_of(server: McpServer, listed: Iterable[Listed]) -> Discovered:
    """The tools of a server's list. A tool whose schemas or name can't be used is refused, the others are not."""
    tools: dict[str, Tool] = {}
    refused: list[ToolInvalid] = []
    for each in listed:
        try:
            tool = tool_of(server, each)
            if tool.name in tools:
                raise ToolInvalid(f"the MCP server {server.name!r} lists {each.name!r} twice")
            tools[tool.name] = tool
        except ToolInvalid as error:
            refused.append(error)
    return Discovered(server.name, tuple(tools.values()), tuple(refused))


def tool_of(server: McpServer, listed: Listed) -> Tool:
    """One listed tool. Its version is the one in its `_meta`, else a hash of its schemas. Raises ToolInvalid."""
    output, wrapped = _unwrapped(listed.output_schema)
    said: Any = dict(listed.meta or {}).get("version")
    schemas = [listed.input_schema, listed.output_schema]
    return Tool(
        f"{server.name}_{_STRANGE.sub('_', listed.name)}",
        listed.input_schema,
        output,
        OnMcpServer(server.name, listed.name, wrapped),
        version=said if isinstance(said, str) and said else fingerprint(schemas)[:12],
        effects=server.effects.get(listed.name) or (_hinted(listed.annotations) if server.trust_hints else None),
        description=listed.description or "",
    )


def enter(registry: ToolRegistry, found: Discovered) -> None:
    """Put what a server offers into a registry, and take out what it no longer does; `searched` tells both.

    Raises ToolInvalid where a name belongs to another tool.
    """
    for tool in found.tools:
        known = registry.find(tool.name)
        if known is None or (known.run, known.definition()) != (tool.run, tool.definition()):
            registry.register(tool)
    kept = {tool.name for tool in found.tools}
    for tool in list(registry):
        if isinstance(tool.run, OnMcpServer) and tool.run.server == found.server and tool.name not in kept:
            registry.remove(tool.name)
    origin = f"the MCP server {found.server!r}"
    refused = "".join(f"; refused: {error}" for error in found.refused)
    others = [entry for entry in registry.searched if not entry.startswith(f"{origin} (")]
    registry.searched[:] = [*others, f"{origin} ({len(kept)} tool{'' if len(kept) == 1 else 's'}{refused})"]


def _unwrapped(schema: dict[str, Any] | None) -> tuple[dict[str, Any] | None, bool]:
    """A result's schema without the object that a server put around it, which it marks (`x-fastmcp-wrap-result`)."""
    inner: Any = (schema or {}).get("properties", {})
    if schema is None or schema.get("x-fastmcp-wrap-result") is not True or set(inner) != {"result"}:
        return schema, False
    definitions = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
    result: Any = inner["result"]
    return (cast("dict[str, Any]", result) | definitions if isinstance(result, dict) else {}), True


def _hinted(annotations: Any) -> Literal["none", "idempotent"] | None:
    if getattr(annotations, "read_only_hint", None) is True:
        return "none"
    return "idempotent" if getattr(annotations, "idempotent_hint", None) is True else None
