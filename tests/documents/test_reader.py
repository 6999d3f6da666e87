"""Documents: what YAML means here, where things stand, and what is refused."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_infra.documents import parse_documents, read_documents, survey_documents
from agent_infra.errors import DocumentErrors, FileMissing, Problem

PRINTABLE = st.text(st.characters(exclude_categories=("Cc", "Cs", "Co", "Cn"), exclude_characters="\ufeff\u2028\u2029"))
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | PRINTABLE
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(PRINTABLE, inner), max_leaves=20)


def one(text: str):
    (document,) = parse_documents(text, "a.yaml")
    return document


def problems(text: str) -> list[Problem]:
    with pytest.raises(DocumentErrors) as caught:
        parse_documents(text, "a.yaml")
    return list(caught.value.problems)


def codes(text: str) -> list[str]:
    return [problem.code for problem in problems(text)]


# -- values ------------------------------------------------------------------------------------------------------------


@given(VALUES)
def test_json_is_read_as_itself(value):
    data = one(json.dumps({"value": value}, ensure_ascii=False)).data
    assert data == {"value": value}
    assert json.dumps(data) == json.dumps({"value": value})  # 1 and 1.0 and true are told apart


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"), ("on", "on"), ("yes", "yes"), ("off", "off"), ("NO", "NO"), ("y", "y"), ("010", 10),
        ("0777", 777), ("0o17", 15), ("0x1F", 31), ("12:30:00", "12:30:00"), ("1.10", 1.1), ("+5", 5), ("1.", 1.0),
        ("-.5e3", -500.0),
        ("2026-11-30", "2026-11-30"), ("1_000", "1_000"), ("~", None), ("Null", None), ("", None), ("TRUE", True),
        ("true ", True), ("tRue", "tRue"), ("<<", "<<"), ("=", "="), ("北京明天天气", "北京明天天气"), ("'5'", "5"),
        ("${state.nodes.x.data.n}", "${state.nodes.x.data.n}"),
    ],
)  # fmt: skip
def test_scalars_mean_what_yaml_1_2_says(text, value):
    data = one(f"a: {text}").data["a"]
    assert data == value
    assert type(data) is type(value)


def test_on_and_no_are_good_keys():
    assert one("on: 1\nno: 2\n城市: 3").data == {"on": 1, "no": 2, "城市": 3}


def test_raw_keeps_the_text_as_written():
    document = one('a: 1.10\nb: NO\nc: "0777"\nd: [12:30:00, 010]\ne: {f: null}')
    assert [document.raw("a"), document.raw("b"), document.raw("c")] == ["1.10", "NO", "0777"]
    assert [document.raw("d", 0), document.raw("d", 1), document.raw("e", "f")] == ["12:30:00", "010", "null"]
    assert document.raw("e") is None
    assert document.raw("nothing") is None


def test_documents_are_separated_and_empty_ones_left_out():
    assert [document.data for document in parse_documents("---\na: 1\n---\n---\n- 2\n# end\n")] == [{"a": 1}, [2]]
    assert parse_documents("# nothing") == []


# -- positions ---------------------------------------------------------------------------------------------------------

TEXT = "name: 天气\nparams:\n  城市: ${state.nodes.x}\n  list: [1, {deep: yes}]\n"


def test_positions_of_values_and_keys():
    document = one(TEXT)

    def at(*path, key=False):
        position = document.position(*path, key=key)
        return position.line, position.column

    assert at("name") == (1, 7)
    assert at("params", "城市") == (3, 7)
    assert at("params", "城市", key=True) == (3, 3)
    assert at("params", "list", 1, "deep") == (4, 20)
    assert at("params", "list", 1, "absent") == (4, 13)
    assert at("params", "absent", "deeper", key=True) == (2, 1)
    assert at() == (1, 1)


@pytest.mark.parametrize(
    ("text", "word", "place"),
    [
        ("c: a > 1", "1", (1, 8)),
        ('c: "北京 > 天"', "天", (1, 10)),
        ("c: 'a > 1'", "1", (1, 9)),
        ("c: |\n  first\n   second > 2\n", "2", (3, 13)),
        ("c: >-\n  folded\n  text > 2\n", "2", (3, 10)),
        ("c: plain text\n   goes > on", "on", (2, 11)),
    ],
)
def test_offsets_inside_scalars(text, word, place):
    document = one(text)
    problem = document.problem("Code", "message", "c", offset=document.raw("c").index(word))
    assert (problem.line, problem.column) == place
    assert problem.source == text.split("\n")[place[0] - 1]


@given(st.lists(PRINTABLE.filter(lambda text: text and "\\" not in text and '"' not in text), min_size=1))
def test_every_character_of_a_quoted_text_is_found(words):
    text = "k: [" + ", ".join(f'"{word}"' for word in words) + "]"
    document = one(text)
    for index, word in enumerate(words):
        at = len(word) - 1
        problem = document.problem("Code", "message", "k", index, offset=at)
        assert text[problem.column - 1] == word[at] or word[at].isspace()


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_a_duplicate_key_names_both_lines():
    (problem,) = problems("city: a\nunits: b\ncity: c\n")
    assert (problem.code, problem.line, problem.column) == ("DuplicateKey", 3, 1)
    assert "lines 1 and 3" in problem.message
    assert problem.source == "city: c"


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        ("a: &x 1\nb: 2", "AliasRefused", (1, 4)),
        ("a: !!str 5", "TagRefused", (1, 4)),
        ("a: !custom {b: 1}", "TagRefused", (1, 4)),
        ("1: a", "KeyNotText", (1, 1)),
        ("true: a", "KeyNotText", (1, 1)),
        ("? [a]\n: b", "KeyNotText", (1, 3)),
        ("a: .inf", "NotJson", (1, 4)),
        ("a: [1, .NaN]", "NotJson", (1, 8)),
        ("a: 9223372036854775808", "NotJson", (1, 4)),
        ("a: 1e999", "NotJson", (1, 4)),
        ("a: b: c", "NotYaml", (1, 5)),
        ("a: [1", "NotYaml", (1, 6)),
        ("a:\n\tb: 1", "NotYaml", (2, 1)),
        ("\x00", "NotYaml", (1, 1)),
        ("a: \ud800", "NotYaml", (1, 4)),
        ("[" * 500, "NotYaml", (1, 101)),
        ("城市: {state.nodes.x}", "ReferenceSpelling", (1, 5)),
        ("城市: {$state.nodes.x}", "ReferenceSpelling", (1, 5)),
        ("城市: {city: ${params.city}}", "UnquotedReference", (1, 12)),
        ("a: [pdf/${params.city}/x]", "UnquotedReference", (1, 5)),
        ("a: {open: {choices: ${state.nodes.x}}}", "UnquotedReference", (1, 21)),
        ("when: {r: size(a, b)}", "FlowComma", (1, 11)),
        ("when: {a: b, c d}", "FlowComma", (1, 14)),
        ("when: [size(a, b) > 1]", "FlowComma", (1, 8)),
    ],
)
def test_refused_with_its_place(text, code, place):
    (problem,) = problems(text)
    assert (problem.code, problem.line, problem.column, problem.file) == (code, *place, "a.yaml")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("a: {state.nodes.x}", "write `${state.nodes.x}`"),
        ("a: {b: {state.nodes.x}}", 'write `"${state.nodes.x}"`'),
        ("a: {b: ${state.nodes.x}}", 'write `"${state.nodes.x}"`'),
        ('a: {b: ${state.nodes["中文"]}}', """write `'${state.nodes["中文"]}'`"""),
    ],
)
def test_the_right_spelling_is_named(text, hint):
    (problem,) = problems(text)
    assert problem.hint == hint


def test_all_problems_come_at_once_in_the_order_of_the_file():
    text = "b: {city: ${params.city}, d: [${x.y}]}\na: {state.nodes.x}\nc: 1\nc: 2\nd: *a\ne: !!int 3\n7: x\n"
    assert codes(text) == [
        "UnquotedReference", "UnquotedReference", "ReferenceSpelling", "DuplicateKey", "AliasRefused", "TagRefused",
        "KeyNotText",
    ]  # fmt: skip


def test_an_alias_bomb_is_refused_without_growing():
    layers = "\n".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 12))
    assert set(codes(f"l0: &l0 [x]\n{layers}")) == {"AliasRefused"}


def test_an_empty_value_after_a_colon_is_no_trap():
    assert one("a: {b: , c: 1}").data == {"a": {"b": None, "c": 1}}


def test_survey_gives_what_can_be_read_beside_the_problems():
    (document,), found = survey_documents("a: 1\nb: {c: ${x.y}}\nd: 2\n")
    assert document.data["a"] == 1
    assert document.data["d"] == 2
    assert [problem.code for problem in found] == ["UnquotedReference"]


@given(st.text() | st.text("{}[]$:, ab.\n\"'&*!#-"))
def test_any_text_is_read_or_refused_with_places(text):
    documents, found = survey_documents(text)
    assert documents or found or not text.strip() or not parse_documents(text)
    assert all(problem.line and problem.column for problem in found)


def test_files(tmp_path):
    path = tmp_path / "天气.yaml"
    path.write_bytes("\ufeff城市: 北京\r\n名: [x]\r\n".encode())
    (document,) = read_documents(path)
    assert document.data == {"城市": "北京", "名": ["x"]}
    assert document.position("名").line == 2
    path.write_bytes("a: 1\nb: \xff".encode("latin-1"))
    with pytest.raises(DocumentErrors) as caught:
        read_documents(path)
    assert (caught.value.problems[0].code, caught.value.problems[0].line) == ("NotYaml", 2)
    with pytest.raises(FileMissing):
        read_documents(tmp_path / "absent.yaml")


def test_negative_zero_and_large_floats_survive():
    data = one("a: -0.0\nb: 1.7976931348623157e308").data
    assert math.copysign(1, data["a"]) == -1
    assert data["b"] == 1.7976931348623157e308


def test_a_character_that_yaml_has_not_is_shown_at_its_place():
    with pytest.raises(DocumentErrors) as caught:
        parse_documents('城市: ok\n备注: "北\x7f京"\n', "a.yaml")
    (problem,) = caught.value.problems
    assert (problem.line, problem.column) == (2, 7)
