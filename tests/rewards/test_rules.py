"""Rule files: what they mean, what their hash covers, and every problem at its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_infra.errors import FileMissing, RuleErrors
from agent_infra.rewards import RuleSet, compile_rule_text, compile_rules

WHOLE = """
version: 1
sources:
  user_satisfaction: {range: [-1, 1], weight: 0.7, lateness: 24h}
  response_latency: {range: [0, 30], better: low, weight: 0.3}
  合规接口: {range: [-1, 1]}
required: [user_satisfaction]
window: 45s
wait: 2m
episode: sum
clip: [-2, 0.5]
rules:
  - id: compliance_override
    salience: 100
    when:
      r: {signal: 'r.source == "合规接口" && r.value < 0 && r.priority == "high"'}
      s: {session: 's.id == r.session_id'}
    then: {override: 'r.value * 5'}
  - id: slow
    when: {l: {signal: 'l.source == "response_latency" && l.value > 10'}}
    then: {add: -0.2, flag: "回答太慢"}
"""


def problems(text: str) -> list[tuple[str, int | None]]:
    with pytest.raises(RuleErrors) as caught:
        compile_rule_text(text)
    return [(problem.code, problem.line) for problem in caught.value.problems]


def with_rule(rule: str) -> str:
    return f"version: 1\nsources:\n  s: {{range: [0, 1], weight: 1}}\nrules:\n  - {rule}\n"


# -- meaning -----------------------------------------------------------------------------------------------------------


def test_everything_that_a_file_can_say() -> None:
    rules = compile_rule_text(WHOLE, "rules.yaml")
    satisfaction = rules.sources["user_satisfaction"]
    assert (satisfaction.low, satisfaction.high, satisfaction.weight, satisfaction.lateness) == (-1, 1, 0.7, 86_400)
    assert rules.sources["response_latency"].better == "low"
    assert rules.sources["合规接口"].weight is None
    assert rules.required == ("user_satisfaction",)
    assert rules.expected == ("response_latency", "user_satisfaction")
    assert (rules.window, rules.wait, rules.episode, rules.clip) == (45, 120, "sum", (-2, 0.5))
    assert [(rule.id, rule.salience) for rule in rules.rules] == [("compliance_override", 100), ("slow", 0)]
    assert [effect.kind for effect in rules.rules[1].then] == ["add", "flag"]
    assert rules.rules[0].place == "rules.yaml:13"
    assert rules.problems == ()


def test_what_is_not_said_has_defaults() -> None:
    rules = compile_rule_text("version: 1\nsources: {s: {range: [0, 1]}}")
    assert (rules.window, rules.wait, rules.episode, rules.clip) == (30, 30, "mean", (-1, 1))
    assert rules.sources["s"].lateness == 86_400


def test_a_scale_is_linear_and_turned_round_by_better_low() -> None:
    latency = compile_rule_text(WHOLE).sources["response_latency"]
    assert [latency.normal(value) for value in (0, 15, 30)] == [1, 0, -1]


def test_no_rule_file_is_a_clear_state() -> None:
    assert RuleSet().is_empty
    assert not compile_rule_text(WHOLE).is_empty


# -- the hash ----------------------------------------------------------------------------------------------------------


def test_the_hash_is_of_the_meaning(tmp_path: Path) -> None:
    one = compile_rule_text(WHOLE)
    head, rules = WHOLE.replace("add: -0.2", "add: '-0.20'").split("rules:\n")
    first, second = rules.split("  - id: slow\n")
    spread = {
        "z.yaml": f"version: 1\nrules:\n  - id: slow # 注释\n{second}",
        "a.yaml": head.replace("window: 45s", "window: 45").replace("wait: 2m", "wait: 120s"),
        "m.yml": f"version: 1\nwindow: 45.0\nrules:\n{first.replace('r.value * 5', 'r.value*5')}",
    }
    for name, text in spread.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert compile_rules(tmp_path).hash == one.hash


@pytest.mark.parametrize(
    "change",
    [
        ("weight: 0.7", "weight: 0.8"),
        ("range: [0, 30]", "range: [0, 31]"),
        ("better: low", "better: high"),
        ("lateness: 24h", "lateness: 23h"),
        ("required: [user_satisfaction]", ""),
        ("window: 45s", "window: 46s"),
        ("episode: sum", "episode: last"),
        ("clip: [-2, 0.5]", "clip: [-2, 1]"),
        ("salience: 100", "salience: 99"),
        ("r.value * 5", "r.value * 6"),
        ('"high"', '"hi gh"'),
        ("add: -0.2", "scale: -0.2"),
        ("回答太慢", "慢"),
        ("id: slow", "id: too_slow"),
    ],
)
def test_every_meaningful_change_changes_the_hash(change: tuple[str, str]) -> None:
    assert change[0] in WHOLE
    assert compile_rule_text(WHOLE.replace(*change)).hash != compile_rule_text(WHOLE).hash


# -- problems ----------------------------------------------------------------------------------------------------------


def test_all_problems_at_once_each_at_its_place() -> None:
    text = """version: 1
sources:
  satisfaction: {range: [1, -1], wieght: 0.7}
  latency: {weight: -2, range: [0, 1], lateness: soon, better: lower}
requierd: [satisfaction]
required: [satisfation]
clip: [0]
rules:
  - id: a
    when: {r: {signal: 'r.vlaue < 0'}}
    then: {override: 'r.value *'}
  - id: a
    when: {r: {signal: 'x.value < 0'}}
  - when: {}
    then: {ad: 1}
"""
    assert problems(text) == [
        ("BadRange", 3),
        ("UnknownKey", 3),
        ("BadWeight", 4),
        ("BadDuration", 4),
        ("UnknownWord", 4),
        ("UnknownKey", 5),
        ("UnknownSource", 6),
        ("BadRange", 7),
        ("UnknownField", 10),
        ("ExpressionSyntax", 11),
        ("MissingThen", 12),
        ("ExpressionName", 13),
        ("MissingId", 14),
        ("MissingWhen", 14),
        ("UnknownKey", 15),
    ]


def test_a_misspelt_word_gets_a_suggestion() -> None:
    with pytest.raises(RuleErrors) as caught:
        compile_rule_text(with_rule("{id: a, when: {r: {signal: 'r.vlaue < 0'}}, then: {ovveride: 1}}"))
    hints = [problem.hint for problem in caught.value.problems]
    assert hints == ["did you mean `value`?", "did you mean `override`?"]
    assert caught.value.problems[0].column == 35


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n"])
def test_an_empty_file_is_no_rule_set(text: str) -> None:
    assert problems(text) == [("EmptyFile", 1)]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("version: 2\nsources: {s: {range: [0, 1]}}", "WrongVersion"),
        ("sources: {s: {range: [0, 1]}}", "WrongVersion"),
        ("version: true\nsources: {s: {range: [0, 1]}}", "WrongVersion"),
        ("version: 1\nrules: []", "NoSources"),
        ("version: 1\nsources: {s: {weight: 1}}", "MissingRange"),
        ("version: 1\nsources: {s: {range: [0, 1], weight: 0}}", "BadWeight"),
        ("version: 1\nsources: {s: {range: [0, .inf]}}", "NotJson"),
        ("version: 1\nsources: {s: {range: [-1.7e308, 1.7e308]}}", "BadRange"),
        ("version: 1\nsources: {s: {range: [0, 1]}}\nepisode: avg", "UnknownWord"),
        ("version: 1\nsources: {s: {range: [0, 1]}}\nrules: {a: 1}", "WrongType"),
        ("- a\n- b", "WrongType"),
        ("version: 1\nversion: 1", "DuplicateKey"),
        (with_rule("{id: clip, when: {r: {signal: 'true'}}, then: {add: 1}}"), "ReservedId"),
        (with_rule("{id: a, when: {r: {call: 'true'}}, then: {add: 1}}"), "UnknownKey"),
        (with_rule("{id: a, when: {r: {signal: 'true', session: 'true'}}, then: {add: 1}}"), "WrongType"),
        (with_rule("{id: a, when: {坏: {signal: 'true'}}, then: {add: 1}}"), "BadName"),
        (with_rule("{id: a, when: {r: {signal: 'r.value'}}, then: {add: true}}"), "WrongType"),
        (with_rule("{id: a, when: {r: {signal: 'r.value + 1'}}, then: {add: 1}}"), "NotBoolean"),
        (
            with_rule("{id: a, when: {r: {signal: 's.id == r.id'}, s: {session: 'true'}}, then: {add: 1}}"),
            "ExpressionName",
        ),
        (with_rule("{id: a, when: {r: {signal: 'true'}}, then: {require: q}}"), "UnknownSource"),
        (with_rule("{id: a, when: {r: {signal: 'true'}}, then: {veto: false}}"), "WrongType"),
    ],
)
def test_what_is_refused(text: str, code: str) -> None:
    assert [found for found, _ in problems(text)][:1] == [code]


def test_files_of_a_folder_may_not_contradict_each_other(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(WHOLE, encoding="utf-8")
    (tmp_path / "b.yaml").write_text(
        "version: 1\nwait: 3s\nsources: {user_satisfaction: {range: [0, 1]}}\n"
        "rules: [{id: slow, when: {r: {signal: 'true'}}, then: {add: 1}}]\n"
    )
    (tmp_path / "README.md").write_text("not a rule file")
    with pytest.raises(RuleErrors) as caught:
        compile_rules(tmp_path)
    assert [problem.code for problem in caught.value.problems] == ["Contradiction", "DuplicateSource", "DuplicateRule"]
    assert all(str(tmp_path / "a.yaml") in problem.message for problem in caught.value.problems)
    assert all(problem.file == str(tmp_path / "b.yaml") for problem in caught.value.problems)


def test_what_is_not_there_or_no_rule_file(tmp_path: Path) -> None:
    (tmp_path / "rules.txt").write_text("rule x")
    with pytest.raises(FileMissing):
        compile_rules(tmp_path / "none.yaml")
    with pytest.raises(FileMissing):
        compile_rules(tmp_path)
    with pytest.raises(RuleErrors, match="NotARuleFile"):
        compile_rules(tmp_path / "rules.txt")
