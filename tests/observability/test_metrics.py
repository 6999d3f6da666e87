"""Metrics: what a scrape reads after the layers have counted."""

from __future__ import annotations

import prometheus_client

from agent_infra.observability import Metrics, metrics


def test_what_was_counted_is_what_a_scrape_reads() -> None:
    counted = Metrics()
    counted.called("pdf_parser", "succeeded", 0.3)
    counted.called("pdf_parser", "succeeded", 90)
    counted.called("pdf_parser", "timed_out", 300)
    counted.refused("get_weather", "PreconditionFailed")
    counted.signalled("满意度", "late")
    counted.wove("complete")
    read = counted.registry.get_sample_value
    assert read("agent_infra_calls_total", {"tool": "pdf_parser", "status": "succeeded"}) == 2
    assert read("agent_infra_calls_total", {"tool": "pdf_parser", "status": "timed_out"}) == 1
    assert read("agent_infra_refusals_total", {"action": "get_weather", "code": "PreconditionFailed"}) == 1
    assert read("agent_infra_signals_total", {"source": "满意度", "status": "late"}) == 1
    assert read("agent_infra_weaves_total", {"status": "complete"}) == 1
    assert read("agent_infra_tool_seconds_count", {"tool": "pdf_parser"}) == 3
    assert read("agent_infra_tool_seconds_bucket", {"tool": "pdf_parser", "le": "0.5"}) == 1
    assert 'agent_infra_signals_total{source="满意度",status="late"} 1.0' in counted.text()


def test_sets_do_not_share_counters_nor_touch_the_programs_registry() -> None:
    counted, other = Metrics(), Metrics()
    counted.wove("closed")
    assert "closed" not in other.text()
    assert "agent_infra" not in prometheus_client.generate_latest().decode()


def test_a_process_has_one_set() -> None:
    assert metrics() is metrics()
