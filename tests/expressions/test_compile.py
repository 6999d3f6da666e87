"""Expressions: what they mean on plain data, what they read, and how they are refused."""

from __future__ import annotations

import math
import pickle
from datetime import UTC, datetime

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from agent_infra.errors import ExpressionError
from agent_infra.expressions import compile_expression, spell

VARIABLES = ("state", "params", "result", "agent", "now")
WEATHER = {
    "state": {
        "nodes": {
            "user_intent": {"id": "01J", "data": {"query": "北京明天天气", "confidence": 0.95, "days": 3}},
            "中文键": {"data": {"温度": 22}},
        }
    }
}


def condition(source: str):
    return compile_expression(source, VARIABLES)


def value(source: str, **bindings):
    found = compile_expression(source, VARIABLES, boolean=False).evaluate(bindings)
    assert found.error is None
    return found.value


def holds(source: str, **bindings) -> bool:
    found = condition(source).evaluate(bindings)
    assert found.ok, found.error
    return found.holds


def error(source: str, **bindings) -> str:
    found = compile_expression(source, VARIABLES, boolean=False).evaluate(bindings)
    assert not found.ok
    assert not found.holds
    assert found.value is None
    return found.error


def faults(source: str, *, boolean: bool = True) -> list[dict]:
    with pytest.raises(ExpressionError) as caught:
        compile_expression(source, VARIABLES, boolean=boolean)
    return caught.value.facts["problems"]


# -- evaluating --------------------------------------------------------------------------------------------------------


def test_a_condition_over_the_state():
    expression = condition("state.nodes.user_intent.data.confidence > 0.8")
    assert expression.evaluate(WEATHER).holds
    assert expression.reads == (("state", "nodes", "user_intent", "data", "confidence"),)
    assert expression.values(WEATHER) == {"state.nodes.user_intent.data.confidence": 0.95}


def test_only_the_read_paths_need_be_there():
    expression = condition("state.nodes.a.n > 1")
    bindings = {"state": {"nodes": {"a": {"n": 2, "unread": {1, 2}}, "b": object()}}, "params": object()}
    assert expression.evaluate(bindings).holds


def test_chinese_keys_and_texts():
    assert holds('state.nodes["中文键"].data["温度"] == 22', **WEATHER)
    assert holds("state.nodes.user_intent.data.query == '北京明天天气'", **WEATHER)
    expression = condition('state.nodes["中文键"].data["温度"] > 0')
    assert expression.values(WEATHER) == {'state.nodes["中文键"].data["温度"]': 22}


@pytest.mark.parametrize(
    "text", ["a * b", "x != null", "5 / 0", "has(x.y)", "1 + 1 == 2", "中文 * 键", '"quoted"', "\\n"]
)
def test_text_literals_are_left_alone(text):
    quoted = "'" + text.replace("\\", "\\\\") + "'"
    assert holds(f"params.text == {quoted}", params={"text": text})


@given(st.text(st.characters(exclude_categories=("Cs", "Cc"))))
def test_any_text_literal_is_itself(text):
    quoted = '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    assert value(quoted) == text
    assert value(f"params[{quoted}]", params={text: 1}) == 1


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("params.n * 5", 15), ("params.n * 0.5", 1.5), ("params.n / 2", 1.5), ("7 / 2", 3.5), ("7 % 2", 1),
        ("-7 % 3", -1),
        ("5.5 % 2", 1.5), ("size(params.xs) * 0.5", 1), ("size(params.xs) / 2 + 0.25", 1.25), ("-params.n", -3),
        ("params.n > 2 ? 1 : 0.5", 1), ("params.xs[params.n - 3]", 1), ("params.xs.map(x, x * 2)", [2, 5]),
        ("int(5.7) + 0.5", 5.5), ("string(5) + 'x'", "5x"), ("params.t + params.t", "abab"), ("[1] + [2.5]", [1, 2.5]),
        ("params.n in [1, 2, 3]", True), ("size('中文') == 2", True), ("1 < 1.5", True), ("1 == 1.0", True),
        ("params.xs.exists_one(x, x == 1)", True), ("{'a': 1}", {"a": 1}),
        ("timestamp(0)", "1970-01-01T00:00:00+00:00"),
        ("duration('90s')", 90), ("timestamp('2026-11-30T00:00:00Z').getFullYear() + 0.5", 2026.5), ("null", None),
    ],
)  # fmt: skip
def test_values(source, expected):
    found = value(source, params={"n": 3, "xs": [1, 2.5], "t": "ab"})
    assert found == expected
    assert type(found) is type(expected)


NUMBERS = st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(-1e100, 1e100)


@given(NUMBERS, NUMBERS, st.sampled_from("+-*/"))
def test_arithmetic_agrees_with_python_floats(a, b, operator):
    assume(operator != "/" or b != 0)
    expected = eval(f"float({a!r}) {operator} float({b!r})")
    assume(math.isfinite(expected))
    assert value(f"params.a {operator} params.b", params={"a": a, "b": b}) == expected
    assert value(f"params.a {operator} ({b!r})", params={"a": a}) == expected
    assert value(f"({a!r}) {operator} ({b!r})") == expected


@given(NUMBERS, NUMBERS, st.sampled_from(["<", "<=", "==", "!=", ">=", ">"]))
def test_comparisons_agree_with_python(a, b, operator):
    assert holds(f"params.a {operator} params.b", params={"a": a, "b": b}) == eval(
        f"float({a!r}) {operator} float({b!r})"
    )


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-1, 1))
@example(2**53, 1)
@example(-(2**53), -1)
def test_large_integers_compare_exactly(n, difference):
    other = max(-(2**63), min(2**63 - 1, n + difference))
    assert holds("params.a == params.b", params={"a": n, "b": other}) == (n == other)


TEXT = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"))
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
    max_leaves=10,
)  # fmt: skip


@given(JSON)
def test_values_pass_through_unchanged(data):
    assert value("params.x", params={"x": data}) == data
    assert value("[params.x]", params={"x": data}) == [data]


# -- null and absent ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("result", [{}, {"temp": None}, None, {"other": 1}])
def test_an_absent_field_is_null(result):
    assert not holds("result.temp != null", result=result)
    assert holds("result.temp == null", result=result)
    assert not holds("null != result['temp']", result=result)


def test_a_present_field_is_not_null():
    assert holds("result.temp != null && result.temp > 20", result={"temp": 22})
    assert holds("result.temp != null", result={"temp": 0})
    assert holds("!(result.temp == null)", result={"temp": False})


def test_absent_on_the_way_is_absent():
    source = "state.nodes.weather.data.a.b.c.d.e.f != null"
    assert not holds(source, state={"nodes": {}})
    assert not holds(source, state={"nodes": {"weather": {"data": {"a": None}}}})
    assert not holds("has(state.nodes.weather.data.temp)", state={"nodes": {}})
    assert holds("has(result.temp)", result={"temp": None})
    assert holds("result.items.all(i, i.n > 0 && i.gone == null)", result={"items": [{"n": 1}, {"n": 2}]})


def test_a_field_of_something_without_fields_is_an_error():
    assert error("result.temp.now > 1", result={"temp": 5}) == "`result.temp` is the number 5 and has no field `now`"


# -- errors are answers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("params.gone > 1", "`params.gone` is absent"),
        ("state.nodes.gone.data.x", "`state` is absent"),
        ("params.none > 1", "`>` can't be applied to (null, number)"),
        ("params.text * 2", "`*` can't be applied to (text, number)"),
        ("params.n / params.zero > 1", "division by zero"),
        ("params.n / (1 - 1) > 1", "division by zero"),
        ("params.n % params.zero == 1", "division by zero"),
        ("params.xs[5] > 1", "there is no item 5 in a list of 1"),
        ("params.text && true", "each side of `&&` must be true or false"),
        ("params.text ? 1 : 2", "the condition of `? :` must be true or false"),
        (
            "params.many.all(a, params.many.all(b, a + b >= 0))",
            "it goes over more items than an expression may (10,000 in all)",
        ),
        ("1e308 * 10", "the result is inf, which is not a finite number"),
        ("params.huge + 1", "`+` can't be applied to (integer of 2^53 or more, number)"),
    ],
)
def test_errors_say_why(source, reason):
    params = {"none": None, "text": "a", "n": 3, "zero": 0, "xs": [1], "huge": 2**60, "many": [0] * 200}
    assert error(source, params=params) == reason


def test_a_condition_that_is_not_true_or_false_does_not_hold():
    found = condition("params.x").evaluate({"params": {"x": "true"}})
    assert not found.holds
    assert found.error == "it gives a text, not true or false"
    assert condition("params.x").evaluate({"params": {"x": True}}).holds


@pytest.mark.parametrize("x", [{"a\0b": 1}, "a\0b", ["\0"]])
def test_a_text_that_the_engine_would_cut_is_refused(x):
    assert "NUL" in error("params.x == 1 ? 1 : 2", params={"x": x})
    assert value("params.x", params={"x": x}) == x


@given(JSON)
def test_evaluating_never_raises(data):
    for source in ("params.x > 1", "params.x.y != null", "params.x + params.x", "size(params.x) > 0", "params.x[0]"):
        compile_expression(source, VARIABLES, boolean=False).evaluate({"params": {"x": data}})
        compile_expression(source, VARIABLES, boolean=False).evaluate({"params": data})


def test_time():
    source = "now - timestamp(state.nodes.a.created_at) < duration('24h')"
    state = {"nodes": {"a": {"created_at": "2026-11-29T12:00:00+00:00"}}}
    assert holds(source, now=datetime(2026, 11, 30, tzinfo=UTC), state=state)
    assert not holds(source, now="2026-12-01T00:00:00Z", state=state)
    assert value("now", now=datetime(2026, 11, 30, tzinfo=UTC)) == "2026-11-30T00:00:00+00:00"
    assert "Invalid isoformat" in error("now > timestamp(0)", now="tomorrow")


# -- reads -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "reads"),
    [
        ("params.a > params.b.c", ["params.a", "params.b.c"]),
        ("has(params.a.b)", ["params.a.b"]),
        ("params.xs[0].n > 1", ["params.xs"]),
        ("params.xs[params.i].n > 1", ["params.xs", "params.i"]),
        ("params.xs.exists(x, x.n > params.least && x.params == 1)", ["params.xs", "params.least"]),
        ("params.xs.exists(params, params.n > 1)", ["params.xs"]),
        ("{'a': params.a}.a == [params.b][0]", ["params.a", "params.b"]),
        ("'weather' in state.nodes", ["state.nodes.weather"]),
        ('state.nodes["a b"].x == "state.nodes.c"', ['state.nodes["a b"].x']),
        ("params.a.startsWith(params.b) && params.a != ''", ["params.a", "params.b"]),
        ("true", []),
    ],
)
def test_reads(source, reads):
    assert [spell(path) for path in condition(source).reads] == reads


def test_a_node_can_be_asked_for():
    assert holds("'user_intent' in state.nodes", **WEATHER)
    assert not holds("'weather' in state.nodes", **WEATHER)


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "code", "column", "hint"),
    [
        ("state.nodes[params.x].a > 1", "DynamicPath", 6, "name the node"),
        ("size(state.nodes) > 1", "DynamicPath", 11, "name the node"),
        ("state.nodes.exists(k, k == 'a')", "DynamicPath", 6, "name the node"),
        ("1 + 2", "NotBoolean", 1, "compare it"),
        ("'text'", "NotBoolean", 1, "compare it"),
        ("size(params.x) * 0.5", "NotBoolean", 1, "compare it"),
        ("[true]", "NotBoolean", 1, "compare it"),
        ("parms.x > 1", "ExpressionName", 1, "did you mean `params`?"),
        ("foo.x > 1", "ExpressionName", 1, "the names here are state, params"),
        ("params.x && True", "ExpressionName", 13, "write `true`"),
        ("params.x == None", "ExpressionName", 13, "write `null`"),
        ("len(params.x) > 1", "ExpressionName", 1, "write `size`"),
        ("params.x > 1 and params.y", "ExpressionSyntax", 14, "write `&&`"),
        ("params.x = 3", "ExpressionSyntax", 10, "write `==`"),
        ("state.nodes.中文键.x > 1", "ExpressionSyntax", 13, 'in brackets: ["中文键"]'),
        ("params.x >", "ExpressionSyntax", 11, None),
        ("", "ExpressionSyntax", 1, None),
        ("'a' > 1", "ExpressionType", 5, None),
        ("params.x && 1", "ExpressionType", 10, None),
        ("'中文😀' == 'a' && foo", "ExpressionName", 17, "the names here"),
        ("+".join(["1"] * 60) + " > 1", "ExpressionSyntax", 1, "split it"),
        ("(" * 60 + "1" + ")" * 60, "ExpressionSyntax", 1, "split it"),
    ],
)
def test_refused_where_it_is_wrong(source, code, column, hint):
    fault = faults(source)[0]
    assert (fault["code"], fault["line"], fault["column"]) == (code, 1, column)
    assert fault["hint"] is None if hint is None else hint in fault["hint"]


def test_all_faults_of_an_expression_with_their_lines():
    found = faults("foo > 1 &&\n  bar.baz == 'x' && 'a' > 1")
    assert [(fault["code"], fault["line"], fault["column"]) for fault in found] == [
        ("ExpressionName", 1, 1),
        ("ExpressionName", 2, 3),
        ("ExpressionType", 2, 25),
    ]


def test_the_error_reads_well_and_survives_pickling():
    with pytest.raises(ExpressionError) as caught:
        condition("parms.x > 1")
    said = "[ExpressionError] there is no `parms` here (at `parms.x > 1`, line 1, column 1). Did you mean `params`?"
    assert str(caught.value).startswith(said)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


@given(st.text(max_size=40) | st.text("params.x ()[]{}'\"!=&|<>+-*/%?:,0129null", max_size=40))
def test_any_text_compiles_or_is_refused(source):
    found = []
    try:
        compile_expression(source, VARIABLES, boolean=False).evaluate({"params": {"x": 1}})
    except ExpressionError as refused:
        found = refused.facts["problems"]
    assert all(0 <= fault["offset"] <= len(source) for fault in found)
