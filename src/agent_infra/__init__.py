"""agent_infra: one verifiable record of what an agent saw, was allowed to do, did, and was later rewarded for.

The public names are here, loaded when first used. `Infra.open()` opens a home; `StateGraph(session_id=…)`,
`GDEPScheduler()` and `RewardWeaver()` are the same on the default home.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from agent_infra import opening as _opening
from agent_infra.version import __version__ as __version__

if TYPE_CHECKING:
    from agent_infra.actions import (
        ActionResult,
        ActionSpace,
        CallContext,
        Contract,
        Tool,
        Verdict,
        tool,
    )
    from agent_infra.errors import (
        ActionFailed,
        AgentInfraError,
        ApprovalNeeded,
        ContractDrift,
        ContractErrors,
        ContractUnknown,
        DocumentErrors,
        DuplicateConflict,
        GoalErrors,
        GoalUnknown,
        GpuUnavailable,
        LockTimeout,
        NodeUnknown,
        NotJson,
        Problem,
        RuleErrors,
        SchemaMismatch,
        SignalRefused,
        StoreLocked,
        ToolInvalid,
        ToolOutOfMemory,
        ToolUnknown,
        VersionConflict,
        VersionUnknown,
        WouldDeadlock,
    )
    from agent_infra.infra import Infra
    from agent_infra.rewards import RewardWeaver, Signal, WovenReward
    from agent_infra.scheduler import GDEPScheduler, Plan, RunResult
    from agent_infra.state import Edge, Node, StateGraph, Version

_HOME = {
    "agent_infra.actions": ("ActionResult", "ActionSpace", "CallContext", "Contract", "Tool", "Verdict", "tool"),
    "agent_infra.errors": (
        "ActionFailed",
        "AgentInfraError",
        "ApprovalNeeded",
        "ContractDrift",
        "ContractErrors",
        "ContractUnknown",
        "DocumentErrors",
        "DuplicateConflict",
        "GoalErrors",
        "GoalUnknown",
        "GpuUnavailable",
        "LockTimeout",
        "NodeUnknown",
        "NotJson",
        "Problem",
        "RuleErrors",
        "SchemaMismatch",
        "SignalRefused",
        "StoreLocked",
        "ToolInvalid",
        "ToolOutOfMemory",
        "ToolUnknown",
        "VersionConflict",
        "VersionUnknown",
        "WouldDeadlock",
    ),
    "agent_infra.infra": ("Infra",),
    "agent_infra.rewards": ("RewardWeaver", "Signal", "WovenReward"),
    "agent_infra.scheduler": ("GDEPScheduler", "Plan", "RunResult"),
    "agent_infra.state": ("Edge", "Node", "StateGraph", "Version"),
}
_WHERE = {name: module for module, names in _HOME.items() for name in names}

__all__ = [
    "ActionFailed",
    "ActionResult",
    "ActionSpace",
    "AgentInfraError",
    "ApprovalNeeded",
    "CallContext",
    "Contract",
    "ContractDrift",
    "ContractErrors",
    "ContractUnknown",
    "DocumentErrors",
    "DuplicateConflict",
    "Edge",
    "GDEPScheduler",
    "GoalErrors",
    "GoalUnknown",
    "GpuUnavailable",
    "Infra",
    "LockTimeout",
    "Node",
    "NodeUnknown",
    "NotJson",
    "Plan",
    "Problem",
    "RewardWeaver",
    "RuleErrors",
    "RunResult",
    "SchemaMismatch",
    "Signal",
    "SignalRefused",
    "StateGraph",
    "StoreLocked",
    "Tool",
    "ToolInvalid",
    "ToolOutOfMemory",
    "ToolUnknown",
    "Verdict",
    "Version",
    "VersionConflict",
    "VersionUnknown",
    "WouldDeadlock",
    "WovenReward",
    "tool",
]


def __getattr__(name: str) -> Any:
    """A public name, its module imported now: `import agent_infra` alone stays light."""
    module = _WHERE.get(name)
    if module is None:
        raise AttributeError(f"module 'agent_infra' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(module), name)
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])


def _open_default() -> Any:
    return import_module("agent_infra.infra").default_infra()


_opening.set_opener(_open_default)
