"""A home with its layers, its tools and contracts left to each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_infra import Infra, StateGraph
from agent_infra.config import Project

SESSION = "会话 1"


@pytest.fixture
def infra(tmp_path: Path) -> Iterator[Infra]:
    with Infra.open(tmp_path / "家", project=Project(root=tmp_path), durability="os") as opened:
        yield opened


@pytest.fixture
def graph(infra: Infra) -> StateGraph:
    return infra.session(SESSION, agent="planner")
