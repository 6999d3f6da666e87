"""Death in the middle of collection: nothing that can still be opened is damaged, and the next pass finishes the work.

Death is tried at single writes of a whole collection, in the full tier at each (there the store takes nothing more, and an
engine is opened anew on what it has), and for real: a child process is killed at some write, or at any moment.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agent_infra.clock import ManualClock
from agent_infra.content import referred_cids
from agent_infra.errors import VersionCollected
from agent_infra.state import BlobStore, Home, StateEngine, StateGraph, open_home
from agent_infra.state.stores import MemoryStore, Write

FULL = os.environ.get("AGENT_INFRA_TEST_TIER") == "full"
ROUNDS = 60 if FULL else 3
SESSIONS = ("会话", "fork", "other")
POLICIES: list[tuple[str, dict[str, Any]]] = [
    ("会话", {"keep_last": 3, "abandoned_after": 1}),
    ("fork", {"keep_last": 1}),
    ("会话", {"keep_last": 2}),
    ("other", {"max_bytes": 0}),
]
LIMIT = 4
Seen = dict[str, object]


def live(home: Home, clock: ManualClock) -> list[str]:
    """Sessions with everything that collection has to do with; the ids of all versions."""
    engine, blobs = home.engine, home.blobs
    graph = StateGraph("会话", engine=engine)
    versions: list[str] = []
    shared = blobs.put(b"shared", "text/plain")

    def turn(graph: StateGraph, number: int) -> None:
        page = blobs.put(f"<p>{number}</p>".encode(), "text/html")
        picture = blobs.put(bytes([number]) * 70_000, "image/png")
        with graph.step(agent="planner") as step:
            call = step.add_node("api_call", {"n": number}, key="call", tool="search")
            answer = step.add_node("api_response", {"n": number, "page": page, "shared": shared}, key="answer")
            step.add_node("document", {"evidence": blobs.put_value({"n": number, "picture": picture})}, key="document")
            step.add_node("user_intent", {"query": "天气"}, ttl=3)
            step.add_edge(call.id, answer.id, "causes")
        blobs.put(b"shared", "text/plain")
        versions.append(graph.version)
        clock.advance(1)

    for number in range(8):
        turn(graph, number)
    graph.pin(versions[1], "审计", "why not")
    graph.rollback(3)
    fork = graph.fork("fork")
    for number in range(20, 24):
        turn(graph, number)
        turn(fork, number + 20)
    graph.rollback(to=versions[6])
    graph.rollback(to=versions[-2])
    other = StateGraph("other", engine=engine)
    for number in range(60, 62):
        turn(other, number)
    clock.advance(10)
    return versions


def seen(home: Home, versions: Sequence[str]) -> Seen:
    """What each version shows: its living nodes and their edges, or that it is collected. Content has to be there."""
    answers: Seen = {}
    for version in versions:
        try:
            graph = StateGraph(version.rsplit(".", 2)[0], engine=home.engine).at(version)
        except VersionCollected:
            answers[version] = "collected"
            continue
        nodes = graph.nodes()
        for node in nodes:
            for cid in referred_cids(node.data):
                content = home.blobs.get(cid)
                assert content
                for inner in home.blobs.referred_by(cid):
                    assert home.blobs.get(inner)
        answers[version] = (nodes, [graph.edges(node.id) for node in nodes], graph.caused_by("search", 100))
        verified = graph.verify()
        assert verified.ok, verified.problems
    for session in SESSIONS:
        graph = StateGraph(session, engine=home.engine)
        answers[session] = (graph.version, graph.nodes(), graph.latest("answer"))
    return answers


def collect(home: Home) -> None:
    """The whole collection, in small passes."""
    for session, policy in POLICIES:
        while StateGraph(session, engine=home.engine).gc(limit=LIMIT, **policy).more:
            pass


def check_undamaged(now: Seen, before: Seen, after: Seen) -> None:
    """Each version is as it was, or is refused; and what a whole collection leaves is not refused."""
    for name, answer in now.items():
        assert answer in (before[name], after[name]), name


# -- at every write ------------------------------------------------------------------------------------------------------


class Killed(BaseException):
    """What a process that was killed doesn't live to see."""


class MortalStore(MemoryStore):
    """Takes so many writes; from the next on it dies at each, and nothing of it is to be seen."""

    def __init__(self) -> None:
        super().__init__()
        self.left: int | None = None
        self.writes = 0

    def write(self, batch: Sequence[Write], *, sync: bool = False) -> None:
        self.writes += 1
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise Killed
        super().write(batch, sync=sync)

    def rows(self) -> dict[bytes, bytes]:
        return dict(self.scan(b"", b"\xff" * 8))


def opened(store: MemoryStore, folder: Path, clock: ManualClock) -> Home:
    """A home whose store outlives it."""
    engine = StateEngine(store, clock=clock, durability="os")
    return Home(None, engine, BlobStore(store, folder), None)


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.is_file()}


def test_death_at_every_write_of_a_collection(tmp_path: Path) -> None:
    clock = ManualClock()
    origin, blobs = MortalStore(), tmp_path / "blobs"
    home = opened(origin, blobs, clock)
    versions = live(home, clock)
    before = seen(home, versions)
    rows = list(origin.rows().items())

    def copy(name: str) -> tuple[MortalStore, Path]:
        store = MortalStore()
        store.write(rows)
        store.writes = 0
        shutil.copytree(blobs, tmp_path / name)
        return store, tmp_path / name

    whole, folder = copy("whole")
    home = opened(whole, folder, clock)
    collect(home)
    writes, after, left = whole.writes, seen(home, versions), (whole.rows(), files(folder))
    assert writes > 50
    gone = [version for version in versions if after[version] == "collected"]
    assert 10 < len(gone) < len(versions)
    assert len(left[1]) < len(files(blobs))

    stride = 1 if FULL else 6
    for death in range(random.SystemRandom().randrange(stride), writes, stride):
        store, folder = copy(f"death {death}")
        store.left = death
        with pytest.raises(Killed):
            collect(opened(store, folder, clock))
        store.left = None
        home = opened(store, folder, clock)
        check_undamaged(seen(home, versions), before, after)
        collect(home)
        assert seen(home, versions) == after
        assert store.rows() == left[0], f"death at write {death} left something behind"
        assert files(folder) == left[1]
        shutil.rmtree(folder)


# -- for real ------------------------------------------------------------------------------------------------------------

COLLECTOR = """
import json, os, signal, sys
from pathlib import Path
from agent_infra.clock import ManualClock, to_datetime
from agent_infra.state import StateGraph, open_home
from agent_infra.state.stores import RocksStore

folder, now, left, limit, policies = Path(sys.argv[1]), *map(int, sys.argv[2:5]), json.loads(sys.argv[5])
home = open_home(folder, clock=ManualClock(to_datetime(now)), durability="os")
write = RocksStore.write

def deadly(self, batch, **options):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    write(self, batch, **options)

RocksStore.write = deadly
os.write(1, b"ready\\n")
for session, policy in policies:
    while StateGraph(session, engine=home.engine).gc(limit=limit, **policy).more:
        pass
home.close()
"""


def run_collector(folder: Path, clock: ManualClock, left: int, kill_after: float | None = None) -> int:
    """Collect in a child process that dies at a write, or at a moment; its exit status."""
    arguments = [str(folder), str(clock.micros()), str(left), str(LIMIT), json.dumps(POLICIES)]
    child = subprocess.Popen([sys.executable, "-c", COLLECTOR, *arguments], stdout=subprocess.PIPE)
    assert child.stdout is not None
    with child.stdout:
        child.stdout.readline()
        try:
            return child.wait(60 if kill_after is None else kill_after)
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGKILL)
            return child.wait(60)


def test_a_process_that_is_killed_while_it_collects(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    seed = int(request.config.getoption("--hypothesis-seed"))
    chance = random.Random(seed)
    print("seed", seed)
    clock = ManualClock()
    home = open_home(tmp_path / "origin", clock=clock, durability="os")
    versions = live(home, clock)
    before = seen(home, versions)
    home.close()

    shutil.copytree(tmp_path / "origin", tmp_path / "whole")
    home = open_home(tmp_path / "whole", clock=clock)
    collect(home)
    after = seen(home, versions)
    home.close()

    for round in range(ROUNDS):
        folder = tmp_path / f"round {round}"
        shutil.copytree(tmp_path / "origin", folder)
        if round % 3 < 2:
            assert run_collector(folder, clock, chance.randrange(1, 60)) == -signal.SIGKILL
        else:
            run_collector(folder, clock, 0, chance.random() * 0.05)
        home = open_home(folder, clock=clock, durability="os")
        check_undamaged(seen(home, versions), before, after)
        collect(home)
        assert seen(home, versions) == after, f"round {round}"
        home.close()
        shutil.rmtree(folder)
