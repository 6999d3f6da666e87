"""Spans: GenAI names where an SDK listens, nothing where none does."""

from __future__ import annotations

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from agent_infra.errors import ToolUnknown
from agent_infra.observability import mark_failed, tool_span, workflow_span


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """An SDK for one test; the real one can be installed only once a process."""
    provider, exporter = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    return exporter


def spans(exporter: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {span.name: span for span in exporter.get_finished_spans()}


def test_a_call_stands_under_its_run(exported: InMemorySpanExporter) -> None:
    with workflow_span("比较财报", goal_id="g1", session="s1"), tool_span("pdf_parser", call_id="c1", session="s1"):
        pass
    run, call = spans(exported)["invoke_workflow 比较财报"], spans(exported)["execute_tool pdf_parser"]
    assert call.parent is not None
    assert run.context is not None
    assert call.parent.span_id == run.context.span_id
    assert dict(call.attributes or {}) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "pdf_parser",
        "gen_ai.tool.call.id": "c1",
        "gen_ai.conversation.id": "s1",
    }
    assert dict(run.attributes or {}) == {
        "gen_ai.operation.name": "invoke_workflow",
        "gen_ai.workflow.name": "比较财报",
        "agent_infra.goal.id": "g1",
        "gen_ai.conversation.id": "s1",
    }


def test_a_failure_is_named_by_its_code_and_quotes_nothing(exported: InMemorySpanExporter) -> None:
    with pytest.raises(ToolUnknown), tool_span("x"):
        raise ToolUnknown("no tool of that name", why="account 6222-0000")
    with pytest.raises(KeyError), tool_span("y"):
        raise KeyError("6222-0000")
    with tool_span("z") as span:
        mark_failed(span, "timed_out")
    for name, code in {
        "execute_tool x": "ToolUnknown",
        "execute_tool y": "KeyError",
        "execute_tool z": "timed_out",
    }.items():
        failed = spans(exported)[name]
        assert (failed.attributes or {})["error.type"] == code
        assert failed.status.status_code is trace.StatusCode.ERROR
        assert "6222" not in failed.to_json()


def test_without_an_sdk_spans_do_nothing() -> None:
    with workflow_span("run"), tool_span("x") as span:
        mark_failed(span, "failed")
        assert not span.is_recording()
