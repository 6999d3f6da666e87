"""What is written about the project is true of it: code runs, links lead somewhere, commands are there."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest

import agent_infra

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")


def repository_files() -> list[Path]:
    """Every file that is, or could be, committed."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("this tree is no git repository")
    return [path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def markdown_files() -> list[Path]:
    """Every Markdown file, without what is installed or generated."""
    hidden = re.compile(r"/(\.[^/]+|node_modules|dist|build|reports)/")
    return [path for path in sorted(ROOT.rglob("*.md")) if not hidden.search("/" + str(path.relative_to(ROOT)))]


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


# -- the README ------------------------------------------------------------------------------------


def test_the_readmes_program_runs_in_a_new_project(tmp_path: Path) -> None:
    (program,) = blocks(README, "python")
    environment = os.environ | {"AGENT_INFRA_HOME": str(tmp_path / "home"), "PYTHONUTF8": "1"}

    def python(*arguments: str, cwd: Path) -> str:
        run = subprocess.run(
            [sys.executable, *arguments], cwd=cwd, env=environment, capture_output=True, text=True, check=False
        )
        assert run.returncode == 0, run.stderr
        return run.stdout

    python("-m", "agent_infra", "init", "my_agent", cwd=tmp_path)
    (tmp_path / "my_agent" / "program.py").write_text(program, encoding="utf-8")
    told = python("program.py", cwd=tmp_path / "my_agent")
    assert "in transit" in told
    assert "# Reward" in told


def test_the_first_screen_has_the_two_commands_and_none_of_the_details() -> None:
    screen = "\n".join(README.splitlines()[:50])
    for told in ("make demo", "make test", "woven reward"):
        assert told in screen
    for detail in ("IPFS", "DRL", "GDEP:", "packing"):
        assert detail not in screen


def test_it_says_when_a_simpler_tool_is_enough() -> None:
    assert "simpler" in README


# -- commands --------------------------------------------------------------------------------------


def make_targets() -> set[str]:
    """The Makefile's targets; `%` in one stands for anything."""
    return set(re.findall(r"^([a-z][a-z%-]*):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))


@pytest.mark.parametrize("file", markdown_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_make_target_that_is_named_exists(file: Path) -> None:
    text = file.read_text("utf-8")
    code = "\n".join([*re.findall(r"`([^`\n]+)`", text), *blocks(text, ""), *re.findall(r"^    (.*)$", text, re.M)])
    named = set(re.findall(r"^make ([a-z][a-z0-9.-]*)", code, re.MULTILINE))
    known = [target.replace("%", "*") for target in make_targets()]
    assert [name for name in named if not any(fnmatch(name, target) for target in known)] == []


def test_make_help_has_one_line_for_each_target() -> None:
    alone = {name: value for name, value in os.environ.items() if name not in {"MAKELEVEL", "MAKEFLAGS", "MFLAGS"}}
    told = subprocess.run(["make", "help"], cwd=ROOT, env=alone, capture_output=True, text=True, check=True).stdout
    named = [line.split()[1] for line in told.splitlines()]
    assert sorted(named) == sorted(make_targets())
    assert {"demo", "test", "test-full", "check", "bench", "help"} <= set(named)


def test_every_command_that_is_named_exists() -> None:
    told = subprocess.run([sys.executable, "-m", "agent_infra", "--help"], capture_output=True, text=True, check=True)
    known = set(re.findall(r"^\W*([a-z]+)\s", told.stdout, re.MULTILINE))
    for file in markdown_files():
        code = "\n".join(re.findall(r"`[^`]+`", file.read_text("utf-8")))
        named = set(re.findall(r"\bagent-infra ([a-z]+)", code))
        assert named <= known, file


# -- links and names -------------------------------------------------------------------------------


@pytest.mark.parametrize("file", markdown_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_into_the_repository_leads_somewhere(file: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", file.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    targets = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r"(?:src|href)=\"([^\"]+)\"", text)
    local = [target.partition("#")[0] for target in targets if not re.match(r"[a-z]+:|#", target)]
    assert [target for target in local if not (file.parent / target).exists()] == []


@pytest.mark.parametrize("file", markdown_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_source_file_that_is_named_is_there(file: Path) -> None:
    named = set(re.findall(r"`((?:src/agent_infra/)?[a-z_]+(?:/[a-z_]+)*/[a-z_]+\.py)`", file.read_text("utf-8")))
    places = (ROOT, ROOT / "src", ROOT / "src" / "agent_infra", file.parent)
    assert [name for name in sorted(named) if not any((place / name).exists() for place in places)] == []


def test_every_decision_is_listed_and_numbered_once() -> None:
    folder = ROOT / "docs" / "decisions"
    records = sorted(path.name for path in folder.glob("[0-9]*.md"))
    listed = re.findall(r"\((\d{4}-[^)]+\.md)\)", (folder / "README.md").read_text("utf-8"))
    assert sorted(listed) == records
    assert [name[:4] for name in records] == [f"{number:04}" for number in range(1, len(records) + 1)]


def test_every_dependency_has_its_decision() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    text = "\n".join(path.read_text("utf-8").lower() for path in (ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    names = [re.split(r"[<>=\[!~]", dependency)[0] for dependency in project["dependencies"]]
    assert [name for name in names if name.lower() not in text] == []


@pytest.mark.parametrize("name", sorted(agent_infra.__all__))
def test_every_public_name_says_what_it_is(name: str) -> None:
    value = getattr(agent_infra, name)
    text = inspect.getdoc(value)
    assert text
    if inspect.isclass(value):
        own = value.__doc__
        assert own, f"{name} has no docstring of its own"
        assert not own.startswith(f"{name}("), f"{name} has only the docstring that dataclasses make"


@pytest.mark.parametrize(
    "name", [name for name in sorted(agent_infra.__all__) if inspect.isclass(getattr(agent_infra, name))]
)
def test_every_public_method_says_what_it_does(name: str) -> None:
    kind = getattr(agent_infra, name)
    silent = [
        method
        for method, value in vars(kind).items()
        if not method.startswith("_")
        and (inspect.isroutine(value) or isinstance(value, (property, classmethod, staticmethod)))
        and not inspect.getdoc(value)
    ]
    assert silent == []


# -- what must not be in it ------------------------------------------------------------------------

MACHINE_PATHS = ("../" + "shared", "/wo" + "rk/", "/fa" + "rm/")


def test_nothing_names_the_machine_that_it_was_made_on() -> None:
    found = []
    for path in repository_files():
        text = path.read_bytes().decode("utf-8", "replace")
        found += [(str(path.relative_to(ROOT)), name) for name in MACHINE_PATHS if name in text]
    assert found == []


def test_nothing_that_running_leaves_would_be_committed() -> None:
    left = re.compile(r"(^|/)(\.agent_infra|\.venv|__pycache__|dist|reports)/|\.(pyc|sst|whl)$")
    names = [str(path.relative_to(ROOT)) for path in repository_files()]
    assert [name for name in names if left.search(name)] == []
