"""What is in a bundle: all that is known of one execution, success or not, as one JSON object.

Format 2. Every bundle has all the fields; what was not measured, or does not apply, is None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

import msgspec

from agent_infra.actions.executors import Outcome
from agent_infra.actions.language import Contract
from agent_infra.actions.language.parameters import Given
from agent_infra.actions.tools import Tool
from agent_infra.clock import to_datetime
from agent_infra.state import Node

KIND: Final = "agent_infra/evidence"
FORMAT: Final = 2
_TOLD_APART: Final = ("status", "output", "error", "started", "finished")
_RENAMED: Final = {"stdout": "stdout_tail", "stderr": "stderr_tail", "peak_gpu_memory_mb": "gpu_memory_mb"}
_MEASURED: Final = tuple(each.name for each in fields(Outcome) if each.name not in _TOLD_APART)
_UNMEASURED: Final[dict[str, Any]] = {
    **{_RENAMED.get(name, name): None for name in _MEASURED},
    "started_at": None,
    "finished_at": None,
    "gpu_memory_mb": None,
    "image_digest": None,
}


@dataclass(frozen=True, slots=True)
class Kept:
    """A value as a bundle holds it: itself, or the reference to its own block where it is large."""

    value: Any = None
    apart: bool = False


@dataclass(frozen=True, slots=True)
class Told:
    """What the orchestrator knows of an execution once it ended.

    version   the session's version that it started from          previous  the bundles that this one follows
    inputs    by name, the nodes that references and conditions read; `written`: the version that wrote each
    outcome   what the executor gave; None where the tool was not called
    """

    session: str
    version: str
    previous: Sequence[Mapping[str, Any]]
    call: Node
    agent: str | None
    contract: Contract
    tool: Tool
    key: str
    inputs: Mapping[str, Node]
    written: Mapping[str, str]
    conditions: Sequence[Mapping[str, Any]]
    status: str
    error: Mapping[str, Any] | None
    seconds: float | None
    cost: Mapping[str, Any]
    params: Kept
    output: Kept = field(default_factory=Kept)
    outcome: Outcome | None = None


def make_bundle(told: Told, environment: Mapping[str, Any]) -> dict[str, Any]:
    """The bundle; `environment` is the reference to the block that says where it ran."""
    contract, tool = told.contract, told.tool
    bundle: dict[str, Any] = {
        "kind": KIND,
        "format": FORMAT,
        "session": told.session,
        "version": told.version,
        "previous": list(told.previous),
        "call": told.call.id,
        "attempt": told.call.data.get("attempt", 1),
        "agent": told.agent,
        "action": contract.name,
        "contract": contract.hash,
        "tool": {"name": tool.name, "version": contract.tool_version, "settings": dict(tool.settings)},
        "effects": contract.effects,
        "idempotency_key": told.key,
        "params": told.params.value,
        "references": _references(contract),
        "inputs": {name: _input(node, told.written.get(name)) for name, node in told.inputs.items()},
        "conditions": list(told.conditions),
        "status": told.status,
        "error": told.error,
        "output": told.output.value,
        "apart": [name for name, kept in (("output", told.output), ("params", told.params)) if kept.apart],
        "seconds": told.seconds,
        "cost": told.cost,
        "environment": environment,
    }
    return bundle | measured(told.outcome)


def measured(outcome: Outcome | None) -> dict[str, Any]:
    """What an executor measured, each field of its outcome by name; all None where the tool was not called."""
    if outcome is None:
        return _UNMEASURED
    found = dict(_UNMEASURED)
    for name in _MEASURED:
        value = getattr(outcome, name)
        plain = value is None or isinstance(value, str | int | float)
        found[_RENAMED.get(name, name)] = value if plain else msgspec.to_builtins(value)
    found |= {name: value for name, value in outcome.facts.items() if name in found and found[name] is None}
    found["started_at"] = to_datetime(outcome.started).isoformat()
    found["finished_at"] = to_datetime(outcome.finished).isoformat()
    return found


def _references(contract: Contract) -> dict[str, Any]:
    """By parameter, the `${…}` that its value came from."""
    given = ((name, each.template) for name, each in contract.params.items() if isinstance(each, Given))
    return {name: template.source for name, template in given if template.is_reference}


def _input(node: Node, written: str | None) -> dict[str, Any]:
    name, version, _ = node.schema
    return {
        "node": node.id,
        "type": node.type,
        "key": node.key,
        "step": node.step,
        "version": written,
        "schema": f"{name}@{version}",
    }
