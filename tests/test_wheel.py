"""The wheel: what a user installs holds the library whole, and nothing of any example."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
WORDS = ("weather", "beijing", "openweathermap", "北京", "天气")

# Building is slow, so one worker does it for all of this module's tests.
pytestmark = pytest.mark.xdist_group("wheel")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zipfile.ZipFile]:
    """The wheel, built from this tree without the network."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = folder.glob("agent_infra_rl-*.whl")
    with zipfile.ZipFile(path) as archive:
        yield archive


def test_it_holds_every_file_of_the_package(wheel: zipfile.ZipFile) -> None:
    source = ROOT / "src"
    there = {str(path.relative_to(source)) for path in (source / "agent_infra").rglob("*") if path.is_file()}
    expected = {name for name in there if "__pycache__" not in name}
    assert expected == {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert "agent_infra/py.typed" in expected


def test_it_brings_its_licence_and_command(wheel: zipfile.ZipFile) -> None:
    info = {name.partition(".dist-info/")[2]: name for name in wheel.namelist() if ".dist-info/" in name}
    assert b"Apache License" in wheel.read(info["licenses/LICENSE"])
    assert b"agent-infra = agent_infra.cli:main" in wheel.read(info["entry_points.txt"])


def test_it_knows_nothing_of_the_example(wheel: zipfile.ZipFile) -> None:
    found = [
        (name, word)
        for name in wheel.namelist()
        if ".dist-info/" not in name  # the README is in there, and it may show the example
        for word in WORDS
        if word in name.lower() or word.encode() in wheel.read(name).lower()
    ]
    assert found == []
