"""The example of two schema versions on one graph, run as a user runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "schema_versions"


def test_both_programs_work_on_one_graph() -> None:
    run = subprocess.run(
        [sys.executable, "-X", "utf8", "run.py"], cwd=EXAMPLE, capture_output=True, text=True, timeout=120, check=False
    )
    assert run.returncode == 0, run.stderr
    told: dict[str, list[dict[str, object]]] = {}
    for line in run.stdout.splitlines():
        if line.startswith(("planner", "executor")):
            told.setdefault(line[:20].strip(), []).append(json.loads(line[20:]))
    assert "MigrationMissing" in run.stdout
    assert "no migration leads from 1 to 2" in run.stdout
    assert [data["confidence_score"] for data in told["planner 2.1 writes"]] == [0.95, 0.4]
    assert told["executor 1.8 reads"] == [
        {"step": "查北京明天天气", "status": "todo"},
        {"step": "提醒带伞", "status": "todo"},
    ]
    assert all("confidence_score" not in data for data in told["executor 1.8 writes"])
    assert {data["step"]: data["confidence_score"] for data in told["planner 2.1 reads"]} == {
        "查北京明天天气": 0.9,
        "提醒带伞": 0.4,
    }
    assert "backward compatible: no" in run.stdout
    assert "verified: True" in run.stdout
    assert run.stderr == ""


def test_the_readme_names_what_there_is() -> None:
    readme = (EXAMPLE / "README.md").read_text("utf-8")
    for name in ("run.py", "schemas.py", "with_schemas", "MigrationMissing"):
        assert name in readme
