"""`session`, `action`, `state`, `config`: what happened is shown, and what is wrong is found."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from agent_infra import Infra, StateGraph
from agent_infra.config import Project
from agent_infra.state import open_home
from agent_infra.state.rows import keys

Command = Callable[..., subprocess.CompletedProcess[str]]


def opened(home: Path) -> Infra:
    return Infra.open(home, project=Project(root=home.parent))


# -- session ---------------------------------------------------------------------------------------


def test_sessions_are_listed_with_their_heads(command: Command, ran: Path, home: Path) -> None:
    with opened(home) as infra:
        heads = {name: infra.session(name).version for name in ("会话", "two.dots.1")}
    assert sorted(command("session", "list").stdout.split()) == sorted(heads.values())
    told = json.loads(command("session", "list", "--json").stdout)
    assert {each["id"]: each["version"] for each in told} == heads


def test_the_story_is_a_tree_in_the_order_of_causes(command: Command, ran: Path) -> None:
    shown = command("session", "show", "会话")
    assert shown.returncode == 0, shown.stderr
    lines = shown.stdout.splitlines()
    assert lines[0].startswith("会话")
    words = (
        "goal 问候",
        "plan hello, again",
        "subgoal hello: succeeded",
        "call say: say(text=你好)",
        "receipt succeeded",
    )
    first = {word: next(line for line in lines if word in line) for word in words}
    assert [lines.index(line) for line in first.values()] == [1, 2, 3, 4, 5]
    depths = [line.index(word) for word, line in first.items()]
    assert depths == sorted(set(depths)), "each hangs under what led to it"
    assert sum("call say" in line for line in lines) == 2
    assert all(status not in shown.stdout for status in ("pending", "running")), "the newest state stands for all"


def test_the_story_as_json_is_a_graph(quick: Command, ran: Path) -> None:
    told = json.loads(quick("session", "show", "会话", "--json").stdout)
    assert told["session"] == "会话"
    nodes, children = told["nodes"], told["children"]
    reached: set[str] = set()
    waiting = list(told["roots"])
    while waiting:
        id = waiting.pop()
        if id not in reached:
            reached.add(id)
            waiting += children.get(id, [])
    assert reached == set(nodes)
    assert {node["type"] for node in nodes.values()} == {"goal", "plan", "subgoal", "call", "receipt"}
    (call,) = [node for node in nodes.values() if node["type"] == "call" and node["data"]["params"] == {"text": "你好"}]
    assert call["tool"] == "say"


def test_a_session_that_is_not_there_is_status_4(quick: Command, ran: Path) -> None:
    for arguments in (["session", "show", "没有"], ["state", "verify", "没有"]):
        absent = quick(*arguments)
        assert absent.returncode == 4
        assert "没有" in absent.stderr


@pytest.mark.parametrize(
    "arguments",
    [["session", "list"], ["session", "show", "x"], ["state", "verify"], ["evidence", "show", "x"]],
    ids=" ".join,
)
def test_looking_never_makes_a_home(quick: Command, home: Path, arguments: list[str]) -> None:
    looked = quick(*arguments)
    assert looked.returncode == 4
    assert str(home) in looked.stderr
    assert not home.exists()


def test_looking_needs_no_working_tools(command: Command, ran: Path) -> None:
    (ran / "tools.py").write_text("1 / 0\n", encoding="utf-8")
    assert command("session", "show", "会话").returncode == 0
    assert command("state", "verify").returncode == 0
    broken = command("run", "goal.yaml")
    assert broken.returncode == 1
    assert "tools.py:1" in broken.stderr
    assert "Traceback" not in broken.stderr


# -- action check ----------------------------------------------------------------------------------


def test_a_good_action_is_said_to_be_one(quick: Command, project: Path) -> None:
    (project / "say.yaml").write_text("name: greet\ntool: say\nparams: {text: 好}\neffects: none\n", encoding="utf-8")
    checked = quick("action", "check", "say.yaml")
    assert checked.returncode == 0, checked.stderr
    assert checked.stdout.startswith("ok: greet")


@pytest.mark.parametrize(
    ("misspelt", "right"),
    [
        ("$state.nodes.user_intent.data.city", "${state.nodes.user_intent.data.city}"),
        ("{state.nodes.user_intent.data.city}", "${state.nodes.user_intent.data.city}"),
    ],
)
def test_a_misspelt_reference_is_shown_with_its_place_and_mend(
    command: Command, project: Path, misspelt: str, right: str
) -> None:
    file = project / "动作.yaml"
    file.write_text(f"name: greet\ntool: say\nparams:\n  text: {misspelt}\neffects: none\n", encoding="utf-8")
    checked = command("action", "check", file)
    assert checked.returncode == 1
    assert checked.stdout == ""
    assert f"{file}:4:9: " in checked.stderr
    assert right in checked.stderr
    assert f"text: {misspelt}" in checked.stderr
    assert "Traceback" not in checked.stderr


def test_every_problem_of_a_folder_is_told(quick: Command, project: Path) -> None:
    (project / "more").mkdir()
    for name, tool in (("a", "say"), ("b", "sya")):
        (project / "more" / f"{name}.yaml").write_text(f"name: {name}\ntool: {tool}\nparams: {{txt: 好}}\n", "utf-8")
    checked = quick("action", "check", "more")
    assert checked.returncode != 0
    assert "a.yaml:3:" in checked.stderr
    assert "b.yaml:2:" in checked.stderr


def test_an_absent_action_file_is_status_4(quick: Command, project: Path) -> None:
    absent = quick("action", "check", "没有.yaml")
    assert absent.returncode == 4
    assert "没有.yaml" in absent.stderr


# -- state verify ----------------------------------------------------------------------------------


def test_an_untouched_home_verifies(command: Command, ran: Path) -> None:
    every = command("state", "verify")
    assert every.returncode == 0, every.stderr
    assert len(every.stdout.splitlines()) == 2
    one = json.loads(command("state", "verify", "会话", "--json").stdout)
    assert list(one) == ["会话"]
    assert one["会话"]["ok"] is True
    assert one["会话"]["steps"] == 6


def test_a_changed_node_is_found_and_named(quick: Command, ran: Path, home: Path) -> None:
    with opened(home) as infra:
        call = infra.session("会话").nodes(type="call")[-1]
        ulid = keys.raw_id(call.id)
        assert ulid is not None
        row = infra.engine.store.get(keys.node(ulid))
        assert row is not None
        infra.engine.store.write([(keys.node(ulid), row.replace("你好".encode(), "您好".encode()))])
    every = quick("state", "verify")
    assert every.returncode == 1
    assert [line.partition(":")[0] for line in every.stdout.splitlines() if "NOT ok" in line] == ["会话"]
    told = json.loads(quick("state", "verify", "--json").stdout)
    assert {name: found["ok"] for name, found in told.items()} == {"会话": False, "two.dots.1": True}
    assert call.id in " ".join(told["会话"]["problems"])


# -- config show -----------------------------------------------------------------------------------


def test_the_settings_in_force_are_shown(command: Command, project: Path, home: Path) -> None:
    (project / "agent_infra.toml").write_text('tools = ["tools.py"]\n[settings]\ndurability = "step"\n', "utf-8")
    (project / "rules").mkdir()
    told = json.loads(command("config", "show").stdout)
    assert told["home"] == str(home)
    assert told["project_file"] == str(project / "agent_infra.toml")
    assert told["tools"] == [str(project / "tools.py")]
    assert told["folders"]["rules"] == str(project / "rules")
    assert told["folders"]["schemas"] is None
    assert told["settings"]["durability"] == "step"
    over = json.loads(command("config", "show", AGENT_INFRA_DURABILITY="os").stdout)
    assert over["settings"]["durability"] == "os"
    assert not home.exists(), "showing the configuration makes nothing"


def test_what_the_machine_can_not_keep_is_shown_beside_what_it_does(command: Command, project: Path) -> None:
    (project / "agent_infra.toml").write_text("[state.rocksdb]\nmax_open_files = 2000000000\n", "utf-8")
    told = json.loads(command("config", "show").stdout)
    assert told["settings"]["state"]["rocksdb"]["max_open_files"] == 2_000_000_000
    if told["in_force"]["reasons"]:  # there is a limit here
        assert told["in_force"]["rocksdb"]["max_open_files"] < 2_000_000_000
        assert "ulimit -n" in told["in_force"]["reasons"][0]
    assert told["in_force"]["rocksdb"]["write_buffer_size"] == 16


def test_a_wrong_setting_is_told_with_its_place(quick: Command, project: Path) -> None:
    (project / "agent_infra.toml").write_text('[settings]\ndurabilty = "step"\n', encoding="utf-8")
    wrong = quick("config", "show")
    assert wrong.returncode == 1
    assert "agent_infra.toml:2" in wrong.stderr
    assert "durability" in wrong.stderr


# -- a home that another process owns --------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ["session", "list"],
        ["session", "show", "会话"],
        ["evidence", "verify", "bafyrei"],
        ["state", "verify"],
        ["run", "goal.yaml"],
        ["resume"],
    ],
    ids=" ".join,
)
def test_a_home_in_use_is_status_5_and_names_the_owner(
    command: Command, project: Path, home: Path, arguments: list[str]
) -> None:
    owner = open_home(home)  # without the socket on which an owner answers others
    try:
        StateGraph("会话", engine=owner.engine).add_node("note", {"text": "在用"})
        locked = command(*arguments)
    finally:
        owner.close()
    assert locked.returncode == 5
    assert "StoreLocked" in locked.stderr
    assert str(os.getpid()) in locked.stderr
    assert str(home) in locked.stderr
    assert "corrupt" not in locked.stderr.lower()
    assert "Traceback" not in locked.stderr
