"""What the library tells of itself: logs, spans and metrics.

In come short events from every layer; out they go to whoever listens: the standard library's loggers, an OpenTelemetry
SDK, a Prometheus scrape. With no listener each costs next to nothing. Nothing here is configured on import, and
nothing is a record to rely on: what happened is in the state graph, these are views for those who operate it.
"""

from agent_infra.observability.logs import Logger, get_logger, setup_logging
from agent_infra.observability.metrics import Metrics, metrics
from agent_infra.observability.spans import Span, mark_failed, tool_span, workflow_span

__all__ = [
    "Logger",
    "Metrics",
    "Span",
    "get_logger",
    "mark_failed",
    "metrics",
    "setup_logging",
    "tool_span",
    "workflow_span",
]
