"""The sample tools, loaded by path as a project's tools.py is."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from agent_infra.actions import Tool, ToolRegistry


@pytest.fixture
def samples() -> dict[str, Tool]:
    """By name. Loading puts this folder on sys.path; it is taken off again: workers must find the file by its path."""
    before = list(sys.path)
    tools = ToolRegistry().load_module(Path(__file__).with_name("sample_tools.py"))
    sys.path[:] = before
    return {tool.name: tool for tool in tools}
