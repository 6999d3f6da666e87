"""A process that is killed around the wait between two tries of a call."""

from __future__ import annotations

import signal
import time
from typing import Any

import pytest

from agent_infra import Infra
from agent_infra.config import Project

SESSION = "月末 1"
PATIENCE = 60.0
TOOLS = '''
@tool(effects="idempotent")
def flaky(name: str, context: CallContext) -> dict[str, str]:
    """Fail until there is a file `go`."""
    found = effect(name, context)
    if not (HERE / "go").exists():
        raise OSError("断线")
    return found
'''
ACTION = """name: 试
tool: flaky
params: {name: {open: {}}}
retries: {times: 3, wait: WAIT}
"""
GOAL = "goal: 一\nsubgoals:\n  x: {action: 试, with: {name: 甲}}\n  then: {action: look, with: {name: 后}, after: x}\n"


@pytest.fixture
def retrying(workshop: Any) -> Any:
    tools = workshop.folder.joinpath("tools.py").read_text("utf-8")
    workshop.write("tools.py", tools + TOOLS)
    workshop.write("goal.yaml", GOAL)
    workshop.write("actions/试.yaml", ACTION.replace("WAIT", "1h"))
    return workshop


def test_a_process_killed_in_the_wait_between_two_tries_is_gone_on_with(retrying: Any) -> None:
    with retrying.running() as child:
        retrying.wait_for_effects(1, child)
        end = time.monotonic() + PATIENCE
        while "call.retried" not in (line := child.stderr.readline()):
            assert line, "it ended by itself"
            assert time.monotonic() < end, "it never said that it tries again"
        child.send_signal(signal.SIGKILL)
        child.wait(PATIENCE)
    before = retrying.records()
    assert before.status == {"x": "running", "then": "pending"}
    assert before.receipts[before.calls["x"][0].id].data["status"] == "failed"

    retrying.let_go()
    assert retrying.command("resume").returncode == 0
    after = retrying.records()
    assert after.status == {"x": "succeeded", "then": "succeeded"}
    first, second = after.calls["x"]
    assert [call.data["attempt"] for call in (first, second)] == [1, 2]
    assert first.data["idempotency_key"] == second.data["idempotency_key"]
    assert after.receipts[first.id].data == before.receipts[first.id].data, "it has the one receipt that it had"
    assert after.receipts[second.id].data["status"] == "succeeded"
    assert retrying.counts() == {"甲": 2, "后": 1}
    assert len(retrying.keys("甲")) == 1


@pytest.mark.parametrize("point", range(1, 8))
def test_killed_at_any_write_it_is_gone_on_with_under_one_key(retrying: Any, point: int) -> None:
    retrying.write("actions/试.yaml", ACTION.replace("WAIT", "1ms"))
    retrying.run(KILL_AT=str(point))
    retrying.let_go()
    tried = retrying.counts()["甲"]
    with Infra.open(retrying.home, project=Project(root=retrying.folder)) as infra:
        begun = bool(infra.session(SESSION).nodes(type="goal"))
    if not begun:
        return
    retrying.command("resume")
    after = retrying.records()
    attempts = [call.data["attempt"] for call in after.calls.get("x", [])]
    assert attempts == list(range(1, len(attempts) + 1))
    assert len(attempts) <= 5, "the four tries, and one instead of an interrupted one"
    assert len(retrying.keys("甲")) == 1
    assert retrying.counts()["甲"] >= tried
    if after.goal == "succeeded":
        assert after.status == {"x": "succeeded", "then": "succeeded"}
        assert retrying.counts()["后"] == 1
    else:
        assert after.goal == "failed", "all four tries had failed before"
        assert after.status["x"] == "failed"
