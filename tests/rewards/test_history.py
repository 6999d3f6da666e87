"""Rewards over time: explained with their versions, woven anew, uses that are outdated, and tampering that is found."""

from __future__ import annotations

from typing import Any

import pytest

from agent_infra.rewards import RuleSet, Signal, compile_rule_text
from agent_infra.rewards.ledger import Ledger
from agent_infra.state import StateGraph

RULES = "version: 1\nsources: {满意度: {range: [-1, 1], weight: 1}, 时长: {range: [0, 10], better: low, weight: 1}}\n"
STRICT = (
    RULES
    + """
rules:
  - {id: 苛刻, when: {r: {signal: 'r.value < 0.6 && r.source == "满意度"'}}, then: {add: -0.5}}
"""
)


def told(world: Any, value: float) -> str:
    call = world.call()
    world.weaver.ingest(Signal("满意度", value, call))
    return call


def test_an_event_is_explained_with_its_versions(world: Any) -> None:
    world.rules(RULES)
    call = told(world, 0.5)
    first = world.weaver.weave(call)
    world.weaver.ingest(Signal("时长", 10, call))
    explained = world.weaver.explain(call)
    assert [each.value for each in explained.versions] == [0.5, -0.25]
    assert explained.versions[0] == first
    assert explained.versions[1] is explained.versions[-1]
    assert "# Reward -0.250000 (complete)" in str(explained)
    assert "## Versions" in str(explained)


def test_history_is_woven_anew_under_the_set_in_force(world: Any) -> None:
    world.rules(RULES)
    calls = [told(world, value) for value in (0.5, 0.9)]
    for call in calls:
        world.weaver.weave(call)
    world.rules(STRICT)
    assert [world.weaver.weave(call).value for call in calls] == [0.5, 0.9], "without new evidence, the record stands"
    changes = {change.event_id: change for change in world.weaver.reweave()}
    assert (changes[calls[0]].before, changes[calls[0]].after) == (500_000, 0)
    assert not changes[calls[1]].changes
    assert [world.weaver.weave(call).value for call in calls] == [0.0, 0.9]
    again = world.weaver.weave(calls[0])
    assert again.rule_set == world.weaver.rules.hash
    assert len(world.weaver.explain(calls[0]).versions) == 2
    world.weaver.reweave()
    assert len(world.weaver.explain(calls[0]).versions) == 2, "the same once more is no new version"


@pytest.mark.parametrize("as_path", [True, False])
def test_another_set_is_tried_and_nothing_is_kept(world: Any, as_path: bool) -> None:
    world.rules(RULES)
    call = told(world, 0.5)
    world.weaver.weave(call)
    rules: RuleSet | Any = compile_rule_text(STRICT)
    if as_path:
        rules = world.folder / "other.yaml"
        rules.write_text(STRICT, encoding="utf-8")
    (change,) = world.weaver.reweave(rules=rules)
    assert (change.before, change.after, change.session) == (500_000, 0, world.session)
    assert world.weaver.weave(call).value == 0.5


def test_where_and_since_choose_events(world: Any) -> None:
    world.rules(RULES)
    calls = [told(world, 0.5)]
    world.clock.advance(100)
    calls.append(told(world, 0.5))
    by_id = world.weaver.reweave(where=f'event.id == "{calls[0]}" && event.tool == "weather"')
    assert [change.event_id for change in by_id] == [calls[0]]
    assert world.weaver.reweave(where='event.tool == "other"') == []
    later = world.weaver.reweave(since=world.graph.node(calls[1]).created_at)
    assert [change.event_id for change in later] == [calls[1]]


def test_more_events_than_one_step_takes(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_infra.rewards.history.AT_ONCE", 3)
    world.rules(RULES)
    calls = [told(world, n / 10) for n in range(8)]
    assert len(world.weaver.reweave()) == 8
    assert [world.weaver.weave(call).micro for call in calls] == [n * 100_000 for n in range(8)]


def test_what_was_made_of_an_older_version_is_named(world: Any) -> None:
    world.rules(RULES)
    call, other = told(world, 0.5), told(world, 0.1)
    for each in (call, other):
        world.weaver.used(world.weaver.weave(each), "batch-7", "batch")
    assert world.weaver.outdated() == []
    world.weaver.ingest(Signal("时长", 10, call))
    newest = world.weaver.weave(call)
    (use,) = world.weaver.outdated()
    assert (use["by"], use["kind"], use["event_id"], use["newest"]) == ("batch-7", "batch", call, newest.cid)
    assert use["session"] == world.session


# -- verification ------------------------------------------------------------------------------------------------------


def test_what_was_not_touched_verifies(world: Any) -> None:
    world.rules(RULES)
    call = told(world, 0.5)
    world.weaver.weave(call)
    world.weaver.ingest(Signal("时长", 10, call))
    world.weaver.weave(call)
    checked = world.weaver.verify()
    assert (checked.ok, checked.records, checked.problems) == (True, 2, ())
    assert world.weaver.verify("别的").records == 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"micro": 900_000}, "its record was changed"),
        ({"contributions": [{"source": "满意度", "rule": None, "micro": 1}]}, "don't add up"),
        ({"previous": "bafyreigone"}, "is not there"),
    ],
)
def test_a_record_that_somebody_else_wrote_is_found(world: Any, change: dict[str, Any], said: str) -> None:
    world.rules(RULES)
    call = told(world, 0.5)
    reward = world.weaver.weave(call)
    forged = reward.record | change
    graph = StateGraph.of_system(world.home.engine, f"{world.session}/rewards", agent="nobody")
    with graph.step() as step:
        step.add_node("woven_reward", forged | {"cid": reward.cid}, key=f"reward/{call}")
    problems = world.weaver.verify().problems
    assert any(said in each for each in problems), problems


def test_ledgers_are_listed(world: Any) -> None:
    world.rules(RULES)
    told(world, 0.5)
    assert Ledger(world.home.engine, world.home.blobs).sessions() == [world.session]
