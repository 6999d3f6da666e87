"""One execution of a contract, from the head of a graph to its evidence.

    1. under the session's lock: references are resolved and preconditions judged at the head, and the *intent* (a
    `call`
       node with its idempotency key) is written, or the refusal with its reasons
    2. no lock held: the executor runs the tool
    3. under the lock again: the output is checked, postconditions judged, and one step commits the receipt with its
       evidence, the result node and the edges

A refusal or failure is an outcome that is recorded like any other; exceptions are for callers that asked for something
impossible.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias, cast

from agent_infra.actions.evidence import EvidenceStore, environment
from agent_infra.actions.executors import Call, ExecutorPool, Outcome
from agent_infra.actions.language import Contract, condition_text, judged
from agent_infra.actions.result import ActionResult
from agent_infra.actions.space import Validators
from agent_infra.actions.tools import Tool, ToolRegistry
from agent_infra.clock import MICROS, new_ulid, to_datetime
from agent_infra.content import fingerprint
from agent_infra.errors import ContractDrift, LockTimeout, NotJson, SchemaMismatch
from agent_infra.expressions import Expression
from agent_infra.observability import mark_failed, metrics, tool_span
from agent_infra.state import Node, StateEngine, StateGraph, Step, activation

OnCall: TypeAlias = Callable[[Step, Node], None]
OnReceipt: TypeAlias = Callable[[Step, ActionResult], None]
RECEIPT_WAIT: Final = 600.0
"""Seconds for which a call that has ended waits for another writer of its session."""
UNSURE: Final = ("TimedOut", "ToolOutOfMemory", "WorkerDied", "ExecutorStopped")
"""Failures after which nobody knows what the tool had done; with effects `once` the outcome is then unknown."""


@dataclass(slots=True)
class Execution:
    """What is known of one execution so far."""

    contract: Contract
    tool: Tool
    graph: StateGraph
    agent: str | None
    fill: Mapping[str, Any]
    about: Mapping[str, Any]
    key: str = ""
    started_at: str = ""
    bindings: dict[str, Any] = field(default_factory=dict[str, Any])
    inputs: dict[str, Node] = field(default_factory=dict[str, Node])
    params: dict[str, Any] = field(default_factory=dict[str, Any])
    conditions: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    call: Node | None = None


class Orchestrator:
    """Executes contracts: the one way from a spec to a tool call."""

    def __init__(
        self,
        engine: StateEngine,
        tools: ToolRegistry,
        pool: ExecutorPool,
        evidence: EvidenceStore,
        validators: Validators | None = None,
    ) -> None:
        self.validators = validators or Validators()
        self._engine = engine
        self._tools = tools
        self._pool = pool
        self._evidence = evidence

    async def execute(
        self,
        contract: Contract,
        graph: StateGraph,
        *,
        params: Mapping[str, Any] | None = None,
        agent: str | None = None,
        seed: Sequence[str] | None = None,
        about: Mapping[str, Any] | None = None,
        repeat: Node | None = None,
        on_call: OnCall | None = None,
        on_receipt: OnReceipt | None = None,
    ) -> ActionResult:
        """Execute a contract at the head of a graph.

        params      values for its open parameters
        seed        what makes this request this one, for the idempotency key; a fresh id unless given
        about       further fields of the call node (goal, subgoal)
        repeat      the interrupted call that this one repeats: same parameters, same idempotency key
        on_call, on_receipt   add to the very steps that write the intent and the receipt; a refusal has no intent

        Raises ToolUnknown, ContractDrift and what the state layer raises; everything else is in the result.
        """
        execution = Execution(
            contract, self._tool_of(contract), graph, agent or graph.agent, dict(params or {}), dict(about or {})
        )
        with graph.step(agent=execution.agent, durable=False) as step:
            refusal = self._prepare(execution, seed or (new_ulid(self._engine.clock.micros()),), repeat)
            call = execution.call = self._write_call(step, execution, repeat)
            refused = self._write_end(step, execution, refusal, on_receipt) if refusal is not None else None
            if refused is None and on_call is not None:
                on_call(step, call)
        if refused is None:
            if contract.effects == "once":
                await self._settled(graph)
            return await self._run(execution, on_receipt)
        await self._settled(graph)
        return replace(refused, version=step.version or "")

    def _tool_of(self, contract: Contract) -> Tool:
        """The tool that a contract was compiled for. Raises ToolUnknown, ContractDrift where it is another by now."""
        tool = self._tools.get(contract.tool)
        if tool.version != contract.tool_version or tool.input_schema != contract.input_schema:
            raise ContractDrift(
                f"action {contract.name!r} was compiled for another state of the tool {tool.name!r}",
                why=f"for version {contract.tool_version}, and it is {tool.version} now"
                if tool.version != contract.tool_version
                else f"its parameters were changed, and it is still called version {tool.version}",
                mend="Load the action again, which checks it against the tool as it is now.",
                facts={
                    "action": contract.name,
                    "tool": tool.name,
                    "compiled": contract.tool_version,
                    "now": tool.version,
                },
            )
        return tool

    async def _settled(self, graph: StateGraph) -> None:
        """Wait for the disk off the loop, so that parallel calls share an fsync."""
        if self._engine.durability == "group":
            await asyncio.to_thread(graph.flush)

    # -- before the call ---------------------------------------------------------------------------

    def _prepare(self, execution: Execution, seed: Sequence[str], repeat: Node | None) -> _Ending | None:
        """Resolve and judge at the head; the refusal, or None where the call may be made."""
        error = self._obstacle(execution, seed, repeat)
        if error is None:
            return None
        metrics().refused(execution.contract.name, error["code"])
        return _Ending("refused", None, error)

    def _obstacle(self, execution: Execution, seed: Sequence[str], repeat: Node | None) -> dict[str, Any] | None:
        contract, graph = execution.contract, execution.graph
        execution.started_at = str(graph.version)
        state, execution.inputs = activation(graph, contract.readings)
        now = to_datetime(self._engine.clock.micros()).isoformat()
        execution.bindings = state | {"agent": {"name": execution.agent}, "now": now}
        if repeat is None:
            params, problems = contract.resolve(execution.bindings, execution.fill)
        else:
            params, problems = dict(repeat.data["params"]), []
        execution.params = params
        execution.bindings["params"] = params
        execution.key = (
            repeat.data["idempotency_key"]
            if repeat is not None
            else fingerprint([graph.session_id, *seed, contract.name, params, contract.tool_version])
        )
        if problems:
            return _error("ParametersInvalid", f"the parameters are not what action {contract.name!r} takes", problems)
        wrong = execution.tool.check_input(params)
        if wrong:
            return _error("InputInvalid", f"the parameters are not what {contract.tool!r} takes", wrong)
        failed = self._judge(execution, "pre", contract.preconditions)
        if failed:
            return _condition_error("PreconditionFailed", failed)
        wrong = self.validators.problems(contract.name, params, graph)
        return _error("ValidatorRefused", "a validator of the user's own refuses the call", wrong) if wrong else None

    def _judge(
        self, execution: Execution, kind: Literal["pre", "post"], conditions: Sequence[Expression]
    ) -> list[dict[str, Any]]:
        """Evaluate conditions into the log; those that don't hold."""
        log = [judged(kind, condition, execution.bindings) for condition in conditions]
        execution.conditions += log
        return [entry for entry in log if not entry["holds"]]

    def _write_call(self, step: Step, execution: Execution, repeat: Node | None) -> Node:
        contract = execution.contract
        inputs = list(execution.inputs.values())
        data = {
            "action": contract.name,
            "contract": contract.hash,
            "tool": contract.tool,
            "tool_version": contract.tool_version,
            "params": execution.params,
            "effects": contract.effects,
            "idempotency_key": execution.key,
            "inputs": [node.id for node in inputs],
            "attempt": repeat.data.get("attempt", 1) + 1 if repeat is not None else 1,
        } | dict(execution.about)
        call = step.add_node("call", data, tool=contract.tool, labels=_inherited(inputs))
        for node in inputs:
            step.add_edge(call.id, node.id, "references")
        for kind, value in contract.references(execution.bindings):
            step.refer(kind, value)
        return call

    # -- the call and after ------------------------------------------------------------------------

    async def _run(self, execution: Execution, on_receipt: OnReceipt | None) -> ActionResult:
        contract, call = execution.contract, cast("Node", execution.call)
        with tool_span(contract.tool, call_id=call.id, session=execution.graph.session_id) as span:
            outcome = await self._pool.execute(
                Call(
                    tool=execution.tool,
                    params=execution.params,
                    call_id=call.id,
                    idempotency_key=execution.key,
                    idle=contract.timeout.idle,
                    total=contract.timeout.total,
                    resources=contract.resources,
                )
            )
            if outcome.status != "succeeded":
                mark_failed(span, (outcome.error or {}).get("code", outcome.status))
        metrics().called(contract.tool, outcome.status, (outcome.finished - outcome.started) / MICROS)
        kept = await asyncio.to_thread(self._evidence.keep, outcome.output)
        result = await self._record(execution, outcome, kept, on_receipt)
        await self._settled(execution.graph)
        return result

    async def _record(
        self, execution: Execution, outcome: Outcome, kept: Mapping[str, Any], on_receipt: OnReceipt | None
    ) -> ActionResult:
        """Commit the end of a call. Where another writer has the session, wait on a thread: neither the loop nor what is
        known of the outcome may be lost for want of a lock.
        """

        def write(timeout: float) -> ActionResult:
            graph = execution.graph
            with graph.step(agent=execution.agent, lock_wait_timeout=timeout, durable=False) as step:
                ending = replace(self._judged(execution, outcome), kept=kept)
                result = self._write_end(step, execution, ending, on_receipt)
            return replace(result, version=step.version or "")

        try:
            return write(0)
        except LockTimeout:
            return await asyncio.to_thread(write, RECEIPT_WAIT)

    def _judged(self, execution: Execution, outcome: Outcome) -> _Ending:
        """The outcome after the output's schema and the postconditions had their say."""
        if outcome.status != "succeeded":
            unsure = (outcome.error or {}).get("code") in UNSURE and execution.contract.effects == "once"
            return _Ending("unknown" if unsure else outcome.status, None, outcome.error, outcome)
        wrong = execution.tool.check_output(outcome.output)
        if wrong:
            error = _error("OutputInvalid", f"{execution.tool.name!r} gave what its output schema forbids", wrong)
            return _Ending("failed", outcome.output, error, outcome)
        state, _ = activation(execution.graph, execution.contract.postconditions)
        execution.bindings |= state | {"result": outcome.output}
        failed = self._judge(execution, "post", execution.contract.postconditions)
        if failed:
            return _Ending("failed", outcome.output, _condition_error("PostconditionFailed", failed), outcome)
        return _Ending("succeeded", outcome.output, None, outcome)

    def _write_end(
        self, step: Step, execution: Execution, ending: _Ending, on_receipt: OnReceipt | None
    ) -> ActionResult:
        """Add result node, evidence, receipt and edges to an open step."""
        call = cast("Node", execution.call)
        node: Node | None = None
        if ending.status == "succeeded":
            node, ending = self._write_result(step, execution, ending)
        seconds = (ending.outcome.finished - ending.outcome.started) / MICROS if ending.outcome else None
        evidence = self._evidence.write(self._bundle(execution, ending, seconds))
        receipt: dict[str, Any] = {
            "call": call.id,
            "status": ending.status,
            "error": ending.error,
            "evidence": evidence,
            "conditions": execution.conditions,
            "seconds": seconds,
        }
        written = step.add_node("receipt", receipt, labels=call.labels)
        step.add_edge(call.id, written.id, "triggers")
        result = ActionResult(
            ok=ending.status == "succeeded",
            status=ending.status,
            output=ending.output,
            error=ending.error,
            evidence_cid=cast("str", evidence["$cid"]),
            node=node,
            version="",
            event_id=call.id,
            conditions=tuple(execution.conditions),
            action=execution.contract.name,
            tool=execution.contract.tool,
            session=execution.graph.session_id,
            seconds=seconds,
        )
        if on_receipt is not None:
            on_receipt(step, result)
        return result

    def _write_result(self, step: Step, execution: Execution, ending: _Ending) -> tuple[Node | None, _Ending]:
        """The result node that the contract asks for; or the failure, where its own schema refuses the output."""
        contract, call = execution.contract, cast("Node", execution.call)
        if contract.result is None:
            return None, ending
        output = ending.output
        data = cast("dict[str, Any]", output) if isinstance(output, dict) else {"value": output}
        key = contract.result.key_for(execution.bindings | {"result": output})
        if key.error is not None:
            error = _error("ReferenceUnresolved", "the result's key has no value", [key.error])
            return None, replace(ending, status="failed", error=error)
        try:
            node = step.add_node(
                contract.result.type,
                data,
                key=None if key.value is None else str(key.value),
                ttl=contract.result.ttl,
                labels=call.labels,
            )
        except (SchemaMismatch, NotJson) as refused:
            error = _error("OutputInvalid", f"the output is no valid {contract.result.type!r} node", [str(refused)])
            return None, replace(ending, status="failed", error=error)
        step.add_edge(call.id, node.id, "causes")
        return node, ending

    def _bundle(self, execution: Execution, ending: _Ending, seconds: float | None) -> dict[str, Any]:
        contract, outcome = execution.contract, ending.outcome
        ran: dict[str, Any] = {}
        if outcome is not None:
            ran = {
                "executor": outcome.executor,
                "started_at": to_datetime(outcome.started).isoformat(),
                "finished_at": to_datetime(outcome.finished).isoformat(),
                "exit_code": outcome.exit_code,
                "cpu_seconds": outcome.cpu_seconds,
                "peak_memory_mb": outcome.peak_memory_mb,
                "stdout_tail": outcome.stdout,
                "stderr_tail": outcome.stderr,
            }
        bundle: dict[str, Any] = {
            "kind": "agent_infra/evidence",
            "format": 1,
            "session": execution.graph.session_id,
            "version": execution.started_at,
            "call": cast("Node", execution.call).id,
            "agent": execution.agent,
            "action": contract.name,
            "contract": contract.hash,
            "tool": {"name": contract.tool, "version": contract.tool_version},
            "idempotency_key": execution.key,
            "params": execution.params,
            "inputs": {name: {"node": node.id, "step": node.step} for name, node in execution.inputs.items()},
            "conditions": execution.conditions,
            "status": ending.status,
            "error": ending.error,
            "seconds": seconds,
            "environment": environment(),
        }
        return bundle | dict(ending.kept) | ran


@dataclass(frozen=True, slots=True)
class _Ending:
    status: str
    output: Any
    error: dict[str, Any] | None
    outcome: Outcome | None = None
    kept: Mapping[str, Any] = field(default_factory=lambda: {"output": None})


def _error(code: str, what: str, reasons: Sequence[str]) -> dict[str, Any]:
    return {"code": code, "what": what, "why": "; ".join(reasons)}


def _condition_error(code: str, failed: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    what = "a condition does not hold" if len(failed) == 1 else f"{len(failed)} conditions do not hold"
    return _error(code, what, [condition_text(entry) for entry in failed])


def _inherited(nodes: Sequence[Node]) -> tuple[str, ...]:
    """Labels go on to whatever is made from a node."""
    return tuple(sorted({label for node in nodes for label in node.labels}))
