"""`<home>/agent-infra.sock`: who may use it, where it lies, when it comes and goes."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from agent_infra import Infra
from agent_infra.server import HomeSocket, socket_of


def test_only_the_owner_may_use_it_whatever_the_umask_is(tmp_path: Path) -> None:
    for number, mask in enumerate((0o000, 0o022, 0o277)):
        before = os.umask(0o022)
        home = tmp_path / str(number)
        home.mkdir()
        os.umask(mask)
        try:
            listening = HomeSocket(home)
        finally:
            os.umask(before)
        mode = socket_of(home).stat().st_mode
        listening.close()
        assert stat.S_ISSOCK(mode)
        assert stat.S_IMODE(mode) == 0o600


def test_it_goes_when_the_home_is_closed(tmp_path: Path) -> None:
    with Infra.open(tmp_path / "home") as infra:
        assert socket_of(infra.home).exists()
    assert not socket_of(infra.home).exists()
    with Infra.open(tmp_path / "home") as infra, Infra.connect(infra.home) as client:
        assert client.sessions() == []
    assert not socket_of(infra.home).exists()


def test_a_home_that_cannot_be_opened_leaves_no_socket(tmp_path: Path) -> None:
    home = tmp_path / "home"
    Infra.open(home).close()
    (home / "state" / "CURRENT").write_text("nothing")
    with pytest.raises(Exception, match="StoreDamaged"):
        Infra.open(home)
    assert not socket_of(home).exists()


@pytest.mark.parametrize("length", [107, 108, 300])
def test_a_path_of_any_length(tmp_path: Path, length: int) -> None:
    home = tmp_path
    while len(os.fsencode(socket_of(home))) < length:
        missing = length - len(os.fsencode(socket_of(home)))
        home = home / ("d" * max(1, min(200, missing - 1)))
    with Infra.open(home, durability="os") as infra:
        infra.session("天气_001").add_node("note", {"n": 1})
        with Infra.connect(home) as client:
            assert client.sessions() == ["天气_001"]
            client.session("天气_001").add_node("note", {"n": 2})
    assert not socket_of(home).exists()


def test_a_stale_socket_is_removed_and_another_file_is_not(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(socket_of(home)))
    left.close()
    with Infra.open(home), Infra.connect(home) as client:
        assert client.sessions() == []
    socket_of(home).write_text("mine")
    with Infra.open(home) as infra:
        assert infra.sessions() == []
    assert socket_of(home).read_text() == "mine"


def test_the_server_is_imported_by_the_first_connection(tmp_path: Path) -> None:
    program = (
        "import sys; from agent_infra import Infra\n"
        "with Infra.open(sys.argv[1]) as infra:\n"
        "    infra.session('s').add_node('note', {})\n"
        "    print([name for name in ('fastapi', 'uvicorn', 'starlette') if name in sys.modules])\n"
        "    with Infra.connect(infra.home) as client: print(client.sessions(), 'fastapi' in sys.modules)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "home")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["[]", "['s'] True"]


def test_closing_ends_streams_and_threads(tmp_path: Path) -> None:
    ended: list[str] = []

    def follow(watch: Callable[[], object]) -> None:
        try:
            watch()
        except Exception as error:
            ended.append(type(error).__name__)

    infra = Infra.open(tmp_path / "home", durability="os")
    client = Infra.connect(infra.home)
    graph = client.session("天气_001")
    graph.add_node("note", {})
    seen = threading.Event()

    def watch() -> None:
        for _ in graph.watch(since=0):
            seen.set()

    thread = threading.Thread(target=follow, args=(watch,))
    thread.start()
    assert seen.wait(30)
    infra.close()
    thread.join(30)
    assert not thread.is_alive()
    assert ended == ["OwnerUnreachable"]
    assert "agent-infra-socket" not in [each.name for each in threading.enumerate()]
    client.close()


def test_a_forked_child_does_not_keep_the_socket_alive(tmp_path: Path) -> None:
    program = """
import os, sys
from agent_infra import Infra
with Infra.open(sys.argv[1]):
    child = os.fork()
    if child == 0:
        names = [os.path.join("/proc/self/fd", fd) for fd in os.listdir("/proc/self/fd")]
        held = [os.readlink(name) for name in names if os.path.lexists(name)]
        os.write(1, str(sum(each.startswith("socket:") for each in held)).encode())
        os._exit(0)
    os.waitpid(child, 0)
"""
    command = [sys.executable, "-c", program, str(tmp_path / "home")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "0"), done.stderr
