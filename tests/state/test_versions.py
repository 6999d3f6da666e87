"""Versions: their ids, the way back and the abandoned ones, and what `expect` refuses."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_infra.clock import ManualClock, to_datetime
from agent_infra.errors import (
    AgentInfraError,
    InvalidSessionId,
    ReadOnlyView,
    VersionConflict,
    VersionUnknown,
)
from agent_infra.state import Home, StateGraph, open_home, open_memory

SESSIONS = [
    "weather_demo_001",
    "a.b.c",
    "v.1.0123456789abcdef",
    "北京明天天气",
    "with space",
    ".",
    "..",
    "-",
    "x" * 200,
]


def moves(home: Home) -> list[dict[str, object]]:
    return [node.data for node in StateGraph.of_system(home.engine, "_control").nodes(type="move")]


# -- ids -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("session", SESSIONS)
def test_a_version_id_is_session_step_and_hash(home: Home, session: str) -> None:
    graph = StateGraph(session, engine=home.engine)
    assert re.fullmatch(re.escape(session) + r"\.0\.[0-9a-f]{16}", graph.version)
    for step in (1, 2, 3):
        graph.add_node("note", {"text": "天气"})
        assert re.fullmatch(re.escape(session) + rf"\.{step}\.[0-9a-f]{{16}}", graph.version)
        assert graph.at(graph.version).version == graph.version
    assert len(graph.history()) == 3


def test_each_version_follows_the_one_that_it_was_written_on(graph: StateGraph) -> None:
    versions = [graph.version]
    for number in range(4):
        with graph.step() as step:
            step.add_node("note", {"text": str(number)})
        assert step.version == graph.version
        versions.append(graph.version)
    assert [version.parent for version in graph.history()] == versions[:-1]
    assert [version.id for version in graph.history()] == versions[1:]
    assert [version.step_count for version in graph.history()] == [1, 2, 3, 4]
    assert all(version.session == graph.session_id for version in graph.history())


def test_a_new_session_stands_at_its_empty_beginning(graph: StateGraph) -> None:
    assert graph.history() == []
    assert graph.nodes(lifecycle=None) == []
    assert graph.latest("note") is None
    assert graph.caused_by("search", within=60) == []
    assert graph.verify().ok
    assert graph.at(graph.version).history() == []


def test_the_same_content_never_gives_the_same_id(home: Home) -> None:
    ids: set[str] = set()
    for session in ("s1", "s2"):
        graph = StateGraph(session, engine=home.engine)
        for _ in range(3):
            graph.add_node("note", {"text": "the same"}, key="k")
            ids.add(graph.version.rpartition(".")[2])
            graph.rollback()
    assert len(ids) == 6


def test_every_step_after_a_rollback_has_a_new_id_and_the_right_parent(graph: StateGraph) -> None:
    graph.add_node("note", {"text": "1"})
    target = graph.version
    abandoned: list[str] = []
    for _ in range(5):
        graph.add_node("note", {"text": "2"})
        abandoned.append(graph.version)
        assert graph.history()[-1].parent == target
        assert graph.rollback() == target == graph.version
    assert len({target, *abandoned}) == 6
    for version in abandoned:
        assert [each.id for each in graph.at(version).history()] == [target, version]


def test_versions_and_clocks_of_all_kinds_stay_in_order(graph: StateGraph, clock: ManualClock) -> None:
    for seconds in (0, 5, -60, 0, 0, 3600, -7200):
        clock.advance(seconds)
        graph.add_node("note", {})
    times = [version.created for version in graph.history()]
    assert times == sorted(set(times))
    assert [node.created for node in graph.nodes()] == times[::-1]


@pytest.mark.parametrize(
    "text",
    ["", "junk", "a.b", "a.1.zz", "a.x.0123456789abcdef", ".1.0123456789abcdef", "a.1.0123456789abcde",
     "a.-1.0123456789abcdef",
     "weather_demo_001.1.0123456789abcdef", "weather_demo_001.0.0123456789abcdef", "天气.１.0123456789abcdef"],
)  # fmt: skip
def test_a_text_that_names_no_version_is_refused(graph: StateGraph, text: str) -> None:
    graph.add_node("note", {})
    with pytest.raises(VersionUnknown):
        graph.at(text)
    with pytest.raises(VersionUnknown):
        graph.rollback(to=text)


def test_the_step_count_belongs_to_the_id(graph: StateGraph) -> None:
    graph.add_node("note", {})
    graph.add_node("note", {})
    session, _, hash = graph.version.rsplit(".", 2)
    for step in ("1", "3", "02"):
        with pytest.raises(VersionUnknown):
            graph.at(f"{session}.{step}.{hash}")


def test_versions_of_another_session_are_not_shown_as_ones_own(home: Home) -> None:
    mine, other = StateGraph("mine", engine=home.engine), StateGraph("other", engine=home.engine)
    mine.add_node("note", {"text": "mine"})
    other.add_node("note", {"text": "secret"})
    with pytest.raises(VersionUnknown):
        mine.at(other.version)
    with pytest.raises(VersionUnknown):
        mine.rollback(to=other.version)
    assert [node.data for node in mine.nodes()] == [{"text": "mine"}]


# -- session ids -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "session",
    ["", "x" * 201, "a/b", "/", "_control", "_", "a\nb", "a\n", "\0", "a\x7f", "\ud800", "weather_demo_001/rewards"],
)
def test_a_bad_session_id_is_refused(home: Home, session: str) -> None:
    with pytest.raises(InvalidSessionId):
        StateGraph(session, engine=home.engine)


@given(st.text(max_size=210))
def test_a_session_id_is_good_exactly_by_the_rule(session: str) -> None:
    home = open_memory()
    try:
        graph = StateGraph(session, engine=home.engine)
    except InvalidSessionId:
        assert (
            not 1 <= len(session) <= 200
            or "/" in session
            or session[0] == "_"
            or re.search(r"[\x00-\x1f\x7f]", session)
        )
        return
    graph.add_node("note", {})
    assert 1 <= len(session) <= 200
    assert "/" not in session
    assert not session.startswith("_")
    assert graph.at(graph.version).nodes() == graph.nodes()
    assert home.engine.sessions() == [session]


def test_the_systems_own_sessions_are_not_listed(home: Home) -> None:
    for session in ("b", "a", "天气"):
        graph = StateGraph(session, engine=home.engine)
        graph.add_node("note", {})
        graph.rollback()
    StateGraph.of_system(home.engine, "a/rewards").add_node("note", {})
    assert sorted(home.engine.sessions()) == ["a", "b", "天气"]


# -- rollback --------------------------------------------------------------------------------------


def test_a_rollback_gives_the_version_now_at_the_head_and_hides_nothing(graph: StateGraph) -> None:
    kept = graph.add_node("note", {"text": "kept"}, key="k")
    target = graph.version
    lost = graph.add_node("note", {"text": "lost"}, key="k")
    graph.add_edge(kept.id, lost.id, "references")
    abandoned = graph.version

    assert graph.rollback(steps=2) == target == graph.version

    assert [node.id for node in graph.nodes(lifecycle=None)] == [kept.id]
    assert graph.node(kept.id).lifecycle == "active"
    assert graph.edges(kept.id) == []
    past = graph.at(abandoned)
    assert [(node.id, node.lifecycle) for node in past.nodes(lifecycle=None)] == [
        (lost.id, "active"),
        (kept.id, "superseded"),
    ]
    assert [(edge.source, edge.target) for edge in past.edges(kept.id)] == [(kept.id, lost.id)]


def test_a_rollback_can_go_to_an_abandoned_version_and_on_from_there(graph: StateGraph) -> None:
    graph.add_node("note", {"text": "1"})
    base = graph.version
    graph.add_node("note", {"text": "first"})
    first = graph.version
    graph.rollback()
    graph.add_node("note", {"text": "second"})
    second = graph.version

    assert graph.rollback(to=first) == first
    graph.add_node("note", {"text": "first, on"})
    assert [node.data["text"] for node in graph.nodes()] == ["first, on", "first", "1"]
    assert [version.id for version in graph.history()][:2] == [base, first]

    assert graph.rollback(to=second) == second
    graph.add_node("note", {"text": "second, on"})
    assert [node.data["text"] for node in graph.nodes()] == ["second, on", "second", "1"]
    assert graph.verify().ok


def test_a_rollback_to_the_beginning_leaves_an_empty_graph(graph: StateGraph) -> None:
    root = graph.version
    graph.add_node("note", {})
    graph.add_node("note", {})
    assert graph.rollback(steps=2) == root
    assert graph.nodes(lifecycle=None) == []
    graph.add_node("note", {})
    assert graph.history()[0].parent == root


def test_a_rollback_is_a_node_of_the_control_session(home: Home, graph: StateGraph) -> None:
    graph.add_node("note", {})
    target = graph.version
    graph.add_node("note", {})
    left = graph.version
    graph.rollback(why="错误的城市")
    assert moves(home) == [{"session": graph.session_id, "from": left, "to": target, "why": "错误的城市"}]


@pytest.mark.parametrize("steps", [3, 100, -1])
def test_a_rollback_that_is_not_possible_moves_nothing(home: Home, graph: StateGraph, steps: int) -> None:
    graph.add_node("note", {})
    graph.add_node("note", {})
    before = graph.version
    with pytest.raises(VersionUnknown):
        graph.rollback(steps=steps)
    assert graph.version == before
    assert moves(home) == []


def test_a_system_session_is_not_rolled_back(home: Home) -> None:
    StateGraph("s", engine=home.engine).add_node("note", {})
    for session in ("_control", "_registry", "_agents", "_experiments"):
        with pytest.raises(AgentInfraError):
            StateGraph.of_system(home.engine, session).rollback(0)


def test_a_long_history_of_retries_can_be_opened_again(homes_path: Path) -> None:
    """A session that steps back again and again makes a line of many short branches."""
    home = open_home(homes_path, durability="os")
    graph = StateGraph("retries", engine=home.engine)
    for _ in range(1200):
        graph.add_node("note", {"n": 1}, key="k")
        graph.add_node("note", {"n": 2}, key="k")
        graph.rollback()
    head = graph.version
    home.close()
    home = open_home(homes_path)
    graph = StateGraph("retries", engine=home.engine)
    assert graph.version == head
    assert len(graph.history()) == 1200
    assert len(graph.nodes()) == 1
    graph.add_node("note", {"n": 3})
    home.close()


@pytest.fixture
def homes_path(tmp_path: Path) -> Path:
    return tmp_path / "own home"


# -- the past is read-only, and exact --------------------------------------------------------------


def test_a_past_version_can_not_be_written(graph: StateGraph) -> None:
    node = graph.add_node("note", {})
    past = graph.at(graph.version)
    calls = [
        lambda: past.add_node("note", {}),
        lambda: past.add_edge(node.id, node.id, "causes"),
        lambda: past.step(),
        lambda: past.rollback(),
        lambda: past.rollback(to=graph.version),
    ]
    for call in calls:
        with pytest.raises(ReadOnlyView):
            call()
    assert not past.stale


def test_lifetimes_are_judged_by_as_of(graph: StateGraph, clock: ManualClock) -> None:
    short = graph.add_node("user_intent", {"query": "北京明天天气"}, ttl=10)
    version = graph.version
    clock.advance(9.999999)
    assert graph.node(short.id).lifecycle == "active"
    clock.advance(0.000001)
    assert graph.node(short.id).lifecycle == "expired"
    assert graph.nodes() == []
    assert [node.id for node in graph.nodes(lifecycle="expired")] == [short.id]
    assert graph.latest("user_intent") is None

    assert graph.at(version).node(short.id).lifecycle == "active"
    late = to_datetime(short.created) + timedelta(seconds=10)
    assert graph.at(version, as_of=late).node(short.id).lifecycle == "expired"
    assert graph.at(version, as_of=late - timedelta(microseconds=1)).node(short.id).lifecycle == "active"


def test_the_whole_past_stays_as_it_was(graph: StateGraph) -> None:
    node = graph.add_node("note", {"text": "old"}, key="k")
    version = graph.version
    newer = graph.add_node("note", {"text": "new"}, key="k")
    with graph.step() as step:
        step.remove(newer.id, "wrong")
    past = graph.at(version)
    assert past.node(node.id).lifecycle == "active"
    assert past.latest("k") == past.node(node.id)
    assert [version.id for version in past.history()] == [version]
    assert past.verify().ok
    with pytest.raises(AgentInfraError):
        past.node(newer.id)


# -- expect ----------------------------------------------------------------------------------------


def test_expect_lets_through_at_the_version_and_nowhere_else(graph: StateGraph) -> None:
    graph.add_node("note", {"text": "1"})
    seen = graph.version
    with graph.step(expect=seen) as step:
        step.add_node("note", {"text": "2"})
    assert step.version == graph.version

    with pytest.raises(VersionConflict) as caught, graph.step(expect=seen) as step:
        step.add_node("note", {"text": "3"})
    assert caught.value.facts["expected"] == seen
    assert caught.value.facts["head"] == graph.version
    assert [node.data["text"] for node in graph.nodes()] == ["2", "1"]

    with graph.step(expect=graph.version) as step:
        step.add_node("note", {"text": "the lock was given back"})


def test_expect_refuses_after_a_rollback_to_another_version(graph: StateGraph) -> None:
    graph.add_node("note", {})
    graph.add_node("note", {})
    seen = graph.version
    graph.rollback()
    with pytest.raises(VersionConflict), graph.step(expect=seen) as step:
        step.add_node("note", {})


def test_expect_notices_a_commit_and_a_rollback_in_between(graph: StateGraph) -> None:
    """The head is at the very version that was seen, and yet it moved: what was decided may rest on what is gone."""
    graph.add_node("note", {"text": "1"})
    seen = graph.version
    graph.add_node("note", {"text": "another's"})
    graph.rollback()
    assert graph.version == seen
    with pytest.raises(VersionConflict), graph.step(expect=seen) as step:
        step.add_node("note", {"text": "2"})
    with graph.step(expect=graph.version) as step:
        step.add_node("note", {"text": "decided again"})
