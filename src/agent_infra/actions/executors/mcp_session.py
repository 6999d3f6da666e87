"""One MCP session: a task of its own opens it, keeps it and closes it, so that any other task may use or end it.

The `mcp` library ties what it opens to the task that opened it; closing sessions out of order, or from another task,
would end the neighbour's call. Here nobody but the owner opens or closes. It lists the server's tools when the session
begins, and again whenever the server says that they have changed.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final, cast

import httpx2
import mcp_types
import msgspec
from mcp import ClientSession, MCPError
from mcp.client.streamable_http import streamable_http_client

from agent_infra.actions.executors.handle import uncut
from agent_infra.actions.executors.mcp_stdio import ServerProcess, running
from agent_infra.actions.tools.mcp import Discovered, HttpServer, McpServer, tools_of
from agent_infra.content import json_value
from agent_infra.observability import get_logger
from agent_infra.version import __version__

_PAGES = 100
_CLOSING = 10.0
KEY_META: Final = "agent-infra/idempotency-key"
SECONDS_META: Final = "agent-infra/seconds"
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """How a session behaves: seconds for every request but a tool's call, noise, and who hears of new lists."""

    request_limit: float
    noise_limit: int
    resolve: Callable[[str], str]
    on_tools: Callable[[Discovered], None] | None


class McpSession:
    """A session with a server.

    found    the server's tools as last listed
    process  the server's process, where it is one of ours
    broken   whether it can't be used any more
    calls    how many calls run in it now
    """

    def __init__(self, server: McpServer, options: SessionOptions) -> None:
        self.server = server
        self.found = Discovered(server.name)
        self.process: ServerProcess | None = None
        self.broken = False
        self.calls = 0
        self._options = options
        self._wake = asyncio.Event()
        self._closing = False
        self._changed = False
        self._opened: asyncio.Future[ClientSession] = asyncio.get_running_loop().create_future()
        self._owner = asyncio.create_task(self._own(), name=f"mcp {server.name}")

    @property
    def usable(self) -> bool:
        """Whether a call may be made in it."""
        return not self.broken and (self.process is None or self.process.alive())

    async def open(self) -> None:
        """Wait until it can be used. Raises what kept it from that: OSError, MCPError, a library's own error."""
        await asyncio.wait({self._opened, self._owner}, return_when=asyncio.FIRST_COMPLETED)
        if not self._opened.done():
            error = self._owner.exception() if not self._owner.cancelled() else None
            raise error or ConnectionError("the session was closed while it was opened")

    async def close(self) -> None:
        """End it, and the server's process. From any task; a cancellation doesn't cut this short."""
        self.broken = self._closing = True
        self._wake.set()
        if not self._opened.done():
            self._owner.cancel()
        await uncut(asyncio.create_task(self._closed()))

    async def call(
        self, tool: str, params: Mapping[str, Any], meta: Mapping[str, Any], report: Callable[[str | float], None]
    ) -> mcp_types.CallToolResult:
        """Call a tool. Cancelling this sends the server the notice that the call is cancelled. Raises MCPError."""

        async def heard(progress: float, total: float | None, message: str | None) -> None:
            report(message or (min(1.0, max(0.0, progress / total)) if total else f"{progress:g}"))

        asked = mcp_types.CallToolRequestParams(
            name=tool, arguments=dict(params), _meta=cast("mcp_types.RequestParamsMeta", dict(meta))
        )
        self.calls += 1
        try:
            return await self._opened.result().send_request(
                mcp_types.CallToolRequest(params=asked),
                mcp_types.CallToolResult,
                request_read_timeout_seconds=math.inf,  # the executor has the limits, and renews them with progress
                progress_callback=heard,
            )
        finally:
            self.calls -= 1

    async def answers(self, within: float) -> bool:
        """Whether the server answers a ping: it has then read everything that was sent before it."""
        try:
            await asyncio.wait_for(self._opened.result().send_ping(), within)
        except (TimeoutError, MCPError):
            return False
        return True

    async def list_again(self) -> None:
        """Ask for the server's tools once more. Raises MCPError, ValueError."""
        await self._list(self._opened.result())

    # -- the owner ---------------------------------------------------------------------------------

    async def _own(self) -> None:
        try:
            async with AsyncExitStack() as stack:
                streams = await self._connect(stack)
                session = await stack.enter_async_context(
                    ClientSession(
                        *streams,
                        read_timeout_seconds=self._options.request_limit,
                        message_handler=self._hear,
                        client_info=mcp_types.Implementation(name="agent_infra", version=__version__),
                    )
                )
                await session.initialize()
                await self._list(session)
                self._opened.set_result(session)
                await self._keep(session)
        finally:
            self.broken = True

    async def _connect(self, stack: AsyncExitStack) -> tuple[Any, Any]:
        server, resolve = self.server, self._options.resolve
        if isinstance(server, HttpServer):
            headers = {name: resolve(value) for name, value in server.headers.items()}
            limits = httpx2.Timeout(self._options.request_limit, read=None)
            client = await stack.enter_async_context(httpx2.AsyncClient(headers=headers, timeout=limits))
            return await stack.enter_async_context(streamable_http_client(server.url, http_client=client))
        env = {name: resolve(value) for name, value in server.env.items()}
        self.process = await ServerProcess.start(server.command, env, server.cwd, self._options.noise_limit)
        return await stack.enter_async_context(running(self.process))

    async def _keep(self, session: ClientSession) -> None:
        """Wait for the end, of the server or of the use of it; list the tools anew whenever they changed."""
        ends = {self.process.ended} if self.process else set[asyncio.Future[int]]()
        while not self._closing:
            wake = asyncio.ensure_future(self._wake.wait())
            await asyncio.wait({wake, *ends}, return_when=asyncio.FIRST_COMPLETED)
            wake.cancel()
            self._wake.clear()
            if any(end.done() for end in ends):
                return
            if self._changed and not self._closing:
                self._changed = False
                try:
                    await self._list(session)
                except (MCPError, ValueError) as error:
                    _log.warning("mcp.list_failed", server=self.server.name, error=str(error))

    async def _list(self, session: ClientSession) -> None:
        listed: list[mcp_types.Tool] = []
        capabilities = session.server_capabilities
        cursor: str | None = None
        for _ in range(_PAGES if capabilities and capabilities.tools else 0):
            page = await session.list_tools(params=mcp_types.PaginatedRequestParams(cursor=cursor) if cursor else None)
            listed += page.tools
            cursor = page.next_cursor
            if cursor is None:
                break
        self.found = tools_of(self.server, listed)
        for error in self.found.refused:
            _log.warning("mcp.tool_refused", server=self.server.name, error=str(error))
        if self._options.on_tools is not None:
            self._options.on_tools(self.found)

    async def _hear(self, message: Any) -> None:
        if isinstance(message, mcp_types.ToolListChangedNotification):
            self._changed = True
            self._wake.set()

    async def _closed(self) -> None:
        await asyncio.wait({self._owner}, timeout=_CLOSING)
        if not self._owner.done():
            if self.process is not None:
                self.process.kill()
            self._owner.cancel()
            await asyncio.wait({self._owner}, timeout=_CLOSING)
        if self._owner.done() and not self._owner.cancelled() and (error := self._owner.exception()):
            _log.debug("mcp.session_ended", server=self.server.name, error=repr(error))


def output_of(result: mcp_types.CallToolResult, *, wrapped: bool) -> Any:
    """A result as JSON: its structured content; else a single text, read as JSON where it is an object or a list;
    else its content blocks as they are.
    """
    if "structured_content" in result.model_fields_set:
        value = cast("dict[str, Any] | None", result.structured_content)
        return value["result"] if wrapped and value is not None and list(value) == ["result"] else value
    if len(result.content) == 1 and isinstance(result.content[0], mcp_types.TextContent):
        text = result.content[0].text
        if text[:1] in ("{", "["):
            try:
                return json_value(text.encode())
            except (ValueError, RecursionError, msgspec.MsgspecError):
                return text
        return text
    blocks = [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in result.content]
    return {"content": blocks} if blocks else None


def text_of(result: mcp_types.CallToolResult) -> str:
    """The words of a result, as an error's message."""
    return "\n".join(block.text for block in result.content if isinstance(block, mcp_types.TextContent))
