"""A value that is about a whole result, spread over its events: exactly, as the rules say."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_infra.rewards import Signal
from agent_infra.rewards.rules.model import Credit
from agent_infra.rewards.weaving.contributions import spread

RULES = "version: 1\nsources: {满意度: {range: [-1, 1], weight: 1}}\n"


@pytest.mark.parametrize(
    ("said", "parts"),
    [
        ("", [250_000, 250_000, 250_000]),
        ("credit: last\n", [0, 0, 750_000]),
        ("credit: {discount: 0.5}\n", [107_143, 214_286, 428_571]),
    ],
)
def test_a_goals_value_is_spread_over_its_calls(world: Any, said: str, parts: list[int]) -> None:
    world.rules(RULES + said)
    calls = [world.call() for _ in range(3)]
    with world.graph.step() as step:
        goal = step.add_node("goal", {"name": "g", "goal_id": "g", "definition": {}, "status": "running"})
    world.weaver.ingest(Signal("满意度", 0.75, goal.id))
    reward = world.weaver.weave(goal.id)
    assert list(world.weaver.credit(reward, calls).values()) == parts
    assert world.weaver.credit(world.weaver.weave(calls[0]), calls) == {}, "no value is nothing to spread, not 0"


@given(
    st.integers(-1_000_000, 1_000_000),
    st.integers(1, 40),
    st.sampled_from(["each", "last", "discount"]),
    st.floats(0.01, 1),
)
def test_the_parts_add_up_exactly(micro: int, count: int, to: Any, gamma: float) -> None:
    parts = spread(micro, [str(n) for n in range(count)], Credit(to, gamma))
    assert sum(parts.values()) == micro
    assert len(parts) == count
