"""One run: how much of everything, where it lies, and the homes that figures are taken on."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _langgraph import INSTALL, LangGraphPeer
from _measure import Report
from _sqlite import SYNCHRONOUS, SqlitePeer
from _work import SCHEMAS, STEP_APART, Work, filled

from agent_infra.clock import ManualClock
from agent_infra.state import Home, Node, StateGraph, open_home

SESSION = "bench"


@dataclass(frozen=True, slots=True)
class Counts:
    """How much of everything.

    nodes, huge     of the large graph, and of the one ten times larger; None: not measured
    sessions        of the home that is asked as a whole, each with so many `session_nodes`
    insert          nodes of the large step
    inserts         repetitions of it
    steps           repetitions of a typical step
    queries, slow   repetitions of a query, and of what takes seconds
    depth, turns    versions of a deep session; turns of a conversation
    threads_writes  writes of each of 16 threads in a round
    seconds         of a round of readers
    fsyncs          that the disk is asked for
    """

    mode: str
    nodes: int
    huge: int | None
    sessions: int
    session_nodes: int
    insert: int
    inserts: int
    steps: int
    queries: int
    slow: int
    depth: int
    turns: int
    thread_writes: int
    seconds: float
    fsyncs: int


TINY = Counts("tiny", 2000, None, 10, 10, 50, 2, 3, 3, 1, 20, 5, 2, 0.05, 3)
QUICK = Counts("quick", 100_000, None, 1000, 20, 1000, 30, 600, 500, 3, 10_000, 200, 60, 1.0, 200)
FULL = Counts("full", 100_000, 1_000_000, 1000, 100, 1000, 60, 1000, 1000, 5, 10_000, 200, 100, 3.0, 300)


class Bench:
    """What every figure is given: the counts, a folder, the report, and LangGraph where it is installed."""

    def __init__(self, counts: Counts, folder: Path, report: Report) -> None:
        self.counts = counts
        self.folder = folder
        self.report = report
        self.langgraph: LangGraphPeer | None = None
        self._homes: list[Home] = []
        self._peers: list[SqlitePeer] = []
        self._files: list[Any] = []

    def start_langgraph(self) -> None:
        """Start LangGraph's process, or say that it is skipped."""
        if LangGraphPeer.installed():
            folder = self.folder / "langgraph"
            folder.mkdir()
            self.langgraph = LangGraphPeer(folder)
        else:
            self.report.skip("langgraph", "langgraph-checkpoint-sqlite is not installed in .cache/bench", INSTALL)

    def home(self, name: str, durability: Any = "os", **settings: Any) -> Home:
        """A new home, its types declared."""
        home = open_home(self.folder / name, durability=durability, **settings)
        self._homes.append(home)
        for type, schema in SCHEMAS.items():
            home.engine.schemas.register(type, schema)
        return home

    def sqlite(self, home: Home, name: str, durability: str = "os") -> SqlitePeer:
        """The SQLite peer of a home: the same drafts, the equal durability."""
        return self.sqlite_of(home, name, SYNCHRONOUS[durability])

    def sqlite_of(self, home: Home, name: str, synchronous: str) -> SqlitePeer:
        """A SQLite peer by SQLite's own setting."""
        peer = SqlitePeer(self.folder / f"{name}.db", home.engine.schemas.draft, synchronous)
        self._peers.append(peer)
        return peer

    def bare_fsync(self, name: str) -> Callable[[], None]:
        """A job that appends what a typical step takes to a file of its own, and syncs it: the floor of any commit."""
        file = (self.folder / f"fsync-{name}").open("ab", buffering=0)
        self._files.append(file)

        def job() -> None:
            file.write(bytes(3000))
            os.fdatasync(file.fileno())

        return job

    def close(self) -> None:
        """Close what is open."""
        if self.langgraph is not None:
            self.langgraph.close()
        for opened in (*self._homes, *self._peers, *self._files):
            opened.close()


def write(graph: StateGraph, work: Work) -> list[Node]:
    """Write a step, as a user of the product would."""
    with graph.step() as step:
        nodes = [step.add_node(item.type, item.data, key=item.key, tool=item.tool) for item in work.items]
        for source, target, type in work.edges:
            step.add_edge(
                nodes[source].id if isinstance(source, int) else source,
                nodes[target].id if isinstance(target, int) else target,
                type,
            )
    return nodes


def fill(graph: StateGraph, clock: ManualClock, nodes: int, peer: SqlitePeer | None = None) -> None:
    """Write a large graph, and the same into a peer; `STEP_APART` seconds between two steps."""
    for work in filled(nodes):
        clock.advance(STEP_APART)
        write(graph, work)
        if peer is not None:
            peer.write(graph.session_id, work, clock.micros())


def alike(*answers: list[Node]) -> bool:
    """Whether answers hold the same data in the same number."""
    return len({len(nodes) for nodes in answers}) == 1
