"""Random programs of steps, rollbacks and reads give the answers of a plain-dict model, on every store.

The model (`agent_infra.testing.GraphModel`) keeps a whole copy of everything for every version. After each operation
the head is compared with it; at the end, every version that was ever made, abandoned ones too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings

from agent_infra.clock import MICROS, ManualClock, to_datetime
from agent_infra.errors import AgentInfraError, InvalidNode, NodeUnknown, NotJson, SchemaMismatch
from agent_infra.state import Home, Node, StateGraph, open_home, open_memory
from agent_infra.testing import GraphModel, ModelNode, ModelVersion
from agent_infra.testing.strategies import (
    AGENTS,
    KEYS,
    TOOLS,
    TYPES,
    BackTo,
    FailStep,
    NewNode,
    Operation,
    PassTime,
    StepsBack,
    WriteStep,
    programs,
)

FULL = os.environ.get("AGENT_INFRA_TEST_TIER") == "full"
SESSION = "weather_demo_001"
SCHEMA = {"properties": {"refused": False}}
Opener = Callable[[Path, ManualClock], Home]


def on_disk(folder: Path, clock: ManualClock) -> Home:
    return open_home(folder, clock=clock, durability="os")


def in_memory(_: Path, clock: ManualClock) -> Home:
    return open_memory(clock=clock)


class Run:
    """One program on one store, beside its model, which is told the ids that the store drew."""

    def __init__(self, open_store: Opener, folder: Path) -> None:
        self.clock = ManualClock()
        self._open = open_store
        self._folder = folder
        self.home = open_store(folder, self.clock)
        for type in TYPES:
            self.home.engine.schemas.register(type, SCHEMA, compatibility="NONE")
        self.graph = StateGraph(SESSION, engine=self.home.engine)
        self.model = GraphModel(self.graph.version)

    def do(self, operation: Operation) -> None:
        match operation:
            case WriteStep():
                self._write(operation)
            case FailStep():
                self._fail(operation)
            case StepsBack(steps):
                steps %= self.model.head.step + 1
                expected = self.model.back(steps)
                assert self.graph.rollback(steps) == expected.id
                self.model.rollback(expected.id)
            case BackTo(number):
                version = list(self.model.versions)[number % len(self.model.versions)]
                assert self.graph.rollback(to=version) == version
                self.model.rollback(version)
            case PassTime(seconds):
                self.clock.advance(seconds)
            case _:
                self._reopen()

    def _reopen(self) -> None:
        if self.home.path is not None:
            self.home.close()
            self.home = self._open(self._folder, self.clock)
            self.graph = StateGraph(SESSION, engine=self.home.engine)

    def _write(self, operation: WriteStep) -> None:
        new: list[ModelNode] = []
        old = list(self.model.head.nodes.values())
        living = [node.id for node in old if node.dead is None]
        removals = list(dict.fromkeys(living[number % len(living)] for number in operation.removals if living))
        edges: list[tuple[str, str, str]] = []
        with self.graph.step(agent=operation.agent) as step:
            for node in operation.nodes:
                made = step.add_node(node.type, node.data, key=node.key, ttl=node.ttl, tool=node.tool)
                new.append(
                    ModelNode(made.id, node.type, node.data, node.key, node.ttl or None, node.tool, operation.agent)
                )
            ends = [node.id for node in (*old, *new)]
            for source, target, type in operation.edges if ends else ():
                edges.append((ends[source % len(ends)], ends[target % len(ends)], type))
                step.add_edge(*edges[-1])
            for id in removals:
                step.remove(id, "不再需要")
        if not (new or edges or removals):
            assert step.version is None
            return
        assert step.version is not None
        assert step.version not in self.model.versions
        self.model.commit(step.version, self.clock.micros(), new, edges, removals, operation.agent)

    def _fail(self, operation: FailStep) -> None:
        faults: dict[str, type[Exception]] = {
            "raises": ZeroDivisionError,
            "not json": NotJson,
            "mismatch": SchemaMismatch,
            "unknown end": NodeUnknown,
            "same key twice": InvalidNode,
        }
        with pytest.raises(faults[operation.fault]), self.graph.step() as step:
            nodes = [self._add(step.add_node, node) for node in operation.nodes]
            if operation.fault == "raises":
                raise ZeroDivisionError
            if operation.fault == "not json":
                step.add_node("note", {"x": {1, 2}})
            if operation.fault == "mismatch":
                step.add_node("note", {"refused": 1})
            if operation.fault == "unknown end":
                step.add_edge(step.add_node("note", {}).id, "0" * 26, "causes")
            if operation.fault == "same key twice":
                for _ in range(2):
                    step.add_node("note", {}, key="twice")
        assert step.version is None
        for node in nodes:
            with pytest.raises(NodeUnknown):
                self.graph.node(node.id)

    @staticmethod
    def _add(add_node: Callable[..., Node], node: NewNode) -> Node:
        return add_node(node.type, node.data, key=node.key, ttl=node.ttl, tool=node.tool)

    # -- comparing ---------------------------------------------------------------------------------

    def check_head(self) -> None:
        head = self.model.head
        assert self.graph.version == head.id
        self._check_history(self.graph, head)
        now = max(self.clock.micros(), head.created)
        for lifecycle in ("active", None):
            assert self._seen(self.graph.nodes(lifecycle=lifecycle)) == self._meant(head, now, lifecycle)
        for name in (*KEYS, *TYPES):
            self._check_latest(self.graph, head, now, name)

    def check_all(self) -> None:
        for version in self.model.versions.values():
            then = self.graph.at(version.id)
            assert then.version == version.id
            self._check_history(then, version)
            self._check_view(then, version, version.created)
            late = self.clock.micros() + 30 * MICROS
            self._check_view(self.graph.at(version.id, as_of=to_datetime(late)), version, late)
        verification = self.graph.verify()
        assert verification.ok, verification.problems
        assert verification.steps == self.model.head.step

    def _check_view(self, graph: StateGraph, version: ModelVersion, as_of: int) -> None:
        for lifecycle in ("active", "superseded", "expired", "tombstoned", None):
            assert self._seen(graph.nodes(lifecycle=lifecycle)) == self._meant(version, as_of, lifecycle)
        for asked in _questions():
            for lifecycle in ("active", None):
                seen = self._seen(graph.nodes(**asked, lifecycle=lifecycle))
                assert seen == self._meant(version, as_of, lifecycle, **asked), (asked, lifecycle)
        self._check_since(graph, version, as_of)
        self._check_pages(graph, version)
        self._check_edges(graph, version)
        for name in (*KEYS, *TYPES):
            self._check_latest(graph, version, as_of, name)
        for tool in TOOLS:
            for within in (0, 0.000001, 0.5, 60, 86400):
                self._check_caused(graph, version, as_of, tool, within)

    def _check_caused(self, graph: StateGraph, version: ModelVersion, as_of: int, tool: str, within: float) -> None:
        """Newest first; nodes of one step are of one moment, so among them any order will do."""
        found = graph.caused_by(tool, within)
        assert [node.created for node in found] == sorted((node.created for node in found), reverse=True)
        meant = self.model.caused_by(version, as_of, tool, within)
        by_id = sorted(found, key=lambda node: node.id)
        assert self._seen(by_id) == [_of_model(node, as_of) for node in sorted(meant, key=lambda node: node.id)], tool

    def _check_since(self, graph: StateGraph, version: ModelVersion, as_of: int) -> None:
        for created in sorted({node.created for node in version.nodes.values()})[-3:]:
            since: datetime = to_datetime(created)
            for asked in ({}, {"type": "note"}, {"tool": "search"}, {"key": "report"}, {"owner": "planner"}):
                seen = self._seen(graph.nodes(**asked, since=since, lifecycle=None))
                assert seen == self._meant(version, as_of, None, **asked, since=created), asked

    def _check_pages(self, graph: StateGraph, version: ModelVersion) -> None:
        for asked in ({}, {"type": "note"}, {"tool": "search"}, {"key": "report"}, {"owner": "planner"}):
            for lifecycle in ("active", None):
                whole = [node.id for node in graph.nodes(**asked, lifecycle=lifecycle)]
                for limit in (1, 2, 3, len(whole) + 1):
                    pages: list[str] = []
                    cursor = None
                    while True:
                        page = graph.nodes(**asked, lifecycle=lifecycle, limit=limit, cursor=cursor)
                        assert len(page) == limit or page.cursor is None
                        pages += [node.id for node in page]
                        cursor = page.cursor
                        if cursor is None:
                            break
                    assert pages == whole, (asked, lifecycle, limit)

    def _check_edges(self, graph: StateGraph, version: ModelVersion) -> None:
        for newest in list(self.model.versions.values())[-1:]:
            for id in {*version.nodes, *newest.nodes}:
                meant = sorted(self.model.edges(version, id))
                found = graph.edges(id)
                assert sorted((edge.source, edge.target, edge.type, edge.step) for edge in found) == meant
                assert [edge.step for edge in found] == sorted(edge.step for edge in found)

    def _check_latest(self, graph: StateGraph, version: ModelVersion, as_of: int, name: str) -> None:
        found, meant = graph.latest(name), self.model.latest(version, as_of, name)
        assert (found and self._seen([found])) == (meant and [_of_model(meant, as_of)])

    def _check_history(self, graph: StateGraph, version: ModelVersion) -> None:
        meant = self.model.history(version)
        found = graph.history()
        assert [(v.id, v.parent, v.step_count, v.agent, v.created) for v in found] == [
            (v.id, v.parent, v.step, v.agent, v.created) for v in meant
        ]
        for one in found:
            assert set(one.nodes) == {node.id for node in version.nodes.values() if node.step == one.step_count}

    def _meant(self, version: ModelVersion, as_of: int, lifecycle: str | None, **asked: object) -> list[object]:
        return [_of_model(node, as_of) for node in self.model.nodes(version, as_of, lifecycle, **asked)]

    @staticmethod
    def _seen(nodes: Iterable[Node]) -> list[object]:
        return [
            (n.id, n.type, n.data, n.key, n.ttl, n.tool, n.owner, n.created, n.step, n.lifecycle, n.session)
            for n in nodes
        ]


def _of_model(n: ModelNode, as_of: int) -> tuple[object, ...]:
    return n.id, n.type, n.data, n.key, n.ttl, n.tool, n.owner, n.created, n.step, n.lifecycle(as_of), SESSION


def _questions() -> list[dict[str, str]]:
    single = [
        *({"type": type} for type in TYPES),
        *({"tool": tool} for tool in TOOLS),
        *({"key": key} for key in KEYS),
        *({"owner": agent} for agent in AGENTS),
    ]
    mixed = [{"type": "note", "tool": "search"}, {"type": "天气", "owner": "执行者"}, {"key": "note", "type": "note"}]
    return [*single, *mixed, {"tool": "search", "owner": "planner", "key": "report"}, {"type": "absent"}]


def _run(open_store: Opener, program: list[Operation]) -> None:
    with TemporaryDirectory(prefix="agent-infra-test-") as folder:
        run = Run(open_store, Path(folder) / "home")
        try:
            for operation in program:
                run.do(operation)
                run.check_head()
            run.check_all()
            run._reopen()
            run.check_head()
            run.check_all()
        finally:
            run.home.close()


@settings(max_examples=3000 if FULL else 60)
@given(programs())
def test_memory_answers_as_the_model(program: list[Operation]) -> None:
    _run(in_memory, program)


@settings(max_examples=1000 if FULL else 20)
@given(programs())
def test_rocksdb_answers_as_the_model(program: list[Operation]) -> None:
    _run(on_disk, program)


def test_the_refusals_of_a_program_are_the_librarys_own() -> None:
    assert all(issubclass(kind, AgentInfraError) for kind in (NotJson, SchemaMismatch, NodeUnknown, InvalidNode))
