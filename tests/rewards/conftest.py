"""A home in memory with a clock that stands still, a weaver on it, and calls to reward."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from agent_infra import background
from agent_infra.clock import ManualClock
from agent_infra.rewards import RewardWeaver, WeaverParts
from agent_infra.state import Home, StateGraph, open_memory

RULES = """
version: 1
sources:
  user_satisfaction: {range: [-1, 1], weight: 0.7, lateness: 24h}
  response_latency: {range: [0, 30], better: low, weight: 0.3, lateness: 1h}
  compliance_api: {range: [-1, 1]}
wait: 5s
rules:
  - id: compliance_override
    salience: 100
    when:
      r: {signal: 'r.source == "compliance_api" && r.value < 0 && r.priority == "high"'}
      s: {session: 's.id == r.session_id'}
    then: {override: 'r.value * 5'}
"""


@dataclass(frozen=True)
class Result:
    """What a run leaves, as far as the weaver looks at it."""

    event_ids: tuple[str, ...]
    session: str


@dataclass
class World:
    """A home and its weaver."""

    home: Home
    clock: ManualClock
    weaver: RewardWeaver
    folder: Path
    session: str = "会话 1"

    @property
    def graph(self) -> StateGraph:
        return StateGraph(self.session, engine=self.home.engine, agent="planner")

    def call(self, seconds: float | None = None) -> str:
        """A call that was made; with `seconds`, one that has ended, too."""
        data = {
            "action": "get_weather",
            "contract": "c",
            "tool": "weather",
            "tool_version": "1",
            "params": {},
            "effects": "none",
            "idempotency_key": "k",
        }
        with self.graph.step() as step:
            call = step.add_node("call", data, tool="weather")
        if seconds is not None:
            self.end(call.id, seconds=seconds)
        return call.id

    def end(self, call: str, **fields: object) -> None:
        """The receipt of a call."""
        with self.graph.step() as step:
            data = {"call": call, "status": "succeeded", "conditions": []} | fields
            step.add_edge(call, step.add_node("receipt", data).id, "triggers")

    def result(self, *calls: str) -> Result:
        """What a run that made these calls leaves."""
        return Result(calls, self.session)

    def rules(self, text: str) -> None:
        """Put a rule file into force."""
        path = self.folder / "rules.yaml"
        path.write_text(text, encoding="utf-8")
        self.weaver.load_rules(path)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def world(tmp_path: Path, clock: ManualClock) -> Iterator[World]:
    home = open_memory(clock=clock)
    weaver = RewardWeaver(WeaverParts(home.engine, home.blobs))
    yield World(home, clock, weaver, tmp_path)
    background.wait_for(weaver.stop(), twin="weaver.stop")
    home.close()


@pytest.fixture
def ruled(world: World) -> World:
    world.rules(RULES)
    return world


@pytest.fixture
def until() -> Callable[[Callable[[], object]], None]:
    """Waits for something that another thread brings about; a test that never sees it fails by its own assertion."""

    def wait(condition: Callable[[], object]) -> None:
        end = time.monotonic() + 20
        while not condition() and time.monotonic() < end:
            time.sleep(0.005)

    return wait
