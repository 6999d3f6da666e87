"""A home folder and its one owner: locked, closed, forked, of another format."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from textwrap import dedent

import pytest

from agent_infra.clock import ManualClock
from agent_infra.errors import AgentInfraError, HomeClosed, StoreDamaged, StoreFormat, StoreLocked
from agent_infra.state import Home, StateGraph, open_home
from agent_infra.state.stores import RocksStore


def child(script: str, *arguments: str) -> str:
    """What a script prints in a process of its own; its failure is the test's. Nothing of it outlives the test."""
    process = subprocess.Popen(
        [sys.executable, "-c", dedent(script), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, errors = process.communicate(timeout=30)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    assert process.returncode == 0, errors
    return out


def test_a_home_is_made_where_there_is_none(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "北京 home"
    home = open_home(folder)
    StateGraph("s", engine=home.engine).add_node("note", {})
    home.close()
    assert (folder / "lock").stat().st_mode & 0o077 == 0


def test_a_second_opener_is_told_who_owns_the_home(tmp_path: Path, disk_home: Home) -> None:
    with pytest.raises(StoreLocked) as caught:
        open_home(tmp_path / "disk home")
    assert caught.value.facts["pid"] == os.getpid()
    assert str(os.getpid()) in str(caught.value)
    StateGraph("s", engine=disk_home.engine).add_node("note", {"text": "the owner goes on"})


def test_another_process_is_told_who_owns_the_home(tmp_path: Path, disk_home: Home) -> None:
    script = """
        import sys
        from pathlib import Path
        from agent_infra.errors import StoreLocked
        from agent_infra.state import open_home
        said = set()
        for _ in range(20):
            try:
                open_home(Path(sys.argv[1]))
            except StoreLocked as error:
                assert "corrupt" not in str(error).lower() and "damage" not in str(error).lower()
                said.add((error.code, error.facts["pid"]))
        print(*said.pop(), len(said))
    """
    graph = StateGraph("s", engine=disk_home.engine)
    graph.add_node("note", {})
    assert child(script, str(tmp_path / "disk home")).split() == ["StoreLocked", str(os.getpid()), "0"]
    graph.add_node("note", {})
    assert graph.verify().ok


def test_a_closed_home_lets_others_in(tmp_path: Path) -> None:
    for number in range(3):
        home = open_home(tmp_path / "h")
        graph = StateGraph("s", engine=home.engine)
        assert len(graph.history()) == number
        graph.add_node("note", {})
        home.close()
        home.close()


def test_a_home_that_could_not_be_opened_is_not_kept_locked(tmp_path: Path) -> None:
    folder = tmp_path / "h"
    open_home(folder).close()
    current = folder / "state" / "CURRENT"
    text = current.read_text()
    current.write_text("nothing\n")
    with pytest.raises(StoreDamaged):
        open_home(folder)
    current.write_text(text)
    open_home(folder).close()


def test_a_closed_home_refuses_every_call(homes: Callable[..., Home]) -> None:
    home = homes()
    graph = StateGraph("s", engine=home.engine)
    node = graph.add_node("note", {}, key="k")
    version = graph.version
    reference = home.blobs.put(b"x", "text/plain")
    home.close()
    calls: list[Callable[[], object]] = [
        lambda: graph.nodes(),
        lambda: graph.nodes(type="note"),
        lambda: graph.node(node.id),
        lambda: graph.latest("k"),
        lambda: graph.edges(node.id),
        lambda: graph.caused_by("t", within=1),
        lambda: graph.history(),
        lambda: graph.at(version).nodes(),
        lambda: graph.add_node("note", {}),
        lambda: graph.rollback(),
        lambda: graph.verify(),
        lambda: StateGraph("another", engine=home.engine).version,
        lambda: home.engine.sessions(),
        lambda: home.engine.schemas.register("x", {"type": "object"}),
        lambda: home.blobs.put(b"y", "text/plain"),
        lambda: home.blobs.get(str(reference["$cid"])),
    ]
    for number, call in enumerate(calls):
        with pytest.raises(HomeClosed):
            call()
            pytest.fail(f"call {number} went through")


def test_a_home_of_another_format_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "h"
    open_home(folder).close()
    store = RocksStore(folder / "state")
    store.write([(b"F", b"999")], sync=True)
    store.close()
    with pytest.raises(StoreFormat) as caught:
        open_home(folder)
    assert caught.value.facts["found"] == "999"
    with pytest.raises(StoreFormat):
        open_home(folder)


def test_a_forked_child_is_refused_and_harms_nothing(tmp_path: Path) -> None:
    """It ends as any program does, interpreter shutdown included, while its parent goes on writing."""
    script = """
        import os, sys
        from pathlib import Path
        from agent_infra.errors import ForkedHome
        from agent_infra.state import StateGraph, open_home
        home = open_home(Path(sys.argv[1]))
        graph = StateGraph("s", engine=home.engine)
        graph.add_node("note", {"n": 1})
        child = os.fork()
        if child == 0:
            for call in (lambda: graph.nodes(), lambda: graph.add_node("note", {})):
                try:
                    call()
                except ForkedHome as error:
                    assert str(os.getppid()) in str(error)
                else:
                    os._exit(7)
            home.close()
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        graph.add_node("note", {"n": 2})
        home.close()
        home = open_home(Path(sys.argv[1]))
        graph = StateGraph("s", engine=home.engine)
        print([node.data["n"] for node in graph.nodes()], graph.verify().ok)
        home.close()
    """
    assert child(script, str(tmp_path / "h")).strip() == "[2, 1] True"


def test_a_forked_child_that_lives_on_does_not_hold_the_home(tmp_path: Path) -> None:
    script = """
        import os, sys
        from pathlib import Path
        from agent_infra.state import StateGraph, open_home
        home = open_home(Path(sys.argv[1]))
        stop, go = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(go)
            os.read(stop, 1)
            os._exit(0)
        home.close()
        try:
            open_home(Path(sys.argv[1])).close()
            print("opened")
        finally:
            os.close(go)
            os.waitpid(child, 0)
    """
    assert child(script, str(tmp_path / "h")).strip() == "opened"


def test_settings_of_a_home_are_settings_of_its_store(tmp_path: Path) -> None:
    for number, compression in enumerate(("lz4", "zstd", "snappy", "none")):
        home = open_home(tmp_path / "h", compression=compression, write_buffer_mb=4, max_open_files=64)
        graph = StateGraph("s", engine=home.engine)
        graph.add_node("note", {"text": "天气" * 1000})
        assert len(graph.nodes()) == number + 1
        home.close()


@pytest.mark.parametrize("durability", ["group", "step", "os"])
def test_a_home_of_any_durability_keeps_what_it_was_given(tmp_path: Path, durability: str) -> None:
    clock = ManualClock()
    home = open_home(tmp_path / "h", durability=durability, clock=clock)
    graph = StateGraph("s", engine=home.engine)
    with graph.step(durable=False) as step:
        step.add_node("note", {"n": 1})
    graph.flush()
    graph.add_node("note", {"n": 2})
    home.close()
    home = open_home(tmp_path / "h", clock=clock)
    assert [node.data["n"] for node in StateGraph("s", engine=home.engine).nodes()] == [2, 1]
    home.close()


def test_the_errors_of_a_home_are_the_librarys_own() -> None:
    assert all(issubclass(kind, AgentInfraError) for kind in (StoreLocked, HomeClosed, StoreFormat, StoreDamaged))
