"""The sample tools, loaded by path as a project's tools.py is; and one container engine for the tests that want it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_infra.actions import Tool, ToolRegistry

from .podman import Podman


@pytest.fixture
def samples() -> dict[str, Tool]:
    """By name. Loading puts this folder on sys.path; it is taken off again: workers must find the file by its path."""
    before = list(sys.path)
    tools = ToolRegistry().load_module(Path(__file__).with_name("sample_tools.py"))
    sys.path[:] = before
    return {tool.name: tool for tool in tools}


@pytest.fixture(scope="session")
def podman() -> Iterator[Podman]:
    """One engine for all tests of a worker; those that use it share the xdist group "podman"."""
    engine = Podman()
    yield engine
    engine.close()


@pytest.fixture
def engine(podman: Podman) -> Iterator[Podman]:
    """The engine; whatever a test does, no container, volume or control group is left behind it."""
    yield podman
    podman.assert_empty()
