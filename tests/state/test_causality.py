"""Questions about why: what led to a node, what came of it, and the shortest way between two."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_infra.clock import ManualClock
from agent_infra.errors import AgentInfraError, InvalidNode, NodeUnknown
from agent_infra.state import Home, Node, StateGraph, open_memory

FORWARD = ("causes", "temporally_follows", "triggers")
BACKWARD = ("references", "depends_on")


def build(graph: StateGraph, names: Iterable[str], edges: Iterable[tuple[str, str, str]]) -> dict[str, Node]:
    """Nodes by name, and edges between them, in one step."""
    with graph.step() as step:
        nodes = {name: step.add_node("note", {"text": name}) for name in names}
        for source, target, type in edges:
            step.add_edge(nodes[source].id, nodes[target].id, type)
    return nodes


def names(nodes: Iterable[Node]) -> list[str]:
    return [node.data["text"] for node in nodes]


# -- directions ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("type", [*FORWARD, *BACKWARD])
def test_an_edge_leads_from_cause_to_effect_whichever_way_it_points(graph: StateGraph, type: str) -> None:
    """A reference, or a dependency, points from what came later to what it came from."""
    nodes = build(graph, "ab", [("a", "b", type)])
    cause, effect = ("b", "a") if type in BACKWARD else ("a", "b")
    assert names(graph.ancestors(nodes[effect].id)) == [cause]
    assert names(graph.descendants(nodes[cause].id)) == [effect]
    assert graph.ancestors(nodes[cause].id) == graph.descendants(nodes[effect].id) == []
    assert names(graph.path(nodes[cause].id, nodes[effect].id)) == [cause, effect]
    assert graph.path(nodes[effect].id, nodes[cause].id) == []


def test_the_causal_slice_of_a_failure(graph: StateGraph) -> None:
    """Goal -> subgoal -> call -> receipt; the call refers to what it read, which an earlier call had caused."""
    nodes = build(
        graph,
        ["目标", "子目标", "earlier call", "intent", "call", "failed receipt", "unrelated", "repair"],
        [
            ("目标", "子目标", "triggers"),
            ("子目标", "call", "triggers"),
            ("earlier call", "intent", "causes"),
            ("call", "intent", "references"),
            ("call", "failed receipt", "triggers"),
            ("unrelated", "目标", "temporally_follows"),
            ("failed receipt", "repair", "triggers"),
        ],
    )
    failure = nodes["failed receipt"].id
    found = names(graph.ancestors(failure))
    assert found[0] == "call"
    assert set(found) == {"call", "intent", "子目标", "earlier call", "目标", "unrelated"}
    assert found.index("intent") < found.index("earlier call")
    assert set(names(graph.ancestors(failure, edges=["triggers"]))) == {"call", "子目标", "目标"}
    assert names(graph.ancestors(failure, depth=1)) == ["call"]
    assert names(graph.descendants(failure)) == ["repair"]
    assert names(graph.path(nodes["earlier call"].id, failure)) == ["earlier call", "intent", "call", "failed receipt"]


# -- how far, by what ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [0, 1, 2, 3, 10, None])
def test_the_nearest_first_and_no_farther_than_asked(graph: StateGraph, depth: int | None) -> None:
    nodes = build(
        graph, "abcdx", [("a", "b", "causes"), ("b", "c", "causes"), ("c", "d", "causes"), ("x", "d", "causes")]
    )
    far = {"c": 1, "x": 1, "b": 2, "a": 3}
    found = names(graph.ancestors(nodes["d"].id, depth=depth))
    assert set(found) == {name for name, steps in far.items() if depth is None or steps <= depth}
    assert [far[name] for name in found] == sorted(far[name] for name in found)


def test_each_node_once_however_many_ways_lead_to_it(graph: StateGraph) -> None:
    nodes = build(
        graph,
        "abcd",
        [
            ("a", "b", "causes"),
            ("a", "c", "causes"),
            ("b", "d", "causes"),
            ("c", "d", "causes"),
            ("a", "d", "triggers"),
        ],
    )
    assert sorted(names(graph.ancestors(nodes["d"].id))) == ["a", "b", "c"]
    assert sorted(names(graph.descendants(nodes["a"].id))) == ["b", "c", "d"]
    assert names(graph.path(nodes["a"].id, nodes["d"].id)) == ["a", "d"]


def test_circles_end(graph: StateGraph) -> None:
    nodes = build(
        graph, "abc", [("a", "b", "causes"), ("b", "c", "causes"), ("c", "a", "causes"), ("a", "a", "triggers")]
    )
    assert sorted(names(graph.ancestors(nodes["a"].id))) == ["b", "c"]
    assert sorted(names(graph.descendants(nodes["a"].id))) == ["b", "c"]
    assert names(graph.path(nodes["a"].id, nodes["a"].id)) == ["a"]
    assert names(graph.path(nodes["b"].id, nodes["a"].id)) == ["b", "c", "a"]


def test_only_the_asked_edges_are_followed(graph: StateGraph) -> None:
    nodes = build(graph, "abc", [("a", "b", "causes"), ("b", "c", "triggers"), ("a", "c", "temporally_follows")])
    assert names(graph.ancestors(nodes["c"].id, edges=["triggers"])) == ["b"]
    assert sorted(names(graph.ancestors(nodes["c"].id, edges=["triggers", "causes"]))) == ["a", "b"]
    assert graph.ancestors(nodes["c"].id, edges=["references"]) == []
    assert graph.ancestors(nodes["c"].id, edges=[]) == []


def test_what_can_not_be_asked_is_refused(graph: StateGraph) -> None:
    nodes = build(graph, "a", [])
    for ask in (graph.ancestors, graph.descendants):
        with pytest.raises(InvalidNode):
            ask(nodes["a"].id, edges=["because"])
        for unknown in ("0" * 26, "junk", ""):
            with pytest.raises(NodeUnknown):
                ask(unknown)
    for pair in ((nodes["a"].id, "0" * 26), ("0" * 26, nodes["a"].id)):
        with pytest.raises(NodeUnknown):
            graph.path(*pair)
    assert issubclass(NodeUnknown, AgentInfraError)


def test_a_long_chain_is_walked_to_its_end(graph: StateGraph) -> None:
    many = [f"{number}" for number in range(1500)]
    nodes = build(graph, many, [(a, b, "causes") for a, b in itertools.pairwise(many)])
    assert names(graph.path(nodes["0"].id, nodes["1499"].id)) == many
    assert len(graph.ancestors(nodes["1499"].id)) == 1499


# -- versions ------------------------------------------------------------------------------------------------------------


def test_why_is_asked_of_a_version(graph: StateGraph) -> None:
    nodes = build(graph, "abc", [("a", "b", "causes")])
    before = graph.version
    graph.add_edge(nodes["b"].id, nodes["c"].id, "causes")
    after = graph.version
    graph.rollback()
    graph.add_edge(nodes["a"].id, nodes["c"].id, "triggers")
    assert graph.at(before).ancestors(nodes["c"].id) == []
    assert names(graph.at(after).ancestors(nodes["c"].id)) == ["b", "a"]
    assert names(graph.ancestors(nodes["c"].id)) == ["a"]


def test_the_dead_are_part_of_the_way(graph: StateGraph) -> None:
    """What was superseded or removed led to what it led to all the same."""
    with graph.step() as step:
        old = step.add_node("note", {"text": "old"}, key="k")
        removed = step.add_node("note", {"text": "removed"})
        end = step.add_node("note", {"text": "end"})
        step.add_edge(old.id, removed.id, "causes")
        step.add_edge(removed.id, end.id, "causes")
    with graph.step() as step:
        step.add_node("note", {"text": "new"}, key="k")
        step.remove(removed.id, "不要")
    assert [(node.data["text"], node.lifecycle) for node in graph.ancestors(end.id)] == [
        ("removed", "tombstoned"),
        ("old", "superseded"),
    ]


def test_ways_lead_over_the_point_of_a_fork(home: Home) -> None:
    origin = StateGraph("origin", engine=home.engine)
    nodes = build(origin, "ab", [("a", "b", "causes")])
    fork = origin.fork("fork")
    with fork.step() as step:
        new = step.add_node("note", {"text": "fork"})
        step.add_edge(nodes["b"].id, new.id, "causes")
    assert names(fork.path(nodes["a"].id, new.id)) == ["a", "b", "fork"]
    assert origin.descendants(nodes["b"].id) == []


# -- edges ---------------------------------------------------------------------------------------------------------------


def test_an_edge_given_twice_is_one_edge_of_its_first_step(graph: StateGraph) -> None:
    nodes = build(graph, "ab", [("a", "b", "causes"), ("a", "b", "causes"), ("a", "b", "triggers")])
    graph.add_edge(nodes["a"].id, nodes["b"].id, "causes")
    for end in "ab":
        assert sorted((edge.type, edge.step) for edge in graph.edges(nodes[end].id)) == [("causes", 1), ("triggers", 1)]


@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6), st.sampled_from([*FORWARD, *BACKWARD])), max_size=14),
    st.integers(0, 6),
    st.integers(0, 6),
)
def test_any_graph_of_causes(edges: list[tuple[int, int, str]], start: int, end: int) -> None:
    graph = StateGraph("s", engine=open_memory(clock=ManualClock()).engine)
    nodes = build(graph, map(str, range(7)), [(str(a), str(b), type) for a, b, type in edges])
    ways = {(b, a) if type in BACKWARD else (a, b) for a, b, type in edges}
    far = {start: 0}
    for steps in range(1, 8):
        for a, b in ways:
            if far.get(a) == steps - 1:
                far.setdefault(b, steps)
    came = names(graph.descendants(nodes[str(start)].id))
    assert set(came) == {str(number) for number in far if number != start}
    assert [far[int(name)] for name in came] == sorted(far[int(name)] for name in came)
    way = [int(name) for name in names(graph.path(nodes[str(start)].id, nodes[str(end)].id))]
    assert len(way) == (far[end] + 1 if end in far else 0)
    assert all(pair in ways for pair in itertools.pairwise(way))
    led = {int(name) for name in names(graph.ancestors(nodes[str(end)].id))}
    assert (start in led) is (end in far and start != end)
