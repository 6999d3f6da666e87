"""Judging conditions, and telling why one doesn't hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from agent_infra.content import JsonValue, json_bytes
from agent_infra.expressions import Expression

LONG: Final = 1000
"""Characters of JSON from which a value is shortened in the log."""


def judged(kind: Literal["pre", "post"], condition: Expression, bindings: Mapping[str, Any]) -> dict[str, Any]:
    """A condition's log entry: its text, whether it holds, the values that it read, and why it can't be judged."""
    found = condition.evaluate(bindings)
    values = {path: _logged(value) for path, value in condition.values(bindings).items()}
    entry = {"kind": kind, "source": condition.source, "holds": found.holds, "values": values}
    return entry | ({"reason": found.error} if found.error is not None else {})


def _logged(value: JsonValue) -> JsonValue:
    """A value as the log keeps it: whole, or its beginning where it is long; evidence has the output itself."""
    text = json_bytes(value).decode()
    return value if len(text) <= LONG else f"{text[:200]}… ({len(text)} characters)"


def condition_text(entry: Mapping[str, Any]) -> str:
    """A log entry in one line: the condition, and the values that decided it."""
    values = ", ".join(f"{path} is {_short(value)}" for path, value in entry["values"].items())
    return f"{entry['source']} ({entry.get('reason') or values or 'it is false'})"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:199]}…"


def why_not(condition: Expression, bindings: Mapping[str, Any]) -> str | None:
    """Why a precondition doesn't hold, in one line; None if it does."""
    entry = judged("pre", condition, bindings)
    return None if entry["holds"] else condition_text(entry)
