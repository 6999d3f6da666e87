"""Expressions that run as Python functions give what the engine gives: the same value, or none."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_infra.errors import ExpressionError
from agent_infra.expressions import compile_expression
from agent_infra.expressions.closures import closure_of

FIELDS = ("source", "value", "priority", "flag", "none", "missing")
NUMBERS = st.one_of(st.integers(-3, 3), st.sampled_from([0.0, -0.0, 0.5, 1e308, 2**53, 2**53 - 1, -1e-320]))
TEXTS = st.sampled_from(["", "a", "ab", "投诉", "é", "\U0001f600", "x\0y", "A"])
VALUES = st.one_of(NUMBERS, TEXTS, st.booleans(), st.none(), st.just([1]), st.just({}))
FACTS = st.fixed_dictionaries({name: VALUES for name in FIELDS if name != "missing"}, optional={"missing": VALUES}).map(
    lambda fields: {"r": fields}
)


def texts(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("\0", "\\000") + "'"


LEAVES = st.one_of(
    st.sampled_from([f"r.{name}" for name in FIELDS]),
    st.sampled_from(['r["source"]', "has(r.missing)", "true", "false", "null"]),
    NUMBERS.filter(lambda number: number >= 0).map(str),
    TEXTS.map(texts),
)


def combined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    binary = st.sampled_from(["&&", "||", "==", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "%"])
    return st.one_of(
        st.tuples(inner, binary, inner).map(lambda part: f"({part[0]} {part[1]} {part[2]})"),
        inner.map(lambda part: f"!({part})"),
        inner.map(lambda part: f"-({part})"),
        st.tuples(inner, inner, inner).map(lambda part: f"({part[0]} ? {part[1]} : {part[2]})"),
        st.tuples(inner, st.lists(LEAVES, max_size=3)).map(lambda part: f"({part[0]} in [{', '.join(part[1])}])"),
        st.tuples(inner, st.sampled_from(["contains", "startsWith", "endsWith"]), inner).map(
            lambda part: f"({part[0]}).{part[1]}({part[2]})"
        ),
        inner.map(lambda part: f"size({part})"),
    )


EXPRESSIONS = st.recursive(LEAVES, combined, max_leaves=6)


@settings(deadline=None)
@given(EXPRESSIONS, st.lists(FACTS, min_size=1, max_size=4), st.booleans())
def test_never_another_result_than_the_engines(source: str, facts: list[Any], boolean: bool) -> None:
    try:
        expression = compile_expression(source, ["r"], boolean=boolean)
    except ExpressionError:
        return
    for bindings in facts:
        assert expression.evaluate(bindings) == expression.by_engine(bindings), (source, bindings)


@pytest.mark.parametrize(
    "source",
    [
        'r.source == "compliance_api" && r.value < 0 && r.priority == "high"',
        "r.value * 5 - 1",
        'r.priority in ["high", "low"] || r.source.startsWith("user")',
        "r.value > 0 ? r.value : 0",
        "r.priority != null",
    ],
)
def test_what_rules_are_made_of_takes_the_shorter_way(source: str) -> None:
    expression = compile_expression(source, ["r"], boolean=False)
    closure = closure_of(expression.tree(), expression.reads)
    assert closure is not None
    fact = {"source": "compliance_api", "value": -0.4, "priority": "high"}
    assert closure({"r": fact}) == expression.by_engine({"r": fact}).value
