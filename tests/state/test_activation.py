"""What conditions see of a graph: the nodes on their read paths, and no others."""

from __future__ import annotations

from agent_infra.clock import ManualClock
from agent_infra.expressions import compile_expression, compile_template
from agent_infra.state import StateGraph, activation


def test_only_the_nodes_that_are_read_are_there(graph: StateGraph) -> None:
    intent = graph.add_node("user_intent", {"query": "北京明天天气", "confidence": 0.95})
    graph.add_node("note", {"text": "not read"})
    condition = compile_expression("state.nodes.user_intent.data.confidence > 0.8", ["state"])
    bindings, used = activation(graph, [condition])
    assert used == {"user_intent": intent}
    assert list(bindings["state"]["nodes"]) == ["user_intent"]
    assert condition.evaluate(bindings).holds


def test_a_field_that_is_not_the_nodes_own_is_looked_up_in_its_data(graph: StateGraph) -> None:
    graph.add_node("document", {"status": "ready", "type": "the data's own", "城市": "北京"}, key="pdf_report")
    seen = {
        "state.nodes.pdf_report.status": "ready",
        "state.nodes.pdf_report.type": "document",
        "state.nodes.pdf_report.data.type": "the data's own",
        "state.nodes.pdf_report.key": "pdf_report",
        "state.nodes.pdf_report.lifecycle": "active",
        'state.nodes["pdf_report"]["城市"]': "北京",
    }
    for source, value in seen.items():
        template = compile_template("${" + source + "}", ["state"])
        bindings, used = activation(graph, [template])
        assert list(used) == ["pdf_report"]
        assert template.resolve(bindings).value == value


def test_names_mean_keys_first_then_types(graph: StateGraph) -> None:
    graph.add_node("报告", {"v": 1})
    condition = compile_expression('state.nodes["报告"].v == 2', ["state"])
    assert not condition.evaluate(activation(graph, [condition])[0]).holds
    keyed = graph.add_node("note", {"v": 2}, key="报告")
    bindings, used = activation(graph, [condition])
    assert used == {"报告": keyed}
    assert condition.evaluate(bindings).holds


def test_what_is_absent_expired_or_removed_is_left_out(graph: StateGraph, clock: ManualClock) -> None:
    conditions = [compile_expression(f"state.nodes.{name}.data.x == 1", ["state"]) for name in ("a", "b", "c")]
    graph.add_node("note", {"x": 1}, key="a", ttl=10)
    removed = graph.add_node("note", {"x": 1}, key="b")
    with graph.step() as step:
        step.remove(removed.id, "x")
    assert list(activation(graph, conditions)[1]) == ["a"]
    clock.advance(11)
    bindings, used = activation(graph, conditions)
    assert used == {}
    assert bindings == {"state": {"nodes": {}}}
    assert not any(condition.evaluate(bindings).holds for condition in conditions)


def test_conditions_can_be_asked_of_a_past_version(graph: StateGraph) -> None:
    graph.add_node("note", {"x": 1}, key="a")
    then = graph.version
    graph.add_node("note", {"x": 2}, key="a")
    condition = compile_expression("state.nodes.a.x == 1", ["state"])
    assert condition.evaluate(activation(graph.at(then), [condition])[0]).holds
    assert not condition.evaluate(activation(graph, [condition])[0]).holds
