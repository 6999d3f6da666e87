"""Disks that are full, read-only or damaged: a clear error, the head unmoved, and the store opens afterwards.

A small file system is mounted where this user may do that; elsewhere the size of files is limited for a child process. What
happens at any single write is tried on a store that refuses it.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from agent_infra.clock import ManualClock
from agent_infra.errors import StoreDamaged, StoreFull, VersionCollected
from agent_infra.state import BlobStore, Home, StateEngine, StateGraph, open_home
from agent_infra.state.stores import MemoryStore, Write

MIB = 1 << 20


def fill(graph: StateGraph) -> tuple[list[str], StoreFull]:
    """Write until the disk refuses; the versions that were acknowledged, and the refusal."""
    acknowledged = [graph.version]
    while True:
        try:
            graph.add_node("note", {"n": len(acknowledged), "padding": os.urandom(10_000).hex()}, key="k")
        except StoreFull as error:
            return acknowledged, error
        acknowledged.append(graph.version)
        assert len(acknowledged) < 5000, "this disk is never full"


def check_readable(graph: StateGraph, acknowledged: list[str]) -> None:
    assert graph.version == acknowledged[-1]
    assert [version.id for version in graph.history()] == acknowledged[1:]
    assert graph.nodes()[0].data["n"] == len(acknowledged) - 1
    assert graph.at(acknowledged[1]).nodes()[0].data["n"] == 1


def check_refused(graph: StateGraph, home: Home) -> None:
    """Every way of writing is refused by the same name."""
    calls: list[Callable[[], object]] = [
        lambda: graph.add_node("note", {"padding": "x" * 100_000}),
        lambda: graph.rollback(),
        lambda: graph.fork("fork"),
        lambda: graph.pin(graph.version),
        lambda: graph.gc(keep_last=1),
        lambda: graph.lease(5),
        lambda: home.engine.schemas.register("new", {"type": "object"}),
        lambda: home.blobs.put(b"x" * 50_000, "text/plain"),
        lambda: home.blobs.put(os.urandom(16 * MIB), "text/plain"),
    ]
    for number, call in enumerate(calls):
        with pytest.raises(StoreFull):
            call()
            raise AssertionError(f"call {number} was not refused")


# -- a small disk --------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB."""
    place = tmp_path / "small disk"
    place.mkdir()
    if not _mount("tmpfs", place, 0, "size=8m"):
        pytest.skip("this user can't mount a file system")
    yield place
    ctypes.CDLL(None).umount2(os.fsencode(place), 2)


MS_RDONLY, MS_REMOUNT = 1, 32


def _mount(what: str, place: Path, flags: int, options: str) -> bool:
    return ctypes.CDLL(None).mount(what.encode(), os.fsencode(place), what.encode(), flags, options.encode()) == 0


@pytest.mark.parametrize("durability", ["group", "step", "os"])
def test_a_full_disk_refuses_by_name_and_keeps_what_it_had(small_disk: Path, durability: Any) -> None:
    home = open_home(small_disk / "家", durability=durability, write_buffer_mb=1)
    graph = StateGraph("s", engine=home.engine)
    acknowledged, error = fill(graph)
    assert "No space left" in str(error)
    assert str(small_disk) in str(error)
    assert error.mend
    check_readable(graph, acknowledged)
    check_refused(graph, home)
    check_readable(graph, acknowledged)
    assert graph.verify().ok
    with pytest.raises(StoreFull):
        home.close()

    assert _mount("tmpfs", small_disk, MS_REMOUNT, "size=64m")
    home = open_home(small_disk / "家")
    graph = StateGraph("s", engine=home.engine)
    check_readable(graph, acknowledged)
    assert graph.verify().ok
    graph.gc(keep_last=1)
    graph.add_node("note", {"n": "after"})
    home.close()


def test_a_process_that_dies_on_a_full_disk_loses_nothing(small_disk: Path) -> None:
    script = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from agent_infra.errors import StoreFull\n"
        "from agent_infra.state import StateGraph, open_home\n"
        "graph = StateGraph('s', engine=open_home(Path(sys.argv[1]), durability='os').engine)\n"
        "try:\n"
        "    while True:\n"
        "        graph.add_node('note', {'padding': os.urandom(10_000).hex()}, key='k')\n"
        "        os.write(1, (graph.version + '\\n').encode())\n"
        "except StoreFull:\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    folder = small_disk / "home"
    ended = subprocess.run([sys.executable, "-c", script, str(folder)], capture_output=True, text=True, check=False)
    assert ended.returncode == -9, ended.stderr
    acknowledged = ended.stdout.split()
    assert len(acknowledged) > 50
    assert _mount("tmpfs", small_disk, MS_REMOUNT, "size=64m")
    home = open_home(folder)
    graph = StateGraph("s", engine=home.engine)
    assert [version.id for version in graph.history()] == acknowledged
    assert graph.verify().ok
    graph.add_node("note", {})
    home.close()


def test_a_disk_that_can_only_be_read(small_disk: Path) -> None:
    home = open_home(small_disk / "home")
    StateGraph("s", engine=home.engine).add_node("note", {"text": "天气"})
    home.close()
    assert _mount("tmpfs", small_disk, MS_REMOUNT | MS_RDONLY, "")
    for folder in (small_disk / "home", small_disk / "new"):
        with pytest.raises(StoreFull) as caught:
            open_home(folder)
        assert str(folder) in str(caught.value)
        assert "Read-only" in str(caught.value)
    assert _mount("tmpfs", small_disk, MS_REMOUNT, "")
    home = open_home(small_disk / "home")
    graph = StateGraph("s", engine=home.engine)
    assert [node.data["text"] for node in graph.nodes()] == ["天气"]
    assert graph.verify().ok
    home.close()


def test_files_that_may_not_grow(tmp_path: Path) -> None:
    """The same without the right to mount: a limit on the size of files, lifted again."""
    script = (
        "import os, resource, signal, sys\n"
        "from pathlib import Path\n"
        "from agent_infra.errors import StoreFull\n"
        "from agent_infra.state import StateGraph, open_home\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "home = open_home(Path(sys.argv[1]), durability='os')\n"
        "graph = StateGraph('s', engine=home.engine)\n"
        "graph.add_node('note', {'n': 0})\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))\n"
        "done = 0\n"
        "try:\n"
        "    while done < 1000:\n"
        "        done += 1\n"
        "        graph.add_node('note', {'n': done, 'padding': os.urandom(10_000).hex()})\n"
        "except StoreFull as error:\n"
        "    done -= 1\n"
        "assert 10 < done < 1000\n"
        "assert graph.nodes()[0].data['n'] == done and graph.verify().ok\n"
        "try:\n"
        "    home.close()\n"
        "except StoreFull:\n"
        "    pass\n"
        "print(done)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "home")], capture_output=True, text=True, check=False, timeout=60
    )
    assert ended.returncode == 0, ended.stderr
    home = open_home(tmp_path / "home")
    graph = StateGraph("s", engine=home.engine)
    assert [node.data["n"] for node in graph.nodes()][::-1] == list(range(int(ended.stdout) + 1))
    assert graph.verify().ok
    graph.add_node("note", {"n": "after"})
    home.close()


# -- a refusal at any write ----------------------------------------------------------------------------------------------


class FullStore(MemoryStore):
    """Refuses the write after so many, and all that follow until there is room again."""

    def __init__(self) -> None:
        super().__init__()
        self.room: int | None = None

    def write(self, batch: Sequence[Write], *, sync: bool = False) -> None:
        if self.room is not None:
            self.room -= 1
            if self.room < 0:
                raise StoreFull("the disk refused the write")
        super().write(batch, sync=sync)


def opened(store: MemoryStore, clock: ManualClock) -> Home:
    engine = StateEngine(store, clock=clock, durability="os")
    return Home(None, engine, BlobStore(store), None)


def state(home: Home, versions: Sequence[str]) -> dict[str, object]:
    """All that can be seen, from any version."""
    graph, control = StateGraph("s", engine=home.engine), StateGraph.of_system(home.engine, "_control")
    sessions, schemas = sorted(home.engine.sessions()), home.engine.schemas.names()
    found: dict[str, object] = {"heads": (graph.version, control.version), "home": (sessions, schemas)}
    for version in versions:
        try:
            then = graph.at(version)
        except VersionCollected:
            found[version] = "collected"
            continue
        found[version] = then.nodes(), [then.edges(node.id) for node in then.nodes()]
    assert graph.verify().ok
    assert control.verify().ok
    return found


def lived(store: FullStore, clock: ManualClock) -> tuple[Home, list[str]]:
    """A session with a pin, a tail that was rolled back, content, and a lease that ran out."""
    home = opened(store, clock)
    graph = StateGraph("s", engine=home.engine)
    versions: list[str] = []
    for number in range(6):
        graph.add_node("document", {"n": number, "page": home.blobs.put(bytes([number]), "x/y")}, key="k")
        versions.append(graph.version)
    graph.pin(versions[0], "before")
    graph.rollback()
    graph.rollback()
    graph.lease(1, owner="stalled")
    clock.advance(5)
    return home, versions


OPERATIONS: dict[str, Callable[[Home, StateGraph], object]] = {
    "step": lambda _, graph: graph.add_node("note", {}, key="k"),
    "rollback": lambda _, graph: graph.rollback(2),
    "fork": lambda _, graph: graph.fork("fork"),
    "pin": lambda _, graph: graph.pin(graph.version, "me"),
    "unpin": lambda _, graph: graph.unpin(graph.history()[0].id, "before"),
    "gc": lambda _, graph: graph.gc(keep_last=1, abandoned_after=0),
    "lease": lambda _, graph: graph.lease(10),
    "schema": lambda home, _: home.engine.schemas.register("new", {"type": "object"}),
    "blob": lambda home, _: home.blobs.put(b"content", "text/plain"),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_write_that_is_refused_changes_nothing_and_can_be_tried_again(name: str) -> None:
    """At each write of an operation in turn. The process goes on, and so does one that opens what is there."""
    for room in range(100):
        clock, store = ManualClock(), FullStore()
        home, versions = lived(store, clock)
        graph = StateGraph("s", engine=home.engine)
        before = state(home, versions)
        store.room = room
        try:
            OPERATIONS[name](home, graph)
        except StoreFull:
            store.room = None
            for each in (home, opened(store, clock)):
                for what, seen in state(each, versions).items():
                    assert seen == before[what] or (name == "gc" and seen == "collected"), what
            OPERATIONS[name](home, graph)
        else:
            assert room > 0
            return
        graph.add_node("note", {"text": "and on"})
        versions.append(graph.version)
        assert state(opened(store, clock), versions) == state(home, versions)
    raise AssertionError("it never succeeds")


# -- damage --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", [0.1, 0.5, 0.9])
def test_a_damaged_block_is_named_and_never_read_past(tmp_path: Path, where: float) -> None:
    """Rows lost with a block are not rows that were never there: reading them says so, and so does verify."""
    home = open_home(tmp_path / "home", durability="os", write_buffer_mb=1)
    graph = StateGraph("s", engine=home.engine)
    for number in range(300):
        graph.add_node("note", {"n": number, "padding": os.urandom(3000).hex()})
    home.close()
    open_home(tmp_path / "home").close()
    table = max((tmp_path / "home" / "state").glob("*.sst"), key=lambda path: path.stat().st_size)
    content = bytearray(table.read_bytes())
    start = int(len(content) * where)
    content[start : start + 64] = bytes(byte ^ 0xFF for byte in content[start : start + 64])
    table.write_bytes(content)

    told: list[str] = []
    try:
        home = open_home(tmp_path / "home")
    except StoreDamaged as refused:
        told.append(str(refused))  # the block held what opening reads
    else:
        graph = StateGraph("s", engine=home.engine)
        told += graph.verify().problems
        with pytest.raises(StoreDamaged):
            graph.nodes(lifecycle=None)
        home.close()
    assert any("corruption" in problem.lower() and str(tmp_path) in problem for problem in told)
