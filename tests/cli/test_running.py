"""`init`, `demo`, `run`, `resume`: projects are written and goals run."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Command = Callable[..., subprocess.CompletedProcess[str]]


def written(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, without what running leaves."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and ".agent_infra" not in path.parts
    }


# -- init and demo ---------------------------------------------------------------------------------


def test_init_writes_a_project_that_runs(command: Command, folder: Path) -> None:
    made = command("init", "新项目")
    assert made.returncode == 0, made.stderr
    new = folder / "新项目"
    assert {"agent_infra.toml", "tools.py", "run.py", "goal.yaml"} <= set(written(new))
    assert set(made.stdout.split()) == {str(Path("新项目") / name) for name in written(new)}
    run = subprocess.run([sys.executable, "run.py"], cwd=new, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "reward" in run.stdout
    checked = command("action", "check", "actions", cwd=new)
    assert checked.returncode == 0, checked.stderr


def test_init_overwrites_nothing(quick: Command, folder: Path) -> None:
    (folder / "p").mkdir()
    (folder / "p" / "tools.py").write_text("mine = 1\n", encoding="utf-8")
    (folder / "p" / "notes.txt").write_text("我的\n", encoding="utf-8")
    before = written(folder)
    refused = quick("init", "p")
    assert refused.returncode == 1
    assert "tools.py" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert written(folder) == before
    assert quick("init", "q").returncode == 0
    assert quick("init", "q").returncode == 1


def test_init_into_a_folder_with_other_files_leaves_them(quick: Command, folder: Path) -> None:
    (folder / "notes.txt").write_text("我的\n", encoding="utf-8")
    assert quick("init", ".").returncode == 0
    assert (folder / "notes.txt").read_text("utf-8") == "我的\n"
    assert (folder / "run.py").exists()


def test_demo_works_in_an_empty_folder_and_twice(command: Command, folder: Path) -> None:
    for _ in range(2):
        demo = command("demo")
        assert demo.returncode == 0, demo.stderr
        for told in ("reward", "report", "Where to look next", "agent-infra session show"):
            assert told in demo.stdout
    (project,) = [path for path in folder.iterdir() if path.is_dir()]
    report = next(iter((project / ".agent_infra" / "reports").glob("*.md")))
    assert report.read_text("utf-8").startswith("# ")


def test_what_the_demo_says_to_look_at_is_there(command: Command, folder: Path) -> None:
    command("demo")
    (project,) = [path for path in folder.iterdir() if path.is_dir()]
    shown = command("session", "show", "parcel_demo_001", "--home", project / ".agent_infra", cwd=project)
    assert shown.returncode == 0, shown.stderr
    assert "woven_reward" in shown.stdout


# -- run -------------------------------------------------------------------------------------------


def test_run_prints_the_result(command: Command, project: Path) -> None:
    run = command("run", "goal.yaml", "--session", "会话")
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("会话: ")
    assert "你好，再说一次" in run.stdout
    assert run.stderr == ""


def test_run_as_json(quick: Command, project: Path) -> None:
    told = json.loads(quick("run", "goal.yaml", "--json").stdout)
    assert told["ok"] is True
    assert told["outputs"]["again"] == {"said": "你好，再说一次"}
    assert len(told["event_ids"]) == 2
    assert told["version"].startswith(told["session"])
    assert (told["waiting"], told["error"]) == ([], None)


def test_run_in_another_home(quick: Command, project: Path, tmp_path: Path, home: Path) -> None:
    assert quick("run", "goal.yaml", "--home", tmp_path / "别处").returncode == 0
    assert not home.exists()


def test_a_failing_run_says_where_and_why(quick: Command, project: Path) -> None:
    (project / "bad.yaml").write_text(
        "goal: g\nsubgoals:\n  坏: {action: fail, with: {why: 没电了}}\n", encoding="utf-8"
    )
    run = quick("run", "bad.yaml")
    assert run.returncode == 1
    assert "坏" in run.stdout
    assert "没电了" in run.stdout
    told = json.loads(quick("run", "bad.yaml", "--json").stdout)
    assert (told["ok"], told["error"]["subgoal"]) == (False, "坏")


@pytest.mark.parametrize(
    ("goal", "status", "told"),
    [
        ("absent.yaml", 4, "absent.yaml"),
        ("北京明天天气", 4, "北京明天天气"),
        ("broken.yaml", 1, "broken.yaml:3:"),
    ],
)
def test_a_goal_that_can_not_be_run_is_told_without_a_traceback(
    quick: Command, project: Path, goal: str, status: int, told: str
) -> None:
    (project / "broken.yaml").write_text("goal: g\nsubgoals:\n  x: {action: sya, with: {text: 好}}\n", encoding="utf-8")
    run = quick("run", goal)
    assert run.returncode == status
    assert told in run.stderr
    assert run.stdout == ""
    assert "Traceback" not in run.stderr


def test_a_text_runs_by_the_projects_knowledge(quick: Command, project: Path) -> None:
    (project / "agent_infra.toml").write_text('tools = ["tools.py"]\n', encoding="utf-8")
    (project / "knowledge").mkdir()
    (project / "knowledge" / "methods.yaml").write_text(
        "version: 1\nmethods:\n  - goal: greet\n    match: ['向(?P<who>.+)问好']\n"
        "    subgoals: {say: {action: say, with: {text: '你好，${goal.params.who}'}}}\n",
        encoding="utf-8",
    )
    run = quick("run", "向小明问好")
    assert run.returncode == 0, run.stderr
    assert "你好，小明" in run.stdout


# -- resume ----------------------------------------------------------------------------------------


def test_resume_with_nothing_to_do(command: Command, ran: Path) -> None:
    for arguments in ((), ("--session", "会话")):
        resumed = command("resume", *arguments)
        assert (resumed.returncode, resumed.stdout) == (0, "")
        assert "nothing to resume" in resumed.stderr


# -- usage -----------------------------------------------------------------------------------------


def test_help_lists_every_command(quick: Command) -> None:
    told = quick("--help")
    assert told.returncode == 0
    for name in ("health", "demo", "init", "run", "resume", "session", "evidence", "action", "state", "config"):
        assert name in told.stdout


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["run"], ["session", "show"], ["run", "goal.yaml", "--sesion", "x"]]
)
def test_wrong_usage_is_status_2(quick: Command, arguments: list[str]) -> None:
    wrong = quick(*arguments)
    assert wrong.returncode == 2
    assert wrong.stdout == ""
    assert "Traceback" not in wrong.stderr


def test_the_module_is_the_command(project: Path) -> None:
    told = subprocess.run([sys.executable, "-m", "agent_infra", "--help"], capture_output=True, text=True, check=False)
    assert told.returncode == 0
    assert "resume" in told.stdout
