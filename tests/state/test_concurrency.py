"""Many threads: nothing is lost, nothing is seen half, who waits is told for whom, and fsyncs are shared."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from agent_infra.errors import LockTimeout, StoreFull, VersionConflict
from agent_infra.state import Home, StateEngine, StateGraph, open_home
from agent_infra.state.stores import MemoryStore, Write

FULL = os.environ.get("AGENT_INFRA_TEST_TIER") == "full"


@pytest.fixture(autouse=True)
def turns() -> Iterator[None]:
    """Threads take turns often, so that they meet inside what must be one."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


@contextmanager
def held(graph: StateGraph, agent: str | None = None) -> Iterator[None]:
    """Another thread is inside a step of the session."""
    inside, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with graph.step(agent=agent) as step:
            step.add_node("note", {"text": "slow"})
            inside.set()
            leave.wait(30)

    thread = threading.Thread(target=hold, name="slow-writer")
    thread.start()
    assert inside.wait(30)
    try:
        yield
    finally:
        leave.set()
        thread.join()


def together(work: Sequence[Callable[[], object]]) -> list[object]:
    """Start all at a barrier, each in a thread of its own; their results, or the first error."""
    barrier = threading.Barrier(len(work))

    def run(one: Callable[[], object]) -> object:
        barrier.wait(30)
        return one()

    with ThreadPoolExecutor(len(work)) as pool:
        return list(pool.map(run, work))


# -- nothing is lost -------------------------------------------------------------------------------


def test_parallel_steps_keep_every_result(home: Home) -> None:
    """PAINS: of four parallel results one was kept, by a read, a change and an assignment of a shared list."""
    for round in range(200 if FULL else 20):
        graph = StateGraph(f"s{round}", engine=home.engine)
        together([partial(graph.add_node, "note", {"i": i}, key=f"result/{i}") for i in range(4)])
        assert sorted(node.data["i"] for node in graph.nodes(type="note")) == [0, 1, 2, 3]
        assert len(graph.history()) == 4
        assert graph.verify().ok


def test_parallel_writers_of_one_key_leave_one_living_node(home: Home) -> None:
    graph = StateGraph("s", engine=home.engine)
    together([lambda i=i: [graph.add_node("note", {"i": i}, key="k") for _ in range(10)] for i in range(4)])
    assert len(graph.nodes(key="k")) == 1
    assert len(graph.nodes(key="k", lifecycle="superseded")) == 39
    assert graph.latest("k") == graph.nodes(key="k")[0] == graph.nodes(type="note")[0]


@pytest.mark.parametrize("durability", ["group", "step", "os"])
def test_many_sessions_are_written_in_parallel(tmp_path: Path, durability: str) -> None:
    home = open_home(tmp_path / "h", durability=durability)

    def write(name: str) -> None:
        graph = StateGraph(name, engine=home.engine, agent=name)
        for number in range(15):
            with graph.step() as step:
                call = step.add_node("api_call", {"n": number}, tool="search")
                step.add_edge(call.id, step.add_node("note", {"n": number}, key="last").id, "causes")
            if number % 5 == 4:
                graph.rollback()

    together([lambda name=f"会话{i}": write(name) for i in range(8)])
    for _ in range(2):
        assert len(home.engine.sessions()) == 8
        for name in home.engine.sessions():
            graph = StateGraph(name, engine=home.engine)
            assert [node.data["n"] for node in graph.nodes(type="api_call")] == [
                n for n in range(14, -1, -1) if n % 5 != 4
            ]
            assert [node.data["n"] for node in graph.caused_by("search", within=3600)] == [13]
            assert graph.verify().ok
        moves = StateGraph.of_system(home.engine, "_control")
        assert len(moves.nodes(type="move")) == 24
        assert moves.verify().ok
        home.close()
        home = open_home(tmp_path / "h")
    home.close()


def test_one_of_two_who_expect_the_same_version_wins(home: Home) -> None:
    """And the other knows: no history forks, and no result becomes unreachable."""
    graph = StateGraph("s", engine=home.engine)
    for _ in range(20):
        seen = graph.version

        def attempt(seen: str = seen) -> bool:
            try:
                with graph.step(expect=seen) as step:
                    step.add_node("note", {})
            except VersionConflict:
                return False
            return True

        assert sorted(map(bool, together([attempt, attempt, attempt]))) == [False, False, True]
    assert len(graph.history()) == 20


def test_schemas_registered_in_parallel_get_versions_of_their_own(homes: Callable[..., Home]) -> None:
    home = homes()
    schemas = home.engine.schemas
    together(
        [lambda i=i: schemas.register("天气", {"properties": {f"f{i}": {"type": "string"}}}, "NONE") for i in range(6)]
    )
    hashes = {schemas.get("天气", version).hash for version in range(1, 7)}
    assert len(hashes) == 6
    if home.path is not None:
        home.close()
        schemas = homes().engine.schemas
        assert {schemas.get("天气", version).hash for version in range(1, 7)} == hashes


# -- nothing is seen half --------------------------------------------------------------------------


def test_readers_beside_a_writer_see_whole_steps(home: Home) -> None:
    graph = StateGraph("s", engine=home.engine)
    done = threading.Event()
    width = 20

    def write() -> None:
        try:
            for number in range(60):
                with graph.step() as step:
                    call = step.add_node("api_call", {"n": number}, tool="search")
                    for part in range(width):
                        node = step.add_node("note", {"n": number}, key=f"part/{part}")
                        step.add_edge(call.id, node.id, "causes")
                if number % 10 == 9:
                    graph.rollback(3)
        finally:
            done.set()

    def read() -> int:
        turns = 0
        while not done.is_set() or turns == 0:
            turns += 1
            past = graph.at(graph.version)
            parts = [node.data["n"] for node in past.nodes(type="note")]
            assert len(parts) in (0, width), parts
            assert len(set(parts)) <= 1, parts
            assert [node.data["n"] for node in past.caused_by("search", within=1e9)] == parts
            assert len(past.nodes(key="part/0")) == min(1, len(parts))
            newest = past.latest("part/7")
            assert [newest.data["n"]] == parts[:1] if newest else not parts
            ids = [version.id for version in past.history()]
            assert past.version == (ids[-1] if ids else past.version)
            if parts:
                calls = past.nodes(type="api_call")
                assert len(past.edges(calls[0].id)) == width
        return turns

    results = together([write, read, read])
    assert all(results[1:])
    assert graph.verify().ok


def test_a_version_is_readable_as_soon_as_it_is_known(home: Home) -> None:
    graph = StateGraph("s", engine=home.engine)
    versions: list[str] = []
    done = threading.Event()

    def write() -> None:
        try:
            for number in range(100):
                with graph.step() as step:
                    step.add_node("note", {"n": number})
                versions.append(str(step.version))
        finally:
            done.set()

    def read() -> None:
        while not done.is_set():
            for number, version in list(enumerate(versions))[-3:]:
                assert graph.at(version).nodes()[0].data["n"] == number

    together([write, read])


# -- who waits for whom ----------------------------------------------------------------------------


def test_a_lock_held_by_another_names_its_holder(home: Home) -> None:
    graph = StateGraph("s", engine=home.engine)
    with held(graph, agent="执行者"):
        with pytest.raises(LockTimeout) as caught, graph.step(lock_wait_timeout=0.01):
            pass
        assert "执行者" in str(caught.value)
        assert "slow-writer" in str(caught.value)
        assert caught.value.facts["session"] == "s"
        with pytest.raises(LockTimeout), graph.step(lock_wait_timeout=0):
            pass
        StateGraph("another", engine=home.engine).add_node("note", {"text": "sessions don't wait for each other"})
    graph.add_node("note", {})
    assert len(graph.nodes()) == 2


def test_a_lock_is_given_back_whatever_happens_in_the_step(home: Home) -> None:
    graph = StateGraph("s", engine=home.engine)
    for error in (ValueError, KeyboardInterrupt, SystemExit):
        with pytest.raises(error), graph.step() as step:
            step.add_node("note", {})
            raise error
    with pytest.raises(VersionConflict), graph.step(expect="s.1.0123456789abcdef"):
        pass
    graph.add_node("note", {})
    assert len(graph.nodes()) == 1


def test_a_view_taken_beside_a_writer_is_stale_and_readable(home: Home) -> None:
    graph = StateGraph("s", engine=home.engine)
    node = graph.add_node("note", {"text": "committed"})
    version = graph.version
    assert not graph.stale
    with held(graph):
        assert graph.stale
        assert not graph.at(version).stale
        assert not StateGraph("another", engine=home.engine).stale
        assert graph.version == version
        assert graph.nodes() == [node]
        assert graph.history()[-1].id == version
    assert not graph.stale
    assert len(graph.nodes()) == 2


# -- the disk --------------------------------------------------------------------------------------


class SlowDisk(MemoryStore):
    """Counts what was written when a sync began; lets tests hold syncs up and make them fail."""

    def __init__(self) -> None:
        super().__init__()
        self.written = self.synced = self.syncs = self.synced_writes = 0
        self.free = threading.Event()
        self.free.set()
        self.failing: Exception | None = None

    def write(self, batch: Sequence[Write], *, sync: bool = False) -> None:
        if self.failing:
            raise self.failing
        super().write(batch, sync=sync)
        self.written += 1
        self.synced_writes += sync

    def sync(self) -> None:
        covered = self.written
        assert self.free.wait(30)
        if self.failing:
            raise self.failing
        self.syncs += 1
        self.synced = max(self.synced, covered)


def test_group_returns_after_a_sync_that_others_share() -> None:
    disk = SlowDisk()
    engine = StateEngine(disk, durability="group")
    disk.free.clear()
    before = disk.syncs, disk.written

    def write(name: str) -> bool:
        graph = StateGraph(name, engine=engine)
        graph.add_node("note", {})
        return disk.synced >= disk.written - 7

    with ThreadPoolExecutor(8) as pool:
        futures = [pool.submit(write, f"s{i}") for i in range(8)]
        deadline = time.monotonic() + 30
        while disk.written < before[1] + 8 and time.monotonic() < deadline:
            time.sleep(0.001)
        assert disk.written == before[1] + 8, "a writer held a lock, or the store, while it waited for the disk"
        assert not any(future.done() for future in futures), "a step returned before its rows were on the disk"
        disk.free.set()
        assert all(future.result(30) for future in futures)
    assert disk.synced == disk.written
    assert 1 <= disk.syncs - before[0] < 8


def test_a_step_that_is_not_durable_leaves_the_sync_to_the_next_flush() -> None:
    disk = SlowDisk()
    graph = StateGraph("s", engine=StateEngine(disk, durability="group"))
    before = disk.syncs
    with graph.step(durable=False) as step:
        step.add_node("note", {})
    assert disk.syncs == before
    graph.flush()
    assert disk.syncs == before + 1
    assert disk.synced == disk.written
    graph.flush()
    assert disk.syncs == before + 1


def test_step_syncs_each_write_and_os_none() -> None:
    disk = SlowDisk()
    graph = StateGraph("s", engine=StateEngine(disk, durability="step"))
    before = disk.synced_writes
    graph.add_node("note", {})
    graph.add_node("note", {})
    graph.rollback()
    assert disk.synced_writes == before + 3

    disk = SlowDisk()
    graph = StateGraph("s", engine=StateEngine(disk, durability="os"))
    graph.add_node("note", {})
    graph.rollback()
    graph.flush()
    assert (disk.syncs, disk.synced_writes) == (0, 0)


def test_a_disk_that_refuses_a_write_moves_no_head() -> None:
    disk = SlowDisk()
    graph = StateGraph("s", engine=StateEngine(disk, durability="os"))
    graph.add_node("note", {"n": 1}, key="k")
    before = graph.version
    disk.failing = StoreFull("the disk refused the write")
    for call in (lambda: graph.add_node("note", {"n": 2}, key="k"), lambda: graph.rollback()):
        with pytest.raises(StoreFull):
            call()
    assert graph.version == before
    assert [node.data for node in graph.nodes()] == [{"n": 1}]
    disk.failing = None
    graph.add_node("note", {"n": 3}, key="k")
    assert [node.data for node in graph.nodes()] == [{"n": 3}]
    assert graph.verify().ok


def test_a_sync_that_fails_is_told_to_everyone_who_waited_for_it() -> None:
    disk = SlowDisk()
    engine = StateEngine(disk, durability="group")
    disk.free.clear()

    def write(name: str) -> str:
        try:
            StateGraph(name, engine=engine).add_node("note", {})
        except OSError:
            return "told"
        return "thinks that it is safe"

    with ThreadPoolExecutor(3) as pool:
        before = disk.written
        futures = [pool.submit(write, f"s{i}") for i in range(3)]
        deadline = time.monotonic() + 30
        while disk.written < before + 3 and time.monotonic() < deadline:
            time.sleep(0.001)
        disk.failing = OSError("the disk is gone")
        disk.free.set()
        assert {future.result(30) for future in futures} == {"told"}
    disk.failing = None
    StateGraph("later", engine=engine).add_node("note", {})
