"""The benchmarks run, and print what they promise: figures with their goals as numbers. What they came to is not asked."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent
FIGURES = {
    "insert_1000",
    "insert_1000_caused",
    "typical_step_os",
    "typical_step_os_keyed",
    "typical_step_group",
    "typical_step_step",
    "append_turns",
    "caused_by",
    "rollback",
    "at_version",
    "caused_by_sessions",
    "writers_group",
    "writers_os",
    "readers",
    "readers_beside_writer",
    "rocksdb_settings",
}


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("bench")
    command = [sys.executable, str(ROOT / "bench" / "state.py"), "--quick", "--tiny", "--dir", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert list(folder.iterdir()) == [], "what it wrote is gone"
    return json.loads(done.stdout)


def test_the_machine_is_told(report: dict[str, Any]) -> None:
    machine = report["machine"]
    assert machine["cpus"] >= 1
    assert machine["disk"].keys() == {"file_system", "fsync_p50_ms", "fsync_p99_ms"}
    assert {"rocksdict", "sqlite"} <= machine["libraries"].keys()


def test_each_figure_names_its_durability_and_has_its_goals_as_numbers(report: dict[str, Any]) -> None:
    assert {figure["name"] for figure in report["figures"]} == FIGURES
    for figure in report["figures"]:
        assert figure["what"]
        assert figure["durability"]
        assert figure["ours"]
        for goal in figure["goals"]:
            limit = goal["at_most"] if "at_most" in goal else goal["at_least"]
            assert isinstance(limit, int | float)
            assert isinstance(goal["value"], int | float)
            assert goal["met"] in (True, False)
        met = [goal["met"] for goal in figure["goals"]]
        assert figure["met"] is (all(met) if met else None)


def test_peers_give_the_same_answers(report: dict[str, Any]) -> None:
    figures = {figure["name"]: figure for figure in report["figures"]}
    for name in ("caused_by", "caused_by_sessions"):
        assert figures[name]["facts"]["same_answer"] is True
        assert "sqlite" in figures[name]["peers"]


def test_what_is_skipped_is_named_with_what_to_do(report: dict[str, Any]) -> None:
    langgraph = "langgraph" in report["machine"]["libraries"]
    skipped = {each["name"] for each in report["skipped"]}
    assert skipped == {"caused_by_huge"} | (set() if langgraph else {"langgraph"})
    assert all(each["why"] and each["mend"] for each in report["skipped"])
