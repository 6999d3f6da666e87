"""The page about rewards is true: its rules compile, and its tests pass."""

from __future__ import annotations

import re
from pathlib import Path

from agent_infra.rewards import compile_rules
from agent_infra.rewards.rules.model import FIELDS

TEXT = (Path(__file__).parents[2] / "docs" / "rewards.md").read_text("utf-8")


def test_its_rules_compile_and_pass_their_tests(tmp_path: Path) -> None:
    rules, tests = re.findall(r"^```yaml\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
    (tmp_path / "rules.yaml").write_text(rules, encoding="utf-8")
    (tmp_path / "rules.test.yaml").write_text(tests, encoding="utf-8")
    found = compile_rules(tmp_path)
    assert len(found.rules) == 4
    assert found.groups == ("facts", "main")


def test_it_names_every_kind_of_fact_and_effect() -> None:
    for word in (*FIELDS, "fact", "not", "exists", "add", "scale", "override", "veto", "require", "flag", "insert"):
        assert f"`{word}" in TEXT, word
