"""What actions read and name, against declared node types, tools' schemas and each other: mistakes, warnings, silence."""

from __future__ import annotations

import pytest

from agent_infra.actions.language import PlainSchemas, Surroundings, compile_actions, compile_contracts
from agent_infra.actions.tools import Tool, ToolRegistry
from agent_infra.documents import parse_documents

INPUT = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "count": {"type": "integer"},
        "tone": {"enum": ["warm", "cold"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "anything": {},
        "where": {"type": "object", "properties": {"city": {"type": "string"}}, "additionalProperties": False},
        "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    },
    "additionalProperties": False,
}
OUTPUT = {
    "type": "object",
    "properties": {"temperature": {"type": "number"}, "raw": {"type": "object"}, "ok": {"type": "boolean"}},
    "additionalProperties": False,
}
SCHEMAS = {
    "report": {
        "type": "object",
        "properties": {
            "status": {"type": "string", "enum": ["ready", "broken"]},
            "pages": {"type": "integer"},
            "price": {"type": "number"},
            "done": {"type": "boolean"},
            "titles": {"type": "array", "items": {"type": "string"}},
            "sizes": {"type": "array", "items": {"type": "integer"}},
            "author": {"$ref": "#/$defs/person"},
            "editor": {"anyOf": [{"$ref": "#/$defs/person"}, {"type": "null"}]},
            "either": {"anyOf": [{"type": "object"}, {"type": "string"}]},
            "both": {"$ref": "#/$defs/person", "properties": {"more": {"type": "string"}}},
            "free": {"type": "object", "additionalProperties": {"type": "integer"}},
        },
        "additionalProperties": False,
        "$defs": {
            "person": {"type": "object", "properties": {"name": {"type": "string"}}, "additionalProperties": False}
        },
    },
    "user_intent": {"type": "object", "properties": {"query": {"type": "string"}, "confidence": {"type": "number"}}},
    "loop": {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
    "note": True,
}


@pytest.fixture
def tools() -> ToolRegistry:
    registry = ToolRegistry()
    registry.register(Tool("say", INPUT, OUTPUT, lambda **_: {}, effects="none"))
    return registry


def survey(tools: ToolRegistry, *lines: str, more: str = "", schemas=None):
    text = "\n".join(["name: a\ntool: say", *lines]) + f"\n{more}"
    around = Surroundings(tools, PlainSchemas(SCHEMAS if schemas is None else schemas), {})
    return compile_actions(parse_documents(text, "a.yaml"), around)


# -- silence -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "condition",
    [
        "state.nodes.report.pages > 1",
        "state.nodes.report.data.pages > 1",
        "state.nodes.report.done",
        "state.nodes.report.key == 'x' && state.nodes.report.id != '' && state.nodes.report.step > 0",
        "state.nodes.report.author.name == 'x'",
        "state.nodes.report.editor.name == 'x'",
        "state.nodes.report.either.anything == 'x'",
        "state.nodes.report.free.whatever > 1",
        "state.nodes.report.both.more == 'x'",
        "state.nodes.report.titles.size() > 1",
        "state.nodes.report.titles[0] == 'x'",
        "state.nodes.pdf_of_tesla.data.anything == 1",
        "state.nodes.user_intent.something_else == 1",
        "state.nodes.loop.x.y == 1",
        "state.nodes.note.x == 1",
        "state.nodes['中文键']['状态'] == '好'",
        "agent.name == 'x' && now > timestamp('2026-01-01T00:00:00Z')",
        "params.anything.at.all == 1",
        "has(state.nodes.user_intent.query)",
        "state.nodes.report.titles.exists(t, t.startsWith('x'))",
    ],
)
def test_what_may_well_be_meant_is_passed_over(tools, condition):
    found = survey(tools, "params: {anything: {open: {}}}", f'preconditions: ["{condition}"]')
    assert (found.problems, found.warnings) == ([], [])


def test_a_key_that_an_action_writes_is_known_and_has_its_types_fields(tools):
    write = "---\nname: b\ntool: say\nresult: {type: report, key: latest}\n"
    right = survey(tools, 'preconditions: ["state.nodes.latest.pages > 1"]', more=write)
    assert (right.problems, right.warnings) == ([], [])
    (wrong,) = survey(tools, 'preconditions: ["state.nodes.latest.pgaes > 1"]', more=write).problems
    assert (wrong.code, wrong.line, wrong.column, wrong.hint) == ("FieldUnknown", 3, 37, "did you mean `pages`?")


def test_a_key_that_two_types_share_is_wrong_only_for_both(tools):
    write = "".join(
        f"---\nname: {type}_\ntool: say\nresult: {{type: {type}, key: latest}}\n" for type in ("report", "user_intent")
    )
    assert survey(tools, 'preconditions: ["state.nodes.latest.query != null"]', more=write).problems == []
    other = "---\nname: c\ntool: say\nresult: {type: undeclared, key: report}\n"
    assert survey(tools, 'preconditions: ["state.nodes.report.x != null"]', more=other).problems == []


def test_keys_of_the_library_count(tools):
    (known,) = compile_contracts(parse_documents("name: b\ntool: say\nresult: {type: report, key: latset}"), tools)
    text = 'name: a\ntool: say\npreconditions: ["state.nodes.latset.pages > 1"]'
    around = Surroundings(tools, PlainSchemas(SCHEMAS), {"b": known})
    found = compile_actions(parse_documents(text), around)
    assert (found.problems, found.warnings) == ([], [])


# -- mistakes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "code", "column", "said"),
    [
        ("preconditions: ['state.nodes.report.pgaes > 1']", "FieldUnknown", 37, "`pages`"),
        ("preconditions: ['state.nodes.report.data.xyz > 1']", "FieldUnknown", 42, "known are"),
        ("preconditions: ['state.nodes.report.author.nmae == 1']", "FieldUnknown", 44, "`name`"),
        ("preconditions: ['state.nodes.report.editor.nmae == 1']", "FieldUnknown", 44, "`name`"),
        ("preconditions: ['state.nodes.report.pages.x == 1']", "FieldUnknown", 43, None),
        ("preconditions: ['1 < 2', 'state.nodes.report.pages']", "NotBoolean", 26, "compare it"),
        ("preconditions: ['state.nodes.report.id']", "NotBoolean", 17, "compare it"),
        ("postconditions: ['result.temprature > 1']", "FieldUnknown", 26, "`temperature`"),
        ("postconditions: ['result.temperature']", "NotBoolean", 18, "compare it"),
        ('params: {text: "${state.nodes.report.pages}"}', "ParamType", 16, None),
        ('params: {count: "${state.nodes.report.status}"}', "ParamType", 17, None),
        ('params: {count: "${state.nodes.report.id}"}', "ParamType", 17, None),
        ('params: {tone: "${state.nodes.report.status}"}', "ParamType", 16, None),
        ('params: {where: {city: "${state.nodes.report.pages}"}}', "ParamType", 24, None),
        ('params: {tags: ["${state.nodes.report.pages}"]}', "ParamType", 17, None),
        ('params: {tags: "${state.nodes.report.titles.x}"}', "FieldUnknown", 45, None),
        ('params: {maybe: "${state.nodes.report.pages}"}', "ParamType", 17, None),
        ('params: {text: {open: {choices: "${state.nodes.report.status}"}}}', "BadDomain", 33, None),
        ('params: {text: {open: {choices: "${state.nodes.report.sizes}"}}}', "BadDomain", 33, None),
        ('params: {count: {open: {maximum: "${state.nodes.report.status}"}}}', "BadDomain", 34, None),
        ('params: {text: {open: {maxLength: "${state.nodes.report.done}"}}}', "BadDomain", 35, None),
        ('params: {count: {open: {default: "${state.nodes.report.status}"}}}', "ParamType", 34, None),
        ('refers: {x: "${state.nodes.report.xyz}"}', "FieldUnknown", 35, None),
        ('result: {type: r, key: "k/${result.xyz}"}', "FieldUnknown", 36, None),
    ],
)
def test_mistakes_have_their_place(tools, line, code, column, said):
    (found,) = survey(tools, line).problems
    assert (found.code, found.line, found.column) == (code, 3, column), found
    assert said is None or said in found.hint


@pytest.mark.parametrize(
    "line",
    [
        'params: {count: "${state.nodes.report.price}"}',  # may be whole
        'params: {text: "${state.nodes.report.status}"}',
        'params: {text: "page ${state.nodes.report.pages}"}',
        'params: {anything: "${state.nodes.report.pages}"}',
        'params: {maybe: "${state.nodes.report.status}"}',
        'params: {text: "${state.nodes.user_intent.whatever}"}',
        "params: {text: \"${state.nodes.report.pages > 1 ? 'a' : 'b'}\"}",
        'params: {tags: "${state.nodes.report.titles}"}',
        'params: {text: {open: {choices: "${state.nodes.report.titles}"}}}',
        'params: {count: {open: {maximum: "${state.nodes.report.price}"}}}',
        'params: {text: "${agent.name}"}',
        'params: {text: "${now}"}',
    ],
)
def test_what_can_fit_is_passed_over(tools, line):
    found = survey(tools, line)
    assert (found.problems, found.warnings) == ([], [])


# -- warnings ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "code", "column", "said"),
    [
        ("state.nodes.user_intnet.query != null", "NameUnknown", 30, "`user_intent`"),
        ("state.nodes.user_intent.confidnce > 0.5", "FieldUnlisted", 42, "`confidence`"),
        ("state.nodes.user_intent.data.confidnce > 0.5", "FieldUnlisted", 47, "`confidence`"),
    ],
)
def test_what_is_almost_something_known_is_a_warning(tools, condition, code, column, said):
    found = survey(tools, f"preconditions: ['{condition}']")
    (warning,) = found.warnings
    assert found.problems == []
    assert (warning.code, warning.line, warning.column) == (code, 3, column)
    assert said in warning.hint


def test_without_declared_types_nothing_is_said(tools):
    found = survey(tools, "preconditions: ['state.nodes.report.pgaes > 1']", schemas={})
    assert (found.problems, found.warnings) == ([], [])


def test_all_of_a_document_comes_at_once(tools):
    found = survey(
        tools,
        'params: {text: "${state.nodes.report.pages}", cuont: 1}',
        "preconditions: ['state.nodes.report.pgaes > 1', 'foo']",
        "postconditions: ['result.temprature > 1']",
    ).problems
    assert [(each.code, each.line) for each in found] == [
        ("ParamType", 3),
        ("ParamUnknown", 3),
        ("FieldUnknown", 4),
        ("ExpressionName", 4),
        ("FieldUnknown", 5),
    ]
