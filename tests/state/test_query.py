"""Reads: filters, conditions, pages, the caused-by query. What every version answers is in test_programs."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from agent_infra.clock import ManualClock, to_datetime
from agent_infra.errors import AgentInfraError, ExpressionError, InvalidNode, SchemaUnknown
from agent_infra.state import Explanation, Home, Node, StateGraph


def caused(graph: StateGraph, tool: str, data: dict[str, Any], **more: Any) -> Node:
    """A node with a `causes` edge from a call of that tool."""
    with graph.step() as step:
        call = step.add_node("api_call", {}, tool=tool)
        node = step.add_node("api_response", data, **more)
        step.add_edge(call.id, node.id, "causes")
    return node


def test_caused_by_gives_the_nodes_of_a_tool_within_some_seconds_newest_first(
    graph: StateGraph, clock: ManualClock
) -> None:
    old = caused(graph, "天气_api", {"n": 1})
    clock.advance(30)
    new = caused(graph, "天气_api", {"n": 2})
    caused(graph, "天气_api2", {"n": 3})
    clock.advance(30)
    ids = [node.id for node in graph.caused_by("天气_api", within=60.1)]
    assert ids == [new.id, old.id]
    assert [node.id for node in graph.caused_by("天气_api", within=30.1)] == [new.id]
    assert graph.caused_by("天气_api", within=29) == []
    assert graph.caused_by("天气", within=3600) == []


def test_caused_by_looks_at_the_targets_own_time_and_life(graph: StateGraph, clock: ManualClock) -> None:
    result = graph.add_node("api_response", {}, key="answer")
    clock.advance(100)
    call = graph.add_node("api_call", {}, tool="search")
    graph.add_edge(call.id, result.id, "causes")
    assert graph.caused_by("search", within=50) == []
    assert [node.id for node in graph.caused_by("search", within=101)] == [result.id]
    graph.add_node("api_response", {}, key="answer")
    assert graph.caused_by("search", within=1000) == []
    graph.add_edge(call.id, result.id, "causes")
    assert graph.caused_by("search", within=1000) == []
    gone = caused(graph, "search", {}, ttl=5)
    assert [node.id for node in graph.caused_by("search", within=1000)] == [gone.id]
    clock.advance(6)
    assert graph.caused_by("search", within=1000) == []


def test_caused_by_gives_a_node_once_and_of_causes_edges_only(graph: StateGraph) -> None:
    calls = [graph.add_node("api_call", {}, tool="search") for _ in range(3)]
    node, other = graph.add_node("note", {}), graph.add_node("note", {})
    for call in calls:
        graph.add_edge(call.id, node.id, "causes")
        graph.add_edge(call.id, other.id, "triggers")
    assert [each.id for each in graph.caused_by("search", within=60)] == [node.id]


def test_caused_by_works_on_past_versions_as_of_then(graph: StateGraph, clock: ManualClock) -> None:
    node = caused(graph, "search", {})
    clock.advance(10)
    graph.add_node("note", {})
    version = graph.version
    clock.advance(3600)
    graph.rollback(2)
    past = graph.at(version)
    assert [each.id for each in past.caused_by("search", within=11)] == [node.id]
    assert past.caused_by("search", within=9) == []
    assert graph.caused_by("search", within=86400) == []


def test_any_length_of_time_can_be_asked_for(graph: StateGraph) -> None:
    node = caused(graph, "search", {})
    assert [each.id for each in graph.caused_by("search", within=1e18)] == [node.id]
    assert [each.id for each in graph.caused_by("search", within=math.inf)] == [node.id]
    for within in (math.nan, -1):
        with pytest.raises(AgentInfraError):
            graph.caused_by("search", within=within)


def test_more_nodes_than_a_chunk_of_any_store(graph: StateGraph) -> None:
    """Listings walk over the chunks that stores read in, with removed and superseded nodes among them."""
    with graph.step() as step:
        call = step.add_node("api_call", {}, tool="search")
        nodes = [step.add_node("note", {"n": n}, key=f"k{n}", tool="t", ttl=60) for n in range(1100)]
        for node in nodes:
            step.add_edge(call.id, node.id, "causes")
    with graph.step() as step:
        for node in nodes[200:900]:
            step.remove(node.id, "x")
    left = [node.id for node in (*nodes[:200], *nodes[900:])][::-1]
    assert [node.id for node in graph.nodes(type="note")] == left
    assert [node.id for node in graph.nodes(tool="t")] == left
    assert len(graph.nodes(lifecycle=None)) == 1101
    assert {node.id for node in graph.caused_by("search", within=60)} == set(left)
    assert len(graph.caused_by("search", within=60)) == len(left)
    assert len(graph.edges(call.id)) == 1100
    pages, cursor = [], None
    while not pages or cursor:
        page = graph.nodes(type="note", limit=70, cursor=cursor)
        pages += [node.id for node in page]
        cursor = page.cursor
    assert pages == left


# -- conditions ------------------------------------------------------------------------------------


def test_where_is_a_condition_over_the_node(graph: StateGraph) -> None:
    for n in range(5):
        graph.add_node("user_intent", {"query": "北京明天天气", "confidence": n / 4}, key=f"k{n}")
    graph.add_node("note", {"text": "no confidence here"})
    assert [node.key for node in graph.nodes(where="node.data.confidence > 0.5")] == ["k4", "k3"]
    assert [node.key for node in graph.nodes(where="node.data.query == '北京明天天气' && node.key == 'k1'")] == ["k1"]
    assert [node.key for node in graph.nodes(where="node.confidence >= 0.75", limit=1)] == ["k4"]
    assert len(graph.nodes(where="node.type == 'note'")) == 1
    assert graph.nodes(type="note", where="node.data.confidence > 0.0") == []


@pytest.mark.parametrize("where", ["node.data.x >", "absent == 1", "1 +", "(("])
def test_a_condition_that_does_not_compile_is_refused(graph: StateGraph, where: str) -> None:
    graph.add_node("note", {})
    with pytest.raises(ExpressionError):
        graph.nodes(where=where)


# -- pages -----------------------------------------------------------------------------------------


def test_a_page_goes_on_where_it_ended_although_nodes_came_meanwhile(graph: StateGraph) -> None:
    old = [graph.add_node("note", {"n": n}).id for n in range(5)]
    page = graph.nodes(type="note", limit=2)
    assert [node.id for node in page] == [old[4], old[3]]
    graph.add_node("note", {"n": 9})
    with graph.step() as step:
        step.remove(old[2], "x")
    rest = graph.nodes(type="note", limit=5, cursor=page.cursor)
    assert [node.id for node in rest] == [old[1], old[0]]
    assert rest.cursor is None


def test_a_condition_does_not_break_pages(graph: StateGraph) -> None:
    nodes = [graph.add_node("note", {"n": n}).id for n in range(20)]
    pages, cursor = [], None
    while not pages or cursor:
        page = graph.nodes(where="node.n % 3 == 0", limit=2, cursor=cursor)
        pages += [node.id for node in page]
        cursor = page.cursor
    assert pages == [nodes[n] for n in (18, 15, 12, 9, 6, 3, 0)]


@pytest.mark.parametrize("cursor", ["zz", "中文", "!!!!", "A" * 20])
def test_a_text_that_is_no_cursor_is_refused(graph: StateGraph, cursor: str) -> None:
    graph.add_node("note", {})
    with pytest.raises(InvalidNode):
        graph.nodes(limit=1, cursor=cursor)


@pytest.mark.parametrize(
    "asked", [{"limit": 0}, {"limit": -1}, {"lifecycle": "alive"}, {"since": datetime(2026, 1, 1)}], ids=str
)
def test_a_question_that_means_nothing_is_refused(graph: StateGraph, asked: dict[str, Any]) -> None:
    """An empty answer would say that there is no such node."""
    graph.add_node("note", {})
    with pytest.raises(AgentInfraError):
        graph.nodes(**asked)


def test_since_is_from_that_moment_on(graph: StateGraph, clock: ManualClock) -> None:
    graph.add_node("note", {"n": 0})
    clock.advance(1)
    node = graph.add_node("note", {"n": 1})
    assert [each.id for each in graph.nodes(since=node.created_at)] == [node.id]
    assert graph.nodes(since=to_datetime(node.created + 1)) == []
    assert len(graph.nodes(since=to_datetime(0))) == 2


# -- explained -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "index"),
    [
        ({"key": "k", "type": "note"}, "key"),
        ({"tool": "search", "type": "note", "owner": "planner"}, "tool"),
        ({"type": "note", "owner": "planner"}, "type"),
        ({"owner": "planner"}, "owner"),
        ({"where": "node.n > 1"}, "time"),
    ],
)
def test_a_query_can_be_explained(graph: StateGraph, asked: dict[str, str], index: str) -> None:
    for n in range(3):
        with graph.step(agent="planner") as step:
            step.add_node("note", {"n": n}, key=f"k{n}", tool="search")
            step.add_node("document", {})
    graph.add_node("note", {"n": 9}, key="k", tool="search")
    explained = graph.nodes(**asked, explain=True)
    assert isinstance(explained, Explanation)
    assert explained.index == index
    rows = {"key": 1, "tool": 4, "type": 4, "owner": 6, "time": 7}
    assert explained.rows == rows[index]


def test_readers_of_one_version_agree_whoever_asks(graph: StateGraph) -> None:
    graph.add_node("note", {"n": 1}, key="k")
    readers: list[Callable[[], list[Node]]] = [
        lambda: list(graph.nodes()),
        lambda: list(graph.nodes(type="note")),
        lambda: list(graph.nodes(key="k")),
        lambda: [graph.node(graph.nodes()[0].id)],
        lambda: [node for node in [graph.latest("k")] if node],
        lambda: list(graph.at(graph.version).nodes()),
    ]
    assert all(reader() == readers[0]() for reader in readers)


def test_nodes_by_the_schema_that_they_were_written_under(home: Home, graph: StateGraph) -> None:
    home.engine.schemas.register("plan_step", {"type": "object"}, tag="1.8")
    old = graph.add_node("plan_step", {"n": 1})
    home.engine.schemas.register("plan_step", {"type": "object", "title": "two"}, tag="2.1")
    new = graph.add_node("plan_step", {"n": 2})
    graph.add_node("note", {})

    def ids(schema: str, **more: Any) -> list[str]:
        return [node.id for node in graph.nodes(schema=schema, **more)]

    assert ids("plan_step") == [new.id, old.id]
    assert ids("plan_step@1") == ids("plan_step@1.8") == [old.id]
    assert ids("plan_step@2.1", where="node.data.n == 2") == [new.id]
    assert ids("plan_step@2.1", type="note") == ids("plan_step@9") == []
    assert graph.nodes(schema="plan_step@1.8", explain=True) == Explanation("type", 2)
    with pytest.raises(SchemaUnknown):
        ids("plan_step@3.0")
