"""`agent-infra health`: each layer is really used, and one that fails is named with its reason and its mend."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent_infra import GDEPScheduler, RewardWeaver, StateGraph, health_check
from agent_infra.actions import ActionLibrary
from agent_infra.errors import StoreFull

Command = Callable[..., subprocess.CompletedProcess[str]]
LINES = [
    r"\[OK\] State Graph: 1000 nodes inserted in \d+ms",
    r"\[OK\] Action DSL: Compiled sample\.yaml in \d+ms",
    r"\[OK\] Reward Weaver: Loaded 5 rules, processed test signal",
    r"\[OK\] GDEP Scheduler: Scheduled 3 subgoals, all completed",
]
LAYERS = ["State Graph", "Action DSL", "Reward Weaver", "GDEP Scheduler"]


def test_four_lines_and_nothing_else(command: Command, home: Path, folder: Path) -> None:
    told = command("health")
    assert told.returncode == 0, told.stderr
    lines = told.stdout.splitlines()
    assert len(lines) == 4
    for line, form in zip(lines, LINES, strict=True):
        assert re.fullmatch(form, line)
    assert not home.exists(), "it works in a home of its own"
    assert list(folder.iterdir()) == []


def test_the_module_is_the_command(folder: Path) -> None:
    module = [sys.executable, "-m", "agent_infra.health_check"]
    told = subprocess.run(module, cwd=folder, capture_output=True, text=True, check=False)
    assert told.returncode == 0
    assert [re.fullmatch(form, line) is not None for form, line in zip(LINES, told.stdout.splitlines(), strict=True)]


def test_as_json(quick: Command) -> None:
    told = json.loads(quick("health", "--json").stdout)
    assert [check["layer"] for check in told] == LAYERS
    assert all(check["ok"] for check in told)


def test_a_broken_project_around_it_does_not_matter(command: Command, project: Path) -> None:
    (project / "tools.py").write_text("1 / 0\n", encoding="utf-8")
    assert command("health").returncode == 0


# -- a layer that fails ----------------------------------------------------------------------------

BROKEN = [
    ("State Graph", StateGraph, "rollback"),
    ("Action DSL", ActionLibrary, "load"),
    ("Reward Weaver", RewardWeaver, "ingest"),
    ("GDEP Scheduler", GDEPScheduler, "compile_gdep"),
]


@pytest.mark.parametrize(("layer", "face", "method"), BROKEN, ids=[layer for layer, _, _ in BROKEN])
@pytest.mark.parametrize("kind", ["own", "any"])
def test_a_failing_layer_is_told_with_reason_and_mend(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    layer: str,
    face: type,
    method: str,
    kind: str,
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        if kind == "own":
            raise StoreFull("磁盘写不进去", why="空间不足", mend="Free some space.")
        raise OSError("设备不见了")

    monkeypatch.setattr(face, method, fail)
    assert health_check.main([]) == 1
    lines = capsys.readouterr().out.splitlines()
    told = {re.sub(r"\[\w+\] (.*?):.*", r"\1", line): line for line in lines}
    assert list(told) == LAYERS
    line = told[layer]
    assert line.startswith(f"[FAIL] {layer}: ")
    if kind == "own":
        for part in ("磁盘写不进去", "空间不足", "Free some space."):
            assert part in line
    else:
        assert "设备不见了" in line
        assert len(line) > len(f"[FAIL] {layer}: OSError: 设备不见了."), "it says what to do"
    assert all(told[below].startswith("[OK]") for below in LAYERS[: LAYERS.index(layer)])


def test_a_failing_layer_as_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(RewardWeaver, "load_rules", lambda *_: 1 / 0)
    assert health_check.main(["--json"]) == 1
    told = {check["layer"]: check for check in json.loads(capsys.readouterr().out)}
    assert told["Reward Weaver"]["ok"] is False
    assert "ZeroDivisionError" in told["Reward Weaver"]["message"]
    assert told["State Graph"]["ok"] is True


def test_a_layer_that_works_and_answers_wrongly_has_failed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(StateGraph, "nodes", lambda *_, **__: [])
    assert health_check.main([]) == 1
    assert capsys.readouterr().out.startswith("[FAIL] State Graph: ")


def test_a_home_that_can_not_be_opened_is_a_failure_not_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_room(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(health_check.Infra, "open", no_room)
    assert health_check.main([]) == 1
    out = capsys.readouterr().out
    assert out.startswith("[FAIL] State Graph: ")
    assert "No space left on device" in out
