"""`agent-infra rule` and `agent-infra reward`, as a user gives them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent_infra import Infra, Signal
from agent_infra.config import Project

RULES = """
version: 1
sources: {满意度: {range: [-1, 1], weight: 1}}
rules:
  - {id: 低分, when: {r: {signal: 'r.value < 0'}}, then: {add: -0.2}}
"""


@pytest.fixture
def rules(folder: Path) -> Path:
    made = folder / "rules"
    made.mkdir()
    (made / "规则.yaml").write_text(RULES, encoding="utf-8")
    (folder / "agent_infra.toml").write_text('rules = "rules/"\n', encoding="utf-8")
    return made


@pytest.fixture
def event(rules: Path, home: Path, folder: Path) -> str:
    with Infra.open(home, project=folder) as infra:
        goal = infra.session("客服").add_node(
            "goal", {"name": "g", "goal_id": "g", "definition": {}, "status": "running"}
        )
        infra.weaver.ingest(Signal("满意度", -0.1, goal.id))
        infra.weaver.weave(goal.id)
    return goal.id


def test_rules_are_checked(command: Any, rules: Path) -> None:
    fine = command("rule", "check")
    assert fine.returncode == 0, fine.stderr
    assert fine.stdout.startswith("ok: 1 rules, 1 sources, ")
    (rules / "坏.drl").write_text('rule "x" when Reward(valeu < 0) then System.exit(0); end\n', encoding="utf-8")
    bad = command("rule", "check")
    assert bad.returncode == 1
    assert "坏.drl:1:" in bad.stderr
    told = json.loads(command("rule", "check", rules, "--json").stdout)
    assert [each["code"] for each in told["problems"]] == ["DrlSyntax"]


def test_the_users_own_rules_are_checked_too(command: Any, rules: Path, tmp_path: Path) -> None:
    """What is checked is what would come into force."""
    own = tmp_path / "家目录" / ".reward_weaver" / "rules"
    own.mkdir(parents=True)
    (own / "own.drl").write_text('rule "own" when Reward(value < 0) then insert(new WovenReward(-1)); end')
    environment = {"HOME": str(tmp_path / "家目录")}
    assert [*json.loads(command("rule", "show", **environment).stdout)["rules"]] == ["own", "低分"]
    assert str(own) in json.loads(command("config", "show", **environment).stdout)["rules"]
    (own / "own.drl").write_text('rule "own" when Reward(valeu < 0) then insert(new WovenReward(-1)); end')
    bad = command("rule", "check", **environment)
    assert bad.returncode == 1
    assert "own.drl:1:24: UnknownField" in bad.stderr


def test_a_product_of_zero_is_warned_of(command: Any, rules: Path) -> None:
    drl = 'rule "x" when $r: Reward(value == 0) then insert(new WovenReward($r.value * 5)); end\n'
    (rules / "零.drl").write_text(drl, encoding="utf-8")
    done = command("rule", "check")
    assert done.returncode == 0
    assert "ZeroTimes" in done.stderr


def test_rules_are_shown_and_compared(command: Any, rules: Path, folder: Path) -> None:
    shown = json.loads(command("rule", "show").stdout)
    assert shown["rules"]["低分"]["then"] == {"add": -0.2}
    other = folder / "other.yaml"
    other.write_text(RULES.replace("-0.2", "-0.3"), encoding="utf-8")
    assert command("rule", "diff", rules, rules).stdout == "the same policy\n"
    different = command("rule", "diff", rules, other)
    assert different.returncode == 1
    assert different.stdout.startswith("changed rule 低分")


def test_tests_of_rules_are_run(command: Any, rules: Path) -> None:
    test = "version: 1\ntests: [{name: 低, signals: [{source: 满意度, value: -0.1}], expect: {value: -0.3}}]\n"
    (rules / "a.test.yaml").write_text(test, encoding="utf-8")
    assert command("rule", "test").stdout == "ok: 1 file of tests\n"
    (rules / "a.test.yaml").write_text(test.replace("-0.3", "0.3"), encoding="utf-8")
    failed = command("rule", "test")
    assert failed.returncode == 1
    assert "the rules fail the test `低`" in failed.stderr


def test_rules_are_tried_before_they_are_in_force(command: Any, event: str, folder: Path, home: Path) -> None:
    other = folder / "other.yaml"
    other.write_text(RULES.replace("-0.2", "-0.5"), encoding="utf-8")
    tried = command("rule", "try", other, "--on", "last-7d")
    assert tried.returncode == 0, tried.stderr
    assert tried.stdout.startswith("1 of 1 rewards would change")
    assert f"-0.300000 -> -0.600000  event {event} of session 客服" in tried.stdout
    told = json.loads(command("rule", "try", "--json").stdout)
    assert (told["events"], told["changed"]) == (1, 0)
    assert command("rule", "try", "--on", "yesterday").returncode != 0
    with Infra.open(home, project=Project(root=folder)) as infra:
        assert infra.weaver.newest(event).value == -0.3


def test_why_is_answered(command: Any, event: str) -> None:
    first, second, *_ = command("reward", "explain", event).stdout.splitlines()
    assert first == "# Reward -0.300000 (complete)"
    assert second.startswith("**Why:** rule `低分` -0.200000, `满意度` -0.100000")
    assert command("reward", "explain", event, "--language", "zh").stdout.startswith("# 奖励 -0.300000")
    assert command("reward", "explain", event, "--format", "html").stdout.startswith("<!doctype html>")
    assert command("reward", "explain", "01M8RTW8CJ5D4CVERPKS0Q8TER").returncode == 4


def test_rewards_are_verified(command: Any, event: str) -> None:
    assert command("reward", "verify").stdout == "ok: 1 records\n"
    assert json.loads(command("reward", "verify", "客服", "--json").stdout) == {
        "ok": True,
        "records": 1,
        "problems": [],
    }


def test_what_waits_and_what_is_dead_is_listed(command: Any, event: str, home: Path, folder: Path) -> None:
    with Infra.open(home, project=folder) as infra:
        infra.weaver.ingest(Signal("满意度", 1, refs={"ticket": "T-1"}))
        infra.weaver.intake.bury("日志", "no_json", b"{")
        (letter,) = infra.weaver.dead_letters()
    assert "nothing refers to ticket T-1 yet" in command("reward", "waiting").stdout
    assert "日志: no_json" in command("reward", "dead-letters").stdout
    (row,) = json.loads(command("reward", "dead-letters", "--json").stdout)
    assert (row["id"], row["signal"]) == (letter.id, False)
    assert command("reward", "retry", letter.id).returncode == 1
