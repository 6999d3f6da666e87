"""Rules in Drools' language: the same rules as in YAML, and a problem with its place for all that is not read."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_infra.errors import RuleErrors
from agent_infra.rewards import Event, RuleSet, compile_rule_text, compile_rules
from agent_infra.rewards.rules.drl import read_drl
from agent_infra.rewards.signals import KeptSignal
from agent_infra.rewards.weaving.contributions import conclude
from agent_infra.rewards.weaving.matching import Facts

SOURCES = """
version: 1
sources:
  user_satisfaction: {range: [-1, 1], weight: 0.7}
  compliance_api: {range: [-1, 1]}
"""
YAML = """
rules:
  - id: compliance_override
    salience: 100
    when:
      r: {signal: 'r.source == "compliance_api" && r.value < 0 && r.priority == "high"'}
      s: {session: 's.id == r.session_id'}
    then: {override: 'r.value * 5'}
"""
DRL = """
package com.example.rewards;
import com.example.rewards.model.*;

// 高优先级投诉覆盖一切
rule "High-priority compliance complaint"
    salience 100
when
    $r: Reward(source == "compliance_api", value < 0, priority == "high")
    $s: Session(session_id == $r.session_id)
then
    insert(new WovenReward($r.value * 5, "compliance_override", $r.provenance));
end
"""
EVENT = Event("e", "s", 0)
BAD = KeptSignal("2", "compliance_api", -0.1, "e", "s", 1, 2, priority="high", evidence={"$cid": "bafy"})
GOOD = KeptSignal("1", "user_satisfaction", 0.8, "e", "s", 1, 2)
FACTS = Facts(session={"id": "s", "event_id": "e", "agent": "客服", "tool": "refund", "action": "退款"})


def made(tmp_path: Path, drl: str, yaml: str = SOURCES) -> RuleSet:
    (tmp_path / "来源.yaml").write_text(yaml, encoding="utf-8")
    (tmp_path / "规则.drl").write_text(drl, encoding="utf-8")
    return compile_rules(tmp_path)


def rule(when: str, then: str = 'insert(new WovenReward(-1, "x"));', head: str = "") -> str:
    return f'rule "一"{head} when {when} then {then} end\n'


def test_the_same_rules_have_the_same_hash_and_result(tmp_path: Path) -> None:
    drl, yaml = made(tmp_path, DRL), compile_rule_text(SOURCES + YAML)
    assert drl.hash == yaml.hash
    assert not drl.warnings
    concluded = [conclude([GOOD, BAD], each, FACTS, EVENT) for each in (drl, yaml)]
    assert concluded[0].micro == concluded[1].micro == -500_000
    assert concluded[0].contributions == concluded[1].contributions


def test_the_rule_on_one_line(tmp_path: Path) -> None:
    one_line = " ".join(line.strip() for line in DRL.split("\n") if "//" not in line)
    assert made(tmp_path, one_line).hash == compile_rule_text(SOURCES + YAML).hash


@pytest.mark.parametrize(
    ("when", "fires"),
    [
        ('$r: Reward(source == "compliance_api" && value < 0)', True),
        ('$r: Reward(source == "compliance_api", value > 0 || priority == "high")', True),
        ('$r: Reward(value > 0 || priority == "high", source == "nobody")', False),
        ('Reward(priority in ("high", "urgent"))', True),
        ('Reward(source == "compliance_api", priority not in ("high", "urgent"))', False),
        ('Reward(source matches "compliance.*")', True),
        ('Reward(source matches "compliance")', False),
        ('Reward(source not matches "[a-z]+_.*")', False),
        ('Reward(source contains "api")', True),
        ('Reward(source not contains "api", value < 0)', False),
        ("Reward(priority == null, value > 0.5)", True),
        ('not Reward(source == "nobody")', True),
        ('not (Reward(source == "compliance_api"))', False),
        ('exists Reward(value < 0) Session(agent == "客服")', True),
        ("$a: Reward(value > 0) $b: Reward(value < $a.value - 0.5)", True),
        ("$a: Reward($v: value, value > 0) Reward(value == $v)", True),
        ("$a: Reward($v: value > 0.9) Reward(value == $v)", False),
        ("Reward(value * 2 + 1 > 2.5)", True),
        ('Reward(-value > 0.05, !(priority == "low"))', True),
        ("Reward(value < -0.05)", True),
        ('Reward(provenance == "bafy")', True),
        ("Session(action == \"退款\", tool == 'refund')", True),
        ("$奖励: Reward(value < 0) Session(session_id == $奖励.session_id)", True),
    ],
)
def test_what_a_rule_may_ask(tmp_path: Path, when: str, fires: bool) -> None:
    conclusion = conclude([GOOD, BAD], made(tmp_path, rule(when)), FACTS, EVENT)
    assert not conclusion.doubts
    assert conclusion.micro == (-1_000_000 if fires else 800_000)


FACT = """
declare Escalation
    level : double
    why : String
end
rule "escalated" agenda-group "facts" when
    $r: Reward(value < 0)
then insert(new Escalation($r.value * 2, "投诉")); end
rule "punished" no-loop true when
    $e: Escalation(level < 0, why == "投诉")
then insert(new WovenReward($e.level, "punished")); end
"""


def test_facts_that_rules_insert(tmp_path: Path) -> None:
    rules = made(tmp_path, FACT, SOURCES + "groups: [facts, main]\n")
    assert conclude([GOOD, BAD], rules, FACTS, EVENT).micro == -200_000
    twin = """
groups: [facts, main]
rules:
  - {id: escalated, group: facts, when: {r: {signal: 'r.value < 0'}},
     then: {insert: {kind: Escalation, level: 'r.value * 2', why: '"投诉"'}}}
  - {id: punished, when: {e: {fact: {Escalation: 'e.level < 0 && e.why == "投诉"'}}}, then: {override: 'e.level'}}
"""
    assert rules.hash == compile_rule_text(SOURCES + twin).hash


@pytest.mark.parametrize(
    ("drl", "code", "place", "said"),
    [
        (rule("Reward()", "System.exit(0);"), "DrlSyntax", (1, 29), "insert(new WovenReward"),
        (rule("$r: Reward()", "modify($r) { setValue(1) };"), "DrlSyntax", (1, 33), "`modify`"),
        (rule("Reward()", "update($r);"), "DrlSyntax", (1, 29), "`update`"),
        (rule("eval(true)"), "UnknownType", None, "eval"),
        (rule("Number() from accumulate(Reward(), sum(1))"), "DrlSyntax", (1, 29), "`accumulate`"),
        (rule("Reward(value >)"), "DrlSyntax", (1, 29), "`)`"),
        ("function int f() { return 1; }\n" + rule("Reward()"), "DrlSyntax", (1, 1), "`function`"),
        ("\n\n" + rule("Reward(valeu < 0)"), "UnknownField", (3, 22), "did you mean `value`"),
        (rule("Rewrd(value < 0)"), "UnknownType", (1, 15), "did you mean `Reward`"),
        (rule("Reward(value < $x)"), "UnknownName", (1, 30), "not bound"),
        (rule("$r: Reward() $r: Session()"), "DuplicateName", (1, 28), "bound already"),
        (rule("Reward()", "insert(new Nothing(1));"), "UnknownType", None, "Nothing"),
        (rule("Reward()", "insert(new WovenReward());"), "WrongCount", None, "one to three"),
        (rule("Reward()", "insert(new WovenReward(1, 2));"), "WrongType", None, "in quotes"),
        (rule("Reward()", ""), "MissingThen", (1, 6), "does nothing"),
        (rule(""), "MissingWhen", (1, 6), "never fire"),
        (rule("Reward()").removesuffix("end\n"), "DrlSyntax", None, "doesn't end"),
        (rule("Reward(value < 0 < 1)"), "DrlSyntax", None, "`<`"),
        (rule("Reward()", head=' agenda-group "later"'), "UnknownGroup", (1, 6), "later"),
        (rule("Reward()") + rule("Session()"), "DuplicateRule", (2, 6), "already"),
        ("// 空\n", "EmptyFile", (1, None), "no rule"),
    ],
)
def test_what_is_not_read_is_refused_at_its_place(
    tmp_path: Path, drl: str, code: str, place: tuple[int, int] | None, said: str
) -> None:
    with pytest.raises(RuleErrors) as raised:
        made(tmp_path, drl)
    (problem,) = raised.value.problems
    assert (problem.code, Path(problem.file or "").name) == (code, "规则.drl"), problem
    assert place is None or (problem.line, problem.column) == place, problem
    assert said in str(problem)
    assert place is None or problem.column is None or problem.source == drl.split("\n")[place[0] - 1]


def test_every_bad_rule_of_a_file_is_told(tmp_path: Path) -> None:
    bad = rule("Reward()", "System.exit(0);") + DRL + rule("Reward(x == 1)") + rule("Reward(value >)")
    with pytest.raises(RuleErrors) as raised:
        made(tmp_path, bad)
    assert [(each.code, each.line) for each in raised.value.problems] == [
        ("DrlSyntax", 1), ("UnknownField", 15), ("DrlSyntax", 16),
    ]  # fmt: skip


def test_a_product_that_is_always_zero_is_warned_of(tmp_path: Path) -> None:
    drl = rule('$r: Reward(source == "compliance_api", value == 0)', 'insert(new WovenReward($r.value * 5, "x"));')
    rules = made(tmp_path, drl)
    (warning,) = rules.warnings
    assert (warning.code, warning.line) == ("ZeroTimes", 1)
    assert not made(tmp_path, drl.replace("value == 0", "value < 0")).warnings


def test_names_in_quotes_and_comments_are_no_rules() -> None:
    found = read_drl(
        '/* rule "x" when */ rule "the end of a rule" // end\nwhen Reward() then insert(new WovenReward(1)); end'
    )
    assert [each.id for each in found.rules] == ["the end of a rule"]
    assert not found.problems


def test_what_a_file_of_many_rules_costs_is_bounded(tmp_path: Path) -> None:
    many = "".join(rule(f"Reward(value < {n}.5)", f'insert(new WovenReward({n}, "r{n}"));') for n in range(50))
    assert len(made(tmp_path, many).rules) == 50
