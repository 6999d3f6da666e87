"""Templates: what several actions share, and where their problems are told."""

from __future__ import annotations

import pytest

from agent_infra.actions.language import Surroundings, compile_actions, compile_contracts
from agent_infra.actions.tools import Tool, ToolRegistry
from agent_infra.documents import parse_documents

SAY = {
    "type": "object",
    "properties": {"text": {"type": "string"}, "times": {"type": "integer"}},
    "required": ["text"],
    "additionalProperties": False,
}
CAREFUL = """\
# 共用
template: careful
tool: say
params: {text: 你好, times: 2}
preconditions: ["1 < 2"]
resources: {cpu: 2, gpu: 1}
timeout: {idle: 5s, total: 1m}
effects: none
"""


@pytest.fixture
def tools() -> ToolRegistry:
    registry = ToolRegistry()
    registry.register(Tool("say", SAY, None, lambda **_: {}, effects="none"))
    return registry


def survey(tools: ToolRegistry, *texts: str, templates=()):
    documents = [doc for number, text in enumerate(texts) for doc in parse_documents(text, f"{number}.yaml")]
    return compile_actions(documents, Surroundings(tools, contracts={}, templates=dict(templates)))


def test_an_action_takes_over_what_it_lacks(tools):
    (contract,) = survey(tools, CAREFUL, "name: a\nuse: careful\n").checked()
    assert (contract.name, contract.tool, contract.effects, contract.timeout.total) == ("a", "say", "none", 60)
    assert contract.resolve({}, {})[0] == {"text": "你好", "times": 2}


def test_its_own_fields_win_and_mappings_are_joined(tools):
    own = "name: a\nuse: careful\nparams: {times: {open: {}}}\npreconditions: []\nresources: {gpu: 0}\ntimeout: 3s\n"
    (contract,) = survey(tools, own, CAREFUL).checked()
    assert list(contract.given) == ["text"]
    assert list(contract.open) == ["times"]
    assert contract.preconditions == ()
    assert contract.resources == {"cpu": 2, "gpu": 0}
    assert (contract.timeout.idle, contract.timeout.total) == (None, 3)


def test_chains(tools):
    middle = "template: twice\nuse: careful\nparams: {times: 3}\neffects: idempotent\n"
    (contract,) = survey(tools, "name: a\nuse: twice\neffects: once\n", middle, CAREFUL).checked()
    assert contract.resolve({}, {})[0] == {"text": "你好", "times": 3}
    assert (contract.effects, contract.timeout.idle) == ("once", 5)


def test_a_template_means_what_it_says_written_out(tools):
    (by_template,) = survey(tools, CAREFUL, "name: a\nuse: careful\n").checked()
    (written,) = compile_contracts(parse_documents(CAREFUL.replace("template: careful", "name: a")), tools)
    assert by_template == written


def test_the_source_stands_by_itself(tools):
    middle = "---\ntemplate: twice\nuse: careful\nparams: {times: 3}\n...\n"
    (contract,) = survey(tools, "---\nname: a\nuse: twice\n---\n", CAREFUL, middle).checked()
    (again,) = compile_contracts(parse_documents(contract.source), tools)
    assert again == contract
    (once_more,) = compile_contracts(parse_documents(again.source), tools)
    assert once_more == contract


def test_a_template_of_an_earlier_load_can_be_used(tools):
    known = survey(tools, CAREFUL).templates
    (contract,) = survey(tools, "name: a\nuse: careful\n", templates=known).checked()
    assert contract.tool == "say"


def test_problems_are_told_once_at_the_templates_place(tools):
    wrong = CAREFUL.replace("text: 你好", "txt: 你好").replace('"1 < 2"', '"foo > 1"')
    found = survey(tools, "name: a\nuse: careful\n---\nname: b\nuse: careful\nefects: none\n", wrong).problems
    places = [(each.code, each.file, each.line, each.column) for each in found]
    assert places == [
        ("UnknownKey", "0.yaml", 6, 1),
        ("ParamMissing", "1.yaml", 4, 1),
        ("ParamUnknown", "1.yaml", 4, 10),
        ("ExpressionName", "1.yaml", 5, 18),
    ]
    assert found[2].source == "params: {txt: 你好, times: 2}"


def test_a_template_that_nobody_uses_is_read_too(tools):
    found = survey(tools, "template: a b\nparms: {}\n").problems
    assert [(each.code, each.line) for each in found] == [("BadName", 1), ("UnknownKey", 2)]
    assert survey(tools, CAREFUL).checked() == []


@pytest.mark.parametrize(
    ("text", "code", "line", "said"),
    [
        ("name: a\nuse: carefull\n", "TemplateUnknown", 2, "did you mean `careful`?"),
        ("template: careful\n---\nname: a\nuse: careful\n", "DuplicateTemplate", 1, None),
        ("template: x\nuse: y\n---\ntemplate: y\nuse: x\n", "TemplateCycle", 2, None),
        ("template: x\nuse: x\n", "TemplateCycle", 2, None),
        ("name: a\nuse: [careful]\n", "WrongType", 2, None),
        ("name: a\ntemplate: b\n", "UnknownKey", 1, None),
    ],
)
def test_what_templates_cant_be(tools, text, code, line, said):
    found = [each for each in survey(tools, CAREFUL, text).problems if each.code == code]
    assert (found[0].file, found[0].line) == ("1.yaml", line)
    assert said is None or found[0].hint == said


def test_a_circle_is_told_where_each_part_of_it_stands(tools):
    found = survey(tools, "template: x\nuse: y\n---\ntemplate: y\nuse: x\n---\nname: a\nuse: x\n").problems
    assert [each.line for each in found if each.code == "TemplateCycle"] == [2, 5]
