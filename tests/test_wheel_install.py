"""The wheel in an environment of its own: what a user gets from `pip install agent-infra-rl`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

pytestmark = [pytest.mark.full, pytest.mark.xdist_group("wheel")]


def run(*command: str | Path, cwd: Path, status: int = 0) -> str:
    """Run a command without anything of this environment; its output."""
    hidden = ("PYTHONPATH", "VIRTUAL_ENV", "AGENT_INFRA_HOME")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def bin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a fresh environment that the wheel, and nothing else, was installed into."""
    folder = tmp_path_factory.mktemp("installed")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, cwd=ROOT)
    (wheel,) = folder.glob("agent_infra_rl-*.whl")
    run(sys.executable, "-m", "venv", folder / "venv", cwd=folder)
    programs = folder / "venv" / "bin"
    run(programs / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel, cwd=folder)
    return programs


def test_the_demo_works_in_an_empty_folder(bin: Path, tmp_path: Path) -> None:
    told = run(bin / "agent-infra", "demo", cwd=tmp_path)
    assert "reward" in told
    assert "Where to look next" in told


def test_a_new_project_runs(bin: Path, tmp_path: Path) -> None:
    run(bin / "agent-infra", "init", "p", cwd=tmp_path)
    told = run(bin / "python", "run.py", cwd=tmp_path / "p")
    assert "in transit" in told
    assert "parcel_demo_001" in run(bin / "agent-infra", "session", "list", cwd=tmp_path / "p")


def test_it_is_healthy(bin: Path, tmp_path: Path) -> None:
    told = run(bin / "python", "-m", "agent_infra.health_check", cwd=tmp_path)
    assert told.count("[OK]") == 4


def test_the_core_brings_no_torch_no_server_no_cluster(bin: Path, tmp_path: Path) -> None:
    installed = run(bin / "python", "-m", "pip", "list", "--format=freeze", cwd=tmp_path).lower()
    for heavy in ("torch", "fastapi", "uvicorn", "ray==", "docker", "numpy", "pandas"):
        assert heavy not in installed


OPTIONAL = ("server", "integrations", "testing", "template", "__main__", "mcp_session", "mcp_stdio")
"""What needs extras, or is no module of the library."""


def test_every_dependency_of_the_core_is_declared(bin: Path, tmp_path: Path) -> None:
    program = (
        "import pkgutil, importlib, agent_infra\n"
        "for module in pkgutil.walk_packages(agent_infra.__path__, 'agent_infra.'):\n"
        f"    if not {{*module.name.split('.')}} & {{*{OPTIONAL}}}:\n"
        "        importlib.import_module(module.name)\n"
        "for name in agent_infra.__all__: getattr(agent_infra, name)\n"
    )
    run(bin / "python", "-W", "error", "-c", program, cwd=tmp_path)
