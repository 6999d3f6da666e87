"""Tools: what an agent can call.

In: typed Python functions, or functions with JSON Schemas written by hand; files and installed packages that hold
them. Out: `Tool`s, checked when they are made, found by name in a `ToolRegistry`.

    definition   Tool, the `tool` mark, a tool from a typed function
    registry     ToolRegistry: by name, from files and entry points
    binding      how a function is called with JSON; hints: its types as JSON Schema
    context      CallContext: what a running tool may know and say
    places       where a function is defined, and how a worker process finds it
    elsewhere    OnMcpServer, InContainer: tools that are no function of ours
    mcp          MCP servers as they are declared, and their tools; container: the same for images
"""

from __future__ import annotations

from agent_infra.actions.tools.context import CallContext
from agent_infra.actions.tools.definition import Effects, Isolation, Tool, make_tool, tool
from agent_infra.actions.tools.elsewhere import Elsewhere, InContainer, OnMcpServer
from agent_infra.actions.tools.registry import ToolRegistry

__all__ = [
    "CallContext",
    "Effects",
    "Elsewhere",
    "InContainer",
    "Isolation",
    "OnMcpServer",
    "Tool",
    "ToolRegistry",
    "make_tool",
    "tool",
]
