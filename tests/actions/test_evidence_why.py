"""Why an action did what it did, on one page, from the graph and the bundles alone."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from agent_infra import Infra, StateGraph
from agent_infra.actions.evidence import Why
from agent_infra.actions.evidence.why_words import WORDS
from agent_infra.config import Project
from agent_infra.errors import NodeUnknown, ReportUnknown
from agent_infra.state.rows import keys

ACTIONS = """\
name: parse_report
tool: pdf_parser
params: {path: report.pdf}
effects: none
result: {type: document, key: pdf_report}
---
name: extract_financial_metrics
tool: pdf_analyzer
params:
  file_id: ${state.nodes.pdf_report.id}
  metrics: {open: {}}
preconditions: ['state.nodes.pdf_report.status == "ready"']
postconditions: ["result.metrics.net_income != null"]
effects: none
timeout: {total: 200ms}
"""


@pytest.fixture
def analyst(infra: Infra) -> Infra:
    @infra.tools.tool(effects="none")
    def pdf_parser(path: str) -> dict[str, str]:
        """Parse; the report is scanned, so there is no text yet."""
        return {"status": "ready", "title": "特斯拉 Q3 财报"}

    @infra.tools.tool(effects="none")
    async def pdf_analyzer(file_id: str, metrics: list[str]) -> dict[str, Any]:
        """Find metrics; net income is not on the pages that it reads."""
        if "现金" in metrics:
            raise ValueError("表格第 7 页无法识别")
        if "everything" in metrics:
            await asyncio.sleep(30)
        return {"metrics": {"revenue": 25.18}, "pages": [1, 2]}

    infra.actions.load(ACTIONS)
    return infra


def extract(infra: Infra, graph: StateGraph, *metrics: str) -> str:
    spec = {"tool": "extract_financial_metrics", "params": {"metrics": list(metrics)}}
    return infra.actions.execute(spec, graph).event_id


def why(infra: Infra, graph: StateGraph, **options: Any) -> Why:
    return infra.evidence.why(graph, "extract_financial_metrics", **options)


def test_a_postcondition_that_failed_is_explained(analyst: Infra, graph: StateGraph) -> None:
    """The founding question: why was net income not extracted?"""
    analyst.actions.execute("parse_report", graph)
    version = str(graph.version)
    call = extract(analyst, graph, "revenue", "net_income")
    page = why(analyst, graph).text()
    told = why(analyst, graph).executions[0]
    (report,) = graph.nodes(key="pdf_report")
    assert page.startswith(
        "extract_financial_metrics in session 会话 1: 1 execution, the newest failed\n\n"
        f"1. failed, {told['at']}, call {call}, "
    )
    for part in (
        "[PostconditionFailed] a condition does not hold: result.metrics.net_income != null",
        f"pdf_report: document {report.id}, of version {version}",
        f'file_id = "{report.id}"  (from ${{state.nodes.pdf_report.id}})',
        'metrics = ["revenue", "net_income"]',
        'holds (before)  state.nodes.pdf_report.status == "ready"',
        "FAILS (after)  result.metrics.net_income != null",
        'the tool gave: {"pages": [1, 2], "metrics": {"revenue": 25.18}}',
        "look next at:",
        "agent-infra evidence why '会话 1' parse_report",
        f"agent-infra evidence show {told['evidence']}",
        f"agent-infra state show '{version}'",
    ):
        assert part in page, part
    assert len(page.splitlines()) < 60, "one page"


def test_the_page_is_there_in_chinese(analyst: Infra, graph: StateGraph) -> None:
    analyst.actions.execute("parse_report", graph)
    extract(analyst, graph, "revenue")
    page = why(analyst, graph).text("zh")
    for part in ("会话 会话 1 中的 extract_financial_metrics:执行 1 次,最近一次失败", "不成立(后置)", "接下来可查看:"):
        assert part.replace("(后置)", " (后置)") in page, part
    assert "look next" not in page
    with pytest.raises(ReportUnknown, match="en, zh"):
        why(analyst, graph).text("de")


def test_every_word_is_there_in_every_language() -> None:
    english = WORDS["en"]
    for language, words in WORDS.items():
        assert words.keys() == english.keys(), language
        for key, text in words.items():
            fields = {part.partition("}")[0] for part in text.split("{")[1:]}
            assert fields == {part.partition("}")[0] for part in english[key].split("{")[1:]}, (language, key)


def test_a_refusal_names_the_condition_and_what_it_saw(analyst: Infra, graph: StateGraph) -> None:
    graph.add_node("document", {"status": "待处理"}, key="pdf_report")
    extract(analyst, graph, "revenue")
    page = why(analyst, graph).text()
    assert "refused before the tool was called" in page
    assert 'FAILS (before)  state.nodes.pdf_report.status == "ready"' in page
    assert 'state.nodes.pdf_report.status = "待处理"' in page
    assert "it was written by planner, not by a tool" in page
    assert "the tool gave" not in page


def test_nothing_was_there_to_read(analyst: Infra, graph: StateGraph) -> None:
    extract(analyst, graph, "revenue")
    page = why(analyst, graph).text()
    assert "no node of the session" in page
    assert "[ParametersInvalid]" in page


def test_the_newest_comes_first_and_each_tells_its_own_reason(analyst: Infra, graph: StateGraph) -> None:
    analyst.actions.execute("parse_report", graph)
    for metrics in (["revenue"], ["现金"], ["everything"]):
        extract(analyst, graph, *metrics)
    told = why(analyst, graph, limit=2)
    assert [each["error"]["code"] for each in told.executions] == ["TimedOut", "ToolFailed"]
    page = told.text()
    assert "its 2 newest executions, the newest timed out" in page
    assert "whether the limit of 0.2 s (total) is enough" in page
    assert "表格第 7 页无法识别" in page
    assert "the tool's own code: File " in page
    assert [len(why(analyst, graph, limit=limit).executions) for limit in (1, 3, 9)] == [1, 3, 3]


def test_what_has_become_of_the_input_since_is_told(analyst: Infra, graph: StateGraph) -> None:
    analyst.actions.execute("parse_report", graph)
    extract(analyst, graph, "revenue")
    analyst.actions.execute("parse_report", graph)
    assert "(superseded since)" in why(analyst, graph).text()


def test_damaged_evidence_is_told_and_the_graph_tells_the_rest(analyst: Infra, graph: StateGraph) -> None:
    analyst.actions.execute("parse_report", graph)
    extract(analyst, graph, "revenue")
    cid = why(analyst, graph).executions[0]["evidence"]
    analyst.engine.store.write([(keys.block(cid), b"\xa0")])
    page = why(analyst, graph).text()
    assert "its evidence can't be read: [EvidenceDamaged]" in page
    assert "[PostconditionFailed]" in page
    assert 'metrics = ["revenue"]' in page
    assert "agent-infra state verify" in page


def test_a_call_without_an_end_is_told(analyst: Infra, graph: StateGraph) -> None:
    data = {
        "action": "extract_financial_metrics",
        "contract": "0" * 16,
        "tool": "pdf_analyzer",
        "tool_version": "1.0.0",
        "params": {"metrics": ["revenue"]},
        "effects": "once",
        "idempotency_key": "k",
    }
    graph.add_node("call", data, tool="pdf_analyzer")
    page = why(analyst, graph).text()
    assert "began, and has no end on record" in page
    assert "agent-infra resume" in page


def test_a_large_output_is_named_not_printed(analyst: Infra, graph: StateGraph) -> None:
    @analyst.tools.tool(effects="none")
    def page() -> str:
        """Give much."""
        return "长" * 100_000

    analyst.actions.execute("page", graph)
    told = analyst.evidence.why(graph, "page")
    assert len(told.text()) < 2000
    assert f"a large value, {told.executions[0]['output']['bytes']} bytes" in told.text()


def test_an_action_that_a_plan_never_reached_is_explained(tmp_path: Path) -> None:
    with Infra.open(tmp_path / "家", project=Project(root=tmp_path), durability="os") as infra:

        @infra.tools.tool(effects="none")
        def fetch() -> None:
            """Fail."""
            raise RuntimeError("连接被拒绝")

        @infra.tools.tool(effects="none")
        def parse() -> None:
            """Never reached."""

        goal = {
            "version": 1,
            "goal": "报告",
            "subgoals": {"a": {"action": "fetch"}, "b": {"action": "parse", "after": "a"}},
        }
        assert not infra.run(goal, session="会话").ok
        page = infra.evidence.why(infra.session("会话"), "parse").text()
        assert page.startswith("parse in session 会话: never called")
        assert "b is skipped" in page
        assert "连接被拒绝" in page


def test_an_action_that_nobody_called_is_refused_with_those_that_were(analyst: Infra, graph: StateGraph) -> None:
    analyst.actions.execute("parse_report", graph)
    with pytest.raises(NodeUnknown, match="It has called: parse_report"):
        analyst.evidence.why(graph, "extract_net_income")


def test_it_is_json_too(analyst: Infra, graph: StateGraph) -> None:
    analyst.actions.execute("parse_report", graph)
    extract(analyst, graph, "revenue")
    told = why(analyst, graph).as_dict()
    assert json.loads(json.dumps(told)) == told
    (execution,) = told["executions"]
    assert execution["status"] == "failed"
    assert [hint["hint"] for hint in execution["next"]] == [
        "next_output",
        "next_producer",
        "next_evidence",
        "next_version",
    ]
