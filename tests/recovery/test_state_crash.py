"""`kill -9` at a random moment of a writer: nothing acknowledged is lost, and no step is seen half.

A child process writes steps and says so once each call has returned; it is killed, and its home opened here. Runs in
all durabilities, as each promises to outlive the process.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agent_infra.errors import VersionUnknown
from agent_infra.state import Home, StateGraph, open_home

ROUNDS = 200 if os.environ.get("AGENT_INFRA_TEST_TIER") == "full" else 3
PARTS = 5

# Two threads write a session each: steps of PARTS keyed nodes with an edge to each, a rollback now and then.
WRITER = """
import os, sys, threading
from pathlib import Path
from agent_infra.state import StateGraph, open_home

folder, durability, parts = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
home = open_home(folder, durability=durability)

def say(*words):
    os.write(1, (" ".join(words) + "\\n").encode())

def write(session):
    graph = StateGraph(session, engine=home.engine)
    number = len(graph.history())
    while True:
        number += 1
        with graph.step(agent="writer") as step:
            call = step.add_node("api_call", {"n": number, "padding": "天气" * 100}, tool="search")
            for part in range(parts):
                node = step.add_node("note", {"n": number, "part": part}, key=f"part/{part}")
                step.add_edge(call.id, node.id, "causes")
        say("step", step.version)
        if number % 7 == 0:
            say("rollback", graph.rollback(2))

for session in ("会话 1", "b"):
    threading.Thread(target=write, args=(session,), daemon=True).start()
say("ready", "")
threading.Event().wait()
"""


def run_and_kill(folder: Path, durability: str, lines: int, pause: float) -> list[tuple[str, str]]:
    """What the writer acknowledged before it was killed: after some lines, and a moment more."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder), durability, str(PARTS)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    said: list[str] = []
    try:
        while len(said) < lines:
            line = process.stdout.readline()
            assert line, "the writer ended by itself"
            said.append(line)
        time.sleep(pause)
    finally:
        process.send_signal(signal.SIGKILL)
        said += process.stdout.readlines()
        process.stdout.close()
        process.wait()
    whole = [line.rstrip("\n") for line in said if line.endswith("\n")]
    return [(word, version) for word, _, version in (line.partition(" ") for line in whole) if version]


def check(home: Home, acknowledged: list[tuple[str, str]]) -> None:
    """All that was acknowledged is there, each step whole, each session's head at or behind its last word."""
    for word, version in acknowledged:
        past = StateGraph(version.rsplit(".", 2)[0], engine=home.engine).at(version)
        assert past.version == version, word
        check_whole(past)
    last = {version.rsplit(".", 2)[0]: version for _, version in acknowledged}
    for session, version in last.items():
        graph = StateGraph(session, engine=home.engine)
        found = graph.verify()
        assert found.ok, found.problems
        ids = [each.id for each in graph.history()]
        assert version in ids or _went_back_from(graph, version), (version, ids[-3:])
        check_whole(graph)
        graph.add_node("note", {"text": "and it can be written"})
        assert graph.verify().ok
        graph.rollback()
    assert StateGraph.of_system(home.engine, "_control").verify().ok


def _went_back_from(graph: StateGraph, version: str) -> bool:
    """Whether the head was rolled back from that version: the writer died before it could say so."""
    moves = StateGraph.of_system(graph.engine, "_control").nodes(type="move")
    newest = next(move for move in moves if move.data["session"] == graph.session_id)
    return newest.data["from"] == version and newest.data["to"] == graph.version


def check_whole(graph: StateGraph) -> None:
    """Every step of a line has all of its nodes and edges, and the newest ones are those that live."""
    history = graph.history()
    for version in history[-3:]:
        nodes = [graph.node(id) for id in version.nodes]
        assert len(nodes) == PARTS + 1
        assert len({node.data["n"] for node in nodes}) == 1
        assert {edge.target for edge in graph.edges(nodes[0].id)} == {node.id for node in nodes[1:]}
    if history:
        living = graph.nodes(type="note")
        assert {node.step for node in living} == {history[-1].step_count}
        assert sorted(node.data["part"] for node in living) == list(range(PARTS))
        caused = graph.caused_by("search", within=1e9)
        assert sorted(node.id for node in caused) == sorted(node.id for node in living)


@pytest.mark.parametrize("durability", ["group", "os", "step"])
def test_nothing_acknowledged_is_lost_when_a_writer_is_killed(tmp_path: Path, durability: str) -> None:
    seed = random.SystemRandom().getrandbits(32)
    chance = random.Random(seed)
    print(f"seed {seed}")
    folder, everything, total = tmp_path, list[tuple[str, str]](), 0
    for round in range(ROUNDS):
        if round % 10 == 0:  # each check reads the whole history: a new home keeps many rounds from growing it
            folder, everything = tmp_path / f"home {round}", []
        acknowledged = run_and_kill(folder, durability, chance.randrange(1, 60), chance.random() * 0.02)
        everything += acknowledged
        total += len(acknowledged)
        home = open_home(folder)
        try:
            check(home, acknowledged)
            for _, version in chance.sample(everything, min(len(everything), 20)):
                check_whole(StateGraph(version.rsplit(".", 2)[0], engine=home.engine).at(version))
        except (AssertionError, VersionUnknown) as error:
            raise AssertionError(f"round {round}, seed {seed}: {error}") from error
        finally:
            home.close()
    assert total > ROUNDS
