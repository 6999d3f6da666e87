"""The rule language beyond signals and sessions: groups and inserted facts, absence, everything that rules may read."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from agent_infra.errors import RuleErrors
from agent_infra.rewards import Event, compile_rule_text
from agent_infra.rewards.signals import KeptSignal
from agent_infra.rewards.weaving.contributions import Conclusion, conclude
from agent_infra.rewards.weaving.matching import Facts, near_misses

SOURCES = """
version: 1
sources:
  满意度: {range: [-1, 1], weight: 1}
  compliance_api: {range: [-1, 1]}
"""
EVENT = Event("e", "s", 1_000_000)
ACTION = {
    "name": "退款",
    "tool": "refund",
    "params": {"amount": 120},
    "status": "succeeded",
    "output": {"text": "抱歉"},
}
CONDITIONS = [{"phase": "pre", "source": "a > 1", "holds": True}, {"phase": "post", "source": "b", "holds": False}]
FACTS = Facts(
    session={"id": "s", "event_id": "e"},
    action=ACTION,
    conditions=CONDITIONS,
    evidence={"seconds": 4.5, "exit_code": 0},
    prompt_rules=[{"number": 7, "text": "补偿", "fired": False}, {"number": 8, "text": "道歉", "fired": True}],
    state={"nodes": {"user": {"level": 3}}},
)


def signal(source: str, value: float | None, at: int = 0, **fields: Any) -> KeptSignal:
    return KeptSignal(
        f"{source}/{value}/{at}", source, value, "e", "s", 1_000_000 + at * 1_000_000, 2_000_000, **fields
    )


GOOD = signal("满意度", 0.5)
BAD = signal("compliance_api", -0.4, priority="high")


def weave(rules: str, *signals: KeptSignal, facts: Facts = FACTS) -> Conclusion:
    return conclude(signals or (GOOD, BAD), compile_rule_text(SOURCES + rules), facts, EVENT)


def problems(rules: str) -> list[Any]:
    with pytest.raises(RuleErrors) as raised:
        compile_rule_text(SOURCES + rules, "规则.yaml")
    return list(raised.value.problems)


@pytest.mark.parametrize(
    ("when", "fires"),
    [
        ("a: {action: 'a.tool == \"refund\" && a.params.amount > 100'}", True),
        ("a: {action: 'a.status == \"failed\"'}", False),
        ("c: {condition: '!c.holds && c.phase == \"post\"'}", True),
        ("c: {condition: '!c.holds && c.phase == \"pre\"'}", False),
        ("e: {evidence: 'e.seconds > 3'}", True),
        ("p: {prompt_rule: 'p.number == 7 && !p.fired'}", True),
        ("p: {prompt_rule: 'p.number == 8 && !p.fired'}", False),
        ("r: {signal: 'r.value > 0 && state.nodes.user.level == 3'}", True),
        ("n: {not: {signal: 'n.source == \"compliance_api\"'}}", False),
        ("n: {not: {signal: 'n.value > 0.9'}}", True),
        ("n: {exists: {condition: 'n.holds'}}", True),
        ("n: {exists: {evidence: 'n.exit_code != 0'}}", False),
        ("r: {signal: 'r.source == \"满意度\"'}, n: {not: {signal: 'n.value < r.value - 2'}}", True),
        ("r: {signal: 'r.source == \"满意度\"'}, n: {not: {signal: 'n.value < r.value'}}", False),
    ],
)
def test_what_a_rule_may_ask(when: str, fires: bool) -> None:
    conclusion = weave(f"rules:\n  - {{id: x, when: {{{when}}}, then: {{flag: 是}}}}\n")
    assert conclusion.flags == (("是",) if fires else ())
    assert not conclusion.doubts


def test_exists_fires_once_however_many_there_are() -> None:
    rules = "rules: [{id: x, when: {n: {exists: {condition: 'n.phase != \"\"'}}}, then: {add: -0.1}}]\n"
    assert weave(rules).micro == 400_000


def test_an_event_of_which_nothing_is_known_has_no_such_facts() -> None:
    rules = "rules: [{id: x, when: {n: {not: {action: 'n.tool == \"refund\"'}}}, then: {flag: 无}}]\n"
    assert weave(rules, facts=Facts()).flags == ("无",)


INSERTS = """
groups: [facts, main, final]
rules:
  - id: escalated
    group: facts
    when: {r: {signal: 'r.source == "compliance_api" && r.value < 0'}}
    then: {insert: {kind: escalation, level: 'r.value * 2', 级别: 3}}
  - id: punish
    when: {e: {fact: {escalation: 'e.level < -0.5 && e["级别"] == 3'}}}
    then: {add: 'e.level'}
  - id: last
    group: final
    when: {n: {not: {fact: {escalation: 'n.level > 0'}}}}
    then: {scale: 0.5}
"""


def test_what_a_group_inserts_is_seen_by_later_groups() -> None:
    conclusion = weave(INSERTS)
    assert conclusion.micro == round((0.5 - 0.8) * 0.5 * 1e6)
    assert [(row.rule, row.micro) for row in conclusion.contributions] == [
        (None, 500_000),
        ("punish", -800_000),
        ("last", 150_000),
    ]
    (inserted,) = [fired for fired in conclusion.fired if fired.effect == "insert"]
    assert inserted.inserted == ({"kind": "escalation", "level": -0.8, "级别": 3},)


@pytest.mark.parametrize(
    ("change", "code", "line"),
    [
        (("group: facts", "group: main"), "InsertedTooLate", 14),
        (("group: facts", "group: final"), "InsertedTooLate", 14),
        (("{fact: {escalation: 'e.level", "{fact: {escalatoin: 'e.level"), "UnknownKind", 14),
        (("e.level < -0.5", "e.levle < -0.5"), "UnknownField", 14),
        (("group: final", "group: finall"), "UnknownGroup", 16),
        (("groups: [facts, main, final]\n", ""), "UnknownGroup", 8),
    ],
)
def test_groups_and_facts_that_cannot_be(change: tuple[str, str], code: str, line: int) -> None:
    found = problems(INSERTS.replace(*change))
    assert (code, line) in [(each.code, each.line) for each in found], found
    assert all(each.hint for each in found)


@pytest.mark.parametrize("quantifier", ["not", "exists"])
def test_absence_of_what_the_own_group_inserts_is_refused(quantifier: str) -> None:
    rules = f"""
rules:
  - {{id: a, when: {{r: {{signal: 'true'}}}}, then: {{insert: {{kind: 甲x, n: 'r.value'}}}}}}
  - {{id: b, when: {{n: {{{quantifier}: {{fact: {{甲x: 'n.n > 0'}}}}}}}}, then: {{add: 1}}}}
"""
    found = problems(rules.replace("甲x", "kind1"))
    assert [(each.code, each.line) for each in found] == [("InsertedTooLate", 9)]
    assert found[0].column > 1


def test_the_result_is_the_same_in_whatever_order_rules_stand() -> None:
    text = INSERTS.partition("rules:\n")
    rules = ["  - id:" + rule for rule in text[2].split("  - id:")[1:]]
    rules.append("  - {id: also, when: {c: {condition: '!c.holds'}}, then: {add: -0.05}}\n")
    made = [compile_rule_text(SOURCES + text[0] + text[1] + "".join(order)) for order in itertools.permutations(rules)]
    assert len({each.hash for each in made}) == 1
    concluded = [conclude(order, each, FACTS, EVENT) for each in made for order in ((GOOD, BAD), (BAD, GOOD))]
    assert len({(each.micro, each.contributions, each.fired) for each in map(_comparable, concluded)}) == 1


def _comparable(conclusion: Conclusion) -> Any:
    from dataclasses import replace

    fired = tuple(replace(each, inserted=(), place="") for each in conclusion.fired)
    return replace(conclusion, fired=fired)


def test_terms_that_fade_and_normalise() -> None:
    rules = """
version: 1
sources:
  快: {range: [0, 100], weight: 1, normal: {mean: 50, deviation: 10}}
  旧: {range: [-1, 1], weight: 1, decay: {half_life: 10s}}
"""
    made = compile_rule_text(rules)
    conclusion = conclude([signal("快", 65), signal("旧", -1, at=10)], made, FACTS, EVENT)
    assert conclusion.micro == round((1 * 0.5 - 0.5 * 1) / 1.5 * 1e6)
    assert conclude([signal("快", 99)], made, FACTS, EVENT).micro == 1_000_000, "cut at three deviations"
    plain = compile_rule_text(
        rules.replace(", normal: {mean: 50, deviation: 10}", "").replace(", decay: {half_life: 10s}", "")
    )
    assert plain.hash != made.hash


SOME = "sources: {a: {range: [0, 1]}}\n"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("sources: {a: {range: [0, 1], decay: {half_life: 0s}}}", "BadHalfLife"),
        ("sources: {a: {range: [0, 1], normal: {mean: 1, deviation: 0}}}", "NotOverZero"),
        ("sources: {a: {range: [0, 1], noise: -1}}", "NotOverZero"),
        ("sources: {a: {range: [0, 1], join: guess}}", "UnknownWord"),
        (SOME + "groups: [a, a]", "DuplicateGroup"),
        (SOME + "credit: {discount: 2}", "BadDiscount"),
        (
            SOME + "rules: [{id: x, when: {a: {action: 'a.tol == 1'}}, then: {add: 1}}]",
            "UnknownField",
        ),
        (
            SOME + "rules: [{id: x, when: {a: {not: {sginal: 'true'}}}, then: {add: 1}}]",
            "UnknownKey",
        ),
        (
            SOME + "rules: [{id: x, when: {a: {signal: 'true'}}, then: {insert: {level: 1}}}]",
            "MissingKind",
        ),
        (SOME + "rules: [{id: x, when: {state: {signal: 'true'}}, then: {add: 1}}]", "BadName"),
    ],
)
def test_what_cannot_be_said(text: str, code: str) -> None:
    with pytest.raises(RuleErrors) as raised:
        compile_rule_text("version: 1\n" + text)
    assert code in [each.code for each in raised.value.problems], raised.value


def test_a_gate_lets_nothing_good_through() -> None:
    gate = "rules: [{id: format, when: {c: {condition: '!c.holds'}}, then: {veto: 0}}]\n"
    assert weave(gate).micro == 0
    assert weave(gate, signal("满意度", -0.5)).micro == -500_000


def test_what_a_source_could_not_say_is_missing_and_not_zero() -> None:
    conclusion = weave("", signal("满意度", None, unscored="timeout 2s"))
    assert (conclusion.micro, conclusion.reason.code) == (None, "no_signal")
    assert conclusion.missing == ("满意度",)
    assert [each.left_out for each in conclusion.weighed] == ["unscored"]
    both = weave("", signal("满意度", None, at=9, unscored="timeout 2s"), GOOD)
    assert both.micro == 500_000, "a failed look does not take back what was seen"


def test_a_signal_that_was_taken_back_does_not_count() -> None:
    conclusion = weave("", GOOD, signal("满意度", -1, at=9, gone="withdrawn"))
    assert conclusion.micro == 500_000


# -- rules that nearly fired -----------------------------------------------------------------------------------------


def near(rules: str) -> list[tuple[str, str, dict[str, Any]]]:
    made = compile_rule_text(SOURCES + rules)
    conclusion = conclude((GOOD, BAD), made, FACTS, EVENT)
    return [
        (each.rule, each.name, dict(each.values)) for each in near_misses(made, conclusion.facts, conclusion.firing)
    ]


def test_a_rule_that_lacked_one_condition_is_told_with_what_it_read() -> None:
    rules = """
rules:
  - id: one
    when: {r: {signal: 'r.source == "compliance_api" && r.value < -0.5'}, a: {action: 'a.tool == "refund"'}}
    then: {add: -1}
  - id: two
    when: {r: {signal: 'r.source == "compliance_api" && r.value < -0.5'}, a: {action: 'a.tool == "pay"'}}
    then: {add: -1}
  - id: absent
    when: {n: {not: {condition: '!n.holds'}}}
    then: {add: 1}
  - id: fired
    when: {r: {signal: 'r.source == "compliance_api"'}}
    then: {add: 0}
"""
    found = near(rules)
    assert [(rule, name) for rule, name, _ in found] == [("absent", "n"), ("one", "r")]
    assert found[1][2] == {"r.source": "compliance_api", "r.value": -0.4}
