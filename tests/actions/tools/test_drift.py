"""One source of truth for tools: whoever has another state of one reloads it, or refuses by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent_infra import Infra, StateGraph
from agent_infra.config import Project
from agent_infra.errors import ContractDrift, ToolInvalid, ToolUnknown

SOURCE = '''
from agent_infra import tool
import os

@tool(effects="none", isolation="{isolation}", version="{version}")
def 问候(name: str{more}) -> list:
    """Greet."""
    return ["{greeting} " + name, os.getpid()]
'''


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def write_it(greeting: str, version: str = "1.0.0", more: str = "", isolation: str = "process") -> Path:
        path = tmp_path / "tools.py"
        text = SOURCE.format(greeting=greeting, version=version, more=more, isolation=isolation)
        path.write_text(text.replace("问候", "greet"), "utf-8")
        return path

    return write_it


@pytest.fixture
def infra(tmp_path: Path) -> Iterator[Infra]:
    with Infra.open(tmp_path / "家", project=Project(root=tmp_path), durability="os") as opened:
        yield opened


@pytest.fixture
def graph(infra: Infra) -> StateGraph:
    return infra.session("会话")


def greet(infra: Infra, graph: StateGraph) -> list:
    result = infra.actions.execute({"tool": "greet", "params": {"name": "李雷"}}, graph)
    assert result.ok, result.error
    return result.output


def test_a_changed_file_is_loaded_anew_and_warm_workers_follow(
    infra: Infra, graph: StateGraph, write: Callable[..., Path]
) -> None:
    infra.tools.load_module(write("你好"))
    first = greet(infra, graph)
    assert first[0] == "你好 李雷"
    assert greet(infra, graph) == first, "a warm worker"
    assert infra.tools.reload() == [], "nothing was changed"
    write("再见")
    revision = infra.tools.revision
    assert infra.tools.reload() == ["greet"]
    assert infra.tools.revision > revision
    last = greet(infra, graph)
    assert last[0] == "再见 李雷"
    assert last[1] != first[1], "the worker that knew the old source is gone"


def test_a_worker_never_runs_another_source_than_the_one_registered(
    infra: Infra, graph: StateGraph, write: Callable[..., Path]
) -> None:
    infra.tools.load_module(write("你好"))
    write("再见")
    result = infra.actions.execute({"tool": "greet", "params": {"name": "李雷"}}, graph)
    assert not result.ok
    assert result.error["code"] == "ContractDrift"
    assert "tools.py is not the source that the tool was registered from" in result.error["what"]
    assert "reload" in result.error["mend"]
    infra.tools.reload()
    assert greet(infra, graph)[0] == "再见 李雷"


def test_a_file_that_can_not_be_run_leaves_the_old_tools(
    infra: Infra, graph: StateGraph, write: Callable[..., Path]
) -> None:
    path = write("你好", isolation="none")
    infra.tools.load_module(path)
    path.write_text("def (", "utf-8")
    with pytest.raises(ToolInvalid, match=r"tools\.py"):
        infra.tools.reload()
    assert greet(infra, graph)[0] == "你好 李雷"


def test_a_tool_that_is_gone_from_its_file_is_unknown(
    infra: Infra, graph: StateGraph, write: Callable[..., Path]
) -> None:
    path = write("你好")
    infra.tools.load_module(path)
    path.write_text("", "utf-8")
    infra.tools.reload()
    with pytest.raises(ToolUnknown):
        infra.tools.get("greet")


@pytest.mark.parametrize(
    ("version", "more", "why"),
    [
        ("2.0.0", "", "version 1.0.0, and it is 2.0.0"),
        ("1.0.0", ", x: int = 1", "still called version 1.0.0"),
    ],
)
def test_a_contract_for_another_state_of_its_tool_is_refused_by_name(
    infra: Infra, graph: StateGraph, write: Callable[..., Path], version: str, more: str, why: str
) -> None:
    infra.tools.load_module(write("你好"))
    (contract,) = infra.actions.load("name: hello\ntool: greet\nparams: {name: 李雷}\n")
    write("你好", version=version, more=more)
    infra.tools.reload()
    with pytest.raises(ContractDrift, match=why):
        infra.actions.execute(contract, graph)
    assert graph.nodes(type="call") == []
