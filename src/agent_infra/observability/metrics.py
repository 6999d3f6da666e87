"""Metrics: what operators count, in Prometheus's form.

| name | kind | labels | counts |
|---|---|---|---|
| `agent_infra_calls_total` | counter | tool, status | calls that ended: succeeded, failed, timed_out, unknown |
| `agent_infra_refusals_total` | counter | action, code | specs and calls that were refused before a tool ran |
| `agent_infra_signals_total` | counter | source, status | signals at the door: accepted, duplicate, late, refused |
| `agent_infra_weaves_total` | counter | status | woven rewards: complete, waiting, closed, unscored |
| `agent_infra_tool_seconds` | histogram | tool | how long calls took, in seconds |

Labels hold names from contracts and rule files, never ids or texts, so that the number of series stays small.
"""

from __future__ import annotations

from functools import cache
from typing import Any

# Seconds; from an in-process function to a long document.
BUCKETS = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0, 300.0)


class Metrics:
    """One set of counters in a registry of its own, so that it never mixes with those of the program around it."""

    def __init__(self) -> None:
        from prometheus_client import CollectorRegistry, Counter, Histogram

        self.registry = registry = CollectorRegistry()

        def counter(name: str, what: str, *labels: str) -> Any:
            return Counter(f"agent_infra_{name}", what, labels, registry=registry)

        self._calls = counter("calls", "Tool calls that ended.", "tool", "status")
        self._refusals = counter("refusals", "Specs and calls refused before a tool ran.", "action", "code")
        self._signals = counter("signals", "Reward signals at the door.", "source", "status")
        self._weaves = counter("weaves", "Woven rewards.", "status")
        self._seconds = Histogram(
            "agent_infra_tool_seconds", "Duration of tool calls.", ["tool"], registry=registry, buckets=BUCKETS
        )

    def called(self, tool: str, status: str, seconds: float) -> None:
        """A tool call ended with that status after that many seconds."""
        self._calls.labels(tool, status).inc()
        self._seconds.labels(tool).observe(seconds)

    def refused(self, action: str, code: str) -> None:
        """An action was refused before its tool ran; `code` is the error's."""
        self._refusals.labels(action, code).inc()

    def signalled(self, source: str, status: str) -> None:
        """A signal came from a source and was accepted, a duplicate, late or refused."""
        self._signals.labels(source, status).inc()

    def wove(self, status: str) -> None:
        """A reward was woven and has that status."""
        self._weaves.labels(status).inc()

    def text(self) -> str:
        """All of it in Prometheus's text format, what a scrape gets."""
        from prometheus_client import generate_latest

        return generate_latest(self.registry).decode()


@cache
def metrics() -> Metrics:
    """The process's own set, made at first use."""
    return Metrics()
