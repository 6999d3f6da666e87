"""Retention: what each policy takes, what it never takes, and what is freed by it. Random programs are in test_oracle."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest

from agent_infra.clock import ManualClock
from agent_infra.errors import (
    AgentInfraError,
    EvidenceUnknown,
    InvalidNode,
    InvalidSessionId,
    NodeUnknown,
    VersionCollected,
    VersionUnknown,
)
from agent_infra.state import Collected, Home, StateGraph, caused_by_everywhere, open_home
from agent_infra.state.stores import Store

KEYED = "report"


def write(graph: StateGraph, times: int, start: int = 0) -> list[str]:
    """So many versions, each with a node that supersedes the one before; their ids."""
    versions: list[str] = []
    for number in range(start, start + times):
        graph.add_node("note", {"text": f"第 {number} 份"}, key=KEYED)
        versions.append(graph.version)
    return versions


def shown(graph: StateGraph, version: str) -> list[str]:
    """What a version shows alive; `collected` where it can't be opened."""
    try:
        return [node.data["text"] for node in graph.at(version).nodes(type="note")]
    except VersionCollected:
        return ["collected"]


def collect(graph: StateGraph, limit: int = 1000, **policy: Any) -> Collected:
    """Passes until nothing is left to do. After each, the head's history is sound."""
    total = Collected()
    for passes in count():
        assert passes < 10_000, "collection never ends"
        found = graph.gc(limit=limit, **policy)
        assert found.nodes + found.blobs <= 10 * limit
        assert graph.verify().ok, graph.verify().problems
        total += found
        if not found.more:
            return total
    raise AssertionError


def rows(store: Store) -> dict[bytes, bytes]:
    return dict(store.scan(b"", b"\xff" * 8))


def everything(graph: StateGraph) -> list[object]:
    """All that a graph answers, of every version that it lists."""
    views = [graph.at(version.id) for version in graph.history()]
    return [
        (view.version, view.nodes(lifecycle=None), [view.edges(node.id) for node in view.nodes()], view.latest(KEYED))
        for view in [*views, graph]
    ]


# -- T4: long conversations ----------------------------------------------------------------------------------------------


def test_two_hundred_turns_are_stored_once_and_pruned_around_a_pin(home: Home) -> None:
    """PAINS T4: full copies would be 20,180,400 bytes."""
    graph = StateGraph("conversation", engine=home.engine)
    before = rows(home.engine.store)
    texts = [f"{number:04d}" + "字" * 332 for number in range(200)]
    assert {len(text.encode()) for text in texts} == {1000}
    versions: list[str] = []
    for text in texts:
        graph.add_node("message", {"text": text})
        versions.append(graph.version)

    def messages(number: int) -> list[str]:
        return [node.data["text"] for node in graph.at(versions[number - 1]).nodes(type="message")][::-1]

    stored = sum(len(value) for key, value in rows(home.engine.store).items() if key not in before)
    assert stored < 2_000_000
    for number in (1, 100, 200):
        assert messages(number) == texts[:number]

    graph.pin(versions[49], "评审", "cited in the report")
    collect(graph, keep_last=10)
    for number in (50, *range(191, 201)):
        assert messages(number) == texts[:number]
    for number in (1, 49, 51, 100, 190):
        with pytest.raises(VersionCollected) as caught:
            messages(number)
        assert versions[number - 1] in str(caught.value)
    assert [version.step_count for version in graph.history()] == [50, *range(191, 201)]

    fork = graph.fork("another way", at=versions[49])
    assert [node.data["text"] for node in fork.nodes()][::-1] == texts[:50]
    fork.add_node("message", {"text": "另一条路"})
    assert len(fork.nodes()) == 51
    assert fork.history()[-1].parent == versions[49]
    assert fork.verify().ok


# -- policies ------------------------------------------------------------------------------------------------------------


def test_without_a_policy_nothing_goes(graph: StateGraph) -> None:
    versions = write(graph, 20)
    graph.rollback(5)
    assert collect(graph) == Collected()
    assert [shown(graph, version) for version in versions] == [[f"第 {number} 份"] for number in range(20)]


@pytest.mark.parametrize("kept", [1, 2, 7, 20, 1000])
def test_by_count(graph: StateGraph, kept: int) -> None:
    versions = write(graph, 20)
    found = collect(graph, keep_last=kept)
    gone = max(0, 20 - kept)
    assert (found.versions, found.nodes) == (gone, gone)
    assert [shown(graph, version) for version in versions] == [["collected"]] * gone + [
        [f"第 {number} 份"] for number in range(gone, 20)
    ]
    assert [version.id for version in graph.history()] == versions[gone:]


@pytest.mark.parametrize(("seconds", "kept"), [(0, 1), (9.999, 1), (10, 2), (45, 5), (10_000, 20)])
def test_by_age(graph: StateGraph, clock: ManualClock, seconds: float, kept: int) -> None:
    versions: list[str] = []
    for number in range(20):
        clock.advance(10)
        versions += write(graph, 1, number)
    found = collect(graph, max_age=seconds)
    assert found.versions == 20 - kept
    assert [version.id for version in graph.history()] == versions[20 - kept :]


def test_the_head_stays_however_old_it_is(graph: StateGraph, clock: ManualClock) -> None:
    (version,) = write(graph, 1)
    clock.advance(10**8)
    assert collect(graph, max_age=1, max_bytes=0, keep_last=1, abandoned_after=0) == Collected()
    assert shown(graph, version) == ["第 0 份"]


def test_by_bytes(graph: StateGraph, home: Home) -> None:
    versions = [graph.version for number in range(10) if graph.add_node("note", {"text": "x" * 5000}, key=f"k{number}")]
    sizes = {len(row) for key, row in rows(home.engine.store).items() if key[:1] == b"N" and len(row) > 5000}
    (size,) = sizes
    for limit, kept in ((size * 11, 10), (size * 10, 10), (size * 10 - 1, 9), (size * 3, 3), (0, 1)):
        collect(graph, max_bytes=limit)
        assert [version.id for version in graph.history()] == versions[10 - kept :]
    assert len(graph.nodes()) == 10, "what lives at the head stays, however much it is"


def test_content_that_nodes_refer_to_counts_as_theirs_and_once(graph: StateGraph, home: Home) -> None:
    big = home.blobs.put(b"p" * 100_000, "application/pdf")
    versions: list[str] = []
    for number in range(6):
        own = home.blobs.put(bytes([number]) * 50_000, "image/png")
        graph.add_node("document", {"content": big, "screenshot": own})
        versions.append(graph.version)
    collect(graph, max_bytes=100_000 + 3 * 50_000 + 5000)
    assert [version.id for version in graph.history()] == versions[3:]


def test_several_limits_at_once_all_hold(graph: StateGraph, clock: ManualClock) -> None:
    versions: list[str] = []
    for number in range(10):
        clock.advance(10)
        versions += write(graph, 1, number)
    collect(graph, keep_last=8, max_age=35)
    assert [version.id for version in graph.history()] == versions[6:]
    collect(graph, keep_last=2, max_age=10_000)
    assert [version.id for version in graph.history()] == versions[8:]


@pytest.mark.parametrize(
    "policy",
    [
        {"keep_last": 0},
        {"keep_last": -1},
        {"max_age": -1},
        {"max_bytes": -5},
        {"abandoned_after": -0.1},
        {"max_age": float("nan")},
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(graph: StateGraph, policy: dict[str, Any]) -> None:
    write(graph, 3)
    with pytest.raises(InvalidNode):
        graph.gc(**policy)
    assert len(graph.history()) == 3


def test_system_sessions_are_not_collected_and_ledgers_are(home: Home) -> None:
    for session in ("_control", "_registry"):
        with pytest.raises(InvalidSessionId):
            StateGraph.of_system(home.engine, session).gc(keep_last=1)
    ledger = StateGraph.of_system(home.engine, "s/rewards")
    write(ledger, 5)
    assert collect(ledger, keep_last=1).versions == 4


def test_a_session_that_was_never_written_has_nothing_to_collect(graph: StateGraph) -> None:
    assert graph.gc(keep_last=1, max_age=0, max_bytes=0, abandoned_after=0) == Collected()


def test_what_is_gone_stays_gone_under_a_wider_policy(graph: StateGraph) -> None:
    versions = write(graph, 10)
    collect(graph, keep_last=2)
    collect(graph, keep_last=100)
    assert [version.id for version in graph.history()] == versions[8:]
    more = write(graph, 3, 10)
    assert [version.id for version in graph.history()] == [*versions[8:], *more]


# -- a collected version says so -----------------------------------------------------------------------------------------


def test_a_collected_version_is_refused_by_name_everywhere(graph: StateGraph) -> None:
    versions = write(graph, 5)
    opened = graph.at(versions[0])
    collect(graph, keep_last=1)
    gone, head = versions[0], graph.version
    calls: list[Callable[[], object]] = [
        lambda: graph.at(gone),
        lambda: graph.rollback(to=gone),
        lambda: graph.rollback(steps=4),
        lambda: graph.fork("f", at=gone),
        lambda: graph.pin(gone),
        lambda: graph.diff(gone, head),
        lambda: graph.diff(head, gone),
        lambda: opened.nodes(),
        lambda: opened.nodes(lifecycle=None),
        lambda: opened.latest(KEYED),
        lambda: opened.history(),
        lambda: opened.caused_by("search", 60),
        lambda: opened.verify(),
    ]
    for call in calls:
        with pytest.raises(VersionCollected) as caught:
            call()
        assert gone in str(caught.value)
        assert caught.value.facts["version"] == gone
    assert graph.version == head
    with pytest.raises(VersionUnknown):
        StateGraph("f", engine=graph.engine).at(head)


def test_the_chain_reaches_down_to_step_one_all_the_same(graph: StateGraph) -> None:
    write(graph, 30)
    collect(graph, keep_last=1)
    found = graph.verify()
    assert (found.ok, found.steps, found.nodes) == (True, 30, 30)


def test_a_node_whose_data_was_removed_is_named_as_that(graph: StateGraph) -> None:
    old = graph.add_node("note", {"text": "旧"}, key=KEYED)
    write(graph, 2)
    collect(graph, keep_last=1)
    with pytest.raises(NodeUnknown, match="retention"):
        graph.node(old.id)
    with pytest.raises(NodeUnknown):
        graph.add_edge(old.id, graph.nodes()[0].id, "causes")
    assert graph.engine.locate(old.id) == graph.session_id


# -- what is freed -------------------------------------------------------------------------------------------------------


def test_of_collected_data_nothing_is_left_in_the_store(home: Home, graph: StateGraph) -> None:
    """Not in an index that holds whole rows either, and whether the calls that caused it went before it or after."""
    for first in ("call", "answer"):
        call = graph.add_node("api_call", {"secret": "密码 4711"}, key=f"call {first}", tool="search", ttl=5)
        answer = graph.add_node("api_response", {"secret": "密码 4712"}, key=f"answer {first}", tool="parser")
        graph.add_edge(call.id, answer.id, "causes")
        graph.add_edge(answer.id, call.id, "causes")
        for name in ("call", "answer") if first == "call" else ("answer", "call"):
            graph.add_node("note", {}, key=f"{name} {first}")
            collect(graph, keep_last=1)
    assert graph.caused_by("search", 10_000) == []
    for secret in ("密码 4711", "密码 4712"):
        held = [key for key, value in rows(home.engine.store).items() if secret.encode() in key + value]
        assert held == []


def test_a_node_outlives_the_call_that_caused_it(graph: StateGraph) -> None:
    call = graph.add_node("api_call", {}, key="call", tool="search")
    answer = graph.add_node("api_response", {"temp": 22}, key="answer")
    graph.add_edge(call.id, answer.id, "causes")
    graph.add_node("api_call", {}, key="call", tool="search")
    assert collect(graph, keep_last=1).nodes == 1
    assert [node.id for node in graph.caused_by("search", 60)] == [answer.id]
    assert [node.id for node in caused_by_everywhere(graph.engine, "search", 60)] == [answer.id]
    with graph.step() as step:
        step.remove(answer.id, "过期")
    assert graph.caused_by("search", 60) == []
    assert caused_by_everywhere(graph.engine, "search", 60) == []


def test_ways_lead_on_through_what_was_collected(graph: StateGraph) -> None:
    nodes = [graph.add_node("note", {"n": number}, key=f"k{number}") for number in range(5)]
    for one, other in pairwise(nodes):
        graph.add_edge(one.id, other.id, "causes")
    graph.add_node("note", {}, key="k2")
    collect(graph, keep_last=1)
    alive = [graph.node(node.id) for node in nodes if node is not nodes[2]]
    assert graph.ancestors(nodes[4].id) == alive[-2::-1]
    assert graph.descendants(nodes[0].id) == alive[1:]
    assert graph.path(nodes[0].id, nodes[4].id) == alive
    assert [(edge.source, edge.target) for edge in graph.edges(nodes[1].id)] == [
        (nodes[0].id, nodes[1].id),
        (nodes[1].id, nodes[2].id),
    ]


def test_what_is_out_of_time_goes_once_no_version_shows_it_in_time(graph: StateGraph, clock: ManualClock) -> None:
    with graph.step() as step:
        short = step.add_node("user_intent", {"query": "北京明天天气"}, ttl=10)
        long = step.add_node("user_intent", {"query": "后天"}, ttl=10_000)
    in_time = graph.version
    clock.advance(60)
    versions = write(graph, 3)
    assert collect(graph, keep_last=100).nodes == 0
    assert graph.at(in_time).node(short.id).lifecycle == "active"
    collect(graph, keep_last=1)
    with pytest.raises(NodeUnknown):
        graph.node(short.id)
    assert graph.node(long.id).lifecycle == "active"
    assert shown(graph, versions[-1]) == ["第 2 份"]


def test_a_pinned_version_shows_what_was_in_time_then(graph: StateGraph, clock: ManualClock) -> None:
    """Written before it, out of time after it."""
    node = graph.add_node("user_intent", {"query": "天气"}, ttl=5)
    clock.advance(1)
    write(graph, 1)
    pinned = graph.version
    graph.pin(pinned, "me")
    clock.advance(60)
    write(graph, 3)
    collect(graph, keep_last=1)
    assert graph.at(pinned).node(node.id).lifecycle == "active"
    graph.unpin(pinned, "me")
    assert collect(graph).nodes == 2


def test_the_same_key_can_be_written_after_its_nodes_were_collected(graph: StateGraph, clock: ManualClock) -> None:
    last = graph.add_node("note", {"text": "短"}, key=KEYED, ttl=1)
    clock.advance(5)
    graph.add_node("note", {"text": "other"})
    collect(graph, keep_last=1)
    assert graph.latest(KEYED) is None
    (version,) = write(graph, 1)
    assert shown(graph, version) == ["第 0 份", "other"]
    assert graph.node(graph.nodes(key=KEYED)[0].id).id != last.id


# -- pins ----------------------------------------------------------------------------------------------------------------


def test_what_is_pinned_stays_until_its_last_owner_lets_go(graph: StateGraph) -> None:
    versions = write(graph, 10)
    graph.pin(versions[3], "甲", "evidence")
    graph.pin(versions[3], "乙")
    assert collect(graph, keep_last=1).versions == 8
    assert shown(graph, versions[3]) == ["第 3 份"]
    assert graph.unpin(versions[3], "丙") is False
    assert graph.unpin(versions[3], "甲") is True
    assert collect(graph, keep_last=1).nodes == 0
    assert shown(graph, versions[3]) == ["第 3 份"]
    assert graph.unpin(versions[3], "乙") is True
    assert shown(graph, versions[3]) == ["collected"]
    assert collect(graph).nodes == 1, "freed later, by a pass without any policy of its own"


def test_pins_are_there_after_reopening(tmp_path: Path, clock: ManualClock) -> None:
    home = open_home(tmp_path / "pins", clock=clock)
    graph = StateGraph("s", engine=home.engine)
    versions = write(graph, 10)
    graph.pin(versions[3], "owner", "why")
    collect(graph, keep_last=2)
    home.close()
    home = open_home(tmp_path / "pins", clock=clock)
    graph = StateGraph("s", engine=home.engine)
    collect(graph, keep_last=1)
    assert shown(graph, versions[3]) == ["第 3 份"]
    assert shown(graph, versions[8]) == ["collected"]
    assert [(owner, pin.why) for _, _, owner, pin in home.engine.keeping.pins()] == [("owner", "why")]
    assert graph.unpin(versions[3], "owner") is True
    home.close()
    home = open_home(tmp_path / "pins", clock=clock)
    assert list(home.engine.keeping.pins()) == []
    home.close()


def test_a_head_that_went_back_to_a_pinned_version_needs_the_pin_no_more(graph: StateGraph) -> None:
    """It is the head now, and a head is never collected."""
    versions = write(graph, 20)
    graph.pin(versions[4], "me")
    collect(graph, keep_last=2)
    graph.rollback(to=versions[4])
    graph.unpin(versions[4], "me")
    collect(graph, keep_last=1, abandoned_after=0)
    assert shown(graph, versions[4]) == ["第 4 份"] == [node.data["text"] for node in graph.nodes()]
    more = write(graph, 2, 20)
    assert [version.id for version in graph.history()] == [versions[4], *more]
    assert graph.verify().ok


def test_a_fork_of_a_pinned_version_needs_the_pin_no_more(graph: StateGraph) -> None:
    versions = write(graph, 20)
    graph.pin(versions[4], "me")
    collect(graph, keep_last=2)
    fork = graph.fork("fork", at=versions[4])
    graph.unpin(versions[4], "me")
    for each in (graph, fork, graph):
        collect(each, keep_last=1, abandoned_after=0)
    assert [node.data["text"] for node in fork.nodes()] == ["第 4 份"]
    assert shown(fork, versions[4]) == ["第 4 份"]
    write(fork, 1, 30)
    assert collect(fork, keep_last=1).nodes == 1


# -- what was rolled back ------------------------------------------------------------------------------------------------


def test_abandoned_versions_stay_until_they_are_asked_to_go(graph: StateGraph, clock: ManualClock) -> None:
    versions = write(graph, 10)
    graph.rollback(to=versions[3])
    line = write(graph, 5, 20)
    collect(graph, keep_last=1)
    assert [shown(graph, version) for version in versions[:4]] == [["collected"]] * 4
    assert [shown(graph, version) for version in versions[4:]] == [[f"第 {number} 份"] for number in range(4, 10)]

    clock.advance(100)
    assert collect(graph, abandoned_after=100.001).versions == 0
    found = collect(graph, abandoned_after=99)
    assert (found.versions, found.nodes) == (6, 6)
    assert [shown(graph, version) for version in versions] == [["collected"]] * 10
    assert shown(graph, line[-1]) == ["第 24 份"]


def test_a_tail_goes_as_a_whole_by_the_age_of_its_last_version(graph: StateGraph, clock: ManualClock) -> None:
    versions: list[str] = []
    for number in range(6):
        clock.advance(10)
        versions += write(graph, 1, number)
    graph.rollback(to=versions[0])
    clock.advance(10)
    assert collect(graph, abandoned_after=15).versions == 0, "its first versions are old, its last is not"
    assert collect(graph, abandoned_after=10, limit=1).versions == 5
    assert [shown(graph, version) for version in versions[1:]] == [["collected"]] * 5


@pytest.mark.parametrize("how", ["pin", "fork", "branch"])
def test_a_tail_goes_only_behind_what_still_needs_it(graph: StateGraph, clock: ManualClock, how: str) -> None:
    versions = write(graph, 10)
    if how == "pin":
        graph.pin(versions[5], "me")
    elif how == "fork":
        graph.fork("fork", at=versions[5])
    else:
        graph.rollback(to=versions[5])
        clock.advance(1000)
        branch = write(graph, 1, 50)
    graph.rollback(to=versions[2])
    clock.advance(10)
    collect(graph, abandoned_after=100 if how == "branch" else 5)
    assert [shown(graph, version) for version in versions[:6]] == [[f"第 {number} 份"] for number in range(6)]
    if how == "branch":
        assert shown(graph, versions[9]) == ["collected"]
        assert shown(graph, branch[0]) == ["第 50 份"]
    if how == "pin":
        graph.unpin(versions[5], "me")
        collect(graph, abandoned_after=5)
        assert shown(graph, versions[5]) == ["collected"]
    write(graph, 2, 80)
    assert graph.verify().ok


def test_going_on_behind_a_cut_tail_makes_new_versions(graph: StateGraph, clock: ManualClock) -> None:
    versions = write(graph, 6)
    graph.rollback(to=versions[2])
    clock.advance(10)
    collect(graph, abandoned_after=1)
    more = write(graph, 4, 10)
    assert not set(more) & set(versions)
    assert [version.id for version in graph.history()] == [*versions[:3], *more]
    assert [shown(graph, version) for version in versions[3:]] == [["collected"]] * 3


def test_a_node_born_and_buried_in_a_kept_tail_stays_readable_there(graph: StateGraph, clock: ManualClock) -> None:
    """Out of time at the head, but the tail's versions show it as it was."""
    write(graph, 2)
    target = graph.version
    write(graph, 1, 10)
    node = graph.add_node("user_intent", {"query": "天气"}, ttl=5)
    abandoned = graph.version
    graph.rollback(to=target)
    clock.advance(100)
    write(graph, 5, 20)
    collect(graph, keep_last=1)
    assert graph.at(abandoned).node(node.id).lifecycle == "active"


# -- forks ---------------------------------------------------------------------------------------------------------------


def test_a_fork_keeps_the_history_that_it_shares(graph: StateGraph) -> None:
    versions = write(graph, 20)
    fork = graph.fork("fork", at=versions[4])
    assert collect(graph, keep_last=3).versions == 12
    assert [shown(graph, version) for version in versions[:5]] == [[f"第 {number} 份"] for number in range(5)]
    assert [shown(graph, version) for version in versions[5:17]] == [["collected"]] * 12
    assert [shown(graph, version) for version in versions[17:]] == [[f"第 {number} 份"] for number in range(17, 20)]
    assert [version.id for version in fork.history()] == versions[:5]


def test_shared_history_goes_once_nobody_asks_for_it_any_more(graph: StateGraph) -> None:
    versions = write(graph, 10)
    fork = graph.fork("fork")
    write(graph, 5, 20)
    write(fork, 5, 40)
    assert collect(graph, keep_last=1).nodes == 5 - 1
    assert [version.id for version in fork.history()][:10] == versions
    found = collect(fork, keep_last=1)
    assert found.versions == 10 + 4
    assert [shown(fork, version) for version in versions] == [["collected"]] * 10
    total = found.nodes + collect(graph).nodes
    assert total == 10 + 4
    assert [node.data["text"] for node in graph.nodes()] == ["第 24 份"]
    assert [node.data["text"] for node in fork.nodes()] == ["第 44 份"]


def test_what_lives_on_in_a_fork_only_stays(graph: StateGraph) -> None:
    """Its session let go of it, and the version that wrote it is gone for everybody."""
    (node,) = [graph.add_node("note", {"text": "kept"}, key="kept")]
    write(graph, 3)
    fork = graph.fork("fork")
    write(fork, 3, 40)
    collect(fork, keep_last=3)
    graph.add_node("note", {"text": "newer"}, key="kept")
    collect(graph, keep_last=1)
    for graph_of_fork in (fork, fork.at(fork.history()[0].id)):
        assert graph_of_fork.latest("kept") == fork.node(node.id)
    assert [version.step_count for version in fork.history()] == [5, 6, 7]


# -- bounded passes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 7, 50])
def test_a_pass_is_bounded_and_the_next_goes_on(graph: StateGraph, limit: int) -> None:
    versions = write(graph, 60)
    passes = 0
    freed = 0
    while True:
        found = graph.gc(keep_last=1, limit=limit)
        passes += 1
        freed += found.nodes
        assert found.nodes <= limit
        assert shown(graph, versions[0]) == ["collected"]
        if not found.more:
            break
    assert freed == 59
    assert passes >= 60 // limit


def test_passes_end_where_everything_left_is_needed(graph: StateGraph) -> None:
    """Also where more nodes are kept by a pin than a pass may look at: those behind them must have their turn."""
    with graph.step() as step:
        for number in range(40):
            step.add_node("note", {"text": "kept"}, key=f"kept {number}")
    graph.pin(graph.version, "me")
    for number in range(40):
        graph.add_node("note", {"text": "新"}, key=f"kept {number}")
    for number in range(40):
        graph.add_node("note", {"text": "更新"}, key=f"kept {number}")
    assert collect(graph, keep_last=1, limit=5).nodes == 40
    assert collect(graph, keep_last=1, limit=5).nodes == 0


def test_a_long_history_without_deaths_is_passed_over(graph: StateGraph) -> None:
    for number in range(50):
        graph.add_node("note", {"text": str(number)})
    assert collect(graph, keep_last=1, limit=3).nodes == 0
    assert len(graph.nodes()) == 50


def test_what_is_left_is_the_same_after_reopening(tmp_path: Path, clock: ManualClock) -> None:
    home = open_home(tmp_path / "again", clock=clock, durability="os")
    graph = StateGraph("s", engine=home.engine)
    versions = write(graph, 12)
    graph.pin(versions[2], "me")
    graph.rollback(to=versions[6])
    write(graph, 12, 20)
    more = True
    while more:
        clock.advance(1)
        more = graph.gc(keep_last=4, abandoned_after=3, limit=2).more
        before, statuses = everything(graph), [shown(graph, version) for version in versions]
        home.close()
        home = open_home(tmp_path / "again", clock=clock, durability="os")
        graph = StateGraph("s", engine=home.engine)
        assert everything(graph) == before
        assert [shown(graph, version) for version in versions] == statuses
        assert graph.verify().ok
    home.close()


def test_a_pass_says_what_it_freed(graph: StateGraph) -> None:
    write(graph, 5)
    found = graph.gc(keep_last=1, limit=3)
    assert str(found) == f"4 versions, {found.nodes} nodes, 0 blobs, {found.bytes} bytes freed; there is more to do"
    assert found.bytes >= 0


def test_freed_bytes_are_those_of_the_rows(graph: StateGraph, home: Home) -> None:
    for _ in range(10):
        graph.add_node("note", {"text": "x" * 10_000}, key=KEYED)
    before = sum(len(value) for value in rows(home.engine.store).values())
    found = collect(graph, keep_last=1)
    after = sum(len(value) for value in rows(home.engine.store).values())
    assert 90_000 < found.bytes <= before - after + 1000


# -- content -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [100, 100_000])
def test_content_goes_with_its_last_reference_only(graph: StateGraph, home: Home, size: int) -> None:
    shared = home.blobs.put(b"s" * size, "application/pdf")
    own = home.blobs.put(b"o" * size, "application/pdf")
    graph.add_node("document", {"content": shared, "twice": [own, {"again": own}]}, key="a")
    other = StateGraph("another session", engine=home.engine)
    home.blobs.put(b"s" * size, "application/pdf")
    other.add_node("document", {"content": shared}, key="b")

    graph.add_node("note", {}, key="a")
    found = collect(graph, keep_last=1)
    assert found.blobs == 1
    assert found.bytes >= size
    assert home.blobs.get(shared["$cid"]) == b"s" * size
    with pytest.raises(EvidenceUnknown):
        home.blobs.get(own["$cid"])

    other.add_node("note", {}, key="b")
    assert collect(other, keep_last=1).blobs == 1
    assert not home.blobs.has(shared["$cid"])


def test_content_shared_inside_one_dropped_version_goes_with_it(
    graph: StateGraph, home: Home, clock: ManualClock
) -> None:
    write(graph, 1)
    content = home.blobs.put(b"p" * 1000, "text/html")
    with graph.step() as step:
        step.add_node("document", {"content": content})
        step.add_node("document", {"content": content})
    graph.rollback()
    clock.advance(10)
    assert collect(graph, abandoned_after=1).blobs == 1
    assert not home.blobs.has(content["$cid"])


def test_content_inside_a_stored_value_goes_with_it(graph: StateGraph, home: Home) -> None:
    page = home.blobs.put("<p>天气</p>".encode(), "text/html")
    kept = home.blobs.put(b"kept", "text/plain")
    bundle = home.blobs.put_value({"page": page, "more": [kept]})
    outer = home.blobs.put_value({"bundle": bundle})
    graph.add_node("receipt_like", {"evidence": outer}, key="r")
    graph.add_node("document", {"content": home.blobs.put(b"kept", "text/plain")})
    graph.add_node("note", {}, key="r")
    assert collect(graph, keep_last=1).blobs == 3
    assert [home.blobs.has(each["$cid"]) for each in (page, bundle, outer, kept)] == [False, False, False, True]


def test_content_that_a_pin_shows_stays(graph: StateGraph, home: Home) -> None:
    content = home.blobs.put(b"screenshot", "image/png")
    graph.add_node("document", {"content": content}, key="d")
    graph.pin(graph.version, "me")
    version = graph.version
    graph.add_node("note", {}, key="d")
    assert collect(graph, keep_last=1).blobs == 0
    assert home.blobs.get(content["$cid"]) == b"screenshot"
    graph.unpin(version, "me")
    assert collect(graph, keep_last=1).blobs == 1


def test_content_on_its_way_into_a_step_is_not_taken(graph: StateGraph, home: Home) -> None:
    """Its last reference goes just as another step is about to refer to it."""
    content = home.blobs.put(b"again", "text/plain")
    graph.add_node("document", {"content": content}, key="d")
    graph.add_node("note", {}, key="d")
    again = home.blobs.put(b"again", "text/plain")
    assert collect(graph, keep_last=1).blobs == 0
    graph.add_node("document", {"content": again}, key="d")
    assert home.blobs.get(again["$cid"]) == b"again"
    graph.add_node("note", {}, key="d")
    assert collect(graph, keep_last=1).blobs == 1, "what was put and not taken once is looked at again"


# -- beside readers and writers ------------------------------------------------------------------------------------------


def test_readers_beside_collection_see_whole_versions_or_a_refusal(tmp_path: Path) -> None:
    """A version that is being read as it is collected is refused; it never lacks something in silence."""
    home = open_home(tmp_path / "busy", durability="os")
    graph = StateGraph("s", engine=home.engine)
    with graph.step() as step:
        for number in range(30):
            step.add_node("note", {"text": "0"}, key=f"k{number}")
    versions = [graph.version]
    over = threading.Event()

    def read() -> int:
        seen = 0
        while not over.is_set():
            for version in versions[-6:]:
                try:
                    nodes = graph.at(version).nodes(type="note")
                except VersionCollected:
                    continue
                assert len(nodes) == 30
                assert len({node.data["text"] for node in nodes}) == 1
                seen += 1
            nodes = graph.nodes(type="note")
            assert len(nodes) == 30
            assert len({node.data["text"] for node in nodes}) == 1
        return seen

    with ThreadPoolExecutor(2) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        try:
            for turn in range(1, 30):
                with graph.step() as step:
                    for number in range(30):
                        step.add_node("note", {"text": str(turn)}, key=f"k{number}")
                versions.append(graph.version)
                graph.gc(keep_last=1)
        finally:
            over.set()
        assert all(reader.result() >= 0 for reader in readers)
    assert graph.verify().ok
    home.close()


def test_sessions_are_written_forked_and_rolled_back_while_others_are_collected(home: Home) -> None:
    base = StateGraph("base", engine=home.engine)
    shared = write(base, 10)

    def live(graph: StateGraph) -> StateGraph:
        name = graph.session_id
        for turn in range(12):
            write(graph, 3, turn)
            if turn % 3 == 2:
                graph.rollback(2)
            graph.pin(graph.version, name)
            graph.gc(keep_last=2, abandoned_after=0, limit=20)
            base.gc(keep_last=3, limit=5)
            graph.unpin(graph.version, name)
        return graph

    with ThreadPoolExecutor(4) as pool:
        names = ("one", "two", "three", "四", "fifth")
        graphs = list(pool.map(live, [base.fork(name, at=shared[len(name)]) for name in names]))
    for graph in graphs:
        collect(graph, keep_last=1, abandoned_after=0)
        assert graph.verify().ok
        (node,) = graph.nodes(key=KEYED)
        assert node == graph.latest(KEYED)
        assert graph.at(graph.version).nodes() == graph.nodes()


def test_refusals_are_the_librarys_own() -> None:
    assert issubclass(VersionCollected, AgentInfraError)
    assert not issubclass(VersionCollected, VersionUnknown)


def test_a_head_that_can_not_be_read_is_refused_and_not_asked_for_ever(
    graph: StateGraph, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(graph, 2)

    def nothing(branch: int, step: int) -> bool:
        return False

    monkeypatch.setattr(home.engine.keeping, "readable", nothing)
    with pytest.raises(VersionCollected):
        graph.nodes()
