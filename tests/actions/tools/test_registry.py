"""Tools are registered by name, and the registry says where they were looked for."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from agent_infra.actions import Tool, ToolRegistry, make_tool, tool
from agent_infra.errors import FileMissing, ToolInvalid, ToolUnknown

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def weather(city: str, days: int = 1) -> dict[str, Any]:
    """The weather of a city."""
    return {"city": city, "days": days}


def open_weather(**anything: Any) -> dict[str, Any]:
    return anything


def tool_with(**changes: Any) -> Tool:
    fields: dict[str, Any] = {"name": "weather", "input_schema": CITY, "output_schema": {}, "run": weather}
    return Tool(**fields | {"effects": "none"} | changes)


@pytest.fixture
def warnings(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the registry warns of. Its logger is replaced: one that was used before can't be redirected."""
    said: list[dict[str, Any]] = []

    class Listener:
        def warning(self, event: str, **fields: Any) -> None:
            said.append({"event": event} | fields)

    monkeypatch.setattr("agent_infra.actions.tools.registry._log", Listener())
    return said


# -- the registry ------------------------------------------------------------------------------------------------------


def test_a_registered_tool_is_found_by_name() -> None:
    registry = ToolRegistry()
    made = registry.register(make_tool(weather, effects="none"))
    assert registry.get("weather") is made
    assert "weather" in registry
    assert [each.name for each in registry] == registry.names() == ["weather"]


def test_the_decorator_registers_and_leaves_the_function_alone() -> None:
    registry = ToolRegistry()
    same = registry.tool(weather)
    other = registry.tool(name="forecast", effects="none", version="2.0.0")(weather)
    assert same is weather
    assert other is weather
    assert weather("北京") == {"city": "北京", "days": 1}
    assert registry.names() == ["forecast", "weather"]
    assert registry.get("forecast").version == "2.0.0"


def test_the_mark_registers_nothing() -> None:
    def marked() -> int:
        return 1

    assert tool(marked) is marked
    assert tool(name="other")(marked) is marked


def test_an_unknown_tool_is_refused_with_where_it_was_looked_for() -> None:
    registry = ToolRegistry()
    with pytest.raises(ToolUnknown, match="looked in: nowhere"):
        registry.get("weather")
    registry.register(make_tool(weather, effects="none"))
    registry.searched.append("/project/tools.py (1 tool)")
    with pytest.raises(ToolUnknown) as refused:
        registry.get("wether")
    assert "looked in: /project/tools.py (1 tool)" in str(refused.value)
    assert "Did you mean 'weather'?" in str(refused.value)
    assert refused.value.facts["searched"] == ["/project/tools.py (1 tool)"]


def test_one_function_may_be_registered_again_and_two_may_not_share_a_name() -> None:
    registry = ToolRegistry()
    registry.register(make_tool(weather, effects="none"))
    again = registry.register(make_tool(weather, effects="none", version="2.0.0"))
    assert registry.get("weather") is again
    with pytest.raises(ToolInvalid, match=r"two tools are called 'weather'.*open_weather"):
        registry.register(make_tool(open_weather, name="weather", effects="none"))
    assert registry.get("weather") is again


def test_undeclared_effects_are_said_and_break_nothing(warnings: list[dict[str, Any]]) -> None:
    ToolRegistry().register(make_tool(weather))
    ToolRegistry().register(make_tool(weather, effects="once"))
    assert [(said["event"], said["tool"]) for said in warnings] == [("tool.effects_undeclared", "weather")]


def test_a_tool_for_a_worker_must_be_where_a_worker_finds_it() -> None:
    with pytest.raises(ToolInvalid, match="'stray' can't run in a worker process: it is a lambda"):
        ToolRegistry().register(make_tool(lambda: 1, name="stray", effects="none", isolation="process"))


# -- loading -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    """A folder for tool modules; what they put on sys.path is taken off again."""
    before = list(sys.path)
    yield tmp_path
    sys.path[:] = before


def test_a_module_gives_its_marked_functions_and_tools(project: Path) -> None:
    (project / "tools.py").write_text(
        "from __future__ import annotations\n"
        "from agent_infra import Tool, tool\n"
        "@tool(effects='none')\n"
        "def first(city: str) -> str:\n"
        "    '''一.'''\n"
        "    return city\n"
        "@tool(name='zweite', effects='none', isolation='process', resources={'memory_mb': 64})\n"
        "def second(n: int) -> int:\n"
        "    return n\n"
        "def helper(): ...\n"
        "third = Tool('third', {}, {}, helper, effects='none')\n"
        "alias = first\n"
    )
    registry = ToolRegistry()
    loaded = registry.load_module(project / "tools.py")
    assert [each.name for each in loaded] == ["first", "zweite", "third"]
    assert registry.searched == [f"{project / 'tools.py'} (3 tools)"]
    assert registry.get("zweite").isolation == "process"
    assert registry.get("first").description == "一."
    assert [each.name for each in registry.load_module(project / "tools.py")] == ["first", "zweite", "third"]


def test_a_missing_module_is_said(project: Path) -> None:
    registry = ToolRegistry()
    with pytest.raises(FileMissing, match="tool module"):
        registry.load_module(project / "tools.py")
    assert registry.searched == [f"{project / 'tools.py'} (not loaded)"]


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("x = 1\nraise ValueError('坏')\n", 2, "ValueError: 坏"),
        ("def broken(:\n", 1, "SyntaxError"),
        ("\n\nimport no_such_module_anywhere\n", 3, "no_such_module_anywhere"),
        ("import sys\nsys.exit(3)\n", 2, "SystemExit: 3"),
    ],
)
def test_a_module_that_fails_is_named_with_its_line(project: Path, text: str, line: int, said: str) -> None:
    path = project / "tools.py"
    path.write_text(text)
    with pytest.raises(ToolInvalid) as refused:
        ToolRegistry().load_module(path)
    assert refused.value.where == f"{path}:{line}"
    assert said in str(refused.value)


def test_a_marked_function_without_hints_is_refused_at_loading(project: Path) -> None:
    (project / "tools.py").write_text("from agent_infra import tool\n@tool\ndef bare(city): ...\n")
    with pytest.raises(ToolInvalid, match="parameter 'city' of bare has no type hint"):
        ToolRegistry().load_module(project / "tools.py")


def entry(name: str, value: str) -> importlib.metadata.EntryPoint:
    return importlib.metadata.EntryPoint(name, value, "agent_infra.tools")


def test_installed_packages_bring_tools_and_a_broken_one_harms_no_other(
    monkeypatch: pytest.MonkeyPatch, warnings: list[dict[str, Any]]
) -> None:
    package = ModuleType("installed_tools")
    package.weather = make_tool(weather, effects="none")  # type: ignore[attr-defined]
    package.plain = open_weather  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "installed_tools", package)
    entries = [
        entry("broken", "no_such_package_anywhere"),
        entry("all", "installed_tools"),
        entry("one", "installed_tools:plain"),
        entry("odd", "installed_tools:__name__"),
    ]
    monkeypatch.setattr("agent_infra.actions.tools.registry.entry_points", lambda **_: entries)
    registry = ToolRegistry()
    loaded = registry.load_entry_points()
    assert [each.name for each in loaded] == ["weather", "open_weather"]
    assert [said["entry_point"] for said in warnings if said["event"] == "tool.entry_point_failed"] == [
        "no_such_package_anywhere",
        "installed_tools:__name__",
    ]
    assert "failed: ModuleNotFoundError" in registry.searched[0]
    assert registry.searched[-1] == "installed packages, entry points 'agent_infra.tools' (2 tools)"
