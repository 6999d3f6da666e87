"""What is known of one execution while it goes on, how it ended, and how that is told to its evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, cast

from agent_infra.actions.evidence import EvidenceStore, Kept, Told, Usage
from agent_infra.actions.executors import Outcome
from agent_infra.actions.language import Contract, condition_text
from agent_infra.actions.result import ActionResult
from agent_infra.actions.secrets import NO_SETTINGS, Sealed, Secrets
from agent_infra.actions.tools import Tool
from agent_infra.clock import MICROS
from agent_infra.errors import AgentInfraError
from agent_infra.state import Node, StateGraph

_OUTCOME_FIELDS: Final = tuple(each.name for each in fields(Outcome))


@dataclass(frozen=True, slots=True)
class Proposal:
    """That a policy asks for a call, as sure as it said, None where it didn't say; a call by name has none."""

    confidence: float | None


@dataclass(slots=True)
class Execution:
    """What is known of one execution so far.

    proposal         the policy's, where one asks for it
    attempt          which try it is, from 1
    repeated         the parameters of the try before, as the tool got them, where this process made it
    given, params    the parameters as the tool gets them, and as they are recorded: without secrets
    written          by name, the version that wrote each node of `inputs`
    start, previous  the step that it started from, and the bundles that its own follows
    """

    contract: Contract
    tool: Tool
    graph: StateGraph
    agent: str | None
    fill: Mapping[str, Any]
    about: Mapping[str, Any]
    proposal: Proposal | None = None
    attempt: int = 1
    repeated: dict[str, Any] | None = field(default=None, repr=False)
    key: str = ""
    started_at: str = ""
    bindings: dict[str, Any] = field(default_factory=dict[str, Any])
    inputs: dict[str, Node] = field(default_factory=dict[str, Node])
    written: dict[str, str] = field(default_factory=dict[str, str])
    given: dict[str, Any] = field(default_factory=dict[str, Any], repr=False)
    params: dict[str, Any] = field(default_factory=dict[str, Any])
    settings: Sealed = NO_SETTINGS
    start: int = 0
    previous: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    usages: list[Usage] = field(default_factory=list[Usage])
    conditions: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    call: Node | None = None

    def proposed(self) -> dict[str, Any]:
        """The proposal, as fields of the call node."""
        return {} if self.proposal is None else {"confidence": self.proposal.confidence}

    def note_usage(self, update: Any) -> None:
        """Note what the tool says that it used; other progress passes by."""
        if isinstance(update, dict):
            self.usages.append(Usage(**cast("dict[str, Any]", update)["usage"]))


@dataclass(frozen=True, slots=True)
class Stored:
    """Parameters and output as the bundle holds them."""

    params: Kept
    output: Kept


@dataclass(frozen=True, slots=True)
class Ending:
    """How an execution ended. `outcome`: what the executor gave, None where the tool was not called."""

    status: str
    output: Any
    error: dict[str, Any] | None
    outcome: Outcome | None = None
    kept: Stored | None = None

    @property
    def seconds(self) -> float | None:
        """How long the tool ran."""
        return (self.outcome.finished - self.outcome.started) / MICROS if self.outcome is not None else None


def told(execution: Execution, ending: Ending, evidence: EvidenceStore) -> Told:
    """All of an execution, for its bundle."""
    kept = ending.kept or Stored(evidence.keep(execution.params), Kept())
    return Told(
        session=execution.graph.session_id,
        version=execution.started_at,
        previous=execution.previous,
        call=cast("Node", execution.call),
        agent=execution.agent,
        contract=execution.contract,
        tool=execution.tool,
        key=execution.key,
        inputs=execution.inputs,
        written=execution.written,
        conditions=execution.conditions,
        status=ending.status,
        error=ending.error,
        seconds=ending.seconds,
        cost=evidence.cost(execution.usages, ending.outcome.output if ending.outcome else None),
        params=kept.params,
        output=kept.output,
        outcome=ending.outcome,
    )


def without_secrets(outcome: Outcome, secrets: Secrets) -> Outcome:
    """The outcome as it is recorded and given back: whatever of it holds a secret, without it."""
    found: dict[str, Any] = {}
    for name in _OUTCOME_FIELDS:
        value = getattr(outcome, name)
        cleaned = secrets.clean_tail(value) if name in ("stdout", "stderr") else secrets.clean(value)
        if cleaned is not value:
            found[name] = cleaned
    return replace(outcome, **found) if found else outcome


def is_retried(execution: Execution, result: ActionResult) -> bool:
    """Whether a call that ended so is tried again, by its contract's `retries`."""
    retries = execution.contract.retries
    if retries is None or result.status not in ("failed", "timed_out") or execution.attempt > retries.times:
        return False
    return (result.error or {}).get("code") in retries.on


def confidence_problem(execution: Execution) -> dict[str, Any] | None:
    """What the contract's rule says against a proposal: one without a confidence counts as below the bar."""
    rule, proposal = execution.contract.confidence, execution.proposal
    if rule is None or proposal is None or not execution.contract.open:
        return None
    sure = proposal.confidence
    if sure is not None and sure >= rule.min:
        return None
    why = f"the confidence {'is missing' if sure is None else f'{sure:g} is under the bar'}; it asks for {rule.min:g}"
    if rule.below == "ask_human":
        return error_of("ApprovalNeeded", "a person has to approve this call", [why])
    return error_of("ConfidenceTooLow", "the proposal is not sure enough to be executed", [why])


def error_of(code: str, what: str, reasons: Sequence[str]) -> dict[str, Any]:
    """An error as results, receipts and bundles hold it."""
    return {"code": code, "what": what, "why": "; ".join(reasons)}


def conditions_failed(code: str, failed: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The error of conditions that don't hold, by their log entries."""
    what = "a condition does not hold" if len(failed) == 1 else f"{len(failed)} conditions do not hold"
    return error_of(code, what, [condition_text(entry) for entry in failed])


def as_error(error: AgentInfraError) -> dict[str, Any]:
    """An exception of this library as the error of a result."""
    said = error_of(error.code, error.what, [error.why] if error.why else [])
    return said | ({"mend": error.mend} if error.mend else {})
