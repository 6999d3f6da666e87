"""The oracle: random programs over several sessions, every kind of query, at every version, against a plain model.

Programs fork, roll back, supersede, remove, erase, give types new schemas with migrations, let time pass, pin, unpin, collect,
and lose their process without a word. The model keeps a whole copy of everything
for every version and says in a few lines which versions a retention policy may take. After collection it can't say which of the
dead are left, only what must be: a node that some readable version shows alive. The living have to be there exactly.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_infra.clock import MICROS, ManualClock, to_datetime
from agent_infra.errors import NodeUnknown, VersionCollected, VersionUnknown
from agent_infra.state import Home, Node, StateGraph, caused_by_everywhere, open_home, open_memory
from agent_infra.testing import GraphModel, ModelNode, ModelVersion
from agent_infra.testing.strategies import (
    AGENTS,
    EDGE_TYPES,
    KEYS,
    TOOLS,
    TYPES,
    BackTo,
    NewNode,
    PassTime,
    Reopen,
    StepsBack,
    WriteStep,
)

FULL = os.environ.get("AGENT_INFRA_TEST_TIER") == "full"
SESSIONS = ("weather_demo_001", "北京", "a.b.c")
BACKWARD = ("references", "depends_on")
WHERE: dict[str, Callable[[ModelNode], bool]] = {
    "has(node.data.n)": lambda node: "n" in node.data and "\\u0000" not in json.dumps(node.data["n"]),
    "node.step > 2": lambda node: node.step > 2,
    'node.tool == "search" || node.type == "天气"': lambda node: node.tool == "search" or node.type == "天气",
}


# -- programs ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fork:
    """A fork at any version that the session has; a name that is taken is passed over."""

    version: int
    name: int


@dataclass(frozen=True, slots=True)
class Pin:
    version: int
    owner: str


@dataclass(frozen=True, slots=True)
class Unpin:
    version: int
    owner: str


@dataclass(frozen=True, slots=True)
class Collect:
    """Passes of retention until nothing is left to do, each of at most `limit` things."""

    keep_last: int | None
    max_age: float | None
    max_bytes: int | None
    abandoned_after: float | None
    limit: int


@dataclass(frozen=True, slots=True)
class Erase:
    node: int


@dataclass(frozen=True, slots=True)
class NewSchema:
    """The next version of a type: it requires one more field, and links lead to it and back."""

    type: int


@dataclass(frozen=True, slots=True)
class Crash:
    """The process is gone between two operations; what it had handed to the system is there."""


Operation = (
    WriteStep | StepsBack | BackTo | PassTime | Reopen | Fork | Pin | Unpin | Collect | Erase | NewSchema | Crash
)
Program = list[tuple[int, Operation]]
"""Which session does what. What it names by number is taken modulo what is there."""


def programs() -> st.SearchStrategy[Program]:
    number, owner = st.integers(0, 99), st.sampled_from(AGENTS)
    node = st.builds(
        NewNode,
        type=st.sampled_from(TYPES),
        data=st.sampled_from([{"n": 1}, {}, {"天气": "晴", "n": None}]),
        key=st.sampled_from([None, *KEYS[:2], *KEYS]),
        ttl=st.sampled_from([None, None, None, 0, 0.5, 60]),
        tool=st.sampled_from([None, *TOOLS]),
    )
    write = st.builds(
        WriteStep,
        agent=st.sampled_from([None, *AGENTS]),
        nodes=st.lists(node, max_size=3).map(_one_of_each_key),
        edges=st.lists(st.tuples(number, number, st.sampled_from(("causes", *EDGE_TYPES))), max_size=3).map(tuple),
        removals=st.lists(number, max_size=1).map(tuple),
    )
    collect = st.builds(
        Collect,
        keep_last=st.sampled_from([None, 1, 1, 2, 4]),
        max_age=st.sampled_from([None, None, 0, 1, 60]),
        max_bytes=st.sampled_from([None, None, None, 0, 10**9]),
        abandoned_after=st.sampled_from([None, None, 0, 60]),
        limit=st.sampled_from([1, 3, 1000]),
    )
    back = st.one_of(st.builds(StepsBack, st.integers(0, 4)), st.builds(BackTo, number))
    time = st.builds(PassTime, st.sampled_from([0.5, 1, 60, 3600, -1]))
    keep = st.one_of(st.builds(Pin, number, owner), st.builds(Pin, number, owner), st.builds(Unpin, number, owner))
    fork, pause = st.builds(Fork, number, number), st.one_of(time, time, st.builds(Reopen), st.builds(Crash))
    rare = st.one_of(st.builds(Erase, number), st.builds(NewSchema, number))
    one = st.one_of(write, write, write, back, fork, keep, collect, collect, pause, rare)
    return st.lists(st.tuples(st.integers(0, 2), one), min_size=24, max_size=80)


def long_program(draw: random.Random, length: int) -> Program:
    """A long life: lines grow, are left and gone back to, and are collected from behind."""

    def node() -> NewNode:
        key, tool = draw.choice([None, *KEYS]), draw.choice([None, *TOOLS])
        return NewNode(draw.choice(TYPES), {"n": draw.randrange(9)}, key, draw.choice([None, None, 0.5, 60]), tool)

    def write() -> Operation:
        nodes = _one_of_each_key([node() for _ in range(draw.randrange(4))])
        edges = [
            (draw.randrange(99), draw.randrange(99), draw.choice(("causes", *EDGE_TYPES)))
            for _ in range(draw.randrange(4))
        ]
        return WriteStep(draw.choice([None, *AGENTS]), nodes, tuple(edges), (draw.randrange(99),) * draw.randrange(2))

    def collect() -> Operation:
        return Collect(
            draw.choice([None, 1, 2, 5, 9]),
            draw.choice([None, None, 1, 60]),
            draw.choice([None, None, None, 0]),
            draw.choice([None, None, 0, 60]),
            draw.choice([1, 3, 20, 1000]),
        )

    others: list[Callable[[], Operation]] = [
        lambda: StepsBack(draw.randrange(4)),
        lambda: BackTo(draw.randrange(999)),
        lambda: PassTime(draw.choice([0.5, 1, 30, 60, -1])),
        lambda: Reopen(),
        lambda: Fork(draw.randrange(999), draw.randrange(4)),
        lambda: Pin(draw.randrange(999), draw.choice(AGENTS)),
        lambda: Unpin(draw.randrange(999), draw.choice(AGENTS)),
        lambda: draw.choice([Erase(draw.randrange(999)), NewSchema(draw.randrange(9)), Crash()]),
        collect,
    ]
    return [
        (draw.choice((0, 0, 0, 1, 2)), write() if draw.random() < 0.6 else draw.choice(others)()) for _ in range(length)
    ]


def _one_of_each_key(nodes: list[NewNode]) -> tuple[NewNode, ...]:
    keyed = {node.key: node for node in nodes if node.key is not None}
    return (*(node for node in nodes if node.key is None), *keyed.values())


# -- the model of a home -------------------------------------------------------------------------------------------------


class HomeModel:
    """Sessions over one tree of versions. A version is collected, or it is as it was."""

    def __init__(self) -> None:
        self.sessions: dict[str, GraphModel] = {}
        self.versions: dict[str, ModelVersion] = {}
        self.writer: dict[str, str] = {}
        self.roots: dict[str, str] = {}
        self.collected: set[str] = set()
        self.dropped: set[str] = set()
        self.pins: dict[str, set[str]] = {}
        self.asked: dict[str, int] = {}
        self.schemas: dict[str, tuple[int, int]] = {}

    def begin(self, session: str, root: str, at: str | None = None) -> None:
        model = GraphModel(root)
        self.versions.setdefault(root, model.head)
        self.roots[session] = root
        model.versions = self.versions
        self.sessions[session] = model
        if at is not None:
            self.move(session, at)

    def move(self, session: str, to: str) -> None:
        """A head moves: it wants its whole line again, and where it stands is no longer kept by a pin alone."""
        self.sessions[session].rollback(to)
        self.asked.pop(session, None)
        self.collected.discard(to)

    def line(self, session: str) -> list[ModelVersion]:
        return self.sessions[session].history(self.sessions[session].head)

    def is_of(self, version: str, session: str) -> bool:
        """Whether a session may open a version: it wrote it, or it was forked behind it."""
        own = self.writer.get(version) == session or version == self.roots[session]
        return own or version in {each.id for each in self.line(session)}

    def readable(self, version: str) -> bool:
        return version not in self.collected or bool(self.pins.get(version))

    def stored(self, type: str, data: dict[str, Any]) -> dict[str, Any]:
        """What is stored of data of the version that a type began with."""
        return data | _fields(*self.schemas[type])

    def erasable(self) -> list[str]:
        """The nodes that can be erased without the model losing which tools caused what."""
        sources = {source for version in self.versions.values() for source, _, _, _ in version.edges}
        return sorted(self.must_be() - sources)

    def erase(self, node: str) -> str:
        """A node is in no version any more; the session that wrote it."""
        writers = [
            self.writer[version.id]
            for version in self.versions.values()
            if node in version.nodes and version.nodes[node].step == version.step
        ]
        for version in self.versions.values():
            version.nodes.pop(node, None)
        return writers[0]

    # -- retention -------------------------------------------------------------------------------------------------------

    def collect(self, session: str, policy: Collect, now: int) -> None:
        line = self.line(session)
        if line and (policy.keep_last, policy.max_age, policy.max_bytes) != (None, None, None):
            self.asked[session] = first = self._first_wanted(line, policy, now)
            for version in line:
                if version.step < first and not self._asked_by_others(session, version):
                    self.collected.add(version.id)
        if policy.abandoned_after is not None:
            self._drop_abandoned(session, now - round(policy.abandoned_after * MICROS))

    @staticmethod
    def _first_wanted(line: list[ModelVersion], policy: Collect, now: int) -> int:
        head = line[-1].step
        first = 1
        if policy.keep_last is not None:
            first = max(first, head - policy.keep_last + 1)
        if policy.max_age is not None:
            young = [each.step for each in line if each.created >= now - round(policy.max_age * MICROS)]
            first = max(first, min(young, default=head))
        if policy.max_bytes == 0:
            first = max([first, *(min(node.step + 1, head) for node in line[-1].nodes.values())])
        return first

    def _asked_by_others(self, session: str, version: ModelVersion) -> bool:
        return any(
            version.step >= self.asked.get(other, 0) and any(each.id == version.id for each in self.line(other))
            for other in self.sessions
            if other != session
        )

    def _drop_abandoned(self, session: str, before: int) -> None:
        """Leaves that no line goes through, old and unpinned; and then what became a leaf by that."""
        needed = {each.id for other in self.sessions for each in self.line(other)} | {
            id for id, owners in self.pins.items() if owners
        }
        while True:
            parents = {each.parent for each in self.versions.values() if each.id not in self.dropped}
            leaves = [
                id
                for id, version in self.versions.items()
                if self.writer.get(id) == session
                and id not in needed | self.dropped | parents
                and version.created <= before
            ]
            if not leaves:
                return
            self.dropped.update(leaves)
            self.collected.update(leaves)

    def must_be(self) -> set[str]:
        """The nodes whose data some readable version asks for: they live in it, or it wrote them."""
        return {
            node.id
            for version in self.versions.values()
            if self.readable(version.id)
            for node in version.nodes.values()
            if node.lifecycle(version.created) == "active" or node.created == version.created
        }


# -- running a program ---------------------------------------------------------------------------------------------------


class Oracle:
    """One program on one store, beside its model."""

    def __init__(self, opener: Callable[[Path, ManualClock], Home], folder: Path, asked: Counter[str]) -> None:
        self.clock = ManualClock()
        self.model = HomeModel()
        self.asked = asked
        self._open, self._folder = opener, folder
        self.home = opener(folder, self.clock)
        for type in TYPES:
            first = self.home.engine.schemas.register(type, {}, compatibility="NONE").version
            self.model.schemas[type] = first, first
        self._begin(SESSIONS[0])
        self._turn = 0

    def graph(self, session: str) -> StateGraph:
        return StateGraph(session, engine=self.home.engine)

    def _begin(self, session: str) -> None:
        self.model.begin(session, self.graph(session).version)

    def do(self, session: str, operation: Operation) -> None:
        if session not in self.model.sessions:
            self._begin(session)
        match operation:
            case WriteStep():
                self._write(session, operation)
            case StepsBack(steps):
                model = self.model.sessions[session]
                self._roll_back(session, model.back(steps % (model.head.step + 1)).id, steps % (model.head.step + 1))
            case BackTo(number):
                self._roll_back(session, self._version(number), None)
            case PassTime(seconds):
                self.clock.advance(seconds)
            case Reopen():
                self.reopen()
            case Fork(number, name):
                self._fork(session, self._version(number), f"fork {name % 4}")
            case Pin(number, owner):
                self._pin(session, self._version(number), owner)
            case Unpin(number, owner):
                self._unpin(session, self._version(number), owner)
            case Collect():
                self._collect(session, operation)
            case Erase(number):
                self._erase(number)
            case NewSchema(number):
                self._new_schema(TYPES[number % len(TYPES)])
            case Crash():
                self._crash()
            case _:
                raise NotImplementedError(operation)

    def _version(self, number: int) -> str:
        versions = list(self.model.versions)
        return versions[number % len(versions)]

    def _write(self, session: str, operation: WriteStep) -> None:
        model = self.model.sessions[session]
        old = list(model.head.nodes.values())
        living = [node.id for node in old if node.dead is None and node.id in self.model.must_be()]
        ends = [node.id for node in old if node.id in self.model.must_be()]
        removals = list(dict.fromkeys(living[number % len(living)] for number in operation.removals if living))
        new: list[ModelNode] = []
        edges: list[tuple[str, str, str]] = []
        with self.graph(session).step(agent=operation.agent) as step:
            for node in operation.nodes:
                first, _ = self.model.schemas[node.type]
                made = step.add_node(
                    node.type, node.data, key=node.key, ttl=node.ttl, tool=node.tool, schema_version=first
                )
                data = self.model.stored(node.type, node.data)
                new.append(ModelNode(made.id, node.type, data, node.key, node.ttl or None, node.tool, operation.agent))
                ends.append(made.id)
            for source, target, type in operation.edges if ends else ():
                edges.append((ends[source % len(ends)], ends[target % len(ends)], type))
                step.add_edge(*edges[-1])
            for id in removals:
                step.remove(id, "不再需要")
        if step.version is not None:
            model.commit(step.version, self.clock.micros(), new, edges, removals, operation.agent)
            self.model.writer[step.version] = session

    def _roll_back(self, session: str, to: str, steps: int | None) -> None:
        graph = self.graph(session)
        before = graph.version

        def roll_back() -> str:
            return graph.rollback(steps) if steps is not None else graph.rollback(to=to)

        if not self._may_open(session, to, roll_back):
            assert graph.version == before
            return
        assert roll_back() == to == graph.version
        self.model.move(session, to)

    def _may_open(self, session: str, version: str, open_it: Callable[[], object]) -> bool:
        """Whether a session may open a version just now; where it may not, opening it is refused by the right name."""
        if not self.model.is_of(version, session) and self.model.readable(version):
            with pytest.raises(VersionUnknown):
                open_it()
            return False
        if not self.model.readable(version):
            with pytest.raises(VersionCollected):
                open_it()
            return False
        return True

    def _fork(self, session: str, at: str, name: str) -> None:
        if name in self.model.sessions:
            return
        graph = self.graph(session)
        if not self._may_open(session, at, lambda: graph.fork(name, at=at)):
            return
        root = self.graph(name).version
        graph.fork(name, at=at)
        self.model.begin(name, root, None if at in self.model.roots.values() else at)
        assert self.graph(name).version == self.model.sessions[name].head.id

    def _pin(self, session: str, version: str, owner: str) -> None:
        graph = self.graph(session)
        if version in self.model.roots.values():
            return
        if not self.model.readable(version):
            with pytest.raises(VersionCollected):
                graph.pin(version, owner, "被引用")
            return
        graph.pin(version, owner, "被引用")
        self.model.pins.setdefault(version, set()).add(owner)

    def _unpin(self, session: str, version: str, owner: str) -> None:
        if self.model.readable(version) and version not in self.model.roots.values():
            was = owner in self.model.pins.get(version, set())
            assert self.graph(session).unpin(version, owner) is was
            self.model.pins.get(version, set()).discard(owner)

    def _collect(self, session: str, policy: Collect) -> None:
        graph = self.graph(session)
        before = self.model.must_be()
        for _ in range(len(self.model.versions) * 20 + 100):
            found = graph.gc(
                policy.keep_last, policy.max_age, policy.max_bytes, policy.abandoned_after, limit=policy.limit
            )
            self._check_heads()
            if not found.more:
                break
        else:
            raise AssertionError("collection never ends")
        self.model.collect(session, policy, self.clock.micros())
        assert self.model.must_be() <= before
        self._check_statuses()

    def _erase(self, number: int) -> None:
        nodes = self.model.erasable()
        if nodes:
            id = nodes[number % len(nodes)]
            freed = self.graph(self.model.erase(id)).erase(id, "她的请求")
            assert freed.nodes == 1
            self._check_heads()

    def _new_schema(self, type: str) -> None:
        schemas, (first, old) = self.home.engine.schemas, self.model.schemas[type]
        new, field = old + 1, f"f{old + 1}"
        schema = {"required": list(_fields(first, new))}
        assert schemas.register(type, schema, compatibility="NONE").version == new
        schemas.migrate(type, old, new, {"default": {field: new}})
        schemas.migrate(type, new, old, {"drop": [field]})
        self.model.schemas[type] = first, new

    def _crash(self) -> None:
        """Go on with what lay on the disk while the old process still had it open."""
        if self.home.path is not None:
            old, self._folder = self.home, self._folder.with_name(f"{self._folder.name}+")
            shutil.copytree(self.home.path, self._folder)
            self.home = self._open(self._folder, self.clock)
            old.close()

    def reopen(self) -> None:
        if self.home.path is not None:
            self.home.close()
            self.home = self._open(self._folder, self.clock)

    # -- comparing -------------------------------------------------------------------------------------------------------

    def _check_heads(self) -> None:
        """Whatever a pass removes, a head shows its living nodes."""
        for session, model in self.model.sessions.items():
            now = max(self.clock.micros(), model.head.created)
            graph = self.graph(session)
            assert graph.version == model.head.id
            assert self._seen(graph.nodes()) == [self._meant(node, now) for node in model.nodes(model.head, now)]

    def _check_statuses(self) -> None:
        """Each version is readable or collected, as the policies promised; nothing in between."""
        for id in self.model.versions:
            graph = self.graph(self._owner(id))
            if self.model.readable(id):
                assert graph.at(id).version == id
            else:
                self._refused(graph, id)

    def _refused(self, graph: StateGraph, id: str) -> None:
        self.asked["collected"] += 1
        for call in (graph.at, lambda version: graph.diff(version, graph.version), graph.pin):
            with pytest.raises(VersionCollected):
                call(id)

    def _owner(self, id: str) -> str:
        roots = {root: session for session, root in self.model.roots.items()}
        return self.model.writer.get(id) or roots[id]

    def check_all(self) -> None:
        must = self.model.must_be()
        readable = [version for version in self.model.versions.values() if self.model.readable(version.id)]
        self._check_heads()
        self._check_statuses()
        for version in readable:
            graph = self.graph(self._owner(version.id))
            late = max(self.clock.micros(), version.created) + 30 * MICROS
            for as_of, then in (
                (version.created, graph.at(version.id)),
                (late, graph.at(version.id, to_datetime(late))),
            ):
                assert then.version == version.id
                for kind in (self._nodes, self._latest, self._pages, self._node, self._edges, self._caused, self._why):
                    kind(then, version, as_of, must)
            self._history(graph.at(version.id), version)
        self._diffs(readable, must)
        for session, model in self.model.sessions.items():
            verified = self.graph(session).verify()
            assert verified.ok, verified.problems
            assert verified.steps == model.head.step
            self._versions_of_schemas(session)
        self._everywhere()

    def _versions_of_schemas(self, session: str) -> None:
        """Old readers see old data in new nodes, new readers new data in old ones."""
        graph = self.graph(session)
        for type, (first, newest) in self.model.schemas.items():
            if newest == first or not self._asks("in a schema's version"):
                continue
            plain = {node.id: node.data for node in graph.nodes(type=type)}
            for version in (first, newest):
                for node in graph.with_schemas({type: version}).nodes(type=type):
                    own = {name: value for name, value in plain[node.id].items() if not name.startswith("f")}
                    assert node.data == own | _fields(first, version)

    def _asks(self, kind: str) -> bool:
        """Whether to ask this time: in the default tier one of three questions, another each time."""
        self._turn += 1
        if not FULL and self._turn % 3:
            return False
        self.asked[kind] += 1
        return True

    def _nodes(self, graph: StateGraph, version: ModelVersion, as_of: int, must: set[str]) -> None:
        model = self.model.sessions[graph.session_id]
        times = sorted({node.created for node in version.nodes.values()})[-2:]
        for asked in _questions(times):
            for lifecycle in ("active", "superseded", "expired", "tombstoned", None):
                if self._asks("nodes by " + (next(iter(asked), "time"))):
                    plain = {name: value for name, value in asked.items() if name not in ("where", "since")}
                    if "since" in asked:
                        plain["since"] = asked["since"]
                    meant = model.nodes(version, as_of, lifecycle, **plain)
                    if "where" in asked:
                        meant = [node for node in meant if WHERE[asked["where"]](node)]
                    given = {name: to_datetime(value) if name == "since" else value for name, value in asked.items()}
                    self._compare(graph.nodes(**given, lifecycle=lifecycle), meant, as_of, must)

    def _compare(self, found: Iterable[Node], meant: Iterable[ModelNode], as_of: int, must: set[str]) -> None:
        """The same nodes in the same order; of what nothing readable shows alive, some may be missing."""
        seen = self._seen(found)
        ids = {each[0] for each in seen}
        assert seen == [self._meant(node, as_of) for node in meant if node.id in must or node.id in ids]

    def _latest(self, graph: StateGraph, version: ModelVersion, as_of: int, must: set[str]) -> None:
        for name in (*KEYS, *TYPES):
            if self._asks("latest"):
                found = graph.latest(name)
                meant = self.model.sessions[graph.session_id].latest(version, as_of, name)
                assert (found and self._seen([found])) == (meant and [self._meant(meant, as_of)])

    def _pages(self, graph: StateGraph, version: ModelVersion, as_of: int, must: set[str]) -> None:
        for asked in ({}, {"type": "note"}, {"tool": "search"}, {"key": "report"}, {"owner": "planner"}):
            for lifecycle in ("active", None):
                if self._asks("pages"):
                    pages, cursor = [], None
                    while True:
                        page = graph.nodes(**asked, lifecycle=lifecycle, limit=2, cursor=cursor)
                        pages += page
                        cursor = page.cursor
                        if cursor is None:
                            break
                    assert pages == graph.nodes(**asked, lifecycle=lifecycle)

    def _node(self, graph: StateGraph, version: ModelVersion, as_of: int, must: set[str]) -> None:
        everything = {id for each in list(self.model.versions.values())[-3:] for id in each.nodes}
        for id in sorted(everything):
            if not self._asks("node"):
                continue
            if id in version.nodes and id in must:
                assert self._seen([graph.node(id)]) == [self._meant(version.nodes[id], as_of)]
            elif id not in version.nodes:
                with pytest.raises(NodeUnknown):
                    graph.node(id)

    def _edges(self, graph: StateGraph, version: ModelVersion, as_of: int, must: set[str]) -> None:
        for id in version.nodes:
            if self._asks("edges"):
                found = graph.edges(id)
                assert [edge.step for edge in found] == sorted(edge.step for edge in found)
                meant = self.model.sessions[graph.session_id].edges(version, id)
                assert sorted((edge.source, edge.target, edge.type, edge.step) for edge in found) == sorted(meant)

    def _caused(self, graph: StateGraph, version: ModelVersion, as_of: int, must: set[str]) -> None:
        for tool in TOOLS:
            for within in (0, 0.5, 60, 86400):
                if self._asks("caused_by"):
                    found = graph.caused_by(tool, within)
                    assert [node.created for node in found] == sorted((node.created for node in found), reverse=True)
                    meant = self.model.sessions[graph.session_id].caused_by(version, as_of, tool, within)
                    assert self._by_id(found) == sorted(self._meant(node, as_of) for node in meant)

    def _why(self, graph: StateGraph, version: ModelVersion, as_of: int, must: set[str]) -> None:
        ids = [id for id in version.nodes if id in must]
        for id in ids:
            for edges in (None, ("causes",), ("causes", "depends_on")):
                for depth in (None, 1):
                    for direction, towards in ((graph.ancestors, "cause"), (graph.descendants, "effect")):
                        if self._asks(direction.__name__):
                            far = _distances(version, id, towards, edges, depth)
                            found = direction(id, edges=edges, depth=depth)
                            reached = [far[node.id] for node in found]
                            assert reached == sorted(reached)
                            assert len({node.id for node in found}) == len(found)
                            assert {other for other in far if other in must} <= {node.id for node in found} <= set(far)
            for other in ids[-3:]:
                if self._asks("path"):
                    self._path(graph, version, id, other, must)

    @staticmethod
    def _path(graph: StateGraph, version: ModelVersion, start: str, end: str, must: set[str]) -> None:
        found = [node.id for node in graph.path(start, end)]
        far = {start: 0} | _distances(version, start, "effect", None, None)
        if end not in far:
            assert found == []
            return
        assert (found[0], found[-1]) == (start, end)
        assert len(found) == far[end] + 1 or not set(far) <= must
        if len(found) == far[end] + 1:
            assert all(b in _distances(version, a, "effect", None, 1) for a, b in itertools.pairwise(found))

    def _history(self, graph: StateGraph, version: ModelVersion) -> None:
        self.asked["history"] += 1
        meant = [
            each for each in self.model.sessions[graph.session_id].history(version) if self.model.readable(each.id)
        ]
        assert [(v.id, v.parent, v.step_count, v.agent, v.created) for v in graph.history()] == [
            (v.id, v.parent, v.step, v.agent, v.created) for v in meant
        ]

    def _diffs(self, readable: list[ModelVersion], must: set[str]) -> None:
        """The nodes of two versions that are not dead, subtracted. Who is out of time may have been collected."""
        for number, old in enumerate(readable):
            for new in (readable[number // 2], readable[-1 - number], readable[-1]):
                if not self._asks("diff"):
                    continue
                found = self.graph(SESSIONS[0]).diff(old.id, new.id)
                before, after = _alive(old), _alive(new)
                added = {node.id for node in found.added} | {pair[1].id for pair in found.changed}
                gone = {node.id for node in found.gone} | {pair[0].id for pair in found.changed}
                assert (after - before) & must <= added <= after - before
                assert (before - after) & must <= gone <= before - after
                assert all(one.key == other.key is not None for one, other in found.changed)
                assert not {node.key for node in found.added if node.key} & {node.key for node in found.gone}
                assert found.is_empty == (not added and not gone)

    def _everywhere(self) -> None:
        for tool in TOOLS:
            for within in (0.5, 60, 86400):
                self.asked["caused_by over all sessions"] += 1
                meant: dict[str, object] = {}
                since = self.clock.micros() - round(within * MICROS)
                for model in self.model.sessions.values():
                    as_of = max(self.clock.micros(), model.head.created)
                    caused = model.caused_by(model.head, as_of, tool, (as_of - since) / MICROS)
                    meant |= {node.id: self._meant(node, as_of) for node in caused}
                found = caused_by_everywhere(self.home.engine, tool, within)
                assert self._by_id(found) == [meant[id] for id in sorted(meant)]
                assert [node.created for node in found] == sorted((node.created for node in found), reverse=True)

    def _by_id(self, nodes: Iterable[Node]) -> list[tuple[Any, ...]]:
        return sorted(self._seen(nodes), key=lambda each: each[0])

    @staticmethod
    def _seen(nodes: Iterable[Node]) -> list[tuple[Any, ...]]:
        return [(n.id, n.type, n.data, n.key, n.ttl, n.tool, n.owner, n.created, n.step, n.lifecycle) for n in nodes]

    @staticmethod
    def _meant(n: ModelNode, as_of: int) -> tuple[Any, ...]:
        return n.id, n.type, n.data, n.key, n.ttl, n.tool, n.owner, n.created, n.step, n.lifecycle(as_of)


def _questions(times: list[int]) -> Iterator[dict[str, Any]]:
    yield {}
    for name, values in (("type", (*TYPES, "absent")), ("tool", TOOLS), ("key", KEYS), ("owner", AGENTS)):
        for value in values:
            yield {name: value}
    for time in times:
        yield {"since": time}
        yield {"since": time, "type": "note"}
        yield {"since": time, "key": "report"}
    for where in WHERE:
        yield {"where": where}
        yield {"where": where, "tool": "search"}
    yield {"type": "note", "tool": "search"}
    yield {"key": "note", "owner": "执行者"}


def _fields(first: int, version: int) -> dict[str, int]:
    """What a version of a type has besides the fields that the first one had."""
    return {f"f{number}": number for number in range(first + 1, version + 1)}


def _alive(version: ModelVersion) -> set[str]:
    return {node.id for node in version.nodes.values() if node.dead is None}


def _distances(
    version: ModelVersion, start: str, towards: str, edges: tuple[str, ...] | None, depth: int | None
) -> dict[str, int]:
    """How many edges away each node is that led to one, or that came of it."""
    ways: dict[str, list[str]] = {}
    for source, target, type, _ in version.edges:
        if edges is None or type in edges:
            cause, effect = (target, source) if type in BACKWARD else (source, target)
            ways.setdefault(cause if towards == "effect" else effect, []).append(
                effect if towards == "effect" else cause
            )
    far, waiting = {start: 0}, deque([start])
    while waiting:
        id = waiting.popleft()
        for other in ways.get(id, ()):
            if other not in far and (depth is None or far[id] < depth):
                far[other] = far[id] + 1
                waiting.append(other)
    del far[start]
    return far


# -- on every store ------------------------------------------------------------------------------------------------------


def on_disk(folder: Path, clock: ManualClock) -> Home:
    return open_home(folder, clock=clock, durability="os")


def in_memory(_: Path, clock: ManualClock) -> Home:
    return open_memory(clock=clock)


OPENERS = {"memory": in_memory, "rocksdb": on_disk}
KINDS = {
    *(
        "collected",
        "history",
        "diff",
        "path",
        "ancestors",
        "descendants",
        "edges",
        "latest",
        "node",
        "pages",
        "caused_by",
    ),
    *(f"nodes by {name}" for name in ("type", "tool", "key", "owner", "since", "where", "time")),
    "caused_by over all sessions",
}


def run(opener: Callable[[Path, ManualClock], Home], program: Program, asked: Counter[str]) -> None:
    with TemporaryDirectory(prefix="agent-infra-test-") as folder:
        oracle = Oracle(opener, Path(folder) / "home", asked)
        try:
            for number, operation in program:
                oracle.do(SESSIONS[number], operation)
            oracle.check_all()
            oracle.reopen()
            oracle.check_all()
        finally:
            oracle.home.close()


@pytest.mark.parametrize("store", OPENERS)
def test_every_answer_is_that_of_a_plain_model(store: str) -> None:
    asked: Counter[str] = Counter()

    @settings(max_examples=(400 if FULL else 15) if store == "memory" else (100 if FULL else 5))
    @given(programs())
    def run_it(program: Program) -> None:
        run(OPENERS[store], program, asked)

    run_it()
    print(f"{asked.total()} queries:", dict(asked.most_common()))
    assert asked.total() >= (5000 if FULL else 600)


@pytest.mark.parametrize("store", OPENERS)
def test_every_answer_of_long_lives_is_that_of_a_plain_model(store: str, request: pytest.FixtureRequest) -> None:
    """Some hundred operations each, drawn so that they meet: more than shrinking programs reach."""
    asked: Counter[str] = Counter()
    seed = int(request.config.getoption("--hypothesis-seed"))
    for number in range((60 if FULL else 2) if store == "memory" else (20 if FULL else 1)):
        print("seed", seed + number)
        run(OPENERS[store], long_program(random.Random(seed + number), 120 if FULL else 60), asked)
    print(f"{asked.total()} queries:", dict(asked.most_common()))
    assert asked.total() >= (5000 if FULL else 600)
    assert not FULL or set(asked) >= KINDS
