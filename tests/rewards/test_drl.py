"""Rules in Drools' language: the same rules as in YAML, and a problem with its place for all that is not read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agent_infra.errors import RuleErrors
from agent_infra.rewards import Event, RuleSet, compile_rule_text, compile_rules
from agent_infra.rewards.rules.drl import read_drl
from agent_infra.rewards.rules.model import FIELDS
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
FACTS = Facts(
    session={"id": "s", "event_id": "e", "agent": "客服", "tool": "refund", "action": "退款"},
    action=dict.fromkeys(FIELDS["action"]) | {"params": {"tags": ["refund", "vip"], "city": "北京"}},
)


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
        ('$r: Reward($p: priority in ("low"))', False),
        ('Reward(source == "compliance_api", $p: priority matches "l.*")', False),
        ("$r: Reward($d: value + 1, value < 0) Reward(value == $d * 2 - 1)", True),
        ('Reward(source + "x" contains "apix")', True),
        ('Reward(source + "x" matches "compliance.*x")', True),
        ("$a: Reward(value < 0) Reward(this != $a)", True),
        ("$a: Reward(value < 0) Reward(this != $a, value < 0)", False),
        ("Action($t: params.tags) Session(tool memberOf $t)", True),
        ("Action($t: params.tags) Session(tool not memberOf $t)", False),
        ('Action(params.tags contains "urgent")', False),
        ('Action(params.tags contains "refund", params.city contains "京")', True),
        ('Action(params.tags not contains "refund")', False),
        ("$state: Session() $in: Reward(value < 0) $now: Reward(this == $in, session_id == $state.session_id)", True),
        ("$fact2: Reward(value < 0) Reward(value > $fact2.value)", True),
        ("not Reward($v: value, $v > 0.9) Reward(value < 0.5e-1)", True),
        ("Reward(value < -0.05d, value > -1e2f)", True),
        ("Reward(source == 'compliance_api', priority == \"hi\\u0067h\")", True),
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
        (rule("not Reward($v: value) Reward(value == $v)"), "UnknownName", (1, 53), "`$v` is not bound"),
        (rule("not $r: Reward() $r: Reward()"), "DuplicateName", (1, 32), "another name"),
        (rule("$r: Reward($r: value)"), "DuplicateName", (1, 26), "another name"),
        (rule("$r: Reward()", 'insert(new WovenReward(1, "x", $s.provenance));'), "UnknownName", None, "$s"),
        (rule("$r: Reward()", 'insert(new WovenReward(1, "x", $r.value));'), "WrongType", None, "provenance"),
        (rule("Reward()", 'insert(new WovenReward(1, ""));'), "MissingId", None, "no name"),
        (rule("Reward()", 'insert(new WovenReward(1, "clip"));'), "ReservedId", None, "clip"),
        (rule("Reward()", "insert(new Reward(1));"), "UnknownType", None, "WovenReward"),
        (rule("Reward()", f"insert(new WovenReward({'9' * 400}));"), "BadNumber", None, "too large"),
        (rule("Reward()", head=f" salience {'9' * 400}"), "BadNumber", (1, 19), "too large"),
        (rule("Reward()", head=" salience 1, salience 2"), "SaidTwice", (1, 31), "one of the two"),
        (rule("Reward()", head=" no-loop no-loop"), "SaidTwice", (1, 6), "one of the two"),
        (rule("Reward()", head=" enabled false"), "DrlSyntax", (1, 10), "take it out"),
        (rule("Reward(" + "(" * 31 + "true" + ")" * 31 + ")"), "TooDeep", (1, 51), "several rules"),
        (rule("Reward(!!!!true)"), "DrlSyntax", (1, 23), "can't stand"),
        (rule('Reward(source == "\\ud83d")'), "BadText", (1, 32), "half a character"),
        (rule('Reward(source matches "\\d")'), "BadText", None, "written twice"),
        (rule("Reward（value < 0)"), "DrlSyntax", (1, 21), "write `(`"),
        (rule("Reward(value < 0，value > 1)"), "DrlSyntax", None, "write `,`"),
        (rule("Reward(source == “x”)"), "DrlSyntax", None, 'write `"`'),
        (rule("Reward(value > 0 && < 1)"), "DrlSyntax", (1, 35), "name the field at each"),
        (rule("Reward() and Session()"), "DrlSyntax", None, "follow each other"),
        (rule("Reward() or Session()"), "DrlSyntax", None, "make a rule of each choice"),
        (rule("Reward() over window:time(30s)"), "DrlSyntax", None, "lateness"),
        (rule("Reward()", "retract($r);"), "DrlSyntax", (1, 29), "don't go away"),
        ("declare K a: int a: int end\n" + rule("Reward()"), "DuplicateName", (1, 18), "already"),
        ("declare K kind: String end\n" + rule("Reward()"), "ReservedName", (1, 11), "otherwise"),
        ("declare K a: int end\ndeclare K b: int end\n" + rule("Reward()"), "DuplicateType", (2, 9), "already: a"),
        ("/* 没有完\n" + rule("Reward()"), "DrlSyntax", (1, 1), "close it with */"),
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


@pytest.mark.parametrize(
    ("when", "value", "warned"),
    [
        ('$r: Reward(source == "x", value == 0)', "$r.value * 5", True),
        ("$r: Reward(value == 0)", "1 + 5 * ($r.value)", True),
        ("$r: Reward($v: value == 0)", "$v * 5", True),
        ("$r: Reward(0.0 == value && confidence > 0)", "-$r.confidence * $r.value", True),
        ("$r: Reward(value < 0)", "$r.value * 5", False),
        ("$r: Reward(value == 0)", "$r.value", False),
        ("$r: Reward(value == 0)", "5 / $r.value", False),
        ("$r: Reward(value == 0 || value < -1)", "$r.value * 5", False),
        ("$r: Reward(!(value == 0))", "$r.value * 5", False),
        ("$a: Reward(value == 0) $r: Reward(value < 0)", "$r.value * 5", False),
        ("$r: Reward() not Reward($r.value == 0)", "$r.value * 5", False),
    ],
)
def test_a_product_that_is_always_zero_is_warned_of(tmp_path: Path, when: str, value: str, warned: bool) -> None:
    rules = made(tmp_path, "\n" + rule(when, f'insert(new WovenReward({value}, "x"));'))
    assert [(each.code, each.line) for each in rules.warnings] == ([("ZeroTimes", 2)] if warned else [])


def test_types_that_one_file_declares_are_known_in_all(tmp_path: Path) -> None:
    types, rules = FACT.split("end\n", 1)
    (tmp_path / "另一.drl").write_text(rules, encoding="utf-8")
    both = made(tmp_path, types + "end\n", SOURCES + "groups: [facts, main]\n")
    assert [each.id for each in both.rules] == ["escalated", "punished"]


def test_what_drools_needs_declared_and_said_is_let_be(tmp_path: Path) -> None:
    head = 'dialect "mvel"\nimport java.util.*;\ndeclare Reward\n  value: double\nend\n'
    attributes = ' salience -5, agenda-group "MAIN", lock-on-active, dialect "java"'
    (read,) = made(tmp_path, head + rule("Reward()", head=attributes)).rules
    assert (read.salience, read.group) == (-5, "main")


def test_names_that_two_facts_would_share_are_kept_apart(tmp_path: Path) -> None:
    """A rule's hash covers its conditions by name: two of one name would hide one of them."""
    (read,) = made(tmp_path, rule("$fact2: Reward(value < 0) Reward(value > 0) $fact3: Session() Session()")).rules
    assert len({binding.name for binding in read.when}) == 4


def test_names_in_quotes_and_comments_are_no_rules() -> None:
    found = read_drl(
        '/* rule "x" when */ rule "the end of a rule" // end\nwhen Reward() then insert(new WovenReward(1)); end'
    )
    assert [each.id for each in found.rules] == ["the end of a rule"]
    assert not found.problems


def test_what_a_file_of_many_rules_costs_is_bounded(tmp_path: Path) -> None:
    many = "".join(rule(f"Reward(value < {n}.5)", f'insert(new WovenReward({n}, "r{n}"));') for n in range(50))
    assert len(made(tmp_path, many).rules) == 50


def test_what_the_page_shows_is_so(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "drl.md").read_text("utf-8")
    first, facts = re.findall(r"^```drl\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    twin, groups, tests = re.findall(r"^```yaml\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    assert made(tmp_path, first).hash == compile_rule_text(SOURCES + twin).hash
    (tmp_path / "规则.test.yaml").write_text(tests, encoding="utf-8")
    made(tmp_path, first + facts, SOURCES + groups)
    (refused,) = re.findall(r"^```text\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    bad = "\n" * 6 + "    System.exit(0);\nend"
    (problem,) = read_drl('rule "x" when Reward() then' + bad, "规则.drl").problems
    assert str(problem) in refused
