"""Tools that are elsewhere, for one home: the MCP servers and images that its project declares.

    in    the tables `[mcp.NAME]` and `[containers]` of agent_infra.toml
    out   executors for the pool, and tools in the registry

Opening a home asks a server or an image only the first time, or when its table has changed: what it was found to offer
is kept. A server's list is read again whenever a session with it begins, and at `refresh`. A server that can't be asked
keeps no home from being opened: it is said in the log, and an action that needs its tool is refused with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from agent_infra import background
from agent_infra.actions.executors import ContainerExecutor, Executor, McpExecutor
from agent_infra.actions.secrets import Secrets
from agent_infra.actions.tools import Tool, ToolRegistry
from agent_infra.actions.tools.container import ContainerSettings, containers_from_config
from agent_infra.actions.tools.elsewhere import InContainer
from agent_infra.actions.tools.found import FoundTools
from agent_infra.actions.tools.mcp import Discovered, McpServer, enter, servers_from_config
from agent_infra.errors import AgentInfraError, ExecutorUnavailable, ToolInvalid
from agent_infra.observability import get_logger

_log = get_logger(__name__)


class OutsideTools:
    """The declared servers and images of a project.

    executors  what runs their tools; none where nothing is declared

    Raises ToolInvalid with all that is wrong in the tables.
    """

    def __init__(
        self,
        mcp: Mapping[str, Any],
        containers: Mapping[str, Any],
        *,
        root: Path,
        home: Path,
        registry: ToolRegistry,
        secrets: Secrets,
    ) -> None:
        self._registry = registry
        self._secrets = secrets
        self._tables: dict[str, dict[str, Any]] = {f"mcp {name}": table for name, table in mcp.items()}
        self._kept = FoundTools(home / "cache" / "tools")
        self._servers = servers_from_config(mcp, root)
        self._containers: ContainerSettings = containers_from_config(containers, root)

        def resolved(text: str) -> str:
            return cast("str", secrets.resolve(text))

        self._mcp: McpExecutor | None = None
        self._images: ContainerExecutor | None = None
        if self._servers:
            self._mcp = McpExecutor(self._servers, on_tools=self._hear, registered=registry.find, resolve=resolved)
        if containers:
            bounds = {"memory_mb": self._containers.memory_mb, "pids": self._containers.pids}
            given: dict[str, Any] = {name: value for name, value in bounds.items() if value is not None}
            self._images = ContainerExecutor(engine=self._containers.engine, home=str(home), resolve=resolved, **given)
        found: Sequence[Executor | None] = (self._mcp, self._images)
        self.executors: list[Executor] = [each for each in found if each is not None]

    def load(self) -> None:
        """Enter all tools: as declared, as kept, and asked for where nothing is kept. Raises ToolInvalid for a name that
        belongs to another tool.
        """
        for tool in self._containers.tools:
            self._registry.register(tool)
        if self._containers.tools:
            self._registry.searched.append(f"[containers.tools] ({len(self._containers.tools)} tools)")
        unknown = [server for server in self._servers if not self._enter_kept(server)]
        images = [image for image in self._containers.images if not self._register_kept(image)]
        if unknown or images:
            background.wait_for(self._ask(unknown, images), twin="Infra.open from another thread")

    async def refresh(self) -> list[str]:
        """Ask every server and image anew; why some of them couldn't be asked. Raises ToolInvalid."""
        return await background.on_loop(self._ask(self._servers, self._containers.images))

    def _enter_kept(self, server: McpServer) -> bool:
        tools = self._kept.get(f"mcp {server.name}", self._tables[f"mcp {server.name}"])
        if tools is not None:
            enter(self._registry, Discovered(server.name, tuple(tools)))
        return tools is not None

    def _register_kept(self, image: str) -> bool:
        tools = self._kept.get(f"image {image}", {})
        if tools is not None:
            self._register(image, tools)
        return tools is not None

    async def _ask(self, servers: Sequence[McpServer], images: Sequence[str]) -> list[str]:
        """Ask for lists; what is started for that is ended again."""
        wrong: list[str] = []
        if servers and self._mcp is not None:
            await self._mcp.start()
            for server in servers:
                try:
                    self._take(await self._mcp.discover(server.name))
                except ExecutorUnavailable as error:
                    wrong.append(self._unasked(f"the MCP server {server.name!r}", f"{server.name}_", error))
        if images and self._images is not None:
            await self._images.start()
            for image in images:
                try:
                    tools = await self._images.discover(image)
                    self._register(image, tools)
                    self._kept.put(f"image {image}", {}, tools)
                except ExecutorUnavailable as error:
                    wrong.append(self._unasked(f"the image {image!r}", "", error))
        return wrong

    def _register(self, image: str, tools: Sequence[Tool]) -> None:
        for tool in tools:
            self._registry.register(tool)
        kept = {tool.name for tool in (*tools, *self._containers.tools)}
        for tool in list(self._registry):
            if isinstance(tool.run, InContainer) and tool.run.image == image and tool.name not in kept:
                self._registry.remove(tool.name)
        self._registry.unasked.pop("", None)
        self._say(f"the image {image!r}", f"the image {image!r} ({len(tools)} tools)")

    def _unasked(self, name: str, start: str, error: AgentInfraError) -> str:
        """Note who couldn't be asked, and what the names of its tools begin with."""
        said = cast("str", self._secrets.clean(f"{name} (not asked: {error.why or error.what})"))
        self._say(name, said)
        self._registry.unasked[start] = said
        _log.warning("tools.not_asked", of=name, why=self._secrets.clean(str(error)))
        return said

    def _say(self, name: str, said: str) -> None:
        others = [entry for entry in self._registry.searched if not entry.startswith(f"{name} (")]
        self._registry.searched[:] = [*others, said]

    def _take(self, found: Discovered) -> None:
        """Enter and keep what a server offers, without the secrets that it may have put into its own words."""
        tools = [self._cleaned(tool) for tool in found.tools]
        enter(self._registry, replace(found, tools=tuple(tools)))
        self._registry.searched[:] = self._secrets.clean(self._registry.searched)
        self._registry.unasked.pop(f"{found.server}_", None)
        self._kept.put(f"mcp {found.server}", self._tables[f"mcp {found.server}"], tools)

    def _cleaned(self, tool: Tool) -> Tool:
        said = {"description": tool.description, "input": tool.input_schema, "output": tool.output_schema}
        clean = self._secrets.clean(said)
        if clean is said:
            return tool
        return replace(
            tool, description=clean["description"], input_schema=clean["input"], output_schema=clean["output"]
        )

    def _hear(self, found: Discovered) -> None:
        """What a server offers as a session begins or as it says that it changed. A clash of names there ends no session."""
        try:
            self._take(found)
        except ToolInvalid as error:
            _log.warning("tools.not_entered", of=f"the MCP server {found.server!r}", why=str(error))
