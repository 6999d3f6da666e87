"""Words of the language beside params and conditions: versions of tools, retries, compensation, defaults, domains."""

from __future__ import annotations

import pytest

from agent_infra.actions.language import (
    Compensation,
    PlainSchemas,
    Retries,
    Surroundings,
    compile_actions,
    compile_contracts,
)
from agent_infra.actions.language.contract import RETRIED
from agent_infra.actions.tools import Tool, ToolRegistry
from agent_infra.documents import parse_documents

PDF = {
    "type": "object",
    "properties": {
        "file_id": {"type": "string"},
        "page_range": {"type": "array", "items": {"type": "integer", "minimum": 1}},
        "format": {"type": "string", "enum": ["markdown", "text"]},
        "crop": {
            "type": "object",
            "properties": {"width": {"type": "number", "minimum": 0}},
            "additionalProperties": False,
        },
        "pair": {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "integer"}], "items": False},
    },
    "required": ["file_id", "page_range"],
    "additionalProperties": False,
}
REFUND = {"type": "object", "properties": {"receipt": {"type": "string"}}, "required": ["receipt"]}


@pytest.fixture
def tools() -> ToolRegistry:
    registry = ToolRegistry()
    registry.register(Tool("pdf", PDF, None, lambda **_: {}, version="2.1.0", effects="idempotent"))
    registry.register(Tool("pay", {"type": "object"}, None, lambda **_: {}, effects="once"))
    registry.register(Tool("refund", REFUND, None, lambda **_: {}, effects="idempotent"))
    return registry


def survey(text: str, tools: ToolRegistry, **around):
    documents = parse_documents(text, "动作.yaml")
    return compile_actions(documents, Surroundings(tools, **({"contracts": {}} | around)))


def compiled(text: str, tools: ToolRegistry, **around):
    (contract,) = survey(text, tools, **around).checked()
    return contract


def problem(text: str, tools: ToolRegistry, **around):
    (found,) = survey(text, tools, **around).problems
    return found.code, found.line, found.column, found.hint


def pdf(*lines: str, tool: str = "pdf") -> str:
    params = "params: {file_id: x, page_range: [1, 2]}" if not any(line.startswith("params") for line in lines) else ""
    return "\n".join([f"name: parse\ntool: {tool}", *([params] if params else []), *lines]) + "\n"


# -- versions of tools ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "tool",
    [
        "pdf",
        "pdf@2.1.0",
        "pdf@2.1",
        "pdf@>=2",
        '"pdf@>=2, <3"',
        "{name: pdf}",
        '{name: pdf, version: ">=2.0.9"}',
        "{name: pdf, version: 2.1}",
        '{name: pdf, version: "!=2.0"}',
    ],
)
def test_versions_that_are_there(tools, tool):
    assert compiled(pdf(tool=tool), tools).tool_version == "2.1.0"


@pytest.mark.parametrize(
    ("tool", "column"),
    [
        ("pdf@2.2.0", 7),
        ("pdf@>=3", 7),
        ("pdf@<2.1", 7),
        ("pdf@2", 7),
        ('{name: pdf, version: ">2.1.0"}', 28),
        ('{name: pdf, version: "!=2.1"}', 28),
        ("pdf@beta", 7),
    ],
)
def test_versions_that_are_not(tools, tool, column):
    code, line, at, hint = problem(pdf(tool=tool), tools)
    assert (code, line, at) == ("ToolVersion", 2, column)
    assert "pdf@2.1.0" in hint


def test_versions_go_by_numbers_not_by_letters():
    tools = ToolRegistry()
    tools.register(Tool("pdf", {"type": "object"}, None, dict, version="10.0", effects="none"))
    assert compiled("name: a\ntool: pdf@>=9.2", tools).tool_version == "10.0"


def test_a_version_without_numbers_is_only_equal_to_itself():
    tools = ToolRegistry()
    tools.register(Tool("pdf", {"type": "object"}, None, dict, version="nightly", effects="none"))
    assert compiled("name: a\ntool: pdf@nightly", tools).tool_version == "nightly"
    assert problem("name: a\ntool: pdf@>=1", tools)[0] == "ToolVersion"


@pytest.mark.parametrize("tool", ["pdf@", "pdf@~=2", "pdf@>=beta", '"pdf@1,,2"', "{name: pdf, version: '>= '}"])
def test_wishes_that_mean_nothing(tools, tool):
    assert problem(pdf(tool=tool), tools)[0] in ("BadVersion", "WrongType")


# -- retries -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "retries"),
    [
        ("2", Retries(2)),
        ("{times: 2}", Retries(2, 1.0, RETRIED)),
        ("{times: 3, wait: 250ms, on: [TimedOut, ToolFailed]}", Retries(3, 0.25, ("TimedOut", "ToolFailed"))),
        ("{times: 1, wait: 0}", Retries(1, 0.0)),
    ],
)
def test_retries(tools, written, retries):
    assert compiled(pdf(f"retries: {written}"), tools).retries == retries


@pytest.mark.parametrize(
    ("written", "code", "column"),
    [
        ("0", "WrongType", 10),
        ("1.5", "WrongType", 10),
        ("many", "WrongType", 10),
        ("{wait: 1s}", "KeyMissing", 10),
        ("{times: 2, on: [TimeOut]}", "UnknownWord", 26),
        ("{times: 2, on: []}", "BadRetries", 25),
        ("{times: 2, wait: soon}", "BadDuration", 27),
        ("{times: 2, tries: 1}", "UnknownKey", 21),
    ],
)
def test_retries_that_mean_nothing(tools, written, code, column):
    assert problem(pdf(f"retries: {written}"), tools)[:3] == (code, 4, column)


def test_what_has_an_effect_once_is_never_retried(tools):
    code, line, column, hint = problem("name: a\ntool: pay\nretries: {times: 2}\n", tools)
    assert (code, line, column) == ("RetriesOnce", 3, 1)
    assert "idempotent" in hint
    assert problem(pdf("effects: once", "retries: 1"), tools)[0] == "RetriesOnce"


# -- compensation --------------------------------------------------------------------------------------------------------

PAY = "name: pay\ntool: pay\n"


def test_a_compensation_sees_the_result(tools):
    undo = compiled(PAY + 'compensation: {action: refund, with: {receipt: "${result.receipt}"}}', tools).compensation
    assert isinstance(undo, Compensation)
    assert undo.action == "refund"
    assert undo.fill.resolve({"result": {"receipt": "收据"}}).value == {"receipt": "收据"}


@pytest.mark.parametrize(
    ("written", "code", "column"),
    [
        ("{action: refnd}", "ActionUnknown", 24),
        ("{action: refund}", "ParamMissing", 1),
        ("{action: refund, with: {receipt: x, why: y}}", "ParamUnknown", 51),
        ('{action: refund, with: {receipt: "${reslt.x}"}}', "ExpressionName", 51),
        ("{with: {receipt: x}}", "KeyMissing", 15),
        ("refund", "WrongType", 15),
        ("{action: refund, wth: {}}", "UnknownKey", 32),
    ],
)
def test_compensations_that_lead_nowhere(tools, written, code, column):
    found = survey(PAY + f"compensation: {written}", tools).problems
    assert (code, 3, column) in [(each.code, each.line, each.column) for each in found]


def test_a_compensation_may_be_an_action_of_the_same_file_or_of_the_library(tools):
    undo = "name: undo\ntool: refund\nparams: {receipt: fixed}\n"
    text = PAY + "compensation: {action: undo}\n"
    assert len(survey(f"{text}---\n{undo}", tools).checked()) == 2
    (known,) = compile_contracts(parse_documents(undo), tools)
    assert compiled(text, tools, contracts={"undo": known}).compensation.action == "undo"
    assert problem(text, tools)[0] == "ActionUnknown"


def test_a_wrong_action_isnt_called_unknown_too(tools):
    undo = "name: undo\ntool: refund\nparams: {recept: fixed}\n"
    codes = {each.code for each in survey(f"{PAY}compensation: {{action: undo}}\n---\n{undo}", tools).problems}
    assert codes == {"ParamUnknown", "ParamMissing"}


def test_a_fallback_is_an_action_too(tools):
    text = pdf("confidence: {min: 0.5, below: {fallback: pars}}")
    assert problem(text, tools) == ("ActionUnknown", 4, 42, "did you mean `parse`?")
    assert compiled(text.replace("pars}", "refund}"), tools).confidence.fallback == "refund"


# -- domains -------------------------------------------------------------------------------------------------------------

PAGES = """\
name: parse
tool: pdf
params:
  file_id: x
  page_range: {open: {items: {minimum: 2, maximum: "${state.nodes.report.data.pages}"}, minItems: 2, maxItems: 2}}
"""
STATE = {"state": {"nodes": {"report": {"data": {"pages": 12}}}}}


@pytest.mark.parametrize(
    ("chosen", "wrong"), [([2, 12], 0), ([1, 5], 1), ([2, 13], 1), ([2], 1), ([1, 13], 2), (["2", 3], 1), ([2, 2.5], 1)]
)
def test_a_page_range_within_the_document(tools, chosen, wrong):
    problems = compiled(PAGES, tools).resolve(STATE, {"page_range": chosen})[1]
    assert len(problems) == wrong
    assert all(each.startswith("/page_range") for each in problems)


def test_the_narrower_bound_is_what_a_policy_sees(tools):
    contract = compiled(PAGES, tools)
    schema, reason = contract.open["page_range"].narrowed(STATE)
    assert reason is None
    assert schema["items"] == {"type": "integer", "minimum": 2, "maximum": 12}
    wide = compiled(PAGES.replace("minimum: 2", "minimum: -5"), tools)
    assert wide.open["page_range"].narrowed(STATE)[0]["items"]["minimum"] == 1


def test_a_document_without_pages_leaves_nothing_to_choose(tools):
    state = {"state": {"nodes": {"report": {"data": {"pages": 1}}}}}
    schema, reason = compiled(PAGES, tools).open["page_range"].narrowed(state)
    assert schema is None
    assert "nothing to choose" in reason


def test_items_chosen_from_the_graph(tools):
    text = pdf('params: {file_id: x, page_range: {open: {items: {choices: "${state.nodes.report.data.good}"}}}}')
    state = {"state": {"nodes": {"report": {"data": {"good": [1, 5, "x", -3]}}}}}
    contract = compiled(text, tools)
    assert contract.open["page_range"].narrowed(state)[0]["items"]["enum"] == [1, 5]
    assert contract.resolve(state, {"page_range": [5, 1]})[1] == []
    assert len(contract.resolve(state, {"page_range": [5, 2]})[1]) == 1


def test_fields_of_an_object_and_a_tuple(tools):
    text = pdf(
        "params: {file_id: x, page_range: [1], crop: {open: {properties: {width: {maximum: 5}}}},",
        "  pair: {open: {items: {maximum: 3}}}}",
    )
    contract = compiled(text, tools)
    assert contract.resolve({}, {"crop": {"width": 4}, "pair": [1, 3]})[1] == []
    assert len(contract.resolve({}, {"crop": {"width": 6}, "pair": [1, 4]})[1]) == 2
    assert len(contract.resolve({}, {"crop": {"width": -1}})[1]) == 1


@pytest.mark.parametrize(
    ("domain", "code", "column"),
    [
        ("{items: {maximm: 3}}", "UnknownKey", 50),
        ("{items: 3}", "WrongType", 49),
        ("{items: {maximum: ten}}", "BadDomain", 59),
        ("{items: {maximum: 0}}", "BadDomain", 59),
        ("{minItems: 3, maxItems: 2}", "BadDomain", 41),
        ("{items: {enum: [a]}}", "ParamType", 57),
        ("{items: {enum: [1], choices: [2]}}", "BadDomain", 49),
        ("{properties: {a: {maximum: x}}}", "BadDomain", 68),
        ("{default: [0]}", "ParamType", 52),
        ("{default: x}", "ParamType", 51),
        ("{maxItems: 1, default: [1, 2]}", "BadDefault", 64),
        ('{default: "${state.nodes.x}y"}', None, None),
        ('{default: "${params.file_id}"}', "ExpressionName", 54),
    ],
)
def test_domains_are_checked_where_they_stand(tools, domain, code, column):
    text = pdf(f"params: {{file_id: x, page_range: {{open: {domain}}}}}")
    if code is None:
        assert survey(text, tools).problems == []
    else:
        assert problem(text, tools)[:3] == (code, 3, column)


def test_a_domains_field_that_the_object_hasnt(tools):
    text = pdf("params: {file_id: x, page_range: [1], crop: {open: {properties: {widht: {maximum: 5}}}}}")
    assert problem(text, tools) == ("ParamUnknown", 3, 66, "did you mean `width`?")


# -- defaults ------------------------------------------------------------------------------------------------------------

DEFAULTS = """\
name: parse
tool: pdf
params:
  file_id: {open: {default: "${state.nodes.report.data.file}"}}
  page_range: {open: {default: [1, 1], maxItems: 2}}
  format: {open: {default: text}}
"""


def test_a_default_is_used_and_recorded(tools):
    contract = compiled(DEFAULTS, tools)
    state = {"state": {"nodes": {"report": {"data": {"file": "财报.pdf"}}}}}
    assert contract.required_open == ()
    params = {"file_id": "财报.pdf", "page_range": [1, 1], "format": "text"}
    assert contract.resolve(state, {}) == (params, [])
    assert contract.resolve(state, {"format": "markdown"}) == (params | {"format": "markdown"}, [])
    assert {path for reading in contract.readings for path in reading.reads} == {
        ("state", "nodes", "report", "data", "file")
    }


def test_a_default_without_a_value_is_only_missed_where_it_is_needed(tools):
    contract = compiled(DEFAULTS, tools)
    assert contract.resolve({"state": {"nodes": {}}}, {"file_id": "x"})[1] == []
    (said,) = contract.resolve({"state": {"nodes": {}}}, {})[1]
    assert said.startswith("/file_id: nothing was chosen, and its default has no value")


def test_a_default_of_the_graph_must_be_one_of_the_choices(tools):
    contract = compiled(pdf('params: {file_id: x, page_range: [1], format: {open: {default: "${agent.name}"}}}'), tools)
    assert contract.resolve({"agent": {"name": "text"}}, {})[1] == []
    (said,) = contract.resolve({"agent": {"name": "word"}}, {})[1]
    assert "its default 'word' can't be used" in said


def test_a_policy_is_shown_the_default(tools):
    assert compiled(DEFAULTS, tools).open["format"].narrowed({})[0]["default"] == "text"


# -- identity ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("retries: 2", "retries: 3"),
        ("retries: 2", "retries: {times: 2, wait: 2s}"),
        ("retries: 2", "retries: {times: 2, on: [TimedOut]}"),
        ("compensation: {action: refund, with: {receipt: a}}", "compensation: {action: refund, with: {receipt: b}}"),
        ("params: {file_id: x, page_range: [1], format: {open: {}}}",
         "params: {file_id: x, page_range: [1], format: {open: {default: text}}}"),
    ],
)  # fmt: skip
def test_meaning_changes_the_hash(tools, one, other):
    hashes = {compiled(pdf(text), tools).hash for text in (one, other, "effects: idempotent")}
    assert len(hashes) in (2, 3)
    assert compiled(pdf(one), tools).hash != compiled(pdf(other), tools).hash


def test_the_wish_for_a_version_is_no_part_of_the_meaning(tools):
    assert compiled(pdf(tool="pdf@>=2"), tools).hash == compiled(pdf(), tools).hash


def test_schemas_are_only_looked_at_where_there_are_some(tools):
    text = pdf('preconditions: ["state.nodes.report.x.y == 1"]')
    assert survey(text, tools).problems == []
    assert survey(text, tools, schemas=PlainSchemas({"report": {"type": "object"}})).problems == []
