"""The action layer's benchmark runs, and prints its figures with their goals as numbers. What they came to is not asked."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "bench" / "actions.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_compile_section(tmp_path: Path) -> None:
    done = bench("compile", "--tiny", "--dir", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.iterdir()) == [], "what it wrote is gone"
    figures = {figure["name"]: figure for figure in json.loads(done.stdout)["figures"]}
    assert figures.keys() == {"compile_sample", "compile_library"}
    limits = {goal["of"]: goal["at_most"] for goal in figures["compile_sample"]["goals"]}
    assert limits == {"cold_p50_ms": 5.0, "cached_p50_ms": 0.1}
    assert all(figure["facts"]["same_answer"] is True for figure in figures.values())


def test_an_unknown_section_is_told() -> None:
    done = bench("compiel")
    assert done.returncode == 2
    assert "compile" in done.stderr


def test_the_other_sections(tmp_path: Path) -> None:
    done = bench("validate", "space", "call", "process", "--tiny", "--dir", str(tmp_path))
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    goals = {figure["name"]: {goal["of"] for goal in figure["goals"]} for figure in told["figures"]}
    assert goals == {
        "validate_spec": {"p50_us"},
        "space": {"p50_ms"},
        "noop_call_os": {"async_tool_p50_ms"},
        "noop_call_group": {"async_tool_p50_ms"},
        "process_executor": {"calls_per_second"},
    }
    peers = {name for figure in told["figures"] for name in figure["peers"]}
    skipped = {each["name"].rpartition(" ")[2] for each in told["skipped"]}
    assert peers | skipped == {"langgraph", "dbos"}, "a peer is measured, or named as skipped"
