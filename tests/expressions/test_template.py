"""Templates: references in texts, lists and objects."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_infra.documents import parse_documents
from agent_infra.errors import ExpressionError
from agent_infra.expressions import compile_template, problems_at, spell

VARIABLES = ("state", "params", "goal")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)  # fmt: skip


def resolved(template, **bindings):
    found = compile_template(template, VARIABLES).resolve(bindings)
    assert found.ok, found.error
    return found.value


def same(a, b) -> bool:
    """Equal, and of equal types all the way down."""
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[name], b[name]) for name in a)
    return type(a) is type(b) and a == b


@given(JSON)
def test_a_reference_that_is_the_whole_text_keeps_the_type(data):
    assert same(resolved("${params.x}", params={"x": data}), data)
    assert same(resolved(["${params.x}", {"k": "${params.x}"}], params={"x": data}), [data, {"k": data}])


@given(JSON)
def test_a_value_without_references_is_itself(data):
    template = compile_template({"k": 1, "x": [1, None]}, VARIABLES)
    assert not template.is_reference
    assert template.reads == ()
    assert same(template.resolve({}).value, {"k": 1, "x": [1, None]})


@given(st.text(st.characters(exclude_characters="$"), max_size=20), st.text(st.characters(exclude_categories=["Cs"])))
def test_an_embedded_text_is_put_in(around, inside):
    assert resolved(f"[{around}]${{params.x}}.", params={"x": inside}) == f"[{around}]{inside}."


def test_embedded_values_become_text():
    params = {"company": "比亚迪", "n": 3, "half": 0.5, "yes": True, "list": [1, "二"]}
    assert resolved("pdf/${params.company}/${params.n}-${params.half}.pdf", params=params) == "pdf/比亚迪/3-0.5.pdf"
    assert resolved("${params.yes} ${params.list}", params=params) == 'true [1,"二"]'
    assert resolved("page ${params.n + 1}", params=params) == "page 4"
    assert resolved("${params.n + 1}", params=params) == 4


def test_the_reference_is_found_past_braces_and_quotes():
    assert resolved("""${'}' + {"a": params.x}.a + "\\"}"} end""", params={"x": "1"}) == '}1"} end'
    assert resolved("$${params.x} costs $5, ${params.x}", params={"x": 7}) == "${params.x} costs $5, 7"
    assert resolved("$$${params.x}", params={"x": 7}) == "$${params.x}"


def test_reads_come_from_all_references():
    template = compile_template({"a": "${state.nodes.x.data.n} ${params.a}", "b": ["${params.a}"]}, VARIABLES)
    assert [spell(path) for path in template.reads] == ["state.nodes.x.data.n", "params.a"]
    assert template.is_reference
    assert template.values({"params": {"a": 1}}) == {"params.a": 1}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("${state.nodes.x.data.city}", "`state.nodes.x` is absent"),
        ("in ${params.none}", "`params.none` is null, which can't stand inside a text"),
        ("${params.text * 2}", "`*` can't be applied to (text, number)"),
    ],
)
def test_unresolved_references_say_why(text, reason):
    bindings = {"state": {"nodes": {}}, "params": {"none": None, "text": "a"}}
    found = compile_template(["fine", text], VARIABLES).resolve(bindings)
    assert (found.value, found.error) == (None, reason)
    assert resolved("${params.none}", params={"none": None}) is None


@pytest.mark.parametrize(
    ("text", "offset", "right"),
    [
        ("$state.nodes.x", 0, "${state.nodes.x}"),
        ("{state.nodes.x}", 0, "${state.nodes.x}"),
        ("pdf/{params.company}.pdf", 4, "${params.company}"),
        ('see $state.nodes["中文"].x', 4, '${state.nodes["中文"].x}'),
        ("${params.a} and $goal.params.b", 16, "${goal.params.b}"),
    ],
)
def test_other_spellings_are_refused_with_the_right_one(text, offset, right):
    with pytest.raises(ExpressionError) as caught:
        compile_template(text, VARIABLES)
    facts = caught.value.facts
    assert (facts["code"], facts["offset"], facts["hint"]) == ("ReferenceSpelling", offset, f"write `{right}`")


@pytest.mark.parametrize("text", ["$5", "{x}", '{"state": 1}', "$state", "state.nodes.x", "a$b.c", "{}", "$", "${'$'}"])
def test_texts_that_are_no_references_stay(text):
    assert compile_template(text, VARIABLES).resolve({}).ok


@pytest.mark.parametrize(
    ("text", "code", "offset"),
    [("${params.x", "ExpressionSyntax", 0), ("a ${}", "ExpressionSyntax", 4), ("ab ${foo.x}", "ExpressionName", 5)],
)
def test_faults_count_in_the_whole_text(text, code, offset):
    with pytest.raises(ExpressionError) as caught:
        compile_template(text, VARIABLES)
    assert (caught.value.facts["code"], caught.value.facts["offset"]) == (code, offset)


def test_faults_become_problems_of_the_document():
    (document,) = parse_documents("with:\n  城市: [ok, 'in $params.x']\n  b: ${foo} ${bar}\n", "a.yaml")
    with pytest.raises(ExpressionError) as caught:
        compile_template(document.data["with"], VARIABLES)
    found = problems_at(caught.value, document, "with")
    assert [(problem.code, problem.line, problem.column) for problem in found] == [
        ("ReferenceSpelling", 2, 16),
        ("ExpressionName", 3, 8),
        ("ExpressionName", 3, 15),
    ]
    assert "${params.x}" in found[0].hint
