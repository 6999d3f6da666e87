"""Settings: precedence, types, and that every unknown name is refused with its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_infra.config import Settings, TomlFile, default_home, find_project, load_settings
from agent_infra.errors import ConfigErrors, Problem


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project folder that is the working directory."""
    (tmp_path / "agent_infra.toml").write_text("")
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'mine'\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def problems(**keywords: Any) -> tuple[Problem, ...]:
    with pytest.raises(ConfigErrors) as caught:
        load_settings(**keywords)
    return caught.value.problems


def test_without_any_source_the_defaults_are_in_force(root: Path) -> None:
    settings = load_settings()
    assert settings == Settings()
    assert settings.durability == "group"
    assert settings.state.undeclared_types == "warn"
    assert settings.state.rocksdb.compression == "lz4"


def test_each_source_is_stronger_than_the_next(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "pyproject.toml").write_text(
        '[tool.agent_infra]\ndurability = "os"\nlock_wait_timeout = 1\nmemory_limit_mb = 1\nlog_level = "error"\n'
    )
    (root / "agent_infra.toml").write_text(
        "[settings]\nlock_wait_timeout = 2\nmemory_limit_mb = 2\nlog_level = 'info'\n"
    )
    monkeypatch.setenv("AGENT_INFRA_MEMORY_LIMIT_MB", "3")
    monkeypatch.setenv("AGENT_INFRA_LOG_LEVEL", "DEBUG")
    settings = load_settings(log_level="warning")
    assert settings.durability == "os"
    assert settings.lock_wait_timeout == 2.0
    assert settings.memory_limit_mb == 3
    assert settings.log_level == "warning"


def test_sections_merge_name_by_name(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "agent_infra.toml").write_text("[state.rocksdb]\nmax_open_files = 100000\nwrite_buffer_size = 512\n")
    monkeypatch.setenv("AGENT_INFRA_STATE__ROCKSDB__COMPRESSION", "zstd")
    settings = load_settings(state={"undeclared_types": "refuse", "rocksdb": {"write_buffer_size": 64}})
    assert settings.state.undeclared_types == "refuse"
    assert settings.state.rocksdb.model_dump() == {
        "write_buffer_size": 64,
        "max_open_files": 100000,
        "compression": "zstd",
    }


def test_a_section_may_stand_under_settings_too(root: Path) -> None:
    (root / "agent_infra.toml").write_text('[settings]\nstate.undeclared_types = "refuse"\n')
    assert load_settings().state.undeclared_types == "refuse"


def test_all_wrong_names_and_values_of_all_sources_come_at_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "agent_infra.toml").write_text(
        '# 设置\n[settings]\ndurabilty = "group"\n\n[state.rocksdb]\ncompression = "gzip"\n'
    )
    (root / "pyproject.toml").write_text("[tool.agent_infra]\nlock_wait_timeout = -1\n")
    monkeypatch.setenv("AGENT_INFRA_MEMORY_LIMT_MB", "3")
    found = {(p.code, Path(p.file or "").name, p.line): p for p in problems(log_level="loud")}
    assert set(found) == {
        ("InvalidSetting", "<keyword log_level>", None),
        ("UnknownSetting", "<environment AGENT_INFRA_MEMORY_LIMT_MB>", None),
        ("UnknownSetting", "agent_infra.toml", 3),
        ("InvalidSetting", "agent_infra.toml", 6),
        ("InvalidSetting", "pyproject.toml", 2),
    }
    misspelt = found["UnknownSetting", "agent_infra.toml", 3]
    assert misspelt.hint == "did you mean `durability`?"
    assert misspelt.source == 'durabilty = "group"'
    assert "'lz4', 'zstd', 'snappy' or 'none'" in found["InvalidSetting", "agent_infra.toml", 6].message
    assert found["InvalidSetting", "pyproject.toml", 2].hint == "the default is 5.0"


@pytest.mark.parametrize("value", [True, "much", None, 0, -5, 1.5, float("nan"), {"mb": 5}])
def test_memory_is_a_whole_number_of_mebibytes(root: Path, value: object) -> None:
    (problem,) = problems(memory_limit_mb=value)
    assert problem.code == "InvalidSetting"
    assert repr(value) in problem.message


def test_a_variable_that_names_a_whole_section_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_INFRA_STATE", "refuse")
    monkeypatch.setenv("AGENT_INFRA_STATE__UNDECLARED_TYPES", "refuse")
    (problem,) = problems()
    assert problem.file == "<environment AGENT_INFRA_STATE>"


def test_a_table_of_another_shape_is_refused(root: Path) -> None:
    (root / "pyproject.toml").write_text("[tool]\nagent_infra = 3\n")
    (problem,) = problems()
    assert (problem.code, problem.line) == ("WrongShape", 2)


def test_settings_are_immutable() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Settings().durability = "os"  # type: ignore[misc]


def test_the_home_is_beside_the_project_unless_the_environment_says_otherwise(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AGENT_INFRA_HOME", raising=False)
    (root / "deep").mkdir()
    monkeypatch.chdir(root / "deep")
    assert default_home() == root / ".agent_infra"
    assert default_home(find_project(root)) == root / ".agent_infra"
    monkeypatch.setenv("AGENT_INFRA_HOME", str(root / "状态"))
    assert default_home() == root / "状态"


names = st.text("abcdefgh_", min_size=1, max_size=8)
tables = st.recursive(
    st.dictionaries(names, st.integers() | st.booleans(), max_size=3),
    lambda inner: st.dictionaries(names, inner | st.integers(), max_size=3),
    max_leaves=12,
)


def _toml(table: dict[str, Any], path: tuple[str, ...], lines: list[tuple[tuple[str, ...], str]]) -> None:
    for name, value in table.items():
        if not isinstance(value, dict):
            lines.append(((*path, name), f"{name} = {str(value).lower()}"))
    for name, value in table.items():
        if isinstance(value, dict):
            lines.append(((*path, name), f"[{'.'.join((*path, name))}]"))
            _toml(value, (*path, name), lines)


@given(tables)
def test_every_key_of_a_toml_file_is_found_at_its_line(table: dict[str, Any]) -> None:
    lines: list[tuple[tuple[str, ...], str]] = []
    _toml(table, (), lines)
    file = TomlFile(Path("x.toml"), "\n".join(line for _, line in lines))
    for number, (path, line) in enumerate(lines, 1):
        problem = file.problem("Code", "message", *path)
        assert (problem.line, problem.column, problem.source) == (number, 1, line)
