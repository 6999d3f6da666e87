"""A second process that opens a home works through the one that owns it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agent_infra import Infra, errors
from agent_infra.server import socket_of

if TYPE_CHECKING:
    from tests.server.conftest import Owner, RunPython

OPENS = 200 if os.environ.get("AGENT_INFRA_TEST_TIER") == "full" else 30

CLIENT = """
import sys
from agent_infra import Infra
with Infra.open(sys.argv[1]) as infra:
    graph = infra.session("天气_001", agent="client")
    for n in range(30):
        with graph.step(agent="client") as step:
            node = step.add_node("note", {"n": n}, key=f"client/{n}")
        assert graph.node(node.id) == node
    print(len(graph.nodes(owner="client")), graph.verify().ok, *infra.sessions())
"""


def test_both_read_and_write_one_session(tmp_path: Path, start_python: RunPython) -> None:
    with Infra.open(tmp_path / "home", durability="os") as infra:
        graph = infra.session("天气_001")
        client = start_python(CLIENT, infra.home)
        count = 0
        while client.poll() is None:
            graph.add_node("note", {"n": count}, key="owner")
            count += 1
        out, err = client.communicate()
        assert (client.returncode, out) == (0, "30 True 天气_001\n"), err
        history = graph.history()
        assert len(history) == count + 30
        assert [version.step_count for version in history] == list(range(1, count + 31))
        assert len(graph.nodes(owner="client")) == 30
        assert graph.verify().ok


def test_many_readers_open_while_the_owner_writes(owner: Owner) -> None:
    owner.run("infra.session('天气_001').add_node('note', {'n': -1}, key='note')")
    owner.begin("""
import threading
stop = threading.Event()
def write():
    n = 0
    while not stop.is_set():
        infra.session('天气_001').add_node('note', {'n': n}, key='note')
        n += 1
writer = threading.Thread(target=write)
writer.start()
""")
    owner.end()
    seen: list[int] = []
    for _ in range(OPENS):
        with Infra.open(owner.home) as infra:
            node = infra.session("天气_001").latest("note")
            assert node is not None
            seen.append(node.step)
            assert infra.sessions() == ["天气_001"]
    owner.run("stop.set(); writer.join()")
    assert seen == sorted(seen)
    assert seen[-1] > seen[0]
    owner.close()


def test_a_killed_owner_is_told_and_its_home_can_be_opened(owner: Owner) -> None:
    owner.run("infra.session('天气_001').add_node('note', {'n': 1}, key='note')")
    client = Infra.open(owner.home)
    graph = client.session("天气_001")
    assert graph.latest("note") is not None
    owner.kill()
    assert socket_of(owner.home).exists()
    for ask in (lambda: graph.latest("note"), lambda: graph.add_node("note", {}), client.sessions):
        with pytest.raises(errors.OwnerUnreachable, match=f"process {owner.pid}.*open the home again") as caught:
            ask()
        assert caught.value.facts == {"pid": owner.pid, "outcome": "not written"}
    with Infra.open(owner.home) as infra:
        assert infra is not client
        assert infra.engine.sessions() == ["天气_001"]
        with Infra.connect(infra.home) as other:
            assert other.session("天气_001").latest("note") is not None
        # The old client finds whoever owns the home now.
        assert client.sessions() == ["天气_001"]
    client.close()
    assert not socket_of(owner.home).exists()


def test_a_write_that_broke_off_says_that_it_may_have_landed(owner: Owner) -> None:
    with Infra.connect(owner.home) as client:
        graph = client.session("天气_001")
        graph.add_node("note", {})
        owner.run("import threading, os; step = infra.session('天气_001').step(); step.__enter__()")
        owner.run("threading.Timer(0.5, lambda: os.kill(os.getpid(), 9)).start()")
        with pytest.raises(errors.OwnerUnreachable, match="may have landed") as caught:
            graph.add_node("note", {})
        assert caught.value.facts["outcome"] == "unknown"


def test_without_a_server_the_home_is_locked(start_owner: Callable[..., Owner]) -> None:
    owner = start_owner(without=("fastapi", "uvicorn"))
    assert not socket_of(owner.home).exists()
    with pytest.raises(errors.StoreLocked, match=str(owner.pid)) as caught:
        Infra.open(owner.home)
    assert caught.value.facts["pid"] == owner.pid
    assert "corrupt" not in str(caught.value)
    assert "[server]" in str(caught.value)
    owner.close()
    with Infra.open(owner.home) as infra:
        assert infra.sessions() == []


def test_an_owner_that_was_stopped_is_told_as_such(owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_infra.server.client.GREETING", 0.3)
    os.kill(owner.pid, signal.SIGSTOP)
    with pytest.raises(errors.StoreLocked, match=f"process {owner.pid}"):
        Infra.open(owner.home)
    os.kill(owner.pid, signal.SIGCONT)
    monkeypatch.undo()
    with Infra.open(owner.home) as infra:
        assert infra.sessions() == []


def test_what_only_the_owner_has_names_it(owner: Owner) -> None:
    with Infra.open(owner.home) as infra:
        for ask in (
            lambda: infra.tools.register,
            lambda: infra.actions,
            lambda: infra.weaver,
            lambda: infra.run("goal"),
            lambda: infra.engine,
            lambda: infra.session("s").view,
            lambda: infra.schemas.migrate("note", 1, 2, lambda data: data),
            lambda: infra.blobs.drop("cid"),
        ):
            with pytest.raises(errors.NotOwner, match=f"process {owner.pid} owns the home") as caught:
                ask()
            assert caught.value.facts["pid"] == owner.pid
        assert not hasattr(infra, "_anything")


def test_one_process_has_one_client_and_the_owners_settings(owner: Owner) -> None:
    with Infra.open(owner.home) as infra:
        with Infra.open(owner.home, durability="os") as again:
            assert again is infra
        assert infra.settings.durability == "os"
        with pytest.raises(errors.SettingsConflict, match=str(owner.pid)):
            Infra.open(owner.home, durability="step")
        with pytest.raises(errors.SettingsConflict, match="undeclared_types"):
            Infra.open(owner.home, state={"undeclared_types": "refuse"})
        assert infra.sessions() == []
    with pytest.raises(errors.HomeClosed):
        infra.sessions()


def test_the_default_home_is_joined_too(owner: Owner, start_python: RunPython, monkeypatch: pytest.MonkeyPatch) -> None:
    program = """
from agent_infra import StateGraph
graph = StateGraph(session_id="天气_001", agent="second")
graph.add_node("note", {"n": 1}, key="note")
print(graph.latest("note").owner, type(graph.backend).__name__)
"""
    monkeypatch.setenv("AGENT_INFRA_HOME", str(owner.home))
    out, err = start_python(program).communicate()
    assert out == "second RemoteBackend\n", err
    owner.run("assert infra.session('天气_001').latest('note').owner == 'second'")


def test_a_forked_child_of_a_client_is_told(owner: Owner, start_python: RunPython) -> None:
    program = """
import os, sys
from agent_infra import Infra, errors
with Infra.open(sys.argv[1]) as infra:
    child = os.fork()
    if child == 0:
        try:
            infra.sessions()
        except errors.ForkedHome as error:
            os.write(1, error.code.encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.write(1, b" " + str(infra.sessions()).encode())
"""
    out, err = start_python(program, owner.home).communicate()
    assert out == "ForkedHome []", err


def test_two_that_open_at_once_share_the_home(tmp_path: Path, start_python: RunPython) -> None:
    program = """
import sys
from agent_infra import Infra
with Infra.open(sys.argv[1]) as infra:
    print("open", flush=True)
    sys.stdin.readline()
    infra.session(sys.argv[2]).add_node("note", {})
    print("done", flush=True)
    sys.stdin.readline()
"""
    processes = [start_python(program, tmp_path / "home", f"s{number}") for number in range(3)]
    for word in ("open", "done"):
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == word, process.stderr and process.stderr.read()
        for process in processes if word == "open" else ():
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
    with Infra.open(tmp_path / "home") as infra:
        assert infra.sessions() == ["s0", "s1", "s2"]


def run_cli(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "agent_infra", *words, "--home", str(home)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_command_line_reads_a_running_home(tmp_path: Path) -> None:
    with Infra.open(tmp_path / "home", durability="os") as infra:
        graph = infra.session("天气_001")
        goal = graph.add_node("user_intent", {"query": "北京"})
        evidence = infra.evidence.write({"kind": "call", "output": 1})["$cid"]
        listed = run_cli(infra.home, "session", "list")
        assert (listed.returncode, listed.stdout) == (0, graph.version + "\n"), listed.stderr
        shown = run_cli(infra.home, "session", "show", "天气_001", "--json")
        assert shown.returncode == 0, shown.stderr
        assert goal.id in json.loads(shown.stdout)["nodes"], shown.stderr
        bundle = run_cli(infra.home, "evidence", "show", evidence)
        assert json.loads(bundle.stdout)["output"] == 1, bundle.stderr
        assert run_cli(infra.home, "evidence", "verify", evidence).stdout.startswith("ok")
        verified = run_cli(infra.home, "state", "verify")
        assert "天气_001: ok" in verified.stdout, verified.stderr
        missing = run_cli(infra.home, "session", "show", "nobody")
        assert (missing.returncode, "nobody" in missing.stderr) == (4, True)
        refused = run_cli(infra.home, "run", "goal")
        assert (refused.returncode, f"process {os.getpid()} owns" in refused.stderr) == (5, True), refused.stderr
