"""The command as a user has it: a process of its own, in a folder of its own, on a home of its own.

`command` starts that process. `quick` does the same within this one, for the many variants that need none.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent_infra import Infra
from agent_infra.cli import main
from agent_infra.config import Project

Command = Callable[..., subprocess.CompletedProcess[str]]
PROGRAM = Path(sys.executable).with_name("agent-infra")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where commands are given: an empty folder."""
    made = tmp_path / "工作"
    made.mkdir()
    return made


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The home that commands use; there isn't one yet."""
    return tmp_path / "家"


@pytest.fixture
def command(folder: Path, home: Path) -> Command:
    def run(*arguments: str | Path, cwd: Path = folder, **environment: str) -> subprocess.CompletedProcess[str]:
        own = {"AGENT_INFRA_HOME": str(home), "PYTHONUTF8": "1", "COLUMNS": "200"}
        return subprocess.run(
            [str(PROGRAM), *map(str, arguments)],
            cwd=cwd,
            env=os.environ | own | environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


@pytest.fixture
def quick(
    folder: Path, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Command]:
    def run(*arguments: str | Path, cwd: Path = folder, **environment: str) -> subprocess.CompletedProcess[str]:
        status: int | str | None = 0
        with monkeypatch.context() as patch:
            patch.chdir(cwd)
            patch.setattr(sys, "argv", [str(PROGRAM), *map(str, arguments)])
            for name, value in ({"AGENT_INFRA_HOME": str(home), "COLUMNS": "200"} | environment).items():
                patch.setenv(name, value)
            capsys.readouterr()
            try:
                main()
            except SystemExit as end:
                status = end.code or 0
            out, err = capsys.readouterr()
        assert isinstance(status, int)
        return subprocess.CompletedProcess(arguments, status, out, err)

    logger = logging.getLogger("agent_infra")  # the command sets it up for itself
    before = (logger.handlers[:], logger.level, logger.propagate)
    yield run
    logger.handlers, logger.level, logger.propagate = before


GOAL = """\
version: 1
goal: 问候
subgoals:
  hello: {action: say, with: {text: 你好}}
  again: {action: say, with: {text: "${subgoals.hello.result.said}，再说一次"}}
"""
TOOLS = '''\
from agent_infra import tool


@tool(effects="none")
def say(text: str) -> dict[str, str]:
    """Say something."""
    return {"said": text}


@tool(effects="none")
def fail(why: str) -> None:
    """Fail."""
    raise RuntimeError(why)
'''


@pytest.fixture
def project(folder: Path) -> Path:
    """The folder, with two tools and a goal in it."""
    (folder / "tools.py").write_text(TOOLS, encoding="utf-8")
    (folder / "goal.yaml").write_text(GOAL, encoding="utf-8")
    return folder


@pytest.fixture
def ran(project: Path, home: Path) -> Path:
    """The project after its goal was run in two sessions, `会话` and `two.dots.1`."""
    with Infra.open(home, project=project) as infra:
        for session in ("会话", "two.dots.1"):
            assert infra.run(project / "goal.yaml", session=session).ok
    return project


@pytest.fixture
def evidence(home: Path, tmp_path: Path) -> str:
    """The id of a call's evidence in the home, of session `会话`; its large output is a block of its own."""
    with Infra.open(home, project=Project(root=tmp_path)) as infra:

        @infra.tools.tool(effects="none")
        def tell() -> str:
            """Tell much."""
            return "长" * 100_000

        return infra.actions.execute("tell", infra.session("会话", agent="planner")).evidence_cid
