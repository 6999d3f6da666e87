"""The house rules hold, and their check finds what breaks them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def check(package: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tools" / "check_house.py"), str(package)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_package_keeps_them() -> None:
    done = check(ROOT / "src" / "agent_infra")
    assert done.returncode == 0, done.stdout


def test_each_breach_is_named_with_its_line(tmp_path: Path) -> None:
    package = tmp_path / "house"
    for room in ("state", "actions"):
        (package / room).mkdir(parents=True)
        (package / room / "__init__.py").write_text('"""A room."""\n')
    (package / "state" / "model.py").write_text('"""A module."""\n\n\ndef get():\n    return 1\n')
    (package / "actions" / "long.py").write_text('"""A module."""\n' + "x = 1\n" * 900)
    (package / "actions" / "run.py").write_text(
        '"""A module."""\nfrom house.state.model import get\n\ndef _run():\n' + "    get()\n" * 61
    )
    found = [line.removeprefix(f"{package}/") for line in check(package).stdout.splitlines()]
    assert found == [
        "actions/long.py:1: 901 lines; a module has at most 800, split it by subject",
        "actions/run.py:4: `_run` has 62 lines; a function has at most 60",
        "actions/run.py:2: reaches into `house.state.model`; import from the package `house.state`",
        "state/model.py:4: `get` is public and has no docstring",
    ]
