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
