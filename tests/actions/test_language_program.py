"""Programs: a contract as bytes and back means the same; and that no text, however wrong, does more than be refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_infra.actions.language import (
    Contract,
    PlainSchemas,
    Surroundings,
    compile_actions,
    judged,
    read_program,
    write_program,
)
from agent_infra.actions.space.legality import legality_of
from agent_infra.actions.space.verdict import judge
from agent_infra.actions.tools import Tool, ToolRegistry
from agent_infra.content import json_bytes
from agent_infra.documents import survey_documents
from agent_infra.errors import ContractDrift, Problem
from agent_infra.testing.strategies import json_values, texts

INPUT = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "units": {"type": "string", "enum": ["metric", "imperial"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 14},
        "range": {"type": "array", "items": {"type": "integer"}},
        "extra": {},
    },
    "required": ["city"],
}
TOOLS = ToolRegistry()
TOOLS.register(Tool("weather", INPUT, None, lambda **_: {}, effects="idempotent", description="天气"))
TOOLS.register(Tool("undo", {"type": "object", "properties": {"id": {}}}, None, lambda **_: {}, effects="none"))
SCHEMAS = PlainSchemas({"user_intent": {"type": "object", "properties": {"city": {"type": "string"}}}})

REFERENCES = st.sampled_from(
    [
        "${state.nodes.user_intent.city}",
        "${state.nodes.a.b}",
        "x ${state.nodes.a.n} y",
        "${now}",
        "$${no}",
        "${agent.name}",
    ]
)
VALUES = st.one_of(REFERENCES, st.sampled_from(["metric", "北京", 3, 0, [1, 2], ["${state.nodes.a.n}"], {"a": None}]))
DOMAINS = st.fixed_dictionaries(
    {},
    optional={
        "enum": st.lists(st.sampled_from(["metric", "北京", 3, 1]), min_size=1, max_size=3),
        "minimum": st.one_of(st.integers(-3, 20), REFERENCES),
        "maximum": st.one_of(st.integers(-3, 20), REFERENCES),
        "items": st.fixed_dictionaries({}, optional={"maximum": st.one_of(st.integers(0, 9), REFERENCES)}),
        "default": VALUES,
        "description": st.just("说明"),
    },
)
PARAMS = st.dictionaries(
    st.sampled_from(list(INPUT["properties"])),
    st.one_of(VALUES, DOMAINS.map(lambda domain: {"open": domain})),
    max_size=5,
)
CONDITIONS = st.lists(
    st.sampled_from(
        [
            "state.nodes.a.n > 1",
            "state.nodes.user_intent.city == '北京'",
            "params.city != null",
            "params.units == 'metric'",
            "params.days < 5",
            "agent.name == 'planner'",
            "now > timestamp('2026-01-01T00:00:00Z')",
            "state.nodes.a.flag",
        ]
    ),
    max_size=3,
)
ACTIONS = st.fixed_dictionaries(
    {"name": st.sampled_from(["a", "天气-1"]), "tool": st.sampled_from(["weather", "weather@1.0.0"]), "params": PARAMS},
    optional={
        "preconditions": CONDITIONS,
        "postconditions": st.lists(st.sampled_from(["result.t != null", "result.t > params.days"]), max_size=2),
        "confidence": st.sampled_from(
            [{"min": 0.5}, {"min": 0, "below": "reject"}, {"min": 1, "below": {"fallback": "undo"}}]
        ),
        "resources": st.fixed_dictionaries({}, optional={"cpu": st.integers(0, 4), "gpu": st.floats(0, 2)}),
        "effects": st.sampled_from(["idempotent", "once"]),
        "timeout": st.sampled_from([3, "1.5m", {"idle": "2s"}, {"idle": 1, "total": 2}]),
        "retries": st.sampled_from([1, {"times": 2, "wait": "10ms", "on": ["TimedOut"]}]),
        "compensation": st.sampled_from([{"action": "undo", "with": {"id": "${result.id}"}}]),
        "result": st.sampled_from([{"type": "t"}, {"type": "t", "key": "k/${params.city}", "ttl": "1h"}]),
        "refers": st.dictionaries(st.sampled_from(["city", "城市"]), st.just("${params.city}"), max_size=2),
    },
)
BINDINGS = st.fixed_dictionaries(
    {"user_intent": st.fixed_dictionaries({}, optional={"city": st.sampled_from(["北京", "x", 5])})},
    optional={"a": st.fixed_dictionaries({}, optional={
        "n": st.one_of(st.integers(0, 20), st.just("3")), "b": st.sampled_from(["metric", 2]), "flag": st.booleans()})},
)  # fmt: skip
SPECS = st.dictionaries(
    st.sampled_from([*INPUT["properties"], "town"]),
    st.sampled_from(["metric", "北京", "x", 3, 0, 15, [1, 2], [9], None, True]),
    max_size=4,
)


def survey(text: str):
    documents, problems = survey_documents(text, "动作.yaml")
    return compile_actions(documents, Surroundings(TOOLS, SCHEMAS, {}), problems)


def outside(nodes: dict[str, Any]) -> dict[str, Any]:
    return {"state": {"nodes": nodes}, "agent": {"name": "planner"}, "now": "2026-11-30T00:00:00+00:00"}


def verdicts(contract: Contract, bindings: dict[str, Any], params: dict[str, Any]) -> list[Any]:
    standing = legality_of(contract, bindings)
    resolved, problems = contract.resolve(bindings, params)
    inside = bindings | {"params": resolved, "result": {"t": 5, "id": "x"}}
    spec = {"tool": contract.name, "params": params, "confidence": 0.7}
    verdict = judge(spec, {contract.name: standing}, confidence=True)
    return [
        standing.reasons,
        standing.params_schema(),
        standing.given,
        resolved,
        problems,
        [judged("pre", each, inside) for each in contract.preconditions],
        [judged("post", each, inside) for each in contract.postconditions],
        [list(each) for each in contract.references(inside)],
        contract.result and contract.result.key_for(inside).value,
        contract.compensation and contract.compensation.fill.resolve(inside).value,
        [verdict.ok, verdict.kind, list(verdict.problems), verdict.needs],
    ]


PLAIN = ("name", "tool", "tool_version", "description", "input_schema", "resources", "effects", "timeout", "confidence",
         "hash", "source", "file", "retries", "required_open")  # fmt: skip


@given(ACTIONS, BINDINGS, SPECS)
@settings(max_examples=150)
def test_a_contract_comes_back_from_its_program(action, nodes, params):
    found = survey(json.dumps(action, ensure_ascii=False))
    for contract in found.contracts:
        again = read_program(write_program(contract))
        assert again == contract
        assert list(again.params) == list(contract.params)
        assert write_program(again) == write_program(contract)
        for name in PLAIN:
            assert getattr(again, name) == getattr(contract, name), name
        assert [reading.reads for reading in again.readings] == [reading.reads for reading in contract.readings]
        bindings = outside(nodes)
        assert json_bytes(verdicts(again, bindings, params)) == json_bytes(verdicts(contract, bindings, params))


@given(ACTIONS)
@settings(max_examples=60)
def test_most_generated_actions_are_right_or_say_why(action):
    check_places(json.dumps(action, ensure_ascii=False))


KEYS = ["name", "tool", "params", "preconditions", "postconditions", "confidence", "resources", "effects", "timeout",
        "retries", "compensation", "result", "refers", "use", "template", "version"]  # fmt: skip
WORDS = st.one_of(
    texts(),
    st.sampled_from(["weather", "weather@2", "a", "${", "${state.nodes.x", "${state}", "$state.nodes.x", "{params.x}", "1s",
                     "none", "@", "params.city ==", "'", "\x85"]),
)  # fmt: skip
ANY = st.recursive(
    st.one_of(WORDS, json_values(3)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.one_of(st.sampled_from([*KEYS, "open", "min", "below", "action", "with", "key", "items",
                                                   "default", "enum", "choices", "on", "times", "city"]), texts()),
                        inner, max_size=4),
    ),
    max_leaves=8,
)  # fmt: skip


@given(st.dictionaries(st.sampled_from(KEYS), ANY, max_size=8), ACTIONS)
@settings(max_examples=150)
def test_a_wrong_action_is_refused_with_places_inside_its_file(wrong, action):
    check_places(json.dumps({**action, **wrong}, ensure_ascii=False))


@given(st.lists(st.dictionaries(st.sampled_from(KEYS), ANY, max_size=4), max_size=3), st.integers(0, 400), WORDS)
def test_a_text_with_a_hole_in_it_too(documents, at, word):
    text = "\n---\n".join(json.dumps(document, ensure_ascii=False, indent=1) for document in documents)
    check_places(text[:at] + word + text[at + 3 :])


def check_places(text: str) -> None:
    """Compiles, or gives problems with positions inside the text."""
    found = survey(text)
    for problem in [*found.problems, *found.warnings]:
        assert isinstance(problem, Problem)
        assert problem.file == "动作.yaml"
        assert problem.message
        assert problem.line is not None
        assert problem.column is not None
        assert 1 <= problem.line <= len(text.splitlines()) + 1
        assert problem.source is None or 1 <= problem.column <= len(problem.source) + 1, (problem, text)
        assert str(problem)
    if not found.problems:
        for contract in found.contracts:
            assert read_program(write_program(contract)) == contract


@pytest.mark.parametrize("spoil", [b"", b"x", b"\x90", b"\xc1"])
def test_what_is_no_program_is_refused(spoil):
    with pytest.raises(ContractDrift):
        read_program(spoil)


def test_a_program_of_another_format_is_refused():
    (contract,) = survey("name: a\ntool: weather\nparams: {city: x}").contracts
    program = bytearray(write_program(contract))
    assert program[3] == 1  # an array of 20, then the format
    program[3] = 2
    with pytest.raises(ContractDrift, match="format 2"):
        read_program(bytes(program))


def test_conditions_know_now_as_a_time_and_values_as_text():
    condition = "now - duration('1h') > timestamp('2026-11-29T22:00:00Z')"
    text = f"name: a\ntool: weather\nparams: {{city: '${{now}}'}}\npreconditions: [\"{condition}\"]\n"
    (contract,) = survey(text).contracts
    for each in (contract, read_program(write_program(contract))):
        bindings = outside({})
        assert each.preconditions[0].evaluate(bindings).holds
        assert each.resolve(bindings, {})[0] == {"city": "2026-11-30T00:00:00+00:00"}
