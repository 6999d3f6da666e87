"""The door: what is let in, what is refused and by which word, and what is a duplicate."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import pytest

from agent_infra.errors import DuplicateConflict, SignalRefused
from agent_infra.rewards import RewardWeaver, Signal, WeaverParts
from agent_infra.state import StateGraph

MORNING = datetime(2026, 1, 1, 8, tzinfo=UTC)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"value": math.nan}, "nan"),
        ({"value": math.inf}, "infinite"),
        ({"value": -math.inf}, "infinite"),
        ({"value": 10**400}, "infinite"),
        ({"value": "0.5"}, "not_a_number"),
        ({"value": True}, "not_a_number"),
        ({"value": None}, "not_a_number"),
        ({"value": 1.5}, "out_of_range"),
        ({"value": -1.0000001}, "out_of_range"),
        ({"source": "user_satisfacton"}, "unknown_source"),
        ({"source": None}, "unknown_source"),
        ({"event_id": None}, "empty_event"),
        ({"event_id": ""}, "empty_event"),
        ({"event_id": 7}, "empty_event"),
        ({"event_id": "no such event"}, "unknown_event"),
        ({"event_id": "01ARZ3NDEKTSV4RRFFQ69G5FAV"}, "unknown_event"),
        ({"session_id": "another session"}, "wrong_session"),
        ({"session_id": 7}, "bad_session"),
        ({"confidence": 1.1}, "bad_confidence"),
        ({"confidence": math.nan}, "bad_confidence"),
        ({"confidence": "high"}, "bad_confidence"),
        ({"at": datetime(2026, 1, 1)}, "bad_time"),
        ({"at": "2026-01-01"}, "bad_time"),
        ({"priority": 3}, "bad_priority"),
        ({"key": ""}, "bad_key"),
        ({"key": "\ud800"}, "bad_key"),
        ({"refs": {"ticket": 1}}, "bad_refs"),
        ({"refs": ["ticket"]}, "bad_refs"),
        ({"evidence": {"score": math.nan}}, "bad_evidence"),
        ({"evidence": {1, 2}}, "bad_evidence"),
        ({"evidence": {"$cid": "nothing"}, "value": 0.1}, None),
        ({"evidence": "字" * 400_000}, "evidence_too_large"),
        ({"evidence": b"x" * (1 << 20)}, None),
        ({"evidence": b"x" * (1 << 20) + b"x"}, "evidence_too_large"),
        ({"value": 1}, None),
        ({"value": -1}, None),
        ({"value": 0}, None),
    ],
)
def test_the_door(ruled: Any, changes: dict[str, Any], reason: str | None) -> None:
    fields: dict[str, Any] = {"source": "user_satisfaction", "value": 0.5, "event_id": ruled.call()}
    signal = Signal(**(fields | changes))
    if reason is None:
        assert ruled.weaver.ingest(signal).status == "accepted"
        return
    with pytest.raises(SignalRefused) as caught:
        ruled.weaver.ingest(signal)
    assert caught.value.facts["reason"] == reason
    assert caught.value.mend
    assert ruled.weaver.weave(fields["event_id"]).provenance == []


def test_a_reference_to_evidence_that_is_not_here_is_refused(ruled: Any) -> None:
    call = ruled.call()
    stored = ruled.home.blobs.put(b"%PDF", "application/pdf")
    assert ruled.weaver.ingest(Signal("user_satisfaction", 0.5, call, evidence=stored)).status == "accepted"
    absent = stored | {"$cid": "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy"}
    with pytest.raises(SignalRefused) as caught:
        ruled.weaver.ingest(Signal("user_satisfaction", 0.6, call, evidence=absent))
    assert caught.value.facts["reason"] == "unknown_evidence"


def test_a_misspelt_source_gets_a_suggestion(ruled: Any) -> None:
    with pytest.raises(SignalRefused, match="did you mean `user_satisfaction`"):
        ruled.weaver.ingest(Signal("user_satisfacton", 0.5, ruled.call()))


def test_without_rules_every_source_is_unknown(world: Any) -> None:
    with pytest.raises(SignalRefused) as caught:
        world.weaver.ingest(Signal("user_satisfaction", 0.5, world.call()))
    assert caught.value.facts["reason"] == "unknown_source"


def test_ledgers_and_system_sessions_hold_no_events(ruled: Any) -> None:
    receipt = ruled.weaver.ingest(Signal("user_satisfaction", 0.5, ruled.call()))
    schema = StateGraph.of_system(ruled.home.engine, "_registry").nodes(limit=1)[0]
    for event in (receipt.signal_id, schema.id):
        with pytest.raises(SignalRefused) as caught:
            ruled.weaver.ingest(Signal("user_satisfaction", 0.5, event))
        assert caught.value.facts["reason"] == "unknown_event"


# -- duplicates --------------------------------------------------------------------------------------------------------


def test_an_identical_resend_is_a_duplicate(ruled: Any) -> None:
    call = ruled.call()
    signal = Signal("user_satisfaction", 1, call, at=MORNING, evidence={"选项": "满意"}, refs={"ticket": "T-1"})
    first = ruled.weaver.ingest(signal)
    again = ruled.weaver.ingest(
        Signal("user_satisfaction", 1.0, call, at=MORNING, evidence={"选项": "满意"}, refs={"ticket": "T-1"})
    )
    assert (first.status, again.status) == ("accepted", "duplicate")
    assert again.signal_id == first.signal_id
    assert len(ruled.weaver.weave(call).provenance) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"value": 0.4},
        {"at": MORNING},
        {"confidence": 0.9},
        {"evidence": {"a": 1}},
        {"priority": "high"},
        {"refs": {"a": "b"}},
    ],
)
def test_any_other_body_is_another_signal(ruled: Any, change: dict[str, Any]) -> None:
    call = ruled.call()
    ruled.weaver.ingest(Signal("user_satisfaction", 0.5, call))
    fields: dict[str, Any] = {"source": "user_satisfaction", "value": 0.5, "event_id": call}
    assert ruled.weaver.ingest(Signal(**(fields | change))).status == "accepted"
    assert len(ruled.weaver.weave(call).provenance) == 2


def test_same_key_same_body_is_a_duplicate_and_other_body_a_conflict(ruled: Any) -> None:
    call, other = ruled.call(), ruled.call()
    ruled.weaver.ingest(Signal("user_satisfaction", 0.5, call, key="webhook-1"))
    assert ruled.weaver.ingest(Signal("user_satisfaction", 0.5, call, key="webhook-1")).status == "duplicate"
    for value, event in ((0.6, call), (0.5, other)):
        with pytest.raises(DuplicateConflict, match="webhook-1"):
            ruled.weaver.ingest(Signal("user_satisfaction", value, event, key="webhook-1"))
    assert ruled.weaver.ingest(Signal("compliance_api", 0.5, call, key="webhook-1")).status == "accepted"


def test_duplicates_are_known_after_reopening(ruled: Any) -> None:
    call = ruled.call()
    ruled.weaver.ingest(Signal("user_satisfaction", 0.5, call))
    parts = ruled.weaver.parts
    again = RewardWeaver(WeaverParts(parts.engine, parts.blobs, rules=parts.rules))
    assert again.ingest(Signal("user_satisfaction", 0.5, call)).status == "duplicate"


# -- kept --------------------------------------------------------------------------------------------------------------


def test_raw_evidence_is_kept_by_cid(ruled: Any) -> None:
    call = ruled.call()
    ruled.weaver.ingest(Signal("user_satisfaction", 0.5, call, evidence={"问卷": ["非常满意", 5]}))
    ruled.weaver.ingest(Signal("compliance_api", 0.5, call, evidence=b"<ok/>"))
    compliance, satisfaction = ruled.weaver.weave(call).provenance
    assert ruled.home.blobs.get_value(satisfaction["evidence"]["$cid"]) == {"问卷": ["非常满意", 5]}
    assert ruled.home.blobs.get(compliance["evidence"]["$cid"]) == b"<ok/>"
    assert "非常满意" in satisfaction["quote"]


def test_evidence_does_not_move_the_agents_head(ruled: Any) -> None:
    call = ruled.call()
    before = ruled.graph.version
    ruled.weaver.ingest(Signal("user_satisfaction", 0.5, call))
    ruled.weaver.weave(call)
    assert ruled.graph.version == before
    ledger = StateGraph.of_system(ruled.home.engine, f"{ruled.session}/rewards")
    assert {node.type for node in ledger.nodes()} == {"event", "signal", "woven_reward"}
    assert ledger.verify().ok


def test_a_signal_behind_the_lateness_is_kept_as_late_and_not_woven_in(ruled: Any) -> None:
    call = ruled.call()
    ruled.clock.advance(3600.5)
    late = ruled.weaver.ingest(Signal("response_latency", 3, call))
    assert late.status == "late"
    assert ruled.weaver.ingest(Signal("response_latency", 3, call)).status == "duplicate"
    ruled.weaver.ingest(Signal("user_satisfaction", 0.5, call))
    reward = ruled.weaver.weave(call)
    assert reward.micro == 500_000
    assert [row["left_out"] for row in reward.provenance] == ["late", None]
    assert late.signal_id not in reward.evidence
