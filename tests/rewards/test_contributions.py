"""What rule sets conclude: exact rows, no invented value, and the same answer in whatever order."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_infra.rewards import RuleSet, SourceTerms, compile_rule_text
from agent_infra.rewards.signals import KeptSignal
from agent_infra.rewards.weaving.contributions import Conclusion, conclude, largest_remainder
from agent_infra.rewards.weaving.matching import Facts

SESSION = {"id": "s1", "event_id": "e", "agent": "planner", "tool": "weather", "action": "get_weather"}
SOURCES = """version: 1
sources:
  satisfaction: {range: [-1, 1], weight: 0.7}
  latency: {range: [0, 30], better: low, weight: 0.3}
  compliance: {range: [-1, 1]}
"""


def signal(source: str, value: float, at: int = 1, **fields: Any) -> KeptSignal:
    kept = KeptSignal(f"{source}-{at}", source, value, "e", "s1", at, at)
    return replace(kept, **fields)


def rules(text: str = "", sources: str = SOURCES) -> RuleSet:
    return compile_rule_text(sources + text)


def told(text: str, *signals: KeptSignal) -> Conclusion:
    """The conclusion under one more piece of the rule file."""
    return conclude(signals, rules(text), Facts(session=SESSION))


def rows(conclusion: Conclusion) -> list[tuple[str | None, str | None, int]]:
    return [(row.source, row.rule, row.micro) for row in conclusion.contributions]


def rule(then: str, when: str = "{r: {signal: 'r.source == \"compliance\"'}}", id: str = "x", salience: int = 0) -> str:
    return f"  - {{id: {id}, salience: {salience}, when: {when}, then: {then}}}\n"


GOOD, FAST = signal("satisfaction", 0.5), signal("latency", 3)
BAD = signal("compliance", -0.2, priority="high")


# -- the base value ----------------------------------------------------------------------------------------------------


def test_the_linear_formula() -> None:
    conclusion = told("", GOOD, FAST)
    assert conclusion.micro == 590_000
    assert rows(conclusion) == [("latency", None, 240_000), ("satisfaction", None, 350_000)]
    assert conclusion.missing == ()


def test_a_missing_source_is_in_neither_sum_and_named() -> None:
    conclusion = told("", GOOD)
    assert (conclusion.micro, conclusion.missing) == (500_000, ("latency",))


def test_zero_is_a_value() -> None:
    conclusion = told("", signal("satisfaction", 0))
    assert (conclusion.micro, conclusion.reason) == (0, None)
    assert rows(conclusion) == [("satisfaction", None, 0)]


def test_confidence_weighs() -> None:
    sure, unsure = signal("satisfaction", 1), signal("latency", 30, confidence=0.5)
    assert told("", sure, unsure).micro == round((0.7 - 0.15) / 0.85 * 1e6)
    assert told("", replace(sure, confidence=0.0)).reason is not None


def test_the_newest_signal_of_a_source_by_event_time_counts() -> None:
    early, late = signal("satisfaction", -1, at=5, arrived=9), signal("satisfaction", 1, at=6, arrived=7)
    conclusion = told("", early, late)
    assert conclusion.micro == 1_000_000
    assert [(item.signal.value, item.left_out) for item in conclusion.weighed] == [(1, None), (-1, "superseded")]


def test_what_does_not_count_is_listed_with_the_reason() -> None:
    others = [signal("rumour", 1), signal("satisfaction", 7, at=3), signal("latency", 1, late=True)]
    conclusion = told("", GOOD, *others)
    assert conclusion.micro == 500_000
    left = {item.signal.source: item.left_out for item in conclusion.weighed if item.left_out}
    assert left == {"rumour": "undeclared", "satisfaction": "out_of_range", "latency": "late"}


# -- unscored ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "signals", "code", "detail"),
    [
        ("", [], "no_signal", ""),
        ("", [BAD], "no_value", ""),
        ("required: [satisfaction]\n", [FAST], "required_missing", "satisfaction"),
        ("required: [satisfaction]\n", [], "required_missing", "satisfaction"),
        ("rules:\n" + rule("{flag: hm}"), [BAD], "no_value", ""),
        ("rules:\n" + rule("{scale: 2}"), [BAD], "no_value", ""),
        ("rules:\n" + rule("{require: latency}"), [BAD, GOOD], "required_missing", "latency"),
        ("rules:\n" + rule("{add: 'r.priority'}"), [BAD, GOOD], "rule_failed", None),
        ("rules:\n" + rule("{add: 'r.value / 0.0'}"), [BAD, GOOD], "rule_failed", None),
        ("rules:\n" + rule("{add: 'r.refs.x * 2'}"), [BAD, GOOD], "rule_failed", None),
    ],
)
def test_no_value_and_no_row_but_a_reason(text: str, signals: list[KeptSignal], code: str, detail: str | None) -> None:
    conclusion = told(text, *signals)
    assert conclusion.micro is None
    assert conclusion.contributions == ()
    assert conclusion.reason is not None
    assert conclusion.reason.code == code
    assert detail is None or conclusion.reason.detail == detail


def test_without_rules_there_is_no_value() -> None:
    conclusion = conclude([GOOD], RuleSet(), Facts(session=SESSION))
    assert conclusion.reason is not None
    assert conclusion.reason.code == "no_rules"


# -- rules -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("then", "micro", "row"),
    [
        ("{add: 0.2}", 790_000, 200_000),
        ("{add: 'r.value * 2'}", 190_000, -400_000),
        ("{add: 9}", 1_000_000, 410_000),
        ("{scale: 0.5}", 295_000, -295_000),
        ("{override: 'r.value * 5'}", -1_000_000, -1_590_000),
        ("{override: 0}", 0, -590_000),
        ("{veto: true}", -1_000_000, -1_590_000),
        ("{veto: 0.1}", 100_000, -490_000),
    ],
)
def test_each_effect_and_its_row(then: str, micro: int, row: int) -> None:
    conclusion = told("rules:\n" + rule(then), GOOD, FAST, BAD)
    assert conclusion.micro == micro
    assert rows(conclusion)[2:] == [("compliance", "x", row)]


def test_a_veto_never_lifts() -> None:
    conclusion = told("rules:\n" + rule("{veto: 0.9}"), GOOD, FAST, BAD)
    assert conclusion.micro == 590_000
    assert len(rows(conclusion)) == 2
    assert [fired.rule for fired in conclusion.fired] == ["x"]


def test_stages_add_scale_override_veto() -> None:
    text = "rules:\n" + rule("{scale: 2}", id="s", salience=9) + rule("{add: 0.1}", id="a")
    assert told(text, signal("satisfaction", 0.1), BAD).micro == 400_000
    text += rule("{override: 0.8}", id="o", salience=-5) + rule("{veto: 0.7}", id="v", salience=-9)
    assert rows(told(text, signal("satisfaction", 0.1), BAD)) == [
        ("satisfaction", None, 100_000),
        ("compliance", "a", 100_000),
        ("compliance", "s", 200_000),
        ("compliance", "o", 400_000),
        ("compliance", "v", -100_000),
    ]


def test_the_first_override_by_salience_then_id_wins() -> None:
    low, high, twin = rule("{override: 0.1}", id="a"), rule("{override: 0.2}", id="c", salience=1), ""
    assert told("rules:\n" + low + high, GOOD, BAD).micro == 200_000
    twin = rule("{override: 0.3}", id="b", salience=1)
    assert told("rules:\n" + low + high + twin, GOOD, BAD).micro == 300_000


def test_clipping_within_a_stage_does_not_depend_on_the_order() -> None:
    """Adds of +0.8, +0.8 and -0.8 come to +0.8, whichever is first."""
    amounts = {"a": 0.8, "b": 0.8, "c": -0.8}
    for order in itertools.permutations(amounts):
        text = "rules:\n" + "".join(rule(f"{{add: {amounts[id]}}}", id=f"r{place}") for place, id in enumerate(order))
        assert told(text, BAD).micro == 800_000


def test_the_base_value_is_clipped_in_a_row_of_its_own() -> None:
    conclusion = told("clip: [0, 1]\n", signal("satisfaction", -0.4))
    assert conclusion.micro == 0
    assert rows(conclusion) == [("satisfaction", None, -400_000), (None, "clip", 400_000)]


def test_add_sums_over_matches_and_joins_bind_every_combination() -> None:
    pairs = "{a: {signal: 'a.normal > 0'}, b: {signal: 'b.source != a.source && b.confidence >= a.confidence'}}"
    conclusion = told("rules:\n" + rule("{add: 0.01}", pairs), GOOD, FAST, signal("compliance", 1))
    assert conclusion.fired[0].matches == 6
    assert rows(conclusion)[-1] == (None, "x", 60_000)


def test_rules_read_the_session_and_what_was_done() -> None:
    joined = "{r: {signal: 'r.session_id == \"s1\"'}, s: {session: 's.id == r.session_id && s.tool == \"weather\"'}}"
    assert told("rules:\n" + rule("{add: 0.1}", joined), GOOD).micro == 600_000
    elsewhere = joined.replace('"weather"', '"search"')
    assert told("rules:\n" + rule("{add: 0.1}", elsewhere), GOOD).micro == 500_000


def test_an_override_takes_the_newest_match() -> None:
    any_signal = "{r: {signal: 'r.value > -2'}}"
    first, second = signal("satisfaction", 0.5, at=1), signal("compliance", 0.25, at=2)
    assert told("rules:\n" + rule("{override: r.value}", any_signal), first, second).micro == 250_000
    assert told("rules:\n" + rule("{override: r.value}", any_signal), replace(first, at=3), second).micro == 500_000


def test_a_condition_that_cannot_be_evaluated_does_not_hold_and_is_told() -> None:
    conclusion = told("rules:\n" + rule("{add: 1}", "{r: {signal: 'r.priority > 3'}}"), BAD, GOOD)
    assert conclusion.micro == 500_000
    assert len(conclusion.doubts) == 2
    assert all(doubt.startswith("rule x, `r`: ") for doubt in conclusion.doubts)


def test_flags_are_kept() -> None:
    assert told("rules:\n" + rule("{flag: '高优先级投诉'}"), BAD, GOOD).flags == ("高优先级投诉",)


# -- conflicts ---------------------------------------------------------------------------------------------------------


def test_conflicts_and_who_decided() -> None:
    timely, unhappy = signal("latency", 4.5), signal("satisfaction", -0.4)
    conflict = told("", timely, unhappy).conflicts[0]
    assert (conflict.high, conflict.low, conflict.kind) == ("latency", "satisfaction", "opposite")
    assert (round(conflict.high_value, 6), conflict.low_value, conflict.resolved_by) == (0.7, -0.4, None)
    decided = told("rules:\n" + rule("{override: -1}"), timely, unhappy, BAD)
    assert {conflict.resolved_by for conflict in decided.conflicts} == {"x"}


def test_no_conflict_of_the_unsure_or_the_unclear() -> None:
    assert told("", signal("latency", 3, confidence=0.4), signal("satisfaction", -0.9)).conflicts == ()
    assert told("", signal("latency", 14.9), signal("satisfaction", -0.05)).conflicts == ()


def test_far_apart_is_a_conflict_too() -> None:
    assert [c.kind for c in told("", signal("latency", 14.9), signal("satisfaction", -1)).conflicts] == ["far_apart"]


# -- order and exactness -----------------------------------------------------------------------------------------------


def test_all_24_orders_of_4_rules_and_of_the_signals_conclude_the_same() -> None:
    four = [
        rule("{add: 0.31}", id="bonus"),
        rule("{scale: 0.7}", id="damp"),
        rule("{override: 'r.value'}", "{r: {signal: 'r.value < 0.4'}}", id="replace", salience=3),
        rule("{veto: 0.05}", id="cap"),
    ]
    signals = [GOOD, FAST, BAD, signal("satisfaction", 0.3, at=2)]
    expected = told("rules:\n" + "".join(four), *signals)
    expected_hash = rules("rules:\n" + "".join(four)).hash
    for order, seen in zip(itertools.permutations(four), itertools.permutations(signals), strict=True):
        assert rules("rules:\n" + "".join(order)).hash == expected_hash
        found = told("rules:\n" + "".join(order), *seen)
        assert replace(found, fired=()) == replace(expected, fired=())
        assert [replace(fired, place="") for fired in found.fired] == [
            replace(fired, place="") for fired in expected.fired
        ]


numbers = st.floats(-1, 1)
effects = st.sampled_from(["add", "scale", "override", "veto"])


@given(st.data())
def test_the_rows_add_up_to_the_value_exactly_in_any_order(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 6))
    terms = {
        f"s{index}": SourceTerms(f"s{index}", -1, 1, weight=data.draw(st.floats(0.001, 1000))) for index in range(count)
    }
    low = data.draw(st.floats(-3, 0))
    chosen = data.draw(st.lists(st.tuples(effects, st.floats(-3, 3)), max_size=5))
    text = (
        SOURCES
        + "rules:\n"
        + "".join(
            rule(f"{{{kind}: {amount!r}}}", "{r: {signal: 'true'}}", id=f"r{place}")
            for place, (kind, amount) in enumerate(chosen)
        )
    )
    made = compile_rule_text(text if chosen else SOURCES)
    made = replace(made, sources=terms, clip=(low, low + data.draw(st.floats(0.001, 3))))
    signals = [signal(name, data.draw(numbers), confidence=data.draw(st.floats(0, 1))) for name in terms]
    conclusion = conclude(signals, made, Facts(session=SESSION))
    if conclusion.micro is None:
        assert conclusion.contributions == ()
        assert conclusion.reason is not None
    else:
        assert sum(row.micro for row in conclusion.contributions) == conclusion.micro
        assert round(made.clip[0] * 1e6) <= conclusion.micro <= round(made.clip[1] * 1e6)
    random.Random(data.draw(st.integers(0, 9))).shuffle(signals)
    assert conclude(signals, made, Facts(session=SESSION)) == conclusion


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=20))
def test_largest_remainder_is_exact_and_fair(shares: list[float]) -> None:
    total = round(sum(shares) * 1e6)
    micros = largest_remainder(shares, total)
    assert sum(micros) == total
    assert all(abs(micro - share * 1e6) <= 1.000001 for micro, share in zip(micros, shares, strict=True))
