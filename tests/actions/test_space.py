"""The action space: what is legal at a version, and the verdict on specs."""

from __future__ import annotations

import re

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_infra.actions.language import compile_contracts, implied_contract
from agent_infra.actions.space import action_space
from agent_infra.actions.tools import Tool, ToolRegistry
from agent_infra.clock import ManualClock
from agent_infra.documents import parse_documents
from agent_infra.errors import ContractUnknown, NotEnumerable
from agent_infra.state import StateGraph, open_memory

INPUT = {
    "type": "object",
    "properties": {
        "file_id": {"type": "string"},
        "format": {"type": "string", "enum": ["markdown", "text", "json"]},
        "pages": {"type": "integer", "minimum": 1},
        "ocr": {"type": "boolean"},
    },
    "required": ["file_id", "format"],
    "additionalProperties": False,
}

PARSE = """\
name: parse
tool: pdf_parser
params:
  file_id: ${state.nodes.pdf_report.id}
  format: {open: {enum: [markdown, text]}}
  pages: {open: {maximum: "${state.nodes.pdf_report.pages}"}}
preconditions: ["state.nodes.pdf_report.status == 'ready'"]
confidence: {min: 0.9, below: {fallback: skip}}
"""
CHOOSE = """\
name: choose
tool: pdf_parser
params: {file_id: x, format: {open: {}}, ocr: {open: {}}}
preconditions: ["params.format != 'json'", "params.format == 'text' || params.ocr == true || params.ocr == null"]
"""


def run(**params):
    return {}


@pytest.fixture
def tools() -> ToolRegistry:
    registry = ToolRegistry()
    registry.register(Tool("pdf_parser", INPUT, None, run, effects="none", description="Reads a PDF."))
    registry.register(Tool("skip", {"type": "object", "properties": {}}, None, run, effects="none"))
    return registry


@pytest.fixture
def graph() -> StateGraph:
    home = open_memory(clock=ManualClock())
    return StateGraph("会话", engine=home.engine)


def contracts(tools: ToolRegistry, *texts: str):
    return compile_contracts(parse_documents("---\n".join(texts), "a.yaml"), tools)


def report(graph: StateGraph, **changes):
    data = {"status": "ready", "pages": 5, "title": "年报"} | changes
    return graph.add_node("pdf_report", data, key="pdf_report")


# -- legality ----------------------------------------------------------------------------------------------------------


def test_illegal_with_every_reason(tools, graph):
    space = action_space(contracts(tools, PARSE), graph)
    assert space.legal == []
    ((contract, reason),) = space.illegal
    assert contract.name == "parse"
    assert "/file_id: `state.nodes.pdf_report` is absent" in reason
    assert "/pages: `state.nodes.pdf_report` is absent" in reason
    assert "state.nodes.pdf_report.status == 'ready' (`state.nodes.pdf_report` is absent)" in reason
    assert space.json_schema() == {"not": {}}
    assert space.openai_tools() == []
    assert space.enumerate() == []


def test_the_failing_condition_with_its_value(tools, graph):
    report(graph, status="damaged")
    ((_, reason),) = action_space(contracts(tools, PARSE), graph).illegal
    assert reason == "state.nodes.pdf_report.status == 'ready' (state.nodes.pdf_report.status is 'damaged')"


def test_legal_with_given_values_outside_the_schema(tools, graph):
    node = report(graph)
    space = action_space(contracts(tools, PARSE), graph)
    assert [contract.name for contract in space.legal] == ["parse"]
    assert space.fixed == {"parse": {"file_id": node.id}}
    assert space.version == graph.version
    (spec_schema,) = space.json_schema()["anyOf"]
    params = spec_schema["properties"]["params"]
    assert set(params["properties"]) == {"format", "pages"}
    assert params["properties"]["format"]["enum"] == ["markdown", "text"]
    assert (params["properties"]["pages"]["minimum"], params["properties"]["pages"]["maximum"]) == (1, 5)
    assert params["required"] == ["format"]
    (tool,) = space.openai_tools()
    assert tool["function"] == {"name": "parse", "description": "Reads a PDF.", "parameters": params}


def test_a_call_of_an_openai_tool_leads_back_to_its_spec(tools, graph):
    named = "name: 选择.格式\n" + CHOOSE.partition("\n")[2]
    space = action_space(contracts(tools, named), graph)
    (tool,) = space.openai_tools()
    function = tool["function"]["name"]
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", function), "the chat API takes no other names"
    assert tool["function"]["description"] == "选择.格式: Reads a PDF."
    spec = space.spec_of_call(function, '{"format": "text"}')
    assert spec == {"tool": "选择.格式", "params": {"format": "text"}}
    assert space.validate(spec).ok
    assert space.spec_of_call("选择.格式", {"format": "text"}) == spec


@pytest.mark.parametrize(
    ("name", "arguments", "reason"),
    [
        ("choose", '{"format": "text"', "must be an object"),
        ("choose", '{"format": "json", "format": "text"}', "must be an object"),
        ("choose", "[]", "must be an object"),
        ("choose", '{"format": "html"}', "html"),
        ("chose", '{"format": "text"}', "did you mean 'choose'"),
    ],
)
def test_a_malformed_call_is_invalid_and_not_mended(tools, graph, name, arguments, reason):
    space = action_space(contracts(tools, CHOOSE), graph)
    verdict = space.validate(space.spec_of_call(name, arguments))
    assert verdict.kind == "invalid"
    assert reason in verdict.reason


def test_an_earlier_version_has_its_own_space(tools, graph):
    report(graph, status="damaged")
    before = graph.version
    report(graph)
    assert action_space(contracts(tools, PARSE), graph).legal
    past = action_space(contracts(tools, PARSE), graph.at(before))
    assert not past.legal
    assert past.version == before


def test_agent_and_now_can_be_asked_for(tools, graph):
    text = """name: a
tool: skip
preconditions: ["agent.name == 'planner'", "now < timestamp('2027-01-01T00:00:00Z')"]
"""
    assert action_space(contracts(tools, text), graph, "planner").legal
    assert not action_space(contracts(tools, text), graph, "客服").legal


def test_implied_contracts_stand_beside_others(tools, graph):
    space = action_space([*contracts(tools, CHOOSE), implied_contract(tools.get("skip"))], graph)
    assert [contract.name for contract in space.legal] == ["choose", "skip"]
    assert {"tool": "skip", "params": {}} in space.enumerate()


# -- domains -----------------------------------------------------------------------------------------------------------


def test_choices_are_filtered_by_preconditions(tools, graph):
    space = action_space(contracts(tools, CHOOSE), graph)
    (spec,) = space.json_schema()["anyOf"]
    assert spec["properties"]["params"]["properties"]["format"]["enum"] == ["markdown", "text"]
    assert space.enumerate() == [
        {"tool": "choose", "params": params}
        for params in (
            {"format": "markdown", "ocr": True},
            {"format": "markdown"},
            {"format": "text", "ocr": True},
            {"format": "text", "ocr": False},
            {"format": "text"},
        )
    ]


def test_choices_from_the_graph_are_those_that_the_tool_takes(tools, graph):
    text = """name: a
tool: pdf_parser
params: {file_id: x, format: {open: {choices: "${state.nodes.pdf_report.formats}"}}}
"""
    report(graph, formats=["json", "docx", "text"])
    space = action_space(contracts(tools, text), graph)
    assert [spec["params"]["format"] for spec in space.enumerate()] == ["json", "text"]
    report(graph, formats=["docx"])
    ((_, reason),) = action_space(contracts(tools, text), graph).illegal
    assert "there is nothing to choose from" in reason
    report(graph, formats="text")
    ((_, reason),) = action_space(contracts(tools, text), graph).illegal
    assert "must be a list" in reason


def test_no_choice_fulfils_the_condition(tools, graph):
    text = """name: a
tool: pdf_parser
params: {file_id: x, format: {open: {}}}
preconditions: ["params.format == 'pdf'"]
"""
    ((_, reason),) = action_space(contracts(tools, text), graph).illegal
    assert reason == "/format: no choice fulfils params.format == 'pdf'"


def test_an_optional_parameter_that_may_only_be_left_out(tools, graph):
    text = """name: a
tool: pdf_parser
params: {file_id: x, format: text, ocr: {open: {}}}
preconditions: ["params.ocr == null"]
"""
    space = action_space(contracts(tools, text), graph)
    assert space.enumerate() == [{"tool": "a", "params": {}}]
    assert not space.validate({"tool": "a", "params": {"ocr": True}}).ok


def test_what_cannot_be_listed(tools, graph):
    report(graph)
    space = action_space([*contracts(tools, PARSE), *contracts(tools, CHOOSE)], graph)
    with pytest.raises(NotEnumerable, match="'pages'"):
        space.enumerate()
    assert len(space.enumerate(only="choose")) == 5
    assert len(space.enumerate(only=["choose"])) == 5
    with pytest.raises(NotEnumerable, match="more than 3"):
        space.enumerate(only="choose", limit=3)
    with pytest.raises(ContractUnknown):
        space.enumerate(only="chose")


# -- hash --------------------------------------------------------------------------------------------------------------


def test_the_hash_is_of_legality_and_domains(tools, graph):
    def hash_now() -> str:
        return action_space(contracts(tools, PARSE, CHOOSE), graph).hash

    illegal = hash_now()
    report(graph)
    legal = hash_now()
    assert legal != illegal
    report(graph, title="another document, another id")
    assert hash_now() == legal
    report(graph, pages=6)
    assert hash_now() != legal
    report(graph, status="damaged")
    assert hash_now() == illegal


# -- verdicts ----------------------------------------------------------------------------------------------------------

GOOD = {"tool": "parse", "params": {"format": "markdown", "pages": 5}, "confidence": 0.92}


@pytest.fixture
def space(tools, graph):
    report(graph)
    return action_space(contracts(tools, PARSE, CHOOSE), graph)


def test_a_valid_spec(space):
    verdict = space.validate(GOOD)
    assert (verdict.ok, verdict.kind, verdict.reason, verdict.problems, verdict.needs) == (
        True,
        "valid",
        None,
        (),
        None,
    )
    assert space.validate('{"tool": "parse", "params": {"format": "text"}, "confidence": 1}').ok
    assert space.validate(GOOD | {"params": GOOD["params"] | space.fixed["parse"]}).ok


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"tool": "pars"}, "there is no action or tool 'pars'; did you mean 'parse'?"),
        ({"tool": "pdf_parser"}, "several actions use the tool 'pdf_parser': name one of parse, choose"),
        ({"tool": 5}, "a spec needs `tool`, the name of an action"),
        ({"arguments": {}}, "there is no key `arguments` in a spec"),
        ({"params": [1]}, "`params` must be an object, not [1]"),
        ({"params": {"format": "markdown", "pages": 6}}, "/pages: 6 is greater than the maximum of 5"),
        ({"params": {"format": "markdown", "pages": 0}}, "/pages: 0 is less than the minimum of 1"),
        ({"params": {"format": "json"}}, '/format: "json" is not one of'),
        ({"params": {"format": "markdown", "file_id": "doc_789"}}, "/file_id: it is given by the contract"),
        ({"params": {"format": "markdown", "page_range": [1, 5]}}, "/page_range: parse has no parameter of that name"),
        ({"params": {}}, "/format: it is left open, and nothing fills it"),
        ({"confidence": 2}, "`confidence` must be a number from 0 to 1, not 2"),
        ({"confidence": True}, "`confidence` must be a number from 0 to 1, not True"),
        ({"params": {"format": float("nan")}}, "/params/format: nan is not a JSON number"),
        ({"params": {"format": {1, 2}}}, "/params/format: a set is not a JSON value"),
    ],
)
def test_an_invalid_spec_with_its_reason(space, change, reason):
    verdict = space.validate(GOOD | change)
    assert (verdict.ok, verdict.kind, verdict.needs) == (False, "invalid", None)
    assert len(verdict.problems) == 1
    assert reason in verdict.reason


def test_a_precondition_over_open_parameters(space):
    verdict = space.validate({"tool": "choose", "params": {"format": "markdown", "ocr": False}})
    assert verdict.problems == (
        "params.format == 'text' || params.ocr == true || params.ocr == null "
        "(params.format is 'markdown', params.ocr is False)",
    )


def test_all_reasons_at_once(space):
    spec = {"tool": "parse", "params": {"file_id": "doc_789", "pages": 9}, "confidence": 0.5, "why": "因为"}
    verdict = space.validate(spec)
    assert len(verdict.problems) == 5
    assert verdict.needs is None
    for part in ("`why`", "/file_id", "/pages", "/format", "0.5 is under the bar; at least 0.9"):
        assert part in verdict.reason


def test_an_illegal_contract_gives_its_reason(tools, graph):
    report(graph, status="damaged")
    verdict = action_space(contracts(tools, PARSE), graph).validate(GOOD)
    assert verdict.problems == (
        "state.nodes.pdf_report.status == 'ready' (state.nodes.pdf_report.status is 'damaged')",
    )


def test_confidence_under_the_bar_or_missing(space):
    for spec in (GOOD | {"confidence": 0.5}, {"tool": "parse", "params": {"format": "text"}}):
        verdict = space.validate(spec)
        assert (verdict.ok, verdict.kind, verdict.needs) == (False, "invalid", "skip")
        assert space.validate(spec, confidence=False).ok
    assert space.validate({"tool": "choose", "params": {"format": "text"}}).ok


def test_the_tool_names_its_only_contract(tools, graph):
    text = "name: 跳过\ntool: skip\n"
    assert action_space(contracts(tools, text), graph).validate({"tool": "skip", "params": {}}).ok


@pytest.mark.parametrize("said", ["I would rather not.", "", None, 5, [GOOD], "[1]", "null", b"{}", object()])
def test_what_is_not_a_call(space, said):
    assert space.validate(said).kind == "not_a_call"


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ('{"tool":"parse","params":{"format":"text"}', "it is no JSON"),
        ('{"tool":"parse","tool":"choose","params":{}}', "a key stands twice"),
        ('{"name":"w","parameters":{"path":"a"}}', "`parameters`"),
        ("{}", "a spec needs `tool`"),
    ],
)
def test_a_malformed_call_is_invalid(space, said, reason):
    verdict = space.validate(said)
    assert verdict.kind == "invalid"
    assert reason in verdict.reason


def test_every_listed_spec_is_valid_and_within_the_schema(tools, graph):
    report(graph)
    bounded = PARSE.replace('{maximum: "${state.nodes.pdf_report.pages}"}', "{enum: [1, 2]}")
    space = action_space(contracts(tools, bounded, CHOOSE), graph)
    schema = jsonschema_rs.validator_for(space.json_schema(), offline=True)
    listed = space.enumerate()
    assert len(listed) == 11
    assert all(space.validate(spec).ok and schema.is_valid(spec) for spec in listed)


PARAMS = st.fixed_dictionaries(
    {},
    optional={
        "format": st.sampled_from(["markdown", "text", "json", "docx"]) | st.integers(),
        "ocr": st.booleans() | st.none(),
        "pages": st.integers(0, 9),
    },
)


@given(params=PARAMS)
def test_a_spec_is_valid_exactly_if_it_is_listed(params):
    registry = ToolRegistry()
    registry.register(Tool("pdf_parser", INPUT, None, run, effects="none"))
    space = action_space(contracts(registry, CHOOSE), StateGraph("s", engine=open_memory().engine))
    spec = {"tool": "choose", "params": params}
    assert space.validate(spec).ok == (spec in space.enumerate())


SAID = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["tool", "params", "confidence", "x"]), inner),
)


@given(SAID)
def test_validating_never_raises(said):
    registry = ToolRegistry()
    registry.register(Tool("pdf_parser", INPUT, None, run, effects="none"))
    space = action_space(contracts(registry, CHOOSE), StateGraph("s", engine=open_memory().engine))
    assert not space.validate(said).ok
