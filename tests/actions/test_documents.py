"""Actions on real PDF files: figures from a report, a spec that is wrong in every way, and a document of 600 pages."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_infra import Infra, StateGraph, ToolOutOfMemory
from agent_infra.config import Project

TOOLS = Path(__file__).with_name("pdf_tools.py")
write_pdf = runpy.run_path(str(TOOLS))["write_pdf"]
METRICS = """\
name: extract_financial_metrics
tool: pdf_analyzer
params:
  file_id: ${state.nodes.pdf_report.id}
  path: ${state.nodes.pdf_report.path}
  metrics: [revenue, net_income]
preconditions:
  - state.nodes.pdf_report.status == "ready"
  - state.nodes.user_intent.confidence > 0.8
postconditions: ["result.metrics.revenue != null"]
effects: none
resources: {cpu: 1, memory_mb: 512}
timeout: 60s
result: {type: financial_metrics, key: metrics, ttl: 1800}
"""
PARSE = """\
name: pdf_parser
tool: pdf_parser
params:
  file_id: {open: {choices: "${state.nodes.documents.ids}"}}
  path: ${state.nodes.pdf_report.path}
  page_range: {open: {minItems: 2, maxItems: 2}}
  output_format: {open: {enum: [markdown, text]}}
preconditions:
  - params.page_range[0] >= 1 && params.page_range[0] <= params.page_range[1]
  - params.page_range[1] <= state.nodes.pdf_report.pages
confidence: {min: 0.8, below: reject}
effects: none
"""
SPEC = {
    "tool": "pdf_parser",
    "params": {"file_id": "doc_789", "page_range": [1, 5], "output_format": "markdown"},
    "confidence": 0.92,
}


@pytest.fixture
def infra(tmp_path: Path) -> Iterator[Infra]:
    with Infra.open(tmp_path / "家", project=Project(root=tmp_path), durability="os", memory_limit_mb=400) as opened:
        opened.tools.load_module(TOOLS)
        yield opened


@pytest.fixture
def graph(infra: Infra) -> StateGraph:
    return infra.session("财报_q3", agent="analyst")


def report(graph: StateGraph, path: Path, **changes: Any) -> None:
    graph.add_node("pdf_report", {"status": "ready", "path": str(path), "pages": 12} | changes, key="pdf_report")
    graph.add_node("user_intent", {"query": "特斯拉 Q3 的净利润是多少?", "confidence": 0.95})


def test_figures_are_found_in_a_real_report(infra: Infra, graph: StateGraph, tmp_path: Path) -> None:
    infra.actions.load(METRICS)
    lines = ["Quarterly report Q3", "Total Revenue 25,182.0", "Net income 2,173.5"]
    report(graph, write_pdf(tmp_path / "tesla q3.pdf", [["Cover"], lines]))
    result = infra.actions.execute("extract_financial_metrics", graph)
    assert result.ok, result.error
    assert result.output["metrics"] == {"revenue": 25182.0, "net_income": 2173.5}
    assert graph.latest("metrics") == result.node
    assert infra.evidence.get(result.evidence_cid)["executor"] == "process"


@pytest.mark.parametrize(
    ("changes", "confidence", "refusal"),
    [({"status": "scanning"}, 0.95, 'pdf_report.status == "ready"'), ({}, 0.5, "user_intent.confidence > 0.8")],
)
def test_it_is_refused_with_the_condition_and_its_value(
    infra: Infra, graph: StateGraph, tmp_path: Path, changes: dict[str, Any], confidence: float, refusal: str
) -> None:
    infra.actions.load(METRICS)
    report(graph, write_pdf(tmp_path / "a.pdf", [["Revenue 1"]]), **changes)
    graph.add_node("user_intent", {"confidence": confidence})
    result = infra.actions.execute("extract_financial_metrics", graph)
    assert result.status == "refused"
    assert refusal in result.error["why"]
    assert str(changes.get("status", confidence)) in result.error["why"]


def test_a_report_without_its_revenue_fails_its_postcondition(infra: Infra, graph: StateGraph, tmp_path: Path) -> None:
    infra.actions.load(METRICS)
    report(graph, write_pdf(tmp_path / "a.pdf", [["Net income 5"]]))
    result = infra.actions.execute("extract_financial_metrics", graph)
    assert (result.status, result.error["code"]) == ("failed", "PostconditionFailed")
    assert result.output["metrics"] == {"revenue": None, "net_income": 5.0}
    assert graph.latest("metrics") is None


# -- one spec, wrong in every way ------------------------------------------------------------------------------------


def world(infra: Infra, graph: StateGraph, tmp_path: Path) -> Path:
    infra.actions.load(PARSE)
    path = write_pdf(tmp_path / "doc.pdf", [[f"Page {number}"] for number in range(1, 13)])
    report(graph, path)
    graph.add_node("documents", {"ids": ["doc_789", "doc_790"]}, key="documents")
    return path


def problems(infra: Infra, graph: StateGraph, **changes: Any) -> tuple[str, ...]:
    params = SPEC["params"] | changes.pop("params", {})
    verdict = infra.actions.space(graph).validate(SPEC | changes | {"params": params})
    assert verdict.ok is not bool(verdict.problems)
    return verdict.problems


def test_the_spec_is_valid_and_runs(infra: Infra, graph: StateGraph, tmp_path: Path) -> None:
    world(infra, graph, tmp_path)
    assert problems(infra, graph) == ()
    result = infra.actions.execute(SPEC, graph)
    assert result.ok, result.error
    assert (result.output["pages"], result.output["file_id"]) == (5, "doc_789")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tool": "pdf_reader"}, ["no action or tool 'pdf_reader'"]),
        ({"params": {"file_id": "doc_1"}}, ["/file_id", "doc_1"]),
        ({"params": {"page_range": [1, 50]}}, ["pdf_report.pages", "12"]),
        ({"params": {"page_range": [0, 5]}}, ["page_range[0] >= 1"]),
        ({"confidence": 0.3}, ["confidence 0.3 is under the bar", "0.8"]),
    ],
)
def test_each_reason_alone(
    infra: Infra, graph: StateGraph, tmp_path: Path, changes: dict[str, Any], words: list[str]
) -> None:
    world(infra, graph, tmp_path)
    (problem,) = problems(infra, graph, **changes)
    for word in words:
        assert word in problem


def test_all_reasons_at_once(infra: Infra, graph: StateGraph, tmp_path: Path) -> None:
    world(infra, graph, tmp_path)
    found = problems(
        infra, graph, params={"file_id": "doc_1", "page_range": [3, 50], "output_format": "html"}, confidence=0.3
    )
    text = "\n".join(found)
    for word in ("/file_id", "pdf_report.pages", "/output_format", "0.3"):
        assert word in text, text
    assert len(found) == 4


# -- 600 pages -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pages = [
        [f"Page {number}", *(f"Line {line} of the annual report" for line in range(30))] for number in range(1, 601)
    ]
    return write_pdf(tmp_path_factory.mktemp("large") / "annual.pdf", pages)


def test_six_hundred_pages_are_read_in_a_worker_under_a_limit(infra: Infra, graph: StateGraph, large: Path) -> None:
    infra.actions.load(PARSE)
    report(graph, large, pages=600)
    graph.add_node("documents", {"ids": ["doc_789"]}, key="documents")
    result = infra.actions.execute(SPEC | {"params": SPEC["params"] | {"page_range": [1, 600]}}, graph)
    assert result.ok, result.error
    assert result.output["pages"] == 600
    evidence = infra.evidence.get(result.evidence_cid)
    assert 0 < evidence["peak_memory_mb"] < 400


def test_a_tool_that_keeps_all_pages_is_ended_with_its_figures_and_what_helps(
    infra: Infra, graph: StateGraph, large: Path
) -> None:
    result = infra.actions.execute({"tool": "pdf_hoarder", "params": {"path": str(large)}}, graph)
    assert result.error["code"] == "ToolOutOfMemory"
    assert result.error["memory"] == "host"
    assert result.error["peak_memory_mb"] > result.error["memory_limit_mb"] == 400
    assert "by pages" in result.error["mend"]
    with pytest.raises(ToolOutOfMemory, match="by pages") as raised:
        result.checked()
    assert raised.value.facts["memory_limit_mb"] == 400
    again = infra.actions.execute({"tool": "pdf_hoarder", "params": {"path": str(large)}}, graph)
    assert again.error["code"] == "ToolOutOfMemory", "a new worker took the call"
