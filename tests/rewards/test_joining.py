"""How a signal finds its event: by id, by business keys, by time; what waits, what is corrected, and what can't come in."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from agent_infra.clock import to_datetime
from agent_infra.errors import DuplicateConflict, SignalRefused
from agent_infra.rewards import RewardWeaver, Signal, WeaverParts
from agent_infra.state import StateGraph, open_home

RULES = """
version: 1
window: 30s
sources:
  满意度: {range: [-1, 1], weight: 1, lateness: 24h}
  工单: {range: [0, 10], better: low, weight: 1, lateness: 1h}
  钟: {range: [-1, 1], weight: 1, join: session}
"""
T = {"ticket": "T-8841"}


def refer(world: Any, call: str | None = None, **refs: str) -> str:
    """A call whose step refers to business keys."""
    with world.graph.step() as step:
        data = {"action": "a", "contract": "c", "tool": "t", "tool_version": "1", "params": {}, "effects": "none",
                "idempotency_key": "k"}  # fmt: skip
        node = step.add_node("call", data, tool="t")
        for kind, value in refs.items():
            step.refer(kind, value)
    return node.id


def reason(error: Any) -> str:
    return error.value.facts["reason"]


def test_a_business_key_leads_to_the_event(world: Any) -> None:
    world.rules(RULES)
    call = refer(world, ticket="T-8841")
    world.call()
    receipt = world.weaver.ingest(Signal("满意度", 0.5, refs=T))
    assert receipt.status == "accepted"
    reward = world.weaver.weave(call)
    assert reward.value == 0.5
    (row,) = reward.provenance
    assert row["joined"] == "refs"
    assert "joined by business key" in reward.report()


def test_it_waits_until_somebody_refers_to_it(world: Any) -> None:
    world.rules(RULES)
    assert world.weaver.ingest(Signal("满意度", 0.5, refs=T)).status == "waiting"
    assert world.weaver.ingest(Signal("满意度", 0.5, refs=T)).status == "waiting", "twice is once"
    (waiting,) = world.weaver.waiting_signals()
    assert (waiting.source, waiting.refs, waiting.value) == ("满意度", T, 0.5)
    assert "nothing refers to ticket T-8841 yet" in waiting.why
    call = refer(world, ticket="T-8841")
    assert world.weaver.weave(call).value == 0.5
    assert world.weaver.waiting_signals() == []
    assert world.weaver.ingest(Signal("满意度", 0.5, refs=T)).status == "duplicate"
    assert len(world.weaver.weave(call).provenance) == 1


def test_what_waits_survives_a_restart(tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES, encoding="utf-8")
    home = open_home(tmp_path / "home")
    weaver = RewardWeaver(WeaverParts(home.engine, home.blobs))
    weaver.load_rules(rules)
    weaver.ingest(Signal("满意度", 0.5, refs=T, evidence="很好 ✓".encode(), key="q1"))
    home.close()
    home = open_home(tmp_path / "home")
    weaver = RewardWeaver(WeaverParts(home.engine, home.blobs))
    weaver.load_rules(rules)
    graph = StateGraph("s", engine=home.engine)
    with graph.step() as step:
        goal = step.add_node("goal", {"name": "g", "goal_id": "g", "definition": {}, "status": "running"})
        step.refer("ticket", "T-8841")
    (row,) = weaver.weave(goal.id).provenance
    assert home.blobs.get(row["evidence"]["$cid"]) == "很好 ✓".encode()
    home.close()


def test_a_key_that_waits_with_another_body_is_a_conflict(world: Any) -> None:
    world.rules(RULES)
    world.weaver.ingest(Signal("满意度", 0.5, refs=T, key="q1"))
    with pytest.raises(DuplicateConflict, match="waits for its event"):
        world.weaver.ingest(Signal("满意度", 0.6, refs=T, key="q1"))


def test_what_waited_too_long_is_a_dead_letter(world: Any) -> None:
    world.rules(RULES)
    world.weaver.ingest(Signal("工单", 5, refs=T))
    world.clock.advance(3601)
    assert world.weaver.waiting_signals() == []
    (letter,) = world.weaver.dead_letters()
    assert (letter.source, letter.reason, letter.signal) == ("工单", "unmatched", True)


@pytest.mark.parametrize(("rule", "joined"), [("newest", 1), ("oldest", 0), ("wait", None), ("refuse", None)])
def test_ambiguity_follows_the_declared_rule(world: Any, rule: str, joined: int | None) -> None:
    world.rules(RULES.replace("weight: 1, lateness: 24h", f"weight: 1, lateness: 24h, ambiguous: {rule}"))
    calls = [refer(world, ticket="T-8841")]
    world.clock.advance(1)
    calls.append(refer(world, ticket="T-8841"))
    if rule == "refuse":
        with pytest.raises(SignalRefused, match="2 events refer") as raised:
            world.weaver.ingest(Signal("满意度", 0.5, refs=T))
        assert reason(raised) == "ambiguous"
        return
    receipt = world.weaver.ingest(Signal("满意度", 0.5, refs=T))
    if joined is None:
        assert receipt.status == "waiting"
        assert "2 events refer" in receipt.reason
    else:
        assert [world.weaver.weave(call).value for call in calls] == [0.5 if n == joined else None for n in range(2)]


def test_several_keys_narrow_it_down(world: Any) -> None:
    world.rules(RULES)
    refer(world, ticket="T-8841", customer="王")
    wanted = refer(world, ticket="T-8841", customer="李")
    world.weaver.ingest(Signal("满意度", 0.5, refs={**T, "customer": "李", "channel": "email"}))
    assert world.weaver.weave(wanted).value == 0.5


def test_a_session_that_refers_to_a_key(world: Any) -> None:
    world.rules(RULES)
    call = world.call()
    with world.graph.step() as step:
        step.refer("ticket", "T-8841")
    world.weaver.ingest(Signal("满意度", 0.5, refs=T))
    assert world.weaver.weave(call).value == 0.5


# -- by time -----------------------------------------------------------------------------------------------------------


def test_only_a_source_that_declares_it_is_joined_by_time_and_the_report_says_so(world: Any) -> None:
    world.rules(RULES)
    call = world.call()
    world.clock.advance(10)
    with pytest.raises(SignalRefused, match="names no event") as raised:
        world.weaver.ingest(Signal("满意度", 0.5, session_id=world.session))
    assert reason(raised) == "empty_event"
    world.weaver.ingest(Signal("钟", 0.5, session_id=world.session))
    reward = world.weaver.weave(call)
    assert [row["joined"] for row in reward.provenance] == ["window"]
    assert "joined by session and time window" in reward.report()
    world.clock.advance(30)
    with pytest.raises(SignalRefused, match="no event in the 30 s") as raised:
        world.weaver.ingest(Signal("钟", 0.4, session_id=world.session))
    assert reason(raised) == "no_event_in_window"


def test_equal_requests_get_equal_rewards_by_id_and_not_by_time(world: Any) -> None:
    """Two equal requests; the second's satisfaction comes 17 s late, when the first one's window is still open."""
    world.rules(RULES.replace("  工单: {range: [0, 10], better: low, weight: 1, lateness: 1h}\n", ""))
    values = {}
    for name in ("满意度", "钟"):
        first = world.call()
        world.clock.advance(5)
        second = world.call()
        for event, value, wait in ((second, 1.0, 0), (first, 1.0, 17)):
            world.clock.advance(wait)
            by_id = {"event_id": event} if name == "满意度" else {"session_id": world.session}
            world.weaver.ingest(Signal(name, value, **by_id, key=f"{name}{event}"))
        values[name] = [world.weaver.weave(event).value for event in (first, second)]
        world.clock.advance(60)
    assert values["满意度"] == [1.0, 1.0]
    assert values["钟"] == [None, 1.0], "by time, the first one's evidence went to the second"


# -- corrections and withdrawals ---------------------------------------------------------------------------------------


def test_a_source_corrects_a_signal_by_name(world: Any) -> None:
    world.rules(RULES)
    call = world.call()
    world.weaver.ingest(Signal("满意度", -1, call, key="q1"))
    before = world.weaver.weave(call)
    world.weaver.ingest(Signal("满意度", 0.5, call, key="q1/2", corrects="q1"))
    after = world.weaver.weave(call)
    assert (before.value, after.value) == (-1, 0.5)
    assert after.version != before.version
    assert after.record["previous"] == before.cid
    assert [row["left_out"] for row in after.provenance if row["value"] == -1] == ["corrected"]
    with pytest.raises(SignalRefused, match="no signal with the key 'q9'") as raised:
        world.weaver.ingest(Signal("满意度", 0.5, call, key="q1/3", corrects="q9"))
    assert reason(raised) == "unknown_correction"


def test_a_source_takes_a_signal_back(world: Any) -> None:
    world.rules(RULES)
    call = world.call()
    world.weaver.ingest(Signal("满意度", -1, call, key="q1"))
    world.weaver.ingest(Signal("工单", 0, call))
    before = world.weaver.weave(call)
    assert world.weaver.withdraw("满意度", "q1", "填错了").status == "accepted"
    assert world.weaver.withdraw("满意度", "q1", "填错了").status == "duplicate"
    after = world.weaver.weave(call)
    assert (before.value, after.value) == (0, 1)
    assert "满意度" in after.missing
    with pytest.raises(SignalRefused) as raised:
        world.weaver.withdraw("满意度", "q2", "?")
    assert reason(raised) == "unknown_signal"


def test_a_key_is_taken_in_all_sessions(world: Any) -> None:
    world.rules(RULES)
    call = world.call()
    world.weaver.ingest(Signal("满意度", 1, call, key="q1"))
    with world.home.engine and StateGraph("别的", engine=world.home.engine).step() as step:
        other = step.add_node("goal", {"name": "g", "goal_id": "g", "definition": {}, "status": "running"})
    with pytest.raises(DuplicateConflict):
        world.weaver.ingest(Signal("满意度", 1, other.id, key="q1"))


# -- no value ----------------------------------------------------------------------------------------------------------


def test_a_source_that_could_give_no_value_is_missing_with_its_reason(world: Any) -> None:
    world.rules(RULES.replace("  钟: {range: [-1, 1], weight: 1, join: session}\n", "required: [满意度]\n"))
    call = world.call()
    world.weaver.ingest(Signal("满意度", None, call, unscored="timeout 2s"))
    world.weaver.ingest(Signal("工单", 5, call))
    reward = world.weaver.weave(call, wait=20)
    assert (reward.value, reward.status, reward.missing) == (None, "unscored", ["满意度"])
    assert "`满意度` (it gave none: `timeout 2s`)" in reward.report()
    world.weaver.ingest(Signal("满意度", 1, call))
    assert world.weaver.weave(call).value == 0.5


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"value": 1, "unscored": "why"}, "bad_unscored"),
        ({"value": None, "unscored": " "}, "bad_unscored"),
        ({"value": None}, "not_a_number"),
        ({"value": 1, "corrects": ""}, "bad_corrects"),
    ],
)
def test_what_the_door_refuses(world: Any, fields: dict[str, Any], word: str) -> None:
    world.rules(RULES)
    with pytest.raises(SignalRefused) as raised:
        world.weaver.ingest(Signal("满意度", **{"event_id": world.call(), **fields}))
    assert reason(raised) == word


# -- dead letters ------------------------------------------------------------------------------------------------------


def test_what_a_source_delivers_and_is_refused_can_be_tried_again(world: Any) -> None:
    world.rules(RULES)
    call = world.call()
    bad = Signal("新来源", 0.5, call, at=datetime(2026, 1, 1, tzinfo=UTC), evidence=b"\x00raw")
    with pytest.raises(SignalRefused):
        world.weaver.ingest(bad)
    assert world.weaver.dead_letters() == [], "who is told by an exception needs no letter"
    with pytest.raises(SignalRefused):
        world.weaver.intake.deliver(bad)
    (letter,) = world.weaver.dead_letters()
    assert (letter.source, letter.reason) == ("新来源", "unknown_source")
    with pytest.raises(SignalRefused):
        world.weaver.retry(letter.id)
    assert len(world.weaver.dead_letters()) == 1
    world.rules(RULES + "  新来源: {range: [-1, 1], weight: 1}\n")
    assert world.weaver.retry(letter.id).status == "accepted"
    assert world.weaver.dead_letters() == []
    (row,) = world.weaver.weave(call).provenance
    assert world.home.blobs.get(row["evidence"]["$cid"]) == b"\x00raw"


def test_what_could_not_become_a_signal_is_kept_as_it_came(world: Any) -> None:
    world.weaver.intake.bury("日志", "no_json", b"{broken")
    (letter,) = world.weaver.dead_letters()
    assert (letter.reason, letter.signal) == ("no_json", False)
    assert world.home.blobs.get(letter.raw["$raw"]["$cid"]) == b"{broken"
    assert world.weaver.retry(letter.id) is None


# -- watermarks --------------------------------------------------------------------------------------------------------


def test_a_source_that_lags_behind_is_waited_for_and_its_signals_are_not_late(world: Any) -> None:
    world.rules(RULES)
    call = world.call()
    begun = world.clock.micros()
    world.weaver.ingest(Signal("满意度", 1, call))
    world.weaver.ingest(Signal("钟", 1, call))
    world.weaver.intake.advance("工单", begun)
    world.clock.advance(3 * 3600)
    assert world.weaver.weave(call).status == "waiting", "its queue is behind, whatever the clock says"
    receipt = world.weaver.ingest(Signal("工单", 0, call, at=to_datetime(begun) + timedelta(minutes=5)))
    assert receipt.status == "accepted"
    assert world.weaver.weave(call).status == "complete"


def test_a_watermark_beyond_the_lateness_closes(world: Any) -> None:
    world.rules(RULES)
    call = world.call()
    world.weaver.ingest(Signal("满意度", 1, call))
    world.weaver.ingest(Signal("钟", 1, call))
    world.weaver.intake.advance("工单", world.clock.micros())
    assert world.weaver.weave(call).awaiting == ["工单"]
    world.clock.advance(2 * 3600)
    world.weaver.intake.advance("工单", world.clock.micros())
    world.weaver.intake.advance("工单", 1)
    reward = world.weaver.weave(call)
    assert (reward.status, reward.awaiting, reward.missing) == ("closed", [], ["工单"])
    assert world.weaver.ingest(Signal("工单", 0, call)).status == "late"
