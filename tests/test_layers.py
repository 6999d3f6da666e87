"""The layer rule holds, and the check that says so would notice if it didn't."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter on the package below `folder`, by this project's contract."""
    # Through its Python interface: the command line puts its own working directory before PYTHONPATH.
    program = (
        "import sys; from importlinter.cli import lint_imports as lint; sys.exit(lint(no_cache=True, no_logo=True))"
    )
    environment = {**os.environ, "PYTHONPATH": str(folder), "COLUMNS": "200"}
    command = [sys.executable, "-c", program]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A folder with a copy of the package, to break."""
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "src"


def test_each_layer_uses_only_those_below_it() -> None:
    done = lint_imports(ROOT / "src")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("module", "line", "imported"),
    [
        ("errors.py", "from agent_infra import state", "agent_infra.state"),
        ("content.py", "def late() -> None:\n    import agent_infra.rewards", "agent_infra.rewards"),
        ("settings/__init__.py", "from agent_infra.scheduler import resources", "agent_infra.scheduler"),
    ],
)
def test_an_upward_import_is_found(copy: Path, module: str, line: str, imported: str) -> None:
    path = copy / "agent_infra" / module
    path.write_text(path.read_text() + f"\n{line}\n")
    done = lint_imports(copy)
    assert done.returncode == 1, done.stdout + done.stderr
    importer = "agent_infra." + module.removesuffix(".py").removesuffix("/__init__")
    assert f"{importer} -> {imported}" in done.stdout


def test_a_room_that_no_layer_lists_is_found(copy: Path) -> None:
    (copy / "agent_infra" / "utils.py").write_text('"""Things without a place."""\n')
    done = lint_imports(copy)
    assert done.returncode == 1
    assert "utils" in done.stdout
