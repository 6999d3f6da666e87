"""Fields: typed values out of a document, every wrong one a problem at its place."""

from __future__ import annotations

import pytest

from agent_infra.documents import Fields, did_you_mean, parse_documents, seconds_of


def fields(text: str) -> Fields:
    (document,) = parse_documents(text, "a.yaml")
    return Fields(document, [])


def test_what_is_right_is_read_without_problems():
    found = fields(
        "名: 天气\nversion: 1.10\nlist: [a, 2]\nsize: 3\nwait: 5m\nword: once\nrange: [-1, 1.5]\nin: {a: null}\n"
    )
    assert found.text("名") == "天气"
    assert found.text("version") == "1.10"
    assert found.texts("list") == ("a", "2")
    assert found.texts("名") == ("天气",)
    assert found.sequence("list") == ["a", 2]
    assert found.number("size", low=3, high=3) == 3.0
    assert found.seconds("wait") == 300.0
    assert found.choice(("none", "once"), "word") == "once"
    assert found.span("range") == (-1.0, 1.5)
    assert found.mapping("in", known=["a"]) == {"a": None}
    assert found.has("in", "a")
    assert not found.has("in", "b")
    assert found.get("list", 1) == 2
    assert found.get("list", 2) is None
    assert found.sequence("absent") == []
    assert found.place("wait") == "a.yaml:5"
    assert found.problems == []


@pytest.mark.parametrize(
    ("text", "read", "code", "message"),
    [
        ("a: [1]", lambda f: f.text("a"), "WrongType", "`a` must be a text, not a list"),
        ("a: ''", lambda f: f.text("a"), "WrongType", "`a` must be a text, not the text ``"),
        ("a: null", lambda f: f.text("a"), "WrongType", "`a` must be a text, not nothing"),
        ("a: [{}]", lambda f: f.texts("a"), "WrongType", "`a.0` must be a text, not a mapping"),
        ("a: x", lambda f: f.sequence("a"), "WrongType", "`a` must be a list, not the text `x`"),
        ("a: x", lambda f: f.mapping("a"), "WrongType", "`a` must be a mapping, not the text `x`"),
        ("a: true", lambda f: f.number("a"), "WrongType", "`a` must be a number, not true"),
        ("a: -1", lambda f: f.number("a", low=0), "WrongType", "`a` must be a number of at least 0, not the number -1"),
        ("a: 2", lambda f: f.number("a", low=0, high=1), "WrongType", "a number from 0 to 1, not the number 2"),
        ("a: soon", lambda f: f.seconds("a"), "BadDuration", "`a` is the text `soon`, which is no duration"),
        ("a: onec", lambda f: f.choice(("once",), "a"), "UnknownWord", "`a` must be one of once, not the text `onec`"),
        ("a: [2, 1]", lambda f: f.span("a"), "BadRange", "`a` is a list"),
        ("a: [x, 1]", lambda f: f.span("a"), "WrongType", "`a.0` must be a number"),
    ],
)
def test_what_is_wrong_becomes_a_problem(text, read, code, message):
    found = fields(text)
    assert not any(read(found) or [])
    (problem,) = found.problems
    assert problem.code == code
    assert message in problem.message
    assert (problem.file, problem.line) == ("a.yaml", 1)


def test_unknown_keys_are_named_with_what_is_meant():
    found = fields("window: 30s\nwiat: 5s\nzzz: 1\n")
    found.mapping(known=["wait", "window"])
    assert [(problem.code, problem.line, problem.column, problem.hint) for problem in found.problems] == [
        ("UnknownKey", 2, 1, "did you mean `wait`?"),
        ("UnknownKey", 3, 1, "known are wait, window"),
    ]


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("30s", 30), ("5 m", 300), ("1.5h", 5400), ("2d", 172800), ("20ms", 0.02), (3, 3), (0.5, 0.5), (0, 0)],
)
def test_durations(value, seconds):
    assert seconds_of(value) == seconds


@pytest.mark.parametrize(
    "value", ["", "s", "5", "5 years", "-5s", -1, True, None, [], "1e3s", float("inf"), float("nan")]
)
def test_no_durations(value):
    assert seconds_of(value) is None


def test_hints():
    assert did_you_mean("untis", ["units", "city"]) == "did you mean `units`?"
    assert did_you_mean("x", []) == "known are none"
