"""Expressions of rules, compiled once a process: a set that is loaded again costs what is new in it."""

from __future__ import annotations

from functools import lru_cache

from agent_infra.expressions import Expression, compile_expression


@lru_cache(maxsize=4096)
def compiled(source: str, names: tuple[str, ...], boolean: bool) -> Expression:
    """The expression over these names and the graph's `state`. Raises ExpressionError."""
    return compile_expression(source, [*names, "state"], boolean=boolean)


@lru_cache(maxsize=4096)
def source_of(condition: Expression, name: str) -> str | None:
    """The one source that a condition on a signal asks for, where it asks for one."""
    return condition.demands((name, "source"))
