"""The conformance suite's tools as an MCP server made with the library: `suite_server.py`, or `suite_server.py PORT`.

Without a port on the standard streams, with one by streamable HTTP on the loopback.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from typing import Any

import mcp_types as types
import uvicorn
from mcp.server import Server
from mcp.server.stdio import stdio_server

from agent_infra.actions.executors.mcp_session import KEY_META, SECONDS_META
from agent_infra.actions.tools import CallContext
from agent_infra.actions.tools.binding import bind, input_schema
from agent_infra.testing import executor_tools

FUNCTIONS = {
    name: bind(function, name)
    for name, function in vars(executor_tools).items()
    if inspect.isfunction(function) and function.__module__ == executor_tools.__name__
}
WRAPPED = {"type": "object", "properties": {"result": {}}, "required": ["result"], "x-fastmcp-wrap-result": True}


async def listed(context: Any, params: Any) -> types.ListToolsResult:
    tools = [
        types.Tool(name=name, description=inspect.getdoc(each.function), input_schema=input_schema(each),
                   output_schema=WRAPPED, annotations=types.ToolAnnotations(read_only_hint=True))
        for name, each in FUNCTIONS.items()
    ]  # fmt: skip
    return types.ListToolsResult(tools=tools)


async def called(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    binding, meta = FUNCTIONS[params.name], dict(params.meta or {})
    reports: asyncio.Queue[str | float | None] = asyncio.Queue()

    async def passing_on() -> None:
        turn = 0
        while (update := await reports.get()) is not None:
            turn += 1
            if isinstance(update, str):
                await context.session.report_progress(float(turn), None, update)
            else:
                await context.session.report_progress(update, 1.0)

    relay = asyncio.create_task(passing_on())
    call = CallContext(meta[KEY_META], seconds=meta.get(SECONDS_META), report=reports.put_nowait)
    try:
        value = binding.call(params.arguments or {}, call)
        value = binding.plain(await value if inspect.isawaitable(value) else value)
    except Exception as error:
        return types.CallToolResult(content=[types.TextContent(text=str(error))], is_error=True)
    finally:
        reports.put_nowait(None)
        await relay
    return types.CallToolResult(content=[], structured_content={"result": value})


def make() -> Server[Any]:
    return Server("suite", version="1.0", on_list_tools=listed, on_call_tool=called)


async def main() -> None:
    server = make()
    if len(sys.argv) > 1:
        app = server.streamable_http_app()
        config = uvicorn.Config(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="error", access_log=False)
        await uvicorn.Server(config).serve()
        return
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    asyncio.run(main())
