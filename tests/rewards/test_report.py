"""Reports: they answer why in three lines, quote the evidence, add up, and let no outside text pass for markup."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from agent_infra.errors import ReportUnknown
from agent_infra.rewards import Signal
from agent_infra.rewards.report.content import micro_text
from agent_infra.rewards.report.markdown import code
from agent_infra.rewards.report.words import WORDS

RULES = """
version: 1
sources:
  user_satisfaction: {range: [-1, 1], weight: 0.7}
  response_latency: {range: [0, 30], better: low, weight: 0.3}
  compliance_api: {range: [-1, 1]}
  never: {range: [0, 1], weight: 1}
rules:
  - id: complaint
    when: {r: {signal: 'r.source == "compliance_api" && r.value < 0'}}
    then: {override: 'r.value * 0.75', flag: 高优先级 *投诉*}
"""


@pytest.fixture
def reward(world: Any) -> Any:
    world.rules(RULES)
    call = world.call()
    world.weaver.ingest(Signal("user_satisfaction", 0.8, call, evidence={"选项": "满意 | [x](http://evil)"}))
    world.weaver.ingest(Signal("response_latency", 4.5, call))
    world.weaver.ingest(Signal("compliance_api", -0.4, call, evidence=b"<script>"))
    return world.weaver.weave(call)


def test_why_is_answered_in_the_first_three_lines(reward: Any) -> None:
    first, second, third = reward.report().split("\n")[:3]
    assert first == "# Reward -0.300000 (provisional, waiting for signals)"
    assert second.startswith("**Why:** rule `complaint` -1.070000, `user_satisfaction` +0.560000, `response_latency`")
    assert "`user_satisfaction` +0.80 against `compliance_api` -0.40 (opposite signs)" in third
    assert "decided by rule `complaint`" in third
    assert third.endswith("**Missing:** `never`")


def test_contributions_in_the_table_add_up_to_the_value(reward: Any) -> None:
    table = reward.report().split("## Contributions")[1].split("##")[0]
    *rows, total = [float(row) for row in re.findall(r"([+-][\d.]+)\*{0,2} \|$", table, re.MULTILINE)]
    assert round(sum(rows), 6) == total == reward.value


def test_evidence_is_quoted_with_its_cid_and_outside_text_is_no_markup(reward: Any) -> None:
    report = reward.report()
    for row in reward.provenance:
        assert not row["evidence"] or row["evidence"]["$cid"] in report
    assert '`{"选项": "满意 \\| [x](http://evil)"}`' in report
    assert "`<script>`" in report
    assert "flag: `高优先级 *投诉*`" in report
    outside = re.sub(r"`+[^`]*`+", "", report)
    assert "<script>" not in outside
    assert "evil" not in outside


def test_it_names_the_rules_and_where_they_stand(reward: Any, world: Any) -> None:
    report = reward.report()
    assert f"`{world.folder / 'rules.yaml'}:9`" in report
    for name in ("rule_set", "version", "session"):
        assert str(reward.record[name]) in report
    assert reward.cid in report


def test_in_chinese(reward: Any) -> None:
    first, second, third = reward.report(language="zh").split("\n")[:3]
    assert first == "# 奖励 -0.300000(暂定,等待信号)"
    assert second.startswith("**原因:** 规则 `complaint` -1.070000、`user_satisfaction` +0.560000")
    assert third.endswith("**缺失:** `never`")


def test_languages_have_the_same_words_with_the_same_places() -> None:
    fields = {
        language: {word: sorted(re.findall(r"\{\w+\}", text)) for word, text in words.items()}
        for language, words in WORDS.items()
    }
    assert fields["en"] == fields["zh"]


def test_an_unscored_reward_says_why(world: Any) -> None:
    world.rules(RULES + "required: [never]\n")
    call = world.call()
    world.weaver.ingest(Signal("user_satisfaction", 1, call))
    lines = world.weaver.weave(call).report().split("\n")
    assert lines[0] == "# Reward: unscored"
    assert lines[1].startswith("**Why:** without `never`, which the rules require, there is no reward")
    assert "## Contributions" not in lines


def test_several_events_are_listed(world: Any) -> None:
    world.rules(RULES)
    calls = [world.call(), world.call()]
    world.weaver.ingest(Signal("user_satisfaction", 0.5, calls[0]))
    reward = world.weaver.weave_reward(world.result(*calls), wait=0)
    report = reward.report()
    assert f"| `{calls[0]}` | provisional, waiting for signals | +0.500000 |" in report
    assert f"| `{calls[1]}` | unscored | unscored |" in report
    assert "mean of the events" in report


def test_as_json_it_is_the_record(reward: Any) -> None:
    assert json.loads(reward.report(format="json")) == reward.record | {"cid": reward.cid}


def test_other_formats_and_languages_are_refused(reward: Any) -> None:
    with pytest.raises(ReportUnknown, match="pdf"):
        reward.report(format="pdf")
    with pytest.raises(ReportUnknown, match="fr"):
        reward.report(language="fr")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "`plain`"),
        ("a`b", "``a`b``"),
        ("`a`", "`` `a` ``"),
        ("two\nlines\t", "`two lines`"),
        ("a|b", "`a\\|b`"),
        ("", "` `"),
    ],
)
def test_code_spans(text: str, shown: str) -> None:
    assert code(text) == shown


@pytest.mark.parametrize(
    ("micro", "text"),
    [(0, "0.000000"), (1, "+0.000001"), (-1, "-0.000001"), (-1_500_000, "-1.500000"), (12_000_003, "+12.000003")],
)
def test_micro_units_as_text(micro: int, text: str) -> None:
    assert micro_text(micro) == text


def test_as_a_page_it_says_the_same_and_outside_text_is_escaped(reward: Any) -> None:
    page = reward.report(format="html", language="zh")
    assert page.startswith('<!doctype html>\n<html lang="zh">')
    assert "<h1>奖励 -0.300000(暂定,等待信号)</h1>" in page
    assert "&lt;script&gt;" in page
    assert "<script" not in page
    assert "满意 | [x](http://evil)" in page
    assert not re.findall(r"(?:src|href)=", page), "a page loads nothing"
    for row in reward.contributions:
        assert micro_text(row.micro) in page
