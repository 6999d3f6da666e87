"""Spans: OpenTelemetry traces under the names of its GenAI conventions, so that any viewer of agent traces reads them.

Without an OpenTelemetry SDK in the program every span is a no-op. Names and attributes follow
https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-agent-spans/, which is not yet stable. Arguments, results,
prompts and the texts of errors, which quote them, stay out of spans.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from opentelemetry.trace import Span as _Span

Span: TypeAlias = "_Span"


@contextmanager
def tool_span(tool: str, *, call_id: str | None = None, session: str | None = None) -> Generator[Span]:
    """`execute_tool {tool}`, around one call. `call_id` is the event id, `session` becomes the conversation."""
    with _span("execute_tool", tool, {"gen_ai.tool.name": tool, "gen_ai.tool.call.id": call_id}, session) as span:
        yield span


@contextmanager
def workflow_span(name: str, *, goal_id: str | None = None, session: str | None = None) -> Generator[Span]:
    """`invoke_workflow {name}`, around one run of a goal."""
    attributes = {"gen_ai.workflow.name": name, "agent_infra.goal.id": goal_id}
    with _span("invoke_workflow", name, attributes, session) as span:
        yield span


def mark_failed(span: Span, code: str) -> None:
    """Mark a span whose work failed without an exception: a tool that failed, a run that ended without its result."""
    from opentelemetry.trace import Status, StatusCode

    span.set_attribute("error.type", code)
    span.set_status(Status(StatusCode.ERROR))


@contextmanager
def _span(operation: str, name: str, attributes: dict[str, str | None], session: str | None) -> Generator[Span]:
    from opentelemetry import trace

    # Asked for each time: the program may install its SDK after this library was imported.
    provider = trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider):
        yield trace.INVALID_SPAN
        return
    tracer = provider.get_tracer("agent_infra")
    known = attributes | {"gen_ai.operation.name": operation, "gen_ai.conversation.id": session}
    given = {key: value for key, value in known.items() if value is not None}
    with tracer.start_as_current_span(
        f"{operation} {name}", attributes=given, record_exception=False, set_status_on_exception=False
    ) as span:
        try:
            yield span
        except BaseException as error:
            mark_failed(span, getattr(error, "code", type(error).__name__))
            raise
