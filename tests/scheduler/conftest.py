"""A home without a project, and tools that note in which order they were called."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_infra import Infra, StateGraph
from agent_infra.config import Project
from agent_infra.platform import GpuProbe, RecordedProbe

NO_GPU = "录制：这台机器没有 GPU"
OpenInfra = Callable[..., Infra]


@pytest.fixture
def open_infra(tmp_path: Path) -> Iterator[OpenInfra]:
    """Opens homes; each is closed after the test."""
    opened: list[Infra] = []

    def open_one(name: str = "家", gpus: GpuProbe | None = None) -> Infra:
        probe = gpus or RecordedProbe({"gpus": [], "reason": NO_GPU})
        opened.append(Infra.open(tmp_path / name, project=Project(root=tmp_path), gpus=probe, durability="os"))
        return opened[-1]

    yield open_one
    for infra in opened:
        infra.close()


@pytest.fixture
def infra(open_infra: OpenInfra) -> Infra:
    return open_infra()


@pytest.fixture
def graph(infra: Infra) -> StateGraph:
    return infra.session("会话", agent="planner")


@pytest.fixture
def done(infra: Infra) -> list[Any]:
    """What was done, in order. The tools: `note` a text, `join` two texts, `fail` with a reason."""
    log: list[Any] = []
    lock = threading.Lock()

    def noted(value: Any) -> None:
        with lock:
            log.append(value)

    @infra.tools.tool(effects="none")
    def note(text: str) -> dict[str, str]:
        """Note a text."""
        noted(text)
        return {"text": text}

    @infra.tools.tool(effects="none")
    def join(left: str, right: str) -> dict[str, str]:
        """Join two texts."""
        noted((left, right))
        return {"text": left + right}

    @infra.tools.tool(effects="none")
    def fail(reason: str) -> None:
        """Fail."""
        noted(reason)
        raise RuntimeError(reason)

    return log
