"""Forks share history and nothing else; resume, replay and fork never leak into each other; diffs say what differs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_infra.clock import ManualClock
from agent_infra.errors import InvalidSessionId, SessionExists, VersionUnknown
from agent_infra.state import Diff, Home, Node, StateEngine, StateGraph, open_home, open_memory
from agent_infra.state.stores import MemoryStore, Row, Write


def texts(graph: StateGraph) -> list[str]:
    return [node.data["text"] for node in graph.nodes(type="note")][::-1]


def write(graph: StateGraph, *names: str) -> list[str]:
    """A version each; their ids."""
    versions: list[str] = []
    for name in names:
        graph.add_node("note", {"text": name})
        versions.append(graph.version)
    return versions


class CountingStore(MemoryStore):
    """Counts what is read and written."""

    def __init__(self) -> None:
        super().__init__()
        self.read = self.written = 0

    def get(self, key: bytes) -> bytes | None:
        self.read += 1
        return super().get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        self.read += len(keys)
        return super().get_many(keys)

    def scan(self, lower: bytes, upper: bytes) -> Iterator[Row]:
        self.read += 1
        for row in super().scan(lower, upper):
            self.read += 1
            yield row

    def write(self, batch: Sequence[Write], *, sync: bool = False) -> None:
        self.written += sum(len(key) + len(value or b"") for key, value in batch)
        super().write(batch, sync=sync)


# -- forks ---------------------------------------------------------------------------------------------------------------


def test_a_fork_begins_where_its_session_stands_and_keeps_the_versions_ids(graph: StateGraph) -> None:
    versions = write(graph, "一", "二", "三")
    fork = graph.fork("fork")
    assert fork.session_id == "fork"
    assert fork.version == graph.version == versions[-1]
    assert fork.history() == graph.history()
    assert fork.nodes() == graph.nodes()
    (own,) = write(fork, "四")
    assert own.startswith("fork.4.")
    assert fork.history()[-1].parent == versions[-1]
    assert [version.id for version in fork.history()] == [*versions, own]
    assert [node.session for node in fork.nodes()] == ["fork", *[graph.session_id] * 3]
    assert fork.verify().ok


def test_a_fork_and_its_origin_go_their_own_ways(graph: StateGraph) -> None:
    kept = graph.add_node("note", {"text": "kept"}, key="k")
    gone = graph.add_node("note", {"text": "gone"})
    fork = graph.fork("fork")
    with graph.step() as step:
        step.remove(gone.id, "here only")
        step.add_node("note", {"text": "origin"}, key="k")
    assert texts(graph) == ["origin"]
    assert texts(fork) == ["kept", "gone"]
    with fork.step() as step:
        new = step.add_node("note", {"text": "fork"}, key="k")
        step.add_edge(gone.id, new.id, "causes")
    assert texts(fork) == ["gone", "fork"]
    assert texts(graph) == ["origin"]
    assert graph.edges(gone.id) == []
    assert len(fork.edges(gone.id)) == 1
    assert graph.node(kept.id).lifecycle == fork.node(kept.id).lifecycle == "superseded"
    assert graph.at(graph.history()[1].id).node(kept.id).lifecycle == "active"


@pytest.mark.parametrize("place", range(4))
def test_a_fork_can_begin_at_any_version(graph: StateGraph, place: int) -> None:
    versions = write(graph, "1", "2", "3", "4")
    by_id = graph.fork("by id", at=versions[place])
    by_view = graph.at(versions[place]).fork("by view")
    for fork in (by_id, by_view):
        assert fork.version == versions[place]
        assert texts(fork) == ["1", "2", "3", "4"][: place + 1]
        write(fork, "on")
        assert len({graph.version, *versions, fork.version}) == 5
    assert texts(graph) == ["1", "2", "3", "4"]


def test_a_fork_of_what_was_rolled_back_opens_it_again(graph: StateGraph) -> None:
    versions = write(graph, "1", "2", "failed")
    graph.rollback(2)
    fork = graph.fork("看看", at=versions[2])
    assert texts(fork) == ["1", "2", "failed"]
    write(fork, "repaired")
    assert fork.history()[-1].parent == versions[2]
    assert texts(graph) == ["1"]


def test_forks_of_forks(graph: StateGraph) -> None:
    write(graph, "0")
    line, last = graph, ["0"]
    for number in range(1, 30):
        line = line.fork(f"f{number}")
        write(line, str(number))
        last.append(str(number))
    assert texts(line) == last
    assert line.verify().ok
    assert [version.session for version in line.history()] == [graph.session_id, *(f"f{n}" for n in range(1, 30))]


def test_a_fork_of_an_empty_beginning_begins_empty(home: Home, graph: StateGraph) -> None:
    root = graph.version
    write(graph, "1")
    fork = graph.fork("fork", at=root)
    assert fork.nodes() == []
    assert fork.history() == []
    assert fork.at(fork.version).version == fork.version == StateGraph("fork", engine=home.engine).version
    write(fork, "own")
    assert fork.verify().ok
    assert fork.history()[0].parent == "fork.0." + fork.history()[0].parent.rpartition(".")[2]  # type: ignore[union-attr]
    assert fork.at(str(fork.history()[0].parent)).nodes() == []
    never_written = StateGraph("never", engine=home.engine).fork("fork of it")
    write(never_written, "x")
    assert never_written.verify().ok


def test_forks_that_are_not_possible_make_nothing(home: Home, graph: StateGraph) -> None:
    write(graph, "1")
    other = StateGraph("other", engine=home.engine)
    write(other, "2")
    for name in (graph.session_id, "other"):
        with pytest.raises(SessionExists):
            graph.fork(name)
    for name in ("", "a/b", "_control", "x/rewards"):
        with pytest.raises(InvalidSessionId):
            graph.fork(name)
    for at in (other.version, "junk", graph.version[:-1] + "x"):
        with pytest.raises(VersionUnknown):
            graph.fork("new", at=at)
    assert sorted(home.engine.sessions()) == sorted([graph.session_id, "other"])
    assert StateGraph.of_system(home.engine, "_control").nodes(type="move") == []


def test_a_fork_is_noted(home: Home, graph: StateGraph) -> None:
    (version,) = write(graph, "1")
    graph.fork("fork")
    (noted,) = StateGraph.of_system(home.engine, "_control").nodes(type="move")
    assert noted.data == {"session": "fork", "from": version, "to": version, "why": "fork"}


def test_of_many_forks_to_one_name_one_is_made(home: Home) -> None:
    graph = StateGraph("s", engine=home.engine)
    write(graph, "1", "2")

    def fork(number: int) -> bool:
        try:
            write(graph.fork("same"), str(number))
        except SessionExists:
            return False
        return True

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(fork, range(6))) == 1
    assert len(StateGraph("same", engine=home.engine).history()) == 3


def test_forks_are_there_after_reopening(tmp_path: Path, clock: ManualClock) -> None:
    home = open_home(tmp_path / "forks", clock=clock)
    versions = write(StateGraph("s", engine=home.engine), "1", "2", "3")
    write(StateGraph("s", engine=home.engine).fork("fork", at=versions[1]), "own")
    StateGraph("s", engine=home.engine).fork("bare", at=versions[0])
    home.close()
    home = open_home(tmp_path / "forks", clock=clock)
    assert texts(StateGraph("fork", engine=home.engine)) == ["1", "2", "own"]
    assert texts(StateGraph("bare", engine=home.engine)) == ["1"]
    assert StateGraph("bare", engine=home.engine).version == versions[0]
    home.close()


def test_a_fork_copies_nothing() -> None:
    """What it writes and reads is the same behind ten versions as behind two thousand."""
    costs: list[tuple[int, int]] = []
    for length in (10, 2000):
        store = CountingStore()
        graph = StateGraph("s", engine=StateEngine(store, clock=ManualClock(), durability="os"))
        for number in range(length):
            graph.add_node("note", {"text": "x" * 100}, key=f"k{number % 50}")
        before = store.written, store.read
        graph.fork("fork")
        costs.append((store.written - before[0], store.read - before[1]))
        assert len(StateGraph("fork", engine=graph.engine).nodes()) == min(length, 50)
    (small, small_reads), (large, large_reads) = costs
    assert abs(large - small) < 20
    assert large < 2000
    assert abs(large_reads - small_reads) < 10


# -- resume, replay, fork ------------------------------------------------------------------------------------------------


class Run:
    """a -> review (asks "approve?") -> b, as an agent runs it on a graph: what the graph holds is not done again."""

    def __init__(self) -> None:
        self.ran: Counter[str] = Counter()
        self.after_a = ""

    def go(self, graph: StateGraph) -> str:
        """Go on from where the graph stands, until it is done or waits for an answer."""
        if graph.latest("a") is None:
            self.ran["a"] += 1
            graph.add_node("trail", {"name": "a"}, key="a")
            self.after_a = graph.version
        if graph.latest("review") is None:
            answer = graph.latest("answer")
            if answer is None:
                if graph.latest("question") is None:
                    graph.add_node("question", {"text": "approve?"}, key="question")
                return "waiting"
            self.ran["review"] += 1
            graph.add_node("trail", {"name": f"review:{answer.data['text']}"}, key="review")
        if graph.latest("b") is None:
            self.ran["b"] += 1
            graph.add_node("trail", {"name": "b"}, key="b")
        return "done"


def answer(graph: StateGraph, text: str) -> None:
    graph.add_node("answer", {"text": text}, key="answer")


def trail(graph: StateGraph) -> list[str]:
    return [node.data["name"] for node in graph.nodes(type="trail")][::-1]


def test_a_replay_asks_again_and_a_resume_does_not(graph: StateGraph) -> None:
    """PAINS T1: yesterday's answer is not given to today's question."""
    run = Run()
    assert run.go(graph) == "waiting"
    assert run.go(graph) == "waiting", "resumed, it waits for the same answer"
    assert len(graph.nodes(type="question", lifecycle=None)) == 1
    answer(graph, "yes")
    assert run.go(graph) == "done"
    assert trail(graph) == ["a", "review:yes", "b"]
    assert run.go(graph) == "done"
    assert run.ran == {"a": 1, "review": 1, "b": 1}
    head = graph.version

    replay = graph.fork("replay", at=run.after_a)
    assert run.go(replay) == "waiting"
    assert len(replay.nodes(type="question")) == 1
    assert replay.latest("answer") is None
    assert run.ran["a"] == 1
    assert graph.version == head
    answer(replay, "no")
    assert run.go(replay) == "done"
    assert trail(replay) == ["a", "review:no", "b"]
    assert trail(graph) == ["a", "review:yes", "b"]

    shared = {version.id for version in graph.history()} & {version.id for version in replay.history()}
    assert shared == {run.after_a}
    assert sorted(graph.engine.sessions()) == sorted([graph.session_id, "replay"])


def test_a_rollback_asks_again_in_the_same_session(graph: StateGraph) -> None:
    run = Run()
    run.go(graph)
    answer(graph, "yes")
    run.go(graph)
    first = graph.version
    graph.rollback(to=run.after_a)
    assert run.go(graph) == "waiting"
    answer(graph, "no")
    assert run.go(graph) == "done"
    assert trail(graph) == ["a", "review:no", "b"]
    assert trail(graph.at(first)) == ["a", "review:yes", "b"]
    assert run.ran["a"] == 1
    parents = {
        version.parent for way in (graph, graph.at(first)) for version in way.history() if version.step_count == 2
    }
    assert parents == {run.after_a}


def test_looking_at_a_version_shows_nothing_that_came_later(graph: StateGraph, clock: ManualClock) -> None:
    run = Run()
    run.go(graph)
    waiting = graph.version
    clock.advance(3600)
    answer(graph, "yes")
    run.go(graph)
    past = graph.at(waiting)
    assert past.latest("answer") is None
    assert trail(past) == ["a"]
    assert [node.data["text"] for node in past.nodes(type="question")] == ["approve?"]


def test_calls_after_time_travel_make_new_ids_each(graph: StateGraph) -> None:
    """PAINS 3: every commit has an id of its own, and its parent is the version that it was written on."""
    versions = write(graph, "1", "2", "3")
    fork = graph.fork("fork", at=versions[0])
    made = write(fork, "a", "b", "c")
    graph.rollback(to=versions[0])
    made += write(graph, "a", "b", "c")
    assert len({*versions, *made}) == 9
    for way in (fork, graph):
        history = [version.id for version in way.history()]
        assert [version.parent for version in way.history()][1:] == history[:-1]


# -- diffs ---------------------------------------------------------------------------------------------------------------


def named(found: Diff) -> tuple[list[str], list[str], list[tuple[str, str]]]:
    def text(node: Node) -> str:
        return node.data["text"]

    return [text(n) for n in found.added], [text(n) for n in found.gone], [(text(a), text(b)) for a, b in found.changed]


@pytest.fixture
def versions(graph: StateGraph) -> list[str]:
    graph.add_node("note", {"text": "always"})
    made = [graph.version]
    loose = graph.add_node("note", {"text": "loose"})
    made.append(graph.version)
    graph.add_node("note", {"text": "v1"}, key="report")
    made.append(graph.version)
    with graph.step() as step:
        step.add_node("note", {"text": "v2"}, key="report")
        step.remove(loose.id, "不要")
        step.add_node("note", {"text": "new"})
    made.append(graph.version)
    return made


def test_what_was_added_removed_and_changed(graph: StateGraph, versions: list[str]) -> None:
    assert named(graph.diff(versions[0], versions[1])) == (["loose"], [], [])
    assert named(graph.diff(versions[2], versions[3])) == (["new"], ["loose"], [("v1", "v2")])
    assert named(graph.diff(versions[0], versions[3])) == (["v2", "new"], [], [])
    root = str(graph.history()[0].parent)
    assert named(graph.diff(root, versions[2])) == (["always", "loose", "v1"], [], [])


def test_the_way_back_is_the_other_way_round(graph: StateGraph, versions: list[str]) -> None:
    for old in versions:
        for new in versions:
            there, back = graph.diff(old, new), graph.diff(new, old)
            assert [n.id for n in there.added] == [n.id for n in back.gone]
            assert [n.id for n in there.gone] == [n.id for n in back.added]
            assert [(a.id, b.id) for a, b in there.changed] == [(b.id, a.id) for a, b in back.changed]
            assert (there.old, there.new) == (old, new)


def test_a_version_and_itself_do_not_differ(graph: StateGraph, versions: list[str]) -> None:
    for version in versions:
        found = graph.diff(version, version)
        assert found.is_empty
        assert named(found) == ([], [], [])
    assert not graph.diff(versions[0], versions[1]).is_empty


def test_branches_differ_by_what_each_wrote(graph: StateGraph, versions: list[str]) -> None:
    graph.rollback(to=versions[1])
    write(graph, "other way")
    assert named(graph.diff(versions[3], graph.version)) == (["loose", "other way"], ["v2", "new"], [])


def test_forks_can_be_compared(graph: StateGraph, versions: list[str]) -> None:
    fork = graph.fork("fork", at=versions[2])
    fork.add_node("note", {"text": "v2 of the fork"}, key="report")
    for way in (graph, fork):
        found = way.diff(versions[3], fork.version)
        assert named(found) == (["loose"], ["new"], [("v2", "v2 of the fork")])


def test_a_node_removed_and_written_again_under_its_key_is_changed(graph: StateGraph) -> None:
    old = graph.add_node("note", {"text": "first"}, key="k")
    before = graph.version
    with graph.step() as step:
        step.remove(old.id, "wrong")
    between = graph.version
    graph.add_node("note", {"text": "second"}, key="k")
    assert named(graph.diff(before, graph.version)) == ([], [], [("first", "second")])
    assert named(graph.diff(before, between)) == ([], ["first"], [])


def test_what_came_and_went_in_between_does_not_show(graph: StateGraph) -> None:
    write(graph, "1")
    before = graph.version
    passing = graph.add_node("note", {"text": "passing"})
    with graph.step() as step:
        step.remove(passing.id, "gone again")
    assert graph.diff(before, graph.version).is_empty


def test_running_out_of_time_is_no_difference_of_versions(graph: StateGraph, clock: ManualClock) -> None:
    graph.add_node("note", {"text": "short"}, ttl=1)
    before = graph.version
    clock.advance(60)
    write(graph, "later")
    assert named(graph.diff(before, graph.version)) == (["later"], [], [])


def test_unknown_versions_are_refused(graph: StateGraph, versions: list[str]) -> None:
    for pair in ((versions[0], "junk"), ("junk", versions[0]), (versions[0], versions[0][:-1] + "0" * 2)):
        with pytest.raises(VersionUnknown):
            graph.diff(*pair)


def test_a_diff_costs_what_lies_between() -> None:
    costs: list[int] = []
    for length in (20, 1000):
        store = CountingStore()
        graph = StateGraph("s", engine=StateEngine(store, clock=ManualClock(), durability="os"))
        made = write(graph, *map(str, range(length)))
        before = store.read
        assert len(graph.diff(made[-4], made[-1]).added) == 3
        costs.append(store.read - before)
    assert costs[1] <= costs[0] + 20


OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["add", "keyed", "remove", "back"]), st.integers(0, 9)), min_size=1, max_size=25
)


@given(OPERATIONS, st.integers(0, 99), st.integers(0, 99))
def test_a_diff_is_the_difference_of_what_both_show(program: list[tuple[str, int]], one: int, other: int) -> None:
    graph = StateGraph("s", engine=open_memory(clock=ManualClock()).engine)
    versions = [graph.version]
    acts: dict[str, Callable[[int], object]] = {
        "add": lambda number: graph.add_node("note", {"text": str(number)}),
        "keyed": lambda number: graph.add_node("note", {"text": str(number)}, key=f"k{number % 3}"),
        "back": lambda number: graph.rollback(to=versions[number % len(versions)]),
        "remove": lambda number: _remove(graph, number),
    }
    for name, number in program:
        acts[name](number)
        versions.append(graph.version)
    old, new = versions[one % len(versions)], versions[other % len(versions)]
    before = {node.id: node for node in graph.at(old).nodes()}
    after = {node.id: node for node in graph.at(new).nodes()}
    found = graph.diff(old, new)
    added = {node.id for node in found.added} | {pair[1].id for pair in found.changed}
    gone = {node.id for node in found.gone} | {pair[0].id for pair in found.changed}
    assert (added, gone) == (after.keys() - before.keys(), before.keys() - after.keys())
    keys_of = [{node.key for node in side if node.key} for side in (found.added, found.gone)]
    assert not keys_of[0] & keys_of[1]
    assert all(a.key == b.key is not None for a, b in found.changed)


def _remove(graph: StateGraph, number: int) -> None:
    nodes = graph.nodes()
    if nodes:
        with graph.step() as step:
            step.remove(nodes[number % len(nodes)].id, "why")
