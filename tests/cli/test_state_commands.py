"""`agent-infra state`: versions are shown and compared, sessions go out and come in, homes are upgraded."""

from __future__ import annotations

import json
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent_infra import Infra, StateGraph
from agent_infra.config import Project
from agent_infra.state.stores import RocksStore

Command = Callable[..., subprocess.CompletedProcess[str]]
GOLDEN = Path(__file__).parents[1] / "state" / "golden"


def opened(home: Path) -> Infra:
    return Infra.open(home, project=Project(root=home.parent))


@pytest.fixture
def versions(home: Path) -> list[str]:
    """The versions of session `行程`, in the order that they were made; the third was rolled back."""
    found: list[str] = []
    with opened(home) as infra:
        graph = infra.session("行程", agent="planner")
        for data in ({"城市": "北京"}, {"城市": "上海"}, {"城市": "错误"}):
            graph.add_node("note", data, key="目的地")
            found.append(graph.version)
        graph.rollback(why="the wrong city")
        with graph.step(agent="executor") as step:
            step.add_node("note", {"text": "带伞"})
            step.remove(graph.latest("目的地").id, "不去了")  # type: ignore[union-attr]
        found.append(graph.version)
    return found


# -- show, diff ----------------------------------------------------------------------------------------------------------


def test_a_version_is_shown_as_it_was(command: Command, versions: list[str]) -> None:
    shown = command("state", "show", versions[1])
    assert shown.returncode == 0, shown.stderr
    first, second, *nodes = shown.stdout.splitlines()
    assert first.startswith(versions[1])
    assert versions[0] in second
    assert "planner" in second
    assert len(nodes) == 1
    assert nodes[0].strip().startswith("*")
    assert "上海" in nodes[0]


def test_a_version_that_was_rolled_back_is_shown_too(quick: Command, versions: list[str]) -> None:
    shown = json.loads(quick("state", "show", versions[2], "--json").stdout)
    assert (shown["version"], shown["parent"], shown["agent"]) == (versions[2], versions[1], "planner")
    assert [node["data"] for node in shown["nodes"]] == [{"城市": "错误"}]
    assert shown["wrote"] == [node["id"] for node in shown["nodes"]]


def test_the_empty_beginning_can_be_shown(quick: Command, versions: list[str], home: Path) -> None:
    with opened(home) as infra:
        root = infra.session("行程").history()[0].parent
    assert root is not None
    shown = json.loads(quick("state", "show", root, "--json").stdout)
    assert (shown["nodes"], shown["parent"]) == ([], None)
    assert quick("state", "show", root).returncode == 0


def test_a_difference_names_what_came_went_and_changed(quick: Command, versions: list[str]) -> None:
    changed = quick("state", "diff", versions[0], versions[2]).stdout
    assert changed.splitlines()[0] == f"{versions[0]} -> {versions[2]}"
    assert "~ 目的地" in changed
    assert "北京" in changed
    assert "错误" in changed
    told = json.loads(quick("state", "diff", versions[2], versions[3], "--json").stdout)
    assert [node["data"] for node in told["added"]] == [{"text": "带伞"}]
    assert [node["data"] for node in told["gone"]] == [{"城市": "错误"}]
    assert told["changed"] == []
    assert "no difference" in quick("state", "diff", versions[1], versions[1]).stdout


@pytest.mark.parametrize("arguments", [["show"], ["diff"]])
@pytest.mark.parametrize("version", ["行程.9.0123456789abcdef", "no version", "行程.1"])
def test_an_unknown_version_is_status_4(
    quick: Command, versions: list[str], arguments: list[str], version: str
) -> None:
    more = [versions[0]] if arguments == ["diff"] else []
    shown = quick("state", *arguments, version, *more)
    assert shown.returncode == 4
    assert "VersionUnknown" in shown.stderr
    assert shown.stdout == ""


# -- export, import ------------------------------------------------------------------------------------------------------


def test_a_session_moves_into_another_home(command: Command, versions: list[str], folder: Path, home: Path) -> None:
    exported = command("state", "export", "行程", "--out", "out.jsonl")
    assert exported.returncode == 0, exported.stderr
    assert exported.stdout.startswith(f"{versions[3]}: 4 versions, 4 nodes, 0 blobs")
    there = folder / "另一个家"
    imported = command("state", "import", "out.jsonl", "--home", there)
    assert imported.returncode == 0, imported.stderr
    assert imported.stdout.startswith(versions[3])
    for version in versions:
        shown = [command("state", "show", version, "--json", "--home", where).stdout for where in (home, there)]
        assert shown[0] == shown[1]
    assert command("state", "verify", "--home", there).stdout == "行程: ok, 3 steps, 3 nodes\n"
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []


def test_without_a_file_the_lines_go_to_stdout_and_all_else_to_stderr(command: Command, versions: list[str]) -> None:
    exported = command("state", "export", "行程")
    kinds = [json.loads(line)["kind"] for line in exported.stdout.splitlines()]
    assert (kinds[0], kinds[-1]) == ("header", "end")
    assert exported.stderr.startswith(versions[3])


def test_a_copy_gets_another_name_and_new_ids(quick: Command, versions: list[str], home: Path) -> None:
    quick("state", "export", "行程", "--out", "out.jsonl")
    for arguments, what in ((["--as", "副本"], "NodesExist"), ([], "SessionExists"), (["--redraw"], "SessionExists")):
        refused = quick("state", "import", "out.jsonl", *arguments)
        assert refused.returncode == 5, refused.stderr
        assert what in refused.stderr
    assert quick("state", "import", "out.jsonl", "--as", "副本", "--redraw").returncode == 0
    with opened(home) as infra:
        assert infra.sessions() == sorted(["行程", "副本"])
        old, new = infra.session("行程"), infra.session("副本")
        assert [node.data for node in new.nodes()] == [node.data for node in old.nodes()]
        assert new.verify().ok


def test_what_is_not_there_is_status_4_and_leaves_no_file(quick: Command, versions: list[str], folder: Path) -> None:
    assert quick("state", "export", "absent", "--out", "out.jsonl").returncode == 4
    assert list(folder.iterdir()) == []
    assert quick("state", "import", "absent.jsonl").returncode == 4


def test_a_damaged_file_is_status_1_with_its_line(
    quick: Command, versions: list[str], folder: Path, home: Path
) -> None:
    quick("state", "export", "行程", "--out", "out.jsonl")
    path = folder / "out.jsonl"
    text = path.read_text("utf-8")
    number = next(number for number, line in enumerate(text.splitlines(), 1) if "上海" in line)
    path.write_text(text.replace("上海", "纽约"), encoding="utf-8")
    refused = quick("state", "import", "out.jsonl", "--home", folder / "new home")
    assert refused.returncode == 1
    assert "ExportDamaged" in refused.stderr
    assert f"out.jsonl, line {number})" in refused.stderr
    with opened(folder / "new home") as infra:
        assert infra.sessions() == []


@pytest.fixture
def running(home: Path, versions: list[str]) -> Iterator[StateGraph]:
    """The session in a home that this process has open and answers for."""
    pytest.importorskip("fastapi")
    pytest.importorskip("uvicorn")
    with opened(home) as infra:
        yield infra.session("行程")


def test_a_running_home_is_asked_through_its_owner(
    command: Command, running: StateGraph, versions: list[str], folder: Path
) -> None:
    shown = command("state", "show", versions[2])
    assert shown.returncode == 0, shown.stderr
    assert "错误" in shown.stdout
    assert command("state", "diff", versions[0], versions[3]).returncode == 0
    exported = command("state", "export", "行程", "--out", "out.jsonl")
    assert exported.returncode == 0, exported.stderr
    imported = command("state", "import", "out.jsonl", "--as", "副本", "--redraw")
    assert imported.returncode == 0, imported.stderr
    copy = StateGraph("副本", engine=running.engine)
    assert [node.data for node in copy.nodes()] == [node.data for node in running.nodes()]
    assert copy.verify().ok
    refused = command("state", "import", "out.jsonl", "--as", "第三")
    assert refused.returncode == 5
    assert "NodesExist" in refused.stderr
    path = folder / "out.jsonl"
    path.write_bytes(path.read_bytes()[:-30])
    assert "out.jsonl" in command("state", "import", "out.jsonl", "--as", "第四").stderr
    assert command("state", "upgrade").returncode == 5, "not while it is open"


# -- upgrade -------------------------------------------------------------------------------------------------------------


def test_a_present_home_needs_no_upgrade(command: Command, versions: list[str], home: Path) -> None:
    done = command("state", "upgrade")
    assert done.returncode == 0
    assert "nothing to do" in done.stdout
    assert str(home) in done.stdout


def test_a_golden_home_is_upgraded_and_opens(quick: Command, home: Path) -> None:
    with tarfile.open(GOLDEN / "format-1.tar.gz") as archive:
        archive.extractall(home, filter="data")
    assert quick("state", "upgrade").returncode == 0
    assert quick("state", "verify").returncode == 0
    assert quick("session", "list").returncode == 0


def test_an_unknown_format_is_refused_by_every_command(quick: Command, versions: list[str], home: Path) -> None:
    store = RocksStore(home / "state")
    store.write([(b"F", b"999")], sync=True)
    store.close()
    for arguments in (["upgrade"], ["verify"], ["show", versions[0]], ["export", "行程"]):
        refused = quick("state", *arguments)
        assert refused.returncode == 1
        assert "StoreFormat" in refused.stderr


def test_upgrading_never_makes_a_home(quick: Command, home: Path, folder: Path) -> None:
    assert quick("state", "upgrade").returncode == 4
    assert not home.exists()
    assert quick("state", "upgrade", "--home", folder).returncode == 4
    assert list(folder.iterdir()) == []


# -- erase ---------------------------------------------------------------------------------------------------------------


def test_a_nodes_data_is_erased_by_name(quick: Command, versions: list[str], home: Path) -> None:
    (node,) = json.loads(quick("state", "show", versions[0], "--json").stdout)["nodes"]
    gone = quick("state", "erase", "行程", node["id"], "--why", "她的请求")
    assert gone.returncode == 0, gone.stderr
    assert "1 nodes" in gone.stdout
    assert "already" in quick("state", "erase", "行程", node["id"], "--why", "她的请求").stdout
    assert json.loads(quick("state", "show", versions[0], "--json").stdout)["nodes"] == []
    assert quick("state", "verify").returncode == 0
    assert quick("state", "erase", "行程", node["id"]).returncode == 2, "a reason is asked for"
    assert quick("state", "erase", "行程", "01ARZ3NDEKTSV4RRFFQ69G5FAV", "--why", "x").returncode == 4
