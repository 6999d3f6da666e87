"""The action library: contracts by name, what counts as a spec, and that nothing runs with other arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent_infra import (
    ActionResult,
    ContractDrift,
    ContractErrors,
    ContractUnknown,
    DocumentErrors,
    Infra,
    NodeUnknown,
    StateGraph,
    Tool,
    ToolUnknown,
)
from agent_infra.errors import FileMissing, SpecInvalid

OBJECT = {"type": "object"}
GREET = """
name: greet
tool: say
params:
  text: 你好
  to: ${state.nodes.user_intent.data.name}
  tone: {open: {enum: [热情, 冷淡]}}
  times: {open: {}}
effects: none
"""


@pytest.fixture
def said(infra: Infra, graph: StateGraph) -> list[dict[str, Any]]:
    """What the tool `say` was really called with; the action `greet` uses it."""
    calls: list[dict[str, Any]] = []

    def say(text: str, to: str, tone: str, times: int = 1) -> dict[str, Any]:
        calls.append({"text": text, "to": to, "tone": tone, "times": times})
        return {"said": f"{text}，{to}" * times}

    text, times = {"type": "string"}, {"type": "integer", "minimum": 1}
    schema = {
        "type": "object",
        "properties": {"text": text, "to": text, "tone": text, "times": times},
        "required": ["text", "to", "tone"],
        "additionalProperties": False,
    }
    infra.tools.register(Tool("say", schema, OBJECT, say, effects="none"))
    infra.actions.load(GREET)
    graph.add_node("user_intent", {"name": "小明"})
    return calls


# -- what is a spec --------------------------------------------------------------------------------


def test_a_spec_fills_what_is_open(infra: Infra, graph: StateGraph, said: list[Any]) -> None:
    spec = {"tool": "greet", "params": {"tone": "热情", "times": 2}, "confidence": 0.9}
    result = infra.actions.execute(spec, graph)
    assert result.output == {"said": "你好，小明你好，小明"}
    assert said == [{"text": "你好", "to": "小明", "tone": "热情", "times": 2}]


def test_what_the_contract_gives_may_be_repeated_if_equal(infra: Infra, graph: StateGraph, said: list[Any]) -> None:
    spec = {"tool": "greet", "params": {"tone": "冷淡", "text": "你好", "to": "小明"}}
    assert infra.actions.execute(spec, graph).ok
    assert said == [{"text": "你好", "to": "小明", "tone": "冷淡", "times": 1}]


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        ({"tool": "greet", "parameters": {"tone": "热情"}}, "parameters"),
        ({"name": "greet", "parameters": {"tone": "热情"}}, "parameters"),
        ({"tool": "greet", "params": {"tone": "热情"}, "why": "因为"}, "why"),
        ({"params": {"tone": "热情"}}, "tool"),
        ({"tool": 7, "params": {}}, "tool"),
        ({"tool": "greet", "params": ["热情"]}, "params"),
        ({"tool": "greet", "params": None}, "params"),
        ({"tool": "greet", "params": '{"tone": "热情"}'}, "params"),
        ({}, "tool"),
    ],
    ids=str,
)
def test_what_is_no_spec_is_refused_and_writes_nothing(
    infra: Infra, graph: StateGraph, said: list[Any], spec: dict[str, Any], named: str
) -> None:
    before = graph.version
    with pytest.raises(SpecInvalid) as caught:
        infra.actions.execute(spec, graph)
    assert named in str(caught.value)
    assert said == []
    assert graph.version == before


@pytest.mark.parametrize("confidence", [7, float("nan"), "0.9", True], ids=str)
def test_a_confidence_that_is_none_makes_no_spec(
    infra: Infra, graph: StateGraph, said: list[Any], confidence: object
) -> None:
    with pytest.raises(SpecInvalid) as caught:
        infra.actions.execute({"tool": "greet", "params": {"tone": "热情"}, "confidence": confidence}, graph)
    assert "confidence" in str(caught.value)
    assert said == []


@pytest.mark.parametrize(
    "text",
    ['{"name":"terminal","arguments":{"command":"ls -la"}', '{"name":"w","parameters":{"path":"a"}}', "我想打招呼"],
)
def test_a_text_that_is_no_actions_name_is_not_executed(
    infra: Infra, graph: StateGraph, said: list[Any], text: str
) -> None:
    before = graph.version
    with pytest.raises((ContractUnknown, SpecInvalid)):
        infra.actions.execute(text, graph)
    assert said == []
    assert graph.version == before


# -- never with other arguments --------------------------------------------------------------------


def not_run(result: ActionResult, graph: StateGraph, said: list[Any], *named: str) -> None:
    assert result.status == "refused"
    assert said == []
    for name in named:
        assert name in str(result)
    (receipt,) = graph.nodes(type="receipt")
    assert receipt.data["status"] == "refused"


@pytest.mark.parametrize(
    ("params", "named"),
    [
        ({"tone": "热情", "text": "再见"}, ["/text", "你好", "再见"]),
        ({"tone": "热情", "to": "小红"}, ["/to", "小明", "小红"]),
        ({"tone": "讽刺"}, ["/tone", "讽刺"]),
        ({"tone": "热情", "volume": 11}, ["/volume"]),
        ({"tone": "热情", "times": 0}, ["/times"]),
        ({"tone": "热情", "times": "2"}, ["/times"]),
        ({"tone": "热情", "times": True}, ["/times"]),
        ({"tone": "热情", "times": None}, ["/times"]),
        ({}, ["/tone"]),
    ],
    ids=lambda value: str(value),
)
def test_other_arguments_than_the_contract_allows_are_refused_by_name(
    infra: Infra, graph: StateGraph, said: list[Any], params: dict[str, Any], named: list[str]
) -> None:
    not_run(infra.actions.execute({"tool": "greet", "params": params}, graph), graph, said, *named)


def test_all_that_is_wrong_is_said_at_once(infra: Infra, graph: StateGraph, said: list[Any]) -> None:
    params = {"tone": "讽刺", "text": "再见", "volume": 11}
    not_run(infra.actions.execute({"tool": "greet", "params": params}, graph), graph, said, "/tone", "/text", "/volume")


def test_a_contradiction_is_not_called_a_missing_value(infra: Infra, graph: StateGraph, said: list[Any]) -> None:
    result = infra.actions.execute({"tool": "greet", "params": {"tone": "热情", "text": "再见"}}, graph)
    assert result.error is not None
    assert "no value" not in result.error["what"]


def test_a_call_by_name_never_makes_up_what_is_open(infra: Infra, graph: StateGraph, said: list[Any]) -> None:
    not_run(infra.actions.execute("greet", graph), graph, said, "/tone")


def test_the_space_and_the_execution_agree_on_what_is_legal(infra: Infra, graph: StateGraph, said: list[Any]) -> None:
    tries: list[dict[str, Any]] = [
        {"tone": "热情"},
        {"tone": "冷淡", "times": 3},
        {"tone": "讽刺"},
        {"tone": "热情", "text": "再见"},
        {"tone": "热情", "text": "你好"},
        {"times": 1},
    ]
    for params in tries:
        spec = {"tool": "greet", "params": params}
        legal = infra.actions.space(graph).validate(spec).ok
        assert infra.actions.execute(spec, graph).ok == legal, spec


# -- names -----------------------------------------------------------------------------------------


def test_a_tools_name_stands_for_its_only_contract(infra: Infra, graph: StateGraph, said: list[Any]) -> None:
    result = infra.actions.execute({"tool": "say", "params": {"tone": "热情"}}, graph)
    assert (result.action, result.tool) == ("greet", "say")
    infra.actions.load(GREET.replace("name: greet", "name: greet_again"))
    with pytest.raises(ContractUnknown) as caught:
        infra.actions.execute({"tool": "say", "params": {"tone": "热情"}}, graph)
    assert "2 actions use the tool 'say'" in str(caught.value)


def test_an_unknown_name_is_told_what_is_alike(infra: Infra, said: list[Any]) -> None:
    with pytest.raises(ContractUnknown) as caught:
        infra.actions.get("gret")
    assert "greet" in str(caught.value)


def test_a_tool_without_an_action_file_can_be_called(infra: Infra, graph: StateGraph) -> None:
    @infra.tools.tool(effects="none")
    def add(a: int, b: int = 1) -> int:
        """Add."""
        return a + b

    assert infra.actions.execute({"tool": "add", "params": {"a": 2}}, graph).output == 3
    assert infra.actions.execute({"tool": "add", "params": {"a": 2, "b": 5}}, graph).output == 7
    refused = infra.actions.execute({"tool": "add", "params": {"b": 5}}, graph)
    assert refused.status == "refused"
    assert "/a" in str(refused)


def test_the_names_are_contracts_and_tools_that_none_covers(infra: Infra, said: list[Any]) -> None:
    @infra.tools.tool(effects="none")
    def alone() -> None:
        """Covered by no contract."""

    assert infra.actions.names() == ["alone", "greet"]


# -- loading ---------------------------------------------------------------------------------------


def test_files_folders_and_texts_load_alike(infra: Infra, said: list[Any], tmp_path: Path) -> None:
    folder = tmp_path / "动作"
    folder.mkdir()
    (folder / "a.yaml").write_text(GREET.replace("greet", "first"), encoding="utf-8")
    (folder / "b.yml").write_text(
        "---".join(GREET.replace("greet", name) for name in ("second", "third")), encoding="utf-8"
    )
    assert [contract.name for contract in infra.actions.load(folder)] == ["first", "second", "third"]
    assert [contract.name for contract in infra.actions.load(folder / "a.yaml")] == ["first"]
    by_text = infra.actions.load(GREET.replace("greet", "first"))
    assert by_text[0].hash == infra.actions.get("first").hash
    assert by_text[0].file is None


def test_a_folder_is_a_library_with_all_below_it(infra: Infra, said: list[Any], tmp_path: Path) -> None:
    deep = tmp_path / "动作" / "a" / "b"
    deep.mkdir(parents=True)
    (deep / "one.yaml").write_text(GREET.replace("greet", "deep") + "use: polite\n", encoding="utf-8")
    (deep / ".hidden.yaml").write_text("no: action\n")
    (deep / "notes.txt").write_text("no: action\n")
    (tmp_path / "动作" / "two.yml").write_text("template: polite\ntimeout: 3s\n", encoding="utf-8")
    (contract,) = infra.actions.load(tmp_path / "动作")
    assert (contract.name, contract.timeout.total) == ("deep", 3)


def test_two_actions_of_one_name_are_told_with_both_places(infra: Infra, said: list[Any], tmp_path: Path) -> None:
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / "x").mkdir(exist_ok=True)
        (tmp_path / "x" / name).write_text(GREET, encoding="utf-8")
    with pytest.raises(ContractErrors) as caught:
        infra.actions.load(tmp_path / "x")
    (problem,) = caught.value.problems
    assert problem.file == str(tmp_path / "x" / "b.yaml")
    assert f"{tmp_path / 'x' / 'a.yaml'}:2" in problem.message


def test_a_later_load_may_use_an_earlier_ones_template(infra: Infra, said: list[Any], tmp_path: Path) -> None:
    infra.actions.load("template: polite\ntimeout: 3s\n")
    (contract,) = infra.actions.load(GREET + "use: polite\n")
    assert contract.timeout.total == 3
    with pytest.raises(ContractErrors):
        infra.actions.load("name: a\ntool: say\nuse: politer\n")


def test_a_file_that_is_no_text_is_told_beside_the_others_problems(
    infra: Infra, said: list[Any], tmp_path: Path
) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "a.yaml").write_bytes(b"name: \xff\n")
    (tmp_path / "x" / "b.yaml").write_text("name: b\n")
    with pytest.raises(ContractErrors) as caught:
        infra.actions.load(tmp_path / "x")
    assert {problem.code for problem in caught.value.problems} == {"NotYaml", "KeyMissing"}


def test_a_declared_type_is_known_to_the_checks(infra: Infra, said: list[Any]) -> None:
    infra.schemas.register("profile", {"type": "object", "properties": {"name": {}}, "additionalProperties": False})
    with pytest.raises(ContractErrors) as caught:
        infra.actions.load(GREET.replace("user_intent.data.name", "profile.nmae"))
    assert [problem.code for problem in caught.value.problems] == ["FieldUnknown"]


def test_a_default_is_what_the_tool_is_called_with(infra: Infra, graph: StateGraph, said: list[Any]) -> None:
    infra.actions.load(GREET.replace("times: {open: {}}", "times: {open: {default: 2, maximum: 3}}"))
    result = infra.actions.execute({"tool": "greet", "params": {"tone": "热情"}}, graph)
    assert result.ok
    assert said[-1]["times"] == 2
    assert graph.node(result.event_id).data["params"]["times"] == 2


def test_a_default_that_a_condition_refuses_must_be_overruled(infra: Infra, graph: StateGraph, said: list[Any]) -> None:
    tone = "tone: {open: {enum: [热情, 冷淡], default: 冷淡}}"
    text = GREET.replace("tone: {open: {enum: [热情, 冷淡]}}", tone) + "preconditions: [\"params.tone == '热情'\"]\n"
    infra.actions.load(text)
    space = infra.actions.space(graph)
    (schema,) = space.json_schema()["anyOf"]
    assert schema["properties"]["params"]["required"] == ["tone"]
    assert not space.validate({"tool": "greet", "params": {}}).ok
    assert infra.actions.execute({"tool": "greet", "params": {"tone": "热情"}}, graph).ok
    assert infra.actions.execute({"tool": "greet", "params": {}}, graph).status == "refused"


def test_an_implied_contract_is_made_once_for_a_tool(infra: Infra) -> None:
    infra.tools.register(Tool("free", OBJECT, None, lambda **_: {}, effects="none"))
    assert infra.actions.get("free") is infra.actions.get("free")
    before = infra.actions.get("free").hash
    infra.tools.register(Tool("free", OBJECT | {"title": "x"}, None, infra.tools.get("free").run, effects="none"))
    assert infra.actions.get("free").hash != before


def test_an_absent_file_is_missing(infra: Infra, tmp_path: Path) -> None:
    with pytest.raises(FileMissing):
        infra.actions.load(tmp_path / "没有.yaml")


def test_all_problems_of_all_documents_come_at_once_and_nothing_is_loaded(
    infra: Infra, said: list[Any], tmp_path: Path
) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(
        "name: fine\ntool: say\nparams: {text: 好, to: 我, tone: 热情}\neffects: none\n---\n"
        "name: bad\ntool: say\nparms: {}\neffects: sometimes\npreconditions: ['1 +']\n",
        encoding="utf-8",
    )
    with pytest.raises(ContractErrors) as caught:
        infra.actions.load(file)
    places = {(problem.line, problem.column) for problem in caught.value.problems}
    assert {line for line, _ in places} >= {8, 9, 10}
    for problem in caught.value.problems:
        assert problem.file == str(file)
        assert problem.line
        assert problem.column
        assert f"{file}:{problem.line}:{problem.column}" in str(caught.value)
    assert infra.actions.names() == ["greet"]


@pytest.mark.parametrize("spelling", ["$state.nodes.user_intent.data.name", "{state.nodes.user_intent.data.name}"])
def test_a_misspelt_reference_is_shown_the_right_spelling(infra: Infra, said: list[Any], spelling: str) -> None:
    text = GREET.replace("${state.nodes.user_intent.data.name}", spelling)
    line = next(number for number, row in enumerate(text.splitlines(), 1) if spelling in row)
    with pytest.raises((ContractErrors, DocumentErrors)) as caught:
        infra.actions.load(text)
    (problem,) = caught.value.problems
    assert (problem.line, problem.column) == (line, len("  to: ") + 1)
    assert "${state.nodes.user_intent.data.name}" in str(problem)


def test_an_unknown_tool_says_where_it_was_looked_for(infra: Infra) -> None:
    with pytest.raises(ToolUnknown) as caught:
        infra.actions.load("name: a\ntool: nowhere\neffects: none\n")
    assert "nowhere" in str(caught.value)
    assert str(infra.project.root / "tools.py") in str(caught.value)
    assert "entry points" in str(caught.value)


# -- records ---------------------------------------------------------------------------------------


def test_a_contract_comes_back_from_its_recorded_source(infra: Infra, said: list[Any]) -> None:
    contract = infra.actions.get("greet")
    assert infra.actions.recompile("greet", contract.source, contract.hash) == contract


def test_a_contract_whose_tool_changed_is_not_the_same(infra: Infra, said: list[Any]) -> None:
    contract, tool = infra.actions.get("greet"), infra.tools.get("say")
    infra.tools.register(Tool("say", tool.input_schema, OBJECT, tool.run, version="2.0.0", effects="none"))
    with pytest.raises(ContractDrift) as caught:
        infra.actions.recompile("greet", contract.source, contract.hash)
    assert contract.hash in str(caught.value.facts)


@pytest.mark.parametrize("size", [1, 100_000], ids=["small", "large"])
def test_the_output_of_a_finished_call_is_read_back(infra: Infra, graph: StateGraph, size: int) -> None:
    @infra.tools.tool(effects="none")
    def write() -> str:
        """Write much."""
        return "字" * size

    result = infra.actions.execute("write", graph)
    assert infra.actions.output_of(result.event_id, graph) == "字" * size


def test_a_file_as_output_is_read_back_as_what_the_tool_gave(infra: Infra, graph: StateGraph) -> None:
    @infra.tools.tool(effects="none")
    def download() -> dict[str, Any]:
        """Keep a page, and give its reference."""
        return infra.blobs.put("%PDF 第一页".encode(), "application/pdf")

    result = infra.actions.execute("download", graph)
    assert set(result.output) == {"$cid", "bytes", "media_type"}
    assert infra.actions.output_of(result.event_id, graph) == result.output


def test_a_call_without_success_has_no_output(infra: Infra, graph: StateGraph, said: list[Any]) -> None:
    refused = infra.actions.execute("greet", graph)
    with pytest.raises(NodeUnknown):
        infra.actions.output_of(refused.event_id, graph)
