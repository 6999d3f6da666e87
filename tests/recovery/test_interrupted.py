"""Runs that are cancelled or resumed inside one living process."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_infra import CallContext, Infra, RunResult, background
from agent_infra.config import Project
from agent_infra.platform import RecordedProbe

PATIENCE = 20.0
GOAL: dict[str, Any] = {
    "goal": "g",
    "subgoals": {
        "first": {"action": "note", "with": {"text": "一"}},
        "slow": {"action": "slow", "after": "first"},
        "last": {"action": "note", "with": {"text": "完"}, "after": "slow"},
    },
}


class Desk:
    """An open home, what its tools did, and the gate that the slow one waits at."""

    def __init__(self, infra: Infra, goal: dict[str, Any]) -> None:
        self.infra = infra
        self.goal = goal
        self.notes: list[str] = []
        self.keys: list[str] = []
        self.began = threading.Event()
        self.gate = threading.Event()
        infra.tools.tool(name="note", effects="none")(self.note)

    def note(self, text: str) -> str:
        """Note a text."""
        self.notes.append(text)
        return text

    def slow_tool(self, effects: Any) -> None:
        @self.infra.tools.tool(name="slow", effects=effects)
        def slow(context: CallContext) -> str:
            """Wait at the gate."""
            self.keys.append(context.idempotency_key)
            self.began.set()
            self.gate.wait(PATIENCE)
            return "慢"

    async def cancelled(self) -> None:
        """Run the goal, and cancel it while the slow tool runs."""
        run = asyncio.create_task(self.infra.arun(self.goal, session="会话"))
        await asyncio.to_thread(self.began.wait, PATIENCE)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run

    async def settled(self) -> None:
        """Until the run that was cancelled has ended on the background loop, too."""
        while self.infra.scheduler.parts.active:
            await asyncio.sleep(0.005)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with Infra.open(tmp_path / "家", project=Project(root=tmp_path), durability="os") as infra:
        made = Desk(infra, GOAL)
        yield made
        made.gate.set()


async def cancel_and_resume(desk: Desk) -> list[RunResult]:
    await desk.cancelled()
    await asyncio.wait_for(desk.settled(), PATIENCE)
    desk.gate.set()
    return await desk.infra.scheduler.aresume("会话")


def test_a_cancelled_run_is_gone_on_with_under_the_same_key(desk: Desk) -> None:
    desk.slow_tool("idempotent")
    (result,) = asyncio.run(cancel_and_resume(desk))
    assert result.ok
    assert desk.notes == ["一", "完"]
    assert len(desk.keys) == 2
    assert len(set(desk.keys)) == 1


def test_a_cancelled_once_call_is_not_made_again(desk: Desk) -> None:
    desk.slow_tool("once")
    (result,) = asyncio.run(cancel_and_resume(desk))
    assert result.waiting
    assert len(desk.keys) == 1
    assert desk.notes == ["一"]


def test_a_run_that_is_under_way_is_left_alone(desk: Desk) -> None:
    desk.slow_tool("none")

    async def program() -> RunResult:
        run = asyncio.create_task(desk.infra.arun(GOAL, session="会话"))
        await asyncio.to_thread(desk.began.wait, PATIENCE)
        assert await desk.infra.scheduler.aresume() == []
        desk.gate.set()
        return await run

    assert asyncio.run(program()).ok
    assert len(desk.keys) == 1


def test_two_resumptions_at_once_go_on_with_a_run_once(desk: Desk) -> None:
    desk.slow_tool("none")

    async def program() -> list[RunResult]:
        await desk.cancelled()
        await asyncio.wait_for(desk.settled(), PATIENCE)
        desk.gate.set()
        both = await asyncio.gather(*(desk.infra.scheduler.aresume() for _ in range(2)))
        return [result for results in both for result in results]

    (result,) = asyncio.run(program())
    assert result.ok
    assert len(desk.keys) == 2
    assert desk.notes == ["一", "完"]


def test_a_run_whose_device_is_gone_waits_with_the_reason_and_runs_nothing(tmp_path: Path) -> None:
    one = {"gpus": [{"index": 0, "uuid": "GPU-1", "model": "H100", "memory_mb": 81920}], "reason": None}
    ran: list[str] = []
    goal: dict[str, Any] = {
        "goal": "g",
        "subgoals": {"slow": {"action": "slow"}, "算": {"action": "infer", "after": "slow"}},
    }

    def desk_with(probe: RecordedProbe) -> Desk:
        infra = Infra.open(tmp_path / "家", project=Project(root=tmp_path), gpus=probe, durability="os")
        infra.tools.tool(name="infer", effects="none", resources={"gpu": 1})(lambda: ran.append("算"))
        made = Desk(infra, goal)
        made.slow_tool("none")
        return made

    with_gpu = desk_with(RecordedProbe(one))
    asyncio.run(with_gpu.cancelled())
    with_gpu.gate.set()
    with_gpu.infra.close()
    without = desk_with(RecordedProbe({"gpus": [], "reason": "录制：没有 GPU"}))
    without.gate.set()
    (result,) = without.infra.resume("会话")
    without.infra.close()
    assert not result.ok
    assert "录制：没有 GPU" in str(result)
    assert ran == []
    again = desk_with(RecordedProbe(one))
    again.gate.set()
    (result,) = again.infra.resume("会话")
    again.infra.close()
    assert result.ok
    assert ran == ["算"]


def test_ctrl_c_is_raised_once_the_work_has_ended() -> None:
    ended: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(0.05)  # let the main thread begin to wait
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(PATIENCE)
        finally:
            await asyncio.sleep(0.05)
            ended.append("完")

    with pytest.raises(KeyboardInterrupt):
        background.wait_for(work(), twin="")
    assert ended == ["完"]
