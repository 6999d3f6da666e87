"""Steps: all or nothing, what may be written, and what is refused where."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given

from agent_infra.clock import ManualClock
from agent_infra.errors import (
    AgentInfraError,
    InvalidNode,
    LockTimeout,
    NodeUnknown,
    NotJson,
    SchemaMismatch,
    SchemaUnknown,
)
from agent_infra.state import Home, StateGraph, open_memory
from agent_infra.testing.strategies import node_data, not_json, texts


def unmoved(graph: StateGraph) -> Callable[[], None]:
    """Remember a graph; the function given back asserts that nothing of it changed and that all of it can be read."""
    before = graph.version, graph.nodes(lifecycle=None), graph.history()

    def check() -> None:
        assert (graph.version, graph.nodes(lifecycle=None), graph.history()) == before
        assert graph.verify().ok
        graph.add_node("note", {"text": "and it can be written"})

    return check


# -- what is written -------------------------------------------------------------------------------


def test_a_step_lands_as_one_version(graph: StateGraph, clock: ManualClock) -> None:
    with graph.step(agent="planner") as step:
        intent = step.add_node(
            "user_intent", {"query": "北京明天天气", "confidence": 0.95}, ttl=3600, labels=["personal"]
        )
        answer = step.add_node(
            "api_response",
            {"temp": 22},
            key="weather",
            tool="天气_api",
            permissions={"read": ["*"], "write": ["planner"]},
        )
        step.add_edge(intent.id, answer.id, "triggers")
        assert graph.nodes() == []
    assert step.version == graph.version
    (version,) = graph.history()
    assert version.nodes == (intent.id, answer.id)
    assert version.agent == "planner"
    assert version.created == clock.micros()
    assert graph.node(answer.id) == answer
    assert graph.node(intent.id) == intent
    assert (answer.created, answer.step, answer.session) == (version.created, 1, graph.session_id)
    assert (answer.owner, answer.tool, answer.key) == ("planner", "天气_api", "weather")
    assert answer.permissions == {"read": ["*"], "write": ["planner"]}
    assert intent.labels == ("personal",)
    assert intent.ttl == 3600
    assert [(e.source, e.target, e.type, e.step) for e in graph.edges(answer.id)] == [
        (intent.id, answer.id, "triggers", 1)
    ]


def test_a_node_is_as_it_was_after_reopening(homes: Callable[..., Home]) -> None:
    home = homes()
    graph = StateGraph("s", engine=home.engine)
    written = [
        graph.add_node("note", {"text": "天气"}, key="北京", ttl=1.5, tool="t", labels=("a",)),
        graph.add_node("天气", {}),
    ]
    if home.path is not None:
        home.close()
        home = homes()
        graph = StateGraph("s", engine=home.engine)
    assert graph.nodes() == written[::-1]
    assert home.engine.locate(written[0].id) == "s"
    assert home.engine.locate("0" * 26) is None


def test_a_step_with_nothing_in_it_makes_no_version(graph: StateGraph) -> None:
    before = graph.version
    with graph.step() as step:
        pass
    assert step.version is None
    assert graph.version == before


def test_the_agent_of_a_graph_owns_what_it_writes(home: Home) -> None:
    graph = StateGraph("s", engine=home.engine, agent="执行者")
    assert graph.add_node("note", {}).owner == "执行者"
    with graph.step(agent="planner") as step:
        assert step.add_node("note", {}).owner == "planner"
    assert [version.agent for version in graph.history()] == ["执行者", "planner"]


@given(node_data(), texts())
def test_json_data_comes_back_equal(data: dict[str, Any], text: str) -> None:
    graph = StateGraph("s", engine=open_memory().engine)
    node = graph.add_node("anything", {**data, "text": text})
    (found,) = graph.nodes()
    assert found.data == {**data, "text": text}
    assert [type(value) for value in found.data.values()] == [type(value) for value in node.data.values()]


def test_data_is_copied_when_it_is_written(graph: StateGraph) -> None:
    data: dict[str, Any] = {"list": [1]}
    with graph.step() as step:
        node = step.add_node("note", data)
        data["list"].append(2)
    data["list"].append(3)
    assert graph.node(node.id).data == {"list": [1]} == node.data


def test_a_newer_node_with_a_key_supersedes_the_older(graph: StateGraph) -> None:
    first = graph.add_node("note", {"v": 1}, key="pdf_report")
    second = graph.add_node("document", {"v": 2}, key="pdf_report")
    assert graph.node(first.id).lifecycle == "superseded"
    assert graph.latest("pdf_report") == graph.node(second.id)
    assert [node.id for node in graph.nodes(key="pdf_report", lifecycle=None)] == [second.id, first.id]
    with graph.step() as step:
        step.remove(second.id, "wrong file")
    assert graph.latest("pdf_report") is None
    assert graph.nodes(key="pdf_report") == []
    assert graph.node(first.id).lifecycle == "superseded"


def test_a_removed_node_stays_in_earlier_versions_only(graph: StateGraph) -> None:
    node = graph.add_node("note", {})
    before = graph.version
    with graph.step() as step:
        step.remove(node.id, "不再需要")
    assert graph.nodes() == []
    assert graph.node(node.id).lifecycle == "tombstoned"
    assert graph.at(before).node(node.id).lifecycle == "active"
    for _ in range(2):
        with pytest.raises(InvalidNode), graph.step() as step:
            step.remove(node.id, "again")


def test_a_name_means_the_key_first_and_else_the_type(graph: StateGraph) -> None:
    typed = graph.add_node("note", {})
    assert graph.latest("note") == graph.node(typed.id)
    keyed = graph.add_node("document", {}, key="note")
    newer = graph.add_node("note", {})
    assert graph.latest("note") == graph.node(keyed.id)
    with graph.step() as step:
        step.remove(keyed.id, "x")
    assert graph.latest("note") == graph.node(newer.id)
    assert graph.latest("absent") is None


@pytest.mark.parametrize("type", ["causes", "references", "temporally_follows", "triggers", "depends_on"])
def test_edges_of_every_type_are_seen_from_both_ends(graph: StateGraph, type: str) -> None:
    a, b = graph.add_node("note", {}), graph.add_node("note", {})
    graph.add_edge(a.id, b.id, type)
    (edge,) = graph.edges(a.id)
    assert graph.edges(b.id) == [edge]
    assert (edge.source, edge.target, edge.type, edge.step) == (a.id, b.id, type, 3)


def test_an_edge_that_is_given_again_stays_the_edge_of_its_first_step(graph: StateGraph) -> None:
    a, b = graph.add_node("note", {}), graph.add_node("note", {})
    for _ in range(3):
        graph.add_edge(a.id, b.id, "causes")
    assert [edge.step for edge in graph.edges(a.id)] == [3]
    graph.rollback(1)
    graph.add_edge(a.id, b.id, "causes")
    graph.add_edge(a.id, b.id, "references")
    assert [(edge.type, edge.step) for edge in graph.edges(b.id)] == [("causes", 3), ("references", 6)]


# -- what is refused -------------------------------------------------------------------------------


@given(not_json())
def test_what_is_not_json_is_refused_with_its_place(case: tuple[dict[str, Any], str]) -> None:
    data, pointer = case
    graph = StateGraph("s", engine=open_memory().engine)
    graph.add_node("note", {"text": "before"})
    check = unmoved(graph)
    with pytest.raises(NotJson) as caught:
        graph.add_node("anything", data)
    assert caught.value.facts["path"] == pointer
    assert pointer in str(caught.value)
    check()


@pytest.mark.parametrize(
    ("value", "pointer"),
    [({1, 2}, "/x"), (math.nan, "/x"), ([1, (2,)], "/x/1"), ({"a/b": {"~": object()}}, "/x/a~1b/~0"), (2**64, "/x")],
)
def test_one_refusal_of_each_kind(graph: StateGraph, value: Any, pointer: str) -> None:
    check = unmoved(graph)
    with pytest.raises(NotJson) as caught:
        graph.add_node("note", {"x": value})
    assert caught.value.facts["path"] == pointer
    check()


def test_what_is_nested_too_deep_is_refused_when_it_is_written(graph: StateGraph) -> None:
    """And not when it is read: a reader deeper in the stack could not take what a writer just could."""
    deep: list[Any] = []
    for _ in range(950):
        deep = [deep]
    check = unmoved(graph)
    with pytest.raises(NotJson):
        graph.add_node("note", {"x": deep})
    check()


def test_data_that_its_schema_refuses_leaves_the_head_and_the_history(graph: StateGraph) -> None:
    graph.add_node("user_intent", {"query": "北京明天天气", "confidence": 0.95})
    check = unmoved(graph)
    with pytest.raises(SchemaMismatch) as caught:
        graph.add_node("user_intent", {"query": "天气", "confidence": 1.5})
    assert caught.value.facts["path"] == "/confidence"
    assert caught.value.facts["schema"] == "user_intent"
    with pytest.raises(SchemaMismatch) as caught:
        graph.add_node("user_intent", {"query": 5, "confidence": "sure"})
    assert {problem["path"] for problem in caught.value.facts["problems"]} == {"/query", "/confidence"}
    check()


@pytest.mark.parametrize("data", [[], "text", 5, None, True, [("a", 1)]])
def test_data_must_be_an_object(graph: StateGraph, data: Any) -> None:
    check = unmoved(graph)
    with pytest.raises((InvalidNode, NotJson)):
        graph.add_node("note", data)
    check()


@pytest.mark.parametrize(
    "arguments",
    [
        {"type": ""},
        {"type": None},
        {"type": "a\0b"},
        {"type": "\ud800"},
        {"type": "x" * 501},
        {"key": ""},
        {"key": "a\nb"},
        {"key": "\ud800"},
        {"key": 5},
        {"tool": ""},
        {"tool": "a\0"},
        {"tool": "\udfff"},
        {"ttl": -1},
        {"ttl": math.nan},
        {"ttl": math.inf},
        {"ttl": "5m"},
        {"ttl": True},
        {"ttl": 10**30},
        {"labels": [1, 2]},
        {"labels": "tainted"},
        {"labels": [""]},
        {"labels": ["\ud800"]},
        {"permissions": {"read": {1}}},
        {"permissions": ["read"]},
        {"permissions": {"read": 5}},
    ],
    ids=str,
)
def test_a_malformed_node_is_refused_when_it_is_added(graph: StateGraph, arguments: dict[str, Any]) -> None:
    """Refused by the step, not found by the next reader."""
    graph.add_node("note", {"text": "before"})
    check = unmoved(graph)
    with pytest.raises((InvalidNode, NotJson)):
        graph.add_node(**({"type": "note", "data": {}} | arguments))
    check()


@pytest.mark.parametrize("agent", ["\ud800", "a\0", "x" * 501])
def test_a_malformed_agent_is_refused(graph: StateGraph, agent: str) -> None:
    check = unmoved(graph)
    with pytest.raises(InvalidNode), graph.step(agent=agent) as step:
        step.add_node("note", {})
    check()


@pytest.mark.parametrize("why", ["\ud800", 5, None])
def test_a_removal_needs_a_readable_reason(graph: StateGraph, why: Any) -> None:
    node = graph.add_node("note", {})
    check = unmoved(graph)
    with pytest.raises(InvalidNode), graph.step() as step:
        step.remove(node.id, why)
    check()


@pytest.mark.parametrize(
    ("kind", "value"), [("", "T-1"), ("ticket", ""), ("ticket", "\ud800"), (5, "T-1"), ("ticket", 7)]
)
def test_a_reference_needs_a_kind_and_a_value(graph: StateGraph, kind: Any, value: Any) -> None:
    check = unmoved(graph)
    with pytest.raises(InvalidNode), graph.step() as step:
        step.refer(kind, value)
    check()


def test_a_reference_alone_makes_a_version(graph: StateGraph) -> None:
    with graph.step() as step:
        step.refer("ticket", "T-8841")
    assert step.version == graph.version
    assert graph.verify().ok


@pytest.mark.parametrize("id", ["", "junk", "0" * 26, "z" * 26, "天气", "8" + "Z" * 25])
def test_unknown_nodes_are_named(graph: StateGraph, id: str) -> None:
    node = graph.add_node("note", {})
    check = unmoved(graph)
    with pytest.raises(NodeUnknown):
        graph.node(id)
    for source, target in ((node.id, id), (id, node.id)):
        with pytest.raises(NodeUnknown) as caught:
            graph.add_edge(source, target, "causes")
        assert caught.value.facts["node"] == id
    with pytest.raises(NodeUnknown), graph.step() as step:
        step.remove(id, "x")
    check()


def test_edges_stay_within_what_the_step_sees(home: Home, graph: StateGraph) -> None:
    here = graph.add_node("note", {})
    elsewhere = StateGraph("other", engine=home.engine).add_node("note", {})
    abandoned = graph.add_node("note", {})
    graph.rollback()
    check = unmoved(graph)
    for id in (elsewhere.id, abandoned.id):
        with pytest.raises(NodeUnknown):
            graph.add_edge(here.id, id, "references")
        with pytest.raises(NodeUnknown):
            graph.node(id)
        assert graph.edges(id) == []
    check()


def test_an_unknown_edge_type_is_refused_with_the_known_ones(graph: StateGraph) -> None:
    node = graph.add_node("note", {})
    check = unmoved(graph)
    with pytest.raises(InvalidNode) as caught:
        graph.add_edge(node.id, node.id, "likes")
    assert "temporally_follows" in str(caught.value)
    check()


def test_two_nodes_of_one_step_can_not_have_one_key(graph: StateGraph) -> None:
    check = unmoved(graph)
    with pytest.raises(InvalidNode) as caught, graph.step() as step:
        step.add_node("note", {}, key="天气")
        step.add_node("document", {}, key="天气")
    assert caught.value.facts["key"] == "天气"
    check()


def test_an_exception_in_a_step_writes_nothing(graph: StateGraph) -> None:
    check = unmoved(graph)
    with pytest.raises(RuntimeError, match="mine"), graph.step() as step:
        step.add_node("note", {})
        raise RuntimeError("mine")
    assert step.version is None
    check()


def test_a_refused_node_is_left_out_where_its_error_is_caught(graph: StateGraph) -> None:
    with graph.step() as step:
        good = step.add_node("note", {})
        with pytest.raises(NotJson):
            step.add_node("note", {"x": {1}})
    assert [node.id for node in graph.nodes()] == [good.id]


def test_a_step_that_is_over_takes_nothing_more(graph: StateGraph) -> None:
    with graph.step() as step:
        node = step.add_node("note", {})
    late: list[Callable[[], object]] = [
        lambda: step.add_node("note", {}),
        lambda: step.add_edge(node.id, node.id, "causes"),
        lambda: step.remove(node.id, "x"),
        lambda: step.refer("ticket", "T-1"),
    ]
    for call in late:
        with pytest.raises(AgentInfraError):
            call()


def test_a_step_that_was_never_entered_takes_nothing(graph: StateGraph) -> None:
    with pytest.raises(AgentInfraError):
        graph.step().add_node("note", {})


def test_a_step_inside_a_step_fails_at_once(graph: StateGraph) -> None:
    """It would wait for itself; a long wait is given, so that waiting would show."""
    with graph.step(agent="planner") as step:
        step.add_node("note", {"n": 1})
        with pytest.raises(LockTimeout), graph.step(lock_wait_timeout=3600):
            pass
        with pytest.raises(LockTimeout):
            graph.add_node("note", {})
        with pytest.raises(LockTimeout):
            graph.rollback(0)
    assert [node.data for node in graph.nodes()] == [{"n": 1}]


# -- undeclared types ------------------------------------------------------------------------------


def test_an_undeclared_type_is_open_and_warned_of_once(
    homes: Callable[..., Home], caplog: pytest.LogCaptureFixture
) -> None:
    graph = StateGraph("s", engine=homes().engine)
    with caplog.at_level(logging.WARNING, "agent_infra"):
        for _ in range(3):
            graph.add_node("天气预报", {"anything": [1, None]})
        graph.add_node("other", {})
        graph.add_node("note", {})
    warned = [record.getMessage() for record in caplog.records if "undeclared_type" in record.getMessage()]
    assert len(warned) == 2
    assert "天气预报" in warned[0]
    assert graph.nodes(type="天气预报")[0].schema[0] == "天气预报"


def test_an_undeclared_type_can_be_refused(homes: Callable[..., Home]) -> None:
    home = homes(undeclared="refuse")
    graph = StateGraph("s", engine=home.engine)
    check = unmoved(graph)
    with pytest.raises(SchemaUnknown) as caught:
        graph.add_node("天气预报", {})
    assert caught.value.facts["schema"] == "天气预报"
    check()
    home.engine.schemas.register("天气预报", {"type": "object"})
    assert graph.add_node("天气预报", {}).schema[:2] == ("天气预报", 1)
