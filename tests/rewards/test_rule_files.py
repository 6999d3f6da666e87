"""Rule files in use: tests beside them, folders beside the project's, reloading that is all or nothing, differences."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from agent_infra import Infra, background
from agent_infra.errors import RuleErrors
from agent_infra.rewards import RuleWatcher, Signal, compile_rule_text, compile_rules, rule_differences
from agent_infra.rewards.rules.compiled import compiled

RULES = """
version: 1
sources:
  满意度: {range: [-1, 1], weight: 1}
  compliance_api: {range: [-1, 1]}
rules:
  - {id: 投诉, when: {r: {signal: 'r.source == "compliance_api" && r.value < 0'}}, then: {override: 'r.value * 5'}}
  - {id: 规则七, when: {p: {prompt_rule: 'p.number == 7 && !p.fired'}}, then: {add: -0.3}}
"""
TESTS = """
version: 1
tests:
  - name: 投诉覆盖满意度
    signals: [{source: 满意度, value: 0.8}, {source: compliance_api, value: -0.1, priority: high}]
    expect: {value: -0.5, fired: 投诉, not_fired: [规则七]}
  - name: 没有补偿
    signals: [{source: 满意度, value: 0.8}]
    prompt_rules: [{number: 7, text: 补偿, fired: false}]
    expect: {value: 0.5, fired: [规则七], missing: []}
  - name: 没有答复
    signals: [{source: 满意度, unscored: timeout 2s}]
    expect: {unscored: no_signal, missing: [满意度]}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "规则.yaml").write_text(RULES, encoding="utf-8")
    (tmp_path / "规则.test.yaml").write_text(TESTS, encoding="utf-8")
    return tmp_path


def test_rules_that_pass_their_tests_are_loaded(folder: Path) -> None:
    assert len(compile_rules(folder).rules) == 2
    assert len(compile_rules(folder / "规则.yaml").rules) == 2


@pytest.mark.parametrize(
    ("change", "line", "said"),
    [
        (("value: -0.5,", "value: -0.4,"), 4, "value is -0.5, expected -0.4"),
        (("fired: 投诉", "fired: [投诉, 规则七]"), 4, "fired is ['投诉'], expected ['投诉', '规则七']"),
        (("not_fired: [规则七]", "not_fired: [投诉]"), 4, "not_fired is"),
        (("unscored: no_signal", "unscored: no_value"), 11, "unscored is 'no_signal', expected 'no_value'"),
        (("missing: []", "missing: [满意度]"), 7, "missing is [], expected ['满意度']"),
        (
            ("source: 满意度, value: 0.8}]\n    prompt", "source: 没有, value: 0.8}]\n    prompt"),
            7,
            "no source 没有 is declared",
        ),
        (("not_fired: [规则七]", "not_fired: [规则八]"), 4, "`not_fired` names `规则八`, which there is none of"),
        (("missing: []", "missing: [满意]"), 7, "did you mean `满意度`"),
        (("value: -0.1,", "value: -1.1,"), 4, "-1.1 is out of the range of compliance_api, -1 to 1"),
        (("value: -0.5,", "micro: -500001,"), 4, "micro is -500000, expected -500001"),
        (("value: -0.5,", "value: null,"), 4, "value is -0.5, expected None"),
    ],
)
def test_rules_that_fail_a_test_are_not(folder: Path, change: tuple[str, str], line: int, said: str) -> None:
    text = TESTS.replace(*change)
    assert text != TESTS
    (folder / "规则.test.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(RuleErrors) as raised:
        compile_rules(folder)
    (problem,) = raised.value.problems
    assert (problem.code, problem.line, Path(problem.file or "").name) == ("RuleTestFailed", line, "规则.test.yaml")
    assert said in problem.message


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("version: 1\ntests: [{name: a, signals: []}]", "MissingExpect"),
        ("version: 1\ntests: [{name: a, signal: [], expect: {value: 1}}]", "UnknownKey"),
        ("version: 1\ntests: [{name: a, signals: [{source: 满意度, value: x}], expect: {value: 1}}]", "WrongType"),
        ("version: 1\ntests: [{name: a, action: {tol: x}, expect: {value: 1}}]", "UnknownKey"),
        ("version: 1\ntests: [", "NotYaml"),
        ("version: 1\ntests: [{name: a, expect: {}}]", "MissingExpect"),
        ("version: 1\ntests: [{name: a, expect: {value: true}}]", "WrongType"),
        ("version: 1\ntests: [{name: a, expect: {fired: [[投诉]]}}]", "WrongType"),
        ("version: 1\ntests: [{name: a, state: [1], expect: {value: 1}}]", "WrongType"),
        (
            "version: 1\ntests: [{name: a, signals: [{source: 满意度, value: 1, refs: 3}], expect: {value: 1}}]",
            "WrongType",
        ),
        ("version: 1\ntests: []", "EmptyFile"),
        ("version: 2\ntests: [{name: a, expect: {unscored: true}}]", "WrongVersion"),
        ("", "EmptyFile"),
    ],
)
def test_tests_that_cannot_be_read_are_problems(folder: Path, text: str, code: str) -> None:
    (folder / "规则.test.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(RuleErrors) as raised:
        compile_rules(folder)
    assert code in [each.code for each in raised.value.problems], raised.value


def test_tests_beside_a_file_are_those_of_its_name(folder: Path) -> None:
    """Another file's tests are about another set."""
    (folder / "别的.test.yaml").write_text(TESTS.replace("value: 0.5", "value: 0.4"), encoding="utf-8")
    compile_rules(folder / "规则.yaml")
    (folder / "规则.test.yaml").write_text(TESTS.replace("value: 0.5", "value: 0.4"), encoding="utf-8")
    with pytest.raises(RuleErrors):
        compile_rules(folder / "规则.yaml")


def test_a_folder_that_is_exchanged_while_it_is_read_is_old_or_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`rules` links to a folder, and is set to another one after the first file was read."""
    hashes: list[str] = []
    for number in (1, 2):
        made = tmp_path / f"v{number}"
        made.mkdir()
        for name in ("甲", "乙"):
            rule = f"{{id: {name}, when: {{r: {{signal: 'true'}}}}, then: {{add: 0.{number}}}}}"
            head = "sources: {x: {range: [0, 1]}}\n" if name == "甲" else ""
            (made / f"{name}.yaml").write_text(f"version: 1\n{head}rules: [{rule}]\n", encoding="utf-8")
        hashes.append(compile_rules(made).hash)
    link = tmp_path / "rules"
    link.symlink_to(tmp_path / "v1")
    read, read_bytes = [], Path.read_bytes

    def slow(path: Path) -> bytes:
        text = read_bytes(path)
        read.append(path)
        if len(read) == 1:
            (tmp_path / "aside").symlink_to(tmp_path / "v2")
            os.replace(tmp_path / "aside", link)
        return text

    monkeypatch.setattr(Path, "read_bytes", slow)
    assert compile_rules(link).hash == hashes[1]


def test_the_users_own_drl_files_belong_to_every_set(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    own = tmp_path / "home" / ".reward_weaver" / "rules"
    own.mkdir(parents=True)
    (own / "own.drl").write_text('rule "own" when Reward(value > 0.9) then insert(new WovenReward(1)); end')
    (own / "notes.yaml").write_text("version: 1\nsources: {x: {range: [0, 1]}}")
    (folder / "agent_infra.toml").write_text('rules = "规则.yaml"\n', encoding="utf-8")
    with Infra.open(tmp_path / "infra", project=folder) as infra:
        assert [rule.id for rule in infra.weaver.rules.rules] == ["own", "投诉", "规则七"]
        assert "x" not in infra.weaver.rules.sources


# -- reloading ---------------------------------------------------------------------------------------------------------


def until(true: Any, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.01)


@pytest.fixture
def watched(world: Any) -> Any:
    world.rules(RULES)
    watcher = RuleWatcher(world.weaver.rule_paths, world.weaver.reload_rules, 0.02)
    watcher.start()
    yield world
    background.wait_for(watcher.stop(), twin="watcher.stop")


def test_a_changed_file_comes_into_force_by_itself(watched: Any) -> None:
    path = watched.folder / "rules.yaml"
    before = watched.weaver.rules.hash
    path.write_text(RULES.replace("* 5", "* 4"), encoding="utf-8")
    until(lambda: watched.weaver.rules.hash != before)


def test_after_a_bad_file_the_good_one_is_picked_up(watched: Any) -> None:
    path = watched.folder / "rules.yaml"
    before = watched.weaver.rules.hash
    path.write_text(RULES.replace("r.value * 5", "r.valeu * 5"), encoding="utf-8")
    until(lambda: watched.weaver.rules.problems)
    (problem,) = watched.weaver.rules.problems
    assert (problem.code, problem.line) == ("UnknownField", 7)
    assert watched.weaver.rules.hash == before
    good = RULES.replace("* 5", "* 4")
    path.write_text(good, encoding="utf-8")
    until(lambda: watched.weaver.rules.hash == compile_rule_text(good).hash)
    assert watched.weaver.rules.problems == ()


def test_no_mixed_set_is_ever_seen(watched: Any) -> None:
    """80 writes, 20 of them invalid or half-written, by replacing and in place, while others weave."""
    path = watched.folder / "rules.yaml"
    texts = [RULES.replace("* 5", f"* {n + 2}").replace("add: -0.3", f"add: -0.{n + 2}") for n in range(4)]
    known = {compile_rule_text(text).hash for text in [*texts, RULES]}
    seen: set[str] = set()
    stop = threading.Event()

    def weave() -> None:
        while not stop.is_set():
            call = watched.call()
            watched.weaver.ingest(Signal("compliance_api", -0.1, call))
            reward = watched.weaver.weave(call)
            factor = round(reward.value / -0.1)
            rules = {compile_rule_text(text).hash: n for text, n in zip([*texts, RULES], (2, 3, 4, 5, 5), strict=True)}
            assert rules[reward.rule_set] == factor
            seen.add(reward.rule_set)

    failures: list[BaseException] = []

    def guarded() -> None:
        try:
            weave()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(80):
        text = texts[number % 4]
        if number % 4 == 3:
            text = [text[: len(text) // 2], "", text.replace("signal", "sginal", 1)][number // 4 % 3]
        if number % 2:
            path.write_text(text, encoding="utf-8")
        else:
            aside = path.with_suffix(".tmp")
            aside.write_text(text, encoding="utf-8")
            os.replace(aside, path)
        time.sleep(0.005 * (number % 7))
    path.write_text(texts[0], encoding="utf-8")
    good = compile_rule_text(texts[0]).hash
    until(lambda: watched.weaver.rules.hash == good and not watched.weaver.rules.problems)
    stop.set()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]
    assert seen <= known


def test_a_set_that_is_loaded_again_compiles_what_is_new(folder: Path) -> None:
    drl = 'rule "甲" when $r: Reward(value < -0.25) then insert(new WovenReward($r.value * 2)); end\n'
    (folder / "规则.drl").write_text(drl, encoding="utf-8")
    before = compile_rules(folder)
    known = compiled.cache_info().misses
    again = compile_rules(folder)
    assert again.hash == before.hash
    assert compiled.cache_info().misses == known
    (folder / "规则.drl").write_text("\n\n" + drl.replace("* 2", "* 3.0625"), encoding="utf-8")
    (rule,) = [each for each in compile_rules(folder).rules if each.id == "甲"]
    assert compiled.cache_info().misses == known + 1
    assert rule.place.endswith("规则.drl:3")


def test_a_folder_that_goes_and_comes_back_is_still_watched(world: Any) -> None:
    folder = world.folder / "规则"
    folder.mkdir()
    (folder / "a.yaml").write_text(RULES, encoding="utf-8")
    world.weaver.load_rules(folder)
    watcher = RuleWatcher(world.weaver.rule_paths, world.weaver.reload_rules, 0.02)
    watcher.start()
    try:
        folder.rename(world.folder / "fort")
        until(lambda: world.weaver.rules.problems)
        assert [each.code for each in world.weaver.rules.problems] == ["FileMissing"]
        assert world.weaver.rules.hash == compile_rule_text(RULES).hash
        folder.mkdir()
        (folder / "a.yaml").write_text(RULES.replace("* 5", "* 4"), encoding="utf-8")
        until(lambda: world.weaver.rules.hash == compile_rule_text(RULES.replace("* 5", "* 4")).hash)
    finally:
        background.wait_for(watcher.stop(), twin="watcher.stop")


# -- differences -------------------------------------------------------------------------------------------------------


def test_differences_are_of_meaning_only() -> None:
    before = compile_rule_text(RULES)
    assert rule_differences(before, compile_rule_text("# 注释\n" + RULES.replace("r.value < 0", "r.value  <  0"))) == []
    after = compile_rule_text(
        RULES.replace("weight: 1", "weight: 2").replace("规则七", "规则八").replace("* 5", "* 4") + "clip: [-2, 2]\n"
    )
    found = {(each.what, each.name, each.how) for each in rule_differences(before, after)}
    assert found == {
        ("source", "满意度", "changed"),
        ("rule", "规则七", "removed"),
        ("rule", "规则八", "added"),
        ("rule", "投诉", "changed"),
        ("clip", "", "changed"),
    }
