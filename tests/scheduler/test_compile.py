"""From a goal to a plan: every form of goal, every problem at its place, and nothing written."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from agent_infra import (
    ContractErrors,
    DocumentErrors,
    GoalErrors,
    GoalUnknown,
    Infra,
    Plan,
    Problem,
    StateGraph,
    ToolUnknown,
)
from agent_infra.errors import FileMissing, NotJson, SchemaInvalid

GOAL = """\
version: 1
goal: 写报告
params: {city: 北京}
subgoals:
  header: {action: note, with: {text: "${goal.params.city}"}}
  body: {action: note, with: {text: 正文}}
  whole:
    action: join
    with: {left: "${subgoals.header.result.text}", right: "${subgoals.body.result.text}"}
  sent: {action: note, with: {text: 完}, after: whole}
"""


def goal_file(folder: Path, text: str, name: str = "目标.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def problems(infra: Infra, graph: StateGraph, goal: Path | dict[str, Any]) -> tuple[Problem, ...]:
    with pytest.raises(GoalErrors) as caught:
        infra.scheduler.compile_gdep(goal, state_graph=graph)
    for problem in caught.value.problems:
        assert str(problem) in str(caught.value)
    return caught.value.problems


@pytest.fixture
def compiled(infra: Infra, graph: StateGraph, done: list[Any], tmp_path: Path) -> Plan:
    return infra.scheduler.compile_gdep(goal_file(tmp_path, GOAL), state_graph=graph)


# -- the plan --------------------------------------------------------------------------------------


def test_a_goal_file_becomes_a_plan_in_order(compiled: Plan) -> None:
    assert compiled.name == "写报告"
    assert [(each.name, each.action, each.after) for each in compiled.subgoals] == [
        ("header", "note", ()),
        ("body", "note", ()),
        ("whole", "join", ("header", "body")),
        ("sent", "note", ("whole",)),
    ]
    assert [each.inserted_by for each in compiled.subgoals] == [None] * 4


def test_compiling_runs_nothing_and_writes_nothing(
    infra: Infra, graph: StateGraph, done: list[Any], tmp_path: Path
) -> None:
    graph.add_node("note", {"text": "之前"})
    version, stored = graph.version, list(infra.engine.store.scan(b"\x00", b"\xff"))
    infra.scheduler.compile_gdep(goal_file(tmp_path, GOAL), state_graph=graph)
    fresh = infra.session("没有用过的会话")
    infra.scheduler.compile_gdep(tmp_path / "目标.yaml", state_graph=fresh)
    with pytest.raises(GoalErrors):
        infra.scheduler.compile_gdep({"goal": "坏", "subgoals": {}}, state_graph=graph)
    assert graph.version == version
    assert list(infra.engine.store.scan(b"\x00", b"\xff")) == stored
    assert infra.sessions() == [graph.session_id]
    assert done == []


def test_later_parts_may_stand_first(infra: Infra, graph: StateGraph, done: list[Any], tmp_path: Path) -> None:
    text = (
        "goal: g\nsubgoals:\n  b: {action: note, with: {text: 乙}, after: [a]}\n  a: {action: note, with: {text: 甲}}\n"
    )
    plan = infra.scheduler.compile_gdep(goal_file(tmp_path, text), state_graph=graph)
    assert [each.name for each in plan.subgoals] == ["a", "b"]


def test_a_dict_is_a_goal_file_without_the_file(infra: Infra, graph: StateGraph, done: list[Any]) -> None:
    goal = {"goal": "一", "subgoals": {"甲": {"action": "note", "with": {"text": "你好"}}}}
    plan = infra.scheduler.compile_gdep(goal, state_graph=graph)
    assert [each.name for each in plan.subgoals] == ["甲"]
    with pytest.raises(NotJson):
        infra.scheduler.compile_gdep({"goal": "一", "params": {"集": {1}}}, state_graph=graph)


def test_it_draws_itself(compiled: Plan) -> None:
    lines = compiled.to_mermaid().splitlines()
    assert lines[0].split()[0] in ("graph", "flowchart")
    ids = {label: id for id, label in re.findall(r'(\w+)\["([^"]*)"\]', "\n".join(lines))}
    assert list(ids) == ["header: note", "body: note", "whole: join", "sent: note"]
    arrows = {tuple(part.strip() for part in line.split("-->")) for line in lines if "-->" in line}
    assert arrows == {
        (ids["header: note"], ids["whole: join"]),
        (ids["body: note"], ids["whole: join"]),
        (ids["whole: join"], ids["sent: note"]),
    }


def test_no_name_breaks_the_drawing(infra: Infra, graph: StateGraph, done: list[Any]) -> None:
    names = ['say "hi"', "a --> b", "<b>", "结束;", "end"]
    subgoals = {name: {"action": "note", "with": {"text": "x"}} for name in names}
    text = infra.scheduler.compile_gdep({"goal": "g", "subgoals": subgoals}, state_graph=graph).to_mermaid()
    for line in text.splitlines()[1:]:
        assert re.fullmatch(r'\s*s\w*\["[^"<>]*"\]', line), line


def test_it_prints_as_its_parts(compiled: Plan) -> None:
    text = str(compiled)
    assert "写报告" in text
    assert "4 subgoals" in text
    assert "whole: join after header, body" in text


# -- what is wrong with a goal ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "code", "at", "hint"),
    [
        ("  a: {action: nota, with: {text: 好}}", "ContractUnknown", "nota", "note"),
        ("  a: {action: note}", "InputMissing", "{", "text"),
        ("  a: {action: note, with: {text: 好, txet: 坏}}", "InputNotOpen", "txet", "text"),
        ("  a: {action: note, with: {text: 好}, after: bb}", "SubgoalUnknown", None, "b"),
        ('  a: {action: note, with: {text: "${subgoals.bb.result.text}"}}', "SubgoalUnknown", None, "b"),
        ("  a: {acton: note, with: {text: 好}}", None, "acton", "action"),
        ("  a: {with: {text: 好}}", "KeyMissing", "{", "action"),
        ("  a: {action: note, with: [好]}", None, "[", None),
        ('  a: {action: note, with: {text: "${subgoal.b}"}}', None, None, None),
        ('  a: {action: note, with: {text: "$subgoals.b.result.text"}}', None, "$", "${subgoals.b.result.text}"),
        ('  a: {action: note, with: {text: "${subgoals.北.result.text}"}}', None, None, '["北'),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_problem_is_at_its_line_and_column_with_the_mend(
    infra: Infra, graph: StateGraph, done: list[Any], tmp_path: Path, line: str, code: str, at: str, hint: str
) -> None:
    file = goal_file(tmp_path, f"goal: g\nsubgoals:\n  b: {{action: note, with: {{text: 好}}}}\n{line}\n")
    found = problems(infra, graph, file)[0]
    assert code is None or found.code == code
    assert found.file == str(file)
    assert found.line == 4
    assert at is None or found.column == line.index(at) + 1
    assert f"{file}:4:{found.column}" in str(found)
    assert found.source == line
    assert hint is None or (found.hint is not None and hint in found.hint)


def test_a_ring_of_waiting_is_refused_with_its_members(
    infra: Infra, graph: StateGraph, done: list[Any], tmp_path: Path
) -> None:
    text = (
        "goal: g\nsubgoals:\n  free: {action: note, with: {text: x}}\n"
        "  甲: {action: note, with: {text: \"${subgoals['丙'].result.text}\"}}\n"
        "  乙: {action: note, with: {text: x}, after: 甲}\n  丙: {action: note, with: {text: x}, after: 乙}\n"
    )
    (found,) = problems(infra, graph, goal_file(tmp_path, text))
    assert found.code == "PlanCycle"
    for name in ("甲", "乙", "丙"):
        assert name in found.message
    assert "free" not in found.message
    assert found.line is not None


def test_what_waits_for_itself_is_a_ring_too(infra: Infra, graph: StateGraph, done: list[Any]) -> None:
    goal = {"goal": "g", "subgoals": {"我": {"action": "note", "with": {"text": "x"}, "after": "我"}}}
    (found,) = problems(infra, graph, goal)
    assert found.code == "PlanCycle"


def test_all_problems_come_at_once_in_order(infra: Infra, graph: StateGraph, done: list[Any], tmp_path: Path) -> None:
    text = (
        "version: 1\ngoal: g\nparam: {}\nsubgoals:\n  a: {action: nowhere}\n  b: {action: note}\n"
        "  c: {action: note, with: {text: x}, after: [a, zz]}\n"
    )
    found = problems(infra, graph, goal_file(tmp_path, text))
    assert [problem.line for problem in found] == [3, 5, 6, 7]


def test_a_goal_without_parts_is_no_goal(infra: Infra, graph: StateGraph, tmp_path: Path) -> None:
    found = problems(infra, graph, goal_file(tmp_path, "goal: 空\nsubgoals: {}\n"))
    assert found[0].line is not None
    assert "空" in str(found[0])


def test_another_formats_number_is_refused(infra: Infra, graph: StateGraph, done: list[Any], tmp_path: Path) -> None:
    found = problems(infra, graph, goal_file(tmp_path, GOAL.replace("version: 1", "version: 2")))
    assert (found[0].line, found[0].code) == (1, "VersionUnknown")


def test_what_is_not_yaml_is_said_with_its_place(infra: Infra, graph: StateGraph, tmp_path: Path) -> None:
    file = goal_file(tmp_path, "goal: g\nsubgoals:\n  a: {action: note, with: {text: ${goal.params.x}}}\n")
    with pytest.raises(DocumentErrors) as caught:
        infra.scheduler.compile_gdep(file, state_graph=graph)
    assert f"{file}:3:" in str(caught.value)


# -- files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["absent.yaml", "没有.yml", "folder/absent.yaml"])
def test_a_name_that_ends_in_yaml_is_a_file_never_a_text(infra: Infra, graph: StateGraph, name: str) -> None:
    knowing(infra, "anything", '["(?P<all>.*)"]')
    for goal in (name, Path(name)):
        with pytest.raises(FileMissing) as caught:
            infra.scheduler.compile_gdep(goal, state_graph=graph)
        assert name in str(caught.value)


def test_a_file_is_looked_for_here_and_then_in_the_project(
    infra: Infra, graph: StateGraph, done: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    goal_file(tmp_path, GOAL, "goal.yaml")
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    assert infra.scheduler.compile_gdep("goal.yaml", state_graph=graph).name == "写报告"
    goal_file(here, GOAL.replace("写报告", "这里的"), "goal.yaml")
    assert infra.scheduler.compile_gdep("goal.yaml", state_graph=graph).name == "这里的"


def test_an_action_file_is_a_plan_of_one(infra: Infra, graph: StateGraph, done: list[Any], tmp_path: Path) -> None:
    file = goal_file(tmp_path, "name: 'say'\ntool: note\nparams: {text: 你好}\neffects: none\n", "say.yaml")
    plan = infra.scheduler.compile_gdep(str(file), state_graph=graph)
    assert [(each.name, each.action, each.after) for each in plan.subgoals] == [("say", "say", ())]
    assert infra.actions.names() == ["fail", "join", "note"], "compiling loads nothing"


def test_an_action_file_that_leaves_something_open_needs_a_goal(
    infra: Infra, graph: StateGraph, done: list[Any], tmp_path: Path
) -> None:
    file = goal_file(tmp_path, "name: say\ntool: note\nparams: {text: {open: {}}}\neffects: none\n", "say.yaml")
    (found,) = problems(infra, graph, file)
    assert found.code == "InputMissing"
    assert "text" in found.message


def test_a_broken_action_file_is_told_as_such(infra: Infra, graph: StateGraph, done: list[Any], tmp_path: Path) -> None:
    file = goal_file(tmp_path, "name: say\ntool: note\nparams: {txt: 你好}\neffects: none\n", "say.yaml")
    with pytest.raises(ContractErrors) as caught:
        infra.scheduler.compile_gdep(file, state_graph=graph)
    assert f"{file}:3:" in str(caught.value)
    goal_file(tmp_path, "name: say\ntool: nothing\neffects: none\n", "say.yaml")
    with pytest.raises(ToolUnknown):
        infra.scheduler.compile_gdep(file, state_graph=graph)


def test_a_file_of_several_actions_is_not_one_plan(
    infra: Infra, graph: StateGraph, done: list[Any], tmp_path: Path
) -> None:
    one = "name: {}\ntool: note\nparams: {{text: 好}}\neffects: none\n"
    file = goal_file(tmp_path, one.format("a") + "---\n" + one.format("b"), "both.yaml")
    (found,) = problems(infra, graph, file)
    assert "several actions" in found.message
    assert found.hint


# -- texts -----------------------------------------------------------------------------------------

KNOWLEDGE = r"""
version: 1
methods:
  - goal: compare_results
    match:
      - "compare (?P<a>\\w+)'s and (?P<b>\\w+)'s (?P<quarter>Q\\d) results"
      - "生成(?P<a>.+)与(?P<b>.+?) ?(?P<quarter>Q\\d) ?财报对比报告"
    subgoals:
      pair: {action: join, with: {left: "${goal.params.a}", right: "${goal.params.b}"}}
      told: {action: note, with: {text: "${goal.params.quarter}: ${subgoals.pair.result.text}"}}
"""


def knowing(infra: Infra, goal: str, match: str) -> None:
    path = infra.project.root / f"{goal}.yaml"
    path.write_text(f"version: 1\nmethods:\n  - {{goal: {goal}, match: {match}, subgoals: {{}}}}\n", encoding="utf-8")
    infra.knowledge.load(path)


@pytest.mark.parametrize(
    ("text", "joined"),
    [
        ("compare tesla's and byd's Q3 results", ["tesla", "byd"]),
        ("生成特斯拉与比亚迪Q3财报对比报告", ["特斯拉", "比亚迪"]),
        ("生成特斯拉与比亚迪 Q3 财报对比报告", ["特斯拉", "比亚迪"]),
        ("  生成特斯拉与比亚迪 Q3财报对比报告\n", ["特斯拉", "比亚迪"]),
    ],
)
def test_a_sentence_that_a_method_knows_is_a_goal(
    infra: Infra, graph: StateGraph, done: list[Any], tmp_path: Path, text: str, joined: list[str]
) -> None:
    infra.knowledge.load(goal_file(tmp_path, KNOWLEDGE))
    plan = infra.scheduler.compile_gdep(text, state_graph=graph)
    assert plan.name == "compare_results"
    assert plan.params == {"a": joined[0], "b": joined[1], "quarter": "Q3"}
    assert all("compare_results" in str(each.inserted_by) for each in plan.subgoals)
    result = infra.scheduler.execute_gdep(plan)
    assert result.outputs["told"] == {"text": f"Q3: {''.join(joined)}"}
    (goal,) = graph.nodes(type="goal")
    assert goal.data["text"] == text


def test_a_part_of_a_sentence_is_not_the_sentence(
    infra: Infra, graph: StateGraph, done: list[Any], tmp_path: Path
) -> None:
    infra.knowledge.load(goal_file(tmp_path, KNOWLEDGE))
    for text in ("please compare a's and b's Q3 results", "compare a's and b's Q3 results now", ""):
        with pytest.raises(GoalUnknown):
            infra.scheduler.compile_gdep(text, state_graph=graph)


def test_a_text_that_no_method_knows_is_refused_with_what_there_is(infra: Infra, graph: StateGraph) -> None:
    with pytest.raises(GoalUnknown) as caught:
        infra.scheduler.compile_gdep("北京明天天气", state_graph=graph)
    assert "no knowledge base" in str(caught.value)
    knowing(infra, "make_tea", "[泡茶]")
    with pytest.raises(GoalUnknown) as caught:
        infra.scheduler.compile_gdep("北京明天天气", state_graph=graph)
    assert "北京明天天气" in str(caught.value)
    assert "make_tea" in str(caught.value)
    assert infra.sessions() == []


def test_a_broken_knowledge_base_is_told_at_its_place(infra: Infra, tmp_path: Path) -> None:
    file = goal_file(tmp_path, 'version: 1\nmethods:\n  - {goal: a, match: ["("], subgoals: {}}\n  - {gaol: b}\n')
    with pytest.raises(GoalErrors) as caught:
        infra.knowledge.load(file)
    assert {problem.line for problem in caught.value.problems} == {3, 4}
    with pytest.raises(GoalUnknown):
        infra.knowledge.decompose("(")


# -- two writers of one key ------------------------------------------------------------------------

ACTION = """\
name: %s
tool: note
params: {text: {open: {}}}
effects: none
result: {type: %s, key: %s}
"""


def writers(
    infra: Infra, *, type: str = "finding", keys: tuple[str, str] = ("天气", "天气"), after: str = ""
) -> dict[str, Any]:
    """A goal of two actions that write nodes, and no matter of what."""
    for name, key in zip(("one", "other"), keys, strict=True):
        infra.actions.load(ACTION % (name, type, key))
    parts: dict[str, Any] = {name: {"action": name, "with": {"text": "晴"}} for name in ("one", "other")}
    if after == "between":
        parts["between"] = {"action": "one", "with": {"text": "云"}, "after": "one"}
    if after:
        parts["other"]["after"] = after
    return {"goal": "twice", "subgoals": parts}


def test_two_writers_of_one_key_are_refused_before_they_run(infra: Infra, graph: StateGraph, done: list[Any]) -> None:
    (found,) = problems(infra, graph, writers(infra))
    assert found.code == "TwoWriters"
    assert "'one' and 'other' both write the key '天气'" in found.message
    assert "after: one" in found.hint
    assert "x-merge: newest" in found.hint


@pytest.mark.parametrize("after", ["one", "between"])
def test_writers_in_a_stated_order_are_fine(infra: Infra, graph: StateGraph, done: list[Any], after: str) -> None:
    plan = infra.scheduler.compile_gdep(writers(infra, after=after), state_graph=graph)
    assert infra.scheduler.execute_gdep(plan).ok


def test_writers_of_other_keys_are_fine(infra: Infra, graph: StateGraph, done: list[Any]) -> None:
    assert infra.scheduler.compile_gdep(writers(infra, keys=("天气", "气温")), state_graph=graph)


def test_a_type_may_say_that_the_newest_wins(infra: Infra, graph: StateGraph, done: list[Any]) -> None:
    infra.schemas.register("reading", {"type": "object", "x-merge": "newest"})
    plan = infra.scheduler.compile_gdep(writers(infra, type="reading"), state_graph=graph)
    assert infra.scheduler.execute_gdep(plan).ok
    assert len(graph.nodes(type="reading", key="天气")) == 1
    assert len(graph.nodes(type="reading", lifecycle=None)) == 2


def test_a_merge_rule_that_is_none_is_refused(infra: Infra) -> None:
    with pytest.raises(SchemaInvalid) as caught:
        infra.schemas.register("reading", {"type": "object", "x-merge": "最新"})
    assert caught.value.where == "/x-merge"
