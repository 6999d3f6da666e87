"""A subgoal that waits for two others has both outputs, however long the disk takes for the one that ended first."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from agent_infra import Infra, Tool
from agent_infra.config import Project

GOAL = {
    "goal": "join",
    "subgoals": {
        "slow_disk": {"action": "say", "with": {"text": "甲"}},
        "other": {"action": "say", "with": {"text": "乙"}},
        "both": {"action": "say", "with": {"text": "${subgoals.slow_disk.result.text}丙"}, "after": "other"},
    },
}


def test_an_output_is_there_when_it_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Infra.open(tmp_path / "home", project=Project(root=tmp_path), durability="group") as infra:
        graph, first_ended = infra.session("s"), threading.Event()
        settle = infra.engine.settle

        def say(text: str) -> dict[str, Any]:
            assert text != "乙" or first_ended.wait(60)
            return {"text": text}

        def settled(ticket: int | None = None) -> None:
            if not first_ended.is_set() and len(graph.nodes(type="receipt")) == 1:
                first_ended.set()
                while len(graph.nodes(type="receipt")) < 2:
                    time.sleep(0.01)
                time.sleep(0.3)
            settle(ticket)

        schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
        infra.tools.register(Tool("say", schema, schema, say, effects="none"))
        monkeypatch.setattr(infra.engine, "settle", settled)
        result = infra.run(GOAL, session="s")
        assert result.ok, result
        assert result.outputs["both"] == {"text": "甲丙"}
