"""The project: found upwards, read whole, every mistake named with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_infra.config import FOLDERS, Project, find_project, read_project
from agent_infra.errors import ConfigErrors, FileMissing, Problem


def write(root: Path, text: str) -> Path:
    path = root / "agent_infra.toml"
    path.write_text(text, encoding="utf-8")
    return path


def problems(root: Path) -> dict[str, Problem]:
    with pytest.raises(ConfigErrors) as caught:
        find_project(root)
    return {problem.code: problem for problem in caught.value.problems}


def test_it_is_found_from_a_folder_below(tmp_path: Path) -> None:
    write(tmp_path, "")
    (tmp_path / "a" / "b").mkdir(parents=True)
    assert find_project(tmp_path / "a" / "b").root == tmp_path


def test_it_says_where_things_are(tmp_path: Path) -> None:
    for name in ("helpers.py", "tools.py"):
        (tmp_path / name).touch()
    for name in ("动作", "schemas", "knowledge"):
        (tmp_path / name).mkdir()
    (tmp_path / "rules.yaml").touch()
    write(
        tmp_path,
        """
tools = [
    "helpers.py",
]
actions = "动作/"
rules = "rules.yaml"
[settings]
durability = "step"
[state.rocksdb]
max_open_files = 64
[sources.tickets]
database = "secret://TICKETS_DSN"
join = {ticket = "row.ticket_id"}
""",
    )
    project = find_project(tmp_path)
    assert project.tools == (tmp_path / "tools.py", tmp_path / "helpers.py")
    assert {name: getattr(project, name) for name in FOLDERS} == {
        "actions": tmp_path / "动作",
        "schemas": tmp_path / "schemas",
        "rules": tmp_path / "rules.yaml",
        "knowledge": tmp_path / "knowledge",
        "agents": None,
        "experiments": None,
    }
    assert project.sources == {"tickets": {"database": "secret://TICKETS_DSN", "join": {"ticket": "row.ticket_id"}}}
    assert project.settings == {"durability": "step", "state": {"rocksdb": {"max_open_files": 64}}}
    nested = project.problem("JoinUnknown", "no such key", "sources", "tickets", "join", "ticket")
    assert (nested.line, nested.source) == (13, 'join = {ticket = "row.ticket_id"}')


def test_without_the_file_only_a_tools_py_is_picked_up(tmp_path: Path) -> None:
    (tmp_path / "actions").mkdir()
    assert find_project(tmp_path) == Project(root=tmp_path)
    (tmp_path / "tools.py").touch()
    assert find_project(tmp_path).tools == (tmp_path / "tools.py",)


def test_a_tools_py_that_is_named_too_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "tools.py").touch()
    write(tmp_path, 'tools = ["./tools.py"]')
    assert find_project(tmp_path).tools == (tmp_path / "tools.py",)


def test_all_mistakes_come_at_once_with_line_and_hint(tmp_path: Path) -> None:
    path = write(tmp_path, 'actons = "x/"\ntools = "tools.py"\nrules = "nowhere/"\n\n[sources]\nlatency = "seconds"\n')
    found = problems(tmp_path)
    assert {code: problem.line for code, problem in found.items()} == {
        "UnknownKey": 1,
        "PathMissing": 3,
        "WrongShape": 6,
    }
    assert found["UnknownKey"].hint == "did you mean `actions`?"
    assert found["UnknownKey"].file == str(path)
    with pytest.raises(ConfigErrors, match=r'write tools = \["tools\.py"\]'):
        find_project(tmp_path)


def test_a_setting_outside_its_table_is_named_as_such(tmp_path: Path) -> None:
    write(tmp_path, 'durability = "os"')
    assert problems(tmp_path)["UnknownKey"].hint == "settings stand under [settings]"


def test_one_section_can_not_stand_twice(tmp_path: Path) -> None:
    write(tmp_path, '[state]\nundeclared_types = "warn"\n[settings.state]\nundeclared_types = "refuse"\n')
    assert problems(tmp_path)["SectionTwice"].line == 1


@pytest.mark.parametrize(
    ("text", "line"), [('tools = ["a.py"', None), ("a = 1\na = 2\n", 2), ("[settings]\n\n= 3\n", 3), ("actions = x", 1)]
)
def test_what_is_not_toml_is_refused_with_its_line(tmp_path: Path, text: str, line: int | None) -> None:
    write(tmp_path, text)
    assert problems(tmp_path)["NotToml"].line == line


def test_what_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "agent_infra.toml").write_bytes(b"# \xff\xfe")
    assert "UTF-8" in problems(tmp_path)["NotToml"].message


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileMissing, match=r"agent_infra\.toml"):
        read_project(tmp_path / "agent_infra.toml")
